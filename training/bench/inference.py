"""`bench --suite inference`: texts a second and the latency of one text, beside the peers."""

import contextlib
import dataclasses
import io
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from transformers import BertForSequenceClassification

from hf_tinybert import TinyBertConfig, TinyBertForSequenceClassification
from training import export
from training.arguments import BenchArguments, ExportArguments
from training.baseline import is_unspaced
from training.bench import data, inference_peers
from training.bench.peers import company, in_turn
from training.bench.report import Goal, Report, Spread, table
from training.bench.train_peers import bert_config, shape
from training.clock import say
from training.errors import UserError
from training.files import read_rows
from training.labelled import SINGLE_LABEL
from training.loading import load_tokenizer
from training.ngrams import token_units
from training.onnx_model import ONNX_FOLDER
from training.predict import Task
from training.pretrain import SIZES
from training.run_folder import TASK_FILE, write_json


SIZE, VOCABULARY = "tiny", 21_128
TOKENIZER_BYTES = 4_000_000
TEXTS = 600  # of a turn
FITTED = 4_000  # rows that TF-IDF is fitted on
LENGTHS = (128, 512)
NGRAM_BUCKETS = 2**19  # of a classifier as `finetune` makes it
OURS, PIPELINE = "ours: predict", "HF pipeline, Bert"
SORTED, OURS_PIPELINE = ", sorted by length", "HF pipeline, ours, sorted by length"
TORCH, TFIDF = "nn.TransformerEncoder, sorted by length", "TF-IDF + logistic regression"
INT8, NOT_EXPORTED, NGRAMS = "the same, int8", "ours: predict, not exported", "ours: predict, with n-grams"


def run(arguments: BenchArguments) -> Report:
    """Measure.

    Raises:
        UserError: If a file cannot be used, ONNX is not installed, or a peer died.
    """
    export.check_installed()
    rows = _read_labelled(arguments)
    texts = data.sample([text for text, _ in rows], TEXTS)
    lengths = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        models = _make_models(data.first_bytes(data.read_text(arguments), TOKENIZER_BYTES), folder)
        for max_length in LENGTHS:
            lengths[max_length] = _measure(arguments, models, texts, data.sample(rows, FITTED), max_length)
            _show(max_length, len(texts), lengths[max_length])
    for max_length, measured in lengths.items():
        faster = measured[INT8]["texts_per_second"]["median"] / measured[OURS]["texts_per_second"]["median"]
        print(f"\nint8 against float32, up to {max_length} tokens: {faster:.2f}x the texts/s")
    settings = {"texts": len(texts), "size": SIZE, "single_texts": inference_peers.SINGLE}
    return Report({str(length): measured for length, measured in lengths.items()}, goals(lengths), settings)


def _read_labelled(arguments: BenchArguments) -> list[tuple[str, str]]:
    columns = (arguments.text_column, arguments.label_column)
    rows = [(row[columns[0]], row[columns[1]]) for _, row in read_rows(arguments.labelled, columns=columns)]
    rows = [(text, str(label)) for text, label in rows if isinstance(text, str) and text.strip()]
    if len({label for _, label in rows}) < 2:
        raise UserError(f"--labelled {arguments.labelled}: TF-IDF needs texts of two labels at least")
    return rows


def _make_models(texts: list[str], folder: Path) -> dict[str, str]:
    """Folders of our model, with and without its export, and of BERT's of the same shape; weights are random."""
    path, why = data.make_tokenizer(texts, VOCABULARY, folder / "tokenizer")
    if path is None:
        say(f"vocabulary {VOCABULARY:,} is left out: {why}; what the text supports is taken")
        path, why = data.make_tokenizer(texts, None, folder / "tokenizer")
    if path is None:
        raise UserError(f"--text: {why}")
    tokenizer = load_tokenizer(path)
    torch.manual_seed(0)
    ids = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    ours = TinyBertForSequenceClassification(TinyBertConfig(**SIZES[SIZE], **ids))
    ngrams = TinyBertForSequenceClassification(TinyBertConfig(**SIZES[SIZE], **ids, num_ngram_buckets=NGRAM_BUCKETS))
    ngrams.ngrams.units.copy_(torch.from_numpy(token_units(tokenizer, len(tokenizer), is_unspaced(texts))))
    theirs = BertForSequenceClassification(bert_config(SIZE, **ids))
    for name, model in (("ours", ours), ("exported", ours), ("ngrams", ngrams), ("theirs", theirs)):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    task = Task(
        task="sequence-classification",
        problem_type=SINGLE_LABEL,
        text_column="text",
        text_pair_column=None,
        label_column="label",
        max_length=LENGTHS[0],
        label_names=["0", "1"],
    )
    for name in ("ours", "exported", "ngrams"):
        write_json(folder / name / TASK_FILE, dataclasses.asdict(task))
    with contextlib.redirect_stdout(io.StringIO()):
        export.main(ExportArguments(model=str(folder / "exported"), quantize="int8"))
        export.main(ExportArguments(model=str(folder / "ngrams")))
    models = {name: str(folder / name) for name in ("ours", "exported", "ngrams", "theirs")}
    return models | {"int8": str(folder / "exported" / ONNX_FOLDER / export.QUANTIZED_FILE)}


