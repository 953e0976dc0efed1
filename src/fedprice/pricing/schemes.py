"""Schemes: a scheme prices a game, and knows what training under its prices needs.

`SCHEMES` holds the registered ones; `find_scheme` also loads one from a user's file.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fedprice._plumbing.python_files import beside, function_failed, load_function
from fedprice.errors import InputError, nearest, precision_error
from fedprice.pricing.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from fedprice.game import Game

    Function = Callable[[Game], Outcome]
    FunctionT = TypeVar("FunctionT", bound=Function)

__all__ = ["SCHEMES", "Scheme", "find_scheme", "find_schemes", "scheme", "solve"]


@dataclass(frozen=True)
class Scheme:
    """A way to price games: call it with a `Game` to get an `Outcome`.

    Attributes
    ----------
    name
        Its name in tables and results.
    function
        Computes the outcome.
    posts_prices
        Whether it offers each client a price and leaves the level to the client. Only such a scheme
        can be run as a market.
    aggregator
        The name of the aggregator that trains under its prices; None for the one that suits the
        task.

    Examples
    --------
    >>> import fedprice as fp
    >>> fp.SCHEMES["uniform"].posts_prices, fp.SCHEMES["subset"].posts_prices
    (True, False)
    >>> clients = fp.Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=0)
    >>> game = fp.Game(clients, bound=fp.Bound(alpha=2, rounds=1000), budget=3)
    >>> flat = fp.Scheme("flat", lambda game: fp.Outcome.from_prices(game, 1.0, scheme="flat"))
    >>> flat(game).posts_prices
    True
    """

    name: str
    function: Function
    posts_prices: bool = True
    aggregator: str | None = None

    def __call__(self, game: Game) -> Outcome:
        """Return the outcome of a game, which carries the scheme's name and properties."""
        outcome = self.function(game)
        if not isinstance(outcome, Outcome):
            kind = type(outcome).__name__
            raise InputError(f"scheme {self.name!r} must return an Outcome; got {kind}.")
        if outcome.game is not game:
            raise InputError(f"scheme {self.name!r} must price the game that it is given.")
        if not np.isfinite(outcome.levels.sum() + outcome.prices.sum()):
            raise precision_error(self.name)
        return replace(
            outcome,
            scheme=self.name,
            posts_prices=self.posts_prices,
            aggregator=self.aggregator,
        )


SCHEMES: dict[str, Scheme] = {}


def scheme(
    name: str, *, posts_prices: bool = True, aggregator: str | None = None
) -> Callable[[FunctionT], FunctionT]:
    """Register a function as the scheme of this name, by which `solve` finds it.

    The function itself is returned unchanged.

    Parameters
    ----------
    name, posts_prices, aggregator
        As for `Scheme`.

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

    def register(function: FunctionT) -> FunctionT:
        taken = SCHEMES.get(name)
        if taken is not None and taken.function.__module__ != function.__module__:
            raise InputError(
                f"there is a scheme {name!r} in {taken.function.__module__}; use another name."
            )
        SCHEMES[name] = Scheme(name, function, posts_prices, aggregator)
        return function

    return register


def solve(game: Game, scheme: str = "equilibrium") -> Outcome:
    """Price a game.

    Parameters
    ----------
    game
        Clients, bound and budget.
    scheme
        A name in `SCHEMES` or FILE.py:FUNCTION; by default the Stackelberg equilibrium.

    Returns
    -------
    Outcome
        Its `status` says whether the budget sufficed.
    """
    return find_scheme(scheme)(game)


def find_scheme(name: str) -> Scheme:
    """Return the scheme registered under a name, or the one that FILE.py:FUNCTION defines.

    A function in a file that is not registered there is a scheme under its own name, with the
    default properties.
    """
    if name not in SCHEMES and ":" not in str(name):
        importlib.import_module("fedprice.contrib")  # registers what is in no default list
    if name in SCHEMES:
        return SCHEMES[name]
    if ":" not in str(name):
        raise InputError(f"there is no scheme {name!r}. {nearest(str(name), SCHEMES)}")
    loaded = load_function(name, "scheme")
    registered = next((known for known in SCHEMES.values() if known.function is loaded), None)
    if registered is None:
        registered = (
            loaded if isinstance(loaded, Scheme) else Scheme(name.rpartition(":")[2], loaded)
        )
    function, path = registered.function, name.rpartition(":")[0]
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise InputError(
            f"scheme {name!r}: a scheme is a function of one Game; got "
            f"{inspect.signature(function)}."
        ) from None
    except ValueError:
        pass  # some built-in functions have no signature

    def guarded(game: Game) -> Outcome:
        try:
            with beside(path):
                return function(game)
        except InputError as error:
            raise InputError(f"scheme {name!r}: {error}") from error
        except (Exception, SystemExit) as error:
            raise function_failed(name, "scheme", error) from error

    return replace(registered, function=guarded)


def find_schemes(names: Iterable[str], taken: Iterable[str] = ()) -> list[Scheme]:
    """Return the schemes with these names; refuse two with the same name in results.

    Parameters
    ----------
    names
        As for `find_scheme`.
    taken
        Names that the results use for something else.
    """
    schemes: dict[str, Scheme] = {}
    known = set(taken)
    for name in names:
        if name in schemes:
            raise InputError(f"the scheme {name!r} is named twice; name each scheme once.")
        scheme = schemes[name] = find_scheme(name)
        if name in known:
            raise InputError(f"the scheme {name!r} is in the results already; leave it out.")
        if scheme.name in known:
            raise InputError(
                f"{name!r} would be called {scheme.name!r} in the results, a name that is "
                "taken; give it another one."
            )
        known.add(scheme.name)
    return list(schemes.values())
