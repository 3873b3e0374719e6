"""Texts that share a long run of characters: one of them has then been seen, in part, with the other."""

import unicodedata
from collections.abc import Iterable


LENGTH = 20  # characters


def runs(text: str) -> set[str]:
    """Every run of `LENGTH` characters, white space aside, NFKC, lower case; the whole text if it is shorter."""
    plain = "".join(unicodedata.normalize("NFKC", text).lower().split())
    return {plain[i : i + LENGTH] for i in range(max(1, len(plain) - LENGTH + 1))}


def runs_of(texts: Iterable[str]) -> set[str]:
    """The runs of all of them."""
    return {run for text in texts for run in runs(text)}
