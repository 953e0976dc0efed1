r"""Posted prices: the best price for each client of unknown type, with a certificate.

Symbols: P price, C(P) expected payment, A(P) expected loss, B budget, μ its multiplier, t = 1/μ.

.. math::
    \min_P \sum_n A_n(P_n) \quad\text{s.t.}\quad \sum_n C_n(P_n) \le B.

Curves are computed on a grid of prices and bought along their hulls; then the grid is refined
around the prices in use, and they are bought again. The certificate is the Lagrangian dual

.. math::
    \sum_n \min_P [A_n(P) + \mu C_n(P)] - \mu B,

a lower bound for every choice of prices and every lottery over prices, whose inner minima are
bounded over *all* prices: between grid prices by `Curves.lines`, below the lowest by `Curves.tail`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import optimize

from fedprice.beliefs.hulls import buy
from fedprice.errors import InputError

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.families import Family
    from fedprice.beliefs.hulls import Purchase

__all__ = ["REFINEMENTS", "WEAK", "NoPriceError", "RowPrices", "Search"]

POSITIVE, NEGATIVE = 40, 24  # prices of the first grid on either side of 0
REFINEMENTS, BETWEEN = 6, 4  # rounds, and new prices per cell beside a price in use
LARGE = 1e300
HAIR = 1e-9  # relative, of prices and losses
TOLERANCE = 3e-6  # of a row's bound in the certificate, relative to its loss
HALVINGS = 40  # of the interval of prices in which a lottery is resolved
MOST_CELLS = 256  # per row with 1,024 types, before their bounds are taken as they are
WEAK = 1e-5  # above this gap, other multipliers are tried for a better bound
MULTIPLIERS = 16  # tried at most
FACTOR = 1.5  # by which they may differ
DENSER = 6  # times as many prices if the bound is still weak
BEYOND = 4.0  # factor by which a grid is extended if its end is in use
FARTHER = 12  # extensions before prices are refined
CONTINUED = 50  # extensions before it is concluded that no price meets the budget


class RowPrices(NamedTuple):
    """The prices of rows.

    Attributes
    ----------
    price
        One per row.
    row, other, share
        The row whose price is drawn at random (−1 if none), its other price, and the probability
        of that one.
    multiplier
        μ; 0 if every client is at its cap, and money is left.
    """

    price: FloatArray
    row: int
    other: float
    share: float
    multiplier: float


class NoPriceError(InputError):
    """No posted price meets the budget."""

    exit_code = 3


@dataclass(eq=False)
class Search:
    """The search for the best prices of a family: curves on a grid that is refined as needed."""

    family: Family
    price: FloatArray = field(init=False)
    spend: FloatArray = field(init=False)
    loss: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        # Where every client is at its cap even for a fee, the fee sets the scale.
        scale = np.maximum(np.abs(self.family.top()), np.finfo(float).tiny)[:, None]
        up, down = np.geomspace(1e-5, 1, POSITIVE), -np.geomspace(10, 1e-5, NEGATIVE)
        signed = np.concatenate([down, np.zeros(1), up])
        positive = np.geomspace(1e-8, 1, signed.size)
        self.price = scale * np.where(self.family.indifferent[:, None], positive, signed)
        self.spend, self.loss = self.family.at(self.price)

    def _buy(self, budget: float) -> Purchase:
        """Return the best purchase from the grid, which is extended until it meets the budget.

        Fees have no upper limit, and prices above 0 no lower one. So there are always prices,
        unless some clients have to be paid and no client can be charged for it.
        """
        for _ in range(CONTINUED):
            purchase = buy(self.spend, self.loss, budget)
            if purchase is not None:
                return purchase
            if budget <= 0 and self.family.indifferent.all():
                raise NoPriceError(
                    f"no posted prices meet a budget of {budget:g} in expectation: types with "
                    "value 0 join only if they are paid. Raise the budget above 0."
                )
            self._add(self._beyond())
        first = np.argmax(np.isfinite(self.loss), axis=1)  # below this, some client never joins
        least = float(self.spend[np.arange(self.family.size), first].sum())
        raise NoPriceError(
            f"no posted prices meet a budget of {budget:g} in expectation: the least that they can "
            f"cost is about {least:.4g}. Raise the budget"
            + (
                "; types with value 0 join only if they are paid."
                if self.family.indifferent.any()
                else "."
            )
        )

    def _beyond(self) -> FloatArray:
        """Return a price below each row's grid, shape (rows, 1)."""
        lowest = self.price[:, :1]
        return np.where(self.family.indifferent[:, None], lowest / BEYOND, lowest * BEYOND)

    def _refine(self, purchase: Purchase, turn: int) -> None:
        """Add prices to the cells beside those in use.

        Where a hull skips prices next to the one in use, the other end of that segment may win once
        it is known as precisely; so both ends are refined in turn.
        """
        at = purchase.chosen.copy()
        if turn % 2:
            if purchase.row >= 0:
                at[purchase.row] = purchase.to
            for beside in (purchase.below, purchase.above)[:: 1 if turn % 4 == 1 else -1]:
                skips = np.abs(beside - purchase.chosen) > 1
                at[skips] = beside[skips]
        steps = np.arange(1, BETWEEN + 1) / (BETWEEN + 1)
        here = self.price[np.arange(self.family.size), at][:, None]
        below = np.where(self.price < here, self.price, -np.inf).max(axis=1, keepdims=True)
        above = np.where(self.price > here, self.price, np.inf).min(axis=1, keepdims=True)
        below = np.where(np.isfinite(below), below, self._beyond())
        above = np.where(np.isfinite(above), above, here)
        self._add(
            np.concatenate([here + (beside - here) * steps for beside in (below, above)], axis=1)
        )

    def densify(self) -> None:
        """Add prices between all neighbours that are not close together.

        With few types a curve has a bump at each kink, and the best price may lie between two
        bumps and two points of the grid, neither of which reveals it.
        """
        left, right = self.price[:, :-1], self.price[:, 1:]
        scale = np.maximum(np.abs(left), np.abs(right))
        for step in range(1, DENSER):
            between = left + (right - left) * (step / DENSER)
            self._add(np.where(right - left > scale / 16, between, left))

    def _add(self, price: FloatArray) -> None:
        """Add prices to the grid, shape (rows, M)."""
        spend, loss = self.family.at(price)
        old = (self.price, self.spend, self.loss)
        joined = [
            np.concatenate(pair, axis=1) for pair in zip(old, (price, spend, loss), strict=True)
        ]
        order = np.argsort(joined[0], axis=1, kind="stable")
        self.price, self.spend, self.loss = (np.take_along_axis(x, order, 1) for x in joined)

    def post(self, budget: float, refinements: int = REFINEMENTS) -> RowPrices:
        """Return the best prices under a budget, the grid refined around them."""
        for _ in range(FARTHER):  # as long as a hull uses the largest fee on the grid
            ends = (self._buy(budget).below == 0) & ~self.family.indifferent
            if not (ends & (self.loss[:, 0] > 0)).any():  # nodes without clients have no loss
                break
            self._add(self._beyond())
        for turn in range(refinements):
            self._refine(self._buy(budget), turn)
        purchase = self._buy(budget)
        price = self.price[np.arange(self.family.size), purchase.chosen]
        other = float(self.price[purchase.row, purchase.to]) if purchase.row >= 0 else 0.0
        return RowPrices(price, purchase.row, other, purchase.share, purchase.multiplier)

    def settled(self, best: RowPrices) -> FloatArray:
        """Return the prices with one in between that costs as much as the lottery over two."""
        price, row, share = best.price.copy(), best.row, best.share
        if row < 0:
            return price
        low, high = float(price[row]), best.other
        spend = self.family.row_at(row, np.array([low, high]))[0]
        aim = float((1 - share) * spend[0] + share * spend[1])
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            paid = self.family.row_at(row, np.array([middle]))[0][0]
            low, high = (middle, high) if paid <= aim else (low, middle)
        price[row] = low
        return price

    def certified(self, multiplier: float, budget: float, loss: float) -> float:
        """Return the best certificate that was found for prices with a given loss.

        Every multiplier gives one. That of the last segment is the best if the grid is fine enough
        at its ends, which for very large fees it may not be.
        """
        dual = self.dual(multiplier, budget)
        weak = loss - dual > WEAK * abs(loss)
        if not multiplier or not weak or not self.family.exact:
            return dual
        best = optimize.minimize_scalar(
            lambda log: -max(self.dual(multiplier * np.exp(log), budget), -LARGE),
            bounds=(-np.log(FACTOR), np.log(FACTOR)),
            method="bounded",
            options={"maxiter": MULTIPLIERS, "xatol": 1e-9},
        )
        return -float(best.fun) if best.fun < min(-dual, LARGE) else dual

    def dual(self, multiplier: float, budget: float) -> float:
        """Return the certificate at a multiplier: no lottery over prices has a smaller loss.

        Each row's cells grow geometrically from its best price outwards, and cells whose bound is
        not good enough are split.
        """
        rows = np.arange(self.family.size)
        if not multiplier:
            return float(self.loss[:, -1].sum())  # every client is at its cap
        reciprocal = 1 / multiplier
        value = self.loss + multiplier * self.spend
        at = np.argmin(value, axis=1)
        best = value[rows, at]
        centre = self.price[rows, at]
        low, high = self.family.range(reciprocal)
        # Slightly wider: if both are the same price, it is not on the grid.
        low = low - HAIR * np.abs(low)
        high = high + HAIR * np.where(np.isfinite(high), np.abs(high), 0.0)
        bound = best.copy()
        bottom = self.price[:, 0]
        open_ = low < bottom  # the range reaches below the grid
        if open_.any():
            # Rows with types without value have prices above 0 only, where the spend is positive
            # and the loss rises towards 0. For others the tail's bound grows like √|P|: the cells
            # continue down to where it is good enough.
            some = self.family.indifferent
            tail = np.where(some, self.loss[:, 0], self.family.tail(bottom, reciprocal))
            more = ~some & open_ & (tail > 0) & (tail < best)
            with np.errstate(over="ignore"):
                farther = bottom * (best / np.where(more, tail, 1.0)) ** 2
            bottom = np.where(more & np.isfinite(farther), farther, bottom)
            more &= np.isfinite(farther)
            bound = np.where(open_ & ~more, np.minimum(bound, tail), bound)
        low = np.maximum(low, bottom)
        scale = np.maximum(np.abs(centre), 1e-3 * self.price[:, -1])
        offsets = scale[:, None] * 1e-3 * 2.0 ** np.arange(14)
        edges = np.sort(
            np.concatenate(
                [low[:, None], centre[:, None] - offsets, centre[:, None], np.zeros((rows.size, 1)),
                 centre[:, None] + offsets, high[:, None]], axis=1,
            )
        )  # fmt: skip
        edges = np.clip(edges, low[:, None], np.maximum(high, low)[:, None])
        left, right = edges[:, :-1].ravel(), edges[:, 1:].ravel()
        who = np.repeat(rows, edges.shape[1] - 1)
        keep = right > left
        left, right, who = left[keep], right[keep], who[keep]
        cells, most = np.zeros(rows.size), MOST_CELLS * min(max(1, 1024 // self.family.types), 16)
        unit = np.maximum(self.family.tail(np.full(rows.size, -1.0), reciprocal), 0.0)
        while left.size:
            cells += np.bincount(who, minlength=rows.size)
            lowest, between = self.family.lowest(left, right, who, reciprocal)
            tail = np.sqrt(np.maximum(-right, 0.0)) * unit[who]  # it grows with √|P|
            tail = np.where(tail > 0, tail, -np.inf)
            lowest, between = np.maximum(lowest, tail), np.maximum(between, tail)
            done = lowest >= (best - TOLERANCE * self.loss[rows, at])[who]
            done |= cells[who] > most  # if the grid missed the best price, none suffices
            np.minimum.at(bound, who[done], between[done])
            left, right, who = left[~done], right[~done], who[~done]
            # Fees may lie many orders of magnitude apart.
            far = (right < 0) & (left < 2 * right)
            middle = np.where(far, -np.sqrt(np.abs(left * right)), (left + right) / 2)
            left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
            who = np.concatenate([who, who])
        return float(bound.sum()) - multiplier * budget
