"""`python -m training predict`: a fine-tuned model's answer for every text of a file, in its order."""

import itertools
import json
import os
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from training import files, labelled
from training.arguments import PredictArguments
from training.errors import UserError
from training.loading import load_tokenizer, loading


if typing.TYPE_CHECKING:
    import numpy as np
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TASK_FILE = "task.json"
BATCH_SIZE = 64
CHUNK_SIZE = 64 * BATCH_SIZE  # texts in memory at a time, and sorted by length together
THRESHOLD = 0.5  # probability from which a label of several applies


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a fine-tuned folder says about its use, in `task.json`.

    Args:
        task: `sequence-classification`.
        problem_type: A `problem_type` of transformers.
        text_column, text_pair_column, label_column: Of the tables it was fine-tuned on; `None` for no second text.
        max_length: Longest text in tokens; longer ones are cut.
        label_names: In the order of their ids; `None` for regression.
    """

    task: str
    problem_type: str
    text_column: str
    text_pair_column: str | None
    label_column: str
    max_length: int
    label_names: list[str] | None


@dataclass(frozen=True)
class FineTuned:
    """A fine-tuned model, ready to answer."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    task: Task


def read_json(path: Path) -> dict:
    """A JSON object.

    Raises:
        UserError: If it cannot be read or is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value


def read_task(folder: str | Path) -> Task:
    """The `task.json` of a fine-tuned folder.

    Raises:
        UserError: If there is no such folder, or it was not made by `finetune`.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        what = "holds no model (no config.json)" if folder.is_dir() else "is no folder"
        raise UserError(f"--model {folder} {what}; name a folder made by `python -m training finetune`")
    if not (folder / TASK_FILE).is_file():
        kinds = read_json(folder / "config.json").get("architectures") or ["a model"]
        raise UserError(
            f"--model {folder} holds {kinds[0]}, not fine-tuned here (no {TASK_FILE}); "
            f"run `python -m training finetune --model {folder} ...` first"
        )
    try:
        return Task(**read_json(folder / TASK_FILE))
    except TypeError as error:
        raise UserError(f"{folder / TASK_FILE} does not describe a task: {error}") from error


def load_finetuned(folder: str | Path) -> FineTuned:
    """Load what `finetune` made, on the accelerator if there is one.

    Raises:
        UserError: If the folder does not hold it.
    """
    task = read_task(folder)
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    import hf_tinybert  # noqa: F401 - registers

    logging.disable_progress_bar()
    tokenizer = load_tokenizer(str(folder))
    with loading(str(folder)):
        model = AutoModelForSequenceClassification.from_pretrained(folder)
    return FineTuned(model.to(best_device()), tokenizer, task)


def best_device() -> "torch.device":
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def encode(
    tokenizer: "PreTrainedTokenizerBase", texts: list[str], pairs: list[str] | None, max_length: int
) -> tuple[dict[str, list[list[int]]], int]:
    """Token ids and masks without padding, cut at `max_length`, and the number of texts that were cut.

    Args:
        texts, pairs: `n` texts, each with its second text; `None` where there is none.
    """
    encoded = dict(tokenizer(texts, pairs, truncation=True, max_length=max_length, verbose=False))
    full = [index for index, ids in enumerate(encoded["input_ids"]) if len(ids) >= max_length]
    if not full:
        return encoded, 0
    chosen = [None if column is None else [column[index] for index in full] for column in (texts, pairs)]
    whole = tokenizer(*chosen, truncation=False, verbose=False)
    return encoded, sum(len(ids) > max_length for ids in whole["input_ids"])


