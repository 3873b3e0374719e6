"""The peers of inference, each as its users run it; `work` functions of `training.bench.peers`.

Orders: `"all"`, to answer for all texts, or `"one"`, for some texts one by one; the reply is a list of seconds.
"""

import time
from collections.abc import Callable, Sequence

import torch
from torch import nn
from transformers import pipeline

from training.bench.peers import Orders
from training.classification import answers
from training.loading import load_tokenizer
from training.onnx_model import OnnxModel
from training.predict import FineTuned, load_to_answer


BATCH_SIZES = (1, 8, 32, 64, 128)
SEARCHED = 200  # texts to find the best batch size on
SINGLE = 40  # texts in an order "one"


def serve(orders: Orders, texts: Sequence[str], answer: Callable[[list[str]], object], **facts):
    """Warm up, reply `facts`, then carry out orders.

    Args:
        answer: Answers for some texts.
    """
    answer(texts[:32])
    answer(texts[:1])
    orders.reply(facts)
    while True:
        parts = [[text] for text in texts[:SINGLE]] if orders.wait() == "one" else [texts]
        orders.reply([_seconds(answer, part) for part in parts])


def _seconds(answer: Callable[[list[str]], object], texts: list[str]) -> float:
    started = time.perf_counter()
    answer(texts)
    return time.perf_counter() - started


def _best_batch_size(answer: Callable[[list[str], int], object], texts: list[str]) -> int:
    found = {}
    for batch_size in BATCH_SIZES:
        answer(texts[:batch_size], batch_size)
        found[batch_size] = _seconds(lambda part, size=batch_size: answer(part, size), texts[:SEARCHED])
    return min(found, key=found.__getitem__)


def hf_pipeline(orders: Orders, texts: list[str], model: str, max_length: int, by_length: bool = False):
    """`pipeline("text-classification")` at its best batch size.

    Args:
        by_length: Whether the texts are sorted by length first, and the answers put back in order.
    """
    import hf_tinybert  # noqa: F401 - registers

    classify = pipeline("text-classification", model=model, tokenizer=model)

    def answer(part: list[str], batch_size: int) -> list:
        order = sorted(range(len(part)), key=lambda row: len(part[row])) if by_length else range(len(part))
        settings = {"batch_size": batch_size, "truncation": True, "max_length": max_length}
        found = classify([part[row] for row in order], **settings)
        return [label for _, label in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]

    best = _best_batch_size(answer, texts)
    serve(orders, texts, lambda part: answer(part, best if len(part) > 1 else 1), batch_size=best)


class TorchEncoder(nn.Module):
    """torch's own encoder, whose fast path leaves padding out by nested tensors."""

    def __init__(self, vocab_size: int, num_hidden_layers: int, hidden_size: int, num_attention_heads: int):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, hidden_size), nn.Embedding(512, hidden_size)
        layer = nn.TransformerEncoderLayer(
            hidden_size, num_attention_heads, 4 * hidden_size, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_hidden_layers, enable_nested_tensor=True)
        self.classifier = nn.Linear(hidden_size, 2)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden_states = self.tokens(input_ids) + self.positions.weight[: input_ids.shape[1]]
        return self.classifier(self.encoder(hidden_states, src_key_padding_mask=attention_mask == 0)[:, 0])


def torch_encoder(orders: Orders, texts: list[str], tokenizer: str, max_length: int, shape: dict):
    """`nn.TransformerEncoder` on texts sorted by length, at its best batch size."""
    loaded = load_tokenizer(tokenizer)
    model = TorchEncoder(len(loaded), **shape).eval()

    @torch.inference_mode()
    def answer(part: list[str], batch_size: int) -> list:
        part = sorted(part, key=len)
        found = []
        for start in range(0, len(part), batch_size):
            settings = {"truncation": True, "max_length": max_length, "padding": True, "return_tensors": "pt"}
            batch = loaded(part[start : start + batch_size], **settings)
            found += model(batch["input_ids"], batch["attention_mask"]).softmax(-1).tolist()
        return found

    best = _best_batch_size(answer, texts)
    serve(orders, texts, lambda part: answer(part, best), batch_size=best)


def tfidf(orders: Orders, texts: list[str], training_texts: list[str], labels: list[int]):
    """TF-IDF + logistic regression, fitted beforehand."""
    from training.baseline import fit_baseline
    from training.labelled import SINGLE_LABEL

    serve(orders, texts, fit_baseline(training_texts, labels, SINGLE_LABEL).predict)


def ours(orders: Orders, texts: list[str], model: str, max_length: int, onnx: str | None = None):
    """What `predict` does between reading a file and writing one.

    Args:
        onnx: Another ONNX file to answer with; `None` for what `predict` answers with.
    """
    import dataclasses

    loaded, _ = load_to_answer(model)
    network = OnnxModel(onnx, loaded.model.config) if onnx else loaded.model
    finetuned = FineTuned(network, loaded.tokenizer, dataclasses.replace(loaded.task, max_length=max_length))
    serve(orders, texts, lambda part: answers(finetuned, [(text, None) for text in part]))
