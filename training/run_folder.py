"""The run folder: `runs/NAME` appears by one rename when finished; beside it `runs/.NAME.training` holds the rest."""

import json
import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from training.errors import UserError


ARGUMENTS_FILE = "arguments.json"  # in the training folder: what the run was told, paths included


def check_output_dir(output_dir: str | Path) -> Path:
    """The path of a folder to be made.

    Raises:
        UserError: If something is there already, or its parent cannot hold it.
    """
    path = Path(output_dir)
    if path.is_dir() and any(path.iterdir()):
        what = "already holds a model" if (path / "config.json").exists() else "is not empty"
        raise UserError(f"--output_dir {path} {what}; name another folder or remove it")
    if path.exists() and not path.is_dir():
        raise UserError(f"--output_dir {path} is a file; name a folder")
    parent = next(parent for parent in path.absolute().parents if parent.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise UserError(f"--output_dir {path}: cannot write in {parent}; name a folder elsewhere")
    return path


def training_dir(output_dir: str | Path) -> Path:
    """Where a run keeps what is never published: checkpoints, logs, journal, caches."""
    path = Path(output_dir)
    if path.name in ("", ".."):  # "." and "..", which say where a folder is, but not its name
        path = path.resolve()
    return path.with_name(f".{path.name}.training")


@contextmanager
def publishing(output_dir: str | Path):
    """A staging folder that becomes `output_dir` by one rename, or vanishes if the block raises."""
    path = check_output_dir(output_dir)
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = path.with_name(f".{path.name}.{os.getpid()}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        yield staging
        if path.exists():
            path.rmdir()  # empty: checked above
        os.replace(staging, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def write_json(path: str | Path, value):
    """Write JSON that people can read, Chinese included, in one step."""
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    os.replace(scratch, path)
