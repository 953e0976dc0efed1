"""`fedprice calibrate`: measure the constants of the bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprice._plumbing.columns import renaming_of
from fedprice.cli import options
from fedprice.cli.console import Delivery, note
from fedprice.cli.extras import require_extras
from fedprice.cli.steps import StepsOptions, find_steps, numbers
from fedprice.cli.training import AggregatorName, Manner, ServerStepName, run_pilots
from fedprice.cli.what import (
    WHAT,
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
from fedprice.pricing.display import facts_table, number

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.calibration import Calibration
    from fedprice.learning import Task

__all__ = ["calibrate"]

STEPS = "With --steps: how many local steps a round should have"


def calibrate(
    what: Annotated[str | None, typer.Argument(metavar="WHAT", help=WHAT)] = None,
    width: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Search until the 95 % interval of α is at most W times α wide; 1 by default.",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="Most repeats in a search; 80 by default.")
    ] = None,
    clients: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet with the columns client_id, cost, value. If all values are "
            "equal, payments do not depend on α, and the search stops early. With --steps: "
            "client_id, compute (cost of a local step), communication (cost of a round apart from "
            "its steps), value and optionally level_min, level_max.",
        ),
    ] = None,
    rename: options.Rename = None,
    by_order: options.ByOrder = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Fixed number of runs per pilot, instead of a search; 10 by default with --levels "
            "or --checkpoints.",
        ),
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            metavar="Q,Q,…",
            help="Fixed levels of the pilots, at least two, instead of a search. With --repeats or "
            "--checkpoints the default is 0.1,0.3, with a higher second level for fewer than ten "
            "clients.",
        ),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="R,R,…",
            help="Fixed rounds after which pilots are compared, instead of a search; 20,30,50 by "
            "default with --repeats or --levels.",
        ),
    ] = None,
    max_weight: Annotated[
        float,
        typer.Option(
            metavar="W",
            help="Raise levels, of pilots and with --steps of clients, so that no weight / level "
            "exceeds W; inf sets none.",
        ),
    ] = LARGEST_WEIGHT,
    impact: Annotated[
        options.Impact | None,
        typer.Option(
            help="Which norms to price with: those of updates (the default), whose squares are "
            "exactly the variance of a round, or those of gradients, as in the paper. Both are "
            "measured."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the pilots.")] = 0,
    aggregator: AggregatorName = None,
    server_step: ServerStepName = "plain",
    source: DataPath = None,
    local_steps: LocalSteps = None,
    batch: Batch = None,
    learning_rate: LearningRate = None,
    run_config: RunConfig = None,
    steps: Annotated[
        str | None,
        typer.Option(
            metavar="E,E,…|E=FILE,…",
            help="Calibrate with each of these numbers of local steps, or read calibrations made "
            "with them, and find the best number between them under --budget.",
            rich_help_panel=STEPS,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(parser=options.amount, help="Maximum total payment.", rich_help_panel=STEPS),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Training rounds; 1000 without a time limit.", rich_help_panel=STEPS
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Train for as many rounds as fit.", rich_help_panel=STEPS
        ),
    ] = None,
    step_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --time-limit: time per local step of the slowest client; known for a setup.",
            rich_help_panel=STEPS,
        ),
    ] = None,
    round_time: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="With --time-limit: time per round apart from its steps; known for a setup.",
            rich_help_panel=STEPS,
        ),
    ] = None,
    exponent: Annotated[
        float | None,
        typer.Option(metavar="τ", help="A level q costs cost · q^τ; τ = 2.", rich_help_panel=STEPS),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw a .png, .svg or .pdf figure.", rich_help_panel=STEPS
        ),
    ] = None,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Measure α with its interval, β and the clients' norms in pilot runs.

    By default the pilots are searched for: short scouting runs choose levels and checkpoints, and
    pilots are repeated until the interval of α is narrow enough or the limit is reached. A .json
    file holds the whole calibration, which `price`, `compare`, `simulate` and `study` accept; a
    .csv or .parquet file holds the clients.
    """
    from fedprice.calibration.pilots import REPEATS
    from fedprice.calibration.search import LIMIT, WIDTH, check_search
    from fedprice.learning.training import training_settings

    of_steps = StepsOptions(budget, rounds, time_limit, step_time, round_time, exponent, plot)
    if steps is None:
        of_steps.refuse()
    else:
        searched: dict[str, object] = {"--width": width, "--limit": limit}
        searched |= {"--local-steps": local_steps, "--by-order": by_order or None}
        for name, value in searched.items():
            if value is not None:
                raise InputError(f"{name} cannot be combined with --steps; leave out one of them.")
    if what is not None:
        require_extras(*extras_for(what))
    delivery = Delivery(output, plot, format_, force)
    fixed = {"--repeats": repeats, "--levels": levels, "--checkpoints": checkpoints}
    for name, own in {"--width": width, "--limit": limit, "--clients": clients}.items():
        switch = next((other for other, one in fixed.items() if one is not None), None)
        if own is not None and switch is not None and steps is None:
            raise InputError(
                f"{name} applies to the search, which {switch} switches off; leave one of them out."
            )
    check_search(WIDTH if width is None else width, LIMIT if limit is None else limit)
    settings: dict[str, Any] = {
        "levels": None if levels is None else numbers("--levels", levels, float),
        "checkpoints": None if checkpoints is None else numbers("--checkpoints", checkpoints, int),
        "repeats": repeats,
        "max_weight": max_weight,
        "seed": seed,
    }
    renaming = renaming_of(clients, rename, by_order=by_order)
    manner = Manner.named(aggregator, server_step)
    given = WhatOptions(source, local_steps, batch, learning_rate, run_config)
    if steps is not None:
        # Fixed pilots by default, which are comparable between numbers of steps.
        settings |= {"repeats": repeats or REPEATS}
        find_steps(
            steps, what, given, clients, renaming, of_steps, manner, settings,
            None if impact is None else impact.value, delivery,
        )  # fmt: skip
        return
    if what is None:
        raise InputError(f"name WHAT is calibrated: {WHAT}")
    settings |= {"width": width, "limit": limit, "impact": (impact or options.Impact.UPDATES).value}
    found = find_what(what, given)
    if clients is not None:
        terms = read_terms(
            clients, found.task.ids, found.task.samples, found.name, rename=renaming,
            by_order=by_order, say=note,
        )  # fmt: skip
        terms = in_order(clients, terms, found.task.ids, found.name, by_order=by_order)
        settings["value"] = terms.value
    measured = run_pilots(found, manner, **settings)
    delivery.send(
        measured.to_frame(),
        to_json=measured.to_json,
        to_screen=lambda: _screen(
            measured,
            found.task,
            {"largest weight": max_weight, "seed": seed, **training_settings(found.task)},
            output,
        ),
    )


