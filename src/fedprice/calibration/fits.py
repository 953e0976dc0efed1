"""Fits to pilots: α from their differences, and what a unit of loss means in accuracy."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray

__all__ = ["fit_alpha", "fit_slope", "half_width", "quantile", "single_alphas"]


def fit_slope(loss: FloatArray, points: FloatArray) -> tuple[float, tuple[float, float]]:
    """Fit how many points the accuracy rises when the loss falls by one unit, with a 95 % interval.

    Parameters
    ----------
    loss, points
        Loss and points of accuracy of each repeat and evaluation, shape (repeats, evaluations).

    Returns
    -------
    slope, interval
        Least squares over everything. Repeats are independent, evaluations within one are not: the
        standard error is the jackknife's, which leaves out one repeat at a time.
    """

    def slope(rows: slice | IntArray) -> float:
        x = loss[rows] - loss[rows].mean()
        return -float((x * points[rows]).sum() / (x**2).sum())

    repeats = len(loss)
    estimate = slope(slice(None))
    without = np.array([slope(np.delete(np.arange(repeats), one)) for one in range(repeats)])
    error = np.sqrt((repeats - 1) / repeats * ((without - without.mean()) ** 2).sum())
    half = quantile(repeats, 0.05) * float(error)
    return estimate, (estimate - half, estimate + half)


def single_alphas(losses: FloatArray, spreads: FloatArray, rounds: IntArray) -> FloatArray:
    """Return the α that each repeat gives by itself, shape (repeats,); arguments as `fit_alpha`."""
    gaps = (spreads[:-1] - spreads[-1])[:, None, None]
    rises = rounds * (losses[:-1] - losses[-1])
    if not (gaps > 0).all():
        raise InputError("pilots must be ordered by rising levels, each with a smaller spread.")
    single: FloatArray = (gaps * rises).sum(axis=(0, 2)) / ((gaps**2).sum() * rounds.size)
    return single


def half_width(single: FloatArray, error: float) -> float:
    """Return half the width of Student's interval, which misses with probability `error`."""
    return quantile(single.size, error) * float(single.std(ddof=1)) / math.sqrt(single.size)


@cache
def quantile(repeats: int, error: float) -> float:
    """Return Student's quantile for an interval that misses with probability `error`."""
    from scipy.stats import t

    return float(t.ppf(1 - error / 2, repeats - 1))


def fit_alpha(
    losses: FloatArray, spreads: FloatArray, rounds: IntArray, *, error: float = 0.05
) -> tuple[float, tuple[float, float]]:
    """Fit α to differences of pilots, with its interval; refuse pilots that do not identify it.

    Parameters
    ----------
    losses
        The loss of each pilot, repeat and checkpoint, shape (levels, repeats, checkpoints); pilots
        of one repeat share their random numbers.
    spreads
        A(q) of each pilot, shape (levels,).
    rounds
        The rounds of each checkpoint, shape (checkpoints,).
    error
        The probability with which the interval may miss.

    Returns
    -------
    alpha, interval
        Least squares through all differences from the last pilot. Repeats are independent, so the
        interval is Student's over the estimates that each of them gives.
    """
    single = single_alphas(losses, spreads, rounds)
    alpha, half = float(single.mean()), half_width(single, error)
    if not alpha - half > 0:
        raise InputError(
            f"the pilots cannot distinguish alpha from 0 (estimate {alpha:.3g} ± {half:.2g}); use "
            "more repeats, later checkpoints, or a lower first level (for few clients, with a "
            "larger `max_weight`, which allows it). Where clients are few, memory leaves little of "
            'alpha to measure; `aggregator="horvitz-thompson"` measures it without memory.'
        )
    return alpha, (alpha - half, alpha + half)
