"""Find what a published folder must not hold: paths of the machine it was made on, and secrets."""

import json
import re
from dataclasses import dataclass
from pathlib import Path


# Where people keep files. A domain before the slash makes it an address, so nothing wordlike may stand there.
_START = rb"(?<![\w.\-])"
_TOP_FOLDERS = rb"home|Users|tmp|var/folders|mnt|media|scratch|workspace|Volumes|data|opt|srv|content/drive"
PATHS = re.compile(
    _START + rb"(?:/(?:" + _TOP_FOLDERS + rb")/[\w.\-\x80-\xff]+|/root(?![\w.\-])|[A-Za-z]:\\{1,2}Users\\{1,2}[\w.\-])"
)
# Exporters of ONNX write where each operation was called.
STACK_TRACE = re.compile(rb'File "(?:/|[A-Za-z]:\\{1,2})[^"\n]{1,200}"')
# Told by the prefix that each service gives its secrets.
SECRETS = {
    "Hugging Face token": rb"\b(?:hf|api_org)_[A-Za-z0-9]{20,}",
    "GitHub token": rb"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{22,})",
    "API key": rb"(?<![\w\-])sk-[\w\-]{20,}",
    "AWS key": rb"\bAKIA[0-9A-Z]{16}\b",
    "Google key": rb"\bAIza[\w\-]{35}",
    "Slack token": rb"\bxox[abeoprs]-[\w\-]{10,}",
    "private key": rb"-----BEGIN [A-Z ]*PRIVATE KEY-----",
}
SHOWN = 60  # bytes of a path; of a secret only SHOWN_SECRET, since reports get published too
SHOWN_SECRET = 8


@dataclass(frozen=True)
class Finding:
    """Something private in a file; `line` counts from 1."""

    file: str
    line: int
    what: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.what} {self.excerpt}"


def find_private(folder: str | Path) -> list[Finding]:
    """Absolute paths of a machine, and secrets, in any file below a folder; hidden and binary ones too.

    Of `.safetensors` only the header is read: the rest are numbers. An exported `.onnx` is read to its end, since
    exporters write stack traces into it.

    Args:
        folder: Where it lies counts as private as well, and so do this project's folder and the user's.

    Returns:
        One for each place, in the order of the files.

    Raises:
        NotADirectoryError: If there is no such folder, which would otherwise look clean.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise NotADirectoryError(folder)
    patterns = [("absolute path", pattern, SHOWN) for pattern in (STACK_TRACE, PATHS, _places(folder))]
    patterns += [(what, re.compile(pattern), SHOWN_SECRET) for what, pattern in SECRETS.items()]
    findings: dict[tuple[str, int], Finding] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content, name = _content(path), path.relative_to(folder).as_posix()
        for what, pattern, shown in patterns:
            for match in pattern.finditer(content):
                line = content.count(b"\n", 0, match.start()) + 1
                findings.setdefault((name, match.start()), Finding(name, line, what, _excerpt(match, shown)))
    return [findings[place] for place in sorted(findings)]


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        if path.suffix == ".safetensors":
            return file.read(int.from_bytes(file.read(8), "little"))
        return file.read()


def _places(folder: Path) -> re.Pattern[bytes]:
    """Where `folder`, the user and this project are at home, as written plainly and as written in JSON."""
    places = {folder.absolute().parent, folder.resolve().parent, Path.home(), Path(__file__).parents[1]}
    spellings = {
        spelling.encode("utf-8", errors="surrogateescape")
        for place in places
        if place != Path(place.anchor)
        for spelling in (str(place), json.dumps(str(place))[1:-1], place.as_posix())
    }
    return re.compile(_START + b"(?:" + b"|".join(map(re.escape, sorted(spellings))) + rb")(?![\w\-])")


def _excerpt(match: re.Match[bytes], shown: int) -> str:
    text = match[0][:shown].decode("utf-8", errors="replace")
    return text if len(match[0]) <= shown else f"{text}..."
