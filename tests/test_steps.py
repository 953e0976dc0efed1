"""Local steps: the best E is the one that brute force finds, and only as sure as the pilots are."""

import io
from typing import Any

import numpy as np
import pytest

from fedprice import Bound, Clients, Game, InputError, Status, solve
from fedprice.calibration import Calibration, Fit
from fedprice.steps import Steps, best_steps

SAMPLES = np.array([100, 300, 200, 400])
NORM = np.array([1.0, 2.0, 0.5, 1.5])
COMPUTE, COMMUNICATION = np.array([1e-3, 2e-3, 5e-4, 1e-3]), np.array([0.02, 0.01, 0.03, 0.02])


def calibration(
    alpha: float,
    beta: float,
    *,
    spread: float = 1.0,
    error: float = 0.0,
    norm: np.ndarray = NORM,
    **changes: Any,
) -> Calibration:
    """A calibration with α known within ×÷ spread, and β up to a standard error."""
    fit = Fit(alpha, alpha / spread, alpha * spread, beta, norm, 0.0, error)
    whole: dict[str, Any] = {
        "name": "toy", "ids": ("a", "b", "c", "d"), "samples": SAMPLES, "task": "0" * 64,
        "aggregator": "horvitz-thompson", "server_step": "plain", "gradients": None,
        "updates": fit, "grad_norm_max": None, "rounds": np.array([20, 50]),
        "pilots": np.array([[2.0, 1.5], [1.8, 1.2]]),
    }  # fmt: skip
    return Calibration(**(whole | changes))


def pilots(spread: float = 1.0) -> dict[int, Calibration]:
    """α ∝ √E; more steps leave less to β, up to a point."""
    return {
        count: calibration(2 * count**0.5, 30 / count + 0.3 * count, spread=spread)
        for count in (1, 4, 16, 64)
    }


TERMS: dict[str, Any] = {
    "compute": COMPUTE, "communication": COMMUNICATION, "value": 0.0, "max_weight": np.inf,
}  # fmt: skip


def brute_force(found: Steps, budget: float, exponent: float = 2.0, value: float = 0.0) -> int:
    """Price every E by itself, with α and β as the table states them."""
    losses = []
    for row in found.to_frame().iter_rows(named=True):
        cost = row["rounds"] * (COMPUTE * row["steps"] + COMMUNICATION)
        clients = Clients(samples=SAMPLES, grad_norm=NORM, cost=cost, value=value)
        bound = Bound(alpha=row["alpha"], rounds=row["rounds"], beta=row["beta"])
        best = solve(Game(clients, bound=bound, budget=budget, cost_exponent=exponent))
        losses.append(best.expected_loss + row["beta"] / row["rounds"])
        assert row["loss"] == pytest.approx(losses[-1], rel=1e-12)
    return int(found.steps[int(np.argmin(losses))])


