"""Upload a finished model folder to the Hub: validated first, then one commit, of these files and no others.

`python -m training publish --model runs/zh --repo_id owner/name --dry_run`

With `--space owner/page` a page to try the model on goes up as well: `model_cards/space/`, as a Gradio Space.
"""

import hashlib
import json
import re
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from training import progress
from training.arguments import PublishArguments
from training.errors import UserError
from training.folder_checks import CODE, OPTIONAL, REQUIRED
from training.hub import log_in, plain_words
from training.loading import check_folder, check_own
from training.next_command import given, tell_next
from training.published_card import published_card
from training.run_folder import CARD_FILE, read_json
from training.space import space_files
from training.stranger import head_of
from training.upload import CONFIG_FILE, Destination, Files, PublishedFile, from_bytes, upload


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
    uploads = [(_to_model(arguments), files)]
    if arguments.space:
        page = space_files(arguments)
        print(f"the page, for spaces/{arguments.space}:")
        _show(page, [])
        uploads.append((_to_space(arguments), page))
    if api is None:
        where = " and ".join(f"{to.path} in one commit" for to, _ in uploads)
        print(f"dry run: nothing was sent. Without --dry_run this goes to {where}")
        tell_next("publish", **given(arguments) | {"dry_run": False})
        return
    progress.library_bars_off()
    for to, content in uploads:
        with plain_words(api, to.path):
            print(upload(api, to, content))
    if arguments.space and arguments.private:
        print("the model is private: give the Space a secret HF_TOKEN that may read it (Settings of the Space)")
    print("Next: merge it there" if arguments.create_pr else f"Next, anywhere: {_how_to_load(arguments)}")


def _how_to_load(arguments: PublishArguments) -> str:
    (architecture,) = read_json(Path(arguments.model) / CONFIG_FILE)["architectures"]
    words = [arguments.repo_id] + ([arguments.revision] if arguments.revision else [])
    where = ", revision=".join(json.dumps(word, ensure_ascii=False) for word in words)
    return f"{head_of(architecture).auto_class}.from_pretrained({where}, trust_remote_code=True)"


def _to_model(arguments: PublishArguments) -> Destination:
    return Destination(
        source=arguments.model,
        repo_id=arguments.repo_id,
        repo_type="model",
        commit_message=arguments.commit_message,
        private=arguments.private,
        revision=arguments.revision,
        create_pr=arguments.create_pr,
        overwrite=arguments.overwrite,
    )


def _to_space(arguments: PublishArguments) -> Destination:
    return Destination(
        source="the page",
        repo_id=str(arguments.space),
        repo_type="space",
        commit_message="Publish the page",
        private=arguments.private,
        overwrite=arguments.overwrite,
    )


def _check(arguments: PublishArguments):
    """Refuse impossible arguments before any work."""
    _check_name("--repo_id", arguments.repo_id)
    if arguments.space:
        _check_name("--space", arguments.space)
        for name in arguments.space_models or []:
            _check_name("--space_models", name)
        if arguments.revision or arguments.create_pr:
            raise UserError("--space shows what is on main, so give no --revision or --create_pr with it")
    elif arguments.space_models or arguments.space_language:
        raise UserError("--space_models and --space_language belong to a page; say where it goes with --space")
    if arguments.create_pr and arguments.revision:
        raise UserError("--create_pr proposes a change of main, so give no --revision with it")
    check_folder(arguments.model, "finetune")
    check_own(arguments.model, read_json(Path(arguments.model) / CONFIG_FILE))


def _check_name(option: str, repo_id: str):
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"{option} {repo_id} cannot be a name on the Hub: {error}") from error
    if repo_id.count("/") != 1:
        raise UserError(f"{option} {repo_id} must be owner/name, the owner being you or an organisation")


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
    files[CARD_FILE] = from_bytes(content)
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
