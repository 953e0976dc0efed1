"""What is read off the curves: means, spreads and times to targets, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments.looks import ERROR, widening

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from fedprice.arrays import FloatArray
    from fedprice.experiments.cells import Curve


__all__ = [
    "LEAST_SEEDS",
    "POINTS",
    "Estimate",
    "Timed",
    "interval_of_mean",
    "on_grid",
    "resample_indices",
    "shortest_time",
    "time_ratio",
    "time_to",
]

POINTS = 501
RESAMPLES = 2000
LEAST_SEEDS = 5


@dataclass(frozen=True)
class Estimate:
    """A number with an interval, which is NaN if there are too few observations."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, value: float, samples: FloatArray, count: int) -> Estimate:
        """Return a value with the 95 % percentile interval of its bootstrap samples.

        The interval is expanded for small samples, as Student's is against the normal one; with
        fewer than LEAST_SEEDS observations there is none.

        Parameters
        ----------
        value
            The estimate itself.
        samples
            The estimate from each resample.
        count
            How many observations were resampled.
        """
        from scipy.stats import norm, t

        if count < LEAST_SEEDS:
            return cls(float(value), np.nan, np.nan)
        tail = norm.cdf(np.sqrt(count / (count - 1)) * t.ppf(0.025, count - 1))
        low, high = np.quantile(samples, [tail, 1 - tail])
        return cls(float(value), float(low), float(high))

    @classmethod
    def jackknife(
        cls,
        measure: Callable[..., Any],
        values: Sequence[FloatArray],
        *,
        error: float = ERROR,
        log: bool = False,
    ) -> Estimate:
        """Return a measure of paired observations with an interval for its pseudo-values' mean.

        Pseudo-values of a mean are the observations themselves; of the logarithm of a ratio of
        spreads this is Miller's jackknife, which needs no normal numbers.

        Parameters
        ----------
        measure
            Takes one array for each of `values`, observations along the last axis.
        values
            Arrays of equal length, paired: the n-th observations share their random numbers.
        error
            The probability with which the interval may miss.
        log
            Whether the interval is made for the logarithm, as for positive numbers.

        References
        ----------
        R. G. Miller, Jackknifing variances, Annals of Mathematical Statistics 39, 1968.

        Examples
        --------
        >>> own = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
        >>> found = Estimate.jackknife(lambda a: a.mean(axis=-1), [own], error=0.05)
        >>> bool(found.low < found.value == 3.0 < found.high)
        True
        """
        value, count = float(measure(*values)), len(values[0])
        if count < LEAST_SEEDS:
            return cls(value, np.nan, np.nan)
        others = ~np.eye(count, dtype=bool)
        without = [np.broadcast_to(v, (count, count))[others].reshape(count, -1) for v in values]
        with np.errstate(invalid="ignore", divide="ignore"):
            whole, parts = (np.asarray(x, float) for x in (value, measure(*without)))
            if log:
                whole, parts = np.log(whole), np.log(parts)
            # Centred on the value: the median in a spread makes the correction of bias too large.
            pseudo = whole + (count - 1) * (parts.mean() - parts)
            ends = np.array(interval_of_mean(pseudo, error))
        low, high = np.exp(ends) if log else ends
        return cls(value, float(low), float(high))


