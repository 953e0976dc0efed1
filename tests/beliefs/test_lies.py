"""What lying gains, against games solved one by one and against the closed form for sellers."""

import time
from dataclasses import replace

import numpy as np
import pytest

from fedprice import (
    Bound,
    Clients,
    Game,
    InputError,
    Outcome,
    Scheme,
    Status,
    best_response,
    manipulability,
    population,
    solve,
    utilities,
)
from fedprice.beliefs.reported_outcomes import equilibria
from tests.games import EXPONENTS, hostile, random_game

FORTY = Game(population(), bound=Bound(alpha=3.3, rounds=1000), budget=200)


def misreported(game: Game, n: int, cost: float, value: float) -> Outcome:
    """What the server makes of one client's report."""
    costs, values = game.clients.cost.copy(), game.clients.value.copy()
    costs[n], values[n] = cost, value
    return solve(replace(game, clients=replace(game.clients, cost=costs, value=values)))


def worth(game: Game, n: int, cost: float, value: float, *, committed: bool = True) -> float:
    """The true utility that a report brings; −inf if nothing can be bought at it."""
    priced = misreported(game, n, cost, value)
    if priced.status is Status.INFEASIBLE:
        return -np.inf
    levels = priced.levels.copy()
    if not committed:
        levels[n] = best_response(game, priced.prices)[n]
    return float(utilities(game, levels, priced.prices)[n])


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_many_games_at_once_are_the_games_one_by_one(exponent: float) -> None:
    seen = set()
    for seed in range(60):
        game = random_game(seed, exponent)
        clients, rng = game.clients, np.random.default_rng(seed)
        cost = clients.cost * 5 ** rng.uniform(-1, 1, (6, len(clients)))
        value = clients.value * rng.random((6, len(clients)))
        levels, feasible = equilibria(game, cost, value, solve(game).reciprocal)
        for row in range(6):
            reported = replace(clients, cost=cost[row], value=value[row])
            best = solve(replace(game, clients=reported))
            seen.add(best.status)
            assert feasible[row] == (best.status is not Status.INFEASIBLE), (seed, row)
            assert levels[row] == pytest.approx(best.levels, rel=1e-9), (seed, row)
    assert seen == {Status.OPTIMAL, Status.SLACK, Status.INFEASIBLE}


