"""The model card as it is uploaded: with the name of the repository and the hashes of the code in it."""

import hashlib
import re
from pathlib import Path

from huggingface_hub import ModelCardData

import hf_tinybert
from training.card import CARD_FILE, MODEL_ID, TAGS
from training.errors import UserError


CODE_FILES = ("configuration_tinybert.py", "modeling_tinybert.py")
HEADING = "## Code"


def published_card(folder: Path, repo_id: str) -> str:
    """The card of `folder`, for `repo_id`; a folder without one gets a short one.

    Publishing adds what only it knows, whoever wrote the card: where the model lies, and the sha256 of each code file.
    The folder itself is left as it is.

    Raises:
        UserError: If the card is not UTF-8.
    """
    path = folder / CARD_FILE
    try:
        text = path.read_bytes().decode("utf-8") if path.is_file() else _short_card(repo_id)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    text = re.sub(rf"\n{HEADING}\n.*?(?=\n## |\Z)", "", text, flags=re.DOTALL)  # of an earlier upload
    return f"{text.replace(MODEL_ID, repo_id).rstrip()}\n\n{_code_section(folder)}"


def _short_card(repo_id: str) -> str:
    data = ModelCardData(library_name="transformers", tags=TAGS)
    return (
        f"---\n{data}\n---\n\n# {repo_id.rpartition('/')[2]}\n\nA small BERT-style encoder, made with hf-tinybert.\n"
    )


def _code_section(folder: Path) -> str:
    hashes = [(name, hashlib.sha256((folder / name).read_bytes()).hexdigest()) for name in CODE_FILES]
    rows = "\n".join(f"| `{name}` | `{sha256}` |" for name, sha256 in hashes)
    return (
        f"{HEADING}\n\n"
        f"The code in this repository is that of hf-tinybert {hf_tinybert.__version__}, byte for byte. It imports the "
        "standard library, torch\nand transformers, and touches no file and no network. With `trust_remote_code=True` "
        "give `revision` the hash of\nthe commit that you looked at: later code is then never run.\n\n"
        f"| file | sha256 |\n| --- | --- |\n{rows}\n"
    )
