"""The task question-answering: the piece of a text that answers a question on it, or that there is none.

A row of a .jsonl, as on the Hub; SQuAD's nested JSON (1.1, 2.0, CMRC 2018) holds the same:

    {"id": "7", "question": "谁出生于北京？", "context": "王芳出生于北京。",
     "answers": {"text": ["王芳"], "answer_start": [0]}}

No answer at all means that the context holds none. `predict` needs no `answers`.
"""

import typing
from collections.abc import Iterator
from pathlib import Path

from training import squad
from training.arguments import FinetuneArguments
from training.errors import UserError
from training.tasks import comparison


if typing.TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

    from training.predict import FineTuned, Task

AUTO_CLASS = "AutoModelForQuestionAnswering"
PIPELINE = "question-answering"  # a tag of the Hub; transformers has no such pipeline since 5.3
BASELINE = None  # word overlap needs no training rows
# How to use the model without this project. The tokenizer says which part of the context a token is.
USAGE = """\
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({model})
model = AutoModelForQuestionAnswering.from_pretrained({model})
question, context = "...", "..."
batch = tokenizer(question, context, truncation="only_second", return_offsets_mapping=True, return_tensors="pt")
offsets = batch.pop("offset_mapping")[0].tolist()
outside = torch.tensor([part != 1 for part in batch.sequence_ids(0)])
with torch.no_grad():
    output = model(**batch)
start, end = (logits[0].masked_fill(outside, -torch.inf) for logits in (output.start_logits, output.end_logits))
scores = start[:, None] + end[None, :]
scores[torch.ones_like(scores).tril(-1).bool()] = -torch.inf  # an answer ends after its start
first, last = divmod(int(scores.argmax()), len(scores))
print(context[offsets[first][0] : offsets[last][1]])"""
LONG_TEXTS = (
    '`truncation="only_second"` cuts long contexts, and some span is always printed; `python -m training predict` '
    "takes long contexts in windows, and says where there is no answer"
)

OVERLAP = "TF-IDF sentence + overlap"
ROWS = {"model": "this model", "overlap": OVERLAP, "no_answer": "always no answer"}
MAIN_METRIC = "f1"
METRICS = {"exact_match": "exact match", "f1": "F1"}
SHORTEST = 16  # tokens of a window
SAMPLE = 1_000  # contexts on which the price of single characters is measured
NO_USE = {
    "text_column": "text",
    "text_pair_column": None,
    "label_column": "label",
    "problem_type": None,
    "ngram_buckets": 0,
}


def check_arguments(arguments: FinetuneArguments):
    given = [f"--{name}" for name, default in NO_USE.items() if getattr(arguments, name) != default]
    if given:
        raise UserError(f"{', '.join(given)}: of no use to question-answering, which reads {squad.FORMATS}")
    if arguments.max_length < SHORTEST:
        raise UserError(f"--max_length {arguments.max_length} is too short for a question and its context")


def inputs(data: squad.Questions) -> tuple[list[str], list[str]]:
    return [item.question for item in data.questions], [item.context for item in data.questions]


def load_split(arguments: FinetuneArguments) -> tuple[squad.Questions, squad.Questions]:
    training = squad.load_questions(arguments.train_file, arguments.encoding, for_training=True)
    if arguments.validation_file is None:
        return squad.split(training, arguments.seed)
    return training, squad.load_questions(arguments.validation_file, arguments.encoding)


def load_test(path: str | Path, task: "Task", encoding: str | None) -> squad.Questions:
    return squad.load_questions(path, encoding)


def describe_labels(data: squad.Questions) -> list[str]:
    """What was left out, and how many questions have no answer."""
    impossible = sum(question.is_impossible for question in data.questions)
    return data.notes() + ([f"{impossible:,} training questions have no answer"] if impossible else [])


def config_fields(arguments: FinetuneArguments, data: squad.Questions) -> dict:
    return {}


def fit_tokenizer(tokenizer: "PreTrainedTokenizerBase", data: squad.Questions) -> "PreTrainedTokenizerBase":
    """The tokenizer, taking Chinese by single characters, and padding and cut on the right: positions stay.

    With words as tokens an answer may lie inside one: of the names in MSRA's news, 15 % begin or end inside a token
    of a tokenizer trained on that news (580 of 3,819), so that not even a perfect model could point at them.

    Raises:
        UserError: If it does not tell which characters a token is, or puts no `[CLS]` in front.
    """
    from training.answer_spans import check_tokenizer
    from training.tagging import isolate_characters

    check_tokenizer(tokenizer)
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    return isolate_characters(tokenizer, [question.context for question in data.questions[:SAMPLE]])


