import json

import pytest

from tests.training import toy
from training.__main__ import main


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train_file = toy.write_tsv(folder / "train.tsv", toy.make_rows(40))
    words = ["--model", toy.save_pretrained(folder / "pretrained"), "--train_file", train_file]
    words += ["--output_dir", folder / "model", "--epochs", "6", "--batch_size", "8", "--learning_rate", "3e-3"]
    assert main(["finetune", *map(str, words)]) == 0
    return folder


def read_card(run_folder):
    return (run_folder / "model" / "README.md").read_bytes().decode()


def run(model, test_file, *more):
    return main(["evaluate", "--model", str(model), "--test_file", str(test_file), *map(str, more)])


def test_scores_are_added_to_the_results_of_the_folder(run_folder, tmp_path, capsys):
    rows = toy.make_rows(10, seed=5)
    wrong = [("差评" if label == "好评" else "好评", text) for label, text in rows[:1]]
    test_file = toy.write_tsv(tmp_path / "test.tsv", [*wrong, *rows[1:]])
    assert run(run_folder / "model", test_file) == 0
    results = json.loads((run_folder / "model" / "eval_results.json").read_text(encoding="utf-8"))
    assert list(results["scores"]) == ["train.tsv (a tenth, held out)", "test.tsv"]
    scores = results["scores"]["test.tsv"]
    assert scores["rows"] == 10
    assert scores["model"]["accuracy"] == pytest.approx(0.9)
    assert {"tfidf", "majority"} <= set(scores)
    assert "TF-IDF + logistic regression" in capsys.readouterr().out
    assert f"| test.tsv | accuracy | {scores['model']['accuracy']:.4f} |" in read_card(run_folder)


def test_a_card_edited_by_hand_stays_as_it_is(run_folder, tmp_path, capsys):
    card = run_folder / "model" / "README.md"
    generated = card.read_bytes()
    test_file = toy.write_tsv(tmp_path / "new.tsv", toy.make_rows(4, seed=7))
    card.write_text(read_card(run_folder) + "\nMy own words.\n", encoding="utf-8")
    edited = card.read_bytes()
    assert run(run_folder / "model", test_file) == 0
    assert card.read_bytes() == edited
    assert "was edited by hand" in capsys.readouterr().out
    card.write_bytes(generated)


def test_without_its_training_rows_the_model_is_scored_alone(run_folder, tmp_path, capsys):
    test_file = toy.write_tsv(tmp_path / "test.tsv", toy.make_rows(4, seed=6))
    train_file = run_folder / "train.tsv"
    content = train_file.read_bytes()
    scores_file = tmp_path / "scores.json"
    try:
        for changed in (content + "\t新\n".encode(), content + "好评\t新\n".encode(), b""):
            train_file.write_bytes(changed)
            assert run(run_folder / "model", test_file, "--output_file", scores_file) == 0
            assert "TF-IDF cannot be fitted" in capsys.readouterr().out
            (scores,) = json.loads(scores_file.read_text(encoding="utf-8"))["scores"].values()
            assert "model" in scores and "tfidf" not in scores
    finally:
        train_file.write_bytes(content)


def test_the_baseline_is_there_from_any_working_directory(run_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(run_folder)
    words = ["--model", "pretrained", "--train_file", "train.tsv", "--epochs", "0.1", "--output_dir", "relative"]
    assert main(["finetune", *words]) == 0
    capsys.readouterr()
    monkeypatch.chdir(run_folder / "relative")
    assert run(".", "../train.tsv", "--output_file", tmp_path / "scores.json") == 0
    assert "TF-IDF + logistic regression" in capsys.readouterr().out


def test_an_output_file_takes_the_scores_and_the_folder_stays_as_it_was(run_folder, tmp_path):
    test_file = toy.write_tsv(tmp_path / "other.tsv", toy.make_rows(4, seed=6))
    before = (run_folder / "model" / "eval_results.json").read_bytes()
    assert run(run_folder / "model", test_file, "--output_file", tmp_path / "scores.json") == 0
    assert (run_folder / "model" / "eval_results.json").read_bytes() == before
    results = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert (results["model"], list(results["scores"])) == ("model", ["other.tsv"])


def test_a_mistake_is_one_line(run_folder, tmp_path, capsys):
    unseen = toy.write_tsv(tmp_path / "unseen.tsv", [("新", "书")])
    good = toy.write_tsv(tmp_path / "good.tsv", toy.make_rows(2))
    for words, message in (
        ((run_folder / "model", unseen), "'新' (line 2)"),
        ((run_folder / "model", good, "--output_file", good), "--output_file"),
        ((run_folder / "pretrained", good), "finetune --model"),
    ):
        assert run(*words) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
