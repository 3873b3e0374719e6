"""`bench --suite train`: real tokens a second and memory in pre-training, beside the peers and the machine's limit."""

import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

from training.arguments import BenchArguments, PretrainArguments
from training.bench import data, train_peers
from training.bench.peers import Peer, company, in_turn
from training.bench.report import Goal, Report, Spread, table
from training.clock import say
from training.encoding import encode
from training.errors import UserError
from training.loading import load_tokenizer


SIZES = ("tiny", "mini")
VOCABULARIES = (8_000, 21_128)
GOAL = ("tiny", 21_128)  # what the goals are about; the peers with a tuned allocator run there only
TEXT_BYTES = 4_000_000  # as much as a run sees; more would only take longer to read
OURS, BERT, MODERNBERT = "ours: pretrain", "HF Bert + Trainer", "HF ModernBERT sparse + Trainer"
TUNED = ", tuned allocator"
LIMIT = "matrix products alone, {}"


def run(arguments: BenchArguments) -> Report:
    """Measure all configurations.

    Raises:
        UserError: If the text supports none of the vocabularies, or a peer died.
    """
    texts = data.first_bytes(data.read_text(arguments), TEXT_BYTES)
    configurations, left_out = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = data.write_text(folder / "text.txt", texts)
        for vocab_size in VOCABULARIES:
            tokenizer, why = data.make_tokenizer(texts, vocab_size, folder / str(vocab_size))
            if tokenizer is None:
                say(f"vocabulary {vocab_size:,} is left out: {why}")
                left_out[vocab_size] = why
                continue
            blocks = _write_blocks(texts, tokenizer, arguments.batch_size)
            for size in SIZES:
                configurations.append(_measure(arguments, size, vocab_size, tokenizer, text, blocks))
                _show(configurations[-1])
    if not configurations:
        raise UserError(f"--text {arguments.text} supports no vocabulary: {'; '.join(left_out.values())}")
    at_goal = next((c for c in configurations if (c["size"], c["vocab_size"]) == GOAL), None)
    settings = {"block_size": train_peers.LENGTH, "mlm_probability": PretrainArguments(output_dir="").mlm_probability}
    return Report({"configurations": configurations, "left_out": left_out}, goals(at_goal), settings)


def _write_blocks(texts: list[str], tokenizer: Path, batch_size: int) -> Path:
    """The tokens of all texts end to end, cut into blocks; what is left over is dropped, as run_mlm.py does."""
    ids = np.concatenate(list(encode(texts, load_tokenizer(tokenizer))))
    count = len(ids) // train_peers.LENGTH
    if count < batch_size:
        raise UserError(f"the text fills {count} blocks of {train_peers.LENGTH}, fewer than --batch_size {batch_size}")
    path = tokenizer / "blocks.npy"
    np.save(path, ids[: count * train_peers.LENGTH].reshape(count, -1))
    return path


def _measure(arguments: BenchArguments, size: str, vocab_size: int, tokenizer: Path, text: Path, blocks: Path) -> dict:
    mlm_probability = PretrainArguments(output_dir="").mlm_probability  # that of ours, for all
    step = {"size": size, "batch_size": arguments.batch_size}
    theirs = {**step, "tokenizer": str(tokenizer), "blocks": str(blocks), "mlm_probability": mlm_probability}
    limit = {**step, "vocab_size": vocab_size, "mlm_probability": mlm_probability}
    with company() as start:
        ours = start(OURS, train_peers.train_ours, **step, tokenizer=str(tokenizer), text=str(text))
        peers = [ours]
        for tuned in (False, True) if (size, vocab_size) == GOAL else (False,):
            for name, model in ((BERT, "bert"), (MODERNBERT, "modernbert")):
                name += TUNED if tuned else ""
                peers.append(start(name, train_peers.train_peer, **theirs, model=model, tuned=tuned))
        for precision in dict.fromkeys(("float32", ours.facts["precision"])):
            name = LIMIT.format(precision)
            peers.append(start(name, train_peers.gemm_limit, **limit, precision=precision))
        steps = {peer.name: _steps(peer, arguments.seconds) for peer in peers}
        told = f"{size}, vocabulary {vocab_size:,}"
        answers = in_turn(peers, arguments.rounds, lambda peer: steps[peer.name], told)
    rows = {peer.name: _row(peer, steps[peer.name], answers[peer.name]) for peer in peers}
    for row in rows.values():
        ratios = [a / b for a, b in zip(rows[OURS]["rounds"], row["rounds"], strict=True)]
        row["ours_is_faster"] = asdict(Spread.of(ratios))
    return {"size": size, "vocab_size": vocab_size, "precision_of_ours": ours.facts["precision"], "rows": rows}


def _steps(peer: Peer, seconds: float) -> int:
    """Steps in about so many seconds; finding out is the warm-up."""
    peer.ask(2)
    return max(1, round(seconds / (peer.ask(2)["seconds"] / 2)))


def _row(peer: Peer, steps: int, answers: list[dict]) -> dict:
    rounds = [steps * peer.facts["tokens_per_step"] / answer["seconds"] for answer in answers]
    return {
        "tokens_per_second": asdict(Spread.of(rounds)),
        "rounds": rounds,
        "steps_per_round": steps,
        "tokens_per_step": peer.facts["tokens_per_step"],
        "peak_bytes": max(answer["peak_bytes"] for answer in answers),
    }


def limits(configuration: dict) -> dict[str, float]:
    """Ours as a share of each limit, by its name."""
    return {
        name: row["ours_is_faster"]["median"]
        for name, row in configuration["rows"].items()
        if name.startswith(LIMIT.partition(",")[0])
    }


def _show(configuration: dict):
    lines = [
        (
            name,
            Spread(**row["tokens_per_second"]).text(),
            Spread(**row["ours_is_faster"]).text("x", 2),
            f"{row['peak_bytes'] / 2**20:,.0f} MB",
        )
        for name, row in configuration["rows"].items()
    ]
    heads = ("", "real tokens/s, median (range)", "ours is faster by", "peak memory of steps")
    table(f"training, {configuration['size']}, vocabulary {configuration['vocab_size']:,}", heads, lines)
    for name, share in limits(configuration).items():
        print(f"  ours reaches {share:.0%} of {name}")


def goals(configuration: dict | None) -> list[Goal]:
    """The goals of the configuration `GOAL`; `None` if it was not measured."""
    rows = configuration["rows"] if configuration else {}

    def faster(name: str) -> float | None:
        return rows[name]["ours_is_faster"]["median"] if rows else None

    wanted = [
        Goal("training tokens/s against HF Bert + Trainer", faster(BERT), at_least=6),
        Goal("training tokens/s against HF ModernBERT sparse", faster(MODERNBERT), at_least=1.5),
    ]
    shares = limits(configuration) if configuration else {LIMIT.format("float32"): None}
    wanted += [Goal(f"share of the limit: {name}", share, at_least=0.7) for name, share in shares.items()]
    memory = rows[OURS]["peak_bytes"] / rows[BERT]["peak_bytes"] if rows else None
    return [*wanted, Goal("peak memory of a training step, share of HF Bert's", memory, at_most=0.25)]
