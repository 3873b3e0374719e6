"""Every head with rows to learn from, so that a tool can be tried on all of them in one loop."""

import torch
from datasets import Dataset
from transformers import (
    DataCollatorForMultipleChoice,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
)

from hf_tinybert import (
    TinyBertForMaskedLM,
    TinyBertForMultipleChoice,
    TinyBertForQuestionAnswering,
    TinyBertForSequenceClassification,
    TinyBertForTokenClassification,
)


HEADS = [
    TinyBertForMaskedLM,
    TinyBertForSequenceClassification,
    TinyBertForTokenClassification,
    TinyBertForQuestionAnswering,
    TinyBertForMultipleChoice,
]
TEXTS = ["我爱北京", "他不喜欢天气", "天气很好。", "good", "bad", "我不喜欢你。", "很好", "北京天气 good"]


def rows_for(model_class, tokenizer: PreTrainedTokenizerBase, count: int = 16) -> Dataset:
    """Tokenized rows with labels, texts of uneven length, and a column `row` that no model takes.

    The labels of tokens are of uneven number too: of a text of n tokens, n // 2 have one.
    """
    rows = []
    for row in range(count):
        # a text longer from time to time, so that batches of equal size hold unequal numbers of labels
        text, other = TEXTS[row % len(TEXTS)] + "我" * (row // len(TEXTS)), TEXTS[(3 * row + 1) % len(TEXTS)]
        encoded = dict(tokenizer(text))
        length = len(encoded["input_ids"])
        labelled = range(1, length, 2)
        if model_class is TinyBertForSequenceClassification:
            encoded["labels"] = int("不" in text or "bad" in text)
        elif model_class is TinyBertForMultipleChoice:
            both = [dict(tokenizer(choice)) for choice in (text, other)]
            encoded = {name: [choice[name] for choice in both] for name in both[0]}
            encoded["labels"] = row % 2
        elif model_class is TinyBertForQuestionAnswering:
            encoded |= {"start_positions": 1, "end_positions": length - 2}
        else:
            of_tokens = encoded["input_ids"] if model_class is TinyBertForMaskedLM else [i % 2 for i in range(length)]
            encoded["labels"] = [of_tokens[i] if i in labelled else -100 for i in range(length)]
        rows.append(encoded | {"row": row})
    return Dataset.from_list(rows)


def collator_for(model_class, tokenizer: PreTrainedTokenizerBase):
    """The stock collator of a head's task. (The one for tokens pads the labels of masked LM as well.)"""
    if model_class is TinyBertForMultipleChoice:
        return DataCollatorForMultipleChoice(tokenizer)
    if model_class in (TinyBertForMaskedLM, TinyBertForTokenClassification):
        return DataCollatorForTokenClassification(tokenizer)
    return DataCollatorWithPadding(tokenizer)


def batch_for(model_class, tokenizer: PreTrainedTokenizerBase, count: int = 4) -> dict[str, torch.Tensor]:
    """One batch of `rows_for`, as the model takes it."""
    rows = rows_for(model_class, tokenizer, count).remove_columns("row")
    return dict(collator_for(model_class, tokenizer)(list(rows)))


def without_labels(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: batch[name] for name in ("input_ids", "attention_mask")}
