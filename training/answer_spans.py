"""Where answers are: contexts in windows, the tokens of an answer, and the way back to the text."""

import math
import typing
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.answer_scores import rules_for, score_answers
from training.errors import UserError
from training.squad import Question


if typing.TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

STRIDE_SHARE = 4  # neighbouring windows share a quarter of a window
USUAL_ANSWERS = 0.99  # share of the training answers that are as short as the answers looked for
CHUNK_SIZE = 1024  # questions whose windows are in memory at a time


@dataclass(frozen=True)
class Windows:
    """Questions, each with a stretch of its context, as a model reads them.

    Args:
        inputs: What the model takes (`input_ids`, `attention_mask`, ...), a row a window, without padding.
        question: Index of the question of each window.
        offsets: `(length, 2)` for each window: where in the context a token begins and ends; -1 for tokens that are no
            part of it, or hold nothing but white space.
        cut: Indexes of the questions that were cut because they leave too little room for the context.
    """

    inputs: dict[str, list[list[int]]]
    question: list[int]
    offsets: list[np.ndarray]
    cut: list[int]


@dataclass(frozen=True)
class Answer:
    """An answer: `context[start:end]`; empty text and no place where the context holds none.

    Args:
        score: Its probability: that of its first token times that of its last one, in its window.
    """

    text: str
    start: int | None
    end: int | None
    score: float


def check_tokenizer(tokenizer: "PreTrainedTokenizerBase"):
    """Raise a `UserError` if the tokenizer does not tell which characters a token is, or puts no `[CLS]` in front."""
    if not tokenizer.is_fast:
        raise UserError(
            "question answering needs a tokenizer that knows the place of its tokens (a tokenizer.json); the model "
            f"has a {type(tokenizer).__name__}"
        )
    if tokenizer.cls_token_id not in tokenizer("a")["input_ids"]:
        raise UserError("question answering needs a tokenizer that puts [CLS] before a text: it stands for no answer")


def question_room(tokenizer: "PreTrainedTokenizerBase", max_length: int) -> int:
    """Tokens that a question may take of a window: half of what special tokens leave.

    Raises:
        UserError: If that is none.
    """
    room = (max_length - tokenizer.num_special_tokens_to_add(pair=True)) // 2
    if room < 2:
        raise UserError(f"--max_length {max_length} leaves no room for a question and its context; give a larger one")
    return room


