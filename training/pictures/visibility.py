"""Which token sees which: in this model, and in one that reads from left to right."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import ListedColormap

from training.pictures import canvas


INCHES_PER_TOKEN = 0.22
FONT_SIZE = 8.0
WORDS = {
    "en": {
        "ours": "this model (BERT):\nevery token sees every token",
        "causal": "for comparison, a causal model (GPT):\na token sees itself and what stands before it",
        "y": "the token that looks",
        "title": "dark: is seen. Padding sees nothing and is seen by nothing: what it computes is never used",
    },
    "zh": {
        "ours": "本模型（BERT）：\n每个 token 都能看到每个 token",
        "causal": "对照：因果模型（GPT）：\ntoken 只能看到自己和前面的",
        "y": "在看的 token",
        "title": "深色：看得到。填充既看不到别的，也不被看到：它算出的结果从不使用",
    },
}


def causal(mask: "np.ndarray") -> "np.ndarray":
    """What each token sees that reads from left to right: itself and the tokens before it, never padding.

    Args:
        mask: `(n,)`, false where there is padding.

    Returns:
        `(n, n)`, true where the token of the row sees that of the column.
    """
    return np.tril(np.outer(mask, mask))


def draw_visibility(seen: "np.ndarray", mask: "np.ndarray", tokens: Sequence[str], path: Path, language: str):
    """Draw a visibility matrix, and beside it the causal triangle.

    Args:
        seen: `(n, n)`, true where the token of the row sees that of the column.
        mask: `(n,)`, false where there is padding.
        tokens: The `n` tokens, padding included.
        language: "en" or "zh".
    """
    words, names = WORDS[canvas.label_language(language)], [canvas.readable(token) for token in tokens]
    side = max(2.8, INCHES_PER_TOKEN * len(tokens))
    labels = canvas.label_inches(names, FONT_SIZE)
    figure = canvas.new_figure(2 * (side + labels) + 0.7, side + labels + 0.9, square=True)
    colors = ListedColormap(["#f2f2f2", "#2c5f8a"])
    panels = figure.subplots(1, 2)
    for panel, title, matrix in zip(panels, ("ours", "causal"), (seen, causal(mask)), strict=True):
        panel.imshow(matrix, cmap=colors, vmin=0, vmax=1)
        panel.set_title(words[title], fontsize="small")
        panel.set_xticks(range(len(names)), names, rotation=90, fontsize=FONT_SIZE)
        panel.set_yticks(range(len(names)), names, fontsize=FONT_SIZE)
        panel.set_xticks(np.arange(len(names) + 1) - 0.5, minor=True)
        panel.set_yticks(np.arange(len(names) + 1) - 0.5, minor=True)
        panel.grid(which="minor", color="white", linewidth=1)
        panel.tick_params(which="both", length=0)
    panels[0].set_ylabel(words["y"], fontsize="small")
    figure.suptitle(words["title"], fontsize="small", wrap=True)
    canvas.save(figure, path)
