"""The task token-classification: a BIO tag for each token, and the entities that the tags spell.

The model always sees raw text, encoded as a pipeline encodes it; given tokens are joined to the text that they stand
for. A piece of the tokenizer carries the tag of the character it begins with, and a token takes the tag of its first
piece. So fine-tuning, scoring, `predict` and the pipeline of transformers see the same ids and draw the same spans.
"""

import json
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training import files, labelled, tagged
from training.arguments import FinetuneArguments
from training.classification import label_fields
from training.errors import UserError
from training.tagged import OUTSIDE, TaggedData, load_split  # noqa: F401 - load_split is part of a task
from training.tasks import comparison, encoder_alone, has_company


if typing.TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from training.crf import Tagger
    from training.predict import FineTuned, Task

AUTO_CLASS = "AutoModelForTokenClassification"
PIPELINE = "token-classification"
PIPELINE_OPTIONS = ', aggregation_strategy="simple"'
EXAMPLE = "find"
LONG_TEXTS = "give `stride=32` to have texts that are longer than the model takes read in overlapping windows, not cut"
BASELINE = "a CRF"

METRICS = ("precision", "recall", "f1")
HAN = r"\p{Han}"
SPACES = r"[\s\x{2581}]+"  # the tokenizers of `training.tokenizer` turn a space into U+2581
SAMPLE = 1_000  # rows on which the price of single characters is measured


@dataclass(frozen=True)
class Piece:
    """A token of the tokenizer in a text: the characters `start` to `end`, and what is said of them."""

    start: int
    end: int
    tag: str
    score: float = 1.0


@dataclass(frozen=True)
class Windows:
    """Encoded texts; those longer than the model takes are in several windows that overlap.

    Args:
        columns: What the model takes, without padding, a list a window.
        rows: For each window the number of its text.
        spans: For each token of each window the characters it stands for, white space at its ends left out; `None`
            for special tokens, those that stand for nothing else, and those that another window has nearer its middle.
    """

    columns: dict[str, list[list[int]]]
    rows: list[int]
    spans: list[list[tuple[int, int] | None]]

    @property
    def long(self) -> int:
        """Number of texts in more than one window."""
        return len({row for row, before in zip(self.rows[1:], self.rows, strict=False) if row == before})


def check_arguments(arguments: FinetuneArguments):
    """Raise a `UserError` for fields that only other tasks have a use for."""
    for name in ("text_pair_column", "problem_type"):
        if getattr(arguments, name) is not None:
            raise UserError(f"--{name} is of no use to --task token-classification; leave it out")


def inputs(data: TaggedData) -> tuple[list[str], None]:
    return [tagged.join(row)[0] for row in data.tokens], None


def load_test(path: str | Path, task: "Task", encoding: str | None) -> TaggedData:
    """Rows to score on."""
    return tagged.load_tagged(path, task.text_column, task.label_column, encoding, task.label_names)


def describe_labels(data: TaggedData) -> list[str]:
    kinds = [name[2:] for name in data.label_names if name.startswith("B-")]
    shown = ", ".join(kinds[:20]) + (", ..." if len(kinds) > 20 else "")
    lines = [f"types: {len(kinds)} ({shown}), {tagged.count_entities(data.labels):,} entities in the training rows"]
    return lines + [f"{line} of {data.source}" for line in _begun(data.begun)]


def _begun(number: int) -> list[str]:
    return [f"{number:,} entities begin with I-, taken as B-"] if number else []


def config_fields(arguments: FinetuneArguments, data: TaggedData) -> dict:
    return label_fields(data.label_names)


