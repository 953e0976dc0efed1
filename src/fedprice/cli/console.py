"""How results leave a command: to files, to the screen, or as an error.

Data goes to stdout, all else to stderr. Exit codes: 0 done, 1 stdout could not be written, 2 bad
input, 3 infeasible, 4 does not verify, 5 a ledger refused or could not be written, 6 training
diverged, 7 a deployment or a run on Flower failed, 8 the run had already finished, 9 nobody
delivered, 130 stopped. Each error class has its own (`FedpriceError.exit_code`).
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedprice._plumbing.tables import check_folder, check_output, csv_text, whole_file, whole_folder
from fedprice.cli import STOPPED
from fedprice.cli.extras import require_extras
from fedprice.cli.options import Format
from fedprice.errors import FedpriceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    import polars as pl
    from matplotlib.figure import Figure
    from rich.console import Console, RenderableType

__all__ = [
    "Delivery",
    "FinishedError",
    "StoppedError",
    "note",
    "show_warnings",
    "stderr",
    "stdout",
]

OUTPUT_SUFFIXES = (".csv", ".parquet", ".json")
LEAST_WIDTH, WIDEST = 100, 1000
PLOT_SUFFIXES = (".png", ".svg", ".pdf")


class FinishedError(FedpriceError):
    """The run had already finished: there is nothing to do, and no new result."""

    exit_code = 8


class StoppedError(FedpriceError):
    """The user stopped the command; the message says what was kept."""

    exit_code = STOPPED


def stdout() -> Console:
    """Return a console for data; a narrow terminal wraps lines, but no number is cut."""
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, LEAST_WIDTH)
    return console


def stderr() -> Console:
    """Return a console for progress and messages."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=True)


def note(line: str) -> None:
    """Print a line on stderr about what was read."""
    stderr().print(line, markup=False)


def show_warnings(lines: Iterable[str]) -> None:
    """Print warnings on stderr, where they do not mix with the data on stdout."""
    for line in lines:
        stderr().print(f"warning: {line}", markup=False)


@dataclass(frozen=True)
class Delivery:
    """Where results go. Create it before the work: it refuses files that could not be written."""

    output: Path | None = None
    plot: Path | None = None
    format: Format = Format.TABLE
    force: bool = False
    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is not None:
            check_folder(self.folder)
        if self.output is not None:
            check_output(self.output, OUTPUT_SUFFIXES, force=self.force)
        if self.plot is not None:
            check_output(self.plot, PLOT_SUFFIXES, force=self.force)
            require_extras("plot")

    def send(
        self,
        rows: pl.DataFrame,
        *,
        to_json: Callable[[], str],
        to_screen: Callable[[], RenderableType],
        to_figure: Callable[[], Figure] | None = None,
        to_folder: Callable[[Path], None] | None = None,
    ) -> None:
        """Write all of the files or none, then print."""
        with ExitStack() as stack:
            if self.folder is not None and to_folder is not None:
                to_folder(stack.enter_context(whole_folder(self.folder)))
            if self.plot is not None and to_figure is not None:
                part = stack.enter_context(whole_file(self.plot))
                to_figure().savefig(part, format=self.plot.suffix[1:], metadata=None)
            if self.output is not None:
                part = stack.enter_context(whole_file(self.output))
                if self.output.suffix == ".parquet":
                    rows.write_parquet(part)
                else:
                    text = csv_text(rows) if self.output.suffix == ".csv" else to_json()
                    part.write_text(text, encoding="utf-8", newline="")
        if self.format is Format.TABLE:
            console, screen = stdout(), to_screen()
            unbounded = console.options.update(max_width=WIDEST)
            console.width = max(console.width, console.measure(screen, options=unbounded).maximum)
            console.print(screen)
        else:
            sys.stdout.write(csv_text(rows) if self.format is Format.CSV else to_json())
        for path in (self.output, self.plot, self.folder):
            if path is not None:
                stderr().print(f"wrote {path}", markup=False)
