"""Exact match and F1 of answers, as the evaluation scripts of SQuAD (spaced words) and CMRC 2018 (Chinese) count."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from training.baseline import is_unspaced


ARTICLES = re.compile(r"\b(a|an|the)\b")
ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
CMRC_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
HAN = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # with kana: no spaces either
CMRC_UNITS = re.compile(rf"[{HAN}]|[^\W{HAN}]+(?:[.'][^\W{HAN}]+)*|\S")


def spaced_units(text: str) -> list[str]:
    """The words of a text as SQuAD compares them: lower case, without ASCII punctuation and English articles."""
    return ARTICLES.sub(" ", text.lower().translate(ASCII_PUNCTUATION)).split()


def unspaced_units(text: str) -> list[str]:
    """What CMRC compares: each ideograph, and words of other scripts; lower case, without the script's punctuation.

    The script cuts Latin by NLTK; here a word is a run of letters and digits, with a point or apostrophe inside.
    """
    return CMRC_UNITS.findall(text.lower().translate(CMRC_PUNCTUATION))


def _common_bag(left: Sequence[str], right: Sequence[str]) -> int:
    return (Counter(left) & Counter(right)).total()


def _common_run(left: Sequence[str], right: Sequence[str]) -> int:
    return SequenceMatcher(None, left, right, autojunk=False).find_longest_match().size


# (how a text is cut into units, how many of them two texts have in common)
SPACED = (spaced_units, _common_bag)
UNSPACED = (unspaced_units, _common_run)
Rules = tuple[Callable[[str], list[str]], Callable[[Sequence[str], Sequence[str]], int]]


def rules_for(contexts: Sequence[str]) -> Rules:
    """CMRC's rules where most letters are written without spaces, else SQuAD's."""
    return UNSPACED if is_unspaced(list(contexts)) else SPACED


def score_answer(answer: str, right: Sequence[str], rules: Rules) -> tuple[float, float]:
    """Exact match (0 or 1) and F1 of an answer, each the best over the right answers.

    Args:
        answer: What was answered; empty for "the context holds none".
        right: The right answers; none where the context holds none.
        rules: `SPACED` or `UNSPACED`.
    """
    units, common = rules
    scores = [_compare(units(answer), units(text), common) for text in right or [""]]
    exact, f1 = zip(*scores, strict=True)
    return max(exact), max(f1)


def _compare(answer: list[str], right: list[str], common: Callable) -> tuple[float, float]:
    exact = float(answer == right)
    if not answer or not right:  # "no answer" is right or wrong, as in SQuAD 2.0
        return exact, exact
    return exact, 2 * common(answer, right) / (len(answer) + len(right))


def score_answers(answers: Sequence[str], right: Sequence[Sequence[str]], rules: Rules) -> dict[str, float]:
    """`exact_match` and `f1`, as shares of 1.

    Args:
        answers: An answer for each question; empty for "the context holds none".
        right: The right answers of each question; none where the context holds none.
        rules: `SPACED` or `UNSPACED`.
    """
    scores = [score_answer(answer, texts, rules) for answer, texts in zip(answers, right, strict=True)]
    exact, f1 = zip(*scores, strict=True)
    return {"exact_match": sum(exact) / len(exact), "f1": sum(f1) / len(f1)}
