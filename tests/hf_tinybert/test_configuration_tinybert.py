import logging

import pytest
from transformers import AutoConfig
from transformers.utils import logging as transformers_logging

from hf_tinybert import TinyBertConfig, TinyBertModel


@pytest.fixture
def log(caplog):
    """What transformers logs, as text; its root logger does not propagate by itself."""
    root = transformers_logging.get_logger("transformers")
    root.addHandler(caplog.handler)
    with caplog.at_level(logging.DEBUG):
        yield caplog
    root.removeHandler(caplog.handler)


def test_no_arguments_give_the_reference_shape():
    config = TinyBertConfig()

    shape = (config.vocab_size, config.hidden_size, config.num_hidden_layers, config.num_attention_heads)
    assert shape == (1000, 64, 2, 4)
    assert (config.intermediate_size, config.max_position_embeddings) == (256, 64)
    assert config.hidden_dropout_prob == config.attention_probs_dropout_prob == 0.1
    assert config.layer_norm_eps == 1e-5
    switches = (config.norm_placement, config.position_embedding_type, config.classifier_pooling)
    assert switches == ("post", "learned", "cls")
    assert not config.tie_word_embeddings


def test_making_a_config_logs_nothing(log):
    TinyBertConfig()

    assert log.text == ""


def test_docstring_example_counts_parameters_right():
    config = TinyBertConfig(hidden_size=128, max_position_embeddings=128)

    assert TinyBertModel(config).num_parameters() == 541184


def test_feed_forward_is_four_times_as_wide_unless_given():
    assert TinyBertConfig(hidden_size=32).intermediate_size == 128
    assert TinyBertConfig(hidden_size=32, intermediate_size=7).intermediate_size == 7


@pytest.mark.parametrize("through", [TinyBertConfig, AutoConfig])
def test_saving_and_loading_keeps_every_field(tmp_path, through):
    config = TinyBertConfig(
        vocab_size=77,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=9,
        hidden_dropout_prob=0.25,
        attention_probs_dropout_prob=0.5,
        layer_norm_eps=1e-6,
        initializer_range=0.1,
        pad_token_id=3,
        norm_placement="pre",
        position_embedding_type="rotary",
        classifier_pooling="mean",
        tie_word_embeddings=True,
        id2label={0: "坏", 1: "中", 2: "好"},
        problem_type="single_label_classification",
        something_unknown=[1, 2],
    )
    config.save_pretrained(tmp_path)

    loaded = through.from_pretrained(tmp_path)

    assert loaded.to_diff_dict() == config.to_diff_dict()
    assert type(loaded) is TinyBertConfig
    assert loaded.something_unknown == [1, 2]
    assert loaded.id2label == {0: "坏", 1: "中", 2: "好"}


def test_auto_map_is_not_shared_between_configs():
    first, second = TinyBertConfig(), TinyBertConfig()
    first.auto_map["AutoModel"] = "elsewhere.Other"

    assert second.auto_map["AutoModel"] == "modeling_tinybert.TinyBertModel"


@pytest.mark.parametrize(
    "wrong, parts",
    [
        ({"hidden_size": 10, "num_attention_heads": 3}, ["10", "3"]),
        ({"hidden_size": 12, "num_attention_heads": 4, "position_embedding_type": "rotary"}, ["12", "4", "even"]),
        ({"vocab_size": 0}, ["vocab_size", "0"]),
        ({"vocab_size": "many"}, ["vocab_size", "many"]),
        ({"hidden_size": 12.0}, ["hidden_size", "12.0"]),
        ({"num_hidden_layers": 0}, ["num_hidden_layers", "0"]),
        ({"num_attention_heads": 0}, ["num_attention_heads", "0"]),
        ({"max_position_embeddings": -1}, ["max_position_embeddings", "-1"]),
        ({"intermediate_size": 0}, ["intermediate_size", "0"]),
        ({"pad_token_id": 1000}, ["pad_token_id", "1000"]),
        ({"pad_token_id": -1}, ["pad_token_id", "-1"]),
        ({"norm_placement": "sandwich"}, ["norm_placement", "sandwich"]),
        ({"position_embedding_type": "relative"}, ["position_embedding_type", "relative"]),
        ({"classifier_pooling": "max"}, ["classifier_pooling", "max"]),
        ({"layer_norm_eps": 0.0}, ["layer_norm_eps", "0.0"]),
        ({"hidden_dropout_prob": 1.5}, ["hidden_dropout_prob", "1.5"]),
        ({"attention_probs_dropout_prob": -0.1}, ["attention_probs_dropout_prob", "-0.1"]),
        ({"initializer_range": -1.0}, ["initializer_range", "-1.0"]),
    ],
)
def test_impossible_values_are_refused_by_name_and_value(wrong, parts):
    with pytest.raises(ValueError, match="Impossible TinyBertConfig") as caught:
        TinyBertConfig(**wrong)

    for part in parts:
        assert part in str(caught.value)


def test_every_problem_is_named_at_once():
    with pytest.raises(ValueError, match=r"vocab_size.*num_hidden_layers"):
        TinyBertConfig(vocab_size=0, num_hidden_layers=0, pad_token_id=None)


def test_padding_token_may_be_absent():
    assert TinyBertConfig(pad_token_id=None).pad_token_id is None
