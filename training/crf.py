"""What one would use instead of a model to tag tokens: a linear-chain CRF over the tokens around each."""

from collections.abc import Iterator
from dataclasses import dataclass

from sklearn_crfsuite import CRF


NAME = "CRF"
MAX_ITERATIONS = 15
EDGE = "\t"  # stands for what is beyond the ends; no token can be one


@dataclass(frozen=True)
class Tagger:
    """A fitted CRF."""

    model: CRF

    def predict(self, rows: list[list[str]]) -> list[list[str]]:
        """A tag for every token of every row."""
        return [list(map(str, tags)) for tags in self.model.predict(list(map(features, rows)))]


def features(tokens: list[str]) -> list[list[str]]:
    """For each token: itself, two tokens on either side, the pairs it makes with its neighbours, and of a word its
    shape and ends."""
    padded = [EDGE, EDGE, *tokens, EDGE, EDGE]
    return [_features(*padded[index : index + 5]) for index in range(len(tokens))]


def _features(before2: str, before: str, token: str, after: str, after2: str) -> list[str]:
    around = [f"-2:{before2}", f"-1:{before}", f"0:{token}", f"+1:{after}", f"+2:{after2}"]
    pairs = [f"-1+0:{before}{EDGE}{token}", f"0+1:{token}{EDGE}{after}"]
    if len(token) == 1:
        return ["bias", *around, *pairs]
    shape = "".join(
        "X" if char.isupper() else "x" if char.islower() else "0" if char.isdigit() else char for char in token
    )
    return ["bias", *around, *pairs, f"shape:{shape}", f"start:{token[:3].lower()}", f"end:{token[-3:].lower()}"]


def fit_crf(rows: list[list[str]], labels: list[list[str]]) -> Tagger:
    """Fit a CRF.

    Args:
        rows, labels: The tokens of each row and their tags.
    """
    model = CRF(algorithm="pa", max_iterations=MAX_ITERATIONS)

    def each() -> Iterator[list[list[str]]]:  # one row's features at a time: all would take gigabytes
        yield from map(features, rows)

    return Tagger(model.fit(each(), labels))
