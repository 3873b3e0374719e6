"""What all pictures share: size, fonts for every script that the system has, and small files without metadata.

Figures are made without `pyplot`, whose state is global: any thread may draw.
"""

import functools
import io
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import font_manager, ft2font
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text


DPI = 110
LARGEST = 100_000  # bytes
COLORS = 256  # of the palette; anti-aliased text looks the same as with 16 million, at a third of the bytes
LATIN = "DejaVu Sans"  # comes with matplotlib
# Simplified Chinese first; a Japanese or traditional font still shows the characters.
CHINESE = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC", "Microsoft YaHei",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Hiragino Sans GB", "Heiti SC", "STHeiti", "SimHei", "SimSun",
    "DengXian", "Droid Sans Fallback", "AR PL UMing CN", "AR PL UKai CN", "Arial Unicode MS", "Noto Sans CJK JP",
    "Noto Sans CJK TC", "Noto Serif CJK SC", "Unifont",
)  # fmt: skip
NO_CHINESE_FONT = (
    "no Chinese font is installed, so pictures show Chinese characters as codes (\\u4e2d) and labels in English; "
    "install one (Debian, Ubuntu: apt install fonts-noto-cjk; Fedora: dnf install google-noto-sans-cjk-fonts; "
    "others: Noto Sans CJK SC from fonts.google.com) and draw them again"
)


@functools.cache
def chinese_font() -> str | None:
    """The name of an installed font with Chinese characters; `None` if there is none."""
    manager = font_manager.fontManager
    known = {Path(entry.fname) for entry in manager.ttflist}
    # matplotlib remembers the fonts of its first day; those installed since are added.
    for path in sorted(font_manager.findSystemFonts()):
        if Path(path) not in known:
            try:
                manager.addfont(path)
            except (OSError, RuntimeError):  # not readable, or a kind that matplotlib does not take
                continue
    names = {entry.name for entry in manager.ttflist}
    return next((name for name in CHINESE if name in names), None)


def families() -> list[str]:
    """The fonts to look for a character in, in this order."""
    return [LATIN, *filter(None, [chinese_font()])]


@functools.cache
def _characters(family: str) -> frozenset[int]:
    found = font_manager.findfont(font_manager.FontProperties(family=family))
    return frozenset(ft2font.FT2Font(found, face_index=found.face_index).get_charmap())


def readable(text: str) -> str:
    """A text in which every character that no font has is written as its code, rather than drawn as a box."""
    known = [_characters(family) for family in families()]
    return "".join(
        char
        if char.isprintable() and any(ord(char) in characters for characters in known)
        else char.encode("ascii", "backslashreplace").decode()
        if ord(char) > 127
        else ascii(char)[1:-1]
        for char in text
    )


def say_if_unreadable(texts: Iterable[str]):
    """Print what to install, once, if `texts` hold Chinese and no font does."""
    if chinese_font() is None and any("\u3400" <= char <= "\u9fff" for text in texts for char in text):
        _say_no_chinese_font()


@functools.cache  # prints once
def _say_no_chinese_font():
    print(NO_CHINESE_FONT)


def label_language(language: str) -> str:
    """The language in which labels can be drawn: Chinese falls back to English where no font has it."""
    return language if language == "en" or chinese_font() else "en"


def new_figure(width: float, height: float, square: bool = False) -> Figure:
    """An empty figure, in inches; what is put into it is laid out without overlap.

    Args:
        square: Whether it is to hold matrices, whose cells are squares.
    """
    return Figure(figsize=(width, height), dpi=DPI, layout="compressed" if square else "constrained")


def label_inches(names: Sequence[str], size: float = 8.0) -> float:
    """The length of the longest of some labels in inches, or a little more; letters are taken for half as wide as
    Chinese characters.

    Args:
        size: Of the font, in points.
    """
    widths = [sum(1.0 if unicodedata.east_asian_width(char) in "WF" else 0.65 for char in name) for name in names]
    return (max(widths) + 0.5) * size / 72


def save(figure: Figure, path: Path):
    """Write a figure as PNG with a palette of its own, and nothing else in the file.

    The resolution is that of `DPI`, or as much lower as keeps the file below `LARGEST` bytes.
    """
    canvas = FigureCanvasAgg(figure)
    for text in figure.findobj(Text):
        text.set_fontfamily(families())
        text.set_parse_math(False)  # a dollar sign is one
    content = _as_png(canvas)
    while len(content) > LARGEST:
        figure.set_dpi(0.85 * figure.get_dpi())
        content = _as_png(canvas)
    path.write_bytes(content)


def _as_png(canvas: FigureCanvasAgg) -> bytes:
    from PIL import Image

    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3])
    # Of the ways to choose a palette the one that keeps rare colours too: those of a scale, of the largest weights.
    image = image.quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    image.save(buffer, "png", optimize=True)
    return buffer.getvalue()
