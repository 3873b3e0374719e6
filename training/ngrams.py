"""N-grams beside the encoder of a classifier: they know by heart what an encoder of some million weights smooths over.

A linear model on the tf-idf of hashed n-grams (`hf_tinybert`'s `TinyBertNgrams`), its features weighted by how much
more often they occur with a label than without (Wang & Manning 2012, "Baselines and Bigrams"), fitted apart and
averaged with the encoder's logits; trained together, it would explain the training rows alone and leave the encoder
nothing to learn. Wide & Deep (Cheng et al. 2016) is the idea; training/EXPERIMENTS.md has the figures.
"""

import typing

import numpy as np
import scipy.sparse
import torch
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, Ridge

from hf_tinybert import TinyBertConfig, TinyBertForSequenceClassification
from hf_tinybert.modeling_tinybert import UNITS_PER_TOKEN, TinyBertNgrams, ngram_buckets
from training.baseline import is_unspaced
from training.labelled import REGRESSION, SINGLE_LABEL
from training.tokenizer import SPACE


if typing.TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

MAX_WEIGHTS = 2**21  # 8 MiB in the folder; for many labels there are fewer buckets
MIN_TEXTS = 2  # an n-gram of fewer texts says nothing about others
INVERSE_REGULARISATION = 30.0
CERTAIN = 10.0  # logit of a label that every training row has
UNKNOWN = 0x110000  # the unit of `[UNK]`, beyond all characters


def number_of_buckets(asked: int, num_labels: int, max_weights: int = MAX_WEIGHTS) -> int:
    """The asked number, halved until the weights of all labels are no more than `max_weights`."""
    while asked * num_labels > max_weights and asked > 1:
        asked //= 2
    return asked


def token_units(tokenizer: "PreTrainedTokenizerBase", vocab_size: int, by_characters: bool) -> np.ndarray:
    """What n-grams are made of, `(vocab_size, UNITS_PER_TOKEN)`: see `TinyBertNgrams`. Special tokens have none."""
    units = np.full((vocab_size, UNITS_PER_TOKEN), -1, dtype=np.int32)
    special = set(tokenizer.all_special_ids)
    for token, index in tokenizer.get_vocab().items():
        if index == tokenizer.unk_token_id:
            units[index, 0] = UNKNOWN
        elif index not in special:
            numbers = [ord(character) for character in token.replace(SPACE, " ")] if by_characters else [index]
            units[index, : len(numbers)] = numbers[:UNITS_PER_TOKEN]
    return units


def attach_ngrams(
    model: TinyBertForSequenceClassification,
    tokenizer: "PreTrainedTokenizerBase",
    rows: "Dataset",
    texts: list[str],
    num_buckets: int,
) -> bool:
    """Fit n-grams on the training rows and put them beside the encoder of `model`, in place.

    Args:
        model: Its logits become the mean of what they were and those of the n-grams.
        tokenizer: Of the model.
        rows: With `input_ids`, without padding, and `label`.
        texts: Of the rows; they decide what n-grams are made of.
        num_buckets: To hash into.

    Returns:
        Whether they are made of characters, as where words are not spaced; else of tokens.
    """
    by_characters = is_unspaced(texts)
    model.config.num_ngram_buckets = num_buckets
    ngrams = TinyBertNgrams(model.config)
    ngrams.units.copy_(torch.from_numpy(token_units(tokenizer, model.config.vocab_size, by_characters)))
    counts = _count(rows["input_ids"], ngrams)
    known = np.flatnonzero(np.asarray((counts > 0).sum(axis=0)).ravel() >= MIN_TEXTS)
    values, idf = _tfidf(counts[:, known])
    weight, bias = _fit(values, np.asarray(rows["label"]), model.config)
    with torch.no_grad():
        ngrams.weight[torch.from_numpy(known)] = torch.from_numpy(weight.T).float()
        ngrams.bias.copy_(torch.from_numpy(bias))
        ngrams.idf.zero_()  # an n-gram that is not known counts for nothing, nor in the norm
        ngrams.idf[torch.from_numpy(known)] = torch.from_numpy(idf).float()
    model.ngrams = ngrams.to(model.device)
    return by_characters


def _count(texts: list[list[int]], ngrams: TinyBertNgrams) -> scipy.sparse.csr_matrix:
    """How often each bucket occurs in each text, (texts, num_buckets)."""
    num_buckets = ngrams.weight.shape[0]
    columns, starts = [], [0]
    for ids in texts:
        row = torch.tensor(ids)[None]
        buckets, present = ngram_buckets(*ngrams.text_units(row, torch.ones_like(row, dtype=torch.bool)), num_buckets)
        columns.append(buckets[present].numpy())
        starts.append(starts[-1] + len(columns[-1]))
    shape = len(texts), num_buckets
    counts = scipy.sparse.csr_matrix((np.ones(starts[-1]), np.concatenate(columns), starts), shape=shape)
    counts.sum_duplicates()
    return counts


def _tfidf(counts: scipy.sparse.csr_matrix) -> tuple[scipy.sparse.csr_matrix, np.ndarray]:
    """Values of the n-grams of each text, and their idf."""
    if not counts.shape[1]:
        return counts, np.zeros(0)
    transformer = TfidfTransformer(sublinear_tf=True)
    return transformer.fit_transform(counts), transformer.idf_


def _fit(values: scipy.sparse.csr_matrix, labels: np.ndarray, config: TinyBertConfig) -> tuple[np.ndarray, np.ndarray]:
    """Weights `(num_labels, features)` and bias `(num_labels,)`."""
    if config.problem_type == REGRESSION:
        if not values.shape[1]:
            return np.zeros((1, 0)), labels.mean(keepdims=True)
        ridge = Ridge().fit(values, labels)
        return ridge.coef_[None], np.array([ridge.intercept_])
    if config.problem_type == SINGLE_LABEL:
        if config.num_labels == 2:  # a softmax takes half for, half against
            weight, bias = _fit_label(values, labels == 1)
            return np.stack((-weight, weight)) / 2, np.array((-bias, bias)) / 2
        labels = labels[:, None] == np.arange(config.num_labels)
    fitted = [_fit_label(values, label > 0) for label in labels.T]
    return np.stack([weight for weight, _ in fitted]), np.array([bias for _, bias in fitted])


def _fit_label(values: scipy.sparse.csr_matrix, applies: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights and bias of the log-odds that a label applies."""
    if applies.all() or not applies.any():
        return np.zeros(values.shape[1]), CERTAIN if applies.all() else -CERTAIN
    if not values.shape[1]:
        return np.zeros(0), float(np.log(applies.mean() / (1 - applies.mean())))
    with_label, without = (1 + np.asarray((values[rows] > 0).sum(axis=0)).ravel() for rows in (applies, ~applies))
    ratios = np.log(with_label / with_label.sum()) - np.log(without / without.sum())
    model = LogisticRegression(C=INVERSE_REGULARISATION, max_iter=1000)
    model.fit(values.multiply(ratios).tocsr(), applies)
    return model.coef_[0] * ratios, float(model.intercept_[0])
