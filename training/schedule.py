"""The budget of a run as a plan in steps, which may change on the way, and the journal that remembers it."""

import json
import os
from pathlib import Path

from training.run_folder import writing


class Journal:
    """What was measured and decided while running, a JSON object a line, so that a resumed run decides the same.

    Small by design: a run of a month writes some thousand lines (`trainer.LOG_SHARE`).

    Args:
        path: The file; `None` for a process that decides nothing itself.
    """

    def __init__(self, path: str | Path | None):
        self.path = path and Path(path)
        self.entries: list[dict] = []
        if self.path and self.path.exists():
            size = 0
            for line in self.path.read_bytes().splitlines(keepends=True):
                try:
                    self.entries.append(json.loads(line.removesuffix(b"\n") if line.endswith(b"\n") else b"cut"))
                except ValueError:  # cut or garbled by a crash while it was written
                    break
                size += len(line)
            os.truncate(self.path, size)

    def write(self, event: str, **values):
        entry = {"event": event, **values}
        self.entries.append(entry)
        if self.path is None:
            return
        with writing(self.path.parent), self.path.open("a", encoding="ascii", newline="\n") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of(self, event: str) -> list[dict]:
        """The entries of one kind, oldest first."""
        return [entry for entry in self.entries if entry["event"] == event]


class Plan:
    """How far along a run is at each step, from 0 to 1 at its last step.

    The last step may move while the run goes on (`replan`): what is left of the progress is then spread evenly over
    what is left of the steps, so the learning rate never jumps and always ends fully decayed.
    """

    def __init__(self, max_steps: int):
        self._legs = [(0, 0.0, max(1, max_steps))]

    @property
    def max_steps(self) -> int:
        return self._legs[-1][2]

    def progress(self, step: int) -> float:
        """Share of the budget spent when `step` steps are done."""
        start, done, end = next(leg for leg in reversed(self._legs) if leg[0] <= step)
        return min(1.0, done + (1.0 - done) * (step - start) / max(1, end - start))

    def replan(self, step: int, max_steps: int):
        """From `step` on, head for `max_steps`; for the old end, the plan stays as it is to the last bit."""
        if max_steps == self.max_steps:
            return
        self._legs.append((step, self.progress(step), max(step + 1, max_steps)))


def learning_rate_factor(progress: float, warmup_share: float) -> float:
    """Share of the peak learning rate: a linear rise over `warmup_share` of the run, then a linear decay to 0."""
    if progress < warmup_share:
        return progress / warmup_share
    return (1.0 - progress) / (1.0 - warmup_share)
