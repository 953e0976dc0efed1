"""Targets, times and intervals: what is read off the curves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedprice._plumbing.arrays import FloatArray
from fedprice.experiments.cells import Curve
from fedprice.experiments.interim_looks import error_of_a_look, looks
from fedprice.experiments.measures import (
    POINTS,
    Estimate,
    Timed,
    on_grid,
    race_between,
    resample_indices,
    rounds_that_last,
    shortest_time,
    smooth,
    time_to,
)
from fedprice.experiments.results import spread
from fedprice.experiments.table import Table, shown
from fedprice.experiments.verdicts import Claim, Verdict, ratio_of_spreads

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


def test_a_race_by_hand() -> None:
    """Levels that differ by seed: ratio, difference and their jackknife, from the definition."""
    rng = np.random.default_rng(2)
    fall = np.linspace(2, 1, POINTS)  # over 100 s
    own, other = rng.normal((0.0, 0.05), 0.02, (12, 2)).T
    ratio, gap = race(own, other, 0.05, fall)
    # The other is at its target at 80 s; where it is then, the first one was 100 · gap s before.
    assert gap.value == pytest.approx((own - other).mean())
    assert ratio.value == pytest.approx(1 + gap.value / 0.8)
    half = 2.200985 * (own - other).std(ddof=1) / 12**0.5  # Student, 11 degrees of freedom
    assert (gap.low, gap.high) == pytest.approx((gap.value - half, gap.value + half))
    assert ratio.high - ratio.low == pytest.approx(2 * half / 0.8, rel=0.02)


def test_both_sides_of_a_race_mirror_each_other() -> None:
    """Whoever is behind was there later by the factor by which the other one was sooner."""
    rng = np.random.default_rng(2)
    own, other = rng.normal((0.0, 0.05), 0.02, (12, 2)).T
    fall = np.linspace(2, 1, POINTS)
    first, second = fall + own[:, None], fall + other[:, None]

    def between(one: FloatArray, two: FloatArray, falling: bool = True) -> Estimate:
        return race_between(one, two, two, 0.8, 100.0, falling=falling, error=0.05)[0]

    ratio, back = between(first, second), between(second, first)
    mirrored = (1 / back.value, 1 / back.high, 1 / back.low)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(mirrored, rel=1e-5)
    # The same as an accuracy, which rises as the loss falls.
    assert between(-first, -second, falling=False) == ratio


def test_one_seed_that_never_arrives_does_not_explode_the_interval() -> None:
    """A bootstrap's interval did, up to 9,688.2, as some resamples never reached the target."""
    rng = np.random.default_rng(4)
    time = np.linspace(0, 1, POINTS)
    noise = 0.02 * rng.standard_normal((5, 1))
    others = 0.3 + 0.7 * np.exp(-3 * time) + noise
    others[2] += 0.03  # this one alone stays above the target
    own = 0.3 + 0.7 * np.exp(-3.3 * time) + noise
    assert others[2].min() > others.mean(axis=0)[450]
    ratio, _ = race_between(own, others, others, 0.9, 100.0, falling=True, error=0.05)
    assert 0.3 < ratio.low < ratio.value < ratio.high < 3


def test_smoothing_keeps_lines_and_what_is_not_known() -> None:
    line = np.linspace(3, 1, POINTS)
    noisy = line + np.where(np.arange(POINTS) % 2, 0.1, -0.1)
    short = line.copy()
    short[400:] = np.nan
    smoothed = smooth(np.array([line, noisy, short]))
    assert smoothed[0] == pytest.approx(line)
    assert smoothed[1] == pytest.approx(line, abs=0.01)
    assert smoothed[2, :400] == pytest.approx(line[:400])
    assert np.isnan(smoothed[2, 400:]).all()
    # What lies more than half a window before the end does not depend on what comes later.
    curve = np.cumsum(np.random.default_rng(0).standard_normal(POINTS))
    cut = np.where(np.arange(POINTS) < 450, curve, np.nan)
    assert (smooth(cut[None])[0, :425] == smooth(curve[None])[0, :425]).all()


