"""How far a long step has got: one bar on a terminal, a plain line now and then in a log.

A log never holds control characters, and of a step shorter than `LOG_SECONDS` nothing at all: the line that says what
came of it is enough. Steps inside another one are not shown.
"""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout

from training.clock import as_text, say


LOG_SECONDS = 15.0  # between two lines of a log,
LOG_SHARE = 1 / 500  # or this share of the time spent so far, if longer: a month's run has 3,500 lines, not 170,000
BAR_SECONDS = 0.2  # between two drawings of a bar


class Step:
    """A long step under way.

    Attributes:
        done: How much of it is done; whoever does the work counts here.
        total: How much there is to do; `None` where that is not known.
        note: A few figures to be shown beside the bar.
    """

    def __init__(self, what: str, unit: str | None, total: int | None):
        self.what = what
        self.unit = unit
        self.note = ""
        self.begin(0, total)

    def begin(self, done: int, total: int | None):
        """Start the clock of the step, `done` having been done before."""
        self.first = self.done = done
        self.total = total
        self.started = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def over(self, items: Iterable) -> Iterator:
        """The items, counted as they are taken."""
        for item in items:
            yield item
            self.done += 1

    def line(self) -> str:
        """How far it has got."""
        if self.unit is None:
            return f"{self.what}: {as_text(self.seconds())} so far"
        if not self.total:
            return f"{self.what}: {self.done:,} {self.unit}"
        shown = f"{self.what}: {self.done:,} of {self.total:,} {self.unit} ({self.done / self.total:.0%})"
        if self.done == self.first:
            return shown
        left = (self.total - self.done) * self.seconds() / (self.done - self.first)
        return f"{shown}, {as_text(left)} left"

    def last_line(self) -> str:
        """What it was, and how long it took."""
        if self.unit is None:
            return f"{self.what}: {as_text(self.seconds())}"
        return f"{self.what}: {self.done:,} {self.unit} in {as_text(self.seconds())}"


_shown: Step | None = None


@contextmanager
def step(what: str, unit: str | None = None, total: int | None = None, own_lines: bool = False):
    """Show how far the block has got; what is printed inside stands above the bar.

    Args:
        what: What is being done.
        unit: What is counted, in the plural. `None`: nothing, and only the time is shown.
        total: How much there is to count, if that is known.
        own_lines: Whether the block itself tells a log how far it is, so that nothing is added there.

    Returns:
        A `Step`, whose `done` the block keeps up to date.
    """
    global _shown
    this = Step(what, unit, total)
    if _shown is not None:
        yield this
        return
    show = _bar if _on_terminal() else nullcontext if own_lines else _lines
    _shown = this
    try:
        with show(this):
            yield this
    finally:
        _shown = None
    if this.seconds() >= LOG_SECONDS and not own_lines:
        say(this.last_line())


def track(items: Iterable, what: str, unit: str, total: int | None = None) -> Iterator:
    """The items, while a step shows how many have been taken.

    Args:
        items: Anything to iterate over.
        what, unit: As for `step`.
        total: How many there are; `None`: the length of `items`, if they have one.
    """
    if total is None and hasattr(items, "__len__"):
        total = len(items)
    with step(what, unit, total) as this:
        yield from this.over(items)


def beside_bar(note: str) -> bool:
    """Show a few figures beside the bar; false where there is none, and they need a line of their own."""
    if _shown is None or not _on_terminal():
        return False
    _shown.note = note
    return True


def line_pause(seconds: float) -> float:
    """Seconds between two lines of a log, when so many have been spent."""
    return max(LOG_SECONDS, LOG_SHARE * seconds)


def library_bars_off():
    """Switch off the bars of the libraries: they know no log, and ours is the one bar."""
    import datasets
    import huggingface_hub.utils
    from transformers.utils import logging

    datasets.disable_progress_bars()
    huggingface_hub.utils.disable_progress_bars()
    logging.disable_progress_bar()


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _columns() -> int:
    return shutil.get_terminal_size().columns - 1  # a full line would wrap on some


@contextmanager
def _bar(this: Step):
    from tqdm import tqdm
    from tqdm.contrib import DummyTqdmFile

    shape: dict = {"bar_format": "{desc} [{elapsed}]"} if this.unit is None else {"unit": f" {this.unit}"}
    # Of a terminal that does not tell its size, tqdm believes that it has none, and shows nothing.
    shape |= {"ncols": _columns(), "nrows": 2}
    bar = tqdm(desc=this.what, total=this.total, file=sys.stdout, leave=False, **shape)

    def draw():
        if bar.initial != this.first:  # what was done before says nothing of the speed
            bar.initial = bar.n = bar.last_print_n = this.first
            bar.start_t = bar.last_print_t = time.time()
        bar.total, bar.ncols = this.total, _columns()
        bar.set_postfix_str(this.note, refresh=False)
        bar.update(this.done - bar.n)
        bar.refresh()

    with bar, redirect_stdout(DummyTqdmFile(sys.stdout)), _every(lambda: BAR_SECONDS, draw):
        yield


@contextmanager
def _lines(this: Step):
    with _every(lambda: line_pause(this.seconds()), lambda: say(this.line())):
        yield


@contextmanager
def _every(pause: Callable[[], float], act: Callable[[], None]):
    """Act again and again while the block runs.

    In a thread: libraries that work for minutes without a word are the ones that people wonder about.
    """
    over = threading.Event()

    def run():
        while not over.wait(pause()):
            act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
