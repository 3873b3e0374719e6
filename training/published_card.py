"""The model card as it is uploaded: with the name of the repository and the hashes of the code in it."""

import hashlib
import re
from pathlib import Path

import hf_tinybert
from training.card_metadata import MODEL_ID
from training.errors import UserError
from training.folder_checks import CODE
from training.run_folder import CARD_FILE


HEADING = "## The code in this repository"


def published_card(folder: Path, repo_id: str) -> str:
    """The card of `folder`, for `repo_id`.

    Publishing adds what only it knows, whoever wrote the card: where the model lies, and the sha256 of each code file.
    The folder itself is left as it is.

    Raises:
        UserError: If the card is not UTF-8.
    """
    path = folder / CARD_FILE
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    text = re.sub(rf"\n{HEADING}\n.*?(?=\n## |\Z)", "", text, flags=re.DOTALL)  # of an earlier upload
    return f"{text.replace(MODEL_ID, repo_id).rstrip()}\n\n{_code_section(folder)}"


def _code_section(folder: Path) -> str:
    hashes = [(name, hashlib.sha256((folder / name).read_bytes()).hexdigest()) for name in CODE]
    rows = "\n".join(f"| `{name}` | `{sha256}` |" for name, sha256 in hashes)
    return (
        f"{HEADING}\n\n"
        f"It is that of hf-tinybert {hf_tinybert.__version__}, byte for byte. It imports the standard library, torch "
        "and transformers,\nand touches no file and no network. With `trust_remote_code=True` give `revision` the "
        "hash of the commit that you\nlooked at: later code is then never run.\n\n"
        f"| file | sha256 |\n| --- | --- |\n{rows}\n"
    )
