"""The CRF beside a tagger says what CRFsuite's says."""

import random

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_tinybert import TinyBertForTokenClassification
from training import tagging_crf
from training.crf import fit_crf
from training.tagging_crf import attach_crf


NAMES = ["B-LOC", "B-PER", "I-LOC", "I-PER", "O"]
CLS, SEP = 2, 3


def make_rows(count):
    """Token ids between special ones, 30-32 a person, 40-41 a place where 20 goes before it."""
    draw = random.Random(0)
    rows = {"input_ids": [], "labels": []}
    for _ in range(count):
        ids, labels = [], []
        for _ in range(draw.randint(1, 4)):
            kind = draw.choice(["PER", "LOC", "O"])
            middle = [draw.choice([30, 31, 32]) for _ in range(2)] if kind == "PER" else [40, 41]
            ids += [20 if kind == "LOC" else 21, *middle, draw.randint(10, 15)]
            tags = ["O", "O"] if kind == "O" else [f"B-{kind}", f"I-{kind}"]
            labels += [4, *(NAMES.index(tag) for tag in tags), 4]
            if kind == "O":
                ids[-3:-1] = [41, 40]
        rows["input_ids"].append([CLS, *ids, SEP])
        rows["labels"].append([-100, *labels, -100])
    return Dataset.from_dict(rows)


@pytest.fixture
def model(tiny_model):
    ids = dict(enumerate(NAMES))
    labels = {"id2label": ids, "label2id": {name: index for index, name in ids.items()}, "num_labels": len(NAMES)}
    return tiny_model(TinyBertForTokenClassification, **labels)


@torch.no_grad()
def test_with_an_encoder_that_says_nothing_the_tags_are_crfsuites(model):
    rows = make_rows(60)
    attach_crf(model, rows, 2**19)
    model.classifier.weight.zero_()
    model.classifier.bias.zero_()
    text = [[chr(0x20000 + token) for token in row] for row in rows["input_ids"]]
    tags = [[NAMES[label] if label >= 0 else "O" for label in row] for row in rows["labels"]]

    expected = fit_crf(text, tags).predict(text)

    for row, wanted in zip(rows["input_ids"], expected, strict=True):
        found = model(torch.tensor([row])).logits[0].argmax(dim=-1).tolist()
        assert [NAMES[label] for label in found] == wanted
    assert any("B-LOC" in row for row in expected)


@torch.no_grad()
def test_scores_of_a_token_are_the_sum_of_its_features(model):
    rows = make_rows(60)
    attach_crf(model, rows, 2**19)
    text = [[chr(0x20000 + token) for token in row] for row in rows["input_ids"]]
    tags = [[NAMES[label] if label >= 0 else "O" for label in row] for row in rows["labels"]]
    fitted = fit_crf(text, tags).model
    from training.crf import features

    for ids, row in zip(rows["input_ids"][:10], text[:10], strict=True):
        found = model.crf._emissions(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))[0]
        expected = [
            [12 * sum(fitted.state_features_.get((name, label), 0) for name in names) for label in NAMES]
            for names in features(row)
        ]
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-3)


def test_tokens_without_a_tag_are_left_out_but_for_the_ends():
    rows = Dataset.from_dict({"input_ids": [[2, 9, 10, 11, 3]], "labels": [[-100, -100, 1, 3, -100]]})
    tokens, tags = tagging_crf._as_text(rows, NAMES)
    assert [ord(token) - 0x20000 for token in tokens[0]] == [2, 10, 11, 3]
    assert tags == [["O", "B-PER", "I-PER", "O"]]


def test_many_labels_get_fewer_buckets(model):
    assert attach_crf(model, make_rows(20), 2**22) == 2**19 == model.config.num_ngram_buckets
