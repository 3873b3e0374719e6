import warnings

import numpy as np
import pytest

from training.baseline import fit_baseline, is_unspaced, majority
from training.labelled import MULTI_LABEL, REGRESSION, SINGLE_LABEL


CHINESE = ["这个很好", "真的很好", "这个很差", "真的很差"]
ENGLISH = ["this is good", "really good stuff", "this is bad", "really bad stuff"]


@pytest.mark.parametrize(
    ("texts", "unspaced"),
    [
        (CHINESE, True),
        (ENGLISH, False),
        (["ひらがな カタカナ"], True),
        (["很好 very good"], False),
        (["123 !"], False),
    ],
)
def test_scripts_without_spaces_are_recognised_by_their_letters(texts, unspaced):
    assert is_unspaced(texts) is unspaced


@pytest.mark.parametrize(("texts", "ngram", "longest"), [(CHINESE, "很好", 3), (ENGLISH, "this is", None)])
def test_features_are_characters_for_chinese_and_words_otherwise(texts, ngram, longest):
    vocabulary = fit_baseline(texts, [1, 1, 0, 0], SINGLE_LABEL).vectorizer.vocabulary_
    assert ngram in vocabulary
    assert longest is None or max(map(len, vocabulary)) <= longest


@pytest.mark.parametrize("texts", [CHINESE, ENGLISH])
def test_single_labels_are_learnt(texts):
    assert fit_baseline(texts, [1, 1, 0, 0], SINGLE_LABEL).predict(texts).tolist() == [1, 1, 0, 0]


def test_texts_without_a_repeated_feature_still_give_a_baseline():
    assert fit_baseline(["甲", "乙"], [0, 1], SINGLE_LABEL).predict(["乙"]).tolist() == [1]
    assert fit_baseline(["a", "b"], [0, 1], SINGLE_LABEL).predict(["b"]).tolist() == [1]


def test_the_second_text_counts():
    same = ["一样的话"] * 4
    baseline = fit_baseline(same, [1, 1, 0, 0], SINGLE_LABEL, pairs=CHINESE)
    assert baseline.predict(same, CHINESE).tolist() == [1, 1, 0, 0]


def test_several_labels_are_learnt_and_a_constant_one_is_no_warning():
    labels = [[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        predictions = fit_baseline(CHINESE, labels, MULTI_LABEL).predict(CHINESE)
    assert predictions.tolist() == labels


def test_regression_gives_numbers_in_their_order():
    predictions = fit_baseline(CHINESE, [3.0, 3.5, -3.0, -3.5], REGRESSION).predict(CHINESE)
    assert predictions.shape == (4,)
    assert predictions[:2].min() > predictions[2:].max()


def test_the_most_frequent_answer():
    assert majority([0, 2, 2, 1], SINGLE_LABEL) == 2
    assert majority([[0, 1], [1, 0], [1, 0]], MULTI_LABEL) == (1, 0)
    assert np.isclose(majority([1.0, 2.0, 6.0], REGRESSION), 3.0)
