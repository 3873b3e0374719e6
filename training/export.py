"""`python -m training export`: a model folder's ONNX files, for ONNX Runtime, Optimum and Transformers.js."""

import importlib.util
import itertools
import logging
import math
import os
import tempfile
import typing
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from training import labelled, progress
from training.arguments import ExportArguments
from training.classification import decide
from training.errors import UserError
from training.loading import (
    check_complete,
    check_finite,
    check_folder,
    check_own,
    check_vocabulary,
    load_tokenizer,
    loading,
    read_as_text,
)
from training.next_command import tell_next
from training.onnx_model import MODEL_FILE, ONNX_FOLDER, SOURCE_KEY, OnnxModel, fingerprint
from training.predict import FineTuned, Task, read_task
from training.run_folder import read_json
from training.tasks import Data, task_module


if typing.TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

QUANTIZED_FILE = "model_quantized.onnx"

NEEDED = ("onnx", "onnxruntime", "onnxscript")
ATTENTION = "tinybert_onnx"
INPUTS = ("input_ids", "attention_mask")
OUTPUTS = {
    "TinyBertModel": ("last_hidden_state",),
    "TinyBertForMaskedLM": ("logits",),
    "TinyBertForSequenceClassification": ("logits",),
    "TinyBertForTokenClassification": ("logits",),
    "TinyBertForQuestionAnswering": ("start_logits", "end_logits"),
    "TinyBertForMultipleChoice": ("logits",),
}
CHECKED_BATCH_SIZES = (1, 3, 32)
CHECKED_LENGTHS = (1, 7, 128, 512)
NUM_CHOICES = 2
TOLERANCE = 1e-4
SYNTHETIC_TEXTS = 200
SYNTHETIC_LENGTH = 32


@dataclass
class Evaluation:
    """Labelled rows to score exported models on.

    Args:
        task: What the model was fine-tuned for.
        data: The rows with their labels.
        inputs: The same rows as `predict` reads them.
    """

    task: Task
    data: Data
    inputs: list


def export_onnx(model: "PreTrainedModel", path: str | Path, source: str = ""):
    """Write a model as one ONNX file with batch size and length free, by torch's exporter in its own opset.

    Args:
        model: A TinyBERT model of any head, on CPU; left as it was.
        path: File to write. Beyond 2 GB, the weights go into a second file beside it, as ONNX demands.
        source: The `fingerprint` of the model's folder, to be kept in the file.
    """
    import torch
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    example = random_batch(model, batch_size=2, sequence_length=min(7, model.config.max_position_embeddings))
    axes = (
        ["batch_size", "num_choices", "sequence_length"]
        if example["input_ids"].ndim == 3
        else ["batch_size", "sequence_length"]
    )
    shapes = {name: dict(enumerate(axes)) for name in INPUTS}
    implementation, was_training = model.config._attn_implementation, model.training
    _register_attention()
    model.set_attn_implementation(ATTENTION)
    model.eval()
    try:
        with _quiet():
            program = torch.onnx.export(
                model,
                kwargs=example,
                dynamo=True,
                input_names=list(INPUTS),
                output_names=list(OUTPUTS[type(model).__name__]),
                dynamic_shapes=shapes,
                verbose=False,
            )
            ClearMetadataAndDocStringPass()(program.model)  # stack traces, with paths of this machine in them
            program.model.metadata_props[SOURCE_KEY] = source
            program.save(path)
    finally:
        model.set_attn_implementation(implementation)
        model.train(was_training)


