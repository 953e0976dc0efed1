"""Targets, times and intervals: what is read off the curves."""

import numpy as np
import pytest

from fedprice.experiments.cells import Curve
from fedprice.experiments.measures import POINTS, Estimate, Timed, on_grid, resamples, time_to
from fedprice.experiments.results import Table, shown
from fedprice.experiments.verdicts import Claim, Verdict


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
    runs = {"uniform": [curve(1.0)] * 5, "equilibrium": [curve(0.5)] * 5}
    found = Timed.measure(runs, "loss", 0.9, 1000.0)
    assert found.times["equilibrium"] == np.inf
    assert shown(found.times["equilibrium"]) == "∞"
    claim = Claim("", "", "", found.ratios["uniform"], 1.0, below=True)
    assert claim.verdict is Verdict.FAILS


def test_runs_that_end_early_have_no_values_there() -> None:
    values = on_grid([curve(1.0, end=500.0)], "loss", 1000.0)
    assert np.isfinite(values[0, : POINTS // 2]).all()
    assert np.isnan(values[0, -1])
    assert time_to(values, np.array([1.6]), 1000.0, falling=True) == pytest.approx([400])
    assert np.isinf(time_to(values, np.array([1.4]), 1000.0, falling=True)).all()


def test_bootstrap_intervals_cover() -> None:
    """The mean of 20 normal numbers, 1,000 times: 95 %, within three standard errors of 0.7 %."""
    rng = np.random.default_rng(1)
    weights = resamples(20)
    assert weights.sum(axis=1) == pytest.approx(np.ones(len(weights)))
    hits = 0
    for _ in range(1000):
        sample = rng.normal(3.0, 2.0, 20)
        found = Estimate.of(sample.mean(), weights @ sample, 20)
        hits += found.low <= 3.0 <= found.high
    assert 0.929 < hits / 1000 < 0.971


def test_few_seeds_have_no_interval() -> None:
    found = Estimate.of(0.5, np.array([0.4, 0.6]), 3)
    assert shown(found) == "0.5 (no interval)"
    assert Claim("", "", "", found, 1.0, below=True).verdict is Verdict.INCONCLUSIVE


def test_tables_in_four_forms() -> None:
    table = Table("t", "T", [{"a & b": "x_1", "ours": Estimate(0.5, 0.25, 1.0), "n": 1234}])
    assert table.markdown().splitlines()[2] == "| x_1 | 0.5 (0.25 to 1) | 1,234 |"
    assert r"x\_1 & 0.5 (0.25 to 1) & 1,234 \\" in table.latex()
    assert r"a \& b" in table.latex()
    assert table.frame().columns == ["a & b", "ours", "ours low", "ours high", "n"]


@pytest.mark.parametrize(
    ("printed", "interval", "words"),
    [
        (0.8, (0.7, 0.9), ""),
        (0.6, (0.7, 0.9), "0.6 in the paper, 0.8 (0.7 to 0.9) here. The claim holds, but"),
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
