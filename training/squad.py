"""Questions on texts: SQuAD's nested JSON (1.1, 2.0, CMRC 2018), or a row a question as on the Hub."""

import types
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from training import files
from training.errors import UserError
from training.labelled import HELD_OUT


WANTED = {str: "a text", int: "a whole number", list: "a list", str | int: "a text or a whole number"}
FORMATS = "SQuAD's nested JSON, or rows with id, question, context and answers"


@dataclass(frozen=True)
class Question:
    """A question on a text.

    Args:
        id: Its name, unique in its file.
        question: What is asked.
        context: The text that answers it.
        answers: The right answers, as texts. Empty: the context holds none. `None`: not known.
        span: First character of an answer in the context, and the one after its last; `None` where no answer stands
            where its offset says, nor exactly once elsewhere.
    """

    id: str
    question: str
    context: str
    answers: tuple[str, ...] | None
    span: tuple[int, int] | None

    @property
    def is_impossible(self) -> bool:
        return self.answers == ()

    @property
    def is_blank(self) -> bool:
        return not self.context.strip() or not self.question.strip()


@dataclass(frozen=True)
class Questions:
    """The questions of a file.

    Args:
        questions: In the order of the file.
        source: Where they come from, for people: a file name, without its folder.
        blank: Number of questions with a blank context or a blank text of their own, kept or dropped.
        dropped: What else was left out or put right, by the reason; numbers above 0 only.
    """

    questions: list[Question]
    source: str
    blank: int
    dropped: dict[str, int]
    label_names: None = None

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def labels(self) -> list:
        return [[item.id, item.question, item.answers, item.span] for item in self.questions]

    def text_keys(self) -> list[tuple[str, ...]]:
        """The context of each question: questions on one context belong together."""
        return [(question.context,) for question in self.questions]

    def notes(self) -> list[str]:
        """A line for everything that was left out or put right."""
        return [f"{self.source}: {count:,} {reason}" for reason, count in self.dropped.items()]


def load_questions(
    path: str | Path, encoding: str | None = None, answered: bool = True, for_training: bool = False
) -> Questions:
    """Read the questions of a file.

    Args:
        path: A .json with SQuAD's `{"data": [{"paragraphs": [{"context", "qas"}]}]}`, or a .json, .jsonl or .parquet
            whose rows hold `id`, `question`, `context` and `answers` `{"text": [...], "answer_start": [...]}`.
        encoding: Of the file; `None` recognises it.
        answered: Whether the questions must have `answers`; without, those of the file are not looked at.
        for_training: Whether questions that teach nothing are dropped: those whose context or own text is blank, and
            those none of whose answers stands in the context.

    Raises:
        UserError: If the file is none of these, lacks a key, repeats an id or holds no question; with the place.
    """
    path, questions, places, misplaced, moved = Path(path), [], {}, 0, 0
    for where, raw in _read(path, encoding):
        question, elsewhere, missing = _question(raw, where, answered)
        if question.id in places:
            raise UserError(f"{where}: the id {question.id!r} is that of {places[question.id]}; give each its own")
        places[question.id] = where
        questions.append(question)
        if not question.is_blank:
            moved, misplaced = moved + elsewhere, misplaced + missing
    if not questions:
        raise UserError(f"{path} holds no question; give {FORMATS}")
    blank = sum(question.is_blank for question in questions)
    if not for_training:
        return Questions(questions, path.name, blank, {})
    kept = [question for question in questions if not question.is_blank and (question.is_impossible or question.span)]
    if not any(question.span for question in kept):
        raise UserError(
            f"{path} holds no answer that stands in its context, of {len(questions):,} questions; answers must be "
            "copied from the context, and answer_start count its characters from 0"
        )
    dropped = {
        "answers stand elsewhere than their answer_start says, at one place: that is taken": moved,
        "answers stand neither at their answer_start nor at one place elsewhere: dropped": misplaced,
        "questions none of whose answers stands in the context: dropped": len(questions) - len(kept) - blank,
    }
    return Questions(kept, path.name, blank, {reason: count for reason, count in dropped.items() if count})


def _read(path: Path, encoding: str | None) -> Iterator[tuple[str, dict]]:
    """For each question its place in the file, for people, and its keys as in the rows of the Hub."""
    file = files.TextFile(path, encoding)
    nested = file.json_object()
    if nested is not None and "data" in nested:
        yield from _nested(path, nested)
        return
    for number, row in file.rows():
        yield file.where(number), row


