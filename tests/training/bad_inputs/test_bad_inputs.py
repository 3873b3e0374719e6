"""What each kind of bad input gives, against `expected.md`.

After a change that is meant, remove that file, write it anew by `UPDATE_BAD_INPUTS=1 python -m pytest
tests/training/bad_inputs`, and read what is different.
"""

import logging
import os
import re
from pathlib import Path

import pytest

from tests.training import toy
from tests.training.bad_inputs.files import TABLES, TEXTS
from tests.training.bad_inputs.models import MODELS
from tests.training.test_predict import save_finetuned
from training import export, finetune, pretrain
from training.__main__ import main


EXPECTED = Path(__file__).with_name("expected.md")
UPDATE = "UPDATE_BAD_INPUTS"
CASES = [*TEXTS, *TABLES, *MODELS]
HEADER = ["| verb | what it is given | exit | what is said |", "|---|---|---|---|"]


class AllIsGoodError(Exception):
    """Raised where training would begin: all that can be told of the input has been told."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        "pretrained": str(toy.save_pretrained(folder / "pretrained")),
        "finetuned": str(save_finetuned(folder / "finetuned")),
    }


def said(out: str, err: str, logged: str) -> list[str]:
    """What was printed and logged: the error alone, or what came before all proved good, without times."""
    if err.startswith("python -m training"):
        out = ""
    lines = [re.sub(r"^\[ *[\d:]+\] ", "", line) for line in (logged + out + err).split("\n") if line]
    end = next(
        (i for i, line in enumerate(lines) if re.search("in the vocabulary|^--max_length|^unknown to", line)),
        len(lines),
    )
    shown = (line for line in lines[:end] if not line.startswith(("  ", "Next: ")))
    return [re.sub(r"^python -m training \w+: error: ", "", line) for line in shown]


def stop(*_):
    raise AllIsGoodError


@pytest.fixture
def run(models, tmp_path, monkeypatch, capsys, caplog):
    """Runs a case; gives the exit status and what was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pretrain, "_train", stop)
    monkeypatch.setattr(finetune, "prepare_training_dir", stop)
    monkeypatch.setattr(export, "export_onnx", stop)

    def run(case):
        case.make(tmp_path, models) if case in MODELS else case.make(tmp_path)
        before = sorted(os.walk(tmp_path))
        with caplog.at_level(logging.WARNING, logger="training"):
            try:
                status = main([word.format(**models) for word in case.words])
            except AllIsGoodError:
                status = 0
        out, err = capsys.readouterr()
        for name, folder in models.items():
            err = err.replace(folder, name)
        if status:
            assert err.count("\n") == 1
            assert sorted(os.walk(tmp_path)) == before
        return status, said(out, err, "".join(f"{record.getMessage()}\n" for record in caplog.records))

    return run


def row(case, status: int, lines: list[str]) -> str:
    cells = [case.words[0], case.name, str(status), " · ".join(lines)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.words[0]}: {case.name}")
def test_bad_input_gives_what_the_table_says(case, run):
    got = row(case, *run(case))
    if os.environ.get(UPDATE):
        new = not EXPECTED.exists()
        with EXPECTED.open("a", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in [*(HEADER if new else []), got])
        return
    start = row(case, 0, []).partition(" | 0 |")[0]
    expected = [line for line in EXPECTED.read_text(encoding="utf-8").split("\n") if line.startswith(start + " | ")]
    assert [got] == expected


def test_the_table_has_a_row_for_every_case_and_no_other():
    rows = EXPECTED.read_text(encoding="utf-8").removesuffix("\n").split("\n")[len(HEADER) :]
    assert len(rows) == len(CASES) == len({(case.words[0], case.name) for case in CASES})


@pytest.mark.slow
def test_a_line_of_100_mb_is_one_document(tmp_path, capsys):
    line = "这家酒店的房间很干净，" * 3_200_000
    (tmp_path / "a.txt").write_text(f"{line}\n好\n", encoding="utf-8")
    assert (tmp_path / "a.txt").stat().st_size > 100e6
    words = ["tokenizer", "--train_files", str(tmp_path / "a.txt"), "--output_dir", str(tmp_path / "out")]
    assert main(words) == 0
    assert f"read a.txt: 2 documents, {len(line) + 1:,} characters" in capsys.readouterr().out
