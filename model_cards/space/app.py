"""A page to try small BERT-style encoders on: fill-mask, classification with an explanation, attention.

It shows what the models named in MODELS offer: ids on the Hub or folders, several between commas.

    MODELS=runs/demo/encoder,runs/demo/sentiment python app.py
"""

import html
import math
import os
import re
from dataclasses import dataclass
from functools import partial


# Before the imports that read them: nothing is sent anywhere about who looks at this page.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

import gradio as gr
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)


MODELS = "OWNER/NAME"
LANGUAGE = ""  # of the page: en or zh; empty follows the browser
MAX_CHARACTERS = 1000
MAX_SHOWN = 32  # tokens in the picture of the attention, so that it can be read on a phone
MAX_HIDDEN = 100  # parts of a text that are hidden in turn; a longer one is hidden several tokens at a time
ANSWERS = 8
NUMBERED = 0.3  # parts of a text carry their number from this share of the strongest on
BATCH_SIZE = 32

FILL, CLASSIFY, ATTENTION = "fill", "classify", "attention"
HEADS = {  # by the end of the name of the class that was saved
    "ForMaskedLM": (FILL, AutoModelForMaskedLM),
    "ForSequenceClassification": (CLASSIFY, AutoModelForSequenceClassification),
}
EXAMPLES = {
    FILL: [
        "房间很[MASK]，服务也不错。",
        "这本书的内容很[MASK]，值得一看。",
        "送货速度很[MASK]，包装也好。",
        "The room was very [MASK].",
        "This book is [MASK] reading.",
    ],
    CLASSIFY: [
        "位置不错，可是房间太小，早餐也很差。",
        "房间很干净，服务也好，下次还来。",
        "太让人失望了，不会再买。",
        "The room was clean and the staff were friendly.",
        "Very disappointing, I would not buy it again.",
    ],
}
EXAMPLES[ATTENTION] = EXAMPLES[CLASSIFY]
WRITTEN_MASK = re.compile(r"[\[［【]\s*mask\s*[\]］】]|_{2,}", re.IGNORECASE)  # as people type it, on a phone too