def test_as_many_rounds_as_last() -> None:
    rng = np.random.default_rng(0)
    seconds, levels = rng.uniform(1, 2, 6), rng.uniform(0.1, 0.5, 6)
    rounds = rounds_that_last(seconds, 0.1, levels, 300.0)
    assert shortest_time(seconds, 0.1, [levels], rounds) >= 300.0
    assert shortest_time(seconds, 0.1, [levels], rounds - 1) < 300.0


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


def race(
    own: FloatArray, other: FloatArray, error: float, fall: FloatArray
) -> tuple[Estimate, Estimate]:
    """Curves that fall alike, each shifted by its number; the second ones set the target."""
    grids = fall + own[:, None], fall + other[:, None]
    return race_between(*grids, grids[1], 0.8, 100.0, falling=True, error=error)


def times(own: FloatArray, other: FloatArray, error: float) -> Estimate:
    found, _ = race(own, other, error, np.linspace(60, 0, 21))
    return Estimate(found.value - 1, found.low - 1, found.high - 1)


@pytest.mark.parametrize("draw", [skewed, heavy])
@pytest.mark.parametrize(
    "measure",
    [final_mean, *(pytest.param(one, marks=pytest.mark.slow) for one in (spreads, times))],
)
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


def test_the_best_number_is_set_in_bold_within_each_setup() -> None:
    losses = {("one", "a"): 0.5, ("one", "b"): 0.4, ("two", "a"): 0.2, ("two", "b"): 0.3}
    rows = [{"setup": x, "scheme": y, "loss": z, "gain": z} for (x, y), z in losses.items()]
    table = Table("t", "T", rows, best={"loss": "least", "gain": "most"})
    body = [line for line in table.latex().splitlines() if line.startswith(("one", "two"))]
    bold = [[cell.startswith(r"\textbf") for cell in line.split(" & ")[2:]] for line in body]
    assert bold == [[False, True], [True, False], [True, False], [False, True]]


def test_a_wide_table_goes_on_below_on_a_screen() -> None:
    names = ["a" * 21, "b" * 21, "c" * 21, "d" * 21]
    rows = [{"scheme": "flat", "budget": b, **dict.fromkeys(names, b)} for b in (1, 2)]
    printed = str(Table("t", "T", rows))
    assert max(map(len, printed.splitlines())) <= 80
    assert [line.split() for line in printed.splitlines()] == [
        ["scheme", "budget", *names[:2]], ["flat", "1", "1", "1"], ["flat", "2", "2", "2"], [],
        ["scheme", "budget", *names[2:]], ["flat", "1", "1", "1"], ["flat", "2", "2", "2"],
    ]  # fmt: skip


def test_few_seeds_are_a_plain_number_in_latex() -> None:
    table = Table("t", "T", [{"loss": Estimate(0.5, np.nan, np.nan)}])
    assert "\n0.5 \\\\\n" in table.latex()


@pytest.mark.parametrize(
    ("value", "low", "high", "screen"),
    [
        (0.963, 0.889, 0.992, "0.963 (0.889 to 0.992)"),  # was 0.963±0.074, beyond 1
        (0.963, 0.889, 1.037, "0.96±0.07"),
        (0.5213, 0.5086, 0.534, "0.521±0.013"),
        (3.0, 1.0, 5.0, "3±2"),
        (1.0, 0.2, np.inf, "1 (0.2 to ∞)"),
        (0.5, np.nan, np.nan, "0.5"),
        (0.5, 0.5, 0.5, "0.5"),
    ],
)
def test_only_symmetric_intervals_are_shown_as_half_widths(
    value: float, low: float, high: float, screen: str
) -> None:
    assert str(Table("t", "T", [{"x": Estimate(value, low, high)}])).splitlines()[1] == screen


