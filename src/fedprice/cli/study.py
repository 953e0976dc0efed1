"""`fedprice study`: compare schemes on your own data or task, as on the paper's setups."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprice.cli import options
from fedprice.cli.console import StoppedError, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.progress import rounds_bar
from fedprice.cli.reproduce import findable, show_verdicts
from fedprice.cli.training import Manner, read_calibrated
from fedprice.cli.what import (
    Batch,
    DataPath,
    LearningRate,
    LocalSteps,
    RunConfig,
    WhatArgument,
    WhatOptions,
    extras_for,
    find_what,
)
from fedprice.columns import renaming_of
from fedprice.commands.games import in_order, read_terms
from fedprice.errors import InputError
from fedprice.game import Game

if TYPE_CHECKING:
    from fedprice.calibration import Calibration
    from fedprice.cli.what import What

__all__ = ["study"]

OUT = Path("study")
BUDGET = 200.0


def study(
    what: WhatArgument,
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE.py:FUNCTION",
            help="A scheme; repeatable. The first is compared with all others. By default "
            "equilibrium, weighted, uniform.",
        ),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(
            metavar="N|FILE",
            help="For digits: the number of clients, 20 by default. Otherwise a table with the "
            "columns client_id, cost, value and optionally level_min, level_max, which replaces "
            "--cost and --value.",
        ),
    ] = None,
    rename: options.Rename = None,
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="For digits: iid, dirichlet:A or shards:K; dirichlet:0.3 by default.",
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Maximum total payment; by default 200, or the setup's.")
    ] = None,
    cost: Annotated[
        float | None, typer.Option(help="Mean of the clients' exponential costs; 50 by default.")
    ] = None,
    value: Annotated[
        float | None, typer.Option(help="Mean of the clients' exponential values; 4000 by default.")
    ] = None,
    max_weight: Annotated[
        float | None,
        typer.Option(
            metavar="W", help="Set floors so that no weight / level exceeds W; none by default."
        ),
    ] = None,
    calibration: options.CalibrationFile = None,
    seeds: Annotated[int, typer.Option(min=2, help="Initial runs per scheme.")] = 20,
    most_seeds: Annotated[
        int | None,
        typer.Option(
            min=2, help="Most runs per scheme, doubled while inconclusive; --seeds by default."
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Training rounds.")] = 1000,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the report is written.")] = OUT,
    cells: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of runs that all studies share; by default the user's cache.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at the same time; by default one per core.")
    ] = None,
    source: DataPath = None,
    local_steps: LocalSteps = None,
    batch: Batch = None,
    learning_rate: LearningRate = None,
    run_config: RunConfig = None,
) -> None:
    """Calibrate WHAT, price its clients by several schemes, train under each, and compare.

    Writes a report, with tables and figures for a paper. A stopped study resumes there.
    """
    require_extras("reproduce", *extras_for(what))
    from fedprice.experiments.own_study import study as run
    from fedprice.experiments.settings import PAPER_SCHEMES

    schemes = [findable(one) for one in scheme or PAPER_SCHEMES]
    require_extras(*extras_of_schemes(schemes))
    counted = clients is not None and clients.isdecimal()
    found = find_what(
        what,
        WhatOptions(
            source, local_steps, batch, learning_rate, run_config,
            int(clients) if clients is not None and counted else None, partition,
        ),
    )  # fmt: skip
    table = None if clients is None or counted else Path(clients)
    renaming = renaming_of(table, rename)
    if table is not None and (cost is not None or value is not None):
        raise InputError("give either --clients FILE, or --cost and --value, one of the two.")
    measured = None
    if calibration is not None:
        measured = read_calibrated(found, calibration, Manner.named(None, "plain"))
    settings = _prices(found, table, renaming, budget, cost, value, rounds, max_weight)
    console = stderr()
    done, total = 0, 0
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {out}: {error.strerror}.") from error
    try:
        with rounds_bar("training") as tell:

            def progress(rounds: int, all_rounds: int, runs: int, all_runs: int) -> None:
                nonlocal done, total
                done, total = runs, all_runs
                tell(rounds, all_rounds, f"{runs} of {all_runs} runs")

            written = run(
                found.task,
                schemes,
                seeds,
                most_seeds=most_seeds,
                rounds=rounds,
                calibration=measured,
                clock=found.clock(),
                name=found.name,
                code=found.source,
                cells=cells,
                workers=workers,
                report=lambda line: console.print(line, markup=False),
                progress=progress,
                **settings,
            )
    except KeyboardInterrupt:
        raise StoppedError(
            f"stopped; {done} of {total} runs of this call are kept. Run the same command again "
            "to resume."
        ) from None
    with console.status("writing the report"):
        path = written.write(out)
    show_verdicts(written.verdicts)
    typer.echo(path)


def _prices(
    found: What,
    table: Path | None,
    rename: dict[str, str],
    budget: float | None,
    cost: float | None,
    value: float | None,
    rounds: int,
    max_weight: float | None,
) -> dict[str, Any]:
    """Return what the game is made from: numbers, a table of clients, or a setup's own draw."""
    largest = math.inf if max_weight is None else max_weight
    if table is not None:
        task = found.task
        terms = read_terms(table, task.ids, task.samples, found.name, rename=rename)
        ordered = in_order(table, terms, task.ids, found.name)

        def of_table(measured: Calibration) -> Game:
            rows = ordered.with_norms(measured.fit.norm, measured.norms).with_max_weight(largest)
            most = BUDGET if budget is None else budget
            return Game(rows, bound=measured.bound(rounds), budget=most)

        return {"game": of_table}
    if found.setup is not None and cost is None and value is None:

        def of_setup(measured: Calibration) -> Game:
            game = found.drawn_game(measured, rounds)
            game = replace(game, clients=game.clients.with_max_weight(largest))
            return game if budget is None else replace(game, budget=budget)

        return {"game": of_setup}
    given = {"budget": budget, "cost": cost, "value": value, "max_weight": max_weight}
    return {name: one for name, one in given.items() if one is not None}
