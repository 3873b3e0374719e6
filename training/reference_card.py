"""The card of the reference models, filled from the report of `training.quality`."""

import shutil
from pathlib import Path

import jinja2

from training.card import TEMPLATES
from training.clock import as_text
from training.run_folder import write_bytes
from training.shared_runs import LENGTH


TEMPLATE = "reference_model.md"
CURVE = "pictures/loss_curve.png"  # in the folder of an encoder
SHOWN = ("name", "quality", "budget", "inputs", "overlap", "news", "news_command", "max_length")  # of the report


def write_reference_card(report: dict, sums: dict[str, str], encoders: dict[str, Path], folder: Path) -> Path:
    """Write `NAME.md`, and beside it the loss curves that there are, as `ENCODER-loss.png`.

    Args:
        report: What `training.quality` writes as `table.json`.
        sums: The SHA-256 of each archive, from `training.release`.
        encoders: Folder of each pre-trained encoder, by its name.
        folder: Where to write.

    Returns:
        The path of the card.
    """
    path = folder / f"{report['name']}.md"
    curves = {name: f"{name}-loss.png" for name, encoder in encoders.items() if (encoder / CURVE).is_file()}
    for name, curve in curves.items():
        shutil.copyfile(encoders[name] / CURVE, folder / curve)
    write_bytes(path, reference_card(report, sums, curves).encode("utf-8"))
    return path


def reference_card(report: dict, sums: dict[str, str], curves: dict[str, str]) -> str:
    """The text of the card.

    Args:
        report, sums: As for `write_reference_card`.
        curves: Path of the picture of the loss curve of each encoder that has one, as the card links to it.
    """
    from training.quality import table

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(TEMPLATE).render(
        **{name: report[name] for name in SHOWN},
        encoders=[_encoder(one) for one in report["encoders"]],
        tasks=list(dict.fromkeys(row["task"] for row in report["rows"])),
        rows=[_row(row) for row in report["rows"]],
        table="\n".join(table(report["rows"])),
        assets=[{"file": file, "sha256": digest, "what": _what(file, report)} for file, digest in sums.items()],
        shared=LENGTH,
        curves=curves,
    )


def _encoder(encoder: dict) -> dict:
    return {**encoder, "runs": [{**run, "time": as_text(run["seconds"])} for run in encoder["runs"]]}


def _row(row: dict) -> dict:
    each = ", ".join(f"{value:.2f}" for value in row["model"])
    if row["encoder"]:
        each += f"; its encoder alone {', '.join(f'{value:.2f}' for value in row['encoder'])}"
    return {**row, "verdict": verdict(row["lead"], row["baseline_name"]), "each": each, "finetuning": row["command"]}


def verdict(lead: dict[str, float], baseline: str) -> str:
    """In plain words whether the models lead `baseline`, by the interval of `training.quality_rows.bootstrap`."""
    if lead["low"] > 0:
        return f"beats {baseline}"
    if lead["high"] < 0:
        return f"LOSES to {baseline}"
    return f"cannot be told from {baseline}"


def _what(file: str, report: dict) -> str:
    name = file.removesuffix(".tar.gz")
    encoder = next((one for one in report["encoders"] if one["name"] == name), None)
    if encoder:
        return f"the pre-trained encoder for {' and '.join(encoder['tasks'])}"
    # Of several splits that of the first row is released.
    row = next(row for row in report["rows"] if f"{row['pretrained']}-{row['task']}" == name)
    score = row["model"][row["seeds"].index(row["median_seed"])]
    return f"fine-tuned on {row['task']}, {row['split']}, seed {row['median_seed']}: {row['metric']} {score:.2f}"
