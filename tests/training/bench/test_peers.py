"""Peers of tests; each process is forked from one that holds transformers already."""

import os
import signal
import sys
import time

import numpy as np
import pytest

from training.bench import memory
from training.bench.peers import company, in_turn
from training.errors import UserError


def echo(orders, letter, order_file):
    orders.reply({"letter": letter})
    while True:
        order = orders.wait()
        with open(order_file, "a", encoding="utf-8") as file:
            file.write(letter)
        if order == "raise":
            raise ValueError("the tensors were\nlost at sea")
        if order == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        orders.reply(order * 2)


def die_at_once(orders):
    print("no room for a model", file=sys.stderr)
    sys.exit(3)


def be_slow(orders):
    orders.reply({})
    orders.wait()
    time.sleep(1)


def measure_memory(orders):
    orders.reply({})
    size = orders.wait()
    kept = np.ones(size // 8)  # noqa: F841 - what lay there before must not count
    before = memory.start_peak()
    np.ones(size // 8)  # freed at once, still a peak
    orders.reply(memory.peak() - before)
    orders.wait()


def test_peers_work_in_turn_and_every_second_round_goes_backwards(tmp_path):
    file = tmp_path / "order"
    with company() as start:
        peers = [start(letter, echo, letter=letter, order_file=str(file)) for letter in "abc"]
        assert [peer.facts["letter"] for peer in peers] == ["a", "b", "c"]
        answers = in_turn(peers, 3, lambda peer: peer.name, "test")
        processes = [peer._process for peer in peers]
    assert answers == {"a": ["aa"] * 3, "b": ["bb"] * 3, "c": ["cc"] * 3}
    assert file.read_text(encoding="utf-8") == "abc" + "cba" + "abc"
    assert [process.exitcode for process in processes] == [0, 0, 0]  # none is left


def test_a_peer_that_answers_too_late_is_one_line():
    with company() as start:
        peer = start("a", be_slow)
        peer._patience = 0.1
        with pytest.raises(UserError, match=r"^bench: a has not answered for 0 seconds; it said nothing$"):
            peer.ask("go")


@pytest.mark.parametrize(
    ("order", "message"),
    [("raise", r"a ended with exit status 1; its last words: lost at sea"), ("kill", r"a ended with exit status -9")],
)
def test_a_peer_that_dies_at_work_is_one_line(tmp_path, order, message):
    started = time.monotonic()
    with company() as start, pytest.raises(UserError, match=message) as error:
        peer = start("a", echo, letter="a", order_file=str(tmp_path / "order"))
        assert peer.ask(1) == 2
        peer.ask(order)
    assert "\n" not in str(error.value)
    assert time.monotonic() - started < 120


def test_a_peer_that_dies_before_it_is_ready_is_one_line():
    message = "b ended with exit status 3; its last words: no room for a model"
    with company() as start, pytest.raises(UserError, match=message):
        start("b", die_at_once)


@pytest.mark.skipif(not memory.CLEAR_REFS.exists(), reason="only Linux tells the peak of a while")
def test_the_peak_is_that_of_the_while_between():
    size = 100 * 2**20
    with company() as start:
        assert 0.95 * size < start("memory", measure_memory).ask(size) < 1.2 * size