def _register_attention():
    """Tell transformers of the attention that is exported: eager, with a mask of keys that pairs are not made of.

    Exported sdpa gives other numbers than torch's for a text of nothing but padding; eager gives the same. Its own
    mask is (B, 1, S, S) and takes an eighth of the nodes of a graph of two layers.
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface

    from hf_tinybert.modeling_tinybert import eager_attention_forward

    def mask_of_keys(attention_mask: torch.Tensor, dtype: torch.dtype, **ignored) -> torch.Tensor:
        return torch.where(attention_mask[:, None, None, :] != 0, 0.0, torch.finfo(dtype).min)

    AttentionInterface.register(ATTENTION, eager_attention_forward)
    AttentionMaskInterface.register(ATTENTION, mask_of_keys)


@contextmanager
def _quiet():
    """Without what torch's exporter says of torchvision, of its own deprecations and of axes that share a name."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def quantize_onnx(path: str | Path, quantized_path: str | Path):
    """Write the int8 form of an ONNX file: weights and embeddings stored, matrices multiplied in 8 bits.

    Activations are measured for each batch as it comes (dynamic quantization), so no calibration text is needed.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    prepared = Path(quantized_path).with_suffix(".prepared")
    try:
        quant_pre_process(path, prepared, skip_optimization=True, skip_symbolic_shape=True)
        quantize_dynamic(
            prepared,
            quantized_path,
            op_types_to_quantize=["MatMul", "Gather"],  # Gather: the embeddings are most of a small model
            # 7-bit weights: CPUs without VNNI add products of 8 bits in 16, which overflow; a scale for each column of
            # a matrix makes up for the lost bit. On 2,000 reviews 99.85 % of labels stayed, with 8 bits 99.8 %.
            per_channel=True,
            reduce_range=True,
            weight_type=QuantType.QInt8,
        )
    finally:
        prepared.unlink(missing_ok=True)


def random_batch(model: "PreTrainedModel", batch_size: int, sequence_length: int) -> dict[str, "torch.Tensor"]:
    """Random ids of the whole vocabulary: the first text without padding, the second with it on the right, the third
    on the left, and so on.

    Returns:
        `input_ids` and `attention_mask`, `(batch_size, sequence_length)`, with a dimension of choices after the first
        if the model chooses among texts.
    """
    import torch

    generator = torch.Generator().manual_seed(sequence_length)
    choices = (NUM_CHOICES,) if type(model).__name__ == "TinyBertForMultipleChoice" else ()
    shape = (batch_size, *choices, sequence_length)
    mask = torch.ones(shape, dtype=torch.long)  # never the ids themselves: the exporter takes one tensor as one input
    mask[1::3, ..., (sequence_length + 1) // 2 :] = 0
    mask[2::3, ..., : sequence_length // 2] = 0
    return {
        "input_ids": torch.randint(model.config.vocab_size, shape, generator=generator),
        "attention_mask": mask,
    }


def checked_lengths(model: "PreTrainedModel") -> list[int]:
    """The lengths to compare at, as far as the model has positions for them."""
    return sorted({min(length, model.config.max_position_embeddings) for length in CHECKED_LENGTHS})


def largest_difference(model: "PreTrainedModel", onnx_model: OnnxModel) -> float:
    """The largest difference of any output from torch's, over batches of many shapes with padding in them.

    torch answers a text at a time and with the attention that it loads with, so that the figure also covers what
    batching and another attention change.

    Returns:
        The difference; NaN if there is a NaN on either side, or in the answer to a text of nothing but padding.
    """
    import torch

    lengths = checked_lengths(model)
    differences = []
    for batch_size, length in itertools.product(CHECKED_BATCH_SIZES, lengths):
        batch = random_batch(model, batch_size, length)
        answer = onnx_model(**batch)
        for row in range(batch_size):
            with torch.inference_mode():
                expected = model(**{name: values[row : row + 1] for name, values in batch.items()})
            differences += [
                float((getattr(answer, name)[row] - expected[name][0]).abs().max()) for name in onnx_model.output_names
            ]
    padding = random_batch(model, 3, lengths[-1])
    padding["attention_mask"][0] = 0
    answer = onnx_model(**padding)
    finite = all(bool(getattr(answer, name).isfinite().all()) for name in onnx_model.output_names)
    return math.nan if not finite or any(map(math.isnan, differences)) else max(differences)


@dataclass(frozen=True)
class Agreement:
    """How an int8 model's answers compare with torch's.

    Args:
        same, total: Number of labels that agree, of all; none where the outputs hold no labels.
        difference, reach: The largest difference of a number, and the largest number.
    """

    same: int
    total: int
    difference: float
    reach: float


def compare_answers(model: "PreTrainedModel", onnx_model: OnnxModel) -> Agreement:
    """Compare on single texts of random ids."""
    import torch

    length = min(SYNTHETIC_LENGTH, model.config.max_position_embeddings)
    texts = random_batch(model, SYNTHETIC_TEXTS, length)
    texts["attention_mask"].fill_(1)
    same = total = 0
    difference = reach = 0.0
    for row in range(SYNTHETIC_TEXTS):
        batch = {name: values[row : row + 1] for name, values in texts.items()}
        answer = onnx_model(**batch)
        with torch.inference_mode():
            expected = model(**batch)
        for name in onnx_model.output_names:
            theirs, ours = expected[name].numpy(), getattr(answer, name).numpy()
            difference = max(difference, float(abs(theirs - ours).max()))
            reach = max(reach, float(abs(theirs).max()))
            problem_type = _problem_type(model)
            if problem_type is not None:
                agree = decide(theirs, problem_type) == decide(ours, problem_type)
                same, total = same + int(agree.sum()), total + agree.size
    return Agreement(same, total, difference, reach)


def _problem_type(model: "PreTrainedModel") -> str | None:
    """How labels are read from the model's outputs; `None` where they hold none."""
    kind = type(model).__name__
    if kind == "TinyBertModel":
        return None
    if kind != "TinyBertForSequenceClassification":
        return labelled.SINGLE_LABEL
    if model.config.problem_type == labelled.REGRESSION or model.config.num_labels == 1:
        return None
    return model.config.problem_type or labelled.SINGLE_LABEL