def encode_training(
    tokenizer: "PreTrainedTokenizerBase", data: squad.Questions, max_length: int
) -> tuple["Dataset", dict[str, int], list[str]]:
    """Windows to train on, what became of the answers, and lines about that."""
    from datasets import Dataset

    from training.answer_spans import training_windows

    columns, coverage = training_windows(tokenizer, data.questions, max_length)
    counts = {
        "windows": coverage.windows,
        "windows_without_answer": coverage.empty,
        "questions_too_long": coverage.too_long,
        "cut": coverage.cut,
        "answers_inside_tokens": coverage.inexact,
        "answer_length": coverage.answer_length,
        "impossible": sum(question.is_impossible for question in data.questions),
    }
    return Dataset.from_dict(columns), counts, coverage.notes(max_length)


def make_collator(tokenizer: "PreTrainedTokenizerBase"):
    from transformers import DataCollatorWithPadding

    return DataCollatorWithPadding(tokenizer)


def fit_baselines(data: squad.Questions, problem_type: None) -> tuple:
    """Nothing: word overlap needs no training rows."""
    return ()


def score_all(finetuned: "FineTuned", baselines: tuple | None, data: squad.Questions) -> dict:
    """Scores of the model beside those of word overlap, and of never answering where that may be right.

    Returns:
        `rows`, `blank`, `cut`, `impossible`, and `model`, `overlap` and `no_answer` with the metrics of each.
    """
    from training.answer_baseline import overlap_answers
    from training.answer_scores import rules_for, score_answers

    found, cut = _answer(finetuned, data.questions)
    impossible = sum(question.is_impossible for question in data.questions)
    given = {"model": [answer.text for answer in found], "overlap": overlap_answers(data.questions)}
    if impossible:
        given["no_answer"] = [""] * len(data)
    rules = rules_for([question.context for question in data.questions])
    right = [question.answers or () for question in data.questions]
    counts = {"rows": len(data), "blank": data.blank, "cut": cut, "impossible": impossible}
    return counts | {name: score_answers(texts, right, rules) for name, texts in given.items()}


def _answer(finetuned: "FineTuned", questions: list[squad.Question]):
    from training.answer_spans import answer_questions

    task = finetuned.task
    return answer_questions(
        finetuned.model, finetuned.tokenizer, questions, task.max_length, task.answer_length, task.may_be_none
    )


def notes(scores: dict, task: "Task") -> list[str]:
    told = (("impossible", "without an answer"), ("blank", "blank"), ("cut", "with a question that is cut"))
    return [f"{scores[name]:,} {what}" for name, what in told if scores[name]]


def table(scores: dict, problem_type: None) -> list[str]:
    rows = {ROWS[key]: scores[key] for key in ROWS if key in scores}
    width = max(map(len, rows))
    lines = [" " * width + "".join(f"{metric:>17}" for metric in METRICS)]
    return lines + [
        f"{name:<{width}}" + "".join(f"{100 * values[metric]:>17.2f}" for metric in METRICS)
        for name, values in rows.items()
    ]


def verdict(scores: dict, problem_type: None) -> list[str]:
    ours, lines = scores["model"][MAIN_METRIC], []
    for key in list(ROWS)[1:]:
        if key in scores:
            theirs = scores[key][MAIN_METRIC]
            shown = f"{100 * ours:.2f}", f"{100 * theirs:.2f}"
            lines.append(comparison(ROWS[key], MAIN_METRIC, ours, theirs, shown))
    return lines


def card_table(results: dict) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    rows = [
        (source, METRICS[metric], *(f"{scores[who][metric]:.4f}" if who in scores else "" for who in ROWS))
        for source, scores in results["scores"].items()
        for metric in METRICS
    ]
    return ("rows", "metric", *ROWS.values()), rows


def read_inputs(path: str | Path, task: "Task", encoding: str | None) -> Iterator[squad.Question]:
    """Questions; their answers, if the file has them, are not looked at."""
    return iter(squad.load_questions(path, encoding, answered=False).questions)


def is_blank(given: squad.Question) -> bool:
    return given.is_blank


def answers(finetuned: "FineTuned", inputs: list[squad.Question]) -> tuple[list[dict], int]:
    """For each question `id`, `question`, `answer`, `start`, `end` and `score`: `context[start:end]` is the answer.

    An empty answer, without a place, says that the context holds none.
    """
    found, cut = _answer(finetuned, inputs)
    return [
        {
            "id": question.id,
            "question": question.question,
            "answer": answer.text,
            "start": answer.start,
            "end": answer.end,
            "score": answer.score,
        }
        for question, answer in zip(inputs, found, strict=True)
    ], cut
