r"""Which clients would refuse their price, and the best prices that nobody refuses.

Symbols: q level, x = 1/q, P price, c cost, τ cost exponent, v value, k impact, X = Σ k x,
D_n and g_n the losses above the optimum of the model trained without client n, and of its own.

A client that takes part has the utility P q − c q^τ − v (X − Σ k + β/R). At the price of an
interior level, payment minus cost is (τ−1) c q^τ − v k x. What it compares this with must be
specified:

======= ================================================== ===================================
outside what a client that refuses does and has            it takes part if
======= ================================================== ===================================
free    it joins unpaid, at its best level                 P ≥ 0
stay    it stays out, and gets the model trained without   (τ−1) c q^τ − 2 v k x ≥ −v (k + D_n)
        it, the others joining as often as before
nothing it stays out, and keeps its own model              (τ−1) c q^τ − v k x ≥
                                                           v (X − Σ k + β/R − g_n)
======= ================================================== ===================================

Each left-hand side rises with q, so that every one of them is a floor on the level, and the
solver handles floors. A client whose floor would lie above its cap joins at the cap and is paid the
difference on top: there, a price above P(q) changes no level. In the last row the floors rise
with X, and X with the floors. Beginning with the X of the prices without this constraint, both are
computed in turn; no point that satisfies all constraints has a smaller X than any of those on the
way, so that the limit is the optimum, and if the budget does not suffice on the way, there is none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.tables import as_pandas
from fedprice.bound import random_loss
from fedprice.errors import InputError, nearest, precision_error
from fedprice.game import best_response, price_at
from fedprice.pricing import Outcome, Status, solve

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import polars as pl

    from fedprice._plumbing.arrays import BoolArray, FloatArray
    from fedprice.game import Game

__all__ = ["Outside", "Refusals", "refusals"]

TOLERANCE = 1e-9  # relative to the terms of a utility
SETTLED = 1e-13  # relative change of X at which floors and X are consistent
MOST_ITERATIONS = 1000
ROUNDING = 1e-12  # relative differences of losses below this are none


class Outside(StrEnum):
    """What a client does if it refuses its price.

    FREE: it joins unpaid. STAY: it stays out and gets the model trained without it. NOTHING: it
    stays out and keeps the model that it trained on its own data.
    """

    FREE = "free"
    STAY = "stay"
    NOTHING = "nothing"


@dataclass(frozen=True, eq=False, repr=False)
class Refusals:
    """Who would refuse the prices of an outcome, and the best prices that nobody refuses.

    Attributes
    ----------
    outcome
        The outcome in question.
    outside
        What a client does if it refuses.
    advantage
        The utility of taking part minus that of refusing, all others taking part, shape (N,).
    refuses
        Which clients would refuse, shape (N,).
    respected
        The optimum among all prices that nobody refuses; infeasible if the budget does not suffice
        for that. The `level_min` of its clients are the floors that this requires. Its
        `least_budget` is −inf for "nothing", where it is not computed.
    """

    outcome: Outcome
    outside: Outside
    advantage: FloatArray
    refuses: BoolArray
    respected: Outcome

    def __repr__(self) -> str:
        return (
            f"Refusals(outside={self.outside.value!r}, num_clients={self.refuses.size}, "
            f"refuse={int(self.refuses.sum())}, loss_increase={self.loss_increase:.4g})"
        )

    @cached_property
    def loss_increase(self) -> float:
        """The relative increase of the expected loss caused by respecting the refusals.

        Infinite if no prices respect them, or if there was no loss before.
        """
        if self.respected.status is Status.INFEASIBLE:
            return np.inf
        before, after = self.outcome.expected_loss, self.respected.expected_loss
        if before == 0:
            return np.inf if after > 0 else 0.0
        increase = after / before - 1
        return increase if abs(increase) > ROUNDING else 0.0

    def summary(self) -> dict[str, Any]:
        """Return the key numbers of the refusals, by name."""
        return {
            "outside": self.outside.value,
            "refuse": int(self.refuses.sum()),
            "expected_loss_unconstrained": self.outcome.expected_loss,
            "loss_increase": self.loss_increase,
        }

    def to_frame(self) -> pl.DataFrame:
        """Return a polars table: the columns of the respected outcome, then who refuses.

        `price_unconstrained` and `advantage` are those of the outcome in question, and `refuses`
        says who would refuse it.
        """
        import polars as pl

        return self.respected.to_frame().with_columns(
            pl.Series("price_unconstrained", self.outcome.prices),
            pl.Series("advantage", self.advantage),
            pl.Series("refuses", self.refuses),
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())


def refusals(
    outcome: Outcome,
    outside: str = "free",
    *,
    without: npt.ArrayLike | None = None,
    own: npt.ArrayLike | None = None,
) -> Refusals:
    """Return who would refuse an outcome's prices, and the best prices that nobody refuses.

    Parameters
    ----------
    outcome
        Prices and levels, of any scheme that posts prices.
    outside
        What a client does if it refuses: "free" (joins unpaid), "stay" (stays out, and gets the
        model trained without it) or "nothing" (stays out, and keeps its own model).
    without
        For "stay": D_n ≥ 0, shape (N,) or a scalar, by how much the loss of the best model without
        client n's data exceeds the optimum. By default 0, which tempts the most: at any other
        D_n, no further client would refuse.
    own
        For "nothing": g_n ≥ 0, shape (N,) or a scalar, by how much the loss of client n's own model
        on all clients' data exceeds the optimum. It has no default.

    Examples
    --------
    >>> from fedprice import Bound, Game, population, solve
    >>> game = Game(population(), bound=Bound(alpha=3.3, rounds=1000), budget=200)
    >>> free = refusals(solve(game), outside="free")
    >>> free  # those that would pay
    Refusals(outside='free', num_clients=40, refuse=3, loss_increase=0.004625)
    >>> free.respected.payers
    0
    >>> refusals(solve(game), outside="nothing", own=2.1)
    Refusals(outside='nothing', num_clients=40, refuse=0, loss_increase=0)
    """
    try:
        option = Outside(outside)
    except ValueError:
        raise InputError(
            f"`outside` must be 'free', 'stay' or 'nothing'; got {outside!r}. "
            f"{nearest(str(outside), (known.value for known in Outside))}"
        ) from None
    if not outcome.posts_prices:
        raise InputError(
            f"`outcome` must come from a scheme that posts prices; {outcome.scheme!r} does not."
        )
    if not np.isfinite(outcome.expected_loss):
        raise InputError(
            "`outcome` must let every client with an impact join: its loss is infinite."
        )
    losses = _outside_losses(outcome.game, option, without, own)
    advantage, scale = _advantage(outcome, option, losses)
    asked = (outcome.game.impact > 0) | (outcome.levels > 0)
    return Refusals(
        outcome=outcome,
        outside=option,
        advantage=advantage,
        refuses=asked & (advantage < -TOLERANCE * scale),
        respected=_respected(outcome.game, option, losses),
    )


def _outside_losses(
    game: Game, option: Outside, without: npt.ArrayLike | None, own: npt.ArrayLike | None
) -> FloatArray:
    """Return D_n or g_n, whichever the outside option needs, and 0 if it needs none."""
    wanted = {Outside.STAY: "without", Outside.NOTHING: "own"}.get(option)
    given = {"without": without, "own": own}
    for name, losses in given.items():
        if losses is not None and name != wanted:
            raise InputError(f"`{name}` is not used with outside={option.value!r}; leave it out.")
    if option is Outside.NOTHING and own is None:
        raise InputError(
            "outside='nothing' needs `own`: by how much the loss of each client's own model "
            "exceeds the optimum. Measure it, or choose outside='stay'."
        )
    count = len(game.clients)
    losses = given[wanted] if wanted is not None else None
    try:
        array = np.asarray(0.0 if losses is None else losses, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{wanted}` must be numbers; {error}.") from error
    if array.shape not in ((), (count,)):
        raise InputError(f"`{wanted}` must have shape ({count},); got {array.shape}.")
    array = np.broadcast_to(array, count)
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"`{wanted}` must be finite numbers, at least 0; got {array[row]:g} in row {row + 1} "
            f"(client {game.clients.ids[row]!r})."
        )
    return array


def _advantage(
    outcome: Outcome, option: Outside, losses: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the utility of taking part minus that of refusing, and the size of its terms."""
    game, q = outcome.game, outcome.levels
    c, v, k, tau = game.clients.cost, game.clients.value, game.impact, game.cost_exponent

    def share(levels: FloatArray) -> FloatArray:
        """Return v k (1 − q) / q, what a client's own absences cost it."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(v * k > 0, v * k * (1 - levels) / levels, 0.0)

    # The others' part of the loss is the same for both, unless the client keeps its own model.
    if option is Outside.NOTHING:
        inside = v * (random_loss(k, q) + game.bound.beta / game.bound.rounds)
        alone = v * losses
    elif option is Outside.STAY:
        inside, alone = share(q), v * losses
    else:
        unpaid = best_response(game, 0.0)
        inside, alone = share(q), c * unpaid**tau + share(unpaid)
    scale = np.abs(outcome.payments) + c * q**tau + inside + alone
    return outcome.profits - inside + alone, scale


def _respected(game: Game, option: Outside, losses: FloatArray) -> Outcome:
    """Return the optimum among the prices that nobody refuses."""
    if option is not Outside.NOTHING:
        outcome = _with_floors(game, *_floors(game, option, losses))
        if option is Outside.FREE:  # below 0 is rounding error
            prices, least = np.maximum(outcome.prices, 0.0), max(outcome.least_budget, 0.0)
            outcome = replace(outcome, prices=prices, least_budget=least)
        return outcome
    total = solve(game).certificate.primal
    for _ in range(MOST_ITERATIONS):
        outcome = _with_floors(game, *_floors(game, option, losses, total))
        outcome = replace(outcome, least_budget=-np.inf)
        if outcome.status is Status.INFEASIBLE or outcome.certificate.primal <= total * (
            1 + SETTLED
        ):
            return outcome
        total = outcome.certificate.primal
    raise precision_error("the optimum that nobody refuses")


def _floors(
    game: Game, option: Outside, losses: FloatArray, total: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Return the least levels of clients, and how much money they lack at the cap.

    `total` is X, which matters for "nothing" only.
    """
    clients, tau, k = game.clients, game.cost_exponent, game.impact
    c, v, cap = clients.cost, clients.value, clients.level_max
    if option is Outside.FREE:
        unpaid = best_response(game, 0.0)
        lacking = np.where(unpaid == cap, -price_at(cap, c, v * k, tau) * cap, 0.0)
        # Rounded down, so that rounding error does not require money that a budget of 0 lacks.
        floor = np.where(unpaid == cap, cap, unpaid * (1 - 2.0**-50))
    else:
        if option is Outside.STAY:
            times, least = 2.0, -v * (k + losses)
        else:
            times, least = 1.0, v * (total - k.sum() + game.bound.beta / game.bound.rounds - losses)
        floor = _level_worth(least, (tau - 1) * c, times * v * k, tau, cap)
        lacking = least - ((tau - 1) * c * cap**tau - times * v * k / cap)
    # A client without impact and without its own floor needs no level.
    asked = (k > 0) | (clients.level_min > 0)
    floor = np.where(asked, np.maximum(floor, clients.level_min), 0.0)
    return floor, np.where(asked, np.maximum(lacking, 0.0), 0.0)