TEXTS = {
    "en": {
        "title": "What a small BERT has learnt",
        "language": "Language",
        "text": "Text",
        "model": "Model",
        "examples": "Examples",
        FILL: "Fill the gap",
        CLASSIFY: "Classify",
        ATTENTION: "Attention",
        "about_fill": "Write [MASK], or __, where a word is missing. The model says what may stand there.",
        "about_classify": "The model chooses a label. The colours say which words moved it.",
        "about_attention": "Each row is a token that looks, each column one that is looked at; the stronger the blue, "
        "the more. A whole row sums to 1.",
        "run_fill": "Fill",
        "run_classify": "Classify",
        "run_attention": "Show",
        "layer": "Layer",
        "head": "Head (μ: the mean of all)",
        "gap": "Gap {number}",
        "score": "Score",
        "explanation": "Why “{label}”",
        "legend": "Each box in turn is hidden. Blue: without it “{label}” scores lower, so it speaks "
        "for it. Orange: it speaks against. The strongest carry their number (change of the log-odds).",
        "legend_score": "Each box in turn is hidden. Blue: it raises the score; orange: it lowers it. "
        "The strongest carry their number.",
        "cut": "Only the first {kept} of {all} tokens are read: more this model does not take.",
        "strongest": "The strongest cell is {most}.",
        "shown": "The first {kept} of {all} tokens are shown.",
        "empty": "Please write a text first.",
        "too_long": "This text has {given} characters; please give at most {most}.",
        "no_mask": "Please write [MASK] (or two underscores, __) where a word is missing.",
        "mask_cut": "The [MASK] stands too far back: the model reads {most} tokens only.",
    },
    "zh": {
        "title": "一个小小的 BERT 学到了什么",
        "language": "语言",
        "text": "文本",
        "model": "模型",
        "examples": "例子",
        FILL: "填空",
        CLASSIFY: "分类",
        ATTENTION: "注意力",
        "about_fill": "在缺词的地方写 [MASK] 或 __。模型会说那里可能是什么词，概率多大。",
        "about_classify": "模型选一个标签；颜色显示是哪些词影响了它。",
        "about_attention": "每一行是在看的词元，每一列是被看的词元；蓝色越浓，看得越多。每行之和为 1。",
        "run_fill": "填空",
        "run_classify": "分类",
        "run_attention": "显示",
        "layer": "层",
        "head": "头（μ：全部的平均）",
        "gap": "第 {number} 个空",
        "score": "得分",
        "explanation": "为什么是“{label}”",
        "legend": "依次盖住每一格。蓝色：盖住后“{label}”的得分下降，说明它支持这个标签；橙色：它反对。"
        "影响最大的几个标有数值（对数几率的变化）。",
        "legend_score": "依次盖住每一格。蓝色：它提高得分；橙色：它降低得分。影响最大的几个标有数值。",
        "cut": "全文 {all} 个词元，模型只能读前 {kept} 个。",
        "strongest": "最浓的一格是 {most}。",
        "shown": "全文 {all} 个词元，这里显示前 {kept} 个。",
        "empty": "请先写一段文本。",
        "too_long": "文本有 {given} 个字符，请不要超过 {most} 个。",
        "no_mask": "请在缺词的地方写 [MASK]（或两个下划线 __）。",
        "mask_cut": "[MASK] 太靠后了：模型只读前 {most} 个词元。",
    },
}
CSS = """
.gradio-container { max-width: 46rem !important; margin: 0 auto; }
#title > *, .shown > * { padding: 0 !important; }
#title h1 { font-size: 1.5rem; margin: 0; }
.note { color: var(--body-text-color); opacity: .75; font-size: .85rem; margin: .4rem 0; }
.answer { color: var(--body-text-color); overflow-wrap: anywhere; }
.answer h4 { margin: .8rem 0 .3rem; }
.complaint { border-left: 4px solid #e8710a; padding: .5rem .8rem; background: var(--background-fill-secondary); }
.bars {
    display: grid; grid-template-columns: fit-content(40%) 1fr max-content; gap: .3rem .7rem; align-items: center;
}
.bar { display: contents; }
.bar .track { background: var(--background-fill-secondary); border-radius: 4px; }
.bar .track div { background: #2b7bba; height: 1.1rem; min-width: 2px; border-radius: 4px; }
.bar .number { text-align: right; font-variant-numeric: tabular-nums; }
.tokens { line-height: 2.8; padding-bottom: .4rem; }
.tokens span {
    position: relative; padding: .15rem .1rem; border-radius: 4px; box-shadow: 0 0 0 1px var(--border-color-primary);
}
.tokens span.strong { display: inline-block; min-width: 1.8rem; line-height: 1.4; text-align: center; }
.tokens small {
    position: absolute; left: 0; right: 0; top: 1.8rem; text-align: center; font-size: .65rem; line-height: 1;
    white-space: nowrap;
}
.attention { width: 100%; height: auto; }
.attention text { fill: var(--body-text-color); font-size: 9px; }
.attention rect { fill: #2b7bba; }
"""


@dataclass(frozen=True)
class Encoder:
    """A loaded model and what it offers: `FILL`, `CLASSIFY`, or neither."""

    name: str
    offers: str | None
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase

    @property
    def longest(self) -> int:
        return min(self.tokenizer.model_max_length, self.model.config.max_position_embeddings)


class Complaint(ValueError):  # noqa: N818 - the reader's mistake, not ours
    """What a reader should do differently: a key of `TEXTS`, and what to put into that text."""

    def __init__(self, key: str, **values):
        super().__init__(key)
        self.key, self.values = key, values


def load(name: str) -> Encoder:
    """The model of a Hub id or folder, with the head that it was saved with.

    Its code is the one that lies beside its weights, as the model type is not one of transformers' own.
    """
    config = AutoConfig.from_pretrained(name, trust_remote_code=True)
    architecture = (config.architectures or [""])[0]
    offers, auto_class = next((HEADS[end] for end in HEADS if architecture.endswith(end)), (None, AutoModel))
    # Only eager attention hands out its weights.
    model = auto_class.from_pretrained(name, trust_remote_code=True, attn_implementation="eager")
    return Encoder(name, offers, model.eval(), AutoTokenizer.from_pretrained(name, trust_remote_code=True))


