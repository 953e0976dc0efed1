"""`fedprice simulate`: price clients by a scheme, and train a model with those that join."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedprice._plumbing.columns import renaming_of
from fedprice._plumbing.tables import json_text
from fedprice.bound import Bound
from fedprice.cli import options
from fedprice.cli.beliefs import SOURCE, TYPES, Blocks, Form, MeanCost, MeanValue
from fedprice.cli.console import Delivery, note, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.market_run import (
    SCHEME,
    chosen_in,
    open_ledger,
    posting_of,
    promised,
    run_market,
    spend_of,
)  # fmt: skip
from fedprice.cli.training import (
    AggregatorName,
    AvailabilityText,
    CoinsName,
    Manner,
    ServerStepName,
    Track,
    WorkFolder,
    calibrated,
    kept_in,
    measures,
    train,
)
from fedprice.cli.what import (
    Batch,
    DataPath,
    LearningRate,
    LocalSteps,
    RunConfig,
    What,
    WhatArgument,
    WhatOptions,
    extras_for,
    find_what,
)
from fedprice.clients import LARGEST_WEIGHT
from fedprice.commands.feasible import require_feasible
from fedprice.commands.measured import in_order, read_terms
from fedprice.errors import InputError
from fedprice.game import Game
from fedprice.pricing import find_schemes
from fedprice.pricing.display import facts_table, number
from fedprice.trackers import WithSpend, check_tracker, tracking

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from fedprice.calibration import Calibration
    from fedprice.pricing import Outcome
    from fedprice.trackers import RoundRecord

__all__ = ["simulate"]

WORDS = {"time": "simulated seconds"}  # of what is shown on the screen


def simulate(
    what: WhatArgument,
    clients: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet with the columns client_id, cost, value and optionally level_min, "
            "level_max. A setup draws its own costs and values.",
        ),
    ] = None,
    rename: options.Rename = None,
    by_order: options.ByOrder = False,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=options.amount, help="Maximum total payment; a setup has its own budget."
        ),
    ] = None,
    calibration: options.CalibrationFile = None,
    impact: options.ImpactName = None,
    scheme: Annotated[
        list[str],
        typer.Option(metavar=options.SCHEME_METAVAR, help=f"{options.SCHEME_HELP}."),
    ] = [SCHEME],  # noqa: B006 (typer copies it)
    seed: Annotated[int, typer.Option(min=0, help="Seed of the coins and the training.")] = 0,
    seeds: Annotated[int | None, typer.Option(hidden=True)] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 1000,
    max_weight: options.MaxWeight = None,
    delivery: Annotated[
        float, typer.Option(min=0, max=1, help="Probability that an update arrives.")
    ] = 1.0,
    coins: CoinsName = "independent",
    availability: AvailabilityText = None,
    aggregator: AggregatorName = None,
    server_step: ServerStepName = "plain",
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Run the whole market (offers, coins, checks, payments), recorded in this ledger.",
        ),
    ] = None,
    beliefs: Annotated[
        str | None,
        typer.Option(
            metavar=SOURCE,
            help="With --ledger: post tariffs for these beliefs instead of the schemes' prices, so "
            f"that only clients know their costs and values. {TYPES}.",
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(help="Form of offers with --beliefs, as for `fedprice post`; default price."),
    ] = None,
    blocks: Blocks = None,
    cost: MeanCost = None,
    value: MeanValue = None,
    source: DataPath = None,
    local_steps: LocalSteps = None,
    batch: Batch = None,
    learning_rate: LearningRate = None,
    run_config: RunConfig = None,
    work: WorkFolder = None,
    track: Track = None,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Calibrate and price WHAT, then train a model once, with the clients that join.

    With --ledger as a market: offers, coins, checks and payments. To compare schemes: fedprice
    study. A stopped command resumes where it left off when it is run again.
    """
    import polars as pl

    from fedprice.learning.training import training_settings

    if seeds is not None or len(scheme) > 1:
        several = [f"--scheme {one}" for one in scheme if len(scheme) > 1]
        raise InputError(
            "simulate runs one scheme with one --seed; to compare schemes over seeds: "
            + " ".join(["fedprice study", what, *several, f"--seeds {seeds or 20}"])
        )
    market = () if ledger is None else ("market",)
    require_extras(*extras_for(what), *market, *extras_of_schemes(scheme))
    if track is not None:
        check_tracker(track)
    sending = Delivery(output, None, format_, force)
    posting = posting_of(beliefs, form, blocks, cost, value, ledger=ledger, scheme=scheme)
    (priced_by,) = find_schemes(scheme)
    manner = Manner.named(aggregator, server_step)
    manner.check(priced_by)
    found = find_what(what, WhatOptions(source, local_steps, batch, learning_rate, run_config))
    participation = _participation(coins, availability, ledger, found, rounds)
    most = LARGEST_WEIGHT if max_weight is None else max_weight
    terms = _terms(
        found,
        what,
        clients,
        renaming_of(clients, rename, by_order=by_order),
        budget,
        most,
        by_order=by_order,
    )
    books = None if ledger is None else open_ledger(ledger, posting or priced_by)
    with kept_in(work) as kept:
        values = None if terms is None else terms.clients.value
        measured = calibrated(found, calibration, kept, manner, impact, values)
        game = _game(found, terms, measured, budget=budget, rounds=rounds, max_weight=most)
        posted, tariffs = None, None
        if posting is None:
            outcome = priced_by(game)
            require_feasible(outcome)
        else:
            posted = posting.post(game)
            tariffs = posted.tariffs
            outcome = posted.answers(game, tariffs)
        run = _run_name(found, outcome, seed)
        with tracking(track, run) as tracker:
            if books is None:
                history = train(
                    found, outcome, seed=seed, rounds=rounds, kept=kept, manner=manner,
                    tracker=None if tracker is None else WithSpend(tracker, _paid(outcome)),
                    delivery=delivery, **participation,
                )  # fmt: skip
                spend = outcome.spend
            else:
                history = run_market(
                    books, found, outcome, run, seed, manner, delivery, tariffs, tracker
                )
                spend = spend_of(books, run)
                if posted is not None:
                    outcome = chosen_in(books, run, outcome)
        settings = {
            "what": what,
            "scheme": outcome.scheme,
            "budget": game.budget,
            "largest_weight": most,
            "norms": measured.norms,
            "rounds": rounds,
            "seed": seed,
            "aggregator": manner.aggregator_for(outcome).name,
            "server_step": manner.server_step.name,
            "coins": coins if books is None else "spaced",  # a market's own
            "availability": availability or "always",
            "delivery": delivery,
            **training_settings(found.task),
        }
        result = {
            **promised(outcome, posted),
            "spend": spend,
            "expected_loss": outcome.expected_loss,
            **measures(history, found.clock(), taken=settings),
        }
        sending.send(
            pl.DataFrame([settings | result]),
            to_json=lambda: json_text(settings=settings, result=result),
            to_screen=lambda: _screen(run, settings, result),
        )
    if books is not None and ledger is not None:
        from fedprice.market.database_url import masked

        books.close()
        stderr().print(
            f"recorded in {books.name}: {run}; view with: fedprice ledger show {run} --ledger "
            f"{masked(ledger)}",
            markup=False,
        )


