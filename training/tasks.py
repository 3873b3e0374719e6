"""What can be learnt from labelled data: a task is a module; the verbs are the same for all.

A module of a task holds:

    AUTO_CLASS       name of the Auto class of transformers
    PIPELINE         name of the pipeline; EXAMPLE, a name for it in an example; PIPELINE_OPTIONS, its keywords as code
    USAGE            code in place of that example, with {model}, where transformers has no pipeline; else left out
    LONG_TEXTS       what a user of the pipeline does with long texts
    BASELINE         what the model is compared with, in a word; `None` if that needs no training rows

    check_arguments(arguments)              raises a UserError for fields of finetune that the task has no use for
    load_split(arguments)                   training and validation data
    load_test(path, task, encoding)         data to score on, with the labels of the `Task`
    inputs(data)                            the texts as the model reads them, and their second texts or `None`
    describe_labels(data)                   lines about what there is to tell apart
    config_fields(arguments, data)          what the config of the model is told
    fit_tokenizer(tokenizer, data)          the tokenizer as it is published, of which training encodes with a copy
    encode_training(tokenizer, data, max_length)   the `datasets.Dataset` to train on, counts for the results, lines
    make_collator(tokenizer)
    finish(arguments, model, tokenizer, dataset, data)   adds to a trained model what is fitted apart; left out where
                                            nothing is
    fit_baselines(data, problem_type)       whatever `score_all` takes
    score_all(finetuned, baselines, data)   scores: `rows`, `blank`, and under `model` and others the metrics of each;
                                            `baselines` is `None` where the training rows are gone
    notes(scores, task)                     what is particular about the rows scored on
    table(scores, problem_type)             the scores as lines
    verdict(scores, problem_type)           in plain words, a line a comparison: does the model win?
    card_table(results)                     header and rows of the table in the model card
    read_inputs(path, task, encoding)       what `predict` answers: an iterator over any objects
    is_blank(given)                         whether such an object holds no text
    answers(finetuned, inputs)              for each a JSON object, and the number that was cut

Data is any object with what `Data` below has.
"""

import contextlib
import importlib
import typing
from types import ModuleType

from training.errors import UserError


COMPANY = ("ngrams", "crf")  # what may stand beside the encoder of a model
TRUNCATE = "give `truncation=True` with texts that may be longer than the model takes"
TASKS = {
    "sequence-classification": "training.classification",
    "token-classification": "training.tagging",
    "question-answering": "training.question_answering",
}


class Data(typing.Protocol):
    """Labelled rows, as far as tasks have them in common.

    Args:
        label_names: In the order of their ids; `None` where there are none.
        source: Where the rows come from, for people: a file name, without its folder.
        blank: Number of rows with a blank text, kept or dropped.
    """

    label_names: list[str] | None
    source: str
    blank: int

    @property
    def labels(self) -> list: ...

    def text_keys(self) -> list[tuple[str, ...]]:
        """What makes rows the same text."""

    def __len__(self) -> int: ...


def has_company(model) -> bool:
    """Whether something stands beside the encoder of a model: n-grams, a CRF."""
    return any(getattr(model, name, None) is not None for name in COMPANY)


@contextlib.contextmanager
def encoder_alone(model):
    """Leaves out of the logits of `model` what stands beside its encoder."""
    kept = {name: getattr(model, name) for name in COMPANY if hasattr(model, name)}
    try:
        for name in kept:
            setattr(model, name, None)
        yield
    finally:
        for name, part in kept.items():
            setattr(model, name, part)


def comparison(other: str, metric: str, ours: float, theirs: float, shown: tuple[str, str]) -> str:
    """In plain words whether the model beats another.

    Args:
        other: What it is compared with.
        metric: What is compared, the more the better.
        ours, theirs: The scores; `shown`, how they are written.
    """
    beats = "beats" if ours > theirs else "does NOT beat"
    sign = ">" if ours > theirs else "=" if ours == theirs else "<"
    return f"the model {beats} {other}: {metric} {shown[0]} {sign} {shown[1]}"


def task_module(name: str) -> ModuleType:
    """The module of a task.

    Raises:
        UserError: If there is no such task.
    """
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; there are {', '.join(TASKS)}")
    return importlib.import_module(TASKS[name])
