"""N-grams beside the encoder of a classifier: they know by heart what an encoder of some million weights smooths over.

A linear model on the tf-idf of hashed tokens and pairs of tokens (`hf_tinybert`'s `TinyBertNgrams`), fitted apart and
averaged with the encoder's logits; trained together, the linear part would explain the training rows alone and leave
the encoder nothing to learn. Wide & Deep (Cheng et al. 2016) is the idea; training/EXPERIMENTS.md has the figures.
"""

import typing

import numpy as np
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfTransformer

from hf_tinybert import TinyBertForSequenceClassification
from hf_tinybert.modeling_tinybert import TinyBertNgrams, ngram_buckets
from training.baseline import fit_linear


if typing.TYPE_CHECKING:
    from datasets import Dataset

MAX_WEIGHTS = 2**21  # 8 MiB in the folder; for many labels there are fewer buckets
MIN_TEXTS = 2  # an n-gram of fewer texts says nothing about others


def number_of_buckets(asked: int, num_labels: int) -> int:
    """The asked number, halved until the weights of all labels are no more than `MAX_WEIGHTS`."""
    while asked * num_labels > MAX_WEIGHTS and asked > 1:
        asked //= 2
    return asked


def attach_ngrams(model: TinyBertForSequenceClassification, rows: "Dataset", problem_type: str, num_buckets: int):
    """Fit n-grams on the training rows and put them beside the encoder of `model`, in place.

    Args:
        model: Its logits become the mean of what they were and those of the n-grams.
        rows: With `input_ids`, without padding, and `label`.
        problem_type: A `problem_type` of transformers.
        num_buckets: To hash into.
    """
    counts = _count(rows["input_ids"], num_buckets)
    frequent = np.asarray((counts > 0).sum(axis=0)).ravel() >= MIN_TEXTS
    transformer = TfidfTransformer(sublinear_tf=True, norm=None).fit(counts)
    idf = np.where(frequent, transformer.idf_, 0.0)
    columns = np.flatnonzero(frequent)
    values = counts[:, columns]
    values.data = (1 + np.log(values.data)) * idf[columns][values.indices]
    norms = np.sqrt(np.asarray(values.multiply(values).sum(axis=1)).ravel())
    values = scipy.sparse.diags(1 / np.where(norms > 0, norms, 1)) @ values
    weight, bias = fit_linear(values, np.asarray(rows["label"]), problem_type)

    model.config.num_ngram_buckets = num_buckets
    ngrams = TinyBertNgrams(model.config)
    with torch.no_grad():
        ngrams.weight[torch.from_numpy(columns)] = torch.from_numpy(weight.T).float()
        ngrams.bias.copy_(torch.from_numpy(bias))
        ngrams.idf.copy_(torch.from_numpy(idf))
    model.ngrams = ngrams.to(model.device)


def _count(texts: list[list[int]], num_buckets: int) -> scipy.sparse.csr_matrix:
    """How often each bucket occurs in each text, (texts, num_buckets)."""
    indices, starts = [], [0]
    for ids in texts:
        row = torch.tensor(ids)[None]
        buckets, _ = ngram_buckets(row, torch.ones_like(row, dtype=torch.bool), num_buckets)
        indices.append(buckets[0].numpy())
        starts.append(starts[-1] + buckets.shape[1])
    columns = np.concatenate(indices)
    counts = scipy.sparse.csr_matrix((np.ones(len(columns)), columns, starts), shape=(len(texts), num_buckets))
    counts.sum_duplicates()
    return counts
