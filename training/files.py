"""The layer that decodes text files: what a file holds, as rows or documents with the line each came from.

Encodings are recognised here, lines are split here, and every way in which a file can be broken becomes a `UserError`;
the parsers behind it are `csv`, `json` and `pyarrow.parquet`. A file is read twice, once to learn its encoding and to
see that all of it can be decoded, once for its content, so that a fault near its end shows before any long work.
"""

import codecs
import csv
import difflib
import glob
import gzip
import io
import itertools
import json
import logging
import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from training.errors import UserError


logger = logging.getLogger(__name__)

DOCUMENT_KINDS = (".txt",)
TABLE_KINDS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
ALLOWED = ".txt, .csv, .tsv, .json, .jsonl (each also with .gz) or .parquet"

CHUNK_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
CSV_FIELD_LIMIT = 1 << 24  # characters; the csv module's own 131,072 is less than a long article

BYTE_ORDER_MARKS = (  # UTF-32 first: its little-endian mark begins with that of UTF-16
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    ("\ufeff".encode("gb18030"), "gb18030"),
)
BINARY_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"PAR1", "Parquet"),
    (b"PK\x03\x04", "zip"),
    (b"\x89PNG\r\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF89a", "GIF"),
    (b"%PDF-", "PDF"),
    (b"7z\xbc\xaf", "7-Zip"),
    (b"\xfd7zXZ", "xz"),
    (b"\x28\xb5\x2f\xfd", "Zstandard"),
    (b"Rar!\x1a", "RAR"),
    (b"\xd0\xcf\x11\xe0", "old Office"),
    (b"\x7fELF", "program"),
    (b"ARROW1", "Arrow"),
)

# Real GB18030 text is not valid UTF-8 for long: a file with this many good characters beyond ASCII is damaged UTF-8.
DAMAGED_UTF8_AFTER = 8
# Frequent characters that simplified and traditional Chinese write alike: they tell GB18030 from what decodes as it.
FREQUENT = frozenset("的一是不在人有我他大中了上以也好就可")
FREQUENT_ELSEWHERE = {
    "big5": FREQUENT,
    "shift_jis": frozenset("のはをにがたでとし"),
    "euc_kr": frozenset("이다는에을하고의지"),
}
# Lines of GB18030 that are valid UTF-8 by chance ("谢谢") are of characters that UTF-8 writes in two bytes. Among 2.8
# million runs of 2 to 8 ideographs in reviews none has this many of three bytes, as Chinese in UTF-8 has.
UTF8_BY_CHANCE = 4
# What fills a text in UTF-16, for telling its byte order: ASCII, punctuation, kana, ideographs, hangul, full width.
USUAL = re.compile("[\t\n\r -~\u2010-\u2027\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]")
JSON_SPACE = re.compile(r"[ \t\n\r]*")


class Scan(NamedTuple):
    """What one pass over the bytes of a file found under one encoding."""

    newline: str  # where lines end: "\n" (a "\r" before it belongs to the end), or "\r" where there is no "\n" at all
    nul_line: int | None  # line of the first NUL character
    failed_byte: int | None  # offset of the first byte that cannot be decoded
    failed_line: int
    foreign: int  # characters beyond ASCII before it


@contextmanager
def _reading(path: Path):
    """The bytes of a file, decompressed; whatever the system or gzip complains about becomes a `UserError`."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb") as stream:
            yield stream
    except FileNotFoundError:
        raise UserError(f"no such file: {path}") from None
    except gzip.BadGzipFile as error:
        raise UserError(f"{path} is not gzip, or is damaged ({error}); compress it again or drop .gz") from error
    except (EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged or cut off: its gzip data breaks off; fetch it again") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def kind_of(path: str | Path) -> str:
    """The suffix that says how to read a file: in lower case, without `.gz`.

    Raises:
        UserError: If it is none that can be read.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    zipped = suffixes[-1:] == [".gz"]
    kind = "".join((suffixes[:-1] if zipped else suffixes)[-1:])
    if kind not in DOCUMENT_KINDS + TABLE_KINDS or (zipped and kind == ".parquet"):
        raise UserError(f"{path}: unknown kind of file {''.join(suffixes[-2:])!r}; use {ALLOWED}")
    return kind


