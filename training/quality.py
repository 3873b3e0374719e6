"""`make quality-zh DATA=...`: the table of the reference models, from raw text to scores; goes on where it stopped.

`DATA` holds `zh_reviews/pretrain.txt.gz` (a document a line) and the folders `chnsenticorp` and `book_review`, each
with `train_clean.tsv` and `train.tsv` (the split as published, which leaks), `dev.tsv`, columns `label` and `text_a`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np


TASKS = ("chnsenticorp", "book_review")
SPLITS = {"clean": "train_clean.tsv", "published": "train.tsv"}
RESAMPLES = 10_000  # of the paired bootstrap
BOOTSTRAP_SEED = 0
ANSWERS, TABLE = "answers", "table"


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m training.quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the text and the tasks")
    parser.add_argument("--recipe", type=Path, default=Path("training/recipes/mini-zh.yaml"))
    parser.add_argument("--budget", default="60m", help="of each pre-training, for example 10m (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="fine-tunings of each task (default: %(default)s)")
    parser.add_argument(
        "--pretrainings", type=int, default=1, help="fine-tuning i starts from pre-training i modulo this (default: 1)"
    )
    parser.add_argument("--output_dir", type=Path, default=Path("runs/quality-zh"))
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Make what is missing, print the table and write it beside the models; returns the exit status."""
    arguments = parse(argv)
    missing = [path for path in _inputs(arguments.data) if not path.is_file()]
    if missing:
        print(f"python -m training.quality: error: {', '.join(map(str, missing))} not found", file=sys.stderr)
        return 2
    arguments.output_dir.mkdir(parents=True, exist_ok=True)
    encoders = [_pretrain(arguments, seed) for seed in range(arguments.pretrainings)]
    rows = []
    for task in TASKS:
        for split, train_file in SPLITS.items():
            folder = arguments.data / task
            runs = [
                _finetune(arguments, encoders[seed % len(encoders)], folder, split, train_file, seed)
                for seed in range(arguments.seeds)
            ]
            rows.append({"task": task, "split": split, **compare(runs)})
    report = {"recipe": arguments.recipe.name, "budget": arguments.budget, "encoders": _facts(encoders), "rows": rows}
    (arguments.output_dir / f"{TABLE}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    lines = table(rows)
    (arguments.output_dir / f"{TABLE}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return 0


def _inputs(data: Path) -> list[Path]:
    tables = [data / task / name for task in TASKS for name in (*SPLITS.values(), "dev.tsv")]
    return [data / "zh_reviews" / "pretrain.txt.gz", *tables]


def _verb(verb: str, output_dir: Path, *options):
    """Run a verb unless it has run; a run that was interrupted goes on."""
    if not output_dir.exists():
        command = [sys.executable, "-m", "training", verb, *map(str, options), "--output_dir", str(output_dir)]
        subprocess.run([*command, "--resume"], check=True)


def _pretrain(arguments: argparse.Namespace, seed: int) -> Path:
    folder = arguments.output_dir / f"encoder-{seed}"
    text = arguments.data / "zh_reviews" / "pretrain.txt.gz"
    _verb(
        "pretrain", folder, arguments.recipe, "--train_files", text, "--time_budget", arguments.budget, "--seed", seed
    )
    return folder


def _finetune(
    arguments: argparse.Namespace, encoder: Path, data: Path, split: str, train_file: str, seed: int
) -> Path:
    folder = arguments.output_dir / f"{data.name}-{split}-{seed}"
    files = ("--train_file", data / train_file, "--validation_file", data / "dev.tsv")
    _verb("finetune", folder, "--model", encoder, *files, "--text_column", "text_a", "--seed", seed)
    answers = folder.with_name(f"{folder.name}.{ANSWERS}.json")
    if not answers.exists():
        answers.write_text(json.dumps(_answers(folder, data / train_file, data / "dev.tsv")), encoding="utf-8")
    return folder


def _answers(folder: Path, train_file: Path, test_file: Path) -> dict[str, list[int]]:
    """Which rows of `test_file` the model, its encoder alone and TF-IDF get right, 1 or 0 each."""
    from training import labelled
    from training.baseline import fit_baseline
    from training.classification import decide, encoder_alone, predict_logits
    from training.predict import load_finetuned

    finetuned = load_finetuned(folder)
    task = finetuned.task
    columns = task.text_column, task.text_pair_column, task.label_column, task.problem_type, None, task.label_names
    train, test = (labelled.load_labelled(path, *columns) for path in (train_file, test_file))
    labels = np.array(test.labels)
    inputs = finetuned.model, finetuned.tokenizer, test.texts, test.pairs, task.max_length
    model = decide(predict_logits(*inputs)[0], task.problem_type)
    with encoder_alone(finetuned.model):
        encoder = decide(predict_logits(*inputs)[0], task.problem_type)
    tfidf = fit_baseline(train.texts, train.labels, task.problem_type).predict(test.texts)
    return {
        name: (np.asarray(predicted) == labels).astype(int).tolist()
        for name, predicted in (("model", model), ("encoder", encoder), ("tfidf", tfidf))
    }


def compare(runs: list[Path]) -> dict:
    """Accuracies in percent of fine-tunings of one task, and the interval of their mean lead over TF-IDF.

    Returns:
        `model` and `encoder` with the accuracy of each run, `tfidf`, and `lead`: the mean and its 95 % interval by a
        paired bootstrap over the rows (Efron & Tibshirani 1993).
    """
    answers = [json.loads(run.with_name(f"{run.name}.{ANSWERS}.json").read_text(encoding="utf-8")) for run in runs]
    right = {name: np.array([answer[name] for answer in answers], dtype=float) for name in answers[0]}
    return {
        "model": (100 * right["model"].mean(axis=1)).tolist(),
        "encoder": (100 * right["encoder"].mean(axis=1)).tolist(),
        "tfidf": 100 * float(right["tfidf"][0].mean()),
        "lead": bootstrap(right["model"].mean(axis=0) - right["tfidf"][0]),
    }


def bootstrap(differences: np.ndarray) -> dict[str, float]:
    """Mean of `differences` (rows,), in points of a hundred, with the 2.5 and 97.5 percentiles of its resamples."""
    random = np.random.default_rng(BOOTSTRAP_SEED)
    rows = len(differences)
    means = [differences[random.integers(rows, size=rows)].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return {"mean": 100 * float(differences.mean()), "low": 100 * float(low), "high": 100 * float(high)}


def table(rows: list[dict]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [
        "| task, dev | model | its encoder alone | TF-IDF | lead over TF-IDF, 95 % interval |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        lead = "{mean:+.2f} ({low:+.2f} to {high:+.2f})".format(**row["lead"])
        cells = f"{row['task']}, {row['split']}", spread(row["model"]), spread(row["encoder"]), f"{row['tfidf']:.2f}"
        lines.append(f"| {' | '.join(cells)} | {lead} |")
    return lines


def spread(values: list[float]) -> str:
    """Mean and standard deviation (of a sample)."""
    deviation = f" ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else ""
    return f"{np.mean(values):.2f}{deviation}"


def _facts(encoders: list[Path]) -> list[dict]:
    """What each pre-training came to."""
    facts = []
    for encoder in encoders:
        results = json.loads((encoder / "eval_results.json").read_text(encoding="utf-8"))
        facts.append(
            {name: results[name] for name in ("tokens", "steps", "seconds")} | {"loss": results["results"]["loss"]}
        )
    return facts


if __name__ == "__main__":
    sys.exit(main())
