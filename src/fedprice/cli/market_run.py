"""`fedprice simulate --ledger`: a market, whose offers may be posted for beliefs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.cli.beliefs import Form, read_beliefs
from fedprice.cli.console import StoppedError
from fedprice.cli.progress import rounds_bar
from fedprice.cli.training import Manner, counted, warn
from fedprice.errors import InputError
from fedprice.pricing import Scheme

if TYPE_CHECKING:
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.posted import Posted
    from fedprice.cli.what import What
    from fedprice.game import Game
    from fedprice.market.ledger import Ledger
    from fedprice.pricing import Outcome
    from fedprice.rounds import History
    from fedprice.tariff import Tariffs
    from fedprice.trackers import OpenTracker

__all__ = ["SCHEME", "chosen_in", "open_ledger", "posting_of", "promised", "run_market", "spend_of"]

SCHEME = "equilibrium"


@dataclass(frozen=True)
class Posting:
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


def posting_of(
    beliefs: str | None,
    form: Form | None,
    blocks: int | None,
    cost: float | None,
    value: float | None,
    *,
    ledger: str | None,
    scheme: list[str],
) -> Posting | None:
    """Return the form and the beliefs of posted offers, or None without --beliefs."""
    if beliefs is None:
        given = {"--form": form, "--blocks": blocks, "--cost": cost, "--value": value}
        for name, own in given.items():
            if own is not None:
                raise InputError(f"{name} requires --beliefs FILE|exponential.")
        return None
    if ledger is None:
        raise InputError(
            "--beliefs needs --ledger URL: only in a market do clients answer for themselves."
        )
    if scheme != [SCHEME]:
        raise InputError("--scheme cannot be combined with --beliefs.")
    if beliefs == "others":
        raise InputError(
            "--beliefs others works only with `fedprice post`; here, give FILE or exponential, "
            "with --cost and --value."
        )
    form = form or Form.PRICE
    if blocks is not None and form is not Form.BLOCKS:
        raise InputError(f"--blocks requires --form blocks; got --form {form}.")
    return Posting(read_beliefs(beliefs, cost, value, form), form, blocks)


def promised(outcome: Outcome, posted: Posted | None) -> dict[str, str | float]:
    """Return the status of an outcome, or what is expected of what was posted."""
    if posted is None:
        return {"status": outcome.status.value}
    return {
        "status": "posted",
        "expected_spend": posted.expected_spend,
        "spend_std": posted.spend_std,
    }


def chosen_in(books: Ledger, run: str, outcome: Outcome) -> Outcome:
    """Return the outcome with the levels that clients committed to in a run."""
    from fedprice.market.money import LEVEL_ONE

    clients = books.run(run).clients
    levels = [clients[str(name)].level / LEVEL_ONE for name in outcome.game.clients.ids]
    return replace(outcome, levels=np.array(levels))


def open_ledger(url: str, priced_by: Scheme | Posting) -> Ledger:
    """Open the ledger before the work, and refuse a scheme that could not be recorded in it."""
    if isinstance(priced_by, Scheme) and not priced_by.posts_prices:
        raise InputError(
            f"scheme {priced_by.name!r} has no prices, so there is no market. Leave out --scheme "
            f"{priced_by.name}, or --ledger."
        )
    from fedprice.market.ledger import Ledger

    return Ledger(url)


def run_market(
    books: Ledger,
    what: What,
    outcome: Outcome,
    run: str,
    seed: int,
    manner: Manner,
    delivery: float,
    tariffs: Tariffs | None,
    tracker: OpenTracker | None = None,
) -> History:
    """Run a market, recorded in a ledger; resume an unfinished one."""
    from fedprice.market.simulation import simulate_market

    try:
        with rounds_bar("the market") as tell:
            history = simulate_market(
                what.task,
                outcome,
                ledger=books,
                run=run,
                tariffs=tariffs,
                seed=seed,
                aggregator=manner.aggregator_for(outcome),
                server_step=manner.server_step,
                delivery=delivery,
                clock=what.clock(),
                progress=counted(tell, outcome.game.bound.rounds),
                metrics=True,
                tracker=tracker,
            )
    except KeyboardInterrupt as error:
        raise StoppedError(
            f"stopped; all progress is in {books.name}. Run the same command again to resume."
        ) from error
    warn(outcome, history)
    return history


def spend_of(books: Ledger, run: str) -> float:
    """Return what a run paid out minus what it took in."""
    from fedprice.market.money import money
    from fedprice.market.periods import spent_in

    return float(money(spent_in(books, [run])))
