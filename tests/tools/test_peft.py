"""LoRA by PEFT on every head: train with Trainer, save, load, merge."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_tinybert import TinyBertForMultipleChoice, TinyBertForQuestionAnswering, TinyBertForSequenceClassification
from hf_tinybert import TinyBertForTokenClassification as TokenClassification
from tests.tools.heads import HEADS, batch_for, collator_for, rows_for, without_labels


peft = pytest.importorskip("peft", reason="peft is not installed")

TARGETS = ["qkv_proj", "out_proj", "up_proj", "down_proj"]
# A head is new, so it is trained and saved whole: PEFT does it by itself for these task types, else when told.
OF_TASK = {
    TinyBertForSequenceClassification: {"task_type": "SEQ_CLS"},
    TokenClassification: {"task_type": "TOKEN_CLS"},
    TinyBertForQuestionAnswering: {"task_type": "QUESTION_ANS"},
    TinyBertForMultipleChoice: {"modules_to_save": ["classifier"]},
}


def scores(model, batch):
    with torch.no_grad():
        outputs = model.eval()(**without_labels(batch))
    return torch.cat([outputs[name].flatten() for name in outputs if "logits" in name])


@pytest.mark.parametrize("model_class", HEADS)
def test_lora_trains_saves_loads_and_merges(model_class, tiny_model, tiny_tokenizer, tmp_path):
    base = tiny_model(model_class)
    base.save_pretrained(tmp_path / "base")
    batch = batch_for(model_class, tiny_tokenizer)
    config = peft.LoraConfig(r=4, target_modules=TARGETS, **OF_TASK.get(model_class, {}))
    model = peft.get_peft_model(base, config)
    untrained = scores(model, batch)
    rows = rows_for(model_class, tiny_tokenizer)
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=10, learning_rate=2e-2, report_to="none", disable_tqdm=True
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collator_for(model_class, tiny_tokenizer),
        processing_class=tiny_tokenizer,
    )

    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    trained = scores(model, batch)
    trainer.save_model(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(model_class.from_pretrained(tmp_path / "base"), tmp_path / "adapter")

    assert after < before
    assert not torch.allclose(trained, untrained, atol=1e-2)
    torch.testing.assert_close(scores(loaded, batch), trained, rtol=0, atol=1e-6)
    merged = loaded.merge_and_unload()
    assert type(merged) is model_class
    torch.testing.assert_close(scores(merged, batch), trained, rtol=0, atol=1e-5)
    merged.save_pretrained(tmp_path / "merged")
    again = model_class.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(scores(again, batch), trained, rtol=0, atol=1e-5)


@pytest.mark.parametrize("model_class", OF_TASK)
def test_head_is_trained_and_saved_whole(model_class, tiny_model):
    config = peft.LoraConfig(target_modules=TARGETS, **OF_TASK[model_class])
    model = peft.get_peft_model(tiny_model(model_class), config)

    saved = peft.get_peft_model_state_dict(model)

    head = "qa_outputs" if model_class is TinyBertForQuestionAnswering else "classifier"
    assert any(name.endswith(f"{head}.weight") for name in saved)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert any(head in name for name in trained)
    assert all(head in name or "lora_" in name for name in trained)


def test_all_linear_finds_the_linear_layers_of_the_encoder_alone(tiny_model):
    named, found = (
        peft.get_peft_model(
            tiny_model(TinyBertForSequenceClassification),
            peft.LoraConfig(task_type="SEQ_CLS", target_modules=target),
        )
        for target in (TARGETS, "all-linear")
    )

    assert set(found.state_dict()) == set(named.state_dict())


def test_target_modules_have_to_be_named(tiny_model):
    """PEFT knows the layers of the model types in its own table, and says what to do about others."""
    with pytest.raises(ValueError, match="target_modules"):
        peft.get_peft_model(tiny_model(TinyBertForSequenceClassification), peft.LoraConfig(task_type="SEQ_CLS"))
