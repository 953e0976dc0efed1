r"""What clients gain by lying about their cost and value to a server that prices by reports.

Symbols: q level, P price, c cost, τ cost exponent, v value, k impact, B budget, t = 1/λ; a hat
marks what is reported.

Schemes take costs and values as known. If they are reported instead, a client that reports (ĉ, v̂)
gets the scheme's outcome of the game in which these are its cost and value. Under the
equilibrium, at a fixed t, its payment and its level lie on the curve
payment · q̂ = k (t − (τ+1) v̂) / τ, so that it is best to hide the value, and to claim a high cost:
a seller (v = 0) within its limits that reports ρ times its cost has its surplus multiplied by
(τ ρ^{1/(τ+1)} − ρ^{−τ/(τ+1)}) / (τ − 1), which is 1.890 for ρ = τ = 2. The gain does not vanish in
a large population, because each client has its own price.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from fedprice._plumbing.tables import as_pandas
from fedprice.beliefs.reported_outcomes import ReportSearch, Told, held
from fedprice.errors import InputError, number_like, precision_error
from fedprice.game import best_response
from fedprice.pricing import Outcome, Status, find_scheme

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game
    from fedprice.pricing import Scheme

__all__ = ["Manipulability", "check_factor", "manipulability"]


@dataclass(frozen=True, eq=False, repr=False)
class Manipulability:
    """What each client gains by its best lie when all others tell the truth.

    Attributes
    ----------
    truth
        The outcome when all clients tell the truth.
    factor
        ρ: reported costs lie within [c/ρ, ρ c], reported values within [0, v].
    committed
        Whether the liar joins at the level that its report implies, or at its best level for the
        price that its report leads to.
    cost, value
        The best report of each client, shape (N,): the truth where no report gains.
    levels, payments
        The liar's own level and payment with that report, shape (N,).
    gain
        The liar's utility, by its true cost and value, above that of the truth, shape (N,).
    others_payment
        The change of what all other clients together are paid when this one lies, shape (N,).
    expected_loss
        The expected loss when this one lies, shape (N,).
    everybody
        The outcome when all submit their best reports at the same time, valued at the true costs
        and values.
    """

    truth: Outcome
    factor: float
    committed: bool
    cost: FloatArray
    value: FloatArray
    levels: FloatArray
    payments: FloatArray
    gain: FloatArray
    others_payment: FloatArray
    expected_loss: FloatArray
    everybody: Outcome

    def __repr__(self) -> str:
        return (
            f"Manipulability(num_clients={self.gain.size}, factor={self.factor:g}, "
            f"share_gaining={np.mean(self.gain > 0):.3g}, "
            f"median_gain={np.median(self.relative_gain):.4g})"
        )

    @cached_property
    def relative_gain(self) -> FloatArray:
        """The index: the gain over the absolute money surplus |P q − c q^τ| of the truth."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.gain / np.abs(self.truth.profits)
        return np.where(self.gain > 0, ratio, 0.0)

    @cached_property
    def loss_increase(self) -> FloatArray:
        """The relative increase of the expected loss when this client lies, shape (N,)."""
        return _increase(self.expected_loss, self.truth.expected_loss)

    @cached_property
    def overspend(self) -> FloatArray:
        """The change of the server's spend when this client lies, shape (N,).

        What the liar is paid on top comes from the others (`others_payment`) or from the server:
        payments − truth.payments = overspend − others_payment. A committed liar gets nothing from
        a server whose budget is used up.
        """
        return self._money(self.payments - self.truth.payments + self.others_payment)

    def _money(self, change: FloatArray | float) -> FloatArray:
        """Return a change of the spend, with rounding error removed."""
        scale = abs(self.truth.game.budget) + np.abs(self.truth.payments).sum()
        return np.where(np.abs(change) > 1e-9 * scale, change, 0.0)

    def summary(self) -> dict[str, Any]:
        """Return the key numbers of the index, by name."""
        relative, truth = self.relative_gain, self.truth
        everybody = float(_increase(self.everybody.expected_loss, truth.expected_loss))
        with np.errstate(invalid="ignore"):  # increases over a loss of 0 may be ±infinite
            increase = float(self.loss_increase.mean())
        # Whoever is paid its cost has a surplus of 0, and an infinite gain relative to it.
        between: Literal["linear", "higher"] = "linear" if np.isfinite(relative).all() else "higher"
        return {
            "num_clients": int(self.gain.size),
            "factor": self.factor,
            "committed": self.committed,
            "share_gaining": float(np.mean(self.gain > 0)),
            "median_relative_gain": float(np.median(relative)),
            "high_relative_gain": float(np.quantile(relative, 0.9, method=between)),
            "largest_relative_gain": float(relative.max()),
            "largest_gain": float(self.gain.max()),
            "mean_loss_increase": increase,
            "largest_loss_increase": float(self.loss_increase.max()),
            "largest_overspend": float(self.overspend.max()),
            "everybody_status": self.everybody.status.value,
            "everybody_loss_increase": everybody,
            "everybody_overspend": float(self._money(self.everybody.spend - truth.spend)),
            "everybody_share_gaining": float(np.mean(self.everybody_gain > 0)),
        }

    @cached_property
    def everybody_gain(self) -> FloatArray:
        """Each client's true utility when all lie, above that of the truth, shape (N,)."""
        return self.everybody.utilities - self.truth.utilities

    def to_frame(self) -> pl.DataFrame:
        """Return a polars table: the clients' columns, then each one's best lie and its effects."""
        import polars as pl

        columns = {
            "payment": self.truth.payments,
            "surplus": self.truth.profits,
            "report_cost": self.cost,
            "report_value": self.value,
            "report_level": self.levels,
            "report_payment": self.payments,
            "gain": self.gain,
            "relative_gain": self.relative_gain,
            "others_payment": self.others_payment,
            "overspend": self.overspend,
            "loss_increase": self.loss_increase,
            "everybody_gain": self.everybody_gain,
        }
        return self.truth.game.clients.to_frame().with_columns(
            pl.Series(name, column) for name, column in columns.items()
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())

    def plot(self) -> Figure:
        """Draw who gains by lying, and who pays for it (extra `plot`); a notebook shows the plot.

        Write it to a file with `manipulability(game).plot().savefig("lies.png")`.
        """
        from fedprice.beliefs.lies_figure import draw_lies

        return draw_lies(self)


