"""Labelled tables: rows of a file to a `datasets.Dataset` and its label names."""

import dataclasses
import hashlib
import json
import math
import typing
import unicodedata
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from training import files
from training.arguments import FinetuneArguments
from training.errors import UserError
from training.tasks import Data


if typing.TYPE_CHECKING:
    from datasets import Dataset

SINGLE_LABEL = "single_label_classification"
MULTI_LABEL = "multi_label_classification"
REGRESSION = "regression"
SEPARATOR = "|"
MOST_LONE_LABELS = 100  # labels of one row each, beyond which they are taken for something else
HELD_OUT = 10  # one row in so many is held out where no validation file is given


@dataclass(frozen=True)
class LabelledData:
    """Labelled text.

    Args:
        dataset: Columns `text`, `text_pair` (only if one was asked for) and `label`: a class id, a list of zeros and
            ones of length `len(label_names)`, or a number, by the problem type.
        label_names: The names of the class ids; `None` for regression.
        source: Where the rows come from, for people: a file name, without its folder.
        blank: Number of rows with a blank text, kept or dropped.
    """

    dataset: "Dataset"
    label_names: list[str] | None
    source: str
    blank: int

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def texts(self) -> list[str]:
        return list(self.dataset["text"])

    @property
    def pairs(self) -> list[str] | None:
        return list(self.dataset["text_pair"]) if "text_pair" in self.dataset.column_names else None

    @property
    def labels(self) -> list:
        return list(self.dataset["label"])

    def text_keys(self) -> list[tuple[str, ...]]:
        """What makes rows the same text: the text, with its pair if there is one."""
        return list(zip(self.texts, self.pairs or [""] * len(self.dataset), strict=True))


def place(path: str | Path, number: int) -> str:
    """Where a row stands, for people."""
    return f"{path}, {row_name(path, number)}"


def row_name(path: str | Path, number: int) -> str:
    return f"{'row' if Path(path).suffix.lower() == '.parquet' else 'line'} {number}"


def is_missing(value) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def is_unlabelled(value) -> bool:
    """Whether a cell holds no label: nothing, or the "nan" that pandas makes of nothing."""
    return is_missing(value) or (isinstance(value, str) and value.strip().lower() in ("", "nan"))


def cell_text(value, where: str, column: str) -> str:
    """The text of a cell; a missing one is blank.

    Raises:
        UserError: If the cell holds a list, a mapping or bytes.
    """
    if is_missing(value):
        return ""
    if isinstance(value, list | dict | bytes):
        raise UserError(f"{where}: column {column!r} holds a {type(value).__name__}, not a text")
    return value if isinstance(value, str) else label_name(value)


