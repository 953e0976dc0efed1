"""The market in one process: what it pays, how it resumes, and that it stays unbiased."""

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedprice import SCHEMES, Clients, Game, InputError, Scheme, solve
from fedprice._plumbing.rows import CHUNK
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.messages import SigningKey
from fedprice.market.money import LEVEL_ONE, MICRO, level_units, micro_units
from fedprice.market.offers import Offer, chosen_level
from fedprice.market.run import MarketRun
from fedprice.market.simulation import simulate_market
from fedprice.market.terms import budgeted_tariffs, least_levels
from fedprice.market.updates import Update, arrays_hash
from fedprice.pricing.subset import subset
from trials.markets import (
    NAMES,
    ROUNDS,
    conditions,
    small_agreement,
    small_federation,
    small_market,
    small_outcome,
    small_task,
)

IDENTITY = "ab" * 32  # so that ledgers can be compared


def chain(ledger: Ledger) -> list[str]:
    return ledger.verify().hashes


def test_everybody_gets_what_was_agreed() -> None:
    """All delivered: agreed payments add up to the budget, and are paid to one update."""
    ledger = Ledger("sqlite://", identity=IDENTITY)
    small_market(ledger, delivery=1.0)
    run = ledger.verify().runs["run"]
    assert sum(own.payment for own in run.clients.values()) == micro_units(4.0)
    for own in run.clients.values():
        heads = own.level * ROUNDS / LEVEL_ONE
        assert own.heads == own.joined
        assert abs(own.heads - heads) < 1
        if own.payment > 0:
            assert own.paid == int(own.payment * own.joined / heads)
    assert ledger.balance("escrow:run") == 0
    assert run.clients["dora-dorothea"].paid < 0


def test_misses_are_recorded_and_not_paid() -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    small_market(ledger, delivery=0.6)
    run = ledger.verify().runs["run"]
    assert sum(own.missed for own in run.clients.values()) > 5
    for own in run.clients.values():
        assert own.heads == own.joined + own.missed
        if own.payment > 0:
            assert own.paid == own.earned(run.rounds, own.joined) < own.payment
        else:
            assert own.paid == own.payment


@pytest.fixture(scope="module")
def whole() -> Iterator[tuple[np.ndarray, list[str]]]:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    history = small_market(ledger)
    yield history.model[0], chain(ledger)
    ledger.close()


class StoppedError(Exception):
    """Ends a run from its progress report."""


