"""Our classes put before transformers' `ModelTesterMixin` and `ConfigTester`. Run by `python -m tests.conformance`."""

import unittest

import torch
from transformers_suite import test_modeling_common
from transformers_suite.test_configuration_common import ConfigTester
from transformers_suite.test_modeling_common import ModelTesterMixin, ids_tensor

from hf_tinybert import (
    TinyBertConfig,
    TinyBertForMaskedLM,
    TinyBertForMultipleChoice,
    TinyBertForQuestionAnswering,
    TinyBertForSequenceClassification,
    TinyBertForTokenClassification,
    TinyBertModel,
)


# The suite tells by class name which classes take labels, and of what shape.
for table, model_class in (
    ("MODEL_MAPPING_NAMES", TinyBertModel),
    ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", TinyBertForMaskedLM),
    ("MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES", TinyBertForSequenceClassification),
    ("MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES", TinyBertForTokenClassification),
    ("MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES", TinyBertForQuestionAnswering),
    ("MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES", TinyBertForMultipleChoice),
):
    names = getattr(test_modeling_common, table)
    setattr(test_modeling_common, table, {**names, "tinybert": model_class.__name__})


class TinyBertModelTester:
    """What the suite asks of a model's tester: sizes, and a config with inputs."""

    batch_size = 5
    seq_length = 7
    num_choices = 4
    is_training = True
    hidden_size = 32
    num_hidden_layers = 2
    num_attention_heads = 4
    switches: dict = {}

    def get_config(self) -> TinyBertConfig:
        return TinyBertConfig(
            vocab_size=99,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            num_attention_heads=self.num_attention_heads,
            intermediate_size=37,
            max_position_embeddings=64,
            **self.switches,
        )

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        input_ids = ids_tensor([self.batch_size, self.seq_length], config.vocab_size - 1) + 1  # none is padding
        attention_mask = torch.tril(torch.ones(self.batch_size, self.seq_length, dtype=torch.long), 2)
        return config, {"input_ids": input_ids, "attention_mask": attention_mask}


class ConformanceTests(ModelTesterMixin):
    all_model_classes = (
        TinyBertModel,
        TinyBertForMaskedLM,
        TinyBertForSequenceClassification,
        TinyBertForTokenClassification,
        TinyBertForQuestionAnswering,
        TinyBertForMultipleChoice,
    )
    switches: dict = {}
    test_can_init_all_missing_weights_before_2023 = True  # skipped otherwise: our files bear no year

    def setUp(self):
        self.model_tester = TinyBertModelTester()
        self.model_tester.switches = self.switches
        self.config_tester = ConfigTester(self, config_class=TinyBertConfig, hidden_size=32)

    def test_config(self):
        self.config_tester.run_common_tests()


class TestReference(ConformanceTests, unittest.TestCase):
    """The reference model: post-norm, learned positions, untied decoder, [CLS]."""


class TestSwitches(ConformanceTests, unittest.TestCase):
    """Every switch thrown."""

    switches = {
        "norm_placement": "pre",
        "position_embedding_type": "rotary",
        "classifier_pooling": "mean",
        "tie_word_embeddings": True,
    }
