"""A folder of ours as a sentence-transformers model: mean pooling, encode, a short fit, save, load."""

import numpy as np
import pytest
import torch
from datasets import Dataset

from hf_tinybert import TinyBertForMaskedLM, TinyBertTokenizer


sentence_transformers = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed"
)  # fmt: skip

TEXTS = ["我爱北京", "他不喜欢天气。", "good", "我" * 100]


@pytest.fixture
def folder(tiny_model, tiny_tokenizer, tmp_path):
    tiny_model(TinyBertForMaskedLM).save_pretrained(tmp_path / "encoder")
    TinyBertTokenizer.from_fast(tiny_tokenizer, 24).save_pretrained(tmp_path / "encoder")
    return tmp_path / "encoder"


def test_encode_is_the_mean_over_the_tokens_of_each_text(folder, log):
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    tokenizer, encoder = TinyBertTokenizer.from_pretrained(folder), TinyBertForMaskedLM.from_pretrained(folder)

    embeddings = model.encode(TEXTS)

    assert embeddings.shape == (4, 16)
    for text, embedding in zip(TEXTS, embeddings, strict=True):
        with torch.no_grad():
            hidden = encoder.tinybert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        np.testing.assert_allclose(embedding, hidden.mean(0).numpy(), atol=1e-5)
    assert "classifier" not in log.text and "mlm_head" not in log.text


def test_fitted_model_gives_the_same_embeddings_after_saving_and_loading(folder, tmp_path):
    model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    before = model.encode(TEXTS)
    rows = Dataset.from_dict({"anchor": TEXTS[:2] * 4, "positive": ["我爱你", "天气不好"] * 4})
    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        str(tmp_path / "run"), max_steps=4, learning_rate=1e-2, report_to="none", disable_tqdm=True, save_strategy="no"
    )
    from sentence_transformers.sentence_transformer import losses

    loss = losses.MultipleNegativesRankingLoss(model)
    sentence_transformers.SentenceTransformerTrainer(model, arguments, train_dataset=rows, loss=loss).train()
    after = model.encode(TEXTS)

    model.save_pretrained(str(tmp_path / "fitted"))
    loaded = sentence_transformers.SentenceTransformer(str(tmp_path / "fitted"), device="cpu")

    assert np.abs(after - before).max() > 1e-2
    np.testing.assert_allclose(loaded.encode(TEXTS), after, atol=1e-6)