def make_windows(tokenizer: "PreTrainedTokenizerBase", questions: Sequence[Question], max_length: int) -> Windows:
    """Cut contexts into windows that share a quarter of their length with the next, each behind its question.

    Args:
        max_length: Tokens in a window, question and special tokens included.

    Raises:
        UserError: If there is no room for a context.
    """
    room = question_room(tokenizer, max_length)
    texts, cut = _cut_questions(tokenizer, [question.question for question in questions], room)
    encoded = tokenizer(
        texts,
        [question.context for question in questions],
        truncation="only_second",
        max_length=max_length,
        stride=min(max_length // STRIDE_SHARE, room - 1),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        verbose=False,
    )
    owners = list(encoded["overflow_to_sample_mapping"])
    offsets = [
        _context_offsets(encoded["offset_mapping"][index], encoded.sequence_ids(index), questions[owner].context)
        for index, owner in enumerate(owners)
    ]
    inputs = {name: encoded[name] for name in tokenizer.model_input_names if name in encoded}
    return Windows(inputs, owners, offsets, cut)


def _cut_questions(tokenizer, texts: list[str], room: int) -> tuple[list[str], list[int]]:
    """The texts with at most `room` tokens each, and the indexes of those that were longer."""
    encoded = tokenizer(texts, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False)
    ends = [offsets[room - 1][1] if len(offsets) > room else None for offsets in encoded["offset_mapping"]]
    return [text[:end] for text, end in zip(texts, ends, strict=True)], [
        index for index, end in enumerate(ends) if end is not None
    ]


def _context_offsets(offsets, sequence_ids, context: str) -> np.ndarray:
    return np.array(
        [
            pair if sequence == 1 and context[slice(*pair)].strip() else (-1, -1)
            for pair, sequence in zip(offsets, sequence_ids, strict=True)
        ],
        dtype=np.int32,
    ).reshape(-1, 2)


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The stretch `text[start:end]` without the white space at its ends."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def covering_tokens(offsets: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """First and last token of those that cover the characters from `start` to `end`; `None` if the window lacks some.

    Args:
        offsets: As in `Windows`.
    """
    inside = np.flatnonzero(offsets[:, 0] >= 0)
    if not len(inside) or start < offsets[inside[0], 0] or end > offsets[inside[-1], 1]:
        return None
    touched = inside[(offsets[inside, 1] > start) & (offsets[inside, 0] < end)]
    return (int(touched[0]), int(touched[-1])) if len(touched) else None


@dataclass(frozen=True)
class Coverage:
    """What windows and tokens leave of the training answers.

    Args:
        answers: Number of answers that lie in a window whole.
        inexact: Number of these that begin or end inside a token, so that no choice of tokens is the answer.
        ceiling: `exact_match` and `f1` of the tokens that cover the answers: what a perfect model would reach.
        answer_length: Tokens of an answer; as many as `USUAL_ANSWERS` of the answers need at most.
        windows: Number of windows.
        empty: Number of these that hold no answer: their answer is `[CLS]`.
        too_long: Number of questions left out because no window holds their answer whole.
        cut: Number of questions of which a part was cut off.
    """

    answers: int
    inexact: int
    ceiling: dict[str, float]
    answer_length: int
    windows: int
    empty: int
    too_long: int
    cut: int

    def notes(self, max_length: int) -> list[str]:
        """A line for each of these that a user should know."""
        lines = [f"{self.windows:,} windows of {max_length} tokens, {self.empty:,} of them without an answer"]
        if self.too_long:
            lines.append(
                f"{self.too_long:,} questions dropped: no window of {max_length} tokens holds their answer whole"
            )
        if self.cut:
            lines.append(f"{self.cut:,} questions are cut, to leave half of a window to the context")
        if self.inexact:
            exact, f1 = (f"{100 * self.ceiling[name]:.2f}" for name in ("exact_match", "f1"))
            lines.append(
                f"{self.inexact:,} of {self.answers:,} training answers begin or end inside a token: a perfect model "
                f"would reach exact match {exact}, F1 {f1}"
            )
        return lines


def training_windows(
    tokenizer: "PreTrainedTokenizerBase", questions: Sequence[Question], max_length: int
) -> tuple[dict[str, list], Coverage]:
    """Windows with the tokens to find in them, a row a window, for a padding collator and a question-answering head.

    Args:
        questions: Each with a `span`, or impossible.
        max_length: Tokens in a window.

    Returns:
        What the model takes, with `start_positions` and `end_positions`: the position of `[CLS]` in both where the
        window lacks the answer. And what became of the answers.

    Raises:
        UserError: If no window holds an answer.
    """
    columns: dict[str, list] = {}
    spelled: dict[int, tuple[int, int]] = {}  # by question: where the covering tokens begin and end
    lengths: dict[int, int] = {}
    cut = empty = 0
    for begin in range(0, len(questions), CHUNK_SIZE):
        chunk = questions[begin : begin + CHUNK_SIZE]
        windows = make_windows(tokenizer, chunk, max_length)
        cut += len(windows.cut)
        found = _answer_tokens(chunk, windows)
        for owner, offsets, tokens in zip(windows.question, windows.offsets, found, strict=True):
            if tokens:
                first, last = tokens
                spelled[begin + owner] = trimmed(chunk[owner].context, offsets[first, 0], offsets[last, 1])
                lengths[begin + owner] = last - first + 1
        for index, owner in enumerate(windows.question):
            if chunk[owner].is_impossible or begin + owner in spelled:
                empty += not found[index]
                _add_row(columns, windows, index, found[index], tokenizer.cls_token_id)
    if not spelled:
        raise UserError(f"no window of {max_length} tokens holds an answer whole; give a larger --max_length")
    return columns, Coverage(
        answers=len(spelled),
        inexact=sum(trimmed(questions[i].context, *questions[i].span) != place for i, place in spelled.items()),
        ceiling=_ceiling(questions, spelled),
        answer_length=sorted(lengths.values())[math.ceil(USUAL_ANSWERS * len(lengths)) - 1],
        windows=len(columns["input_ids"]),
        empty=empty,
        too_long=sum(question.span is not None for question in questions) - len(spelled),
        cut=cut,
    )


def _answer_tokens(questions: Sequence[Question], windows: Windows) -> list[tuple[int, int] | None]:
    """For each window the first and the last token of the answer; `None` where the window lacks some of it."""
    return [
        questions[owner].span and covering_tokens(offsets, *trimmed(questions[owner].context, *questions[owner].span))
        for owner, offsets in zip(windows.question, windows.offsets, strict=True)
    ]


def _add_row(columns: dict[str, list], windows: Windows, index: int, tokens: tuple[int, int] | None, cls_id: int):
    nowhere = windows.inputs["input_ids"][index].index(cls_id)
    first, last = tokens or (nowhere, nowhere)
    row = {name: values[index] for name, values in windows.inputs.items()}
    for name, value in {**row, "start_positions": first, "end_positions": last}.items():
        columns.setdefault(name, []).append(value)


def _ceiling(questions: Sequence[Question], spelled: dict[int, tuple[int, int]]) -> dict[str, float]:
    texts = [questions[i].context[slice(*place)] for i, place in spelled.items()]
    right = [[questions[i].context[slice(*questions[i].span)]] for i in spelled]
    return score_answers(texts, right, rules_for([question.context for question in questions]))


@dataclass(frozen=True)
class Candidate:
    """The best answer in one window, as a stretch of the context, and the scores of it and of there being none.

    Both scores are logarithms of probabilities, over `[CLS]` and the tokens of the context. A window without the
    answer was taught to say `[CLS]`, so that they compare across windows.
    """

    place: tuple[int, int] | None
    score: float
    no_answer: float


def best_in_window(
    start_logits: np.ndarray, end_logits: np.ndarray, offsets: np.ndarray, cls: int, answer_length: int
) -> Candidate:
    """The best pair of a first and a last token that are in order, in the context and not too far apart.

    Args:
        start_logits, end_logits: `(length,)`.
        offsets: As in `Windows`.
        cls: Position of `[CLS]`.
        answer_length: Tokens of the longest answer.
    """
    inside = np.flatnonzero(offsets[:, 0] >= 0)
    allowed = np.concatenate([[cls], inside])
    start, end = (_log_softmax(logits[allowed].astype(np.float64)) for logits in (start_logits, end_logits))
    no_answer = float(start[0] + end[0])
    if not len(inside):
        return Candidate(None, -math.inf, no_answer)
    scores = start[1:, None] + end[None, 1:]
    distance = inside[None, :] - inside[:, None]
    scores[(distance < 0) | (distance >= answer_length)] = -math.inf
    first, last = np.unravel_index(np.argmax(scores), scores.shape)
    place = int(offsets[inside[first], 0]), int(offsets[inside[last], 1])
    return Candidate(place, float(scores[first, last]), no_answer)


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def choose_answer(question: Question, candidates: Sequence[Candidate], may_be_none: bool) -> Answer:
    """The best answer over all windows of a question.

    Args:
        may_be_none: Whether the model has learnt to say that the context holds none. It holds none if every window
            says so: if there being none is likelier than the best answer in the window that doubts it most.
    """
    best = max(candidates, key=lambda candidate: candidate.score)
    no_answer = min(candidate.no_answer for candidate in candidates)
    if best.place is None or (may_be_none and no_answer > best.score):
        return Answer("", None, None, math.exp(no_answer))
    start, end = trimmed(question.context, *best.place)
    return Answer(question.context[start:end], start, end, math.exp(best.score))


def answer_questions(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[Question],
    max_length: int,
    answer_length: int,
    may_be_none: bool,
) -> tuple[list[Answer], int]:
    """An answer to each question, in their order, and the number of questions that were cut.

    Args:
        tokenizer: One that pads on the right.
        max_length: Tokens in a window.
        answer_length: Tokens of the longest answer.
        may_be_none: Whether a context may hold no answer.
    """
    from training.predict import forward

    answers: list[Answer] = []
    cut = 0
    for begin in range(0, len(questions), CHUNK_SIZE):
        chunk = questions[begin : begin + CHUNK_SIZE]
        windows = make_windows(tokenizer, chunk, max_length)
        cut += len(windows.cut)
        candidates: list[list[Candidate]] = [[] for _ in chunk]
        for indexes, output in forward(model, tokenizer, windows.inputs):
            starts, ends = (logits.float().cpu().numpy() for logits in (output.start_logits, output.end_logits))
            for index, start_logits, end_logits in zip(indexes, starts, ends, strict=True):
                ids = windows.inputs["input_ids"][index]
                cls = ids.index(tokenizer.cls_token_id)
                logits = start_logits[: len(ids)], end_logits[: len(ids)]
                best = best_in_window(*logits, windows.offsets[index], cls, answer_length)
                candidates[windows.question[index]].append(best)
        answers += [
            choose_answer(question, found, may_be_none) for question, found in zip(chunk, candidates, strict=True)
        ]
    return answers, cut
