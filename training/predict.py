"""`python -m training predict`: a fine-tuned model's answer for every text of a file, in its order."""

import dataclasses
import itertools
import json
import os
import typing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from training import labelled, progress
from training.arguments import PredictArguments
from training.errors import UserError
from training.loading import (
    check_complete,
    check_encoder,
    check_finite,
    check_folder,
    check_vocabulary,
    load_tokenizer,
    loading,
    read_as_text,
)
from training.matmul import fast_products
from training.next_command import tell_next
from training.onnx_model import OnnxModel, load_onnx
from training.run_folder import TASK_FILE, read_json
from training.tasks import TASKS, task_module


if typing.TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
    from transformers.utils import ModelOutput

CHUNK_SIZE = 4096  # texts in memory at a time, and sorted by length together
# Of a batch. On 2 cores what fits the cache is fastest; an accelerator wants more at a time.
BATCH_TOKENS = {"cpu": 4096, "other": 65_536}
PADDING = 0.05  # of the shortest text of a batch, at most


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

    model: "PreTrainedModel | OnnxModel"
    tokenizer: "PreTrainedTokenizerBase"
    task: Task


def read_task(folder: str | Path) -> Task:
    """The `task.json` of a fine-tuned folder.

    Raises:
        UserError: If there is no such folder, or it was not made by `finetune`.
    """
    folder = Path(folder)
    check_folder(folder, "finetune")
    if not (folder / TASK_FILE).is_file():
        kinds = read_json(folder / "config.json").get("architectures") or ["a model"]
        raise UserError(
            f"--model {folder} holds {kinds[0]}, not fine-tuned here (no {TASK_FILE}); "
            f"run `python -m training finetune --model {folder} ...` first"
        )
    return _as_task(folder / TASK_FILE, read_json(folder / TASK_FILE))


def _as_task(path: Path, values: dict) -> Task:
    unknown = sorted(values.keys() - {field.name for field in dataclasses.fields(Task)})
    if unknown:
        raise UserError(f"{path} holds {', '.join(unknown)}, written by a newer version of this project; update it")
    needed = [field.name for field in dataclasses.fields(Task) if field.default is dataclasses.MISSING]
    missing = [name for name in needed if name not in values]
    if missing:
        raise UserError(f"{path} does not describe a task: it lacks {', '.join(missing)}")
    task = Task(**values)
    if task.task not in TASKS:
        raise UserError(f"{path} has the task {task.task!r}; this version knows {', '.join(TASKS)}: update it")
    names = task.label_names
    wrong = {
        "max_length": type(task.max_length) is not int or task.max_length < 1,
        "label_names": names is not None
        and not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)),
        "text_column": not isinstance(task.text_column, str),
        "text_pair_column": not isinstance(task.text_pair_column, str | None),
        "label_column": not isinstance(task.label_column, str),
        "problem_type": task.task == "sequence-classification" and task.problem_type not in labelled.PARSERS,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise UserError(f"{path} does not describe a task: {name} is {getattr(task, name)!r}")
    return task


def load_finetuned(folder: str | Path) -> FineTuned:
    """Load what `finetune` made, on the accelerator if there is one.

    Raises:
        UserError: If the folder does not hold it.
    """
    folder, task = Path(folder), read_task(folder)
    tokenizer, _ = _load_beside_weights(folder)
    return _fitting(folder, FineTuned(_load_weights(folder, task), tokenizer, task))


def load_to_answer(folder: str | Path) -> tuple[FineTuned, str]:
    """As `load_finetuned`, but on CPU through the ONNX file that `export` put into the folder, which is faster.

    Returns:
        Also a line about that file, empty if there is none. A file that was not made from the weights beside it is
        not used.

    Raises:
        UserError: If the folder does not hold a fine-tuned model, or its ONNX file is damaged.
    """
    folder, task = Path(folder), read_task(folder)
    tokenizer, config = _load_beside_weights(folder)
    model, line = load_onnx(folder, config) if best_device().type == "cpu" else (None, "")
    return _fitting(folder, FineTuned(model or _load_weights(folder, task), tokenizer, task)), line


def _load_beside_weights(folder: Path) -> tuple["PreTrainedTokenizerBase", "PretrainedConfig"]:
    import transformers

    import hf_tinybert  # noqa: F401 - registers

    progress.library_bars_off()
    tokenizer = load_tokenizer(folder)
    read_as_text(tokenizer)
    with loading(str(folder)):
        config = transformers.AutoConfig.from_pretrained(folder)
        check_encoder(str(folder), config)
    return tokenizer, config


def _load_weights(folder: Path, task: Task) -> "PreTrainedModel":
    import transformers

    with loading(str(folder)):
        model, info = getattr(transformers, task_module(task.task).AUTO_CLASS).from_pretrained(
            folder, ignore_mismatched_sizes=True, output_loading_info=True
        )
    check_complete(str(folder), "a fine-tuned model", info)
    check_finite(str(folder), model)
    return model.to(best_device())


def _fitting(folder: Path, finetuned: FineTuned) -> FineTuned:
    """The same, provided that its parts fit each other."""
    config, names = finetuned.model.config, finetuned.task.label_names
    check_vocabulary(f"the tokenizer of --model {folder}", finetuned.tokenizer, config.vocab_size)
    if names is not None and len(names) != config.num_labels:
        raise UserError(
            f"{folder / TASK_FILE} names {len(names)} labels, but the model beside it has "
            f"{config.num_labels}; fetch the folder again"
        )
    return finetuned


