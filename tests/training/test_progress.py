import io
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager, redirect_stdout

import pytest

from tests.training import toy
from training import clock, progress
from training.__main__ import main


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture
def quick(monkeypatch):
    """Lines and bars after hundredths of a second."""
    monkeypatch.setattr("training.progress.LOG_SECONDS", 0.02)
    monkeypatch.setattr("training.progress.BAR_SECONDS", 0.01)
    clock.start()


@contextmanager
def on_terminal():
    """What is printed inside goes to a terminal, which is yielded."""
    with redirect_stdout(Terminal()) as stream:
        yield stream


def test_a_log_gets_plain_lines_and_a_last_one_with_the_time(quick, capsys):
    with progress.step("reading", "documents", 8) as step:
        step.done = 2
        time.sleep(0.1)
        step.done = 8
    captured = capsys.readouterr()
    *lines, last = captured.out.splitlines()
    assert captured.err == ""
    assert "[ 0:00] reading: 2 of 8 documents (25%), 0:00 left" in lines
    assert last == "[ 0:00] reading: 8 documents in 0:00"


def test_lines_of_a_log_are_as_far_apart_as_they_should_be(monkeypatch, capsys):
    monkeypatch.setattr("training.progress.LOG_SECONDS", 0.2)
    with progress.step("reading", "documents") as step:
        time.sleep(0.5)
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[:-1] == ["reading: 0 documents"] * int(step.seconds() / 0.2)


def test_a_log_hears_nothing_of_a_short_step(capsys):
    assert list(progress.track(range(1000), "reading", "numbers")) == list(range(1000))
    assert capsys.readouterr() == ("", "")


def test_a_pause_between_lines_grows_with_the_run():
    assert progress.line_pause(60) == 15
    assert progress.line_pause(30 * 24 * 3600) == pytest.approx(5184)


def test_a_step_that_tells_a_log_itself_adds_nothing_there(quick, capsys):
    with progress.step("training", "steps", 8, own_lines=True):
        time.sleep(0.05)
        assert not progress.beside_bar("loss 1")
    assert capsys.readouterr().out == ""


