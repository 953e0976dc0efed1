r"""`reveal`: the cost and value of each client, from what it answered to prices.

Symbols: q level, P price, c cost, τ cost exponent, v value, k impact.

An interior answer q to a price P satisfies P = τ c q^{τ−1} − v k / q², which is linear in c and v.
Two interior answers at different prices identify both, and without noise weighted non-negative
least squares returns them exactly. Observed levels are not exact, and the noise sits in q: fitting
the equation with the observed levels in it would be biased, however many answers there are. So the
sum of squares is that of levels,

.. math::
    \min_{c > 0, v \ge 0} \sum_i \big((\hat q_i - q(P_i; c, v)) / \sigma_i\big)^2,

by Gauss–Newton steps, each of which is a weighted non-negative least squares problem in (c, v).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.arrays import NORMAL_95
from fedprice._plumbing.tables import as_pandas, as_polars, number_column, text_column
from fedprice.errors import InputError, nearest, number_like
from fedprice.game import LARGEST_EXPONENT, best_level

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import polars as pl

    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.tariff import Tariffs

__all__ = ["Revealed", "marginal_prices", "reveal"]

COLUMNS = ("client_id", "impact", "price", "level", "level_std", "heads", "rounds", "level_max")
IDENTIFIED = "identified"
MOST_STEPS = 100
CONVERGED = 1e-13  # relative change of cost and value
NO_COST, ANY_COST = 1e-9, 1e6  # relative to the cost that prices would pay for at no value


@dataclass(frozen=True, eq=False, repr=False)
class Revealed:
    """What the clients' answers reveal about their costs and values, one entry per client.

    Attributes
    ----------
    ids
        Names of the clients, in the order in which the answers name them first.
    cost, value
        The estimates; NaN for a client that is not identified.
    covariance
        The covariance of the estimates, shape (N, 2, 2). NaN where the error is unknown: with two
        answers without a stated one.
    quantile
        Half of a 95 % interval is this many standard errors: the normal quantile where the errors
        of levels are stated, Student's where they are estimated from the residuals.
    status
        "identified", or why a client is not and what to offer it.
    """

    ids: tuple[str, ...]
    cost: FloatArray
    value: FloatArray
    covariance: FloatArray
    quantile: FloatArray
    status: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Revealed(num_clients={len(self.ids)}, identified={int(self.identified.sum())})"

    @property
    def identified(self) -> BoolArray:
        """Which clients have an estimate."""
        return np.isfinite(self.cost)

    @property
    def cost_interval(self) -> tuple[FloatArray, FloatArray]:
        """The ends of the costs' 95 % intervals."""
        return self._interval(self.cost, 0)

    @property
    def value_interval(self) -> tuple[FloatArray, FloatArray]:
        """The ends of the values' 95 % intervals."""
        return self._interval(self.value, 1)

    def _interval(self, estimate: FloatArray, at: int) -> tuple[FloatArray, FloatArray]:
        half = self.quantile * np.sqrt(self.covariance[:, at, at])
        return np.maximum(estimate - half, 0.0), estimate + half

    def to_frame(self) -> pl.DataFrame:
        """Return a polars table with one row per client: estimates, 95 % intervals and status."""
        import polars as pl

        columns: dict[str, Any] = {"client_id": list(self.ids)}
        for name, (low, high) in (("cost", self.cost_interval), ("value", self.value_interval)):
            columns |= {name: getattr(self, name), f"{name}_low": low, f"{name}_high": high}
        frame = pl.DataFrame(columns | {"status": list(self.status)})
        return frame.with_columns(pl.col(pl.Float64).fill_nan(None))

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())

    def beliefs(self, samples: int = 64) -> Beliefs:
        """Return the remaining uncertainty about the identified clients, as beliefs by client.

        The samples are equally likely points of a low-discrepancy sequence: values are normal,
        truncated at 0, and the logarithm of cost is normal given the value. A client whose error is
        not known, or 0, has one sample.
        """
        from scipy.special import ndtr, ndtri

        from fedprice.beliefs.beliefs import Beliefs

        if not self.identified.any():
            raise InputError("no client is identified, so there are no beliefs.")
        count = np.arange(samples)
        first = (count + 0.5) / samples
        second = (0.5 + count * (np.sqrt(5) - 1) / 2) % 1
        types = {}
        for n in np.flatnonzero(self.identified):
            cost, value = self.cost[n], self.value[n]
            (cost_var, shared), (_, value_var) = self.covariance[n]
            if cost_var > 0:
                std = np.sqrt(value_var)
                below = ndtr(-value / std)  # the probability mass that truncation removes
                values = np.maximum(value + std * ndtri(below + (1 - below) * first), 0.0)
                slope = shared / value_var / cost  # of log cost on value
                rest = np.sqrt(max(cost_var / cost**2 - slope**2 * value_var, 0.0))
                costs = cost * np.exp(slope * (values - value) + rest * ndtri(second))
                types[self.ids[n]] = Beliefs(cost=costs, value=values)
            else:
                types[self.ids[n]] = Beliefs(cost=cost, value=value)
        return Beliefs.by_client(types)


