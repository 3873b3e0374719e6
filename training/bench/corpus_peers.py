"""From text to packed blocks, ours and the bare `tokenizers`; `work` functions of `training.bench.peers`."""

import time
from collections.abc import Callable
from pathlib import Path

from training.bench import data, memory
from training.bench.peers import Orders
from training.corpus import load_corpus
from training.encoding import TEXTS_PER_BATCH, encode, pack
from training.files import TextFile
from training.loading import load_tokenizer
from training.pretrain import BLOCK_SIZE
from training.tokenizer import train_tokenizer


def _timed(work: Callable):
    """What `work` returns, and the seconds it took."""
    started = time.perf_counter()
    result = work()
    return result, time.perf_counter() - started


def ours(orders: Orders, tokenizer: str):
    """The way of `pretrain`: read, clean, drop repeats, encode, pack. Orders are files."""
    loaded = load_tokenizer(tokenizer)
    orders.reply({})
    while True:
        path = orders.wait()
        _, reading = _timed(lambda path=path: sum(1 for _ in TextFile(Path(path), None).documents("text")))
        before = memory.start_peak()
        (corpus, _), loading = _timed(lambda path=path: load_corpus([path]))
        ids, encoding = _timed(lambda corpus=corpus: list(encode(corpus["text"], loaded)))
        blocks, packing = _timed(lambda ids=ids: pack(ids, BLOCK_SIZE, loaded.pad_token_id))
        seconds = {"reading": reading, "reading, cleaning, no repeats": loading, "encoding": encoding}
        seconds |= {"packing": packing, "all": loading + encoding + packing}
        del corpus, blocks
        orders.reply({"seconds": seconds, "tokens": sum(map(len, ids)), "peak_bytes": memory.peak() - before})


def bare(orders: Orders, tokenizer: str):
    """`encode_batch` of the same tokenizer, on texts that are in memory already. Orders are files."""
    backend = load_tokenizer(tokenizer).backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    orders.reply({})
    while True:
        texts = load_corpus([orders.wait()])[0]["text"][:]
        batches = [texts[start : start + TEXTS_PER_BATCH] for start in range(0, len(texts), TEXTS_PER_BATCH)]
        tokens, seconds = _timed(lambda batches=batches: _count(backend, batches))
        orders.reply({"seconds": {"all": seconds}, "tokens": tokens})


def _count(backend, batches: list[list[str]]) -> int:
    return sum(len(encoding.ids) for batch in batches for encoding in backend.encode_batch(batch))


def tokenizer_training(orders: Orders, text: str):
    """Training a tokenizer. Orders are sizes of vocabularies; `None` is the default."""
    texts = load_corpus([text])[0]["text"][:]
    orders.reply({"bytes": data.size_of(texts)})
    while True:
        vocab_size = orders.wait()
        before = memory.start_peak()
        trained, seconds = _timed(lambda size=vocab_size: train_tokenizer(texts, size, "words"))
        orders.reply({"seconds": seconds, "vocab_size": len(trained), "peak_bytes": memory.peak() - before})
