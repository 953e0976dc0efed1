"""The search for pilots: it stops in time, says what it did, and its interval holds."""

import json
from typing import Any

import numpy as np
import pytest

from fedprice import Clients, DivergedError, Game, InputError, calibrate, solve
from fedprice.bound import Bound
from fedprice.calibration import Calibration
from fedprice.calibration.fits import half_width
from fedprice.calibration.search import Design, Pilots, looks, search
from fedprice.calibration.searched import Search, Step
from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, Training

ALPHA = 2.5


class Exact:
    """Pilots of one client whose bound is exact: F = (α A + noise) / R, α as in `ALPHA`.

    `noise` is that of a repeat's α; `skewed` draws it from an exponential distribution.
    """

    def __init__(self, noise: float, seed: int = 0, *, skewed: bool = False) -> None:
        self.noise, self.seed, self.skewed = noise, seed, skewed
        self.asked: list[tuple[Design, int, int]] = []
        self.diverges_below = 0.0

    def __call__(self, design: Design, count: int, series: int) -> Pilots:
        self.asked.append((design, count, series))
        if design.low < self.diverges_below:
            raise DivergedError("blown up")
        vectors = np.array([[design.low], [design.high]])
        spreads = (1 - vectors) / vectors
        rng = np.random.default_rng([self.seed, series, round(1000 * design.low)])
        draws = rng.exponential(size=count) - 1 if self.skewed else rng.normal(size=count)
        single = ALPHA + self.noise * ALPHA * draws
        rounds = np.array(design.checkpoints)
        losses = single[None, :, None] * spreads[:, :, None] / rounds
        return Pilots(np.ones(1), vectors, rounds, losses, np.ones((2 * count, 1)))


def test_the_search_repeats_until_the_interval_is_narrow_enough() -> None:
    run = Exact(noise=0.5)
    told: list[Step] = []
    found = search(run, width=0.5, limit=80, report=told.append)
    assert found.ended == "narrow enough"
    assert tuple(told) == found.steps
    *before, last = found.steps
    assert [step.purpose for step in found.steps] == ["scout", *["measure"] * len(before)]
    assert last.relative_width <= 0.5 < before[-1].relative_width
    assert last.low < ALPHA < last.high
    assert [step.repeats for step in found.steps] == [5, *looks(80)[: len(before)]]
    assert "promising, with about" in str(found.steps[0])
    # Scouts have other random numbers than what is measured, which has all of one series.
    scouts, *measured = run.asked
    assert scouts[2] not in {series for _, _, series in measured}
    assert len({series for _, _, series in measured}) == 1


def test_the_search_stops_at_its_limit_and_says_so() -> None:
    found = search(Exact(noise=3.0), width=0.1, limit=15)
    assert (found.ended, found.steps[-1].said) == ("limit", "limit reached")
    assert found.steps[-1].repeats == 15
    assert found.error == 0.05 / len(looks(15))


def test_noisy_pilots_give_way_to_clearer_ones() -> None:
    """Nothing promises a width of 0.1; the last scouts have later checkpoints and lower levels."""
    run = Exact(noise=3.0)
    found = search(run, width=0.1, limit=20)
    scouted = [design for design, count, _ in run.asked if count == 5]
    assert [design.high for design in scouted] == [0.3, 1.0, 1.0, 1.0, 1.0]
    assert [max(design.checkpoints) for design in scouted] == [50, 50, 100, 100, 100]
    assert [design.low for design in scouted] == [0.1, 0.1, 0.1, 0.05, 0.025]
    widths = [step.relative_width for step in found.steps if step.purpose == "scout"]
    clearest = found.steps[int(np.argmin(widths))]
    assert found.steps[-1].levels == clearest.levels
    assert found.steps[-1].checkpoints == clearest.checkpoints


def test_pilots_that_diverge_give_way_to_higher_levels() -> None:
    run = Exact(noise=0.1)
    run.diverges_below = 0.3
    found = search(run)
    assert [step.said for step in found.steps[:2]] == ["diverged, so the levels are raised"] * 2
    assert found.steps[-1].levels == (0.4, 1.0)
    assert found.ended == "narrow enough"
    run.diverges_below = 2.0
    with pytest.raises(DivergedError, match="blown up"):
        search(run)


def test_pilots_that_diverge_while_they_are_measured_are_measured_anew() -> None:
    class Late(Exact):
        def __call__(self, design: Design, count: int, series: int) -> Pilots:
            self.diverges_below = 0.2 if count == 20 else 0.0
            return super().__call__(design, count, series)

    run = Late(noise=0.5)
    found = search(run, width=0.5)
    assert found.steps[-1].levels == (0.2, 1.0)
    assert found.series == run.asked[-1][2] > run.asked[1][2]  # fresh random numbers


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (0, "all values are 0, so prices do not depend on α"),
        ([7, 7, 7], "all values are equal, so payments within floors and caps do not depend"),
    ],
)
def test_the_search_stops_early_when_alpha_does_not_matter(value: Any, reason: str) -> None:
    found = search(Exact(noise=0.5), width=0.5, value=value)
    assert found.ended.startswith(reason)
    assert found.steps[-1].repeats == 10 < search(Exact(noise=0.5), width=0.5).steps[-1].repeats
    assert found.steps[-1].low > 0
    assert search(Exact(noise=0.5), value=[0, 1]).ended == "narrow enough"


