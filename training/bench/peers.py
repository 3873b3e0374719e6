"""Peers that are measured in turn: each in a process of its own, which works only while it is told to."""

import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from training.clock import say
from training.errors import UserError


PATIENCE = 900.0  # seconds; no order takes as long, unless a peer is started with another
# Imported once, in the process that the others are forked from: seconds for each of them saved.
PRELOADED = [
    "torch",
    "transformers",
    "training.bench.train_peers",
    "training.bench.inference_peers",
    "training.bench.corpus_peers",
]


class Stopped(BaseException):
    """Raised in a peer that is told to end, through whatever it is in the middle of."""


class Orders:
    """A peer's end of the pipe."""

    def __init__(self, connection):
        self._connection = connection

    def reply(self, answer):
        self._connection.send(answer)

    def wait(self):
        """The next order.

        Raises:
            Stopped: If there is none any more.
        """
        try:
            return self._connection.recv()
        except EOFError:
            raise Stopped from None


class Peer:
    """A process that carries out orders.

    Args:
        name: For tables and messages.
        work: A function of a module, called in the process with its `Orders` and `arguments`; it replies once when it
            is ready, and once to every order.
        log: File for what it prints.
        patience: Seconds to wait for an answer; `None` waits until the process ends.
        arguments: Of `work`.
    """

    def __init__(self, name: str, work: Callable, log: Path, *, patience: float | None = PATIENCE, **arguments):
        self.name, self._log, self._patience = name, log, patience
        self._connection, theirs = multiprocessing.Pipe()
        self._process = _context().Process(target=_work, args=(theirs, str(log), work, arguments), name=name)
        self._process.start()
        theirs.close()
        self.facts = self._answer()

    def ask(self, order):
        """Have an order carried out; returns the answer.

        Raises:
            UserError: If the process ended meanwhile, or takes too long.
        """
        with suppress(OSError):  # it has ended: `_answer` says how
            self._connection.send(order)
        return self._answer()

    def _answer(self):
        if not self._connection.poll(self._patience):
            raise UserError(
                f"bench: {self.name} has not answered for {self._patience:.0f} seconds; {self._last_words()}"
            )
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            self._process.join()
            raise UserError(
                f"bench: {self.name} ended with exit status {self._process.exitcode}; {self._last_words()}"
            ) from None

    def _last_words(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").split("\n") if self._log.exists() else []
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"its last words: {last[:300]}" if last else "it said nothing"

    def stop(self):
        self._connection.close()
        self._process.join(timeout=20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _context():
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(PRELOADED)
    return context


def _work(connection, log: str, work: Callable, arguments: dict):
    # The file takes the place of the streams for good: a traceback is written when all else is over.
    with open(log, "wb") as file:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
            os.dup2(file.fileno(), stream.fileno())
    with suppress(Stopped, KeyboardInterrupt):
        work(Orders(connection), **arguments)


@contextmanager
def company():
    """A function that starts peers (the arguments of `Peer` but the log), all of which end with the block."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:

        def start(name: str, work: Callable, **arguments) -> Peer:
            count = len(list(Path(folder).iterdir()))
            peer = Peer(name, work, Path(folder) / f"{count}.log", **arguments)
            stack.callback(peer.stop)
            return peer

        yield start


def in_turn(peers: Iterable[Peer], rounds: int, order: Callable[[Peer], object], told: str) -> dict[str, list]:
    """The answers of each peer, by its name, over rounds in which one works after another, alone.

    Every second round goes through the peers backwards, so that none always follows the same one.

    Args:
        order: What to ask a peer.
        told: What is measured, for the line that says so.
    """
    peers, started = list(peers), time.monotonic()
    answers: dict[str, list] = {peer.name: [] for peer in peers}
    for number in range(rounds):
        for peer in peers if number % 2 == 0 else reversed(peers):
            answers[peer.name].append(peer.ask(order(peer)))
    say(f"{told}: {rounds} rounds in {time.monotonic() - started:.0f} s")
    return answers
