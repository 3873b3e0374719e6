import dataclasses
import re
import subprocess
import sys
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
from training.card_facts import CARD_FIELDS
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
        ("size: huge\noutput_dir: x\n", "--size 'huge' is none of reference, tiny, mini, small, medium; "),
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
        (["--ouput_dir", "x"], "unknown option --ouput_dir (did you mean --output_dir?)"),
        (["-output_dir=x"], "unknown option -output_dir (did you mean --output_dir?)"),
        (["--output_dir", "x", "--size", "smal"], "(did you mean small?)"),
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
        assert f"  --{field.name}" in text


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen_says_every_default_and_ends_with_an_example_that_parses(verb, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "101")
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    lines = capsys.readouterr().out.splitlines()
    fields = dataclasses.fields(VERBS[verb][0])
    assert len(lines) <= max(24, len(fields) + 20)
    assert max(map(len, lines)) <= 100
    text = " ".join(" ".join(lines).split())
    assert len(re.findall(r"\((?:default: [^()]+|required)\)", text)) == len(fields)
    assert lines[-2] == "example:"
    command = lines[-1].split()
    assert command[:4] == ["python", "-m", "training", verb]
    parse_arguments("x", VERBS[verb][0], command[4:])


def test_help_shows_the_default_that_a_field_has(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "101")
    with pytest.raises(SystemExit):
        main(["pretrain", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "--batch_size N blocks in an optimizer step (default: 32)",
        "--dropout X dropout in pre-training (default: 0.0)",
        "interrupted (default: no)",
        "in place of files (default: none)",
        "--output_dir FOLDER folder to make; it appears when all is done (required)",
    ):
        assert words in text


def test_help_groups_the_fields_of_a_long_verb_under_headings(capsys):
    for verb, (arguments_class, _) in VERBS.items():
        fields = sorted(dataclasses.fields(arguments_class), key=lambda field: field.name in CARD_FIELDS)  # last
        headings = [field.metadata["heading"] for field in fields]
        if len(headings) < 12:
            continue
        with pytest.raises(SystemExit):
            main([verb, "--help"])
        text = capsys.readouterr().out
        told = re.findall(r"^(\w[\w ()]*):$", text, flags=re.M)
        assert told == [*filter(None, headings), "example"]
        assert len(told) >= 5 and headings[0]


def test_the_overview_has_every_verb_once_and_fits_a_screen(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 34 and max(map(len, lines)) <= 100
    verbs = [line.split()[0] for line in lines if re.match(r"  \w+  +[A-Z]", line)]
    assert sorted(verbs) == sorted(VERBS)


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_command_on_top_of_every_recipe_parses(path):
    command = path.read_text(encoding="utf-8").partition("python -m training ")[2].splitlines()[0].split()
    verb, *argv = command
    assert argv[0] == f"training/recipes/{path.name}"
    parse(str(path), *argv[1:], arguments_class=VERBS[verb][0])


HELP = """
import sys, time
started = time.monotonic()
from training.__main__ import VERBS, main
main([])
for verb in VERBS:
    try:
        main([verb, "--help"])
    except SystemExit:
        pass
assert main(["pretrian"]) == 2
print(time.monotonic() - started < 2, *sorted({"torch", "transformers", "datasets", "numpy"} & sys.modules.keys()))
"""


def test_help_of_every_verb_answers_at_once_and_imports_no_library():
    result = subprocess.run([sys.executable, "-c", HELP], capture_output=True, encoding="utf-8", check=True)
    assert result.stdout.endswith("\nTrue\n")


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
