import json
import os
import shutil
import time
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, pipeline

from hf_tinybert import TinyBertModel
from training import pretrain as pretrain_module
from training.__main__ import main
from training.arguments import PretrainArguments
from training.encoding import encode, pack, token_counts
from training.masking import evaluation_batches
from training.run_folder import training_dir, write_json
from training.tokenizer import DEFAULT_VOCAB_SIZE
from training.trainer import SaveCallback


FAST = ["--size", "reference", "--block_size", "32", "--batch_size", "8"]


@pytest.fixture
def text_file(tmp_path, sentences):
    path = tmp_path / "reviews.txt"
    path.write_text("\n".join(sentences), encoding="utf-8")
    return str(path)


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def results_of(folder):
    return json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))


def run(*argv):
    return main(["pretrain", *map(str, argv)])


@pytest.mark.parametrize(("recipe", "layers"), [("mini-zh", 3), ("mini-zh-characters", 4)])
def test_encoders_of_mini_keep_below_five_million_parameters(recipe, layers):
    fields = yaml.safe_load(Path(f"training/recipes/{recipe}.yaml").read_text(encoding="utf-8"))
    arguments = PretrainArguments(**fields, output_dir="unused")
    tokens = DEFAULT_VOCAB_SIZE[arguments.chinese_tokens or pretrain_module.DEFAULT_CHINESE_TOKENS]
    tokens = min(tokens, pretrain_module.vocabulary_limit(arguments) or tokens)
    tokenizer = MagicMock(pad_token_id=0, __len__=lambda _: tokens)

    config = pretrain_module.new_config(arguments, tokenizer)

    assert (config.vocab_size, config.num_hidden_layers, config.hidden_size) == (tokens, layers, 256)
    assert TinyBertModel(config).num_parameters() <= 5_000_000


@pytest.mark.parametrize(("layers", "limit"), [(None, 14_000), (3, None), (4, 14_000), (5, 14_000)])
def test_fewer_layers_leave_mini_room_for_more_tokens(layers, limit):
    arguments = PretrainArguments(size="mini", num_hidden_layers=layers, output_dir="unused")
    assert pretrain_module.vocabulary_limit(arguments) == limit


def test_a_finished_run_is_a_folder_that_loads_and_holds_nothing_else(tmp_path, text_file, capsys):
    folder = tmp_path / "runs" / "zh"
    assert run("--train_files", text_file, *FAST, "--max_steps", 3, "--output_dir", folder) == 0
    assert {path.name for path in folder.iterdir()} == {
        "README.md", "config.json", "configuration_tinybert.py", "eval_results.json", "pictures",
        "model.safetensors", "modeling_tinybert.py", "tokenizer.json", "tokenizer_config.json",
    }  # fmt: skip
    model = AutoModelForMaskedLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert model.config.vocab_size == len(tokenizer)
    assert tokenizer.model_max_length == model.config.max_position_embeddings
    out = capsys.readouterr().out
    for fact in ("400", "tokens/s", "ln V", "unigram", "the last checkpoint is the one kept"):
        assert fact in out
    assert {path.name for path in (folder / "pictures").iterdir()} == {"loss_curve.png", "lengths.png"}
    for path in folder.rglob("*.*"):
        assert str(tmp_path).encode() not in path.read_bytes(), path.name


def test_a_given_tokenizer_cuts_at_what_the_model_takes(tmp_path, text_file):
    tokenizer, folder = tmp_path / "tokenizer", tmp_path / "zh"
    assert main(["tokenizer", "--train_files", text_file, "--output_dir", str(tokenizer)]) == 0
    assert AutoTokenizer.from_pretrained(tokenizer).model_max_length > 64
    given = ["--tokenizer", tokenizer, "--max_steps", 1]
    assert run("--train_files", text_file, *FAST, *given, "--output_dir", folder) == 0
    assert AutoTokenizer.from_pretrained(folder).model_max_length == 64
    fill = pipeline("fill-mask", model=str(folder))
    assert fill("我[MASK]" + "喜欢" * 100)[0]["sequence"].startswith("我")


def test_it_learns_from_context(tmp_path, text_file):
    folder = tmp_path / "zh"
    budget = ["--max_steps", 300, "--learning_rate", "5e-3"]
    assert run("--train_files", text_file, *FAST, *budget, "--output_dir", folder) == 0
    scores = results_of(folder)["results"]
    assert scores["loss"] < 0.7 * scores["unigram_loss"]
    assert scores["accuracy"] > 2 * scores["unigram_accuracy"]


