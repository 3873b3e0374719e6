"""What is for the user's own eyes: the texts that a classifier got wrong, and why it answered one as it did.

Both hold texts of the user, so they go into the training folder, which is never published.
"""

import typing
from pathlib import Path

from training import mistakes
from training.attribution import attribute, can_attribute
from training.tasks import task_module


if typing.TYPE_CHECKING:
    from training.predict import FineTuned
    from training.tasks import Data

PICTURE = "explanation.png"


def review(folder: Path, finetuned: "FineTuned", data: "Data", scores: dict, language: str):
    """Write the surest mistakes with their texts, and an explanation of the first, and print where they are.

    Args:
        folder: The training folder.
        data: The rows scored.
        scores: Of `score_all`, with what `mistakes.judge` finds; without it nothing is done.
        language: Of the labels in the picture, "en" or "zh".
    """
    if "mistakes" not in scores:
        return
    from training.pictures import canvas
    from training.pictures.explanation import draw_explanation

    texts, pairs = task_module(finetuned.task.task).inputs(data)
    found = scores["mistakes"]
    mistakes.write_mistakes(folder / mistakes.FILE, found, texts, pairs)
    print(
        f"the {len(found)} mistakes it was surest of, with their texts: {folder / mistakes.FILE} "
        "(never published; the card has their row numbers)"
        if found
        else f"no mistake on {data.source}"
    )
    at = found[0]["row"] - 1 if found else 0
    if can_attribute(finetuned) and texts[at].strip():
        attribution = attribute(finetuned, texts[at], pairs[at] if pairs else None)
        draw_explanation(attribution, folder / PICTURE, language)
        print(f"what each token of row {at + 1} adds to its answer: {folder / PICTURE} (never published)")
        canvas.say_if_unreadable(attribution.tokens)
