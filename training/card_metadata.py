"""The metadata of a model card: what the Hub lists, filters and compares models by."""

import re
from types import ModuleType

from huggingface_hub import EvalResult, ModelCardData


MODEL_ID = "OWNER/NAME"  # until `publish` knows it
TAGS = ("tinybert", "custom_code")
# Which of the Hub's metrics ours are, by the words of the results table; for others the last word is one ("PER f1").
METRICS = {
    "loss (nats per masked token)": "loss",
    "masked tokens predicted right": "accuracy",
    "all labels right": "accuracy",
    "exact match": "exact_match",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
# How `datasets` calls what reads such files: a model index has to name a data set, and a file has no other name.
READERS = {"csv": "csv", "tsv": "csv", "json": "json", "jsonl": "json", "parquet": "parquet", "txt": "text"}
# Sentences to try the model on in the browser; ours, since texts of the user are not to be published.
EXAMPLES: dict[str, dict[str, list[dict]]] = {
    "zh": {
        "fill-mask": [{"text": "酒店的位置很[MASK]，交通方便。"}, {"text": "今天天气真[MASK]。"}],
        "text-classification": [{"text": "房间很干净，服务也很好。"}, {"text": "太让人失望了，不会再买。"}],
        "token-classification": [{"text": "王芳在北京的一家医院工作。"}],
        "question-answering": [{"text": "谁在北京工作？", "context": "王芳在北京的一家医院工作。"}],
    },
    "en": {
        "fill-mask": [{"text": "The hotel is close to the [MASK]."}, {"text": "I like this [MASK] very much."}],
        "text-classification": [{"text": "The room was clean and quiet."}, {"text": "I will not buy it again."}],
        "token-classification": [{"text": "Mary works at a hospital in London."}],
        "question-answering": [{"text": "Who works in London?", "context": "Mary works at a hospital in London."}],
    },
}


def card_data(
    results: dict,
    task: ModuleType | None,
    header: tuple[str, ...],
    rows: list[tuple[str, ...]],
    mask_token: str | None,
) -> ModelCardData:
    """The metadata; what is not known is left out.

    Args:
        results: The `eval_results.json` of a run.
        task: The module of the task; `None` for a masked language model.
        header, rows: Of the results table.
        mask_token: Of the tokenizer; `None` if it has none.
    """
    pipeline_tag = task.PIPELINE if task else "fill-mask"
    known = results.get("card", {})
    measured = _eval_results(results, pipeline_tag, header, rows)
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=pipeline_tag,
        tags=list(TAGS),
        language=known.get("language"),
        license=known.get("license"),
        base_model=known.get("base_model"),
        datasets=known.get("datasets"),
        eval_results=measured or None,
        model_name=MODEL_ID if measured else None,
        widget=_examples(known.get("language"), pipeline_tag, mask_token),
    )


def _examples(language: str | None, pipeline_tag: str, mask_token: str | None) -> list[dict] | None:
    examples = EXAMPLES.get(language or "", {}).get(pipeline_tag)
    if examples is None or pipeline_tag != "fill-mask" or mask_token is None:
        return examples
    return [{"text": example["text"].replace("[MASK]", mask_token)} for example in examples]


def _eval_results(
    results: dict, pipeline_tag: str, header: tuple[str, ...], rows: list[tuple[str, ...]]
) -> list[EvalResult]:
    """The rows of the results table; what the model is compared with stands in the name of the metric."""
    found = []
    for source, metric, ours, *others in rows:
        compared = [f"{name}: {value}" for name, value in zip(header[3:], others, strict=True) if value]
        if ours:
            kind, name = _dataset(results, source)
            found.append(
                EvalResult(
                    task_type=pipeline_tag,
                    dataset_type=kind,
                    dataset_name=name,
                    dataset_config=None if kind == name else name,  # without it the Hub takes all files for one
                    metric_type=METRICS.get(metric, metric.split()[-1].lower()),
                    metric_name=f"{metric} ({'; '.join(compared)})" if compared else metric,
                    metric_value=float(ours),
                )
            )
    return found


def _dataset(results: dict, source: str) -> tuple[str, str]:
    """Type and name, as a model index wants them: an id of the Hub, or else the reader and the name of the file."""
    hub_ids = results.get("card", {}).get("datasets")
    if hub_ids:
        return hub_ids[0], hub_ids[0]
    if results["task"] == "masked-lm":
        names = [file["name"] for file in results.get("corpus", {}).get("files", [])]
        of = "" if not names else f" of {names[0]}" if len(names) == 1 else f" of {len(names)} files"
        source = f"held-out text{of}"
        suffixes = re.findall(r"\.(\w+?)(?:\.gz)?$", names[0]) if names else []
    else:
        suffixes = re.findall(r"\.(\w+)\b", source)
    return next((READERS[suffix] for suffix in reversed(suffixes) if suffix in READERS), "text"), source
