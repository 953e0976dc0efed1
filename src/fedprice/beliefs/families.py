"""Families: which clients share a row, and thus a price.

A row is a client, or a class of clients that get one price. Where many clients share their beliefs,
a row is a node instead: one of many impacts, close together, between which clients are
interpolated. Each client counts for the two nodes next to its impact, with the weights of the
chord.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.curves import Curves, Lines, Moments

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.beliefs.beliefs import Types

__all__ = ["Family", "Population"]

MANY = 1024  # clients that share beliefs and cap; more are interpolated between nodes
NODES = 512
FINE = 8  # nodes between two, at which interpolated prices are evaluated


@dataclass(frozen=True, eq=False)
class Family:
    """All rows of a problem: groups of curves, each part of one row.

    Attributes
    ----------
    curves
        One per set of types.
    rows
        For each of `curves`, the row that each of its own rows belongs to.
    count
        For each of `curves`, how many clients each of its own rows stands for.
    size
        How many rows there are.
    """

    curves: list[Curves]
    rows: list[IntArray]
    count: list[FloatArray]
    size: int

    def at(self, price: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the rows' total C and A at prices of shape (rows, M)."""
        spend, loss = np.zeros_like(price), np.zeros_like(price)
        for curves, rows, count in zip(self.curves, self.rows, self.count, strict=True):
            moved = curves.at(price[rows], np.arange(rows.size))
            for total, part in zip((spend, loss), moved, strict=True):
                np.add.at(total, rows, count[:, None] * part)
        return spend, loss

    def row_at(self, row: int, price: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the total C and A of one row at prices of shape (M,)."""
        spend, loss = np.zeros_like(price), np.zeros_like(price)
        for curves, rows, count in zip(self.curves, self.rows, self.count, strict=True):
            members = np.flatnonzero(rows == row)
            if members.size:
                c, a = curves.at(np.tile(price, (members.size, 1)), members)
                spend += count[members] @ c
                loss += count[members] @ a
        return spend, loss

    def top(self) -> FloatArray:
        """Return the price at which every type of every client of a row is at its cap."""
        top = np.full(self.size, -np.inf)
        for curves, rows in zip(self.curves, self.rows, strict=True):
            np.maximum.at(top, rows, curves.cap_price())
        return top

    @property
    def exact(self) -> bool:
        """Whether no client lies between nodes."""
        return all(curves.ratio == 1 for curves in self.curves)

    @cached_property
    def types(self) -> int:
        """The number of types in the largest set."""
        return max(curves.types.cost.size for curves in self.curves)

    @cached_property
    def indifferent(self) -> BoolArray:
        """Which rows have types without value, which join only at prices above 0, (rows,)."""
        indifferent = np.zeros(self.size, bool)
        for curves, rows in zip(self.curves, self.rows, strict=True):
            indifferent[rows] |= not curves.types.value.all()
        return indifferent

    def range(self, reciprocal: float) -> tuple[FloatArray, FloatArray]:
        """Return prices between which each row's least A + μ C lies."""
        low, high = np.full(self.size, np.inf), np.full(self.size, -np.inf)
        for curves, rows in zip(self.curves, self.rows, strict=True):
            least, most = curves.range(reciprocal)
            if (curves.low_impact != curves.impact).any():
                # Fees at a lower impact rise more slowly with the price, so no lower price is best.
                most = np.maximum(most, 0.0)
            np.minimum.at(low, rows, least)
            np.maximum.at(high, rows, most)
        return low, high

    def lowest(
        self, left: FloatArray, right: FloatArray, cells: IntArray, reciprocal: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return lower bounds of A + μ C over cells of prices of some rows, shape (cells,).

        The first counts each node alone, the second also the clients between nodes.
        """
        total = np.zeros((6, left.size))
        for curves, count, members, which in self._members(cells):
            lines = curves.lines(left[which], right[which], members, reciprocal)
            for sums, part in zip(total, lines, strict=True):
                np.add.at(sums, which, count[members] * part)
        lines = Lines(*total)
        lowest = lines.lowest(right - left)
        with np.errstate(invalid="ignore"):
            bounds = lowest, lowest - lines.bend
        # NaN, from levels that underflow, gives no bound.
        first, second = (np.where(np.isnan(x), -np.inf, x) for x in bounds)
        return first, second

    def tail(self, price: FloatArray, reciprocal: float) -> FloatArray:
        """Return a bound of A + μ C over all prices below negative ones, shape (rows,).

        It is 0 for rows with types without value.
        """
        total = np.zeros(self.size)
        charged = np.flatnonzero(~self.indifferent)
        for curves, count, members, which in self._members(charged):
            rows = charged[which]
            np.add.at(total, rows, count[members] * curves.tail(price[rows], members, reciprocal))
        return total

    def _members(self, cells: IntArray) -> list[tuple[Curves, FloatArray, IntArray, IntArray]]:
        """Return for each of `curves` its rows, and which cells they are part of."""
        parts = []
        order = np.argsort(cells, kind="stable")
        place = cells[order]
        for curves, rows, count in zip(self.curves, self.rows, self.count, strict=True):
            first = np.searchsorted(place, rows, side="left")
            sizes = np.searchsorted(place, rows, side="right") - first
            members = np.repeat(np.arange(rows.size), sizes)
            within = np.arange(members.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            parts.append((curves, count, members, order[first[members] + within]))
        return parts


@dataclass(frozen=True, eq=False)
class Population:
    """All clients with an impact, in sets that share their beliefs, and their cap if many do.

    Attributes
    ----------
    members
        For each set, the numbers of its clients.
    curves
        For each set, the curves of its clients, or of nodes if there are many.
    impact
        k of all clients, shape (N,).
    """

    members: list[IntArray]
    curves: list[Curves]
    impact: FloatArray

    @classmethod
    def of(
        cls,
        impact: FloatArray,
        low_impact: FloatArray,
        level_max: FloatArray,
        types: list[Types],
        group: IntArray,
        cost_exponent: float,
    ) -> Population:
        """Sort clients into sets; those without impact are left out."""
        members, curves = [], []
        scale = float((low_impact[impact > 0] / impact[impact > 0]).min(initial=1.0))
        for n, believed in enumerate(types):
            who = np.flatnonzero((group == n) & (impact > 0))
            _, cap_of, sizes = np.unique(level_max[who], return_inverse=True, return_counts=True)
            many = sizes > MANY
            rest = who[~many[cap_of]]
            for some in [rest, *(who[cap_of == cap] for cap in np.flatnonzero(many))]:
                if not some.size:
                    continue
                k, ends, ratio = impact[some], level_max[some], 1.0
                if some is not rest:
                    ratio = float(k.max() / k.min()) ** (1 / (NODES - 1))
                    k = np.geomspace(k.min(), k.max(), NODES) if ratio > 1 else k[:1]
                    ends = np.full(k.size, ends[0])
                members.append(some)
                curves.append(Curves(believed, k, k * scale, ends, cost_exponent, ratio))
        return cls(members, curves, impact)

    @property
    def exact(self) -> bool:
        """Whether every client has its own row."""
        pairs = zip(self.members, self.curves, strict=True)
        return all(some.size == curves.impact.size for some, curves in pairs)

    def family(self, classes: list[IntArray] | None = None) -> Family:
        """Return the rows: one per client or node, or one per class if these are given."""
        sizes = np.cumsum([0, *(curves.impact.size for curves in self.curves)])
        rows = [np.arange(a, b) for a, b in pairwise(sizes.tolist())]
        count = [self._count(n) for n in range(len(self.curves))]
        if classes is None:
            return Family(self.curves, rows, count, int(sizes[-1]))
        size = 1 + max(int(part.max()) for part in classes)
        return Family(self.curves, classes, count, size)

    def prices(self, price: FloatArray) -> FloatArray:
        """Return the price of each client from those of the rows of `family()`, shape (N,)."""
        prices = np.zeros(self.impact.size)
        start = 0
        for n, (some, curves) in enumerate(zip(self.members, self.curves, strict=True)):
            rows = price[start : start + curves.impact.size]
            start += rows.size
            prices[some] = rows if self._own(n) else self._between(n, rows)
        return prices

    def class_of(self, classes: list[IntArray]) -> IntArray:
        """Return the class of each client from those of the rows: its own or the nearest's."""
        classes_of = np.zeros(self.impact.size, np.int64)
        for n, (some, rows) in enumerate(zip(self.members, classes, strict=True)):
            classes_of[some] = (
                rows if self._own(n) else rows[np.rint(self._position(n)).astype(np.int64)]
            )
        return classes_of

    def moments(self, price: FloatArray, rows: FloatArray | None = None) -> Moments:
        """Return what the prices of all clients yield, shape (N,); nodes are interpolated.

        Parameters
        ----------
        price
            P, shape (N,).
        rows
            The prices of the rows of `family()` from which they are interpolated; None where few
            prices serve all clients.
        """
        moments = np.zeros((4, self.impact.size))
        start = 0
        for n, (some, curves) in enumerate(zip(self.members, self.curves, strict=True)):
            nodes_price = None if rows is None else rows[start : start + curves.impact.size]
            start += curves.impact.size
            if self._own(n):
                moments[:, some] = curves.moments(price[some][: curves.impact.size])
            elif nodes_price is None:
                for distinct in np.unique(price[some]):
                    who = price[some] == distinct
                    table = curves.moments(np.full(curves.impact.size, distinct))
                    moments[:, some[who]] = [self._between(n, row)[who] for row in table]
            else:
                nodes = curves.impact.size - 1
                fine = np.geomspace(curves.impact[0], curves.impact[-1], FINE * nodes + 1)
                at = np.interp(np.arange(fine.size) / FINE, np.arange(nodes + 1), nodes_price)
                low = fine * (curves.low_impact[0] / curves.impact[0])
                ends = np.full(fine.size, curves.level_max[0])
                more = Curves(curves.types, fine, low, ends, curves.cost_exponent)
                place, points = self._position(n) * FINE, np.arange(fine.size)
                moments[:, some] = [np.interp(place, points, row) for row in more.moments(at)]
        return Moments(*moments)

    def _own(self, n: int) -> bool:
        """Return whether the clients of a set have their own rows, or all share one."""
        return self.curves[n].ratio == 1

    def _position(self, n: int) -> FloatArray:
        """Return where the clients of a set lie between its nodes, in units of nodes."""
        nodes = self.curves[n].impact
        place = np.log(self.impact[self.members[n]] / nodes[0]) / np.log(nodes[-1] / nodes[0])
        at: FloatArray = np.clip(place, 0.0, 1.0) * (nodes.size - 1)
        return at

    def _between(self, n: int, row: FloatArray) -> FloatArray:
        place = self._position(n)
        below = np.minimum(place.astype(np.int64), row.size - 2)
        part = place - below
        between: FloatArray = row[below] * (1 - part) + row[below + 1] * part
        return between

    def _count(self, n: int) -> FloatArray:
        """Return how many clients each row of a set stands for: the chord's shares."""
        nodes = self.curves[n].impact
        if self._own(n):
            return np.full(nodes.size, self.members[n].size / nodes.size)
        k = self.impact[self.members[n]]
        below = np.minimum(self._position(n).astype(np.int64), nodes.size - 2)
        part = np.clip((k - nodes[below]) / (nodes[below + 1] - nodes[below]), 0.0, 1.0)
        count = np.zeros(nodes.size)
        np.add.at(count, below, 1 - part)
        np.add.at(count, below + 1, part)
        return count
