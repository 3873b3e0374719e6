"""What a stranger's process makes of a model folder: hf_tinybert is absent, the model's code comes from the folder.

`training.validate` runs this file by itself (`python -I stranger.py FOLDER SCRATCH THREADS`) and imports it too, so
that both processes put the same inputs through the same lines. It imports nothing of this repository.
"""

import io
import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple


if TYPE_CHECKING:
    import torch

PACKAGE = "hf_tinybert"
MODEL_TYPE = "tinybert"
REPORT_FILE, NUMBERS_FILE = "report.json", "numbers.safetensors"
MASK_TOLERANCE, PADDING_TOLERANCE = 1e-6, 1e-5
TEXTS = (
    "",
    " ",
    "房间很干净，服务也好！",
    "The quick brown fox, naïve café.",
    "iPhone12的屏幕不错 no 3 ok。",
    "ＡＢＣ１２３　全角，标点！？",
    "😀👩‍👩‍👧‍👦🇨🇳 emoji",
    "[CLS] [SEP][PAD][MASK] [UNK] [mask] ##s <s></s> <mask>",
    "多\n行\t文\u3000本\u200b零宽\ufeff",
    "𠮷野家 龘靐齉 ﬁ ① ㈱",
    "e\u0301 \u0000 \x7f \\ \" ' `",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 4,
    "我" * 40,
)


class Check(NamedTuple):
    """A line of the report; `passed` is `None` where the check was skipped, `detail` then says why."""

    name: str
    passed: bool | None
    detail: str


class CheckError(Exception):
    """What a check has found."""


def require(condition: bool, fault: str):
    """Raise a `CheckError` unless the condition holds."""
    if not condition:
        raise CheckError(fault)


class SkipError(Exception):
    """A check has nothing to look at, and why."""


def skip(reason: str):
    """End a check that has nothing to look at."""
    raise SkipError(reason)


def run_check(name: str, check: Callable[..., str], *arguments) -> Check:
    """The line of one check: a `CheckError`, or whatever else a damaged folder raises, fails it."""
    try:
        return Check(name, True, check(*arguments))
    except SkipError as reason:
        return Check(name, None, str(reason))
    except CheckError as fault:
        return Check(name, False, str(fault))
    except Exception as error:  # the code and files of others: anything may come, tokenizers raises bare Exception
        return Check(name, False, " ".join(f"{type(error).__name__}: {error}".split())[:300])


class Head(NamedTuple):
    """How classes of one ending are loaded, and the pipelines that take them, the main one first."""

    auto_class: str
    pipelines: tuple[str, ...]


HEADS = {
    "ForMaskedLM": Head("AutoModelForMaskedLM", ("fill-mask", "feature-extraction")),
    "ForSequenceClassification": Head(
        "AutoModelForSequenceClassification", ("text-classification", "feature-extraction")
    ),
    "ForTokenClassification": Head("AutoModelForTokenClassification", ("token-classification", "feature-extraction")),
    # transformers 5 has no pipeline for these two
    "ForQuestionAnswering": Head("AutoModelForQuestionAnswering", ("feature-extraction",)),
    "ForMultipleChoice": Head("AutoModelForMultipleChoice", ("feature-extraction",)),
    "Model": Head("AutoModel", ("feature-extraction",)),
}
CHECKS = (
    "clean process",
    "shared decoder",
    "saved again",
    "mask",
    "padding",
    "row of padding",
    "row alone",
    "pipelines",
)


def head_of(architecture: str) -> Head | None:
    """The `Head` of a class by its name; `None` if its ending is not known."""
    return next((head for ending, head in HEADS.items() if architecture.endswith(ending)), None)


