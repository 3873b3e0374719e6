"""transformers' Trainer and collators as they come, on our classes."""

import pytest
import torch
from datasets import Dataset, List
from huggingface_hub import ModelCard
from transformers import AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

from hf_tinybert import TinyBertForMaskedLM, TinyBertForSequenceClassification
from tests.tools.heads import HEADS, batch_for, collator_for, rows_for, without_labels


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


@pytest.mark.parametrize("model_class", HEADS)
def test_head_learns_with_the_defaults_and_saves_a_folder_fit_for_the_hub(
    model_class, tiny_model, tiny_tokenizer, tmp_path
):
    """`push_to_hub` uploads what `save_model` and `create_model_card` leave in the folder."""
    rows = rows_for(model_class, tiny_tokenizer)
    arguments = TrainingArguments(
        str(tmp_path), max_steps=20, learning_rate=1e-2, report_to="none", disable_tqdm=True, save_strategy="no"
    )
    assert arguments.remove_unused_columns and "row" in rows.column_names
    trainer = Trainer(
        tiny_model(model_class),
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator_for(model_class, tiny_tokenizer),
        processing_class=tiny_tokenizer,
    )

    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    trainer.save_model()
    trainer.create_model_card(model_name="tiny", tags="test")

    assert trainer.evaluate()["eval_loss"] < 0.9 * before
    batch = without_labels(batch_for(model_class, tiny_tokenizer))
    with torch.no_grad():
        expected, loaded = (
            model.eval()(**batch)[0] for model in (trainer.model, model_class.from_pretrained(tmp_path))
        )
    torch.testing.assert_close(loaded, expected, rtol=0, atol=1e-6)
    assert AutoTokenizer.from_pretrained(tmp_path)("天气").input_ids == tiny_tokenizer("天气").input_ids
    assert {"modeling_tinybert.py", "configuration_tinybert.py"} <= {path.name for path in tmp_path.iterdir()}
    assert ModelCard.load(tmp_path / "README.md").data.library_name == "transformers"


@pytest.mark.parametrize("model_class", HEADS)
def test_four_batches_of_8_give_the_loss_and_gradients_of_one_of_32(model_class, tiny_model, tiny_tokenizer, tmp_path):
    rows = rows_for(model_class, tiny_tokenizer, count=32)
    if isinstance(rows.features.get("labels"), List):
        counts = [sum(label != -100 for label in labels) for labels in rows["labels"]]
        assert len({sum(counts[start : start + 8]) for start in range(0, 32, 8)}) > 1  # uneven, or a mean would do
    losses, changes = [], []
    for size in (32, 8):
        model = tiny_model(model_class, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        arguments = TrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=32 // size,
            max_steps=1,
            optim="sgd",  # without momentum, decay and clipping a step of rate 1 is the gradient
            learning_rate=1.0,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            train_sampling_strategy="sequential",
            report_to="none",
            disable_tqdm=True,
            save_strategy="no",
        )
        collator = collator_for(model_class, tiny_tokenizer)
        losses.append(Trainer(model, arguments, train_dataset=rows, data_collator=collator).train().training_loss)
        changes.append({name: parameter.detach() - before[name] for name, parameter in model.named_parameters()})

    assert losses[0] == pytest.approx(losses[1], abs=1e-5)
    for name, change in changes[0].items():
        torch.testing.assert_close(changes[1][name], change, rtol=0, atol=1e-5)
    assert max(change.abs().max() for change in changes[0].values()) > 1e-2
