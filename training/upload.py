"""Bring a repository on the Hub to hold the given files and no others, by one commit or not at all."""

import hashlib
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx2
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelInfo, SpaceInfo
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from training import progress
from training.errors import UserError
from training.hub import WAITS, passes, patiently, status_of


CONFIG_FILE, APP_FILE = "config.json", "app.py"  # what a model, and a page, is told by
HUB_FILES = {".gitattributes"}  # the Hub's own, in every repository
LIBRARY_KEYS = {"transformers_version"}  # of a config: they say what wrote it, not which model it is


@dataclass(frozen=True)
class Destination:
    """Where an upload goes, how, and whether what is there may be replaced."""

    source: str  # what goes up, for messages
    repo_id: str
    repo_type: Literal["model", "space"]
    commit_message: str
    private: bool = False
    revision: str | None = None
    create_pr: bool = False
    overwrite: bool = False

    @property
    def where(self) -> dict[str, str]:
        """What every request to the Hub is told."""
        return {"repo_id": self.repo_id, "repo_type": self.repo_type}

    @property
    def path(self) -> str:
        """Of the repository on the Hub's site."""
        return self.repo_id if self.repo_type == "model" else f"spaces/{self.repo_id}"

    @property
    def advice(self) -> str:
        """What to do where something else is there."""
        return f"name another {'--repo_id' if self.repo_type == 'model' else '--space'}, or give --overwrite"


@dataclass(frozen=True)
class PublishedFile:
    """A file to upload, and what both of the Hub's ways of storing one would call its content."""

    source: str | bytes  # a path, or the content itself
    size: int
    sha256: str
    git_sha1: str

    def is_on_hub(self, entry: RepoFile) -> bool:
        return entry.lfs.sha256 == self.sha256 if entry.lfs else entry.blob_id == self.git_sha1


Files = dict[str, PublishedFile]  # by path in the repository
Info = ModelInfo | SpaceInfo


def from_bytes(content: bytes) -> PublishedFile:
    """A file whose content is not on disk."""
    git_sha1 = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    return PublishedFile(content, len(content), hashlib.sha256(content).hexdigest(), git_sha1)


def upload(api: HfApi, to: Destination, files: Files) -> str:
    """Bring the repository to hold `files` and nothing else; returns the line that says so.

    Args:
        api: Logged in.
        to: A repository, which is made if it is not there.
        files: What the repository is to hold.

    Raises:
        UserError: If the repository holds something else, or what it was sent did not arrive as it was.
    """
    print(f"logged in to {api.endpoint} as {patiently(api.whoami)['name']}")
    info = _find_or_create(api, to)
    base, branch_is_new = _base(api, to, info)
    held = _tree(api, to, base)
    if not branch_is_new and (where := _held_at(api, to, files)):
        return f"nothing to do: {to.path} already holds these files ({where})"
    if not to.overwrite:
        _check_replaceable(api, to, files, held, base)
    if branch_is_new:
        patiently(api.create_branch, **to.where, branch=to.revision, revision=base, exist_ok=True)
    operations = [CommitOperationAdd(path, file.source) for path, file in files.items()]
    # Large files go up first, unseen until the commit. huggingface_hub tries these requests again by itself. A
    # .gitignore that the repository may hold must not take files out of the commit.
    with progress.step(f"uploading {sum(file.size for file in files.values()) / 1e6:,.1f} MB"):
        api.preupload_lfs_files(
            additions=operations,
            **to.where,
            revision=to.revision,
            create_pr=to.create_pr,
            free_memory=False,
            gitignore_content="# everything that is listed goes up",
        )
        removed = [CommitOperationDelete(path, is_folder=False) for path in sorted(held.keys() - files.keys())]
        where = _commit(api, to, files, [*operations, *removed], base)
    return f"published in one commit: {where}"


def _find_or_create(api: HfApi, to: Destination) -> Info:
    try:
        info = patiently(api.repo_info, **to.where)
    except RepositoryNotFoundError:
        sdk = "gradio" if to.repo_type == "space" else None
        patiently(api.create_repo, **to.where, private=to.private or None, exist_ok=True, space_sdk=sdk)
        info = patiently(api.repo_info, **to.where)
    if to.private and not info.private:  # the Hub would ignore the wish
        raise UserError(f"--private, but {to.repo_id} exists and is public; make it private in its settings")
    return info


