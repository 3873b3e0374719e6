"""The clock of a verb: a time budget counts from its start, imports and all."""

import time


_started = time.monotonic()


def start():
    """Set the clock to zero."""
    global _started
    _started = time.monotonic()


def elapsed() -> float:
    """Seconds since the start."""
    return time.monotonic() - _started


def as_text(seconds: float) -> str:
    """Seconds as people write them: `1:05`, `2:03:04`."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def say(message: str):
    """Print a line with the time in front, at once, also into a log file."""
    # The end of the line in one piece with it: a thread may print meanwhile.
    print(f"[{as_text(elapsed()):>5}] {message}\n", end="", flush=True)
