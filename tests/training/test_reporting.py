"""Metrics are read back from where `--report_to` puts them, and compared with the journal of the run."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

from tests.training import toy
from training import reporting
from training.__main__ import main
from training.run_folder import training_dir


ROOT = Path(__file__).parents[2]
PRETRAIN = ["--size", "reference", "--block_size", "16", "--batch_size", "4", "--max_steps", "6"]


def installed(name: str) -> bool:
    try:
        return Version(importlib.metadata.version(name)) >= Version(reporting.OLDEST[name])
    except importlib.metadata.PackageNotFoundError:
        return False


def needs(name: str):
    return pytest.mark.skipif(not installed(name), reason=f"{name} of that age is not here: {reporting.INSTALL}")


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(text for _, text in toy.make_rows(300)), encoding="utf-8")
    return str(path)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """The folder that a user stands in, which is to stay empty."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    assert list(folder.iterdir()) == []


def journal_of(run: Path) -> dict[int, float]:
    lines = (training_dir(run) / "journal.jsonl").read_text(encoding="ascii").splitlines()
    return {entry["step"]: entry["loss"] for entry in map(json.loads, lines) if entry["event"] == "loss"}


def scalars(folder: Path, tag: str) -> dict[int, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return {event.step: event.value for event in events.Scalars(tag)}


@needs("tensorboard")
def test_tensorboard_shows_the_losses_of_the_journal_from_the_training_folder(
    tmp_path, text_file, elsewhere, capsys, monkeypatch
):
    monkeypatch.setattr("training.progress.LOG_SECONDS", 0.0)  # every step is logged
    run = tmp_path / "runs" / "zh"
    words = ["pretrain", "--train_files", text_file, *PRETRAIN, "--report_to", "tensorboard"]
    assert main([*words, "--output_dir", str(run)]) == 0
    folder = training_dir(run) / "tensorboard"
    losses = journal_of(run)
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    assert scalars(folder, "train/loss") == pytest.approx(losses, rel=1e-6)
    assert min(scalars(folder, "train/learning_rate").values()) == 0
    assert f"tensorboard --logdir {folder}" in capsys.readouterr().out
    assert not list(run.rglob("*tfevents*"))


@needs("tensorboard")
def test_tensorboard_shows_the_losses_of_a_fine_tuning(tmp_path, elsewhere, capsys):
    model = toy.save_pretrained(tmp_path / "model")
    table = toy.write_tsv(tmp_path / "rows.tsv", toy.make_rows(40))
    words = ["finetune", "--model", model, "--train_file", table, "--epochs", 3, "--report_to", "tensorboard"]
    assert main([*map(str, words), "--output_dir", str(tmp_path / "labels")]) == 0
    told = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    shown = scalars(training_dir(tmp_path / "labels") / "tensorboard", "train/loss")
    assert [f"{loss:.4f}" for loss in shown.values()] == [words[words.index("loss") + 1] for words in told]
    assert len(shown) == 3


@needs("tensorboard")
def test_a_folder_for_tensorboard_that_the_user_names_is_taken(tmp_path, text_file, elsewhere, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    words = ["pretrain", "--train_files", text_file, *PRETRAIN, "--report_to", "tensorboard"]
    assert main([*words, "--output_dir", str(tmp_path / "zh")]) == 0
    assert list((tmp_path / "board").glob("*tfevents*"))
    assert not (training_dir(tmp_path / "zh") / "tensorboard").exists()


# In a process of its own: Trackio learns once where to write. Any way out of the machine is closed.
PROGRAM = """
import socket, sys

attempts = []  # what is raised may be swallowed

def closed(self, address):
    attempts.append(address)
    raise OSError("closed")

socket.socket.connect = socket.socket.connect_ex = closed
socket.getaddrinfo = lambda host, *rest: closed(None, host)
from training import progress, validate
from training.__main__ import main

progress.LOG_SECONDS = 0.0
validate.check_finished = lambda folder: 0
status = main(sys.argv[1:])
assert "trackio" in sys.modules
assert not attempts, attempts
sys.exit(status)
"""
READ = """
import json, sys
from trackio.sqlite_storage import SQLiteStorage

(run,) = SQLiteStorage.get_runs("hf-tinybert")
print(json.dumps([run, SQLiteStorage.get_logs("hf-tinybert", run)]))
"""


@needs("trackio")
def test_trackio_holds_the_losses_of_the_journal_in_the_training_folder_and_reaches_no_network(
    tmp_path, text_file, elsewhere
):
    run, home = tmp_path / "runs" / "zh", tmp_path / "home"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRACKIO_", "HF_"))}
    environment |= {"PYTHONPATH": str(ROOT), "HF_HOME": str(home), "PYTHONIOENCODING": "utf-8"}
    words = ["pretrain", "--train_files", text_file, *PRETRAIN, "--report_to", "trackio", "--output_dir", str(run)]
    command = [sys.executable, "-c", PROGRAM, *words]
    told = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, cwd=elsewhere)
    assert told.returncode == 0, told.stderr
    folder = training_dir(run) / "trackio"
    assert f"TRACKIO_DIR={folder} trackio show" in told.stdout
    assert "\x1b" not in told.stdout and "Trackio" not in told.stdout
    assert not (home / "trackio").exists()
    environment["TRACKIO_DIR"] = str(folder)
    read = subprocess.run([sys.executable, "-c", READ], capture_output=True, encoding="utf-8", env=environment)
    assert read.returncode == 0, read.stderr
    name, logs = json.loads(read.stdout)
    losses = {log["train/global_step"]: log["train/loss"] for log in logs if "train/loss" in log}
    assert name == "zh"
    assert losses == pytest.approx(journal_of(run), rel=1e-6) and len(losses) == 6


def test_the_extra_asks_for_what_the_check_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["optional-dependencies"]["report"] == [
        f"{name}>={oldest}" for name, oldest in reporting.OLDEST.items()
    ]


def test_a_tracker_that_is_too_old_is_told_before_any_work(tmp_path, text_file, capsys, monkeypatch):
    monkeypatch.setattr(reporting, "get_available_reporting_integrations", lambda: ["trackio"])
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0.6")
    words = ["pretrain", "--train_files", text_file, *PRETRAIN, "--output_dir", str(tmp_path / "zh")]
    for report_to in ("trackio", "all"):
        assert main([*words, "--report_to", report_to]) == 2
        error = capsys.readouterr().err
        assert f"--report_to {report_to}: trackio 0.0.6 is older than 0.43; pip install 'hf-tinybert[report]'" in error
    monkeypatch.setattr(reporting, "get_available_reporting_integrations", lambda: [])
    assert main([*words, "--report_to", "trackio"]) == 2
    assert "here there are none, all; pip install 'hf-tinybert[report]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