def _check_encoding_name(encoding: str):
    try:
        b" ".decode(encoding, "ignore")  # of nothing at all, any name is said to be fine
    except (LookupError, ValueError):
        raise UserError(f"unknown encoding {encoding!r}; use for example utf-8, gb18030, utf-16, big5") from None


def _with_byte_order(encoding: str, head: bytes) -> str:
    """The encoding asked for, with a byte order where it leaves that to a mark that the file lacks."""
    name = codecs.lookup(encoding).name
    marked = any(name == encoding_of_mark and head.startswith(mark) for mark, encoding_of_mark in BYTE_ORDER_MARKS)
    if name not in ("utf-16", "utf-32") or marked:
        return encoding
    return (_guess_utf16(head) if name == "utf-16" else None) or f"{name}-le"


def _decode_scan(path: Path, encoding: str) -> Scan:
    """Decode the whole file once, keeping nothing."""
    decoder = codecs.getincrementaldecoder(encoding)()
    consumed, lines, foreign = 0, 0, 0
    has_return, nul_line, failed_byte = False, None, None
    with _reading(path) as stream:
        while failed_byte is None:
            chunk = stream.read(CHUNK_BYTES)
            pending = len(decoder.getstate()[0])
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                failed_byte = consumed - pending + error.start
                text = error.object[: error.start].decode(encoding, "ignore")
            if nul_line is None and "\0" in text:
                nul_line = lines + 1 + text.count("\n", 0, text.index("\0"))
            consumed += len(chunk)
            lines += text.count("\n")
            foreign += len(text) - len(text.encode("ascii", "ignore"))
            has_return = has_return or "\r" in text
            if not chunk:
                break
    return Scan("\r" if has_return and not lines else "\n", nul_line, failed_byte, lines + 1, foreign)


