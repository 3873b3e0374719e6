"""The run folder: `runs/NAME` appears by one rename when finished; beside it `runs/.NAME.training` holds the rest.

In the training folder a checkpoint, too, appears by one rename, with a list of its files: one that was cut is known.
`arguments.json` is written last of all that a run begins with, and removed first: where it lies, the run can go on.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path

from training import processes
from training.clock import say
from training.errors import UserError


RESULTS_FILE, TASK_FILE, CARD_FILE = "eval_results.json", "task.json", "README.md"  # in the run folder
ARGUMENTS_FILE = "arguments.json"  # in the training folder: what the run was told, paths included
PREPARED = "prepared"  # there as well: the text of a run, encoded
LOCK_FILE = "lock"
CHECKPOINTS_KEPT = 2  # the last one, and one to go back to
WRITING = ".writing"  # where a folder lies until it is whole
_FILES = "files.json"  # in a whole folder: size and SHA-256 of the others


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
def occupying(output_dir: str | Path):
    """The training folder of `output_dir`, made if need be, and locked: no other run can write there meanwhile.

    The lock is the operating system's and ends with the process. If the block raises, a new folder vanishes unless it
    holds something to resume from.

    Raises:
        UserError: If another run has the lock.
    """
    from filelock import FileLock, Timeout

    path, folder = _named(output_dir), training_dir(output_dir)
    if not processes.is_main():  # which holds the lock for all
        yield folder
        return
    with making_parents(path), _kept_if_of_use(folder):
        with writing(folder):
            try:
                lock = FileLock(folder / LOCK_FILE, timeout=0).acquire()
            except Timeout:
                raise UserError(f"another run is writing {path}; wait for it, or name another --output_dir") from None
        with lock:
            with writing(folder):
                _clear_half_written(folder)
            yield folder


@contextmanager
def _kept_if_of_use(folder: Path):
    new = not folder.exists()
    with writing(folder):
        folder.mkdir(exist_ok=True)
    try:
        yield
    except BaseException as error:
        prepared = (folder / PREPARED).exists() and not isinstance(error, UserError)
        if new and not prepared and not list(folder.rglob("checkpoint-*")):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _clear_half_written(folder: Path):
    """Remove what a killed run was writing when it died."""
    half = folder / WRITING
    for path in half.glob("*"):
        say(f"removing {path.name}, which an earlier run did not finish writing")
    shutil.rmtree(half, ignore_errors=True)


def can_resume(folder: Path, told: dict, free_to_change: tuple[str, ...]) -> bool:
    """Whether `folder` holds a run to go on with.

    Args:
        folder: A training folder.
        told: The arguments of this run, as `start_afresh` wrote those of the other.
        free_to_change: The names in `told` that may differ.

    Raises:
        UserError: If the run there was told something else.
    """
    path = folder / ARGUMENTS_FILE
    if not path.is_file():
        return False
    before = json.loads(path.read_text(encoding="utf-8"))
    changed = [
        f"--{name} was {before.get(name)}, is {value}"
        for name, value in told.items()
        if name not in free_to_change and before.get(name) != value
    ]
    if changed:
        raise UserError(
            f"cannot resume with other arguments ({'; '.join(changed)}); give the same ones, "
            "or start afresh without --resume"
        )
    return True


def is_finished(output_dir: str | Path, told: dict, free_to_change: tuple[str, ...]) -> bool:
    """Whether the run that should be resumed is finished already; the arguments are those of `can_resume`."""
    finished = (Path(output_dir) / "config.json").is_file()
    if not (finished and can_resume(training_dir(output_dir), told, free_to_change)):
        return False
    say(f"{output_dir} is finished already: nothing to resume")
    return True


@contextmanager
def starting_afresh(folder: Path, told: dict):
    """Empty a training folder; after the block, which may fill it, it is one that can be resumed from."""
    with writing(folder):
        (folder / ARGUMENTS_FILE).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.name != LOCK_FILE:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        yield
        write_json(folder / ARGUMENTS_FILE, told)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a training folder; `None` if there is none. Damaged ones are removed."""
    for path in _checkpoints(folder):
        damaged = find_damage(path)
        if damaged is None:
            return path
        say(f"{path.name} is damaged ({damaged}): going back to the one before it")
        shutil.rmtree(path)
    return None


