"""What the paper proves, and MATH.md corrects: each a property over random games."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedprice import Bound, Clients, Game, Outcome, Status, best_response, solve, utilities
from fedprice.pricing.theorems import theorem_3_threshold
from tests.games import games, theorem_2_residual, theorem_3_residual


def optimal(game: Game) -> Outcome:
    best = solve(game)
    assume(best.status is Status.OPTIMAL)
    return best


@given(games())
def test_lemma_3_the_budget_is_tight_unless_everybody_is_at_the_cap(game: Game) -> None:
    best = solve(game)
    assume(best.status is not Status.INFEASIBLE)
    if best.status is Status.OPTIMAL:
        flow = (
            np.abs(best.payments).sum() + 2 * (game.clients.value * game.impact / best.levels).sum()
        )
        assert best.spend == pytest.approx(game.budget, abs=1e-12 * flow)
    else:
        assert (best.levels == game.clients.level_max).all()
        assert best.spend <= game.budget


@given(games(), st.floats(1.001, 10))
def test_proposition_1_levels_and_prices_increase_in_the_budget(game: Game, factor: float) -> None:
    best = optimal(game)
    more = solve(replace(game, budget=game.budget + abs(game.budget) * (factor - 1)))
    assert (more.levels >= best.levels * (1 - 1e-12)).all()
    # A price is a difference of two terms; it is compared up to their rounding.
    terms = game.clients.cost * more.levels + game.clients.value * game.impact / best.levels**2
    assert (more.prices >= best.prices - 1e-10 * terms).all()
    assert more.expected_loss <= best.expected_loss * (1 + 1e-12)


@given(games())
def test_theorem_2_with_its_factor(game: Game) -> None:
    best = optimal(game)
    tau, inside = game.cost_exponent, best.interior
    left = tau**2 * game.clients.cost * best.levels ** (tau + 1) / game.impact + game.clients.value
    assert left[inside] == pytest.approx(1 / best.multiplier, rel=1e-11)
    assert theorem_2_residual(best) < 1e-11


@given(games(exponents=(2.0,)))
def test_theorem_3_as_printed(game: Game) -> None:
    best = optimal(game)
    inside = best.interior
    c, v, k = game.clients.cost[inside], game.clients.value[inside], game.impact[inside]
    x = (best.reciprocal[0] - v) + best.reciprocal[1]  # 1/λ − v
    factor = (2 * k * c**2) ** (1 / 3)
    printed = factor * (x ** (1 / 3) - 2 * v * x ** (-2 / 3))
    terms = factor * (x ** (1 / 3) + 2 * v * x ** (-2 / 3))
    assert (np.abs(best.prices[inside] - printed) <= 1e-10 * terms).all()
    assert theorem_3_residual(best) < 1e-10


@given(games())
def test_theorem_3_sign_threshold_for_any_exponent(game: Game) -> None:
    best = optimal(game)
    value, price = game.clients.value[best.interior], best.prices[best.interior]
    threshold = theorem_3_threshold(best.multiplier, game.cost_exponent)
    assert threshold == best.sign_threshold
    assert (price[value < threshold * (1 - 1e-9)] > 0).all()
    assert (price[value > threshold * (1 + 1e-9)] < 0).all()
    assert best.payers == (best.prices < 0).sum()


@given(games(floors=False, caps=False, exponents=(2.0,), min_clients=2))
def test_corollary_1(game: Game) -> None:
    best = optimal(game)
    inside = np.flatnonzero(best.interior)
    clients, threshold = game.clients, best.sign_threshold
    product = clients.cost * clients.weight * clients.norm
    for i in inside:
        for j in inside:
            if product[i] <= product[j] * (1 + 1e-9):
                continue
            v_i, v_j, p_i, p_j = clients.value[i], clients.value[j], best.prices[i], best.prices[j]
            if v_i < v_j < threshold * (1 - 1e-9):
                assert p_i > p_j > 0
            if v_i > v_j > threshold * (1 + 1e-9):
                assert p_i < p_j < 0


def with_twin(game: Game, column: str, factor: float) -> Game:
    """The game with one more client: the first one again, one of its parameters changed."""
    old = game.clients
    columns = {
        name: np.append(getattr(old, name), getattr(old, name)[0])
        for name in ("samples", "grad_norm", "cost", "value", "level_min", "level_max")
    }
    columns[column][-1] *= factor
    return replace(game, clients=Clients(**columns))


@given(games(floors=False), st.floats(1.01, 3))
def test_better_data_raises_the_level(game: Game, factor: float) -> None:
    best = optimal(with_twin(game, "grad_norm", factor))
    assert best.levels[-1] >= best.levels[0]
    if best.interior[[0, -1]].all():
        # The price rises with data for those who are paid; those who pay, pay more.
        assert abs(best.prices[-1]) >= abs(best.prices[0]) * (1 - 1e-9)


@given(games(floors=False), st.floats(1.01, 3))
def test_higher_cost_lowers_the_level_and_widens_the_price(game: Game, factor: float) -> None:
    best = optimal(with_twin(game, "cost", factor))
    assert best.levels[-1] <= best.levels[0]
    if best.interior[[0, -1]].all():
        # Away from zero: up for those who are paid, down for those who pay.
        assert abs(best.prices[-1]) >= abs(best.prices[0]) * (1 - 1e-9)


@given(games(floors=False), st.floats(1.01, 3))
def test_higher_value_lowers_the_level(game: Game, factor: float) -> None:
    best = optimal(with_twin(game, "value", factor))
    assert best.levels[-1] <= best.levels[0] * (1 + 1e-12)
    assert best.prices[-1] <= best.prices[0] + 1e-9 * abs(best.prices[0])


@given(games(), st.integers(0, 2**32 - 1))
def test_no_client_gains_by_deviating(game: Game, seed: int) -> None:
    best = optimal(game)
    rng = np.random.default_rng(seed)
    own = utilities(game, best.levels, best.prices)
    for n in range(len(game.clients)):
        for level in game.clients.level_max[n] * np.append(rng.random(20), 1.0):
            deviating = best.levels.copy()
            deviating[n] = level
            assert utilities(game, deviating, best.prices)[n] <= own[n] + 1e-9 * abs(own[n]) + 1e-12


@pytest.mark.parametrize("exponent", [1.2, 1.5, 2.0, 3.0])
def test_no_feasible_price_vector_found_at_random_beats_the_equilibrium(exponent: float) -> None:
    rng = np.random.default_rng(11)
    for _ in range(10):
        count = int(rng.integers(2, 7))
        clients = Clients(
            samples=rng.integers(1, 1000, count),
            grad_norm=rng.lognormal(1, 0.5, count),
            cost=rng.exponential(50, count) + 1,
            value=rng.exponential(4000, count),
        )
        game = Game(clients, Bound(alpha=10, rounds=1000), budget=20, cost_exponent=exponent)
        best = solve(game)
        tried = 0
        for _ in range(300):
            # Around the equilibrium, near and far, where a better vector would have to be.
            noise = rng.normal(size=count) * 10 ** rng.uniform(-4, 1)
            rival = Outcome.from_prices(
                game, best.prices + noise * np.abs(best.prices).max(), scheme="random"
            )
            if rival.status is not Status.INFEASIBLE:
                tried += 1
                assert rival.expected_loss >= best.expected_loss * (1 - 1e-12)
        assert tried > 50


@given(games())
def test_marginal_value_of_budget_is_the_multiplier(game: Game) -> None:
    best = optimal(game)
    step = 1e-5 * max(abs(game.budget), np.abs(best.payments).sum())
    up, down = (solve(replace(game, budget=game.budget + s)) for s in (step, -step))
    assume(up.status is Status.OPTIMAL and down.status is Status.OPTIMAL)
    # The loss is convex in the budget: the difference quotients of both sides enclose −λ.
    rounding = 1e-9 * best.certificate.primal / step
    assert (up.certificate.primal - best.certificate.primal) / step >= -best.multiplier - rounding
    assert (best.certificate.primal - down.certificate.primal) / step <= -best.multiplier + rounding
    kinked = not np.array_equal(up.interior, down.interior)
    if not kinked:
        slope = (up.certificate.primal - down.certificate.primal) / (2 * step)
        assert slope == pytest.approx(-best.multiplier, rel=1e-3, abs=rounding)


@given(games())
def test_the_dual_bounds_every_feasible_outcome(game: Game) -> None:
    best = optimal(game)
    for scheme in ("uniform", "weighted"):
        other = solve(game, scheme)
        if other.status is not Status.INFEASIBLE:
            assert other.certificate.primal >= best.certificate.dual * (1 - 1e-9)


@given(games())
def test_the_answer_to_equilibrium_prices_is_the_equilibrium(game: Game) -> None:
    best = optimal(game)
    again = Outcome.from_prices(game, best.prices, scheme="again")
    assert again.levels == pytest.approx(best.levels, rel=1e-12)
    assert best_response(game, best.prices) == pytest.approx(best.levels, rel=1e-12)
