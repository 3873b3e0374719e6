"""Ctrl-C and SIGTERM: training ends with its step and a checkpoint, everything else at once and tidily."""

import signal
import threading
from contextlib import contextmanager


# SIGBREAK is Ctrl-Break and closing the console of Windows, which has no other way to ask a process to end.
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end.

    Args:
        number: Of the signal.
        message: What was saved and how to go on.
    """

    def __init__(self, number: int, message: str = "interrupted"):
        super().__init__(message)
        self.status = 128 + number


class Request:
    """Whether a signal came while it was deferred: its number, or `None`."""

    number: int | None = None


_deferred: Request | None = None


def _heed(number: int, frame):
    again = _deferred is not None and number == _deferred.number == signal.SIGINT
    if _deferred is None or again:
        raise Interrupted(number)
    # Nothing is printed here: the signal may have come in the middle of a print.
    _deferred.number = _deferred.number or number


@contextmanager
def heeding_signals():
    """Signals raise `Interrupted` inside, so that half-made things are cleared away."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return
    before = {number: signal.signal(number, _heed) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def deferring():
    """Within `heeding_signals`: the first signal is noted in the yielded `Request`; a second Ctrl-C raises at once."""
    global _deferred
    request = _deferred = Request()
    try:
        yield request
    finally:
        _deferred = None
