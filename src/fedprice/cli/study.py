"""`fedprice study`: compare schemes, on your own data or task or on the paper's setups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprice._plumbing.columns import renaming_of
from fedprice.cli import options
from fedprice.cli.console import note, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.frontier import parse_budgets
from fedprice.cli.paper_study import (
    findable,
    setups_of,
    study_paper,
    training_bar,
    warn_of_few,
    workers_of,
)
from fedprice.cli.training import AvailabilityText, CoinsName, Manner, Track, read_calibrated
from fedprice.cli.what import (
    Batch,
    DataPath,
    LearningRate,
    LocalSteps,
    RunConfig,
    WhatOptions,
    extras_for,
    find_what,
)
from fedprice.clients import LARGEST_WEIGHT
from fedprice.commands.measured import in_order, read_terms
from fedprice.errors import InputError
from fedprice.game import Game

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.calibration import Calibration
    from fedprice.cli.what import What

__all__ = ["study"]

BUDGET = 200.0
# The parameters that the paper's setups go with.
OF_A_SETUP = {
    "what", "scheme", "seeds", "most_seeds", "quick", "settings", "out", "workers", "source",
}  # fmt: skip


def study(
    context: typer.Context,
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="WHAT...",
            help="What is trained: digits; a data file (CSV, Parquet or npz); FILE.py:FUNCTION, "
            "which returns a Task; or the directory of a Flower app. Or the paper's evaluation: "
            "paper, for all of it, or some of setup1, setup2, setup3.",
        ),
    ],
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            "--scheme",
            "--schemes",
            metavar="NAME|FILE.py:FUNCTION",
            help=f"{options.SCHEME_HELP}; repeatable, or separated by commas. The first is "
            "compared with all others. By default equilibrium, weighted, uniform; with --budgets "
            "equilibrium; for the paper's setups, schemes in addition to these.",
        ),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(
            metavar="N|FILE",
            help="For digits: the number of clients, 20 by default. Otherwise a table with the "
            "columns client_id, cost and optionally value, level_min, level_max, which replaces "
            "--cost and --value.",
        ),
    ] = None,
    rename: options.Rename = None,
    by_order: options.ByOrder = False,
    partition: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="For digits: iid, dirichlet:A or shards:K; dirichlet:0.3 by default.",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=options.amount, help="Maximum total payment; by default 200, or the setup's."
        ),
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(
            metavar="B,B,…|LO:HI:N",
            help="What to spend: train with each of these budgets and with everybody joining "
            "(the scheme full), and name the smallest whose loss is close to everybody's.",
        ),
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="With --budgets: how far above everybody's a loss may be; 1% by default.",
        ),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(
            parser=options.amount, help="Mean of the clients' exponential costs; 50 by default."
        ),
    ] = None,
    value: Annotated[
        float | None,
        typer.Option(
            parser=options.amount, help="Mean of the clients' exponential values; 4000 by default."
        ),
    ] = None,
    max_weight: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Raise the floors so that no weight / level exceeds W; 1 by default, inf sets "
            "none.",
        ),
    ] = None,
    calibration: options.CalibrationFile = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Initial runs per scheme: 20, or 12 with --quick; intervals and verdicts need at "
            "least 5.",
        ),
    ] = None,
    most_seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Most runs per scheme, doubled while a verdict is inconclusive; --seeds by "
            "default, and 200 for the paper's setups without --quick.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Training rounds.")] = 1000,
    coins: CoinsName = "independent",
    availability: AvailabilityText = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Of the paper's setups, Tables II and III alone, in minutes."),
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For the paper's setups: a run's settings.toml."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Where the report is written; by default study, or reproduction for the paper's "
            "setups, whose runs are kept there, too.",
        ),
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of runs that all studies share; by default the user's cache.",
        ),
    ] = None,
    track: Track = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|ray",
            help="Runs at the same time, by default one per core; the paper's setups also on Ray.",
        ),
    ] = None,
    source: DataPath = None,
    local_steps: LocalSteps = None,
    batch: Batch = None,
    learning_rate: LearningRate = None,
    run_config: RunConfig = None,
) -> None:
    """Calibrate WHAT, price its clients by several schemes, train under each, and compare.

    Writes a report, with tables and figures for a paper. A stopped study resumes; the same command
    again only writes the report. For the paper's setups, the report has the paper's numbers, too.
    """
    require_extras("reproduce", *(["ray"] if workers == "ray" else []))
    schemes = [findable(name) for names in scheme or () for name in names.split(",")]
    require_extras(*extras_of_schemes(schemes))
    setups = setups_of(what)
    if setups is not None:
        listed = " ".join(what)
        why = f"applies only to data, a task or an app of your own; leave it out with {listed}."
        options.refuse_others(context, OF_A_SETUP, why)
        study_paper(
            setups, quick=quick, seeds=seeds, most_seeds=most_seeds, schemes=schemes,
            out=out or Path("reproduction"), workers=workers_of(workers), settings=settings,
            data=None if source is None else str(source),
        )  # fmt: skip
        return
    options.refuse_others(
        context, {p.name or "" for p in context.command.params} - {"quick", "settings"},
        f"applies only to the paper's setups; leave it out with {what[0]}.",
    )  # fmt: skip
    if len(what) > 1:
        raise InputError(
            f"a study has one WHAT, or some of setup1, setup2, setup3; got {', '.join(what)}."
        )
    threads = workers_of(workers)
    if isinstance(threads, str):
        raise InputError(
            "--workers ray applies only to the paper's setups; give a number, or leave it out."
        )
    if budgets is not None and budget is not None:
        raise InputError("--budget cannot be combined with --budgets.")
    amounts = None if budgets is None else parse_budgets(budgets)
    share = None if within is None else _share(within)
    require_extras(*extras_for(what[0]))
    counted = clients is not None and clients.isdecimal()
    found = find_what(
        what[0],
        WhatOptions(
            source, local_steps, batch, learning_rate, run_config,
            int(clients) if clients is not None and counted else None, partition,
        ),
    )  # fmt: skip
    table = None if clients is None or counted else Path(clients)
    renaming = renaming_of(table, rename, by_order=by_order)
    if table is not None and (cost is not None or value is not None):
        raise InputError("--clients FILE cannot be combined with --cost and --value.")
    measured = None
    if calibration is not None:
        measured = read_calibrated(found, calibration, Manner.named(None, "plain"))
    terms: dict[str, Any] = {"budget": budget, "cost": cost, "value": value, "seeds": seeds}
    if table is not None:
        game = _game_of(table, found, renaming, budget, rounds, by_order=by_order)
        terms = {"game": game, "seeds": seeds}
    out = out or Path("study")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the directory {out}: {error.strerror}.") from error
    from fedprice.experiments.user_study import study as run
    from fedprice.rounds.availability import availability_of

    if seeds is not None:
        warn_of_few(max(seeds, most_seeds or 0))
    with training_bar(f"kept; the report will be in {out}") as bar:
        written = run(
            found.task,
            schemes or None,
            most_seeds=most_seeds,
            budgets=amounts,
            within=share,
            rounds=rounds,
            max_weight=LARGEST_WEIGHT if max_weight is None else max_weight,
            calibration=measured,
            clock=found.clock(),
            coins=coins,
            availability=None if availability is None else availability_of(availability),
            name=found.name,
            code=found.source,
            cells=cells,
            workers=threads,
            track=track,
            report=bar.say,
            progress=bar.progress,
            **{name: given for name, given in terms.items() if given is not None},
        )
    with stderr().status("writing the report"):
        path = written.write(out)
    typer.echo(f"{written}\n")
    typer.echo(path)


def _share(text: str) -> float:
    """Return the share that a percentage stands for."""
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise InputError(f"--within must be a share, such as 1% or 0.01; got {text!r}.") from None


def _game_of(
    table: Path,
    found: What,
    rename: dict[str, str],
    budget: float | None,
    rounds: int,
    *,
    by_order: bool,
) -> Callable[[Calibration], Game]:
    """Return what makes the game of a table of clients from a calibration."""
    task = found.task
    terms = read_terms(
        table, task.ids, task.samples, found.name, rename=rename, by_order=by_order, say=note
    )
    ordered = in_order(table, terms, task.ids, found.name, by_order=by_order)

    def game(measured: Calibration) -> Game:
        rows = ordered.with_norms(measured.fit.norm, measured.norms)
        most = BUDGET if budget is None else budget
        return Game(rows, bound=measured.bound(rounds), budget=most)

    return game
