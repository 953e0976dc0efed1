"""How large a table may be: what is beyond is refused before it fills the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["require_few", "require_short"]

MOST_ROWS, MOST_COLUMNS = 5_000_000, 4_000
MOST_CELLS = 480_000_000  # bytes, of which a number takes 8 and text 16 without its characters
LONGEST_CELL = 2**20  # bytes


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
