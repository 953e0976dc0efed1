r"""`best_steps`: how many local steps a round should have, from pilots at several numbers of them.

Symbols: E local steps, R rounds, q level, c cost, v value, τ cost exponent, B budget.

More local steps move the model further in a round, and cost more: joining all R rounds costs client
n R (compute_n · E + communication_n). Both constants of the bound depend on E, so that the server's
problem has one more variable,

.. math::
    \min_E \min_q \frac{1}{R} \Big(
        \alpha(E) \sum_n \frac{1 - q_n}{q_n} a_n^2 G_n(E)^2 + \beta(E) \Big)
    \quad\text{s.t. spend} \le B.

E is a whole number and an equilibrium takes a millisecond, so that every E between the pilots is
tried. There α and the norms are interpolated linearly in log–log, β linearly in log E. Nothing is
extrapolated beyond the pilots.

More rounds are always better for the bound, at any budget; R is given, or what a time limit allows:
R(E) = ⌊T / (E · step time + round time)⌋.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.arrays import NORMAL_95
from fedprice._plumbing.plots import COLORS, new_figure
from fedprice._plumbing.tables import as_pandas
from fedprice.bound import Bound
from fedprice.clients import LARGEST_WEIGHT, Clients
from fedprice.errors import InputError, number_like
from fedprice.game import Game
from fedprice.pricing import Status, solve

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure

    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.calibration import Calibration, Fit
    from fedprice.pricing import Outcome

__all__ = ["Steps", "best_steps"]


@dataclass(frozen=True, eq=False, repr=False)
class Steps:
    """What each number of local steps brings under the budget, one entry per number.

    Attributes
    ----------
    steps, rounds
        E, and the rounds R that it is trained for.
    alpha, alpha_low, alpha_high, beta
        The bound's constants, interpolated between the pilots.
    outcomes
        The equilibrium at each E.
    loss, loss_low, loss_high
        The bound on the loss above F*, β / R included, at α and over the ends of its interval.
        Infinite where the budget does not suffice.
    as_good
        Whether the pilots cannot distinguish an E from the best one, at 95 %, given the uncertainty
        of α and of the pilots' losses. Between pilots this treats the interpolation as exact.
    pilots
        The E at which pilots ran.
    compute, communication
        The clients' costs of a local step and of a round, shape (num_clients,).
    beta_growth
        By what factor β grows from the pilots' first to their last checkpoint, the largest of all
        pilots. Well above 1, the loss falls more slowly than the bound's 1/R, and the losses given
        here for many rounds are too low; later checkpoints help. NaN if unknown.
    assumed_least_loss
        The lowest loss of the pilots, used as F* where the task does not know it; else None.
    """

    steps: IntArray
    rounds: IntArray
    alpha: FloatArray
    alpha_low: FloatArray
    alpha_high: FloatArray
    beta: FloatArray
    outcomes: tuple[Outcome, ...]
    loss: FloatArray
    loss_low: FloatArray
    loss_high: FloatArray
    as_good: BoolArray
    pilots: tuple[int, ...]
    compute: FloatArray
    communication: FloatArray
    beta_growth: float
    assumed_least_loss: float | None

    def __repr__(self) -> str:
        at = self._best
        return (
            f"Steps(best={self.best}, rounds={self.rounds[at]}, loss={self.loss[at]:.4g}, "
            f"as_good={self.as_good.sum()} of {self.steps.size})"
        )

    @property
    def _best(self) -> int:
        return int(np.argmin(self.loss))

    @property
    def best(self) -> int:
        """The number of local steps with the least loss."""
        return int(self.steps[self._best])

    @property
    def outcome(self) -> Outcome:
        """The equilibrium at the best number of local steps."""
        return self.outcomes[self._best]

    def to_frame(self) -> pl.DataFrame:
        """Return a polars table with one row per number of local steps."""
        import polars as pl

        names = ("steps", "rounds", "alpha", "alpha_low", "alpha_high", "beta")
        columns: dict[str, Any] = {name: getattr(self, name) for name in names}
        columns |= {
            "status": [outcome.status.value for outcome in self.outcomes],
            "spend": [outcome.spend for outcome in self.outcomes],
            "random_loss": [outcome.expected_loss for outcome in self.outcomes],
        }
        last = ("loss", "loss_low", "loss_high", "as_good")
        return pl.DataFrame(columns | {name: getattr(self, name) for name in last})

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())

    def quotes(self) -> pl.DataFrame:
        """Return the prices at the best E, one row per client, also by local step and by round.

        A client that joins a round is paid E · price_per_step + price_per_round, in proportion to
        what it costs. That adds up to the price: clients only choose how often to join, so that
        any other split would make them choose the same.
        """
        import polars as pl

        best = self.outcome
        share = best.prices / best.game.clients.cost  # of R (compute · E + communication)
        return pl.DataFrame(
            {
                "client_id": best.game.clients.ids.tolist(),
                "level": best.levels,
                "price": best.prices,
                "payment": best.payments,
                "price_per_step": share * self.compute,
                "price_per_round": share * self.communication,
            }
        )

    def plot(self) -> Figure:
        """Draw the loss over the number of local steps (extra `plot`), with its interval."""
        figure, (axis,) = new_figure(1)
        figure.set_size_inches(6, 3.6)
        shown = np.isfinite(self.loss)
        steps, loss = self.steps[shown], self.loss[shown]
        low, high = self.loss_low[shown], self.loss_high[shown]
        band: dict[str, Any] = {"color": COLORS[0], "alpha": 0.18, "linewidth": 0}
        axis.fill_between(steps, low, high, label="over α's 95 % interval", **band)
        axis.plot(steps, loss, color=COLORS[0], label="loss")
        ran = np.isin(steps, self.pilots)
        axis.plot(steps[ran], loss[ran], "o", color=COLORS[0], label="pilots")
        best = int(np.argmin(loss))
        axis.plot(steps[best], loss[best], "D", color=COLORS[5], label=f"best: {self.best}")
        axis.set(xlabel="local steps", ylabel="loss above the least one", xscale="log")
        axis.set_xticks(self.pilots, [f"{pilot:,}" for pilot in self.pilots])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        axis.legend(frameon=False, fontsize="small")
        budget = self.outcomes[0].game.budget
        figure.suptitle(f"local steps under a budget of {budget:,.4g}", fontsize="medium")
        return figure


def best_steps(
    calibrations: Mapping[int, Calibration],
    *,
    compute: npt.ArrayLike,
    communication: npt.ArrayLike,
    value: npt.ArrayLike,
    budget: float,
    rounds: int | None = None,
    time_limit: float | None = None,
    step_time: float = 0.0,
    round_time: float = 0.0,
    cost_exponent: float = 2.0,
    max_weight: float = LARGEST_WEIGHT,
    level_min: npt.ArrayLike = 0.0,
    level_max: npt.ArrayLike = 1.0,
) -> Steps:
    """Return the loss at each number of local steps, and the best one.

    Parameters
    ----------
    calibrations
        Two or more calibrations by number of local steps; all else of the task must be equal.
    compute, communication
        What a local step, and what joining a round apart from its steps, costs each client: shape
        (num_clients,) in the order of the calibrations, or a scalar. A level q costs
        R (compute · E + communication) q^τ.
    value, level_min, level_max
        As for `Clients`.
    budget, cost_exponent
        As for `Game`.
    rounds, time_limit
        R, or the seconds T that training may take; exactly one of them.
    step_time, round_time
        With `time_limit`: seconds of a local step, and of a round apart from its steps.
    max_weight
        Sets floors, so that no aggregation weight a_n / q_n exceeds it; infinity sets none.
    """
    pilots = _comparable(calibrations)
    measured = [calibrations[one] for one in pilots]
    ids, samples = measured[0].ids, measured[0].samples
    costs = {}
    for name, given in (("compute", compute), ("communication", communication)):
        cost = np.asarray(given, np.float64)
        if cost.shape not in ((), (len(ids),)) or not (np.isfinite(cost) & (cost >= 0)).all():
            raise InputError(
                f"`{name}` must be finite numbers, at least 0, one for each of the {len(ids)} "
                "clients."
            )
        costs[name] = np.broadcast_to(cost, len(ids))
    steps = np.arange(pilots[0], pilots[-1] + 1)
    limits = _rounds(steps, rounds, time_limit, step_time, round_time)
    steps, limits = steps[limits > 0], limits[limits > 0]

    weights = _between(np.log(pilots), np.log(steps))
    fits = [one.fit for one in measured]
    logs = np.log([[fit.alpha, fit.low, fit.high] for fit in fits])
    alpha, low, high = np.exp(weights @ logs).T
    with np.errstate(divide="ignore", invalid="ignore"):
        norms = np.nan_to_num(np.exp(weights @ np.log([fit.norm for fit in fits])))
    betas, least = _betas(measured)
    beta = weights @ betas
    # A larger α leaves less of the pilots' loss to β; old calibrations do not say how much.
    random = weights @ np.nan_to_num([fit.random for fit in fits])

    outcomes, losses = [], np.empty((steps.size, 3))
    for i, (count, limit) in enumerate(zip(steps.tolist(), limits.tolist(), strict=True)):
        clients = Clients(
            samples=samples,
            grad_norm=1.0,
            cost=limit * (costs["compute"] * count + costs["communication"]),
            value=value,
            ids=ids,
            level_min=level_min,
            level_max=level_max,
        )
        clients = clients.with_norms(norms[i], measured[0].norms).with_max_weight(max_weight)
        bound = Bound(alpha=alpha[i], rounds=limit, beta=beta[i])
        game = Game(clients, bound=bound, budget=budget, cost_exponent=cost_exponent)
        for j, other in enumerate((alpha[i], low[i], high[i])):
            left = max(beta[i] + (1 - other / alpha[i]) * random[i], 0.0)
            end = solve(replace(game, bound=Bound(alpha=other, rounds=limit, beta=left)))
            feasible = end.status is not Status.INFEASIBLE
            losses[i, j] = end.expected_loss + left / limit if feasible else np.inf
            if j == 0:
                outcomes.append(end)
    return Steps(
        steps=steps,
        rounds=limits,
        alpha=alpha,
        alpha_low=low,
        alpha_high=high,
        beta=beta,
        outcomes=tuple(outcomes),
        loss=losses[:, 0],
        loss_low=losses.min(axis=1),
        loss_high=losses.max(axis=1),
        as_good=_as_good(losses, weights, limits, logs[:, 2] - logs[:, 1], fits),
        pilots=pilots,
        compute=costs["compute"],
        communication=costs["communication"],
        beta_growth=_growth(measured, betas),
        assumed_least_loss=least,
    )


def _comparable(calibrations: Mapping[int, Calibration]) -> tuple[int, ...]:
    """Return the numbers of local steps, rising; refuse calibrations that differ in more."""
    pilots = tuple(sorted(calibrations))
    if len(pilots) < 2 or pilots[0] < 1 or any(one != int(one) for one in pilots):
        raise InputError(
            "`calibrations` must be at two or more whole numbers of local steps; got "
            f"{', '.join(map(str, pilots)) or 'none'}."
        )
    first, *others = (calibrations[one] for one in pilots)
    for count, other in zip(pilots[1:], others, strict=True):
        for what, same in (
            ("clients", first.ids == other.ids and np.array_equal(first.samples, other.samples)),
            ("aggregator", first.aggregator == other.aggregator),
            ("server step", first.server_step == other.server_step),
            ("norms", first.norms == other.norms),
        ):
            if not same:
                raise InputError(
                    f"calibrations may differ in their local steps only; at {count} they have "
                    f"another {what} than at {pilots[0]}. Calibrate again."
                )
    return pilots


def _rounds(
    steps: IntArray,
    rounds: int | None,
    time_limit: float | None,
    step_time: float,
    round_time: float,
) -> IntArray:
    """Return R(E), shape (steps,); 0 where the time limit is below one round."""
    if (rounds is None) == (time_limit is None):
        raise InputError("give exactly one of `rounds` and `time_limit`.")
    if time_limit is None:
        assert rounds is not None
        return np.full(steps.size, Bound(alpha=0, rounds=rounds).rounds)
    times = {"time_limit": time_limit, "step_time": step_time, "round_time": round_time}
    for name, given in times.items():
        if not 0 <= number_like(name, given) < np.inf:
            raise InputError(f"`{name}` must be finite seconds, at least 0; got {given}.")
    if not step_time + round_time > 0:
        raise InputError("a time limit needs `step_time` or `round_time`, in seconds; got neither.")
    # 60 seconds are 200 rounds of 0.1 + 0.2, whatever floating point makes of the sum.
    whole = np.floor(time_limit / (steps * step_time + round_time) * (1 + 1e-12))
    limits: IntArray = whole.astype(np.int64)
    if not limits.any():
        least = steps[0] * step_time + round_time
        raise InputError(
            f"`time_limit` must be at least {least:.4g} seconds, for one round of {steps[0]} local "
            f"steps; got {time_limit:g}."
        )
    return limits


def _between(pilots: FloatArray, at: FloatArray) -> FloatArray:
    """Return the weights of linear interpolation, shape (at, pilots)."""
    units = np.eye(pilots.size)
    return np.stack([np.interp(at, pilots, unit) for unit in units], axis=1)


def _betas(measured: list[Calibration]) -> tuple[FloatArray, float | None]:
    """Return β of each calibration, and what was used as F* if the task does not know it.

    Without F* a calibration has no β, and the best E would be the one that joining at random hurts
    least, however little it trains. F* is common to all E; the lowest loss of the pilots is the
    best available estimate of it.
    """
    betas = np.array([one.beta for one in measured])
    if betas.any():
        return betas, None
    least = min(float(one.pilots.min()) for one in measured)
    for i, one in enumerate(measured):
        left = float((one.rounds * (one.pilots[-1] - least)).mean()) - one.fit.random
        if np.isnan(left):
            raise InputError(
                "a calibration has no β and does not record the pilots' random part, so it says "
                "nothing about local steps. Calibrate again."
            )
        betas[i] = max(left, 0.0)
    return betas, least


def _growth(measured: list[Calibration], betas: FloatArray) -> float:
    """Return the largest factor by which β grows from the first to the last checkpoint."""
    growth = np.nan
    for one, beta in zip(measured, betas, strict=True):
        # F* is where β is the mean over the checkpoints of R (F_R − F*) less the random part.
        above = one.rounds * one.pilots[-1] - one.fit.random
        left = above - one.rounds * (above.mean() - beta) / one.rounds.mean()
        if left[0] > 0:
            growth = np.fmax(growth, left[-1] / left[0])
    return float(growth)


def _as_good(
    losses: FloatArray,
    weights: FloatArray,
    rounds: IntArray,
    widths: FloatArray,
    fits: list[Fit],
) -> BoolArray:
    """Return which E the pilots cannot distinguish from the best one, at 95 %.

    The errors of the pilots at different E count as independent: of log α, whose standard error is
    its interval's width over twice the normal quantile, and of β. A loss moves with its own
    interpolation of them. (Pilots share their random numbers, which can only help.)
    """
    best = int(np.argmin(losses[:, 0]))
    with np.errstate(divide="ignore", invalid="ignore"):  # where nothing is feasible
        slope = (losses[:, 2] - losses[:, 1]) / (weights @ widths)  # by log α
        by_alpha = np.where(np.isfinite(slope), slope, 0.0)[:, None] * weights
        moves = by_alpha * widths / (2 * NORMAL_95)
        shifts = weights / rounds[:, None] * np.nan_to_num([fit.error for fit in fits])
        squares = (moves - moves[best]) ** 2 + (shifts - shifts[best]) ** 2
        error = np.sqrt(squares.sum(axis=1))
        as_good: BoolArray = losses[:, 0] - losses[best, 0] <= NORMAL_95 * error
    return as_good
