"""What is read off the curves: means, spreads and times to targets, with intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments.interim_looks import ERROR

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.cells import Curve


__all__ = [
    "LEAST_SEEDS",
    "POINTS",
    "RESOLUTION",
    "Estimate",
    "Timed",
    "interval_of_mean",
    "on_grid",
    "race_between",
    "resample_indices",
    "rounds_that_last",
    "seeds_needed",
    "shortest_time",
    "time_ratio",
    "time_to",
    "value_at",
]

POINTS = 501
WINDOW = 51  # points over which curves are smoothed: a tenth of the time
RESAMPLES = 2000
LEAST_SEEDS = 5
MOST_NEEDED = 10_000  # seeds that are ever advised
RESOLUTION = 1e-9  # relative: what differs by less is equal, as prices are not solved more closely


@dataclass(frozen=True)
class Estimate:
    """A number with an interval, which is NaN if there are too few observations.

    `limit` is what it is compared with, so that its text shows on which side of that it lies.
    """

    value: float
    low: float
    high: float
    limit: float = field(default=math.nan, repr=False, compare=False)

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """The number, the ends of its interval, and the limit."""
        return self.value, self.low, self.high, self.limit

    def resolved(self, limit: float, scale: float) -> Estimate:
        """Return the estimate, or the limit itself where they differ by rounding errors only.

        Parameters
        ----------
        limit
            What the number is compared with, such as 0 for a difference.
        scale
            How large the numbers are from which it was computed.

        Examples
        --------
        >>> Estimate(3.5e-12, 3.5e-12, 3.5e-12).resolved(0.0, 200.0)
        Estimate(value=0.0, low=0.0, high=0.0)
        >>> Estimate(3.5e-12, -0.1, 0.2).resolved(0.0, 200.0)
        Estimate(value=3.5e-12, low=-0.1, high=0.2)
        """
        far = (abs(x - limit) > RESOLUTION * scale for x in (self.value, self.low, self.high))
        if not math.isfinite(self.value + scale) or any(far):
            return self
        known = math.isfinite(self.low + self.high)
        return Estimate(limit, *((limit, limit) if known else (math.nan, math.nan)))

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
            parts = np.asarray(measure(*without), float)
        return cls.from_parts(value, parts, interval_of_mean, error, log=log)

    @classmethod
    def from_parts(
        cls,
        value: float,
        parts: FloatArray,
        interval: Callable[[FloatArray, float], tuple[Any, Any]],
        error: float,
        *,
        log: bool = False,
    ) -> Estimate:
        """Return a value with its jackknife interval.

        Parameters
        ----------
        value, parts
            The estimate from all observations, and from all but each of them.
        interval, error
            The interval of a mean, and the probability with which it may miss.
        log
            Whether the interval is made for the logarithm.
        """
        count = len(parts)
        if (parts == value).all():
            return cls(value, value, value)
        with np.errstate(invalid="ignore", divide="ignore"):
            whole = np.log(value) if log else value
            parts = np.log(parts) if log else parts
            # Centred on the value: the median in a spread makes the correction of bias too large.
            ends = np.array(interval(whole + (count - 1) * (parts.mean() - parts), error))
        low, high = np.exp(ends) if log else ends
        return cls(value, float(low), float(high))


def students_interval(values: FloatArray, error: float) -> tuple[Any, Any]:
    """Return Student's interval for the mean over the first axis."""
    from scipy.stats import t

    count = len(values)
    half = t.ppf(1 - error / 2, count - 1) * values.std(axis=0, ddof=1) / count**0.5
    mean = values.mean(axis=0)
    return mean - half, mean + half


def seeds_needed(estimate: Estimate, limit: float, count: int) -> int | None:
    """Return with how many seeds an interval would end at a limit, if its mean stayed the same.

    Its width is in proportion to Student's quantile over √seeds. None if there is no such number
    below MOST_NEEDED.

    >>> seeds_needed(Estimate(0.5, -1.5, 2.5), 1.0, 5)
    43
    """
    from scipy.stats import t

    side = (
        estimate.high - estimate.value if limit > estimate.value else estimate.value - estimate.low
    )
    counts = np.arange(count, MOST_NEEDED)
    now = t.ppf(1 - ERROR / 2, count - 1) / count**0.5
    ends = side * t.ppf(1 - ERROR / 2, counts - 1) / counts**0.5 / now
    enough = ends < abs(limit - estimate.value)
    return int(counts[enough.argmax()]) if enough.any() else None