def forget_old_checkpoints(folder: Path):
    """Remove all but the newest checkpoints."""
    for path in _checkpoints(folder)[CHECKPOINTS_KEPT:]:
        shutil.rmtree(path)


def _checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    found = [path for path in folder.glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name.partition("-")[2]), reverse=True)


@contextmanager
def written_whole(folder: Path):
    """A staging folder of the same name that becomes `folder` by one rename, in place of an older one.

    Whatever then becomes of its files, `find_damage` knows.

    Raises:
        UserError: If it cannot be written; what `folder` was before is still there.
    """
    staging = folder.parent / WRITING / folder.name
    try:
        with writing(folder.parent):
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            yield staging
            files = [path for path in staging.rglob("*") if path.is_file()]
            write_json(
                staging / _FILES,
                {path.relative_to(staging).as_posix(): [path.stat().st_size, _sha256(path)] for path in files},
            )
            _to_disk(staging)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(staging, folder)
            _entries_to_disk(folder.parent)
    finally:
        shutil.rmtree(staging.parent, ignore_errors=True)


def find_damage(folder: Path, contents: bool = True) -> str | None:
    """What is wrong with a folder made by `written_whole`; `None` if nothing is.

    Args:
        contents: Whether to read the files; their sizes are compared anyway.
    """
    try:
        files = json.loads((folder / _FILES).read_text(encoding="utf-8"))
        for name, (size, digest) in files.items():
            path = folder / name
            if path.stat().st_size != size or (contents and _sha256(path) != digest):
                return f"{name} is not as it was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError) as error:
        return f"{_FILES}: {error}"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _to_disk(folder: Path):
    """Have the disk hold what was written: a rename may otherwise outlive a power cut that the files do not."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        else:
            _entries_to_disk(path)
    _entries_to_disk(folder)


def _entries_to_disk(folder: Path):
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def writing(folder: Path):
    """What is raised inside where a disk is full or a folder closed, as a `UserError`."""
    from safetensors import SafetensorError

    try:
        yield
    except OSError as error:
        raise UserError(_cannot_write(folder, error.strerror or str(error))) from error
    except SafetensorError as error:
        raise UserError(_cannot_write(folder, str(error))) from error
    except RuntimeError as error:
        if "PytorchStreamWriter" not in str(error):  # torch.save; it keeps the reason to itself
            raise
        raise UserError(_cannot_write(folder, "the disk may be full")) from error
    except Exception as error:
        if type(error) is not Exception:  # the tokenizers library raises bare ones
            raise
        raise UserError(_cannot_write(folder, str(error))) from error


def _cannot_write(folder: Path, why: str) -> str:
    why = " ".join(why.split())
    return f"cannot write in {folder} ({why}): mend that, then give the command again; training goes on with --resume"


@contextmanager
def publishing(output_dir: str | Path):
    """A staging folder that becomes `output_dir` by one rename, or vanishes if the block raises."""
    path = check_output_dir(output_dir)
    with making_parents(path), writing(path.parent):
        _clear_killed_stagings(path)
        staging = _staging(path, os.getpid())
        staging.mkdir()
        try:
            yield staging
            _open_to_readers(staging)
            _to_disk(staging)
            if path.exists():
                path.rmdir()  # empty: checked above
            os.replace(staging, path)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _staging(path: Path, process: int) -> Path:
    return path.with_name(f".{path.name}.{process}.staging")


def _clear_killed_stagings(path: Path):
    """Remove the staging folders of processes that are no more."""
    import psutil

    for other in path.parent.iterdir():
        named = re.fullmatch(re.escape(f".{path.name}.") + r"(\d+)\.staging", other.name)
        if named and (int(named[1]) == os.getpid() or not psutil.pid_exists(int(named[1]))):
            say(f"removing {other.name}, which a killed run left")
            shutil.rmtree(other, ignore_errors=True)


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
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    write_bytes(Path(path), text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, content: bytes):
    """Write a file in one step: who looks sees what was there before, or all of it."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
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
