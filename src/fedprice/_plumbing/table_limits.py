"""How large a file may be: what is beyond is refused before it fills the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

__all__ = ["limited_content", "require_few", "require_short"]

MOST_ROWS, MOST_COLUMNS = 5_000_000, 4_000
MOST_CELLS = 480_000_000  # bytes, of which a number takes 8 and text 16 without its characters
LONGEST_CELL = 2**20  # bytes
LARGEST_TEXT, MOST_VALUES = 2**27, 2**23  # bytes of JSON, and its commas and brackets


def limited_content(path: Path, most: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file that can be parsed as JSON in 1 GB of memory."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most or sum(map(content.count, b",[{")) > MOST_VALUES:
        raise InputError(f"{path} must have at most {most:,} bytes and {MOST_VALUES:,} values.")
    return content


def require_few(name: str, rows: int, columns: int, cell: float = 16) -> None:
    """Refuse a table that would take too much memory; a cell takes this many bytes on average."""
    if rows > MOST_ROWS or columns > MOST_COLUMNS:
        raise InputError(
            f"{name} must have at most {MOST_ROWS:,} rows and {MOST_COLUMNS:,} columns; got "
            f"{rows:,} and {columns:,}. Leave out what is not needed."
        )
    if rows * columns * cell > MOST_CELLS:
        raise InputError(
            f"{name} must have at most {MOST_CELLS // 16:,} cells of text or {MOST_CELLS // 8:,} "
            f"of numbers; got {rows:,} rows of {columns:,} cells. Leave out what is not needed."
        )


def require_short(frame: pl.DataFrame, name: str) -> None:
    """Refuse a long text before it is copied by all that looks for numbers in it."""
    import polars as pl

    for column in frame.select(pl.col(pl.String)):
        long = column.str.len_bytes() > LONGEST_CELL
        if long.any():
            row = long.arg_max() or 0
            raise InputError(
                f"{name}: column {column.name!r:.100} must hold numbers or short text; got "
                f"{column.str.head(20)[row]!r} and more in row {row + 1}."
            )
