import numpy as np
import pytest

from tests.training import toy
from training import classification
from training.labelled import MULTI_LABEL, REGRESSION, SINGLE_LABEL


def test_single_label_metrics_match_a_count_by_hand():
    # Class 0: precision 2/3, recall 1, F1 4/5. Class 1: 1, 1/2, 2/3. Class 2 is never right: 0.
    scores = classification.score(np.array([0, 0, 0, 1, 0]), np.array([0, 0, 1, 1, 2]), SINGLE_LABEL)
    assert scores == pytest.approx({"accuracy": 3 / 5, "macro_f1": (2 * 2 / 6 + 2 / 3 + 0) / 3})


def test_multi_label_metrics_match_a_count_by_hand():
    predictions, labels = np.array([[1, 0], [1, 1], [0, 0]]), np.array([[1, 0], [0, 1], [0, 1]])
    # Label 0: 1 hit, 1 false: F1 2/3. Label 1: 1 hit, 1 missed: 2/3. Rows wholly right: 1 of 3.
    scores = classification.score(predictions, labels, MULTI_LABEL)
    assert scores == pytest.approx({"micro_f1": 2 / 3, "macro_f1": 2 / 3, "subset_accuracy": 1 / 3})


def test_regression_metrics_match_numpy_and_a_constant_has_no_correlation():
    predictions, labels = np.array([1.0, 2.0, 4.0]), np.array([1.0, 3.0, 9.0])
    scores = classification.score(predictions, labels, REGRESSION)
    expected = {"pearson": np.corrcoef(predictions, labels)[0, 1], "spearman": 1.0, "mse": 26 / 3}
    assert scores == pytest.approx(expected)
    assert classification.score(np.ones(3), labels, REGRESSION)["pearson"] is None


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (0.851, 0.866, "does NOT beat TF-IDF + logistic regression: accuracy 85.10 < 86.60"),
        (0.866, 0.866, "does NOT beat TF-IDF + logistic regression: accuracy 86.60 = 86.60"),
        (0.90, 0.866, "beats TF-IDF + logistic regression: accuracy 90.00 > 86.60"),
    ],
)
def test_the_verdict_says_plainly_who_wins(ours, theirs, words):
    scores = {"model": {"accuracy": ours}, "tfidf": {"accuracy": theirs}}
    assert classification.verdict(scores, SINGLE_LABEL) == [f"the model {words}"]


@pytest.mark.parametrize(("ours", "verb"), [(-0.42, "does NOT beat"), (0.1, "beats"), (None, "does NOT beat")])
def test_a_correlation_beats_a_constant_from_above_zero(ours, verb):
    scores = {"model": {"pearson": ours}, "majority": {"pearson": None}}
    assert classification.verdict(scores, REGRESSION)[0].startswith(f"the model {verb} the mean of the training rows")


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("with_pairs", [True, False])
def test_texts_become_what_the_tokenizer_makes_of_them_when_called(side, as_text, with_pairs):
    tokenizer = toy.make_tokenizer()
    tokenizer.truncation_side, tokenizer.split_special_tokens = side, as_text
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer("书", padding="max_length", max_length=20)  # what a call before left set
    texts = ["书店[SEP]房间", "", "书店房间服务电脑早餐老板" * 2, "喜欢"]
    pairs = ["讨厌[MASK]", "书" * 30, "喜欢", ""] if with_pairs else None
    encoded, cut = classification.encode(tokenizer, texts, pairs, 12)
    expected = tokenizer(texts, pairs, truncation=True, max_length=12)
    assert encoded == dict(expected)
    whole = tokenizer(texts, pairs)["input_ids"]
    assert cut == sum(len(ids) > 12 for ids in whole) > 0


def test_texts_that_are_cut_are_counted_and_those_of_the_exact_length_are_not():
    tokenizer = toy.make_tokenizer()
    encoded, cut = classification.encode(tokenizer, ["书" * 5, "书" * 6, "书" * 7], None, 8)
    assert [len(ids) for ids in encoded["input_ids"]] == [7, 8, 8]
    assert cut == 1
