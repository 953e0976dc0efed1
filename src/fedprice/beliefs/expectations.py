"""What tariffs yield: expectations over types, for clients one by one or many at once.

Symbols: q level, k impact, T payment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.beliefs import Types
from fedprice.beliefs.curves import Moments

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.tariff import Tariffs

__all__ = ["Rows", "expected", "padded", "rows_of"]

BINS = 96  # tariffs for clients with the same beliefs; more clients share them by impact
CHUNK = 1 << 18  # numbers in a working array


def expected(
    tariffs: Tariffs,
    impact: FloatArray,
    cost: FloatArray,
    value: FloatArray,
    weight: FloatArray,
    cost_exponent: float,
) -> Moments:
    """Return what each tariff yields over the types that it is posted to, shape (N,).

    Parameters
    ----------
    tariffs
        N tariffs.
    impact
        k, shape (N,).
    cost, value, weight
        The S types of each client and their probabilities, shape (N, S).
    cost_exponent
        τ.

    Examples
    --------
    >>> from fedprice.tariff import Tariffs
    >>> one = Tariffs.flat([4.0], 1.0)
    >>> types = np.array([[4.0, 8.0]]), np.zeros((1, 2)), np.array([[0.5, 0.5]])
    >>> found = expected(one, np.array([0.1]), *types, cost_exponent=2)  # levels 1/2 and 1/4
    >>> found.loss.round(12), found.spend
    (array([0.3]), array([1.5]))
    """
    found = np.empty((4, len(tariffs)))
    step = max(1, CHUNK // cost.shape[1])
    for start in range(0, len(tariffs), step):
        part = slice(start, start + step)
        some = tariffs.of(part)
        k, shares = impact[part, None], weight[part]
        levels = some.best_levels(cost[part], value[part] * k, cost_exponent)
        paid = some.payments(levels)
        mean = (shares * paid).sum(axis=1)
        spread = (shares * (paid - mean[:, None]) ** 2).sum(axis=1)
        with np.errstate(divide="ignore"):
            loss = (shares * (k / levels)).sum(axis=1)
        found[:, part] = loss, mean, spread, (shares * levels).sum(axis=1)
    return Moments(*found)


@dataclass(frozen=True)
class Rows:
    """What is priced: one row per tariff.

    A row stands for one client, or for clients of about the same impact. What is expected of a
    client is then interpolated between `nodes`, impacts at which the row's tariff is evaluated.
    """

    impact: FloatArray  # (R,)
    lowest: FloatArray  # (R,): the lowest impact of its clients and nodes
    level_max: FloatArray  # (R,)
    cost: FloatArray  # (R, S)
    value: FloatArray  # (R, S)
    weight: FloatArray  # (R, S)
    nodes: FloatArray  # (R, Q)
    row_of: IntArray  # (N,): each client's row
    shares: FloatArray  # (N, Q): of the nodes in what is expected of each client

    @property
    def clients(self) -> FloatArray:
        """The number of clients of each row."""
        return np.bincount(self.row_of, minlength=len(self.impact)).astype(np.float64)

    @property
    def value_impact(self) -> FloatArray:
        """The types' v k, shape (R, S)."""
        return self.value * self.impact[:, None]

    def expected(self, tariffs: Tariffs, tau: float) -> tuple[FloatArray, FloatArray]:
        """Return E[k/q] and E[T] at each row's nodes, shape (R, Q)."""
        found = self._at_nodes(tariffs, tau)
        return found[0], found[1]

    def moments(self, tariffs: Tariffs, impact: FloatArray, tau: float) -> Moments:
        """Return what is expected of each client's tariff, shape (N,)."""
        loss, *rest = self._at_nodes(tariffs, tau)
        # As a function of the impact, E[1/q] is less curved than E[k/q].
        return Moments(impact * self.per_client(loss / self.nodes), *map(self.per_client, rest))

    def _at_nodes(self, tariffs: Tariffs, tau: float) -> FloatArray:
        """Return the four moments at each row's nodes, shape (4, R, Q)."""
        return np.stack(
            [
                expected(tariffs, node, self.cost, self.value, self.weight, tau)
                for node in self.nodes.T
            ],
            axis=2,
        )

    def per_client(self, at_nodes: FloatArray) -> FloatArray:
        """Return what is expected of each client, shape (N,), from the nodes' (R, Q)."""
        means: FloatArray = (self.shares * at_nodes[self.row_of]).sum(axis=1)
        return means

    def total(self, at_nodes: FloatArray) -> float:
        """Return the sum over all clients."""
        return float(self.per_client(at_nodes).sum())


