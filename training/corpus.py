"""Raw text to one `Dataset` with a `text` column: decoded, cleaned, without blanks and repeats, and split."""

import dataclasses
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa

from training import progress
from training.errors import UserError
from training.files import TextFile, expand_files, require_columns


MAX_HELD_OUT = 2_000  # documents; enough for a loss to three digits, and evaluation stays short
CHUNK_CHARACTERS = 1 << 20  # of Python strings held at a time while the Arrow table grows
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ufeff]")  # U+FEFF: byte order marks of files put together


@dataclass
class SourceReport:
    """What one file or dataset gave.

    Attributes:
        name: Name without its folder.
        encoding: What its bytes were decoded as; None where there was nothing to decode (Parquet, datasets).
        recognised: Whether the encoding was recognised rather than asked for.
        documents: Number of documents kept.
    """

    name: str
    encoding: str | None = None
    recognised: bool = False
    documents: int = 0


@dataclass
class CorpusReport:
    """What was read, kept and dropped.

    Attributes:
        files: The files, or the one dataset, in the order read.
        documents: Number of documents kept.
        characters: Number of characters in them.
        dropped: Number of documents left out, by reason.
        control_characters: Number of control characters taken out of documents or turned into spaces.
        fingerprint: Hash of the documents in their order.
    """

    files: list[SourceReport] = field(default_factory=list)
    documents: int = 0
    characters: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    control_characters: int = 0
    fingerprint: str = ""

    def lines(self) -> list[str]:
        """What to print, a line each."""
        sources = f"{len(self.files)} file{'' if len(self.files) == 1 else 's'}"
        if len(self.files) == 1:
            sources = self.files[0].name
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items() if count)
        lines = [
            f"read {sources}: {self.documents:,} documents, {self.characters:,} characters",
            f"dropped: {dropped or 'nothing'}",
        ]
        if self.control_characters:
            lines.append(f"taken out or made a space: {self.control_characters:,} control characters")
        lines += [
            f"{source.name} was recognised as {source.encoding}; --encoding names another"
            for source in self.files
            if source.recognised and source.encoding != "utf-8"
        ]
        return lines

    def to_dict(self) -> dict:
        """The report as JSON values, without folders."""
        return dataclasses.asdict(self)


def clean_text(text: str) -> tuple[str, int]:
    """A document as the corpus keeps it: no control characters, no white space around it.

    Control characters that are white space (tab, newline, ...) become a space, the others go. Nothing else is changed:
    normalising Unicode is the tokenizer's part.

    Returns:
        The text, and the number of control characters inside it that were changed.
    """
    text = text.strip()
    if not CONTROL.search(text):
        return text, 0
    text, count = CONTROL.subn(lambda match: " " if match[0].isspace() else "", text.replace("\r\n", "\n"))
    return text.strip(), count


class _Corpus:
    """Collects documents into Arrow chunks; repeats are known by their digests, so that no text is held twice."""

    def __init__(self):
        self.report = CorpusReport(dropped={"blank": 0, "without a value": 0, "exact duplicates": 0})
        self._seen: set[bytes] = set()
        self._fingerprint = hashlib.blake2b(digest_size=16)
        self._chunks: list[pa.Array] = []
        self._pending: list[str] = []
        self._pending_characters = 0

    def add(self, source: SourceReport, documents: Iterable[tuple[int, str | None]]):
        """Take in the documents of one source."""
        report, dropped = self.report, self.report.dropped
        report.files.append(source)
        for _, raw in documents:
            if raw is None:
                dropped["without a value"] += 1
                continue
            text, control_characters = clean_text(raw)
            report.control_characters += control_characters
            if not text:
                dropped["blank"] += 1
                continue
            digest = hashlib.blake2b(text.encode("utf-8"), digest_size=16).digest()
            if digest in self._seen:
                dropped["exact duplicates"] += 1
                continue
            self._seen.add(digest)
            self._fingerprint.update(digest)
            source.documents += 1
            self._keep(text)

    def _keep(self, text: str):
        self.report.documents += 1
        self.report.characters += len(text)
        self._pending.append(text)
        self._pending_characters += len(text)
        if self._pending_characters >= CHUNK_CHARACTERS:
            self._flush()

    def _flush(self):
        self._chunks.append(pa.array(self._pending, pa.string()))
        self._pending, self._pending_characters = [], 0

    def finish(self) -> tuple[datasets.Dataset, CorpusReport]:
        """The dataset, in memory, and the report."""
        self._flush()
        self.report.fingerprint = self._fingerprint.hexdigest()
        # Fingerprinted by content: `map` may cache under it, and a changed file must not find old results.
        dataset = datasets.Dataset(
            pa.table({"text": pa.chunked_array(self._chunks, pa.string())}), fingerprint=self.report.fingerprint
        )
        return dataset, self.report


def _load_dataset(name: str) -> datasets.Dataset:
    """The training split of a dataset from the Hub, or from a folder (made by `save_to_disk`, or of data files)."""
    folder = Path(name)
    if folder.is_file():
        raise UserError(f"--dataset {name} is a file; give it as --train_files")
    try:
        saved = any((folder / marker).is_file() for marker in ("dataset_dict.json", "state.json"))
        with _only_our_words():
            loaded = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, split="train")
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"cannot load the dataset {name}: {reason}; give a Hub id, or a folder of data") from error
    if isinstance(loaded, datasets.DatasetDict):
        if "train" not in loaded:
            raise UserError(f"the dataset {name} has no split 'train'; it has {', '.join(loaded)}")
        return loaded["train"]
    return loaded


