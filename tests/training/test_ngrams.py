"""N-grams beside the encoder, against scikit-learn's own tf-idf and linear models."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge

from hf_tinybert import TinyBertForSequenceClassification
from training.ngrams import attach_ngrams, number_of_buckets, token_units


BUCKETS = 2**20  # so many that the few n-grams here do not collide
CHARACTERS = "我爱你他不喜欢北京天气很好"
SINGLE, SEVERAL, NUMBER = "single_label_classification", "multi_label_classification", "regression"


def make_texts(count, seed=0):
    """Texts with a label each of three, that certain words go with."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        label = int(random.integers(3))
        words = "".join(random.choice(list(CHARACTERS), random.integers(4, 15)))
        texts.append(words + ["天气", "喜欢你", "不好"][label] + "".join(random.choice(list(CHARACTERS), 3)))
        labels.append(label)
    return texts, labels


@pytest.fixture
def attached(tiny_model, tiny_tokenizer):
    """Makes a model with n-grams fitted on texts and labels."""

    def make(texts, labels, problem_type, num_labels, by_characters=True):
        model = tiny_model(TinyBertForSequenceClassification, num_labels=num_labels, problem_type=problem_type)
        rows = Dataset.from_dict({"input_ids": tiny_tokenizer(texts)["input_ids"], "label": labels})
        assert attach_ngrams(model, tiny_tokenizer, rows, texts, BUCKETS) is by_characters
        return model.eval()

    return make


@pytest.fixture
def batch(tiny_tokenizer):
    """Makes ids and mask of texts, every other one padded on the left."""

    def make(texts):
        rows = tiny_tokenizer(texts)["input_ids"]
        length = max(map(len, rows))
        ids, mask = (torch.zeros(len(rows), length, dtype=torch.long) for _ in range(2))
        for index, row in enumerate(rows):
            place = slice(length - len(row), length) if index % 2 else slice(len(row))
            ids[index, place], mask[index, place] = torch.tensor(row), 1
        return ids, mask

    return make


@torch.no_grad()
def ngram_logits(model, ids, mask):
    return model.ngrams(ids, mask != 0).numpy()


def vectorized(texts, others):
    vectorizer = TfidfVectorizer(analyzer="char", ngram_range=(1, 3), min_df=2, sublinear_tf=True)
    return vectorizer.fit_transform(texts).toarray(), vectorizer.transform(others).toarray()


def log_odds(values, applies, others):
    """Of naive Bayes features, spelled out (Wang & Manning 2012, equations 2 and 3)."""
    seen = values > 0
    p, q = 1 + seen[applies].sum(0), 1 + seen[~applies].sum(0)
    ratio = np.log((p / p.sum()) / (q / q.sum()))
    return LogisticRegression(C=30, max_iter=1000).fit(values * ratio, applies).decision_function(others * ratio)


def test_two_classes_have_the_odds_of_naive_bayes_features_on_scikit_learns_tfidf(attached, batch):
    (texts, labels), (others, _) = make_texts(200), make_texts(50, seed=1)
    labels = np.minimum(labels, 1)
    model = attached(texts, labels.tolist(), SINGLE, 2)

    logits = ngram_logits(model, *batch(others))

    values, other_values = vectorized(texts, others)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], log_odds(values, labels == 1, other_values), atol=0.02)


def test_each_of_three_classes_has_its_odds_against_the_others(attached, batch):
    (texts, labels), (others, _) = make_texts(200), make_texts(50, seed=1)
    model = attached(texts, labels, SINGLE, 3)

    logits = ngram_logits(model, *batch(others))

    values, other_values = vectorized(texts, others)
    for label in range(3):
        expected = log_odds(values, np.array(labels) == label, other_values)
        np.testing.assert_allclose(logits[:, label], expected, atol=0.02)


def test_numbers_are_those_of_scikit_learns_ridge_regression(attached, batch):
    texts, labels = make_texts(200)
    numbers = [3.0 * label + 100 for label in labels]
    model = attached(texts, numbers, NUMBER, 1)

    logits = ngram_logits(model, *batch(texts))

    values, _ = vectorized(texts, texts)
    np.testing.assert_allclose(logits[:, 0], Ridge().fit(values, numbers).predict(values), atol=1e-3)


def test_several_labels_are_told_apart_also_one_that_every_row_has_or_none(attached, batch):
    texts, labels = make_texts(200)
    several = [[float(label == 0), 1.0, 0.0] for label in labels]
    model = attached(texts, several, SEVERAL, 3)

    right = (ngram_logits(model, *batch(texts)) > 0) == np.array(several, dtype=bool)

    assert right[:, 0].mean() > 0.9
    assert right[:, 1:].all()


def test_tokens_of_a_character_each_are_as_good_as_characters(attached, batch, monkeypatch):
    texts, labels = make_texts(200)
    by_characters = ngram_logits(attached(texts, labels, SINGLE, 3), *batch(texts))
    monkeypatch.setattr("training.ngrams.is_unspaced", lambda texts: False)
    by_tokens = ngram_logits(attached(texts, labels, SINGLE, 3, by_characters=False), *batch(texts))

    np.testing.assert_allclose(by_tokens, by_characters, atol=0.02)


