"""`fedprice simulate`: price clients, and train a model with those that join."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from fedprice.bound import Bound
from fedprice.cli import options
from fedprice.cli.beliefs import SOURCE, TYPES, Blocks, Form, MeanCost, MeanValue, read_beliefs
from fedprice.cli.console import Delivery, StoppedError, stderr
from fedprice.cli.extras import extras_of_schemes, require_extras
from fedprice.cli.progress import rounds_bar
from fedprice.cli.summaries import summary_table
from fedprice.cli.training import (
    AggregatorName,
    Manner,
    ServerStepName,
    WorkFolder,
    calibrated,
    counted,
    kept_in,
    measures,
    train,
    warn,
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
from fedprice.columns import renaming_of
from fedprice.commands.feasible import require_feasible
from fedprice.commands.games import in_order, read_terms
from fedprice.errors import InputError
from fedprice.game import Game
from fedprice.pricing import find_schemes
from fedprice.tables import json_text

if TYPE_CHECKING:
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.posted import Posted
    from fedprice.calibration import Calibration
    from fedprice.market.ledger import Ledger
    from fedprice.pricing import Outcome, Scheme
    from fedprice.rounds import History
    from fedprice.tariff import Tariffs

__all__ = ["simulate"]

SCHEMES = ["equilibrium", "weighted", "uniform"]


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
    budget: Annotated[
        float | None, typer.Option(help="Maximum total payment; a setup has its own budget.")
    ] = None,
    calibration: options.CalibrationFile = None,
    impact: options.ImpactName = None,
    scheme: options.Schemes = SCHEMES,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per scheme.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 1000,
    max_weight: options.MaxWeight = None,
    delivery: Annotated[
        float, typer.Option(min=0, max=1, help="Probability that an update arrives.")
    ] = 1.0,
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
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Calibrate and price WHAT, then train a model under each scheme's prices.

    A stopped command resumes where it left off when it is run again.
    """
    import polars as pl

    market = () if ledger is None else ("market",)
    require_extras(*extras_for(what), *market, *extras_of_schemes(scheme))
    sending = Delivery(output, None, format_, force)
    posting = _posting(beliefs, form, blocks, cost, value, ledger=ledger, scheme=scheme)
    schemes = find_schemes(scheme) if posting is None else []
    manner = Manner.named(aggregator, server_step)
    manner.check(schemes)
    found = find_what(what, WhatOptions(source, local_steps, batch, learning_rate, run_config))
    most = LARGEST_WEIGHT if max_weight is None else max_weight
    terms = _terms(found, what, clients, renaming_of(clients, rename), budget, most)
    books = None if ledger is None else _open_ledger(ledger, schemes)
    with kept_in(work) as kept:
        values = None if terms is None else terms.clients.value
        measured = calibrated(found, calibration, kept, manner, impact, values)
        game = _game(found, terms, measured, budget=budget, rounds=rounds, max_weight=most)
        outcomes = [one(game) for one in schemes]
        for outcome in outcomes:
            require_feasible(outcome)
        posted, tariffs = None, None
        if posting is not None:
            posted = posting.post(game)
            tariffs = posted.drawn(np.random.default_rng(0))  # once: all runs offer the same
            outcomes = [posted.answers(game, tariffs)]
        if books is None:
            histories = train(
                found, outcomes, seeds=seeds, rounds=rounds, kept=kept, manner=manner,
                delivery=delivery,
            )  # fmt: skip
            spends = [outcome.spend for outcome in outcomes]
        else:
            histories = _markets(books, found, outcomes, seeds, manner, delivery, tariffs)
            spends = [
                float(np.mean([_spend(books, _run_name(found, one, n)) for n in range(seeds)]))
                for one in outcomes
            ]
            if posted is not None:
                outcomes = [_chosen(books, _run_name(found, one, 0), one) for one in outcomes]
        rows = pl.DataFrame(
            [
                {
                    "scheme": outcome.scheme,
                    **_promised(outcome, posted),
                    "spend": spend,
                    "expected_loss": outcome.expected_loss,
                    **measures(own, found.clock()),
                }
                for outcome, own, spend in zip(outcomes, histories, spends, strict=True)
            ]
        )
        sending.send(
            rows,
            to_json=lambda: json_text(schemes=rows),
            to_screen=lambda: summary_table(rows, rows.columns),
        )
    if books is not None and ledger is not None:
        from fedprice.market.database_url import masked

        names = [_run_name(found, outcome, n) for outcome in outcomes for n in range(seeds)]
        books.close()
        stderr().print(
            f"recorded in {books.name}: {', '.join(names)}; view with: fedprice ledger show "
            f"{names[0]} --ledger {masked(ledger)}",
            markup=False,
        )


