"""The student of raw texts: hand-worked cases, torch's own loss, whole runs."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file

from tests.training import toy
from training import finetune, self_training
from training.__main__ import main


FAST = ["--epochs", "3", "--batch_size", "8", "--learning_rate", "3e-3", "--max_length", "32"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    return toy.save_pretrained(tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Labelled rows, and raw texts of which two stand among them."""
    folder, rows = tmp_path_factory.mktemp("data"), toy.make_rows(60)
    raw = sorted({text for _, text in toy.make_rows(400, seed=1)} - {text for _, text in rows})[:40]
    raw += [rows[0][1], rows[1][1]]
    (folder / "raw.txt").write_text("\n".join(raw) + "\n", encoding="utf-8")
    return toy.write_tsv(folder / "rows.tsv", rows), folder / "raw.txt"


def run(pretrained, files, output_dir, *more):
    words = ["finetune", "--model", pretrained, "--train_file", files[0], "--raw_files", files[1]]
    return main([str(word) for word in (*words, "--output_dir", output_dir, *FAST, *more)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory, pretrained, files):
    folder = tmp_path_factory.mktemp("runs") / "model"
    assert run(pretrained, files, folder) == 0
    return folder


def interrupt(*_):
    raise KeyboardInterrupt


def same_weights(one, other):
    one, other = (load_file(folder / "model.safetensors") for folder in (one, other))
    return all(torch.equal(one[name], other[name]) for name in one)


def test_student_learns_and_the_folder_says_from_what(finished, files):
    results = json.loads((finished / "eval_results.json").read_text(encoding="utf-8"))
    (scores,) = results["scores"].values()
    assert scores["encoder"]["accuracy"] >= 0.9
    assert results["rows"]["unlabelled"] == 40
    assert results["settings"]["raw_files"] == ["raw.txt"]
    card = (finished / "README.md").read_text(encoding="utf-8")
    assert "- 40 raw texts, with the answers of a first model" in card
    assert str(files[1].parent) not in (finished / "eval_results.json").read_text(encoding="utf-8")


def test_texts_of_labelled_rows_are_left_out_and_the_rest_is_taken_evenly(pretrained, files, tmp_path, capsys):
    assert run(pretrained, files, tmp_path / "model", "--raw_texts", "20") == 0
    printed = capsys.readouterr().out
    assert "left out: 2 raw texts that stand in the labelled rows" in printed
    assert "taken: 20 of 40 raw texts, evenly" in printed
    assert "the student learns the training rows 3 times and 20 answers once" in printed


@pytest.mark.parametrize("moment", ["before the student learns", "before it is published"])
def test_interrupted_run_resumes_to_the_same_weights(
    finished, pretrained, files, tmp_path, monkeypatch, capsys, moment
):
    with monkeypatch.context() as patch:
        if moment == "before the student learns":
            patch.setattr(self_training, "with_answers", interrupt)
        else:
            patch.setattr(finetune, "publish", interrupt)
        assert run(pretrained, files, tmp_path / "model") == 130
    capsys.readouterr()

    assert run(pretrained, files, tmp_path / "model", "--resume") == 0

    assert "first a teacher learns" not in capsys.readouterr().out  # its answers were kept
    assert same_weights(finished, tmp_path / "model")


def test_run_killed_while_the_teacher_learns_goes_on_from_its_checkpoint(
    finished, pretrained, files, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        patch.setattr(self_training, "keep_answers", interrupt)
        assert run(pretrained, files, tmp_path / "model") == 130
    assert list((tmp_path / ".model.training" / "teacher").glob("checkpoint-*"))

    assert run(pretrained, files, tmp_path / "model", "--resume") == 0
    assert same_weights(finished, tmp_path / "model")


def test_resume_with_other_raw_texts_is_refused(pretrained, files, tmp_path, monkeypatch, capsys):
    other = tmp_path / "raw.txt"
    other.write_text(files[1].read_text(encoding="utf-8"), encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "publish", interrupt)
        assert run(pretrained, (files[0], other), tmp_path / "model") == 130
    other.write_text("书店喜欢\n", encoding="utf-8")
    assert run(pretrained, (files[0], other), tmp_path / "model", "--resume") == 2
    assert "raw_texts_read was" in capsys.readouterr().err


def test_rows_come_as_often_as_passes_and_answers_once(tiny_tokenizer):
    rows = Dataset.from_dict({**tiny_tokenizer(["good", "bad"]), "label": [1, 0]})
    answers = np.array([[0.25, 0.75]])

    joined = self_training.with_answers(
        rows, self_training.RawTexts(["good bad"], ""), answers, tiny_tokenizer, 8, epochs=2.6
    )

    assert joined["label"] == [[0, 1], [1, 0]] * 3 + [[0.25, 0.75]]
    assert joined["input_ids"][6] == tiny_tokenizer("good bad")["input_ids"]


def test_damaged_answers_are_not_used(tmp_path, capsys):
    self_training.keep_answers(tmp_path, np.eye(3))
    assert np.array_equal(self_training.load_answers(tmp_path), np.eye(3))
    (tmp_path / "prepared" / "answers.npy").write_bytes(b"no array")
    assert self_training.load_answers(tmp_path) is None
    assert "answers again" in capsys.readouterr().out


def test_loss_is_torchs_mean_of_cross_entropies_whatever_is_counted():
    logits, probabilities = torch.randn(6, 3), torch.rand(6, 3).softmax(-1)
    expected = torch.nn.CrossEntropyLoss()(logits, probabilities)
    torch.testing.assert_close(finetune.cross_entropy(logits, probabilities), expected)
    parts = [finetune.cross_entropy(logits[rows], probabilities[rows], 18) for rows in (slice(4), slice(4, 6))]
    torch.testing.assert_close(sum(parts), expected)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--task", "token-classification"], "is of no use to --task token-classification"),
        (["--problem_type", "regression"], "is of no use to --problem_type regression"),
        (["--text_pair_column", "label"], "holds single texts"),
        (["--raw_texts", "0"], "--raw_texts is 0, but must be at least 1"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_folder(pretrained, files, tmp_path, capsys, more, message):
    assert run(pretrained, files, tmp_path / "model", *more) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_missing_file_of_raw_texts_is_one_line(pretrained, files, tmp_path, capsys):
    assert run(pretrained, (files[0], tmp_path / "missing.txt"), tmp_path / "model") == 2
    error = capsys.readouterr().err
    assert "missing.txt" in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_number_of_raw_texts_without_any_is_one_line(pretrained, files, tmp_path, capsys):
    words = ["finetune", "--model", pretrained, "--train_file", files[0], "--raw_texts", "5"]
    assert main([str(word) for word in (*words, "--output_dir", tmp_path / "model")]) == 2
    assert "--raw_texts is of no use without --raw_files" in capsys.readouterr().err


def test_resume_after_other_rows_to_score_on_took_raw_texts_away_is_refused(
    pretrained, files, tmp_path, monkeypatch, capsys
):
    scored = toy.write_tsv(tmp_path / "dev.tsv", toy.make_rows(10, seed=7))
    more = ["--validation_file", scored]
    with monkeypatch.context() as patch:
        patch.setattr(finetune, "publish", interrupt)
        assert run(pretrained, files, tmp_path / "model", *more) == 130
    raw = files[1].read_text(encoding="utf-8").splitlines()
    toy.write_tsv(scored, [*toy.make_rows(10, seed=7), ("好评", raw[5])])
    assert run(pretrained, files, tmp_path / "model", *more, "--resume") == 2
    assert "raw_texts_read was" in capsys.readouterr().err


def test_raw_texts_that_all_stand_in_the_rows_are_one_line(pretrained, files, tmp_path, capsys):
    only = tmp_path / "raw.txt"
    only.write_text(toy.make_rows(60)[0][1] + "\n", encoding="utf-8")
    assert run(pretrained, (files[0], only), tmp_path / "model") == 2
    assert "every text of it stands in the labelled rows" in capsys.readouterr().err
