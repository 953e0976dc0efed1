"""How the spend is distributed: the probability that it exceeds the budget.

The spend is a sum of independent payments, one per client, and each payment has one value per type.
So the distribution of the spend is the convolution of theirs: all sums one by one as long as they
are few, and otherwise by fast Fourier transform on a grid of sums. A payment between two points of
the grid is split between them so that its mean is preserved. For many clients the spend counts as
normally distributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import fft, special

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Types
    from fedprice.beliefs.curves import Moments
    from fedprice.tariff import Tariffs

__all__ = ["SAME", "NormalSpend", "Sums", "spending"]

EXACT = 1 << 16  # sums that are computed one by one
POINTS = 1 << 15  # of the grid of sums
MOST_CLIENTS = 1024  # with more, the spend counts as normally distributed
MOST = 1 << 24  # payments in total, over all clients, types and blocks
SAME = 1e-9  # relative: sums this close to the budget do not exceed it


class NormalSpend(NamedTuple):
    """A spend that is normally distributed."""

    mean: float
    std: float

    def above(self, budget: float) -> float:
        """Return the probability that the spend exceeds a budget."""
        excess = self.mean - budget
        if not self.std:
            return float(excess > SAME * abs(budget))
        return float(special.ndtr(excess / self.std))

    def quantile(self, risk: float) -> float:
        """Return the least sum that is exceeded with this probability at most."""
        return self.mean - float(special.ndtri(risk)) * self.std


class Sums(NamedTuple):
    """A spend of which the probability of each sum is known.

    Attributes
    ----------
    sums
        What may be spent, rising.
    exceeded
        The probability that the spend exceeds each of them.

    Examples
    --------
    >>> coin = np.array([0.0, 1.0]), np.array([0.5, 0.5])
    >>> three = Sums.of([coin, coin, coin])
    >>> three.above(2), three.above(3), three.quantile(0.2)
    (0.125, 0.0, 2.0)
    """

    sums: FloatArray
    exceeded: FloatArray

    @classmethod
    def of(cls, payments: list[tuple[FloatArray, FloatArray]]) -> Sums:
        """Return the distribution of a sum from each part's values and their probabilities."""
        sums: FloatArray = np.zeros(1)
        mass: FloatArray = np.ones(1)
        rest = sorted(payments, key=lambda part: part[0].size)
        while rest and sums.size * rest[0][0].size <= EXACT:
            paid, weight = rest.pop(0)
            sums, place = np.unique((sums[:, None] + paid).ravel(), return_inverse=True)
            mass = np.bincount(place.ravel(), (mass[:, None] * weight).ravel()).astype(np.float64)
        if rest:
            sums, mass = _convolved([(sums, mass), *rest])
        return cls(sums, np.maximum(mass.sum() - np.cumsum(mass), 0.0))

    def above(self, budget: float) -> float:
        """Return the probability that the spend exceeds a budget."""
        at = int(np.searchsorted(self.sums, budget + SAME * abs(budget), side="right"))
        if at == self.sums.size:
            return 0.0
        return float(self.exceeded[at - 1]) if at else 1.0

    def quantile(self, risk: float) -> float:
        """Return the least sum that is exceeded with this probability at most."""
        return float(self.sums[np.argmax(self.exceeded <= risk)])


def _convolved(parts: list[tuple[FloatArray, FloatArray]]) -> tuple[FloatArray, FloatArray]:
    """Return the sums of parts on a grid, and their probabilities."""
    # Splitting the largest payment of each part takes one more point.
    step = float(sum(np.ptp(paid) for paid, _ in parts)) / (POINTS - 1 - len(parts))
    start = float(sum(paid.min() for paid, _ in parts))
    if not step:
        return np.array([start]), np.ones(1)
    transform = np.ones(POINTS // 2 + 1, np.complex128)
    for paid, weight in parts:
        place = (paid - paid.min()) / step
        below = place.astype(np.int64)
        part = place - below
        mass = np.bincount(below, weight * (1 - part), POINTS)
        transform *= fft.rfft(mass + np.bincount(below + 1, weight * part, POINTS))
    sums: FloatArray = start + step * np.arange(POINTS, dtype=np.float64)
    return sums, np.maximum(fft.irfft(transform, POINTS), 0.0)


def spending(
    tariffs: Tariffs,
    impact: FloatArray,
    types: list[Types],
    group: IntArray,
    cost_exponent: float,
    *,
    moments: Moments,
    value: FloatArray | None = None,
) -> Sums | NormalSpend:
    """Return how the spend on all clients is distributed.

    Parameters
    ----------
    tariffs, impact
        What the N clients are offered, and their impacts k, shape (N,).
    types, group
        The sets of types, and which is each client's, shape (N,).
    cost_exponent
        τ.
    moments
        What is expected, from which the normal distribution follows.
    value
        The clients' values where they are known, shape (N,); else those of their types.
    """
    sizes = np.array([one.cost.size for one in types])
    if len(tariffs) > MOST_CLIENTS or int(sizes[group].sum()) * tariffs.ends.shape[1] > MOST:
        return NormalSpend(float(moments.spend.sum()), float(np.sqrt(moments.variance.sum())))

    payments = []
    for n in np.flatnonzero(impact > 0).tolist():
        cost, believed, weight = types[group[n]]
        values = believed if value is None else np.full_like(cost, value[n])
        offer = tariffs.of([n])
        levels = offer.best_levels(cost[None], values[None] * impact[n], cost_exponent)
        payments.append((offer.payments(levels)[0], weight))
    return Sums.of(payments)