def _base(api: HfApi, to: Destination, info: Info) -> tuple[str, bool]:
    """The commit to build on, and whether the branch is still to be made there."""
    if to.revision is None:
        return str(info.sha), False
    try:
        return str(patiently(api.repo_info, **to.where, revision=to.revision).sha), False
    except RevisionNotFoundError:
        return str(info.sha), True


def _tree(api: HfApi, to: Destination, revision: str) -> dict[str, RepoFile]:
    """The files of a revision, without those that the Hub itself puts there."""
    entries = api.list_repo_tree(**to.where, recursive=True, revision=revision)  # which tries again by itself
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile) and entry.path not in HUB_FILES}


def _holds(api: HfApi, to: Destination, revision: str, files: Files) -> bool:
    """Whether a revision holds exactly `files`."""
    entries = _tree(api, to, revision)
    return entries.keys() == files.keys() and all(files[path].is_on_hub(entry) for path, entry in entries.items())


def _held_at(api: HfApi, to: Destination, files: Files) -> str | None:
    """Where the repository holds exactly `files`: the branch, or an open pull request if one is asked for."""
    revisions = [to.revision or "main"]
    if to.create_pr:
        kind = {"discussion_type": "pull_request", "discussion_status": "open"}
        requests = patiently(lambda: list(api.get_repo_discussions(**to.where, **kind)))
        revisions += [str(request.git_reference) for request in requests]
    return next((revision for revision in revisions if _holds(api, to, revision, files)), None)


def _check_replaceable(api: HfApi, to: Destination, files: Files, held: dict[str, RepoFile], base: str):
    """Raise a `UserError` if the repository holds another model or page, or files that are no part of this one."""
    if to.repo_type == "space":
        if APP_FILE in held and not files[APP_FILE].is_on_hub(held[APP_FILE]):
            raise UserError(f"{to.path} holds another page ({APP_FILE} differs); {to.advice}")
    elif CONFIG_FILE in held and not files[CONFIG_FILE].is_on_hub(held[CONFIG_FILE]):
        _check_same_model(api, to, Path(str(files[CONFIG_FILE].source)), base)
    others = sorted(held.keys() - files.keys())
    if others:
        some = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        what = "page" if to.repo_type == "space" else "model"
        raise UserError(f"{to.path} holds files that are no part of this {what}: {some}; {to.advice} to remove them")


def _check_same_model(api: HfApi, to: Destination, config: Path, base: str):
    """Raise a `UserError` unless the config there differs from `config` in nothing that matters."""
    ours = _read_config(config)
    with tempfile.TemporaryDirectory() as folder:
        patiently(api.hf_hub_download, **to.where, filename=CONFIG_FILE, revision=base, local_dir=folder)
        theirs = _read_config(Path(folder) / CONFIG_FILE)
    keys = ["model_type", "architectures", *sorted((ours.keys() | theirs.keys()) - LIBRARY_KEYS)]
    different = next((key for key in keys if ours.get(key) != theirs.get(key)), None)
    if different:
        raise UserError(
            f"{to.repo_id} holds another model ({different}: {theirs.get(different)!r} there, "
            f"{ours.get(different)!r} here); {to.advice}"
        )


def _read_config(path: Path) -> dict:
    """A config; what is no config at all is another model's."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _commit(api: HfApi, to: Destination, files: Files, operations: list, base: str) -> str:
    """Commit on top of `base`, or not at all; returns where it is to be seen.

    A fault may have swallowed the answer rather than the request, so what the repository then holds decides.
    """
    for wait in (*WAITS, None):
        try:
            made = api.create_commit(
                **to.where,
                operations=operations,
                commit_message=to.commit_message,
                revision=to.revision,
                create_pr=to.create_pr,
                parent_commit=base,
            )
        except (HfHubHTTPError, httpx2.TransportError, ValueError) as error:
            if (passes(error) or status_of(error) == 412) and (where := _held_at(api, to, files)):
                sha = patiently(api.repo_info, **to.where, revision=where).sha
                return f"{api.endpoint}/{to.path}/commit/{sha}"
            if not passes(error) or wait is None:
                raise
            time.sleep(wait)
        else:
            break
    if not _holds(api, to, made.pr_revision or made.oid, files):
        raise UserError(f"{made.commit_url} does not hold what was sent: {to.source} changed meanwhile; publish again")
    return made.pr_url or made.commit_url