def interval_of_mean(values: FloatArray, error: float) -> tuple[Any, Any]:
    """Return an interval for the mean over the first axis.

    Each end is the outer one of Student's interval and of Hall's, which corrects for skewness:
    Student's alone misses a skewed mean too often, Hall's alone one with heavy tails.

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
    scale = spread / count**0.5
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
    times = []
    for level in levels:
        mean, variance = length_of_a_round(seconds, idle, level)
        times.append(rounds * mean - 5 * (rounds * variance) ** 0.5)
    return float(min(times))


def rounds_that_last(seconds: FloatArray, idle: float, level: FloatArray, time: float) -> int:
    """Return the least number of rounds that surely last a time (`shortest_time`)."""
    mean, variance = length_of_a_round(seconds, idle, level)
    root = (5 * variance**0.5 + (25 * variance + 4 * mean * time) ** 0.5) / (2 * mean)
    return math.ceil(float(root) ** 2)


def length_of_a_round(seconds: FloatArray, idle: float, level: FloatArray) -> tuple[float, float]:
    """Return the mean and the variance of a round's length: that of its slowest client."""
    order = np.argsort(-seconds)
    lengths = np.append(seconds[order], idle)
    stayed = np.cumprod(np.concatenate([[1.0], 1 - level[order]]))
    slowest = stayed * np.append(level[order], 1.0)  # and no slower client joins
    mean = float(slowest @ lengths)
    return mean, max(float(slowest @ lengths**2) - mean**2, 0.0)


def on_grid(runs: Sequence[Curve], what: str, end: float) -> FloatArray:
    """Return loss or accuracy at POINTS times from 0 to `end`, shape (runs, POINTS).

    A run that ends before has no values there.
    """
    times = np.linspace(0, end, POINTS)
    return np.array([np.interp(times, run.time, getattr(run, what), right=np.nan) for run in runs])


def smooth(curves: FloatArray) -> FloatArray:
    """Return curves, shape (runs, POINTS), each point on the line fitted to a tenth of the time.

    An accuracy jumps from one evaluation to the next by as much as it rises in a tenth of the time,
    so that without this the time at which it first gets somewhere would be a matter of luck.
    Points that are not known, at the end of a curve, stay so.
    """
    from scipy.signal import savgol_filter

    smoothed = curves.copy()
    for curve in smoothed:
        known = int(np.isfinite(curve).sum())
        if known >= WINDOW:
            curve[:known] = savgol_filter(curve[:known], WINDOW, 1, mode="interp")
    return smoothed


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


def race_between(
    own: FloatArray,
    other: FloatArray,
    reference: FloatArray,
    fraction: float,
    end: float,
    *,
    falling: bool,
    error: float,
) -> tuple[Estimate, Estimate]:
    """Return how one scheme's time to the target compares with another's, and by how much it leads.

    The first estimate is the ratio of times (`time_ratio`); the second the difference of their
    means, own minus other, at the time at which the other one reaches the target. Both intervals
    are Student's over the pseudo-values of a paired jackknife: each seed in turn is left out of all
    mean curves, and so of the target. Mean curves are smooth and get where they get with or without
    any one seed, while a resample of few seeds may never get there.

    Parameters
    ----------
    own, other, reference
        Values at POINTS times from 0 to `end`, shape (seeds, POINTS); seed by seed the same coins.
        The reference sets the target: what it reaches on average at a fraction of the time.
    fraction, end
        That fraction, and the last time.
    falling
        Whether the lower one is ahead (a loss) or the higher one (an accuracy).
    error
        How likely an interval may miss.
    """
    grids, count = (own, other, reference), len(own)
    if np.allclose(own, other, rtol=RESOLUTION, atol=0, equal_nan=True):
        unknown = np.nan if count < LEAST_SEEDS else 0.0
        return Estimate(1.0, 1.0 + unknown, 1.0 + unknown), Estimate(0.0, unknown, unknown)

    def measure(own: FloatArray, other: FloatArray, reference: FloatArray) -> tuple[float, float]:
        at = time_or_end(other, value_at(reference, fraction), end, falling=falling)
        gap = value_at(own, at / end) - value_at(other, at / end)
        return time_ratio(own, other, at, end, falling=falling), gap

    ratio, gap = measure(*(grid.mean(axis=0) for grid in grids))
    if count < LEAST_SEEDS:
        return Estimate(ratio, np.nan, np.nan), Estimate(gap, np.nan, np.nan)
    without = ((grid.sum(axis=0) - grid) / (count - 1) for grid in grids)
    ratios, gaps = np.array([measure(*means) for means in zip(*without, strict=True)]).T
    return (
        Estimate.from_parts(ratio, ratios, students_interval, error, log=True),
        Estimate.from_parts(gap, gaps, students_interval, error),
    )