def reveal(answers: Any, *, cost_exponent: float = 2.0) -> Revealed:
    """Estimate each client's cost and value from its answers to prices.

    Parameters
    ----------
    answers
        A dataframe with one row per answer: `client_id`, `impact` (k at the time), `price` and
        `level`; or `heads` and `rounds`, the coins that were observed, instead of the level. The
        error of a level is its `level_std` if that is given, binomial if `rounds` is, and otherwise
        estimated from the residuals of three or more answers, the same for all of a client's. For a
        tariff, give the price of the block that the level lies in (see `marginal_prices`).
        `level_max` is optional, and 1 by default. Only answers strictly in between are informative.
    cost_exponent
        τ > 1.

    Examples
    --------
    Cost 40 and value 9,000 at an impact of 1e-3, asked twice:

    >>> import polars as pl
    >>> answers = pl.DataFrame({"client_id": ["a", "a", "b"], "impact": 1e-3,
    ...                         "price": [4.0, -24.25, 8.0], "level": [0.5, 0.4, 1.0]})
    >>> found = reveal(answers)
    >>> found
    Revealed(num_clients=2, identified=1)
    >>> found.cost.round(9), found.value.round(9)
    (array([40., nan]), array([9000.,   nan]))
    >>> found.status[1]
    'at its largest level at every price; offer lower prices'
    """
    tau = number_like("cost_exponent", cost_exponent)
    if not 1 < tau <= LARGEST_EXPONENT:
        raise InputError(
            f"`cost_exponent` τ must be above 1, at most {LARGEST_EXPONENT:g}; got {tau}."
        )
    table = _Answers.read(answers)
    ids, owner = table.ids, table.owner
    inside = (table.level > 0) & (table.level < table.level_max)
    reasons = _reasons(table, inside)
    fit = np.array([reason == "" for reason in reasons])
    rows = inside & fit[owner]
    kept = np.flatnonzero(fit)
    at = np.searchsorted(kept, owner[rows])  # the client of each answer, among those that are fit
    problem = _Problem(
        at, kept.size, table.impact[rows], table.price[rows], table.level[rows],
        table.level_std[rows], tau,
    )  # fmt: skip
    found = problem.solve()
    covariance, quantile = problem.covariance(found)

    estimates, spread = np.full((len(ids), 2), np.nan), np.full((len(ids), 2, 2), np.nan)
    most = np.full(len(ids), np.nan)
    size = found[:, 0] / problem.largest_cost
    # Where levels hardly change with the price, cost and value may both be arbitrarily large.
    with np.errstate(invalid="ignore"):
        vague = quantile * np.sqrt(covariance[:, 0, 0]) >= found[:, 0]
    poor = vague | (size >= ANY_COST)
    for n, falls, none, any_ in zip(kept, problem.falls, size <= NO_COST, poor, strict=True):
        if falls and (none or any_):
            reasons[n] = "its level falls as the price rises, which no cost explains; ask it again"
        elif none:
            reasons[n] = "its cost cannot be distinguished from 0; offer higher prices too"
        elif any_:
            reasons[n] = "its level varies no more than its error; offer prices further apart"
    real = np.array([reasons[n] == "" for n in kept], bool)
    estimates[kept[real]], spread[kept[real]] = found[real], covariance[real]
    most[kept[real]] = quantile[real]
    return Revealed(
        ids=ids,
        cost=estimates[:, 0],
        value=estimates[:, 1],
        covariance=spread,
        quantile=most,
        status=tuple(reason or IDENTIFIED for reason in reasons),
    )


