"""Exports are compared with torch through sessions of ONNX Runtime that these tests open themselves."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import hf_tinybert
from tests.training import toy
from training import export, validate
from training.__main__ import main
from training.errors import UserError
from training.folder_checks import static_checks
from training.onnx_model import OnnxModel, load_onnx


AXES = ["batch_size", "sequence_length"]
CHOICE_AXES = ["batch_size", "num_choices", "sequence_length"]
# What a Hub tool finds: the outputs of a head with their axes, those of numbers left out.
HEADS = {
    "TinyBertModel": {"last_hidden_state": AXES},
    "TinyBertForMaskedLM": {"logits": AXES},
    "TinyBertForSequenceClassification": {"logits": AXES[:1]},
    "TinyBertForTokenClassification": {"logits": AXES},
    "TinyBertForQuestionAnswering": {"start_logits": AXES, "end_logits": AXES},
    "TinyBertForMultipleChoice": {"logits": CHOICE_AXES[:2]},
}
OTHER_SWITCHES = {
    "position_embedding_type": "rotary",
    "norm_placement": "pre",
    "classifier_pooling": "mean",
    "tie_word_embeddings": True,
}
README = Path(__file__).parents[2] / "README.md"
(SNIPPET,) = re.findall(r"```python\n([^`]*import onnxruntime\n[^`]*)```", README.read_text(encoding="utf-8"))


def hashes(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def run(model, *more):
    return main(["export", "--model", str(model), "--format", "onnx", *map(str, more)])


def answer(session, input_ids, attention_mask):
    arrays = session.run(None, {"input_ids": input_ids.numpy(), "attention_mask": attention_mask.numpy()})
    return dict(zip([output.name for output in session.get_outputs()], arrays, strict=True))


def assert_answers_as_torch(session, model, lengths=None):
    """At the given or every length, a text alone and in a batch, padded on either side."""
    choices = (3,) if isinstance(model, hf_tinybert.TinyBertForMultipleChoice) else ()
    longest = model.config.max_position_embeddings
    for length in lengths or range(1, longest + 1):
        for batch_size in (1, 3, 32) if lengths or length == longest else (1, 5):
            input_ids = torch.randint(model.config.vocab_size, (batch_size, *choices, length))
            attention_mask = torch.ones_like(input_ids)
            attention_mask[-1, ..., (length + 1) // 2 :] = 0
            if batch_size > 1:
                attention_mask[0, ..., : length // 2] = 0
            with torch.no_grad():
                expected = model(input_ids, attention_mask)
            for name, values in answer(session, input_ids, attention_mask).items():
                np.testing.assert_allclose(values, expected[name], atol=1e-4, rtol=0, strict=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A classifier fine-tuned on toy rows and exported, with what the export printed."""
    folder = tmp_path_factory.mktemp("made")
    train_file = toy.write_tsv(folder / "train.tsv", toy.make_rows(60))
    words = ["--model", toy.save_pretrained(folder / "pretrained"), "--train_file", train_file]
    words += ["--output_dir", folder / "model", "--epochs", "8", "--batch_size", "8", "--learning_rate", "3e-3"]
    assert main(["finetune", *map(str, words)]) == 0
    rows = toy.make_rows(30, seed=5)
    wrong = [("差评" if label == "好评" else "好评", text) for label, text in rows[:3]]
    toy.write_tsv(folder / "test.tsv", [*wrong, *rows[3:]])
    before = hashes(folder / "model")
    with pytest.MonkeyPatch.context() as patch, (folder / "printed.txt").open("w", encoding="utf-8") as printed:
        patch.setattr("sys.stdout", printed)
        assert run(folder / "model", "--quantize", "int8", "--evaluation_file", folder / "test.tsv") == 0
    return folder, before


@pytest.fixture
def model_folder(made, tmp_path):
    """A copy to damage."""
    return Path(shutil.copytree(made[0] / "model", tmp_path / "model"))


def test_an_export_adds_two_files_where_hub_tools_look_and_changes_no_other(made):
    folder, before = made
    after = hashes(folder / "model")
    assert after.keys() - before.keys() == {"onnx/model.onnx", "onnx/model_quantized.onnx"}
    assert before.items() <= after.items()
    assert {path.name for path in (folder / "model").iterdir() if path.name.startswith(".")} == set()


def test_the_file_is_known_for_that_of_the_model_beside_it(made):
    model, line = load_onnx(made[0] / "model", None)
    assert model is not None
    assert line == f"answered by {made[0] / 'model' / 'onnx' / 'model.onnx'}"