@dataclass(frozen=True)
class _Posting:
    """The form of the offers, and the beliefs that they are made for."""

    beliefs: Beliefs
    form: Form
    blocks: int | None

    def post(self, game: Game) -> Posted:
        """Return tariffs for the clients of a game, whose costs and values only they know."""
        from fedprice.beliefs.posting import post

        return post(
            game.clients, self.beliefs, bound=game.bound, budget=game.budget, form=self.form.value,
            cost_exponent=game.cost_exponent, blocks=self.blocks,
        )  # fmt: skip


def _posting(
    beliefs: str | None,
    form: Form | None,
    blocks: int | None,
    cost: float | None,
    value: float | None,
    *,
    ledger: str | None,
    scheme: list[str],
) -> _Posting | None:
    """Return the form and the beliefs of posted offers, or None without --beliefs."""
    if beliefs is None:
        given = {"--form": form, "--blocks": blocks, "--cost": cost, "--value": value}
        for name, own in given.items():
            if own is not None:
                raise InputError(f"{name} goes with --beliefs FILE|exponential.")
        return None
    if ledger is None:
        raise InputError(
            "--beliefs needs --ledger URL: only in a market do clients answer for themselves."
        )
    if scheme != SCHEMES:
        raise InputError("give either --scheme or --beliefs, one of the two.")
    if beliefs == "others":
        raise InputError(
            "--beliefs others is for `fedprice post`; here, give FILE or exponential, with --cost "
            "and --value."
        )
    form = form or Form.PRICE
    if blocks is not None and form is not Form.BLOCKS:
        raise InputError(f"--blocks goes with --form blocks; got --form {form}.")
    return _Posting(read_beliefs(beliefs, cost, value, form), form, blocks)


def _promised(outcome: Outcome, posted: Posted | None) -> dict[str, str | float]:
    """Return the status of an outcome, or what is expected of what was posted."""
    if posted is None:
        return {"status": outcome.status.value}
    return {
        "status": "posted",
        "expected_spend": posted.expected_spend,
        "spend_std": posted.spend_std,
    }


def _chosen(books: Ledger, run: str, outcome: Outcome) -> Outcome:
    """Return the outcome with the levels that clients committed to in a run."""
    from fedprice.market.money import LEVEL_ONE

    clients = books.run(run).clients
    levels = [clients[str(name)].level / LEVEL_ONE for name in outcome.game.clients.ids]
    return replace(outcome, levels=np.array(levels))


def _terms(
    what: What,
    name: str,
    clients: Path | None,
    rename: dict[str, str],
    budget: float | None,
    max_weight: float,
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
    table = read_terms(clients, task.ids, task.samples, what.name, rename=rename)
    table = in_order(clients, table, task.ids, what.name).with_max_weight(max_weight)
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


def _open_ledger(url: str, schemes: list[Scheme]) -> Ledger:
    """Open the ledger before the work, and refuse schemes that could not be recorded in it."""
    for one in schemes:
        if not one.posts_prices:
            raise InputError(
                f"scheme {one.name!r} has no prices, so there is no market. Leave out --scheme "
                f"{one.name}, or --ledger."
            )
    from fedprice.market.ledger import Ledger

    return Ledger(url)


def _run_name(what: What, outcome: Outcome, seed: int) -> str:
    return f"{what.name}-{outcome.scheme.replace(' ', '-')}-{seed}"


def _markets(
    books: Ledger,
    what: What,
    outcomes: list[Outcome],
    seeds: int,
    manner: Manner,
    delivery: float,
    tariffs: Tariffs | None,
) -> list[list[History]]:
    """Run one market per scheme and seed, each a run of the ledger; resume unfinished ones."""
    from fedprice.market.simulation import simulate_market

    clock = what.clock()
    total = sum(outcome.game.bound.rounds for outcome in outcomes) * seeds
    try:
        with rounds_bar(f"{len(outcomes) * seeds} runs") as tell:
            progress = counted(tell, total)
            histories = [
                [
                    simulate_market(
                        what.task,
                        outcome,
                        ledger=books,
                        run=_run_name(what, outcome, seed),
                        tariffs=tariffs,
                        seed=seed,
                        aggregator=manner.aggregator_for(outcome, what),
                        server_step=manner.server_step,
                        delivery=delivery,
                        clock=clock,
                        progress=progress,
                        metrics=True,
                    )
                    for seed in range(seeds)
                ]
                for outcome in outcomes
            ]
    except KeyboardInterrupt as error:
        raise StoppedError(
            f"stopped; all progress is in {books.name}. Run the same command again to resume."
        ) from error
    warn(outcomes, histories)
    return histories


def _spend(books: Ledger, run: str) -> float:
    """Return what a run paid out minus what it took in."""
    from fedprice.market.money import money
    from fedprice.market.periods import spent_in

    return float(money(spent_in(books, [run])))
