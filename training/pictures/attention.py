"""Where each token of a sentence looks, by layer and head."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.pictures import canvas


COLUMNS = 4  # panels side by side
INCHES_PER_TOKEN = 0.17
FONT_SIZE = 7.0
WORDS = {
    "en": {
        "panel": "layer {}, head {}",
        "title": "row: the token that looks; column: where it looks (attention weight)",
        "part": "; the first {} of {} tokens",
    },
    "zh": {
        "panel": "第 {} 层，第 {} 头",
        "title": "行：发出注意的 token；列：被注意的 token（注意力权重）",
        "part": "；前 {} 个 token，共 {} 个",
    },
}


def attention_pictures(num_layers: int, num_heads: int) -> dict[str, list[int]]:
    """File names and the layers that each shows: one for all if they fit, else one a layer."""
    if num_layers * num_heads <= COLUMNS * COLUMNS and num_heads <= COLUMNS:
        return {"attention.png": list(range(num_layers))}
    return {f"attention_layer_{layer + 1}.png": [layer] for layer in range(num_layers)}


def draw_attention(
    attention: "np.ndarray", tokens: Sequence[str], layers: list[int], total: int, path: Path, language: str
):
    """Draw the attention weights of some layers, a panel a head.

    Args:
        attention: `(num_layers, num_heads, n, n)` weights, of the first `n` tokens.
        tokens: These `n`.
        layers: Which layers to draw, counted from 0.
        total: Number of tokens of the text, of which `n` are shown.
        language: "en" or "zh".
    """
    words, heads = WORDS[canvas.label_language(language)], attention.shape[1]
    columns = min(COLUMNS, heads)
    rows = len(layers) * -(-heads // columns)
    side = max(1.8, INCHES_PER_TOKEN * len(tokens))
    names = [canvas.readable(token) for token in tokens]
    labels = canvas.label_inches(names, FONT_SIZE)
    width = columns * (side + 0.15) + labels + 0.8
    figure = canvas.new_figure(width, rows * (side + labels + 0.4) + 0.4, square=True)
    panels = figure.subplots(rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    for place, layer in enumerate(layers):
        for head in range(heads):
            panel = panels[place * (rows // len(layers)) + head // columns][head % columns]
            panel.set_axis_on()
            image = panel.imshow(attention[layer, head], cmap="viridis", vmin=0, vmax=attention[layers].max())
            panel.set_title(words["panel"].format(layer + 1, head + 1), fontsize="small")
            panel.set_xticks(range(len(names)), names, rotation=90, fontsize=FONT_SIZE)
            beside = names if head % columns == 0 else [""] * len(names)
            panel.set_yticks(range(len(names)), beside, fontsize=FONT_SIZE)
            panel.tick_params(length=0)
    figure.colorbar(image, ax=panels, shrink=0.6, pad=0.01).ax.tick_params(labelsize="x-small")
    part = words["part"].format(len(tokens), total) if total > len(tokens) else ""
    figure.suptitle(words["title"] + part, fontsize="small", wrap=True)
    canvas.save(figure, path)
