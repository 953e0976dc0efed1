"""The closed forms of Theorems 2 and 3, for clients strictly between their floor and their cap.

Symbols: q level, P price, c cost, τ cost exponent, v value, k impact, X = 1/λ − v. With τ = 2 they
are the paper's, except that its Theorem 2 drops the factor τ² R/α.

References
----------
Luo, Feng, Wang, Huang, Tassiulas. "Incentive Mechanism Design for Unbiased Federated Learning with
Randomized Client Participation." ICDCS 2023.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.pricing.outcome import Outcome

__all__ = ["theorem_2_levels", "theorem_3_prices", "theorem_3_threshold"]


def theorem_2_levels(outcome: Outcome) -> FloatArray:
    """Return q = (k X / (τ² c))^{1/(τ+1)} at an equilibrium's λ, shape (N,).

    By Theorem 2, τ² c q^{τ+1} / k + v is 1/λ for all clients. NaN where a client's value is above
    1/λ, which for a client strictly between its limits it is not.

    Examples
    --------
    >>> import fedprice as fp
    >>> clients = fp.Clients(samples=[120, 300], grad_norm=1.2, cost=[40, 55], value=[0, 40])
    >>> best = fp.solve(fp.Game(clients, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20))
    >>> best.levels.round(6), theorem_2_levels(best).round(6)
    (array([0.230794, 0.381303]), array([0.230794, 0.381303]))
    """
    game, tau = outcome.game, outcome.game.cost_exponent
    with np.errstate(invalid="ignore"):
        power = game.impact * _surplus(outcome) / (tau**2 * game.clients.cost)
        levels: FloatArray = power ** (1 / (tau + 1))
    return levels


def theorem_3_prices(outcome: Outcome) -> FloatArray:
    """Return P = (k/τ) (τ² c / (k X))^{2/(τ+1)} (X − τ v) at an equilibrium's λ, shape (N,).

    For τ = 2 this is the paper's (2 k c²)^{1/3} [X^{1/3} − 2 v X^{−2/3}].
    """
    game, tau, surplus = outcome.game, outcome.game.cost_exponent, _surplus(outcome)
    clients, impact = game.clients, game.impact
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = (impact / tau) * (tau**2 * clients.cost / (impact * surplus)) ** (2 / (tau + 1))
        prices: FloatArray = factor * (surplus - tau * clients.value)
    return prices


def theorem_3_threshold(multiplier: float, cost_exponent: float) -> float:
    """Return v^t = 1 / ((τ+1) λ): a client pays exactly if its value is above it.

    Examples
    --------
    >>> theorem_3_threshold(multiplier=0.001, cost_exponent=2)
    333.3333333333333
    """
    return 1 / ((cost_exponent + 1) * multiplier)


def _surplus(outcome: Outcome) -> FloatArray:
    """Return X = 1/λ − v, from the two parts of 1/λ, so that nothing is lost to rounding."""
    reference, above = outcome.reciprocal
    surplus: FloatArray = (reference - outcome.game.clients.value) + above
    return surplus
