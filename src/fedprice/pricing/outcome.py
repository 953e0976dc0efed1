"""`Outcome`: what a scheme returns: prices and levels, with a proof if they are optimal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedprice._plumbing.tables import as_pandas
from fedprice.bound import random_loss
from fedprice.errors import InputError
from fedprice.game import ROUNDING, best_response, profit_at, utilities
from fedprice.pricing.theorems import theorem_3_threshold

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, Self

    import numpy.typing as npt
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedprice._plumbing.arrays import BoolArray, FloatArray
    from fedprice.game import Game


__all__ = ["Certificate", "Outcome", "Status", "summaries"]

BUDGET_TOLERANCE = 1e-12  # relative to the larger of |budget| and the sum of absolute payments


class Status(StrEnum):
    """How an outcome ended.

    OPTIMAL: proven best under the budget. SLACK: all clients with an impact are at their cap, and
    money is left. FEASIBLE: within the budget and the floors, but not claimed to be optimal.
    INFEASIBLE: the budget is below `least_budget`; the outcome then holds the cheapest levels.
    OVER_BUDGET: more is spent than the budget, which the scheme `full` ignores.
    """

    OPTIMAL = "optimal"
    SLACK = "budget slack"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    OVER_BUDGET = "over budget"


@dataclass(frozen=True)
class Certificate:
    """A proof of optimality: no levels within the budget can have Σ k/q below `dual`.

    `primal` is Σ k_n / q_n of the outcome, the objective of the convex form. `dual` is the value of
    the Lagrangian dual at the outcome's multiplier, a lower bound for every feasible choice, and
    −inf where a scheme proves nothing.
    """

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        """The relative duality gap, (primal − dual) / primal."""
        if not np.isfinite(self.dual):
            return np.inf
        return (self.primal - self.dual) / self.primal if self.primal else 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Outcome:
    """Prices, the levels that clients answer with, and what they cost and bring.

    Attributes
    ----------
    game, scheme
        What was priced, and the name of the scheme that did it.
    status
        See `Status`.
    levels, prices
        q_n and P_n, shape (N,).
    reciprocal
        1/λ as a sum of two numbers, the first a client's value: stored separately, because 1/λ may
        be so close to that value that their difference would be lost to rounding. (0, inf) if
        unknown or slack.
    certificate
        Primal and dual value, and their relative gap.
    least_budget
        The least budget for which the scheme is feasible; −inf if every budget is.
    iterations
        Passes over the clients that the search took.
    posts_prices, aggregator
        Properties of the scheme (see `Scheme`), which sets them.
    bought
        Which clients are held to their level by a contract, shape (N,); its price is the payment
        per unit of level. All others choose their level at their price. None: the scheme has no
        contracts.
    """

    game: Game
    scheme: str
    status: Status
    levels: FloatArray
    prices: FloatArray
    reciprocal: tuple[float, float]
    certificate: Certificate
    least_budget: float
    iterations: int
    posts_prices: bool = True
    aggregator: str | None = None
    bought: BoolArray | None = None

    @classmethod
    def from_prices(
        cls,
        game: Game,
        prices: npt.ArrayLike,
        *,
        scheme: str,
        levels: FloatArray | None = None,
        bought: BoolArray | None = None,
        least_budget: float = -np.inf,
        iterations: int = 0,
    ) -> Self:
        """Return the outcome of any price vector: clients give their best response.

        This is all that you need for your own scheme: compute prices, and return this.

        Parameters
        ----------
        game
            The game.
        prices
            P_n, shape (N,) or a scalar.
        scheme
            The scheme's name.
        levels
            For schemes that do not leave the choice to the clients: the levels, shape (N,).
        bought, least_budget, iterations
            As for `Outcome`.
        """
        count, offered = len(game.clients), np.asarray(prices, np.float64)
        if offered.ndim > 1 or offered.size not in (1, count):
            raise InputError(
                f"{scheme} returned {offered.size} prices for {count} clients; return one per "
                "client, or a single number for all."
            )
        offered = np.array(np.broadcast_to(offered, count))
        if levels is None:
            levels = best_response(game, offered)
        payments = offered * levels
        excess = payments.sum() - game.budget
        scale = max(abs(game.budget), np.abs(payments).sum())
        floors_hold = (levels >= game.clients.level_min * (1 - 1e-12)).all()
        feasible = excess <= BUDGET_TOLERANCE * scale and floors_hold
        status = Status.FEASIBLE if feasible else Status.INFEASIBLE
        if feasible and (levels >= game.clients.level_max).all():
            status = Status.SLACK
        return cls(
            game=game,
            scheme=scheme,
            status=status,
            levels=levels,
            prices=offered,
            reciprocal=(0.0, np.inf),
            certificate=Certificate(objective(game.impact, levels), -np.inf),
            least_budget=least_budget,
            iterations=iterations,
            bought=bought,
        )

    def __repr__(self) -> str:
        return (
            f"Outcome(scheme={self.scheme!r}, status={self.status.value!r}, "
            f"num_clients={len(self.levels)}, spend={self.spend:.6g}, "
            f"expected_loss={self.expected_loss:.6g}, payers={self.payers})"
        )

    @cached_property
    def payments(self) -> FloatArray:
        """P_n q_n, what the server pays client n (negative: the client pays), shape (N,)."""
        return self.prices * self.levels

    @cached_property
    def profits(self) -> FloatArray:
        """P_n q_n − c_n q_n^τ, each client's payment minus its cost, shape (N,)."""
        game = self.game
        return profit_at(self.levels, self.prices, game.clients.cost, game.cost_exponent)

    @cached_property
    def utilities(self) -> FloatArray:
        """Expected utilities of the clients, shape (N,), up to a constant (see `utilities`)."""
        return utilities(self.game, self.levels, self.prices)

    @cached_property
    def surpluses(self) -> FloatArray:
        """What each client gains over joining unpaid, given the levels of all others, shape (N,).

        Its payment minus (c q^τ + v k/q), compared with the same at its best level without payment.
        It is negative for every client that pays.
        """
        game, clients, tau = self.game, self.game.clients, self.game.cost_exponent
        wants, unpaid = clients.value * game.impact, best_response(game, 0.0)
        with np.errstate(all="ignore"):  # a client that is left out may have an infinite loss
            paid, free = clients.cost * self.levels**tau, clients.cost * unpaid**tau
            mine, theirs = (np.where(wants > 0, wants / q, 0.0) for q in (self.levels, unpaid))
            surpluses = self.payments - (paid - free) - (mine - theirs)
            scale = np.abs(self.payments) + paid + free + mine + theirs
            return np.where(np.abs(surpluses) < ROUNDING * scale, 0.0, surpluses)

    @cached_property
    def spend(self) -> float:
        """Σ P_n q_n, what the server pays in total."""
        return float(self.payments.sum())

    @cached_property
    def expected_loss(self) -> float:
        """The bound's expected loss above F* + β/R: Σ k_n (1 − q_n) / q_n."""
        return random_loss(self.game.impact, self.levels)

    @property
    def distance(self) -> float:
        """The distance to full participation, from 0 to 1: 1 − Σ k_n / Σ (k_n / q_n).

        It is the part of the bound's participation term Σ k/q that would not remain if everybody
        joined every round. With a distance of 0.4, the bound is that of everybody joining 60 % of
        the rounds. It depends on neither α nor the number of rounds.
        """
        whole = objective(self.game.impact, self.levels)
        if not whole or np.isinf(whole):
            return float(whole > 0)
        return self.expected_loss / whole

    @property
    def multiplier(self) -> float:
        """λ, the decrease of expected loss that one more unit of budget buys (0 if unknown)."""
        return 1 / sum(self.reciprocal)

    @property
    def payers(self) -> int:
        """Number of clients with a negative price: they pay the server."""
        return int((self.prices < 0).sum())

    @property
    def left_out(self) -> int:
        """Number of clients with an impact that never join: the model misses their data."""
        return int(((self.levels == 0) & (self.game.impact > 0)).sum())

    @property
    def biased(self) -> bool:
        """Whether training converges to a model other than the optimum.

        It does if a client is left out, or if the scheme takes a plain average of the joiners.
        """
        return self.left_out > 0 or self.aggregator == "fedavg"

    @property
    def largest_weight(self) -> float:
        """The largest weight a_n / q_n that an update can get; infinite if a client is left out."""
        weight = self.game.clients.weight
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(weight > 0, weight / self.levels, 0.0).max())

    @property
    def sign_threshold(self) -> float:
        """The value v^t = 1 / ((τ+1) λ) above which a client within its limits pays (Theorem 3).

        Infinite where λ is unknown, and for contracts, under which nobody pays.
        """
        if not self.multiplier or self.bought is not None:
            return np.inf
        return theorem_3_threshold(self.multiplier, self.game.cost_exponent)

    @cached_property
    def interior(self) -> npt.NDArray[np.bool_]:
        """Which clients lie strictly between their floor and cap and have an impact, shape (N,)."""
        clients, q = self.game.clients, self.levels
        return (q > clients.level_min) & (q < clients.level_max) & (self.game.impact > 0)

    def summary(self) -> dict[str, Any]:
        """Return the key numbers of the outcome, by name."""
        return {
            "scheme": self.scheme,
            "status": self.status.value,
            "num_clients": len(self.levels),
            "budget": float(self.game.budget),
            "spend": self.spend,
            "expected_loss": self.expected_loss,
            "distance": self.distance,
            "payers": self.payers,
            "mean_level": float(self.levels.mean()),
            "left_out": self.left_out,
            "client_utility": float(self.utilities.sum()),
            "multiplier": self.multiplier,
            "sign_threshold": self.sign_threshold,
            "primal": self.certificate.primal,
            "dual": self.certificate.dual,
            "gap": self.certificate.gap,
            "least_budget": self.least_budget,
            "iterations": self.iterations,
        }

    def to_frame(self) -> pl.DataFrame:
        """Return a polars table: the clients' columns, then level, price, payment, utility.

        Where there are contracts, `bought` says to whom.
        """
        import polars as pl

        return self.game.clients.to_frame().with_columns(
            pl.Series("level", self.levels),
            pl.Series("price", self.prices),
            pl.Series("payment", self.payments),
            pl.Series("utility", self.utilities),
            *([] if self.bought is None else [pl.Series("bought", self.bought)]),
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())

    def plot(self) -> Figure:
        """Draw price over value and level over impact (extra `plot`); a notebook shows the plot.

        Write it to a file with `outcome.plot().savefig("outcome.png")`.
        """
        from fedprice.pricing.figures import draw_outcome

        return draw_outcome(self)

    def __rich__(self) -> RenderableType:
        from fedprice.pricing.display import rich_summary

        return rich_summary(self)

    def _repr_html_(self) -> str:
        from fedprice.pricing.display import html_summary

        return html_summary(self)


def summaries(outcomes: Iterable[Outcome]) -> pl.DataFrame:
    """Return the summaries of outcomes as a polars table, one row per outcome."""
    import polars as pl

    return pl.DataFrame([outcome.summary() for outcome in outcomes])


def objective(impact: FloatArray, levels: FloatArray) -> float:
    """Return Σ k_n / q_n, the objective of the convex form; a client without impact counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = impact / levels
    return float(np.sum(terms, where=impact > 0))