def check_installed():
    """Raise a `UserError` unless the libraries of the `onnx` extra are there."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"export needs {', '.join(missing)}; pip install 'hf-tinybert[onnx]'")


def read_architecture(folder: Path) -> str:
    """The class of the model in a folder.

    Raises:
        UserError: If it holds no TinyBERT model.
    """
    check_folder(folder, "pretrain")
    config = read_json(folder / "config.json")
    check_own(folder, config)
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or architectures[0] not in OUTPUTS:
        raise UserError(
            f"{folder / 'config.json'} names {architectures} under architectures, but must name one of "
            f"{', '.join(OUTPUTS)}"
        )
    return architectures[0]


def load_model(folder: Path, architecture: str) -> "PreTrainedModel":
    """The model of a folder, on CPU in float32, ready to answer.

    Raises:
        UserError: If it does not load, lacks weights or has some that are no numbers.
    """
    import torch

    import hf_tinybert

    progress.library_bars_off()
    with loading(str(folder)):
        model, info = getattr(hf_tinybert, architecture).from_pretrained(
            folder, dtype=torch.float32, ignore_mismatched_sizes=True, output_loading_info=True
        )
    check_complete(str(folder), architecture, info)
    check_finite(str(folder), model)
    return model.eval()


def main(arguments: ExportArguments):
    """Carry out the verb: export, check against torch, quantize, compare; then put the files in their place.

    Raises:
        UserError: If something is missing or damaged, or the exported model answers otherwise than torch.
    """
    check_installed()
    folder = Path(arguments.model)
    architecture = read_architecture(folder)
    evaluation = _read_evaluation(arguments, architecture)
    if not os.access(folder, os.W_OK):
        raise UserError(f"--model {folder}: cannot write there; copy it to a folder of your own")
    model, tokenizer = load_model(folder, architecture), load_tokenizer(folder)
    check_vocabulary(f"the tokenizer of --model {folder}", tokenizer, model.config.vocab_size)
    # Inside the model's folder, so that a rename can take the files to their place.
    with tempfile.TemporaryDirectory(prefix=f".{ONNX_FOLDER}.", dir=folder) as staging:
        path = Path(staging) / MODEL_FILE
        with progress.step("exporting"):
            export_onnx(model, path, fingerprint(folder))
        exported = {MODEL_FILE: OnnxModel(path, model.config)}
        _check(model, exported[MODEL_FILE])
        if arguments.quantize is not None:
            quantized_path = path.with_name(QUANTIZED_FILE)
            quantize_onnx(path, quantized_path)
            exported[QUANTIZED_FILE] = OnnxModel(quantized_path, model.config)
            _tell_agreement(compare_answers(model, exported[QUANTIZED_FILE]), told_more=evaluation is not None)
        if evaluation is not None:
            _tell_scores({"torch": model, **exported}, tokenizer, evaluation)
        _publish(Path(staging), folder / ONNX_FOLDER)
    tell_next("validate", model=folder)


def _read_evaluation(arguments: ExportArguments, architecture: str) -> "Evaluation | None":
    """The labelled rows of the evaluation file, if one was given."""
    if arguments.evaluation_file is None:
        if arguments.encoding is not None:
            raise UserError("--encoding is that of an --evaluation_file, but none is given")
        return None
    task = read_task(arguments.model)
    module = task_module(task.task)
    from hf_tinybert.configuration_tinybert import AUTO_MAP

    if AUTO_MAP[module.AUTO_CLASS].rpartition(".")[2] != architecture:
        raise UserError(f"--model {arguments.model} is of the task {task.task}, but its config names {architecture}")
    given = arguments.evaluation_file, task, arguments.encoding
    return Evaluation(task, module.load_test(*given), list(module.read_inputs(*given)))


def _check(model: "PreTrainedModel", onnx_model: OnnxModel):
    """Tell how far the exported model is from torch's; raise a `UserError` if too far."""
    difference = largest_difference(model, onnx_model)
    shapes = f"batch {'/'.join(map(str, CHECKED_BATCH_SIZES))} x length {'/'.join(map(str, checked_lengths(model)))}"
    if not difference <= TOLERANCE:  # NaN is none either
        raise UserError(
            f"the ONNX model of --model {model.name_or_path} differs from torch by {difference:.2g} ({shapes}), which "
            f"is more than {TOLERANCE:g}; nothing was written; look for NaN and for huge numbers in its weights"
        )
    print(f"largest difference from torch: {difference:.1e} ({shapes}, with padding on either side)", flush=True)


