import hashlib
import json
import pickle
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM

from hf_tinybert import TinyBertForMaskedLM, TinyBertForSequenceClassification, TinyBertForTokenClassification
from tests.training import toy
from tests.training.conftest import make_sentences
from tests.training.test_scan import TOKEN
from training import validate
from training.__main__ import main
from training.folder_checks import static_checks
from training.stranger import (
    CHECKS,
    CheckError,
    check_mask,
    check_padding,
    check_row_alone,
    check_row_of_padding,
    check_shared_decoder,
    token_ids,
)


check_finished = validate.check_finished  # the real one: fixtures put another in its place


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "reviews.txt"
    path.write_text("\n".join(make_sentences(400)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, text_file):
    """A finished pre-training; tests only read it."""
    return pretrain(text_file, tmp_path_factory.mktemp("runs") / "encoder", "--size", "tiny")


@pytest.fixture(scope="module")
def reference(tmp_path_factory, text_file):
    """As `encoder`, of the reference shape, whose decoder is not tied."""
    return pretrain(text_file, tmp_path_factory.mktemp("runs") / "reference", "--size", "reference")


def pretrain(text_file, folder, *more):
    fast = ["--block_size", "32", "--batch_size", "8", "--max_steps", "2"]
    assert main(["pretrain", "--train_files", str(text_file), *fast, *more, "--output_dir", str(folder)]) == 0
    return folder


def finetune(model, folder, tmp_path):
    table = toy.write_tsv(tmp_path / "train.tsv", toy.make_rows(40))
    words = ["--model", model, "--train_file", table, "--epochs", "0.5", "--output_dir", folder]
    return main(["finetune", *map(str, words)])


def copy_of(folder, tmp_path):
    return shutil.copytree(folder, tmp_path / "copy")


def failed(checks):
    return {check.name: check.detail for check in checks if check.passed is False}


def of(checks, name):
    return next(check for check in checks if check.name == name)


def edit_json(path, **changes):
    content = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}), encoding="utf-8")


def edit_weights(folder, change):
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})


