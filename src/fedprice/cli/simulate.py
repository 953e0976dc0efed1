"""`fedprice simulate`: price a setup, and train it from whoever shows up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from fedprice.cli import options
from fedprice.cli.console import Delivery, StoppedError, json_text, stderr
from fedprice.cli.data import DataPath
from fedprice.cli.price import require_feasible
from fedprice.cli.progress import rounds_bar
from fedprice.cli.summaries import summary_table
from fedprice.errors import InputError, require
from fedprice.pricing import find_schemes

if TYPE_CHECKING:
    from fedprice.data import Federation
    from fedprice.learning import History
    from fedprice.market.ledger import Ledger
    from fedprice.pricing import Outcome, Scheme

__all__ = ["simulate"]


def simulate(
    setup: Annotated[str, typer.Argument(metavar="SETUP", help="setup1, setup2 or setup3.")],
    source: DataPath = None,
    scheme: options.Schemes = ["equilibrium", "weighted", "uniform"],  # noqa: B006 (typer copies it)
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each scheme.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 1000,
    delivery: Annotated[
        float, typer.Option(min=0, max=1, help="How likely an update arrives after heads.")
    ] = 1.0,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Run the whole market: offers, coins, checks, and payments recorded here.",
        ),
    ] = None,
    output: options.OutputFile = None,
    format_: options.StdoutFormat = options.Format.TABLE,
    force: options.Force = False,
) -> None:
    """Calibrate and price a setup, then train a model under each scheme's prices."""
    import polars as pl

    from fedprice.calibrate import calibrate
    from fedprice.experiments import setup_of
    from fedprice.experiments.cells import aggregator_of
    from fedprice.learning import Training, simulate_runs

    sending = Delivery(output, None, format_, force)
    chosen = setup_of(setup)
    schemes = find_schemes(scheme)
    aggregators = [aggregator_of(one.aggregator) for one in schemes]
    books = None if ledger is None else _open_ledger(ledger, schemes)
    federation = chosen.federation(source)
    with stderr().status("calibrating"):
        game = chosen.game(federation, calibrate(federation), rounds=rounds)
    outcomes = [one(game) for one in schemes]
    for outcome in outcomes:
        require_feasible(outcome)
    total = len(outcomes) * seeds
    lock, done = threading.Lock(), 0
    with rounds_bar(f"{total} runs") as tell:

        def progress(_: int) -> None:
            nonlocal done
            with lock:
                done += 1
                tell(done, total * rounds, "")

        training, clock = Training(rounds=rounds), chosen.clock(federation)
        if books is None:
            histories = [
                simulate_runs(
                    federation,
                    [(outcome.levels, seed) for seed in range(seeds)],
                    training=training,
                    aggregator=aggregator,
                    delivery=delivery,
                    clock=clock,
                    progress=progress,
                )
                for outcome, aggregator in zip(outcomes, aggregators, strict=True)
            ]
        else:
            histories = _markets(
                books, setup, federation, outcomes, range(seeds),
                training=training, delivery=delivery, clock=clock, progress=progress,
            )  # fmt: skip
    rows = pl.DataFrame(
        [
            {
                "scheme": outcome.scheme,
                "status": outcome.status.value,
                "spend": outcome.spend
                if books is None
                else float(
                    np.mean([_spend(books, _run_name(setup, outcome, n)) for n in range(seeds)])
                ),
                "joiners": float(np.mean([h.joined.mean() for h in own])),
                "excess_by_bound": outcome.expected_loss,
                "loss": float(np.mean([h.loss[-1] for h in own])),
                "loss_std": float(np.std([h.loss[-1] for h in own])),
                "accuracy": float(np.mean([h.accuracy[-1] for h in own])),
                "time": float(np.mean([h.time[-1] for h in own])),
            }
            for outcome, own in zip(outcomes, histories, strict=True)
        ]
    )
    sending.send(
        rows,
        to_json=lambda: json_text(schemes=rows),
        to_screen=lambda: summary_table(rows, rows.columns),
    )
    if books is not None:
        names = [_run_name(setup, outcome, n) for outcome in outcomes for n in range(seeds)]
        books.close()
        stderr().print(
            f"recorded in {books.name}: {', '.join(names)}; look with: fedprice ledger show "
            f"{names[0]} --ledger {ledger}",
            markup=False,
        )


def _open_ledger(url: str, schemes: list[Scheme]) -> Ledger:
    """Open the ledger before the work, and refuse what could not be recorded after it."""
    require("fedprice.learning.kernels", "learn,market")
    require("fedprice.market.ledger", "learn,market")
    for one in schemes:
        if not one.posts_prices:
            raise InputError(
                f"scheme {one.name!r} offers no prices, so it is no market. Leave out --scheme "
                f"{one.name}, or --ledger."
            )
    from fedprice.market.ledger import Ledger

    return Ledger(url)


def _run_name(setup: str, outcome: Outcome, seed: int) -> str:
    return f"{setup}-{outcome.scheme}-{seed}"


def _markets(
    books: Ledger,
    setup: str,
    federation: Federation,
    outcomes: list[Outcome],
    seeds: range,
    **settings: Any,
) -> list[list[History]]:
    """Run a market a scheme and seed, each a run of the ledger; go on with those begun."""
    from fedprice.market.simulation import simulate_market

    try:
        return [
            [
                simulate_market(
                    federation,
                    outcome,
                    ledger=books,
                    run=_run_name(setup, outcome, seed),
                    seed=seed,
                    **settings,
                )
                for seed in seeds
            ]
            for outcome in outcomes
        ]
    except KeyboardInterrupt as error:
        raise StoppedError(
            f"stopped; what is done is in {books.name}, and the same command goes on from there."
        ) from error


def _spend(books: Ledger, run: str) -> float:
    """Return what a run paid out less what it took in."""
    from fedprice.market.money import money

    net = sum(
        amount
        for entry in books.entries(run)
        for account, amount in entry.postings
        if account.startswith("client:")
    )
    return float(money(net))