def test_payments_do_not_depend_on_alpha_where_values_are_equal() -> None:
    """What the search relies on: with values 0 prices are the same, too, floors or not."""
    rng = np.random.default_rng(3)
    columns: dict[str, Any] = {
        "samples": rng.integers(10, 90, 8), "update_norm": rng.uniform(1, 3, 8),
        "cost": rng.uniform(5, 9, 8),
    }  # fmt: skip
    for value, floors in ((0.0, 0.0), (0.0, 0.2), (20.0, 0.0)):
        clients = Clients(value=value, level_min=floors, **columns)
        one, other = (
            solve(Game(clients, bound=Bound(alpha=alpha, rounds=100), budget=6))
            for alpha in (2.0, 9.0)
        )
        assert one.interior.any()
        assert other.payments == pytest.approx(one.payments, rel=1e-9)
        assert (value == 0) == (other.prices == pytest.approx(one.prices, rel=1e-9))


def covered(noise: float, problems: int, *, skewed: bool = False) -> tuple[float, float]:
    """Return how often the search's interval has α, and how often one without the split would."""
    hits = naive = 0
    schedule = looks(80)
    for seed in range(problems):
        run = Exact(noise, seed, skewed=skewed)
        last = search(run, width=0.5, limit=80).steps[-1]
        hits += last.low <= ALPHA <= last.high
        design, _, series = run.asked[-1]
        for count in schedule:
            single = Exact(noise, seed, skewed=skewed)(design, count, series).single_alphas()
            half = half_width(single, 0.05)
            if 2 * half <= 0.5 * single.mean():
                break
        naive += abs(single.mean() - ALPHA) <= half
    return hits / problems, naive / problems


def test_the_interval_holds_however_often_it_was_looked_at() -> None:
    """Bonferroni promises 95 % for normal repeats; of 300 searches, 285.

    It is cautious: about 99 % are seen, and fewer than 285 then have a chance below one in 1e6.
    """
    for noise in (0.35, 0.9):
        assert covered(noise, 300)[0] >= 0.95


def test_the_interval_of_skewed_repeats_misses_more_often_and_less_than_without_the_split() -> None:
    """Student's interval is exact for normal repeats only; these are exponential.

    92 % are seen, and 85 % for an interval of 95 % at each look. With 92 %, fewer than 84 % of 400
    have a chance below one in 1e6.
    """
    ours, naive = covered(0.45, 400, skewed=True)
    assert ours >= 0.84
    assert naive < ours - 0.03


def test_a_task_is_calibrated_by_a_search() -> None:
    federation = synthetic(num_clients=10, samples=1500, seed=1)
    task = LogisticRegression(federation, Training(local_steps=5))
    found = calibrate(task, width=1.0, limit=20)
    assert found.search is not None
    last = found.search.steps[-1]
    assert (found.alpha, *found.interval) == pytest.approx((last.alpha, last.low, last.high))
    assert found.rounds.tolist() == list(last.checkpoints)
    again = Calibration.from_json(found.to_json())
    assert again.search == found.search
    paper = calibrate(task, width=1.0, limit=20, impact="gradients")
    assert paper.search is not None
    assert paper.gradients is not None
    assert paper.alpha == paper.gradients.alpha == pytest.approx(paper.search.steps[-1].alpha)
    # What is given is run, and nothing is searched for.
    fixed = calibrate(task, repeats=20)
    assert fixed.search is None
    for wrong, message in (
        ({"repeats": 5, "width": 0.3}, "`width` applies only to the search"),
        ({"levels": (0.1, 0.5), "value": 0}, "`value` applies only to the search"),
        ({"width": 2.0}, "`width` must be above 0 and below 2"),
        ({"limit": 5}, "`limit` must be at least 10 repeats; got 5"),
        ({"impact": "losses"}, "`impact` must be 'updates' or 'gradients'; got 'losses'"),
    ):
        with pytest.raises(InputError, match=message):
            calibrate(task, **wrong)


def test_a_search_with_a_divergence_is_kept_without_nan() -> None:
    step = Step("scout", (0.1, 0.3), (20,), 5, np.nan, np.nan, np.nan, "diverged")
    done = Search(0.5, 80, 0.0125, "limit", 5, (step,))
    text = json.dumps(done.content(), allow_nan=False)
    again = Search.of(json.loads(text))
    assert again is not None
    assert np.isnan(again.steps[0].alpha)
    assert str(again.steps[0]) == "scout: levels 0.1 and 0.3, rounds 20, 5 repeats: diverged"
