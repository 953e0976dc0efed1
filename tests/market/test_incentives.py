"""Honesty pays: best responses to the payment rule, and what they do to the model, in small.

`make bench-incentives` does the same over the paper's three setups.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.incentives import (
    RULES,
    STRATEGIES,
    deals,
    knowing_stop,
    pay,
    plan,
    respond,
    train,
    without_value,
)
from fedprice import Bound, Clients, Game, Outcome, solve
from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, Training
from fedprice.verify import due

TASK = LogisticRegression(synthetic(num_clients=8, samples=800), Training(local_steps=10))
SHARES_OF_ROUNDS, DELIVERED_SHARE = RULES


def outcome(value: float, budget: float = 8.0) -> Outcome:
    rng = np.random.default_rng(1)
    costs, values = rng.exponential(size=(2, 8)) + 0.1
    clients = Clients(samples=TASK.samples, grad_norm=2, cost=8 * costs, value=value * values)
    return solve(Game(clients, bound=Bound(alpha=3, rounds=300), budget=budget))


@pytest.mark.parametrize(("value", "payers"), [(0.0, 0), (40.0, 0), (3000.0, 2)])
def test_skipping_heads_does_not_pay(value: float, payers: int) -> None:
    """Where tails were paid whoever skipped, it did: 35 of 40 clients of Setup 1 gain by it."""
    priced = outcome(value)
    assert (priced.prices < 0).sum() == payers
    found = respond(priced, draws=40)
    assert min(best["share"] for best in found[DELIVERED_SHARE]) >= 0.95
    if not payers:
        assert np.mean([best["share"] for best in found[SHARES_OF_ROUNDS]]) < 0.6
    # A client that knows its coins skips a few heads at the end, whatever its level.
    skipped = (1 - np.array(found["knowing"])) * priced.levels * 300
    assert skipped.max() < 4


@pytest.mark.parametrize("value", [0.0, 40.0])
def test_strategic_clients_train_the_same_model(value: float) -> None:
    """Every client plays its best response: the loss is within 2 % of the honest run."""
    priced = outcome(value, budget=20.0)
    found = respond(priced, draws=40)
    for seed in range(3):
        losses = train(TASK, priced, found, seed)
        for case in ("delivered share", "delivered share, coins known"):
            assert losses[case] == pytest.approx(losses["honest"], rel=0.02)


@settings(max_examples=30)
@given(
    st.integers(0, 2**32), st.sampled_from(STRATEGIES), st.floats(0, 1), st.floats(0.02, 1),
    st.integers(1, 80),
)  # fmt: skip
def test_the_simulated_pay_is_the_one_of_the_ledger(
    seed: int, strategy: str, share: float, level: float, rounds: int
) -> None:
    heads = np.random.default_rng(seed).random((3, rounds)) < level
    delivered = plan(strategy, share, heads)
    assert not (delivered & ~heads).any()
    payment = 7_000_003
    for drawn, own, found in zip(
        heads, delivered, pay(DELIVERED_SHARE, payment, heads, delivered), strict=True
    ):
        paid = 0
        for done in range(1, rounds + 1):
            counts = int(drawn[:done].sum()), int(own[:done].sum())
            paid += max(0, due(payment, rounds, done, *counts) - paid)
        assert found == pytest.approx(paid, abs=1)


def test_who_knows_its_coins_stops_at_the_best_moment() -> None:
    """Against trying every number of heads, with the pay of the rule itself."""
    for value in (0.0, 40.0):
        for n, deal in enumerate(deals(outcome(value))):
            heads = np.random.default_rng(n).random((1, deal.rounds)) < deal.level
            count, number = int(heads.sum()), np.cumsum(heads, axis=1)
            utilities = []
            for stop in range(count + 1):
                delivered = heads & (number <= stop)
                paid = float(pay(DELIVERED_SHARE, deal.payment, heads, delivered)[0])
                utilities.append(deal.utility(paid, stop, stop / count))
            assert utilities[knowing_stop(deal, heads[0])] == pytest.approx(max(utilities))


def test_money_alone_prices_without_value() -> None:
    assert not without_value(outcome(40.0).game).clients.value.any()


@pytest.mark.parametrize(
    ("level", "rounds", "delivered", "gain"),
    [(0.05, 10, 0.07, 1.51), (0.1, 10, 0.34, 1.31), (0.3, 5, 0.58, 1.13)],
)
def test_short_periods_leave_the_gain_that_the_documentation_states(
    level: float, rounds: int, delivered: float, gain: float
) -> None:
    """Every way to deliver, tried by brute force by a client that knows its coins; 4,000 draws."""
    payment, work = 2 * level**2, level / rounds  # for a cost of 1, at the equilibrium price
    rng = np.random.default_rng(0)

    def profit(heads: list[bool], kept: tuple[int, ...]) -> float:
        paid, drew, came = 0.0, 0, 0
        for done, head in enumerate(heads, start=1):
            came += kept[drew] if head else 0
            drew += head
            paid = max(paid, payment * done / rounds * (came / drew if drew else 1))
        return paid - work * came

    best = honest = number = kept_heads = 0.0
    for _ in range(4000):
        heads = (rng.random(rounds) < level).tolist()
        ways = itertools.product((0, 1), repeat=sum(heads))
        found, own = max((profit(heads, way), sum(way)) for way in ways)
        best, honest = best + found, honest + profit(heads, (1,) * sum(heads))
        kept_heads, number = kept_heads + own, number + sum(heads)
    assert best / honest == pytest.approx(gain, abs=0.03)
    assert kept_heads / number == pytest.approx(delivered, abs=0.03)
