"""`fedprice reproduce` and `fedprice report`: the paper's evaluation, from data to report."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedprice.cli.console import StoppedError, stderr, stdout
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.progress import rounds_bar
from fedprice.cli.what import DataPath
from fedprice.errors import InputError

if TYPE_CHECKING:
    from fedprice.experiments.reproduce import Reproduction
    from fedprice.experiments.settings import Settings
    from fedprice.experiments.table import Table

__all__ = ["findable", "report", "reproduce", "show_verdicts"]

OUT = Path("reproduction")


def reproduce(
    setups: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SETUP]...", help="setup1, setup2, setup3; all by default."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick/--full", help="5 seeds, or the paper's 20 and more while inconclusive."
        ),
    ] = False,
    seeds: Annotated[
        int | None, typer.Option(min=2, help="Initial runs per scheme: 20, or 5 with --quick.")
    ] = None,
    most_seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Most runs per scheme, which are doubled while a verdict is inconclusive: 200, or "
            "with --quick the initial number.",
        ),
    ] = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            "--scheme", "--schemes", metavar="NAME|FILE.py:FUNCTION",
            help="A scheme in addition to the paper's; repeatable, or separated by commas.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where results are kept.")] = OUT,
    workers: Annotated[
        str | None,
        typer.Option(metavar="N|ray", help="Processes, by default one per core; or Ray."),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings, such as a run's settings.toml.")
    ] = None,
    source: DataPath = None,
) -> None:  # fmt: skip
    """Run the paper's evaluation and write a report that sets its numbers beside ours.

    Results stored in DIR are not computed again: a stopped run resumes where it left off.
    """
    ray = ("ray",) if workers == "ray" else ()
    require_extras("reproduce", *ray)
    from fedprice.experiments.reproduce import reproduce as run

    chosen = _settings(setups, quick, seeds, most_seeds, scheme, settings)
    require_extras(*extras_of_schemes(chosen.schemes))
    console = stderr()
    done, total = 0, 0
    try:
        with rounds_bar("training") as tell:

            def progress(rounds: int, all_rounds: int, cells: int, all_cells: int) -> None:
                nonlocal done, total
                done, total = cells, all_cells
                tell(rounds, all_rounds, f"{cells} of {all_cells} runs")

            found = run(
                chosen,
                out,
                data=None if source is None else str(source),
                workers=_workers(workers),
                report=lambda line: console.print(line, markup=False),
                progress=progress,
            )
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; {done} of {total} runs of this call are kept in {out}. "
            "Run the same command again to resume."
        ) from None
    _write(found, out)


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory written by `fedprice reproduce`.")
    ] = OUT,
    source: DataPath = None,
) -> None:
    """Write the report again from stored results, without training."""
    require_extras("reproduce")
    from fedprice.experiments.reproduce import gather

    _write(gather(folder, None if source is None else str(source)), folder)


def _settings(
    setups: list[str] | None,
    quick: bool,
    seeds: int | None,
    most_seeds: int | None,
    scheme: list[str] | None,
    path: Path | None,
) -> Settings:
    from fedprice.experiments.settings import Settings

    chosen = Settings.quick() if quick else Settings()
    if path is not None:
        if quick:
            raise InputError("give either --quick or --settings, one of the two.")
        chosen = Settings.read(path)
    changes: dict[str, object] = {}
    if setups:
        changes["setups"] = tuple(dict.fromkeys(setups))
    if seeds is not None:
        changes["seeds"] = seeds
        if most_seeds is None:
            changes["most_seeds"] = seeds if quick else max(seeds, chosen.most_seeds)
    if most_seeds is not None:
        changes["most_seeds"] = most_seeds
    if scheme:
        given = (name for names in scheme for name in names.split(","))
        changes["schemes"] = tuple(map(findable, given))
    return dataclasses.replace(chosen, **changes)  # type: ignore[arg-type]


def findable(scheme: str) -> str:
    """Return a scheme's name, changed so that it is found from any directory."""
    path, colon, function = scheme.rpartition(":")
    return f"{Path(path).resolve()}:{function}" if colon else scheme


def _workers(given: str | None) -> int | str | None:
    if given is None or given == "ray":
        return given
    if not re.fullmatch("0*[1-9][0-9]*", given):
        raise InputError(f"`--workers` must be a whole number, at least 1, or ray; got {given!r}.")
    return int(given)


def _write(found: Reproduction, out: Path) -> None:
    from fedprice.experiments.setup_report import report_of

    with stderr().status("writing the report"):
        written = report_of(found)
        path = written.write(out)
    show_verdicts(written.verdicts)
    typer.echo(path)


def show_verdicts(verdicts: Table) -> None:
    """Print claims with their verdicts in colour."""
    from rich import box
    from rich.table import Table as Screen

    colors = {"holds": "green", "fails": "red", "inconclusive": "dim"}
    table = Screen(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in verdicts.columns:
        table.add_column(name, overflow="fold")
    for row in verdicts.text():
        table.add_row(*row[:-1], f"[{colors[row[-1]]}]{row[-1]}[/]")
    stdout().print(table)
