"""The text that the suites work on."""

from itertools import islice
from pathlib import Path

from training.arguments import BenchArguments
from training.corpus import load_corpus
from training.errors import UserError
from training.tokenizer import train_tokenizer


def read_text(arguments: BenchArguments) -> list[str]:
    """The documents of --text, cleaned and each once."""
    corpus, _ = load_corpus([arguments.text], text_column=arguments.text_column)
    return corpus["text"][:]


def size_of(texts: list[str]) -> int:
    """Bytes in UTF-8."""
    return sum(len(text.encode("utf-8")) for text in texts)


def first_bytes(texts: list[str], size: int) -> list[str]:
    """As many of the first texts as have about `size` bytes in UTF-8; one at least."""
    total = 0
    for index, text in enumerate(texts):
        total += len(text.encode("utf-8"))
        if total >= size:
            return texts[: index + 1]
    return texts


def write_text(path: Path, texts: list[str]) -> Path:
    """A .txt file, a document a line."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{' '.join(text.splitlines())}\n" for text in texts)
    return path


def make_tokenizer(texts: list[str], vocab_size: int | None, folder: Path) -> tuple[Path | None, str]:
    """Train a tokenizer into `folder`; `None`, and why, if the text does not support so large a vocabulary."""
    try:
        tokenizer = train_tokenizer(texts, vocab_size, "words")
    except UserError as error:
        return None, str(error)
    tokenizer.save_pretrained(folder)
    return folder, ""


def sample(texts: list[str], number: int) -> list[str]:
    """`number` texts (or all) from all over a list."""
    step = max(1, len(texts) // number)
    return list(islice(texts[::step], number))
