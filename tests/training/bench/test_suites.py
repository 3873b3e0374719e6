"""Each suite from end to end on a toy text."""

import json

import numpy as np
import pytest
import torch

from tests.training.conftest import make_sentences
from training.__main__ import main
from training.bench import corpus, inference, learning, train
from training.bench.inference_peers import TorchEncoder
from training.bench.learning_peers import LabelledBert
from training.bench.train_peers import bert_config, concatenated_blocks
from training.encoding import encode
from training.loading import load_tokenizer
from training.tokenizer import train_tokenizer


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(make_sentences(400)) + "\n", encoding="utf-8")
    return path


def run(suite, text, tmp_path, *more):
    file = tmp_path / "figures.json"
    words = ["bench", "--suite", suite, "--text", text, "--json", file, "--rounds", "2", "--seconds", "0.01", *more]
    assert main([*map(str, words)]) == 0
    content = json.loads(file.read_text(encoding="utf-8"))
    assert content["suite"] == suite
    return content["figures"], {goal["what"]: goal for goal in content["goals"]}


def is_spread(value) -> bool:
    return set(value) == {"median", "least", "greatest"} and 0 < value["least"] <= value["median"] <= value["greatest"]


def test_training_is_measured_beside_all_peers_and_a_vocabulary_too_large_is_named(
    text, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(train, "SIZES", ("tiny",))
    monkeypatch.setattr(train, "VOCABULARIES", (130, 21_128))
    monkeypatch.setattr(train, "GOAL", ("tiny", 130))
    figures, goals = run("train", text, tmp_path, "--batch_size", "2")
    printed = capsys.readouterr().out
    assert "vocabulary 21,128 is left out: --vocab_size 21128 is larger than the text supports" in printed
    (configuration,) = figures["configurations"]
    rows = configuration["rows"]
    assert list(rows)[:5] == [
        train.OURS,
        train.BERT,
        train.MODERNBERT,
        train.BERT + train.TUNED,
        train.MODERNBERT + train.TUNED,
    ]
    assert "matrix products alone, float32" in rows
    for name, row in rows.items():
        assert is_spread(row["tokens_per_second"]) and is_spread(row["ours_is_faster"])
        assert len(row["rounds"]) == 2 and row["steps_per_round"] >= 1
        assert row["tokens_per_step"] == 256 if name != train.OURS else 250 < row["tokens_per_step"] <= 256
        assert name in printed
    assert rows[train.OURS]["ours_is_faster"]["median"] == 1
    assert rows[train.BERT]["peak_bytes"] > 0
    against = [a / b for a, b in zip(rows[train.OURS]["rounds"], rows[train.BERT]["rounds"], strict=True)]
    assert goals["training tokens/s against HF Bert + Trainer"]["value"] == pytest.approx(np.median(against))


def test_blocks_of_the_peers_are_the_tokens_of_the_text_end_to_end(text, tmp_path):
    texts = text.read_text(encoding="utf-8").splitlines()
    train_tokenizer(texts, 130, "words").save_pretrained(tmp_path / "tokenizer")
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    blocks = np.load(train._write_blocks(texts, tmp_path / "tokenizer", 2))
    tokens = np.concatenate(list(encode(texts, tokenizer))).tolist()
    assert blocks.shape == (len(tokens) // 128, 128) and blocks.ravel().tolist() == tokens[: blocks.size]
    row = concatenated_blocks(blocks, tokenizer)[0]
    asked = tokenizer.get_special_tokens_mask(row["input_ids"], already_has_special_tokens=True)
    assert row["special_tokens_mask"] == asked and sum(asked) > 2 and row["attention_mask"] == [1] * 128


def test_the_corpus_is_measured_beside_the_bare_tokenizers_on_the_same_tokens(text, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus, "GROWTH_ROUNDS", 1)
    figures, goals = run("corpus", text, tmp_path)
    blocks, growth = figures["blocks"], figures["growth"]
    assert set(blocks["mb_per_second"]) >= {"reading", "encoding", "packing", "all"}
    assert all(is_spread(value) for value in blocks["mb_per_second"].values())
    assert blocks["tokens"][corpus.OURS] == blocks["tokens"][corpus.BARE] > 0
    lines = text.read_text(encoding="utf-8").splitlines()
    assert blocks["bytes"] == sum(len(line.encode()) for line in lines)
    assert [row["times"] for row in growth] == [1, 4, 16]
    assert growth[2]["tokens"] == pytest.approx(16 * growth[0]["tokens"], rel=0.1)  # nothing was taken for a repeat
    assert goals["seconds for a tokenizer on 18 MB of text"]["met"] is None  # so little text says nothing of it


@pytest.mark.slow
def test_inference_is_measured_beside_all_peers(text, tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "LENGTHS", (16, 32))
    labelled = tmp_path / "labelled.tsv"
    rows = [f"{index % 2}\t{sentence}" for index, sentence in enumerate(make_sentences(40, seed=1))]
    labelled.write_text("\n".join(["label\ttext", *rows]) + "\n", encoding="utf-8")
    figures, goals = run("inference", text, tmp_path, "--labelled", labelled)
    assert set(figures) == {"16", "32"}
    for row in figures["16"].values():
        assert is_spread(row["texts_per_second"]) and 0 < row["p50_ms"] <= row["p95_ms"]
    assert figures["16"][inference.PIPELINE]["batch_size"] in (1, 8, 32, 64, 128)
    assert len(figures["16"]) == 9 and len(goals) == 3


@pytest.mark.slow
def test_learning_is_measured_on_the_same_masked_tokens(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(learning, "SEEDS", (0, 1))
    monkeypatch.setattr(learning, "VOCABULARY", 130)
    figures, _ = run("learning", text, tmp_path, "--max_tokens", "1000", "--batch_size", "2")
    assert [run["seed"] for run in figures["runs"]] == [0, 1]
    assert all(2 < run[name] < 6 for run in figures["runs"] for name in (learning.OURS, learning.BERT))
    assert "still on the unigram plateau" in capsys.readouterr().out


def test_berts_loss_on_labelled_positions_is_its_dense_loss():
    torch.manual_seed(0)
    config = bert_config("tiny", 200, 0, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    sparse = LabelledBert(config).train()
    dense = super(LabelledBert, sparse)
    ids = torch.randint(5, 200, (3, 20))
    labels = torch.where(torch.rand(3, 20) < 0.3, ids, -100)
    ours, theirs = sparse(ids, labels=labels).loss, dense.forward(ids, labels=labels).loss
    torch.testing.assert_close(ours, theirs)
    parameters = list(sparse.parameters())
    gradients = [torch.autograd.grad(loss, parameters, allow_unused=True) for loss in (ours, theirs)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_torchs_encoder_answers_a_padded_text_as_it_answers_it_alone():
    torch.manual_seed(0)
    model = TorchEncoder(50, num_hidden_layers=2, hidden_size=16, num_attention_heads=2).eval()
    ids, mask = torch.randint(1, 50, (2, 9)), torch.ones(2, 9, dtype=torch.long)
    mask[1, 5:] = 0
    with torch.inference_mode():
        torch.testing.assert_close(model(ids, mask)[1:], model(ids[1:, :5], mask[1:, :5]), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--suite", "inference"], "--suite inference needs --labelled FILE"),
        (["--suite", "train", "--labelled", "x.tsv"], "--labelled is for --suite inference"),
        (["--suite", "train", "--rounds", "0"], "--rounds is 0, but must be at least 1"),
        (["--suite", "train", "--seconds", "0"], "--seconds is 0.0, but must be above 0"),
        (["--suite", "speed"], "--suite 'speed' is none of train, learning, inference, corpus"),
        (["--suite", "corpus", "--json", "nowhere/f.json"], "--json nowhere/f.json: cannot write in"),
    ],
)
def test_a_mistake_is_one_line_before_any_work(text, words, message, capsys):
    assert main(["bench", "--text", str(text), *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