def _tell_agreement(agreement: Agreement, told_more: bool):
    figures = f"largest difference from torch {agreement.difference:.2g}, where numbers reach {agreement.reach:.2g}"
    if agreement.total:
        figures = (
            f"{agreement.same / agreement.total:.1%} of {agreement.total:,} labels as torch gives them; {figures}"
        )
    print(f"int8 on {SYNTHETIC_TEXTS} texts of random ids: {figures}")
    if not told_more:
        print("random ids are poor evidence: they resemble no text; --evaluation_file compares on labelled text")


def _tell_scores(models: dict, tokenizer: "PreTrainedTokenizerBase", evaluation: Evaluation):
    """Print the scores of each model, and how often it answers as torch does."""
    task = evaluation.task
    read_as_text(tokenizer)
    module, expected = task_module(task.task), None
    print(f"scores on {evaluation.data.source}: {len(evaluation.data):,} rows")
    for name, model in models.items():
        finetuned = FineTuned(model, tokenizer, task)
        scores = module.score_all(finetuned, None, evaluation.data)["model"]
        answers = [_without_scores(answer) for answer in module.answers(finetuned, evaluation.inputs)[0]]
        expected = answers if expected is None else expected
        line = "  ".join(f"{metric} {value:.4f}" for metric, value in scores.items() if isinstance(value, float))
        if task.problem_type != labelled.REGRESSION:
            same = sum(ours == theirs for ours, theirs in zip(answers, expected, strict=True))
            line += f"  answers as torch {same / max(1, len(answers)):.2%}"
        print(f"  {name:<{len(QUANTIZED_FILE)}}  {line}")


def _without_scores(answer):
    """What was answered, without how sure the model is."""
    if isinstance(answer, dict):
        return {key: _without_scores(value) for key, value in answer.items() if key not in ("score", "scores")}
    return [_without_scores(part) for part in answer] if isinstance(answer, list) else answer


def _publish(staging: Path, target: Path):
    """Move the files of a folder into another, replacing those of their names, and tell."""
    target.mkdir(exist_ok=True)
    new = sorted(path.name for path in staging.iterdir())
    for name in reversed(new):  # weights that lie in a file of their own before the model that names it
        replaced = ", in place of an earlier one" if (target / name).exists() else ""
        os.replace(staging / name, target / name)
        print(f"{target / name}: {(target / name).stat().st_size / 1e6:,.1f} MB{replaced}")
    if QUANTIZED_FILE not in new and (target / QUANTIZED_FILE).exists():
        print(f"{target / QUANTIZED_FILE} is that of an earlier export and stays; --quantize int8 makes it anew")
