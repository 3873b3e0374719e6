"""Tokenizer of the TinyBERT encoder."""

import copy

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast


class TinyBertTokenizer(PreTrainedTokenizerFast):
    r"""A `tokenizer.json` that cuts texts at `model_max_length` unless told otherwise.

    transformers cuts only on request, so a pipeline given a long text would hand the model more tokens than it has
    positions. `truncation=False` gives every token. All else is `PreTrainedTokenizerFast`, and any tool that loads
    the folder as that gets the same ids.
    """

    model_input_names = ["input_ids", "attention_mask"]

    def __call__(self, *args, truncation=None, **kwargs):
        return super().__call__(*args, truncation=True if truncation is None else truncation, **kwargs)

    @classmethod
    def from_fast(cls, tokenizer: PreTrainedTokenizerBase, model_max_length: int) -> PreTrainedTokenizerBase:
        """Fit a tokenizer of any class to a TinyBERT model: the same ids, cut at what the model takes.

        Args:
            tokenizer: Left as it is. One without a `tokenizers` backend keeps its class, and cuts only on request.
            model_max_length: Longest sequence of the model in tokens; a lower limit of the tokenizer itself stays.
        """
        longest = min(model_max_length, tokenizer.model_max_length)
        if not tokenizer.is_fast:
            fitted = copy.deepcopy(tokenizer)
            fitted.model_max_length, fitted.model_input_names = longest, list(cls.model_input_names)
            return fitted
        backend = copy.deepcopy(tokenizer.backend_tokenizer)
        backend.no_truncation()  # what its last call, or its file, left there
        backend.no_padding()
        return cls(
            tokenizer_object=backend,
            model_max_length=longest,
            padding_side=tokenizer.padding_side,
            truncation_side=tokenizer.truncation_side,
            clean_up_tokenization_spaces=tokenizer.clean_up_tokenization_spaces,
            extra_special_tokens=tokenizer.extra_special_tokens,
            **tokenizer.special_tokens_map,
        )


__all__ = ["TinyBertTokenizer"]
