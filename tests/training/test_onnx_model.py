"""`predict` through the ONNX file of a folder, compared with `predict` by torch."""

import dataclasses
import json
import shutil

import onnx
import pytest
import torch

from hf_tinybert import (
    TinyBertConfig,
    TinyBertForQuestionAnswering,
    TinyBertForSequenceClassification,
    TinyBertForTokenClassification,
)
from tests.training import toy
from training import export, onnx_model, predict
from training.__main__ import main


LONG = "房间服务电脑早餐老板" * 6
TEXTS = ["书店喜欢", "讨厌", "", LONG, "喜欢房间", "书" * 29, "老板电脑，早餐喜欢"]
NAMES = {
    "sequence-classification": ["差评", "好评"],
    "token-classification": ["O", "B-X", "I-X"],
    "question-answering": None,
}
HEADS = {
    "sequence-classification": TinyBertForSequenceClassification,
    "token-classification": TinyBertForTokenClassification,
    "question-answering": TinyBertForQuestionAnswering,
}
LENGTH = 32


def save(folder, name):
    """An untrained model of a task, of answers that differ from text to text, with its ONNX file."""
    tokenizer = toy.make_tokenizer()
    torch.manual_seed(1)
    labels = {"id2label": dict(enumerate(NAMES[name]))} if NAMES[name] else {}
    if name == "sequence-classification":
        labels |= {"num_ngram_buckets": 64, "problem_type": "single_label_classification"}
    switches = {"position_embedding_type": "rotary", "classifier_pooling": "mean"}
    config = TinyBertConfig(
        vocab_size=len(tokenizer), num_hidden_layers=2, initializer_range=0.3, **switches, **labels
    )
    model = HEADS[name](config).eval()
    if name == "sequence-classification":
        torch.nn.init.normal_(model.ngrams.weight)
        model.ngrams.units[:, 0] = torch.arange(len(tokenizer))
        model.ngrams.units[7, 1] = 3  # a token of two characters
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    task = predict.Task(
        task=name,
        problem_type="single_label_classification" if name == "sequence-classification" else None,
        text_column="text",
        text_pair_column=None,
        label_column="label",
        max_length=LENGTH,
        label_names=NAMES[name],
        answer_length=5 if name == "question-answering" else None,
    )
    (folder / "task.json").write_text(json.dumps(dataclasses.asdict(task)), encoding="utf-8")
    (folder / "onnx").mkdir()
    export.export_onnx(model, folder / "onnx" / "model.onnx", onnx_model.fingerprint(folder))
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return save(tmp_path_factory.mktemp("classifier"), "sequence-classification")


@pytest.fixture
def model_folder(classifier, tmp_path):
    """A copy to damage."""
    return shutil.copytree(classifier, tmp_path / "model")


def write_input(path, name):
    if name == "question-answering":
        rows = [{"id": str(i), "question": "老板喜欢书店", "context": text or "书"} for i, text in enumerate(TEXTS)]
    else:
        rows = [{"text": text} for text in TEXTS]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def run(folder, tmp_path, name="sequence-classification"):
    """The exit status of `predict` and its answers."""
    output = tmp_path / "out.jsonl"
    output.unlink(missing_ok=True)
    given = write_input(tmp_path / "in.jsonl", name)
    status = main(["predict", "--model", str(folder), "--input", str(given), "--output", str(output)])
    lines = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    return status, [json.loads(line) for line in lines]


