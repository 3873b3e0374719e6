"""The TinyBERT encoder and its heads, bottom-up.

Shapes in comments: B batch, S sequence, H hidden size, E embedding size, V vocabulary, N attention heads, D head size
(H / N).
"""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_tinybert import TinyBertConfig


ROTARY_BASE = 10_000.0  # RoFormer, arXiv 2104.09864, section 3.3
IGNORE_INDEX = -100  # the label that transformers' collators give to positions without a target
NGRAM_ORDER = 3  # longest n-gram of a classifier,
UNITS_PER_TOKEN = 16  # and the number of characters of a token that it reads
# Places, counted from a token, of the n-grams that speak for its tag in a CRF; the first is a bias.
WINDOWS = ((), (-2,), (-1,), (0,), (1,), (2,), (-1, 0), (0, 1))
REACH = 2  # how far they reach
CHAIN_ROUNDS = 16  # how far a tag reaches: more did not change the F1 of 2,000 sentences
NGRAM_FACTOR, NGRAM_PRIME = 1_000_003, 2**31 - 1  # of the hash of an n-gram; their product fits into 64 bits
# Of the masked-LM loss in training: how many logits there are at a time, and how many of these in float32, on CPU.
# The latter must stay in the cache.
LOGITS_AT_A_TIME, LOGITS_IN_CACHE = 2**24, 2**19
LABELLED_MULTIPLE = 32  # on CPU as many labelled positions go through the head, see `_labelled_positions`


def _check_range(name: str, values: torch.Tensor, limit: int, limit_name: str):
    """Raise a `ValueError` naming the first of `values` outside `[0, limit)`.

    Only on CPU and outside tracing: elsewhere reading the values would stall the device or break the graph.
    """
    if values.device.type != "cpu" or torch.compiler.is_compiling() or torch.jit.is_tracing() or not values.numel():
        return
    low, high = torch.aminmax(values)
    if low < 0 or high >= limit:
        wrong = int(low if low < 0 else high)
        raise ValueError(f"`{name}` holds {wrong}, but must lie in 0..{limit - 1} (`{limit_name}` is {limit}).")


def _check_mask(mask: torch.Tensor, batch_size: int, sequence_length: int):
    """Raise a `ValueError` unless `mask` is (B, S), or bool or float of pairs that broadcasts to (B, N, S, S)."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    shape, kind = tuple(mask.shape), str(mask.dtype).removeprefix("torch.")
    if mask.ndim == 4:
        fits = shape[0] in (1, batch_size) and shape[2] in (1, sequence_length) and shape[3] == sequence_length
        if mask.dtype != torch.bool and not mask.is_floating_point():
            raise ValueError(
                f"A 4-D `attention_mask` of {kind} is ambiguous: give bool (`True` where a token is seen) or float "
                "(added to the scores)."
            )
    else:
        fits = shape == (batch_size, sequence_length)
    if not fits:
        raise ValueError(
            f"`attention_mask` has shape {shape}, but must have {(batch_size, sequence_length)}, as the input, or "
            f"{(batch_size, 1, sequence_length, sequence_length)}."
        )


def _first_attended(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """Index (B,) of the first attended token: 0, or the number of padding tokens on the left.

    `None` where the mask does not tell: no mask, or one of pairs (4-D).
    """
    if attention_mask is None or attention_mask.ndim != 2:
        return None
    return (attention_mask != 0).to(torch.int32).argmax(dim=-1)


def _rotary_angles(position_ids: torch.Tensor, head_dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """What `_rotate` multiplies by at `position_ids` (B, S): cosine and signed sine (B, S, 1, 1, D)."""
    exponent = torch.arange(0, head_dim, 2, device=position_ids.device, dtype=torch.float32) / head_dim
    angles = position_ids[:, :, None, None, None].float() * ROTARY_BASE**-exponent
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of the last dimension of `states` (B, S, ..., D) by the given angles."""
    first, second = states.chunk(2, dim=-1)
    return torch.addcmul(states * cos, torch.cat((second, first), dim=-1), sin)


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scaled dot-product attention: softmax(q k^T * scaling + mask) v.

    Args:
        query, key, value: (B, N, S, D).
        attention_mask: Added to the scores, (B, 1, S, S) or broadcastable to it. `None` attends everywhere.

    Returns:
        The output (B, S, N, D) and the attention weights (B, N, S, S).
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = F.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value)
    return output.transpose(1, 2).contiguous(), weights


class TinyBertEmbeddings(nn.Module):
    """Token embedding, brought to the hidden size, plus, with learned positions, position embedding.

    No segments, no LayerNorm.
    """

    def __init__(self, config: TinyBertConfig):
        super().__init__()
        assert config.embedding_size is not None  # the config fills it in
        self.token_embeddings = nn.Embedding(config.vocab_size, config.embedding_size, padding_idx=config.pad_token_id)
        self.projection = (
            nn.Linear(config.embedding_size, config.hidden_size)
            if config.embedding_size != config.hidden_size
            else None
        )
        self.position_embeddings = (
            nn.Embedding(config.max_position_embeddings, config.hidden_size)
            if config.position_embedding_type == "learned"
            else None
        )

    def forward(
        self, input_ids: torch.LongTensor | None, position_ids: torch.LongTensor, inputs_embeds: torch.Tensor | None
    ) -> torch.Tensor:
        if inputs_embeds is None:
            assert input_ids is not None
            _check_range("input_ids", input_ids, self.token_embeddings.num_embeddings, "vocab_size")
            inputs_embeds = self.token_embeddings(input_ids)  # (B, S, E)
        hidden_states = inputs_embeds if self.projection is None else self.projection(inputs_embeds)  # (B, S, H)
        if self.position_embeddings is None:
            return hidden_states
        return hidden_states + self.position_embeddings(position_ids)


