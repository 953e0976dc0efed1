r"""Shapley payments and Shapley prices: clients are paid for what they contribute to the bound.

Symbols: q level, P price, T payment, c cost, τ cost exponent, v value, k impact, B budget.

The Shapley value of a client is what it adds to a coalition, averaged over all orders in which the
coalition may have formed. The bound is a sum over clients: if a set S of clients raises the level
from 1/2 to 1, the expected loss falls by Σ_{n∈S} k_n, regardless of all others. So the Shapley
value is the impact k_n, and need not be estimated by training with and without each client.

*Payments*: the budget is shared by Shapley value, T_n = B k_n / Σ k, through a price per unit of
level: the client's best answer to T_n / q is q where T_n = τ c q^τ − v k / q. A client at the cap
is also paid its share, though less would suffice.

*Prices*: P_n = s k_n, the scalar s as high as the budget allows.

References
----------
A. Ghorbani, J. Zou, Data Shapley: Equitable Valuation of Data for Machine Learning, ICML 2019.
T. Song, Y. Tong, S. Wei, Profit Allocation for Federated Learning, IEEE Big Data 2019.

Warnings
--------
The publications share a profit after training, by the accuracy that was measured without each
client; here what is shared is the budget, in advance, by the bound, and clients answer with
their levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import price_for
from fedprice.pricing.along import price_along
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game

__all__ = ["shapley_payments", "shapley_prices"]

MOST_STEPS = 200


@scheme("shapley-payments")
def shapley_payments(game: Game) -> Outcome:
    """Return the outcome in which each client is paid its share of the budget by impact.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> outcome = shapley_payments(Game(clients, bound=Bound(alpha=2, rounds=1000), budget=6))
    >>> outcome.payments.round(6), outcome.levels.round(3)
    (array([0.6, 5.4]), array([0.274, 0.815]))
    """
    impact, clients = game.impact, game.clients
    with np.errstate(all="ignore"):  # `solve` refuses what overflows
        share = np.where(impact > 0, impact / impact.sum(), 0.0)
        payments = max(game.budget, 0.0) * share
        levels = np.minimum(_levels_for(game, payments), clients.level_max)
        floor = clients.level_min
        needed = np.where(floor > 0, np.maximum(price_for(game, floor) * floor, 0.0), 0.0)
        least = np.where(needed > 0, needed / share, 0.0).max()
        prices = np.where(payments > 0, payments / levels, 0.0)
        return Outcome.from_prices(
            game, prices, scheme="shapley-payments", least_budget=float(least)
        )


def _levels_for(game: Game, payments: FloatArray) -> FloatArray:
    """Return the levels q at which τ c q^{τ+1} = T q + v k, for payments T ≥ 0, shape (N,).

    The difference of both sides is convex in q, so that Newton's iteration falls monotonically to
    the root from any point above.
    """
    clients, tau = game.clients, game.cost_exponent
    slope, wants = tau * clients.cost, clients.value * game.impact
    level = np.maximum((2 * payments / slope) ** (1 / tau), (2 * wants / slope) ** (1 / (tau + 1)))
    for _ in range(MOST_STEPS):
        power = slope * level**tau
        steep = (tau + 1) * power - payments
        step = np.where(level > 0, ((power - payments) * level - wants) / steep, 0.0)
        level = level - step
        if not (step > 1e-15 * level).any():
            break
    return level


@scheme("shapley-prices")
def shapley_prices(game: Game) -> Outcome:
    """Return the outcome of prices P_n = s k_n, as high as the budget allows.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> prices = shapley_prices(Game(clients, bound=Bound(alpha=2, rounds=1000), budget=6)).prices
    >>> (prices / prices[0]).round(12)
    array([1., 9.])
    """
    return price_along(game, game.impact, "shapley-prices")
