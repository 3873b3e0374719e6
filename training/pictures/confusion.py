"""Which label was taken for which."""

from pathlib import Path

import numpy as np

from training.pictures import canvas


LONGEST_NAME = 24  # characters of a label's name
WORDS = {
    "en": {"x": "predicted", "y": "in the file", "title": "{}: {:,} of {:,} right"},
    "zh": {"x": "预测", "y": "文件中的标签", "title": "{}：{:,} / {:,} 正确"},
}


def draw_confusion(confusion: list[list[int]], names: list[str], source: str, path: Path, language: str):
    """Draw a confusion matrix; a cell is darker the larger its share of its row.

    Args:
        confusion: Rows scored, by label in the file (row) and predicted label (column).
        names: Of the labels.
        source: Where the rows come from, for people.
        language: "en" or "zh".
    """
    words, counts = WORDS[canvas.label_language(language)], np.array(confusion)
    shown = [canvas.readable(_shortened(name)) for name in names]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    side = max(3.0, 0.46 * len(names))
    turned = {"rotation": 90} if max(map(len, shown)) * len(names) > 30 else {}
    labels = canvas.label_inches(shown, 10.0)
    figure = canvas.new_figure(side + labels + 0.5, side + (labels if turned else 0.2) + 0.6, square=True)
    axes = figure.add_subplot()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for (row, column), count in np.ndenumerate(counts):
        dark = shares[row, column] > 0.5
        size = "small" if len(names) > 6 else "medium"
        axes.text(column, row, f"{count:,}", ha="center", va="center", size=size, color="white" if dark else "black")
    axes.set_xticks(range(len(names)), shown, **turned)
    axes.set_yticks(range(len(names)), shown)
    axes.set_xlabel(words["x"])
    axes.set_ylabel(words["y"])
    title = words["title"].format(canvas.readable(_shortened(source)), counts.trace(), counts.sum())
    axes.set_title(title, fontsize="medium")
    canvas.save(figure, path)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 1] + "…"
