"""Tests for `fedprice.beliefs.spending`: how the spend is distributed."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

import fedprice as fp
from fedprice.beliefs import spending
from fedprice.beliefs.spending import NormalSpend, Sums

if TYPE_CHECKING:
    from fedprice.beliefs.posted import Posted

BOUND = fp.Bound(alpha=3.3, rounds=1000)
TWO_POINTS = fp.Beliefs(cost=[2, 200], value=0, weight=[0.9, 0.1])


def enumerated(posted: Posted) -> tuple[np.ndarray, np.ndarray]:
    """Return every possible spend and its probability, over all types of all clients."""
    types, own = posted.beliefs.groups(posted.clients)
    parts = []
    for n, k in enumerate(posted.impact):
        one = types[own[n]]
        value = (
            np.full_like(one.cost, posted.clients.value[n]) if posted.form == "menu" else one.value
        )
        offer = posted.tariffs.of([n])
        levels = offer.best_levels(one.cost[None], value[None] * k, posted.cost_exponent)
        parts.append(list(zip(offer.payments(levels)[0], one.weight, strict=True)))
    rows = [(sum(x for x, _ in one), np.prod([w for _, w in one])) for one in product(*parts)]
    sums, chances = np.array(rows).T
    return sums, chances


@pytest.mark.parametrize("exact", [True, False])
def test_the_distribution_of_a_sum_is_that_of_enumeration(
    exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    paid, weight = rng.normal(0, 10, (6, 4)), rng.dirichlet(np.ones(4), 6)
    sums = np.array([sum(one) for one in product(*paid)])
    chances = np.array([np.prod(one) for one in product(*weight)])
    if not exact:
        monkeypatch.setattr(spending, "EXACT", 4)
    found = Sums.of(list(zip(paid, weight, strict=True)))
    slack = 0.0 if exact else 6 * float(found.sums[1] - found.sums[0])
    for at in rng.uniform(sums.min() - 1, sums.max() + 1, 50):
        least, most = chances[sums > at + slack].sum(), chances[sums > at - slack].sum()
        assert least - 1e-12 <= found.above(at) <= most + 1e-12
    assert found.above(sums.max() + 1) == 0
    assert found.above(sums.min() - 1) == 1


@pytest.mark.parametrize("exact", [True, False])
def test_many_equal_coins_are_binomial(exact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    coin = np.array([0.0, 1.0]), np.array([0.7, 0.3])
    if not exact:
        monkeypatch.setattr(spending, "EXACT", 2)
    found = Sums.of([coin] * 200)
    for heads in (40, 60, 61, 80):
        # Halfway between two sums, where splitting payments does no harm.
        wanted = stats.binom.sf(heads, 200, 0.3)
        assert found.above(heads + 0.5) == pytest.approx(wanted, abs=1e-9)
    assert found.quantile(0.05) == pytest.approx(stats.binom.ppf(0.95, 200, 0.3), abs=0.2)


def test_a_sum_that_is_certain_exceeds_only_what_is_less() -> None:
    sure = Sums.of([(np.array([2.0]), np.ones(1)), (np.array([3.0, 3.0]), np.full(2, 0.5))])
    assert sure.above(5) == 0
    assert sure.above(5 * (1 - 1e-12)) == 0
    assert sure.above(4.9) == 1
    assert sure.quantile(0.05) == 5
    assert NormalSpend(5.0, 0.0).above(5) == 0
    assert NormalSpend(5.0, 2.0).above(NormalSpend(5.0, 2.0).quantile(0.05)) == pytest.approx(0.05)


@pytest.mark.parametrize("form", ["price", "blocks", "tariff", "menu"])
def test_the_probability_over_the_budget_is_that_of_enumeration(form: str) -> None:
    """The normal distribution says 50 % in all of these cases."""
    clients = fp.population(4)
    posted = fp.post(clients, TWO_POINTS, bound=BOUND, budget=3, form=form)
    sums, chances = enumerated(posted)
    assert posted.over_budget == pytest.approx(chances[sums > 3].sum(), abs=1e-6)
    assert abs(posted.over_budget - 0.5) > 0.1


@pytest.mark.parametrize("count", [1, 5, 40])
@pytest.mark.parametrize("budget", [1.0, 10.0, 200.0])
def test_a_risk_with_two_types_is_not_far_too_cautious(count: int, budget: float) -> None:
    """By the normal distribution the largest spend of five clients was 13 % below the budget."""
    posted = fp.post(fp.population(count), TWO_POINTS, bound=BOUND, budget=budget, risk=0.05)
    assert posted.over_budget <= 0.05
    if count == 40:
        assert posted.over_budget > 0.045
    else:
        sums, _ = enumerated(posted)
        assert budget * 0.998 < sums.max() <= budget * (1 + 1e-9)


def test_a_risk_that_is_no_constraint_leaves_the_budget_as_it_is() -> None:
    clients = fp.population(3)
    sure = fp.Beliefs(cost=50, value=0)
    posted = fp.post(clients, sure, bound=BOUND, budget=20, risk=0.05)
    assert posted.expected_spend == pytest.approx(20)
    assert posted.planned == 20
    assert posted.over_budget == 0


def test_with_one_type_the_spend_is_certain() -> None:
    """The spend was 200 ± 0.0002, and said to exceed the budget in half of all cases."""
    posted = fp.post(fp.population(), fp.Beliefs(cost=50, value=4000), bound=BOUND, budget=200)
    assert posted.spend_std == 0
    assert posted.over_budget == 0
