"""Pay at cost: optimal levels for those who may only reimburse, against general solvers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import minimize

import fedprice as fp
from fedprice.pricing import Status
from fedprice.pricing.at_cost import at_cost, reimbursing
from tests.games import games, random_game


def paid(game: fp.Game, margin: float) -> fp.Outcome:
    return reimbursing(margin)(game)


@given(game=games())
def test_everybody_is_paid_its_cost_and_the_margin(game: fp.Game) -> None:
    outcome, clients = paid(game, 0.1), game.clients
    assert outcome.payments == pytest.approx(
        1.1 * clients.cost * outcome.levels**game.cost_exponent, rel=1e-12
    )
    assert (outcome.levels >= clients.level_min).all()
    assert (outcome.levels <= clients.level_max).all()
    if outcome.status is Status.INFEASIBLE:
        least = 1.1 * float(clients.cost @ clients.level_min**game.cost_exponent)
        assert game.budget < least * (1 + 1e-12) or not least
        return
    assert outcome.spend <= game.budget * (1 + 1e-12)
    assert outcome.status in (Status.OPTIMAL, Status.SLACK)
    assert 0 <= outcome.certificate.gap + 1e-9 < 1e-8
    assert outcome.sign_threshold == np.inf


@pytest.mark.parametrize("exponent", [1.2, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_against_scipy(seed: int, exponent: float) -> None:
    """A general solver from a feasible start finds nothing better, and is below the certificate."""
    game = replace(random_game(seed, exponent), budget=40.0)
    outcome, clients = paid(game, 0.25), game.clients
    scale = outcome.certificate.primal

    def left(x: np.ndarray) -> float:
        return float(40.0 - (1.25 * clients.cost * x**-exponent).sum()) / 40

    if outcome.status is Status.INFEASIBLE:
        assert left(1 / np.maximum(clients.level_min, 1e-9)) < 0
        return
    floor = np.maximum(clients.level_min, 1e-3)
    start = 1 / np.maximum(floor, outcome.levels * 0.9)
    found = minimize(
        lambda x: float(game.impact @ x) / scale,
        start,
        jac=lambda x: game.impact / scale,
        bounds=list(zip(1 / clients.level_max, 1 / floor, strict=True)),
        constraints={"type": "ineq", "fun": left},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    if left(found.x) >= -1e-9:
        assert found.fun * scale >= outcome.certificate.dual * (1 - 1e-6)
    assert found.fun == pytest.approx(1, rel=1e-4)


def test_against_a_convex_solver() -> None:
    cvxpy = pytest.importorskip("cvxpy")
    game = random_game(3, 2.0)
    game = replace(game, budget=30.0)
    outcome, clients = paid(game, 0.1), game.clients
    x = cvxpy.Variable(len(clients), pos=True)
    scaled = game.impact / game.impact.max()
    limits = [x >= 1 / clients.level_max]
    floors = clients.level_min > 0
    if floors.any():
        limits.append(x[floors] <= 1 / clients.level_min[floors])
    problem = cvxpy.Problem(
        cvxpy.Minimize(scaled @ x),
        [1.1 * clients.cost @ cvxpy.power(x, -2) <= game.budget, *limits],
    )
    problem.solve(solver="CLARABEL")
    assert 1 / np.asarray(x.value) == pytest.approx(outcome.levels, rel=1e-3)
    assert problem.value * game.impact.max() == pytest.approx(outcome.certificate.primal, rel=1e-6)


def test_the_budget_buys_what_prices_buy_with_more() -> None:
    clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0], cost=[40, 55, 20],
                         value=0, level_max=[1, 0.8, 1])  # fmt: skip
    game = fp.Game(clients, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
    prices = fp.solve(replace(game, budget=20 * 2 / 1.1))
    assert paid(game, 0.1).levels == pytest.approx(prices.levels, rel=1e-9)
    contracts = fp.solve(game, "contracts")  # which leave a client without value its cost alone
    assert fp.solve(game, "at-cost").levels == pytest.approx(contracts.levels, rel=1e-9)


def test_values_and_alpha_do_not_matter() -> None:
    clients = fp.population()
    bound = fp.Bound(alpha=3.3, rounds=1000)
    valued = fp.solve(fp.Game(clients, bound, budget=200), "at-cost")
    sellers = replace(clients, value=np.zeros(len(clients)))
    other = fp.solve(fp.Game(sellers, replace(bound, alpha=0.01), budget=200), "at-cost")
    assert valued.payments == pytest.approx(other.payments, rel=1e-9)
    assert valued.distance == pytest.approx(other.distance, rel=1e-9)


@pytest.mark.parametrize("margin", [-0.1, np.nan, np.inf, "0.1", True])
def test_margins_that_cannot_be(margin: float) -> None:
    game = fp.Game(fp.population(), fp.Bound(alpha=1, rounds=10), budget=20)
    with pytest.raises(fp.InputError, match="`margin` must be a"):
        at_cost(game, margin)