def test_a_budget_in_tokens_is_turned_into_steps(tmp_path, text_file):
    folder = tmp_path / "zh"
    assert run("--train_files", text_file, *FAST, "--max_tokens", 8 * 32 * 2 + 1, "--output_dir", folder) == 0
    assert results_of(folder)["steps"] == 3


def test_a_budget_in_time_is_kept_and_the_learning_rate_fully_decayed(tmp_path, text_file, monkeypatch):
    rates = []

    class Spy(pretrain_module.PretrainingTrainer):
        def _get_learning_rate(self):
            rates.append(super()._get_learning_rate())
            return rates[-1]

    monkeypatch.setattr(pretrain_module, "PretrainingTrainer", Spy)
    monkeypatch.setattr(pretrain_module, "SAVING_SECONDS", 2.0)
    folder = tmp_path / "zh"
    started = time.monotonic()
    assert run("--train_files", text_file, *FAST, "--time_budget", "10s", "--output_dir", folder) == 0
    assert 6 < time.monotonic() - started < 10.5
    assert len(rates) == results_of(folder)["steps"] > 10
    assert max(rates) == pytest.approx(2e-3, rel=0.2)
    assert rates[-1] < 0.02 * 2e-3


def test_the_seed_decides_everything(tmp_path, text_file):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        budget = ["--max_steps", 4, "--dropout", 0.1, "--seed", seed]
        assert run("--train_files", text_file, *FAST, *budget, "--output_dir", tmp_path / name) == 0
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_micro_batches_change_nothing_but_rounding(tmp_path, text_file):
    for name, micro in (("whole", 8), ("micro", 2)):
        budget = ["--max_steps", 4, "--micro_batch_size", micro, "--precision", "float32"]
        assert run("--train_files", text_file, *FAST, *budget, "--output_dir", tmp_path / name) == 0
    whole, micro = weights(tmp_path / "whole"), weights(tmp_path / "micro")
    for name in whole:
        assert torch.allclose(whole[name], micro[name], atol=1e-4), name


def test_precision_is_recorded_and_both_learn_about_the_same(tmp_path, text_file):
    for precision in ("float32", "bfloat16"):
        arguments = ["--train_files", text_file, *FAST, "--max_steps", 60, "--precision", precision]
        assert run(*arguments, "--output_dir", tmp_path / precision) == 0
    single, half = (results_of(tmp_path / name) for name in ("float32", "bfloat16"))
    assert (single["settings"]["precision"], half["settings"]["precision"]) == ("float32", "bfloat16")
    assert all(weight.dtype == torch.float32 for weight in weights(tmp_path / "bfloat16").values())
    assert half["results"]["loss"] == pytest.approx(single["results"]["loss"], abs=0.02)
    assert half["results"]["loss"] < half["results"]["unigram_loss"]


def test_resumed_run_keeps_the_precision_that_it_began_with(tmp_path, text_file, monkeypatch):
    """Also on a machine that would choose another."""
    arguments = ["--train_files", text_file, *FAST, "--max_steps", 4, "--save_steps", 2]
    for first in ("float32", "bfloat16"):
        folder = tmp_path / first
        monkeypatch.setattr("training.pretrain.fastest_precision", lambda device, first=first: first)
        with monkeypatch.context() as patch:
            patch.setattr("training.pretrain.evaluate", raise_interrupt)
            assert run(*arguments, "--output_dir", folder) == 130
        other = {"float32": "bfloat16", "bfloat16": "float32"}[first]
        monkeypatch.setattr("training.pretrain.fastest_precision", lambda device, other=other: other)
        assert run(*arguments, "--output_dir", folder, "--resume") == 0
        assert results_of(folder)["settings"]["precision"] == first


def test_model_is_evaluated_as_it_computes_when_it_is_loaded(tmp_path, text_file, monkeypatch):
    """And not in the precision of training."""
    evaluated = []
    evaluate = pretrain_module.evaluate
    monkeypatch.setattr(
        pretrain_module, "evaluate", lambda model, *rest: evaluated.append(model) or evaluate(model, *rest)
    )
    arguments = ["--train_files", text_file, *FAST, "--max_steps", 3, "--precision", "bfloat16"]
    assert run(*arguments, "--output_dir", tmp_path / "model") == 0
    loaded, ids = AutoModelForMaskedLM.from_pretrained(tmp_path / "model"), torch.arange(5, 13)[None]
    evaluated[0].set_attn_implementation("sdpa")
    assert torch.equal(evaluated[0](ids).logits, loaded(ids).logits)


def raise_interrupt(*args, **kwargs):
    raise KeyboardInterrupt


