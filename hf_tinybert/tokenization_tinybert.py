"""Tokenizer of the TinyBERT encoder."""

from transformers import PreTrainedTokenizerFast


class TinyBertTokenizer(PreTrainedTokenizerFast):
    r"""A `tokenizer.json` that cuts texts at `model_max_length` unless told otherwise.

    transformers cuts only on request, so a pipeline given a long text would hand the model more tokens than it has
    positions. `truncation=False` gives every token. All else is `PreTrainedTokenizerFast`, and any tool that loads
    the folder as that gets the same ids.
    """

    model_input_names = ["input_ids", "attention_mask"]

    def __call__(self, *args, truncation=None, **kwargs):
        return super().__call__(*args, truncation=True if truncation is None else truncation, **kwargs)


__all__ = ["TinyBertTokenizer"]
