"""Markets under beliefs: what was promised before anybody answered, against what was paid."""

import numpy as np
import pytest

import fedprice as fp
from fedprice import Beliefs, Bound, Clients, Task
from fedprice.market.ledger import Ledger
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.simulation import simulate_market
from fedprice.market.tariffs import Tariff
from fedprice.tariff import Tariffs

RUNS, ROUNDS = 200, 1000  # of which only the first one is trained
SAMPLES = [120, 900, 300, 450]
GOALS = np.linspace(-1, 1, len(SAMPLES))
CLIENTS = Clients(samples=SAMPLES, grad_norm=[1.2, 0.8, 1.0, 1.5], value=300.0)
BOUND = Bound(alpha=0.5 * ROUNDS, rounds=ROUNDS)
BELIEFS = Beliefs.exponential(cost=40, value=300, cells=16)
COSTS = Beliefs.exponential(cost=40, value=0, cells=64)  # where values are known
BUDGET = 12.0


def tiny_task() -> Task:
    return Task.of(
        initial=[np.zeros(1)],
        samples=SAMPLES,
        update=lambda model, client, *_: [0.1 * (GOALS[client] - model[0])],
        evaluate=lambda _: {"loss": 0.0},
        name="tiny",
    )


def spends(posted: fp.Posted, runs: int, *, sequential: bool = False) -> np.ndarray:
    """What markets pay whose clients have types that are drawn from the beliefs."""
    ledger, task, rng = Ledger("sqlite://"), tiny_task(), np.random.default_rng(1)
    found, turns = [], posted.sequential() if sequential else None
    for n in range(runs):
        cost, value = posted.beliefs.draw(CLIENTS, rng)
        if posted.form == "menu":
            value = CLIENTS.value
        if turns is not None:
            outcome = turns.answer(cost=cost, value=value)
            tariffs = Tariffs.flat(outcome.prices, CLIENTS.level_max)
        else:
            tariffs = posted.tariffs
            outcome = posted.answers(posted.game(cost, value), tariffs)
        wants = value * outcome.game.impact
        simulate_market(task, outcome, ledger=ledger, run=f"{n}", tariffs=tariffs, seed=n, rounds=1)
        clients = ledger.run(f"{n}").clients
        levels = np.array([own.level / LEVEL_ONE for own in clients.values()])
        gains = [tariffs.payments(q) - cost * q**2 - wants / q for q in (levels, outcome.levels)]
        assert gains[0] == pytest.approx(gains[1], abs=3e-3)  # money knows nothing smaller
        found.append(ROUNDS * sum(own.payment for own in clients.values()) / MICRO)
        assert found[-1] == pytest.approx(tariffs.payments(levels).sum(), abs=1e-5 * ROUNDS)
    assert not ledger.verify().unsigned
    return np.array(found)


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("form", "runs"),
    [
        ("price", 50),
        *((form, 25) for form in ("blocks", "tariff", "menu")),
        *((form, RUNS) for form in ("price", "blocks", "tariff", "menu")),
    ],
)
def test_what_is_paid_is_what_was_promised(form: str, runs: int) -> None:
    """Over whole markets, with hidden types that are drawn from the beliefs."""
    beliefs = COSTS if form == "menu" else BELIEFS
    posted = fp.post(CLIENTS, beliefs, bound=BOUND, budget=BUDGET, form=form)
    paid = spends(posted, runs)
    assert abs(paid.mean() - posted.expected_spend) < 4 * posted.spend_std / np.sqrt(runs)
    assert paid.std() == pytest.approx(posted.spend_std, rel=0.25 if runs == RUNS else 0.6)
    over, often = posted.over_budget, float(np.mean(paid > BUDGET))
    # The sum of four clients' payments is not quite normal, hence the last term.
    assert abs(often - over) < 4 * np.sqrt(over * (1 - over) / runs) + 0.05


@pytest.mark.slow
def test_in_turn_the_budget_is_never_exceeded() -> None:
    posted = fp.post(CLIENTS, BELIEFS, bound=BOUND, budget=BUDGET)
    paid = spends(posted, RUNS, sequential=True)
    # Of a run of which one round is played, money knows nothing smaller than a micro-unit.
    assert paid.max() <= BUDGET + ROUNDS / MICRO + 1e-5
    turns = posted.sequential()  # whose expectation is itself an estimate, from 400 draws
    error = turns.spend_std * np.sqrt(1 / RUNS + 1 / 400)
    assert abs(paid.mean() - turns.expected_spend) < 4 * error


def test_a_tariff_of_many_blocks_is_told_in_short() -> None:
    ends = [LEVEL_ONE * n // 128 for n in range(1, 129)]
    menu = Tariff(tuple((end, MICRO) for end in ends), menu=True)
    assert str(menu) == (
        "a choice of 0.007812 for level 0.007812, 0.015625 for level 0.015625, … 1.000000 for "
        "level 1.000000 (128 levels)"
    )
