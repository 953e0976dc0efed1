"""`fedprice compare`: schemes side by side, under the same budget."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.beliefs import SOURCE, TYPES, Form, MeanCost, MeanValue, read_beliefs
from fedprice.cli.console import Delivery, show_warnings, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.summaries import COLUMNS, summary_table
from fedprice.cli.training import (
    AggregatorName,
    Manner,
    WorkFolder,
    calibrated,
    kept_in,
    measures,
    train,
)
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
from fedprice.columns import parse_rename
from fedprice.commands.compare import compare as compute
from fedprice.commands.compare import compared, gains, tariff_schemes
from fedprice.commands.games import (
    in_order,
    read_calibration,
    read_game,
    read_terms,
)
from fedprice.commands.warnings import scheme_warnings
from fedprice.errors import InputError
from fedprice.pricing import RIVALS, Status, find_schemes
from fedprice.tables import json_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fedprice.cli.what import What
    from fedprice.game import Game

__all__ = ["compare"]

SEEDS = 3


def compare(
    clients: options.ClientsFile,
    budget: options.Budget = 200.0,
    rename: options.Rename = None,
    alpha: options.Alpha = None,
    calibration: options.CalibrationFile = None,
    impact: options.ImpactName = None,
    rounds: options.Rounds = 1000,
    exponent: options.Exponent = 2.0,
    scheme: options.Schemes = ["equilibrium", "weighted", "uniform"],  # noqa: B006 (typer copies it)
    rivals: Annotated[
        bool, typer.Option("--rivals", help=f"Also compare with {', '.join(RIVALS)}.")
    ] = False,
    beliefs: Annotated[
        str | None,
        typer.Option(
            metavar=SOURCE,
            help="Also compare with a posted price, blocks, tariff and menu for these beliefs. "
            f"{TYPES}.",
        ),
    ] = None,
    cost: MeanCost = None,
    value: MeanValue = None,
    lies: Annotated[
        float | None,
        typer.Option(
            metavar="ρ",
            help="Also show what clients gain by reporting a cost within a factor of ρ, or a "
            "lower value.",
        ),
    ] = None,
    max_weight: options.MaxWeight = None,
    train_: Annotated[
        str | None,
        typer.Option(
            "--train",
            metavar="WHAT",
            help=f"Also train a model under each scheme's prices. {WHAT} Without --alpha or "
            "--calibration it is calibrated first.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help=f"With --train: runs per scheme; {SEEDS} by default.")
    ] = None,
    aggregator: AggregatorName = None,
    server_step: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --train: how the server moves the model: plain, momentum, adam or bounded; "
            "plain.",
        ),
    ] = None,
    source: DataPath = None,
    local_steps: LocalSteps = None,
    batch: Batch = None,
    learning_rate: LearningRate = None,
    run_config: RunConfig = None,
    work: WorkFolder = None,
    output: options.OutputFile = None,
    plot: options.PlotFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Price the same clients under several schemes and the same budget."""
    import polars as pl

    given = WhatOptions(source, local_steps, batch, learning_rate, run_config)
    if train_ is None:
        only: dict[str, object] = {"--seeds": seeds, "--work": work, "--aggregator": aggregator}
        _refuse(given, only | {"--server-step": server_step})
    else:
        require_extras(*extras_for(train_))
    require_extras(*extras_of_schemes(scheme))
    delivery = Delivery(output, plot, format_, force)
    schemes = find_schemes([*scheme, *(RIVALS if rivals else ())])
    believed = None
    if beliefs is not None:
        believed = read_beliefs(beliefs, cost, value, Form.PRICE)
    elif cost is not None or value is not None:
        raise InputError("--cost and --value go with --beliefs exponential.")
    manner = Manner.named(aggregator, server_step or "plain")
    pilots = train_ is not None and alpha is None and calibration is None
    measured, terms = read_calibration(calibration, alpha, None if pilots else impact), None
    most = LARGEST_WEIGHT if max_weight is None and train_ is not None else max_weight
    with ExitStack() as stack:
        if train_ is not None:
            what = find_what(train_, given)
            manner.check(schemes)
            kept = stack.enter_context(kept_in(work))
            if pilots:  # report a broken table before the pilots run
                terms = read_terms(
                    clients,
                    what.task.ids,
                    what.task.samples,
                    what.name,
                    rename=parse_rename(rename),
                )
            if alpha is None:
                values = None if terms is None else terms.value
                measured = calibrated(what, calibration, kept, manner, impact, values)
        with stderr().status("comparing"):
            game = read_game(
                clients, budget=budget, alpha=alpha, calibration=measured, rounds=rounds,
                exponent=exponent, max_weight=most, terms=terms, rename=parse_rename(rename),
            )  # fmt: skip
            if train_ is not None:
                game = _of_the_task(game, clients, what)
            if believed is not None:
                schemes += tariff_schemes(game, believed)
            outcomes = compute(game, schemes)
        rows = compared(outcomes)
        columns = [name for name in COLUMNS if name not in ("budget", "multiplier")]
        columns.insert(columns.index("expected_loss") + 1, "loss_ratio")
        columns[columns.index("client_utility") :] = ["biased", "client_surplus", "client_utility"]
        if lies is not None:
            with stderr().status("looking for the best lies"):
                found = gains(game, schemes, lies)
            rows = rows.join(found, on="scheme", how="left", maintain_order="left")
            columns += found.columns[1:]
        if train_ is not None:
            trained = [one for one in outcomes if one.status is not Status.INFEASIBLE]
            histories = train(
                what, trained, seeds=seeds or SEEDS, rounds=rounds, kept=kept, manner=manner
            )
            found = pl.DataFrame(
                [
                    {"scheme": one.scheme, **measures(own, what.clock())}
                    for one, own in zip(trained, histories, strict=True)
                ]
            )
            rows = rows.join(found, on="scheme", how="left", maintain_order="left")
            columns += found.columns[1:]

        warnings = scheme_warnings(outcomes)

        def figure() -> Figure:
            from fedprice.pricing.figures import draw_comparison

            return draw_comparison(outcomes)

        delivery.send(
            rows,
            to_json=lambda: json_text(schemes=rows, warnings=warnings),
            to_screen=lambda: summary_table(rows, columns),
            to_figure=figure,
        )
        show_warnings(warnings)


def _refuse(given: WhatOptions, only: dict[str, object]) -> None:
    """Refuse options that only training uses."""
    unused = [option for option, *_ in given.given()]
    unused += [name for name, one in only.items() if one is not None]
    if unused:
        raise InputError(f"{unused[0]} is for training; add --train WHAT, or leave it out.")


def _of_the_task(game: Game, path: Path, what: What) -> Game:
    """Return the game with its clients in the order of the task, which must have the same ones."""
    clients = in_order(path, game.clients, what.task.ids, what.name)
    differ = ~np.isclose(clients.weight, what.task.weight, rtol=1e-6, atol=0)
    if differ.any():
        n = int(np.argmax(differ))
        raise InputError(
            f"{path}: client {what.task.ids[n]!r} has {clients.weight[n]:.4g} of all samples, but "
            f"{what.task.weight[n]:.4g} in {what.name}."
        )
    return replace(game, clients=clients)
