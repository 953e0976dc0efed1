"""What is read off the curves: times to targets by the paper's rule, with bootstrap intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fedprice.arrays import FloatArray
    from fedprice.experiments.cells import Curve


__all__ = [
    "Estimate",
    "Timed",
    "evaluation_time",
    "on_grid",
    "resample_indices",
    "resamples",
    "time_to",
]

POINTS = 501
RESAMPLES = 2000
LEAST_SEEDS = 5


@dataclass(frozen=True)
class Estimate:
    """A number with a 95 % interval, which is not a number if there was too little to go by."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, samples: FloatArray, count: int) -> Estimate:
        """Return a value with the percentile interval of its bootstrap samples.

        The interval is expanded for small samples, as Student's is against the normal one; of fewer
        than LEAST_SEEDS observations there is none.

        Parameters
        ----------
        value
            The estimate itself.
        samples
            The same of each resample.
        count
            How many observations were resampled.
        """
        from scipy.stats import norm, t

        if count < LEAST_SEEDS:
            return cls(float(value), np.nan, np.nan)
        tail = norm.cdf(np.sqrt(count / (count - 1)) * t.ppf(0.025, count - 1))
        ordered = np.sort(samples)  # samples may be infinite, which quantiles cannot interpolate
        low, high = (ordered[round(p * (ordered.size - 1))] for p in (tail, 1 - tail))
        return cls(float(value), float(low), float(high))


def evaluation_time(curves: Mapping[str, Sequence[Curve]]) -> float:
    """Return the simulated seconds that every run covers."""
    return min(float(curve.time[-1]) for runs in curves.values() for curve in runs)


def on_grid(runs: Sequence[Curve], what: str, end: float) -> FloatArray:
    """Return loss or accuracy at POINTS times from 0 to `end`, shape (runs, POINTS).

    A run that ends before has no values there.
    """
    times = np.linspace(0, end, POINTS)
    return np.array([np.interp(times, run.time, getattr(run, what), right=np.nan) for run in runs])


def time_to(curves: FloatArray, target: FloatArray, end: float, *, falling: bool) -> FloatArray:
    """Return when each curve first reaches its target, linearly between points, or inf.

    Parameters
    ----------
    curves
        Values at POINTS times from 0 to `end`, shape (curves, POINTS).
    target
        One a curve, shape (curves,).
    end
        The last time.
    falling
        Whether a target is reached from above (a loss) or from below (an accuracy).

    Examples
    --------
    >>> time_to(np.array([[4.0, 2.0, 1.0], [4.0, 3.0, 3.0]]), np.array([1.5, 1.5]), 10.0,
    ...         falling=True)
    array([7.5, inf])
    """
    sign = 1.0 if falling else -1.0
    above = sign * (curves - target[:, None])
    reached = above <= 0
    first = np.argmax(reached, axis=1)
    rows = np.arange(len(curves))
    before, after = above[rows, np.maximum(first - 1, 0)], above[rows, first]
    with np.errstate(invalid="ignore", divide="ignore"):
        part = np.where(first > 0, before / (before - after), 0.0)
    step = end / (curves.shape[1] - 1)
    return np.where(reached.any(axis=1), (np.maximum(first - 1, 0) + part) * step, np.inf)


def resample_indices(count: int) -> npt.NDArray[np.int64]:
    """Return observations drawn with replacement, shape (RESAMPLES, count); the same every time."""
    return np.random.default_rng(0).integers(0, count, (RESAMPLES, count))


def resamples(count: int) -> FloatArray:
    """Return weights that average each of those resamples, shape (RESAMPLES, count)."""
    weights = np.zeros((RESAMPLES, count))
    np.add.at(weights, (np.arange(RESAMPLES)[:, None], resample_indices(count)), 1 / count)
    return weights


@dataclass(frozen=True, eq=False)
class Timed:
    """Times to one target, by scheme, with the ratios of the proposed scheme to others.

    The target is what uniform pricing reaches, on average, at a fraction of the evaluation time.
    Resamples draw seeds, the same for all schemes, and go through the whole rule, target included.
    """

    target: float
    times: dict[str, float]
    ratios: dict[str, Estimate]

    @classmethod
    def measure(
        cls, curves: Mapping[str, Sequence[Curve]], what: str, fraction: float, end: float
    ) -> Timed:
        """Apply the rule at one fraction of the evaluation time.

        Parameters
        ----------
        curves
            Runs of each scheme, seed by seed; "equilibrium" and "uniform" among them.
        what
            "loss" or "accuracy".
        fraction, end
            Of the evaluation time, and that time.
        """
        falling = what == "loss"
        seeds = len(curves["uniform"])
        weights = np.vstack([np.full(seeds, 1 / seeds), resamples(seeds)])
        means = {name: weights @ on_grid(runs, what, end) for name, runs in curves.items()}
        at = fraction * (POINTS - 1)
        low = int(at)
        share = at - low
        uniform = means["uniform"]
        targets = (1 - share) * uniform[:, low] + share * uniform[:, min(low + 1, POINTS - 1)]
        times = {name: time_to(mean, targets, end, falling=falling) for name, mean in means.items()}
        own = times["equilibrium"]
        with np.errstate(invalid="ignore"):  # neither reached it: not a number
            ratios = {
                name: Estimate.of(own[0] / other[0], own[1:] / other[1:], seeds)
                for name, other in times.items()
                if name != "equilibrium"
            }
        return cls(float(targets[0]), {name: float(t[0]) for name, t in times.items()}, ratios)