def marginal_prices(tariffs: Tariffs, levels: npt.ArrayLike) -> FloatArray:
    """Return the price of the block that each client's level lies in, shape (N,).

    NaN at the end of a block and for menus, where the choice only bounds cost and value.

    Examples
    --------
    >>> from fedprice.tariff import Tariffs
    >>> tariffs = Tariffs(np.array([[0.5, 1.0]] * 2), np.array([[8.0, 2.0]] * 2))
    >>> marginal_prices(tariffs, [0.4, 0.5])
    array([ 8., nan])
    """
    q = np.asarray(levels, np.float64)[:, None]
    inside = (tariffs.starts < q) & (q < tariffs.ends) & (not tariffs.menu)
    prices = np.where(inside, tariffs.prices, 0.0).sum(axis=1)
    return np.where(inside.any(axis=1), prices, np.nan)


@dataclass(frozen=True, eq=False)
class _Answers:
    """The table of answers, checked, one entry per answer; `owner` is the client's position."""

    ids: tuple[str, ...]
    owner: IntArray
    impact: FloatArray
    price: FloatArray
    level: FloatArray
    level_std: FloatArray  # NaN where it is not stated
    level_max: FloatArray

    @classmethod
    def read(cls, answers: Any) -> _Answers:
        frame = as_polars(answers)
        names = frame.columns
        for name in names:
            if name not in COLUMNS:
                raise InputError(f"unknown column {name!r:.100}. {nearest(name, COLUMNS)}")
        for name in ("client_id", "impact", "price"):
            if name not in names:
                raise InputError(
                    f"there is no column {name!r}; the columns are {', '.join(names)}."
                )
        if ("level" in names) == ("heads" in names):
            raise InputError("give exactly one of the columns 'level' and 'heads'.")
        if "heads" in names and "rounds" not in names:
            raise InputError("a column 'heads' needs a column 'rounds', the number of coins.")
        if "level_std" in names and "rounds" in names:
            raise InputError("give exactly one of the columns 'level_std' and 'rounds'.")
        if not frame.height:
            raise InputError("the table has no rows; give at least one answer.")
        who = text_column(frame["client_id"])
        columns = {name: number_column(frame[name]) for name in names if name != "client_id"}
        if "heads" in names:
            columns["level"] = columns["heads"] / np.maximum(columns["rounds"], 1)
        level_max = columns.setdefault("level_max", np.ones(frame.height))
        for name, holds, rule in (
            ("impact", lambda x: x >= 0, "a finite number, at least 0"),
            ("price", np.isfinite, "a finite number"),
            ("rounds", lambda x: (x >= 1) & (x == np.floor(x)), "a whole number, at least 1"),
            ("level_max", lambda x: (x > 0) & (x <= 1), "in (0, 1]"),
            ("level", lambda x: (x >= 0) & (x <= level_max), "between 0 and `level_max`"),
            ("level_std", lambda x: x > 0, "a finite number above 0"),
        ):
            if name in columns:
                bad = ~(np.isfinite(columns[name]) & holds(columns[name]))
                if bad.any():
                    row = int(np.argmax(bad))
                    raise InputError(
                        f"`{name}` must be {rule}; got {columns[name][row]:g} in row {row + 1} "
                        f"(client {who[row]!r})."
                    )
        if "" in who:
            raise InputError(
                f"client ids must not be empty; row {who.tolist().index('') + 1} has none."
            )
        level = columns["level"]
        if "rounds" in columns:
            columns["level_std"] = np.sqrt(level * (1 - level) / columns["rounds"])
        ids = tuple(dict.fromkeys(who.tolist()))
        at = {name: n for n, name in enumerate(ids)}
        return cls(
            ids=ids,
            owner=np.array([at[name] for name in who]),
            impact=columns["impact"],
            price=columns["price"],
            level=level,
            level_std=columns.get("level_std", np.full(frame.height, np.nan)),
            level_max=level_max,
        )