def _guess_utf16(head: bytes) -> str | None:
    """The byte order of UTF-16 without a mark; None where the bytes read like text in neither order."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        pass
    else:  # pairs of ASCII letters read like ideographs; but ASCII in UTF-16 is half NUL
        if head.count(0) < 0.3 * len(head):
            return None

    def usual_share(encoding: str) -> float:
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            return 0.0
        return len(USUAL.findall(text)) / max(len(text), 1)

    best = max(("utf-16-le", "utf-16-be"), key=usual_share)
    return best if usual_share(best) > 0.9 else None


def _doubt_gb18030(head: bytes) -> str | None:
    """Why bytes that decode as GB18030 are likely something else; None if they may well be Chinese."""
    text = codecs.getincrementaldecoder("gb18030")().decode(head)
    pairs = [pair for pair in (char.encode("gb18030") for char in text if char > "\x7f") if len(pair) == 2]
    # GB2312, the bulk of any text, has second bytes above 0xA0; accented letters of Latin-1 stand before ASCII ones.
    if len(pairs) >= 8 and sum(pair[1] < 0x80 for pair in pairs) > 0.6 * len(pairs):
        return "latin-1 or another western encoding"
    frequent = sum(char in FREQUENT for char in text)
    for encoding, characters in FREQUENT_ELSEWHERE.items():
        try:
            guess = codecs.getincrementaldecoder(encoding)().decode(head)
        except UnicodeDecodeError:
            continue
        if sum(char in characters for char in guess) > frequent + 2:
            return encoding
    return None


def _check_unmixed(path: Path):
    """Raise a `UserError` if a line of GB18030 text is UTF-8, which most often decodes as GB18030 too, to rubbish."""
    with _reading(path) as stream:
        offset = 0
        for number, line in enumerate(stream, start=1):
            if not line.isascii():
                try:
                    long = sum(char > "\u07ff" for char in line.decode("utf-8"))
                except UnicodeDecodeError:
                    long = 0
                if long >= UTF8_BY_CHANCE:
                    raise UserError(
                        f"{path}:{number}: this line, from byte {offset} on, is utf-8, others are gb18030; "
                        "bring the file into one encoding, or name that with --encoding"
                    )
            offset += len(line)


def _damage(path: Path, encoding: str, scan: Scan) -> str:
    return f"{path}:{scan.failed_line}: byte {scan.failed_byte} is not valid {encoding}"


def _recognise(path: Path, head: bytes) -> tuple[str, Scan]:
    """The encoding of a file: its byte order mark, else UTF-16, UTF-8 or GB18030, whichever it is valid in."""
    marked = next((encoding for mark, encoding in BYTE_ORDER_MARKS if head.startswith(mark)), None)
    encoding = marked or (_guess_utf16(head) if b"\0" in head else "utf-8")
    if encoding is None:
        at = head.index(0)
        raise UserError(
            f"{path}:{head.count(10, 0, at) + 1}: looks binary: byte {at} is NUL; if it is text, name its encoding "
            "with --encoding"
        )
    scan = _decode_scan(path, encoding)
    if scan.failed_byte is None:
        if encoding == "utf-8" and scan.nul_line:
            raise UserError(f"{path}:{scan.nul_line}: looks binary: NUL bytes; if it is text, add --encoding utf-8")
        return encoding, scan
    if marked or encoding != "utf-8" or scan.foreign >= DAMAGED_UTF8_AFTER:
        raise UserError(f"{_damage(path, encoding, scan)}; mend the file or name its encoding with --encoding")
    chinese = _decode_scan(path, "gb18030")
    if chinese.failed_byte is not None:
        raise UserError(
            f"{_damage(path, 'utf-8', scan)}, and byte {chinese.failed_byte} (line {chinese.failed_line}) not valid "
            "gb18030; name the encoding with --encoding"
        )
    if chinese.nul_line:
        raise UserError(f"{path}:{chinese.nul_line}: looks binary: NUL bytes; if it is text, add --encoding gb18030")
    doubt = _doubt_gb18030(head)
    if doubt:
        raise UserError(f"{path} is not utf-8, and may be {doubt}; name its encoding with --encoding")
    _check_unmixed(path)
    return "gb18030", chinese


def require_columns(path: str | Path, wanted: Iterable[str], found: Collection[str], line: int | None = None):
    """Check that a table has the columns asked for.

    Args:
        path: The table, for the message.
        wanted: Names that must be there.
        found: Names that are there.
        line: Where the row that lacks them stands; None if the whole table does.

    Raises:
        UserError: If one is missing; it names the columns found and the nearest of them.
    """
    for name in wanted:
        if name not in found:
            folded = {str(column).casefold(): column for column in found}
            near = difflib.get_close_matches(name.casefold(), folded, n=1)
            hint = f" (did you mean {folded[near[0]]!r}?)" if near else ""
            shown = ", ".join(repr(str(column)[:40]) for column in list(found)[:20]) or "no columns"
            place = path if line is None else f"{path}:{line}"
            raise UserError(f"{place} has no column {name!r}{hint}; it has {shown}{_separator_hint(path, found)}")


def _separator_hint(path: str | Path, found: Collection[str]) -> str:
    """What to do about a header that is one column because it is separated otherwise than its suffix says."""
    suffixes, only = Path(path).suffixes, next(iter(found), "")
    if len(found) == 1 and ".tsv" in suffixes and "," in only:
        return "; it is separated by commas: call it .csv"
    if len(found) == 1 and ".csv" in suffixes and "\t" in only:
        return "; it is separated by tabs: call it .tsv"
    if len(found) == 1 and ".csv" in suffixes and ";" in only:
        return "; it is separated by semicolons: separate it by commas"
    return ""


class TextFile:
    """One file of text, opened, checked and recognised.

    Args:
        path: A file whose suffix says what it is: .txt, .csv, .tsv, .json or .jsonl (each also .gz), or .parquet.
        encoding: Encoding of its bytes. None: recognised.

    Attributes:
        encoding: The encoding that it is read with; None for Parquet.

    Raises:
        UserError: If it is missing, a folder, empty, unreadable, binary, damaged or of unknown kind.
    """

    def __init__(self, path: str | Path, encoding: str | None = None):
        self.path = Path(path)
        if encoding is not None:
            _check_encoding_name(encoding)
        if self.path.is_dir():
            raise UserError(f"{path} is a folder; name the files in it, for example '{self.path / '*.txt'}'")
        if self.path.exists() and not self.path.is_file():
            raise UserError(f"{path} is no regular file (it is read twice); write its content to a file first")
        with _reading(self.path) as stream:
            head = stream.read(HEAD_BYTES)
        self.kind = kind_of(self.path)
        if not head or head in [mark for mark, _ in BYTE_ORDER_MARKS]:
            raise UserError(f"{path} is empty")
        if self.kind == ".parquet":
            self.encoding = None
            return
        magic = next((name for magic, name in BINARY_MAGIC if head.startswith(magic)), None)
        if magic:
            raise UserError(f"{path} looks binary ({magic}); give it the name of what it is, or name a text file")
        if encoding is None:
            self.encoding, scan = _recognise(self.path, head)
        else:
            self.encoding = _with_byte_order(encoding, head)
            scan = _decode_scan(self.path, self.encoding)
            if scan.failed_byte is not None:
                raise UserError(f"{_damage(self.path, encoding, scan)}; leave --encoding out to have it recognised")
        self._newline = scan.newline

    def where(self, number: int) -> str:
        """How a message points at line (for Parquet: row) `number`."""
        return f"{self.path} row {number}" if self.kind == ".parquet" else f"{self.path}:{number}"

    def _lines(self, newline: str | None = None) -> Iterator[str]:
        """Lines with their ends; they end at newlines only, never at U+2028 and its kin as `str.splitlines` has it."""
        with _reading(self.path) as raw, io.TextIOWrapper(raw, encoding=self.encoding, newline=newline) as stream:
            first = next(stream, "").removeprefix("\ufeff")
            yield from itertools.chain([first] if first else [], stream)

    def _numbered(self) -> Iterator[tuple[int, str]]:
        """Lines with their numbers, from 1, without their ends."""
        for number, line in enumerate(self._lines(self._newline), start=1):
            yield number, line.removesuffix(self._newline).removesuffix("\r")

    def documents(self, text_column: str) -> Iterator[tuple[int, str | None]]:
        """Documents with their line (for Parquet: row) numbers, from 1.

        Args:
            text_column: Column of a table that holds the text; a .txt has a document a line.

        Returns:
            Pairs of number and text; the text is None where a table has no value.

        Raises:
            UserError: At once if a table lacks the column or has no rows; later at a broken row or one without text.
        """
        return self._numbered() if self.kind in DOCUMENT_KINDS else self._column(text_column, self.rows([text_column]))

    def _column(self, name: str, rows: Iterable[tuple[int, dict]]) -> Iterator[tuple[int, str | None]]:
        for number, row in rows:
            value = row[name]
            if value is not None and not isinstance(value, str):
                kind = type(value).__name__
                raise UserError(f"{self.where(number)}: column {name!r} holds {kind} in place of text; name another")
            yield number, value

    def rows(self, columns: Collection[str] = ()) -> Iterator[tuple[int, dict]]:
        """Rows of a table with their line (for Parquet: row) numbers, from 1.

        Args:
            columns: Names that must be there. Parquet reads only these, unless there are none.

        Returns:
            Pairs of number and row; values are text in .csv and .tsv, and what they are in the other kinds. Half a
            surrogate pair, which JSON can escape but no tokenizer can take, is U+FFFD.

        Raises:
            UserError: At once if the file is no table, lacks a column or has no rows; later at a broken row.
        """
        readers = {".csv": self._csv, ".tsv": self._tsv, ".json": self._json, ".jsonl": self._json}
        if self.kind in DOCUMENT_KINDS:
            raise UserError(f"{self.path} is no table; use .csv, .tsv, .json(l) or .parquet")
        rows = readers.get(self.kind, self._parquet)(columns)
        first = next(rows, None)
        if first is None:
            raise UserError(f"{self.path} has no rows")
        return itertools.chain([first], rows)

    def _header(self, header: list[str], columns: Collection[str]) -> list[str]:
        repeated = next((name for name in header if header.count(name) > 1), None)
        if repeated is not None:
            raise UserError(f"{self.path}: two columns are called {repeated!r}; rename one")
        require_columns(self.path, columns, header)
        return header

    def _zip(self, header: list[str], number: int, cells: list[str]) -> tuple[int, dict]:
        if [cells[0].removeprefix("\ufeff"), *cells[1:]] == header and len(header) > 1:
            raise UserError(f"{self.where(number)}: the header comes a second time; remove this line")
        if len(cells) != len(header):
            raise UserError(
                f"{self.where(number)}: the row has {len(cells)} columns, the header {len(header)}; "
                + ("mend the row" if self.kind == ".csv" else "no cell of a .tsv may hold a tab or a newline")
            )
        return number, dict(zip(header, cells, strict=True))

    def _tsv(self, columns: Collection[str]) -> Iterator[tuple[int, dict]]:
        # Not csv: without quoting there is nothing to parse, and a lone quote is a character like any other.
        header = None
        for number, line in self._numbered():
            cells = line.split("\t")
            if header is None:
                header = self._header(cells, columns)
            elif line or len(header) == 1:  # an empty line is no row, except where a row is one cell
                yield self._zip(header, number, cells)

    def _csv(self, columns: Collection[str]) -> Iterator[tuple[int, dict]]:
        csv.field_size_limit(max(CSV_FIELD_LIMIT, csv.field_size_limit()))
        header, start = None, 1
        with closing(self._lines(newline="")) as lines:
            # strict: a quote without its partner is an error, where csv would else swallow the rows that follow
            reader = csv.reader(lines, strict=True)
            try:
                for cells in reader:
                    if header is None:
                        header = self._header(cells, columns)
                    elif cells or len(header) == 1:
                        yield self._zip(header, start, cells or [""])
                    start = reader.line_num + 1
            except csv.Error as error:
                raise UserError(
                    f"{self.where(start)}: a row begins here that is not valid CSV ({error}); look for a lone quote"
                ) from error

    def json_object(self) -> dict | None:
        """The one JSON object that fills the file; `None` where it is of another kind, an array, or an object a line.

        Raises:
            UserError: If the JSON is broken.
        """
        if self.kind not in (".json", ".jsonl"):
            return None
        text = "".join(self._lines())
        start = JSON_SPACE.match(text).end()
        if not text.startswith("{", start):
            return None
        with self._valid_json():
            value, end = json.JSONDecoder(object_hook=_whole_object).raw_decode(text, start)
        return value if JSON_SPACE.match(text, end).end() == len(text) else None

    def _json(self, columns: Collection[str]) -> Iterator[tuple[int, dict]]:
        """Objects of one array, or one a line, whatever the suffix."""
        opening = next((line.lstrip()[0] for _, line in self._numbered() if line.strip()), "")
        for number, value in self._json_array() if opening == "[" else self._json_lines():
            if not isinstance(value, dict):
                raise UserError(f"{self.where(number)}: a row must be a JSON object, not {type(value).__name__}")
            require_columns(self.path, columns, value, line=number)
            yield number, _whole_object(value)

    @contextmanager
    def _valid_json(self, first_line: int = 1, value_line: int | None = None):
        """Faults of the JSON parsed inside, which begins at `first_line` of the file, as a `UserError`.

        Args:
            value_line: Where the value begins that is parsed. None: at `first_line`.
        """
        value_line = value_line or first_line
        try:
            yield
        except json.JSONDecodeError as error:
            raise UserError(
                f"{self.where(first_line + error.lineno - 1)}: not valid JSON ({error.msg}, column {error.colno}); "
                "use one array of objects, or one object a line"
            ) from error
        except RecursionError as error:
            raise UserError(f"{self.where(value_line)}: JSON nested too deeply from this line on") from error
        except ValueError as error:  # a number of more digits than Python reads; a key that comes twice
            reason = str(error).partition("; use sys.")[0]  # advice for programmers
            raise UserError(f"{self.where(value_line)}: {reason}") from error

    def _json_lines(self) -> Iterator[tuple[int, object]]:
        for number, line in self._numbered():
            if line.strip():
                with self._valid_json(number):
                    value = json.loads(line, object_pairs_hook=_unrepeated)
                yield number, value

    def _json_array(self) -> Iterator[tuple[int, object]]:
        """Elements of the array with the lines they begin at. The text is held whole, the objects are not."""
        text = "".join(self._lines(newline=""))
        decoder, line, counted = json.JSONDecoder(object_pairs_hook=_unrepeated), 1, 0
        at = JSON_SPACE.match(text, text.index("[") + 1).end()
        while not text.startswith("]", at):
            line, counted = line + text.count("\n", counted, at), at
            with self._valid_json(value_line=line):
                value, end = decoder.raw_decode(text, at)
                at = JSON_SPACE.match(text, end).end()
                if text.startswith(",", at):
                    at = JSON_SPACE.match(text, at + 1).end()
                elif not text.startswith("]", at):
                    raise json.JSONDecodeError("a ',' or ']' is missing", text, at)
            yield line, value
        with self._valid_json():
            end = JSON_SPACE.match(text, at + 1).end()
            if end != len(text):
                raise json.JSONDecodeError("more after the array", text, end)

    def _parquet(self, columns: Collection[str]) -> Iterator[tuple[int, dict]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        number = 0
        try:
            with _reading(self.path) as raw, pq.ParquetFile(raw) as table:
                self._header(table.schema_arrow.names, columns)
                for batch in table.iter_batches(batch_size=1000, columns=list(columns) or None):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise UserError(
                f"{self.path} is no Parquet file, or is damaged after row {number} ({' '.join(str(error).split())})"
            ) from error


def _unrepeated(pairs: list[tuple[str, object]]) -> dict:
    """A JSON object; `json` by itself would keep the last of two values of one key."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the key {twice!r} twice; remove one")
    return value


