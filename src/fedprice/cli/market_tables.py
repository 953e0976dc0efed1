"""Tables of a ledger on screen: they fit the terminal, and no number is cut."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from fedprice.pricing.display import safe

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from rich.console import RenderableType

__all__ = ["as_wide_as_terminal", "luck_line", "market_table"]

WRAPPED = ("account", "client", "follows", "note", "run", "tariff")  # may take several lines
LEAST_WRAPPED, MOST_WRAPPED = 12, 60  # how wide these are


def as_wide_as_terminal(text: str) -> str:
    """Return text in lines that fit the terminal."""
    return "\n".join(textwrap.wrap(text, _terminal_width(), break_on_hyphens=False))


def luck_line(rows: pl.DataFrame) -> str:
    """Return why what is paid is not what was agreed, if that is so.

    Examples
    --------
    >>> import polars as pl
    >>> luck_line(pl.DataFrame({"agreed": [5], "paid": [4]}))
    'if all heads are delivered, paid differs from agreed by one update at most'
    >>> luck_line(pl.DataFrame({"agreed": [5], "paid": [5]}))
    ''
    """
    if (rows["paid"] == rows["agreed"]).all():
        return ""
    return "if all heads are delivered, paid differs from agreed by one update at most"


def market_table(
    rows: pl.DataFrame, title: str, spare: Sequence[str] = (), *, more: str = "-o FILE.csv has all"
) -> RenderableType:
    """Return a table that is as wide as the terminal at most, wherever that is possible.

    If it is too wide, columns move together, then spare ones are left out, which is said below
    it, then names and other texts are wrapped.

    Parameters
    ----------
    rows, title
        What to show, and the line above it.
    spare
        Columns that may be left out, the first one first.
    more
        Where these are.
    """
    from rich import box
    from rich.cells import cell_len
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    cells = {name: [safe(_cell(value)) for value in rows[name]] for name in rows.columns}
    widths = {name: max(map(cell_len, (*name.split("_"), *texts))) for name, texts in cells.items()}
    most, left_out, gap, limit = _terminal_width(), [], 1, MOST_WRAPPED

    def is_too_wide() -> bool:
        shown = (min(w, limit) if name in WRAPPED else w for name, w in widths.items())
        return sum(width + gap + 1 for width in shown) + 1 > most

    if is_too_wide():
        gap = 0
    for name in spare:
        if name in widths and is_too_wide():
            del widths[name]
            left_out.append(name.replace("_", " "))
    while is_too_wide() and limit > LEAST_WRAPPED:
        limit -= 1
    table = Table(box=box.SIMPLE, padding=(0, gap, 0, 0), title=Text(safe(title)))
    for name in widths:
        table.add_column(
            name.replace("_", "\n"),
            justify="right" if rows.schema[name].is_numeric() else "left",
            no_wrap=name not in WRAPPED,
            max_width=limit if name in WRAPPED else None,
            overflow="fold",
        )
    for row in zip(*(cells[name] for name in widths), strict=True):
        table.add_row(*map(Text, row))
    if not left_out:
        return table
    said = f"Hidden column{'s' * (len(left_out) > 1)}: {', '.join(left_out)} ({more})."
    return Group(table, Text(as_wide_as_terminal(said), style="italic"))


def _terminal_width() -> int:
    """Return how many columns the terminal has; 80 if there is none and COLUMNS is not set."""
    from rich.console import Console

    return Console().width


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