class TinyBertAttention(nn.Module):
    """Multi-head self-attention with one projection for queries, keys and values."""

    def __init__(self, config: TinyBertConfig):
        super().__init__()
        self.config = config
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_probs_dropout_prob
        self.is_causal = False
        self.qkv_proj = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        rows: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        input_shape = hidden_states.shape[:-1]
        qkv = self.qkv_proj(hidden_states).view(*input_shape, 3, -1, self.head_dim)
        query_key, value = qkv[:, :, :2], qkv[:, :, 2]
        if position_embeddings is not None:
            query_key = _rotate(query_key, *position_embeddings)  # both at once: half the calls
        query, key, value = (states.transpose(1, 2) for states in (*query_key.unbind(dim=2), value))  # (B, N, S, D)

        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        output, weights = attention_interface(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        output = output.reshape(*input_shape, -1).contiguous()
        return self.out_proj(output if rows is None else output.flatten(0, 1).index_select(0, rows)), weights


class TinyBertMLP(nn.Module):
    """Feed-forward: H -> intermediate -> GELU -> dropout -> H."""

    def __init__(self, config: TinyBertConfig):
        super().__init__()
        assert config.intermediate_size is not None  # the config fills it in
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size)
        self.act = nn.GELU()
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down_proj(self.dropout(self.act(self.up_proj(hidden_states))))


class TinyBertLayer(GradientCheckpointingLayer):
    """One encoder layer: attention and feed-forward, each with a residual sum and a LayerNorm after or before it.

    With `rows` (M,) of the flattened batch its output is (M, H): all tokens are attended to, but only those go on.
    """

    def __init__(self, config: TinyBertConfig):
        super().__init__()
        self.pre_norm = config.norm_placement == "pre"
        self.attention = TinyBertAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = TinyBertMLP(config)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self, hidden_states: torch.Tensor, rows: torch.LongTensor | None = None, **kwargs: Unpack[TransformersKwargs]
    ) -> torch.Tensor:
        attention_input = self.attention_norm(hidden_states) if self.pre_norm else hidden_states
        attention_output, _ = self.attention(attention_input, rows=rows, **kwargs)
        if rows is not None:
            hidden_states = hidden_states.flatten(0, 1).index_select(0, rows)
        if self.pre_norm:
            hidden_states = hidden_states + self.dropout(attention_output)
            return hidden_states + self.dropout(self.mlp(self.mlp_norm(hidden_states)))
        hidden_states = self.attention_norm(hidden_states + self.dropout(attention_output))
        return self.mlp_norm(hidden_states + self.dropout(self.mlp(hidden_states)))


class TinyBertPreTrainedModel(PreTrainedModel):
    """Initialisation, loading and saving, common to the encoder and its heads."""

    config: TinyBertConfig
    base_model_prefix = "tinybert"
    supports_gradient_checkpointing = True
    _no_split_modules = ["TinyBertEmbeddings", "TinyBertLayer"]
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": TinyBertLayer, "attentions": TinyBertAttention}
    # Heads of a folder that serves another class stay behind without a warning; by their full names, so that any other
    # name, also one under a head, is still reported.
    _keys_to_ignore_on_load_unexpected = [
        r"^mlm_head\.(dense|norm|decoder)\.(weight|bias)$",
        r"^classifier\.(weight|bias)$",
        r"^qa_outputs\.(weight|bias)$",
        r"^ngrams\.(weight|bias|idf|units)$",
        r"^crf\.(weight|transitions)$",
    ]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, mean=0.0, std=self.config.initializer_range)
            init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, TinyBertCrf):
            init.zeros_(module.weight)
            init.zeros_(module.transitions)
        elif isinstance(module, TinyBertNgrams):
            init.zeros_(module.weight)
            init.zeros_(module.bias)
            init.ones_(module.idf)
            init.constant_(module.units, -1)
        else:
            super()._init_weights(module)