def fit_tokenizer(tokenizer: "PreTrainedTokenizerBase", data: TaggedData) -> "PreTrainedTokenizerBase":
    """A tokenizer that takes Chinese by single characters, so that no piece spans the end of an entity.

    On MSRA's named entities this is 1.35 times as many tokens as a tokenizer of words makes; the pieces of the latter
    leave no more than an F1 of 95.2 to be reached.

    Where the training rows are tagged by characters, spaces separate words but leave no mark on them: such rows have
    none, and a mark would put the space into the entity.

    Raises:
        UserError: If the tokenizer cannot tell which characters a token stands for.
    """
    if not tokenizer.is_fast:
        raise UserError(
            "--task token-classification: the tokenizer cannot tell which characters a token stands for; "
            "use a model with a tokenizer.json"
        )
    tokenizer.padding_side = tokenizer.truncation_side = "right"  # tokens count from the left, windows as well
    texts = [tagged.join(row)[0] for row in data.tokens[:SAMPLE]]
    return isolate_characters(tokenizer, texts, without_spaces=_by_characters(data))


def isolate_characters(
    tokenizer: "PreTrainedTokenizerBase", texts: list[str], without_spaces: bool = False
) -> "PreTrainedTokenizerBase":
    """Have a tokenizer take Chinese by single characters, so that a span may begin and end at any.

    Args:
        texts: On which the price is measured, which is printed.
        without_spaces: Whether spaces leave no mark on the words that they separate.
    """
    from tokenizers import Regex, pre_tokenizers

    backend = tokenizer.backend_tokenizer
    before = _count_pieces(tokenizer, texts)
    steps = [pre_tokenizers.Split(Regex(HAN), "isolated")]
    if without_spaces:
        steps.insert(0, pre_tokenizers.Split(Regex(SPACES), "removed"))
    if HAN not in _split_patterns(backend):  # not from a tagger already
        kept = [] if backend.pre_tokenizer is None else [backend.pre_tokenizer]
        backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, *kept])
    after = _count_pieces(tokenizer, texts)
    if after > before:
        print(
            f"Chinese is taken by single characters: {after / before:.2f} times as many tokens as the tokenizer of "
            "the model makes"
        )
    return tokenizer


def _by_characters(data: TaggedData) -> bool:
    """Whether most tokens are single characters, as they are of no language that puts spaces between words."""
    tokens = [token for row in data.tokens for token in row]
    return 2 * sum(len(token) == 1 for token in tokens) > len(tokens)


def _split_patterns(backend) -> list[str]:
    """The regular expressions that the tokenizer splits text by, before all else."""
    step = json.loads(backend.to_str())["pre_tokenizer"] or {}
    return [part.get("pattern", {}).get("Regex", "") for part in step.get("pretokenizers", [])]


def _count_pieces(tokenizer, texts: list[str]) -> int:
    return sum(map(len, tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]))