def predict_logits(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    texts: list[str],
    pairs: list[str] | None,
    max_length: int,
    batch_size: int = BATCH_SIZE,
) -> tuple["np.ndarray", int]:
    """Logits in the order of the texts; batches are of similar length, so that there is little padding.

    Args:
        texts, pairs: `n` texts, each with its second text; `None` where there is none.
        max_length: Longest text in tokens; longer ones are cut.

    Returns:
        `(n, num_labels)`, float32, and the number of texts that were cut.
    """
    import numpy as np
    import torch

    encoded, cut = encode(tokenizer, texts, pairs, max_length)
    order = sorted(range(len(texts)), key=lambda index: len(encoded["input_ids"][index]))
    logits = np.empty((len(texts), model.config.num_labels), dtype=np.float32)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            columns = {name: [values[row] for row in rows] for name, values in encoded.items()}
            batch = tokenizer.pad(columns, return_tensors="pt", verbose=False).to(model.device)
            logits[rows] = model(**batch).logits.float().cpu().numpy()
    model.train(was_training)
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


def answers(finetuned: FineTuned, texts: list[str], pairs: list[str] | None) -> tuple[list[dict], int]:
    """For each text what the output file holds, and the number of texts that were cut.

    `label`, `score` and `scores` (label: probability); for several labels `labels` and `scores`; for regression
    `value`.
    """
    problem_type, names = finetuned.task.problem_type, finetuned.task.label_names
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


def read_texts(path: str | Path, task: Task, encoding: str | None) -> Iterator[tuple[str, str | None]]:
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
    columns = {"text": task.text_column, "second text": task.text_pair_column}
    for index, (number, row) in enumerate(files.read_rows(path, encoding)):
        if index == 0:
            labelled.check_columns(path, row, columns)
        text, pair = (
            None if column is None else labelled.cell_text(row.get(column), labelled.place(path, number), column)
            for column in columns.values()
        )
        yield text, pair


def chunks(items: Iterable, size: int) -> Iterator[list]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def check_output(output: str | Path, given: str | Path, option: str = "--output") -> Path:
    """The path of a file to be written.

    Args:
        output: Where to write.
        given: The input, which must not be overwritten.
        option: How the user named the output, for the message.

    Raises:
        UserError: If it is the input, a folder, or in no folder that can be written to.
    """
    path = Path(output)
    if path.exists() and Path(given).exists() and path.samefile(given):
        raise UserError(f"{option} {path} is the input; name another file")
    if path.is_dir():
        raise UserError(f"{option} {path} is a folder; name a file")
    if not os.access(path.absolute().parent, os.W_OK):
        raise UserError(f"{option} {path}: cannot write in {path.absolute().parent}; make that folder or name another")
    return path


def main(arguments: PredictArguments):
    """Carry out the verb: read, answer, write the answers in one step; an older output is replaced.

    Raises:
        UserError: If the model, the input or the output is not as it must be.
    """
    task = read_task(arguments.model)
    output = check_output(arguments.output, arguments.input)
    texts = read_texts(arguments.input, task, arguments.encoding)
    first = next(texts, None)  # before the model is loaded: a bad file is told at once
    if first is None:
        raise UserError(f"{arguments.input} holds no text")
    finetuned = load_finetuned(arguments.model)
    scratch = output.with_name(f".{output.name}.{os.getpid()}")
    count = blank = cut = 0
    try:
        with scratch.open("w", encoding="utf-8", newline="\n") as file:
            for chunk in chunks(itertools.chain([first], texts), CHUNK_SIZE):
                columns = [list(column) for column in zip(*chunk, strict=True)]
                pairs = None if task.text_pair_column is None else columns[1]
                answered, chunk_cut = answers(finetuned, columns[0], pairs)
                file.writelines(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answered)
                cut += chunk_cut
                count += len(chunk)
                blank += sum(not text.strip() for text in columns[0])
        replaced = " (replaced)" if output.exists() else ""
        os.replace(scratch, output)
    finally:
        scratch.unlink(missing_ok=True)
    notes = [f"{count:,} texts answered"]
    notes += [f"{blank:,} of them blank"] if blank else []
    notes += [f"{cut:,} cut at {task.max_length} tokens"] if cut else []
    print(f"{', '.join(notes)}: {output}{replaced}")
