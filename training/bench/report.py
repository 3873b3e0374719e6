"""Figures with their spread, tables of them, and goals."""

import dataclasses
import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from training.arguments import BenchArguments
from training.clock import elapsed
from training.run_folder import write_json


LIBRARIES = ("torch", "transformers", "tokenizers", "datasets", "scikit-learn", "onnxruntime")


@dataclass(frozen=True)
class Spread:
    """Median, least and greatest of repeated measurements."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        values = list(values)
        return cls(statistics.median(values), min(values), max(values))

    def text(self, unit: str = "", digits: int = 0) -> str:
        median, least, greatest = (f"{value:,.{digits}f}" for value in (self.median, self.least, self.greatest))
        return f"{median}{unit} ({least}-{greatest})"


@dataclass(frozen=True)
class Goal:
    """What was wanted, `at_least` or `at_most` a number, and what was measured; `None` where it was not."""

    what: str
    value: float | None
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        if self.value is None:
            return None
        return self.value >= self.at_least if self.at_least is not None else self.value <= self.at_most

    def line(self) -> str:
        wanted = f">= {self.at_least:g}" if self.at_least is not None else f"<= {self.at_most:g}"
        verdict = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        measured = "" if self.value is None else f"{self.value:.3g}"
        return f"  {self.what:<72}  {wanted:>8}  {measured:>8}  {verdict}"


@dataclass
class Report:
    """What a suite measured.

    Args:
        figures: As JSON holds them.
        goals: With their verdicts.
        settings: Of the measurement, beside the arguments.
    """

    figures: dict
    goals: list[Goal]
    settings: dict


def table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]):
    """Print a table; the first column to the left, the others to the right."""
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    print(f"\n{title}")
    for first, *others in lines:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        print("  " + "  ".join([first.ljust(widths[0]), *cells]).rstrip(), flush=True)


def write(arguments: BenchArguments, report: Report):
    """Print the goals and the machine; write the JSON."""
    machine = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": platform.system(),
        "accelerator": _accelerator(),
        "versions": {"python": platform.python_version(), **_versions()},
    }
    if report.goals:
        print("\ngoals" + " " * 69 + "  wanted  measured")
        for goal in report.goals:
            print(goal.line())
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    print(
        f"\n{machine['processor']}, {machine['cores']} cores, {machine['accelerator'] or 'no accelerator'}; {versions}"
    )
    print(f"took {elapsed():.0f} s", flush=True)
    if arguments.json:
        goals = [dataclasses.asdict(goal) | {"met": goal.met} for goal in report.goals]
        given = dataclasses.asdict(arguments) | {
            name: getattr(arguments, name) and Path(getattr(arguments, name)).name
            for name in ("text", "labelled", "json")
        }
        content = {
            "suite": arguments.suite,
            "machine": machine,
            "settings": {**given, **report.settings},
            "seconds": round(elapsed(), 1),
            "figures": report.figures,
            "goals": goals,
        }
        write_json(arguments.json, content)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = info.read_text(encoding="utf-8", errors="replace").split("\n") if info.exists() else []
    found = next((line.partition(":")[2].strip() for line in names if line.startswith("model name")), "")
    return found or platform.processor() or platform.machine()


def _accelerator() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # of an extra
            continue
    return found