def encode(encoder: Encoder, text: str) -> tuple[dict, list[tuple[int, int]], int]:
    """A text as a batch of one row.

    Returns:
        What the model takes, where each token stands in the text (start, end; equal for [CLS] and [SEP]), and how many
        tokens the text would have uncut.

    Raises:
        Complaint: If there is no text, or too much.
    """
    if not text.strip():
        raise Complaint("empty")
    if len(text) > MAX_CHARACTERS:
        raise Complaint("too_long", given=f"{len(text):,}", most=f"{MAX_CHARACTERS:,}")
    settings = {"return_offsets_mapping": True, "split_special_tokens": False}
    whole = encoder.tokenizer(text, truncation=False, verbose=False, **settings)
    cut = encoder.tokenizer(text, truncation=True, max_length=encoder.longest, **settings)
    batch = {name: torch.tensor([cut[name]]) for name in ("input_ids", "attention_mask")}
    return batch, cut["offset_mapping"], len(whole["input_ids"])


@torch.no_grad()
def fill_mask(encoder: Encoder, text: str) -> tuple[list[list[tuple[str, float]]], int, int]:
    """The likeliest tokens for each [MASK] of a text, with their probabilities; tokens read, and tokens in all.

    Raises:
        Complaint: As `encode`, and if there is no [MASK].
    """
    mask_token, mask_id = encoder.tokenizer.mask_token, encoder.tokenizer.mask_token_id
    text = WRITTEN_MASK.sub(mask_token, text)
    batch, offsets, num_tokens = encode(encoder, text)
    if mask_token not in text:
        raise Complaint("no_mask")
    gaps = (batch["input_ids"][0] == mask_id).nonzero()[:, 0]
    if not len(gaps):
        raise Complaint("mask_cut", most=encoder.longest)
    probabilities = encoder.model(**batch).logits[0, gaps].softmax(dim=-1)
    best = probabilities.topk(min(ANSWERS, probabilities.shape[-1]))
    answers = [
        [(encoder.tokenizer.decode([token]).strip(), score) for token, score in zip(tokens, scores, strict=True)]
        for tokens, scores in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]
    return answers, len(offsets), num_tokens


@dataclass(frozen=True)
class Verdict:
    """What a classifier says of a text, and what moved it.

    Attributes:
        scores: Of each label, the highest first: probabilities, or the one number of a regression.
        explained: The label that `contributions` are about; `None` for a regression.
        contributions: (start, end, by how much the score falls without this part), in the order of the text; a part
            is a token, in a long text several.
        num_read, num_tokens: Tokens read, and tokens in all; they differ where the text was cut.
    """

    scores: list[tuple[str, float]]
    explained: str | None
    contributions: list[tuple[int, int, float]]
    num_read: int
    num_tokens: int


@torch.no_grad()
def classify(encoder: Encoder, text: str) -> Verdict:
    """The scores of a text, and what each token adds to that of the first label: what hiding it takes away.

    Raises:
        Complaint: As `encode`.
    """
    batch, offsets, num_tokens = encode(encoder, text)
    config = encoder.model.config
    ids = batch["input_ids"][0]
    places = [place for place, (start, end) in enumerate(offsets) if end > start]
    size = max(1, math.ceil(len(places) / MAX_HIDDEN))
    parts = [places[begin : begin + size] for begin in range(0, len(places), size)]
    seen = torch.ones(len(parts) + 1, len(ids), dtype=torch.long)
    for row, part in zip(seen[1:], parts, strict=True):
        row[part] = 0
    logits = torch.cat(
        [
            encoder.model(input_ids=ids.expand(len(rows), -1), attention_mask=rows).logits
            for rows in seen.split(BATCH_SIZE)
        ]
    ).double()
    if config.problem_type == "regression":
        scores = {config.id2label[place]: value for place, value in enumerate(logits[0].tolist())}
        explained, evidence = None, logits[:, 0]
    else:
        several = config.problem_type == "multi_label_classification"
        probabilities = logits[0].sigmoid() if several else logits[0].softmax(dim=-1)
        first = int(probabilities.argmax())
        scores = {config.id2label[place]: value for place, value in enumerate(probabilities.tolist())}
        others = [place for place in range(logits.shape[1]) if place != first]
        explained = config.id2label[first]
        # The log-odds of the label: they still move where the probability is close to 1.
        evidence = logits[:, first] - (0 if several else logits[:, others].logsumexp(dim=-1))
    lost = (evidence[0] - evidence[1:]).tolist()
    contributions = [
        (offsets[part[0]][0], offsets[part[-1]][1], value) for part, value in zip(parts, lost, strict=True)
    ]
    ordered = sorted(scores.items(), key=lambda score: -score[1])
    return Verdict(ordered, explained, contributions, len(offsets), num_tokens)


