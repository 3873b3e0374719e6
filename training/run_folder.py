"""The run folder: `runs/NAME` appears by one rename when finished; beside it `runs/.NAME.training` holds the rest."""

import json
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from training.errors import UserError


ARGUMENTS_FILE = "arguments.json"  # in the training folder: what the run was told, paths included


def check_output_dir(output_dir: str | Path) -> Path:
    """The path of a folder to be made.

    Raises:
        UserError: If something is there already, or its parent cannot hold it.
    """
    path = _named(output_dir)
    try:
        if path.is_dir() and any(path.iterdir()):
            what = "already holds a model" if (path / "config.json").exists() else "is not empty"
            raise UserError(f"--output_dir {path} {what}; name another folder or remove it")
        if path.exists() and not path.is_dir():
            raise UserError(f"--output_dir {path} is a file; name a folder")
        if path.exists() and (path.samefile(Path.cwd()) or path.is_mount()):  # a rename cannot take its place
            raise UserError(f"--output_dir {path} is the current folder or a mount point; name a folder in it")
        parent = next(parent for parent in path.absolute().parents if parent.exists())
        if not parent.is_dir():
            raise UserError(f"--output_dir {path}: cannot write in {parent}, a file; name a folder elsewhere")
        # Whether a folder can be made is best learnt by making one; its name is as long as any beside the run's.
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".training", dir=parent):
            pass
        str(path).encode("utf-8")
    except OSError as error:
        raise UserError(f"--output_dir {path}: cannot write there ({error.strerror}); name another folder") from error
    except UnicodeEncodeError as error:  # the libraries that save cannot write there either
        raise UserError(f"--output_dir {path!s} is not UTF-8; name another folder, or set a UTF-8 locale") from error
    return path


def _named(output_dir: str | Path) -> Path:
    """A path by the folder's own name: "." and ".." say where it is, a link where it appears."""
    path = Path(output_dir)
    try:
        return path.resolve() if path.name in ("", "..") or path.is_symlink() else path
    except OSError as error:
        raise UserError(f"{output_dir}: {error.strerror}; name another folder") from error


def training_dir(output_dir: str | Path) -> Path:
    """Where a run keeps what is never published: checkpoints, logs, journal, caches."""
    path = _named(output_dir)
    return path.with_name(f".{path.name}.training")


@contextmanager
def making_parents(path: Path):
    """Make the folders that `path` lies in; those that were new vanish again, unless filled, if the block raises."""
    new = [parent for parent in path.absolute().parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for parent in new:
            with suppress(OSError):  # not empty
                parent.rmdir()
        raise


@contextmanager
def publishing(output_dir: str | Path):
    """A staging folder that becomes `output_dir` by one rename, or vanishes if the block raises."""
    path = check_output_dir(output_dir)
    staging = path.with_name(f".{path.name}.{os.getpid()}.staging")
    with making_parents(path):
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        try:
            yield staging
            _open_to_readers(staging)
            if path.exists():
                path.rmdir()  # empty: checked above
            os.replace(staging, path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _open_to_readers(folder: Path):
    """Give files the mode of any new file: safetensors writes weights that their owner alone can read."""
    mode = stat.S_IMODE(folder.stat().st_mode) & 0o666
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(mode)


def write_json(path: str | Path, value):
    """Write JSON that people can read, Chinese included, in one step.

    A file name may hold bytes that are no UTF-8; they are written as the escapes that JSON has for them.
    """
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(
        json.dumps(value, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", errors="backslashreplace"
    )
    os.replace(scratch, path)


def read_json(path: Path) -> dict:
    """A JSON object.

    Raises:
        UserError: If it cannot be read or is none.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} must hold a JSON object, not a {type(value).__name__}")
    return value
