"""`bench --suite learning`: the loss on held-out text after equal tokens, beside HF Bert's: what a speed may cost.

Both read the same text, learn at the same rate by the same schedule, and predict the same masked tokens at the end.
"""

import json
import math
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from training.arguments import BenchArguments, PretrainArguments
from training.bench import data, learning_peers
from training.bench.peers import company
from training.bench.report import Goal, Report, Spread, table
from training.clock import say
from training.errors import UserError
from training.pretrain import BLOCK_SIZE
from training.run_folder import RESULTS_FILE


SIZE, VOCABULARY = "tiny", 21_128
SEEDS = (0, 1, 2)
PLATEAU_MARGIN = 0.2  # nats below the unigram entropy that show that context is used
OURS, BERT = "ours: pretrain", "HF Bert, loss on labelled tokens"


def run(arguments: BenchArguments) -> Report:
    """Train both, seed by seed.

    Raises:
        UserError: If the text does not support the vocabulary, or a run died.
    """
    texts = data.read_text(arguments)
    max_steps = math.ceil(arguments.max_tokens / (arguments.batch_size * BLOCK_SIZE))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = data.write_text(folder / "text.txt", texts)
        tokenizer, why = data.make_tokenizer(texts, VOCABULARY, folder / "tokenizer")
        if tokenizer is None:
            raise UserError(f"--text {arguments.text}: {why}")
        runs = [_both(arguments, text, tokenizer, seed, max_steps) for seed in SEEDS]
    losses = {name: Spread.of(run[name] for run in runs) for name in (OURS, BERT)}
    unigram = runs[0]["unigram"]
    heads = ("", "held-out loss, median (range) of seeds", "below guessing by frequency")
    rows = [(name, loss.text("", 3), f"{unigram - loss.median:.3f}") for name, loss in losses.items()]
    table(f"learning, {SIZE}, {max_steps * arguments.batch_size * BLOCK_SIZE:,} tokens", heads, rows)
    for name, loss in losses.items():
        if loss.greatest > unigram - PLATEAU_MARGIN:
            print(f"  {name} is still on the unigram plateau ({unigram:.2f}); give more --max_tokens")
    spread = losses[BERT].greatest - losses[BERT].least
    difference = losses[OURS].median - losses[BERT].median
    goal = Goal("held-out loss less HF Bert's, against the spread of its seeds", difference, at_most=spread)
    return Report(
        {"runs": runs, "losses": {n: asdict(s) for n, s in losses.items()}}, [goal], {"max_steps": max_steps}
    )


def _both(arguments: BenchArguments, text: Path, tokenizer: Path, seed: int, max_steps: int) -> dict:
    """The losses of one seed, and the loss of guessing by frequency."""
    output_dir = tokenizer.parent / f"ours-{seed}"
    pretraining = PretrainArguments(
        train_files=[str(text)],
        tokenizer=str(tokenizer),
        size=SIZE,
        batch_size=arguments.batch_size,
        max_steps=max_steps,
        seed=seed,
        output_dir=str(output_dir),
    )
    with company() as start:
        started = time.monotonic()
        start(OURS, learning_peers.ours, patience=None, arguments=pretraining)
        ours = json.loads((output_dir / RESULTS_FILE).read_text(encoding="utf-8"))["results"]
        say(f"seed {seed}: ours {ours['loss']:.3f} in {time.monotonic() - started:.0f} s")
        started = time.monotonic()
        theirs = start(BERT, learning_peers.bert, patience=None, arguments=pretraining).facts
        say(f"seed {seed}: HF Bert {theirs['loss']:.3f} in {time.monotonic() - started:.0f} s")
    assert theirs["predictions"] == ours["predictions"], "both answer for the same masked tokens"
    return {"seed": seed, OURS: ours["loss"], BERT: theirs["loss"], "unigram": ours["unigram_loss"]}
