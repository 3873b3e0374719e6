"""What a classifier gets wrong: the confusion matrix, and the mistakes of which it was surest."""

import csv
import typing
from pathlib import Path


if typing.TYPE_CHECKING:
    import numpy as np

MOST_LABELS = 20  # of a confusion matrix; a larger one is neither read nor drawn legibly
WORST = 10
FILE = "mistakes.tsv"


def judge(logits: "np.ndarray", labels: "np.ndarray", names: list[str]) -> dict:
    """Compare the answers of a classifier with the labels.

    Args:
        logits: `(n, num_labels)`.
        labels: Class ids `(n,)`.
        names: Of the classes.

    Returns:
        `confusion`, counts by label (row) and answer (column), left out above `MOST_LABELS` labels; and `mistakes`,
        the `WORST` wrong answers of the highest probability, the highest first, with `row` (counted from 1 over the
        rows scored), `label`, `answer` and `probability`. No text: results are published.
    """
    import numpy as np
    from scipy.special import softmax

    answers, probabilities = logits.argmax(axis=-1), softmax(logits, axis=-1).max(axis=-1)
    found: dict = {}
    if len(names) <= MOST_LABELS:
        confusion = np.zeros((len(names), len(names)), dtype=int)
        np.add.at(confusion, (labels, answers), 1)
        found["confusion"] = confusion.tolist()
    wrong = np.flatnonzero(answers != labels)
    worst = wrong[np.argsort(-probabilities[wrong], kind="stable")][:WORST]
    found["mistakes"] = [
        {
            "row": int(row) + 1,
            "label": names[labels[row]],
            "answer": names[answers[row]],
            "probability": round(float(probabilities[row]), 4),
        }
        for row in worst
    ]
    return found


def write_mistakes(path: Path, mistakes: list[dict], texts: list[str], pairs: list[str] | None):
    """Write the mistakes that `judge` found with their texts, as a table for the user's own eyes.

    Args:
        path: In a folder that is not published.
        mistakes: Of `judge`.
        texts, pairs: Of all rows scored; `None` where there is no second text.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["row", "label", "answer", "probability", "text", *(["text_pair"] if pairs else [])])
        for mistake in mistakes:
            at = mistake["row"] - 1
            writer.writerow([*mistake.values(), texts[at], *([pairs[at]] if pairs else [])])
