"""`write_pdf`: a letter on pages of A4, drawn with matplotlib (extra `plot`)."""

from __future__ import annotations

import textwrap
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fedprice.errors import require
from fedprice.plots import COLORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from fedprice.commands.letter_form import Letter

__all__ = ["write_pdf"]

WIDTH, HEIGHT, MARGIN = 595.0, 842.0, 52.0  # of a page of A4, in points
LEADING = 1.3  # line spacing over the size of letters
SIZES = {"title": 18.0, "heading": 11.5, "text": 9.5, "command": 8.5, "table": 8.8}
SPACE_ABOVE = {"heading": 9.0, "text": 3.0, "command": 4.0, "table": 4.0}
FAMILY, FIXED = "DejaVu Sans", "DejaVu Sans Mono"  # which matplotlib brings


def write_pdf(letter: Letter, path: Path) -> None:
    """Write a letter as PDF; text can be searched and copied, and no date is in it."""
    require("matplotlib", "plot")
    import matplotlib as mpl
    from matplotlib.backends.backend_pdf import PdfPages

    with mpl.rc_context({"text.usetex": False, "text.parse_math": False}):
        pages = _Pages()
        pages.write(letter.title, "title", color=COLORS[0], weight="bold")
        pages.rule()
        for kind, content in letter.parts:
            if isinstance(content, str):
                pages.write(content, kind, **_STYLE[kind])
            else:
                pages.table(content)
        about = {"Title": letter.title, "Creator": "fedprice", "CreationDate": None}
        with PdfPages(path, metadata=about) as file:
            for page in pages.done:
                file.savefig(page)


_STYLE: dict[str, dict[str, Any]] = {
    "heading": {"weight": "bold", "color": COLORS[0]},
    "text": {},
    "command": {"family": FIXED, "boxed": True},
}


class _Pages:
    """Pages that fill from the top; `at` is how far down the last one is filled."""

    def __init__(self) -> None:
        self.done: list[Figure] = []
        self.at = 0.0
        self._new()

    def _new(self) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        FigureCanvasAgg(figure)
        self.done.append(figure)
        self.at = MARGIN
        number = f"page {len(self.done)}"
        self._put(number, WIDTH - MARGIN, HEIGHT - 36, size=7.5, color="0.45", ha="right")
        self._put("fedprice", MARGIN, HEIGHT - 36, size=7.5, color="0.45")

    def _put(self, text: str, x: float, y: float, **style: Any) -> None:
        style = {"family": FAMILY, "va": "baseline"} | style
        self.done[-1].text(x / WIDTH, 1 - y / HEIGHT, _drawable(text), **style)

    def _box(self, x: float, y: float, width: float, height: float, color: str) -> None:
        from matplotlib.patches import Rectangle

        page = self.done[-1]
        corner = (x / WIDTH, 1 - (y + height) / HEIGHT)
        page.add_artist(
            Rectangle(
                corner, width / WIDTH, height / HEIGHT, transform=page.transFigure, color=color,
                linewidth=0, zorder=0,
            )
        )  # fmt: skip

    def _room(self, needed: float) -> None:
        if self.at + needed > HEIGHT - MARGIN:
            self._new()

    def rule(self) -> None:
        self._box(MARGIN, self.at + 4, WIDTH - 2 * MARGIN, 0.8, COLORS[0])
        self.at += 10

    def write(
        self, text: str, kind: str, *, family: str = FAMILY, boxed: bool = False, **style: Any
    ) -> None:
        """Write a paragraph in lines that fit; a heading stays with what follows."""
        size = SIZES[kind]
        step, inside = size * LEADING, 7.0 if boxed else 0.0
        width = WIDTH - 2 * MARGIN - 2 * inside
        lines = _wrapped(text, width, size, family, style.get("weight", "normal"))
        self.at += SPACE_ABOVE.get(kind, 0.0)
        self._room(4 * step if kind == "heading" else min(len(lines), 3) * step + 2 * inside)
        if boxed:
            tall = len(lines) * step + 2 * inside
            self._box(MARGIN, self.at, WIDTH - 2 * MARGIN, tall, "0.94")
            self.at += inside
        for line in lines:
            self._room(step)
            self._put(line, MARGIN + inside, self.at + size, size=size, family=family, **style)
            self.at += step
        self.at += inside + (4.0 if boxed else 0.0)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Write a table: of two columns with texts that wrap, of more with numbers."""
        size = SIZES["table"]
        step, full = size * LEADING, WIDTH - 2 * MARGIN
        if len(rows[0]) == 2:
            widths, align = [0.18 * full, 0.82 * full], ["left", "left"]
        else:
            rest = len(rows[0]) - 1
            widths = [0.2 * full] + [0.8 * full / rest] * rest
            align = ["left"] + ["right"] * rest
        self.at += SPACE_ABOVE["table"]
        for number, row in enumerate(rows):
            weight = "normal" if number else "bold"
            cells = [
                _wrapped(cell, width - 10, size, FAMILY, weight)
                for cell, width in zip(row, widths, strict=True)
            ]
            tall = max(map(len, cells)) * step + 5
            self._room(tall)
            if number % 2:
                self._box(MARGIN, self.at, full, tall, "0.955")
            left = MARGIN
            for lines, width, side in zip(cells, widths, align, strict=True):
                x = left + (5 if side == "left" else width - 5)
                for n, line in enumerate(lines):
                    y = self.at + 2.5 + size + n * step
                    self._put(line, x, y, size=size, weight=weight, ha=side)
                left += width
            self.at += tall
        self.at += 2


def _wrapped(text: str, width: float, size: float, family: str, weight: str) -> list[str]:
    """Return the lines of a text that are no wider than `width`; words that are wider are cut."""
    lines, line = [], ""
    for word in text.split():
        for piece in _pieces(word, width, size, family, weight):
            longer = f"{line} {piece}" if line else piece
            if line and _width(longer, size, family, weight) > width:
                lines.append(line)
                line = piece
            else:
                line = longer
    return [*lines, line]


def _pieces(word: str, width: float, size: float, family: str, weight: str) -> list[str]:
    if _width(word, size, family, weight) <= width:
        return [word]
    return textwrap.wrap(word, max(int(width / size), 1))


def _width(text: str, size: float, family: str, weight: str) -> float:
    return size * sum(_advance(c, family, weight) for c in _drawable(text))


@lru_cache(maxsize=10_000)
def _advance(character: str, family: str, weight: str) -> float:
    """Return how wide a character is, over the size of letters."""
    font = _font(family, weight)
    font.set_size(100, 72)
    return float(font.load_char(ord(character)).linearHoriAdvance) / 65536 / 100


@lru_cache(maxsize=8)
def _font(family: str, weight: str) -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties(family=family, weight=weight)))


def _drawable(text: str) -> str:
    """Return text with the characters replaced that the font does not have."""
    return "".join(c if _has(c) else "\N{REPLACEMENT CHARACTER}" for c in text)


@lru_cache(maxsize=10_000)
def _has(character: str) -> bool:
    return bool(_font(FAMILY, "normal").get_char_index(ord(character)))