def _paid(outcome: Outcome) -> Callable[[RoundRecord], float]:
    """Return what was paid up to each round: a client's payment is per update that it owes."""
    levels, rounds = outcome.levels, outcome.game.bound.rounds
    owed = np.where(levels > 0, levels * rounds, 1.0)
    each = dict(zip(map(str, outcome.game.clients.ids), outcome.payments / owed, strict=True))
    total = 0.0

    def paid(record: RoundRecord) -> float:
        nonlocal total
        total += float(sum(each[name] for name in record.joined))
        return total

    return paid


def _screen(run: str, settings: dict[str, Any], result: dict[str, Any]) -> RenderableType:
    """Show the settings in force, then what came out."""
    from rich.console import Group

    shown = (
        [(WORDS.get(name, name.replace("_", " ")), _text(x)) for name, x in pairs.items()]
        for pairs in (settings, result)
    )
    return Group(*map(facts_table, (f"{run}: settings", "result"), shown))


def _text(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return "none" if value == np.inf else number(value)


def _participation(
    coins: str, availability: str | None, ledger: str | None, found: What, rounds: int
) -> dict[str, Any]:
    """Return who takes part, as settings of `simulate`; refuse before the work what is wrong."""
    from fedprice.rounds.availability import availability_of, presence_of
    from fedprice.rounds.coins import check_coins

    check_coins(coins)
    if ledger is not None and (coins, availability) != ("independent", None):
        raise InputError(
            "a market has coins of its own, evenly spaced, and its clients are always there; leave "
            "out --ledger, or --coins and --availability."
        )
    kind = None if availability is None else availability_of(availability)
    presence_of(kind, found.task, rounds, seed=0)
    return {"coins": coins, "availability": kind}


def _terms(
    what: What,
    name: str,
    clients: Path | None,
    rename: dict[str, str],
    budget: float | None,
    max_weight: float,
    *,
    by_order: bool,
) -> Game | None:
    """Return the game before anything is measured, or None for a setup that draws its clients.

    This finds errors in the table and the budget before the pilots run.
    """
    if clients is None:
        if what.setup is None:
            raise InputError(
                f"{name} says nothing about costs and values: give --clients FILE with the columns "
                "client_id, cost and value."
            )
        return None
    if budget is None and what.setup is None:
        raise InputError(f"{name} has no budget of its own: give --budget.")
    task = what.task
    table = read_terms(
        clients, task.ids, task.samples, what.name, rename=rename, by_order=by_order, say=note
    )
    table = in_order(clients, table, task.ids, what.name, by_order=by_order)
    table = table.with_max_weight(max_weight)
    if budget is None and what.setup is not None:
        budget = what.setup.budget
    return Game(table, bound=Bound(alpha=1, rounds=1), budget=budget)  # type: ignore[arg-type]


def _game(
    what: What,
    terms: Game | None,
    measured: Calibration,
    *,
    budget: float | None,
    rounds: int,
    max_weight: float,
) -> Game:
    """Return the game with what was measured."""
    if terms is not None:
        table = terms.clients.with_norms(measured.fit.norm, measured.norms)
        return replace(terms, clients=table, bound=measured.bound(rounds))
    game = what.drawn_game(measured, rounds)
    game = replace(game, clients=game.clients.with_max_weight(max_weight))
    return game if budget is None else replace(game, budget=budget)


def _run_name(what: What, outcome: Outcome, seed: int) -> str:
    return f"{what.name}-{outcome.scheme.replace(' ', '-')}-{seed}"
