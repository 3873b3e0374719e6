"""A CRF beside the encoder of a tagger: it knows by heart which characters make a name, the encoder what is around.

Fitted apart on the training rows, as the baseline that the tagger is compared with, but on tokens of the tokenizer;
then it and the encoder decide together. Trained together, the CRF would explain the training rows alone and leave the
encoder nothing to learn. training/EXPERIMENTS.md has the figures.
"""

import typing

import torch

from hf_tinybert import TinyBertForTokenClassification
from hf_tinybert.modeling_tinybert import WINDOWS, TinyBertCrf, window_buckets
from training.crf import EDGE, fit_crf
from training.ngrams import number_of_buckets
from training.tagged import OUTSIDE


if typing.TYPE_CHECKING:
    from datasets import Dataset

MAX_WEIGHTS = 2**22  # 16 MiB in the folder; for many labels there are fewer buckets
# The passive-aggressive rule stops at a margin of 1; an encoder that has learnt its rows by heart is surer than that.
SCALE = 12.0
FIRST_CHARACTER = 0x20000  # that stands for a token: of one character, so that `training.crf` takes it as such
TEMPLATES = {
    "bias": (),
    "-2": (-2,),
    "-1": (-1,),
    "0": (0,),
    "+1": (1,),
    "+2": (2,),
    "-1+0": (-1, 0),
    "0+1": (0, 1),
}


def attach_crf(model: TinyBertForTokenClassification, rows: "Dataset", buckets: int) -> int:
    """Fit a CRF on the training rows and put it beside the encoder of `model`, in place.

    Args:
        rows: With `input_ids`, without padding, and `labels`, -100 where a token has none.
        buckets: To hash the n-grams into; with many labels fewer are taken.

    Returns:
        The number of buckets.
    """
    names = [model.config.id2label[index] for index in range(model.config.num_labels)]
    fitted = fit_crf(*_as_text(rows, names)).model
    buckets = number_of_buckets(buckets, len(names), MAX_WEIGHTS)
    model.config.num_ngram_buckets = buckets
    crf = TinyBertCrf(model.config)
    ids = {name: index for index, name in enumerate(names)}
    with torch.no_grad():
        for (before, after), score in fitted.transition_features_.items():
            crf.transitions[ids[before], ids[after]] = SCALE * score
        _fill(crf.weight, {(feature, ids[label]): score for (feature, label), score in fitted.state_features_.items()})
    model.crf = crf.to(model.device)
    return buckets


def _as_text(rows: "Dataset", names: list[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Tokens, a character each, and their tags: `O` at the ends; others without a tag are left out."""
    tokens, tags = [], []
    for ids, labels in zip(rows["input_ids"], rows["labels"], strict=True):
        ends = (0, len(ids) - 1)
        kept = [at for at, label in enumerate(labels) if label >= 0 or at in ends]
        tokens.append([chr(FIRST_CHARACTER + ids[at]) for at in kept])
        tags.append([names[labels[at]] if labels[at] >= 0 else OUTSIDE for at in kept])
    return tokens, tags


def _fill(weight: torch.Tensor, scores: dict[tuple[str, int], float]):
    """Add the scores of features, by name and label, into the buckets that `TinyBertCrf` looks for them in."""
    by_template: dict[str, list[tuple[str, int, float]]] = {}
    for (feature, label), score in scores.items():
        name, _, tokens = feature.partition(":")
        # Between two tokens stands an EDGE. A bias has no token; any number stands for it.
        by_template.setdefault(name, []).append((tokens[::2] or EDGE, label, score))
    for name, mine in by_template.items():
        tokens, labels, values = zip(*mine, strict=True)
        columns = [torch.tensor(list(map(_number, column))) for column in zip(*tokens, strict=True)]
        buckets = window_buckets(columns, WINDOWS.index(TEMPLATES[name]), weight.shape[0])
        scaled = SCALE * torch.tensor(values, dtype=weight.dtype)
        weight.index_put_((buckets, torch.tensor(labels)), scaled, accumulate=True)


def _number(token: str) -> int:
    """Token id plus 1; 0 beyond the ends of the text."""
    return 0 if token == EDGE else ord(token) - FIRST_CHARACTER + 1