def test_an_interrupted_run_resumes_to_the_same_weights(tmp_path, text_file, monkeypatch, capsys):
    arguments = ["--train_files", text_file, *FAST, "--max_steps", 9, "--save_steps", 3, "--dropout", 0.1]
    assert run(*arguments, "--output_dir", tmp_path / "whole") == 0

    real = SaveCallback.on_step_end

    def interrupt(self, args, state, control, **kwargs):
        if state.global_step == 8:
            raise KeyboardInterrupt
        return real(self, args, state, control, **kwargs)

    monkeypatch.setattr(SaveCallback, "on_step_end", interrupt)
    folder = tmp_path / "cut"
    assert run(*arguments, "--output_dir", folder) == 130
    assert not folder.exists()
    monkeypatch.undo()
    assert run(*arguments, "--output_dir", folder, "--resume") == 0
    assert same(weights(folder), weights(tmp_path / "whole"))
    out = capsys.readouterr().out
    assert "nothing to resume" not in out and "going on from checkpoint-6" in out
    assert [point["step"] for point in results_of(folder)["loss_curve"]] == [1, 3, 9]  # as the whole run's
    assert results_of(folder)["loss_curve"][:2] == results_of(tmp_path / "whole")["loss_curve"][:2]


def test_a_checkpoint_cut_while_written_is_not_resumed_from(tmp_path, text_file, monkeypatch, capsys):
    arguments = ["--train_files", text_file, *FAST, "--max_steps", 6, "--save_steps", 2]
    assert run(*arguments, "--output_dir", tmp_path / "whole") == 0

    def cut(self, args, state, control, **kwargs):
        if state.global_step == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(SaveCallback, "on_save", cut)
    folder = tmp_path / "cut"
    assert run(*arguments, "--output_dir", folder) == 130
    (training_dir(folder) / "checkpoint-4" / "model.safetensors").write_bytes(b"half")
    monkeypatch.undo()
    assert run(*arguments, "--output_dir", folder, "--resume") == 0
    assert (
        "checkpoint-4 is damaged (model.safetensors is not as it was written): going back" in capsys.readouterr().out
    )
    assert same(weights(folder), weights(tmp_path / "whole"))


def test_resume_with_nothing_to_resume_starts_afresh_and_says_so(tmp_path, text_file, capsys):
    arguments = ["--train_files", text_file, *FAST, "--max_steps", 2, "--output_dir", tmp_path / "zh", "--resume"]
    assert run(*arguments) == 0
    assert "nothing to resume" in capsys.readouterr().out


