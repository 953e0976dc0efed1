"""Menus against the convex program that they solve, and the virtual costs against enumeration."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy
from scipy.optimize import linprog, nnls

import fedprice as fp
from fedprice.beliefs.beliefs import Beliefs, Types
from fedprice.beliefs.expectations import expected
from fedprice.beliefs.menus import costs_of, post_menus
from fedprice.beliefs.tariff_tails import tail_fee
from fedprice.errors import InputError

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.tariff import Tariffs

cp: Any = importlib.import_module("cvxpy")  # typed in part only


def random_types(rng: np.random.Generator, count: int) -> Types:
    return Types.of(rng.exponential(50, count), 0.0, rng.dirichlet(np.ones(count)))


def assigned(tariffs: Tariffs, cost: FloatArray, value_impact: float, tau: float) -> FloatArray:
    """Return the level that each cost takes from the only menu."""
    own = np.full((1, cost.size), value_impact)
    levels: FloatArray = tariffs.best_levels(cost[None, :], own, tau)[0]
    return levels


@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_virtual_costs_are_the_least_payments_of_falling_levels(tau: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        cost, weight, _ = costs_of(random_types(rng, 6))
        z = np.sort(rng.uniform(0.05, 1, 6))[::-1] ** tau
        own = 0.3 / z ** (1 / tau)
        # Least Σ w T subject to all incentive constraints and a utility of at least 0.
        rows, bounds = [], []
        for j in range(6):
            row = np.zeros(6)
            row[j] = -1
            rows.append(row)
            bounds.append(-cost[j] * z[j] - own[j])
            for i in range(6):
                if i != j:
                    row = np.zeros(6)
                    row[j], row[i] = -1, 1
                    rows.append(row)
                    bounds.append(cost[j] * (z[i] - z[j]) + own[i] - own[j])
        least = linprog(weight, np.array(rows), bounds, bounds=(None, None)).fun
        below = np.cumsum(weight) - weight
        virtual = cost + np.diff(cost, prepend=0) * below / weight
        assert weight @ (virtual * z + own) == pytest.approx(least, rel=1e-9)


def test_ironing_is_the_best_monotone_choice() -> None:
    rng = np.random.default_rng(2)
    ironed = 0
    for _ in range(20):
        types = random_types(rng, 7)
        cost, weight, virtual = costs_of(types)
        below = np.cumsum(weight) - weight
        raw = cost + np.diff(cost, prepend=0) * below / weight
        ironed += bool((np.diff(raw) < 0).any())
        x = cp.Variable(7)  # x = 1/q, rising with the cost
        goal = cp.sum(cp.multiply(weight, x)) + cp.sum(
            cp.multiply(weight * raw / 50, cp.power(x, -2))
        )
        problem = cp.Problem(cp.Minimize(goal), [cp.diff(x) >= 0])
        problem.solve(solver=cp.CLARABEL)
        best = (2 * virtual / 50) ** (1 / 3)
        value = weight @ (best + raw / 50 / best**2)
        assert value == pytest.approx(problem.value, rel=1e-6)
        assert value <= problem.value * (1 + 1e-9)
    assert ironed > 10


def alone(cost: FloatArray, value_impact: float, tau: float) -> FloatArray:
    """Return the largest utility of each cost without payment."""
    level = np.minimum((value_impact / (tau * cost)) ** (1 / (tau + 1)), 1)
    found: FloatArray = -cost * level**tau - (value_impact / level if value_impact else 0.0)
    return found


def dual_bound(
    types: Types,
    levels: FloatArray,
    gain: FloatArray,
    reciprocal: float,
    own: tuple[float, float, float, float],
    outside: FloatArray,
) -> float:
    """Return a lower bound on the loss of every menu that all incentive constraints allow.

    In z = q^τ and the utilities U the problem is convex, with constraints of a budget (multiplier
    μ), U_j ≥ U_i + (c_i − c_j) z_i for all i ≠ j (λ_ji), and U_j ≥ outside_j (ν_j). Any λ, ν ≥ 0
    bound it: the Lagrangian is separable in z, and linear in U with a coefficient that should
    vanish. Its remainder is charged at the largest utility that the budget allows. Multipliers are
    fitted to the optimality conditions, those of constraints that do not bind (`gain` below 0) 0.
    """
    impact, value, tau, budget = own
    cost, weight, _ = costs_of(types)
    size, mu = cost.size, 1 / reciprocal
    z = levels**tau
    slope = mu * weight * cost  # of the Lagrangian in z, apart from λ
    wanted = impact * weight * (1 + mu * value) / tau * z ** (-1 / tau - 1)
    pairs = [(j, i) for j in range(size) for i in range(size) if i != j and gain[j, i] > -1e-9]
    matrix = np.zeros((2 * size, len(pairs) + 2 * size))
    for column, (j, i) in enumerate(pairs):
        matrix[j, column] = 1
        matrix[i, column] = -1
        matrix[size + i, column] = cost[i] - cost[j]
    matrix[:, len(pairs) :] = np.diag(np.r_[gain.diagonal() > -1e-9, levels == 1])
    scale = np.r_[np.full(size, mu * weight.min()), wanted]
    target = np.r_[mu * weight, wanted - slope]
    found, _ = nnls(matrix / scale[:, None], target / scale)
    rest = mu * weight - matrix[:size] @ found
    linear = slope + matrix[size:, : len(pairs)] @ found[: len(pairs)]
    assert (linear[levels < 1] > 0).all()
    power = impact * weight * (1 + mu * value)
    # Where the slope is negative, the cap is best.
    best = (power / (tau * np.where(linear > 0, linear, np.inf))) ** (tau / (tau + 1))
    best = np.where(linear > 0, np.minimum(best, 1), 1)
    most = float(np.abs(outside).max())
    largest = (abs(budget) + most) / weight + most
    return float(
        (power * best ** (-1 / tau) + linear * best).sum()
        - mu * budget
        + outside @ found[len(pairs) : len(pairs) + size]
        - np.abs(rest) @ largest
    )


@pytest.mark.skipif(
    np.lib.NumpyVersion(scipy.__version__) < "1.15.0",
    reason="scipy's nnls, which fits the multipliers here, gives up before 1.15",
)
@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("value", [0.0, 300.0, 1200.0])
def test_menus_equal_the_convex_program_with_all_incentive_constraints(
    tau: float, value: float
) -> None:
    rng = np.random.default_rng(3)
    none = np.zeros(1, np.int64)
    capped, unpaid, pooled = 0, 0, 0
    for size, budget in ((2, 5.0), (5, 1.0), (8, 10.0), (12, 3.0), (12, 0.5), (20, 2.0)):
        types = random_types(rng, size)
        one, k = np.ones(1), np.full(1, 4e-3)
        post = post_menus(k, [types], none, value * one, tau, one, budget)
        cost, weight, _ = costs_of(types)
        levels = assigned(post.tariffs, cost, value * k[0], tau)
        paid = post.tariffs.payments(levels[None, :])[0]
        loss = float(weight @ (k / levels))
        capped += int((levels == 1).sum())
        # Who joins unpaid has this; who has no value gets the fee of the tail in any case.
        outside = alone(cost, value * k[0], tau) + (tail_fee(budget, 1) if value == 0 else 0.0)
        # Feasible: within the budget, and nobody gains by acting as another cost or by refusing.
        assert weight @ paid <= budget * (1 + 1e-12)
        utility = paid - np.outer(cost, levels**tau) - value * k / levels
        truth = np.diag(utility)
        assert (utility - truth[:, None]).max() <= 1e-9
        assert (truth - outside).min() >= -1e-9
        assert loss == pytest.approx(float(post.expected_loss[0]), rel=1e-12)
        gain = utility - truth[:, None]
        np.fill_diagonal(gain, outside - truth)
        bound = dual_bound(
            types, levels, gain, 1 / post.multiplier, (4e-3, value, tau, budget), outside
        )
        assert 0 <= loss - bound + 1e-12 * loss <= 1e-10 * loss
        binds = truth - outside < 1e-9
        unpaid += int(binds[:-1].sum())
        pooled += int((np.diff(binds.astype(int)) < 0).any())  # R binds, then not, then again
    assert capped > 0
    if value:
        assert unpaid > 0
        assert pooled > 0


@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_without_value_the_menu_is_the_equilibrium_with_virtual_costs(tau: float) -> None:
    rng = np.random.default_rng(4)
    types = random_types(rng, 30)
    cost, weight, virtual = costs_of(types)
    impact = rng.lognormal(-6, 1, 5)
    group, zero = np.zeros(5, np.int64), np.zeros(5)
    post = post_menus(impact, [types], group, zero, tau, np.ones(5), 20.0)
    rows = 5 * cost.size
    clients = fp.Clients(
        weight=np.full(rows, 1 / rows),
        grad_norm=np.sqrt(np.outer(impact, weight).ravel()) * rows,
        cost=np.tile(weight * virtual / tau, 5),
        value=0,
    )
    rest = 20.0 - 5 * tail_fee(20.0, 5)
    game = fp.Game(clients, bound=fp.Bound(alpha=1, rounds=1), budget=rest, cost_exponent=tau)
    best = fp.solve(game)
    wanted = (np.outer(impact, weight).ravel() / best.levels).reshape(5, -1).sum(axis=1)
    np.testing.assert_allclose(post.expected_loss, wanted, rtol=1e-10)
    assert post.expected_spend.sum() == pytest.approx(20, rel=1e-12)


@pytest.mark.parametrize("value", [0.0, 400.0, 4000.0])
def test_who_may_join_unpaid_is_no_worse_off_and_never_pays(value: float) -> None:
    types = Beliefs.exponential(cost=50, value=0, cells=24).types[""]
    rng = np.random.default_rng(5)
    impact, group = rng.lognormal(-8, 1, 6), np.zeros(6, np.int64)
    values = np.full(6, value)
    post = post_menus(impact, [types], group, values, 2.0, np.ones(6), 15.0)
    cost, weight, _ = costs_of(types)
    own = np.repeat((values * impact)[:, None], cost.size, axis=1)
    costs = np.tile(cost, (6, 1))
    levels = post.tariffs.best_levels(costs, own, 2.0)
    paid = post.tariffs.payments(levels)
    utility = paid - costs * levels**2 - own / levels
    unpaid = np.minimum((own / (2 * costs)) ** (1 / 3), 1)
    with np.errstate(invalid="ignore"):
        alone = -costs * unpaid**2 - np.where(own > 0, own / unpaid, 0)
    assert (utility >= alone - 1e-9).all()
    assert paid.min() >= -1e-12
    rows = post.tariffs
    every = (
        rows.end_payments[:, None, :]
        - costs[:, :, None] * rows.ends[:, None, :] ** 2
        - own[:, :, None] / rows.ends[:, None, :]
    )
    assert (every.max(axis=2) - utility).max() <= 1e-9
    found = expected(
        post.tariffs, impact, costs, np.full_like(costs, value), np.tile(weight, (6, 1)), 2.0
    )
    np.testing.assert_allclose(found[0], post.expected_loss, rtol=1e-12)
    np.testing.assert_allclose(found[1], post.expected_spend, atol=1e-11)
    assert post.expected_spend.sum() == pytest.approx(15, rel=1e-12)


# What the solver reports is compared to 1e-10, whether or not it reached its own tolerance.
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate:UserWarning")
@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_joining_unpaid_is_the_convex_program_for_many_costs(tau: float) -> None:
    types = Beliefs.exponential(cost=50, value=0, cells=40).types[""]
    cost, weight, _ = costs_of(types)
    k, value, budget = 5e-4, 4000.0, 3.0
    one = np.ones(1)
    post = post_menus(k * one, [types], np.zeros(1, np.int64), value * one, tau, one, budget)
    z, u = cp.Variable(40), cp.Variable(40)
    root = cp.power(z, -1 / tau)
    step = np.diff(cost)
    limits = [
        cp.sum(cp.multiply(weight, u + cp.multiply(cost, z) + value * k * root)) <= budget,
        u >= alone(cost, value * k, tau),
        z <= 1,
        u[:-1] - u[1:] >= cp.multiply(step, z[1:]),  # neighbours suffice
        u[:-1] - u[1:] <= cp.multiply(step, z[:-1]),
    ]
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(weight, root))), limits)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert float(post.expected_loss[0]) == pytest.approx(k * problem.value, rel=1e-10)


@pytest.mark.first_case
@pytest.mark.parametrize("form", ["menu", "tariff", "blocks"])
@pytest.mark.parametrize("value", [0.0, 4000.0])
def test_costs_above_all_believed_ones_with_value_0_find_no_acceptable_row(
    form: str, value: float
) -> None:
    clients = replace(fp.population(6), value=np.zeros(6))
    beliefs = Beliefs.exponential(cost=50, value=0 if form == "menu" else value, cells=12)
    bound = fp.Bound(alpha=3.3, rounds=1000)
    posted = fp.post(clients, beliefs, bound=bound, budget=30, form=form)
    highest = float(beliefs.types[""].cost.max())
    for times in (1.01, 3.0, 100.0, 1e4, 0.9e6):
        found = posted.answer(cost=highest * times, value=0)
        assert (found.levels > 0).all()
        assert (found.payments >= highest * times * found.levels**2 * (1 - 1e-9)).all()
        assert np.isfinite(found.expected_loss)
    assert posted.expected_spend <= 30 * (1 + 1e-9)


def test_the_tail_of_a_menu_costs_its_fee_and_changes_no_believed_choice() -> None:
    types = Types.of([20.0, 50.0, 90.0], 0.0)
    one, group = np.ones(1), np.zeros(1, np.int64)
    post = post_menus(one * 1e-3, [types], group, 0 * one, 2.0, one, 3.0)
    cost = np.array([[20.0, 50.0, 90.0]])
    found = expected(post.tariffs, one * 1e-3, cost, 0 * cost, np.full((1, 3), 1 / 3), 2.0)
    for one_way, other in zip(found, post.moments, strict=True):
        np.testing.assert_allclose(one_way, other, rtol=1e-12)
    # The highest believed cost keeps the fee, a thousandth of the budget, and nothing else.
    level = post.tariffs.best_levels(np.array([90.0]), 0 * one, 2.0)
    assert post.tariffs.payments(level)[0] == pytest.approx(90 * level[0] ** 2 + 3e-3, rel=1e-12)
    # A budget that is larger by the fee would have bought as much without a tail.
    larger = post_menus(one * 1e-3, [types], group, 0 * one, 2.0, one, 3.0 / (1 - 1e-3))
    assert 1 < post.expected_loss[0] / larger.expected_loss[0] < 1 + 1e-3


def test_groups_of_different_sizes_and_clients_without_impact() -> None:
    types = [Types.of([20.0, 50.0, 90.0], 0.0), Types.of([30.0], 0.0)]
    impact = np.array([1e-3, 0.0, 2e-3])
    group = np.array([0, 0, 1])
    post = post_menus(impact, types, group, np.zeros(3), 2.0, np.array([1, 1, 0.5]), 4.0)
    assert post.expected_loss[1] == post.expected_spend[1] == 0
    assert not post.tariffs.prices[1].any()
    assert post.expected_spend.sum() == pytest.approx(4, rel=1e-12)
    assert post.tariffs.ends[2, -1] <= 0.5
    # One cost: the contract of complete information, which leaves no rent but the tail's fee.
    level = post.tariffs.best_levels(np.array([1.0, 1.0, 30.0]), np.zeros(3), 2.0)[2]
    assert post.expected_spend[2] == pytest.approx(30 * level**2 + tail_fee(4.0, 2), rel=1e-12)


def test_a_large_budget_is_slack_and_a_small_one_refused() -> None:
    types, one, group = Types.of([20.0, 50.0], 0.0), np.ones(1), np.zeros(1, np.int64)
    post = post_menus(one * 1e-3, [types], group, 0 * one, 2.0, one, 1000.0)
    assert post.multiplier == 0
    assert post.expected_loss[0] == pytest.approx(1e-3)
    assert post.expected_spend[0] == pytest.approx(50 + tail_fee(50.0, 1))
    with pytest.raises(InputError, match=r"^`budget` must be above 0 .* got 0\. Raise the budget"):
        post_menus(one * 1e-3, [types], group, 0 * one, 2.0, one, 0.0)
