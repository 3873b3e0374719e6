"""Tagged tables: rows of tokens and their BIO tags, and the raw text that the tokens stand for."""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from training import files, labelled
from training.arguments import FinetuneArguments
from training.errors import UserError


OUTSIDE = "O"
BIO = re.compile(r"O|[BI]-.+", re.DOTALL)
OTHER_SCHEMES = re.compile(r"[ESMLU](-.+)?", re.DOTALL)  # BIOES, BMES, BILOU


@dataclass(frozen=True)
class TaggedData:
    """Tagged text.

    Args:
        tokens: As given, a list a row: characters or words.
        labels: The tag of each; every entity begins with B-.
        label_names: `O`, then `B-TYPE` and `I-TYPE` of each type, in the order of their ids.
        source: Where the rows come from, for people: a file name, without its folder.
        blank: Number of rows without a token; they are left out.
        begun: Number of entities that began with I- in the file.
    """

    tokens: list[list[str]]
    labels: list[list[str]]
    label_names: list[str]
    source: str
    blank: int
    begun: int

    def __len__(self) -> int:
        return len(self.tokens)

    def text_keys(self) -> list[tuple[str, ...]]:
        """What makes rows the same text."""
        return [tuple(row) for row in self.tokens]


def entity_type(tag: str) -> str | None:
    """The type of the entity that a token of this tag belongs to; `None` outside of entities."""
    return None if tag == OUTSIDE else tag[2:]


def continued(tag: str) -> str:
    """The tag of what goes on after a token of this tag, without a new beginning."""
    return tag if tag == OUTSIDE else f"I-{tag[2:]}"


def begin_entities(tags: list[str]) -> tuple[list[str], int]:
    """Tags with B- where an entity begins, and the number of entities that began with I-, by the rule of conlleval:
    I- begins one unless a token of the same type stands before it."""
    begun, before = 0, OUTSIDE
    mended = []
    for tag in tags:
        if tag.startswith("I-") and entity_type(before) != entity_type(tag):
            begun += 1
            tag = f"B-{tag[2:]}"
        mended.append(tag)
        before = tag
    return mended, begun


def count_entities(rows: Iterable[list[str]]) -> int:
    return sum(tag.startswith("B-") for row in rows for tag in row)


def split_cell(value, where: str, column: str) -> list[str]:
    """The tokens or tags of a cell: of a list its texts, of a text what its spaces separate.

    Raises:
        UserError: If the cell holds something else.
    """
    if labelled.is_missing(value):
        return []
    if isinstance(value, str):
        return [part for part in value.split(" ") if part]  # a U+3000 may be a token
    if not isinstance(value, list):
        raise UserError(
            f"{where}: column {column!r} holds a {type(value).__name__}, neither a text nor a list of texts"
        )
    for index, part in enumerate(value, start=1):
        if not isinstance(part, str) or not part:
            what = "is empty" if part == "" else f"is {part!r}, not a text"
            raise UserError(f"{where}: item {index} of the list in column {column!r} {what}")
    return value


def _check_tags(tokens: list[str], tags: list[str], where: str):
    if len(tokens) != len(tags):
        raise UserError(f"{where}: {len(tokens)} tokens, but {len(tags)} tags; there must be a tag for every token")
    for index, (token, tag) in enumerate(zip(tokens, tags, strict=True), start=1):
        if not BIO.fullmatch(tag):
            hint = "; write S- and U- as B-, and E-, M- and L- as I-" if OTHER_SCHEMES.fullmatch(tag) else ""
            raise UserError(
                f"{where}: the tag {tag!r} of token {index} ({token!r}) is not BIO (O, B-TYPE or I-TYPE){hint}"
            )


def _check_types(path, numbers: list[int], rows: list[list[str]], label_names: list[str]):
    known = sorted({name[2:] for name in label_names if name != OUTSIDE})
    unknown: dict[str, int] = {}
    for number, tags in zip(numbers, rows, strict=True):
        for kind in map(entity_type, tags):
            if kind is not None and kind not in known:
                unknown.setdefault(kind, number)
    if unknown:
        raise UserError(labelled.unknown_labels(path, unknown, known))


