"""Tests for `fedprice.beliefs.from_others`: tariffs from what the other clients reported or did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedprice as fp
from fedprice.beliefs.evidence import Evidence
from fedprice.beliefs.from_others import _stacked
from fedprice.tariff import Tariffs

BOUND = fp.Bound(alpha=3.3, rounds=1000)


@pytest.mark.first_case
@pytest.mark.parametrize(("seed", "form", "budget"), [(6, "blocks", 100.0), (0, "tariff", 300.0)])
def test_one_problem_in_which_one_price_is_best_stops_the_others(
    seed: int, form: str, budget: float
) -> None:
    """One of the three problems has one price, the others a tariff: numpy could not stack them."""
    clients = fp.population(3, seed=seed)
    posted = fp.post_from_others(clients, bound=BOUND, budget=budget, form=form)
    assert len(posted.tariffs) == 3
    # What is expected of each client is what its tariff brings over the others' types.
    types, own = posted.beliefs.groups(clients)
    for n, k in enumerate(posted.impact):
        one, offer = types[own[n]], posted.tariffs.of([n])
        levels = offer.best_levels(one.cost[None], one.value[None] * k, 2.0)
        paid = float(offer.payments(levels)[0] @ one.weight)
        assert paid == pytest.approx(posted.moments.spend[n], rel=0.03)
        assert (k / levels[0]) @ one.weight == pytest.approx(posted.moments.loss[n], rel=0.03)


@pytest.mark.parametrize("form", ["price", "blocks", "menu"])
def test_no_deed_moves_its_own_tariff(form: str) -> None:
    """With few clients, through the budget that they share it was moved by several per cent."""
    clients = fp.population(4)
    prior = fp.Beliefs.exponential(cost=50, value=4000, cells=8)
    first = fp.post(clients, prior, bound=BOUND, budget=40, form=form)

    def posted(heads: int) -> fp.Posted:
        coins = np.array([heads, 20, 30, 10])
        seen = Evidence.none(clients, prior).coins(first, heads=coins, rounds=50)
        return seen.post(bound=BOUND, budget=40, form=form)

    dear, cheap = posted(2), posted(50)
    np.testing.assert_array_equal(dear.tariffs.prices[0], cheap.tariffs.prices[0])
    np.testing.assert_array_equal(dear.tariffs.ends[0], cheap.tariffs.ends[0])
    assert (dear.tariffs.prices[1:] != cheap.tariffs.prices[1:]).any()
    assert dear.separate
    assert dear.expected_spend == pytest.approx(40, rel=0.25)  # four problems, four budgets


def test_without_evidence_the_tariffs_are_those_of_the_prior() -> None:
    clients = fp.population(4)
    prior = fp.Beliefs.exponential(cost=50, value=4000, cells=8)
    nothing = Evidence.none(clients, prior).post(bound=BOUND, budget=40)
    wanted = fp.post(clients, prior, bound=BOUND, budget=40)
    np.testing.assert_allclose(nothing.prices, wanted.prices, rtol=1e-6)
    liar = replace(clients, cost=clients.cost * 3)  # costs and values are not used
    again = Evidence.none(liar, prior).post(bound=BOUND, budget=40)
    np.testing.assert_array_equal(again.prices, nothing.prices)


@pytest.mark.parametrize("menu", [False, True])
def test_a_shorter_tariff_keeps_its_payments_and_the_price_at_its_end(menu: bool) -> None:
    """Tables show the price of every block, also of those that only fill a row."""
    short = Tariffs(np.array([[0.4, 0.9]]), np.array([[8.0, 2.0]]), menu)
    long = Tariffs(np.array([[0.2, 0.4, 0.6, 0.8, 1.0]]), np.array([[5.0, 4, 3, 2, 1]]), menu)
    both = _stacked([short, long])
    assert both.prices[0].tolist() == [8.0, 2.0, 2.0, 2.0, 2.0]
    assert both.ends[0, [0, -1]].tolist() == [0.4, 0.9]
    assert both.of([0]).payments(both.ends[:1]) == pytest.approx(short.payments(both.ends[:1]))
    assert both.of([1]).prices.tolist() == long.prices.tolist()
