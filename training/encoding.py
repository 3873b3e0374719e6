"""Token ids, packed into blocks of one length: no padding but in the last block, nothing cut off, documents apart."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
from datasets import Dataset
from transformers import PreTrainedTokenizerFast

from training import progress


TEXTS_PER_BATCH = 1000


def encode(texts: Iterable[str], tokenizer: PreTrainedTokenizerFast) -> Iterator[np.ndarray]:
    """Token ids of each text, `[CLS]` and `[SEP]` included, of any length.

    The spelling of a special token in a text ("[MASK]") is text, not a special token.
    """
    backend = tokenizer.backend_tokenizer
    with progress.step("encoding", "documents") as step:
        for batch in _batches(texts):
            # Every call of the tokenizer sets these as it needs, also one between two batches.
            backend.no_truncation()
            backend.no_padding()
            backend.encode_special_tokens = True
            # Called by itself the tokenizer would count offsets and make lists of masks: a third more time.
            for encoding in backend.encode_batch_fast(batch):
                yield np.array(encoding.ids, dtype=np.int32)
            step.done += len(batch)


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    if isinstance(texts, Sequence):  # a column of a dataset, too, which gives slices 10 times as fast as single texts
        yield from (texts[start : start + TEXTS_PER_BATCH] for start in range(0, len(texts), TEXTS_PER_BATCH))
        return
    iterator = iter(texts)
    while batch := list(islice(iterator, TEXTS_PER_BATCH)):
        yield batch


def pack(documents: Iterable[np.ndarray], block_size: int, pad_token_id: int) -> Dataset:
    """Lay documents end to end and cut the row into blocks.

    A document that crosses a block's end goes on in the next block, its positions from 0 again; tokens that see one
    another are those of one piece. So tokens in = tokens out, and a position is always below `block_size`.

    Args:
        documents: Token ids of each document, in order.
        block_size: Tokens in a block.
        pad_token_id: Fills up the last block, as a piece of its own.

    Returns:
        A dataset with `input_ids` and `position_ids`, both `(block_size,)`; a piece starts where its position is 0.
    """
    rows = list(documents)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    total = int(lengths.sum())
    num_blocks = -(-total // block_size)
    input_ids = np.full(num_blocks * block_size, pad_token_id, dtype=np.int32)
    if rows:
        np.concatenate(rows, out=input_ids[:total])

    index = np.arange(len(input_ids))
    starts = np.zeros(len(input_ids), dtype=np.int64)
    begins = np.concatenate(([0], np.cumsum(lengths)))  # of each document, and of the padding
    begins = begins[begins < len(input_ids)]
    starts[begins] = begins
    starts[::block_size] = index[::block_size]
    position_ids = (index - np.maximum.accumulate(starts)).astype(np.int32)
    return _as_dataset(input_ids, position_ids, block_size)


def _as_dataset(input_ids: np.ndarray, position_ids: np.ndarray, block_size: int) -> Dataset:
    columns = {
        name: pa.FixedSizeListArray.from_arrays(pa.array(values), block_size)
        for name, values in (("input_ids", input_ids), ("position_ids", position_ids))
    }
    return Dataset(pa.table(columns)).with_format("numpy")


def token_counts(blocks: Dataset, vocab_size: int, special_ids: Iterable[int]) -> np.ndarray:
    """How often each id occurs in `blocks`, `(vocab_size,)`; special tokens count as 0."""
    counts = np.zeros(vocab_size, dtype=np.int64)
    for batch in blocks.iter(batch_size=TEXTS_PER_BATCH):
        counts += np.bincount(batch["input_ids"].ravel(), minlength=vocab_size)
    counts[list(special_ids)] = 0
    return counts


def unigram_entropy(counts: np.ndarray) -> float:
    """Entropy in nats of the distribution that `counts` gives: the loss of a model that knows only frequencies."""
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
