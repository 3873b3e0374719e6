"""The task sequence-classification: one label, several labels or a number for a text or a pair of texts."""

import math
import typing
from collections.abc import Iterator
from pathlib import Path

from training import files, labelled
from training.arguments import FinetuneArguments
from training.errors import UserError
from training.mistakes import judge
from training.tasks import TRUNCATE, comparison, encoder_alone, has_company


if typing.TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from training.predict import FineTuned, Task

AUTO_CLASS = "AutoModelForSequenceClassification"
PIPELINE = "text-classification"
PIPELINE_OPTIONS = ""
EXAMPLE = "classify"
LONG_TEXTS = TRUNCATE
BASELINE = "TF-IDF"

# The metric that decides whether a model beats another.
MAIN_METRIC = {labelled.SINGLE_LABEL: "accuracy", labelled.MULTI_LABEL: "micro_f1", labelled.REGRESSION: "pearson"}
NOT_SHARES = ("pearson", "spearman", "mse")  # the others are shown in percent
MAJORITY = {
    labelled.SINGLE_LABEL: "most frequent class",
    labelled.MULTI_LABEL: "most frequent set of labels",
    labelled.REGRESSION: "mean of the training rows",
}
COMPARED = ("model", "tfidf", "majority")
METRICS = {"macro_f1": "macro F1", "micro_f1": "micro F1", "subset_accuracy": "all labels right"}
# What a model takes, and what it is called in an encoding of the tokenizers library.
FIELDS = {"input_ids": "ids", "token_type_ids": "type_ids", "attention_mask": "attention_mask"}
THRESHOLD = 0.5  # probability from which a label of several applies


def check_arguments(arguments: FinetuneArguments):
    """Every field of `finetune` is of use here."""


def inputs(data: labelled.LabelledData) -> tuple[list[str], list[str] | None]:
    return data.texts, data.pairs


def load_split(arguments: FinetuneArguments) -> tuple[labelled.LabelledData, labelled.LabelledData]:
    return labelled.load_split(arguments)


def load_test(path: str | Path, task: "Task", encoding: str | None) -> labelled.LabelledData:
    """Rows to score on; blank texts are kept."""
    columns = task.text_column, task.text_pair_column, task.label_column
    return labelled.load_labelled(path, *columns, task.problem_type, encoding, task.label_names)


def describe_labels(data: labelled.LabelledData) -> list[str]:
    if not data.label_names:
        return []
    shown = ", ".join(data.label_names[:20]) + (", ..." if len(data.label_names) > 20 else "")
    return [f"labels: {len(data.label_names)} ({shown})"]


def config_fields(arguments: FinetuneArguments, data: labelled.LabelledData) -> dict:
    """Labels and kind of problem; the one output of a regression is called as its column."""
    names = data.label_names or [arguments.label_column]
    return {**label_fields(names), "problem_type": arguments.problem_type or labelled.SINGLE_LABEL}


def label_fields(names: list[str]) -> dict:
    """What a config is told of labels, in the order of their ids."""
    return {
        "num_labels": len(names),
        "id2label": dict(enumerate(names)),
        "label2id": {name: index for index, name in enumerate(names)},
    }


def fit_tokenizer(tokenizer: "PreTrainedTokenizerBase", data: labelled.LabelledData) -> "PreTrainedTokenizerBase":
    return tokenizer


def encode_training(
    tokenizer: "PreTrainedTokenizerBase", data: labelled.LabelledData, max_length: int
) -> tuple["Dataset", dict[str, int], list[str]]:
    """Rows to train on, the number of texts that were cut, and a line about them."""
    from datasets import Dataset

    encoded, cut = encode(tokenizer, data.texts, data.pairs, max_length)
    lines = [f"{cut:,} training texts are cut at {max_length} tokens"] if cut else []
    return Dataset.from_dict({**encoded, "label": data.labels}), {"cut": cut}, lines


def make_collator(tokenizer: "PreTrainedTokenizerBase"):
    from transformers import DataCollatorWithPadding

    return DataCollatorWithPadding(tokenizer)


def finish(
    arguments: FinetuneArguments,
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    dataset: "Dataset",
    data: labelled.LabelledData,
):
    """Put n-grams beside the encoder, and say so."""
    from hf_tinybert import TinyBertForSequenceClassification
    from training.ngrams import attach_ngrams, number_of_buckets

    if not arguments.ngram_buckets:
        return
    if not isinstance(model, TinyBertForSequenceClassification):
        print(f"no n-grams beside the encoder: {type(model).__name__} has no place for them")
        return
    num_buckets = number_of_buckets(arguments.ngram_buckets, model.num_labels)
    by_characters = attach_ngrams(model, tokenizer, dataset, data.texts, num_buckets)
    units = "characters" if by_characters else "tokens"
    print(f"n-grams of one to three {units} stand beside the encoder, in {num_buckets:,} buckets")