def load_tagged(
    path: str | Path,
    text_column: str,
    label_column: str,
    encoding: str | None,
    label_names: list[str] | None = None,
) -> TaggedData:
    """Read a tagged table.

    Args:
        path: A .csv, .tsv, .json, .jsonl or .parquet file.
        text_column, label_column: Names of the columns of the tokens and tags, each a text with spaces or a list.
        encoding: Of the file; `None` recognises it.
        label_names: As in `TaggedData`. `None` takes the types from the file, sorted.

    Raises:
        UserError: If a column is missing, a row has more tokens than tags or fewer, a tag is not BIO or of an unknown
            type, or there is no entity, with file and row.
    """
    numbers, rows, labels, blank, begun = [], [], [], 0, 0
    for number, row in files.read_rows(path, encoding, [text_column, label_column]):
        where = labelled.place(path, number)
        tokens = split_cell(row[text_column], where, text_column)
        tags = split_cell(row[label_column], where, label_column)
        _check_tags(tokens, tags, where)
        if not tokens:
            blank += 1
            continue
        tags, found = begin_entities(tags)
        numbers.append(number)
        rows.append(tokens)
        labels.append(tags)
        begun += found
    if not rows:
        raise UserError(f"{path} has no row with a token in column {text_column!r}")
    if label_names is None:
        kinds = sorted({tag[2:] for tags in labels for tag in tags if tag != OUTSIDE})
        if not kinds:
            raise UserError(f"{path} has no entity: every tag in column {label_column!r} is O")
        label_names = [OUTSIDE, *(f"{position}-{kind}" for kind in kinds for position in "BI")]
    _check_types(path, numbers, labels, label_names)
    return TaggedData(rows, labels, label_names, Path(path).name, blank, begun)


def load_split(arguments: FinetuneArguments) -> tuple[TaggedData, TaggedData]:
    """The training and validation rows of a fine-tuning run.

    Raises:
        UserError: As `load_tagged`.
    """

    def load(path, label_names=None):
        return load_tagged(path, arguments.text_column, arguments.label_column, arguments.encoding, label_names)

    training = load(arguments.train_file)
    if arguments.validation_file is None:
        return split(training, arguments.seed)
    return training, load(arguments.validation_file, training.label_names)


def split(data: TaggedData, seed: int) -> tuple[TaggedData, TaggedData]:
    """Hold out a tenth, the same share of the rows with each set of types, sharing no text with the rest.

    Args:
        seed: Of the choice; every set of types keeps a row to train on.
    """
    kinds = [tuple(sorted({tag[2:] for tag in tags if tag != OUTSIDE})) for tags in data.labels]
    held_out = labelled.hold_out(data.text_keys(), kinds, seed)
    if not any(held_out) or all(held_out):
        raise UserError(f"{data.source} has too few rows to hold out a tenth; give a --validation_file")
    parts = [
        dataclasses.replace(
            data,
            tokens=[row for row, out in zip(data.tokens, held_out, strict=True) if out == is_held_out],
            labels=[row for row, out in zip(data.labels, held_out, strict=True) if out == is_held_out],
        )
        for is_held_out in (False, True)
    ]
    source = f"{data.source} (a tenth, held out)"
    return parts[0], dataclasses.replace(parts[1], source=source, blank=0, begun=0)


def join(tokens: list[str]) -> tuple[str, list[int]]:
    """The raw text that tokens stand for, and where in it each begins.

    Words have a space between them. Single characters have none, nor has what stands beside Chinese or Japanese, so
    that a text tagged by characters becomes what its reader would see.
    """
    from training.baseline import UNSPACED

    text, starts = "", []
    for index, token in enumerate(tokens):
        if index:
            before = tokens[index - 1]
            unspaced = UNSPACED.match(before[-1]) or UNSPACED.match(token[0])
            text += "" if unspaced or len(before) == len(token) == 1 else " "
        starts.append(len(text))
        text += token
    return text, starts