def _reasons(table: _Answers, inside: BoolArray) -> list[str]:
    """Return why each client's answers cannot identify it, and what to offer; "" if they can."""
    count = len(table.ids)

    def clients(answers: BoolArray) -> IntArray:
        return np.bincount(table.owner[answers], minlength=count)

    told = clients(inside)
    offers = np.stack([table.owner, table.price, table.impact], axis=1)[inside]
    distinct = np.bincount(np.unique(offers, axis=0)[:, 0].astype(np.int64), minlength=count)
    matters, joined = clients(table.impact > 0), clients(table.level > 0)
    cases = (
        (matters == 0, "its impact is 0, so that its value affects no answer"),
        (joined == 0, "did not join at any price; offer higher prices"),
        (told == 0, "at its largest level at every price; offer lower prices"),
        (told == 1, "one answer below its largest level; offer another, lower price"),
        (distinct == 1, "all answers below its largest level are to one price; offer a lower one"),
    )  # fmt: skip
    reasons = np.select([case for case, _ in cases], [text for _, text in cases], "")
    return [str(reason) for reason in reasons]


@dataclass(frozen=True, eq=False)
class _Problem:
    """The sum of squares over the answers, of all clients at once.

    Arrays have one entry per answer; `at` is the client that gave it, of `count`.
    """

    at: IntArray
    count: int
    impact: FloatArray
    price: FloatArray
    level: FloatArray
    level_std: FloatArray
    tau: float

    @property
    def stated(self) -> BoolArray:
        """Whose errors of levels are stated, shape (count,)."""
        stated: BoolArray = self.sum(np.isnan(self.level_std)) == 0
        return stated

    @property
    def sigma(self) -> FloatArray:
        """The errors of levels, 1 where they are to be estimated."""
        return np.where(self.stated[self.at], self.level_std, 1.0)

    @property
    def falls(self) -> BoolArray:
        """Whose levels fall as the price rises, by more than stated errors explain, (count,)."""
        weight = self.sigma**-2.0
        mean = (self.sum(weight * self.price) / self.sum(weight))[self.at]
        size = self.sum(weight * (self.price - mean) ** 2)
        slope = self.sum(weight * (self.price - mean) * self.level)
        falls: BoolArray = slope < -np.where(self.stated, NORMAL_95 * np.sqrt(size), 0.0)
        return falls

    @property
    def largest_cost(self) -> FloatArray:
        """The cost that would explain the largest price alone, shape (count,)."""
        most = np.zeros(self.count)
        np.maximum.at(most, self.at, np.abs(self.price) / (self.tau * self.level ** (self.tau - 1)))
        return np.where(most > 0, most, 1.0)

    def sum(self, terms: npt.ArrayLike) -> FloatArray:
        """Return the sums by client, shape (count,)."""
        return np.bincount(self.at, np.asarray(terms, float), self.count).astype(np.float64)

    def levels(self, types: FloatArray) -> FloatArray:
        """Return q(P; c, v), without a cap."""
        cost, value = types[self.at].T
        with np.errstate(all="ignore"):
            return best_level(self.price, cost, value * self.impact, self.tau, np.inf)

    def misfit(self, types: FloatArray) -> FloatArray:
        """Return the sums of squares, shape (count,); infinite where a level is not defined."""
        squares = ((self.level - self.levels(types)) / self.sigma) ** 2
        return self.sum(np.where(np.isfinite(squares), squares, np.inf))

    def slopes(self, types: FloatArray, levels: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return ∂P/∂(c, v), shape (answers, 2), and ∂P/∂q, shape (answers,)."""
        tau, (cost, value) = self.tau, types[self.at].T
        by_type = np.stack([tau * levels ** (tau - 1), -self.impact / levels**2], axis=1)
        by_level = tau * (tau - 1) * cost * levels ** (tau - 2)
        return by_type, by_level + 2 * value * self.impact / levels**3

    def normal(self, by_type: FloatArray, weight: FloatArray) -> FloatArray:
        """Return the matrices Σ w x xᵀ, shape (count, 2, 2)."""
        first, second = by_type.T
        cross = self.sum(weight * first * second)
        squares = (self.sum(weight * first**2), self.sum(weight * second**2))
        return np.stack([squares[0], cross, cross, squares[1]], axis=1).reshape(-1, 2, 2)

    def least_squares(
        self, by_type: FloatArray, target: FloatArray, weight: FloatArray
    ) -> FloatArray:
        """Return the (c, v) ≥ 0 that minimise Σ w (target − x · (c, v))², shape (count, 2)."""
        matrix = self.normal(by_type, weight)
        side = np.stack([self.sum(weight * target * column) for column in by_type.T], axis=1)
        (a, b), (_, d) = matrix.transpose(1, 2, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = a * d - b * b
            free = np.stack([d * side[:, 0] - b * side[:, 1], a * side[:, 1] - b * side[:, 0]])
            free = (free / scale).T
            # At an edge one of the two is 0, and the other fits alone.
            edges = np.maximum(side / np.stack([a, d], axis=1), 0.0)
        gains = np.nan_to_num(edges * side)
        cost_only = gains[:, 0] >= gains[:, 1]
        edge = np.where(np.stack([cost_only, ~cost_only], axis=1), np.nan_to_num(edges), 0.0)
        return np.where((free >= 0).all(axis=1, keepdims=True), free, edge)

    def solve(self) -> FloatArray:
        """Return the types (c, v) that fit best, shape (count, 2)."""
        by_type, _ = self.slopes(np.zeros((self.count, 2)), self.level)
        types = self.least_squares(by_type, self.price, self.sigma**-2.0)
        least = NO_COST * self.largest_cost  # with a cost of 0, no level is defined
        types[:, 0] = np.maximum(types[:, 0], least)
        misfit, share = self.misfit(types), np.ones(self.count)
        for _ in range(MOST_STEPS):
            levels = self.levels(types)
            by_type, by_level = self.slopes(types, levels)
            target = self.price - by_level * (self.level - levels)
            step = self.least_squares(by_type, target, (self.sigma * by_level) ** -2.0) - types
            new = types + share[:, None] * step
            new[:, 0] = np.maximum(new[:, 0], least)
            now = self.misfit(new)
            better = now <= misfit
            moved = np.abs(new - types) > CONVERGED * np.abs(types)
            types = np.where(better[:, None], new, types)
            misfit = np.where(better, now, misfit)
            share = np.where(better, np.minimum(2 * share, 1.0), share / 4)
            if not moved.any():
                break
        return types

    def covariance(self, types: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the covariances by the delta method, and the quantiles of 95 % intervals.

        Stated errors are widened where the residuals are larger than they explain.
        """
        from scipy.stats import t

        levels = self.levels(types)
        by_type, by_level = self.slopes(types, levels)
        matrix = self.normal(by_type, (self.sigma * by_level) ** -2.0)
        free = self.sum(np.ones_like(self.level)) - 2
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = np.where(free > 0, self.misfit(types) / free, np.nan)
            (a, b), (_, d) = matrix.transpose(1, 2, 0)
            inverse = (
                np.array([[d, -b], [-b, a]]).transpose(2, 0, 1) / (a * d - b * b)[:, None, None]
            )
        stated = self.stated
        widened = np.where(stated, np.fmax(spread, 1.0), spread)
        quantile = np.where(stated, NORMAL_95, t.ppf(0.975, np.maximum(free, 1)))
        return inverse * widened[:, None, None], quantile