def test_a_step_without_anything_to_count_shows_the_time(quick, capsys):
    with progress.step("uploading 3 MB"):
        time.sleep(0.05)
    lines = [line.partition("] ")[2] for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "uploading 3 MB: 0:00 so far" and lines[-1] == "uploading 3 MB: 0:00"


def test_a_terminal_gets_one_bar_with_lines_above_it_and_nothing_left_of_it(quick):
    with on_terminal() as terminal, progress.step("reading", "documents", 8) as step:
        for step.done in (2, 6):
            for _ in progress.track(range(3), "an inner one", "numbers"):
                time.sleep(0.02)
            assert progress.beside_bar("loss 7.1")
            print("a line")
        time.sleep(0.05)
    shown = terminal.getvalue()
    assert "reading:  25%|" in shown and "2/8 [" in shown
    assert "reading:  75%|" in shown and "documents/s, loss 7.1]" in shown
    assert "inner" not in shown
    # What a terminal shows in the end: of each line, what stands after the last return to its start.
    left = [line.rpartition("\r")[2] for line in shown.split("\n")]
    assert left == ["a line", "a line", "[ 0:00] reading: 6 documents in 0:00", ""]


def test_the_speed_of_a_resumed_step_is_that_of_what_is_done_now(quick):
    with on_terminal() as terminal, progress.step("training", "steps") as step:
        step.begin(1000, 1010)
        time.sleep(0.1)
        step.done = 1001
        time.sleep(0.1)
    speeds = [float(speed) for speed in re.findall(r", +([\d.]+) steps/s", terminal.getvalue())]
    assert "1001/1010" in terminal.getvalue()
    assert all(speed < 200 for speed in speeds)


def test_time_left_of_a_resumed_step_is_that_of_what_is_done_now():
    step = progress.Step("training", "steps", None)
    step.begin(90, 100)
    assert step.line() == "training: 90 of 100 steps (90%)"
    step.done, step.started = 95, time.monotonic() - 50
    assert step.line() == "training: 95 of 100 steps (95%), 0:50 left"
    assert step.last_line() == "training: 95 steps in 0:50"


def test_an_error_takes_the_bar_away_and_the_next_step_has_its_own(quick):
    with on_terminal() as terminal:
        with pytest.raises(ValueError, match="bad"), progress.step("first", "things"):
            time.sleep(0.03)
            raise ValueError("bad")
        assert sys.stdout is terminal
        with progress.step("second", "things"):
            pass
    assert "first" in terminal.getvalue() and "second" in terminal.getvalue()
    *_, last = terminal.getvalue().splitlines()
    assert "second" not in last and "first" not in last


def test_counting_costs_next_to_nothing():
    started = time.monotonic()
    for _ in progress.track(range(200_000), "reading", "numbers"):
        pass
    assert time.monotonic() - started < 1


PROGRAM = """
import time
from contextlib import contextmanager, redirect_stdout
from training import progress
progress.LOG_SECONDS = 0.05
with progress.step("reading", "documents", 8) as step:
    step.done = 4
    time.sleep(0.3)
    print("\\u6709")
"""


@pytest.mark.skipif(os.name != "posix", reason="pseudo-terminals are of POSIX")
@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_a_real_terminal_gets_a_bar_and_a_file_gets_lines(locale, tmp_path):
    import pty

    environment = os.environ | {"LC_ALL": locale, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUTF8": "0"}
    environment |= {"PYTHONIOENCODING": ":backslashreplace"}
    command = [sys.executable, "-c", PROGRAM]
    lines = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", lines.stdout) and lines.stderr == b""
    assert b"reading: 4 of 8 documents (50%)" in lines.stdout

    ours, theirs = pty.openpty()  # of 0 columns
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment):
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            shown += chunk
    os.close(ours)
    assert b"reading:  50%|" in shown and b"Traceback" not in shown


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with text and labelled text in it."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "text.txt").write_text("\n".join(text for _, text in toy.make_rows(300)), encoding="utf-8")
    toy.write_tsv(folder / "rows.tsv", toy.make_rows(40))
    return folder


def verbs(place, name):
    """Commands of every kind of long step, in their order."""
    encoder, labels = place / f"{name}-encoder", place / f"{name}-labels"
    small = ["--size", "reference", "--block_size", 16, "--batch_size", 4, "--max_steps", 4]
    yield "tokenizer", "--train_files", place / "text.txt", "--output_dir", place / f"{name}-tokenizer"
    yield "pretrain", "--train_files", place / "text.txt", *small, "--output_dir", encoder
    yield "finetune", "--model", encoder, "--train_file", place / "rows.tsv", "--epochs", 2, "--output_dir", labels
    yield "evaluate", "--model", labels, "--test_file", place / "rows.tsv"
    yield "predict", "--model", labels, "--input", place / "text.txt", "--output", place / f"{name}.jsonl"


def test_every_verb_writes_plain_lines_into_a_log(place, capfd):
    for verb in verbs(place, "log"):
        assert main([str(word) for word in verb]) == 0
    out, err = capfd.readouterr()
    assert "step 4/4 (100%)  loss" in out and "epoch 2/2" in out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out)
    assert err == ""


def test_every_verb_shows_bars_on_a_terminal_and_does_not_say_it_twice(place, monkeypatch, capfd):
    monkeypatch.setattr("training.progress.LOG_SECONDS", 1e9)
    with on_terminal() as terminal:
        for verb in verbs(place, "bar"):
            assert main([str(word) for word in verb]) == 0
    shown = terminal.getvalue()
    for what in (
        "reading",
        "counting characters",
        "learning words",
        "encoding",
        "training",
        "evaluation",
        "answering",
    ):
        assert f"\r{what}: " in shown, what
    assert "step 4/4 (100%)" not in shown
    assert "epoch 2/2" in shown  # one line an epoch, above the bar
    # No line is left that begins in the middle of a bar.
    for line in shown.split("\n"):
        assert "|" not in line.rpartition("\r")[2]
    assert capfd.readouterr().err == ""
