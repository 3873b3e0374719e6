import dataclasses
import gzip
import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_tinybert import TinyBertConfig, TinyBertForSequenceClassification
from tests.training import toy
from training import classification, predict
from training.__main__ import main


TEXTS = ["书店喜欢", "讨厌", "", "房间服务电脑早餐老板" * 6, "喜欢房间"]


def save_finetuned(folder, problem_type="single_label_classification", pair=None, names=("差评", "好评")):
    """An untrained classifier with its task.json."""
    tokenizer = toy.make_tokenizer()
    torch.manual_seed(1)
    settings = {"id2label": dict(enumerate(names or ["v"])), "problem_type": problem_type}
    TinyBertForSequenceClassification(
        TinyBertConfig(vocab_size=len(tokenizer), initializer_range=0.3, **settings)
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    task = predict.Task(
        task="sequence-classification",
        problem_type=problem_type,
        text_column="text",
        text_pair_column=pair,
        label_column="label",
        max_length=32,
        label_names=names and list(names),
    )
    (folder / "task.json").write_text(json.dumps(dataclasses.asdict(task)), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    return save_finetuned(tmp_path_factory.mktemp("finetuned"))


def run(model, given, output):
    return main(["predict", "--model", str(model), "--input", str(given), "--output", str(output)])


def read(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").removesuffix("\n").split("\n")]


def one_by_one(folder, texts):
    """Class probabilities, each text alone, without padding."""
    model, tokenizer = (
        AutoModelForSequenceClassification.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    with torch.no_grad():
        batches = [tokenizer(text, truncation=True, max_length=32, return_tensors="pt") for text in texts]
        return torch.cat([model(**batch).logits for batch in batches])


def test_logits_equal_those_of_each_text_alone_in_the_order_given(finetuned, monkeypatch):
    monkeypatch.setattr(predict, "BATCH_TOKENS", {"cpu": 12, "other": 12})
    loaded = predict.load_finetuned(finetuned)
    logits, cut = classification.predict_logits(loaded.model.cpu(), loaded.tokenizer, TEXTS, None, 32)
    expected = one_by_one(finetuned, TEXTS).numpy()
    assert logits.shape == (5, 2) and cut == 1
    assert np.ptp(expected[:, 0]) > 0.1  # or the order would not matter
    np.testing.assert_allclose(logits, expected, atol=1e-5)


def test_batches_hold_every_row_once_the_shortest_first_and_hardly_any_padding():
    lengths = [*np.random.default_rng(0).integers(2, 600, size=2000).tolist(), 5000, 1]
    batches = list(predict.batches_by_length(lengths, max_tokens=4096))
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    widths = [max(lengths[row] for row in rows) for rows in batches]
    assert widths == sorted(widths)
    for rows, width in zip(batches, widths, strict=True):
        assert len(rows) * width <= 4096 or len(rows) == 1
    assert sum(len(rows) * width for rows, width in zip(batches, widths, strict=True)) < 1.04 * sum(lengths)


def test_batches_by_hand():
    assert list(predict.batches_by_length([3, 2, 3, 3, 3, 40, 41, 43], max_tokens=100)) == [
        [1],
        [0, 2, 3, 4],
        [5, 6],
        [7],
    ]
    assert list(predict.batches_by_length([4, 4, 4, 4, 4], max_tokens=8)) == [[0, 1], [2, 3], [4]]
    assert list(predict.batches_by_length([], max_tokens=8)) == []


def test_answers_keep_the_order_of_a_text_file_across_chunks(finetuned, tmp_path, monkeypatch):
    monkeypatch.setattr(predict, "CHUNK_SIZE", 2)
    texts = [text for text in TEXTS if text]
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    assert run(finetuned, tmp_path / "in.txt", tmp_path / "out.jsonl") == 0
    answers = read(tmp_path / "out.jsonl")
    expected = one_by_one(finetuned, texts).softmax(-1)
    assert [answer["text"] for answer in answers] == texts
    for answer, row in zip(answers, expected, strict=True):
        assert answer["scores"] == pytest.approx({"差评": row[0].item(), "好评": row[1].item()}, abs=1e-5)
        assert answer["label"] == ("差评", "好评")[row.argmax()]
        assert answer["score"] == max(answer["scores"].values())
    assert {path.name for path in tmp_path.iterdir()} == {"in.txt", "out.jsonl"}


def test_a_blank_text_of_a_table_is_answered_so_that_lines_stay_aligned(finetuned, tmp_path, capsys):
    toy.write_tsv(tmp_path / "in.tsv", [("1", "喜欢"), ("2", ""), ("3", "讨厌")], header="id\ttext")
    assert run(finetuned, tmp_path / "in.tsv", tmp_path / "out.jsonl") == 0
    assert [answer["text"] for answer in read(tmp_path / "out.jsonl")] == ["喜欢", "", "讨厌"]
    assert "3 texts answered, 1 of them blank" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["in.txt", "IN.TXT", "in.txt.gz"])
def test_every_line_of_a_text_file_is_answered_blank_and_long_ones_too(finetuned, tmp_path, capsys, name):
    content = "喜欢\n\n讨厌\r\n \n书\u2028店\n".encode() + "书".encode() * 50_000
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert run(finetuned, tmp_path / name, tmp_path / "out.jsonl") == 0
    texts = [answer["text"] for answer in read(tmp_path / "out.jsonl")]
    assert texts == ["喜欢", "", "讨厌", " ", "书\u2028店", "书" * 50_000]
    assert "6 texts answered, 2 of them blank, 1 cut at 32 tokens" in capsys.readouterr().out


def test_several_labels_are_a_list_and_regression_a_value(tmp_path):
    (tmp_path / "in.txt").write_text("喜欢\n讨厌书\n", encoding="utf-8")
    multi = save_finetuned(tmp_path / "multi", "multi_label_classification", names=("a", "b", "c"))
    assert run(multi, tmp_path / "in.txt", tmp_path / "out.jsonl") == 0
    for answer, row in zip(read(tmp_path / "out.jsonl"), one_by_one(multi, ["喜欢", "讨厌书"]).sigmoid(), strict=True):
        assert answer["labels"] == [name for name, p in zip("abc", row, strict=True) if p > 0.5]
        assert list(answer["scores"].values()) == pytest.approx(row.tolist(), abs=1e-5)
    regression = save_finetuned(tmp_path / "regression", "regression", names=None)
    assert run(regression, tmp_path / "in.txt", tmp_path / "out.jsonl") == 0
    values = [answer["value"] for answer in read(tmp_path / "out.jsonl")]
    assert values == pytest.approx(one_by_one(regression, ["喜欢", "讨厌书"])[:, 0].tolist(), abs=1e-5)


def test_the_second_text_is_read_and_needed(tmp_path, capsys):
    folder = save_finetuned(tmp_path / "pairs", pair="other")
    toy.write_tsv(tmp_path / "in.tsv", [("书", "喜欢"), ("书", "讨厌")], header="text\tother")
    assert run(folder, tmp_path / "in.tsv", tmp_path / "out.jsonl") == 0
    first, second = read(tmp_path / "out.jsonl")
    assert (first["text_pair"], second["text_pair"]) == ("喜欢", "讨厌")
    assert first["scores"] != second["scores"]
    (tmp_path / "in.txt").write_text("书\n", encoding="utf-8")
    assert run(folder, tmp_path / "in.txt", tmp_path / "out.jsonl") == 2
    assert "give a table with the columns text and other" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "given", "output", "message"),
    [
        ("finetuned", "in.tsv", "out.jsonl", "has no column 'text'"),
        ("finetuned", "none.txt", "out.jsonl", "none.txt"),
        ("finetuned", "in.txt", "in.txt", "is the input"),
        ("finetuned", "in.txt", "nowhere/out.jsonl", "cannot write in"),
        ("finetuned", "in.txt", ".", "is a folder"),
        ("pretrained", "in.txt", "out.jsonl", "holds TinyBertForMaskedLM, not fine-tuned here"),
        ("none", "in.txt", "out.jsonl", "is no folder"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_file(finetuned, tmp_path, capsys, model, given, output, message):
    (tmp_path / "in.txt").write_text("书\n", encoding="utf-8")
    toy.write_tsv(tmp_path / "in.tsv", [("书",)], header="content")
    if model == "pretrained":
        toy.save_pretrained(tmp_path / model)
    before = sorted(tmp_path.rglob("*"))
    folder = finetuned if model == "finetuned" else tmp_path / model
    assert run(folder, tmp_path / given, tmp_path / output) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