@torch.no_grad()
def attend(encoder: Encoder, text: str, layer: int, head: int | None) -> tuple[list[str], list[list[float]], int]:
    """The tokens of a text and how much each (row) looks at each (column).

    Args:
        layer, head: Counted from 0; `None` is the mean of all heads.

    Returns:
        Tokens and weights of the first `MAX_SHOWN` tokens, and how many tokens there are.

    Raises:
        Complaint: As `encode`.
    """
    batch, offsets, num_tokens = encode(encoder, text)
    weights = encoder.model(**batch, output_attentions=True).attentions[layer][0]  # (heads, tokens, tokens)
    weights = weights.mean(dim=0) if head is None else weights[head]
    special = encoder.tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
    tokens = [text[start:end] or name for (start, end), name in zip(offsets, special, strict=True)]
    return tokens[:MAX_SHOWN], weights[:MAX_SHOWN, :MAX_SHOWN].tolist(), num_tokens


# The answers as HTML. Whatever a reader or a model may have written is escaped.


def bars(scores: list[tuple[str, float]], longest: float) -> str:
    """A bar for each probability; `longest` is the one that fills the line."""
    rows = "".join(
        f'<div class="bar"><div class="name">{html.escape(name)}</div><div class="track">'
        f'<div style="width:{100 * value / longest:.1f}%"></div></div><div class="number">{value:.1%}</div></div>'
        for name, value in scores
    )
    return f'<div class="bars">{rows}</div>'


def highlighted(text: str, contributions: list[tuple[int, int, float]]) -> str:
    """A text whose parts are coloured by what they add; the strongest carry their number."""
    strongest = max((abs(value) for *_, value in contributions), default=0.0) or 1.0
    parts, done = [], 0
    for start, end, value in contributions:
        share = abs(value) / strongest
        colour = "43, 123, 186" if value > 0 else "232, 113, 10"
        strong, number = (' class="strong"', f"<small>{value:+.1f}</small>") if share >= NUMBERED else ("", "")
        look = f'style="background:rgba({colour}, {0.75 * share:.2f})" title="{value:+.2f}"'
        parts.append(
            f"{html.escape(text[done:start])}<span{strong} {look}>{html.escape(text[start:end])}{number}</span>"
        )
        done = end
    return f'<div class="tokens">{"".join(parts)}{html.escape(text[done:])}</div>'


def heatmap(tokens: list[str], weights: list[list[float]], cell: int = 14) -> str:
    """A picture of the attention, at most as wide as the page; the strongest blue is the largest weight."""
    width = 12 + max(sum(9.5 if ord(char) > 255 else 5.5 for char in token) for token in tokens)
    side = width + cell * len(tokens)
    most = max(map(max, weights))
    parts = []
    for place, token in enumerate(tokens):
        middle = width + cell * place + cell / 2 + 3
        name = html.escape(token)
        parts.append(f'<text x="{width - 4}" y="{middle}" text-anchor="end">{name}</text>')
        parts.append(f'<text transform="translate({middle},{width - 4}) rotate(-90)">{name}</text>')
    for row, values in enumerate(weights):
        for column, value in enumerate(values):
            shape = f'x="{width + cell * column}" y="{width + cell * row}" width="{cell - 1}" height="{cell - 1}"'
            hint = html.escape(f"{tokens[row]} → {tokens[column]}: {value:.1%}")
            parts.append(f'<rect {shape} fill-opacity="{0.03 + 0.97 * value / most:.3f}"><title>{hint}</title></rect>')
    # A short text is not blown up to the width of the page.
    return f'<svg class="attention" viewBox="0 0 {side} {side}" style="max-width:{2 * side}px">{"".join(parts)}</svg>'