def fixed_inputs(config) -> list[tuple["torch.Tensor", "torch.Tensor | None"]]:
    """Ids (batch_size, sequence_length) and mask that depend on the config alone: a full batch and a padded one."""
    import torch

    length = min(11, config.max_position_embeddings)
    ids = (torch.arange(3 * length) * 7919 + 13) % config.vocab_size
    ids = torch.where(ids == pad_id(config), (ids + 1) % config.vocab_size, ids).view(3, length)
    lengths = torch.tensor([length, max(1, length // 2), 1])
    mask = (torch.arange(length) < lengths[:, None]).long()
    return [(ids, None), (ids.masked_fill(mask == 0, pad_id(config)), mask)]


def pad_id(config) -> int:
    return config.pad_token_id or 0


def model_inputs(model, input_ids, attention_mask=None) -> dict[str, "torch.Tensor"]:
    """Keywords of a forward; a multiple choice model is given one choice."""
    inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
    given = {name: value for name, value in inputs.items() if value is not None}
    return {n: v[:, None] for n, v in given.items()} if type(model).__name__.endswith("MultipleChoice") else given


def run(model, input_ids, attention_mask=None) -> "torch.Tensor":
    """What a model is there for: logits (start and end stacked), or hidden states; 3-D if there is one for a token."""
    import torch

    with torch.no_grad():
        outputs = model(**model_inputs(model, input_ids, attention_mask))
    if "start_logits" in outputs:
        return torch.stack((outputs["start_logits"], outputs["end_logits"]), dim=-1)
    return outputs[0]


def fixed_outputs(model) -> dict[str, "torch.Tensor"]:
    """What a model says to `fixed_inputs`."""
    return {str(i): run(model, *inputs).contiguous() for i, inputs in enumerate(fixed_inputs(model.config))}


def same_numbers(one: dict[str, "torch.Tensor"], other: dict[str, "torch.Tensor"]) -> bool:
    """Whether two `fixed_outputs` agree in every bit."""
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def token_ids(tokenizer) -> list[list[int]]:
    """Ids of `TEXTS`, special tokens included, by a tokenizer of transformers."""
    return [tokenizer(text, truncation=False)["input_ids"] for text in TEXTS]


def save_again(model, tokenizer, load, folder: Path) -> str:
    """Save and load once more; raises a `CheckError` if anything was lost on the way.

    Args:
        load: Gives the model of a folder.
        folder: Where the model came from.
    """
    with tempfile.TemporaryDirectory() as again:
        model.save_pretrained(again)
        tokenizer.save_pretrained(again)
        configs = [json.loads((Path(f) / "config.json").read_text(encoding="utf-8")) for f in (folder, again)]
        require(configs[0].get("auto_map") == configs[1].get("auto_map"), "the second save loses entries of auto_map")
        for code in Path(folder).glob("*.py"):
            copy = Path(again) / code.name
            require(copy.is_file() and copy.read_bytes() == code.read_bytes(), f"the second save loses {code.name}")
        numbers = fixed_outputs(model)
        require(same_numbers(numbers, fixed_outputs(load(again))), "the second save gives other numbers")
    return f"auto_map ({len(configs[0].get('auto_map', {}))} entries), code and {count(numbers)} numbers are the same"


def count(numbers: dict[str, "torch.Tensor"]) -> str:
    """How many numbers `fixed_outputs` gave, for people."""
    return f"{sum(tensor.numel() for tensor in numbers.values()):,}"


def difference(one, other) -> float:
    """The largest difference, as a share of the largest number where that is above 1: float32 rounds in proportion."""
    return float((one - other).abs().max() / one.abs().max().clamp(min=1))


def _within(differences: dict[str, float], tolerance: float) -> str:
    """The figure of each comparison; raises a `CheckError` where one is above the tolerance, or no number."""
    figures = ", ".join(f"{what} {value:.1e}" for what, value in differences.items())
    require(all(value <= tolerance for value in differences.values()), f"{figures}, allowed {tolerance:.0e}")
    return f"largest relative difference: {figures}"


def check_mask(model) -> str:
    """No mask, a mask of ones and one of `True` are the same."""
    import torch

    ids, _ = fixed_inputs(model.config)[0]
    none, ones, true = (run(model, ids, mask) for mask in (None, torch.ones_like(ids), torch.ones_like(ids).bool()))
    return _within({"None/ones": difference(none, ones), "ones/bool": difference(ones, true)}, MASK_TOLERANCE)


def check_padding(model) -> str:
    """Padding on either side changes nothing at the tokens."""
    import torch

    ids, _ = fixed_inputs(model.config)[0]
    length = ids.shape[1]
    padding = min(5, model.config.max_position_embeddings - length)
    if not padding:
        return "no room for padding beside the fixed inputs"
    alone, differences = run(model, ids), {}
    for side in ("right", "left"):
        if side == "left" and model.config.model_type != MODEL_TYPE:
            continue  # other models count positions from the left edge unless told
        both = (padding, 0) if side == "left" else (0, padding)
        padded_ids = torch.nn.functional.pad(ids, both, value=pad_id(model.config))
        padded = run(model, padded_ids, torch.nn.functional.pad(torch.ones_like(ids), both))
        at = padded[:, both[0] : both[0] + length] if padded.ndim == 3 else padded
        differences[side] = difference(alone, at)
    return _within(differences, PADDING_TOLERANCE)


def check_row_of_padding(model) -> str:
    """A row that is all padding is finite and leaves the other rows alone."""
    import torch

    ids, _ = fixed_inputs(model.config)[0]
    mask = torch.ones_like(ids)
    mask[1] = 0
    outputs = run(model, ids, mask)
    require(outputs.isfinite().all(), "NaN or infinite numbers")
    others = [0, 2]
    return "finite; " + _within({"other rows": difference(outputs[others], run(model, ids)[others])}, 1e-5)


def check_row_alone(model) -> str:
    """A row by itself is what it is in a padded batch."""
    ids, mask = fixed_inputs(model.config)[1]
    batch, worst = run(model, ids, mask), 0.0
    for row, length in enumerate(mask.sum(dim=1).tolist()):
        alone = run(model, ids[row : row + 1, :length])[0]
        at = batch[row, :length] if batch.ndim == 3 else batch[row]
        worst = max(worst, difference(alone, at))
    return _within({f"{len(ids)} rows": worst}, PADDING_TOLERANCE)


def check_shared_decoder(model) -> str:
    """The decoder shares the token embedding if, and only if, the config says so."""
    decoder = model.get_output_embeddings()
    if decoder is None:
        return "no decoder in this class"
    shared = decoder.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()
    wanted = bool(model.config.tie_word_embeddings)
    require(shared is wanted, f"tie_word_embeddings is {wanted}, but the decoder shares: {shared}")
    return f"tie_word_embeddings is {wanted}, the decoder {'shares the embedding' if shared else 'has its own matrix'}"


def check_fill_mask(pipe, texts: list[str]) -> str:
    mask = pipe.tokenizer.mask_token
    answers = pipe([f"{text}{mask}" for text in texts])
    scores = [filling["score"] for answer in answers for filling in answer]
    require(len(answers) == len(texts) and all(0 <= score <= 1 for score in scores), f"scores {scores[:3]}")
    return f"{len(scores)} fillings"


def check_text_classification(pipe, texts: list[str]) -> str:
    answers, labels = pipe(texts), set(pipe.model.config.id2label.values())
    require(len(answers) == len(texts) and all(answer["label"] in labels for answer in answers), f"{answers[:1]}")
    require(all(math.isfinite(answer["score"]) for answer in answers), "scores are no numbers")
    return f"{len(labels)} labels"


def check_token_classification(pipe, texts: list[str]) -> str:
    """Every character but white space lies in exactly one token's span; spans of entities slice the text."""
    spans = 0
    for text, tokens in zip(texts, pipe(texts, ignore_labels=[]), strict=True):
        covered = "".join(text[token["start"] : token["end"]] for token in tokens)
        require("".join(covered.split()) == "".join(text.split()), f"the spans make {covered!r} of {text!r}")
        spans += len(tokens)
    for text, entities in zip(texts, pipe(texts, aggregation_strategy="simple"), strict=True):
        require(all(0 <= e["start"] < e["end"] <= len(text) for e in entities), f"spans outside {text!r}")
    return f"{spans} spans slice their texts"


def check_feature_extraction(pipe, texts: list[str]) -> str:
    import torch

    width = pipe.model.config.hidden_size
    features = [torch.tensor(feature) for feature in pipe(texts)]
    fits = all(feature.shape[-1] == width and feature.isfinite().all() for feature in features)
    require(fits, f"not {width} numbers a token, or NaN among them")
    return f"{width} numbers a token"


PIPELINE_CHECKS = {
    "fill-mask": check_fill_mask,
    "text-classification": check_text_classification,
    "token-classification": check_token_classification,
    "feature-extraction": check_feature_extraction,
}


def check_pipelines(folder: str, tasks: tuple[str, ...], told: "Told") -> str:
    """Each pipeline answers, one text after another and in a batch, without a word."""
    from transformers import pipeline

    texts = ["房间很干净", "ok 3", "服务也好。Good!"]
    notes = []
    for task in tasks:
        told.clear()
        pipe = pipeline(task, model=folder, trust_remote_code=True)
        detail = PIPELINE_CHECKS[task](pipe, texts)
        if pipe.tokenizer.pad_token_id is not None:
            pipe(texts if task != "fill-mask" else [f"{t}{pipe.tokenizer.mask_token}" for t in texts], batch_size=2)
        require(not told.text(), f"{task} says: {told.text()}")
        notes.append(f"{task} ({len(texts)} texts, {detail})")
    return f"{', '.join(notes)}; nothing printed"


class Told(io.StringIO):
    """What would have been printed, in one line."""

    def text(self) -> str:
        return " ".join(self.getvalue().split())[:300]

    def clear(self):
        self.seek(0)
        self.truncate()


def look_at(folder: str, scratch: Path, told: Told) -> dict:
    """Load and try everything; the numbers go into `scratch`, the rest is returned."""
    import transformers
    from safetensors.torch import save_file
    from transformers.utils import logging

    logging.disable_progress_bar()
    architecture = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))["architectures"][0]
    head = head_of(architecture)
    assert head is not None
    loaded: dict = {}

    def load(path):
        return getattr(transformers, head.auto_class).from_pretrained(path, trust_remote_code=True)

    def clean_load() -> str:
        loaded["model"] = model = load(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        require(not told.text(), f"loading says: {told.text()}")
        home = type(model).__module__
        require(type(model).__name__ == architecture, f"{head.auto_class} gives {type(model).__name__}")
        if model.config.model_type == MODEL_TYPE:
            require(home.startswith("transformers_modules."), f"the class came from {home}")
        save_file(fixed_outputs(model), scratch / NUMBERS_FILE)
        loaded["tokenizer"], loaded["ids"] = tokenizer, token_ids(tokenizer)
        return f"{PACKAGE} absent, offline, empty cache: {head.auto_class} gives {architecture}; nothing printed"

    checks = [run_check("clean process", clean_load)]
    if not checks[0].passed:
        checks += [Check(name, None, "it does not load") for name in CHECKS[1:]]
        return {"checks": checks, "token_ids": None}
    model = loaded["model"]
    checks.append(run_check("shared decoder", check_shared_decoder, model))
    checks.append(run_check("saved again", save_again, model, loaded["tokenizer"], load, Path(folder)))
    model = model.float()  # tolerances are those of float32, whatever the weights were saved in
    for name, check in zip(
        CHECKS[3:7], (check_mask, check_padding, check_row_of_padding, check_row_alone), strict=True
    ):
        checks.append(run_check(name, check, model))
    # Models built into transformers report a head that stays behind, as it does in the second pipeline.
    tasks = head.pipelines if model.config.model_type == MODEL_TYPE else head.pipelines[:1]
    checks.append(run_check("pipelines", check_pipelines, folder, tasks, told))
    return {"checks": checks, "token_ids": loaded["ids"]}


def main(folder: str, scratch: str, num_threads: str):
    """Look at a folder from where hf_tinybert cannot be imported; write what was seen into `scratch`."""
    sys.modules[PACKAGE] = None  # type: ignore[assignment]  # absent, wherever it is installed
    told = Told()
    real = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = told  # before the libraries take hold of them
    try:
        import torch

        torch.set_num_threads(int(num_threads))  # sums depend on it in the last bit
        seen = look_at(folder, Path(scratch), told)
    finally:
        sys.stdout, sys.stderr = real
    (Path(scratch) / REPORT_FILE).write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