def best_device() -> "torch.device":
    import torch

    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def forward(
    model: "PreTrainedModel | OnnxModel", tokenizer: "PreTrainedTokenizerBase", encoded: dict[str, list[list[int]]]
) -> Iterator[tuple[list[int], "ModelOutput"]]:
    """The outputs of the model in eval mode, by batches of `batches_by_length`.

    Args:
        encoded: What the model takes, without padding, a list a row.

    Returns:
        Pairs of row numbers and the outputs for these rows.
    """

    def answer(rows: list[int]) -> "ModelOutput":
        columns = {name: [values[row] for row in rows] for name, values in encoded.items()}
        return _outputs(model, _padded(tokenizer, columns))

    was_training = model.training
    model.eval()
    max_tokens = BATCH_TOKENS["cpu" if model.device.type == "cpu" else "other"]
    batches = list(batches_by_length(list(map(len, encoded["input_ids"])), max_tokens))
    if len(batches) == 1:  # one text, say: a step costs a thread, a tenth of the answer
        yield batches[0], answer(batches[0])
    else:
        with progress.step("answering", "texts", len(encoded["input_ids"])) as step:
            for rows, outputs in _answer_all(model, batches, answer):
                yield rows, outputs
                step.done += len(rows)
    model.train(was_training)


def _padded(tokenizer: "PreTrainedTokenizerBase", columns: dict[str, list[list[int]]]) -> dict[str, "torch.Tensor"]:
    import torch

    if len(set(map(len, columns["input_ids"]))) == 1:  # nothing to pad: `pad` would take three times as long
        return {name: torch.tensor(values) for name, values in columns.items()}
    return dict(tokenizer.pad(columns, return_tensors="pt", verbose=False))


def _outputs(model: "PreTrainedModel | OnnxModel", batch: dict[str, "torch.Tensor"]) -> "ModelOutput":
    if isinstance(model, OnnxModel):
        return model(**batch)
    import torch

    with torch.inference_mode(), fast_products():
        return model(**{name: values.to(model.device) for name, values in batch.items()})


def _answer_all(model: "PreTrainedModel | OnnxModel", batches: list[list[int]], answer: Callable) -> Iterator:
    """Batches with their outputs; those of an ONNX file are computed side by side, each on one core."""
    if not isinstance(model, OnnxModel):
        yield from ((rows, answer(rows)) for rows in batches)
        return
    import torch

    with ThreadPoolExecutor(torch.get_num_threads()) as executor:
        # The longest first, so that no core is left alone with them at the end.
        batches = batches[::-1]
        yield from zip(batches, executor.map(answer, batches), strict=True)


def batches_by_length(lengths: list[int], max_tokens: int) -> Iterator[list[int]]:
    """Row numbers, the shortest first, in batches with hardly any padding.

    Args:
        lengths: In tokens, of each row.
        max_tokens: Of a batch, padding included; a longer row is a batch by itself.
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        length = lengths[row]
        if batch and ((len(batch) + 1) * length > max_tokens or length > (1 + PADDING) * lengths[batch[0]]):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


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


def tell_how_to_predict(folder: str | Path, task: Task):
    """Print the command that has a fine-tuned model answer."""
    kind = "QUESTIONS.json" if task.task == "question-answering" else "TEXTS.txt"
    tell_next("predict", model=folder, input="PAIRS.tsv" if task.text_pair_column else kind, output="answers.jsonl")


def main(arguments: PredictArguments):
    """Carry out the verb: read, answer, write the answers in one step; an older output is replaced.

    Raises:
        UserError: If the model, the input or the output is not as it must be.
    """
    task = read_task(arguments.model)
    output = check_output(arguments.output, arguments.input)
    module = task_module(task.task)
    # Read to its end before the model is loaded: a bad row is told at once.
    inputs = module.read_inputs(arguments.input, task, arguments.encoding)
    count = sum(1 for _ in progress.track(inputs, "reading", "texts"))
    if not count:
        raise UserError(f"{arguments.input} holds no text")
    finetuned, line = load_to_answer(arguments.model)
    if line:
        print(line)
    scratch = output.with_name(f".{output.name}.{os.getpid()}")
    blank = cut = 0
    try:
        with (
            progress.step("answering", "texts", count) as step,
            scratch.open("w", encoding="utf-8", newline="\n") as file,
        ):
            for chunk in chunks(module.read_inputs(arguments.input, task, arguments.encoding), CHUNK_SIZE):
                answered, chunk_cut = module.answers(finetuned, chunk)
                file.writelines(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answered)
                cut += chunk_cut
                blank += sum(map(module.is_blank, chunk))
                step.done += len(chunk)
        replaced = " (replaced)" if output.exists() else ""
        os.replace(scratch, output)
    finally:
        scratch.unlink(missing_ok=True)
    notes = [f"{count:,} texts answered"]
    notes += [f"{blank:,} of them blank"] if blank else []
    notes += [f"{cut:,} cut at {task.max_length} tokens"] if cut else []
    print(f"{', '.join(notes)}: {output}{replaced}")
    tell_next("evaluate", model=arguments.model, test_file="LABELLED.tsv")
