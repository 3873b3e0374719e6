"""Bring a repository on the Hub to hold the given files and no others, by one commit or not at all."""

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import httpx2
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, ModelInfo
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile

from training.arguments import PublishArguments
from training.errors import UserError
from training.hub import WAITS, passes, patiently, status_of


CONFIG_FILE = "config.json"
HUB_FILES = {".gitattributes"}  # the Hub's own, in every repository
LIBRARY_KEYS = {"transformers_version"}  # of a config: they say what wrote it, not which model it is


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


def upload(api: HfApi, arguments: PublishArguments, files: Files) -> str:
    """Bring the repository to hold `files` and nothing else; returns the line that says so.

    Args:
        api: Logged in.
        arguments: Where to, and whether what is there may be replaced.
        files: What the repository is to hold.

    Raises:
        UserError: If the repository holds something else, or what it was sent did not arrive as it was.
    """
    repo_id = arguments.repo_id
    print(f"logged in to {api.endpoint} as {patiently(api.whoami)['name']}")
    info = _find_or_create(api, arguments)
    base, branch_is_new = _base(api, arguments, info)
    held = _tree(api, repo_id, base)
    if not branch_is_new and (where := _held_at(api, arguments, files)):
        return f"nothing to do: {repo_id} already holds these files ({where})"
    if not arguments.overwrite:
        _check_replaceable(api, arguments, files, held, base)
    if branch_is_new:
        patiently(api.create_branch, repo_id, branch=arguments.revision, revision=base, exist_ok=True)
    operations = [CommitOperationAdd(path, file.source) for path, file in files.items()]
    # Large files go up first, unseen until the commit. huggingface_hub tries these requests again by itself. A
    # .gitignore that the repository may hold must not take files out of the commit.
    api.preupload_lfs_files(
        repo_id,
        operations,
        revision=arguments.revision,
        create_pr=arguments.create_pr,
        free_memory=False,
        gitignore_content="# everything that is listed goes up",
    )
    removed = [CommitOperationDelete(path, is_folder=False) for path in sorted(held.keys() - files.keys())]
    return f"published in one commit: {_commit(api, arguments, files, [*operations, *removed], base)}"


def _find_or_create(api: HfApi, arguments: PublishArguments) -> ModelInfo:
    try:
        info = patiently(api.model_info, arguments.repo_id)
    except RepositoryNotFoundError:
        patiently(api.create_repo, arguments.repo_id, private=arguments.private or None, exist_ok=True)
        info = patiently(api.model_info, arguments.repo_id)
    if arguments.private and not info.private:  # the Hub would ignore the wish
        raise UserError(f"--private, but {arguments.repo_id} exists and is public; make it private in its settings")
    return info


def _base(api: HfApi, arguments: PublishArguments, info: ModelInfo) -> tuple[str, bool]:
    """The commit to build on, and whether the branch is still to be made there."""
    if arguments.revision is None:
        return str(info.sha), False
    try:
        return str(patiently(api.model_info, arguments.repo_id, revision=arguments.revision).sha), False
    except RevisionNotFoundError:
        return str(info.sha), True


def _tree(api: HfApi, repo_id: str, revision: str) -> dict[str, RepoFile]:
    """The files of a revision, without those that the Hub itself puts there."""
    entries = api.list_repo_tree(repo_id, recursive=True, revision=revision)  # which tries again by itself
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile) and entry.path not in HUB_FILES}


def _holds(api: HfApi, repo_id: str, revision: str, files: Files) -> bool:
    """Whether a revision holds exactly `files`."""
    entries = _tree(api, repo_id, revision)
    return entries.keys() == files.keys() and all(files[path].is_on_hub(entry) for path, entry in entries.items())


def _held_at(api: HfApi, arguments: PublishArguments, files: Files) -> str | None:
    """Where the repository holds exactly `files`: the branch, or an open pull request if one is asked for."""
    revisions = [arguments.revision or "main"]
    if arguments.create_pr:
        kind = {"discussion_type": "pull_request", "discussion_status": "open"}
        requests = patiently(lambda: list(api.get_repo_discussions(arguments.repo_id, **kind)))
        revisions += [str(request.git_reference) for request in requests]
    return next((revision for revision in revisions if _holds(api, arguments.repo_id, revision, files)), None)


def _check_replaceable(api: HfApi, arguments: PublishArguments, files: Files, held: dict[str, RepoFile], base: str):
    """Raise a `UserError` if the repository holds another model, or files that are no part of this one."""
    if CONFIG_FILE in held and not files[CONFIG_FILE].is_on_hub(held[CONFIG_FILE]):
        _check_same_model(api, arguments, base)
    others = sorted(held.keys() - files.keys())
    if others:
        some = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        raise UserError(
            f"{arguments.repo_id} holds files that are no part of this model: {some}; "
            "name another --repo_id, or give --overwrite to remove them"
        )


def _check_same_model(api: HfApi, arguments: PublishArguments, base: str):
    """Raise a `UserError` unless the config there differs from ours in nothing that matters."""
    ours = _read_config(arguments.model)
    with tempfile.TemporaryDirectory() as folder:
        patiently(api.hf_hub_download, arguments.repo_id, CONFIG_FILE, revision=base, local_dir=folder)
        theirs = _read_config(folder)
    keys = ["model_type", "architectures", *sorted((ours.keys() | theirs.keys()) - LIBRARY_KEYS)]
    different = next((key for key in keys if ours.get(key) != theirs.get(key)), None)
    if different:
        raise UserError(
            f"{arguments.repo_id} holds another model ({different}: {theirs.get(different)!r} there, "
            f"{ours.get(different)!r} here); name another --repo_id, or give --overwrite"
        )


def _read_config(folder: str) -> dict:
    """A config; what is no config at all is another model's."""
    try:
        config = json.loads((Path(folder) / CONFIG_FILE).read_text(encoding="utf-8"))
    except ValueError:
        return {}
    return config if isinstance(config, dict) else {}


def _commit(api: HfApi, arguments: PublishArguments, files: Files, operations: list, base: str) -> str:
    """Commit on top of `base`, or not at all; returns where it is to be seen.

    A fault may have swallowed the answer rather than the request, so what the repository then holds decides.
    """
    for wait in (*WAITS, None):
        try:
            made = api.create_commit(
                arguments.repo_id,
                operations,
                commit_message=arguments.commit_message,
                revision=arguments.revision,
                create_pr=arguments.create_pr,
                parent_commit=base,
            )
        except (HfHubHTTPError, httpx2.TransportError, ValueError) as error:
            if (passes(error) or status_of(error) == 412) and (where := _held_at(api, arguments, files)):
                sha = patiently(api.model_info, arguments.repo_id, revision=where).sha
                return f"{api.endpoint}/{arguments.repo_id}/commit/{sha}"
            if not passes(error) or wait is None:
                raise
            time.sleep(wait)
        else:
            break
    if not _holds(api, arguments.repo_id, made.pr_revision or made.oid, files):
        raise UserError(
            f"{made.commit_url} does not hold what was sent: {arguments.model} changed meanwhile; publish again"
        )
    return made.pr_url or made.commit_url
