"""Fees that only the bound knows, and what is said about them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from fedprice import Bound, Game, best_response, frontier, population, refusals, solve
from fedprice._plumbing.arrays import FloatArray
from fedprice.commands.warnings import frontier_warnings, price_warnings, scheme_warnings
from fedprice.pricing.doubtful import doubtful_payers
from tests.games import games

FORTY = Game(population(), bound=Bound(alpha=3.3, rounds=1000), budget=200)


def under(budget: float) -> Game:
    return replace(FORTY, budget=budget)


def test_a_million_for_a_level_of_a_millionth() -> None:
    outcome = solve(under(-1e6))
    who, fee, burden = doubtful_payers(outcome)
    assert fee[0] == pytest.approx(1_000_093, abs=1)
    assert outcome.levels[who[0]] < 2e-6
    assert burden[0] < 10
    (line,) = price_warnings(outcome)
    assert "pays 1,000,093 for a level of 1.375e-06" in line
    assert "Raise the budget above 0 and add --outside free" in line
    assert "--max-weight 1" in line


def test_an_ordinary_budget_has_nothing_to_warn_of() -> None:
    assert solve(FORTY).payers == 3
    assert price_warnings(solve(FORTY)) == []
    assert price_warnings(solve(under(1e6))) == []


@given(game=games())
def test_a_fee_is_doubtful_if_it_exceeds_all_that_joining_unpaid_costs(game: Game) -> None:
    outcome = solve(game)
    if outcome.status == "infeasible":
        assert not doubtful_payers(outcome).clients.size
        return
    clients, unpaid = game.clients, best_response(game, 0.0)
    expected = []
    for n in range(len(clients)):
        if outcome.payments[n] < 0:
            costs = clients.cost[n] * unpaid[n] ** game.cost_exponent
            losses = clients.value[n] * game.impact[n] * (1 / unpaid[n] - 1)
            if -outcome.payments[n] > costs + losses:
                expected.append(n)
    assert sorted(doubtful_payers(outcome).clients.tolist()) == expected


@given(game=games())
def test_prices_that_nobody_refuses_are_never_doubtful(game: Game) -> None:
    outcome = solve(game)
    if outcome.status == "infeasible":
        return
    respected = refusals(outcome, "free").respected
    assert price_warnings(respected) == []


def test_the_remedies_that_are_offered_help() -> None:
    small = under(1.0)
    assert price_warnings(solve(small))
    assert price_warnings(refusals(solve(small), "free").respected) == []
    floors = replace(small, clients=small.clients.with_max_weight(1))
    fees = [doubtful_payers(solve(game)).fee.max(initial=0) for game in (small, floors)]
    assert fees[1] < fees[0] / 1.9


def test_floors_are_offered_only_where_they_would_bind() -> None:
    (line,) = price_warnings(solve(under(120)))
    assert line.endswith("Add --outside free, for prices that nobody refuses.")
    (line,) = price_warnings(solve(under(10)))
    assert line.endswith("or set floors with --max-weight 1 or the column level_min.")


def test_a_frontier_has_one_warning_for_all_its_budgets() -> None:
    (line,) = frontier_warnings(frontier(FORTY, [-100, 10, 100, 200]))
    assert line.startswith("losses at budgets up to 100 rely on fees that nobody would pay.")
    assert "--outside" not in line  # which `frontier` does not have
    assert frontier_warnings(frontier(FORTY, [200, 400])) == []


def test_schemes_are_warned_of_by_name() -> None:
    lines = scheme_warnings([solve(FORTY, name) for name in ("equilibrium", "optimal-sampling")])
    assert len(lines) == 1
    assert lines[0].startswith("optimal-sampling: client 14 and 5 more would have to pay")
    assert lines[0].endswith("Raise the budget.")


def test_surpluses_are_what_a_deal_is_worth_over_joining_unpaid() -> None:
    outcome = solve(FORTY)
    assert ((outcome.surpluses < 0) == (outcome.prices < 0)).all()
    assert not solve(FORTY, "contracts").surpluses.any()  # it was -1.44e-15 in total
    sellers = replace(FORTY, clients=replace(FORTY.clients, value=np.zeros(40)))
    paid = solve(sellers)
    assert paid.surpluses == pytest.approx(paid.profits)


@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_surpluses_are_differences_of_utilities_whatever_the_exponent(tau: float) -> None:
    outcome = solve(replace(FORTY, cost_exponent=tau))
    game, clients, unpaid = outcome.game, outcome.game.clients, best_response(outcome.game, 0.0)

    def kept(level: FloatArray) -> FloatArray:
        """What is left to each client at a level, apart from money and others' absences."""
        return -clients.cost * level**tau - clients.value * game.impact / level

    gained = outcome.payments + kept(outcome.levels)
    joins = unpaid > 0  # who values nothing stays away unpaid
    gained[joins] -= kept(np.where(joins, unpaid, 1.0))[joins]
    assert outcome.surpluses == pytest.approx(gained, rel=1e-9, abs=1e-9)
