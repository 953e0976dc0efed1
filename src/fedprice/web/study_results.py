"""What `fedprice study` wrote into a directory: its report, and the accuracy that budgets bought.

Only files inside the directory are read; a link that leads out of it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice._plumbing.tables import read_table
from fedprice.errors import InputError
from fedprice.experiments.number_text import interval_text, number_text

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

__all__ = ["accuracy_bought", "report_of", "studied_budgets"]

REPORT = "report.html"
BUDGETS = "table-budgets.csv"
METRICS = ("accuracy", "loss")  # the second for tasks without the first


def report_of(folder: Path) -> Path:
    """Return the report in a directory that a study wrote."""
    report = folder / REPORT
    if not report.is_file():
        raise InputError(
            f"{folder} has no {REPORT}. Write one with: fedprice study digits --out {folder}"
        )
    return _inside(folder, report)


def studied_budgets(folder: Path | None) -> pl.DataFrame | None:
    """Return what each budget bought in a study of budgets, or None if a directory holds none."""
    import polars as pl

    if folder is None or not (folder / "tables" / BUDGETS).is_file():
        return None
    path = _inside(folder, folder / "tables" / BUDGETS)
    try:
        table = read_table(path)
        metric = _metric(table)
        if metric is None or not {"scheme", "budget"} <= {*table.columns}:
            return None
        wanted = ("budget", metric, f"{metric} low", f"{metric} high")
        names = [name for name in wanted if name in table.columns]
        numbers = [pl.col(name).cast(pl.Float64).fill_nan(None) for name in names]
        return table.select("scheme", *numbers)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{path}: {str(error).splitlines()[0]}") from error


def accuracy_bought(table: pl.DataFrame, scheme: str, budget: float) -> str:
    """Return in words the accuracy at the studied budgets next to one, and if everybody joins.

    For a task without accuracy, it is the loss.
    """
    rows, metric = table.to_dicts(), _metric(table) or METRICS[0]
    known = {row["budget"]: _measured(row, metric) for row in rows
             if row["scheme"] == scheme and row["budget"] is not None}  # fmt: skip
    below = sorted(b for b in known if b <= budget)[-1:]
    above = sorted(b for b in known if b > budget)[:1]
    near = [f"{known[b]} with a budget of {b:,.12g}" for b in below + above]
    near += [f"{_measured(row, metric)} if everybody joins" for row in rows[-1:]]
    return f"{metric.capitalize()} in the study: {'; '.join(near)}." if known else ""


def _metric(table: pl.DataFrame) -> str | None:
    return next((name for name in METRICS if name in table.columns), None)


def _measured(row: dict[str, float | None], metric: str) -> str:
    value, low, high = (row.get(name) for name in (metric, f"{metric} low", f"{metric} high"))
    if value is None:
        return "–"
    return number_text(value) if low is None or high is None else interval_text(value, low, high)


def _inside(folder: Path, file: Path) -> Path:
    """Return a file's real path, which must lie inside the directory."""
    path = file.resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{file} leads out of the directory, so it is not read.")
    return path
