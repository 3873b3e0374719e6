"""Read a PNG without the library that wrote it."""

import struct
from pathlib import Path


def png_chunks(path: Path) -> list[str]:
    """The kinds of the chunks of a PNG file, each once, in their order."""
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    kinds, at = [], 8
    while at < len(content):
        (length,) = struct.unpack(">I", content[at : at + 4])
        kinds.append(content[at + 4 : at + 8].decode())
        at += length + 12
    return list(dict.fromkeys(kinds))


def assert_publishable(path: Path):
    """Small, and nothing in the file but the picture: no text, no time, no path."""
    assert path.stat().st_size < 100_000, path
    assert png_chunks(path) == ["IHDR", "PLTE", "IDAT", "IEND"], path
