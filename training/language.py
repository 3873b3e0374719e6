"""Which language a text is in, as far as the model card states it: Chinese, English, or not known."""

import re
from collections import Counter
from collections.abc import Iterable

from training.tokenizer import script_of


SAMPLE = 200_000  # characters
# Words that stand in every English paragraph, and in few of other languages.
ENGLISH = frozenset(("the", "and", "to", "that", "it", "with", "this", "are", "you", "have", "were", "they", "which"))
ENGLISH_SHARE = 0.08  # of all words


def detect_language(texts: Iterable[str]) -> str | None:
    """ "zh", "en", or `None` where it is another language, none, or a mixture; told by the first of the texts."""
    scripts: Counter[str] = Counter()
    words: Counter[bool] = Counter()
    left = SAMPLE
    for text in texts:
        if left <= 0:
            break
        piece = text[:left]
        left -= len(piece)
        scripts.update(script_of(char) for char in piece if char.isalpha())
        words.update(word in ENGLISH for word in re.findall(r"[a-z']+", piece.lower()))
    letters = scripts.total()
    if scripts["Han"] > letters / 2 and scripts["Kana"] < scripts["Han"] / 20:
        return "zh"
    if scripts["Latin"] > 0.9 * letters and words[True] > ENGLISH_SHARE * words.total():
        return "en"
    return None