def _level_worth(
    least: FloatArray, cost: FloatArray, harm: FloatArray, tau: float, cap: FloatArray
) -> FloatArray:
    """Return the level at which a q^τ − b/q reaches `least`; the cap if none up to it does.

    In x = 1/q the function falls and is convex, so that Newton's iteration from the cap runs
    monotonically to the root, and never lets the level fall below it.
    """
    x = 1 / cap
    reached = (harm > 0) | (least > 0)  # otherwise it is reached at every level
    for _ in range(200):
        bought = cost * x**-tau
        step = (bought - harm * x - least) / (tau * bought / x + harm)
        step = np.where(reached, np.maximum(step, 0.0), 0.0)
        x = x + step
        if not (step > 1e-15 * x).any():
            break
    return np.where(reached, np.minimum(1 / x, cap), 0.0)


def _with_floors(game: Game, floor: FloatArray, lacking: FloatArray) -> Outcome:
    """Return the equilibrium with these floors, plus what clients lack at the cap."""
    raised = replace(game, clients=replace(game.clients, level_min=floor))
    on_top = float(lacking.sum())
    outcome = solve(replace(raised, budget=game.budget - on_top))
    with np.errstate(divide="ignore", invalid="ignore"):
        bonus = np.where(lacking > 0, lacking / outcome.levels, 0.0)
    return replace(
        outcome,
        game=raised,
        prices=outcome.prices + bonus,
        least_budget=outcome.least_budget + on_top,
    )
