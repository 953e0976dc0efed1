r"""Client sampling with payment: levels from a rule that ignores costs, at the prices they need.

Symbols: q level, P price, a weight, G norm of gradients or updates, c cost, τ cost exponent, v
value, k impact.

The levels are q_n = min(q_max, s w_n), and the price of each is the one at which the client chooses
it, P = τ c q^{τ−1} − v k/q². The scalar s is as large as the budget allows. The rules differ in w:

- *optimal*: w_n = a_n G_n, which for a given number of joiners has the least variance of an
  unbiased estimate, Σ a² G² (1 − q) / q;
- *uniform*: w_n = 1;
- *by samples*: w_n = a_n.

References
----------
W. Chen, S. Horváth, P. Richtárik, Optimal Client Sampling for Federated Learning, TMLR 2022.

Warnings
--------
The publication samples by the norms of the updates, which clients send again in every round; here
the probabilities are fixed before training, by the norms that were measured. It samples, without
payment, from clients that always comply; here every level is paid for, and a client that would join
more often unpaid pays instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.game import price_for
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.root import Spend, find_root
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game

__all__ = ["optimal_sampling", "sampling_by_samples", "uniform_sampling"]


@scheme("optimal-sampling")
def optimal_sampling(game: Game) -> Outcome:
    """Return the outcome of levels in proportion to weight times norm.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> outcome = optimal_sampling(Game(clients, bound=Bound(alpha=2, rounds=1000), budget=4))
    >>> outcome.levels.round(3), round(outcome.spend, 6)
    (array([0.235, 0.706]), 4.0)
    """
    return _sampled(game, game.clients.weight * game.clients.norm, "optimal-sampling")


@scheme("uniform-sampling")
def uniform_sampling(game: Game) -> Outcome:
    """Return the outcome of the same level for all."""
    return _sampled(game, np.ones(len(game.clients)), "uniform-sampling")


@scheme("sampling-by-samples")
def sampling_by_samples(game: Game) -> Outcome:
    """Return the outcome of levels in proportion to samples."""
    return _sampled(game, game.clients.weight, "sampling-by-samples")


def _sampled(game: Game, rule: FloatArray, name: str) -> Outcome:
    """Return the outcome of the levels s · rule, within floors and caps, that the budget buys."""
    clients, tau = game.clients, game.cost_exponent
    wants = clients.value * game.impact
    floor, cap = clients.level_min, clients.level_max

    def levels(scalar: float) -> FloatArray:
        return np.clip(scalar * rule, floor, cap)

    def spend(scalar: float) -> Spend:
        q = levels(scalar)
        bought = tau * clients.cost * q**tau
        given = np.divide(wants, q, out=np.zeros_like(q), where=q > 0)
        moving = (q > floor) & (q < cap)
        slope = float(np.sum((tau * bought + given) / scalar, where=moving)) if scalar else 0.0
        total = float((bought - given).sum())
        return Spend(total, total - game.budget, slope, float((bought + given).sum()))

    with np.errstate(all="ignore"):  # `solve` refuses what overflows
        # A client without a floor pays without limit for a level near 0.
        unlimited = bool(((floor == 0) & (wants > 0)).any())
        least = -np.inf if unlimited else spend(0.0).total
        most = float((cap[rule > 0] / rule[rule > 0]).max(initial=0.0)) * (1 + 2**-50)
        scalar, iterations = 0.0, 1
        if game.budget >= spend(most).total:
            scalar = most
        elif game.budget > least:
            root = find_root(spend, start=most / 2, upper=most)
            scalar = root.point if root.found else root.lower
            iterations += root.iterations
        q = levels(scalar)
        return Outcome.from_prices(
            game,
            price_for(game, q),
            scheme=name,
            levels=q,
            least_budget=least,
            iterations=iterations,
        )
