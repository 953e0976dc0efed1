"""`fedprice study paper`: the paper's evaluation, and what all studies share on the screen."""

from __future__ import annotations

import dataclasses
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fedprice.cli.console import StoppedError, show_warnings, stderr, stdout
from fedprice.cli.progress import rounds_bar
from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fedprice.experiments.reproduce import Reproduction
    from fedprice.experiments.settings import Settings
    from fedprice.experiments.table import Table

__all__ = ["findable", "setups_of", "study_paper", "training_bar", "warn_of_few", "workers_of"]

PAPER = "paper"  # all setups


def setups_of(what: Sequence[str]) -> tuple[str, ...] | None:
    """Return the setups that are named, none for all of them, or None if it is something else.

    Examples
    --------
    >>> setups_of(["paper"]), setups_of(["setup1", "setup1"]), setups_of(["digits"])
    ((), ('setup1',), None)
    """
    from fedprice.experiments.setups import SETUPS

    if PAPER not in what and not SETUPS.keys() & set(what):
        return None
    names = tuple(dict.fromkeys(name for name in what if name != PAPER))
    if PAPER in what and names:
        raise InputError(f"paper stands for all setups; leave it out, or {', '.join(names)}.")
    return names


def study_paper(
    setups: tuple[str, ...],
    *,
    quick: bool,
    seeds: int | None,
    most_seeds: int | None,
    schemes: Sequence[str],
    settings: Path | None,
    out: Path,
    data: str | None,
    workers: int | str | None,
) -> None:
    """Run the paper's evaluation and write a report that sets its numbers beside ours.

    Results stored in the directory are not computed again.
    """
    from fedprice.experiments.reproduce import reproduce

    chosen = _settings(setups, quick, seeds, most_seeds, schemes, settings)
    warn_of_few(chosen.most_seeds)
    with training_bar(f"kept in {out}") as bar:
        found = reproduce(
            chosen, out, data=data, workers=workers, report=bar.say, progress=bar.progress
        )
    _write(found, out)


def warn_of_few(seeds: int) -> None:
    """Warn before the work that so few seeds decide nothing."""
    from fedprice.experiments.measures import LEAST_SEEDS

    if seeds < LEAST_SEEDS:
        show_warnings(
            [f"{seeds} seeds give no interval and no verdict; at least {LEAST_SEEDS} do. "
             f"Try --seeds {LEAST_SEEDS}."]
        )  # fmt: skip


class Bar:
    """What a study tells while it trains."""

    def __init__(self, tell: Callable[[int, int, str], None]) -> None:
        self.tell, self.done, self.total = tell, 0, 0

    def say(self, line: str) -> None:
        """Print a line about an event."""
        stderr().print(line, markup=False)

    def progress(self, rounds: int, all_rounds: int, runs: int, all_runs: int) -> None:
        """Move the bar."""
        self.done, self.total = runs, all_runs
        self.tell(rounds, all_rounds, f"{runs} of {all_runs} runs")


@contextmanager
def training_bar(kept: str) -> Iterator[Bar]:
    """Yield what a study reports to; say what is kept if it is stopped, and if nothing was left."""
    with rounds_bar("training") as tell:
        bar = Bar(tell)
        try:
            yield bar
        except KeyboardInterrupt:
            raise StoppedError(
                f"stopped; {bar.done} of {bar.total} runs of this call are {kept}. "
                "Run the same command again to resume."
            ) from None
    if not bar.total:
        bar.say("Nothing was left to train: all runs are stored, and only the report is written.")


def _settings(
    setups: tuple[str, ...],
    quick: bool,
    seeds: int | None,
    most_seeds: int | None,
    schemes: Sequence[str],
    path: Path | None,
) -> Settings:
    from fedprice.experiments.settings import Settings

    chosen = Settings.quick() if quick else Settings()
    if path is not None:
        if quick:
            raise InputError("--quick cannot be combined with --settings.")
        chosen = Settings.read(path)
    changes: dict[str, object] = {}
    if setups:
        changes["setups"] = setups
    if seeds is not None:
        changes["seeds"] = seeds
        if most_seeds is None:
            changes["most_seeds"] = seeds if quick else max(seeds, chosen.most_seeds)
    if most_seeds is not None:
        changes["most_seeds"] = most_seeds
    if schemes:
        changes["schemes"] = tuple(schemes)
    return dataclasses.replace(chosen, **changes)  # type: ignore[arg-type]


def findable(scheme: str) -> str:
    """Return a scheme's name, changed so that it is found from any directory."""
    path, colon, function = scheme.rpartition(":")
    return f"{Path(path).resolve()}:{function}" if colon else scheme


def workers_of(given: str | None) -> int | str | None:
    """Return the number of runs at the same time, ray, or None where nothing was given."""
    if given is None or given == "ray":
        return given
    if not re.fullmatch("0*[1-9][0-9]*", given):
        raise InputError(f"`--workers` must be a whole number, at least 1, or ray; got {given!r}.")
    return int(given)


def _write(found: Reproduction, out: Path) -> None:
    from fedprice.cli.in_short import show_in_short
    from fedprice.experiments.setup_report import report_of

    with stderr().status("writing the report"):
        written = report_of(found)
        path = written.write(out)
    if found.settings.scope == "times":
        show_in_short(found.results, written.claims)
    else:
        _show_verdicts(written.verdicts)
    typer.echo(f"{written.in_force}\n")
    stderr().print(f"To look around: fedprice serve --results {out}\nThe report:", markup=False)
    typer.echo(path)


def _show_verdicts(verdicts: Table) -> None:
    """Print claims with their verdicts in colour."""
    from fedprice.cli.in_short import COLORS, screen_table

    table = screen_table("", *verdicts.columns, text=len(verdicts.columns))
    for row in verdicts.text():
        table.add_row(*row[:-1], f"[{COLORS[row[-1]]}]{row[-1]}[/]")
    stdout().print(table)