def edit_text(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_a_pretrained_folder_is_green_and_left_as_it_is(encoder, capsys):
    def content():
        return {path: hashlib.sha256(path.read_bytes()).digest() for path in encoder.rglob("*") if path.is_file()}

    before = content()
    assert main(["validate", "--model", str(encoder)]) == 0
    assert content() == before
    table = {line.split("  ")[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}
    assert [name for name, line in table.items() if " ok " not in line] == ["onnx"]
    assert {*CHECKS, *validate.WITH_PACKAGE} <= {*table}
    for name, figure in (
        ("auto_map", "7 of 7"),
        ("vocabulary", "the one that the model was trained with"),
        ("same numbers", "equal in every bit"),
        ("pipelines", "fill-mask (3 texts, 15 fillings), feature-extraction (3 texts, 128 numbers"),
        ("padding", "right"),
    ):
        assert figure in table[name]


def test_finetuning_ends_with_the_check_of_its_folder(encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(validate, "check_finished", check_finished)
    assert finetune(encoder, tmp_path / "classifier", tmp_path) == 0
    *_, verdict, _ = capsys.readouterr().out.splitlines()
    assert verdict == "checked as a stranger would load it: 27 ok, 2 skipped"  # no decoder, no onnx/


def test_a_verb_whose_folder_fails_a_check_exits_with_1(encoder, text_file, tmp_path, monkeypatch):
    monkeypatch.setattr(validate, "check_finished", lambda folder: validate.report([validate.Check("x", False, "")]))
    assert finetune(encoder, tmp_path / "classifier", tmp_path) == 1
    words = ["--train_files", text_file, "--max_steps", 1, "--output_dir", tmp_path / "encoder"]
    assert main(["pretrain", *map(str, words)]) == 1


def test_a_tagger_is_green_and_its_spans_slice_the_text(encoder, tmp_path):
    folder = copy_of(encoder, tmp_path)
    ids = {"O": 0, "B-PER": 1, "I-PER": 2}
    names = {index: name for name, index in ids.items()}
    model = TinyBertForTokenClassification.from_pretrained(folder, id2label=names, label2id=ids)
    model.save_pretrained(folder)
    edit_text(folder / "README.md", "pipeline_tag: fill-mask", "pipeline_tag: token-classification\nlanguage: zh")
    edit_json(folder / "eval_results.json", task="token-classification")
    checks = validate.check_folder(folder)
    assert failed(checks) == {}
    assert "language zh" in of(checks, "card").detail
    assert "spans slice their texts" in of(checks, "pipelines").detail


def test_an_untied_decoder_has_its_own_matrix(reference):
    assert failed(static_checks(reference)) == {}
    assert "saved by itself" in of(static_checks(reference), "tie").detail


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def cut_to_the_header(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])


def append(folder):
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"more")


def flip_to_nan(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] = content[-2] = 0xFF  # sign, exponent: the last number is no number
    path.write_bytes(content)


def take_another_tokenizer(folder):
    toy.make_tokenizer().save_pretrained(folder)
    edit_json(folder / "tokenizer_config.json", model_max_length=512)


def swap_two_tokens(folder):
    """The same size, the same special tokens: only other words."""
    path = folder / "tokenizer.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace('"a"', '"?"').replace('"b"', '"a"').replace('"?"', '"b"'), encoding="utf-8")


def take_a_larger_tokenizer(folder):
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    token = {"id": 5000, "content": "[NEW]", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append(token | flags)
    if isinstance(tokenizer["model"]["vocab"], dict):
        tokenizer["model"]["vocab"]["[NEW]"] = 5000
    else:
        tokenizer["model"]["vocab"] += [[f"[{i}]", -9.0] for i in range(200)]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def lose_an_auto_map_entry(folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    del config["auto_map"]["AutoModelForMaskedLM"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def point_auto_map_elsewhere(folder):
    edit_text(folder / "config.json", '"modeling_tinybert.TinyBertModel"', '"someone/else--modeling.TinyBertModel"')


def leave_a_pickle(folder):
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": 1}))


def leave_training_arguments(folder):
    (folder / "training_args.bin").write_bytes(b"x")


def hide_a_file(folder):
    (folder / ".DS_Store").write_bytes(b"x")


def leave_a_folder(folder):
    (folder / "checkpoint-3").mkdir()


def lose_a_weight(folder):
    edit_weights(folder, lambda weights: weights.pop("tinybert.layers.1.mlp.up_proj.bias"))


def add_a_weight(folder):
    edit_weights(folder, lambda weights: weights.update({"tinybert.layers.7.x": torch.zeros(1)}))


def save_the_tied_decoder_too(folder):
    name = "tinybert.embeddings.token_embeddings.weight"
    edit_weights(folder, lambda weights: weights.update({"mlm_head.decoder.weight": weights[name] + 1}))


def break_the_card(folder):
    edit_text(folder / "README.md", "tags:", "tags: [")


def break_the_model_index(folder):
    edit_text(folder / "README.md", "model-index:", "model-index:\n- results: {}\nformer-index:")


def write_nan(folder):
    edit_text(folder / "eval_results.json", '"checkpoint": "last"', '"checkpoint": NaN')


DAMAGES = [
    (truncate, "weights file", "but its header promises"),
    (cut_to_the_header, "weights file", "fewer than its header alone"),
    (append, "weights file", "but its header promises"),
    (flip_to_nan, "weights file", "NaN or infinite numbers in "),
    (lose_a_weight, "weights", "missing: tinybert.layers.1.mlp.up_proj.bias"),
    (add_a_weight, "weights", "left over: tinybert.layers.7.x"),
    (lambda folder: edit_json(folder / "config.json", vocab_size=5000), "weights", "of another shape: tinybert.emb"),
    (save_the_tied_decoder_too, "tie", "a copy of its own: mlm_head.decoder.weight"),
    (lambda folder: edit_json(folder / "config.json", tie_word_embeddings=False), "weights", "mlm_head.decoder"),
    (take_another_tokenizer, "vocabulary", "but the model was trained with"),
    (swap_two_tokens, "vocabulary", "but the model was trained with"),
    (take_a_larger_tokenizer, "tokenizer", "but the model embeds"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "files", "missing: tokenizer.json"),
    (lambda folder: (folder / "README.md").unlink(), "files", "missing: README.md"),
    (lambda folder: (folder / "config.json").unlink(), "files", "missing: config.json"),
    (lambda folder: (folder / "modeling_tinybert.py").unlink(), "files", "missing: modeling_tinybert.py"),
    (lambda folder: (folder / "config.json").write_text("{"), "config", "JSONDecodeError"),
    (lambda folder: edit_json(folder / "config.json", hidden_size=129), "config", "is not a multiple"),
    (lambda folder: edit_json(folder / "config.json", pad_token_id=7), "special tokens", "pad_token_id: 7"),
    (
        lambda folder: edit_json(folder / "tokenizer_config.json", mask_token="[NONE]"),
        "special tokens",
        "mask_token is '[NONE]', which the vocabulary lacks",
    ),
    (
        lambda folder: edit_json(folder / "tokenizer_config.json", model_max_length=4096),
        "longest input",
        "cuts at 4096 tokens, but the model takes 512",
    ),
    (
        lambda folder: edit_text(folder / "modeling_tinybert.py", "scores = ", "scores  = "),
        "code",
        "not the file of hf_tinybert",
    ),
    (lose_an_auto_map_entry, "auto_map", "missing: AutoModelForMaskedLM"),
    (point_auto_map_elsewhere, "auto_map", "wrong: AutoModel: someone/else"),
    (
        lambda folder: edit_json(folder / "config.json", architectures=["TinyBertForQuestionAnswering"]),
        "architectures",
        "has qa_outputs, but the weights have mlm_head",
    ),
    (lambda folder: edit_json(folder / "config.json", architectures=["BertModel"]), "architectures", "none of"),
    (lambda folder: edit_json(folder / "config.json", architectures=None), "architectures", "must name one class"),
    (
        lambda folder: edit_json(folder / "eval_results.json", task="token-classification"),
        "architectures",
        "trained for token-classification",
    ),
    (
        lambda folder: edit_json(folder / "config.json", _name_or_path="/home/anna/model"),
        "private",
        "config.json, line 1: absolute path /home/anna",
    ),
    (
        lambda folder: edit_text(folder / "README.md", "# TinyBERT", f"{TOKEN}\n# TinyBERT"),
        "private",
        "Hugging Face token hf_aB3aB...",
    ),
    (leave_a_pickle, "safetensors only", "pytorch_model.bin"),
    (leave_training_arguments, "safetensors only", "training_args.bin"),
    (hide_a_file, "nothing else", "unknown or hidden: .DS_Store"),
    (leave_a_folder, "nothing else", "unknown or hidden: checkpoint-3"),
    (break_the_card, "card", "Error"),
    (break_the_model_index, "card", "Invalid `model_index`"),
    (
        lambda folder: edit_text(folder / "README.md", "pipeline_tag: fill-mask", "pipeline_tag: text-generation"),
        "card",
        "pipeline_tag is 'text-generation'",
    ),
    (lambda folder: edit_text(folder / "README.md", "- custom_code\n", ""), "card", "tags lack custom_code"),
    (
        lambda folder: edit_text(folder / "README.md", "tags:", "language: Chinese\ntags:"),
        "card",
        "language Chinese is no code",
    ),
    (write_nan, "results", "holds NaN, which is not JSON"),
]


@pytest.mark.parametrize(
    ("damage", "line", "detail"), DAMAGES, ids=[f"{line}: {detail}" for _, line, detail in DAMAGES]
)
def test_each_damage_fails_its_own_line_and_no_other(encoder, tmp_path, damage, line, detail):
    folder = copy_of(encoder, tmp_path)
    damage(folder)
    found = failed(static_checks(folder))
    assert [*found] == [line]
    assert detail in found[line] and "\n" not in found[line]


def test_an_untied_model_that_lacks_its_decoder_is_told(reference, tmp_path):
    folder = copy_of(reference, tmp_path)
    edit_weights(folder, lambda weights: weights.pop("mlm_head.decoder.weight"))
    assert failed(static_checks(folder)) == {"weights": "missing: mlm_head.decoder.weight"}


def test_code_that_is_not_the_package_s_is_never_run(encoder, tmp_path, capsys):
    folder = copy_of(encoder, tmp_path)
    with (folder / "configuration_tinybert.py").open("a", encoding="utf-8") as file:
        file.write(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
    assert main(["validate", "--model", str(folder)]) == 1
    assert not (tmp_path / "ran").exists()
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if "after the failure of: code" in line]
    assert len(lines) == len(CHECKS) + len(validate.WITH_PACKAGE)


def test_a_model_that_ignores_its_mask_fails_in_the_clean_process(encoder, tmp_path, monkeypatch):
    """What the files do not show: the code, here also the package's own, computes something else."""
    import hf_tinybert

    folder, package = copy_of(encoder, tmp_path), tmp_path / "package"
    shutil.copytree(encoder, package)
    code = "        attention_mask = self._attention_mask(hidden_states, attention_mask)\n"
    for place in (folder, package):
        edit_text(place / "modeling_tinybert.py", code, code.replace("attention_mask)\n", "None)\n"))
    (package / "__init__.py").touch()
    monkeypatch.setattr(hf_tinybert, "__file__", str(package / "__init__.py"))
    found = failed(validate.check_folder(folder))
    assert [*found] == ["padding", "row alone", "same numbers", "saved again here"]
    assert "allowed 1e-05" in found["padding"] and "allowed 1e-05" in found["row alone"]
    assert "in the clean process gives other numbers" in found["same numbers"]


def test_a_tokenizer_that_is_rebuilt_into_another_one_fails(encoder, tmp_path):
    folder = copy_of(encoder, tmp_path)
    ids = token_ids(AutoTokenizer.from_pretrained(folder))
    assert "AutoTokenizer with and without us" in validate._check_token_ids(folder, ids)
    with pytest.raises(CheckError, match=r"without hf_tinybert gives other ids than tokenizer\.json"):
        validate._check_token_ids(folder, [*ids[:-1], [1]])
    edit_json(folder / "tokenizer_config.json", tokenizer_class="BertTokenizer", do_lower_case=False)
    with pytest.raises(CheckError, match=r"with hf_tinybert gives other ids than tokenizer\.json"):
        validate._check_token_ids(folder, ids)


@pytest.mark.parametrize(
    ("check", "wrong", "message"),
    [
        (check_mask, lambda logits, mask: logits if mask is None else logits + 1e-4, "allowed 1e-06"),
        (check_padding, lambda logits, mask: logits if mask is None else logits + mask.shape[1], "allowed 1e-05"),
        (check_row_alone, lambda logits, mask: logits + len(logits), "allowed 1e-05"),
        (check_row_of_padding, lambda logits, mask: logits if mask is None else logits / mask.sum(1)[:, None], "NaN"),
    ],
)
def test_each_comparison_of_numbers_can_fail(tiny_model, monkeypatch, check, wrong, message):
    model = tiny_model(TinyBertForSequenceClassification)
    assert check(model)
    forward = model.forward

    def damaged(input_ids, attention_mask=None):
        outputs = forward(input_ids, attention_mask)
        outputs["logits"] = wrong(outputs.logits, attention_mask)
        return outputs

    monkeypatch.setattr(model, "forward", damaged)
    with pytest.raises(CheckError, match=message):
        check(model)


def test_a_decoder_that_does_not_share_is_told(tiny_model):
    model = tiny_model(TinyBertForMaskedLM, tie_word_embeddings=True)
    assert "shares the embedding" in check_shared_decoder(model)
    model.mlm_head.decoder.weight = torch.nn.Parameter(model.mlm_head.decoder.weight.clone())
    with pytest.raises(CheckError, match="tie_word_embeddings is True, but the decoder shares: False"):
        check_shared_decoder(model)


def test_a_model_of_transformers_is_not_asked_for_our_code(encoder, tmp_path):
    folder = copy_of(encoder, tmp_path)
    vocab_size = json.loads((folder / "config.json").read_text(encoding="utf-8"))["vocab_size"]
    shape = dict.fromkeys(("hidden_size", "intermediate_size"), 32) | {"num_hidden_layers": 1}
    BertForMaskedLM(BertConfig(vocab_size=vocab_size, num_attention_heads=2, **shape)).save_pretrained(folder)
    for code in folder.glob("*.py"):
        code.unlink()
    checks = static_checks(folder)
    assert failed(checks) == {}
    assert [check.name for check in checks if check.passed is None] == ["auto_map", "code"]


@pytest.mark.parametrize("name", ["none", "a.txt"])
def test_no_folder_is_one_line(tmp_path, capsys, name):
    (tmp_path / "a.txt").write_text("text", encoding="utf-8")
    assert main(["validate", "--model", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert "is no folder" in error and error.count("\n") == 1


def test_an_empty_folder_fails_and_tells_each_line(tmp_path, capsys):
    assert main(["validate", "--model", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert sum("FAILED" in line for line in lines[:-1]) == 1
    assert "missing: config.json, model.safetensors, tokenizer.json" in lines[0]


def test_onnx_files_are_compared_with_torch_and_only_the_exact_one_must_agree(encoder, tmp_path, monkeypatch):
    folder = copy_of(encoder, tmp_path)
    model = TinyBertForMaskedLM.from_pretrained(folder)

    class Session:
        """The model in torch, off by what its file says."""

        def __init__(self, path, providers):
            self.off = float(Path(path).read_text(encoding="utf-8"))

        def get_outputs(self):
            return [SimpleNamespace(name="logits")]

        def run(self, names, inputs):
            with torch.no_grad():
                outputs = model(**{name: torch.from_numpy(value) for name, value in inputs.items()})
            return [(outputs[name] + self.off).numpy() for name in names]

    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(InferenceSession=Session))
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_text("1e-5", encoding="utf-8")
    (folder / "onnx" / "model_quantized.onnx").write_text("0.5", encoding="utf-8")
    detail = validate._check_onnx(folder)
    assert re.search(r"model\.onnx \d\.\de-0[56], model_quantized\.onnx \d\.\de-0[12]", detail)
    (folder / "onnx" / "model.onnx").write_text("0.1", encoding="utf-8")
    with pytest.raises(CheckError, match=r"model\.onnx differs by \d\.\de-0[12]"):
        validate._check_onnx(folder)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert validate.run_check("onnx", validate._check_onnx, folder).detail.startswith("onnxruntime is not installed")


@pytest.mark.slow
def test_an_exported_file_agrees_with_torch(encoder, tmp_path):
    pytest.importorskip("onnxruntime")
    folder = copy_of(encoder, tmp_path)
    export(TinyBertForMaskedLM.from_pretrained(folder), folder / "onnx" / "model.onnx")
    assert "model.onnx" in validate._check_onnx(folder)
    # what torch writes into the file unless it is taken out
    assert 'absolute path File "' in failed(static_checks(folder))["private"]


def export(model, path):
    pytest.importorskip("onnxscript")
    path.parent.mkdir(exist_ok=True)
    ids = torch.ones(2, 7, dtype=torch.long)
    names = {"input_names": ["input_ids", "attention_mask"], "output_names": ["logits"]}
    dynamic = {name: {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for name in names["input_names"]}
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    model.eval()
    torch.onnx.export(
        model, (), str(path), kwargs=inputs, dynamo=True, external_data=False, dynamic_shapes=dynamic, **names
    )
