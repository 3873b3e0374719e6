"""A small BERT-style encoder for Hugging Face transformers.

Importing this package registers the `tinybert` model type with transformers' Auto classes.
"""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from .configuration_tinybert import TinyBertConfig
from .modeling_tinybert import (
    TinyBertForMaskedLM,
    TinyBertForMultipleChoice,
    TinyBertForQuestionAnswering,
    TinyBertForSequenceClassification,
    TinyBertForTokenClassification,
    TinyBertModel,
    TinyBertPreTrainedModel,
)
from .tokenization_tinybert import TinyBertTokenizer
from .version import __version__


AutoConfig.register(TinyBertConfig.model_type, TinyBertConfig)
TinyBertConfig.register_for_auto_class()
# Not for the Hub's auto_map: a tokenizer must load where neither this package nor its code is allowed.
AutoTokenizer.register(TinyBertConfig, fast_tokenizer_class=TinyBertTokenizer)
for _auto_class, _model_class in (
    (AutoModel, TinyBertModel),
    (AutoModelForMaskedLM, TinyBertForMaskedLM),
    (AutoModelForSequenceClassification, TinyBertForSequenceClassification),
    (AutoModelForTokenClassification, TinyBertForTokenClassification),
    (AutoModelForQuestionAnswering, TinyBertForQuestionAnswering),
    (AutoModelForMultipleChoice, TinyBertForMultipleChoice),
):
    _auto_class.register(TinyBertConfig, _model_class)
    _model_class.register_for_auto_class(_auto_class.__name__)

__all__ = [
    "TinyBertConfig",
    "TinyBertForMaskedLM",
    "TinyBertForMultipleChoice",
    "TinyBertForQuestionAnswering",
    "TinyBertForSequenceClassification",
    "TinyBertForTokenClassification",
    "TinyBertModel",
    "TinyBertPreTrainedModel",
    "TinyBertTokenizer",
    "__version__",
]
