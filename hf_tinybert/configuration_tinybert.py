"""Configuration of the TinyBERT encoder."""

from typing import Literal

from transformers import PreTrainedConfig


AUTO_MAP = {
    "AutoConfig": "configuration_tinybert.TinyBertConfig",
    "AutoModel": "modeling_tinybert.TinyBertModel",
    "AutoModelForMaskedLM": "modeling_tinybert.TinyBertForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_tinybert.TinyBertForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_tinybert.TinyBertForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_tinybert.TinyBertForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_tinybert.TinyBertForMultipleChoice",
}


class TinyBertConfig(PreTrainedConfig):
    r"""Shape and switches of a TinyBERT encoder.

    Without arguments this is the reference model: post-norm, learned positions, an untied masked-LM decoder and a
    classifier on the hidden state of `[CLS]`. Its weights are interchangeable with a hand-written
    `torch.nn.TransformerEncoder` (see `python -m training import`).

    Args:
        vocab_size (`int`, defaults to 1000): Number of token ids.
        hidden_size (`int`, defaults to 64): Width of the hidden states. A multiple of `num_attention_heads`.
        embedding_size (`int`, *optional*): Width of the token embeddings, which a linear layer brings to
            `hidden_size`, and of what the masked-LM decoder reads (ALBERT, arXiv 1909.11942, section 3.1). `None`
            means `hidden_size`.
        num_hidden_layers (`int`, defaults to 2): Number of encoder layers.
        num_attention_heads (`int`, defaults to 4): Number of attention heads in a layer.
        intermediate_size (`int`, *optional*): Width of the feed-forward layer. `None` means `4 * hidden_size`.
        max_position_embeddings (`int`, defaults to 64): Longest sequence, special tokens included.
        hidden_dropout_prob (`float`, defaults to 0.1): Dropout after attention, inside and after the feed-forward.
        attention_probs_dropout_prob (`float`, defaults to 0.1): Dropout on the attention weights.
        layer_norm_eps (`float`, defaults to 1e-5): Epsilon of every LayerNorm.
        initializer_range (`float`, defaults to 0.02): Standard deviation of the initial weights.
        pad_token_id (`int`, *optional*, defaults to 0): Id of the padding token.
        norm_placement (`"post"` or `"pre"`, defaults to `"post"`): LayerNorm after each residual sum, or before each
            sub-layer.
        position_embedding_type (`"learned"` or `"rotary"`, defaults to `"learned"`): A learned vector added to the
            token embedding, or a rotation of queries and keys (RoFormer, arXiv 2104.09864, base 10,000).
        classifier_pooling (`"cls"` or `"mean"`, defaults to `"cls"`): What the classifiers of whole texts read: the
            first attended token, or the mean over attended tokens.
        num_ngram_buckets (`int`, defaults to 0): Number of buckets that n-grams are hashed into: by the classifier of
            texts those of characters or tokens, whose tf-idf then counts for half of its logits; by the classifier of
            tokens those around each token, the features of a CRF. 0 means no n-grams, and no CRF.
        tie_word_embeddings (`bool`, defaults to `False`): Whether the masked-LM decoder shares the token embedding.

    Raises:
        ValueError: If the sizes cannot form a model; the text names both offending numbers.

    Example:

    ```python
    >>> from hf_tinybert import TinyBertConfig, TinyBertModel
    >>> config = TinyBertConfig(hidden_size=128, max_position_embeddings=128)
    >>> TinyBertModel(config).num_parameters()
    541184
    ```
    """

    model_type = "tinybert"

    vocab_size: int = 1000
    hidden_size: int = 64
    embedding_size: int | None = None
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    intermediate_size: int | None = None
    max_position_embeddings: int = 64
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-5
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    norm_placement: Literal["post", "pre"] = "post"
    position_embedding_type: Literal["learned", "rotary"] = "learned"
    classifier_pooling: Literal["cls", "mean"] = "cls"
    num_ngram_buckets: int = 0
    tie_word_embeddings: bool = False

    def __post_init__(self, **kwargs):
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        # Every head, not only the class that happens to be saved, so that a folder serves each Auto class.
        kwargs.setdefault("auto_map", dict(AUTO_MAP))
        super().__post_init__(**kwargs)
        self._check_architecture()

    def _check_architecture(self):
        sizes = ("vocab_size", "hidden_size", "embedding_size", "num_hidden_layers", "num_attention_heads")
        problems = [
            f"`{name}` is {getattr(self, name)!r}, but must be a whole number of at least 1"
            for name in (*sizes, "intermediate_size", "max_position_embeddings")
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1
        ]
        if not isinstance(self.num_ngram_buckets, int) or not 0 <= self.num_ngram_buckets < 2**31:
            problems.append(f"`num_ngram_buckets` is {self.num_ngram_buckets!r}, but must lie in 0..{2**31 - 1}")
        if not problems and self.hidden_size % self.num_attention_heads:
            problems.append(
                f"`hidden_size` ({self.hidden_size}) is not a multiple of `num_attention_heads` "
                f"({self.num_attention_heads})"
            )
        if (
            not problems
            and self.position_embedding_type == "rotary"
            and (self.hidden_size // self.num_attention_heads) % 2
        ):
            problems.append(
                f"rotary positions need an even head size, but `hidden_size` ({self.hidden_size}) / "
                f"`num_attention_heads` ({self.num_attention_heads}) is odd"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            if not 0 <= getattr(self, name) <= 1:
                problems.append(f"`{name}` is {getattr(self, name)}, but must lie in 0..1")
        if not self.layer_norm_eps > 0:
            problems.append(f"`layer_norm_eps` is {self.layer_norm_eps}, but must be above 0")
        if not self.initializer_range >= 0:
            problems.append(f"`initializer_range` is {self.initializer_range}, but must not be negative")
        if not problems and self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            problems.append(f"`pad_token_id` ({self.pad_token_id}) lies outside `vocab_size` ({self.vocab_size})")
        for name, allowed in (
            ("norm_placement", ("post", "pre")),
            ("position_embedding_type", ("learned", "rotary")),
            ("classifier_pooling", ("cls", "mean")),
        ):
            if getattr(self, name) not in allowed:
                problems.append(f"`{name}` is {getattr(self, name)!r}, but must be one of {', '.join(allowed)}")
        if problems:
            raise ValueError("Impossible TinyBertConfig: " + "; ".join(problems) + ".")


__all__ = ["TinyBertConfig"]
