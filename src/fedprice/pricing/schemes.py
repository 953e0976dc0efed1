"""The registry of schemes: a scheme is a function Game → Outcome with a name."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fedprice.errors import InputError, nearest, precision_error
from fedprice.pricing.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.game import Game

    Scheme = Callable[[Game], Outcome]
    SchemeT = TypeVar("SchemeT", bound=Scheme)

__all__ = ["SCHEMES", "scheme", "solve"]

SCHEMES: dict[str, Scheme] = {}


def scheme(name: str) -> Callable[[SchemeT], SchemeT]:
    """Register a scheme under a name, by which `solve` finds it.

    Examples
    --------
    >>> import fedprice as fp
    >>> @fp.scheme("by-cost")
    ... def by_cost(game):
    ...     prices = game.budget * game.clients.cost / game.clients.cost.sum()
    ...     return fp.Outcome.from_prices(game, prices, scheme="by-cost")
    >>> clients = fp.Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=0)
    >>> game = fp.Game(clients, bound=fp.Bound(alpha=2, rounds=1000), budget=3)
    >>> fp.solve(game, scheme="by-cost").payments
    array([0.22222222, 0.27777778])
    >>> del fp.SCHEMES["by-cost"]
    """

    def register(function: SchemeT) -> SchemeT:
        taken = SCHEMES.get(name)
        if taken is not None and taken.__module__ != function.__module__:
            raise InputError(f"there is a scheme {name!r} in {taken.__module__}; use another name.")
        SCHEMES[name] = function
        return function

    return register


def solve(game: Game, scheme: str = "equilibrium") -> Outcome:
    """Price a game.

    Parameters
    ----------
    game
        Clients, bound and budget.
    scheme
        A name in `SCHEMES`; by default the Stackelberg equilibrium.

    Returns
    -------
    Outcome
        Its `status` says whether the budget sufficed.
    """
    if scheme not in SCHEMES:
        raise InputError(f"there is no scheme {scheme!r}. {nearest(str(scheme), SCHEMES)}")
    outcome = SCHEMES[scheme](game)
    if not isinstance(outcome, Outcome):
        raise InputError(f"scheme {scheme!r} must return an Outcome; got {type(outcome).__name__}.")
    if not np.isfinite(outcome.levels.sum() + outcome.prices.sum()):
        raise precision_error(scheme)
    return outcome
