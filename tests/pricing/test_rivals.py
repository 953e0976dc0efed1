"""What others have proposed: each rule against its definition."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import minimize

from fedprice import (
    Bound,
    Clients,
    Game,
    Outcome,
    Status,
    best_response,
    population,
    price_for,
    solve,
)
from fedprice._plumbing.arrays import FloatArray
from fedprice.contrib import RIVALS
from fedprice.contrib.rivals.auction import asks, unpaid_levels
from fedprice.pricing import SCHEMES
from tests.games import games

BOUND = Bound(alpha=3.3, rounds=1000)
AUCTIONS = ("proportional-share", "reputation-auction", "multidimensional-auction")
SAMPLINGS = ("optimal-sampling", "uniform-sampling", "sampling-by-samples")


def drawn(seed: int, count: int = 8, *, budget: float = 60, valued: bool = True) -> Game:
    clients = population(count, seed=seed)
    return Game(
        clients if valued else replace(clients, value=np.zeros(count)), bound=BOUND, budget=budget
    )


def own_utility(game: Game, outcome: Outcome, n: int) -> float:
    """Payment less cost less the client's own part of the loss; losers join as suits them."""
    clients, cost = game.clients, game.clients.cost[n]
    level = outcome.levels[n]
    assert outcome.bought is not None
    if not outcome.bought[n]:
        level = best_response(game, outcome.prices)[n]
    payment = outcome.prices[n] * level
    wants = clients.value[n] * game.impact[n]
    loss = wants * (1 / level - 1) if wants else 0.0
    return float(payment - cost * level**game.cost_exponent - loss)


def reported(game: Game, n: int, cost: float, value: float) -> Game:
    costs, values = game.clients.cost.copy(), game.clients.value.copy()
    costs[n], values[n] = cost, value
    return replace(game, clients=replace(game.clients, cost=costs, value=values))


def test_every_rival_is_a_scheme() -> None:
    assert set(RIVALS) <= set(SCHEMES)


@pytest.mark.parametrize("name", ["proportional-share", "reputation-auction"])
@pytest.mark.parametrize("valued", [True, False])
def test_nobody_gains_by_lying_to_a_proportional_share_auction(name: str, valued: bool) -> None:
    """Brute force: 25 costs within a factor of ten times two values, 8 clients, 4 draws."""
    gains = []
    for seed in range(4):
        game = drawn(seed, valued=valued)
        truth = solve(game, name)
        for n in range(len(game.clients)):
            honest = own_utility(game, truth, n)
            for cost in game.clients.cost[n] * np.logspace(-1, 1, 25):
                for value in game.clients.value[n] * np.array([0, 1] if valued else [1]):
                    lie = solve(reported(game, n, float(cost), float(value)), name)
                    gains.append(own_utility(game, lie, n) - honest)
    assert max(gains) <= 1e-9


def test_the_search_finds_what_a_first_price_auction_leaves_to_gain() -> None:
    game = drawn(1)
    truth = solve(game, "multidimensional-auction")
    assert truth.bought is not None
    winner = int(np.argmax(truth.bought))
    lies = [
        own_utility(game, solve(reported(game, winner, float(c), 0.0), truth.scheme), winner)
        for c in game.clients.cost[winner] * np.linspace(1, 2, 41)
    ]
    assert max(lies) > own_utility(game, truth, winner) + 0.1


@pytest.mark.parametrize("name", ["proportional-share", "reputation-auction"])
@given(game=games(floors=False, min_clients=2))
def test_a_winner_is_paid_the_highest_ask_with_which_it_wins(name: str, game: Game) -> None:
    outcome = solve(game, name)
    assert outcome.bought is not None
    worth = game.impact if name == "proportional-share" else game.clients.weight
    ask = asks(game, game.clients.level_max, unpaid_levels(game))

    def wins(n: int, asked: float) -> bool:
        """The rule as printed: sort, then walk along while everybody keeps to its share."""
        bids = ask.copy()
        bids[n] = asked
        before = 0.0
        for i in np.argsort(bids / worth, kind="stable"):
            before += worth[i]
            if bids[i] > game.budget * worth[i] / before:
                return False
            if i == n:
                return True
        raise AssertionError

    for n in range(len(worth)):
        paid = outcome.payments[n]
        if outcome.bought[n]:
            assert paid >= ask[n] * (1 - 1e-9)
            assert wins(n, paid * (1 - 1e-9))
            assert not wins(n, paid * (1 + 1e-9))
        else:
            assert paid == 0


