"""`fedprice steps`: how many local steps a round should have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.calibrate import numbers
from fedprice.cli.console import Delivery
from fedprice.cli.extras import require_extras
from fedprice.cli.training import AggregatorName, Manner, ServerStepName, run_pilots
from fedprice.cli.what import (
    WHAT,
    Batch,
    DataPath,
    LearningRate,
    WhatOptions,
    extras_for,
    find_with_steps,
)
from fedprice.clients import LARGEST_WEIGHT, require_same
from fedprice.columns import check_columns, parse_rename, renamed
from fedprice.commands.feasible import require_feasible
from fedprice.commands.games import reading
from fedprice.errors import InputError
from fedprice.pricing.display import facts_table, number
from fedprice.tables import json_text, number_column, read_table, text_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from fedprice.arrays import FloatArray
    from fedprice.calibration import Calibration
    from fedprice.cli.what import What
    from fedprice.steps import Steps

__all__ = ["steps"]

SPLIT = ("client_id", "compute", "communication", "value")
COLUMNS = (*SPLIT, "level_min", "level_max")
SLOW = 1.5  # warn if β grows by more than this factor over the checkpoints


def steps(
    clients: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet with client_id, compute (cost of a local step), communication "
            "(cost of a round apart from its steps), value and optionally level_min, level_max.",
        ),
    ],
    budget: options.Budget,
    what: Annotated[
        str | None,
        typer.Argument(metavar="[WHAT]", help=f"{WHAT} A function must take `local_steps`."),
    ] = None,
    rename: options.Rename = None,
    counts: Annotated[
        str, typer.Option("--steps", metavar="E,E,…", help="Numbers of local steps of the pilots.")
    ] = "1,3,10,30",
    calibration: Annotated[
        list[str] | None,
        typer.Option(
            metavar="E=FILE",
            help="Instead of WHAT: a calibration made with E local steps; repeatable.",
        ),
    ] = None,
    impact: options.ImpactName = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Training rounds; 1000 without a time limit.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Train for as many rounds as fit.")
    ] = None,
    step_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --time-limit: time per local step of the slowest client; known for a setup.",
        ),
    ] = None,
    round_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --time-limit: time per round apart from its steps; known for a setup.",
        ),
    ] = None,
    exponent: options.Exponent = 2.0,
    max_weight: Annotated[
        float,
        typer.Option(metavar="W", help="Raise the floors so that no weight / level exceeds W."),
    ] = LARGEST_WEIGHT,
    repeats: Annotated[int, typer.Option(min=2, help="Runs per pilot.")] = 10,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="Q,Q,…",
            help="The levels of the pilots, at least two; by default 0.1,0.3, with a higher second "
            "one for fewer than ten clients.",
        ),
    ] = None,
    checkpoints: Annotated[
        str, typer.Option(metavar="R,R,…", help="Rounds after which pilots are compared.")
    ] = "20,30,50",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pilots.")] = 0,
    aggregator: AggregatorName = None,
    server_step: ServerStepName = "plain",
    source: DataPath = None,
    batch: Batch = None,
    learning_rate: LearningRate = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Find the best number of local steps under a budget and a time limit, from pilot runs.

    Joining all R rounds of E local steps costs R (compute · E + communication). The bound's
    constants are measured at some E and interpolated between them; every E in between is priced.
    """
    if (what is None) == (not calibration):
        raise InputError("give either WHAT, or --calibration E=FILE at least twice.")
    if what is not None:
        require_extras(*extras_for(what))
    delivery = Delivery(output, plot, format_, force)
    renaming = parse_rename(rename)
    if rounds is not None and time_limit is not None:
        raise InputError("give either --rounds or --time-limit, one of the two.")
    if time_limit is None and (step_time is not None or round_time is not None):
        raise InputError("--step-time and --round-time go with --time-limit.")
    measured: dict[int, Calibration]
    found: What | None = None
    if what is None:
        measured = _read_calibrations(calibration or [])
    else:
        settings = {
            "levels": None if levels is None else numbers("--levels", levels, float),
            "checkpoints": numbers("--checkpoints", checkpoints, int),
            "repeats": repeats,
            "seed": seed,
        }
        manner = Manner.named(aggregator, server_step)
        given = WhatOptions(source, None, batch, learning_rate)
        wanted = [int(count) for count in numbers("--steps", counts, int)]
        if min(wanted) < 1 or len(set(wanted)) < 2:
            raise InputError(f"--steps must be two or more whole numbers above 0; got {counts!r}.")
        tasks = {count: find_with_steps(what, given, count) for count in sorted(set(wanted))}
        found = tasks[max(tasks)]
        _read_split(clients, found.task.ids, renaming)  # before the work
        measured = {count: _pilots(one, manner, count, settings) for count, one in tasks.items()}
    if impact is not None:
        measured = {count: one.with_impact(impact) for count, one in measured.items()}
    if time_limit is not None:
        step_time, round_time = _times(found, step_time, round_time)
    from fedprice.steps import best_steps

    table = best_steps(
        measured,
        budget=budget,
        rounds=None if time_limit is not None else rounds or 1000,
        time_limit=time_limit,
        step_time=step_time or 0.0,
        round_time=round_time or 0.0,
        cost_exponent=exponent,
        max_weight=max_weight,
        **_read_split(clients, next(iter(measured.values())).ids, renaming),
    )
    if not np.isfinite(table.loss).any():
        require_feasible(table.outcomes[0])
    rows = table.to_frame()
    best = {
        "steps": table.best,
        "beta_growth": table.beta_growth,
        "assumed_least_loss": table.assumed_least_loss,
    }
    delivery.send(
        rows,
        to_json=lambda: json_text(best=best, steps=rows, clients=table.quotes()),
        to_screen=lambda: _screen(table),
        to_figure=table.plot,
    )