def manipulability(
    game: Game,
    factor: float = 2.0,
    *,
    committed: bool = True,
    scheme: str | Scheme = "equilibrium",
) -> Manipulability:
    """Return what each client gains by its best report within [c/ρ, ρ c] × [0, v].

    Posted prices, menus and tariffs that do not depend on what a client says have gains of 0.

    Parameters
    ----------
    game
        The game with the true costs and values; its outcome must be feasible.
    factor
        ρ > 1, by which a reported cost may differ from the truth.
    committed
        True: the liar joins, and is paid, at the level that its report implies. False: it is
        offered the price that its report implies and then joins as often as suits it best, so that
        the server may overspend. A client that sold a level by contract delivers it in both
        cases, and one that lost an auction chooses its best level.
    scheme
        How the server prices: a name as for `solve`, or a `Scheme`.

    Notes
    -----
    A grid of 9 costs and 4 values per client, refined around its best point. The work grows with
    the square of the number of clients: 40 take some 20 ms, 1,000 about 10 s. Under schemes other
    than the equilibrium every report is priced separately: 40 clients take some seconds.

    Examples
    --------
    >>> from fedprice import Bound, Game, population
    >>> game = Game(population(), bound=Bound(alpha=3.3, rounds=1000), budget=200)
    >>> lies = manipulability(game)
    >>> lies
    Manipulability(num_clients=40, factor=2, share_gaining=1, median_gain=1.509)
    >>> lies.value.max()  # every client hides what the model is worth to it
    np.float64(0.0)
    >>> round(lies.everybody.expected_loss / lies.truth.expected_loss, 2)
    2.0
    >>> lies.everybody_gain.max() < 0  # if all lie, no client gains
    np.True_
    """
    rho = check_factor(factor)
    rule = find_scheme(scheme) if isinstance(scheme, str) else scheme
    truth = rule(game)
    if truth.status is Status.INFEASIBLE:
        raise InputError(
            f"`game` must be feasible: these clients need a budget of {truth.least_budget:.6g}; "
            f"got {game.budget:g}. Raise the budget or lower `level_min`."
        )
    if not np.isfinite(truth.expected_loss) and game.clients.value.any():
        raise InputError(
            f"`scheme` {truth.scheme!r} leaves out {truth.left_out} clients, so the loss is "
            "infinite and no client with a value can gain. Set all values to 0, or raise levels."
        )
    search = ReportSearch(truth, committed, None if rule.name == "equilibrium" else rule)
    with np.errstate(all="ignore"):  # reports that overflow are not finite, and are refused below
        told = search.tell(np.arange(len(game.clients)), game.clients.cost, game.clients.value)
        best = search.best(told, rho)
        gain = best.utility - told.utility
    if not np.isfinite([best.cost, best.value, best.level, best.payment, best.spend, gain]).all():
        raise precision_error("the best lie")
    lies = gain > 1e-12 * (np.abs(told.payment) + np.abs(told.utility - told.payment))
    best = Told(*(np.where(lies, lie, honest) for lie, honest in zip(best, told, strict=True)))
    reported = replace(game, clients=replace(game.clients, cost=best.cost, value=best.value))
    together = rule(reported)
    answers = best_response(game, together.prices)
    return Manipulability(
        truth=truth,
        factor=rho,
        committed=committed,
        cost=best.cost,
        value=best.value,
        levels=best.level,
        payments=best.payment,
        gain=np.where(lies, gain, 0.0),
        others_payment=(best.spend - best.payment) - (told.spend - told.payment),
        expected_loss=best.loss,
        everybody=Outcome.from_prices(
            game,
            together.prices,
            scheme="everybody lies",
            levels=np.where(held(together, committed=committed), together.levels, answers),
        ),
    )


def check_factor(factor: float) -> float:
    """Return a factor of reports, or raise an error if it is none."""
    rho = number_like("factor", factor)
    if not 1 < rho < np.inf:
        raise InputError(f"`factor` must be a finite number above 1; got {rho:g}.")
    return rho


def _increase(loss: FloatArray | float, before: float) -> FloatArray:
    """Return the relative increase of a loss; none where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(loss) / before - 1
    return np.where(np.asarray(loss) == before, 0.0, ratio)
