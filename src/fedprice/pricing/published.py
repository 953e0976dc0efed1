"""Uniform and weighted pricing as in the code that the paper's authors published.

Warnings
--------
These set prices and levels as if no client had a value: q = min(q_max, (P/τc)^{1/(τ−1)}), and
the scalar would spend the budget if no client were at its cap. With values, these levels are not
what clients would choose; `uniform` and `weighted` are the sound versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import best_level
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game


__all__ = ["uniform_published", "weighted_published"]


@scheme("uniform-published")
def uniform_published(game: Game) -> Outcome:
    """Return the outcome of p = √(2B / Σ 1/c) for all (τ = 2; any τ by the same rule)."""
    return _published(game, np.ones(len(game.clients)), "uniform-published")


@scheme("weighted-published")
def weighted_published(game: Game) -> Outcome:
    """Return the outcome of P_n = s a_n with s = √(2B / Σ a²/c) (τ = 2; any τ by the same rule)."""
    return _published(game, game.clients.weight, "weighted-published")


def _published(game: Game, direction: FloatArray, name: str) -> Outcome:
    from scipy.special import logsumexp

    clients, tau = game.clients, game.cost_exponent
    with np.errstate(all="ignore"):  # `solve` refuses what overflows
        # If no client is at its cap, Σ P (P / τ c)^{1/(τ−1)} = s^{τ/(τ−1)} · unit. For τ near 1 the
        # powers overflow, but their logarithms do not.
        log_unit = logsumexp((tau * np.log(direction) - np.log(tau * clients.cost)) / (tau - 1))
        # The rule ignores floors; it meets them from this scalar on.
        needed = np.where(clients.level_min > 0, clients.level_min ** (tau - 1), 0)
        scalars = np.where(needed > 0, tau * clients.cost * needed / direction, 0.0)
        least_scalar = float(scalars.max())
        least = float(np.exp(log_unit + tau / (tau - 1) * np.log(least_scalar)))
        budget = min(max(game.budget, least, 0.0), np.finfo(np.float64).max)
        scalar = float(np.exp((np.log(budget) - log_unit) * (tau - 1) / tau))
        prices = scalar * direction
        return Outcome.from_prices(
            game,
            prices,
            scheme=name,
            levels=best_level(prices, clients.cost, 0.0, tau, clients.level_max),
            least_budget=least,
        )