def note(said: dict[str, str], key: str, kept: int, all_tokens: int) -> str:
    """A line that says that a text is longer than what was read or shown; nothing where it is not."""
    return f'<p class="note">{said[key].format(kept=kept, all=all_tokens)}</p>' if kept < all_tokens else ""


def show_fill(encoder: Encoder, said: dict[str, str], text: str) -> str:
    answers, kept, all_tokens = fill_mask(encoder, text)
    parts = []
    for number, scores in enumerate(answers, 1):
        heading = f"<h4>{said['gap'].format(number=number)}</h4>" if len(answers) > 1 else ""
        parts.append(heading + bars(scores, scores[0][1]))
    return "".join(parts) + note(said, "cut", kept, all_tokens)


def show_classify(encoder: Encoder, said: dict[str, str], text: str) -> str:
    verdict = classify(encoder, text)
    if verdict.explained is None:
        answer = "".join(f"<h4>{said['score']}: {value:.3f}</h4>" for _, value in verdict.scores)
        legend = said["legend_score"]
    else:
        label = html.escape(verdict.explained)
        answer = bars(verdict.scores, 1.0) + f"<h4>{said['explanation'].format(label=label)}</h4>"
        legend = said["legend"].format(label=label)
    explanation = highlighted(text, verdict.contributions)
    cut = note(said, "cut", verdict.num_read, verdict.num_tokens)
    return f'{answer}{explanation}<p class="note">{legend}</p>{cut}'


def show_attention(encoder: Encoder, said: dict[str, str], text: str, layer: int, head: int) -> str:
    tokens, weights, all_tokens = attend(encoder, text, layer, None if head < 0 else head)
    strongest = said["strongest"].format(most=f"{max(map(max, weights)):.1%}")
    return f'{heatmap(tokens, weights)}<p class="note">{strongest}</p>{note(said, "shown", len(tokens), all_tokens)}'


QUIET = {"api_visibility": "private", "show_progress": "minimal"}  # of every event
SHOW = {FILL: show_fill, CLASSIFY: show_classify, ATTENTION: show_attention}


def answer(kind: str, encoders: dict[str, Encoder], language: str, name: str, text: str, *choices) -> str:
    """What a tab shows: the answer of a model, or what the reader should do differently."""
    said = TEXTS[language]
    try:
        shown = SHOW[kind](encoders[name], said, text, *choices)
    except Complaint as complaint:
        shown = f'<p class="complaint">{said[complaint.key].format(**complaint.values)}</p>'
    return f'<div class="answer">{shown}</div>'


def first_language(request: gr.Request) -> str:
    """The language of the page: the one it was made in, or that of the browser."""
    wanted = request.headers.get("accept-language", "").lower()
    return LANGUAGE or ("zh" if wanted.startswith("zh") else "en")


def known(encoder: Encoder, texts: list[str]) -> list[str]:
    """The texts in a language of the model: no unknown tokens, not spelt letter by letter. All, if none is."""

    def reads(text: str) -> bool:
        ids = encoder.tokenizer(text, split_special_tokens=False)["input_ids"]
        return encoder.tokenizer.unk_token_id not in ids and (not text.isascii() or len(ids) < len(text) / 2)

    return [text for text in texts if reads(text)] or texts


class Translated:
    """The components of a page that carry words, and how they read in a language."""

    def __init__(self):
        self.components, self._updates = [], []

    def add(self, component, **keys):
        """Have properties of a component follow the language: the key of a text, or a function of the texts."""
        self.components.append(component)
        self._updates.append(keys)
        return component

    def into(self, language: str) -> list:
        said = TEXTS[language]
        return [
            gr.update(**{name: key(said) if callable(key) else said[key] for name, key in keys.items()})
            for keys in self._updates
        ]


def build(names: list[str]) -> gr.Blocks:
    """The page.

    Args:
        names: Ids on the Hub, or folders.
    """
    encoders = {name: load(name) for name in names}
    offered = {kind: [name for name in names if encoders[name].offers == kind] for kind in (FILL, CLASSIFY)}
    offered[ATTENTION] = names
    said, words = TEXTS[LANGUAGE or "en"], Translated()
    heading = partial(title, names)
    with gr.Blocks(title=said["title"], analytics_enabled=False) as page:
        words.add(gr.HTML(heading(said), elem_id="title"), value=heading)
        language = gr.Radio(
            [("English", "en"), ("中文", "zh")], value=None, show_label=False, container=False, elem_id="language"
        )
        with gr.Tabs():
            for kind, of_kind in offered.items():
                if of_kind:
                    add_tab(kind, {name: encoders[name] for name in of_kind}, language, said, words)
        # The choice is empty at first, so that it changes once in any case, and the page then reads as it should.
        page.load(first_language, None, language, **QUIET)
        language.change(words.into, language, words.components, **QUIET)
    return page