def interval_of_mean(values: FloatArray, error: float) -> tuple[Any, Any]:
    """Return an interval for the mean over the first axis.

    Each end is the outer one of Student's interval and of Hall's, which corrects for skewness:
    Student's alone misses a skewed mean too often, Hall's alone one with heavy tails. Intervals of
    few seeds are widened further (`widening`).

    References
    ----------
    P. Hall, On the removal of skewness by transformation, Journal of the Royal Statistical Society
    B 54, 1992.
    """
    from scipy.stats import t

    count = len(values)
    mean, spread = values.mean(axis=0), values.std(axis=0, ddof=1)
    quantile = t.ppf(1 - error / 2, count - 1)
    third = ((values - mean) ** 3).sum(axis=0) * count / ((count - 1) * (count - 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        skewness = np.where(spread > 0, third / spread**3, 0.0)
        ends = []
        for end in (quantile, -quantile):
            inner = 1 + skewness * (end / count**0.5 - skewness / (6 * count))
            hall = 3 * count**0.5 / skewness * (np.cbrt(inner) - 1)
            ends.append(np.where(np.abs(skewness) > 1e-6, hall, end))
    scale = widening(count) * spread / count**0.5
    return (
        mean - scale * np.maximum(ends[0], quantile),
        mean - scale * np.minimum(ends[1], -quantile),
    )


def shortest_time(
    seconds: FloatArray, idle: float, levels: Sequence[FloatArray], rounds: int
) -> float:
    """Return simulated seconds that runs under each of several vectors of levels surely last.

    A run's length is a sum of independent rounds; it falls short of its mean by more than five
    standard deviations about once in three million runs.

    Parameters
    ----------
    seconds
        How long each client takes for a round, shape (num_clients,).
    idle
        Seconds of a round that nobody joins.
    levels
        Vectors of levels, each of shape (num_clients,).
    rounds
        Of a run.
    """
    order = np.argsort(-seconds)
    lengths = np.append(seconds[order], idle)
    found = []
    for level in levels:
        stayed = np.cumprod(np.concatenate([[1.0], 1 - level[order]]))
        slowest = stayed * np.append(level[order], 1.0)  # and no slower client joins
        mean = float(slowest @ lengths)
        variance = max(float(slowest @ lengths**2) - mean**2, 0.0)
        found.append(rounds * mean - 5 * (rounds * variance) ** 0.5)
    return float(min(found))


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
        One per curve, shape (curves,).
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


def time_ratio(
    own: FloatArray, other: FloatArray, at: float, end: float, *, falling: bool, error: float
) -> Estimate:
    """Return the time one scheme needs to get where another is at a given time, over that time.

    Ratio r means for r ≤ 1 that the scheme's mean at time r · `at` is the other's at `at`, and for
    r ≥ 1 that its mean at `at` is the other's at `at` / r: the ratio says how much earlier the
    scheme that is ahead at `at` was where the other one is. So it is finite even if one of the two
    never gets where the other is.

    The interval has every r at which the mean over seeds of the differences, own at its time minus
    other at its own, may be 0 (`interval_of_mean`): it is made on the scale of the loss or
    accuracy, where everything is finite.

    Parameters
    ----------
    own, other
        Values at POINTS times from 0 to `end`, shape (seeds, POINTS); seed by seed the same coins.
    at
        The time at which the other scheme is evaluated.
    end
        The last time.
    falling
        Whether the lower one is ahead (a loss) or the higher one (an accuracy).
    error
        How likely the interval may miss.
    """
    sign = 1.0 if falling else -1.0
    times = np.linspace(0, end, own.shape[1])
    before = (times > 0) & (times < at)
    own_at, other_at = (np.array([np.interp(at, times, row) for row in v]) for v in (own, other))
    earlier = sign * (own[:, before] - other_at[:, None])
    later = sign * (own_at[:, None] - other[:, before])[:, ::-1]
    ratios = np.concatenate([times[before] / at, [1.0], (at / times[before])[::-1]])
    behind = np.hstack([earlier, sign * (own_at - other_at)[:, None], later])
    mean = behind.mean(axis=0)
    value = _first(ratios, mean)
    if len(own) < LEAST_SEEDS:
        return Estimate(value, np.nan, np.nan)
    least, most = interval_of_mean(behind, error)
    # The last r at which equality is possible is the first one with the schemes swapped.
    high = -_first(-ratios[::-1], -most[::-1])
    return Estimate(value, _first(ratios, least), high)


def _first(places: FloatArray, values: FloatArray) -> float:
    """Return the first place at which values are 0 or below, linearly between places."""
    below = values <= 0
    if not below.any():
        return np.inf
    i = int(np.argmax(below))
    if i == 0:
        return float(places[0])
    part = values[i - 1] / (values[i - 1] - values[i])
    return float(places[i - 1] + part * (places[i] - places[i - 1]))


def resample_indices(count: int) -> npt.NDArray[np.int64]:
    """Return observations drawn with replacement, shape (RESAMPLES, count); always the same."""
    return np.random.default_rng(0).integers(0, count, (RESAMPLES, count))


@dataclass(frozen=True, eq=False)
class Timed:
    """Times to one target, by scheme, with the ratios of one of them to the others.

    Attributes
    ----------
    target
        What the reference, such as uniform pricing, reaches on average at a fraction of the
        evaluation time.
    times
        When each scheme's mean first gets there; inf if it does not.
    ratios
        The ratios of that scheme's time to each other's (`time_ratio`), each at the time at which
        the other reaches the target, or at its end if it does not.
    seeds
        How many seeds each scheme's numbers are based on: those that it shares with that scheme and
        the reference.
    """

    target: float
    times: dict[str, float]
    ratios: dict[str, Estimate]
    seeds: dict[str, int]

    @classmethod
    def measure(
        cls,
        curves: Mapping[str, Sequence[Curve]],
        what: str,
        fraction: float,
        end: float,
        *,
        own: str = "equilibrium",
        reference: str = "uniform",
        error: Callable[..., float] = lambda *_: ERROR,
    ) -> Timed:
        """Apply the rule at one fraction of the evaluation time.

        Parameters
        ----------
        curves
            Runs of each scheme, seed by seed; `own` and the reference among them.
        what
            "loss" or "accuracy".
        fraction, end
            The fraction of the evaluation time, and that time.
        own, reference
            The scheme that is compared with all others, and the one that sets the target.
        error
            The probability with which an interval for some runs may miss, by their names.
        """
        falling = what == "loss"
        grids = {name: on_grid(runs, what, end) for name, runs in curves.items()}
        times, ratios, seeds = {}, {}, {}
        for name, grid in grids.items():
            used = (own, reference, name)
            count = seeds[name] = min(len(grids[one]) for one in used)
            target = _mean_at(grids[reference][:count], fraction)
            mean = grid[:count].mean(axis=0)
            times[name] = float(time_to(mean[None], np.array([target]), end, falling=falling)[0])
            if name != own:
                known = np.flatnonzero(np.isfinite(mean))[-1] * end / (POINTS - 1)
                ratios[name] = time_ratio(
                    grids[own][:count], grid[:count], min(times[name], known), end,
                    falling=falling, error=error(*dict.fromkeys(used)),
                )  # fmt: skip
        return cls(_mean_at(grids[reference], fraction), times, ratios, seeds)


def _mean_at(grid: FloatArray, fraction: float) -> float:
    """Return the mean over seeds at a fraction of the time."""
    at = fraction * (POINTS - 1)
    low = int(at)
    share = at - low
    mean = grid.mean(axis=0)
    return float((1 - share) * mean[low] + share * mean[min(low + 1, POINTS - 1)])