def _nested(path: Path, value: dict) -> Iterator[tuple[str, dict]]:
    for i, article in enumerate(_get(value, "data", list, str(path))):
        place = f"{path}: data[{i}]"
        for j, paragraph in enumerate(_get(article, "paragraphs", list, place)):
            inner = f"{place}.paragraphs[{j}]"
            context = _get(paragraph, "context", str, inner)
            for k, qa in enumerate(_get(paragraph, "qas", list, inner)):
                where = f"{inner}.qas[{k}]"
                yield where, {**_as_dict(qa, where), "context": context}


def _as_dict(value, where: str) -> dict:
    if not isinstance(value, dict):
        raise UserError(f"{where} must be a JSON object, not {type(value).__name__}; give {FORMATS}")
    return value


def _get(value, key: str, kind: type | types.UnionType, where: str):
    """A key of a JSON object, checked."""
    found = _as_dict(value, where)
    if key not in found:
        raise UserError(f"{where} has no key {key!r}; it has {', '.join(map(repr, found)) or 'none'}; give {FORMATS}")
    if not isinstance(found[key], kind):
        wanted = WANTED[kind]
        raise UserError(f"{where}: {key!r} must be {wanted}, not {type(found[key]).__name__}")
    return found[key]


def _question(raw: dict, where: str, answered: bool) -> tuple[Question, int, int]:
    """The question, how many of its answers stand elsewhere than said, and how many are not to be found."""
    identity = _get(raw, "id", str | int, where)
    texts = str(identity), _get(raw, "question", str, where), _get(raw, "context", str, where)
    if not answered:
        return Question(*texts, None, None), 0, 0
    answers = list(_answers(raw, where))
    if answers and raw.get("is_impossible"):
        raise UserError(f"{where}: is_impossible, but it has answers; empty the list, or take is_impossible away")
    starts = [_locate(texts[2], text, start) for text, start in answers]
    spans = [(start, start + len(text)) for (text, _), start in zip(answers, starts, strict=True) if start is not None]
    moved = sum(found not in (None, said) for found, (_, said) in zip(starts, answers, strict=True))
    right = tuple(text for text, _ in answers)
    return Question(*texts, right, spans[0] if spans else None), moved, starts.count(None)


def _answers(raw: dict, where: str) -> Iterator[tuple[str, int]]:
    """Texts and offsets, from a list of objects or from an object of lists."""
    answers = _get(raw, "answers", object, where)
    if isinstance(answers, dict):
        texts, starts = (_get(answers, key, list, f"{where}.answers") for key in ("text", "answer_start"))
        if len(texts) != len(starts):
            raise UserError(f"{where}.answers: {len(texts)} of 'text' but {len(starts)} of 'answer_start'")
        answers = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    elif not isinstance(answers, list):
        raise UserError(f"{where}: 'answers' must be a list or an object of lists, not {type(answers).__name__}")
    for index, answer in enumerate(answers):
        place = f"{where}.answers[{index}]"
        text = _get(answer, "text", str, place)
        if not text.strip():
            raise UserError(f"{place} is blank; leave the list of answers empty where the context holds none")
        yield text, _get(answer, "answer_start", int, place)


def _locate(context: str, text: str, start: int) -> int | None:
    """Where an answer begins: at its offset, or where else it stands if only there; else `None`."""
    if start >= 0 and context.startswith(text, start):
        return start
    found = context.find(text)
    return found if found >= 0 and context.find(text, found + 1) < 0 else None


def split(data: Questions, seed: int) -> tuple[Questions, Questions]:
    """Hold out the questions on a tenth of the contexts, none of which the rest has.

    Args:
        seed: Of the choice.

    Raises:
        UserError: If there are too few contexts.
    """
    import numpy as np

    contexts = list(dict.fromkeys(question.context for question in data.questions))
    chosen = np.random.default_rng(seed).permutation(len(contexts))[: max(1, len(contexts) // HELD_OUT)]
    held_out = {contexts[index] for index in chosen}
    training, validation = (
        [question for question in data.questions if (question.context in held_out) == is_held_out]
        for is_held_out in (False, True)
    )
    if not any(question.span for question in training):
        raise UserError(f"{data.source} has too few contexts to hold out a tenth of them; give a --validation_file")
    source = f"{data.source} (a tenth of its contexts, held out)"
    return replace(data, questions=training), Questions(validation, source, 0, {})