def _measure(
    arguments: BenchArguments,
    models: dict[str, str],
    texts: list[str],
    fitted: list[tuple[str, str]],
    max_length: int,
) -> dict[str, dict]:
    given = {"texts": texts, "max_length": max_length}
    labels = {label: index for index, label in enumerate(sorted({label for _, label in fitted}))}
    with company() as start:
        peers = [
            start(OURS, inference_peers.ours, model=models["exported"], **given),
            start(INT8, inference_peers.ours, model=models["exported"], onnx=models["int8"], **given),
            start(NGRAMS, inference_peers.ours, model=models["ngrams"], **given),
            start(NOT_EXPORTED, inference_peers.ours, model=models["ours"], **given),
            start(OURS_PIPELINE, inference_peers.hf_pipeline, model=models["ours"], by_length=True, **given),
            start(PIPELINE, inference_peers.hf_pipeline, model=models["theirs"], **given),
            start(PIPELINE + SORTED, inference_peers.hf_pipeline, model=models["theirs"], by_length=True, **given),
            start(TORCH, inference_peers.torch_encoder, tokenizer=models["ours"], shape=shape(SIZE), **given),
        ]
        fit = {"training_texts": [text for text, _ in fitted], "labels": [labels[label] for _, label in fitted]}
        peers.append(start(TFIDF, inference_peers.tfidf, texts=texts, **fit))
        told = f"up to {max_length} tokens"
        everything = in_turn(peers, arguments.rounds, lambda peer: "all", f"{told}, {len(texts):,} texts")
        single = in_turn(peers, arguments.rounds, lambda peer: "one", f"{told}, one text at a time")
    rounds = {name: [len(texts) / seconds for (seconds,) in answers] for name, answers in everything.items()}
    return {peer.name: _row(peer, rounds, single[peer.name]) for peer in peers}


def _row(peer, rounds: dict[str, list[float]], single: list[list[float]]) -> dict:
    milliseconds = 1000 * np.concatenate(single)
    ratios = [ours / theirs for ours, theirs in zip(rounds[OURS], rounds[peer.name], strict=True)]
    return {
        "texts_per_second": asdict(Spread.of(rounds[peer.name])),
        "ours_is_faster": asdict(Spread.of(ratios)),
        "batch_size": peer.facts.get("batch_size"),
        "p50_ms": float(np.percentile(milliseconds, 50)),
        "p95_ms": float(np.percentile(milliseconds, 95)),
    }


def _show(max_length: int, count: int, rows: dict[str, dict]):
    table(
        f"inference, up to {max_length} tokens, {count:,} texts",
        ("", "texts/s, median (range)", "predict is faster by", "best batch", "one text: p50", "p95"),
        [
            (
                name,
                Spread(**row["texts_per_second"]).text(),
                Spread(**row["ours_is_faster"]).text("x", 2),
                str(row["batch_size"] or ""),
                f"{row['p50_ms']:.2f} ms",
                f"{row['p95_ms']:.2f} ms",
            )
            for name, row in rows.items()
        ],
    )


def goals(lengths: dict[int, dict[str, dict]]) -> list[Goal]:
    """Those of inference."""
    short, long = LENGTHS
    latency = lengths[short][OURS]["p50_ms"] / lengths[short][PIPELINE]["p50_ms"]
    return [
        Goal(
            f"texts/s against the HF pipeline at its best batch, up to {short} tokens",
            lengths[short][PIPELINE]["ours_is_faster"]["median"],
            at_least=2,
        ),
        Goal(f"the same, up to {long} tokens", lengths[long][PIPELINE]["ours_is_faster"]["median"], at_least=3),
        Goal("p50 latency of one text, share of the HF pipeline's", latency, at_most=0.5),
    ]
