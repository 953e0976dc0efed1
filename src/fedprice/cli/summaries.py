"""Several outcomes as one table on the screen, one row per outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.pricing import Status
from fedprice.pricing.display import number, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from rich.table import Table

__all__ = ["COLUMNS", "summary_table"]

COLUMNS = (
    "scheme",
    "budget",
    "status",
    "spend",
    "distance",
    "mean_level",
    "payers",
    "left_out",
    "client_utility",
)


def summary_table(rows: pl.DataFrame, columns: Sequence[str]) -> Table:
    """Return some columns of the summaries for rich."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in columns:
        text = name in ("scheme", "status", "offers")
        table.add_column(name.replace("_", "\n"), justify="left" if text else "right", no_wrap=True)
    for row in rows.iter_rows(named=True):
        # An infeasible scheme cannot be carried out, so its cost and loss are not shown.
        known = (
            {"scheme", "status", "budget", "offers"}
            if row["status"] == Status.INFEASIBLE
            else set(row)
        )
        table.add_row(*(_cell(name, row[name] if name in known else None) for name in columns))
    return table


def _cell(name: str, value: str | float | bool | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    return percent(value) if name == "distance" else number(value)
