"""What fine-tunings and their baseline get right row by row, and how sure one may be that the former get more.

Each row counts as two numbers: what is `right`, and `of` how much. A score is the sum of the one over that of the
other: 1 of 1 for a right label makes the accuracy, twice the entities found of those told and those there make F1.
"""

import typing
from pathlib import Path

import numpy as np


if typing.TYPE_CHECKING:
    from training.predict import FineTuned

RESAMPLES = 10_000  # of the paired bootstrap
SEED = 0
# What is compared, by the task of `finetune`: the metric, and what would be used instead of a model.
METRICS = {
    "sequence-classification": ("accuracy", "TF-IDF + logistic regression"),
    "token-classification": ("entity F1", "a CRF"),
}
Rows = dict[str, list[int]]


def rows_of_model(folder: Path, test_file: Path) -> dict[str, Rows]:
    """What a fine-tuned folder gets right of each row of `test_file`: `model`, and `encoder` if it has company."""
    from training.predict import load_finetuned
    from training.tasks import encoder_alone, has_company

    finetuned, test = load_finetuned(folder), _load(folder, test_file)
    found = {"model": _rows(finetuned, test)}
    if has_company(finetuned.model):
        with encoder_alone(finetuned.model):
            found["encoder"] = _rows(finetuned, test)
    return found


def _rows(finetuned: "FineTuned", test) -> Rows:
    from training.classification import decide, predict_logits
    from training.tagging import predict_tags

    task = finetuned.task
    if task.task == "token-classification":
        return count_entities(predict_tags(finetuned, test)[0], test.labels)
    given = finetuned.model, finetuned.tokenizer, test.texts, test.pairs, task.max_length
    return count_labels(decide(predict_logits(*given)[0], task.problem_type), test.labels)


def rows_of_baseline(folder: Path, train_file: Path, test_file: Path) -> Rows:
    """What the baseline gets right of each row of `test_file`.

    Args:
        folder: Of a model that was fine-tuned on `train_file`: it says which columns and labels there are.
    """
    from training.predict import read_task
    from training.tasks import task_module

    task = read_task(folder)
    train, test = _load(folder, train_file), _load(folder, test_file)
    fitted = task_module(task.task).fit_baselines(train, task.problem_type)
    if task.task == "token-classification":
        return count_entities(fitted.predict(test.tokens), test.labels)
    return count_labels(fitted[0].predict(test.texts, test.pairs), test.labels)


def _load(folder: Path, file: Path):
    from training.predict import read_task
    from training.tasks import task_module

    task = read_task(folder)
    return task_module(task.task).load_test(file, task, None)


def count_labels(predicted, labels) -> Rows:
    """1 of 1 for each label that is right, else 0 of 1."""
    right = (np.asarray(predicted) == np.asarray(labels)).astype(int)
    return {"right": right.tolist(), "of": [1] * len(right)}


def count_entities(predicted: list[list[str]], tags: list[list[str]]) -> Rows:
    """Twice the entities that are right in type and both ends, of those told and those there, together."""
    from seqeval.metrics.sequence_labeling import get_entities

    pairs = [(set(get_entities(ours)), set(get_entities(true))) for ours, true in zip(predicted, tags, strict=True)]
    return {
        "right": [2 * len(ours & true) for ours, true in pairs],
        "of": [len(ours) + len(true) for ours, true in pairs],
    }


def compare(runs: list[dict[str, Rows]], baseline: Rows) -> dict:
    """Scores in percent of fine-tunings of one task, and how far their mean leads the baseline.

    Args:
        runs: From `rows_of_model`, of one seed each.
        baseline: From `rows_of_baseline`.

    Returns:
        `model` with the score of each run, `encoder` likewise where they have n-grams, else `None`, `baseline`, and
        `lead`: the mean and its 95 % interval by a paired bootstrap over the rows (Efron & Tibshirani 1993).
    """
    models = [run["model"] for run in runs]
    return {
        "model": [score(rows) for rows in models],
        "encoder": [score(run["encoder"]) for run in runs] if all("encoder" in run for run in runs) else None,
        "baseline": score(baseline),
        "lead": bootstrap(models, baseline),
    }


def score(rows: Rows) -> float:
    """In percent; 0 where there is nothing to be right about."""
    return 100 * sum(rows["right"]) / max(1, sum(rows["of"]))


def bootstrap(models: list[Rows], baseline: Rows) -> dict[str, float]:
    """The lead of the mean score of `models` over `baseline`, with the 2.5 and 97.5 percentiles of its resamples."""
    random = np.random.default_rng(SEED)
    columns = [column for rows in (*models, baseline) for column in (rows["right"], rows["of"])]
    table = np.array(columns, dtype=float).T
    rows = len(table)

    def lead(sums: np.ndarray) -> float:
        scores = 100 * sums[0::2] / np.maximum(1, sums[1::2])
        return float(scores[:-1].mean() - scores[-1])

    leads = [lead(np.bincount(random.integers(rows, size=rows), minlength=rows) @ table) for _ in range(RESAMPLES)]
    low, high = np.percentile(leads, [2.5, 97.5])
    return {"mean": lead(table.sum(axis=0)), "low": float(low), "high": float(high)}