@pytest.mark.parametrize("exponent", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("value", [0.0, 30.0])
def test_the_best_is_that_of_brute_force(exponent: float, value: float) -> None:
    for budget in (0.5, 500.0):
        terms = TERMS | {"value": value, "cost_exponent": exponent}
        found = best_steps(pilots(), budget=budget, rounds=400, **terms)
        assert found.steps.tolist() == list(range(1, 65))
        assert found.best == brute_force(found, budget, exponent, value)
        assert found.outcome.game.bound.alpha == found.alpha[found.best - 1]
    # Money buys levels, and then longer rounds.
    poor, rich = (best_steps(pilots(), budget=b, rounds=400, **TERMS).best for b in (0.1, 1000))
    assert poor < rich
    assert rich == 16  # everybody joins, and β alone is left: least at that pilot


def test_the_budget_enters_by_a_power() -> None:
    """Without values and caps Σ k/q = Z^{(τ+1)/τ} B^{−1/τ}, Z = Σ k^{τ/(τ+1)} (τ c)^{1/(τ+1)}."""
    for tau in (1.5, 2.0, 3.0):
        found = best_steps(pilots(), budget=0.05, rounds=400, **TERMS | {"cost_exponent": tau})
        for i in (0, 20, 63):
            outcome = found.outcomes[i]
            assert (outcome.levels < 1).all()
            k = found.alpha[i] * (SAMPLES / 1000 * NORM) ** 2 / 400
            c = 400 * (COMPUTE * found.steps[i] + COMMUNICATION)
            z = (k ** (tau / (tau + 1)) * (tau * c) ** (1 / (tau + 1))).sum()
            total = z ** ((tau + 1) / tau) * 0.05 ** (-1 / tau)
            assert found.loss[i] == pytest.approx(total - k.sum() + found.beta[i] / 400, rel=1e-9)


def test_between_the_pilots_constants_are_interpolated() -> None:
    found = best_steps(pilots(2.0), budget=5, rounds=400, **TERMS)
    assert found.alpha == pytest.approx(2 * found.steps**0.5)  # a power, which log–log keeps
    assert found.alpha_high == pytest.approx(2 * found.alpha)
    at = {count: float(found.beta[count - 1]) for count in (1, 2, 4)}
    assert (at[1], at[4]) == pytest.approx((30.3, 8.7))
    assert at[2] == pytest.approx((at[1] + at[4]) / 2)
    # What is priced is α norm²; norms that grow with E count like an α that does.
    grown = {
        count: calibration(2.0, one.beta, norm=NORM * count**0.25)
        for count, one in pilots().items()
    }
    same = best_steps(grown, budget=5, rounds=400, **TERMS)
    assert same.loss == pytest.approx(found.loss, rel=1e-12)


def test_a_time_limit_makes_long_rounds_few() -> None:
    limit: dict[str, Any] = {"time_limit": 100.0, "step_time": 0.05, "round_time": 0.2}
    found = best_steps(pilots(), budget=500, **limit, **TERMS)
    for count, rounds in ((1, 400), (4, 250), (64, 29)):
        assert found.rounds[count - 1] == rounds
    assert found.best == brute_force(found, 500)
    assert found.best < best_steps(pilots(), budget=500, rounds=400, **TERMS).best
    # Who has no time for a round of 64 steps does not consider them.
    short = best_steps(pilots(), budget=5, **limit | {"time_limit": 2.0}, **TERMS)
    assert short.steps[-1] == 36
    assert (short.rounds >= 1).all()


def test_the_best_is_only_as_sure_as_alpha() -> None:
    known = best_steps(pilots(), budget=0.5, rounds=400, **TERMS)
    assert known.as_good.sum() == 1
    assert np.array_equal(known.loss_low, known.loss_high)
    vague = best_steps(pilots(1.6), budget=0.5, rounds=400, **TERMS)
    assert vague.best == known.best
    assert vague.as_good[vague.best - 1]
    assert 2 < vague.as_good.sum() < 64
    assert (vague.loss_low < vague.loss).all()
    assert (vague.loss < vague.loss_high).all()


@pytest.mark.parametrize(("sigma", "error"), [(0.2, 0.0), (0.0, 0.3), (0.1, 0.2)])
def test_how_often_the_pilots_can_tell(sigma: float, error: float) -> None:
    """Two pilots with equal true losses, α and β known in part: as good in 95 of 100 draws."""
    rng = np.random.default_rng(0)
    hits, draws, width = 0, 100, np.exp(1.96 * sigma)
    for _ in range(draws):
        drawn = {
            count: calibration(
                4 * np.exp(sigma * rng.normal()),
                5 + error * rng.normal(),
                spread=width,
                error=error,
            )
            for count in (4, 5)
        }
        found = best_steps(drawn, budget=5, rounds=400, **TERMS | {"compute": 0.0})
        hits += bool(found.as_good.all())
    assert abs(hits / draws - 0.95) < 0.11  # five standard errors


def test_a_larger_alpha_leaves_less_to_beta() -> None:
    """At the pilots' own levels the loss was measured, whatever share of it is α's."""
    steady = {
        count: calibration(
            4.0, 10.0, updates=Fit(4.0, 2.0, 6.0, 10.0, NORM, random=8.0)
        )
        for count in (2, 3)
    }  # fmt: skip
    found = best_steps(steady, budget=0.05, rounds=100, **TERMS)
    outcome = found.outcomes[0]
    for alpha, loss in ((2.0, found.loss_low[0]), (6.0, found.loss_high[0])):
        expected = (alpha / 4) * outcome.expected_loss + (10 + (1 - alpha / 4) * 8) / 100
        assert loss == pytest.approx(expected)  # without values α moves no level


def test_without_a_least_loss_the_pilots_lowest_stands_for_it() -> None:
    def unknown(final: float) -> Calibration:
        fit = Fit(2.0, 1.5, 2.5, 0.0, NORM, random=4.0)
        return calibration(
            2.0, 0.0, updates=fit, pilots=np.array([[3.0, 2.5], [2.0, final]])
        )  # fmt: skip

    found = best_steps({1: unknown(1.5), 8: unknown(0.5)}, budget=500, rounds=400, **TERMS)
    assert found.assumed_least_loss == 0.5
    assert found.beta[0] == pytest.approx((20 * 1.5 + 50 * 1.0) / 2 - 4)
    assert found.beta[-1] == pytest.approx((20 * 1.5 + 0) / 2 - 4)
    assert found.best == 8
    old = {1: unknown(1.5), 2: calibration(2.0, 0.0, updates=Fit(2.0, 1.5, 2.5, 0.0, NORM))}
    with pytest.raises(InputError, match=r"has no β and does not record .* Calibrate again"):
        best_steps(old, budget=5, rounds=400, **TERMS)


def test_a_loss_that_falls_more_slowly_than_the_bound_is_told() -> None:
    """R (F_R − F*) is β at every checkpoint if the bound holds; here F* is 0.2."""
    rounds, made = np.array([20, 50]), {}
    for count, left in ((1, np.array([6.0, 15.0])), (4, np.array([8.0, 8.0]))):
        losses = np.stack([left + 1, left]) / rounds + 0.2
        made[count] = calibration(2.0, float(left.mean()), pilots=losses)
    assert best_steps(made, budget=5, rounds=400, **TERMS).beta_growth == pytest.approx(2.5)
    made[1] = made[4]
    assert best_steps(made, budget=5, rounds=400, **TERMS).beta_growth == pytest.approx(1.0)


def test_quotes_add_up_to_the_price() -> None:
    found = best_steps(pilots(), budget=5, rounds=400, **TERMS)
    rows = found.quotes()
    by_round = rows["price_per_step"] * found.best + rows["price_per_round"]
    assert (400 * by_round).to_numpy() == pytest.approx(found.outcome.prices)
    assert rows["payment"].sum() == pytest.approx(5)
    assert found.to_pandas().shape == (64, 13)
    assert repr(found).startswith(f"Steps(best={found.best}, rounds=400, loss=")


def test_where_the_budget_does_not_suffice() -> None:
    floors = TERMS | {"level_min": 0.5}
    found = best_steps(pilots(), budget=20, rounds=400, **floors)
    status = [outcome.status for outcome in found.outcomes]
    assert status[0] is not Status.INFEASIBLE
    assert status[-1] is Status.INFEASIBLE
    assert np.isinf(found.loss[-1])
    assert not found.as_good[-1]
    picture = io.BytesIO()
    found.plot().savefig(picture)
    assert picture.tell() > 5000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"calibrations": {3: calibration(1, 1)}}, "two or more whole numbers .* got 3"),
        ({"calibrations": {}}, "two or more .* got none"),
        (
            {"calibrations": {1: calibration(1, 1), 2: calibration(1, 1, server_step="adam")}},
            "at 2 they have another server step than at 1",
        ),
        (
            {"calibrations": {1: calibration(1, 1), 2: calibration(1, 1, samples=SAMPLES + 1)}},
            "another clients",
        ),
        ({"rounds": None}, "exactly one of `rounds` and `time_limit`"),
        ({"time_limit": 5.0}, "exactly one of `rounds` and `time_limit`"),
        ({"rounds": None, "time_limit": 5.0}, "needs `step_time` or `round_time`"),
        ({"rounds": None, "time_limit": 5.0, "step_time": -1.0}, "`step_time` must be finite sec"),
        ({"rounds": None, "time_limit": 5.0, "round_time": 9.0}, "at least 9 seconds, for one"),
        ({"compute": -1.0}, "`compute` must be finite numbers, at least 0, one for each of the 4"),
        ({"communication": [1.0, 2.0]}, "`communication` must be finite"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_line(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"calibrations": pilots(), "rounds": 400, "budget": 5.0}
    given |= TERMS | change
    with pytest.raises(InputError, match=message):
        best_steps(given.pop("calibrations"), **given)
