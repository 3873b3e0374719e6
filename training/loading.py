"""Load models and tokenizers; whatever is damaged about them becomes a `UserError`."""

import typing
from contextlib import contextmanager

from training.errors import UserError


if typing.TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def one_line(error: Exception, limit: int = 300) -> str:
    """What an exception says, fit for an error line; its type where it says nothing but a key."""
    text = " ".join(str(error).split())
    return (text if " " in text else f"{type(error).__name__} {text}")[:limit]


@contextmanager
def loading(model: str):
    """What `from_pretrained` raises inside, on a damaged config or damaged weights, as a `UserError`."""
    from safetensors import SafetensorError

    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise UserError(f"--model {model} does not load: {one_line(error)}") from error


def load_tokenizer(model: str) -> "PreTrainedTokenizerBase":
    """The tokenizer of a model.

    Args:
        model: Folder or Hub id.

    Raises:
        UserError: If there is none, or it is damaged.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(model)
    except Exception as error:  # the tokenizers library raises bare Exception on a damaged file
        raise UserError(f"the tokenizer of --model {model} does not load: {one_line(error)}") from error
