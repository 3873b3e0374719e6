"""Speak to the Hub: patience with faults that pass, and everything else in plain words."""

import json
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TypeVar

import httpx2  # what huggingface_hub speaks HTTP with, and whose errors it lets through
from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from training.errors import UserError
from training.loading import one_line


T = TypeVar("T")

WAITS = (1.0, 2.0, 4.0)  # seconds between tries of a request that huggingface_hub does not itself try again
PASSING = (408, 429, 500, 502, 503, 504)
LOG_IN = (
    "run `hf auth login`, or set HF_TOKEN to a token with write access from https://huggingface.co/settings/tokens"
)


def log_in() -> HfApi:
    """The Hub's interface, with the user's token. Nothing is sent yet.

    Raises:
        UserError: If there is no token, one that cannot be sent, or the network is switched off.
    """
    if constants.is_offline_mode():
        raise UserError("HF_HUB_OFFLINE is set, so nothing can be published; unset it, or give --dry_run")
    token = get_token()
    if token is None:
        raise UserError(f"not logged in to the Hub: {LOG_IN}")
    if not all("!" <= char <= "~" for char in token):  # the library's complaint would show it
        raise UserError(f"the token for the Hub holds a character that no token has; {LOG_IN}")
    return HfApi(token=token, library_name="hf-tinybert")


def passes(error: Exception) -> bool:
    """Whether the same request may well succeed in a moment."""
    if isinstance(error, LocalEntryNotFoundError):  # a download wraps it
        return isinstance(error.__cause__, Exception) and passes(error.__cause__)
    # An answer that is no JSON comes from a server or proxy in trouble.
    return status_of(error) in PASSING or isinstance(error, httpx2.TransportError | json.JSONDecodeError)


def status_of(error: Exception) -> int | None:
    """The HTTP status that an error stands for."""
    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


def patiently(call: Callable[..., T], *args, **kwargs) -> T:
    """The result of a call that may be made twice; faults that pass are waited for."""
    for wait in WAITS:
        try:
            return call(*args, **kwargs)
        except (HfHubHTTPError, httpx2.TransportError, OSError, ValueError) as error:
            if not passes(error):
                raise
        time.sleep(wait)
    return call(*args, **kwargs)


@contextmanager
def plain_words(api: HfApi, repo_id: str):
    """What goes wrong with the Hub inside, as a `UserError` of one line that never holds the token."""
    try:
        yield
    except UserError:
        raise
    except (HfHubHTTPError, httpx2.TransportError, OSError, ValueError, RuntimeError) as error:
        text = _explain(_cause(error), repo_id)
        raise UserError(text.replace(str(api.token), "[token]")) from error


def _cause(error: BaseException) -> BaseException:
    """The error that says something: uploads and downloads wrap it."""
    wrapped = error.__cause__
    wraps = not isinstance(error, HfHubHTTPError | httpx2.TransportError)
    return _cause(wrapped) if wraps and wrapped is not None else error


def _explain(error: BaseException, repo_id: str) -> str:
    again = "a commit is whole or not there; run the same command again, files already uploaded are not sent twice"
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set; unset it"
    if isinstance(error, httpx2.TransportError):
        return f"the connection to {constants.ENDPOINT} failed ({one_line(error, 100)}); {again}"
    if isinstance(error, json.JSONDecodeError):
        return f"{constants.ENDPOINT} gave an answer that is not the Hub's; {again}"
    if not isinstance(error, HfHubHTTPError):
        return f"publishing to {repo_id} failed: {one_line(error)}"  # type: ignore[arg-type]
    status = error.response.status_code
    if isinstance(error, RevisionNotFoundError):
        return f"{repo_id} has no such branch ({status}); see https://huggingface.co/{repo_id}/tree/main"
    if isinstance(error, RepositoryNotFoundError):
        return f"there is no {repo_id} that your token may see ({status}); check the name, and whose token it is"
    words = {
        401: f"the Hub does not accept the token (401), it may be mistyped, revoked or expired: {LOG_IN}",
        403: f"your token may not write to {repo_id} (403): the owner must be you or your organisation; {LOG_IN}",
        404: f"the Hub does not know {repo_id} (404); check the name",
        409: f"something else is changing {repo_id} (409); wait a moment, then run the same command again",
        412: f"someone else changed {repo_id} meanwhile (412), nothing is committed; look at it, then run this again",
        429: f"the Hub asks for fewer requests (429); wait some minutes; {again}",
    }
    if status in words:
        return words[status]
    if status >= 500:
        return f"the Hub has a fault ({status}); {again}"
    return f"the Hub refuses ({status}): {one_line(error)}"
