"""Upload a finished model folder to the Hub: validated first, then one commit, of these files and no others.

`python -m training publish --model runs/zh --repo_id owner/name --dry_run`
"""

import hashlib
import os
import re
from pathlib import Path

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import disable_progress_bars, validate_repo_id

import hf_tinybert
from training.arguments import PublishArguments
from training.card import CARD_FILE
from training.errors import UserError
from training.hub import log_in, plain_words
from training.predict import read_json
from training.published_card import CODE_FILES, published_card
from training.upload import CONFIG_FILE, Files, PublishedFile, upload


# Whatever a run, an evaluation or an export leaves in a finished folder. Nothing else is ever uploaded.
ALLOWED = [
    re.escape(CONFIG_FILE),
    r"model\.safetensors|model-\d{5}-of-\d{5}\.safetensors|model\.safetensors\.index\.json",
    r"tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|added_tokens\.json|vocab\.(txt|json)|merges\.txt",
    *map(re.escape, CODE_FILES),
    r"README\.md|LICENSE(\.txt|\.md)?",
    r"eval_results\.json|task\.json|[\w-]+\.png",
    r"onnx/[\w.-]+\.(onnx|onnx_data|json|txt)",
]
# Pickles run code when they are opened; training state holds paths, and training_args.bin may hold the token.
NEVER = r"(.*/)?(.*\.(bin|pt|pth|pkl|pickle|ckpt|npz|npy)|trainer_state\.json|checkpoint-\d+/.*|\.env|token)"


def main(arguments: PublishArguments):
    """Carry out the verb `publish`.

    Raises:
        UserError: If the folder is not fit to be published, or the Hub does not take it; nothing is committed then.
    """
    folder = Path(arguments.model)
    _check(arguments)
    api = None if arguments.dry_run else log_in()
    paths, left_out = list_folder(folder)
    _check_code(folder)
    _check_fit(folder, paths)
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
    config = Path(arguments.model) / CONFIG_FILE
    advice = "name a folder made by `python -m training`"
    if not config.is_file():
        raise UserError(f"--model {arguments.model} is not a folder with a model (no {CONFIG_FILE}); {advice}")
    model_type = read_json(config).get("model_type")
    if model_type != hf_tinybert.TinyBertConfig.model_type:
        raise UserError(f"--model {arguments.model} is of the type {model_type}, not tinybert; {advice}")


def list_folder(folder: Path) -> tuple[list[str], list[str]]:
    """What of a folder is published, and a line for each thing that is not.

    Returns:
        The paths to publish, "/" between their parts, and the lines: a folder that holds nothing to publish is one.
    """
    paths, left_out = [], []
    for root, folders, names in os.walk(folder, onerror=_refuse):
        inside = Path(root).relative_to(folder).as_posix()
        for name in sorted(folders):
            if inside != "." or name != "onnx" or (Path(root) / name).is_symlink():
                folders.remove(name)
                left_out.append(f"{_join(inside, name)}/ (no part of a model)")
        for name in names:
            path = _join(inside, name)
            if any(re.fullmatch(pattern, path) for pattern in ALLOWED) and (folder / path).is_file():
                paths.append(path)
            else:
                why = "never published" if re.fullmatch(NEVER, path) else "no part of a model"
                left_out.append(f"{path!a} ({why})" if not path.isprintable() else f"{path} ({why})")
    return sorted(paths), sorted(left_out)


def _refuse(error: OSError):
    raise UserError(f"{error.filename}: {error.strerror}; nothing is published") from error


def _join(inside: str, name: str) -> str:
    return name if inside == "." else f"{inside}/{name}"


def _check_code(folder: Path):
    """Raise a `UserError` unless the code files are those of the package."""
    for name in CODE_FILES:
        package_file = Path(hf_tinybert.__file__).with_name(name)
        if not (folder / name).is_file():
            raise UserError(f"{folder} has no {name}; save the model anew, with hf_tinybert imported")
        if (folder / name).read_bytes() != package_file.read_bytes():
            raise UserError(
                f"{folder / name} is not that of hf-tinybert {hf_tinybert.__version__}: what was tested is not what "
                "would be published; save the model anew, or copy the file of the package"
            )


def _check_fit(folder: Path, paths: list[str]):
    """Raise a `UserError` unless `validate` passes the folder and none of `paths` says anything private."""
    from training.scan import find_private
    from training.validate import check_folder

    failed = [f"{check.name}: {check.detail}" for check in check_folder(folder) if check.passed is False]
    if failed:
        raise UserError(f"--model {folder} does not pass `validate`: {'; '.join(failed)}")
    private = [str(finding) for finding in find_private(folder)]
    if private:
        raise UserError(f"--model {folder} holds what is nobody else's business: {'; '.join(private)}")


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
        _refuse(error)
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
    for line in left_out:
        print(f"left out: {line}")
