"""The model card of a finished folder, filled from its result files."""

import json
from pathlib import Path

from huggingface_hub import ModelCard, ModelCardData

from training.run_folder import CARD_FILE, RESULTS_FILE
from training.tasks import TRUNCATE, task_module


TEMPLATE = Path(__file__).parent.parent / "model_cards" / "model_card.md"
MODEL_ID = "OWNER/NAME"  # until `publish` knows it


def write_card(folder: Path, results: dict | None = None):
    """Write `README.md`, and `loss_curve.png` where a curve was recorded, into a model folder.

    What is not known (licence, language) is left out rather than guessed.

    Args:
        folder: Holds the model.
        results: What to write it from, at least the `task`; `None` reads `eval_results.json` in the folder.
    """
    if results is None:
        results = json.loads((folder / RESULTS_FILE).read_text(encoding="utf-8"))
    if _has_curve(results):
        _draw_loss_curve(results, folder / "loss_curve.png")
    _make_card(folder, results).save(folder / CARD_FILE)


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


def _make_card(folder: Path, results: dict) -> ModelCard:
    has_curve = _has_curve(results)
    task = None if results["task"] == "masked-lm" else task_module(results["task"])
    pipeline_tag = task.PIPELINE if task else "fill-mask"
    return ModelCard.from_template(
        ModelCardData(library_name="transformers", pipeline_tag=pipeline_tag, tags=["tinybert", "custom_code"]),
        template_str=TEMPLATE.read_text(encoding="utf-8"),
        name=f"TinyBERT for {pipeline_tag}",
        model_id=MODEL_ID,
        pipeline_tag=pipeline_tag,
        pipeline_options=getattr(task, "PIPELINE_OPTIONS", ""),
        usage=task.USAGE.format(model=f'"{MODEL_ID}", trust_remote_code=True') if hasattr(task, "USAGE") else None,
        long_texts=task.LONG_TEXTS if task else TRUNCATE,
        parameters=f"{_parameters(folder):,}",
        results_table=_results_table(results),
        results_note=_results_note(results),
        has_curve=has_curve,
        facts=_facts(results),
    )


def _has_curve(results: dict) -> bool:
    return len(results.get("loss_curve", [])) > 1


def _parameters(folder: Path) -> int:
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", framework="np") as weights:
        return sum(_size(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118 - no mapping


def _size(shape: list[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _is_measured(results: dict) -> bool:
    return "results" in results or "scores" in results


def _results_table(results: dict) -> str:
    if not _is_measured(results):
        return "None: the weights come from elsewhere, and nothing has been measured yet."
    if results["task"] == "masked-lm":
        scores = results["results"]
        return _table(
            ("on held-out text, 15 % masked", "this model", "guessing by frequency"),
            [
                ("loss (nats per masked token)", f"{scores['loss']:.3f}", f"{scores['unigram_loss']:.3f}"),
                ("masked tokens predicted right", f"{scores['accuracy']:.1%}", f"{scores['unigram_accuracy']:.1%}"),
            ],
        )
    return _table(*task_module(results["task"]).card_table(results))


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, tuple("---" for _ in header), *rows))


def _results_note(results: dict) -> str:
    if not _is_measured(results):
        return ""
    note = "The weights are those of the last step; none were picked by score."
    if results["task"] == "masked-lm":
        return f"{note} Losses compare only between models with the same tokenizer."
    verdict = task_module(results["task"]).verdict
    verdicts = [
        f"On {source}, {line}."
        for source, scores in results["scores"].items()
        for line in verdict(scores, results["problem_type"])
    ]
    return "\n".join([*verdicts, "", f"{note} One seed ({results['seed']}); others differ somewhat."])


def _facts(results: dict) -> str:
    lines = []
    corpus = results.get("corpus", {})
    if "train_documents" in corpus:
        lines.append(f"{corpus['train_documents']:,} documents, {corpus['train_tokens']:,} tokens.")
    if "tokens" in results:
        lines.append(
            f"{results['steps']:,} steps, {results['tokens']:,} tokens seen ({results['epochs']:.1f} epochs)."
        )
    if "rows" in results:
        lines.append(f"Fine-tuned on {results['rows']['training']:,} rows in {results['steps']:,} steps.")
    settings = ", ".join(f"`{key}`: {value}" for key, value in results.get("settings", {}).items())
    if settings:
        lines.append(f"Settings: {settings}.")
    if not lines:
        lines.append("Not known here: the weights were brought along by `python -m training import`.")
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
