"""Curves against brute force: answers, facts about one type, bounds over cells, hulls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from fedprice.beliefs.beliefs import Beliefs, Types
from fedprice.beliefs.best_levels import levels_at
from fedprice.beliefs.curves import Curves
from fedprice.beliefs.hulls import buy, lower_hull
from fedprice.game import best_level, price_at

EXPONENTS = (1.5, 2.0, 3.0)


def types(rng: np.random.Generator, size: int = 24) -> Types:
    return Types.of(rng.exponential(50, size), rng.exponential(4000, size))


def curves(rng: np.random.Generator, tau: float, rows: int = 3, ratio: float = 1.0) -> Curves:
    impact = rng.exponential(1e-3, rows)
    caps = np.where(rng.random(rows) < 0.5, 1.0, rng.uniform(0.2, 1, rows))
    return Curves(types(rng), impact, impact, caps, tau, ratio)


@pytest.mark.parametrize("tau", EXPONENTS)
def test_fast_answers_are_best_responses(tau: float) -> None:
    rng = np.random.default_rng(1)
    price = rng.normal(0, 1, (6, 50, 1)) * 10 ** rng.uniform(-6, 6, (6, 50, 1))
    price[0, 0] = 0.0
    cost = 10 ** rng.uniform(-3, 4, 64)
    wants = 10 ** rng.uniform(-8, 4, (6, 1, 64))
    wants[:, :, ::8] = 0.0
    caps = rng.uniform(0.1, 1, (6, 1, 1))
    found = levels_at(price, cost, wants, tau, caps)
    expected = best_level(price, cost, wants, tau, caps)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=0)


def test_a_type_whose_impact_overflows_chooses_its_cap() -> None:
    price, cap = np.array([[[3.0], [-1.0]]]), np.full((1, 1, 1), 0.7)
    levels = levels_at(price, np.array([1.0, 2.0]), np.full((1, 1, 2), np.inf), 2.0, cap)
    assert (levels == 0.7).all()


@given(st.integers(0, 2**31), st.sampled_from([1.2, 1.5, 2.0, 3.0, 4.5]))
def test_payments_are_convex_in_the_price_and_levels_change_curvature_once(
    seed: int, tau: float
) -> None:
    rng = np.random.default_rng(seed)
    c, vk = rng.exponential(50), rng.exponential(4)
    inflexion = (2 * vk / (tau**2 * (tau - 1) * c)) ** (1 / (tau + 1))
    for low, high in ((0.02, 0.98), (1.02, 3.0)):  # below and above the inflexion
        q = inflexion * rng.uniform(low, high) * np.array([0.999, 1.0, 1.001])
        price = price_at(q, np.array(c), np.array(vk), tau)
        middle = np.array([price[0], (price[0] + price[2]) / 2, price[2]])
        level = best_level(middle, c, vk, tau, np.inf)
        payment, x = middle * level, 1 / level
        scale = np.abs(payment).max()
        assert payment[0] + payment[2] - 2 * payment[1] >= -1e-12 * scale
        bend = x[0] + x[2] - 2 * x[1]
        assert bend * (1 if low > 1 else -1) >= -1e-12 * x.max()


@pytest.mark.parametrize("tau", EXPONENTS)
def test_one_type_has_one_minimum_at_its_own_price(tau: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        c, v, k, t = rng.exponential(50), rng.exponential(4000), rng.exponential(1e-3), 2e4
        if v >= t:
            continue
        one = Curves(Types.of(c, v), np.array([k]), np.array([k]), np.ones(1), tau)
        low, high = one.range(t)
        assert low == high
        prices = low + np.concatenate(
            [-np.geomspace(1e4, 1e-3, 60), [0], np.geomspace(1e-3, 1e4, 60)]
        )
        spend, loss = one.at(prices[None], np.zeros(1, np.int64))
        value = (loss + spend / t)[0]
        assert np.argmin(value) == 60
        assert (np.diff(value[:61]) <= 1e-15).all()
        assert (np.diff(value[60:]) >= -1e-15).all()


@pytest.mark.parametrize("tau", EXPONENTS)
def test_without_values_the_curve_is_that_of_the_theorem(tau: float) -> None:
    """A/k = F(y) + y^{−p} E[c^p; c>y], C/τ = y F(y) + y^{1+p} E[c^{−p}; c>y], y = P/τ."""
    rng = np.random.default_rng(3)
    some = Types.of(rng.exponential(50, 500), 0.0)
    one = Curves(some, np.array([1e-3]), np.array([1e-3]), np.ones(1), tau)
    p = 1 / (tau - 1)
    for price in (1.0, 20.0, 300.0):
        y = price / tau
        above = some.cost > y
        share = 1 - above.mean()
        loss = share + y**-p * np.where(above, some.cost**p, 0.0).mean()
        paid = y * share + y ** (1 + p) * np.where(above, some.cost**-p, 0.0).mean()
        spend, found = one.at(np.array([[price]]), np.zeros(1, np.int64))
        assert found[0, 0] == pytest.approx(1e-3 * loss, rel=1e-12)
        assert spend[0, 0] == pytest.approx(tau * paid, rel=1e-12)


@pytest.mark.parametrize("tau", EXPONENTS)
@pytest.mark.parametrize("low", [1.0, 0.5])
def test_no_price_in_a_cell_is_below_its_bound(tau: float, low: float) -> None:
    rng = np.random.default_rng(4)
    for _ in range(12):
        some = curves(rng, tau)
        some = Curves(some.types, some.impact, some.impact * low, some.level_max, tau)
        rows = np.arange(3)
        left = rng.normal(0, 20, 3)
        right = left + 10 ** rng.uniform(-3, 2, 3)
        left = np.where((left < 0) & (right > 0), 0.0, left)  # cells end at 0
        t = 10 ** rng.uniform(3, 5)
        bound = some.lines(left, right, rows, t).lowest(right - left)
        inside = left[:, None] + (right - left)[:, None] * np.linspace(0, 1, 400)
        spend, loss = some.at(inside, rows)
        value = (loss + spend / t).min(axis=1)
        assert (bound <= value + 1e-12 * np.abs(value)).all()
        narrow = left + 1e-3 * (right - left)
        close = some.lines(left, narrow, rows, t).lowest(narrow - left)
        spend, loss = some.at(left[:, None], rows)
        np.testing.assert_allclose(close, (loss + spend / t)[:, 0], rtol=2e-2)


def test_no_fee_below_the_grid_undercuts_the_tail() -> None:
    rng = np.random.default_rng(5)
    some = curves(rng, 2.0)
    rows = np.arange(3)
    t = 3 * float(
        (some.types.weight @ np.sqrt(some.types.value))
        / (some.types.weight @ some.types.value**-0.5)
    )
    start = np.full(3, -7.0)
    bound = some.tail(start, rows, t)
    prices = start[:, None] * np.geomspace(1, 1e9, 200)
    spend, loss = some.at(prices, rows)
    assert ((loss + spend / t).min(axis=1) >= bound).all()
    # Above that t the Lagrangian is bounded, below it is not.
    far = np.full((3, 1), -1e14)
    spend, loss = some.at(far, rows)
    assert (loss + spend / t > 0).all()
    assert (loss + spend / (t / 6) < 0).all()
    assert (some.tail(start, rows, t / 6) == -np.inf).all()


@pytest.mark.parametrize("tau", EXPONENTS)
def test_chords_between_impacts_bound_all_clients_between(tau: float) -> None:
    rng = np.random.default_rng(6)
    ratio = 1.1
    for _ in range(40):
        k = rng.exponential(1e-3)
        impact = np.array([k, k * ratio])
        some = types(rng, 6)
        nodes = Curves(some, impact, impact, np.full(2, rng.uniform(0.05, 1)), tau, ratio)
        left = np.full(2, rng.normal(0, 20))
        right = left + rng.exponential(1)
        if left[0] < 0 < right[0]:
            continue
        t = 10 ** rng.uniform(3, 5)
        lines = nodes.lines(left, right, np.arange(2), t)
        low = lines.lowest(right - left) - lines.bend
        share = np.linspace(0, 1, 21)
        between = impact[0] + share * (impact[1] - impact[0])
        many = Curves(some, between, between, np.full(21, nodes.level_max[0]), tau)
        inside = np.tile(np.linspace(left[0], right[0], 60), (21, 1))
        spend, loss = many.at(inside, np.arange(21))
        value = (loss + spend / t).min(axis=1)
        chord = low[0] * (1 - share) + low[1] * share
        assert (chord <= value + 1e-12 * np.abs(value)).all()


@pytest.mark.parametrize("tau", [1.1, 1.5, 2.0, 4.5, 6.0, 12.0])
def test_chords_of_fees_bound_clients_that_reach_their_cap(tau: float) -> None:
    """At the cap a fee stops rising with the impact, so that it bends upwards there."""
    rng = np.random.default_rng(7)
    share = np.linspace(0, 1, 41)
    for _ in range(150):
        ratio, cap = float(rng.choice([1.02, 1.1, 1.5])), float(rng.uniform(0.2, 1))
        some = Types.of(10 ** rng.uniform(-2, 2, 2), 10 ** rng.uniform(-2, 2, 2))
        reached = (
            tau * some.cost[0] * cap ** (tau - 1) - some.value[0] * rng.uniform(1, ratio) / cap**2
        )
        price = -abs(reached) if rng.random() < 0.6 else -(10 ** rng.uniform(-3, 3))
        impact = np.array([1.0, ratio])
        nodes = Curves(some, impact, impact, np.full(2, cap), tau, ratio)
        left, right = np.full(2, price), np.full(2, price * (1 - 1e-6))
        t = some.value.max() * 10 ** rng.uniform(-2, 3)
        lines = nodes.lines(left, right, np.arange(2), t)
        low = lines.lowest(right - left) - lines.bend
        between = 1 + share * (ratio - 1)
        many = Curves(some, between, between, np.full(41, cap), tau)
        spend, loss = many.at(np.full((41, 1), price), np.arange(41))
        chord = low[0] * (1 - share) + low[1] * share
        assert (chord <= (loss + spend / t + 1e-9 * loss)[:, 0]).all()


def test_hull_leaves_out_what_a_lottery_beats() -> None:
    spend = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    loss = np.array([np.inf, 8.0, 7.9, 3.0, 3.5])
    assert lower_hull(spend, loss) == [1, 3]


@given(st.integers(0, 2**31))
def test_buying_by_slope_is_the_linear_program(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, points = 3, 7
    spend = np.sort(rng.uniform(-1, 4, (rows, points)), axis=1)
    loss = -np.sort(-rng.uniform(0, 9, (rows, points)), axis=1)
    budget = float(rng.uniform(spend[:, 0].sum() + 0.01, spend[:, -1].sum() + 1))
    found = buy(spend, loss, budget)
    assert found is not None
    at = np.arange(rows)
    total = float(loss[at, found.chosen].sum())
    paid = float(spend[at, found.chosen].sum())
    if found.row >= 0:
        n = found.row
        total += found.share * float(loss[n, found.to] - loss[n, found.chosen[n]])
        paid += found.share * float(spend[n, found.to] - spend[n, found.chosen[n]])
    one = np.kron(np.eye(rows), np.ones(points))
    program = optimize.linprog(
        loss.ravel(), A_ub=spend.reshape(1, -1), b_ub=[budget], A_eq=one, b_eq=np.ones(rows)
    )
    assert program.status == 0
    assert total == pytest.approx(program.fun, rel=1e-9)
    assert paid <= budget + 1e-9


def test_a_budget_below_the_cheapest_points_buys_nothing() -> None:
    assert buy(np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]]), 0.5) is None


def test_beliefs_of_one_type_have_its_own_curve() -> None:
    known = Beliefs(cost=30, value=2000).types[""]
    one = Curves(known, np.array([1e-3]), np.array([1e-3]), np.ones(1), 2.0)
    spend, loss = one.at(np.array([[10.0, 20.0]]), np.zeros(1, np.int64))
    levels = best_level([10.0, 20.0], 30.0, 2.0, 2.0)
    np.testing.assert_allclose(loss[0], 1e-3 / levels, rtol=1e-13)
    np.testing.assert_allclose(spend[0], [10, 20] * levels, rtol=1e-13)