def fit_baselines(data: labelled.LabelledData, problem_type: str) -> tuple:
    """`training.baseline.Baseline` and `training.baseline.majority`, fitted on the training rows."""
    from training.baseline import fit_baseline, majority

    return fit_baseline(data.texts, data.labels, problem_type, data.pairs), majority(data.labels, problem_type)


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


def score_all(finetuned: "FineTuned", baselines: tuple | None, data: labelled.LabelledData) -> dict:
    """Scores of the model beside those of the baseline and of the most frequent answer, on the same rows.

    Args:
        baselines: From `fit_baselines`; `None` leaves both out.

    Returns:
        `rows`, `blank`, `cut`, and `model`, `encoder` (the model without its n-grams, if it has some), `tfidf` and
        `majority` with the metrics of each; where each text has one label, what `training.mistakes.judge` finds too.
    """
    import numpy as np

    task, labels = finetuned.task, np.array(data.labels)
    inputs = finetuned.model, finetuned.tokenizer, data.texts, data.pairs, task.max_length
    logits, cut = predict_logits(*inputs)
    predictions = {"model": decide(logits, task.problem_type)}
    if has_company(finetuned.model):
        with encoder_alone(finetuned.model):
            predictions["encoder"] = decide(predict_logits(*inputs)[0], task.problem_type)
    if baselines is not None:
        baseline, majority = baselines
        predictions["tfidf"] = baseline.predict(data.texts, data.pairs)
        predictions["majority"] = np.array([majority] * len(labels))
    return {
        "rows": len(labels),
        "blank": data.blank,
        "cut": cut,
        **{name: score(values, labels, task.problem_type) for name, values in predictions.items()},
        **(judge(logits, labels, task.label_names or []) if task.problem_type == labelled.SINGLE_LABEL else {}),
    }


def notes(scores: dict, task: "Task") -> list[str]:
    blank = [f"{scores['blank']:,} with a blank text"] if scores["blank"] else []
    return blank + ([f"{scores['cut']:,} cut at {task.max_length} tokens"] if scores["cut"] else [])


def show(metric: str, value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:.4f}" if metric in NOT_SHARES else f"{100 * value:.2f}"


def table(scores: dict, problem_type: str) -> list[str]:
    """The lines of a table: the model, TF-IDF and the most frequent answer, as far as `scores` holds them."""
    from training.baseline import NAMES

    names = {
        "model": "this model",
        "encoder": "its encoder alone",
        "tfidf": NAMES[problem_type],
        "majority": MAJORITY[problem_type],
    }
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
        lines.append(comparison(name, metric, left, right, (show(metric, ours), show(metric, theirs))))
    return lines


