"""The matrix products of a pre-training step alone: what the machine would allow if all else cost nothing."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch


# name: (type of the operands, what `torch.set_float32_matmul_precision` is told)
PRECISIONS = {
    "float32": (torch.float32, "highest"),
    "float32, by oneDNN": (torch.float32, "medium"),
    "bfloat16": (torch.bfloat16, "highest"),
}
PARTS = (1, 2, 4, 8)  # of a batch: small parts may fit the cache


@dataclass(frozen=True)
class Product:
    """`times` products of (batch, rows, inner) and (batch, inner, columns)."""

    batch: int
    rows: int
    inner: int
    columns: int
    times: int = 1

    @property
    def flops(self) -> int:
        """Of the product and, backward, of the gradients of both its factors."""
        return 3 * 2 * self.times * self.batch * self.rows * self.inner * self.columns


def products(
    num_hidden_layers: int,
    hidden_size: int,
    embedding_size: int,
    num_attention_heads: int,
    vocab_size: int,
    batch_size: int,
    length: int,
    labelled: int,
) -> list[Product]:
    """Those of an encoder whose last layer, behind attention, and masked-LM head see `labelled` tokens only."""
    tokens, h, layers = batch_size * length, hidden_size, num_hidden_layers
    heads, head_size = batch_size * num_attention_heads, hidden_size // num_attention_heads
    projection = [] if embedding_size == h else [Product(1, tokens, embedding_size, h)]
    return [
        *projection,
        Product(1, tokens, h, 3 * h, layers),  # queries, keys, values
        Product(heads, length, head_size, length, layers),  # scores
        Product(heads, length, length, head_size, layers),  # weighted values
        *(
            product
            for rows, times in ((tokens, layers - 1), (labelled, 1))
            for product in (
                Product(1, rows, h, h, times),  # output of attention
                Product(1, rows, h, 4 * h, times),  # feed-forward
                Product(1, rows, 4 * h, h, times),
            )
        ),
        Product(1, labelled, h, embedding_size),  # head
        Product(1, labelled, embedding_size, vocab_size),
    ]


def make_step(
    *, batch_size: int, length: int, mlm_probability: float, precision: str, **shape: int
) -> tuple[Callable[[], None], dict]:
    """A function that does the products of one step, into memory that is there already; and what is known of it.

    The batch is cut into as many parts as are fastest.
    """
    dtype, setting = PRECISIONS[precision]
    torch.set_float32_matmul_precision(setting)
    device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")
    candidates = []
    for parts in (parts for parts in PARTS if batch_size % parts == 0):
        part = batch_size // parts
        wanted = products(batch_size=part, length=length, labelled=round(part * length * mlm_probability), **shape)
        multiply = _multiplier(wanted, dtype, device)
        candidates.append((_seconds(multiply) * parts, parts, multiply, parts * sum(p.flops for p in wanted)))
    _, parts, multiply, flops = min(candidates, key=lambda candidate: candidate[0])

    def step():
        for _ in range(parts):
            multiply()
        _synchronize(device)

    return step, {"flops_per_step": flops, "parts": parts}


def _multiplier(wanted: list[Product], dtype: torch.dtype, device: torch.device) -> Callable[[], None]:
    operands = []
    for p in wanted:
        a, b, c = (
            torch.rand(shape, device=device).to(dtype)
            for shape in ((p.batch, p.rows, p.inner), (p.batch, p.inner, p.columns), (p.batch, p.rows, p.columns))
        )
        if p.batch == 1:
            a, b, c = a[0], b[0], c[0]
        operands.append((p.times, a, b, c, torch.empty_like(a), torch.empty_like(b), torch.empty_like(c)))

    def multiply():
        for times, a, b, c, grad_a, grad_b, out in operands:
            for _ in range(times):
                torch.matmul(a, b, out=out)
                torch.matmul(c, b.mT, out=grad_a)
                torch.matmul(a.mT, c, out=grad_b)

    return multiply


def _seconds(multiply: Callable[[], None]) -> float:
    multiply()
    started = time.perf_counter()
    multiply()
    return time.perf_counter() - started


def _synchronize(device: torch.device):
    if device.type != "cpu":
        torch.accelerator.synchronize()