class TinyBertModel(TinyBertPreTrainedModel):
    """The bare encoder: token ids in, one hidden state per token out."""

    def __init__(self, config: TinyBertConfig):
        super().__init__(config)
        self.embeddings = TinyBertEmbeddings(config)
        self.layers = nn.ModuleList([TinyBertLayer(config) for _ in range(config.num_hidden_layers)])
        self.final_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.token_embeddings

    def set_input_embeddings(self, value: nn.Embedding):  # type: ignore[override]  # ids need an Embedding, no Module
        self.embeddings.token_embeddings = value

    @merge_with_config_defaults
    @capture_outputs
    def forward(  # type: ignore[misc]  # TransformersKwargs holds position_ids too
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        rows: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        r"""Encode a batch.

        Args:
            input_ids (`(batch_size, sequence_length)`): Token ids. Exactly one of this and `inputs_embeds`.
            attention_mask (`(batch_size, sequence_length)`, bool or number): Zero where a token is padding; no token
                sees it. `None` attends everywhere. A mask of pairs, `(batch_size, 1, sequence_length,
                sequence_length)`, says for each token (row) which tokens it sees: `True`, or 0 added to the score.
            position_ids (`(batch_size, sequence_length)`): Position of each token in its text. `None` counts from
                the first attended token, so that padding on the left changes nothing.
            inputs_embeds (`(batch_size, sequence_length, embedding_size)`): Token embeddings in place of ids.
            rows (`(number,)`): Indices of tokens in the flattened batch; the last layer computes nothing for others.
                `None` means all, in the shape of the batch.

        Returns:
            `BaseModelOutput` with `last_hidden_state` `(batch_size, sequence_length, hidden_size)`, with `rows`
            `(number, hidden_size)`, and on request
            `hidden_states` and `attentions`. There are no segments: `token_type_ids` would change nothing.

        Raises:
            ValueError: If a token id, a position or the length is out of range, or the mask does not fit. (Values are
                read on CPU only.)
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        assert inputs is not None
        if attention_mask is not None:
            _check_mask(attention_mask, *inputs.shape[:2])
        position_ids = self._position_ids(inputs, attention_mask, position_ids)
        hidden_states = self.embeddings(input_ids, position_ids, inputs_embeds)  # (B, S, H)
        rotary_angles = None
        if self.config.position_embedding_type == "rotary":
            head_dim = self.config.hidden_size // self.config.num_attention_heads
            rotary_angles = _rotary_angles(position_ids, head_dim, hidden_states.dtype)
        attention_mask = self._attention_mask(hidden_states, attention_mask)
        for number, layer in enumerate(self.layers, start=1):
            hidden_states = layer(
                hidden_states,
                rows=rows if number == len(self.layers) else None,
                attention_mask=attention_mask,
                position_embeddings=rotary_angles,
                **kwargs,
            )
        return BaseModelOutput(last_hidden_state=self.final_norm(hidden_states))

    def _position_ids(self, inputs, attention_mask, position_ids) -> torch.LongTensor:
        """Given or counted positions, (B, S) or (1, S), within `max_position_embeddings`."""
        limit = self.config.max_position_embeddings
        sequence_length = inputs.shape[1]
        if sequence_length == 0:
            raise ValueError(f"The input is 0 tokens long, but must have 1..{limit} (`max_position_embeddings`).")
        if position_ids is not None:
            _check_range("position_ids", position_ids, limit, "max_position_embeddings")
            return position_ids
        if sequence_length > limit:
            raise ValueError(
                f"The input is {sequence_length} tokens long, but the model takes at most {limit} "
                "(`max_position_embeddings`). Truncate it, for example with `tokenizer(..., truncation=True)`."
            )
        position_ids = torch.arange(sequence_length, device=inputs.device).unsqueeze(0)
        first = _first_attended(attention_mask)
        if first is None:
            return position_ids
        return (position_ids - first.to(inputs.device)[:, None]).clamp(min=0)

    def _attention_mask(self, hidden_states, attention_mask):
        """The mask in the form that the attention implementation takes."""
        if attention_mask is None or attention_mask.ndim == 2:
            return create_bidirectional_mask(self.config, hidden_states, attention_mask)
        # A mask of pairs transformers would hand on as it is, and attention take it as it is: True would count as 1 in
        # all but sdpa, -inf give NaN where a token sees nothing, and flex attention on CPU crash (torch 2.13).
        batch_size, sequence_length = hidden_states.shape[:2]
        implementation = self.config._attn_implementation
        if implementation == "flex_attention" and attention_mask.dtype == torch.bool and attention_mask.shape[1] == 1:
            seen = attention_mask.expand(batch_size, 1, sequence_length, sequence_length).contiguous()
            shape = {"B": batch_size, "H": None, "Q_LEN": sequence_length, "KV_LEN": sequence_length}
            return create_block_mask(lambda b, _, query, key: seen[b, 0, query, key], **shape, device=seen.device)
        if implementation not in ("eager", "sdpa"):
            raise ValueError(
                f"{implementation} takes no 4-D `attention_mask` of {attention_mask.dtype}; load the model with "
                '`attn_implementation="sdpa"`.'
            )
        dtype = hidden_states.dtype
        lowest = torch.finfo(dtype).min
        if attention_mask.dtype == torch.bool:
            mask = torch.zeros_like(attention_mask, dtype=dtype).masked_fill(~attention_mask, lowest)
        else:
            mask = attention_mask.clamp(min=lowest).to(dtype)
        return mask.expand(batch_size, -1, sequence_length, -1)


def _labelled_positions(labelled: torch.Tensor) -> torch.Tensor:
    """Where the flattened `labelled` (B, S) is true; on CPU with position 0 behind it up to a round number.

    There oneDNN makes kernels for each number of rows and keeps them: 2.6 MB at each step of a small model.
    """
    positions = labelled.flatten().nonzero()[:, 0]
    if labelled.device.type != "cpu" or torch.compiler.is_compiling():
        return positions
    return F.pad(positions, (0, -len(positions) % LABELLED_MULTIPLE))


def _logits_at_a_time(num_rows: int, vocab_size: int, device_type: str) -> tuple[int, int]:
    """How many rows of logits, of `num_rows`, to hold at a time, and how many of these in float32."""
    parts = math.ceil(num_rows / max(1, LOGITS_AT_A_TIME // vocab_size))
    rows = math.ceil(num_rows / max(1, parts))  # all parts about as long
    return max(1, rows), max(1, min(rows, LOGITS_IN_CACHE // vocab_size) if device_type == "cpu" else rows)


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of the cross-entropies of `hidden @ weight.T + bias` at `targets`, without ever holding all the logits.

    The gradient of the logits is their softmax less one at the target, so it is computed while a chunk of them is at
    hand; backward only scales. Under autocast the products are of its dtype, all else is float32.

    Args:
        hidden: (M, E). weight: (V, E). bias: (V,).
        targets: Each in 0..V-1, (at most M,); the rows of `hidden` behind them take no part.
    """

    @staticmethod
    def forward(ctx, hidden, weight, bias, targets):
        device_type = hidden.device.type
        autocast = torch.is_autocast_enabled(device_type)
        dtype = torch.get_autocast_dtype(device_type) if autocast else hidden.dtype
        sums = torch.promote_types(dtype, torch.float32)  # what is added up in
        with torch.autocast(device_type, enabled=False):
            low_hidden, low_weight = hidden.to(dtype), weight.to(dtype)
            loss = torch.zeros((), dtype=sums, device=hidden.device)
            hidden_grad = torch.empty_like(low_hidden)
            weight_grad, bias_grad = torch.zeros_like(weight, dtype=sums), torch.zeros_like(bias, dtype=sums)
            rows, few_rows = _logits_at_a_time(len(hidden), len(weight), device_type)
            # One buffer for each purpose: fresh ones at every turn would cost as much as the arithmetic.
            buffer, part_weight_grad = hidden.new_empty((rows, len(weight)), dtype=dtype), torch.empty_like(low_weight)
            few, few_grad = (hidden.new_empty((few_rows, len(weight)), dtype=sums) for _ in range(2))
            for start in range(0, len(hidden), rows):
                part, part_targets = low_hidden[start : start + rows], targets[start : start + rows]
                part_logits = torch.mm(part, low_weight.T, out=buffer[: len(part)])
                part_logits[len(part_targets) :] = 0
                labelled_logits = part_logits[: len(part_targets)].split(few_rows)
                for low_logits, at_target in zip(labelled_logits, part_targets[:, None].split(few_rows), strict=True):
                    logits = few[: len(low_logits)].copy_(low_logits).add_(bias)
                    logits_grad = torch.softmax(logits, dim=-1, out=few_grad[: len(low_logits)])
                    largest, target_logits = logits.amax(dim=-1), logits.gather(1, at_target).squeeze(1)
                    log_totals = largest - logits_grad.amax(dim=-1).log()  # cheaper than a log-softmax of its own
                    loss += (log_totals - target_logits).sum()
                    logits_grad.scatter_add_(1, at_target, torch.full_like(at_target, -1, dtype=sums))
                    bias_grad += logits_grad.sum(dim=0)
                    low_logits.copy_(logits_grad)  # over the logits, which have served
                torch.mm(part_logits, low_weight, out=hidden_grad[start : start + rows])
                weight_grad += torch.mm(part_logits.T, part, out=part_weight_grad)
        ctx.save_for_backward(hidden_grad.to(hidden.dtype), weight_grad.to(weight.dtype), bias_grad.to(bias.dtype))
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, loss_grad):
        return *(grad * loss_grad.to(grad.dtype) for grad in ctx.saved_tensors), None