def encode(tokenizer: "PreTrainedTokenizerBase", texts: list[str], max_length: int) -> Windows:
    """Token ids and masks without padding, in windows of at most `max_length` tokens.

    A quarter of a window is context that it shares with the one before it; each of the two has a say in half of that.

    Args:
        texts: Raw text.
    """
    overlap = max_length // 4
    encoded = tokenizer(
        texts,
        truncation=True,
        max_length=max_length,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    rows = encoded["overflow_to_sample_mapping"]
    spans = []
    for window, row in enumerate(rows):
        offsets, sequences = encoded["offset_mapping"][window], encoded.sequence_ids(window)
        own = [at for at, sequence in enumerate(sequences) if sequence is not None]
        if window and rows[window - 1] == row:
            own = own[overlap // 2 :]
        if window + 1 < len(rows) and rows[window + 1] == row:
            own = own[: len(own) - (overlap - overlap // 2)]
        found: list[tuple[int, int] | None] = [None] * len(offsets)
        for at in own:
            found[at] = _trim(texts[row], *offsets[at])
        spans.append(found)
    columns = {name: encoded[name] for name in tokenizer.model_input_names if name in encoded}
    return Windows(columns, rows, spans)


def _trim(text: str, start: int, end: int) -> tuple[int, int] | None:
    """A span without the white space at its ends; `None` if nothing is left."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None


def tags_by_character(pieces: list[Piece]) -> dict[int, str]:
    """The tag of each character that a piece stands for; of two pieces of one character the first counts."""
    tags: dict[int, str] = {}
    for piece in pieces:
        for index in range(piece.start, piece.end):
            tags.setdefault(index, piece.tag if index == piece.start else tagged.continued(piece.tag))
    return tags


def label_pieces(row: list[str], tags: list[str], spans: list[tuple[int, int] | None]) -> list[str | None]:
    """The tag of each token of the tokenizer, that of the character it begins with; `None` where `spans` is.

    Args:
        row, tags: The tokens that were given and their tags.
        spans: From `encode`, of the text that `training.tagged.join` makes of `row`.
    """
    _, starts = tagged.join(row)
    given = [Piece(start, start + len(token), tag) for start, token, tag in zip(starts, row, tags, strict=True)]
    by_character = tags_by_character(given)
    return [None if span is None else by_character[span[0]] for span in spans]


def tag_tokens(row: list[str], pieces: list[Piece]) -> list[str]:
    """A tag for every given token: that of the piece which stands for its first character.

    Args:
        row: The tokens that were given.
        pieces: Of the text that `training.tagged.join` makes of them.

    Returns:
        As many tags as tokens; `O` where no piece stands for the token, as for white space.
    """
    by_character = tags_by_character(pieces)
    _, starts = tagged.join(row)
    firsts = [start + len(token) - len(token.lstrip()) for token, start in zip(row, starts, strict=True)]
    return [
        by_character.get(first, OUTSIDE) if token.strip() else OUTSIDE
        for token, first in zip(row, firsts, strict=True)
    ]


def encode_training(
    tokenizer: "PreTrainedTokenizerBase", data: TaggedData, max_length: int
) -> tuple["Dataset", dict[str, int], list[str]]:
    """Windows to train on, the number of texts in several windows and of tags that cannot be told, and lines."""
    from datasets import Dataset

    windows = encode(tokenizer, [tagged.join(row)[0] for row in data.tokens], max_length)
    ids = {name: index for index, name in enumerate(data.label_names)}
    labels, pieces = [], [[] for _ in data.tokens]
    for row, spans in zip(windows.rows, windows.spans, strict=True):
        tags = label_pieces(data.tokens[row], data.labels[row], spans)
        labels.append([-100 if tag is None else ids[tag] for tag in tags])
        pieces[row] += [Piece(*span, tag) for span, tag in zip(spans, tags, strict=True) if span and tag]
    lost = sum(
        tag != told
        for row, tags, found in zip(data.tokens, data.labels, pieces, strict=True)
        for tag, told in zip(tags, tag_tokens(row, found), strict=True)
    )
    lines = [f"{windows.long:,} training texts are in several windows of {max_length} tokens"] if windows.long else []
    if lost:
        lines.append(
            f"{lost:,} tags cannot be told: an entity begins or ends within a token of the tokenizer, or holds what "
            "it leaves out"
        )
    counts = {"in_windows": windows.long, "tags_lost": lost}
    return Dataset.from_dict({**windows.columns, "labels": labels}), counts, lines


def make_collator(tokenizer: "PreTrainedTokenizerBase"):
    from transformers import DataCollatorForTokenClassification

    return DataCollatorForTokenClassification(tokenizer)


def finish(
    arguments: FinetuneArguments,
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    dataset: "Dataset",
    data: TaggedData,
):
    """Put a CRF beside the encoder, and say so."""
    from hf_tinybert import TinyBertForTokenClassification
    from training.tagging_crf import attach_crf

    if not arguments.ngram_buckets:
        return
    if not isinstance(model, TinyBertForTokenClassification):
        print(f"no CRF beside the encoder: {type(model).__name__} has no place for it")
        return
    num_buckets = attach_crf(model, dataset, arguments.ngram_buckets)
    print(f"a CRF stands beside the encoder, its n-grams in {num_buckets:,} buckets")


def fit_baselines(data: TaggedData, problem_type: None) -> "Tagger":
    """`training.crf.fit_crf` on the training rows."""
    from training.crf import fit_crf

    return fit_crf(data.tokens, data.labels)


def tag_texts(finetuned: "FineTuned", texts: list[str]) -> tuple[list[list[Piece]], int]:
    """For each text its pieces with the most probable tag and its probability; the number of texts in several windows.

    Args:
        texts: Raw text.
    """
    from training.predict import forward

    names = finetuned.task.label_names
    windows = encode(finetuned.tokenizer, texts, finetuned.task.max_length)
    found: list[list[Piece]] = [[] for _ in windows.rows]
    for numbers, outputs in forward(finetuned.model, finetuned.tokenizer, windows.columns):
        best = outputs.logits.float().softmax(dim=-1).max(dim=-1)
        scores, ids = best.values.cpu().tolist(), best.indices.cpu().tolist()
        for index, number in enumerate(numbers):
            found[number] = [
                Piece(*span, names[ids[index][at]], scores[index][at])
                for at, span in enumerate(windows.spans[number])
                if span
            ]
    pieces: list[list[Piece]] = [[] for _ in texts]
    for row, window in zip(windows.rows, found, strict=True):
        pieces[row] += window
    return pieces, windows.long


def find_entities(text: str, pieces: list[Piece]) -> list[dict]:
    """The entities that tags spell, by the rule of conlleval: one begins with B-, or where the type changes.

    Returns:
        `type`, `start` and `end` (characters of `text`), `text` and `score`, the mean probability of its tags.
    """
    groups: list[list[Piece]] = []
    before = OUTSIDE
    for piece in pieces:
        kind = tagged.entity_type(piece.tag)
        if kind is not None and (piece.tag.startswith("B-") or kind != tagged.entity_type(before)):
            groups.append([piece])
        elif kind is not None:
            groups[-1].append(piece)
        before = piece.tag
    return [
        {
            "type": tagged.entity_type(group[0].tag),
            "start": group[0].start,
            "end": group[-1].end,
            "text": text[group[0].start : group[-1].end],
            "score": sum(piece.score for piece in group) / len(group),
        }
        for group in groups
    ]


def score(predictions: list[list[str]], labels: list[list[str]]) -> dict:
    """Precision, recall and F1 of entities, right in type and both ends, as shares of 1, by seqeval.

    Returns:
        `precision`, `recall` and `f1` over all entities, and `types`: the same of each type, with its `entities`.
    """
    from seqeval.metrics import classification_report

    if not any(tag != OUTSIDE for tags in [*predictions, *labels] for tag in tags):  # seqeval fails on no type
        return {**dict.fromkeys(METRICS, 0.0), "types": {}}
    report = classification_report(labels, predictions, output_dict=True, zero_division=0)
    averages = {name: report.pop(f"{name} avg") for name in ("micro", "macro", "weighted")}

    def chosen(values: dict) -> dict[str, float]:
        return {
            "precision": float(values["precision"]),
            "recall": float(values["recall"]),
            "f1": float(values["f1-score"]),
        }

    types = {kind: {**chosen(values), "entities": int(values["support"])} for kind, values in report.items()}
    return {**chosen(averages["micro"]), "types": types}


def predict_tags(finetuned: "FineTuned", data: TaggedData) -> tuple[list[list[str]], int]:
    """A tag for every token of every row, and the number of rows in several windows."""
    pieces, long = tag_texts(finetuned, [tagged.join(row)[0] for row in data.tokens])
    return [tag_tokens(row, found) for row, found in zip(data.tokens, pieces, strict=True)], long


def score_all(finetuned: "FineTuned", baselines: "Tagger | None", data: TaggedData) -> dict:
    """Scores of the model beside those of the CRF, on the same rows.

    Args:
        baselines: From `fit_baselines`; `None` leaves it out.

    Returns:
        `rows`, `blank`, `in_windows`, `begun`, `entities`, and `model`, `encoder` (without the CRF beside it, if there
        is one) and `crf` as `score` has them.
    """
    tags, long = predict_tags(finetuned, data)
    predictions = {"model": tags}
    if has_company(finetuned.model):
        with encoder_alone(finetuned.model):
            predictions["encoder"], _ = predict_tags(finetuned, data)
    if baselines is not None:
        predictions["crf"] = baselines.predict(data.tokens)
    return {
        "rows": len(data),
        "blank": data.blank,
        "in_windows": long,
        "begun": data.begun,
        "entities": tagged.count_entities(data.labels),
        **{name: score(tags, data.labels) for name, tags in predictions.items()},
    }


def notes(scores: dict, task: "Task") -> list[str]:
    found = [f"{scores['entities']:,} entities"]
    found += [f"{scores['blank']:,} blank rows left out"] if scores["blank"] else []
    found += (
        [f"{scores['in_windows']:,} in several windows of {task.max_length} tokens"] if scores["in_windows"] else []
    )
    return found + _begun(scores["begun"])


def _compared() -> dict[str, str]:
    from training.crf import NAME

    return {"model": "this model", "encoder": "its encoder alone", "crf": NAME}


def table(scores: dict, problem_type: None) -> list[str]:
    """The lines of a table: the model and the CRF, over all entities and by type."""
    names = {key: name for key, name in _compared().items() if key in scores}
    kinds = scores["model"]["types"]
    width = max(map(len, [*names.values(), *(f"  {kind}" for kind in kinds)]))
    lines = [" " * width + "".join(f"{metric:>12}" for metric in METRICS)]
    for key, name in names.items():
        for label, values in [(name, scores[key])] + [(f"  {kind}", scores[key]["types"].get(kind)) for kind in kinds]:
            shown = [f"{100 * values[metric]:.2f}" if values else "-" for metric in METRICS]
            lines.append(f"{label:<{width}}" + "".join(f"{value:>12}" for value in shown))
    return lines


def verdict(scores: dict, problem_type: None) -> list[str]:
    """In plain words whether the model beats the CRF."""
    if "crf" not in scores:
        return []
    ours, theirs = scores["model"]["f1"], scores["crf"]["f1"]
    return [comparison(BASELINE, "entity F1", ours, theirs, (f"{100 * ours:.2f}", f"{100 * theirs:.2f}"))]


def card_table(results: dict) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows of the results in the model card."""
    rows = []
    for source, scores in results["scores"].items():
        both = [scores["model"], scores.get("crf", {})]
        rows += [(source, f"entity {metric}", *(_number(values.get(metric)) for values in both)) for metric in METRICS]
        for kind in scores["model"]["types"]:
            by_kind = [values.get("types", {}).get(kind, {}) for values in both]
            rows.append((source, f"{kind} f1", *(_number(values.get("f1")) for values in by_kind)))
    compared = _compared()
    return ("rows", "metric", compared["model"], compared["crf"]), rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def read_inputs(path: str | Path, task: "Task", encoding: str | None) -> Iterator[str]:
    """The texts of a file; a cell that is a list of tokens, or single characters with spaces between them, is joined
    to the text that it stands for.

    Raises:
        UserError: If the file cannot be read, or lacks the column.
    """
    if files.kind_of(path) in files.DOCUMENT_KINDS:
        yield from (text for _, text in files.read_documents(path, task.text_column, encoding))
        return
    for number, row in files.read_rows(path, encoding, [task.text_column]):
        yield _cell_text(row[task.text_column], labelled.place(path, number), task.text_column)


def _cell_text(value, where: str, column: str) -> str:
    tokens = [] if not isinstance(value, str | list) else tagged.split_cell(value, where, column)
    if isinstance(value, list) or (len(tokens) > 1 and all(len(token) == 1 for token in tokens)):
        return tagged.join(tokens)[0]
    return labelled.cell_text(value, where, column)


def is_blank(given: str) -> bool:
    return not given.strip()


def answers(finetuned: "FineTuned", inputs: list[str]) -> tuple[list[dict], int]:
    """For each text `text` and `entities` as `find_entities` has them; none is cut."""
    pieces, _ = tag_texts(finetuned, inputs)
    return [
        {"text": text, "entities": find_entities(text, found)} for text, found in zip(inputs, pieces, strict=True)
    ], 0