def test_resume_refuses_other_arguments(tmp_path, text_file, monkeypatch, capsys):
    arguments = ["--train_files", text_file, *FAST, "--max_steps", 4, "--save_steps", 1]
    folder = tmp_path / "zh"
    with monkeypatch.context() as patch:
        patch.setattr(pretrain_module, "evaluate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(*arguments, "--output_dir", folder) == 130
    monkeypatch.chdir(tmp_path)  # the same text and folder by other names
    arguments = ["--train_files", "reviews.txt", *FAST, "--max_steps", 4, "--save_steps", 2]
    assert run(*arguments, "--output_dir", "zh/", "--resume", "--seed", 7) == 2
    assert "cannot resume with other arguments (--seed was 0, is 7)" in capsys.readouterr().err
    assert run(*arguments, "--output_dir", "zh/", "--resume") == 0


def test_training_goes_on_from_a_model_with_its_tokenizer(tmp_path, text_file):
    assert run("--train_files", text_file, *FAST, "--max_steps", 2, "--output_dir", tmp_path / "one") == 0
    more = ["--train_files", text_file, "--model", tmp_path / "one", "--block_size", 32, "--max_steps", 2]
    assert run(*more, "--output_dir", tmp_path / "two") == 0
    one, two = (AutoTokenizer.from_pretrained(tmp_path / name) for name in ("one", "two"))
    assert one.get_vocab() == two.get_vocab()
    assert not same(weights(tmp_path / "one"), weights(tmp_path / "two"))
    distance = max(
        (weights(tmp_path / "one")[k] - weights(tmp_path / "two")[k]).abs().max() for k in weights(tmp_path / "one")
    )
    assert distance < 0.05  # it went on; new weights would lie much farther away


def test_the_sparse_evaluation_equals_the_dense_one(tmp_path, sentences, tokenizer):
    model = pretrain_module.TinyBertForMaskedLM(pretrain_module.TinyBertConfig(vocab_size=len(tokenizer))).eval()
    blocks = pack(encode(sentences[:50], tokenizer), 32, tokenizer.pad_token_id)
    counts = token_counts(blocks, len(tokenizer), tokenizer.all_special_ids)
    scores = pretrain_module.evaluate(model, blocks, tokenizer, counts)
    logits, labels = [], []
    with torch.no_grad():
        for batch in evaluation_batches(blocks, tokenizer, 7):
            labels.append(batch.pop("labels").flatten())
            logits.append(model(**batch).logits.flatten(0, 1))
    logits, labels = torch.cat(logits), torch.cat(labels)
    assert scores["predictions"] == (labels != -100).sum()
    assert scores["loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), abs=1e-5)
    shares = np.log((counts + 1) / (counts + 1).sum())
    assert scores["unigram_loss"] == pytest.approx(-shares[labels[labels != -100].numpy()].mean(), abs=1e-5)


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--max_steps", 3, "--time_budget", "1m"], "give one budget, not 2: --max_steps, --time_budget"),
        (["--time_budget", "soon"], "is not a duration"),
        (["--max_steps", 0], "--max_steps is 0"),
        (["--max_steps", 1, "--block_size", 128], "--block_size 128 is longer than the model takes (64 positions)"),
        (["--max_steps", 1, "--batch_size", 8, "--micro_batch_size", 3], "not a multiple"),
        (["--max_steps", 1, "--mlm_probability", 1.5], "--mlm_probability is 1.5"),
        (["--max_steps", 1, "--seed", -1], "--seed is -1, but must be at least 0"),
        (["--max_steps", 1, "--seed", 2**32], "--seed is 4294967296"),
        (["--max_steps", 1, "--learning_rate", "nan"], "--learning_rate is nan"),
        (["--max_steps", 1, "--learning_rate", "inf"], "--learning_rate is inf"),
        (["--max_steps", 1, "--weight_decay", -1], "--weight_decay is -1.0"),
        (["--max_steps", 1, "--vocab_size", 0], "--vocab_size is 0"),
        (["--max_steps", 1, "--num_hidden_layers", 0], "--num_hidden_layers is 0, but must be at least 1"),
        (["--max_steps", 1, "--report_to", "nobody"], "--report_to nobody is unknown or not installed"),
        (["--max_steps", 1, "--tokenizer", "nowhere"], "nowhere"),
        (["--time_budget", "0.1s"], "leaves no time for training"),
        (["--max_steps", 1, "--vocab_size", 50000], "--vocab_size 50000"),
        (["--max_steps", 1, "--tokenizer", "x", "--vocab_size", 100], "leave --vocab_size out"),
    ],
)
def test_wrong_arguments_are_one_line_and_leave_nothing(tmp_path, text_file, capsys, argv, line):
    folder = tmp_path / "runs" / "zh"
    assert run("--train_files", text_file, "--size", "reference", *argv, "--output_dir", folder) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert not folder.parent.exists()


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("no.txt", None, "no such file"),
        ("empty.txt", b"", "is empty"),
        ("binary.txt", bytes(range(256)) * 9, "looks binary"),
        ("table.csv", b"body,label\na,1\n", "has no column 'text'"),
    ],
)
def test_wrong_text_is_one_line_and_leaves_nothing(tmp_path, capsys, name, content, line):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    folder = tmp_path / "runs" / "deep" / "zh"
    for verb in ("pretrain", "tokenizer"):
        assert main([verb, "--train_files", str(tmp_path / name), "--output_dir", str(folder)]) == 2
        error = capsys.readouterr().err
        assert line in error and error.count("\n") == 1
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--model", "x", "--size", "tiny"], "--model brings its shape and tokenizer along; leave --size out"),
        (["--model", "x", "--tokenizer", "x", "--vocab_size", 9], "leave --tokenizer and --vocab_size out"),
        (["--model", "x", "--num_hidden_layers", 3], "leave --num_hidden_layers out"),
        (["--tokenizer", "x", "--chinese_tokens", "words"], "leave --chinese_tokens out"),
    ],
)
def test_what_would_be_ignored_is_refused(tmp_path, text_file, capsys, argv, line):
    assert run("--train_files", text_file, *argv, "--max_steps", 1, "--output_dir", tmp_path / "zh") == 2
    assert line in capsys.readouterr().err