@pytest.mark.parametrize(
    ("value", "low", "high", "limit", "shown_as", "latex"),
    [
        (0.95, 0.9004, 0.9996, 1.0, "0.95 (0.90 to 0.9996)", "0.95 (0.90, 0.9996)"),
        (-0.009, -0.018, -0.0001, 0.0, "−0.009 (−0.018 to −0.0001)",
         "$-$0.009 ($-$0.018, $-$0.0001)"),
        (-0.009, -0.018, 0.0001, 0.0, "−0.009 (−0.018 to 0.0001)",
         "$-$0.009 ($-$0.018, 0.0001)"),
        (0.9451, 0.8953, 0.9949, 1.0, "0.95 (0.90 to 0.99)", "0.95 (0.90, 0.99)"),  # not ± 0.05
        (0.9, 0.88, 0.92, 1.0, "0.900 (0.880 to 0.920)", r"0.900 $\pm$ 0.020"),
        (1.00004, 1.00004, 1.00004, 1.0, "1.00004", "1.00004"),
        (2.0, 1.0004, np.inf, 1.0, "2 (1.0004 to ∞)", r"2 (1.0004, $\infty$)"),
    ],
)  # fmt: skip
def test_the_side_of_the_limit_is_seen(
    value: float, low: float, high: float, limit: float, shown_as: str, latex: str
) -> None:
    """A claim held beside an interval that was rounded onto its limit."""
    found = Estimate(value, low, high, limit)
    assert shown(found) == shown_as
    table = Table("t", "T", [{"x": found}])
    assert f"\n{latex} \\\\\n" in table.latex()
    parts = shown_as.rstrip(")").split(" (")
    assert [text for text, _ in table.cells()[0]][: len(parts)] == parts


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


@pytest.mark.parametrize(
    ("value", "low", "high", "scale", "verdict"),
    [
        (3.55e-12, 3.55e-12, 3.55e-12, 4000.0, Verdict.EQUAL),
        (-3.55e-12, -4e-12, 1e-12, 4000.0, Verdict.EQUAL),
        (3.55e-12, 3.55e-12, 3.55e-12, 1e-5, Verdict.HOLDS),
        (1e-3, 1e-3, 1e-3, 4000.0, Verdict.HOLDS),
        (3.55e-12, -1.0, 1.0, 4000.0, Verdict.INCONCLUSIVE),
        (3.55e-12, np.nan, np.nan, 4000.0, Verdict.INCONCLUSIVE),
        (1.0, 0.5, 2.0, np.inf, Verdict.HOLDS),
        (np.nan, np.nan, np.nan, 1.0, Verdict.INCONCLUSIVE),
    ],
)
def test_rounding_errors_are_no_result(
    value: float, low: float, high: float, scale: float, verdict: Verdict
) -> None:
    """A gain of 3.55e-12 held, in green."""
    found = Estimate(value, low, high).resolved(0.0, scale)
    assert Claim("", "A gain", "–", found, 0.0, below=False).verdict is verdict
    if verdict is Verdict.EQUAL:
        assert shown(found) == "0"
        assert Table("t", "t", [{"gain": found}]).latex().count("0 ") == 1
        assert not Claim("", "A gain", "–", found, 0.0, below=False).difference


def test_a_race_against_the_same_curves_is_a_tie() -> None:
    """Where curves rise again, the same curve was ahead of itself."""
    times = np.linspace(0, 1, POINTS)
    curves = 2 - times + 0.8 * times**2 + 0.01 * np.arange(6)[:, None]
    for other in (curves, curves * (1 + 1e-13)):
        ratio, gap = race_between(curves, other, curves, 0.9, 1.0, falling=True, error=0.05)
        assert (ratio, gap) == (Estimate(1.0, 1.0, 1.0), Estimate(0.0, 0.0, 0.0))
    ratio, gap = race_between(
        curves[:2], curves[:2], curves[:2], 0.9, 1.0, falling=True, error=0.05
    )
    assert (ratio.value, gap.value) == (1.0, 0.0)
    assert np.isnan(ratio.low + gap.high)


def test_spreads_of_rounding_errors_are_no_spreads() -> None:
    exact = 0.3 + 1e-16 * np.arange(6.0)
    assert spread(exact) == 0
    assert ratio_of_spreads(exact, exact[::-1]) == 1
    assert ratio_of_spreads(np.arange(6.0), 2 * np.arange(6.0)) == pytest.approx(0.5)