def test_units_are_the_characters_of_a_token_or_the_token(tiny_tokenizer):
    vocabulary = tiny_tokenizer.get_vocab()

    characters, tokens = (token_units(tiny_tokenizer, 50, by_characters) for by_characters in (True, False))

    assert characters[vocabulary["good"]].tolist() == [*map(ord, "good"), *[-1] * 12]
    assert tokens[vocabulary["good"]].tolist() == [vocabulary["good"], *[-1] * 15]
    assert characters[vocabulary["[UNK]"], 0] == 0x110000
    for special in ("[PAD]", "[CLS]", "[SEP]", "[MASK]"):
        assert (characters[vocabulary[special]] == -1).all() and (tokens[vocabulary[special]] == -1).all()


def test_units_of_a_text_stand_in_a_row_without_what_is_not_attended(attached, tiny_tokenizer):
    model = attached(*make_texts(20), SINGLE, 3)
    good, bad, mask = (tiny_tokenizer.get_vocab()[token] for token in ("good", "bad", "[MASK]"))

    units, present = model.ngrams.text_units(
        torch.tensor([[good, mask, bad, good], [bad, bad, good, good]]),
        torch.tensor([[True, True, True, False], [False, True, False, False]]),
    )

    assert units.shape == present.shape == (2, 7)
    assert units[0].tolist() == [*map(ord, "goodbad")] and present[0].all()
    assert units[1, :3].tolist() == [*map(ord, "bad")] and present[1].tolist() == [True] * 3 + [False] * 4


def test_units_follow_the_embeddings_and_new_tokens_have_none(attached, batch, tmp_path):
    texts, labels = make_texts(50)
    model = attached(texts, labels, SINGLE, 3)
    ids, mask = batch(texts)
    units, size = model.ngrams.units, len(model.ngrams.units)
    expected = ngram_logits(model, ids, mask)
    model.resize_token_embeddings(size + 3)
    assert torch.equal(model.ngrams.units[:size], units) and (model.ngrams.units[size:] == -1).all()
    new = torch.full((len(ids), 1), size + 2)
    longer = torch.cat([ids, new], dim=1), torch.cat([mask, torch.ones_like(new)], dim=1)
    np.testing.assert_allclose(ngram_logits(model, *longer), expected, atol=1e-6)
    model.save_pretrained(tmp_path)
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    assert torch.equal(loaded.ngrams.units, model.ngrams.units)
    model.resize_token_embeddings(size - 1)
    assert torch.equal(model.ngrams.units, units[:-1])


def test_logits_are_the_mean_of_both_and_ids_are_needed(attached, batch):
    texts, labels = make_texts(50)
    model = attached(texts, labels, SINGLE, 3)
    ids, mask = batch(texts)
    with torch.no_grad():
        both = model(ids, attention_mask=mask).logits
        pairs = (mask[:, None, None, :] != 0).expand(-1, 1, ids.shape[1], -1)
        by_pairs = model(ids, attention_mask=pairs, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
        ngrams, model.ngrams = model.ngrams, None
        encoder = model(ids, attention_mask=mask).logits
        encoder_by_pairs = model(ids, attention_mask=pairs, position_ids=(mask.cumsum(1) - 1).clamp(min=0)).logits
        model.ngrams = ngrams
        alone = model.ngrams(ids, mask != 0)
    torch.testing.assert_close(both, (encoder + alone) / 2)
    torch.testing.assert_close(by_pairs, (encoder_by_pairs + alone) / 2)  # padding is told by its id
    with pytest.raises(ValueError, match="give `input_ids`"):
        model(inputs_embeds=model.get_input_embeddings()(ids))


def test_padding_and_the_other_texts_of_a_batch_change_nothing(attached, batch):
    texts, labels = make_texts(50)
    model = attached(texts, labels, SINGLE, 3)
    together = ngram_logits(model, *batch(texts))
    for index, text in enumerate(texts[:10]):
        np.testing.assert_allclose(ngram_logits(model, *batch([text]))[0], together[index], atol=1e-5)


def test_saved_model_loads_with_its_ngrams_and_another_head_without_a_word(attached, batch, tmp_path, log):
    texts, labels = make_texts(50)
    model = attached(texts, labels, SINGLE, 3)
    ids, mask = batch(texts)
    model.save_pretrained(tmp_path)

    loaded = TinyBertForSequenceClassification.from_pretrained(tmp_path)
    without = TinyBertForSequenceClassification.from_pretrained(tmp_path, num_ngram_buckets=0)

    assert torch.equal(loaded(ids, attention_mask=mask).logits, model(ids, attention_mask=mask).logits)
    assert without.ngrams is None
    assert log.text == ""


def test_text_without_a_known_ngram_has_the_bias_alone(attached, batch):
    model = attached(*make_texts(50), SINGLE, 3)
    bias = model.ngrams.bias.detach().numpy()

    for text in ("。", ""):
        assert np.array_equal(ngram_logits(model, *batch([text]))[0], bias)


def test_many_labels_get_fewer_buckets():
    assert number_of_buckets(2**19, 2) == 2**19
    assert number_of_buckets(2**19, 100) == 2**14
    assert number_of_buckets(1000, 10**9) == 1
