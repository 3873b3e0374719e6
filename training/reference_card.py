"""The card of the reference models, filled from the report of `training.quality`."""

import os
import shutil
from pathlib import Path

import jinja2

from training.card import TEMPLATES
from training.clock import as_text
from training.shared_runs import LENGTH


TEMPLATE = "reference_model.md"
CURVE = "pictures/loss_curve.png"  # in the folder of an encoder


def write_reference_card(report: dict, sums: dict[str, str], encoder: Path, folder: Path) -> Path:
    """Write `NAME.md`, and beside it `NAME-loss.png` if there is a loss curve.

    Args:
        report: What `training.quality` writes as `table.json`.
        sums: The SHA-256 of each archive, from `training.release`.
        encoder: Folder of the pre-trained encoder.
        folder: Where to write.

    Returns:
        The path of the card.
    """
    name = report["name"]
    path, curve = folder / f"{name}.md", f"{name}-loss.png" if (encoder / CURVE).is_file() else None
    if curve:
        shutil.copyfile(encoder / CURVE, folder / curve)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(reference_card(report, sums, curve), encoding="utf-8", newline="\n")
    os.replace(scratch, path)
    return path


def reference_card(report: dict, sums: dict[str, str], curve: str | None) -> str:
    """The text of the card.

    Args:
        report, sums: As for `write_reference_card`.
        curve: Path of the picture of the loss curve, as the card links to it; `None` if there is none.
    """
    from training.quality import table

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES, encoding="utf-8"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    encoders = [{**one, "time": as_text(one["seconds"])} for one in report["encoders"]]
    return environment.get_template(TEMPLATE).render(
        **{name: report[name] for name in ("name", "quality", "recipe", "budget", "inputs", "overlap", "max_length")},
        encoders=encoders,
        encoder=encoders[0],
        tasks=list(dict.fromkeys(row["task"] for row in report["rows"])),
        rows=[_row(row) for row in report["rows"]],
        table="\n".join(table(report["rows"])),
        pretraining=report["command"],
        assets=[{"file": file, "sha256": digest, "what": _what(file, report)} for file, digest in sums.items()],
        shared=LENGTH,
        curve=curve,
    )


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
    task = file.removesuffix(".tar.gz").removeprefix(report["name"]).removeprefix("-")
    if not task:
        return "the pre-trained encoder"
    row = next(row for row in report["rows"] if row["task"] == task)  # the split of the first row is released
    score = row["model"][row["seeds"].index(row["median_seed"])]
    return f"fine-tuned on {task}, {row['split']}, seed {row['median_seed']}: {row['metric']} {score:.2f}"