def title(names: list[str], said: dict[str, str]) -> str:
    return f'<h1>{said["title"]}</h1><p class="note">{html.escape(" · ".join(map(short, names)))}</p>'


def short(name: str) -> str:
    """A model as it is called on the page: a folder by its own name."""
    return os.path.basename(os.path.abspath(name)) if os.path.isdir(name) else name


def add_tab(kind: str, encoders: dict[str, Encoder], language: gr.Radio, said: dict[str, str], words: Translated):
    """Add what a kind of head offers to the page that is being built."""
    first = next(iter(encoders.values()))
    examples = known(first, EXAMPLES[kind])
    with words.add(gr.Tab(said[kind], elem_id=f"tab-{kind}"), label=kind):
        words.add(gr.Markdown(said[f"about_{kind}"]), value=f"about_{kind}")
        names = [(short(name), name) for name in encoders]
        name = gr.Dropdown(names, value=first.name, label=said["model"], visible=len(names) > 1)
        words.add(name, label="model")
        text = gr.Textbox(examples[0], label=said["text"], lines=2, max_lines=8, elem_id=f"text-{kind}")
        words.add(text, label="text")
        choices = add_choices(first, said, words) if kind == ATTENTION else []
        button = gr.Button(said[f"run_{kind}"], variant="primary", elem_id=f"run-{kind}")
        words.add(button, value=f"run_{kind}")
        shown = gr.HTML(elem_id=f"answer-{kind}", elem_classes="shown")
        samples = [[example] for example in examples]
        dataset = gr.Dataset(components=[text], samples=samples, label=said["examples"], show_label=True)
        words.add(dataset, label="examples")
    run = {"fn": partial(answer, kind, encoders), "inputs": [language, name, text, *choices], "outputs": shown}
    gr.on([button.click, text.submit, language.change, *(choice.input for choice in choices)], **run, **QUIET)
    dataset.click(lambda sample: sample[0], dataset, text, **QUIET).then(**run, **QUIET)
    if kind == ATTENTION:
        # Models differ in their number of layers and heads.
        def choose(name: str) -> list:
            return [gr.update(choices=each, value=0) for each in layers_and_heads(encoders[name])]

        name.change(choose, name, choices, **QUIET).then(**run, **QUIET)
    else:
        name.change(**run, **QUIET)


def add_choices(encoder: Encoder, said: dict[str, str], words: Translated) -> list[gr.Radio]:
    """The layer and the head to look at, of the model that is shown first."""
    layers, heads = layers_and_heads(encoder)
    with gr.Row():
        layer = words.add(gr.Radio(layers, value=0, label=said["layer"], elem_id="layer"), label="layer")
        head = words.add(gr.Radio(heads, value=0, label=said["head"], elem_id="head"), label="head")
    return [layer, head]


def layers_and_heads(encoder: Encoder) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """What there is to choose from: names that people count, numbers that `attend` takes (-1: the mean)."""
    config = encoder.model.config
    layers = [(str(number + 1), number) for number in range(config.num_hidden_layers)]
    return layers, [*((str(number + 1), number) for number in range(config.num_attention_heads)), ("μ", -1)]


def serve(page: gr.Blocks, **settings):
    """Start the server; the fonts are those of the reader's system, so that nothing is fetched from elsewhere."""
    fonts = [gr.themes.Font(name) for name in ("system-ui", "Noto Sans CJK SC", "sans-serif")]
    theme = gr.themes.Default(primary_hue="blue", font=fonts, font_mono=[gr.themes.Font("monospace")])
    return page.launch(theme=theme, css=CSS, footer_links=[], ssr_mode=False, **settings)


if __name__ == "__main__":
    serve(build([name.strip() for name in os.environ.get("MODELS", MODELS).split(",") if name.strip()]))
