"""Stage II: the best response and its inverse, over hostile ranges."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import Bound, Clients, Game, InputError, best_response, price_for, utilities
from fedprice.game import best_level, break_even
from tests.games import hostile


@pytest.mark.parametrize("exponent", [1.01, 1.2, 1.5, 2.0, 3.0, 8.0])
def test_residual_over_twelve_orders_of_magnitude(exponent: float) -> None:
    rng = np.random.default_rng(3)
    count = 100_000
    cost, value, impact, price = (hostile(rng, count) for _ in range(4))
    price *= rng.choice([-1, 1], count)
    level = best_level(price, cost, value * impact, exponent, 1.0)
    # Residuals in extended precision, relative to the sum of the three terms.
    q, tau = level.astype(np.longdouble), np.longdouble(exponent)
    drive = (value * impact).astype(np.longdouble) / q**2
    marginal = tau * cost * q ** (tau - 1)
    residual = (price + drive - marginal) / (np.abs(price) + drive + marginal)
    inside = level < 1
    assert 0.3 < inside.mean() < 0.7
    assert np.abs(residual[inside]).max() <= 1e-12
    assert (residual[~inside] >= -1e-12).all()  # at the cap the client would like to join more
    assert (level > 0).all()


@pytest.mark.parametrize("exponent", [1.2, 2.0, 3.0])
def test_inverse(exponent: float) -> None:
    rng = np.random.default_rng(4)
    count = 2000
    clients = Clients(
        samples=hostile(rng, count),
        grad_norm=1,
        cost=hostile(rng, count),
        value=hostile(rng, count) * rng.choice([0, 1], count),
        level_max=0.9,
    )
    game = Game(clients, Bound(alpha=1e6, rounds=10), budget=1, cost_exponent=exponent)
    levels = 0.9 * rng.random(count)
    assert best_response(game, price_for(game, levels)) == pytest.approx(levels, rel=1e-12)


def test_cubic_of_the_paper() -> None:
    # τ = 2: P q² + v k − 2 c q³ = 0, against numpy's polynomial roots.
    for price in (-3.0, 0.0, 5.0):
        roots = np.roots([2 * 7, -price, 0, -1.3])
        real = roots[np.abs(roots.imag) < 1e-9].real
        assert best_level(price, 7.0, 1.3, 2.0) == pytest.approx(real[real > 0][0])


def test_without_value_a_client_sells_or_stays_away() -> None:
    levels = best_level([-1, 0, 4, 100], 4.0, 0.0, 2.0)
    assert levels[[0, 1, 3]].tolist() == [0, 0, 1]
    assert levels[2] == pytest.approx(0.5, rel=1e-15)


def test_zero_price_with_value() -> None:
    assert best_level(0.0, 4.0, 1.0, 2.0) == pytest.approx(0.5)


@given(
    st.floats(1.1, 4), st.floats(0.01, 100), st.floats(0, 10), st.floats(0.1, 1), st.floats(1e-6, 3)
)
def test_break_even_is_where_payment_covers_cost(
    exponent: float, cost: float, drive: float, cap: float, step: float
) -> None:
    price = break_even(cost, drive, exponent, cap)
    level = float(best_level(price, cost, drive, exponent, cap))
    assert price * level == pytest.approx(cost * level**exponent, abs=1e-9 * cost)
    below = price * (1 - step)
    level = float(best_level(below, cost, drive, exponent, cap))
    assert below * level <= cost * level**exponent + 1e-12 * cost


@given(st.integers(0, 2**32 - 1), st.sampled_from([1.2, 2.0, 3.0]))
def test_no_level_on_a_grid_is_better(seed: int, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    clients = Clients(
        samples=rng.integers(1, 9, 5),
        grad_norm=2,
        cost=rng.random(5) + 0.1,
        value=rng.random(5) * 99,
    )
    game = Game(clients, Bound(alpha=9, rounds=9), budget=1, cost_exponent=exponent)
    prices = rng.normal(size=5)
    best = utilities(game, best_response(game, prices), prices)
    levels = best_response(game, prices)
    for n in range(5):
        for level in np.linspace(0.01, 1, 50):
            other = levels.copy()
            other[n] = level
            assert utilities(game, other, prices)[n] <= best[n] + 1e-12 * abs(best[n])


CLIENTS = Clients(samples=[1, 2], grad_norm=1, cost=1, value=0)
BOUND = Bound(alpha=1, rounds=1)


@pytest.mark.parametrize("budget", [np.nan, np.inf])
def test_bad_budget(budget: float) -> None:
    with pytest.raises(InputError, match="`budget` must be a finite number"):
        Game(CLIENTS, BOUND, budget=budget)


@pytest.mark.parametrize("exponent", [1.0, 0.5, np.nan, np.inf])
def test_bad_exponent(exponent: float) -> None:
    with pytest.raises(InputError, match="`cost_exponent` τ must be above 1"):
        Game(CLIENTS, BOUND, budget=1, cost_exponent=exponent)


@pytest.mark.parametrize("name", ["budget", "cost_exponent"])
@pytest.mark.parametrize("given", ["200", True, np.True_, None])
def test_text_and_bool_as_a_number_of_a_game_are_refused(name: str, given: Any) -> None:
    with pytest.raises(InputError, match=f"`{name}` must be a number; got {given!r}."):
        Game(CLIENTS, BOUND, **({"budget": 1} | {name: given}))


def test_impact_that_overflows() -> None:
    huge = Clients(samples=[1, 2], grad_norm=1e200, cost=1, value=0)
    with pytest.raises(InputError, match=r"impact .* lost its precision"):
        Game(huge, BOUND, budget=1)


def test_bad_prices_and_levels() -> None:
    game = Game(CLIENTS, BOUND, budget=1)
    with pytest.raises(InputError, match=r"`prices` must have shape \(2,\); got \(3,\)"):
        best_response(game, [1, 2, 3])
    with pytest.raises(InputError, match="`prices` must be finite"):
        best_response(game, [1, np.nan])
    with pytest.raises(InputError, match="`levels` must lie between 0 and"):
        price_for(game, [0.5, 1.5])
