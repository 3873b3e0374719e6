"""Model folders that are broken, of another kind or of another time, and the verbs that load them."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, ViTConfig, ViTForImageClassification

from tests.training import toy
from tests.training.bad_inputs.files import TSV, Case


WEIGHTS = "model.safetensors"
VERBS = {
    "pretrain": ("--model", "model", "--train_files", "a.txt", "--max_steps", "1", "--output_dir", "out"),
    "finetune": ("--model", "model", "--train_file", "a.tsv", "--output_dir", "out"),
    "evaluate": ("--model", "model", "--test_file", "a.tsv", "--output_file", "out.json"),
    "predict": ("--model", "model", "--input", "a.tsv", "--output", "out.jsonl"),
    "export": ("--model", "model", "--format", "onnx"),
}
FINETUNED = ("evaluate", "predict")


def spoilt(name: str, spoil: Callable[[Path], object], *verbs: str) -> list[Case]:
    """A good model folder, spoilt, given to each verb (all of them if none is named)."""

    def make_with(verb: str):
        def make(folder: Path, models: dict[str, str]):
            shutil.copytree(models["finetuned" if verb in FINETUNED else "pretrained"], folder / "model")
            (folder / "a.tsv").write_text(TSV, encoding="utf-8")
            (folder / "a.txt").write_text(TSV, encoding="utf-8")
            spoil(folder / "model")

        return make

    return [Case(name, make_with(verb), (verb, *VERBS[verb])) for verb in verbs or VERBS]


def _cut(name: str, keep: float):
    def spoil(folder: Path):
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * keep)])

    return spoil


def _write(name: str, content: bytes | str):
    data = content.encode("utf-8") if isinstance(content, str) else content
    return lambda folder: (folder / name).write_bytes(data)


def _append(folder: Path):
    with (folder / WEIGHTS).open("ab") as file:
        file.write(bytes(1000))


def _edit(name: str, **changes):
    def spoil(folder: Path):
        values = json.loads((folder / name).read_text(encoding="utf-8"))
        (folder / name).write_text(json.dumps(values | changes), encoding="utf-8")

    return spoil


def _remove(*names: str):
    return lambda folder: [(folder / name).unlink() for name in names]


def _change_weights(change: Callable[[dict], dict]):
    def spoil(folder: Path):
        weights = change(load_file(folder / WEIGHTS))
        save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})

    return spoil


def _pickled(name: str):
    def spoil(folder: Path):
        torch.save(load_file(folder / WEIGHTS), folder / name)
        (folder / WEIGHTS).unlink()

    return spoil


def _as_file(folder: Path):
    shutil.rmtree(folder)
    folder.write_bytes(pickle.dumps({"weights": [1.0]}))


def _of_another_kind(model_class, config):
    def spoil(folder: Path):
        torch.manual_seed(0)
        model_class(config).save_pretrained(folder)

    return spoil


SMALL = dict.fromkeys(("hidden_size", "intermediate_size"), 16) | dict.fromkeys(
    ("num_hidden_layers", "num_attention_heads"), 1
)
BERT = BertConfig(vocab_size=len(toy.make_tokenizer()), **SMALL)
GPT2 = GPT2Config(vocab_size=len(toy.make_tokenizer()), n_embd=16, n_layer=1, n_head=1)
VIT = ViTConfig(image_size=8, patch_size=4, **SMALL)

MODELS = [
    *spoilt("no such folder", lambda folder: shutil.rmtree(folder)),
    *spoilt("a pickle in place of a folder", _as_file),
    *spoilt("an empty folder", lambda folder: [path.unlink() for path in folder.iterdir()]),
    *spoilt("an adapter alone", lambda folder: (folder / "config.json").rename(folder / "adapter_config.json")),
    # weights
    *spoilt("weights cut off", _cut(WEIGHTS, 0.5)),
    *spoilt("weights cut off in their header", _cut(WEIGHTS, 0.001)),
    *spoilt("weights with bytes behind them", _append),
    *spoilt("no bytes of weights", _write(WEIGHTS, b"")),
    *spoilt(
        "a pointer of Git LFS in place of weights", _write(WEIGHTS, "version https://git-lfs.github.com/spec/v1\n")
    ),
    *spoilt("a pickle in place of weights", _write(WEIGHTS, pickle.dumps({"weights": [1.0]}))),
    *spoilt("no weights", _remove(WEIGHTS)),
    *spoilt("weights of the old format alone", _pickled("pytorch_model.bin")),
    *spoilt("weights in a file of another name", _pickled("model.pt")),
    *spoilt("an index whose files are gone", lambda folder: _gone(folder)),
    *spoilt("a layer without weights", _change_weights(lambda w: {k: v for k, v in w.items() if "layers.1" not in k})),
    *spoilt(
        "a weight of another shape",
        _change_weights(lambda w: w | {"tinybert.final_norm.weight": torch.ones(7)}),
    ),
    *spoilt(
        "a weight that is not a number",
        _change_weights(lambda w: w | {"tinybert.final_norm.weight": torch.full((64,), torch.nan)}),
    ),
    # config.json
    *spoilt("config.json broken", _write("config.json", "{")),
    *spoilt("config.json empty", _write("config.json", "{}")),
    *spoilt("config.json in Latin-1", _write("config.json", '{"model_type": "é"}'.encode("latin-1"))),
    *spoilt("config.json that is a list", _write("config.json", "[]")),
    *spoilt("config.json of an unknown type", _edit("config.json", model_type="tinierbert")),
    *spoilt("config.json of BERT over weights of ours", _edit("config.json", model_type="bert")),
    *spoilt("config.json with a text for a number", _edit("config.json", hidden_size="64")),
    *spoilt("config.json with more layers than weights", _edit("config.json", num_hidden_layers=3)),
    *spoilt("config.json with a smaller vocabulary", _edit("config.json", vocab_size=9)),
    *spoilt("BERT", _of_another_kind(BertForMaskedLM, BERT)),
    *spoilt("GPT-2, a decoder", _of_another_kind(GPT2LMHeadModel, GPT2)),
    *spoilt("ViT, a model of pictures", _of_another_kind(ViTForImageClassification, VIT)),
    # tokenizer
    *spoilt("no tokenizer", _remove("tokenizer.json", "tokenizer_config.json")),
    *spoilt("tokenizer.json broken", _cut("tokenizer.json", 0.5)),
    *spoilt("tokenizer.json of another version", _edit("tokenizer.json", version="9.0")),
    *spoilt("tokenizer_config.json that is a list", _write("tokenizer_config.json", "[]")),
    *spoilt("more tokens than the model embeds", lambda folder: _more_tokens(folder)),
    # task.json
    *spoilt("no task.json", _remove("task.json"), *FINETUNED),
    *spoilt("task.json broken", _cut("task.json", 0.5), *FINETUNED),
    *spoilt("task.json that is a list", _write("task.json", "[]"), *FINETUNED),
    *spoilt("task.json of a newer version", _edit("task.json", crf=True), *FINETUNED),
    *spoilt("task.json of an unknown task", _edit("task.json", task="summarization"), *FINETUNED),
    *spoilt("task.json without its columns", _write("task.json", '{"task": "sequence-classification"}'), *FINETUNED),
    *spoilt("task.json with a text for a number", _edit("task.json", max_length="128"), *FINETUNED),
    *spoilt("task.json with labels that are numbers", _edit("task.json", label_names=[0, 1]), *FINETUNED),
    *spoilt("task.json with a label too many", _edit("task.json", label_names=["差评", "好评", "中评"]), *FINETUNED),
]


def _gone(folder: Path):
    (folder / WEIGHTS).unlink()
    index = {"metadata": {}, "weight_map": {"tinybert.final_norm.weight": "model-00001-of-00001.safetensors"}}
    (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(index), encoding="utf-8")


def _more_tokens(folder: Path):
    tokenizer = toy.make_tokenizer()
    tokenizer.add_tokens(["新", "旧"])
    tokenizer.save_pretrained(folder)