def rows_of(
    impact: FloatArray, types: Sequence[Types], group_of: IntArray, level_max: FloatArray
) -> Rows:
    """Return the rows of clients: their own, or shared ones where there are many."""
    kinds, kind_of, sizes = np.unique(
        np.stack([group_of, level_max], 1), axis=0, return_inverse=True, return_counts=True
    )
    row_of = np.empty(len(impact), np.int64)
    shares = np.empty((len(impact), 2))
    nodes, groups, caps = [], [], []
    rows = 0
    ordered = np.split(np.argsort(kind_of.ravel(), kind="stable"), np.cumsum(sizes)[:-1])
    for (group, cap), members in zip(kinds, ordered, strict=True):
        node, place, share = _nodes(np.log(impact[members]))
        row_of[members] = rows + place
        shares[members] = share
        nodes.append(np.exp(node))
        groups += [int(group)] * len(node)
        caps += [cap] * len(node)
        rows += len(node)
    every = np.concatenate(nodes)
    middle = np.sqrt(every[:, 0] * every[:, 1])
    if (every[:, 0] == every[:, 1]).all():
        middle, every, shares = every[:, 0], every[:, :1], np.ones((len(impact), 1))
    size = max(len(types[group].weight) for group in set(groups))
    same = {group: padded(types[group], size) for group in set(groups)}
    cost, value, weight = (np.stack([same[group][i] for group in groups]) for i in range(3))
    lowest = every[:, 0].copy()
    np.minimum.at(lowest, row_of, impact)
    return Rows(middle, lowest, np.array(caps), cost, value, weight, every, row_of, shares)


def _nodes(logs: FloatArray) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return the nodes of rows (R, 2), each client's row (N,), and its shares of the nodes (N, 2).

    All of this is in the logarithm of the impact. The nodes are Gaussian for a bin of impacts; if
    there are few distinct impacts, each has its own row.
    """
    distinct, place = np.unique(logs, return_inverse=True)
    if len(distinct) <= BINS:
        return np.stack([distinct] * 2, 1), place, np.full((len(logs), 2), 0.5)
    # Half of the edges are equidistant, half have equally many clients between them.
    parts = np.linspace(0, 1, BINS // 2 + 1)
    edges = np.unique(
        np.r_[distinct[0] + parts * (distinct[-1] - distinct[0]), np.quantile(logs, parts)]
    )
    used, place = np.unique(
        np.clip(np.searchsorted(edges, logs, side="right") - 1, 0, len(edges) - 2),
        return_inverse=True,
    )
    middle = (edges[used] + edges[used + 1]) / 2
    node = (edges[used + 1] - edges[used]) / 2 / np.sqrt(3)
    share = ((logs - middle[place]) / node[place] + 1) / 2
    return np.stack([middle - node, middle + node], 1), place, np.stack([1 - share, share], 1)


def padded(types: Types, size: int) -> Types:
    """Return the types of a group, padded to a common size with copies of zero weight."""
    more = (0, size - len(types.weight))
    return Types(
        np.pad(types.cost, more, mode="edge"),
        np.pad(types.value, more, mode="edge"),
        np.pad(types.weight, more),
    )
