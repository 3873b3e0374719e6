import pickle
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer, pipeline

from hf_tinybert import TinyBertForMaskedLM
from tests.conftest import VOCABULARY
from tests.reference_model import make_reference_model
from training.__main__ import main
from training.import_reference import import_state_dict


SHAPE = {"vocab_size": 30, "d_model": 24, "nhead": 3, "num_layers": 2, "max_len": 16, "num_labels": 3}


@pytest.fixture
def reference():
    return make_reference_model(**SHAPE)


@pytest.fixture
def run_import(tmp_path, tokenizer_dir):
    """Saves what it is given, and runs the verb on it; more words go to the command line."""

    def run(saved, *words):
        torch.save(saved, tmp_path / "weights.pt")
        return main(
            [
                "import",
                f"--state_dict={tmp_path / 'weights.pt'}",
                f"--tokenizer={tokenizer_dir}",
                "--num_attention_heads=3",
                f"--output_dir={tmp_path / 'out'}",
                *words,
            ]
        )

    return run


def encode(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenizer(["我爱你。", "他不喜欢北京天气"], padding=True, return_tensors="pt")


def test_imported_masked_lm_folder_gives_the_numbers_of_the_torch_model(reference, run_import, tmp_path, capsys):
    assert run_import(reference.state_dict()) == 0

    batch = encode(tmp_path / "out")
    assert set(batch) == {"input_ids", "attention_mask"} and batch["attention_mask"].min() == 0
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        expected, actual = reference(**batch)[1], model(**batch).logits
    real = batch["attention_mask"].bool()
    assert (actual - expected)[real].abs().max() <= 1e-5
    printed = capsys.readouterr().out
    assert "left out, for a folder of its own by --head classification: cls_head.weight, cls_head.bias" in printed
    assert "2 layers, 24 hidden, 3 heads" in printed


def test_imported_classifier_folder_gives_the_numbers_of_the_torch_model(reference, run_import, tmp_path, capsys):
    assert run_import(reference.state_dict(), "--head=classification") == 0

    batch = encode(tmp_path / "out")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    with torch.no_grad():
        expected, actual = reference(**batch)[2], model(**batch).logits
    assert actual.shape == (2, 3)
    assert (actual - expected).abs().max() <= 1e-5
    assert "mlm_head.dense.weight" in capsys.readouterr().out


def test_printed_lines_load_the_folder_in_a_clean_process(reference, run_import, tmp_path, capsys):
    run_import(reference.state_dict())
    *lines, blank, last = capsys.readouterr().out.partition("Load it with\n")[2].splitlines()
    lines = [line.strip() for line in lines]
    assert len(lines) == 3 and not blank
    assert last.startswith(f"Next: python -m training finetune --model {tmp_path / 'out'} ")

    program = "\n".join([*lines, "print(type(model).__name__)"])
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, encoding="utf-8")

    assert result.stdout.strip() == "TinyBertForMaskedLM", result.stderr


def test_tokenizer_is_fitted_to_the_model(reference, run_import, tmp_path, tiny_tokenizer, capsys):
    run_import(reference.state_dict())

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.model_max_length == 16
    assert tokenizer.model_input_names == ["input_ids", "attention_mask"]
    assert len(tokenizer("我" * 100)["input_ids"]) == 16
    assert TinyBertForMaskedLM.from_pretrained(tmp_path / "out").config.pad_token_id == tokenizer.pad_token_id == 0
    assert tokenizer("我爱你 good")["input_ids"] == tiny_tokenizer("我爱你 good")["input_ids"]
    assert f"the tokenizer has {len(tiny_tokenizer)} token ids, the model embeds 30" in capsys.readouterr().out


@pytest.mark.parametrize("head, task", [("masked-lm", "fill-mask"), ("classification", "text-classification")])
def test_pipelines_of_an_imported_folder_cut_long_texts(reference, run_import, tmp_path, log, head, task):
    assert run_import(reference.state_dict(), f"--head={head}") == 0

    answers = pipeline(task, model=str(tmp_path / "out"))(["我[MASK]", "我[MASK]" + "你" * 100], batch_size=2)

    assert len(answers) == 2
    assert log.text == ""


def test_tokenizer_of_a_vocabulary_file_alone_is_that_of_bert(reference, run_import, tmp_path, tiny_tokenizer, capsys):
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")

    assert run_import(reference.state_dict(), f"--tokenizer={folder}") == 0

    assert "vocab.txt alone" in capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ("我爱你 Good 北京", "他[MASK]喜欢"):
        assert tokenizer(text)["input_ids"] == tiny_tokenizer(text)["input_ids"]


def test_special_tokens_of_a_bare_tokenizer_file_are_taken_by_name(
    reference, run_import, tmp_path, tiny_tokenizer, capsys
):
    folder = tmp_path / "bare"
    folder.mkdir()
    tiny_tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))

    assert run_import(reference.state_dict(), f"--tokenizer={folder}") == 0

    assert "taken by name: [PAD], [UNK], [CLS], [SEP], [MASK]" in capsys.readouterr().out
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.special_tokens_map == tiny_tokenizer.special_tokens_map
    assert (
        tokenizer(["我[MASK]", "我爱你"], padding=True)["input_ids"]
        == tiny_tokenizer(["我[MASK]", "我爱你"], padding=True)["input_ids"]
    )


