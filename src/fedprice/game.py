"""`Game`: clients, bound and budget; what a client answers to a price (Stage II).

Symbols: q level, P price, c cost, τ cost exponent, v value, k impact.

A client maximises U(q) = P q − c q^τ − v k / q + constant, which is strictly concave for q > 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fedprice.bound import random_loss
from fedprice.errors import InputError, number_like, precision_error

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.bound import Bound
    from fedprice.clients import Clients

    Amount = TypeVar("Amount", float, FloatArray)

__all__ = [
    "Game",
    "best_level",
    "best_response",
    "break_even",
    "difference",
    "price_at",
    "price_for",
    "profit_at",
    "utilities",
]


LARGEST_EXPONENT = 1e6  # beyond it, c q^τ is a step
ROUNDING = 1e-12  # of a difference, relative to what it is the difference of


@dataclass(frozen=True, eq=False)
class Game:
    """The Stackelberg game between a server with a budget and its clients.

    Parameters
    ----------
    clients, bound
        The clients, and how their levels determine the expected loss.
    budget
        B: the most that the server pays in total; negative when it wants to earn.
    cost_exponent
        τ > 1: a level q costs client n c_n q^τ. The paper has τ = 2.

    Examples
    --------
    >>> from fedprice import Bound, Clients
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> Game(clients, bound=Bound(alpha=2, rounds=1000), budget=10)
    Game(num_clients=2, budget=10, cost_exponent=2)
    """

    clients: Clients
    bound: Bound
    budget: float
    cost_exponent: float = 2.0

    def __post_init__(self) -> None:
        self.clients.require_types()
        budget = number_like("budget", self.budget)
        exponent = number_like("cost_exponent", self.cost_exponent)
        if not np.isfinite(budget):
            raise InputError(f"`budget` must be a finite number; got {budget}.")
        if not 1 < exponent <= LARGEST_EXPONENT:
            raise InputError(
                f"`cost_exponent` τ must be above 1, at most {LARGEST_EXPONENT:g}; got {exponent}."
            )
        tiny = np.finfo(np.float64).tiny
        underflow = self.impact.min() < tiny and ((self.impact > 0) & (self.impact < tiny)).any()
        if underflow or not np.isfinite(self.impact.sum()):
            raise precision_error("the impact alpha · weight² · norm² / rounds")
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "cost_exponent", exponent)

    def __repr__(self) -> str:
        return (
            f"Game(num_clients={len(self.clients)}, budget={self.budget:g}, "
            f"cost_exponent={self.cost_exponent:g})"
        )

    @cached_property
    def impact(self) -> FloatArray:
        """The clients' coefficients k_n = α a_n² G_n² / R in the bound, shape (N,)."""
        return self.bound.impact(self.clients)


def best_response(game: Game, prices: npt.ArrayLike) -> FloatArray:
    """Return the level that each client chooses at its price, shape (N,) (equation 13, any τ).

    The level is the root of P + v k / q² − τ c q^{τ−1} = 0, or `level_max` where the root lies
    above it, or 0 where there is none (v k = 0 and P ≤ 0). Floors do not enter: `level_min` binds
    the server, which has to offer a price at which the client wants that much.

    Parameters
    ----------
    game
        The game; its budget does not matter.
    prices
        P_n of either sign, shape (N,) or a scalar.

    Examples
    --------
    >>> from fedprice import Bound, Clients
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=10)
    >>> best_response(game, [4, -1]).round(6)
    array([0.5     , 0.435022])
    >>> price_for(game, best_response(game, [4, -1])).round(12)
    array([ 4., -1.])
    """
    clients = game.clients
    given = _per_client("prices", prices, len(clients))
    return best_level(
        given, clients.cost, clients.value * game.impact, game.cost_exponent, clients.level_max
    )


def price_for(game: Game, levels: npt.ArrayLike) -> FloatArray:
    """Return the prices at which the clients choose these levels: the inverse of `best_response`.

    P(q) = τ c q^{τ−1} − v k / q², and 0 for a level of 0. The paper's inline inverse drops the
    factor v α / R, a misprint.
    """
    clients, tau = game.clients, game.cost_exponent
    q = _per_client("levels", levels, len(clients))
    if not ((q >= 0) & (q <= clients.level_max)).all():
        raise InputError("`levels` must lie between 0 and the clients' level_max.")
    return price_at(q, clients.cost, clients.value * game.impact, tau)


def price_at(
    level: FloatArray, cost: FloatArray, value_impact: FloatArray, cost_exponent: float
) -> FloatArray:
    """Return P(q) = τ c q^{τ−1} − v k / q², and 0 for a level of 0, elementwise."""
    with np.errstate(divide="ignore", invalid="ignore"):
        prices = cost_exponent * cost * level ** (cost_exponent - 1) - value_impact / level**2
    return np.where(level > 0, prices, 0.0)


