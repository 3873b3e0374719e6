import dataclasses
import subprocess
import sys
import time
import typing
from pathlib import Path

import pytest
import transformers

from training.__main__ import VERBS, main
from training.arguments import (
    FinetuneArguments,
    PretrainArguments,
    TokenizerArguments,
    parse_arguments,
    parse_duration,
)
from training.errors import UserError
from training.tasks import TASKS, task_module


RECIPES = sorted((Path(__file__).parents[2] / "training" / "recipes").glob("*.yaml"))


def parse(*argv, arguments_class=PretrainArguments):
    return parse_arguments("python -m training x", arguments_class, list(argv))


def recipe(tmp_path, text):
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_the_command_line_overrides_the_recipe(tmp_path):
    path = recipe(tmp_path, "train_files: [a.txt, 文.txt]\nseed: 3\nresume: true\noutput_dir: there\n")
    arguments = parse(path, "--seed", "4", "--output_dir", "here")
    assert arguments.train_files == ["a.txt", "文.txt"]
    assert (arguments.seed, arguments.resume, arguments.output_dir) == (4, True, "here")


def test_a_budget_on_the_command_line_takes_the_place_of_a_recipe_s(tmp_path):
    path = recipe(tmp_path, "time_budget: 10m\nvocab_size: 1000\nsize: mini\noutput_dir: there\n")
    arguments = parse(path, "--max_steps", "5")
    assert (arguments.max_steps, arguments.time_budget, arguments.vocab_size) == (5, None, 1000)
    arguments = parse(path, "--tokenizer=tok")
    assert (arguments.tokenizer, arguments.vocab_size, arguments.size) == ("tok", None, "mini")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sede: 3\n", "unknown key 'sede' in {path} (did you mean seed?)"),
        ("- seed\n", "must be a mapping"),
        ("seed: three\noutput_dir: x\n", "invalid int value: 'three'"),
        ("size: huge\noutput_dir: x\n", "invalid choice: 'huge'"),
        ("seed: [\n", "cannot read the recipe {path}"),
        ("seed: 1\nseed: 2\n", "cannot read the recipe {path}: seed stands there twice"),
        ("seed: [1, 2]\n", "seed in {path} is [1, 2], but must be one value"),
        ("seed: {a: 1}\n", "seed in {path} is {{'a': 1}}, but must be one value"),
        ("seed: false\n", "seed in {path} is False, but must be one value"),
        (
            "text_column: no\n",
            "text_column in {path} is False, but must be one value; put a word such as yes or no in",
        ),
        ("resume: 'yes'\n", "resume in {path} is 'yes', but must be true or false"),
        ("train_files: []\n", "train_files in {path} is [], but must be a value or a list of values"),
        ("train_files: [[a.txt]]\n", "train_files in {path} is [['a.txt']], but must be a value or a list"),
        ("model: ''\noutput_dir: x\n", "--model: '' is empty"),
        ('output_dir: "a\\0b"\n', "holds a NUL character"),
    ],
)
def test_a_wrong_recipe_is_one_line(tmp_path, text, line):
    path = recipe(tmp_path, text)
    with pytest.raises(UserError) as error:
        parse(path)
    assert line.format(path=path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--output_dir", "x", "--max_step", "3"], "unknown option --max_step (did you mean --max_steps?)"),
        (["--output_dir", "x", "--train-files", "a"], "unknown option --train-files (did you mean --train_files?)"),
        (["--output_dir", "x", "--train_files", "a", "--train_files=b"], "--train_files is given twice"),
        (["--output_dir", "x", "--tokenizer", ""], "--tokenizer: '' is empty"),
        (["--output_dir", "x", "--train_files", "a.txt", " "], "--train_files: ' ' is empty"),
        ([], "required: --output_dir"),
        (["missing.yaml"], "no recipe at missing.yaml"),
    ],
)
def test_a_wrong_command_line_is_one_line(argv, line):
    with pytest.raises(UserError) as error:
        parse(*argv)
    assert line in str(error.value)


def test_a_newline_in_what_was_given_does_not_break_the_line(tmp_path, capsys):
    assert main(["import", "--state_dict", "a\nb", "--tokenizer", "x", "--output_dir", str(tmp_path / "o")]) == 2
    error = capsys.readouterr().err
    assert "a\\nb" in error and error.count("\n") == 1


def test_an_unknown_verb_names_the_nearest(capsys):
    assert main(["pretrian"]) == 2
    assert "did you mean pretrain?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h", 3600), ("1h30m", 5400), ("1.5h", 5400), ("2m30s", 150)]
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ten minutes", "0s", "-5m", "5m 3"])
def test_no_durations(text):
    with pytest.raises(UserError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_for_every_field(verb, capsys):
    with pytest.raises(SystemExit) as exit_:
        main([verb, "--help"])
    assert exit_.value.code == 0
    text = capsys.readouterr().out
    for field in dataclasses.fields(VERBS[verb][0]):
        assert f"--{field.name}" in text


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_command_on_top_of_every_recipe_parses(path):
    command = path.read_text(encoding="utf-8").partition("python -m training ")[2].splitlines()[0].split()
    verb, *argv = command
    assert argv[0] == f"training/recipes/{path.name}"
    parse(str(path), *argv[1:], arguments_class=VERBS[verb][0])


def test_help_answers_without_transformers():
    started = time.monotonic()
    code = "import sys; from training.__main__ import main; main(['--help']); print('transformers' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=True)
    assert result.stdout.endswith("False\n")
    assert time.monotonic() - started < 5


def test_the_tokenizer_verb_needs_no_more_than_its_fields():
    arguments = parse("--train_files", "a.txt", "b.txt", "--output_dir", "x", arguments_class=TokenizerArguments)
    assert arguments.train_files == ["a.txt", "b.txt"] and arguments.vocab_size is None


def test_the_tasks_to_choose_from_are_those_there_is_a_module_for():
    (field,) = (field for field in dataclasses.fields(FinetuneArguments) if field.name == "task")
    assert set(typing.get_args(field.type)) == set(TASKS)
    for name in TASKS:
        assert hasattr(transformers, task_module(name).AUTO_CLASS)


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ([], 0.3),
        (["--task", "token-classification"], 0.0),
        (["--task", "question-answering"], 0.0),
        (["--task", "token-classification", "--token_masking", "0.2"], 0.2),
        (["--token_masking", "0"], 0.0),
    ],
)
def test_tokens_are_hidden_by_default_where_texts_are_classified(words, share):
    given = ["--model", "m", "--train_file", "t.tsv", "--output_dir", "o", *words]
    assert parse_arguments("finetune", FinetuneArguments, given).token_masking == share
