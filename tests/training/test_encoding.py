import math

import numpy as np
import pytest
from datasets import Dataset

from training.encoding import encode, pack, token_counts, unigram_entropy


def pieces(blocks):
    """The pieces of packed blocks, told from their positions alone."""
    found = []
    for ids, positions in zip(blocks["input_ids"], blocks["position_ids"], strict=True):
        for token, position in zip(ids.tolist(), positions.tolist(), strict=True):
            if position == 0:
                found.append([])
            assert position == len(found[-1])
            found[-1].append(token)
    return found


def test_packing_by_hand():
    documents = [np.array([2, 5, 6, 3]), np.array([2, 7, 3]), np.array([2, 8, 9, 10, 3])]
    blocks = pack(documents, block_size=8, pad_token_id=0)[:]
    assert blocks["input_ids"].tolist() == [[2, 5, 6, 3, 2, 7, 3, 2], [8, 9, 10, 3, 0, 0, 0, 0]]
    assert blocks["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 0], [0, 1, 2, 3, 0, 1, 2, 3]]


def test_no_token_is_lost_and_documents_stay_apart():
    generator = np.random.default_rng(0)
    documents = [generator.integers(5, 100, size=generator.integers(1, 50)) for _ in range(200)]
    blocks = pack(documents, block_size=16, pad_token_id=0)[:]
    row = [token for piece in pieces(blocks) for token in piece]
    expected = np.concatenate(documents).tolist()
    assert row[: len(expected)] == expected
    assert set(row[len(expected) :]) <= {0} and len(row) - len(expected) < 16
    starts = {0, *np.cumsum([len(document) for document in documents]).tolist()}
    for start in starts - {len(expected)}:
        assert blocks["position_ids"].ravel()[start] == 0


def test_a_document_that_fills_its_block_leaves_no_padding():
    blocks = pack([np.arange(5, 13)], block_size=4, pad_token_id=0)[:]
    assert blocks["input_ids"].tolist() == [[5, 6, 7, 8], [9, 10, 11, 12]]
    assert blocks["position_ids"].tolist() == [[0, 1, 2, 3]] * 2


def test_nothing_packs_to_nothing():
    assert len(pack([], block_size=4, pad_token_id=0)) == 0


def test_encoding_neither_cuts_long_texts_nor_believes_typed_special_tokens(tokenizer):
    long_text = "我爱读书" * 500
    assert len(long_text) > tokenizer.model_max_length
    plain, typed, after = encode([long_text, "好[MASK]书", "好书"], tokenizer)
    assert len(plain) == len(long_text) + 2
    assert plain[0] == tokenizer.cls_token_id and plain[-1] == tokenizer.sep_token_id
    assert tokenizer.mask_token_id not in typed.tolist()
    assert tokenizer.mask_token_id in tokenizer("好[MASK]书")["input_ids"]  # as fill-mask needs it
    assert after.tolist() == tokenizer("好书")["input_ids"]


def test_unigram_entropy_by_hand():
    blocks = pack([np.array([2, 5, 5, 6, 3]), np.array([2, 5, 3])], block_size=8, pad_token_id=0)
    counts = token_counts(blocks, vocab_size=8, special_ids=[0, 2, 3])
    assert counts.tolist() == [0, 0, 0, 0, 0, 3, 1, 0]
    assert unigram_entropy(counts) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))


@pytest.mark.parametrize("kind", [list, iter, lambda texts: Dataset.from_dict({"text": texts})["text"]])
def test_encoding_gives_the_ids_that_the_tokenizer_gives_when_called(tokenizer, sentences, kind):
    """Called before and after, so that neither leaves the other its settings."""
    texts = [*sentences, "", " ", "[CLS]好[MASK]", "我爱读书" * 300, "\u5000\ud7a3 x"] * 3
    settings = {"truncation": False, "split_special_tokens": True, "verbose": False}
    expected = tokenizer(texts, **settings)["input_ids"]
    cut = tokenizer(texts, padding=True)["input_ids"]
    assert [ids.tolist() for ids in encode(kind(texts), tokenizer)] == expected
    assert tokenizer(texts, padding=True)["input_ids"] == cut
    assert len(texts) > 1000 and {ids.dtype for ids in encode(texts[:3], tokenizer)} == {np.dtype(np.int32)}
