r"""The curve of a client: what a posted price costs and yields when its type is not known.

Symbols: P price, q(P; θ) the answer of type θ = (c, v), x = 1/q, π = P q, k impact, τ cost
exponent, μ multiplier of the budget, t = 1/μ.

Each client has a curve

    C(P) = E[P q(P)],   A(P) = E[k / q(P)].

C rises and A falls with P. To minimise Σ A under Σ C ≤ B, take the lower convex hull of each curve
and buy segments of all hulls by slope until the budget is spent (`fedprice.beliefs.hulls`).

`Curves.lines` bounds A + μ C from below over a whole cell of prices, for the certificate. Per type,
below the cap π is convex in P, and x is convex where q^{τ+1} ≥ 2 v k / (τ² (τ−1) c) and concave
below: convex parts lie above their tangents, concave ones above their chords. At the cap x is
constant and π continues with a smaller slope, so x is convex there too, and π lies above a chord. A
type that passes its inflexion inside the cell is bounded by x at the one end and π at the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.beliefs.best_levels import levels_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Types

__all__ = ["Curves", "Lines", "Moments"]

CHUNK = 1 << 14  # answers computed at once: their arrays stay in the cache


class Moments(NamedTuple):
    """What one price per row yields, arrays of shape (rows,).

    Attributes
    ----------
    loss, spend, variance, level
        E[k/q], E[P q], the variance of P q, and E[q].
    """

    loss: FloatArray
    spend: FloatArray
    variance: FloatArray
    level: FloatArray


class Lines(NamedTuple):
    """Lower bounds of A + μ C over cells of prices, arrays of shape (cells,).

    Over a cell of width h, at 0 ≤ s ≤ h from its left end, no price has less than
    constant + max(left + fall · s, right − rise · (h − s)), and no chord between impacts less than
    that minus `bend`. Lines of several rows can be added.
    """

    bend: FloatArray
    constant: FloatArray
    left: FloatArray
    fall: FloatArray
    right: FloatArray
    rise: FloatArray

    def lowest(self, width: FloatArray) -> FloatArray:
        """Return the least value over each cell, before `bend` is subtracted."""
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            back = self.right - self.rise * width
            start, end = (
                np.maximum(self.left, back),
                np.maximum(self.left + self.fall * width, self.right),
            )
            cross = (back - self.left) / (self.fall - self.rise)
            meet = self.left + self.fall * cross
        inside = (cross > 0) & (cross < width) & np.isfinite(meet)
        ends = np.minimum(start, end)
        lowest: FloatArray = self.constant + np.where(inside, np.minimum(ends, meet), ends)
        return lowest


@dataclass(frozen=True, eq=False)
class Curves:
    """The curves of some clients that share their beliefs, one row per client.

    Attributes
    ----------
    types
        The types that a client may have, with their weights.
    impact
        k, shape (rows,).
    low_impact
        The impact at which clients that pay are counted, shape (rows,): the same, or a lower one
        where the bound's α is known up to an interval.
    level_max
        The cap q_max, shape (rows,).
    cost_exponent
        τ.
    ratio
        r ≥ 1: `lines` then bound the chords of A + μ C between impacts k/r, k and k r, so that rows
        may stand for all clients with impacts between theirs (see `_bend`).
    """

    types: Types
    impact: FloatArray
    low_impact: FloatArray
    level_max: FloatArray
    cost_exponent: float
    ratio: float = 1.0

    def at(self, price: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return C and A of some rows at some prices each, shape (some rows, prices)."""
        spend, loss = np.empty_like(price), np.empty_like(price)
        for part in self._parts(price):
            level, paid = self._answers(price[part], rows[part])
            spend[part] = price[part] * (paid @ self.types.weight)
            with np.errstate(divide="ignore", over="ignore"):
                loss[part] = self.impact[rows[part], None] * ((1 / level) @ self.types.weight)
        return spend, loss

    def moments(self, price: FloatArray) -> Moments:
        """Return what one price per row yields."""
        moments = np.empty((4, price.size))
        weight = self.types.weight
        for part in self._parts(price[:, None]):
            some = np.arange(price.size)[part]
            level, paid = (x[:, 0] for x in self._answers(price[part, None], some))
            payment = price[part, None] * paid
            mean = payment @ weight
            with np.errstate(divide="ignore", over="ignore"):
                loss = self.impact[part] * ((1 / level) @ weight)
            moments[:, part] = loss, mean, (payment - mean[:, None]) ** 2 @ weight, level @ weight
        return Moments(*moments)

    def range(self, reciprocal: float) -> tuple[FloatArray, FloatArray]:
        """Return prices between which the least A + μ C lies, both shape (rows,).

        These are the least and the largest of the prices that would be best for one type alone, at
        q^{τ+1} = k (t − v) / (τ² c). Types with v ≥ t have none: the first is then −inf.
        """
        c, v, _ = self.types
        tau = self.cost_exponent
        low, high = np.empty_like(self.impact), np.empty_like(self.impact)
        for part in self._parts(self.impact[:, None]):
            k, cap = self.impact[part, None], self.level_max[part, None]
            free = (k * np.maximum(reciprocal - v, 0.0) / (tau**2 * c)) ** (1 / (tau + 1))
            q = np.minimum(free, cap)
            with np.errstate(divide="ignore", invalid="ignore"):
                at_level = np.where(q > 0, tau * c * q ** (tau - 1) - v * k / q**2, -np.inf)
            low[part], high[part] = at_level.min(axis=1), at_level.max(axis=1)
        return low, high

    def cap_price(self) -> FloatArray:
        """Return the price at which every type is at the cap, shape (rows,)."""
        c, v, _ = self.types
        tau, most = self.cost_exponent, np.empty_like(self.impact)
        for part in self._parts(self.impact[:, None]):
            q = self.level_max[part, None]
            price = tau * c * q ** (tau - 1) - v * self.low_impact[part, None] / q**2
            most[part] = price.max(axis=1)
        return most

    def tail(self, price: FloatArray, rows: IntArray, reciprocal: float) -> FloatArray:
        """Return a bound of A + μ C over all prices below a negative one, for some rows.

        For P < 0, q ≤ √(v k / |P|), and so k x + μ π ≥ √|P| (√(k / v) − √(v k) / t) for every type,
        with the lower impact in the second term. That grows with |P| where the mean of the bracket
        is positive; where it is not, the bound is −inf.
        """
        _, v, weight = self.types
        with np.errstate(divide="ignore"):
            lost, paid = float(weight @ v**-0.5), float(weight @ np.sqrt(v)) / reciprocal
        bracket = np.sqrt(self.impact[rows]) * lost - np.sqrt(self.low_impact[rows]) * paid
        return np.where(bracket > 0, np.sqrt(np.abs(price)) * bracket, -np.inf)

    def lines(
        self, left: FloatArray, right: FloatArray, rows: IntArray, reciprocal: float
    ) -> Lines:
        """Return lower bounds of A + μ C over cells of prices.

        Parameters
        ----------
        left, right
            Where the cells begin and end, shape (cells,).
        rows
            The row of each cell, shape (cells,).
        reciprocal
            t = 1/μ.
        """
        sums = np.empty((6, left.size))
        ends = np.stack([left, right], axis=1)
        # Close to τ = 1 levels may underflow; see `Family.lowest`.
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            for part in self._parts(ends):
                sums[:, part] = self._lines(ends[part], rows[part], reciprocal)
        return Lines(*sums)

    def _lines(self, ends: FloatArray, rows: IntArray, reciprocal: float) -> Lines:
        c, v, weight = self.types
        tau, mu = self.cost_exponent, 1 / reciprocal
        cap, k = self.level_max[rows, None], self.impact[rows, None]
        level, paid = self._answers(ends, rows)
        low = np.where(ends[:, :1] < 0, self.low_impact[rows, None], k)
        width = np.maximum(ends[:, 1:] - ends[:, :1], np.finfo(float).tiny)
        x, x_slope, pi, pi_slope, convex, concave = [], [], [], [], [], []
        for side in (0, 1):
            price, q, paid_level = ends[:, side, None], level[:, side], paid[:, side]
            curvature = tau * (tau - 1) * c * q ** (tau + 1)
            rise = np.where(q >= cap, 0.0, q**3 / (2 * v * k + curvature))  # dq/dP
            own_rise = rise
            if paid_level is not q:
                below = paid_level**3 / (
                    2 * v * low + tau * (tau - 1) * c * paid_level ** (tau + 1)
                )
                own_rise = np.where(paid_level >= cap, 0.0, below)
            x.append(1 / q)
            x_slope.append(-rise / q**2)
            pi.append(price * paid_level)
            pi_slope.append(paid_level + price * own_rise)
            # At τ = 2 the inflexion is at P = 0, where cells end: it must not depend on rounding.
            convex.append((curvature * tau >= 2 * v * k * (1 - 1e-9)) | (q >= cap))
            concave.append((curvature * tau <= 2 * v * k * (1 + 1e-9)) & (q < cap))
        # π is convex up to the cap, and has a smaller slope from there: above this chord.
        reaches = (paid[:, 0] < cap) & (paid[:, 1] >= cap)
        pi[1] = np.where(reaches, np.minimum(pi[0] + pi_slope[0] * width, pi[1]), pi[1])
        along = (pi[1] - pi[0]) / width
        bent, hollow = convex[0] & convex[1], concave[0] & concave[1]
        chord = (x[1] - x[0]) / width
        slopes = [
            k * np.where(bent, x_slope[side], chord) + mu * np.where(reaches, along, pi_slope[side])
            for side in (0, 1)
        ]
        # Close to τ = 1 a level may underflow at the left end: counted as if it changed.
        smooth = np.where((bent | hollow) & (level[:, 0] > 0), weight, 0.0)
        # Types that change from one to the other: x falls and π rises.
        constant = np.sum((weight - smooth) * (k * x[1] + mu * pi[0]), axis=1)
        bend = self._bend(ends, rows, reciprocal, paid[:, 0])
        left, fall, right, rises = (
            np.sum(np.where(smooth > 0, smooth * y, 0.0), axis=1)
            for y in (k * x[0] + mu * pi[0], slopes[0], k * x[1] + mu * pi[1], slopes[1])
        )
        return Lines(bend, constant, left, fall, right, rises)

    def _bend(
        self, ends: FloatArray, rows: IntArray, reciprocal: float, paid: FloatArray
    ) -> FloatArray:
        """Return how far A + μ C may lie below its chords in the impact, shape (cells,).

        For P ≥ 0 and below the cap, q and k/q are concave in k, and lie above their chords. Where a
        type reaches its cap, the slope of k/q rises from at least τ/(τ+1) of 1/q to 1/q.

        For P < 0 fees are convex, −q″ ≤ (1/4 + (τ+1)/27) q / k², and above τ = 8 or so k/q may be,
        (k/q)″ ≤ h / (2 q k) with h as below. At the cap the slope of k/q rises by at most half of
        1/q, and that of the fee by at most half of |P| q / k.
        """
        if self.ratio == 1:
            return np.zeros(rows.size)
        c, v, weight = self.types
        tau, r, k, cap = self.cost_exponent, self.ratio, self.impact[rows], self.level_max[rows]
        at_cap = tau * c * cap[:, None] ** (tau - 1)
        rise, least = (v * (x[rows] / cap**2)[:, None] for x in (self.impact, self.low_impact))
        reached = (ends[:, 1:] >= at_cap - rise * r) & (ends[:, :1] < at_cap - least / r)
        fee = np.maximum(-ends[:, 0], 0.0) / reciprocal
        jump = np.where(fee > 0, (k / cap + fee * cap) / 2, k / cap / (tau + 1)) * (r - 1) / 4
        h = (tau - 1) ** 2 / (3 * tau + 1 + 2 * np.sqrt(2 * tau * (tau + 1))) - 1
        with np.errstate(divide="ignore"):
            lost = np.where(fee > 0, max(h, 0.0) / 2 * k * ((1 / paid) @ weight), 0.0)
        fees = (1 / 4 + (tau + 1) / 27) * fee * (paid @ weight)
        bend: FloatArray = r * (jump * (reached @ weight) + (r - 1) ** 2 / 8 * (lost + fees))
        return bend

    def _answers(self, price: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the levels for the loss, and those that are paid for, shape (rows, prices, S)."""
        c, v, _ = self.types
        cap, tau = self.level_max[rows, None, None], self.cost_exponent
        big_p, high, low = price[:, :, None], self.impact[rows], self.low_impact[rows]
        level = levels_at(big_p, c, v * high[:, None, None], tau, cap)
        if (low == high).all():
            return level, level
        lower = levels_at(big_p, c, v * low[:, None, None], tau, cap)
        return level, np.where(big_p < 0, lower, level)

    def _parts(self, price: FloatArray) -> Iterator[slice]:
        size = max(1, CHUNK // (price.shape[1] * self.types.cost.size))
        return (slice(i, i + size) for i in range(0, price.shape[0], size))