def test_numbers_far_apart() -> None:
    """Where the multiplier comes so close to a value that their difference would be lost, too."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        clients = Clients(
            samples=hostile(rng, 5),
            grad_norm=hostile(rng, 5) ** 0.3,
            cost=hostile(rng, 5),
            value=hostile(rng, 5) * (rng.random(5) < 0.7),
            level_min=rng.choice([0, 0.01], 5),
        )
        game = Game(clients, Bound(alpha=1, rounds=100), budget=float(rng.choice([-1, 1, 100])))
        truth = solve(game)
        alone = (clients.cost[None], clients.value[None])
        for start in (truth.reciprocal, (0.0, 5.0)):
            levels, feasible = equilibria(game, *alone, start)
            assert levels[0] == pytest.approx(truth.levels, rel=1e-6), seed
            assert feasible[0] == (truth.status is not Status.INFEASIBLE), seed
        if feasible[0]:
            assert (manipulability(game).gain >= 0).all(), seed


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("exponent", [1.5, 2.0, 3.0])
def test_no_report_beats_the_best_one(exponent: float, committed: bool) -> None:
    checked = 0
    for seed in range(8):
        game = random_game(seed, exponent)
        truth, rng = solve(game), np.random.default_rng(seed)
        if truth.status is Status.INFEASIBLE:
            continue
        lies = manipulability(game, 3, committed=committed)
        for n in range(len(game.clients)):
            c, v = game.clients.cost[n], game.clients.value[n]
            best = worth(game, n, lies.cost[n], lies.value[n], committed=committed)
            size = abs(truth.utilities[n]) + abs(truth.profits[n])
            assert lies.gain[n] == pytest.approx(best - truth.utilities[n], abs=1e-8 * size)
            assert c / 3 * (1 - 1e-12) <= lies.cost[n] <= c * 3 * (1 + 1e-12)
            assert 0 <= lies.value[n] <= v
            for power, share in (*rng.uniform((-1, 0), 1, (12, 2)), (1, 0), (-1, 1), (1, 1)):
                rival = worth(game, n, c * 3**power, v * share, committed=committed)
                assert rival <= best + 2e-3 * lies.gain[n] + 1e-8 * size, (seed, n)
                checked += 1
    assert checked > 200


@pytest.mark.parametrize("exponent", [1.5, 2.0, 3.0])
def test_a_seller_gains_what_the_closed_form_says(exponent: float) -> None:
    """The closed form holds at a fixed multiplier, which one of N clients moves by O(1/N)."""
    rho, tau = 2.0, exponent
    limit = (tau * rho ** (1 / (tau + 1)) - rho ** (-tau / (tau + 1))) / (tau - 1) - 1
    if tau == 2:
        assert limit == pytest.approx(0.890, abs=5e-4)
    errors = []
    for count in (12, 48, 192):
        clients = Clients(samples=np.ones(count), grad_norm=1, cost=50, value=0)
        game = Game(clients, Bound(alpha=3.3, rounds=1000), budget=count, cost_exponent=tau)
        lies = manipulability(game, rho)
        assert lies.cost == pytest.approx(100)
        assert np.ptp(lies.relative_gain) < 1e-9
        errors.append(lies.relative_gain[0] - limit)
    assert errors[1] / errors[0] == pytest.approx(1 / 4, rel=0.1)
    assert errors[2] / errors[1] == pytest.approx(1 / 4, rel=0.1)


def test_forty_clients() -> None:
    manipulability(FORTY)
    begun = time.thread_time()
    lies = manipulability(FORTY, factor=2)
    assert time.thread_time() - begun < 1
    summary = lies.summary()
    assert summary["share_gaining"] == 1
    assert summary["median_relative_gain"] == pytest.approx(1.51, abs=0.01)
    assert summary["high_relative_gain"] == pytest.approx(3.03, abs=0.01)
    assert summary["largest_relative_gain"] == pytest.approx(8.22, abs=0.01)
    assert summary["largest_gain"] == pytest.approx(0.12 * 200, abs=1)
    assert summary["mean_loss_increase"] == pytest.approx(0.019, abs=1e-3)
    assert summary["largest_loss_increase"] == pytest.approx(0.125, abs=1e-3)
    assert summary["everybody_loss_increase"] == pytest.approx(1.0, abs=0.01)
    assert summary["everybody_share_gaining"] == 0
    assert (lies.value == 0).all()
    assert lies.cost == pytest.approx(2 * FORTY.clients.cost, rel=0.5)


@pytest.mark.parametrize("committed", [True, False])
def test_what_the_liar_gets_comes_from_the_others_or_the_server(committed: bool) -> None:
    lies = manipulability(FORTY, committed=committed)
    truth, clients = lies.truth, FORTY.clients
    for n in (0, 7, 37):
        priced = misreported(FORTY, n, lies.cost[n], lies.value[n])
        others = np.delete(priced.payments - truth.payments, n).sum()
        assert lies.others_payment[n] == pytest.approx(others, rel=1e-6)
        if committed:
            assert lies.expected_loss[n] == pytest.approx(priced.expected_loss)
    more = lies.payments - truth.payments
    assert more == pytest.approx(lies.overspend - lies.others_payment)
    assert (lies.overspend == 0).all() if committed else (lies.overspend > 0).all()
    saved = clients.cost * (truth.levels**2 - lies.levels**2)
    harm = clients.value * (lies.expected_loss - truth.expected_loss)
    assert lies.gain == pytest.approx(more + saved - harm)


def test_everybody_lies() -> None:
    lies = manipulability(FORTY)
    reported = replace(FORTY.clients, cost=lies.cost, value=lies.value)
    together = solve(replace(FORTY, clients=reported))
    assert lies.everybody.expected_loss == pytest.approx(together.expected_loss)
    assert lies.everybody.game is FORTY
    assert lies.everybody.spend == pytest.approx(200)
    # All of them hide their values and double their costs: the loss doubles.
    doubled = replace(FORTY.clients, cost=2 * FORTY.clients.cost, value=np.zeros(40))
    ratio = solve(replace(FORTY, clients=doubled)).expected_loss / lies.truth.expected_loss
    assert ratio == pytest.approx(2.01, abs=0.01)
    free = manipulability(FORTY, committed=False).everybody
    assert (free.levels == best_response(FORTY, free.prices)).all()
    assert free.status is Status.INFEASIBLE  # the price that a lie brings is paid more often


def test_who_is_not_bought_gains_nothing() -> None:
    clients = Clients(
        samples=[0, 5, 5], grad_norm=1, cost=[4, 5, 6], value=[9, 0, 9], level_min=[0, 0, 0.01]
    )
    game = Game(clients, bound=Bound(alpha=3, rounds=10), budget=1)
    for committed in (True, False):
        lies = manipulability(game, committed=committed)
        assert lies.gain[0] == lies.relative_gain[0] == lies.overspend[0] == 0
        assert (lies.cost[0], lies.value[0]) == (4, 9)
        assert (lies.gain[1:] > 0).all()


def test_a_report_that_nothing_can_meet_is_not_the_best() -> None:
    clients = Clients(samples=[1, 1], grad_norm=1, cost=10, value=0, level_min=0.3)
    game = Game(clients, bound=Bound(alpha=3, rounds=10), budget=2 * 20 * 0.3**2 * 1.2)
    lies = manipulability(game)
    assert (lies.gain > 0).all()
    assert (lies.cost < 19).all()
    assert lies.cost == pytest.approx(14, rel=0.01)  # what both floors leave of the budget
    assert lies.everybody.status is Status.INFEASIBLE


def test_a_table_and_a_figure() -> None:
    lies = manipulability(FORTY)
    frame = lies.to_frame()
    assert frame.height == 40
    assert frame["gain"].to_list() == lies.gain.tolist()
    assert lies.to_pandas()["report_cost"].tolist() == lies.cost.tolist()
    assert len(lies.plot().axes) == 3
    assert manipulability(FORTY, committed=False).plot().axes
    one = Clients(samples=[1], grad_norm=1, cost=1, value=0)
    assert manipulability(Game(one, Bound(alpha=1, rounds=10), budget=99)).plot().axes


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (1, "`factor` must be a finite number above 1; got 1"),
        (np.nan, "above 1; got nan"),
        (np.inf, "above 1; got inf"),
        ("2", "`factor` must be a number; got '2'"),
    ],
)
def test_bad_factors(factor: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        manipulability(FORTY, factor)


def test_an_infeasible_game_is_refused() -> None:
    game = Game(replace(FORTY.clients, level_min=np.full(40, 0.9)), FORTY.bound, budget=1)
    with pytest.raises(InputError, match=r"need a budget of .*; got 1\. Raise the budget"):
        manipulability(game)


def test_reports_that_overflow_raise_no_warning() -> None:
    two = Clients(samples=[569, 550], grad_norm=[4.0, 2e150], cost=[0.03, 1e300], value=7e3)
    game = Game(two, bound=Bound(alpha=3.3, rounds=100), budget=60)
    assert np.isfinite(manipulability(game, 1e300).cost).all()


@pytest.mark.parametrize("committed", [True, False])
def test_a_scheme_asked_report_by_report_is_the_equilibrium_asked_at_once(committed: bool) -> None:
    game = Game(population(6), bound=FORTY.bound, budget=40)
    once = manipulability(game, committed=committed)
    each = manipulability(game, committed=committed, scheme=Scheme("same", solve))
    for name in ("cost", "value", "levels", "payments", "expected_loss"):
        assert getattr(each, name) == pytest.approx(getattr(once, name), rel=1e-6), name
    assert each.gain == pytest.approx(once.gain, abs=1e-6)
    assert each.everybody.levels == pytest.approx(once.everybody.levels, rel=1e-6)


@pytest.mark.parametrize("valued", [True, False])
def test_nobody_gains_where_payments_are_thresholds(valued: bool) -> None:
    clients = FORTY.clients if valued else replace(FORTY.clients, value=np.zeros(40))
    game = replace(FORTY, clients=clients)
    for name in ("proportional-share", "reputation-auction"):
        assert manipulability(game, scheme=name).gain.max() == 0, name


@pytest.mark.filterwarnings("error")
def test_gains_over_no_surplus_are_infinite_not_undefined() -> None:
    """Who is paid its cost has no surplus, and gains by stating a higher one."""
    summary = manipulability(FORTY, 2.0, scheme="at-cost").summary()
    assert summary["high_relative_gain"] == np.inf
    assert summary["largest_gain"] > 0


def test_first_price_and_contracts_leave_much_to_gain() -> None:
    for name in ("multidimensional-auction", "contracts"):
        assert manipulability(FORTY, scheme=name).gain.max() > 20, name


def test_losers_of_an_auction_join_by_their_true_type() -> None:
    """A liar that loses is not held to the level that a client of its report would join at."""
    found = manipulability(FORTY, scheme="multidimensional-auction")
    together = found.everybody
    assert together.levels[together.levels < 1] == pytest.approx(
        best_response(FORTY, 0.0)[together.levels < 1]
    )


def test_a_scheme_that_leaves_clients_out_has_no_finite_utility_to_lie_for() -> None:
    clients = replace(FORTY.clients, value=np.where(np.arange(40) < 20, 0.0, 4000.0))
    with pytest.raises(InputError, match=r"leaves out .* clients, so the loss is infinite"):
        manipulability(replace(FORTY, clients=clients), scheme="proportional-share")