def difference(more: Amount, less: Amount) -> Amount:
    """Return one amount minus another, exactly 0 where only rounding tells them apart.

    Examples
    --------
    >>> difference(0.3, 0.1 + 0.2), difference(2.0, 0.5)
    (0.0, 1.5)
    """
    apart = more - less
    resolved = abs(apart) >= ROUNDING * (abs(more) + abs(less))
    return apart * resolved + 0.0  # no zero is negative


def profit_at(level: Amount, price: Amount, cost: Amount, cost_exponent: float) -> Amount:
    """Return P q − c q^τ, what a level earns minus what it costs, elementwise.

    Examples
    --------
    >>> profit_at(0.5, 8.0, 10.0, cost_exponent=2)
    1.5
    """
    return difference(price * level, cost * level**cost_exponent)  # type: ignore[no-any-return]


def utilities(game: Game, levels: FloatArray, prices: FloatArray) -> FloatArray:
    """Return each client's expected utility at these levels and prices, shape (N,).

    U_n = P_n q_n − c_n q_n^τ − v_n (E[F(w^R)] − F*), with the bound of Theorem 1 for the loss. The
    paper's utility adds the constant v_n (F(w_n*) − F*), which no price or level changes.
    """
    clients = game.clients
    loss = random_loss(game.impact, levels) + game.bound.beta / game.bound.rounds
    profit = profit_at(levels, prices, clients.cost, game.cost_exponent)
    # A client without value does not suffer from a loss, not even from an infinite one.
    with np.errstate(invalid="ignore"):
        return np.where(clients.value > 0, profit - clients.value * loss, profit)


def best_level(
    price: npt.ArrayLike,
    cost: npt.ArrayLike,
    value_impact: npt.ArrayLike,
    cost_exponent: float,
    level_max: npt.ArrayLike = 1.0,
) -> FloatArray:
    """Return the q that maximises P q − c q^τ − v k / q on (0, level_max], elementwise.

    In y = q / q₀, with q₀ = (v k / τ c)^{1/(τ+1)} the answer to a price of 0, the condition has one
    parameter, p = P / (τ c q₀^{τ−1}):  y^{τ+1} = 1 + p y².  With z = log y it reads, for p > 0,
    (τ+1) z − log(1 + p e^{2z}) = 0, concave and increasing, and for p < 0,
    log(e^{(τ+1) z} − p e^{2z}) = 0, convex and increasing. Newton's iteration therefore runs
    monotonically from a start that both bounds give, and thanks to the logarithms every argument
    may span twelve orders of magnitude.
    """
    shape = np.broadcast_shapes(*map(np.shape, (price, cost, value_impact, level_max)))
    big_p, c, vk, cap = (
        np.broadcast_to(np.asarray(x, dtype=np.float64), shape)
        for x in (price, cost, value_impact, level_max)
    )
    tau = cost_exponent
    paid = big_p > 0
    driven = vk > 0
    with np.errstate(divide="ignore"):
        log_price = np.log(np.abs(big_p))
        log_slope = np.log(tau * c)
        log_cap = np.log(cap)
        log_q0 = (np.log(np.where(driven, vk, 1.0)) - log_slope) / (tau + 1)
    log_p = log_price - log_slope - (tau - 1) * log_q0
    z = np.where(paid, np.maximum(0.0, log_p / (tau - 1)), np.minimum(0.0, -log_p / 2))
    for _ in range(60):
        own = np.where(paid, 0.0, (tau + 1) * z)
        bought = log_p + 2 * z
        total = np.logaddexp(own, bought)
        residual = np.where(paid, (tau + 1) * z - total, total)
        slope = (tau + 1) - np.where(paid, 2.0, tau - 1) * np.exp(bought - total)
        step = residual / slope
        z -= step
        if not (np.abs(step) > 1e-15 * (1 + np.abs(z))).any():
            break
    # Without intrinsic value the condition is τ c q^{τ−1} = P.
    undriven = np.where(paid, (log_price - log_slope) / (tau - 1), -np.inf)
    log_q = np.where(driven, log_q0 + z, undriven)
    # The utility is concave: the cap is best if and only if its own price is met.
    capped = big_p >= price_at(cap, c, vk, tau)
    return np.where(capped, cap, np.minimum(np.exp(np.minimum(log_q, log_cap)), cap))


def break_even(
    cost: float, value_impact: float, cost_exponent: float, level_max: float = 1.0
) -> float:
    """Return the price below which the payment no longer covers the cost of the best level.

    At the best level q, P q = c q^τ where (τ − 1) c q^{τ+1} = v k. Below that price the client
    joins out of its own interest in the model, and below 0 it even pays the server.
    """
    level = (value_impact / ((cost_exponent - 1) * cost)) ** (1 / (cost_exponent + 1))
    return float(cost * min(level, level_max) ** (cost_exponent - 1))


def _per_client(name: str, given: npt.ArrayLike, count: int) -> FloatArray:
    array = np.asarray(given, dtype=np.float64)
    if array.shape not in ((), (count,)):
        raise InputError(f"`{name}` must have shape ({count},); got {array.shape}.")
    if not np.isfinite(array).all():
        raise InputError(f"`{name}` must be finite numbers.")
    return np.broadcast_to(array, (count,))
