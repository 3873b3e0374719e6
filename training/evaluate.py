"""`python -m training evaluate`: the scores of a fine-tuned model on labelled text."""

import dataclasses
import math
import typing
from pathlib import Path

from training import card, labelled, run_folder
from training.arguments import EvaluateArguments, FinetuneArguments
from training.errors import UserError
from training.predict import (
    FineTuned,
    check_output,
    decide,
    load_finetuned,
    predict_logits,
    read_json,
    read_task,
)


if typing.TYPE_CHECKING:
    import numpy as np

RESULTS_FILE = "eval_results.json"
# The metric that decides whether a model beats another.
MAIN_METRIC = {labelled.SINGLE_LABEL: "accuracy", labelled.MULTI_LABEL: "micro_f1", labelled.REGRESSION: "pearson"}
NOT_SHARES = ("pearson", "spearman", "mse")  # the others are shown in percent
MAJORITY = {
    labelled.SINGLE_LABEL: "most frequent class",
    labelled.MULTI_LABEL: "most frequent set of labels",
    labelled.REGRESSION: "mean of the training rows",
}


def score(predictions: "np.ndarray", labels: "np.ndarray", problem_type: str) -> dict[str, float | None]:
    """The metrics of a problem type, as shares of 1.

    Args:
        predictions, labels: Class ids `(n,)`, zeros and ones `(n, num_labels)`, or numbers `(n,)`.

    Returns:
        `accuracy` and `macro_f1`; for several labels `micro_f1`, `macro_f1` and `subset_accuracy`; for regression
        `pearson`, `spearman` and `mse`. A correlation with a constant is `None`.
    """
    from sklearn.metrics import accuracy_score, f1_score

    if problem_type == labelled.REGRESSION:
        return _score_numbers(predictions, labels)
    f1 = {
        f"{average}_f1": float(f1_score(labels, predictions, average=average, zero_division=0))
        for average in ("micro", "macro")
    }
    accuracy = float(accuracy_score(labels, predictions))
    if problem_type == labelled.MULTI_LABEL:
        return {**f1, "subset_accuracy": accuracy}
    return {"accuracy": accuracy, "macro_f1": f1["macro_f1"]}


def _score_numbers(predictions: "np.ndarray", labels: "np.ndarray") -> dict[str, float | None]:
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import mean_squared_error

    scores: dict[str, float | None] = {"pearson": None, "spearman": None}
    if len(labels) > 1 and len(set(predictions.tolist())) > 1 and len(set(labels.tolist())) > 1:
        scores["pearson"] = float(pearsonr(predictions, labels).statistic)
        scores["spearman"] = float(spearmanr(predictions, labels).statistic)
    scores["mse"] = float(mean_squared_error(labels, predictions))
    return scores


def score_all(finetuned: FineTuned, baseline, majority, data: labelled.LabelledData) -> dict:
    """Scores of the model beside those of the baseline and of the most frequent answer, on the same rows.

    Args:
        baseline: `training.baseline.Baseline` fitted on the training rows; `None` leaves it out.
        majority: `training.baseline.majority` of the training rows; `None` leaves it out.

    Returns:
        `rows`, `blank`, `cut`, and `model`, `tfidf` and `majority` with the metrics of each.
    """
    import numpy as np

    task, labels = finetuned.task, np.array(data.labels)
    logits, cut = predict_logits(finetuned.model, finetuned.tokenizer, data.texts, data.pairs, task.max_length)
    predictions = {"model": decide(logits, task.problem_type)}
    if baseline is not None:
        predictions["tfidf"] = baseline.predict(data.texts, data.pairs)
    if majority is not None:
        predictions["majority"] = np.array([majority] * len(labels))
    return {
        "rows": len(labels),
        "blank": data.blank,
        "cut": cut,
        **{name: score(values, labels, task.problem_type) for name, values in predictions.items()},
    }


def show(metric: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.4f}" if metric in NOT_SHARES else f"{100 * value:.2f}"


def table(scores: dict, problem_type: str) -> list[str]:
    """The lines of a table: the model, TF-IDF and the most frequent answer, as far as `scores` holds them."""
    from training.baseline import NAMES

    names = {"model": "this model", "tfidf": NAMES[problem_type], "majority": MAJORITY[problem_type]}
    rows = {names[key]: scores[key] for key in names if key in scores}
    width = max(map(len, rows))
    lines = [" " * width + "".join(f"{metric:>17}" for metric in scores["model"])]
    for name, values in rows.items():
        lines.append(f"{name:<{width}}" + "".join(f"{show(metric, value):>17}" for metric, value in values.items()))
    return lines


