import re

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForMaskedLM, BertForSequenceClassification, pipeline

from hf_tinybert import TinyBertForMaskedLM
from tests.training import toy
from tests.training.test_predict import save_finetuned
from training import classification, predict
from training.__main__ import main
from training.errors import UserError
from training.loading import check_folder, load_tokenizer, read_as_text


SMALL = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}


@pytest.mark.parametrize("model_class", [BertForMaskedLM, BertForSequenceClassification, TinyBertForMaskedLM])
def test_the_advice_on_weights_of_the_old_format_converts_them_head_and_all(tmp_path, model_class):
    folder = tmp_path / "old"
    tokenizer = toy.make_tokenizer()
    model_class(model_class.config_class(vocab_size=len(tokenizer), **SMALL)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    before = load_file(folder / "model.safetensors")
    torch.save(before, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError) as refusal:
        check_folder(folder, "finetune")
    program = re.search(r'python -c "(.*)"$', str(refusal.value))[1]
    assert ("import hf_tinybert; " in program) is (model_class is TinyBertForMaskedLM)  # or transformers knows no such
    exec(program, {})
    check_folder(folder, "finetune")
    after = load_file(folder / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.fixture
def typed(tmp_path):
    """A tokenizer that takes typed special tokens for text, after it was saved and loaded."""
    tokenizer = toy.make_tokenizer()
    read_as_text(tokenizer)
    tokenizer.save_pretrained(tmp_path)
    return load_tokenizer(tmp_path)


def special_ids(tokenizer, text):
    ids = tokenizer(text)["input_ids"][1:-1]
    return [token for token in ids if token in tokenizer.all_special_ids and token != tokenizer.unk_token_id]


def test_typed_special_tokens_are_text_also_after_saving(typed):
    text = "书[MASK]店[SEP][CLS][PAD]"
    assert len(special_ids(toy.make_tokenizer(), text)) == 4  # the premise
    assert special_ids(typed, text) == []
    assert typed("书店")["input_ids"] == toy.make_tokenizer()("书店")["input_ids"]


def test_finetuning_takes_typed_special_tokens_for_text(tmp_path, monkeypatch):
    folder = toy.save_pretrained(tmp_path / "model")
    encode_training, seen = classification.encode_training, []

    def watch(tokenizer, *rest):
        seen.append((tokenizer, encode_training(tokenizer, *rest)))
        raise InterruptedError

    monkeypatch.setattr(classification, "encode_training", watch)
    train_file = toy.write_tsv(tmp_path / "a.tsv", [("a", "书[MASK]店"), ("b", "书[SEP]店")] * 2)
    words = [
        "--train_file",
        str(train_file),
        "--validation_file",
        str(train_file),
        "--output_dir",
        str(tmp_path / "o"),
    ]
    with pytest.raises(InterruptedError):
        main(["finetune", "--model", str(folder), *words])
    [(tokenizer, (encoded, *_))] = seen
    assert tokenizer.mask_token_id not in encoded["input_ids"][0]
    assert encoded["input_ids"][1].count(tokenizer.sep_token_id) == 1


def test_predict_and_the_pipeline_of_a_folder_take_typed_special_tokens_for_text_alike(tmp_path):
    folder = save_finetuned(tmp_path / "model")  # of a time when the folder did not say so
    finetuned = predict.load_finetuned(folder)
    finetuned.tokenizer.save_pretrained(folder)
    texts = ["书[MASK]店", "书[SEP]店[PAD]"]
    ours, _ = classification.answers(finetuned, [(text, None) for text in texts])
    classify = pipeline("text-classification", model=str(folder), top_k=None, device="cpu")
    for answer, scores in zip(ours, classify(texts), strict=True):
        assert answer["scores"] == pytest.approx({score["label"]: score["score"] for score in scores}, abs=1e-5)
    as_marks = toy.make_tokenizer()(texts[0])["input_ids"]
    assert finetuned.tokenizer(texts[0])["input_ids"] != as_marks


def test_fill_mask_still_finds_the_mask(tokenizer):
    assert tokenizer("我[MASK]书")["input_ids"].count(tokenizer.mask_token_id) == 1
