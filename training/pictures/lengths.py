"""How long the texts are, in tokens, beside the length that was chosen for training."""

from pathlib import Path

import numpy as np

from training.pictures import canvas


WORDS = {
    "en": {
        "x": "length in tokens (the last bar: this long or longer)",
        "y": "texts, of {:,}",
        "packed": "block of {:,} tokens: {:.1%} of the texts are longer\nand go on in the next block",
        "cut": "max_length {:,} tokens: {:.1%} of the texts are longer\nand are cut",
        "windows": "max_length {:,} tokens: {:.1%} of the texts are longer\nand are read in pieces",
        "median": "median {:,.0f}, longest {:,}",
    },
    "zh": {
        "x": "长度（token 数；最后一柱：该长度及以上）",
        "y": "文本数（共 {:,}）",
        "packed": "块长 {:,} 个 token：{:.1%} 的文本更长，\n接到下一块",
        "cut": "max_length {:,} 个 token：{:.1%} 的文本更长，\n被截断",
        "windows": "max_length {:,} 个 token：{:.1%} 的文本更长，\n分段读取",
        "median": "中位数 {:,.0f}，最长 {:,}",
    },
}


def draw_lengths(histogram: dict, path: Path, language: str):
    """Draw what `training.lengths.length_histogram` gives, labelled in "en" or "zh"."""
    words, width = WORDS[canvas.label_language(language)], histogram["width"]
    figure = canvas.new_figure(7, 4)
    axes = figure.add_subplot()
    left = np.arange(len(histogram["counts"])) * width
    label = words["median"].format(histogram["median"], histogram["longest"])
    axes.bar(left, histogram["counts"], width=width, align="edge", edgecolor="white", linewidth=0.5, label=label)
    limit, share = histogram["limit"], histogram["longer"] / histogram["texts"]
    axes.axvline(limit, color="tab:red", linestyle="--", label=words[histogram["beyond"]].format(limit, share))
    axes.set_xlabel(words["x"])
    axes.set_ylabel(words["y"].format(histogram["texts"]))
    axes.margins(x=0.01)
    figure.legend(loc="outside upper center", ncols=2, fontsize="small", frameon=False)
    canvas.save(figure, path)