def test_the_files_hold_free_axes_no_path_and_the_opset_of_the_exporter(made):
    for name in ("model.onnx", "model_quantized.onnx"):
        path = made[0] / "model" / "onnx" / name
        session = onnxruntime.InferenceSession(path)
        assert {value.name: value.shape for value in session.get_inputs()} == {
            "input_ids": AXES,
            "attention_mask": AXES,
        }
        assert [(value.name, value.shape) for value in session.get_outputs()] == [("logits", ["batch_size", 2])]
        for trace in (b"modeling_tinybert", b"site-packages", str(Path(__file__).parents[2]).encode()):
            assert trace not in path.read_bytes()
    plain = torch.onnx.export(torch.nn.Linear(1, 1).eval(), (torch.ones(1, 1),), dynamo=True, verbose=False)
    opset = plain.model_proto.opset_import
    assert onnx.load(made[0] / "model" / "onnx" / "model.onnx").opset_import == opset


def test_an_exported_folder_has_nothing_that_validate_finds_fault_with(made):
    folder = made[0] / "model"
    assert [check for check in static_checks(folder) if check.passed is False] == []
    assert validate._check_onnx(folder).count("model") == 2  # both files are told of


def test_a_classifier_answers_as_torch_at_every_length(made):
    model = hf_tinybert.TinyBertForSequenceClassification.from_pretrained(made[0] / "model").eval()
    assert_answers_as_torch(onnxruntime.InferenceSession(made[0] / "model" / "onnx" / "model.onnx"), model)


def test_a_text_of_nothing_but_padding_is_finite_and_changes_no_other(made):
    for name in ("model.onnx", "model_quantized.onnx"):
        session = onnxruntime.InferenceSession(made[0] / "model" / "onnx" / name)
        input_ids, mask = torch.full((2, 9), 7), torch.ones((2, 9), dtype=torch.long)
        expected = answer(session, input_ids, mask)["logits"][1]
        mask[0] = 0
        values = answer(session, input_ids, mask)["logits"]
        assert np.isfinite(values).all()
        np.testing.assert_allclose(values[1], expected, atol=1e-5 if name == "model.onnx" else 0.5)


def test_the_scores_before_and_after_are_those_of_evaluate(made, tmp_path):
    folder, _ = made
    words = ["--model", str(folder / "model"), "--test_file", str(folder / "test.tsv")]
    assert main(["evaluate", *words, "--output_file", str(tmp_path / "scores.json")]) == 0
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["scores"]["test.tsv"]["model"]
    printed = (folder / "printed.txt").read_text(encoding="utf-8")
    assert scores["accuracy"] > 0.8  # it has learnt something, so a broken export would show
    lines = {line.split()[0]: line.split() for line in printed.splitlines() if " accuracy " in line}
    assert list(lines) == ["torch", "model.onnx", "model_quantized.onnx"]
    assert lines["torch"][2] == lines["model.onnx"][2] == f"{scores['accuracy']:.4f}"
    assert abs(float(lines["model_quantized.onnx"][2]) - scores["accuracy"]) < 0.05  # one row of 30
    assert "largest difference from torch" in printed


def test_the_snippet_of_the_readme_runs_without_torch_and_transformers(made, tmp_path):
    shutil.copytree(made[0] / "model", tmp_path / "runs/demo/sentiment")
    blocked = ("torch", "transformers", "hf_tinybert", "onnx")
    program = f"import sys\nsys.modules.update(dict.fromkeys({blocked}))\n{SNIPPET}"
    texts = ["房间很干净，服务也好", "太让人失望了"]
    for text, mark in zip(texts, ("喜欢", "讨厌"), strict=True):  # words that the toy model knows
        program = program.replace(text, f"{text}书店{mark}")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        [sys.executable, "program.py"],
        capture_output=True,
        encoding="utf-8",
        env=environment | {"PYTHONIOENCODING": "utf-8"},
        cwd=tmp_path,
    )
    assert (result.returncode, result.stdout) == (0, "['好评', '差评']\n"), result.stderr


def test_an_export_that_differs_from_torch_is_refused_and_the_earlier_one_stays(
    made, model_folder, monkeypatch, capsys
):
    """The export of one model, given out as that of another."""
    earlier = made[0] / "model" / "onnx" / "model.onnx"
    monkeypatch.setattr(export, "export_onnx", lambda _, path, source: shutil.copy(earlier, path))
    model = hf_tinybert.TinyBertForSequenceClassification.from_pretrained(model_folder)
    with torch.no_grad():
        model.classifier.bias[0] += 0.002  # of which the n-grams leave half
    model.save_pretrained(model_folder)
    before = hashes(model_folder)
    assert run(model_folder) == 2
    error = capsys.readouterr().err
    assert "differs from torch by 0.001" in error and "nothing was written" in error
    assert hashes(model_folder) == before


