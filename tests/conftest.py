"""Tiny models and a tiny tokenizer, shared by all tests. Nothing here reaches the network."""

import logging
import os


os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read when huggingface_hub is first imported

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from hf_tinybert import TinyBertConfig


TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 24,
}
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *"我爱你他不喜欢北京天气很好",
    *("good", "bad", "。"),
]


@pytest.fixture(autouse=True, scope="session")
def no_clean_process_after_each_run():
    """Verbs end with a check of what they made, in a process that takes ten seconds; `test_validate` has it back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("training.validate.check_finished", lambda folder: 0)
        patch.setattr("training.validate.SECONDS", 0.0)
        yield


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.fixture
def log(caplog):
    """What transformers logs, as text. Its root logger does not propagate, and a verb may have silenced it."""
    root = transformers_logging.get_logger("transformers")
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_warning()
    root.addHandler(caplog.handler)
    with caplog.at_level(logging.WARNING):
        yield caplog
    root.removeHandler(caplog.handler)
    transformers_logging.set_verbosity(verbosity)


@pytest.fixture
def tiny_config():
    """Makes a config of a few thousand parameters; keywords override."""

    def make(**overrides) -> TinyBertConfig:
        return TinyBertConfig(**(TINY | overrides))

    return make


@pytest.fixture
def tiny_model(tiny_config):
    """Makes a seeded model in eval mode whose biases and norms are away from their initial values."""

    def make(model_class, **overrides):
        torch.manual_seed(0)
        model = model_class(tiny_config(**overrides))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model.eval()

    return make


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """A BERT-like WordPiece tokenizer over a few characters and words, `[PAD]` being id 0. Not to be changed."""
    tokenizer = Tokenizer(models.WordPiece({token: i for i, token in enumerate(VOCABULARY)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=TINY["max_position_embeddings"],
    )


@pytest.fixture
def tokenizer_dir(tiny_tokenizer, tmp_path):
    """A folder that holds `tiny_tokenizer`."""
    folder = tmp_path / "tokenizer"
    tiny_tokenizer.save_pretrained(folder)
    return folder
