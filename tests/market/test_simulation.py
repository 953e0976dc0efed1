"""The market in one process: what it pays, how it resumes, and that it stays unbiased."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedprice import Game, InputError, solve
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.money import LEVEL_ONE, MICRO, micro_units
from fedprice.market.offers import Offer, chosen_level
from fedprice.market.run import MarketRun
from fedprice.market.simulation import budgeted_terms, simulate_market
from fedprice.market.updates import Update, arrays_hash
from tests.market.markets import (
    ROUNDS,
    TRAINING,
    small_agreement,
    small_federation,
    small_market,
    small_outcome,
)


def chain(ledger: Ledger) -> list[str]:
    return ledger.verify().hashes


def test_everybody_gets_what_was_agreed() -> None:
    """All delivered: payments add up to the budget to the micro-unit."""
    ledger = Ledger("sqlite://")
    small_market(ledger, delivery=1.0)
    run = ledger.verify().runs["run"]
    assert sum(own.paid for own in run.clients.values()) == micro_units(4.0)
    assert all(own.paid == own.payment and own.heads == own.joined for own in run.clients.values())
    assert ledger.balance("treasury") == ledger.balance("escrow:run") == 0
    assert run.clients["dora"].paid < 0


def test_misses_are_recorded_and_not_paid() -> None:
    ledger = Ledger("sqlite://")
    small_market(ledger, delivery=0.6)
    run = ledger.verify().runs["run"]
    assert sum(own.missed for own in run.clients.values()) > 5
    for own in run.clients.values():
        assert own.heads == own.joined + own.missed
        if own.payment > 0:
            kept = (run.rounds - own.missed) / run.rounds
            assert own.paid == pytest.approx(own.payment * kept, abs=run.rounds)
        else:
            assert own.paid == own.payment


@pytest.fixture(scope="module")
def whole() -> Iterator[tuple[np.ndarray, list[str]]]:
    ledger = Ledger("sqlite://")
    history = small_market(ledger)
    yield history.model, chain(ledger)
    ledger.close()


class StoppedError(Exception):
    """Ends a run from its progress report."""


@pytest.mark.parametrize("after", [1, 5, 6, ROUNDS])
def test_a_stopped_run_goes_on_to_the_same_model_and_ledger(
    url: str, whole: tuple[np.ndarray, list[str]], after: int
) -> None:
    federation = small_federation()

    def stop(done: int) -> None:
        if done == after:
            raise StoppedError

    first = Ledger(url)
    with pytest.raises(StoppedError):
        simulate_market(
            federation, small_outcome(federation), ledger=first, run="run", training=TRAINING,
            delivery=0.8, seed=3, threads=1, progress=stop,
        )  # fmt: skip
    assert first.rounds_done("run") == after
    first.close()
    second = Ledger(url)
    history = small_market(second)
    assert chain(second) == whole[1]
    assert np.array_equal(history.model, whole[0])
    again = small_market(second)  # settled: nothing more happens
    assert chain(second) == whole[1]
    assert np.array_equal(again.model, whole[0])
    assert np.array_equal(again.loss, history.loss)
    second.close()


def test_threads_do_not_matter(whole: tuple[np.ndarray, list[str]]) -> None:
    ledger = Ledger("sqlite://")
    assert np.array_equal(small_market(ledger, threads=2).model, whole[0])
    assert chain(ledger) == whole[1]


def test_another_run_of_the_same_name_is_refused() -> None:
    ledger = Ledger("sqlite://")
    small_market(ledger)
    before = chain(ledger)
    with pytest.raises(LedgerError, match="is recorded already, with other content"):
        small_market(ledger, seed=4)
    with pytest.raises(LedgerError, match="is recorded already, with other content"):
        small_market(ledger, delivery=0.9)
    assert chain(ledger)[: len(before)] == before
    small_market(ledger, run="another", seed=4)


def test_the_recorded_weights_are_the_ones_that_were_used() -> None:
    """The largest weight that the engine used in each round is the largest recorded, exactly."""
    ledger = Ledger("sqlite://")
    history = small_market(ledger, delivery=0.6)
    rounds = [e.content["joined"] for e in ledger.entries("run") if e.content["kind"] == "round"]
    recorded = [max(float(weight) for _, weight, _ in own.values()) for own in rounds if own]
    assert recorded == history.largest_weight[history.joined > 0].tolist()
    assert [len(own) for own in rounds] == history.joined.tolist()


def test_what_is_refused_is_recorded_and_not_paid() -> None:
    ledger = Ledger("sqlite://")
    agreement, keys = small_agreement()
    ledger.deposit("treasury", micro_units(4.0), "budget")
    ledger.deposit("client:dora", 20 * MICRO, "own")
    market = MarketRun(ledger, agreement, micro_units(4.0), norm_cap=5.0)
    good = np.full((10, 61), 0.01, np.float32)
    bad = {"nan": good * np.float32(np.nan), "large": good * 1e6, "shape": good.T, "f8": good * 1.0}
    bad["f8"] = bad["f8"].astype(np.float64)
    for number, (kind, update) in enumerate(bad.items()):
        name = "<b>bob</b>"  # at level 1 it always draws heads
        assert name in market.heads()
        content = Update("run", name, number, arrays_hash([update]))
        signed = keys[name].sign(content)
        assert not market.accept(name, signed, [update], learning_rate=0.1, local_steps=4), kind
        market.close_round("0" * 64)
    run = ledger.verify().runs["run"]
    own = run.clients["<b>bob</b>"]
    assert (own.heads, own.joined, own.refused, own.paid) == (4, 0, 4, 0)


def test_delivery_is_learnt_and_keeps_the_sum_unbiased() -> None:
    """At level 1 and delivery 0.6 the weight settles at a / 0.6: within five standard errors."""
    ledger = Ledger("sqlite://")
    federation = small_federation()
    simulate_market(
        federation, small_outcome(federation), ledger=ledger, run="run", delivery=0.6, threads=1,
        training=TRAINING,
    )  # fmt: skip
    market = ledger.verify().runs["run"].clients["<b>bob</b>"]
    estimate = (market.joined + 1) / (market.heads + 1)
    assert abs(estimate - 0.6) < 5 * np.sqrt(0.24 / ROUNDS)


def test_whole_numbers_of_any_outcome() -> None:
    federation = small_federation()
    for budget in (0.3, 1.7, 4.0, 9.123457):
        outcome = small_outcome(federation, budget)
        terms = budgeted_terms(outcome, federation.samples)
        assert sum(own.payment for own in terms) == micro_units(budget)
        for own, level, price in zip(terms, outcome.levels, outcome.prices, strict=True):
            assert own.level / LEVEL_ONE == pytest.approx(level, abs=2**-31)
            assert own.price / MICRO == pytest.approx(price, abs=1e-4)


def test_what_is_no_market() -> None:
    federation = small_federation()
    outcome = small_outcome(federation)
    subset = solve(outcome.game, scheme="subset")
    with pytest.raises(InputError, match="no market"):
        budgeted_terms(subset, federation.samples)
    poor = Game(outcome.game.clients, bound=outcome.game.bound, budget=-1e9)
    with pytest.raises(InputError, match="infeasible"):
        budgeted_terms(solve(poor, scheme="uniform"), federation.samples)


def test_a_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    small_market(ledger)
    ledger.close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE states SET state = x'00'")
    raw.close()
    ledger = Ledger(str(path))
    with pytest.raises(LedgerError, match="the state of run 'run' is damaged"):
        small_market(ledger)
    ledger.close()


def test_a_client_may_choose_less() -> None:
    """Whoever would rather join less than the cap does, and is paid for that."""
    federation = small_federation()
    outcome = small_outcome(federation)
    offers = budgeted_terms(outcome, federation.samples)
    for own, cost, level in zip(offers, outcome.game.clients.cost, outcome.levels, strict=True):
        if own.price > 0:
            offer = Offer("run", "a", own.price, LEVEL_ONE, 5, 0, "EUR", "0" * 64, "0" * 64)
            chosen = chosen_level(offer, cost=2 * cost, value_impact=0.0)
            assert chosen / LEVEL_ONE == pytest.approx(own.price / MICRO / (4 * cost), rel=1e-6)
            assert chosen / LEVEL_ONE < level