def test_a_nan_is_a_difference(made):
    model = hf_tinybert.TinyBertForSequenceClassification.from_pretrained(made[0] / "model").eval()
    onnx_model = OnnxModel(made[0] / "model" / "onnx" / "model.onnx", model.config)
    with torch.no_grad():
        model.classifier.bias[0] = torch.nan
    with pytest.raises(UserError, match="differs from torch by nan"):
        export._check(model, onnx_model)


def test_a_second_export_replaces_the_first_and_tells_of_the_int8_file_that_stays(
    made, model_folder, monkeypatch, capsys
):
    earlier = made[0] / "model" / "onnx" / "model.onnx"
    monkeypatch.setattr(export, "export_onnx", lambda _, path, source: shutil.copy(earlier, path))
    (model_folder / "onnx" / "model.onnx").write_bytes(b"old")
    assert run(model_folder) == 0
    printed = capsys.readouterr().out
    assert (model_folder / "onnx" / "model.onnx").read_bytes() == earlier.read_bytes()
    assert "in place of an earlier one" in printed
    assert "model_quantized.onnx is that of an earlier export and stays" in printed


def change_config(folder: Path, **changes):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | changes), encoding="utf-8")


def drop_weight(folder: Path):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["classifier.bias"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "words", "message"),
    [
        (lambda folder: change_config(folder, architectures=["TinyBertForX"]), (), "must name one of TinyBertModel"),
        (lambda folder: change_config(folder, architectures=None), (), "must name one of TinyBertModel"),
        (drop_weight, (), "lacks 1 weights of TinyBertForSequenceClassification or has them in another shape, for ex"),
        (lambda folder: (folder / "task.json").unlink(), ("--evaluation_file", "test.tsv"), "not fine-tuned here"),
        (lambda _: None, ("--evaluation_file", "absent.tsv"), "absent.tsv"),
        (lambda _: None, ("--encoding", "utf-8"), "none is given"),
        (
            lambda folder: change_config(folder, architectures=["TinyBertModel"]),
            ("--evaluation_file", "test.tsv"),
            "is of the task sequence-classification, but its config names TinyBertModel",
        ),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(model_folder, damage, words, message, capsys):
    shutil.rmtree(model_folder / "onnx")
    damage(model_folder)
    before = hashes(model_folder)
    assert run(model_folder, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert hashes(model_folder) == before


def test_without_its_libraries_the_extra_is_named(made, monkeypatch, capsys):
    find_spec = export.importlib.util.find_spec
    monkeypatch.setattr(
        export.importlib.util, "find_spec", lambda name: None if name == "onnxscript" else find_spec(name)
    )
    assert run(made[0] / "model") == 2
    assert capsys.readouterr().err.endswith("error: export needs onnxscript; pip install 'hf-tinybert[onnx]'\n")


@pytest.mark.parametrize("head", HEADS)
def test_every_head_answers_as_torch_at_lengths_that_people_use(head, tiny_model, tmp_path):
    model = tiny_model(getattr(hf_tinybert, head), **{**OTHER_SWITCHES, "max_position_embeddings": 512})
    export.export_onnx(model, tmp_path / "model.onnx")
    assert_answers_as_torch(onnxruntime.InferenceSession(tmp_path / "model.onnx"), model, lengths=(7, 128, 512))


def test_a_tagger_with_a_crf_answers_as_torch(tiny_model, tmp_path):
    model = tiny_model(hf_tinybert.TinyBertForTokenClassification, num_ngram_buckets=5_021, num_labels=5)
    export.export_onnx(model, tmp_path / "model.onnx")
    assert_answers_as_torch(onnxruntime.InferenceSession(tmp_path / "model.onnx"), model, lengths=(1, 7, 24))


@pytest.mark.slow
@pytest.mark.parametrize("switches", [{}, OTHER_SWITCHES], ids=["reference", "other switches"])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_is_exported_with_free_axes_and_answers_as_torch(
    head, switches, tiny_model, tiny_tokenizer, tmp_path
):
    model = tiny_model(getattr(hf_tinybert, head), **switches)
    model.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    assert run(tmp_path, "--quantize", "int8") == 0
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    axes = CHOICE_AXES if head == "TinyBertForMultipleChoice" else AXES
    assert {value.name: value.shape for value in session.get_inputs()} == {"input_ids": axes, "attention_mask": axes}
    outputs = {value.name: [size for size in value.shape if isinstance(size, str)] for value in session.get_outputs()}
    assert outputs == HEADS[head]
    assert_answers_as_torch(session, model)


@pytest.mark.slow
def test_a_model_saved_in_half_precision_is_exported_in_single(tiny_model, tiny_tokenizer, tmp_path):
    model = tiny_model(hf_tinybert.TinyBertModel).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    assert run(tmp_path) == 0
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    assert session.get_outputs()[0].type == "tensor(float)"
    assert_answers_as_torch(session, model.float())