def _without_head(folder):
    state = {
        name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if "mlm_head" not in name
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def _reshape(folder):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    write_json(folder / "config.json", config | {"hidden_size": 128})


def _diverge(folder):
    state = load_file(folder / "model.safetensors")
    state["mlm_head.dense.bias"][3] = float("nan")
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda folder: (folder / "config.json").unlink(), "no config.json"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": "bert"}', "utf-8"), "of the type bert"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"cut"), "no safetensors"),
        (_without_head, "lacks 6 weights of a masked language model"),
        (_reshape, "in another shape, for example"),
        (_diverge, "mlm_head.dense.bias holds NaN"),
    ],
)
def test_a_model_that_cannot_be_continued_is_one_line(tmp_path, text_file, tokenizer, capsys, damage, line):
    model, folder = tmp_path / "model", tmp_path / "runs" / "zh"
    config = pretrain_module.TinyBertConfig(vocab_size=len(tokenizer))
    pretrain_module.TinyBertForMaskedLM(config).save_pretrained(model)
    tokenizer.save_pretrained(model)
    damage(model)
    capsys.readouterr()
    assert run("--train_files", text_file, "--model", model, "--max_steps", 1, "--output_dir", folder) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert not folder.parent.exists()


def test_a_file_name_of_any_bytes_is_read(tmp_path, text_file):
    name = os.fsencode(tmp_path / "a") + b"\xb9\xfa.txt"  # GBK, as from an old archive
    try:
        shutil.copy(text_file, name)
    except OSError:
        pytest.skip("this file system takes UTF-8 alone")
    assert run("--train_files", os.fsdecode(name), *FAST, "--max_steps", 1, "--output_dir", tmp_path / "zh") == 0
    assert results_of(tmp_path / "zh")["corpus"]["files"][0]["name"] == "a\udcb9\udcfa.txt"


@pytest.mark.parametrize(("when", "left"), [("load_corpus", []), ("_train", [".zh.training"])])
def test_an_interrupted_run_leaves_what_can_be_resumed_and_nothing_else(tmp_path, text_file, monkeypatch, when, left):
    monkeypatch.setattr(pretrain_module, when, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    folder = tmp_path / "runs" / "zh"
    assert run("--train_files", text_file, *FAST, "--max_steps", 1, "--output_dir", folder) == 130
    assert [path.name for path in tmp_path.glob("runs/*")] == left
    assert folder.parent.exists() is bool(left)


def test_the_same_documents_are_held_out_whatever_the_seed(text_file, monkeypatch):
    held_out = []
    real = pretrain_module.split_corpus

    def spy(*args, **kwargs):
        split = real(*args, **kwargs)
        held_out.append(split["held_out"]["text"])
        return split

    monkeypatch.setattr(pretrain_module, "split_corpus", spy)
    for seed in (0, 1):
        pretrain_module.prepare(PretrainArguments(train_files=[text_file], output_dir="x", seed=seed, block_size=32))
    assert held_out[0] == held_out[1] != []


@pytest.mark.parametrize(
    ("content", "line"),
    [("我爱读书\n", "1 different documents"), ("我爱\n读书\n好书\n", "fewer than one block of 64")],
)
def test_too_little_text_is_one_line_and_leaves_nothing(tmp_path, capsys, content, line, tokenizer):
    path = tmp_path / "small.txt"
    path.write_text(content, encoding="utf-8")
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    folder = tmp_path / "runs" / "zh"
    argv = ["--train_files", path, "--tokenizer", tmp_path / "tokenizer", "--size", "reference", "--max_steps", 1]
    assert run(*argv, "--output_dir", folder) == 2
    error = capsys.readouterr().err
    assert line in error and error.count("\n") == 1
    assert not folder.parent.exists()


def test_a_folder_that_holds_a_model_is_not_touched(tmp_path, text_file, capsys):
    folder = tmp_path / "zh"
    folder.mkdir()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    assert run("--train_files", text_file, *FAST, "--max_steps", 1, "--output_dir", folder) == 2
    assert "already holds a model" in capsys.readouterr().err
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_a_mistake_does_not_cost_the_checkpoints_of_an_interrupted_run(tmp_path, text_file, monkeypatch, capsys):
    arguments = ["--train_files", text_file, *FAST, "--max_steps", 4, "--save_steps", 1]
    folder = tmp_path / "zh"
    with monkeypatch.context() as patch:
        patch.setattr(pretrain_module, "evaluate", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(*arguments, "--output_dir", folder) == 130
    saved = sorted(path.name for path in training_dir(folder).iterdir())
    assert "checkpoint-4" in saved
    assert run("--train_files", tmp_path / "typo.txt", *FAST, "--max_steps", 4, "--output_dir", folder) == 2
    assert "typo.txt" in capsys.readouterr().err
    assert sorted(path.name for path in training_dir(folder).iterdir()) == saved
    assert run(*arguments, "--output_dir", folder, "--resume") == 0
