"""Runs that are stopped, killed, starved of disk or led astray: what is left, and what --resume makes of it."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file
from transformers import TrainerCallback

from tests import stress
from tests.training import toy
from training import finetune, pretrain, trainer
from training.__main__ import main
from training.masking import EpochOrder
from training.run_folder import find_damage, last_checkpoint, publishing, written_whole
from training.schedule import Journal, Plan


POSIX = pytest.mark.skipif(os.name != "posix", reason="signals and limits are POSIX's")
VERBS = ("pretrain", "finetune")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    stress.make_data(folder)
    return folder


def argv_of(verb, data, output_dir, *more):
    """A short run with checkpoints in mid-epoch; of two options of one name the last counts."""
    few = {"pretrain": ["--max_steps", "8"], "finetune": ["--epochs", "2", "--batch_size", "16"]}
    return [*stress.ARGVS[verb](data, output_dir), *few[verb], *more]


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """For each verb the weights of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    for verb in VERBS:
        assert main(argv_of(verb, data, folder / verb)) == 0
    return {verb: stress.weights(folder / verb) for verb in VERBS}


def work_dir(folder):
    return folder.with_name(f".{folder.name}.training")


def at_step(monkeypatch, step, action, event="on_step_end"):
    """Have `action` called once, when a run reaches `step`."""
    calls = []

    class AtStep(TrainerCallback):
        pass

    def call(self, args, state, control, **kwargs):
        if state.global_step == step and not calls:
            calls.append(step)
            action()

    setattr(AtStep, event, call)
    real = trainer.ExactTrainer.__init__

    def init(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.callback_handler.callbacks.insert(0, AtStep())

    monkeypatch.setattr(trainer.ExactTrainer, "__init__", init)


def stop():
    raise KeyboardInterrupt


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("step", [5, pytest.param(8, marks=pytest.mark.slow)])
def test_a_run_stopped_in_mid_epoch_resumes_to_the_same_bits(data, whole, tmp_path, monkeypatch, verb, step):
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        at_step(patch, step, stop)
        assert main(argv_of(verb, data, folder)) == 130
    assert not folder.exists()
    assert main(argv_of(verb, data, folder, "--resume")) == 0
    assert stress.weights(folder) == whole[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_stopped_while_publishing_has_no_step_to_repeat(data, whole, tmp_path, monkeypatch, capsys, verb):
    folder = tmp_path / "run"
    module = {"pretrain": pretrain, "finetune": finetune}[verb]
    with monkeypatch.context() as patch:
        patch.setattr(module.card, "write_card", lambda *_: stop())
        assert main(argv_of(verb, data, folder)) == 130
    assert [path.name for path in tmp_path.iterdir()] == [".run.training"]
    monkeypatch.setattr(trainer.ExactTrainer, "training_step", lambda *_, **__: stop())
    assert main(argv_of(verb, data, folder, "--resume")) == 0
    assert stress.weights(folder) == whole[verb]
    capsys.readouterr()
    assert main(argv_of(verb, data, folder, "--resume")) == 0
    assert "is finished already: nothing to resume" in capsys.readouterr().out


@POSIX
def test_a_budget_in_time_resumes_to_the_same_bits_by_its_journal(data, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    argv = [*stress.ARGVS["pretrain"](data, folder), "--save_steps", "3"]
    at = argv.index("--max_steps") if "--max_steps" in argv else None
    argv = [*(argv if at is None else argv[:at] + argv[at + 2 :]), "--time_budget", "100s"]
    monkeypatch.setattr(pretrain, "_measure_step", lambda *_: 2.0)
    with monkeypatch.context() as patch:
        clock, left = itertools.count(), itertools.count(12, -1)
        patch.setattr(trainer.time, "monotonic", lambda: float(next(clock)))
        patch.setattr(trainer.Deadline, "seconds_left", lambda self: max(2.0, float(next(left))))
        patch.setattr(pretrain.card, "write_card", lambda *_: stop())
        assert main(argv) == 130
    plans = {entry["max_steps"] for entry in Journal(work_dir(folder) / "journal.jsonl").of("plan")}
    assert len(plans) > 2  # the clock moved the end
    shutil.copytree(work_dir(folder), tmp_path / "kept")
    assert main([*argv, "--resume"]) == 0
    expected = stress.weights(folder)

    shutil.rmtree(folder)
    shutil.rmtree(work_dir(folder))
    shutil.copytree(tmp_path / "kept", work_dir(folder))
    last = last_checkpoint(work_dir(folder))
    shutil.rmtree(last)
    assert last_checkpoint(work_dir(folder)) is not None
    steps = []
    at_step(monkeypatch, int(last.name.rpartition("-")[2]), lambda: steps.append(last))
    monkeypatch.setattr(trainer.Deadline, "seconds_left", lambda self: pytest.fail("the journal knows the plan"))
    assert main([*argv, "--resume"]) == 0
    assert steps and stress.weights(folder) == expected


@pytest.mark.parametrize(("verb", "name", "status"), [("pretrain", "SIGTERM", 143), ("finetune", "SIGINT", 130)])
def test_a_signal_ends_the_step_and_saves(data, whole, tmp_path, monkeypatch, capsys, verb, name, status):
    folder = tmp_path / "run"
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        at_step(patch, 4, lambda: os.kill(os.getpid(), getattr(signal, name)), "on_step_begin")
        assert main(argv_of(verb, data, folder)) == status
    error = capsys.readouterr().err
    assert error == (
        f"python -m training {verb}: interrupted after step 5, which is saved; "
        "give the same command with --resume to go on\n"
    )
    assert signal.getsignal(signal.SIGTERM) is before
    assert last_checkpoint(work_dir(folder)).name == "checkpoint-5"
    assert main(argv_of(verb, data, folder, "--resume")) == 0
    assert "going on from checkpoint-5" in capsys.readouterr().out
    assert stress.weights(folder) == whole[verb]


@POSIX
def test_a_second_ctrl_c_stops_at_once_and_a_second_sigterm_does_not(data, tmp_path, monkeypatch, capsys):
    for number, status, saved in ((signal.SIGINT, 130, False), (signal.SIGTERM, 143, True)):
        folder = tmp_path / number.name

        def twice(number=number):
            os.kill(os.getpid(), number)
            os.kill(os.getpid(), number)

        with monkeypatch.context() as patch:
            at_step(patch, 1, twice, "on_step_begin")
            assert main(argv_of("pretrain", data, folder)) == status
        assert (last_checkpoint(work_dir(folder)) is not None) is saved


@POSIX
def test_sigterm_outside_training_leaves_nothing_half_made(data, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrain, "load_corpus", lambda *_: os.kill(os.getpid(), signal.SIGTERM) or time.sleep(9))
    assert main(argv_of("pretrain", data, tmp_path / "run")) == 143
    assert list(tmp_path.iterdir()) == []


def test_where_a_platform_lacks_signals_the_others_are_heeded():
    code = (
        "import signal; del signal.SIGTERM\n"
        "from training import interruption\n"
        "assert interruption._SIGNALS == [signal.SIGINT]\n"
        "with interruption.heeding_signals(): pass"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=stress.Path(__file__).parents[2])


@pytest.fixture(scope="module")
def stopped(data, tmp_path_factory):
    """For each verb a training folder with two checkpoints; tests copy it."""
    folder = tmp_path_factory.mktemp("stopped")
    with pytest.MonkeyPatch.context() as patch:
        for verb in VERBS:
            at_step(patch, 7, stop)
            assert main(argv_of(verb, data, folder / verb, "--save_steps", "3")) == 130
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_a_checkpoint_of_which_any_file_is_cut_is_known_and_the_one_before_used(stopped, tmp_path, capsys, verb):
    damages = {
        "missing": lambda path: path.unlink(),
        "empty": lambda path: path.write_bytes(b""),
        "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        "garbled": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    }
    source = stopped / f".{verb}.training"
    assert last_checkpoint(source).name == "checkpoint-6"
    names = [path.name for path in (source / "checkpoint-6").iterdir()]
    assert {"model.safetensors", "optimizer.pt", "scheduler.pt", "trainer_state.json", "files.json"} <= {*names}
    for name in names:
        for what, damage in damages.items():
            copy = tmp_path / f"{name}-{what}"
            shutil.copytree(source, copy)
            damage(copy / "checkpoint-6" / name)
            assert last_checkpoint(copy).name == "checkpoint-3", (name, what)
            out = capsys.readouterr().out
            assert f"checkpoint-6 is damaged ({name}" in out and "going back to the one before it" in out


def test_checkpoints_all_cut_are_named_and_the_run_starts_from_step_0(stopped, data, tmp_path, whole, capsys):
    shutil.copytree(stopped / ".pretrain.training", tmp_path / ".run.training")
    for path in tmp_path.glob(".run.training/checkpoint-*/optimizer.pt"):
        path.write_bytes(b"")
    assert main(argv_of("pretrain", data, tmp_path / "run", "--resume")) == 0
    out = capsys.readouterr().out
    assert out.count("is damaged (optimizer.pt") == 2 and "no checkpoint yet: starting from step 0" in out
    assert stress.weights(tmp_path / "run") == whole["pretrain"]


def test_encoded_text_that_was_cut_is_one_line(stopped, data, tmp_path, capsys):
    shutil.copytree(stopped / ".pretrain.training", tmp_path / ".run.training")
    (arrow,) = tmp_path.glob(".run.training/prepared/train/*.arrow")
    arrow.write_bytes(arrow.read_bytes()[:-1])
    assert main(argv_of("pretrain", data, tmp_path / "run", "--resume")) == 2
    error = capsys.readouterr().err
    assert "is damaged (train/" in error and "start afresh" in error and error.count("\n") == 1
    assert last_checkpoint(tmp_path / ".run.training").name == "checkpoint-6"


@POSIX
@pytest.mark.parametrize("verb", ["pretrain", pytest.param("finetune", marks=pytest.mark.slow)])
def test_a_full_disk_is_one_line_and_costs_no_checkpoint(data, whole, tmp_path, monkeypatch, capsys, verb):
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder = tmp_path / "run"
    try:
        with monkeypatch.context() as patch:
            at_step(patch, 5, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1])))
            assert main(argv_of(verb, data, folder, "--save_steps", "3")) == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    error = capsys.readouterr().err
    assert f"cannot write in {work_dir(folder)} (" in error and "--resume" in error and error.count("\n") == 1
    assert sorted(path.name for path in work_dir(folder).glob("c*")) == ["checkpoint-3"]
    assert find_damage(work_dir(folder) / "checkpoint-3") is None
    assert not (work_dir(folder) / ".writing").exists()
    assert main(argv_of(verb, data, folder, "--resume", "--save_steps", "3")) == 0
    assert stress.weights(folder) == whole[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_closed_on_the_way_is_one_line(data, tmp_path, monkeypatch, capsys, verb):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        at_step(patch, 5, lambda: patch.setattr("training.run_folder._to_disk", refuse))
        assert main(argv_of(verb, data, tmp_path / "run", "--save_steps", "3")) == 2
    error = capsys.readouterr().err
    assert "(Permission denied)" in error and error.count("\n") == 1
    assert last_checkpoint(work_dir(tmp_path / "run")).name == "checkpoint-3"


@pytest.mark.parametrize("verb", VERBS)
def test_a_second_run_into_a_folder_is_refused(data, tmp_path, capsys, verb):
    folder = tmp_path / "run"
    work_dir(folder).mkdir()
    with FileLock(work_dir(folder) / "lock"):
        assert main(argv_of(verb, data, folder)) == 2
    error = capsys.readouterr().err
    assert f"another run is writing {folder}" in error and error.count("\n") == 1


@pytest.mark.parametrize(("verb", "step"), [("pretrain", 2), ("finetune", 3)])  # the latter warms up from 0
def test_weights_that_run_away_stop_the_run_at_once(data, tmp_path, capsys, verb, step):
    folder = tmp_path / "run"
    assert main(argv_of(verb, data, folder, "--learning_rate", "1e30", "--save_steps", "1")) == 2
    error = capsys.readouterr().err
    assert "training ran away" in error and f" at step {step} (" in error and error.count("\n") == 1
    assert "--learning_rate 1e+30 is likely too high" in error
    assert f"checkpoint-{step - 1} from before is kept in {work_dir(folder)}" in error
    kept = load_file(work_dir(folder) / f"checkpoint-{step - 1}" / "model.safetensors")
    assert all(weight.isfinite().all() for weight in kept.values())


@pytest.mark.slow
def test_the_blocks_and_rows_of_a_step_are_named(data, tmp_path, monkeypatch):
    seen, named = {verb: [] for verb in VERBS}, {}
    real_step = trainer.ExactTrainer.training_step

    def spy(self, model, inputs, num_items_in_batch=None):
        verb = "pretrain" if isinstance(self, trainer.PretrainingTrainer) else "finetune"
        seen[verb].append((self.state.global_step + 1, inputs["input_ids"].clone()))
        named[verb] = self
        return real_step(self, model, inputs, num_items_in_batch)

    monkeypatch.setattr(trainer.ExactTrainer, "training_step", spy)
    for verb in VERBS:
        assert main(argv_of(verb, data, tmp_path / verb)) == 0
    rows = [int(row) for row in named["finetune"].batch_name(9).split("rows ")[1].split(", ...")[0].split(",")]
    batch = next(ids for step, ids in seen["finetune"] if step == 9)  # in the second epoch
    dataset = named["finetune"].train_dataset
    for row, ids in zip(rows, batch, strict=False):
        assert dataset[row - 1]["input_ids"] == ids[: len(dataset[row - 1]["input_ids"])].tolist()
    name = named["pretrain"].batch_name(7)
    assert name.startswith("epoch 1, blocks ")
    blocks = [int(row) for row in name.split("blocks ")[1].split(",")]
    order = EpochOrder(named["pretrain"].train_dataset.blocks, 0)
    assert blocks == [order[index]["row"] + 1 for index in range(48, 56)]


def test_numbers_too_large_to_learn_are_a_likely_reason(data, tmp_path, capsys):
    rows = [("1e300" if name == "好评" else "-1", text) for name, text in toy.make_rows(40)]
    table = toy.write_tsv(tmp_path / "numbers.tsv", rows)
    words = ["--train_file", str(table), "--problem_type", "regression"]
    assert main(argv_of("finetune", data, tmp_path / "run", *words)) == 2
    error = capsys.readouterr().err
    assert "the loss is " in error and "the numbers to learn too large (up to inf" in error
    assert "there is no checkpoint from before" in error
    assert [path.name for path in tmp_path.iterdir()] == ["numbers.tsv"]


def test_weights_that_are_no_numbers_are_never_saved(data, tmp_path, monkeypatch, capsys):
    """The optimizer can overflow where gradients are finite: then the save itself must refuse."""
    folder = tmp_path / "run"
    real = trainer.SaveCallback.on_step_end

    def poison(self, args, state, control, model=None, **kwargs):
        real(self, args, state, control, **kwargs)
        if state.global_step == 6:
            with torch.no_grad():
                next(model.parameters()).fill_(float("inf"))

    monkeypatch.setattr(trainer.SaveCallback, "on_step_end", poison)
    assert main(argv_of("pretrain", data, folder, "--save_steps", "3")) == 2
    assert "hold NaN or infinite numbers at step 6" in capsys.readouterr().err
    assert [path.name for path in work_dir(folder).glob("c*")] == ["checkpoint-3"]


def test_what_killed_runs_left_beside_a_folder_goes_with_a_line(tmp_path, capsys):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".zh.{dead.pid}.staging").mkdir()
    (tmp_path / f".zh.{os.getppid()}.staging").mkdir()  # of a process that lives
    (tmp_path / f".other.{dead.pid}.staging").mkdir()
    with publishing(tmp_path / "zh") as staging:
        (staging / "config.json").touch()
    assert f"removing .zh.{dead.pid}.staging, which a killed run left" in capsys.readouterr().out
    assert {path.name for path in tmp_path.iterdir()} == {
        "zh", f".zh.{os.getppid()}.staging", f".other.{dead.pid}.staging",
    }  # fmt: skip


def test_a_half_written_checkpoint_goes_with_a_line(stopped, data, tmp_path, whole, capsys):
    shutil.copytree(stopped / ".pretrain.training", tmp_path / ".run.training")
    half = tmp_path / ".run.training" / ".writing" / "checkpoint-7"
    half.mkdir(parents=True)
    (half / "model.safetensors").write_bytes(b"half")
    assert main(argv_of("pretrain", data, tmp_path / "run", "--resume")) == 0
    assert "removing checkpoint-7, which an earlier run did not finish writing" in capsys.readouterr().out
    assert stress.weights(tmp_path / "run") == whole["pretrain"]


def test_a_folder_replaces_another_whole_or_not_at_all(tmp_path):
    target = tmp_path / "checkpoint-1"
    for content in ("old", "new"):
        with written_whole(target) as staging:
            (staging / "file").write_text(content, encoding="utf-8")
    with pytest.raises(RuntimeError), written_whole(target) as staging:
        raise RuntimeError
    assert (target / "file").read_text(encoding="utf-8") == "new" and find_damage(target) is None
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_starting_afresh_is_not_resumed_from_when_it_was_cut_short(stopped, data, tmp_path, monkeypatch, capsys):
    """Between removing the old run and preparing the new one there is nothing to resume."""
    shutil.copytree(stopped / ".pretrain.training", tmp_path / ".run.training")
    with monkeypatch.context() as patch:
        patch.setattr(pretrain.Prepared, "save", lambda *_: stop())
        assert main(argv_of("pretrain", data, tmp_path / "run")) == 130
    assert main(argv_of("pretrain", data, tmp_path / "run", "--resume", "--max_steps", "1")) == 0
    assert "nothing to resume: starting afresh" in capsys.readouterr().out


def test_a_run_resumed_at_step_a_million_begins_at_once(stopped, data, tmp_path, capsys):
    shutil.copytree(stopped / ".pretrain.training", tmp_path / ".run.training")
    folder = tmp_path / ".run.training"
    arguments = json.loads((folder / "arguments.json").read_text(encoding="utf-8"))
    (folder / "arguments.json").write_text(json.dumps(arguments | {"max_steps": 1_000_002}), encoding="utf-8")
    with written_whole(folder / "checkpoint-1000000") as staging:
        shutil.copytree(folder / "checkpoint-6", staging, ignore=lambda *_: ["files.json"], dirs_exist_ok=True)
        state = json.loads((staging / "trainer_state.json").read_text(encoding="utf-8"))
        state |= {"global_step": 1_000_000, "max_steps": 1_000_002}
        (staging / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    started = time.monotonic()
    assert main(argv_of("pretrain", data, tmp_path / "run", "--resume", "--max_steps", "1000002")) == 0
    assert time.monotonic() - started < 10
    assert "step 1,000,002/1,000,002" in capsys.readouterr().out


def test_examples_are_the_same_wherever_a_run_begins(data, tmp_path):
    blocks = pretrain.prepare(
        pretrain.PretrainArguments(train_files=[f"{data}/text.txt"], output_dir="x", block_size=32)
    ).train.with_format("numpy")
    whole, later = EpochOrder(blocks, 5), EpochOrder(blocks, 5, start=2 * len(blocks) - 3)
    for index in range(6):  # over the end of an epoch
        one, other = whole[2 * len(blocks) - 3 + index], later[index]
        assert (one["epoch"], one["row"]) == (other["epoch"], other["row"])
        assert (one["input_ids"] == other["input_ids"]).all()


def test_a_changed_plan_gives_the_same_rates_when_it_is_replayed():
    """Live, the rate of a step is set when the one before it ends, before the plan is looked at again."""
    changes = {40: 60, 50: 90}
    live, rates = Plan(100), []
    for step in range(90):
        rates.append(live.progress(step + 1))  # of the step to come
        if step + 1 in changes:
            live.replan(step + 2, changes[step + 1])
    replayed = Plan(100)
    for step, max_steps in changes.items():
        replayed.replan(step + 1, max_steps)
    assert live.max_steps == replayed.max_steps == 90
    assert [replayed.progress(step + 1) for step in range(90)] == rates


def test_the_lines_of_a_run_of_a_month_are_few(tmp_path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(trainer.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(trainer, "elapsed", lambda: clock.now)
    progress = trainer.ProgressCallback(Plan(200_000), 1, 10, 1.0, Journal(None))
    lines = 0
    for step in range(2, 30 * 24 * 240):  # steps of 15 seconds
        clock.now += 15
        control, state = SimpleNamespace(should_log=False), SimpleNamespace(global_step=step)
        progress.on_step_end(None, state, control)
        if control.should_log:
            lines += 1
            progress._last, progress._warned = (step, clock.now), True
    assert 500 < lines < 5000


def test_resumed_rows_that_changed_are_refused(data, tmp_path, monkeypatch, capsys):
    table = tmp_path / "train.tsv"
    shutil.copy(data / "train.tsv", table)
    argv = argv_of("finetune", data, tmp_path / "run", "--train_file", str(table))
    with monkeypatch.context() as patch:
        at_step(patch, 5, stop)
        assert main(argv) == 130
    toy.write_tsv(table, toy.make_rows(120, seed=1))
    assert main([*argv, "--resume"]) == 2
    assert "--train_file" in capsys.readouterr().err


@pytest.mark.slow
def test_memory_is_flat_over_ten_thousand_steps(data, tmp_path, monkeypatch):
    process, sizes = psutil.Process(), {}

    class Weigh(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step % 500 == 0:
                sizes[state.global_step] = process.memory_info().rss

    real = trainer.ExactTrainer.__init__

    def init(self, *args, **kwargs):
        real(self, *args, **kwargs)
        self.add_callback(Weigh())

    monkeypatch.setattr(trainer.ExactTrainer, "__init__", init)
    few = ["--batch_size", "2", "--micro_batch_size", "2", "--save_steps", "500"]
    assert main(argv_of("pretrain", data, tmp_path / "run", *few, "--max_steps", "10000")) == 0
    growth = sizes[10_000] / sizes[1_000] - 1
    print(f"resident: {sizes[1_000] / 2**20:.1f} MiB after 1,000 steps, {growth:+.2%} after 10,000")
    assert growth < 0.02, sizes
    assert (work_dir(tmp_path / "run") / "journal.jsonl").stat().st_size < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("count", [1, 2])
def test_processes_killed_in_mid_epoch_resume_to_the_same_bits(data, tmp_path, verb, count):
    stress.run_with_kills(argv_of(verb, data, tmp_path / "whole"), tmp_path / "whole.log", count, [])
    argv, log = argv_of(verb, data, tmp_path / "killed"), tmp_path / "killed.log"
    run = stress.start(argv, log, count)
    while not run.wait(0.01) and not list(work_dir(tmp_path / "killed").glob("checkpoint-*")):
        pass
    run.kill()
    assert run.statuses == [-signal.SIGKILL] * count
    stress.run_with_kills([*argv, "--resume"], log, count, [])
    assert "going on from checkpoint-" in log.read_text(encoding="utf-8")
    assert stress.weights(tmp_path / "whole") == stress.weights(tmp_path / "killed")