def _screen(
    measured: Calibration, task: Task, in_force: dict[str, float], output: Path | None
) -> RenderableType:
    from fedprice.learning import LogisticRegression
    from fedprice.learning.theory import theory_constants

    # The minimum of the loss, and with it β, is unknown for other tasks.
    convex = isinstance(task, LogisticRegression)
    pairs = [("clients", f"{len(measured.ids)}, with {number(measured.samples.sum())} samples")]
    for norms, fit in (("gradient norms", measured.gradients), ("update norms", measured.updates)):
        if fit is not None:
            low, high = number(fit.low), number(fit.high)
            pairs += [
                (norms, _range(fit.norm)),
                ("  α for them", f"{number(fit.alpha)}, 95 % from {low} to {high}"),
            ]
            pairs += [("  β for them", number(fit.beta))] if convex else []
    if measured.accuracy is not None:
        slope = measured.accuracy
        pairs.append(
            (
                "accuracy",
                f"{number(slope.points)} points per unit of loss, 95 % from {number(slope.low)} to "
                f"{number(slope.high)}",
            )
        )
    if isinstance(task, LogisticRegression):
        theory = theory_constants(task)
        pairs.append(("theory", f"L = {number(theory.smoothness)}, μ = {number(theory.convexity)}"))
    if measured.search is not None:
        last = measured.search.steps[-1]
        pairs.append(
            ("search", f"{last.repeats} repeats, after {len(measured.search.steps)} steps: "
                       f"{last.said}")
        )  # fmt: skip
    settings = {"aggregator": measured.aggregator, "server step": measured.server_step}
    settings |= {name.replace("_", " "): number(x) for name, x in in_force.items()}
    pairs.append(("settings", ", ".join(f"{name} {x}" for name, x in settings.items())))
    pairs.append(("priced with", f"α and the norms of {measured.norms}"))
    kept = output is not None and output.suffix == ".json"
    pairs.append(
        ("next", f"{'' if kept else 'keep it with -o calibration.json, then '}fedprice price "
                 f"CLIENTS.csv --calibration {output if kept else 'calibration.json'}")
    )  # fmt: skip
    return facts_table(measured.name, pairs)


def _range(norm: FloatArray) -> str:
    return f"{number(norm.min())} to {number(norm.max())}"
