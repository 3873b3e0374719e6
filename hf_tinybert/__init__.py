"""A small BERT-style encoder for Hugging Face transformers.

Importing this package registers the `tinybert` model type with transformers' Auto classes.
"""

from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

from .configuration_tinybert import TinyBertConfig
from .modeling_tinybert import (
    TinyBertForMaskedLM,
    TinyBertForSequenceClassification,
    TinyBertModel,
    TinyBertPreTrainedModel,
)
from .version import __version__


AutoConfig.register(TinyBertConfig.model_type, TinyBertConfig)
TinyBertConfig.register_for_auto_class()
for _auto_class, _model_class in (
    (AutoModel, TinyBertModel),
    (AutoModelForMaskedLM, TinyBertForMaskedLM),
    (AutoModelForSequenceClassification, TinyBertForSequenceClassification),
):
    _auto_class.register(TinyBertConfig, _model_class)
    _model_class.register_for_auto_class(_auto_class.__name__)

__all__ = [
    "TinyBertConfig",
    "TinyBertForMaskedLM",
    "TinyBertForSequenceClassification",
    "TinyBertModel",
    "TinyBertPreTrainedModel",
    "__version__",
]