@pytest.mark.parametrize("name", AUCTIONS)
def test_losers_join_unpaid_and_are_left_out_without_a_value(name: str) -> None:
    valued = solve(drawn(0), name)
    assert valued.bought is not None
    lost = ~valued.bought
    assert lost.any()
    assert valued.levels[lost] == pytest.approx(unpaid_levels(valued.game)[lost])
    assert (valued.levels[valued.bought] == 1).all()
    assert np.isfinite(valued.expected_loss)
    assert (valued.left_out, valued.biased) == (0, False)
    sellers = solve(drawn(0, valued=False), name)
    assert sellers.bought is not None
    assert sellers.left_out == (~sellers.bought).sum() > 0
    assert sellers.biased
    assert sellers.expected_loss == np.inf


@pytest.mark.parametrize("name", AUCTIONS)
def test_with_enough_money_everybody_wins(name: str) -> None:
    game = drawn(0, budget=1e9)
    game = replace(game, clients=replace(game.clients, level_min=np.full(8, 0.9)))
    rich = solve(game, name)
    assert rich.status is Status.SLACK
    poor = solve(replace(game, budget=10.0), name)
    assert poor.status is Status.INFEASIBLE
    enough = solve(replace(game, budget=poor.least_budget * (1 + 1e-12)), name)
    assert enough.status is Status.SLACK


def test_an_ask_makes_a_client_indifferent() -> None:
    game = drawn(3)
    levels = np.full(8, 0.8)
    clients, unpaid = game.clients, unpaid_levels(game)
    wants = clients.value * game.impact
    accepted = asks(game, levels, unpaid) - clients.cost * levels**2 - wants / levels
    refused = -clients.cost * unpaid**2 - wants / unpaid
    more = unpaid < levels
    assert accepted[more] == pytest.approx(refused[more])


def test_the_shapley_value_of_the_bound_is_the_impact() -> None:
    """By enumeration of all orders: what each client adds when its level rises from 1/2 to 1."""
    game = drawn(2, count=5)

    def worth(coalition: frozenset[int]) -> float:
        levels = np.array([1.0 if n in coalition else 0.5 for n in range(5)])
        alone = game.bound.expected_loss(game.clients, np.full(5, 0.5))
        return alone - game.bound.expected_loss(game.clients, levels)

    orders = list(permutations(range(5)))
    shapley = np.zeros(5)
    for order in orders:
        for place, n in enumerate(order):
            before = frozenset(order[:place])
            shapley[n] += (worth(before | {n}) - worth(before)) / len(orders)
    assert shapley == pytest.approx(game.impact)


@given(game=games(floors=False))
def test_shapley_payments_share_the_budget_by_impact(game: Game) -> None:
    outcome = solve(game, "shapley-payments")
    share = max(game.budget, 0.0) * game.impact / game.impact.sum()
    assert outcome.payments == pytest.approx(share, rel=1e-9)
    assert best_response(game, outcome.prices) == pytest.approx(outcome.levels, rel=1e-12)
    if game.budget < 0:
        assert (outcome.status, outcome.least_budget) == (Status.INFEASIBLE, 0)


def test_shapley_payments_and_floors() -> None:
    game = drawn(0)
    game = replace(game, clients=replace(game.clients, level_min=np.full(8, 0.6)))
    poor = solve(game, "shapley-payments")
    assert poor.status is Status.INFEASIBLE
    enough = solve(replace(game, budget=poor.least_budget), "shapley-payments")
    assert enough.levels.min() == pytest.approx(0.6)
    assert enough.status is Status.FEASIBLE


@given(game=games(floors=False))
def test_shapley_prices_go_by_impact(game: Game) -> None:
    prices = solve(game, "shapley-prices").prices
    ratio = prices / game.impact
    assert ratio == pytest.approx(np.full(ratio.size, ratio[0]))


