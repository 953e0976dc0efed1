"""What `fedprice reproduce` wrote into a directory, read without any training code.

Only files inside the directory are read; a link that leads out of it is refused.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import InputError
from fedprice.experiments.text import interval_text, number_text
from fedprice.tables import table_of

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.arrays import FloatArray

__all__ = ["Cell", "Reproduction", "Run", "WrittenTable", "read_reproduction"]

VERDICTS = "verdicts"
LARGEST_TEXT = 16 * 2**20  # bytes of a table or of the page of results
LARGEST_CURVES = 512 * 2**20
COLUMNS = ("setup", "run", "seed", "round", "time", "loss", "accuracy")
LEVELS = "levels="  # runs with random levels: two points each, and no curve


class Cell(NamedTuple):
    """A cell of a table: its text, and the number to sort by if it has one."""

    text: str
    number: float | None


class Run(NamedTuple):
    """One training run: simulated seconds, loss and accuracy, arrays of one length."""

    seed: int
    time: FloatArray
    loss: FloatArray
    accuracy: FloatArray


@dataclass(frozen=True)
class WrittenTable:
    """A table of the report.

    Attributes
    ----------
    key, title, note
        Its file name, its heading, and what to know when reading it.
    columns
        Their names.
    rows
        One list of cells per row.
    """

    key: str
    title: str
    note: str
    columns: list[str]
    rows: list[list[Cell]]

    def only(self, setup: str) -> WrittenTable:
        """Return the rows of one setup without its name; all rows if the table has no setups."""
        if "setup" not in self.columns:
            return self
        at = self.columns.index("setup")
        rows = [row[:at] + row[at + 1 :] for row in self.rows if row[at].text == setup]
        columns = self.columns[:at] + self.columns[at + 1 :]
        return replace(self, columns=columns, rows=rows)


@dataclass(frozen=True, eq=False)
class Reproduction:
    """A directory of `fedprice reproduce`.

    Attributes
    ----------
    verdicts
        Each claim of the paper with its number, ours, and whether it holds.
    tables
        All other tables, in the order of the report.
    runs
        The seeds of each run, by setup and by name of the run.
    finished, machine, seconds
        When it ended, where, and how long it took; empty or 0 if not recorded.
    """

    verdicts: WrittenTable
    tables: list[WrittenTable]
    runs: dict[str, dict[str, list[Run]]]
    finished: str
    machine: str
    seconds: float


def read_reproduction(folder: Path) -> Reproduction:
    """Read the directory that `fedprice reproduce --out` wrote."""
    advice = f"Run: fedprice reproduce setup1 --quick --out {folder}"
    if not folder.is_dir():
        raise InputError(f"there is no directory {folder}. {advice}")
    if not (folder / "results.parquet").exists() or not (folder / "tables").is_dir():
        raise InputError(f"{folder} holds no finished reproduction. {advice}")
    headings = _headings(folder)
    found = [_table(folder, path.stem, headings) for path in (folder / "tables").glob("*.csv")]
    order = {title: place for place, (title, _) in enumerate(headings.values())}
    found.sort(key=lambda table: (order.get(table.title, len(order)), table.key))
    verdicts = next((table for table in found if table.key == VERDICTS), None)
    if verdicts is None:
        raise InputError(f"{folder} has no tables/{VERDICTS}.csv. {advice}")
    facts = _facts(folder)
    seconds = facts.get("wall_seconds", 0.0)
    return Reproduction(
        verdicts=verdicts,
        tables=[table for table in found if table is not verdicts],
        runs=_runs(folder),
        finished=str(facts.get("finished", "")),
        machine=str(facts.get("machine", "")),
        seconds=float(seconds) if isinstance(seconds, int | float) else 0.0,
    )


def _content(folder: Path, name: str, largest: int = LARGEST_TEXT) -> bytes:
    """Return the content of a file that really lies inside the directory."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise InputError(f"{folder / name} leads out of the directory, so it is not read.")
    try:
        if not path.is_file():
            raise InputError(f"there is no file {folder / name}.")
        if path.stat().st_size > largest:
            raise InputError(f"{folder / name} is larger than {largest // 2**20} MB.")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {folder / name}: {error.strerror}.") from error


def _headings(folder: Path) -> dict[str, tuple[str, str]]:
    """Return the heading and note that the page of results gives each table, by the table."""
    if not (folder / "results.md").exists():
        return {}
    blocks = _content(folder, "results.md").decode("utf-8", "replace").split("\n\n")
    found = {}
    for at, block in enumerate(blocks[:-1]):
        if block.startswith("## ") and blocks[at + 1].startswith("|"):
            after = blocks[at + 2].strip() if at + 2 < len(blocks) else ""
            note = "" if after.startswith("#") else after
            found[blocks[at + 1].strip()] = (block.removeprefix("## ").strip(), note)
    return found


def _table(folder: Path, key: str, headings: dict[str, tuple[str, str]]) -> WrittenTable:
    name = f"tables/{key}"
    frame = table_of(_content(folder, f"{name}.csv"), f"{folder / name}.csv")
    title, note = key, ""
    if (folder / f"{name}.md").exists():
        written = _content(folder, f"{name}.md").decode("utf-8", "replace").strip()
        title, note = headings.get(written, (key, ""))
    ends = {f"{column} {end}" for column in frame.columns for end in ("low", "high")}
    columns = [column for column in frame.columns if column not in ends]
    rows = [[_cell(row, column) for column in columns] for row in frame.iter_rows(named=True)]
    return WrittenTable(key, title, note, columns, rows)


def _cell(row: dict[str, Any], column: str) -> Cell:
    """Return a cell with its interval, which has columns of its own in the file."""
    value = _number(row[column])
    if value is None:
        return Cell("–" if row[column] in (None, "") else str(row[column]), None)
    low, high = (_number(row.get(f"{column} {end}")) for end in ("low", "high"))
    if low is None or high is None:
        return Cell(number_text(value), value)
    return Cell(interval_text(value, low, high), value)


def _number(text: Any) -> float | None:
    try:
        found = float(text)
    except (TypeError, ValueError):
        return None
    return None if math.isnan(found) else found


def _runs(folder: Path) -> dict[str, dict[str, list[Run]]]:
    import polars as pl

    name = folder / "results.parquet"
    content = _content(folder, "results.parquet", LARGEST_CURVES)
    frame = table_of(content, str(name))
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise InputError(f"{name} has no column {missing[0]!r}.")
    try:
        frame = frame.select(
            pl.col("setup", "run").cast(pl.String),
            pl.col("seed").cast(pl.Int64),
            pl.col("time", "loss", "accuracy").cast(pl.Float64),
        )
    except pl.exceptions.PolarsError as error:
        raise InputError(f"{name}: {str(error).splitlines()[0]}") from error
    frame = frame.filter(~pl.col("run").str.starts_with(LEVELS))
    found: dict[str, dict[str, list[Run]]] = {}
    for (setup, run, seed), rows in frame.group_by("setup", "run", "seed", maintain_order=True):
        time, loss, accuracy = (rows[what].to_numpy() for what in ("time", "loss", "accuracy"))
        of_run = found.setdefault(str(setup), {}).setdefault(str(run), [])
        of_run.append(Run(int(str(seed)), time, loss, accuracy))
    return found


def _facts(folder: Path) -> dict[str, Any]:
    """Return what was recorded about the run; nothing if that cannot be read."""
    try:
        facts = json.loads(_content(folder, "run.json"))
    except (InputError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
