"""The model card of a finished folder, filled from its result files, and the pictures that it shows."""

import functools
import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from huggingface_hub import ModelCard

from training.card_facts import model_scores
from training.card_metadata import MODEL_ID, card_data
from training.card_words import translated, verdict_in
from training.clock import as_text
from training.run_folder import CARD_FILE, RESULTS_FILE
from training.tasks import TRUNCATE, task_module


TEMPLATES = Path(__file__).parent.parent / "model_cards"
TEMPLATE = {"en": "model_card.md", "zh": "model_card_zh.md"}
PICTURES = "pictures"  # the folder of them, in the model folder
LONG_TEXTS_ZH = {
    "fill-mask": "文本可能超过模型的最大长度时，加上 `truncation=True`",
    "text-classification": "文本可能超过模型的最大长度时，加上 `truncation=True`",
    "token-classification": "文本可能超过模型的最大长度时，加上 `stride=32`，分成重叠的窗口来读，而不是截断",
    "question-answering": '`truncation="only_second"` 会截断长文，并且总会给出一段答案；`python -m training predict` '
    "分窗口读长文，没有答案时也会说明",
}


def write_card(folder: Path, results: dict | None = None):
    """Write `README.md` and the pictures it shows into a model folder.

    What is not known (licence, language) is left out rather than guessed.

    Args:
        folder: Holds the model.
        results: What to write it from, at least the `task`; `None` reads `eval_results.json` in the folder.
    """
    if results is None:
        results = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    pictures = _pictures(folder, results)
    if pictures:
        _draw(folder / PICTURES, pictures, [*_labels(folder), "中文" if _card_language(results) == "zh" else ""])
    _make_card(folder, results).save(folder / CARD_FILE)


def _draw(folder: Path, pictures: dict[str, Callable[[Path], None]], words: list[str]):
    """Draw into a folder.

    Args:
        words: What the pictures are labelled with, which a font must have.
    """
    from training.pictures import canvas

    folder.mkdir(exist_ok=True)
    for name, draw in pictures.items():
        draw(folder / name)
    canvas.say_if_unreadable(words)


def refresh_card(folder: Path, before: dict) -> bool:
    """Write the card of a folder anew, unless someone has edited it.

    Args:
        folder: As for `write_card`.
        before: The content of `eval_results.json` that the card was last written from.

    Returns:
        Whether it was written.
    """
    path = folder / CARD_FILE
    if path.is_file() and path.read_bytes() != str(_make_card(folder, before)).encode():
        return False
    write_card(folder)
    return True


def _card_language(results: dict) -> str:
    return results.get("card", {}).get("card_language", "en")


def _pictures(folder: Path, results: dict) -> dict[str, Callable[[Path], None]]:
    """What there is to show, by the name of the file: a function that draws it."""
    language, lengths, found = _card_language(results), _lengths(results), {}
    if len(results.get("loss_curve", [])) > 1:
        from training.pictures.loss_curve import draw_loss_curve

        found["loss_curve.png"] = lambda path: draw_loss_curve(results, path, language)
    if lengths:
        from training.pictures.lengths import draw_lengths

        found["lengths.png"] = lambda path: draw_lengths(lengths, path, language)
    for name, source in _confusions(results):
        from training.pictures.confusion import draw_confusion

        confusion, labels = results["scores"][source]["confusion"], _labels(folder)
        found[name] = functools.partial(_draw_with, draw_confusion, (confusion, labels, source), language)
    return found


def _draw_with(draw: Callable, given: tuple, language: str, path: Path):
    draw(*given, path, language)


def _lengths(results: dict) -> dict | None:
    return results.get("corpus", results.get("rows", {})).get("lengths")


def _confusions(results: dict) -> list[tuple[str, str]]:
    """The name of each picture of a confusion matrix, and what was scored on."""
    sources = [source for source, scores in results.get("scores", {}).items() if "confusion" in scores]
    return [(f"confusion_{number}.png", source) for number, source in enumerate(sources, start=1)]


def _labels(folder: Path) -> list[str]:
    id2label = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("id2label", {})
    return [id2label[str(index)] for index in range(len(id2label))]


def _make_card(folder: Path, results: dict) -> ModelCard:
    # The name of a file may hold any bytes; a card is UTF-8.
    results = json.loads(json.dumps(results, ensure_ascii=False).encode("utf-8", "replace"))
    language = _card_language(results)
    task = None if results["task"] == "masked-lm" else task_module(results["task"])
    header, rows = results_table(results, task)
    data = card_data(results, task, header, rows, _mask_token(folder))
    return ModelCard.from_template(
        data,
        template_str=(TEMPLATES / TEMPLATE[language]).read_text(encoding="utf-8"),
        model_id=MODEL_ID,
        pipeline_tag=data.pipeline_tag,
        pipeline_options=getattr(task, "PIPELINE_OPTIONS", ""),
        auto_class=task.AUTO_CLASS if task else "AutoModelForMaskedLM",
        usage=task.USAGE.format(model=f'"{MODEL_ID}", trust_remote_code=True') if hasattr(task, "USAGE") else None,
        long_texts=LONG_TEXTS_ZH[data.pipeline_tag] if language == "zh" else task.LONG_TEXTS if task else TRUNCATE,
        parameters=count_parameters(folder),
        is_masked_lm=task is None,
        results_table=_table(header, rows, language) if rows else None,
        pictures=list(_pictures(folder, results)),
        confusions=_confusions(results),
        **_scored(results, task, language),
        **_spread(results, language),
        **_facts(results, language),
    )