@contextmanager
def _only_our_words():
    """Neither bars of progress nor notes from datasets: what goes wrong is told once, by us."""
    verbosity = datasets.logging.get_verbosity()
    progress.library_bars_off()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(verbosity)


def _dataset_documents(name: str, dataset: datasets.Dataset, column: str) -> Iterator[tuple[int, str | None]]:
    row = 0
    for batch in dataset.with_format(None).select_columns([column]).iter(batch_size=1000):
        for value in batch[column]:
            row += 1
            if value is not None and not isinstance(value, str):
                kind = type(value).__name__
                raise UserError(f"dataset {name} row {row}: column {column!r} holds {kind} in place of text")
            yield row, value


def _first(documents: Iterable[tuple[int, str | None]], characters: int) -> Iterator[tuple[int, str | None]]:
    """Documents until they have so many characters together; at least one."""
    for number, text in documents:
        yield number, text
        characters -= len(text or "")
        if characters <= 0:
            return


def load_corpus(
    train_files: Collection[str] | None = None,
    dataset: str | None = None,
    text_column: str = "text",
    encoding: str | None = None,
    characters: int | None = None,
) -> tuple[datasets.Dataset, CorpusReport]:
    """Read raw text: each document once, cleaned by `clean_text`, in the order of the files.

    Args:
        train_files: Files or globs. None or empty: `dataset` is read.
        dataset: Id on the Hub or a folder; its split `train` is read. None: `train_files` are read.
        text_column: Column of the text in tables and datasets.
        encoding: Encoding of the text files. None: recognised, file by file.
        characters: About how many to read, from the beginnings of all files alike. None: all. Not for a `dataset`.

    Returns:
        A dataset in memory with the one column `text`, and what was read and dropped.

    Raises:
        UserError: If neither or both sources are given, one cannot be read, or no text is left.
    """
    if bool(train_files) == bool(dataset):
        raise UserError("give either --train_files or --dataset" + (", not both" if dataset else ""))
    if dataset and encoding:
        raise UserError("--encoding is for --train_files; a dataset knows its own, leave it out")
    corpus = _Corpus()
    with progress.step("reading", "documents") as step:
        if dataset:
            loaded = _load_dataset(dataset)
            require_columns(f"dataset {dataset}", [text_column], loaded.column_names)
            name = Path(dataset).name if Path(dataset).exists() else dataset
            corpus.add(SourceReport(name), step.over(_dataset_documents(dataset, loaded, text_column)))
        else:
            # Every file is opened, recognised and its header checked before the first is read in earnest.
            files = [TextFile(path, encoding) for path in expand_files(train_files)]
            for file in files:
                file.documents(text_column)
            for file in files:
                recognised = encoding is None and file.encoding is not None
                source = SourceReport(file.path.name, file.encoding, recognised)
                documents = file.documents(text_column)
                if characters is not None:
                    documents = _first(documents, characters // len(files))
                corpus.add(source, step.over(documents))
    result, report = corpus.finish()
    if not report.documents:
        raise UserError(f"no text left in {dataset or ', '.join(train_files)}; {report.lines()[1]}")
    return result, report


def _hashes(dataset: datasets.Dataset, seed: int) -> np.ndarray:
    """A 64-bit hash (documents,) of seed and text."""
    key = str(seed).encode("ascii")
    return np.fromiter(
        (
            int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8, key=key).digest(), "big")
            for batch in dataset.with_format(None).select_columns(["text"]).iter(batch_size=1000)
            for text in batch["text"]
        ),
        dtype=np.uint64,
        count=len(dataset),
    )


def split_corpus(
    dataset: datasets.Dataset, held_out_share: float = 0.01, seed: int = 0, max_held_out: int = MAX_HELD_OUT
) -> datasets.DatasetDict:
    """Split off documents to evaluate on, chosen by a hash of seed and text.

    Where a document goes hangs on the document alone, not on its neighbours or their order, unless a limit bites.
    Equal texts go to one side.

    Args:
        dataset: Documents in a column `text`.
        held_out_share: Share of the documents to hold out, on average; between 0 and 1.
        seed: Another seed holds out others.
        max_held_out: The most different documents held out: those with the lowest hashes.

    Returns:
        `train` and `held_out`, each with at least one document, in the order of `dataset`.

    Raises:
        UserError: If there are fewer than two different documents, or the share is not between 0 and 1.
    """
    if not 0 < held_out_share < 1:
        raise UserError(f"the share held out must lie between 0 and 1, not {held_out_share}")
    hashes = _hashes(dataset, seed)
    different = np.unique(hashes)
    if len(different) < 2:
        raise UserError(
            f"{len(different)} different documents cannot be split in two, to train and to evaluate on; give more "
            "text, or break it up (in a .txt each line is a document)"
        )
    below = int(np.searchsorted(different, np.uint64(held_out_share * 2.0**64)))
    count = min(max(below, 1), len(different) - 1, max_held_out)
    held_out = hashes < different[count]
    return datasets.DatasetDict(
        train=dataset.select(np.flatnonzero(~held_out)), held_out=dataset.select(np.flatnonzero(held_out))
    )