def label_name(value) -> str:
    """A label as the user wrote it; the whole numbers of JSON and parquet, which may come as 1.0, without a point."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def sort_labels(names: set[str]) -> list[str]:
    """Labels in their order: by number where all are numbers, else by name."""
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return sorted(names)
    if not all(map(math.isfinite, numbers.values())):
        return sorted(names)
    return sorted(names, key=lambda name: (numbers[name], name))


def _name(value, where: str, column: str) -> str:
    if isinstance(value, list | dict | bytes):
        raise UserError(f"{where}: column {column!r} holds a {type(value).__name__}, not a label")
    if is_unlabelled(value):
        raise UserError(f"{where}: no label in column {column!r}; fill it in or remove the row")
    name = label_name(value)
    if any(unicodedata.category(char) == "Cc" for char in name):
        raise UserError(f"{where}: the label {name!r} in column {column!r} holds a line break or its like; mend it")
    return name


def _single(value, where: str, column: str) -> str:
    if isinstance(value, list):
        raise UserError(
            f"{where}: column {column!r} holds a list; several labels in a row need --problem_type {MULTI_LABEL}"
        )
    return _name(value, where, column)


def _multiple(value, where: str, column: str) -> list[str]:
    if is_missing(value):
        raise UserError(f"{where}: no label in column {column!r}; fill it in (empty text: none applies) or remove it")
    if isinstance(value, str):
        if not value.strip():  # none applies
            return []
        value = [part for part in value.split(SEPARATOR) if part.strip()]
    return [_name(part, where, column) for part in (value if isinstance(value, list) else [value])]


def _number(value, where: str, column: str) -> float:
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        raise UserError(f"{where}: no label in column {column!r}; fill it in or remove the row")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        shown = repr(value) if len(repr(value)) <= 40 else f"{repr(value)[:40]}..."
        raise UserError(f"{where}: the label {shown} in column {column!r} is not a number, which regression needs")
    return number


PARSERS = {SINGLE_LABEL: _single, MULTI_LABEL: _multiple, REGRESSION: _number}


def _find_labels(path, label_column: str, sets: list[list[str]]) -> list[str]:
    names = sort_labels({name for labels in sets for name in labels})
    if len({tuple(sorted(set(labels))) for labels in sets}) < 2 or len(names) < 2:
        raise UserError(
            f"{path} holds one class only ({', '.join(names) or 'no label'}) in column {label_column!r}; "
            "there must be two or more to tell apart"
        )
    if len(sets) == len(names) > MOST_LONE_LABELS:
        raise UserError(
            f"{path}: each of the {len(sets):,} rows has a label of its own in column {label_column!r} "
            f"(the first: {sets[0][0]!r}); name another --label_column, or for numbers --problem_type {REGRESSION}"
        )
    return names


def _check_known(path, numbers: list[int], sets: list[list[str]], label_names: list[str]):
    unknown: dict[str, int] = {}
    for number, names in zip(numbers, sets, strict=True):
        for name in names:
            if name not in label_names:
                unknown.setdefault(name, number)
    if unknown:
        raise UserError(unknown_labels(path, unknown, label_names))


def unknown_labels(path: str | Path, unknown: dict[str, int], known: list[str]) -> str:
    """What is said of labels that the training rows do not have.

    Args:
        unknown: Each with the number of the first row that has it.
    """
    first = ", ".join(f"{name!r} ({row_name(path, number)})" for name, number in list(unknown.items())[:5])
    more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return (
        f"{path} holds labels that the training rows do not have: {first}{more}; known are {shown}; "
        "mend them or train on rows that have them"
    )


def _encode(labels: list, problem_type: str, label_names: list[str] | None) -> list:
    if problem_type == REGRESSION:
        return labels
    ids = {name: index for index, name in enumerate(label_names)}
    if problem_type == SINGLE_LABEL:
        return [ids[label] for label in labels]
    return [[float(name in label) for name in label_names] for label in labels]


def load_labelled(
    path: str | Path,
    text_column: str,
    text_pair_column: str | None,
    label_column: str,
    problem_type: str,
    encoding: str | None,
    label_names: list[str] | None = None,
    keep_blank: bool = True,
) -> LabelledData:
    """Read a labelled table.

    Args:
        path: A .csv, .tsv, .json, .jsonl or .parquet file.
        text_column, text_pair_column, label_column: Names of its columns; `None` for no second text.
        problem_type: A `problem_type` of transformers. Several labels of one row are separated by `|`, or a
            list; none at all is an empty cell or list.
        encoding: Of the file; `None` recognises it.
        label_names: The labels there can be, in the order of their ids. `None` takes them from the file, sorted.
        keep_blank: Whether rows with a blank text are kept, as predictions that stay aligned need, or dropped.

    Raises:
        UserError: If a column or label is missing or no such label, or there are not two classes, with file and row.
    """
    numbers, texts, pairs, labels, blank = [], [], [], [], 0
    wanted = [name for name in (text_column, text_pair_column, label_column) if name is not None]
    for number, row in files.read_rows(path, encoding, dict.fromkeys(wanted)):
        where = place(path, number)
        label = PARSERS[problem_type](row[label_column], where, label_column)
        text = cell_text(row[text_column], where, text_column)
        pair = "" if text_pair_column is None else cell_text(row[text_pair_column], where, text_pair_column)
        if not text.strip() and not pair.strip():
            blank += 1
            if not keep_blank:
                continue
        numbers.append(number)
        texts.append(text)
        pairs.append(pair)
        labels.append(label)
    if not texts:
        raise UserError(f"{path} has no row with a text in column {text_column!r}")
    if problem_type != REGRESSION:
        sets = [[label] for label in labels] if problem_type == SINGLE_LABEL else labels
        if label_names is None:
            label_names = _find_labels(path, label_column, sets)
        _check_known(path, numbers, sets, label_names)
    columns = {"text": texts, "label": _encode(labels, problem_type, label_names)}
    if text_pair_column is not None:
        columns["text_pair"] = pairs
    from datasets import Dataset  # seconds: after every check

    return LabelledData(Dataset.from_dict(columns), label_names, Path(path).name, blank)


def hold_out(keys: list, strata: list, seed: int, keep_lone: bool = True) -> list[bool]:
    """Whether each row is held out: a tenth of them, the same share of each stratum, sharing no key with the rest.

    Args:
        keys: What makes rows the same text.
        strata: Of the rows; numbers are taken by stretches.
        seed: Of the choice.
        keep_lone: Whether every stratum keeps a row that is not held out.
    """
    import numpy as np

    first = {}
    for index, key in enumerate(keys):
        first.setdefault(key, index)
    unique = np.random.default_rng(seed).permutation(list(first.values())).tolist()
    if keep_lone:
        counts = Counter(strata[index] for index in unique)
        unique = [index for index in unique if counts[strata[index]] > 1]
    unique.sort(key=lambda index: strata[index])  # stable: shuffled within a class
    held_out = {keys[index] for index in unique[HELD_OUT // 2 :: HELD_OUT] or unique[:1]}
    return [key in held_out for key in keys]


def split(data: LabelledData, problem_type: str, seed: int) -> tuple[LabelledData, LabelledData]:
    """Hold out a tenth, the same share of each class (of each stretch of numbers), sharing no text with the rest.

    Args:
        seed: Of the choice; every class keeps a row to train on.
    """
    labels = [tuple(label) if isinstance(label, list) else label for label in data.labels]
    held_out = hold_out(data.text_keys(), labels, seed, keep_lone=problem_type != REGRESSION)
    parts = []
    for is_held_out in (False, True):
        rows = [index for index, out in enumerate(held_out) if out == is_held_out]
        parts.append(dataclasses.replace(data, dataset=data.dataset.select(rows), blank=0))
    training, validation = parts
    classes = [{str(label) for label in part.labels} for part in (data, training)]
    if not len(validation.dataset) or (problem_type == SINGLE_LABEL and classes[0] != classes[1]) or not classes[1]:
        raise UserError(f"{data.source} has too few rows to hold out a tenth; give a --validation_file")
    source = f"{data.source} (a tenth, held out)"
    return dataclasses.replace(training, blank=data.blank), dataclasses.replace(validation, source=source)


def load_split(arguments: FinetuneArguments) -> tuple[LabelledData, LabelledData]:
    """The training and validation rows of a fine-tuning run; blank texts are dropped from the training rows only.

    Raises:
        UserError: As `load_labelled`.
    """
    problem_type = arguments.problem_type or SINGLE_LABEL

    def load(path, **settings):
        columns = arguments.text_column, arguments.text_pair_column, arguments.label_column
        return load_labelled(path, *columns, problem_type, arguments.encoding, **settings)

    training = load(arguments.train_file, keep_blank=False)
    if problem_type == REGRESSION and len(set(training.labels)) < 2:
        raise UserError(
            f"{arguments.train_file} holds one number only ({training.labels[0]:g}) in column "
            f"{arguments.label_column!r}; there must be two or more to tell apart"
        )
    if arguments.validation_file is None:
        return split(training, problem_type, arguments.seed)
    return training, load(arguments.validation_file, label_names=training.label_names)


def count_shared(training: Data, validation: Data) -> int:
    """Number of validation rows whose text is that of a training row."""
    known = set(training.text_keys())
    return sum(key in known for key in validation.text_keys())


def fingerprint(data: Data) -> str:
    """A hash of texts and labels in their order."""
    digest = hashlib.blake2b(digest_size=16)
    for key, label in zip(data.text_keys(), data.labels, strict=True):
        digest.update(json.dumps([key, label]).encode())
    return digest.hexdigest()