def _mask_token(folder: Path) -> str | None:
    token = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("mask_token")
    return token["content"] if isinstance(token, dict) else token


def count_parameters(folder: Path, prefix: str = "") -> int:
    """Number of parameters in the weights of a folder, of those whose name begins with `prefix`."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="np") as weights:
        names = [name for name in weights.keys() if name.startswith(prefix)]  # noqa: SIM118 - no mapping
        return sum(math.prod(weights.get_slice(name).get_shape()) for name in names)


def results_table(results: dict, task: ModuleType | None) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and rows: what was scored on, the metric, this model, and what it is compared with.

    Args:
        task: The module of the task; `None` for a masked language model.
    """
    if task and "scores" in results:
        return task.card_table(results)
    if "results" not in results:
        return (), []
    scores = results["results"]
    held_out = "on held-out text, 15 % masked"
    return ("rows", "metric", "this model", "guessing by frequency"), [
        (held_out, "loss (nats per masked token)", f"{scores['loss']:.4f}", f"{scores['unigram_loss']:.4f}"),
        (held_out, "masked tokens predicted right", f"{scores['accuracy']:.4f}", f"{scores['unigram_accuracy']:.4f}"),
    ]


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]], language: str) -> str:
    lines = (header, tuple("---" for _ in header), *rows)
    return "\n".join("| " + " | ".join(_cell(translated(cell, language)) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _scored(results: dict, task: ModuleType | None, language: str) -> dict:
    """What is told of each file scored on: whether the model wins, rows seen in training, the surest mistakes."""
    scored = results.get("scores", {}) if task else {}
    on = "{}：{}。" if language == "zh" else "On {}, {}."
    return {
        "verdicts": [
            on.format(source, verdict_in(line, language))
            for source, scores in scored.items()
            for line in task.verdict(scores, results["problem_type"])
        ],
        "leaks": [
            (source, scores["also_in_training"], scores["rows"])
            for source, scores in scored.items()
            if scores.get("also_in_training")
        ],
        "scored": [(source, scores["rows"]) for source, scores in scored.items()],
        "mistakes": [
            (source, _mistakes_table(scores["mistakes"], language))
            for source, scores in scored.items()
            if scores.get("mistakes")
        ],
    }


def _mistakes_table(mistakes: list[dict], language: str) -> str:
    header = ("行", "标签", "答案", "概率") if language == "zh" else ("row", "label", "answer", "probability")
    rows = [(str(one["row"]), one["label"], one["answer"], f"{one['probability']:.4f}") for one in mistakes]
    return _table(header, rows, "en")  # labels are names, not words of ours


def _spread(results: dict, language: str) -> dict:
    """The seeds, this one first, and the table of means and standard deviations over them."""
    seed = results.get("settings", {}).get("seed")
    runs = [{"seed": seed, "scores": model_scores(results)}] if seed is not None else []
    runs += results.get("siblings", [])
    seeds = [run["seed"] for run in runs]
    if len(runs) < 2:
        return {"seeds": seeds, "spread_table": None}
    rows = []
    for source, scores in runs[0]["scores"].items():
        for metric, value in scores.items():
            values = [run["scores"].get(source, {}).get(metric) for run in runs]
            if isinstance(value, float) and None not in values:
                mean, deviation = statistics.mean(values), statistics.stdev(values)
                each = ", ".join(f"{one:.4f}" for one in values)
                where = source or ("留出文本" if language == "zh" else "held-out text")
                rows.append((where, metric, f"{mean:.4f} ± {deviation:.4f}", each))
    header = ("数据", "指标", "平均 ± 标准差", "各种子") if language == "zh" else (
        "rows", "metric", "mean ± standard deviation", "each")  # fmt: skip
    return {"seeds": seeds, "spread_table": _table(header, rows, language)}


def _facts(results: dict, language: str) -> dict:
    """Data, training and what it took."""
    corpus = results.get("corpus")
    dropped = {} if corpus is None else {why: count for why, count in corpus.get("dropped", {}).items() if count}
    versions = results.get("versions", {})
    return {
        "corpus": corpus if corpus and "train_documents" in corpus else None,
        "dropped": ", ".join(f"{count:,} {translated(why, language)}" for why, count in dropped.items()),
        "rows": results.get("rows"),
        "steps": results.get("steps"),
        "tokens": results.get("tokens"),
        "epochs": results.get("epochs"),
        "seconds": _duration(results.get("seconds")),
        "settings": ", ".join(
            f"`{key}`: {_setting(value)}" for key, value in results.get("settings", {}).items() if value is not None
        ),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "license": results.get("card", {}).get("license"),
    }


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else f"{as_text(seconds)} {'h' if seconds >= 3600 else 'min'}"


def _setting(value) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