def time_ratio(
    curves: FloatArray, other: FloatArray, at: float, end: float, *, falling: bool
) -> float:
    """Return the time one scheme needs to get where another is at a given time, over that time.

    Ratio r means for r ≤ 1 that the scheme at time r · `at` is where the other one is at `at`, and
    for r ≥ 1 that at `at` it is where the other one is at `at` / r: the ratio says how much earlier
    the scheme that is ahead at `at` was where the other one is. So it is finite even if one of the
    two never gets where the other one is.

    Parameters
    ----------
    own, other
        Means at POINTS times from 0 to `end`, shape (POINTS,).
    at
        The time at which the other scheme is evaluated.
    end
        The last time.
    falling
        Whether the lower one is ahead (a loss) or the higher one (an accuracy).
    """
    sign = 1.0 if falling else -1.0
    times = np.linspace(0, end, curves.size)
    before = (times > 0) & (times < at)
    own_at, other_at = value_at(curves, at / end), value_at(other, at / end)
    earlier, later = curves[before] - other_at, (own_at - other[before])[::-1]
    ratios = np.concatenate([times[before] / at, [1.0], (at / times[before])[::-1]])
    return _first(ratios, sign * np.concatenate([earlier, [own_at - other_at], later]))


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


def value_at(curve: FloatArray, fraction: float) -> float:
    """Return the value of a curve, shape (POINTS,), at a fraction of its time."""
    at = round(fraction * (curve.size - 1), 9)  # a point of the grid is one, whatever rounding does
    low = int(at)
    share = at - low
    return float((1 - share) * curve[low] + share * curve[low + 1] if share else curve[low])


def time_or_end(curve: FloatArray, target: float, end: float, *, falling: bool) -> float:
    """Return when a curve, shape (POINTS,), reaches a target, or else the last time it is known."""
    reached = time_to(curve[None], np.array([target]), end, falling=falling)[0]
    return float(min(reached, np.flatnonzero(np.isfinite(curve))[-1] * end / (curve.size - 1)))


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
    ratios, gaps
        How the times of that scheme compare with each other one's, and by how much it leads then
        (`race_between`).
    seeds
        How many seeds each scheme's numbers are based on: those that it shares with that scheme and
        the reference.
    """

    target: float
    times: dict[str, float]
    ratios: dict[str, Estimate]
    gaps: dict[str, Estimate]
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
        grids = {name: smooth(on_grid(runs, what, end)) for name, runs in curves.items()}
        times, ratios, gaps, seeds = {}, {}, {}, {}
        for name, grid in grids.items():
            used = (own, reference, name)
            count = seeds[name] = min(len(grids[scheme]) for scheme in used)
            target = value_at(grids[reference][:count].mean(axis=0), fraction)
            mean = grid[:count].mean(axis=0)
            times[name] = float(time_to(mean[None], np.array([target]), end, falling=falling)[0])
            if name != own:
                ratios[name], gaps[name] = race_between(
                    grids[own][:count], grid[:count], grids[reference][:count], fraction, end,
                    falling=falling, error=error(*dict.fromkeys(used)),
                )  # fmt: skip
        target = value_at(grids[reference].mean(axis=0), fraction)
        return cls(target, times, ratios, gaps, seeds)
