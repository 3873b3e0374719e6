"""Token embeddings to start pre-training from: a factorised table of which tokens stand near one another.

Masked language modelling spends most of a short budget on finding out which words resemble each other; counting tells
it in seconds. Levy & Goldberg 2014 ("Neural Word Embedding as Implicit Matrix Factorization") and Levy, Goldberg &
Dagan 2015 have the method; training/EXPERIMENTS.md has what it brought here.
"""

import numpy as np
import scipy.sparse
import torch
from datasets import Dataset
from sklearn.utils.extmath import randomized_svd

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM


WINDOW = 5  # tokens to either side; a pair at distance d counts 1/d
MAX_TOKENS = 10_000_000  # counted at most, spread evenly over the text: this bounds time and memory
CONTEXT_POWER = 0.75  # smooths the frequencies of contexts (Levy et al. 2015, section 3.2)
SINGULAR_POWER = 0.5  # of the singular values in the embedding (section 3.3)
MIN_COUNT = 5  # a token seen less often keeps its random embedding
SPREAD = 2.0  # standard deviation of an embedding's numbers, in initializer_ranges; 1 learnt more slowly
BLOCKS_PER_BATCH = 10_000


def starting_embeddings(blocks: Dataset, config: TinyBertConfig, seed: int) -> np.ndarray:
    """Token embeddings from the positive pointwise mutual information of tokens that stand near one another.

    Args:
        blocks: From `encoding.pack`; pairs are counted inside the pieces of a block.
        config: Of the model to start; its sizes and its `initializer_range` count.
        seed: Of the random embeddings of rare tokens, and of the factorisation.

    Returns:
        `(vocab_size, embedding_size)`, float32.
    """
    vocab_size, width, spread = config.vocab_size, config.embedding_size, SPREAD * config.initializer_range
    embeddings = np.random.default_rng(seed).normal(0.0, spread, (vocab_size, width)).astype(np.float32)
    near, counts = _count_pairs(blocks, vocab_size)
    information = _positive_information(near)
    rank = min(width, vocab_size - 1)
    left, singular, _ = randomized_svd(information, rank, n_iter=4, random_state=seed)
    found = left * singular**SINGULAR_POWER
    lengths = np.linalg.norm(found, axis=1)
    # Rows of one length: else frequent tokens would be long, and the tied decoder prefer them twice.
    known = (counts >= MIN_COUNT) & (lengths > 0)
    found = found[known] / lengths[known, None]
    if len(found):
        embeddings[known, :rank] = found * (spread / found.std())
    return embeddings


@torch.no_grad()
def start_from(model: TinyBertForMaskedLM, embeddings: np.ndarray, counts: np.ndarray):
    """Give a new model its token embeddings, and its decoder the frequencies of the tokens.

    Args:
        model: Changed in place.
        embeddings: From `starting_embeddings`.
        counts: How often each token occurs, `(vocab_size,)`.
    """
    weight = model.get_input_embeddings().weight
    weight.copy_(torch.from_numpy(embeddings))
    if model.config.pad_token_id is not None:
        weight[model.config.pad_token_id] = 0.0  # where it stays: padding has no gradient
    logs = torch.from_numpy(np.log(counts + 1.0))
    model.get_output_embeddings().bias.copy_(logs - logs.mean())


def _count_pairs(blocks: Dataset, vocab_size: int) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """How much each pair of tokens stands together, (V, V), and how often each token occurs, (V,)."""
    tokens_in_block = len(blocks[0]["input_ids"])
    step = max(1, len(blocks) * tokens_in_block // MAX_TOKENS)
    if step > 1:
        blocks = blocks.select(range(0, len(blocks), step))
    near = scipy.sparse.csr_matrix((vocab_size, vocab_size), dtype=np.float32)
    counts = np.zeros(vocab_size, dtype=np.int64)
    for batch in blocks.iter(batch_size=BLOCKS_PER_BATCH):
        ids, positions = batch["input_ids"], batch["position_ids"]
        counts += np.bincount(ids.ravel(), minlength=vocab_size)
        for distance in range(1, min(WINDOW, ids.shape[1] - 1) + 1):
            # In one piece, positions go up by one a token; a piece that starts in between starts from 0 again.
            together = positions[:, distance:] - positions[:, :-distance] == distance
            pairs = ids[:, :-distance][together], ids[:, distance:][together]
            weights = np.full(len(pairs[0]), 1 / distance, dtype=np.float32)
            near = near + scipy.sparse.coo_matrix((weights, pairs), shape=near.shape).tocsr()
    return near + near.T, counts


def _positive_information(near: scipy.sparse.csr_matrix) -> scipy.sparse.csr_matrix:
    """Positive pointwise mutual information, (V, V): how much more often a pair occurs than chance would have it."""
    totals = np.asarray(near.sum(axis=1)).ravel()
    contexts = totals**CONTEXT_POWER
    contexts = contexts / max(contexts.sum(), np.finfo(np.float64).tiny)
    pairs = near.tocoo()
    information = np.log(pairs.data / (totals[pairs.row] * contexts[pairs.col]))
    positive = information > 0
    return scipy.sparse.csr_matrix(
        (information[positive], (pairs.row[positive], pairs.col[positive])), shape=near.shape
    )