def assert_same(ours, theirs):
    """Numbers nearly, all else exactly."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            assert_same(ours[key], theirs[key])
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for left, right in zip(ours, theirs, strict=True):
            assert_same(left, right)
    else:
        assert ours == (pytest.approx(theirs, abs=1e-5) if isinstance(theirs, float) else theirs)


@pytest.mark.parametrize("name", HEADS)
def test_the_onnx_file_answers_as_torch_in_the_order_of_the_texts(name, tmp_path, monkeypatch, capsys):
    folder = save(tmp_path / "model", name)
    aside = (folder / "onnx").rename(tmp_path / "onnx")
    status, expected = run(folder, tmp_path, name)
    assert (status, len(expected)) == (0, len(TEXTS))
    assert len({json.dumps({**answer, "id": 0, "text": ""}) for answer in expected}) > 3  # or order would not show
    assert "answered by" not in capsys.readouterr().out

    aside.rename(folder / "onnx")
    monkeypatch.setattr(predict, "BATCH_TOKENS", {"cpu": 40, "other": 40})  # several batches, side by side
    monkeypatch.setattr(predict, "_load_weights", None)
    status, answers = run(folder, tmp_path, name)
    assert status == 0
    assert_same(answers, expected)
    printed = capsys.readouterr().out
    assert f"answered by {folder / 'onnx' / 'model.onnx'}\n" in printed
    assert ("1 cut at 32 tokens" in printed) == (name == "sequence-classification")


def retrain(folder):
    model = TinyBertForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias[0] += 9
    model.save_pretrained(folder)


def pool_otherwise(folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"classifier_pooling": "cls"}), encoding="utf-8")


def drop_source(folder):
    model = onnx.load(folder / "onnx" / "model.onnx")
    del model.metadata_props[:]
    onnx.save(model, folder / "onnx" / "model.onnx")


@pytest.mark.parametrize("change", [retrain, pool_otherwise, drop_source])
def test_a_file_that_is_not_of_the_model_beside_it_does_not_answer(change, model_folder, tmp_path, capsys):
    change(model_folder)
    status, answers = run(model_folder, tmp_path)
    printed = capsys.readouterr().out
    assert status == 0
    assert f"answered by torch, not by {model_folder / 'onnx' / 'model.onnx'}, which was not made from" in printed
    assert f"`python -m training export --model {model_folder}` makes it anew" in printed
    shutil.rmtree(model_folder / "onnx")
    assert run(model_folder, tmp_path)[1] == answers


@pytest.mark.parametrize("content", [b"", b"old", None])
def test_a_damaged_file_is_one_line_and_nothing_is_written(content, model_folder, tmp_path, capsys):
    path = model_folder / "onnx" / "model.onnx"
    path.write_bytes(path.read_bytes()[:50_000] if content is None else content)
    assert run(model_folder, tmp_path) == (2, [])
    error = capsys.readouterr().err
    assert f"{path} cannot be read" in error and "make it anew by `python -m training export`, or delete it" in error
    assert error.count("\n") == 1


def test_without_onnxruntime_torch_answers_and_the_extra_is_named(model_folder, tmp_path, monkeypatch, capsys):
    find_spec = onnx_model.importlib.util.find_spec
    monkeypatch.setattr(
        onnx_model.importlib.util, "find_spec", lambda name: None if name == "onnxruntime" else find_spec(name)
    )
    status, answers = run(model_folder, tmp_path)
    assert (status, len(answers)) == (0, len(TEXTS))
    assert "onnxruntime is missing; pip install 'hf-tinybert[onnx]'" in capsys.readouterr().out


def test_on_an_accelerator_torch_answers(classifier, monkeypatch):
    weights = predict._load_weights(classifier, predict.read_task(classifier))
    monkeypatch.setattr(predict, "best_device", lambda: torch.device("meta"))
    monkeypatch.setattr(predict, "_load_weights", lambda *_: weights)
    monkeypatch.setattr(predict, "load_onnx", None)
    finetuned, line = predict.load_to_answer(classifier)
    assert (finetuned.model, line) == (weights, "")


def test_an_int8_file_never_answers(model_folder, tmp_path, capsys):
    (model_folder / "onnx" / "model.onnx").rename(model_folder / "onnx" / "model_quantized.onnx")
    assert run(model_folder, tmp_path)[0] == 0
    assert "answered by" not in capsys.readouterr().out


def test_one_text_costs_no_thread(classifier, monkeypatch):
    finetuned, _ = predict.load_to_answer(classifier)
    monkeypatch.setattr("threading.Thread.start", None)
    encoded = {"input_ids": [[2, 7, 3]], "attention_mask": [[1, 1, 1]]}
    ((rows, outputs),) = predict.forward(finetuned.model, finetuned.tokenizer, encoded)
    assert (rows, tuple(outputs.logits.shape)) == ([0], (1, 2))
