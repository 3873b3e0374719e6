"""Upload a finished model folder to the Hub: validated first, then one commit, of these files and no others.

`python -m training publish --model runs/zh --repo_id owner/name --dry_run`
"""

import hashlib
import re
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import disable_progress_bars, validate_repo_id

from training.arguments import PublishArguments
from training.errors import UserError
from training.folder_checks import CODE, OPTIONAL, REQUIRED
from training.hub import log_in, plain_words
from training.loading import check_folder, check_own
from training.published_card import published_card
from training.run_folder import CARD_FILE, read_json
from training.upload import CONFIG_FILE, Files, PublishedFile, upload


# A download leaves them in a folder; the Hub makes its own.
NOT_OURS = re.compile(r"\.gitattributes|\.cache/.*")


def main(arguments: PublishArguments):
    """Carry out the verb `publish`.

    Raises:
        UserError: If the folder is not fit to be published, or the Hub does not take it; nothing is committed then.
    """
    folder = Path(arguments.model)
    _check(arguments)
    api = None if arguments.dry_run else log_in()
    _check_fit(folder)
    paths, left_out = list_folder(folder)
    files = collect(folder, paths, arguments.repo_id)
    _show(files, left_out)
    if api is None:
        print(f"dry run: nothing was sent. Without --dry_run this goes to {arguments.repo_id} in one commit")
        return
    disable_progress_bars()
    with plain_words(api, arguments.repo_id):
        print(upload(api, arguments, files))


def _check(arguments: PublishArguments):
    """Refuse impossible arguments before any work."""
    try:
        validate_repo_id(arguments.repo_id)
    except HFValidationError as error:
        raise UserError(f"--repo_id {arguments.repo_id} cannot be a name on the Hub: {error}") from error
    if arguments.repo_id.count("/") != 1:
        raise UserError(f"--repo_id {arguments.repo_id} must be owner/name, the owner being you or an organisation")
    if arguments.create_pr and arguments.revision:
        raise UserError("--create_pr proposes a change of main, so give no --revision with it")
    check_folder(arguments.model, "finetune")
    check_own(arguments.model, read_json(Path(arguments.model) / CONFIG_FILE))


def _check_fit(folder: Path):
    """Raise a `UserError` unless the folder passes `validate`: it loads, runs the package's code, tells nothing."""
    from training import validate

    failed = [f"{check.name}: {check.detail}" for check in validate.check_folder(folder) if check.passed is False]
    if failed:
        raise UserError(
            f"--model {folder} is not fit to be published: {'; '.join(failed)}. Mend it; "
            f"`python -m training validate --model {folder}` shows every check"
        )


def list_folder(folder: Path) -> tuple[list[str], list[str]]:
    """What of a folder is published, and what is not, "/" between the parts of a path.

    A folder that passes `validate` holds hardly anything else. Still, only what is known by name is ever uploaded.
    """
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    known = {path for path in found if path in (*REQUIRED, *CODE) or OPTIONAL.fullmatch(path)}
    published = {path for path in known if not NOT_OURS.fullmatch(path)}
    return sorted(published), [path for path in found if path not in published]


def collect(folder: Path, paths: list[str], repo_id: str) -> Files:
    """The files to upload; the card is as `repo_id` will show it.

    Raises:
        UserError: If a file cannot be read.
    """
    files = {}
    try:
        for path in paths:
            if path != CARD_FILE:
                files[path] = _from_disk(folder / path)
        content = published_card(folder, repo_id).encode("utf-8")
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}; nothing is published") from error
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    files[CARD_FILE] = PublishedFile(content, len(content), hashlib.sha256(content).hexdigest(), git_sha1)
    return dict(sorted(files.items()))


def _from_disk(path: Path) -> PublishedFile:
    size = path.stat().st_size
    sha256, git_sha1 = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            sha256.update(chunk)
            git_sha1.update(chunk)
    return PublishedFile(str(path), size, sha256.hexdigest(), git_sha1.hexdigest())


def _show(files: Files, left_out: list[str]):
    for path, file in files.items():
        print(f"{file.sha256}  {file.size:>13,}  {path}")
    print(f"{len(files)} files, {sum(file.size for file in files.values()):,} bytes")
    for path in left_out:
        print(f"left out: {path if path.isprintable() else ascii(path)}")
