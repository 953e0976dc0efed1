"""Targets, times and intervals: what is read off the curves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedprice.arrays import FloatArray
from fedprice.experiments.cells import Curve
from fedprice.experiments.looks import error_of_a_look, looks
from fedprice.experiments.measures import (
    POINTS,
    Estimate,
    Timed,
    on_grid,
    resample_indices,
    shortest_time,
    time_ratio,
    time_to,
)
from fedprice.experiments.results import spread
from fedprice.experiments.table import Table, shown
from fedprice.experiments.verdicts import Claim, Verdict

Draw = Callable[[np.random.Generator, tuple[int, ...]], FloatArray]
Measure = Callable[[FloatArray, FloatArray, float], Estimate]


def curve(speed: float, noise: float = 0.0, end: float = 1000.0) -> Curve:
    """A run whose loss falls from 2 by `speed` a thousand seconds."""
    time = np.linspace(0, end, 101)
    loss = 2 - speed * time / 1000 + noise
    rounds = np.arange(101)
    return Curve(rounds, time, loss, 1 - loss / 2, np.full(100, 10), seconds=1.0)


def test_the_rule_of_targets() -> None:
    """Uniform reaches its own target at the share of the time; twice the speed, half the time."""
    runs = {
        "uniform": [curve(1.0)] * 5,
        "weighted": [curve(1.25)] * 5,
        "equilibrium": [curve(2.0)] * 5,
    }
    for what, target in (("loss", 2 - 0.903), ("accuracy", 0.903 / 2)):
        found = Timed.measure(runs, what, 0.903, 1000.0)
        assert found.target == pytest.approx(target)
        assert found.times["uniform"] == pytest.approx(903)
        assert found.times["equilibrium"] == pytest.approx(451.5)
        ratio = found.ratios["weighted"]
        assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.625,) * 3)  # all alike


def test_a_target_that_is_never_reached() -> None:
    """Uniform is at 450 s where the equilibrium is at 900 s: twice as fast, and finite."""
    runs = {"uniform": [curve(1.0)] * 5, "equilibrium": [curve(0.5)] * 5}
    found = Timed.measure(runs, "loss", 0.9, 1000.0)
    assert found.times["equilibrium"] == np.inf
    assert shown(found.times["equilibrium"]) == "∞"
    assert found.ratios["uniform"].value == pytest.approx(2, rel=1e-4)
    claim = Claim("", "", "", found.ratios["uniform"], 1.0, below=True)
    assert claim.verdict is Verdict.FAILS


def test_a_scheme_that_never_gets_there_is_compared_at_its_end() -> None:
    """Where `weighted` ends, at 1,000 s and a loss of 1.5, the equilibrium was at 250 s."""
    runs = {
        "uniform": [curve(1.0)] * 5,
        "weighted": [curve(0.5, noise) for noise in (-0.01, 0.0, 0.0, 0.0, 0.01)],
        "equilibrium": [curve(2.0)] * 7,
    }
    found = Timed.measure(runs, "loss", 0.9, 1000.0)
    assert found.times["weighted"] == np.inf
    ratio = found.ratios["weighted"]
    assert ratio.value == pytest.approx(0.25, rel=1e-3)
    assert 0.2 < ratio.low < 0.25 < ratio.high < 0.3
    assert found.seeds == {"uniform": 5, "weighted": 5, "equilibrium": 5}


def test_both_sides_of_a_ratio_of_times_mirror_each_other() -> None:
    rng = np.random.default_rng(2)
    fall = np.linspace(2, 1, 101)
    own, other = (fall + 0.02 * rng.standard_normal((12, 1)) for _ in range(2))
    settings = {"falling": True, "error": 0.05}
    one = time_ratio(own, other, 80.0, 100.0, **settings)  # type: ignore[arg-type]
    back = time_ratio(other, own, 80.0, 100.0, **settings)  # type: ignore[arg-type]
    mirrored = (1 / back.value, 1 / back.high, 1 / back.low)
    assert (one.value, one.low, one.high) == pytest.approx(mirrored, rel=1e-3)


def test_no_run_is_shorter_than_the_evaluation_time() -> None:
    rng = np.random.default_rng(0)
    seconds, levels = rng.uniform(1, 2, 6), rng.uniform(0.1, 0.5, 6)
    least = shortest_time(seconds, 0.1, [levels, np.ones(6)], rounds=400)
    joined = rng.random((2000, 400, 6)) < levels
    lengths = np.where(joined.any(axis=2), (joined * seconds).max(axis=2), 0.1).sum(axis=1)
    assert lengths.min() > least
    # Five standard deviations below the mean: the simulated mean and deviation say the same.
    assert least == pytest.approx(lengths.mean() - 5 * lengths.std(), rel=0.01)


def test_runs_that_end_early_have_no_values_there() -> None:
    values = on_grid([curve(1.0, end=500.0)], "loss", 1000.0)
    assert np.isfinite(values[0, : POINTS // 2]).all()
    assert np.isnan(values[0, -1])
    assert time_to(values, np.array([1.6]), 1000.0, falling=True) == pytest.approx([400])
    assert np.isinf(time_to(values, np.array([1.4]), 1000.0, falling=True)).all()


def test_bootstrap_intervals_cover() -> None:
    """The mean of 20 normal numbers, 1,000 times: 95 %, within three standard errors of 0.7 %."""
    rng = np.random.default_rng(1)
    chosen = resample_indices(20)
    hits = 0
    for _ in range(1000):
        sample = rng.normal(3.0, 2.0, 20)
        found = Estimate.of(sample.mean(), sample[chosen].mean(axis=1), 20)
        hits += found.low <= 3.0 <= found.high
    assert 0.929 < hits / 1000 < 0.971


def skewed(rng: np.random.Generator, size: tuple[int, ...]) -> FloatArray:
    return rng.exponential(size=size)


def heavy(rng: np.random.Generator, size: tuple[int, ...]) -> FloatArray:
    return rng.standard_t(5, size)


def final_mean(own: FloatArray, other: FloatArray, error: float) -> Estimate:
    return Estimate.jackknife(lambda a, b: (a - b).mean(axis=-1), [own, other], error=error)


def spreads(own: FloatArray, other: FloatArray, error: float) -> Estimate:
    measure = lambda a, b: spread(a) / spread(b)  # noqa: E731
    found = Estimate.jackknife(measure, [own, other], error=error, log=True)
    return Estimate(found.value - 1, found.low - 1, found.high - 1)


def times(own: FloatArray, other: FloatArray, error: float) -> Estimate:
    fall = np.linspace(60, 0, 21)
    found = time_ratio(
        fall + own[:, None], fall + other[:, None], 80.0, 100.0, falling=True, error=error
    )
    return Estimate(found.value - 1, found.low - 1, found.high - 1)


@pytest.mark.parametrize("draw", [skewed, heavy])
@pytest.mark.parametrize("measure", [final_mean, spreads, times])
def test_adding_seeds_until_a_verdict_keeps_the_error_rate(draw: Draw, measure: Measure) -> None:
    """Two equal schemes, seeds added up to 200: a verdict in at most 5 % of 400 repetitions.

    The true rate is at most 5 %, so more than 8.3 % are seen once in a thousand times.
    """
    rng = np.random.default_rng(7)
    error, wrong = error_of_a_look(20, 200), 0
    for _ in range(400):
        own, other = draw(rng, (2, 200))
        for count in looks(20, 200):
            found = measure(own[:count], other[:count], error)
            if not found.low <= 0 <= found.high:
                wrong += 1
                break
    assert wrong <= 0.083 * 400


@pytest.mark.parametrize("measure", [final_mean, times])
def test_a_small_difference_is_decided_with_more_seeds(measure: Measure) -> None:
    """Half a standard deviation: 20 seeds seldom decide it, 200 always do."""
    rng = np.random.default_rng(8)
    error = error_of_a_look(20, 200)
    decided = dict.fromkeys((20, 200), 0)
    for _ in range(40):
        own, other = rng.standard_normal((2, 200)) / 2**0.5
        for count in decided:
            decided[count] += measure(own[:count] - 0.5, other[:count], error).high < 0
    assert decided[20] < 20
    assert decided[200] == 40


def test_a_skewed_mean_is_covered() -> None:
    """Exponential numbers, 20 of them, 2,000 times: 95 %, where Student's interval has 92 %."""
    rng = np.random.default_rng(3)
    hits = 0
    for sample in rng.exponential(size=(2000, 20)):
        found = Estimate.jackknife(lambda a: a.mean(axis=-1), [sample])
        hits += found.low <= 1 <= found.high
    assert hits / 2000 > 0.95 - 3 * (0.05 * 0.95 / 2000) ** 0.5


