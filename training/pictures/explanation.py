"""Which tokens speak for an answer, and which against it."""

from pathlib import Path

from training.attribution import Attribution
from training.pictures import canvas


MOST_TOKENS = 60  # bars in a picture; of longer texts those that matter most are shown, in the order of the text
WORDS = {
    "en": {
        "label": "{}, probability {:.1%}",
        "value": "{} = {:.4f}",
        "x": "what the token adds to the log-odds of the answer\n(log-odds as read, less those with it hidden)",
        "x_value": "what the token adds to the value\n(value as read, less that with it hidden)",
        "part": "the {} tokens of {} that weigh most, in the order of the text",
    },
    "zh": {
        "label": "{}，概率 {:.1%}",
        "value": "{} = {:.4f}",
        "x": "该 token 为答案的对数几率增加多少\n（原文的对数几率减去遮住它之后的）",
        "x_value": "该 token 为数值增加多少\n（原文的数值减去遮住它之后的）",
        "part": "共 {1} 个 token，按原文顺序列出影响最大的 {0} 个",
    },
}


def draw_explanation(attribution: Attribution, path: Path, language: str):
    """Draw a bar a token: to the right what speaks for the answer, to the left what speaks against it."""
    words = WORDS[canvas.label_language(language)]
    kept = sorted(sorted(attribution.positions, key=lambda i: -abs(attribution.scores[i]))[:MOST_TOKENS])
    names = [canvas.readable(attribution.tokens[index]) for index in kept]
    scores = [attribution.scores[index] for index in kept]
    figure = canvas.new_figure(6.5, 1.6 + 0.19 * max(4, len(kept)))
    axes = figure.add_subplot()
    axes.barh(range(len(kept)), scores, color=["tab:blue" if score >= 0 else "tab:red" for score in scores])
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(kept)), names, fontsize="small")
    axes.set_ylim(len(kept) - 0.4, -0.6)
    axes.grid(axis="x", alpha=0.3)
    is_value = attribution.probability is None
    axes.set_xlabel(words["x_value" if is_value else "x"], fontsize="small")
    figures = attribution.evidence if is_value else attribution.probability
    title = words["value" if is_value else "label"].format(canvas.readable(attribution.label), figures)
    if len(kept) < len(attribution.positions):
        title += "\n" + words["part"].format(len(kept), len(attribution.positions))
    axes.set_title(title, fontsize="medium")
    canvas.save(figure, path)