def _whole(value):
    """A text, or a list of them, without halves of surrogate pairs; any other value as it is."""
    if isinstance(value, list):
        return [_whole(part) for part in value]
    if not isinstance(value, str):
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return value


def _whole_object(value: dict) -> dict:
    return {_whole(name): _whole(cell) for name, cell in value.items()}


def read_rows(
    path: str | Path, encoding: str | None = None, columns: Collection[str] = ()
) -> Iterator[tuple[int, dict]]:
    """Rows of a table with their line numbers: `TextFile(path, encoding).rows(columns)`."""
    return TextFile(path, encoding).rows(columns)


def read_documents(
    path: str | Path, text_column: str = "text", encoding: str | None = None
) -> Iterator[tuple[int, str | None]]:
    """Documents of a file with their line numbers: `TextFile(path, encoding).documents(text_column)`."""
    return TextFile(path, encoding).documents(text_column)


def _glob(path: Path) -> Iterator[Path]:
    """What a pattern matches, hidden names only where it asks for them.

    `**` follows no links to folders (those of `glob.glob` do, and never end where two links lead upwards).
    """
    folder = next(parent for parent in path.parents if parent.is_dir())  # also one whose name holds brackets
    pattern = path.relative_to(folder)
    try:
        for match in folder.glob(str(pattern)):
            hidden = any(part.startswith(".") for part in match.relative_to(folder).parts)
            if not hidden or any(part.startswith(".") for part in pattern.parts):
                yield match
    except ValueError as error:
        raise UserError(f"{path}: {error}; ** stands for folders, between slashes") from error