def test_few_seeds_have_no_interval() -> None:
    found = Estimate.of(0.5, np.array([0.4, 0.6]), 3)
    assert shown(found) == "0.5 (no interval)"
    assert Claim("", "", "", found, 1.0, below=True).verdict is Verdict.INCONCLUSIVE


def test_tables_in_four_forms() -> None:
    rows = [
        {"a & b": "x_1", "ours": Estimate(0.5, 0.25, 1.0), "n": 1234},
        {"a & b": "x_2", "ours": Estimate(0.4, 0.3, 0.5), "n": 7},
    ]
    table = Table("t", "T", rows, "N 5 %.", best={"ours": "least"})
    assert table.markdown().splitlines()[1:3] == [
        "| --- | ---: | ---: |",
        "| x_1 | 0.50 (0.25 to 1.00) | 1,234 |",
    ]
    assert r"x\_1 & 0.50 (0.25, 1.00) & 1,234 \\" in table.latex()
    assert r"x\_2 & \textbf{0.40 $\pm$ 0.10} & 7 \\" in table.latex()
    assert r"a \& b" in table.latex()
    assert r"\caption{T. N 5 \%.}" in table.latex()
    assert table.cells()[0] == [
        ("x_1", "text"),
        ("0.50", "number"),
        ("0.25 to 1.00", "interval"),
        ("1,234", "number"),
    ]
    assert table.frame().columns == ["a & b", "ours", "ours low", "ours high", "n"]


@pytest.mark.parametrize(
    ("printed", "interval", "words"),
    [
        (0.8, (0.7, 0.9), ""),
        (0.6, (0.7, 0.9), "0.6 in the paper, 0.80 (0.70 to 0.90) here. The claim holds, but"),
        (0.8, (1.1, 1.2), "The claim fails here"),
        (0.6, (0.9, 1.1), "The claim is inconclusive here, and"),
        ("smaller", (0.9, 1.1), ""),
        ("smaller", (1.1, 1.2), "The claim fails here"),
    ],
)
def test_differences_in_plain_words(
    printed: float | str, interval: tuple[float, float], words: str
) -> None:
    claim = Claim("Setup 1", "It is faster", printed, Estimate(0.8, *interval), 1.0, below=True)
    assert words in claim.difference
    assert bool(words) == bool(claim.difference)