@pytest.mark.parametrize("chunk", [64, CHUNK])
@pytest.mark.parametrize("after", [1, 5, 6, ROUNDS])
def test_a_stopped_run_goes_on_to_the_same_model_and_ledger(
    url: str,
    whole: tuple[np.ndarray, list[str]],
    after: int,
    chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether each round writes all that is remembered, or what it changed."""
    monkeypatch.setattr("fedprice._plumbing.rows.CHUNK", chunk)
    task = small_task()

    def stop(done: int) -> None:
        if done == after:
            raise StoppedError

    first = Ledger(url, identity=IDENTITY)
    with pytest.raises(StoppedError):
        simulate_market(
            task, small_outcome(task.federation), ledger=first, run="run", evaluate_every=5,
            delivery=0.8, seed=3, threads=1, progress=stop,
        )  # fmt: skip
    assert first.rounds_done("run") == after
    first.close()
    second = Ledger(url, identity=IDENTITY)
    history = small_market(second)
    assert chain(second) == whole[1]
    assert np.array_equal(history.model[0], whole[0])
    again = small_market(second)  # settled: nothing more happens
    assert chain(second) == whole[1]
    assert np.array_equal(again.model[0], whole[0])
    assert np.array_equal(again.loss, history.loss)
    second.close()


def test_threads_do_not_matter(whole: tuple[np.ndarray, list[str]]) -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    assert np.array_equal(small_market(ledger, threads=2).model[0], whole[0])
    assert chain(ledger) == whole[1]


def test_another_run_of_the_same_name_is_refused() -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    small_market(ledger)
    before = chain(ledger)
    with pytest.raises(InputError, match="was started with another task, seed, model or"):
        small_market(ledger, seed=4)
    with pytest.raises(InputError, match="was started with another task, seed, model or"):
        small_market(ledger, delivery=0.9)
    assert chain(ledger) == before  # no money came in, either
    small_market(ledger, run="another", seed=4)


def test_the_recorded_weights_are_the_ones_that_were_used() -> None:
    """The largest weight that the engine used in each round is the largest recorded, exactly."""
    ledger = Ledger("sqlite://", identity=IDENTITY)
    history = small_market(ledger, delivery=0.6)
    rounds = [e.content["joined"] for e in ledger.entries("run") if e.content["kind"] == "round"]
    recorded = [max(float(weight) for _, weight, *_ in own.values()) for own in rounds if own]
    assert recorded == history.largest_weight[history.joined > 0].tolist()
    assert [len(own) for own in rounds] == history.joined.tolist()


def test_what_is_refused_is_recorded_and_not_paid() -> None:
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", micro_units(4.0), "budget")
    agreement, keys = small_agreement(ledger, norm_cap=5.0)
    market = MarketRun(ledger, agreement)
    good = np.full((10, 61), 0.01, np.float32)
    bad = {"nan": good * np.float32(np.nan), "large": good * 1e6, "shape": good.T, "f8": good * 1.0}
    bad["f8"] = bad["f8"].astype(np.float64)
    bad["zero"] = good * np.float32(-0.0)
    name = "<b>bob</b>"  # at level 1 it always draws heads
    for number, (kind, update) in enumerate(bad.items()):
        assert name in market.heads()
        content = Update("run", name, number, arrays_hash([update], update=True), market.model)
        signed = keys[name].sign(content)
        assert not market.accept(name, signed, [update], reach=0.1 * 4), kind
        market.close_round("0" * 64)
    run = ledger.verify().runs["run"]
    own = run.clients[name]
    assert (own.heads, own.joined, own.refused, own.paid) == (5, 0, 5, 0)
    rounds = [e.content["refused"] for e in ledger.entries("run") if e.content["kind"] == "round"]
    assert rounds[0][name][0] == "it is not finite."
    assert rounds[1][name][2] == "5"  # above the cap, it counts as the cap
    assert all(own[name][3] for own in rounds)  # what was refused, its client had signed


def test_a_client_stops_no_run_with_an_update_of_64_dimensions() -> None:
    """The reason for its refusal was too long for a receipt."""
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", micro_units(4.0), "budget")
    agreement, keys = small_agreement(ledger)
    market, name = MarketRun(ledger, agreement), "<b>bob</b>"
    update = np.ones((1,) * 64, np.float32)
    signed = keys[name].sign(
        Update("run", name, 0, arrays_hash([update], update=True), market.model)
    )
    assert not market.accept(name, signed, [update])
    receipt = market.receipts()[name]
    market.close_round("0" * 64)
    (entry,) = (e for e in ledger.entries("run") if e.content["kind"] == "round")
    assert entry.content["refused"][name][0] == receipt.refused
    assert len(receipt.refused) == 200


def test_a_client_bricks_no_ledger_with_an_update_of_1e200() -> None:
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", micro_units(4.0), "budget")
    agreement, keys = small_agreement(ledger)
    market, name = MarketRun(ledger, agreement), "<b>bob</b>"
    update = np.full((10, 61), 3e38, np.float32)
    signed = keys[name].sign(
        Update("run", name, 0, arrays_hash([update], update=True), market.model)
    )
    market.accept(name, signed, [update], reach=1e-300)
    market.close_round("0" * 64)
    ledger.verify()
    assert ledger.rounds_done("run") == 1


def test_strangers_and_forgers_cannot_stop_a_round() -> None:
    """Only the acts of clients that were asked count, and a good update wins over a bad one."""
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", micro_units(4.0), "budget")
    agreement, keys = small_agreement(ledger)
    market = MarketRun(ledger, agreement)
    mallory = SigningKey(bytes([9]) * 32)
    while len(market.heads()) == len(NAMES):
        market.close_round("0" * 64)
    asked = market.heads()
    (idle, *_) = (name for name in NAMES if name not in asked)

    def send(client: str, key: SigningKey, fill: float, to: MarketRun = market) -> bool:
        arrays = [np.full((10, 61), fill, np.float32)]
        signed = key.sign(
            Update("run", client, to.round, arrays_hash(arrays, update=True), to.model)
        )
        return to.accept(client, signed, arrays, reach=0.1 * 4) > 0

    assert not send("mallory", mallory, 1.0)
    assert not send(idle, keys[idle], 1.0)
    assert not send(idle, mallory, 1.0)
    good = asked[0]
    assert not send(good, mallory, 1.0)
    assert market.refused[good] == (
        "it is signed by another key than the one registered.",
        *[""] * 3,
    )
    assert send(good, keys[good], 2.0)
    assert not send(good, keys[good], 3.0)  # one update a round
    assert market.refused == {}
    assert market.receipts()[good].refused == ""
    market.close_round("0" * 64)
    clients = ledger.verify().runs["run"].clients
    assert clients[good].joined == 1
    assert clients[idle].refused == 0


def test_whole_numbers_of_any_outcome() -> None:
    federation = small_federation()
    for scale, budget in ((1, 0.3), (1, 4.0), (1, 9.123457), (1e3, 300.0), (1e6, 3e6), (1, -3.0)):
        small = small_outcome(federation).game
        clients = Clients(
            samples=federation.samples, grad_norm=2, cost=small.clients.cost * scale,
            value=small.clients.value * scale, ids=NAMES,
        )  # fmt: skip
        outcome = solve(Game(clients, bound=small.bound, budget=budget))
        offers = budgeted_tariffs(outcome)
        left = micro_units(budget) - sum(own.payment(own.cap) for own in offers)
        assert 0 <= left <= 2 * max(scale * MICRO / LEVEL_ONE * 50, 0.5)  # a step of the levels
        for own, level, price in zip(offers, outcome.levels, outcome.prices, strict=True):
            assert own.cap / LEVEL_ONE == pytest.approx(level, abs=2**-31)
            assert own.blocks[0][1] / MICRO == pytest.approx(price, rel=1e-4)


def test_least_levels_are_the_floors_of_the_game_rounded_down() -> None:
    game = small_outcome(small_federation()).game
    one_round = -(-LEVEL_ONE // ROUNDS)
    assert least_levels(solve(game)) == [one_round] * 4
    floored = solve(replace(game, clients=game.clients.with_max_weight(0.9)))
    floors = least_levels(floored)
    for floor, exact, own in zip(
        floors, floored.game.clients.level_min, budgeted_tariffs(floored), strict=True
    ):
        assert floor == max(level_units(float(exact)), one_round) <= own.cap
    nothing = replace(game.clients, grad_norm=np.array([0.0, 2, 2, 2]), value=np.zeros(4))
    bought = solve(replace(game, clients=nothing))
    assert least_levels(bought) == [one_round] * 4  # nobody is weighed by 1/0
    assert bought.levels[0] == 0
    assert budgeted_tariffs(bought)[0].cap == one_round


def test_what_is_no_market() -> None:
    federation = small_federation()
    outcome = small_outcome(federation)
    own = Scheme("own", SCHEMES["uniform"].function, posts_prices=False)
    for biased in (solve(outcome.game, scheme="subset"), subset(outcome.game), own(outcome.game)):
        with pytest.raises(InputError, match=f"'{biased.scheme}' has no prices, so there is no"):
            budgeted_tariffs(biased)
    poor = Game(outcome.game.clients, bound=outcome.game.bound, budget=-1e9)
    with pytest.raises(InputError, match="infeasible"):
        budgeted_tariffs(solve(poor, scheme="uniform"))
    with pytest.raises(InputError, match=r"'full' spends .*, but the budget is -1e\+09\."):
        budgeted_tariffs(solve(poor, scheme="full"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE state_parts SET bytes = x'00'", "is damaged"),
        ("DELETE FROM state_parts", "is damaged"),
        ("UPDATE states SET done = 3", "is damaged"),
        ("DELETE FROM states", "is missing"),
    ],
)
def test_a_run_does_not_go_on_from_a_damaged_state(
    tmp_path: Path, change: str, reason: str
) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    small_market(ledger)
    before = chain(ledger)
    ledger.close()
    with sqlite3.connect(path) as raw:
        raw.execute(change)
    raw.close()
    ledger = Ledger(str(path))
    with pytest.raises(LedgerError, match=f"the state of run 'run' {reason}"):
        small_market(ledger)
    assert [entry.hash for entry in ledger.entries()] == before
    with pytest.raises(LedgerError, match=f"the state of run 'run' {reason}"):
        ledger.verify()
    ledger.close()


def test_the_same_run_twice_at_once(url: str, whole: tuple[np.ndarray, list[str]]) -> None:
    """Two processes would do the same: each round is recorded by whoever is first."""
    problems: list[BaseException] = []
    models = []

    def go() -> None:
        ledger = Ledger(url, identity=IDENTITY)
        try:
            models.append(small_market(ledger).model[0])
        except BaseException as error:
            problems.append(error)
        finally:
            ledger.close()

    threads = [threading.Thread(target=go) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert problems == []
    assert all(np.array_equal(model, whole[0]) for model in models)
    ledger = Ledger(url, identity=IDENTITY)
    assert chain(ledger) == whole[1]
    ledger.close()


def test_a_client_may_choose_less() -> None:
    """Whoever would rather join less than the cap does, and is paid for that."""
    federation = small_federation()
    outcome = small_outcome(federation)
    offers = budgeted_tariffs(outcome)
    for own, cost, level in zip(offers, outcome.game.clients.cost, outcome.levels, strict=True):
        price = own.blocks[0][1]
        if price > 0:
            all_ = conditions(Ledger("sqlite://"))
            offer = Offer(all_.hash, "a", ((LEVEL_ONE, price),), False, 1, "", "0", "0" * 64)
            chosen = chosen_level(offer, all_, cost=2 * cost, value=0.0)
            assert chosen / LEVEL_ONE == pytest.approx(price / MICRO / (4 * cost), rel=1e-6)
            assert chosen / LEVEL_ONE < level
