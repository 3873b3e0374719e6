"""transformers' Trainer and collators as they come, on our classes."""

import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments

from hf_tinybert import TinyBertForMaskedLM, TinyBertForSequenceClassification


TEXTS = ["我爱北京", "他不喜欢天气", "天气很好。", "good"] * 4


@pytest.fixture
def train(tmp_path, tiny_tokenizer):
    """Trains a model on `TEXTS` and more columns; gives the loss before, and the Trainer."""

    def run(model, columns, **settings):
        rows = Dataset.from_dict({"text": TEXTS, "row": list(range(len(TEXTS))), **columns})
        rows = rows.map(lambda row: tiny_tokenizer(row["text"]))  # `text` and `row` stay: Trainer is to drop them
        arguments = TrainingArguments(
            str(tmp_path), max_steps=30, learning_rate=1e-2, report_to="none", disable_tqdm=True
        )
        trainer = Trainer(
            model, arguments, train_dataset=rows, eval_dataset=rows, processing_class=tiny_tokenizer, **settings
        )
        before = trainer.evaluate()["eval_loss"]
        trainer.train()
        return before, trainer

    return run


def test_masked_lm_learns_with_the_stock_collator(train, tiny_model, tiny_tokenizer):
    collator = DataCollatorForLanguageModeling(tiny_tokenizer, mlm_probability=0.4, seed=0)
    before, trainer = train(tiny_model(TinyBertForMaskedLM), {}, data_collator=collator)
    assert trainer.evaluate()["eval_loss"] < 0.8 * before


@pytest.mark.parametrize(
    ("labels", "num_labels", "problem_type"),
    [
        ([0, 1, 2, 1] * 4, 3, None),
        ([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]] * 8, 3, "multi_label_classification"),
        ([0.5, -1.0, 2.0, 0.0] * 4, 1, "regression"),
    ],
)
def test_classifier_learns_every_kind_of_label(train, tiny_model, labels, num_labels, problem_type):
    model = tiny_model(TinyBertForSequenceClassification, num_labels=num_labels, problem_type=problem_type)
    before, trainer = train(model, {"label": labels})
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    predictions = trainer.predict(trainer.eval_dataset).predictions
    assert predictions.shape == (16, num_labels)
    # Rows in the order given: the same text, the same answer.
    assert torch.allclose(*torch.from_numpy(predictions[:8]).split(4), atol=1e-5)
