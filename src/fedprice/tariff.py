"""`Tariffs`: what each level is paid, one row per client.

Symbols: q level, e_j the end of block j, p_j its price, T(q) = Σ_j p_j (min(q, e_j) − e_{j−1})⁺ the
payment, c cost, τ cost exponent, v value, k impact.

A client maximises T(q) − c q^τ − v k / q. Within a block that is the answer to one price, so the
best level is the best of the blocks' answers. A price is a tariff with one block. A menu is a
tariff of which only the ends of blocks can be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from fedprice.errors import InputError
from fedprice.game import best_level, price_at

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray

__all__ = ["TIE", "Tariffs"]

TIE = 1e-12  # relative to the terms of the utility: an indifferent client takes the higher level


@dataclass(frozen=True, eq=False)
class Tariffs:
    """The tariffs of N clients.

    Attributes
    ----------
    ends
        e, shape (N, M): the levels at which blocks end, rising along each row; the last is the
        largest level that is paid for.
    prices
        p, shape (N, M): the price per unit of level inside each block, of either sign.
    menu
        Whether only the ends can be chosen.

    Examples
    --------
    >>> tariff = Tariffs(np.array([[0.5, 1.0]]), np.array([[8.0, 2.0]]))
    >>> tariff.payments(np.array([0.75]))
    array([4.5])
    >>> tariff.best_levels(np.array([10.0]), np.array([0.0]), cost_exponent=2)  # 8 / (2 · 10)
    array([0.4])
    >>> tariff.best_levels(np.array([5.0]), np.array([0.0]), cost_exponent=2)  # the kink
    array([0.5])
    """

    ends: FloatArray
    prices: FloatArray
    menu: bool = False

    def __post_init__(self) -> None:
        try:
            ends, prices = (np.array(x, np.float64) for x in (self.ends, self.prices))
        except (TypeError, ValueError) as error:
            raise InputError(f"`ends` and `prices` of tariffs must be numbers; {error}.") from error
        if ends.ndim != 2 or ends.shape != prices.shape or not ends.size:
            raise InputError(
                "`ends` and `prices` of tariffs must have the same shape (clients, blocks); "
                f"got {ends.shape} and {prices.shape}."
            )
        if not (np.isfinite(prices).all() and (np.diff(ends, prepend=0.0) > 0).all()):
            raise InputError("the ends of a tariff's blocks must rise, and its prices be finite.")
        if ends.max() > 1:
            raise InputError(f"a tariff ends at a level of at most 1; got {ends.max():g}.")
        for name, array in (("ends", ends), ("prices", prices)):
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @classmethod
    def flat(cls, prices: npt.ArrayLike, level_max: npt.ArrayLike) -> Self:
        """Return tariffs with one block: the same price up to the largest level."""
        given = np.asarray(prices, np.float64)
        ends = np.broadcast_to(np.asarray(level_max, np.float64), given.shape)
        return cls(ends[:, None], given[:, None])

    def __len__(self) -> int:
        return len(self.ends)

    def of(self, clients: IntArray | slice | list[int]) -> Self:
        """Return the tariffs of some clients, by their numbers."""
        return replace(self, ends=self.ends[clients], prices=self.prices[clients])

    @property
    def starts(self) -> FloatArray:
        """The levels at which blocks start, shape (N, M)."""
        starts = np.zeros_like(self.ends)
        starts[:, 1:] = self.ends[:, :-1]
        return starts

    @property
    def end_payments(self) -> FloatArray:
        """What the end of each block is paid, shape (N, M)."""
        paid: FloatArray = np.cumsum(self.prices * (self.ends - self.starts), axis=1)
        return paid

    def payments(self, levels: FloatArray) -> FloatArray:
        """Return T(q), for levels of shape (N,) or (N, S)."""
        paid = np.zeros(np.shape(levels))
        columns = (...,) if paid.ndim == 1 else (slice(None), None)
        for start, end, price in zip(self.starts.T, self.ends.T, self.prices.T, strict=True):
            paid += price[columns] * (
                np.clip(levels, start[columns], end[columns]) - start[columns]
            )
        return paid

    def best_levels(
        self,
        cost: FloatArray,
        value_impact: FloatArray,
        cost_exponent: float,
        level_min: float = 0.0,
    ) -> FloatArray:
        """Return the level that suits each type best; of equally good ones, the highest.

        Parameters
        ----------
        cost, value_impact
            c and v k of shape (N,), or (N, S) for S types of each client.
        cost_exponent
            τ.
        level_min
            The least level that can be chosen, at most the last ends: above 0, nobody stays away.
        """
        cost, value_impact = np.broadcast_arrays(cost, value_impact)
        columns = (...,) if cost.ndim == 1 else (slice(None), None)
        best = np.zeros(cost.shape)
        # A client that gains nothing may stay away, where that is allowed.
        most = np.where((value_impact > 0) | (level_min > 0), -np.inf, 0.0)
        paid = np.zeros(len(self))
        at_low = price_at(np.zeros(len(self))[columns], cost, value_impact, cost_exponent)
        for start, end, price in zip(self.starts.T, self.ends.T, self.prices.T, strict=True):
            low, high, p, before = (x[columns] for x in (start, end, price, paid))
            if self.menu:
                level = np.broadcast_to(high, cost.shape)
            else:
                at_high = price_at(high, cost, value_impact, cost_exponent)
                level = _answers(p, cost, value_impact, cost_exponent, low, high, at_low, at_high)
                at_low = at_high
                level = np.minimum(np.maximum(level, level_min), high)
            with np.errstate(divide="ignore", invalid="ignore"):
                own = np.where(value_impact > 0, value_impact / level, 0.0)
            spent = cost * level**cost_exponent
            earned = before + p * (level - low)
            utility = earned - spent - own
            scale = np.abs(earned) + spent + np.where(np.isfinite(own), own, 0.0)
            better = (utility >= most - TIE * scale) & (level >= level_min)
            best = np.where(better, level, best)
            most = np.where(better, np.maximum(utility, most), most)
            paid = paid + price * (end - start)
        return best


def _answers(
    price: FloatArray,
    cost: FloatArray,
    value_impact: FloatArray,
    cost_exponent: float,
    low: FloatArray,
    high: FloatArray,
    at_low: FloatArray,
    at_high: FloatArray,
) -> FloatArray:
    """Return the best level of each type within a block, given the prices for its two ends."""
    level = np.where(price >= at_high, high, low)
    # Only types with a best level inside the block need the iteration: few of many blocks each.
    inside = np.nonzero((price < at_high) & ((price > at_low) | (low == 0)))
    p, c, vk, least, most = (
        np.broadcast_to(x, level.shape)[inside] for x in (price, cost, value_impact, low, high)
    )
    level[inside] = np.maximum(best_level(p, c, vk, cost_exponent, most), least)
    return level
