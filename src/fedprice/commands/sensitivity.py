"""How prices change if an assumption is wrong, one client at a time.

A table without norms does not say how informative each client's samples are. So each client
in turn is priced with a norm of half and of twice that of all others. Where no client has a value,
these two prices are the least and the largest that it could get with any norms within a factor of
two of each other: its price rises with its own norm, falls with those of the others, and does not
change with a common factor. What it costs not to know the norms is the loss at the prices that
assume them, over that of prices made for the true ones.

A table without values takes clients for pure sellers. Each in turn is also priced with half of the
value above which it would pay (the sign threshold): who wants the model is offered less for it.
This needs no α, because the threshold has the same unit as values. At the price of a pure seller
such a client joins more often, and the spend exceeds the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.bound import random_loss
from fedprice.game import best_response
from fedprice.pricing.outcome import Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import polars as pl

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game
    from fedprice.pricing import Outcome

__all__ = ["FACTOR", "MOST_CLIENTS", "Bands", "bands"]

FACTOR = 2.0  # between the norm of one client and that of all others
SHARE = 0.5  # of the sign threshold
MOST_CLIENTS = 1000  # every client is priced anew up to three times


@dataclass(frozen=True, eq=False)
class Bands:
    """Prices of each client under other assumptions, shape (N,); NaN where there is none.

    Attributes
    ----------
    prices
        By the name of a column: `price_norm_half` and `price_norm_double`, if norms were assumed,
        and `price_if_valued`, if values were.
    loss_ratio
        If norms were assumed: the largest expected loss at the prices found, over that of prices
        made for the norms of the client in turn.
    spend_if_valued
        If values were assumed: the largest spend if one client has the value behind
        `price_if_valued` and is offered the price found.
    """

    prices: dict[str, FloatArray]
    loss_ratio: float | None = None
    spend_if_valued: float | None = None

    def summary(self) -> dict[str, Any]:
        """Return the largest loss ratio and the largest spend, by name."""
        found = {"loss_ratio": self.loss_ratio, "spend_if_valued": self.spend_if_valued}
        return {name: number for name, number in found.items() if number is not None}

    def with_prices(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return a table with one more column per assumption."""
        import polars as pl

        return rows.with_columns(pl.Series(name, column) for name, column in self.prices.items())


def bands(
    outcome: Outcome, columns: Iterable[str], priced: Callable[[Game], Outcome]
) -> Bands | None:
    """Price each client under other assumptions; None if there is nothing to price.

    Parameters
    ----------
    outcome
        The prices under the assumptions made.
    columns
        What was assumed: "value", "grad_norm", or both.
    priced
        How a game is priced.
    """
    game, clients = outcome.game, outcome.game.clients
    count = len(clients)
    if count > MOST_CLIENTS:
        return None
    prices: dict[str, FloatArray] = {}
    ratios, spends = [], []

    def price_each(name: str, changed: Callable[[int], Game]) -> Iterator[tuple[Game, Outcome]]:
        prices[name] = np.full(count, np.nan)
        for n in range(count):
            found = priced(game_of_n := changed(n))
            if found.status is not Status.INFEASIBLE:
                prices[name][n] = found.prices[n]
                yield game_of_n, found

    def scaled(n: int, factor: float) -> Game:
        norm = clients.norm.copy()
        norm[n] *= factor
        return replace(game, clients=clients.with_norms(norm, clients.norms))

    def valued(n: int) -> Game:
        value = clients.value.copy()
        value[n] = SHARE * outcome.sign_threshold
        return replace(game, clients=replace(clients, value=value))

    if "grad_norm" in columns and count > 1:
        for name, factor in (("price_norm_half", 1 / FACTOR), ("price_norm_double", FACTOR)):
            for other, best in price_each(name, partial(scaled, factor=factor)):
                if best.expected_loss > 0:
                    levels = outcome.levels  # of contracts
                    if outcome.bought is None:
                        levels = best_response(other, outcome.prices)
                    ratios.append(random_loss(other.impact, levels) / best.expected_loss)
    if "value" in columns and np.isfinite(outcome.sign_threshold):
        for other, _ in price_each("price_if_valued", valued):
            spends.append(float(outcome.prices @ best_response(other, outcome.prices)))
    return Bands(prices, max(ratios, default=None), max(spends, default=None)) if prices else None