@pytest.mark.parametrize("name", SAMPLINGS)
@given(game=games())
def test_sampling_buys_its_levels_at_the_prices_that_bring_them(name: str, game: Game) -> None:
    outcome, clients = solve(game, name), game.clients
    rule = {
        "optimal-sampling": clients.weight * clients.norm,
        "uniform-sampling": np.ones(len(clients)),
        "sampling-by-samples": clients.weight,
    }[name]
    q = outcome.levels
    if (q > 0).all():
        assert best_response(game, outcome.prices) == pytest.approx(q, rel=1e-9)
    inside = (q > clients.level_min) & (q < clients.level_max)
    ratio = q[inside] / rule[inside]
    if ratio.size:
        assert ratio == pytest.approx(np.full(ratio.size, ratio[0]))
    if outcome.status is Status.FEASIBLE and inside.any():
        flow = np.abs(outcome.payments).sum() + (clients.cost * q).sum()
        assert outcome.spend == pytest.approx(game.budget, abs=1e-9 * flow)


def test_optimal_sampling_has_the_least_variance_for_its_number_of_joiners() -> None:
    """Chen et al., Theorem 1, with norms G: no other levels of the same sum have a lower bound."""
    game = drawn(5, budget=30)
    outcome = solve(game, "optimal-sampling")
    rng = np.random.default_rng(0)
    for _ in range(200):
        other = np.clip(outcome.levels + 0.02 * rng.normal(size=8), 1e-3, 1)
        for _ in range(50):
            other = np.clip(other + (outcome.levels.sum() - other.sum()) / 8, 1e-3, 1)
        if abs(other.sum() - outcome.levels.sum()) < 1e-9:
            assert game.bound.expected_loss(game.clients, other) >= outcome.expected_loss


def test_contracts_buy_what_prices_buy_for_half_the_money() -> None:
    game = drawn(4, valued=False, budget=20)
    half = solve(game, "contracts")
    assert half.levels == pytest.approx(solve(replace(game, budget=40.0)).levels, rel=1e-9)
    assert half.profits == pytest.approx(np.zeros(8), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_contracts_against_a_general_solver(seed: int) -> None:
    game = drawn(seed, count=5, budget=25)
    outcome = solve(game, "contracts")
    unpaid = unpaid_levels(game)

    def paid(levels: FloatArray) -> float:
        return float(asks(game, levels, unpaid).sum())

    found = minimize(
        lambda x: 1e3 * game.impact @ x,
        1 / np.maximum(unpaid, 0.3),
        bounds=[(1, 1 / q) for q in unpaid],
        constraints={"type": "ineq", "fun": lambda x: game.budget - paid(1 / x)},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert outcome.spend == pytest.approx(25)
    assert outcome.certificate.primal <= found.fun / 1e3 * (1 + 1e-6)
    assert (outcome.levels >= unpaid * (1 - 1e-12)).all()


@given(game=games(floors=False))
def test_contracts_never_do_worse_than_prices_that_nobody_refuses(game: Game) -> None:
    outcome = solve(game, "contracts")
    if game.budget < 0:
        assert outcome.status is Status.INFEASIBLE
        return
    for name in ("uniform", "weighted"):
        other = solve(game, name)
        if np.isfinite(other.expected_loss):
            assert outcome.certificate.primal <= other.certificate.primal * (1 + 1e-9)


@pytest.mark.parametrize("name", RIVALS)
def test_clients_without_impact_do_no_harm(name: str) -> None:
    clients = Clients(samples=[5, 0, 3], grad_norm=1.5, cost=[4, 5, 6], value=[0, 100, 9000])
    outcome = solve(Game(clients, bound=BOUND, budget=10), name)
    assert outcome.status is not Status.INFEASIBLE
    if name != "uniform-sampling":
        assert outcome.levels[1] == 0
    nobody = solve(Game(clients, bound=Bound(alpha=0, rounds=10), budget=10), name)
    assert np.isfinite(nobody.prices).all()
    assert nobody.expected_loss == 0


def test_the_prices_of_samplings_are_those_of_their_levels() -> None:
    outcome = solve(drawn(6), "optimal-sampling")
    assert outcome.prices == pytest.approx(price_for(outcome.game, outcome.levels))
