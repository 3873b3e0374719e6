"""How long texts are in tokens, as numbers fit for the results."""

import math
import typing
from collections.abc import Iterable, Iterator, Sequence

import numpy as np


if typing.TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BINS = 40
SAMPLE = 20_000  # texts; the shares in the picture are then right to a third of a percent


def measured(documents: Iterable[Sequence], lengths: list[int]) -> Iterator[Sequence]:
    """Hand documents on, noting how long each is."""
    for document in documents:
        lengths.append(len(document))
        yield document


def token_lengths(tokenizer: "PreTrainedTokenizerBase", texts: list[str], pairs: list[str] | None) -> Iterator[int]:
    """Lengths in tokens, special ones included; of more than `SAMPLE` texts those of as many, evenly spaced."""
    step = -(-len(texts) // SAMPLE)
    encoded = tokenizer(texts[::step], pairs and pairs[::step], truncation=False, verbose=False)
    return map(len, encoded["input_ids"])


def length_histogram(lengths: Iterable[int], limit: int, beyond: str) -> dict:
    """Lengths in tokens as JSON values.

    Args:
        lengths: Of each text, at least one.
        limit: The block size or maximal length that was chosen.
        beyond: What becomes of longer texts: "packed" into several blocks, "cut", or read in "windows".

    Returns:
        `texts`, `median`, `longest`, `limit`, `longer` (texts of more than `limit` tokens), `beyond`, and `counts` of
        texts of `0..width-1`, `width..2*width-1`, ... tokens; the last count takes in all that are longer.
    """
    values = np.fromiter(lengths, dtype=np.int64)
    shown = max(np.percentile(values, 99), 1.1 * limit)  # beyond it the few longest would flatten all others
    width = max(1, math.ceil(shown / BINS))
    counts = np.bincount(np.minimum(values // width, BINS - 1), minlength=BINS)
    return {
        "texts": len(values),
        "median": float(np.median(values)),
        "longest": int(values.max()),
        "limit": limit,
        "longer": int((values > limit).sum()),
        "beyond": beyond,
        "width": width,
        "counts": counts.tolist(),
    }
