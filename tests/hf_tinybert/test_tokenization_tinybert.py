import copy

import pytest
from transformers import AutoTokenizer, BertTokenizerFast

from hf_tinybert import TinyBertTokenizer
from tests.conftest import VOCABULARY


TEXTS = ["我爱你 good 北京", "他[MASK]喜欢，Good", "天气 [SEP] bad"]


@pytest.fixture(params=["general", "bert"])
def tokenizer(request, tiny_tokenizer, tmp_path):
    """The same tokens in two classes of transformers."""
    if request.param == "general":
        return copy.deepcopy(tiny_tokenizer)
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
    return BertTokenizerFast.from_pretrained(tmp_path)


def test_fitting_keeps_ids_and_special_tokens_also_after_saving(tokenizer, tmp_path):
    fitted = TinyBertTokenizer.from_fast(tokenizer, 24)
    fitted.save_pretrained(tmp_path / "saved")

    for other in (fitted, AutoTokenizer.from_pretrained(tmp_path / "saved")):
        assert type(other) is TinyBertTokenizer
        assert other.special_tokens_map == tokenizer.special_tokens_map
        assert other(TEXTS, TEXTS)["input_ids"] == tokenizer(TEXTS, TEXTS)["input_ids"]
        assert other.decode(other(TEXTS[0])["input_ids"]) == tokenizer.decode(tokenizer(TEXTS[0])["input_ids"])
        assert list(other("我", "你")) == ["input_ids", "attention_mask"]


def test_fitted_tokenizer_cuts_at_the_lower_limit_unless_told_otherwise(tokenizer):
    tokenizer("我" * 30, truncation=True, max_length=4)  # leaves its length behind in the backend
    for limit, length in ((8, 8), (1000, min(1000, tokenizer.model_max_length))):
        fitted = TinyBertTokenizer.from_fast(tokenizer, limit)
        assert len(fitted("我" * 2000)["input_ids"]) == length
        assert len(fitted("我" * 2000, truncation=False, verbose=False)["input_ids"]) == 2002


def test_fitting_leaves_the_given_tokenizer_as_it_is(tokenizer):
    def state():
        return list(tokenizer("我")), tokenizer.backend_tokenizer.to_str(), tokenizer.model_max_length

    before = state()
    TinyBertTokenizer.from_fast(tokenizer, 8).add_tokens(["<new>"])
    assert state() == before
