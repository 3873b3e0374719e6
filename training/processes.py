"""The processes that train one model together, as `torchrun` and `accelerate launch` start them; alone, just one."""

import os
from contextlib import contextmanager, redirect_stdout
from datetime import timedelta


PATIENCE = timedelta(days=1)  # how long the others wait while the main one reads the text; the default is minutes


def count() -> int:
    """How many there are."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def rank() -> int:
    """Which of them this is, from 0."""
    return int(os.environ.get("RANK", "0"))


def is_main() -> bool:
    """Whether this is the one that reads text, writes files and prints."""
    return rank() == 0


def from_main(value):
    """What the main process passes here, in all of them; they wait for one another.

    Args:
        value: Anything that can be pickled; only the main process's counts.
    """
    if count() == 1:
        return value
    import torch
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    on_cpu = not torch.accelerator.is_available()
    if on_cpu:
        os.environ["ACCELERATE_USE_CPU"] = "true"  # for TrainingArguments: or each process would train alone
    PartialState(cpu=on_cpu, timeout=PATIENCE)  # joins the processes, the first time
    return broadcast_object_list([value])[0]


@contextmanager
def only_main_prints():
    """Lines that every process would print inside are printed once."""
    if is_main():
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        yield
