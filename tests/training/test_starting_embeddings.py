import numpy as np
import pytest
import torch

from hf_tinybert import TinyBertConfig, TinyBertForMaskedLM
from training import starting_embeddings as module
from training.encoding import pack
from training.starting_embeddings import start_from, starting_embeddings


VOCAB_SIZE = 12
DOCUMENTS = [[2, 5, 6, 7, 3], [2, 8, 5, 8, 5, 6, 3], [2, 9, 3], [2, 7, 6, 5, 8, 10, 10, 10, 9, 6, 3]]


@pytest.fixture
def blocks():
    return pack([np.array(ids, dtype=np.int32) for ids in DOCUMENTS], 8, 0)


def config_of(**fields):
    return TinyBertConfig(vocab_size=VOCAB_SIZE, hidden_size=8, num_attention_heads=2, **fields)


def pieces_of(blocks):
    """The runs of tokens that see one another, by reading positions."""
    pieces = []
    for row in blocks:
        for token, position in zip(row["input_ids"].tolist(), row["position_ids"].tolist(), strict=True):
            if position == 0:
                pieces.append([])
            pieces[-1].append(token)
    return pieces


def test_pairs_are_counted_by_distance_and_inside_a_piece(blocks, monkeypatch):
    monkeypatch.setattr(module, "BLOCKS_PER_BATCH", 2)
    expected = np.zeros((VOCAB_SIZE, VOCAB_SIZE))
    for piece in pieces_of(blocks):
        for i, first in enumerate(piece):
            for j, second in enumerate(piece):
                if i != j and abs(i - j) <= module.WINDOW:
                    expected[first, second] += 1 / abs(i - j)
    near, counts = module._count_pairs(blocks, VOCAB_SIZE)
    np.testing.assert_allclose(near.toarray(), expected, rtol=1e-6)
    assert len(pieces_of(blocks)) > len(DOCUMENTS)  # some document crosses the end of a block
    assert counts.tolist() == np.bincount(np.concatenate(blocks[:]["input_ids"]), minlength=VOCAB_SIZE).tolist()


def test_information_is_that_of_its_formula(blocks):
    near, _ = module._count_pairs(blocks, VOCAB_SIZE)
    dense = near.toarray().astype(np.float64)
    contexts = dense.sum(0) ** 0.75
    chance = np.outer(dense.sum(1), contexts / contexts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(dense > 0, np.maximum(np.log(dense / chance), 0), 0)
    np.testing.assert_allclose(module._positive_information(near).toarray(), expected, rtol=1e-5)


def test_a_long_text_is_counted_in_part(blocks, monkeypatch):
    monkeypatch.setattr(module, "MAX_TOKENS", 16)
    _, counts = module._count_pairs(blocks, VOCAB_SIZE)
    assert 0 < counts.sum() < blocks.num_rows * 8


def test_words_of_the_same_company_start_close_together_and_others_far():
    generator = np.random.default_rng(0)
    # 5 and 6 stand between 7 and 8, 9 and 10 between 11 and 4
    documents = [
        [2, 7, int(a), 8, 3] if a < 7 else [2, 11, int(a), 4, 3] for a in generator.choice([5, 6, 9, 10], 400)
    ]
    blocks = pack([np.array(ids, dtype=np.int32) for ids in documents], 16, 0)
    vectors = starting_embeddings(blocks, config_of(), seed=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert min(vectors[5] @ vectors[6], vectors[9] @ vectors[10]) > 0.8
    assert max(vectors[5] @ vectors[9], vectors[6] @ vectors[10]) < 0.3


def test_spread_follows_the_config_and_rare_tokens_stay_random(blocks):
    vectors = starting_embeddings(blocks, config_of(initializer_range=0.05), seed=0)
    assert vectors.shape == (VOCAB_SIZE, 8) and vectors.dtype == np.float32 and np.isfinite(vectors).all()
    counts = module._count_pairs(blocks, VOCAB_SIZE)[1]
    known = counts >= module.MIN_COUNT
    assert 0 < known.sum() < VOCAB_SIZE
    assert vectors[known].std() == pytest.approx(0.1, rel=1e-3)
    random = np.random.default_rng(0).normal(0.0, 0.1, (VOCAB_SIZE, 8)).astype(np.float32)
    np.testing.assert_array_equal(vectors[~known], random[~known])


def test_the_seed_decides_the_embeddings(blocks):
    first, again, other = (starting_embeddings(blocks, config_of(), seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_more_numbers_than_tokens_are_filled_up_with_random_ones(blocks):
    config = TinyBertConfig(vocab_size=VOCAB_SIZE, hidden_size=24, num_attention_heads=2)
    vectors = starting_embeddings(blocks, config, seed=0)
    assert np.isfinite(vectors).all() and (vectors.std(axis=0) > 0).all()


@pytest.mark.parametrize("tie", [True, False])
def test_a_model_starts_from_them_and_guesses_by_frequency(blocks, tie):
    model = TinyBertForMaskedLM(config_of(tie_word_embeddings=tie)).eval()
    vectors = starting_embeddings(blocks, model.config, seed=0)
    counts = np.arange(VOCAB_SIZE)
    start_from(model, vectors, counts)
    weight = model.get_input_embeddings().weight
    assert torch.equal(weight[1:], torch.from_numpy(vectors[1:])) and not weight[0].any()
    assert (model.get_output_embeddings().weight is weight) is tie
    shares = model.get_output_embeddings().bias.softmax(0)
    np.testing.assert_allclose(shares.detach().numpy(), (counts + 1) / (counts + 1).sum(), rtol=1e-5)