def _matches(pattern: str) -> list[Path]:
    path = Path(os.path.expanduser(pattern))
    try:
        if path.is_dir():
            raise UserError(f"{pattern} is a folder; name the files in it, for example '{path / '*.txt'}'")
        if path.exists():  # also a name that holds brackets
            return [path]
        if path.is_symlink():
            raise UserError(f"{pattern} is a link that leads to no file")
        found = [match for match in sorted(_glob(path), key=str) if match.is_file()]
    except OSError as error:
        raise UserError(f"cannot read {pattern}: {error.strerror}") from error
    if not found:
        what = f"no file matches {pattern}" if glob.has_magic(pattern) else f"no such file: {pattern}"
        raise UserError(f"{what}; relative names count from the current folder")
    return found


def expand_files(patterns: Iterable[str]) -> list[Path]:
    """The files that names and globs (`**` included) stand for: in the order given, each glob sorted, each file once.

    A file that comes up twice is logged.

    Raises:
        UserError: If one matches no file, is a folder, or is of a kind that cannot be read.
    """
    files: dict[tuple[int, int], Path] = {}
    for path in itertools.chain.from_iterable(map(_matches, patterns)):
        kind_of(path)
        status = path.stat()
        first = files.setdefault((status.st_dev, status.st_ino), path)
        if first is not path:
            logger.warning("%s is named twice (first as %s); it is read once", path, first)
    return list(files.values())
