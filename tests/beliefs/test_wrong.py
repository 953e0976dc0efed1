"""What offers yield where clients are not as believed."""

from __future__ import annotations

import numpy as np
import pytest

import fedprice as fp
from fedprice.beliefs.if_wrong import under

BOUND = fp.Bound(alpha=3.3, rounds=1000)
GUESS = fp.Beliefs.exponential(cost=50, value=4000, cells=8)


@pytest.mark.parametrize("form", ["price", "blocks", "menu"])
def test_beliefs_that_are_right_yield_what_was_expected(form: str) -> None:
    clients = fp.population(6)
    beliefs = fp.Beliefs.exponential(cost=50, value=0, cells=8) if form == "menu" else GUESS
    posted = fp.post(clients, beliefs, bound=BOUND, budget=30, form=form)
    same = under(posted, beliefs)
    for found, expected in zip(same.moments, posted.moments, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert same.over_budget == pytest.approx(posted.over_budget, abs=1e-9)


def test_costs_that_were_guessed_too_low_lower_the_spend_and_raise_the_loss() -> None:
    posted = fp.post(fp.population(6), GUESS, bound=BOUND, budget=30)
    low, high = (under(posted, GUESS.with_costs_times(factor)) for factor in (0.5, 2.0))
    assert low.expected_spend > posted.expected_spend > high.expected_spend
    assert low.expected_loss < posted.expected_loss < high.expected_loss
    assert low.over_budget > posted.over_budget > high.over_budget
