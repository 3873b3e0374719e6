"""N-grams beside the encoder, against scikit-learn's own tf-idf and linear models."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from hf_tinybert import TinyBertForSequenceClassification
from training.ngrams import attach_ngrams, number_of_buckets


BUCKETS = 2**20  # so many that the few n-grams here do not collide


def texts(count, seed=0):
    """Rows of token ids in which the ids 7 and 8 go with one label, 9 and the pair 11, 12 with another."""
    random = np.random.default_rng(seed)
    rows, labels = [], []
    for _ in range(count):
        label = int(random.integers(3))
        ids = random.integers(10, 40, random.integers(4, 15)).tolist() + [[7, 8], [9], [11, 12]][label]
        rows.append([2, *ids, *random.integers(10, 40, 3).tolist(), 3])
        labels.append(label)
    return rows, labels


def grams(ids):
    return [tuple(ids[start : start + size]) for size in (1, 2) for start in range(len(ids) - size + 1)]


def attached(tiny_model, rows, labels, problem_type, num_labels):
    model = tiny_model(TinyBertForSequenceClassification, num_labels=num_labels, problem_type=problem_type)
    attach_ngrams(model, Dataset.from_dict({"input_ids": rows, "label": labels}), problem_type, BUCKETS)
    return model.eval()


def ngram_logits(model, rows):
    """In one padded batch, every other row padded on the left."""
    length = max(map(len, rows))
    ids, mask = torch.zeros(len(rows), length, dtype=torch.long), torch.zeros(len(rows), length, dtype=torch.long)
    for index, row in enumerate(rows):
        place = slice(length - len(row), length) if index % 2 else slice(len(row))
        ids[index, place], mask[index, place] = torch.tensor(row), 1
    with torch.no_grad():
        return model.ngrams(ids, mask != 0).numpy(), ids, mask


@pytest.mark.parametrize("num_labels", [2, 3])
def test_classes_are_those_of_scikit_learns_tfidf_and_logistic_regression(tiny_model, num_labels):
    rows, labels = texts(200)
    others, _ = texts(50, seed=1)
    labels = [min(label, num_labels - 1) for label in labels]
    model = attached(tiny_model, rows, labels, "single_label_classification", num_labels)

    vectorizer = TfidfVectorizer(analyzer=grams, min_df=2, sublinear_tf=True)
    expected = LogisticRegression(C=10, max_iter=1000).fit(vectorizer.fit_transform(rows), labels)
    probabilities = expected.predict_proba(vectorizer.transform(others))

    logits, *_ = ngram_logits(model, others)
    np.testing.assert_allclose(torch.tensor(logits).softmax(-1).numpy(), probabilities, atol=2e-3)
    assert (logits.argmax(-1) == probabilities.argmax(-1)).all()


def test_numbers_are_those_of_scikit_learns_ridge_regression(tiny_model):
    rows, labels = texts(200)
    numbers = [3.0 * label + 100 for label in labels]
    model = attached(tiny_model, rows, numbers, "regression", 1)

    vectorizer = TfidfVectorizer(analyzer=grams, min_df=2, sublinear_tf=True)
    expected = Ridge().fit(vectorizer.fit_transform(rows), numbers).predict(vectorizer.transform(rows))

    logits, *_ = ngram_logits(model, rows)
    np.testing.assert_allclose(logits[:, 0], expected, atol=1e-2)


def test_several_labels_are_told_apart_also_one_that_every_row_has(tiny_model):
    rows, labels = texts(200)
    several = [[float(label == 0), 1.0, 0.0] for label in labels]
    model = attached(tiny_model, rows, several, "multi_label_classification", 3)

    logits, *_ = ngram_logits(model, rows)

    assert ((logits > 0) == np.array(several, dtype=bool)).mean() > 0.99


def test_logits_are_the_mean_of_both_and_ids_are_needed(tiny_model):
    rows, labels = texts(50)
    model = attached(tiny_model, rows, labels, "single_label_classification", 3)
    logits, ids, mask = ngram_logits(model, rows)
    with torch.no_grad():
        both = model(ids, attention_mask=mask).logits
        pairs = (mask[:, None, None, :] != 0).expand(-1, 1, ids.shape[1], -1)
        by_pairs = model(ids, attention_mask=pairs, position_ids=(mask.cumsum(1) - 1).clamp(min=0))
        ngrams, model.ngrams = model.ngrams, None
        encoder = model(ids, attention_mask=mask).logits
    np.testing.assert_allclose(both.numpy(), (encoder.numpy() + logits) / 2, atol=1e-5)
    assert by_pairs.logits.shape == both.shape
    model.ngrams = ngrams
    with pytest.raises(ValueError, match="give `input_ids`"):
        model(inputs_embeds=model.get_input_embeddings()(ids))


def test_saved_model_loads_with_its_ngrams_and_another_head_without_a_word(tiny_model, tmp_path, log):
    rows, labels = texts(50)
    model = attached(tiny_model, rows, labels, "single_label_classification", 3)
    _, ids, mask = ngram_logits(model, rows)
    model.save_pretrained(tmp_path)

    loaded = TinyBertForSequenceClassification.from_pretrained(tmp_path)
    without = TinyBertForSequenceClassification.from_pretrained(tmp_path, num_ngram_buckets=0)

    assert torch.equal(loaded(ids, attention_mask=mask).logits, model(ids, attention_mask=mask).logits)
    assert without.ngrams is None
    assert log.text == ""


def test_text_of_unknown_ngrams_has_the_bias_alone(tiny_model):
    rows, labels = texts(50)
    model = attached(tiny_model, rows, labels, "single_label_classification", 3)
    unknown = [[45, 46, 47, 48]]

    assert np.array_equal(ngram_logits(model, unknown)[0][0], model.ngrams.bias.detach().numpy())


def test_many_labels_get_fewer_buckets():
    assert number_of_buckets(2**18, 2) == 2**18
    assert number_of_buckets(2**18, 100) == 2**14
    assert number_of_buckets(1000, 10**9) == 1
