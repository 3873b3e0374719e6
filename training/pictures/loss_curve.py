"""The loss of a pre-training beside what it is to know nothing, and to know frequencies alone."""

from pathlib import Path

from training.pictures import canvas


WORDS = {
    "en": {
        "x": "{} tokens seen",
        "unit": {10**6: "million", 10**3: "thousand"},
        "y": "masked-LM loss (nats)",
        "training": "training loss",
        "nothing": "ln V = {:.2f}: knows nothing",
        "frequencies": "unigram entropy = {:.2f}: knows only frequencies",
        "held_out": "held-out loss = {:.2f}",
        "accuracy": "held-out: {:.1%} of masked tokens right\n(always the most frequent token: {:.1%})",
    },
    "zh": {
        "x": "已训练的 token 数（{}）",
        "unit": {10**6: "百万", 10**3: "千"},
        "y": "掩码语言模型损失（奈特）",
        "training": "训练损失",
        "nothing": "ln V = {:.2f}：一无所知",
        "frequencies": "一元熵 = {:.2f}：只知道词频",
        "held_out": "留出文本损失 = {:.2f}",
        "accuracy": "留出文本：{:.1%} 的掩码 token 猜对\n（总猜最常见的 token：{:.1%}）",
    },
}


def draw_loss_curve(results: dict, path: Path, language: str):
    """Draw the `loss_curve` of pre-training results.

    Args:
        results: The `eval_results.json` of a pre-training with a curve of at least two points.
        language: "en" or "zh".
    """
    words, scores, curve = WORDS[canvas.label_language(language)], results["results"], results["loss_curve"]
    figure = canvas.new_figure(7, 4.6)
    axes = figure.add_subplot()
    unit = 10**6 if curve[-1]["tokens"] >= 10**6 else 10**3
    seen = [point["tokens"] / unit for point in curve]
    axes.plot(seen, [point["loss"] for point in curve], label=words["training"])
    for name, style in (("ln_vocab", ":"), ("unigram_entropy", "--")):
        label = words["nothing" if name == "ln_vocab" else "frequencies"].format(results[name])
        axes.axhline(results[name], color="grey", linestyle=style, label=label)
    axes.plot(seen[-1], scores["loss"], "o", label=words["held_out"].format(scores["loss"]))
    # A line without a stroke: its words stand in the legend, where nothing can overlap them.
    axes.plot([], [], " ", label=words["accuracy"].format(scores["accuracy"], scores["unigram_accuracy"]))
    axes.set_xlabel(words["x"].format(words["unit"][unit]))
    axes.set_ylabel(words["y"])
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=2, fontsize="small", frameon=False)
    canvas.save(figure, path)
