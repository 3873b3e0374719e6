"""`make stress`: runs that are killed at random moments, resumed, and compared with one that nobody killed.

`python -m tests.stress [--pretrain 20] [--finetune 10] [--processes 1] [--seed 0]`
"""

import argparse
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from transformers.utils import logging as transformers_logging

from tests.training import toy
from tests.training.conftest import make_sentences


MOST_KILLS = 3  # of one run
# A process that has the libraries loaded already starts at once, so the kills hit the work and not the imports.
CONTEXT = multiprocessing.get_context(
    "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
)
PRELOADED = ["training.pretrain", "training.finetune", "training.trainer", "training.evaluate", "training.baseline"]


def pretrain_argv(folder: Path, output_dir: Path) -> list[str]:
    """A run of two micro-batches a step, with dropout and many checkpoints."""
    shape = ["--size", "reference", "--block_size", "32", "--batch_size", "8", "--micro_batch_size", "2"]
    budget = ["--max_steps", "40", "--save_steps", "3", "--dropout", "0.1"]
    return ["pretrain", "--train_files", f"{folder}/text.txt", *shape, *budget, "--output_dir", str(output_dir)]


def finetune_argv(folder: Path, output_dir: Path) -> list[str]:
    """A run of several epochs, with checkpoints in the middle of each."""
    data = ["--model", f"{folder}/model", "--train_file", f"{folder}/train.tsv", "--max_length", "32"]
    budget = ["--epochs", "4", "--batch_size", "8", "--save_steps", "4"]
    return ["finetune", *data, *budget, "--output_dir", str(output_dir)]


ARGVS = {"pretrain": pretrain_argv, "finetune": finetune_argv}


def make_data(folder: Path):
    """A text, a labelled table and a model to fine-tune."""
    (folder / "text.txt").write_text("\n".join(make_sentences(300)), encoding="utf-8")
    toy.write_tsv(folder / "train.tsv", toy.make_rows(120))
    transformers_logging.disable_progress_bar()
    toy.save_pretrained(folder / "model")


def _carry_out(argv: list[str], log: str, environment: dict[str, str]):
    os.environ.update(environment)
    with open(log, "a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        import torch

        from training.__main__ import main

        torch.set_num_threads(1)
        sys.exit(main(argv))


@dataclass
class Run:
    """The processes of one command; their output goes to `log`."""

    processes: list
    log: Path

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it ended within `seconds`."""
        ends = None if seconds is None else time.monotonic() + seconds
        for process in self.processes:
            process.join(None if ends is None else max(0.0, ends - time.monotonic()))
        return all(process.exitcode is not None for process in self.processes)

    def kill(self, number: int = getattr(signal, "SIGKILL", signal.SIGTERM)):
        for process in self.processes:
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.kill(process.pid, number)
        self.wait()

    @property
    def statuses(self) -> list[int]:
        return [process.exitcode for process in self.processes]


def start(argv: list[str], log: Path, count: int = 1) -> Run:
    """Carry out a command in a process of its own, or in `count` that train together as under `torchrun`."""
    CONTEXT.set_forkserver_preload(PRELOADED) if CONTEXT.get_start_method() == "forkserver" else None
    environments = [{}]
    if count > 1:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        shared = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        shared["LOCAL_WORLD_SIZE"] = str(count)
        environments = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    processes = [CONTEXT.Process(target=_carry_out, args=(argv, str(log), more)) for more in environments]
    for process in processes:
        process.start()
    return Run(processes, log)


def run_with_kills(argv: list[str], log: Path, count: int, moments: Sequence[float]) -> int:
    """Start a run, kill it at each of the moments (seconds after its start), resume it to its end.

    Returns:
        How often it was killed before it ended.
    """
    for number, moment in enumerate([*moments, None]):
        run = start([*argv, *(["--resume"] if number else [])], log, count)
        if run.wait(moment):
            break
        run.kill()
    if any(run.statuses):
        raise RuntimeError(f"exit status {run.statuses}:\n{log.read_text(encoding='utf-8')}")
    return number


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def stress(verb: str, times: int, folder: Path, count: int, generator: random.Random) -> int:
    """How many of `times` killed and resumed runs of a verb end in the bits of one that was not killed."""
    whole = folder / verb / "whole"
    whole.parent.mkdir()
    run_with_kills(ARGVS[verb](folder, whole), folder / f"{verb}-warm.log", count, [])
    again = folder / verb / "again"  # the first one also waited for the preloading
    started = time.monotonic()
    run_with_kills(ARGVS[verb](folder, again), folder / f"{verb}.log", count, [])
    seconds = time.monotonic() - started
    if weights(whole) != weights(again):
        raise RuntimeError(f"two runs of {verb} that nobody killed differ: nothing can be said about killed ones")
    equal = 0
    for number in range(times):
        output_dir, log = folder / verb / f"run-{number}", folder / f"{verb}-{number}.log"
        moments = [generator.uniform(0, seconds) for _ in range(generator.randint(1, MOST_KILLS))]
        kills = run_with_kills(ARGVS[verb](folder, output_dir), log, count, moments)
        left = [path.name for path in output_dir.parent.glob(f".{output_dir.name}.*.staging")]
        same = weights(output_dir) == weights(whole) and not left
        equal += same
        when = ", ".join(f"{moment:.2f} s" for moment in moments[:kills]) or "never, it was faster"
        print(
            f"{verb} {number + 1}/{times}: killed after {when}: {'equal' if same else f'DIFFERS {left}'}", flush=True
        )
    print(f"{verb} bit-equal {equal}/{times}", flush=True)
    return equal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pretrain", type=int, default=20, help="killed runs of pretrain (default: 20)")
    parser.add_argument("--finetune", type=int, default=10, help="killed runs of finetune (default: 10)")
    parser.add_argument("--processes", type=int, default=1, help="that train together (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default: 0)")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with tempfile.TemporaryDirectory() as folder:
        make_data(Path(folder))
        wanted = {"pretrain": arguments.pretrain, "finetune": arguments.finetune}
        generator = random.Random(arguments.seed)
        equal = {
            verb: stress(verb, times, Path(folder), arguments.processes, generator)
            for verb, times in wanted.items()
            if times
        }
    return int(any(equal[verb] < wanted[verb] for verb in equal))


if __name__ == "__main__":
    sys.exit(main())
