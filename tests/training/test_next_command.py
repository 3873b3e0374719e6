import shlex

import pytest

from tests.training import toy
from training.__main__ import VERBS, main
from training.arguments import FinetuneArguments, PretrainArguments, parse_arguments
from training.next_command import as_command, given


def next_of(out: str):
    """The arguments of the command that the last line tells to give next, and its verb."""
    *_, last = out.strip().splitlines()
    assert last.startswith("Next: "), last
    python, dash_m, training, verb, *words = shlex.split(last.removeprefix("Next: "))
    assert (python, dash_m, training) == ("python", "-m", "training")
    return verb, parse_arguments(verb, VERBS[verb][0], words)


def run(*words) -> int:
    return main([str(word) for word in words])


def test_a_command_is_in_the_words_of_a_shell():
    text = as_command("publish", model="runs/my model", files=["a.txt", "$b"], dry_run=True, private=False, seed=None)
    assert text == "python -m training publish --model 'runs/my model' --files a.txt '$b' --dry_run"


def test_a_command_made_of_arguments_gives_them_again():
    arguments = PretrainArguments(
        train_files=["a b.txt", "*.gz"], max_steps=3, resume=True, learning_rate=0.5, output_dir="it's"
    )
    words = shlex.split(as_command("pretrain", **given(arguments)))[4:]
    assert parse_arguments("pretrain", PretrainArguments, words) == arguments


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a space in its name, with text and labelled text in it."""
    folder = tmp_path_factory.mktemp("a place")
    rows = toy.make_rows(40)
    (folder / "text.txt").write_text("\n".join(text for _, text in toy.make_rows(400, seed=1)), encoding="utf-8")
    toy.write_tsv(folder / "rows.tsv", rows, header="label\treview")
    return folder


def test_every_verb_ends_with_the_command_to_give_next(place, capsys, monkeypatch):
    tokenizer, encoder, labels = (place / name for name in ("tokenizer", "tokenizer-encoder", "labels"))

    assert run("tokenizer", "--train_files", place / "text.txt", "--encoding", "utf-8", "--output_dir", tokenizer) == 0
    verb, arguments = next_of(capsys.readouterr().out)
    assert (verb, arguments.tokenizer, arguments.output_dir) == ("pretrain", str(tokenizer), str(encoder))
    assert (arguments.train_files, arguments.encoding) == ([str(place / "text.txt")], "utf-8")

    # Given as it stands, but for a smaller budget.
    words = shlex.split(as_command(verb, **given(arguments), max_steps=1, block_size=16, batch_size=4))[3:]
    assert run(*words) == 0
    verb, arguments = next_of(capsys.readouterr().out)
    assert (verb, arguments.model, arguments.train_file) == ("finetune", str(encoder), "LABELLED.tsv")

    table = ["--train_file", place / "rows.tsv", "--text_column", "review", "--epochs", 1, "--output_dir", labels]
    assert run("finetune", "--model", encoder, *table) == 0
    verb, arguments = next_of(capsys.readouterr().out)
    assert (verb, arguments.model, arguments.input) == ("predict", str(labels), "TEXTS.txt")

    assert run("predict", "--model", labels, "--input", place / "text.txt", "--output", place / "answers.jsonl") == 0
    verb, arguments = next_of(capsys.readouterr().out)
    assert (verb, arguments.model, arguments.test_file) == ("evaluate", str(labels), "LABELLED.tsv")

    assert run("evaluate", "--model", labels, "--test_file", place / "rows.tsv") == 0
    assert next_of(capsys.readouterr().out)[0] == "predict"

    monkeypatch.setattr("training.validate.check_folder", lambda folder: [passed()])
    assert run("validate", "--model", labels) == 0
    verb, arguments = next_of(capsys.readouterr().out)
    assert (verb, arguments.model, arguments.dry_run) == ("publish", str(labels), True)

    assert run("publish", "--model", labels, "--repo_id", "me/it", "--private", "--dry_run") == 0
    verb, arguments = next_of(capsys.readouterr().out)
    assert (verb, arguments.model, arguments.repo_id) == ("publish", str(labels), "me/it")
    assert (arguments.private, arguments.dry_run) == (True, False)


def passed():
    from training.stranger import Check

    return Check("all", True, "looked at elsewhere")


def test_a_folder_that_fails_a_check_is_not_sent_on(place, capsys, monkeypatch):
    monkeypatch.setattr("training.validate.check_folder", lambda folder: [passed()._replace(passed=False)])
    assert run("validate", "--model", place) == 1
    assert "Next:" not in capsys.readouterr().out


def test_defaults_that_hang_on_the_task_are_not_repeated():
    fields = {"model": "m", "train_file": "t.tsv", "output_dir": "o"}
    assert given(FinetuneArguments(**fields)) == fields
    tags = {**fields, "task": "token-classification"}
    assert given(FinetuneArguments(**tags)) == tags
    told = {**fields, "token_masking": 0.1, "seed": 3, "validation_file": "v.tsv"}
    assert given(FinetuneArguments(**told)) == told
