"""Tariffs against enumeration, and against the linear program over all randomised mechanisms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import brentq, linprog
from scipy.sparse import coo_array

from fedprice.beliefs import expectations
from fedprice.beliefs.beliefs import Beliefs, Types
from fedprice.beliefs.block_tariffs import FoundTariffs, post_tariffs
from fedprice.beliefs.expectations import expected
from fedprice.beliefs.menus import post_menus
from fedprice.clients import Clients
from fedprice.errors import InputError
from fedprice.game import best_level
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray

ONE = np.ones(1)
GROUP = np.zeros(1, np.int64)


def exponential(cells: int, value: float = 4000.0) -> Types:
    return Beliefs.exponential(cost=50, value=value, cells=cells).types[""]


def single(
    types: Types, impact: float, budget: float, blocks: int | None, tau: float = 2.0
) -> FoundTariffs:
    return post_tariffs(impact * ONE, [types], GROUP, tau, ONE, budget, blocks)


def utility(
    tariffs: Tariffs, levels: FloatArray, cost: FloatArray, own: FloatArray, tau: float
) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = np.where(own > 0, own / levels, 0.0)
    return tariffs.payments(levels) - cost * levels**tau - lost


@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_nobody_gains_by_any_other_level_of_a_tariff(tau: float) -> None:
    rng = np.random.default_rng(1)
    grid = np.linspace(0, 1, 2001)
    for blocks in (1, 2, 4, 8, 40):
        ends = np.sort(rng.uniform(0.01, 0.99, (30, blocks)), axis=1)
        ends[:, -1] = 1
        prices = rng.exponential(30, (30, blocks)) * rng.integers(0, 2, (30, blocks))
        tariffs = Tariffs(ends, prices)
        cost, own = rng.exponential(50, 30), rng.exponential(1, 30) * rng.integers(0, 2, 30)
        levels = tariffs.best_levels(cost, own, tau)
        best = utility(tariffs, levels, cost, own, tau)
        several = np.repeat(grid[None, :], 30, axis=0)
        others = utility(tariffs, several, cost[:, None], own[:, None], tau)
        at_ends = utility(tariffs, ends, cost[:, None], own[:, None], tau)
        assert (np.maximum(others.max(axis=1), at_ends.max(axis=1)) - best).max() <= 1e-9


@pytest.mark.parametrize("blocks", [1, 2, 4, 8, pytest.param(None, marks=pytest.mark.slow)])
def test_nobody_gains_by_acting_as_another_type(blocks: int | None) -> None:
    types = exponential(12)
    post = single(types, 5e-4, 5.0, blocks)
    own = types.value * 5e-4
    levels = post.tariffs.best_levels(types.cost[None, :], own[None, :], 2.0)
    paid = post.tariffs.payments(levels)[0]
    q = levels[0]
    as_other = paid - np.outer(types.cost, q**2) - np.outer(own, 1 / q)
    assert (as_other - as_other.diagonal()[:, None]).max() <= 1e-9
    # Nor is anybody worse off than by joining unpaid.
    free = best_level(0.0, types.cost, own, 2.0)
    assert (as_other.diagonal() >= -types.cost * free**2 - own / free - 1e-12).all()


@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_the_demand_profile_is_the_expected_loss_and_spend(tau: float) -> None:
    types, k, mu = exponential(8), 5e-4, 3e-5
    # Falling prices: every type crosses once.
    ends, prices = np.array([[0.2, 0.5, 0.8, 1.0]]), np.array([[60.0, 45.0, 30.0, 20.0]])
    tariffs = Tariffs(ends, prices)
    loss, spend, *_ = expected(
        tariffs, k * ONE, types.cost[None], types.value[None], types.weight[None], tau
    )
    count = 200_000
    low = 0.01
    q = low + (1 - low) * (np.arange(count) + 0.5) / count
    price = tariffs.prices[0][np.searchsorted(tariffs.ends[0], q)]
    worth = np.zeros(count)
    for cost, value, weight in zip(*types, strict=True):
        takes = tau * cost * q ** (tau - 1) - value * k / q**2 <= price
        worth += weight * takes * (k / q**2 - mu * price)
    # Everybody takes the levels up to `low`.
    profile = k / low + mu * 60 * low - worth.sum() * (1 - low) / count
    assert loss[0] + mu * spend[0] == pytest.approx(profile, rel=1e-5)


def test_one_block_is_the_best_price() -> None:
    types = exponential(16)
    c, v = types.cost[None], types.value[None]
    w = types.weight[None]

    def spend(price: float) -> float:
        return float(expected(Tariffs.flat([price], 1.0), 5e-4 * ONE, c, v, w, 2.0)[1][0])

    price = brentq(lambda p: spend(p) - 5.0, 1e-3, 1e3)
    best = expected(Tariffs.flat([price], 1.0), 5e-4 * ONE, c, v, w, 2.0)[0][0]
    post = single(types, 5e-4, 5.0, 1)
    assert post.tariffs.prices[0, 0] == pytest.approx(price, rel=1e-5)
    assert post.expected_loss[0] == pytest.approx(best, rel=1e-5)


def test_two_blocks_are_as_good_as_enumeration() -> None:
    types, k, budget = exponential(8), 5e-4, 5.0
    prices = np.r_[0, np.geomspace(5, 150, 30)]
    end, first, second = (
        x.ravel() for x in np.meshgrid(np.linspace(0.05, 0.95, 19), prices, prices)
    )
    tariffs = Tariffs(np.stack([end, 0 * end + 1], 1), np.stack([first, second], 1))
    cost, value, weight = (np.broadcast_to(x, (end.size, 64)) for x in types)
    loss, spend, *_ = expected(tariffs, np.full(end.size, k), cost, value, weight, 2.0)
    post = single(types, k, budget, 2)
    assert post.expected_loss[0] <= loss[spend <= budget].min() * 1.005
    assert post.expected_spend[0] <= budget


@pytest.mark.first_case
@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_without_value_the_full_tariff_is_the_optimal_menu(tau: float) -> None:
    types = exponential(64, value=0.0)
    types = Types.of(np.unique(types.cost), 0.0)
    impact, group, cap = np.array([3e-4, 2e-3]), np.zeros(2, np.int64), np.ones(2)
    menu = post_menus(impact, [types], group, 0 * impact, tau, cap, 10.0)
    post = post_tariffs(impact, [types], group, tau, cap, 10.0, None)
    ratio = post.expected_loss.sum() / menu.expected_loss.sum()
    assert 1 - 1e-9 <= ratio <= 1.01


def least_loss(types: Types, k: float, budget: float, levels: FloatArray) -> float:
    """Return the least expected loss of all randomised mechanisms, by a linear program.

    Variables: for each type the probability of each level, and the expected payment.
    """
    size, count = types.cost.size, levels.size
    own = types.value * k
    disutility = np.outer(types.cost, levels**2) + np.outer(own, 1 / levels)
    free = best_level(0.0, types.cost, own, 2.0)
    outside = -types.cost * free**2 - own / free
    each = np.arange(count)
    rows: list[IntArray] = []
    columns: list[IntArray] = []
    entries: list[FloatArray] = []
    bounds: list[float] = []

    def add(parts: list[tuple[IntArray, FloatArray]], bound: float) -> None:
        for where, what in parts:
            rows.append(np.full(len(where), len(bounds)))
            columns.append(where)
            entries.append(what)
        bounds.append(bound)

    for s in range(size):
        stay = (s * count + each, disutility[s]), (np.array([size * count + s]), -ONE)
        add([*stay], -outside[s])
        for other in range(size):
            if other != s:
                leave = (other * count + each, -disutility[s])
                add([*stay, leave, (np.array([size * count + other]), ONE)], 0.0)
    add([(size * count + np.arange(size), types.weight)], budget)
    shape = (len(bounds), size * (count + 1))
    matrix = coo_array(
        (np.concatenate(entries), (np.concatenate(rows), np.concatenate(columns))), shape
    ).tocsr()
    sums = coo_array(
        (np.ones(size * count), (np.repeat(np.arange(size), count), np.arange(size * count))),
        (size, size * (count + 1)),
    ).tocsr()
    goal = np.r_[np.outer(types.weight, k / levels).ravel(), np.zeros(size)]
    limits = [(0, None)] * (size * count) + [(None, None)] * size
    found = linprog(goal, matrix, bounds, sums, np.ones(size), limits, method="highs")
    assert found.status == 0
    return float(found.fun)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "budget"), [(5e-4, 4.0), (2e-4, 6.0), (1e-3, 10.0)])
def test_tariffs_are_near_the_best_randomised_mechanism(k: float, budget: float) -> None:
    types = exponential(5)
    least = least_loss(types, k, budget, np.geomspace(0.05, 1, 49))
    full, linear = (single(types, k, budget, blocks).expected_loss[0] for blocks in (None, 1))
    assert least * (1 - 5e-3) <= full <= least * 1.04
    assert linear > full
    assert linear > least * 1.05


def test_more_blocks_are_better_and_the_budget_is_met() -> None:
    rng = np.random.default_rng(2)
    impact, group = rng.lognormal(-8, 1, 5), np.zeros(5, np.int64)
    types = exponential(12)
    cost, value, weight = (np.tile(x, (5, 1)) for x in types)
    losses = []
    for blocks in (1, 2, 4, 8, None):
        post = post_tariffs(impact, [types], group, 2.0, np.ones(5), 15.0, blocks)
        losses.append(post.expected_loss.sum())
        assert 15 * (1 - 1e-4) <= post.expected_spend.sum() <= 15
        loss, spend, *_ = expected(post.tariffs, impact, cost, value, weight, 2.0)
        np.testing.assert_allclose(loss, post.expected_loss, rtol=1e-12)
        np.testing.assert_allclose(spend, post.expected_spend, rtol=1e-12)
        assert post.tariffs.prices.min() >= 0
    assert (np.diff(losses) < 0).all()


def test_the_multiplier_is_the_worth_of_money() -> None:
    loss = [
        post_tariffs(
            np.array([5e-4, 1e-3]), [exponential(24)], np.zeros(2, np.int64), 2.0, np.ones(2), b, 4
        )
        for b in (9.0, 10.0, 11.0)
    ]
    slope = (loss[0].expected_loss.sum() - loss[2].expected_loss.sum()) / 2
    assert loss[1].multiplier == pytest.approx(slope, rel=0.15)


@pytest.mark.first_case
@pytest.mark.parametrize("blocks", [4, None])
def test_many_clients_share_tariffs_by_impact(
    blocks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    impact, group = rng.lognormal(-8, 0.4, 60), np.zeros(60, np.int64)
    types = exponential(16)
    cost, value, weight = (np.tile(x, (60, 1)) for x in types)
    alone = post_tariffs(impact, [types], group, 2.0, np.ones(60), 180.0, blocks)
    monkeypatch.setattr(expectations, "BINS", 16)
    shared = post_tariffs(impact, [types], group, 2.0, np.ones(60), 180.0, blocks)
    assert len(np.unique(shared.tariffs.prices, axis=0)) <= 16
    loss, spend, *_ = expected(shared.tariffs, impact, cost, value, weight, 2.0)
    assert shared.expected_spend.sum() <= 180
    assert spend.sum() == pytest.approx(shared.expected_spend.sum(), rel=1e-3)
    assert loss.sum() == pytest.approx(shared.expected_loss.sum(), rel=1e-3)
    assert loss.sum() == pytest.approx(alone.expected_loss.sum(), rel=1e-2)


def test_each_client_may_have_beliefs_and_a_largest_level_of_its_own() -> None:
    rng = np.random.default_rng(4)
    count = 6
    types = [
        Types.of(rng.exponential(50, size), rng.exponential(4000, size))
        for size in rng.integers(1, 20, count)
    ]
    impact = np.r_[rng.lognormal(-8, 1, count - 1), 0.0]
    cap = rng.uniform(0.3, 1, count)
    for blocks in (2, 4, None):
        post = post_tariffs(impact, types, np.arange(count), 2.0, cap, 20.0, blocks)
        assert 20 * (1 - 1e-3) <= post.expected_spend.sum() <= 20
        np.testing.assert_array_equal(post.tariffs.ends[:, -1], cap)
        assert post.expected_loss[-1] == post.expected_spend[-1] == 0
        assert not post.tariffs.prices[-1].any()


def test_a_large_budget_is_slack_and_none_is_refused() -> None:
    types = Types.of([20.0, 50.0], 0.0)
    post = single(types, 1e-3, 1000.0, 4)
    assert post.multiplier == 0
    assert post.expected_loss[0] == pytest.approx(1e-3, rel=1e-6)
    assert post.expected_spend[0] < 1000
    with pytest.raises(InputError, match=r"^`budget` is too small for any tariff; got 1e-20\."):
        single(types, 1e-3, 1e-20, 4)


@pytest.mark.parametrize(
    ("budget", "blocks", "says"),
    [
        (0.0, 4, r"^`budget` must be above 0 for tariffs, which never charge; got 0\."),
        (5.0, 0, r"^`blocks` must be a whole number from 1 to 48; got 0\."),
        (5.0, 49, r"^`blocks` must be a whole number from 1 to 48; got 49\."),
    ],
)
def test_what_no_tariff_can_do_is_refused(budget: float, blocks: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        single(exponential(4), 1e-3, budget, blocks)


def test_few_samples_do_not_leave_who_values_nothing_at_the_bottom() -> None:
    rng = np.random.default_rng(6)
    types = {"cost": rng.exponential(50, 40), "value": rng.uniform(2000, 6000, 40)}
    clients = Clients(samples=[1] * 40, grad_norm=1.0, **types)
    cost = np.array([50.0])
    levels = []
    for unseen in (False, True):
        others = Beliefs.leave_one_out(clients, unseen=unseen).types["1"]
        assert others.weight.sum() == pytest.approx(1)
        post = single(others, 5e-4, 5.0, 4)
        levels.append(post.tariffs.best_levels(cost, np.array([5e-4 * 1.0]), 2.0)[0])
    assert levels[0] < 0.05 < levels[1]