def _read_calibrations(given: Sequence[str]) -> dict[int, Calibration]:
    from fedprice.calibration import Calibration

    found: dict[int, Calibration] = {}
    for text in given:
        count, mark, path = text.partition("=")
        if not (mark and count.isdecimal() and int(count) >= 1):
            raise InputError(f"--calibration must be E=FILE, such as 10=ten.json; got {text!r}.")
        if int(count) in found:
            raise InputError(f"--calibration has {count} local steps twice; give each once.")
        found[int(count)] = Calibration.read(path)
    return found


def _read_split(path: Path, ids: Sequence[str], rename: Mapping[str, str]) -> dict[str, FloatArray]:
    """Return the columns of a file of clients, in the order of `ids`."""
    with reading(path, rename):
        frame = renamed(read_table(path), rename, COLUMNS)
        if "cost" in frame.columns:
            raise InputError(
                "unknown column 'cost'. The cost is split here into compute and communication."
            )
        missing = [name for name in SPLIT if name not in frame.columns]
        check_columns(frame.columns, COLUMNS, missing)
        names = text_column(frame["client_id"]).tolist()
        require_same(path, names, ids, "the pilots' task")
        if len(set(names)) != len(names):
            raise InputError("client ids must be distinct.")
        order = [names.index(name) for name in ids]
        columns = [name for name in frame.columns if name != "client_id"]
        return {name: number_column(frame[name])[order] for name in columns}


def _pilots(what: What, manner: Manner, count: int, settings: dict[str, Any]) -> Calibration:
    try:
        return run_pilots(what, manner, **settings)
    except InputError as error:
        raise InputError(f"with {count} local steps: {error}") from error


def _times(
    what: What | None, step_time: float | None, round_time: float | None
) -> tuple[float, float]:
    """Return the seconds of a step and of a round: those given, else those of a setup's clock."""
    clock = None if what is None else what.clock()
    if clock is None or what is None:
        if step_time is None or round_time is None:
            raise InputError("--time-limit needs --step-time and --round-time, in seconds.")
        return step_time, round_time
    slowest = (float(clock.compute.max()) / what.local_steps, float(clock.transfer.max()))
    return (
        slowest[0] if step_time is None else step_time,
        slowest[1] if round_time is None else round_time,
    )


def _screen(found: Steps) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table

    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0))
    for name in ("local\nsteps", "rounds", "α", "95 %", "β", "mean\nlevel", "loss", "over α", ""):
        table.add_column(name, justify="right", no_wrap=True)
    at = int(np.argmin(found.loss))
    for i in np.flatnonzero(np.isin(found.steps, [*found.pilots, found.best])):
        finite = bool(np.isfinite(found.loss[i]))
        table.add_row(
            number(found.steps[i]),
            number(found.rounds[i]),
            number(found.alpha[i]),
            f"{number(found.alpha_low[i])} to {number(found.alpha_high[i])}",
            number(found.beta[i]),
            number(float(found.outcomes[i].levels.mean())) if finite else "-",
            number(found.loss[i]) if finite else "infeasible",
            f"{number(found.loss_low[i])} to {number(found.loss_high[i])}" if finite else "-",
            "best" if i == at else ("as good" if found.as_good[i] else ""),
            style="bold" if i == at else None,
        )
    # Between pilots the constants are interpolated, so only the pilots themselves are evidence.
    others = [
        str(count)
        for count in found.steps[found.as_good].tolist()
        if count in found.pilots and count != found.best
    ]
    told = (
        f"no: {', '.join(others)} are as good within the errors of the pilots; more repeats help"
        if others
        else "yes: all other pilots are worse, beyond their errors"
    )
    pairs = [
        ("rounds", number(found.rounds[at])),
        ("loss", f"{number(found.loss[at])} above the least one, by the bound"),
        ("clear", told),
    ]
    if found.assumed_least_loss is not None:
        least = number(found.assumed_least_loss)
        pairs.append(("least loss", f"not known; {least}, the pilots' lowest, stands for it"))
    if found.beta_growth > SLOW:
        pairs.append(
            (
                "caution",
                f"β grows {number(found.beta_growth)}-fold from the first checkpoint to the last: "
                "the loss falls\nmore slowly than 1 / rounds, and the bound is too low for many "
                "rounds. Use later --checkpoints",
            )
        )
    return Group(table, facts_table(f"best number of local steps: {found.best}", pairs))