def verdict(scores: dict, problem_type: str) -> list[str]:
    """In plain words whether the model beats TF-IDF and the most frequent answer."""
    from training.baseline import NAMES

    metric, lines = MAIN_METRIC[problem_type], []
    ours = scores["model"][metric]
    for key, name in (("tfidf", NAMES[problem_type]), ("majority", f"the {MAJORITY[problem_type]}")):
        if key not in scores:
            continue
        theirs = scores[key][metric]
        # a correlation with a constant is none: neither better nor worse than one of 0
        left, right = (0.0 if value is None else value for value in (ours, theirs))
        beats = "beats" if left > right else "does NOT beat"
        sign = ">" if left > right else "=" if left == right else "<"
        lines.append(f"the model {beats} {name}: {metric} {show(metric, ours)} {sign} {show(metric, theirs)}")
    return lines


def refit_baseline(folder: str | Path, results: dict) -> tuple:
    """The baseline and most frequent answer of the rows that `folder` was fine-tuned on, fitted anew.

    Fitting takes seconds; a stored fit would have to be unpickled.

    Args:
        folder: The model folder; beside it lies what its run was told.
        results: Its `eval_results.json`, which knows the fingerprint of the training rows.

    Returns:
        Both `None` where the run's arguments or its training file are gone, or hold other rows now.
    """
    from training.baseline import fit_baseline, majority

    path = run_folder.training_dir(folder) / run_folder.ARGUMENTS_FILE
    if not path.is_file():
        return None, None
    known = {field.name for field in dataclasses.fields(FinetuneArguments)}
    arguments = FinetuneArguments(**{name: value for name, value in read_json(path).items() if name in known})
    try:
        training, _ = labelled.load_split(arguments)
    except UserError:  # a file is gone, or has become another one
        return None, None
    if labelled.fingerprint(training) != results.get("rows", {}).get("fingerprint"):
        return None, None
    problem_type = arguments.problem_type or labelled.SINGLE_LABEL
    return (
        fit_baseline(training.texts, training.labels, problem_type, training.pairs),
        majority(training.labels, problem_type),
    )


def main(arguments: EvaluateArguments):
    """Carry out the verb: score the model, print the table, write the scores.

    They go into `eval_results.json` of the model folder, under `scores` and the name of the test file, in place of an
    earlier entry of that name, and from there into the model card; with `--output_file` only there.

    Raises:
        UserError: If the model, the test file or the output file is not as it must be.
    """
    task = read_task(arguments.model)
    folder, name = Path(arguments.model), Path(arguments.test_file).name
    results_path = folder / RESULTS_FILE
    if arguments.output_file is not None:
        results_path = check_output(arguments.output_file, arguments.test_file, "--output_file")
    results = read_json(folder / RESULTS_FILE) if (folder / RESULTS_FILE).is_file() else {}
    columns = task.text_column, task.text_pair_column, task.label_column
    data = labelled.load_labelled(
        arguments.test_file, *columns, task.problem_type, arguments.encoding, task.label_names
    )
    baseline, majority = refit_baseline(folder, results)
    scores = score_all(load_finetuned(folder), baseline, majority, data)
    if arguments.output_file is not None:
        results = {"model": folder.name, "problem_type": task.problem_type}
    before = {**results}
    replaced = name in results.get("scores", {})
    results["scores"] = {**results.get("scores", {}), name: scores}
    run_folder.write_json(results_path, results)
    print_scores(name, scores, task)
    if baseline is None:
        print("the rows it was fine-tuned on are no longer there: TF-IDF cannot be fitted to compare")
    if arguments.output_file is None and "task" in before and not card.refresh_card(folder, before):
        print(f"{folder / card.CARD_FILE} was edited by hand and stays as it is, without these scores")
    print(f"written to {results_path}{f', in place of an earlier {name}' if replaced else ''}")


def print_scores(name: str, scores: dict, task) -> None:
    """The rows scored on and what is particular about them, the table, the verdict."""
    notes = [f"{scores['rows']:,} rows"]
    notes += [f"{scores['blank']:,} with a blank text"] if scores["blank"] else []
    notes += [f"{scores['cut']:,} cut at {task.max_length} tokens"] if scores["cut"] else []
    print(f"scores on {name}: {', '.join(notes)}")
    print("\n".join(f"  {line}" for line in table(scores, task.problem_type)))
    print("\n".join(verdict(scores, task.problem_type)))