class TinyBertMaskedLMHead(nn.Module):
    """Hidden states to vocabulary logits: Linear to the embedding size -> GELU -> LayerNorm -> decoder."""

    def __init__(self, config: TinyBertConfig):
        super().__init__()
        assert config.embedding_size is not None  # the config fills it in
        self.dense = nn.Linear(config.hidden_size, config.embedding_size)
        self.act = nn.GELU()
        self.norm = nn.LayerNorm(config.embedding_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.embedding_size, config.vocab_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.transform(hidden_states))

    def transform(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """What the decoder reads, (..., E), of hidden states (..., H)."""
        return self.norm(self.act(self.dense(hidden_states)))

    def loss(self, hidden_states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Sum of the cross-entropies of the first of `hidden_states` (M, H) at `targets` (at most M,)."""
        if type(self.decoder) is not nn.Linear:  # replaced, by an adapter say: its own forward counts
            return F.cross_entropy(self(hidden_states)[: len(targets)].float(), targets, reduction="sum")
        hidden_states = self.transform(hidden_states)
        return _LinearCrossEntropy.apply(hidden_states, self.decoder.weight, self.decoder.bias, targets)


class TinyBertForMaskedLM(TinyBertPreTrainedModel):
    """The encoder with a masked-LM head."""

    _tied_weights_keys = {"mlm_head.decoder.weight": "tinybert.embeddings.token_embeddings.weight"}

    def __init__(self, config: TinyBertConfig):
        super().__init__(config)
        self.tinybert = TinyBertModel(config)
        self.mlm_head = TinyBertMaskedLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.mlm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear):
        self.mlm_head.decoder = new_embeddings

    @can_return_tuple
    def forward(  # type: ignore[misc]  # TransformersKwargs holds position_ids too
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        r"""Predict masked tokens. Inputs as in `TinyBertModel.forward`.

        Args:
            labels (`(batch_size, sequence_length)`): Target ids, -100 where there is none. In train mode only the
                labelled positions are projected onto the vocabulary.
            num_items_in_batch (`int` or tensor, in `kwargs`): The sum of the losses is divided by this. `None` means
                by the number of labels. A batch without labels has loss 0.

        Returns:
            `MaskedLMOutput`. `logits` is `(batch_size, sequence_length, vocab_size)` in eval mode and without
            labels, and **`None` in train mode with labels**.
        """
        rows = None
        if labels is not None:
            labelled = labels != IGNORE_INDEX
            targets = labels[labelled].long()
            _check_range("labels", targets, self.config.vocab_size, "vocab_size")
            rows = _labelled_positions(labelled) if self.training else None
        whole = bool(kwargs.get("output_hidden_states", self.config.output_hidden_states))
        outputs = self.tinybert(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            rows=None if whole else rows,
            return_dict=True,
            **kwargs,
        )
        hidden_states = outputs.last_hidden_state
        logits = loss = None
        if rows is None:
            logits = self.mlm_head(hidden_states)  # (B, S, V)
        if labels is not None:
            if logits is None:
                if whole:
                    hidden_states = hidden_states.flatten(0, 1).index_select(0, rows)
                total = self.mlm_head.loss(hidden_states, targets)
            else:
                total = F.cross_entropy(logits[labelled].float(), targets, reduction="sum")
            num_items = kwargs.get("num_items_in_batch")
            loss = total / (labelled.sum().clamp(min=1) if num_items is None else num_items)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def _pool(config: TinyBertConfig, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
    """One vector (B, H) per text: its first attended token, or the mean over its attended tokens."""
    first = _first_attended(attention_mask)
    if config.classifier_pooling == "cls":
        if first is None:
            return hidden_states[:, 0]
        # shape[0], not len(): that would fix the batch size of an exported graph
        return hidden_states[torch.arange(first.shape[0], device=first.device), first]
    if attention_mask is None or first is None:
        return hidden_states.mean(dim=1)
    weights = (attention_mask != 0).to(hidden_states.dtype)[:, :, None]
    return (hidden_states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def _cross_entropy(
    logits: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch,
    names: tuple[str, str] = ("labels", "num_labels"),
) -> torch.Tensor:
    """Sum of the losses of `logits` (..., C) at `labels` (...), over their number or the given one; -100 is none.

    `names` are what a caller calls the labels and C.
    """
    labels = labels.to(logits.device).reshape(-1).long()
    labelled, num_classes = labels != IGNORE_INDEX, logits.shape[-1]
    _check_range(names[0], labels[labelled], num_classes, names[1])
    logits = logits.reshape(-1, num_classes).float()
    total = F.cross_entropy(logits, labels, ignore_index=IGNORE_INDEX, reduction="sum")
    return total / (labelled.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)


def _attended(
    config: TinyBertConfig, input_ids: torch.LongTensor | None, attention_mask: torch.Tensor | None, like: torch.Tensor
) -> torch.Tensor:
    """Which tokens (B, S) of a batch are there; without a mask and ids all of those of `like` (B, S, any)."""
    if attention_mask is not None and attention_mask.ndim == 2:
        return attention_mask != 0
    if input_ids is None or config.pad_token_id is None:
        return torch.ones(like.shape[:2], dtype=torch.bool, device=like.device)
    return input_ids != config.pad_token_id


def _ids_of_ngrams(input_ids: torch.LongTensor | None) -> torch.LongTensor:
    """The ids, or a `ValueError` if there are none."""
    if input_ids is None:
        raise ValueError("The n-grams of this classifier are made of token ids: give `input_ids`.")
    return input_ids


def ngram_buckets(units: torch.Tensor, present: torch.Tensor, num_buckets: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Buckets of the n-grams of one to `NGRAM_ORDER` units, and which of them are there, (B, NGRAM_ORDER * W) both.

    Args:
        units: Whole numbers, (B, W), the present ones in front.
        present: Bool, (B, W).
        num_buckets: Buckets are in 0..num_buckets-1.
    """
    hashes = torch.zeros_like(units)
    all_buckets, all_present = [], []
    for size in range(NGRAM_ORDER):
        # Those that would reach over the end meet padding, which is not present.
        ahead = F.pad(units[:, size:], (0, size))
        hashes = (hashes * NGRAM_FACTOR + ahead + 1) % NGRAM_PRIME
        all_buckets.append(hashes % num_buckets)
        all_present.append(F.pad(present[:, size:], (0, size), value=False))
    return torch.cat(all_buckets, dim=1), torch.cat(all_present, dim=1)


class TinyBertNgrams(nn.Module):
    """A linear model on the tf-idf of hashed n-grams, as scikit-learn's TfidfTransformer has it.

    The value of an n-gram is (1 + ln of its number in the text) * idf; the values of a text have the norm 1.

    Attributes:
        units: What n-grams are made of, (V, UNITS_PER_TOKEN): numbers of the characters of each token, or of the token
            itself; -1 where there are no more.
        idf: Inverse document frequency of each bucket.
    """

    units: torch.Tensor
    idf: torch.Tensor

    def __init__(self, config: TinyBertConfig):
        super().__init__()
        assert config.num_labels is not None  # the config fills in its labels
        self.weight = nn.Parameter(torch.zeros(config.num_ngram_buckets, config.num_labels))
        self.bias = nn.Parameter(torch.zeros(config.num_labels))
        self.register_buffer("idf", torch.ones(config.num_ngram_buckets))
        self.register_buffer("units", torch.full((config.vocab_size, UNITS_PER_TOKEN), -1, dtype=torch.int32))

    def forward(self, input_ids: torch.LongTensor, attended: torch.Tensor) -> torch.Tensor:
        """Logits (B, num_labels) of `input_ids` (B, S), of which `attended` (B, S) are there."""
        num_buckets = self.weight.shape[0]
        buckets, present = ngram_buckets(*self.text_units(input_ids, attended), num_buckets)  # (B, G)
        # Sorted, the occurrences of an n-gram stand together, those that are not there at the end.
        buckets = torch.where(present, buckets, num_buckets).sort(dim=1).values
        groups = F.pad((buckets[:, 1:] != buckets[:, :-1]).long(), (1, 0)).cumsum(dim=1)
        ones = torch.ones_like(buckets, dtype=self.weight.dtype)
        occurrences = torch.zeros_like(ones).scatter_add(1, groups, ones).gather(1, groups)
        present, buckets = buckets < num_buckets, buckets.clamp(max=num_buckets - 1)
        values = (1 + occurrences.log()) * self.idf[buckets] * present
        norm = (values.square() / occurrences).sum(dim=-1, keepdim=True).sqrt()
        # Each occurrence has its share of the value, so that no n-gram need be found only once.
        shares = values / occurrences / norm.clamp(min=torch.finfo(norm.dtype).tiny)
        return (shares[:, :, None] * self.weight[buckets]).sum(dim=1) + self.bias

    def text_units(self, input_ids: torch.Tensor, attended: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The units of each text in a row, (B, W), and which of them are there."""
        units = self.units[input_ids].long()
        present = ((units >= 0) & attended[:, :, None]).flatten(1)
        units = units.flatten(1)
        # Those that are not there go to a place behind, which is cut off.
        places = torch.where(present, present.cumsum(dim=1) - 1, units.shape[1])
        units = F.pad(torch.zeros_like(units), (0, 1)).scatter(1, places, units)[:, :-1]
        counts = present.sum(dim=1, keepdim=True)
        if torch.compiler.is_exporting() or not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
            longest = counts.max().clamp(min=NGRAM_ORDER).item()  # no fewer, or the longest n-grams would not fit
            torch._check(longest >= NGRAM_ORDER)  # what an exporter cannot see
            torch._check(longest <= units.shape[1])
            units = units[:, :longest]
        return units, torch.arange(units.shape[1], device=units.device) < counts


class TinyBertForSequenceClassification(TinyBertPreTrainedModel):
    """The encoder with a classifier (or regressor) of whole texts, and, if the config says so, n-grams beside it."""

    def __init__(self, config: TinyBertConfig):
        super().__init__(config)
        assert config.num_labels is not None  # the config fills in its labels
        self.num_labels: int = config.num_labels
        self.tinybert = TinyBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.ngrams = TinyBertNgrams(config) if config.num_ngram_buckets else None
        self.post_init()

    def resize_token_embeddings(self, *args, **kwargs) -> nn.Embedding:
        """As of any model; what n-grams are made of follows: a new token has no part in them."""
        embeddings = super().resize_token_embeddings(*args, **kwargs)
        if self.ngrams is not None:
            units = self.ngrams.units
            self.ngrams.units = F.pad(units, (0, 0, 0, embeddings.num_embeddings - len(units)), value=-1)
        return embeddings

    @can_return_tuple
    def forward(  # type: ignore[misc]  # TransformersKwargs holds position_ids too
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        r"""Classify texts. Inputs as in `TinyBertModel.forward`.

        Args:
            labels: `(batch_size,)` class ids, `(batch_size, num_labels)` zeros and ones for
                `problem_type="multi_label_classification"`, or numbers for `"regression"`. Where the config names no
                problem type it is told from `num_labels` and the dtype of the labels, as elsewhere in transformers.
            num_items_in_batch (`int` or tensor, in `kwargs`): The sum of the losses is divided by this. `None` means
                by the number of labels.

        Returns:
            `SequenceClassifierOutput` with `logits` `(batch_size, num_labels)`.

        Raises:
            ValueError: If the model has n-grams and is given `inputs_embeds`.
        """
        outputs = self.tinybert(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(_pool(self.config, outputs.last_hidden_state, attention_mask))
        if self.ngrams is not None:
            attended = _attended(self.config, input_ids, attention_mask, outputs.last_hidden_state)
            logits = (logits + self.ngrams(_ids_of_ngrams(input_ids), attended)) / 2
        loss = None
        if labels is not None:
            loss = self._loss(logits, labels.to(logits.device), kwargs.get("num_items_in_batch"))
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _loss(self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch) -> torch.Tensor:
        """Cross-entropy, binary cross-entropy or squared error; unlike transformers' it leaves the config alone."""
        problem_type = self.config.problem_type
        if problem_type is None:
            if self.num_labels == 1:
                problem_type = "regression"
            elif not labels.is_floating_point():
                problem_type = "single_label_classification"
            else:
                problem_type = "multi_label_classification"
        if problem_type == "single_label_classification":
            return _cross_entropy(logits, labels, num_items_in_batch)
        labels = labels.reshape(logits.shape).float()
        loss = F.mse_loss if problem_type == "regression" else F.binary_cross_entropy_with_logits
        total = loss(logits.float(), labels, reduction="sum")
        return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


def window_buckets(ids: list[torch.Tensor], number: int, num_buckets: int) -> torch.Tensor:
    """Buckets (...) of the n-grams of a window.

    Args:
        ids: For each place of the window, token ids plus 1 (...); 0 where nothing is.
        number: Of the window in `WINDOWS`.
    """
    hashes = torch.full_like(ids[0], number + 1)
    for each in ids[: len(WINDOWS[number])]:
        hashes = (hashes * NGRAM_FACTOR + each) % NGRAM_PRIME
    return hashes % num_buckets


class TinyBertCrf(nn.Module):
    """A linear-chain CRF (Lafferty et al. 2001) over the tokens of a text, which an encoder has a say in.

    Attributes:
        weight: Score of each label (column) in each bucket that n-grams of tokens around a token are hashed into.
        transitions: Score of each label (row) before each other (column).
    """

    def __init__(self, config: TinyBertConfig):
        super().__init__()
        assert config.num_labels is not None  # the config fills in its labels
        self.weight = nn.Parameter(torch.zeros(config.num_ngram_buckets, config.num_labels))
        self.transitions = nn.Parameter(torch.zeros(config.num_labels, config.num_labels))

    def forward(self, logits: torch.Tensor, input_ids: torch.LongTensor, attended: torch.Tensor) -> torch.Tensor:
        """Logits (B, S, num_labels) of each tag in its row, out of those by the encoder alone.

        Args:
            input_ids, attended: (B, S) token ids and which of them are there.
        """
        present = attended[:, :, None]
        scores = (logits.log_softmax(dim=-1) + self._emissions(input_ids, attended)) * present
        before, after = torch.zeros_like(scores), torch.zeros_like(scores)
        # Sums over the tags of the tokens before and after, a token further in each round: exact inference would go
        # token by token, which neither a processor nor ONNX likes.
        for _ in range(CHAIN_ROUNDS):
            before = _normalized(((scores + before)[:, :, :, None] + self.transitions).logsumexp(dim=2)) * present
            before = F.pad(before, (0, 0, 1, 0))[:, :-1]
            after = _normalized(((scores + after)[:, :, None] + self.transitions).logsumexp(dim=3)) * present
            after = F.pad(after, (0, 0, 0, 1))[:, 1:]
        return scores + before + after

    def _emissions(self, input_ids: torch.LongTensor, attended: torch.Tensor) -> torch.Tensor:
        """What the n-grams around each token say of its label, (B, S, num_labels)."""
        length, num_buckets = input_ids.shape[1], self.weight.shape[0]
        ids = F.pad((input_ids + 1) * attended, (REACH, REACH))  # 0 beyond the ends and in padding
        columns = {place: ids[:, REACH + place : REACH + place + length] for place in range(-REACH, REACH + 1)}
        buckets = [
            window_buckets([columns[place] for place in places or (0,)], number, num_buckets)
            for number, places in enumerate(WINDOWS)
        ]
        return F.embedding(torch.stack(buckets, dim=-1), self.weight).sum(dim=-2)


def _normalized(messages: torch.Tensor) -> torch.Tensor:
    """The same up to a constant for all labels, so that they do not grow from round to round."""
    return messages - messages.amax(dim=-1, keepdim=True)


class TinyBertForTokenClassification(TinyBertPreTrainedModel):
    """The encoder with a classifier of tokens, for tagging, and, if the config says so, a CRF beside it."""

    def __init__(self, config: TinyBertConfig):
        super().__init__(config)
        assert config.num_labels is not None  # the config fills in its labels
        self.num_labels: int = config.num_labels
        self.tinybert = TinyBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.crf = TinyBertCrf(config) if config.num_ngram_buckets else None
        self.post_init()

    @can_return_tuple
    def forward(  # type: ignore[misc]  # TransformersKwargs holds position_ids too
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        r"""Classify tokens. Inputs as in `TinyBertModel.forward`.

        Args:
            labels (`(batch_size, sequence_length)`): Class ids, -100 where a token has none.
            num_items_in_batch (`int` or tensor, in `kwargs`): The sum of the losses is divided by this. `None` means
                by the number of labels.

        Returns:
            `TokenClassifierOutput` with `logits` `(batch_size, sequence_length, num_labels)`.

        Raises:
            ValueError: If the model has n-grams and is given `inputs_embeds`.
        """
        outputs = self.tinybert(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(outputs.last_hidden_state)
        if self.crf is not None:
            attended = _attended(self.config, input_ids, attention_mask, logits)
            logits = self.crf(logits, _ids_of_ngrams(input_ids), attended)
        loss = None
        if labels is not None:
            loss = _cross_entropy(logits, labels, kwargs.get("num_items_in_batch"))
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class TinyBertForQuestionAnswering(TinyBertPreTrainedModel):
    """The encoder with scores for the first and the last token of an answer."""

    def __init__(self, config: TinyBertConfig):
        super().__init__(config)
        self.tinybert = TinyBertModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(  # type: ignore[misc]  # TransformersKwargs holds position_ids too
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        r"""Find the answer to a question in its context. Inputs as in `TinyBertModel.forward`.

        Args:
            start_positions, end_positions (`(batch_size,)`): Index of the first and of the last token of the answer.
                One outside the text, in padding or beyond the sequence, is ignored, and so is -100.
            num_items_in_batch (`int` or tensor, in `kwargs`): The sums of the losses are divided by this. `None`
                means by the number of answers.

        Returns:
            `QuestionAnsweringModelOutput` with `start_logits` and `end_logits` `(batch_size, sequence_length)`; the
            loss is the mean of those of start and end.
        """
        outputs = self.tinybert(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            return_dict=True,
            **kwargs,
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(dim=-1)  # (B, S) each
        loss = None
        if start_positions is not None and end_positions is not None:
            settings = attention_mask, kwargs.get("num_items_in_batch")
            start_loss = self._loss(start_logits, "start_positions", start_positions, *settings)
            loss = (start_loss + self._loss(end_logits, "end_positions", end_positions, *settings)) / 2
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def _loss(
        self,
        logits: torch.Tensor,
        name: str,
        positions: torch.Tensor,
        attention_mask: torch.Tensor | None,
        num_items_in_batch,
    ) -> torch.Tensor:
        """Cross-entropy over the attended positions of a text (elsewhere in transformers padding takes part)."""
        positions = positions.to(logits.device).reshape(-1)
        positions = positions.masked_fill(positions >= logits.shape[-1], IGNORE_INDEX)
        if attention_mask is not None and attention_mask.ndim == 2:
            padding = attention_mask.to(logits.device) == 0
            logits = logits.masked_fill(padding, torch.finfo(logits.dtype).min)
            at_padding = padding.gather(1, positions.clamp(min=0)[:, None].long())[:, 0]
            positions = positions.masked_fill(at_padding & (positions >= 0), IGNORE_INDEX)
        return _cross_entropy(logits, positions, num_items_in_batch, (name, "sequence_length"))


class TinyBertForMultipleChoice(TinyBertPreTrainedModel):
    """The encoder with one score for each of several texts, of which one is right."""

    def __init__(self, config: TinyBertConfig):
        super().__init__(config)
        self.tinybert = TinyBertModel(config)
        self.classifier = nn.Linear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(  # type: ignore[misc]  # TransformersKwargs holds position_ids too
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput:
        r"""Choose among texts. Inputs as in `TinyBertModel.forward`, with a dimension of choices after the first.

        Args:
            input_ids, attention_mask, position_ids (`(batch_size, num_choices, sequence_length)`): Each choice is a
                whole text, most often a question paired with an answer.
            labels (`(batch_size,)`): Index of the right choice.
            num_items_in_batch (`int` or tensor, in `kwargs`): The sum of the losses is divided by this. `None` means
                by the number of labels.

        Returns:
            `MultipleChoiceModelOutput` with `logits` `(batch_size, num_choices)`.
        """
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        if inputs is None:
            raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
        if inputs.ndim != (3 if inputs_embeds is None else 4):
            raise ValueError(
                f"The input has shape {tuple(inputs.shape)}, but multiple choice takes (batch_size, num_choices, "
                "sequence_length), and hidden_size after it for `inputs_embeds`."
            )
        flat_ids, flat_mask, flat_positions, flat_embeds = (
            None if values is None else values.flatten(0, 1)
            for values in (input_ids, attention_mask, position_ids, inputs_embeds)
        )
        outputs = self.tinybert(
            input_ids=flat_ids,
            attention_mask=flat_mask,
            position_ids=flat_positions,
            inputs_embeds=flat_embeds,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(_pool(self.config, outputs.last_hidden_state, flat_mask)).view(inputs.shape[:2])
        loss = None
        if labels is not None:
            names = ("labels", "num_choices")
            loss = _cross_entropy(logits, labels, kwargs.get("num_items_in_batch"), names)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


__all__ = [
    "TinyBertForMaskedLM",
    "TinyBertForMultipleChoice",
    "TinyBertForQuestionAnswering",
    "TinyBertForSequenceClassification",
    "TinyBertForTokenClassification",
    "TinyBertModel",
    "TinyBertPreTrainedModel",
]
