"""`scale_to_budget`: prices in given proportions, as high as the budget allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice._plumbing.client_columns import floats
from fedprice.errors import InputError
from fedprice.game import best_response, price_for
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.root import Spend, find_root

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game


__all__ = ["price_along", "scale_to_budget"]


def scale_to_budget(game: Game, shape: npt.ArrayLike) -> FloatArray:
    """Return prices in these proportions, scaled until the clients' answers cost the budget.

    The prices are P_n = s · shape_n, with the s at which Σ P_n q_n(P_n) = B, or the smallest that
    puts every client at its cap. A client whose floor needs a higher price gets that price.

    Parameters
    ----------
    game
        The game.
    shape
        Relative prices, at least 0 and not all 0, shape (N,).

    Examples
    --------
    A mechanism in three lines, which pays clients in proportion to their impact:

    >>> import fedprice as fp
    >>> @fp.scheme("by-impact")
    ... def by_impact(game):
    ...     prices = fp.scale_to_budget(game, game.impact)
    ...     return fp.Outcome.from_prices(game, prices, scheme="by-impact")
    >>> clients = fp.Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> game = fp.Game(clients, bound=fp.Bound(alpha=2, rounds=1000), budget=6)
    >>> outcome = fp.solve(game, "by-impact")
    >>> round(outcome.spend, 9), (outcome.prices / outcome.prices[0]).round(9)
    (6.0, array([1., 9.]))
    >>> del fp.SCHEMES["by-impact"]
    """
    direction = floats("shape", shape)
    count = len(game.clients)
    if direction.shape != (count,):
        raise InputError(f"`shape` must have one entry per client, {count}; got {direction.shape}.")
    bad = ~(np.isfinite(direction) & (direction >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"`shape` must be finite numbers, at least 0; got {direction[row]:g} for client "
            f"{game.clients.ids[row]!r}."
        )
    if not direction.any():
        raise InputError("`shape` must be above 0 for at least one client; got only zeros.")
    return _scaled(game, direction / direction.max()).prices


def price_along(game: Game, direction: FloatArray, scheme: str) -> Outcome:
    """Return the outcome of `scale_to_budget`, with the least budget at which floors are met."""
    scaled = _scaled(game, direction)
    return Outcome.from_prices(
        game,
        scaled.prices,
        scheme=scheme,
        least_budget=scaled.least_budget,
        iterations=scaled.iterations,
    )


class _Scaled(NamedTuple):
    """Prices, the least budget that meets all floors, and the passes that the search took."""

    prices: FloatArray
    least_budget: float
    iterations: int


@np.errstate(all="ignore")  # `solve` refuses what overflows
def _scaled(game: Game, direction: FloatArray) -> _Scaled:
    clients = game.clients
    at_floor = np.where(clients.level_min > 0, price_for(game, clients.level_min), -np.inf)
    positive = direction > 0
    at_cap = price_for(game, clients.level_max)[positive] / direction[positive]
    most = max(float(at_cap.max(initial=0.0)), 0.0) * (1 + 2**-50)  # above its own rounding error

    def prices(scalar: float) -> FloatArray:
        return np.maximum(scalar * direction, at_floor)

    def spend(scalar: float) -> Spend:
        offered = prices(scalar)
        levels = best_response(game, offered)
        payments = offered * levels
        moving = np.where(offered > at_floor, direction, 0.0)
        slope = moving @ (levels + offered * _response_slope(game, levels))
        total = float(payments.sum())
        return Spend(total, total - game.budget, float(slope), float(np.abs(payments).sum()))

    least = spend(0.0).total
    scalar, iterations = 0.0, 1
    if game.budget >= spend(most).total:
        scalar, iterations = most, 2
    elif game.budget > least:
        root = find_root(spend, start=most / 2, upper=most)
        scalar = root.point if root.found else root.lower
        iterations = root.iterations + 2
    return _Scaled(prices(scalar), least, iterations)


def _response_slope(game: Game, levels: FloatArray) -> FloatArray:
    """Return dq/dP = 1 / (2 v k / q³ + τ (τ−1) c q^{τ−2}), and 0 at the cap and at level 0."""
    clients, tau = game.clients, game.cost_exponent
    inside = (levels > 0) & (levels < clients.level_max)
    q = np.where(inside, levels, 1.0)
    curvature = 2 * clients.value * game.impact / q**3
    curvature += tau * (tau - 1) * clients.cost * q ** (tau - 2)
    return np.where(inside, 1 / curvature, 0.0)
