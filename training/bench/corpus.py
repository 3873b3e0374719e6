"""`bench --suite corpus`: from text to packed blocks beside the bare `tokenizers`, and how it grows with the text."""

import statistics
import tempfile
from dataclasses import asdict
from pathlib import Path

from training.arguments import BenchArguments
from training.bench import corpus_peers, data
from training.bench.peers import company, in_turn
from training.bench.report import Goal, Report, Spread, table
from training.clock import say
from training.errors import UserError


TEXT_BYTES = 6_000_000  # of the comparison with `tokenizers`
TOKENIZER_BYTES = 18_000_000  # that the goal is about
GROWTH_BYTES = 1_000_000  # times 1, 4 and 16
GROWTH = (1, 4, 16)
GROWTH_ROUNDS = 3
VOCABULARY = 21_128
OURS, BARE = "ours: text -> packed blocks", "tokenizers: encode_batch alone"


def run(arguments: BenchArguments) -> Report:
    """Measure.

    Raises:
        UserError: If the text is too short, or a peer died.
    """
    texts = data.read_text(arguments)
    with tempfile.TemporaryDirectory() as name, company() as start:
        folder = Path(name)
        everything = data.write_text(folder / "all.txt", data.first_bytes(texts, TOKENIZER_BYTES))
        training = _tokenizer(start, everything)
        part = data.first_bytes(texts, TEXT_BYTES)
        tokenizer, why = data.make_tokenizer(part, VOCABULARY, folder / "tokenizer")
        if tokenizer is None:
            say(f"vocabulary {VOCABULARY:,} is left out: {why}; what the text supports is taken")
            tokenizer, why = data.make_tokenizer(part, None, folder / "tokenizer")
        if tokenizer is None:
            raise UserError(f"--text {arguments.text}: {why}")
        peers = [start(OURS, corpus_peers.ours, tokenizer=str(tokenizer))]
        peers.append(start(BARE, corpus_peers.bare, tokenizer=str(tokenizer)))
        path = str(data.write_text(folder / "part.txt", part))
        for peer in peers:
            peer.ask(path)
        answers = in_turn(peers, arguments.rounds, lambda peer: path, "text to blocks")
        speed = _speed(answers, data.size_of(part))
        growth = _growth(start, folder, tokenizer, data.first_bytes(texts, GROWTH_BYTES))
    _show(training, speed, growth)
    goals = [
        Goal("text -> packed blocks against bare encode_batch", speed["ours_is_faster"]["median"], at_least=0.8),
        Goal(
            f"seconds for a tokenizer on {TOKENIZER_BYTES // 10**6} MB of text",
            training["seconds"] if training["bytes"] >= TOKENIZER_BYTES * 0.99 else None,
            at_most=60,
        ),
        Goal("growth of time per MB from 1x to 16x, share", _growth_of(growth, "seconds_per_mb"), at_most=1.1),
        Goal("growth of time per token from 1x to 16x, share", _growth_of(growth, "us_per_token"), at_most=1.1),
    ]
    return Report({"tokenizer": training, "blocks": speed, "growth": growth}, goals, {"vocab_size": VOCABULARY})


def _tokenizer(start, text: Path) -> dict:
    peer = start("training a tokenizer", corpus_peers.tokenizer_training, text=str(text))
    answer = peer.ask(None)
    peer.stop()
    say(f"tokenizer: {answer['seconds']:.0f} s")
    return peer.facts | answer


def _speed(answers: dict[str, list[dict]], size: int) -> dict:
    """MB/s of each part of our way, and of `tokenizers`."""

    def spread(name: str, part: str) -> dict:
        return asdict(Spread.of(size / 1e6 / answer["seconds"][part] for answer in answers[name]))

    ratios = [b["seconds"]["all"] / a["seconds"]["all"] for a, b in zip(answers[OURS], answers[BARE], strict=True)]
    return {
        "bytes": size,
        "tokens": {name: answers[name][0]["tokens"] for name in (OURS, BARE)},
        "mb_per_second": {part: spread(OURS, part) for part in answers[OURS][0]["seconds"]},
        "bare_mb_per_second": spread(BARE, "all"),
        "ours_is_faster": asdict(Spread.of(ratios)),
    }


def _growth(start, folder: Path, tokenizer: Path, texts: list[str]) -> list[dict]:
    """The same over 1x, 4x and 16x of a text: copies with an edit in each document, so that none is a repeat."""
    found, peers = [], {}
    for times in GROWTH:
        copies = [f"{text} {copy}" for copy in range(times) for text in texts]
        path = str(data.write_text(folder / f"{times}.txt", copies))
        # A fresh process each: memory that another size left behind is not counted.
        peers[times] = (start(f"ours, {times}x", corpus_peers.ours, tokenizer=str(tokenizer)), path, copies)
    answers: dict[int, list[dict]] = {times: [] for times in GROWTH}
    for _ in range(GROWTH_ROUNDS):
        for times, (peer, path, _) in peers.items():
            answers[times].append(peer.ask(path))
    for times, (_, _, copies) in peers.items():
        seconds = statistics.median(answer["seconds"]["all"] for answer in answers[times])
        megabytes, tokens = data.size_of(copies) / 1e6, answers[times][0]["tokens"]
        found.append(
            {
                "times": times,
                "bytes": data.size_of(copies),
                "tokens": tokens,
                "seconds": seconds,
                "seconds_per_mb": seconds / megabytes,
                "us_per_token": 1e6 * seconds / tokens,
                "peak_bytes": answers[times][0]["peak_bytes"],
            }
        )
    return found


def _growth_of(growth: list[dict], what: str) -> float:
    return growth[-1][what] / growth[0][what]


def _show(training: dict, speed: dict, growth: list[dict]):
    table(
        f"text to packed blocks, {speed['bytes'] / 1e6:.1f} MB",
        ("", "MB/s, median (range)"),
        [
            *((f"ours, {part}", Spread(**value).text("", 1)) for part, value in speed["mb_per_second"].items()),
            (BARE, Spread(**speed["bare_mb_per_second"]).text("", 1)),
            ("ours against it", Spread(**speed["ours_is_faster"]).text("x", 2)),
        ],
    )
    table(
        "growth, in memory",
        ("", "MB", "tokens", "s/MB", "us/token", "peak memory"),
        [
            (
                f"{row['times']}x",
                f"{row['bytes'] / 1e6:.1f}",
                f"{row['tokens']:,}",
                f"{row['seconds_per_mb']:.3f}",
                f"{row['us_per_token']:.2f}",
                f"{row['peak_bytes'] / 2**20:,.0f} MB",
            )
            for row in growth
        ],
    )
    print(
        f"\ntokenizer: {training['seconds']:.1f} s for {training['vocab_size']:,} tokens from "
        f"{training['bytes'] / 1e6:.1f} MB, peak memory {training['peak_bytes'] / 2**20:,.0f} MB"
    )
