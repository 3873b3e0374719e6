"""A text as a model reads it, with a name for people for each token."""

import typing
from dataclasses import dataclass


if typing.TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Reading:
    """One text, or a pair, of `n` tokens.

    Args:
        inputs: What the model takes, lists of length `n`.
        tokens: `n` names: the piece of the text that a token stands for; a special token by its own name.
        special: `n` times whether a token is a special one.
        cut: Whether the text was longer.
    """

    inputs: dict[str, list[int]]
    tokens: list[str]
    special: list[bool]
    cut: bool


def read_text(tokenizer: "PreTrainedTokenizerBase", text: str, pair: str | None, max_length: int) -> Reading:
    """Encode a text, cut at `max_length` tokens, and name its tokens."""
    offsets = {"return_offsets_mapping": True} if tokenizer.is_fast else {}
    encoded = tokenizer(
        text,
        pair,
        truncation=True,
        max_length=max_length,
        return_special_tokens_mask=True,
        verbose=False,
        **offsets,
    )
    special = [bool(mark) for mark in encoded.pop("special_tokens_mask")]
    names = tokenizer.convert_ids_to_tokens(encoded["input_ids"])
    if tokenizer.is_fast:
        spans, parts = encoded.pop("offset_mapping"), encoded.sequence_ids(0)
        texts = (text, pair or "")
        names = [
            name if part is None else texts[part][start:end].strip() or name
            for name, part, (start, end) in zip(names, parts, spans, strict=True)
        ]
    longest = len(tokenizer(text, pair, truncation=False, verbose=False)["input_ids"])
    return Reading(dict(encoded), names, special, longest > max_length)