@pytest.mark.parametrize("wrap", ["model_state_dict", "state_dict"])
def test_checkpoints_are_unwrapped_and_what_lay_beside_is_reported(reference, run_import, tmp_path, capsys, wrap):
    assert run_import({wrap: reference.state_dict(), "epoch": 3, "optimizer": {"lr": 0.1}}) == 0

    assert "left out, beside the weights in the checkpoint: epoch, optimizer" in capsys.readouterr().out
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_prefixes_of_ddp_and_compile_are_taken_off(reference, run_import, tmp_path, prefix):
    assert run_import({prefix + name: tensor for name, tensor in reference.state_dict().items()}) == 0

    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path / "out")
    assert torch.equal(loaded.mlm_head.decoder.weight, reference.mlm_head.decoder.weight)


def test_encoder_with_one_head_only_is_enough(reference, run_import):
    state_dict = {name: tensor for name, tensor in reference.state_dict().items() if "cls_head" not in name}

    assert run_import(state_dict) == 0


def test_half_precision_weights_become_float32(reference):
    model = import_state_dict({k: v.bfloat16() for k, v in reference.state_dict().items()}, 3, "masked-lm")

    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not model.training


def without(name):
    return lambda state_dict: {key: value for key, value in state_dict.items() if key != name}


def replacing(name, value):
    return lambda state_dict: state_dict | {name: value}


BAD_INPUT = {
    "missing tensor": (
        without("encoder.encoder.layers.1.norm2.bias"),
        [],
        "lacks encoder.encoder.layers.1.norm2.bias",
    ),
    "missing embedding": (without("encoder.token_emb.weight"), [], "lacks encoder.token_emb.weight"),
    "missing head": (
        lambda state_dict: {key: value for key, value in state_dict.items() if not key.startswith("cls_head")},
        ["--head=classification"],
        "lacks cls_head.weight, cls_head.bias",
    ),
    "layer gap": (
        lambda state_dict: {key.replace("layers.1", "layers.2"): value for key, value in state_dict.items()},
        [],
        "encoder.encoder.layers.1.",
    ),
    "unknown tensor": (replacing("encoder.seg_emb.weight", torch.zeros(2, 24)), [], "encoder.seg_emb.weight"),
    "wrong shape": (
        replacing("mlm_head.dense.weight", torch.zeros(24, 23)),
        [],
        "mlm_head.dense.weight has shape (24, 23), but must have (24, 24)",
    ),
    "vector for matrix": (replacing("encoder.token_emb.weight", torch.zeros(24)), [], "encoder.token_emb.weight must"),
    "integers": (
        replacing("mlm_head.dense.bias", torch.zeros(24).long()),
        [],
        "mlm_head.dense.bias holds torch.int64",
    ),
    "diverged": (
        replacing("mlm_head.dense.bias", torch.full([24], float("nan"))),
        [],
        "mlm_head.dense.bias holds NaN or infinite numbers",
    ),
    "heads": (dict, ["--num_attention_heads=5"], "5 does not divide the hidden size 24"),
    "no heads": (dict, ["--num_attention_heads=0"], "0 does not divide"),
    "head name": (dict, ["--head=regression"], "regression"),
    "not tensors": (lambda state_dict: {"a": 1, "b": "x"}, [], "a, b"),
    "no dict": (lambda state_dict: torch.zeros(3), [], "holds a Tensor"),
    "empty dict": (lambda state_dict: {}, [], "holds nothing"),
    "no such tokenizer": (dict, ["--tokenizer=nowhere/at-all"], "nowhere/at-all: no such folder"),
    "no such state dict": (dict, ["--state_dict=nowhere.pt"], "nowhere.pt: no such file"),
    "tokenizer too large": (
        lambda state_dict: make_reference_model(**SHAPE | {"vocab_size": 9}).state_dict(),
        [],
        "token ids, but the model embeds only 9",
    ),
}


def assert_one_line_and_no_folder(status, expected, capsys, tmp_path):
    captured = capsys.readouterr().err
    assert status == 2
    assert captured.count("\n") == 1 and "Traceback" not in captured
    assert expected in captured
    assert not [path for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_leaves_no_folder(reference, run_import, tmp_path, capsys, case):
    change, words, expected = BAD_INPUT[case]

    status = run_import(change(dict(reference.state_dict())), *words)

    assert_one_line_and_no_folder(status, expected, capsys, tmp_path)


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("kind", ["empty", "text", "pickle", "whole model", "truncated"])
def test_file_that_is_no_state_dict_is_refused_without_running_it(reference, run_import, tmp_path, capsys, kind):
    file, touched = tmp_path / "bad.pt", tmp_path / "touched"
    if kind == "pickle":
        file.write_bytes(pickle.dumps(Malicious(touched)))
    elif kind == "whole model":
        torch.save(reference, file)
    elif kind == "truncated":
        torch.save(reference.state_dict(), file)
        file.write_bytes(file.read_bytes()[:-200])
    else:
        file.write_text("" if kind == "empty" else "我爱你\n", encoding="utf-8")

    status = run_import({}, f"--state_dict={file}")

    assert_one_line_and_no_folder(status, "is no file of plain tensors", capsys, tmp_path)
    assert not touched.exists()


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_folder_without_a_readable_tokenizer_is_refused(reference, run_import, tmp_path, capsys, content):
    folder = tmp_path / "not a tokenizer"
    folder.mkdir()
    if content is not None:
        (folder / "tokenizer.json").write_text(content, encoding="utf-8")

    status = run_import(reference.state_dict(), f"--tokenizer={folder}")

    assert_one_line_and_no_folder(status, "cannot be read", capsys, tmp_path)


def test_folder_that_holds_a_model_is_left_alone(reference, run_import, tmp_path, capsys):
    assert run_import(reference.state_dict()) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    capsys.readouterr()

    assert run_import(make_reference_model(**SHAPE | {"num_layers": 1}).state_dict()) == 2

    assert "already holds a model" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
