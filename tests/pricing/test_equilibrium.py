"""The equilibrium: edge cases, hostile ranges, certificate, statuses."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from fedprice import (
    Bound,
    Clients,
    Game,
    InputError,
    Status,
    best_response,
    population,
    price_for,
    solve,
)
from fedprice.pricing.problem import BLOCK, Problem
from tests.games import games, hostile, theorem_2_residual, theorem_3_residual

BOUND = Bound(alpha=3.3, rounds=1000)


def scale(game: Game, levels: np.ndarray) -> float:
    """The sum of both terms of all payments: what the rounding of a spend is relative to."""
    clients, tau = game.clients, game.cost_exponent
    with np.errstate(divide="ignore", invalid="ignore"):
        given = np.where(game.impact > 0, clients.value * game.impact / levels, 0.0)
    return float((tau * clients.cost * levels**tau + given).sum())


def test_example_of_the_readme() -> None:
    clients = Clients(
        samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0], cost=[40, 55, 20], value=[0, 4000, 9000]
    )
    best = solve(Game(clients, bound=BOUND, budget=200))
    assert best.status is Status.OPTIMAL
    assert best.spend == pytest.approx(200, rel=1e-12)
    assert best.levels[1] == 1.0
    assert best.certificate.gap < 1e-12


def test_one_client_has_a_closed_form() -> None:
    # 2 c q² − v k / q = B with v = 0: q = √(B / 2c).
    clients = Clients(samples=[7], grad_norm=[2], cost=[8], value=[0])
    best = solve(Game(clients, bound=BOUND, budget=4))
    assert best.levels == pytest.approx([0.5], rel=1e-13)
    assert best.prices == pytest.approx([8], rel=1e-13)


def test_identical_clients_are_treated_alike() -> None:
    clients = Clients(samples=np.full(50, 3.0), grad_norm=2, cost=8, value=700)
    best = solve(Game(clients, bound=BOUND, budget=90))
    assert np.ptp(best.levels) == 0
    assert best.payments == pytest.approx(np.full(50, 90 / 50), rel=1e-12)


def test_client_without_data_is_not_bought() -> None:
    clients = Clients(samples=[5, 0, 3], grad_norm=[1, 1, 0], cost=2, value=[10, 10, 10])
    best = solve(Game(clients, bound=BOUND, budget=1))
    assert best.levels[1:].tolist() == [0, 0]
    assert best.prices[1:].tolist() == [0, 0]
    assert best.spend == pytest.approx(1, rel=1e-12)


def test_floor_of_a_client_without_data_is_paid_for() -> None:
    clients = Clients(samples=[5, 0], grad_norm=1, cost=2, value=0, level_min=[0, 0.5])
    game = Game(clients, bound=BOUND, budget=1.5)
    best = solve(game)
    assert best.levels == pytest.approx([np.sqrt(0.5 / 4), 0.5])
    assert best.prices[1] == pytest.approx(2.0)
    assert best_response(game, best.prices) == pytest.approx(best.levels)
    assert solve(replace(game, budget=0.9)).status is Status.INFEASIBLE


def test_nobody_with_an_impact() -> None:
    clients = Clients(samples=[5, 4], grad_norm=0, cost=2, value=1)
    best = solve(Game(clients, bound=BOUND, budget=1))
    assert best.status is Status.SLACK
    assert best.levels.tolist() == [0, 0]
    assert (best.spend, best.expected_loss, best.certificate.gap) == (0, 0, 0)


def test_budget_exactly_at_what_everybody_costs() -> None:
    clients = Clients(samples=[5, 4], grad_norm=1, cost=2, value=0)
    assert solve(Game(clients, bound=BOUND, budget=8)).status is Status.SLACK
    below = solve(Game(clients, bound=BOUND, budget=np.nextafter(8, 0)))
    assert below.status is Status.OPTIMAL
    assert below.spend <= 8
    more = solve(Game(clients, bound=BOUND, budget=9))
    assert (more.status, more.spend, more.multiplier) == (Status.SLACK, 8, 0)


def test_budget_exactly_at_what_the_floors_cost() -> None:
    clients = Clients(samples=[5, 4], grad_norm=1, cost=2, value=[0, 9], level_min=0.5)
    game = Game(clients, bound=BOUND, budget=0)
    least = float(price_for(game, clients.level_min) @ clients.level_min)
    for budget in (least, np.nextafter(least, 0)):
        best = solve(replace(game, budget=float(budget)))
        assert best.status is Status.OPTIMAL
        assert best.levels.tolist() == [0.5, 0.5]
        assert best.certificate.gap == pytest.approx(0, abs=1e-12)
    short = solve(replace(game, budget=least * 0.999))
    assert short.status is Status.INFEASIBLE
    assert short.least_budget == pytest.approx(least, rel=1e-12)
    assert short.levels.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("budget", [0.0, -1.0])
def test_without_values_a_budget_must_be_positive(budget: float) -> None:
    clients = Clients(samples=[5, 4], grad_norm=1, cost=2, value=0)
    none = solve(Game(clients, bound=BOUND, budget=budget))
    assert (none.status, none.least_budget) == (Status.INFEASIBLE, 0)
    assert none.expected_loss == np.inf


@pytest.mark.parametrize("budget", [-1e-3, -1e3, -1e9, -1e15])
def test_with_a_value_and_no_floor_every_budget_is_feasible(budget: float) -> None:
    clients = Clients(samples=[5, 4], grad_norm=3, cost=2, value=[0, 900])
    best = solve(Game(clients, bound=BOUND, budget=budget))
    assert best.status is Status.OPTIMAL
    assert best.spend == pytest.approx(budget, rel=1e-12)
    assert best.spend <= budget
    assert best.certificate.gap < 1e-9


def test_a_floor_ends_what_a_client_can_pay() -> None:
    clients = Clients(samples=[5, 4], grad_norm=3, cost=2, value=[0, 900], level_min=0.01)
    game = Game(clients, bound=BOUND, budget=-1e9)
    least = float(price_for(game, clients.level_min) @ clients.level_min)
    assert solve(game).least_budget == pytest.approx(least)
    assert least < 0


def test_tiny_floors_of_high_values() -> None:
    """Between neighbouring t the spend jumps: levels must be found between the two ends."""
    clients = Clients(
        samples=[3, 2, 1], grad_norm=1, cost=[1, 2, 3], value=[0, 1e6, 2e6], level_min=1e-9
    )
    for budget in (-2e5, -1e7, -1e9):
        game = Game(clients, bound=Bound(alpha=1, rounds=1), budget=budget)
        best = solve(game)
        assert best.status is Status.OPTIMAL
        assert best.spend == pytest.approx(budget, rel=1e-12)
        assert best.spend <= budget
        assert best.certificate.gap < 1e-9


@given(games())
def test_spend_gap_and_response(game: Game) -> None:
    best = solve(game)
    if best.status is Status.INFEASIBLE:
        floors = price_for(game, game.clients.level_min) * game.clients.level_min
        assert best.least_budget == pytest.approx(floors.sum(), abs=1e-12 * np.abs(floors).sum())
        assert game.budget <= best.least_budget
        assert not (game.clients.value[game.clients.level_min == 0] > 0).any()
        return
    assert best.spend <= game.budget + 1e-15 * scale(game, best.levels)
    assert abs(best.certificate.gap) <= 1e-9
    clients = game.clients
    assert ((best.levels >= clients.level_min) & (best.levels <= clients.level_max)).all()
    answers = best_response(game, best.prices)
    assert answers == pytest.approx(best.levels, rel=1e-12)


@pytest.mark.parametrize("exponent", [1.05, 1.5, 2.0, 6.0])
def test_hostile_ranges(exponent: float) -> None:
    """Every parameter over twelve orders of magnitude: the gap and the budget still hold."""
    rng = np.random.default_rng(7)
    seen = set()
    for _ in range(300):
        count = int(rng.integers(1, 30))
        clients = Clients(
            samples=hostile(rng, count),
            grad_norm=hostile(rng, count),
            cost=hostile(rng, count),
            value=hostile(rng, count) * (rng.random(count) < 0.7),
            level_min=10 ** rng.uniform(-9, -1, count)
            * (rng.random(count) < rng.choice([0, 0.5, 1])),
            level_max=rng.choice([1.0, 0.6]),
        )
        game = Game(
            clients,
            bound=Bound(alpha=float(hostile(rng, 1)[0]), rounds=1000),
            budget=float(hostile(rng, 1)[0] * rng.choice([-1, 1, 1000])),
            cost_exponent=exponent,
        )
        best = solve(game)
        seen.add(best.status)
        if best.status is not Status.INFEASIBLE:
            assert abs(best.certificate.gap) <= 1e-9
            assert best.spend <= game.budget + 1e-15 * scale(game, best.levels)
        if best.status is Status.OPTIMAL:
            assert best.spend == pytest.approx(game.budget, abs=1e-12 * scale(game, best.levels))
            assert theorem_2_residual(best) < 1e-12
    assert seen == {Status.OPTIMAL, Status.SLACK, Status.INFEASIBLE}


def test_many_clients_are_priced_as_few() -> None:
    """A population larger than a block, against the same solver on one block at a time."""
    clients = population(3 * BLOCK + 17, seed=3)
    game = Game(clients, bound=BOUND, budget=5 * len(clients))
    best = solve(game)
    assert best.spend == pytest.approx(game.budget, rel=1e-12)
    assert best.certificate.gap < 1e-12
    # The plain formulas of the theory, at the λ found.
    t = 1 / best.multiplier
    k, c, v = game.impact, clients.cost, clients.value
    plain = np.clip((k * np.maximum(t - v, 0) / (4 * c)) ** (1 / 3), 0, 1)
    assert best.levels == pytest.approx(plain, rel=1e-12)


@pytest.mark.parametrize("budget", [1e4, 10.0, 1e-3, 0.0, -10.0, -1e6])
@pytest.mark.parametrize("exponent", [1.1, 2.0])
def test_many_clients_and_a_budget_that_their_sample_cannot_meet(
    budget: float, exponent: float
) -> None:
    """Without the client of the highest value, the sample may have no root at all."""
    for seed in range(4):
        clients = population(BLOCK + 1800, seed=seed)
        game = Game(clients, bound=BOUND, budget=budget, cost_exponent=exponent)
        best = solve(game)
        assert best.status is Status.OPTIMAL
        assert best.spend == pytest.approx(budget, abs=1e-12 * scale(game, best.levels))
        assert best.certificate.gap < 1e-12


@pytest.mark.parametrize("rise", [0.0, 1e-9, 1e-6, 1e-3, 1e-2, 0.1, 10.0])
def test_floors_that_cost_far_more_than_what_is_bought_above_them(rise: float) -> None:
    clients = Clients(
        samples=[1, 1000], grad_norm=1, cost=[6e5, 4e4], value=0, level_min=[0.1, 1e-6]
    )
    game = Game(clients, bound=BOUND, budget=0)
    least = solve(game).least_budget
    best = solve(replace(game, budget=least + rise))
    assert best.status is Status.OPTIMAL
    assert best.spend <= least + rise
    assert best.levels[0] == 0.1
    if rise > 1e-6:
        # The second client gets all that is left: 2 c q² = rise + its floor.
        assert best.levels[1] == pytest.approx(np.sqrt((rise + 8e-8) / 8e4), rel=1e-5)


def test_floors_of_clients_without_impact_one_ulp_short() -> None:
    clients = Clients(samples=[1, 2], grad_norm=0, cost=[3, 7], value=1, level_min=[0.1, 0.3])
    game = Game(clients, bound=BOUND, budget=0)
    least = solve(game).least_budget
    short = solve(replace(game, budget=float(np.nextafter(least, 0))))
    assert short.status is Status.SLACK
    assert solve(replace(game, budget=least * 0.99)).status is Status.INFEASIBLE


def test_caps_and_values_that_cancel() -> None:
    """The largest u is a difference of t and v; it must not be taken as one of large numbers."""
    clients = Clients(samples=[1], grad_norm=1, cost=1, value=1e6, level_max=1e-4)
    best = solve(Game(clients, bound=Bound(alpha=1, rounds=1), budget=-2e10))
    assert best.status is Status.OPTIMAL
    assert best.spend == pytest.approx(-2e10, rel=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(300):
        count = int(rng.integers(1, 6))
        clients = Clients(
            samples=rng.integers(1, 9, count),
            grad_norm=1,
            cost=rng.exponential(5, count) + 0.1,
            value=10 ** rng.uniform(3.6, 6.6, count),
            level_max=10 ** rng.uniform(-2, 0, count),
        )
        game = Game(clients, bound=Bound(alpha=1, rounds=1), budget=0)
        full = float(price_for(game, clients.level_max) @ clients.level_max)
        game = replace(game, budget=full - abs(full) * 10 ** rng.uniform(-12, -1))
        assert abs(solve(game).certificate.gap) <= 1e-9


def test_floors_by_max_weight_just_above_their_cost() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        clients = population(40, seed=int(rng.integers(100)))
        clients = clients.with_max_weight(clients.weight.max() * 10 ** rng.uniform(0.1, 2))
        game = Game(clients, bound=BOUND, budget=-1e9)
        least = solve(game).least_budget
        best = solve(replace(game, budget=least + abs(least) * 10 ** rng.uniform(-14, 0)))
        assert best.status in (Status.OPTIMAL, Status.SLACK)
        assert best.spend <= best.game.budget + 1e-15 * scale(game, best.levels)


def test_far_below_zero_the_theorems_still_hold() -> None:
    """1/λ is then so close to the highest value that only their difference has digits left."""
    for budget in (-1e4, -1e6, -1e9):
        best = solve(Game(population(), bound=BOUND, budget=budget))
        assert theorem_2_residual(best) < 1e-12
        assert theorem_3_residual(best) < 1e-12


def test_nothing_is_called_optimal_without_its_proof() -> None:
    clients = Clients(samples=[1, 2, 3], grad_norm=1, cost=[1e308, 1, 1], value=[0, 1, 2])
    with pytest.raises(InputError, match="lost its precision"):
        solve(Game(clients, bound=BOUND, budget=-1e30))


def test_sample_has_the_same_shape() -> None:
    clients = population(1000).with_max_weight(1.0)
    sample = Problem.of(Game(clients, bound=BOUND, budget=1)).sample()
    sizes = {a.size for a in (sample.impact, sample.cost, sample.value, sample.floor, sample.cap)}
    assert len(sizes) == 1


def test_a_floor_that_underflows_is_refused_in_one_line() -> None:
    clients = Clients(samples=[1, 2], grad_norm=1, cost=[1, 9], value=7e3, level_min=[0, 5e-324])
    with pytest.raises(InputError, match="equilibrium lost its precision"):
        solve(Game(clients, bound=Bound(alpha=0, rounds=100), budget=1))
