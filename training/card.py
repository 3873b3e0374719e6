"""The model card of a finished folder, filled from its result files."""

import json
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData


TEMPLATE = Path(__file__).parent.parent / "model_cards" / "model_card.md"
PIPELINE_TAGS = {"masked-lm": "fill-mask", "sequence-classification": "text-classification"}


def write_card(folder: Path):
    """Write `README.md`, and `loss_curve.png` where a curve was recorded, into a folder with `eval_results.json`.

    What is not known (licence, language) is left out rather than guessed.
    """
    results = json.loads((folder / "eval_results.json").read_text(encoding="utf-8"))
    has_curve = len(results.get("loss_curve", [])) > 1
    if has_curve:
        _draw_loss_curve(results, folder / "loss_curve.png")
    pipeline_tag = PIPELINE_TAGS[results["task"]]
    card = ModelCard.from_template(
        ModelCardData(library_name="transformers", pipeline_tag=pipeline_tag, tags=["tinybert", "custom_code"]),
        template_str=TEMPLATE.read_text(encoding="utf-8"),
        name=f"TinyBERT for {pipeline_tag}",
        model_id="OWNER/NAME",
        pipeline_tag=pipeline_tag,
        parameters=f"{_parameters(folder):,}",
        results_table=_results_table(results),
        results_note=_results_note(results),
        has_curve=has_curve,
        facts=_facts(results),
    )
    card.save(folder / "README.md")


def _parameters(folder: Path) -> int:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="np") as weights:
        return sum(_size(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118 - no mapping


def _size(shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _results_table(results: dict) -> str:
    if results["task"] == "masked-lm":
        scores = results["results"]
        rows = [
            ("loss (nats per masked token)", f"{scores['loss']:.3f}", f"{scores['unigram_loss']:.3f}"),
            ("masked tokens predicted right", f"{scores['accuracy']:.1%}", f"{scores['unigram_accuracy']:.1%}"),
        ]
        header = ("on held-out text, 15 % masked", "this model", "guessing by frequency")
    else:
        compared = ("model", "baseline", "majority")
        names = [name for name, value in results["results"]["model"].items() if isinstance(value, float)]
        rows = [(name, *(_number(results["results"].get(who, {}).get(name)) for who in compared)) for name in names]
        header = ("on validation text", "this model", results["results"].get("baseline_name", "baseline"), "majority")
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, tuple("---" for _ in header), *rows))


def _number(value) -> str:
    return "" if value is None else f"{value:.4f}"


def _results_note(results: dict) -> str:
    if results["task"] == "masked-lm":
        return (
            "Losses compare only between models with the same tokenizer. The weights are those of the last step; none "
            "were picked by score."
        )
    return "The weights are those of the last step; none were picked by score. One seed; others will differ somewhat."


def _facts(results: dict) -> str:
    lines = []
    corpus = results.get("corpus", {})
    if "train_documents" in corpus:
        lines.append(f"{corpus['train_documents']:,} documents, {corpus['train_tokens']:,} tokens.")
    if "steps" in results and "tokens" in results:
        lines.append(f"{results['steps']:,} steps, {results['tokens']:,} tokens seen ({results['epochs']:.1f} epochs).")
    settings = ", ".join(f"`{key}`: {value}" for key, value in results.get("settings", {}).items())
    if settings:
        lines.append(f"Settings: {settings}.")
    return "\n\n".join(lines)


def _draw_loss_curve(results: dict, path: Path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    curve = results["loss_curve"]
    axes.plot([point["tokens"] / 1e6 for point in curve], [point["loss"] for point in curve], label="training loss")
    axes.axhline(results["ln_vocab"], color="grey", linestyle=":", label="ln V: knows nothing")
    axes.axhline(results["unigram_entropy"], color="grey", linestyle="--", label="knows only frequencies")
    axes.plot(curve[-1]["tokens"] / 1e6, results["results"]["loss"], "o", label="held-out loss")
    axes.set_xlabel("million tokens")
    axes.set_ylabel("masked-LM loss (nats)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
