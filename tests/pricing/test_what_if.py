"""What changes if a client haggles, and at which costs its offer would stand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given

import fedprice as fp
from fedprice.commands.what_if import REOPEN, parse_changes, what_if, with_changes
from fedprice.errors import InfeasibleError
from fedprice.game import profit_at
from tests.games import games

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.clients import Clients
    from fedprice.pricing import Outcome

BOUND = fp.Bound(alpha=3.3, rounds=1000)
TEAM = fp.Clients(
    samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0], cost=[40, 55, 20], value=0,
    ids=["Ashford", "St. Anna", "C=3"],
)  # fmt: skip


def pricing(budget: float = 20.0, scheme: str = "equilibrium") -> Callable[[Clients], Outcome]:
    return lambda clients: fp.solve(fp.Game(clients, bound=BOUND, budget=budget), scheme)


def test_the_offers_of_a_what_if_are_those_of_the_changed_table() -> None:
    answer = what_if(TEAM, {"St. Anna": {"cost": 70}, "C=3": {"samples": 90}}, pricing())
    changed = fp.Clients(
        samples=[120, 900, 90], grad_norm=[1.2, 0.8, 2.0], cost=[40, 70, 20], value=0
    )
    assert answer.after.prices == pytest.approx(pricing()(changed).prices, rel=1e-12)
    assert answer.before.prices == pytest.approx(pricing()(TEAM).prices, rel=1e-12)
    assert answer.rows.tolist() == [1, 2]
    frame = answer.to_frame()
    assert frame["payment_if"].to_list() == answer.after.payments.tolist()
    assert frame["changed"].to_list() == [False, True, True]
    assert answer.order(0).tolist() == [1, 2]
    assert answer.order().tolist() == [1, 2, 0]


def test_the_highest_cost_of_a_seller_is_its_payment_over_its_level_squared() -> None:
    answer = what_if(TEAM, {"Ashford": {"cost": 60}}, pricing())
    assert answer.highest == pytest.approx([80.0], rel=1e-6)  # τ times its cost
    contract = what_if(TEAM, {"Ashford": {"cost": 60}}, pricing(scheme="contracts"))
    assert contract.highest == pytest.approx([40.0], rel=1e-6)
    assert np.isnan(contract.kept[0])  # who sells by contract chooses no level


@given(game=games(floors=False, caps=False))
def test_an_offer_stands_between_two_costs_and_nowhere_else(game: fp.Game) -> None:
    """The client's side against utilities on a grid, the server's side against new prices."""
    game = replace(game, budget=abs(game.budget))
    answer = what_if(
        game.clients, {"1": {"cost": 1.0}}, lambda clients: fp.solve(replace(game, clients=clients))
    )
    before, tau = answer.before, game.cost_exponent
    cost, vk = float(game.clients.cost[0]), float(game.clients.value[0] * game.impact[0])
    grid = cost * np.geomspace(0.02, 50, 61)
    levels = np.geomspace(1e-6, 1, 4001)
    with np.errstate(divide="ignore"):
        unpaid = np.array([(-c * levels**tau - vk / levels).max() for c in grid])
    kept = profit_at(before.levels[0], before.prices[0], grid, tau) - vk / before.levels[0]
    accepts = kept >= unpaid if vk else kept >= 0
    renewed = [
        fp.solve(replace(game, clients=with_changes(game.clients, {"1": {"cost": float(c)}})))
        for c in grid
    ]
    keeps = [one.expected_loss >= (1 - REOPEN) * before.expected_loss for one in renewed]
    stands = accepts & np.array(keeps)
    low, high = answer.lowest[0], answer.highest[0]
    if np.isnan(low):
        assert before.payments[0] < 1e-6
        return
    clear = (np.abs(np.log(grid / max(low, 1e-300))) > 0.02) & (np.abs(np.log(high / grid)) > 0.02)
    assert (stands == ((low <= grid) & (grid <= high)))[clear].all()


def test_a_payer_would_rather_join_unpaid_at_any_cost() -> None:
    team = replace(TEAM, value=np.array([0.0, 0.0, 20_000.0]))
    answer = what_if(team, {"C=3": {"cost": 25}}, pricing())
    assert answer.before.payments[2] < 0
    assert np.isnan([answer.lowest[0], answer.highest[0]]).all()
    assert "stands at no cost: C=3 would rather join unpaid" in answer.sentences()[0]


def test_in_words() -> None:
    first, second = what_if(TEAM, {"Ashford": {"cost": 60}}, pricing()).sentences("EUR")
    assert first == (
        "Ashford, if held to its level of 0.1499 for 1.797 EUR, keeps joining up to a cost of "
        "80 EUR: above that, Ashford would rather not join. At a cost below 34.6 EUR, new offers "
        "to everybody would lower the loss by more than 1%."
    )
    assert second == (
        "Free to choose at its price as it is, Ashford would then choose a level of 0.09992, for "
        "1.198 EUR."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ashford", "must name a client and what changes, such as 'Ashford cost=6000'"),
        ("cost=6000", "must name a client and what changes"),
        ("", "must name a client"),
        ("Ashford cost=", "must name a client"),
        ("Ashford cost=6k", "cost of client 'Ashford': '6k' is not a number. Write it like"),
        ("Ashford cost=6 cost=7", "has 'cost' of client 'Ashford' twice"),
        ("Ashfort cost=6", "there is no client 'Ashfort'. Did you mean 'Ashford'?"),
        ("Ashford costs=6", "a what-if cannot change 'costs'. Did you mean 'cost'?"),
        ("Ashford cost=-1", "`cost` must be a finite number above 0; got -1"),
        ("Ashford cost=nan", "'nan' is not a number"),
        ("Ashford level_max=2", "`level_max`"),
    ],
)
def test_changes_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(fp.InputError) as error:
        with_changes(TEAM, parse_changes([text]))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_names_with_spaces_and_equal_signs() -> None:
    changes = parse_changes(["St. Anna cost=7 value=3", " C=3 level_min=0.1", "St. Anna samples=4"])
    assert changes == {
        "St. Anna": {"cost": 7, "value": 3, "samples": 4},
        "C=3": {"level_min": 0.1},
    }


def test_shares_have_no_samples_to_change() -> None:
    shares = fp.Clients(weight=[0.4, 0.6], grad_norm=1, cost=1, value=0)
    with pytest.raises(fp.InputError, match="the table has weights"):
        with_changes(shares, {"1": {"samples": 3}})
    with pytest.raises(InfeasibleError):
        what_if(TEAM, {"C=3": {"level_min": 1}}, pricing(5.0))