def card_table(results: dict) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of the results in the model card."""
    from training.baseline import NAMES

    rows = [
        (source, METRICS.get(metric, metric), *(_number(scores.get(who, {}).get(metric)) for who in COMPARED))
        for source, scores in results["scores"].items()
        for metric in scores["model"]
    ]
    return ("rows", "metric", "this model", NAMES[results["problem_type"]], "most frequent answer"), rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def encode(
    tokenizer: "PreTrainedTokenizerBase", texts: list[str], pairs: list[str] | None, max_length: int
) -> tuple[dict[str, list[list[int]]], int]:
    """Token ids and masks without padding, cut at `max_length`, and the number of texts that were cut.

    Args:
        texts, pairs: `n` texts, each with its second text; `None` where there is none.
    """
    encoded = _columns(tokenizer, texts, pairs, max_length)
    full = [index for index, ids in enumerate(encoded["input_ids"]) if len(ids) >= max_length]
    if not full:
        return encoded, 0
    chosen = [None if column is None else [column[index] for index in full] for column in (texts, pairs)]
    whole = _columns(tokenizer, *chosen, None)
    return encoded, sum(len(ids) > max_length for ids in whole["input_ids"])


def _columns(
    tokenizer: "PreTrainedTokenizerBase", texts: list[str], pairs: list[str] | None, max_length: int | None
) -> dict[str, list[list[int]]]:
    """What the tokenizer gives when called; not cut if `max_length` is `None`."""
    from transformers.tokenization_utils_base import PaddingStrategy, TruncationStrategy

    if not tokenizer.is_fast:
        return dict(tokenizer(texts, pairs, truncation=max_length is not None, max_length=max_length, verbose=False))
    # Called, it would count offsets for nothing: 45 us a text of 67 tokens against 72.
    strategy = TruncationStrategy.DO_NOT_TRUNCATE if max_length is None else TruncationStrategy.LONGEST_FIRST
    tokenizer.set_truncation_and_padding(PaddingStrategy.DO_NOT_PAD, strategy, max_length, 0, None, None)
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = tokenizer.split_special_tokens
    encodings = backend.encode_batch_fast(texts if pairs is None else list(zip(texts, pairs, strict=True)))
    names = [name for name in tokenizer.model_input_names if name in FIELDS]
    return {name: [getattr(encoding, FIELDS[name]) for encoding in encodings] for name in names}


def predict_logits(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    texts: list[str],
    pairs: list[str] | None,
    max_length: int,
) -> tuple["np.ndarray", int]:
    """Logits in the order of the texts; batches are of similar length, so that there is little padding.

    Args:
        texts, pairs: `n` texts, each with its second text; `None` where there is none.
        max_length: Longest text in tokens; longer ones are cut.

    Returns:
        `(n, num_labels)`, float32, and the number of texts that were cut.
    """
    import numpy as np

    from training.predict import forward

    encoded, cut = encode(tokenizer, texts, pairs, max_length)
    logits = np.empty((len(texts), model.config.num_labels), dtype=np.float32)
    for rows, outputs in forward(model, tokenizer, encoded):
        logits[rows] = outputs.logits.float().cpu().numpy()
    return logits, cut


def probabilities(logits: "np.ndarray", problem_type: str) -> "np.ndarray":
    """Probabilities `(n, num_labels)`, by row for a single label, by label for several; regression is unchanged."""
    from scipy.special import expit, softmax

    if problem_type == labelled.SINGLE_LABEL:
        return softmax(logits, axis=-1)
    return expit(logits) if problem_type == labelled.MULTI_LABEL else logits


def decide(logits: "np.ndarray", problem_type: str) -> "np.ndarray":
    """Class ids `(n,)`, zeros and ones `(n, num_labels)`, or numbers `(n,)`, by the problem type."""
    if problem_type == labelled.SINGLE_LABEL:
        return logits.argmax(axis=-1)
    if problem_type == labelled.MULTI_LABEL:
        return (probabilities(logits, problem_type) > THRESHOLD).astype(int)
    return logits[:, 0]


def answers(finetuned: "FineTuned", inputs: list[tuple[str, str | None]]) -> tuple[list[dict], int]:
    """For each of `read_inputs` what the output file holds, and the number of texts that were cut.

    `label`, `score` and `scores` (label: probability); for several labels `labels` and `scores`; for regression
    `value`.
    """
    problem_type, names = finetuned.task.problem_type, finetuned.task.label_names
    texts = [text for text, _ in inputs]
    pairs = None if finetuned.task.text_pair_column is None else [pair or "" for _, pair in inputs]
    logits, cut = predict_logits(finetuned.model, finetuned.tokenizer, texts, pairs, finetuned.task.max_length)
    answered: list[dict] = []
    decisions = decide(logits, problem_type)
    for index, row in enumerate(probabilities(logits, problem_type).tolist()):
        answer: dict = {"text": texts[index]}
        if pairs is not None:
            answer["text_pair"] = pairs[index]
        if problem_type == labelled.SINGLE_LABEL:
            best = decisions[index]
            answer |= {"label": names[best], "score": row[best], "scores": dict(zip(names, row, strict=True))}
        elif problem_type == labelled.MULTI_LABEL:
            chosen = [name for name, applies in zip(names, decisions[index], strict=True) if applies]
            answer |= {"labels": chosen, "scores": dict(zip(names, row, strict=True))}
        else:
            answer["value"] = row[0]
        answered.append(answer)
    return answered, cut


def read_inputs(path: str | Path, task: "Task", encoding: str | None) -> Iterator[tuple[str, str | None]]:
    """The texts of a file, each with its second text (`None` where the task has none).

    Raises:
        UserError: If the file cannot be read, or lacks a column.
    """
    if files.kind_of(path) in files.DOCUMENT_KINDS:
        if task.text_pair_column is not None:
            raise UserError(
                f"the model takes two texts, but {path} has one a line; "
                f"give a table with the columns {task.text_column} and {task.text_pair_column}"
            )
        yield from ((text, None) for _, text in files.read_documents(path, task.text_column, encoding))
        return
    columns = task.text_column, task.text_pair_column
    for number, row in files.read_rows(path, encoding, [name for name in columns if name is not None]):
        text, pair = (
            None if column is None else labelled.cell_text(row[column], labelled.place(path, number), column)
            for column in columns
        )
        yield text, pair


def is_blank(given: tuple[str, str | None]) -> bool:
    return not given[0].strip()
