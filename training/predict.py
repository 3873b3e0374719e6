"""`python -m training predict`: a fine-tuned model's answer for every text of a file, in its order."""

import itertools
import json
import os
import typing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from training.arguments import PredictArguments
from training.errors import UserError
from training.loading import load_tokenizer, loading
from training.tasks import task_module


if typing.TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import ModelOutput

TASK_FILE = "task.json"
BATCH_SIZE = 64
CHUNK_SIZE = 64 * BATCH_SIZE  # texts in memory at a time, and sorted by length together


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a fine-tuned folder says about its use, in `task.json`.

    Args:
        task: A name of `training.tasks.TASKS`.
        problem_type: A `problem_type` of transformers; `None` for a task that has no kinds.
        text_column, text_pair_column, label_column: Of the tables it was fine-tuned on; `None` for no second text.
        max_length: Longest text in tokens; longer ones are cut, or taken in pieces, by the task.
        label_names: In the order of their ids; `None` where there are none.
        answer_length: Tokens of the longest answer to a question; `None` for other tasks.
        may_be_none: Whether a question may have no answer.
    """

    task: str
    problem_type: str | None
    text_column: str
    text_pair_column: str | None
    label_column: str
    max_length: int
    label_names: list[str] | None
    answer_length: int | None = None
    may_be_none: bool = False


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
        task = Task(**read_json(folder / TASK_FILE))
        task_module(task.task)
    except (TypeError, UserError) as error:
        raise UserError(f"{folder / TASK_FILE} does not describe a task: {error}") from error
    return task


def load_finetuned(folder: str | Path) -> FineTuned:
    """Load what `finetune` made, on the accelerator if there is one.

    Raises:
        UserError: If the folder does not hold it.
    """
    task = read_task(folder)
    import transformers
    from transformers.utils import logging

    import hf_tinybert  # noqa: F401 - registers

    logging.disable_progress_bar()
    tokenizer = load_tokenizer(str(folder))
    with loading(str(folder)):
        model = getattr(transformers, task_module(task.task).AUTO_CLASS).from_pretrained(folder)
    return FineTuned(model.to(best_device()), tokenizer, task)


def best_device() -> "torch.device":
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def forward(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", encoded: dict[str, list[list[int]]]
) -> Iterator[tuple[list[int], "ModelOutput"]]:
    """The outputs of the model in eval mode, by batches of similar length, so that there is little padding.

    Args:
        encoded: What the model takes, without padding, a list a row.

    Returns:
        Pairs of row numbers and the outputs for these rows.
    """
    import torch

    order = sorted(range(len(encoded["input_ids"])), key=lambda index: len(encoded["input_ids"][index]))
    was_training = model.training
    model.eval()
    for start in range(0, len(order), BATCH_SIZE):
        rows = order[start : start + BATCH_SIZE]
        columns = {name: [values[row] for row in rows] for name, values in encoded.items()}
        batch = tokenizer.pad(columns, return_tensors="pt", verbose=False).to(model.device)
        with torch.inference_mode():
            outputs = model(**batch)
        yield rows, outputs
    model.train(was_training)


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
    module = task_module(task.task)
    inputs = module.read_inputs(arguments.input, task, arguments.encoding)
    first = next(inputs, None)  # before the model is loaded: a bad file is told at once
    if first is None:
        raise UserError(f"{arguments.input} holds no text")
    finetuned = load_finetuned(arguments.model)
    scratch = output.with_name(f".{output.name}.{os.getpid()}")
    count = blank = cut = 0
    try:
        with scratch.open("w", encoding="utf-8", newline="\n") as file:
            for chunk in chunks(itertools.chain([first], inputs), CHUNK_SIZE):
                answered, chunk_cut = module.answers(finetuned, chunk)
                file.writelines(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answered)
                cut += chunk_cut
                count += len(chunk)
                blank += sum(map(module.is_blank, chunk))
        replaced = " (replaced)" if output.exists() else ""
        os.replace(scratch, output)
    finally:
        scratch.unlink(missing_ok=True)
    notes = [f"{count:,} texts answered"]
    notes += [f"{blank:,} of them blank"] if blank else []
    notes += [f"{cut:,} cut at {task.max_length} tokens"] if cut else []
    print(f"{', '.join(notes)}: {output}{replaced}")
