"""Periods: the model goes on, the money adds up, and a forged chain is found."""

import copy
import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedprice import Bound, Clients, Game, InputError, Outcome, Task, solve
from fedprice._plumbing.arrays import Arrays
from fedprice._plumbing.rows import CHUNK
from fedprice.market.canonical import canonical_bytes
from fedprice.market.export import export
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.money import LEVEL_ONE, micro_units
from fedprice.market.periods import Periods, grown, measured_norms
from fedprice.market.simulation import simulate_market
from fedprice.market.tariffs import Tariff
from fedprice.market.updates import SLACK, norm_cap
from fedprice.rounds import History, Momentum, Plain, ServerStep
from fedprice.rounds.loop import Round, Rounds
from fedprice.verify import (
    VerificationError,
    check_entries,
    check_export,
    next_period,
    period_number,
    run_of,
)
from trials.markets import NAMES, ROUNDS, at_price, small_outcome, small_task
from trials.resigned import Entries, resigned

FIRST, SECOND = 5, ROUNDS - 5
BUDGET = 4.0
IDENTITY = "ab" * 32  # so that ledgers can be compared


def dearer(outcome: Outcome) -> Outcome:
    """The same budget over clients of which more was measured."""
    game = outcome.game
    clients = Clients(
        samples=game.clients.samples, grad_norm=[1, 2, 3, 2], cost=game.clients.cost,
        value=game.clients.value, ids=NAMES,
    )  # fmt: skip
    return solve(Game(clients, bound=game.bound, budget=game.budget))


def period(ledger: Ledger, run: str, follows: str = "", **rest: Any) -> History:
    task = small_task()
    outcome = small_outcome(task.federation, BUDGET)
    settings: dict[str, Any] = {
        "rounds": FIRST, "evaluate_every": 2, "delivery": 0.9, "seed": 3, "threads": 1,
    }  # fmt: skip
    if follows:
        outcome, settings["rounds"] = dearer(outcome), SECOND
    return simulate_market(
        task, outcome, ledger=ledger, run=run, follows=follows, **(settings | rest)
    )


@pytest.fixture(scope="module")
def chained() -> Ledger:
    """Two periods of one run."""
    ledger = Ledger("sqlite://", identity=IDENTITY)
    period(ledger, "run")
    period(ledger, "run#2", "run")
    return ledger


def exported(ledger: Ledger, path: Path) -> Entries:
    export(ledger, path, date=datetime.date(2026, 1, 2))
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize("step", [Plain(), Momentum(beta=0.5)])
def test_the_model_goes_on(step: ServerStep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second period begins with the bits that the first ended with, at the server too."""
    begun: list[tuple[int, Any, dict[str, Any]]] = []
    begin = Rounds.begin

    def watch(self: Rounds) -> Round:
        begun.append((self.done, self.vector.copy(), self.state()))
        return begin(self)

    monkeypatch.setattr(Rounds, "begin", watch)
    ledger = Ledger("sqlite://", identity=IDENTITY)
    first = period(ledger, "run", server_step=step)
    left = ledger.progress("run")[1]
    assert left is not None
    second = period(ledger, "run#2", "run", server_step=step)
    done, vector, state = begun[FIRST]
    assert done == 0
    assert np.array_equal(vector, left["model"])
    for name in (name for name in left if name.startswith("step.")):
        assert np.array_equal(state[name], left[name])
    assert second.loss[0] == first.loss[-1] < first.loss[0]
    assert second.loss[-1] < first.loss[0]
    assert second.rounds[-1] == SECOND
    ledger.close()


def test_a_period_may_have_another_server_step() -> None:
    """The model goes on; what another kind of step remembers does not."""
    ledger = Ledger("sqlite://", identity=IDENTITY)
    first = period(ledger, "run")
    second = period(ledger, "run#2", "run", server_step=Momentum(beta=0.5), rounds=3)
    third = period(ledger, "run#3", "run#2", server_step=Plain(), rounds=2)
    assert second.loss[0] == first.loss[-1]
    assert third.loss[0] == second.loss[-1]
    ledger.close()


def test_payments_of_all_periods_stay_within_the_budget(chained: Ledger) -> None:
    report = chained.verify()
    runs = [report.runs[name] for name in ("run", "run#2")]
    assert [run.rounds for run in runs] == [FIRST, SECOND]
    more = []
    for run in runs:
        flat = [Tariff(((end, price),)) for c in run.clients.values() for end, price in c.tariff]
        more.append(sum(own.one_more(1, run.rounds) for own in flat))
    assert sum(run.budget for run in runs) <= micro_units(BUDGET) + sum(more) + len(NAMES)
    paid = [sum(own.paid for own in run.clients.values()) for run in runs]
    assert sum(paid) <= micro_units(BUDGET) + sum(more)
    assert all(any(own.paid > 0 for own in run.clients.values()) for run in runs)
    agreed = [sum(own.payment for own in run.clients.values()) for run in runs]
    assert sum(agreed) >= micro_units(BUDGET) - 2  # all of it was offered
    assert sum(chained.balances().values()) == 0
    assert [run.follows for run in runs] == ["", "run"]


def test_a_period_is_worth_its_share_of_the_run() -> None:
    """A client that is priced as in the whole run commits to the same level in a part of it."""
    ledger = Ledger("sqlite://", identity=IDENTITY)
    period(ledger, "part")
    period(ledger, "whole", rounds=ROUNDS)
    runs = ledger.verify().runs
    for name in NAMES:
        part, whole = runs["part"].clients[name], runs["whole"].clients[name]
        assert part.level == pytest.approx(whole.level, rel=1e-5)
        assert part.payment == pytest.approx(whole.payment * FIRST / ROUNDS, abs=2)
    ledger.close()


def test_an_export_of_periods_verifies(chained: Ledger, tmp_path: Path) -> None:
    exported(chained, tmp_path / "market.jsonl")
    report = check_export(tmp_path / "market.jsonl")
    assert report.runs["run#2"].follows == "run"
    assert report.hashes == chained.verify().hashes


@pytest.mark.parametrize("chunk", [64, CHUNK])
def test_a_stopped_second_period_goes_on_to_the_same_bits(
    chained: Ledger, tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedprice._plumbing.rows.CHUNK", chunk)
    path = str(tmp_path / "market.db")

    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    ledger = Ledger(path, identity=IDENTITY)
    period(ledger, "run")
    with pytest.raises(KeyboardInterrupt):
        period(ledger, "run#2", "run", progress=stop)
    ledger.close()
    ledger = Ledger(path, identity=IDENTITY)
    resumed = period(ledger, "run#2", "run")
    assert ledger.verify().hashes == chained.verify().hashes
    again = period(ledger, "run#2", "run")  # settled: nothing more happens
    assert ledger.verify().hashes == chained.verify().hashes
    assert np.array_equal(again.model[0], resumed.model[0])
    assert np.array_equal(again.loss, resumed.loss)
    ledger.close()


@pytest.mark.parametrize(
    ("run", "follows", "message"),
    [
        ("other", "run", "a period that follows 'run' must be called 'run#2'; got 'other'"),
        ("run", "run", "a period that follows 'run' must be called 'run#2'; got 'run'"),
        ("run#3", "run", "a period that follows 'run' must be called 'run#2'; got 'run#3'"),
        ("run#02", "run", "a period that follows 'run' must be called 'run#2'; got 'run#02'"),
        ("run#2", "", "the name of a run must not end with # and a number; got 'run#2'"),
        ("new#1", "", "the name of a run must not end with # and a number; got 'new#1'"),
        ("new#0", "", "the name of a run must not end with # and a number; got 'new#0'"),
        ("new#02", "", "the name of a run must not end with # and a number; got 'new#02'"),
    ],
)
def test_the_names_of_periods_are_enforced(run: str, follows: str, message: str) -> None:
    """What the ledger would open, its verifier must not refuse."""
    ledger = Ledger("sqlite://", identity=IDENTITY)
    period(ledger, "run")
    before = ledger.verify().hashes
    with pytest.raises(InputError, match=message):
        period(ledger, run, follows)
    assert ledger.verify().hashes == before  # no money came in, either
    if not follows:
        with pytest.raises(LedgerError, match="cannot have this name"):
            ledger.open_unsigned(run, 0, {"alice": at_price(0, LEVEL_ONE)}, rounds=1)
    ledger.close()


def test_names_with_signs_are_names() -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    for name in ("#2", "a#b", "a#", "a#2b"):
        ledger.open_unsigned(name, 0, {"alice": at_price(0, LEVEL_ONE)}, rounds=1)
    assert list(ledger.verify().runs) == ["#2", "a#b", "a#", "a#2b"]
    ledger.close()


def test_only_a_settled_period_is_followed() -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)

    def stop(done: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        period(ledger, "run", progress=stop)
    before = ledger.verify().hashes
    with pytest.raises(LedgerError, match="the period before it is not settled"):
        period(ledger, "run#2", "run")
    assert ledger.verify().hashes == before  # no money came in, either
    with pytest.raises(LedgerError, match=r"has no run 'ran'\. Did you mean 'run'"):
        period(ledger, "ran#2", "ran")
    period(ledger, "run")
    period(ledger, "run#2", "run", rounds=3)
    assert period_number(next_period("run#2")) == 3
    period(ledger, "run#3", "run#2", rounds=1)
    assert run_of("run#3") == "run"
    assert list(ledger.verify().runs) == ["run", "run#2", "run#3"]
    ledger.close()


def test_a_period_of_another_model_is_refused() -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    ledger.open_unsigned("bare", 0, {"alice": at_price(0, LEVEL_ONE)}, rounds=1)
    ledger.record_round("bare", 0, model="0" * 64)
    ledger.settle("bare")
    with pytest.raises(InputError, match="period 'bare' kept no model to continue from"):
        period(ledger, "bare#2", "bare")
    ledger.close()


def test_forged_links_are_found(chained: Ledger, tmp_path: Path) -> None:
    """Other periods before it, other models, other names: also where the server signs anew."""
    whole = exported(chained, tmp_path / "market.jsonl")
    check_entries(resigned(copy.deepcopy(whole)))
    for change, reason in (
        ({"follows": ""}, "follows must be 'run'; found ''"),
        ({"follows": "run#2"}, "follows must be 'run'; found 'run#2'"),
        ({"follows": None}, "conditions: `follows` must be 1 to 200 printable"),
        ({"coins": "spaced"}, "position of the coin of .* must be [0-9]+; found None"),
        ({"run": "run#3"}, "run must be 'run#2'; found 'run#3'"),
        ({"model": "0" * 64}, "model must be"),
        ({"run_rounds": 13}, "rounds of the whole run must be 12; found 13"),
    ):
        entries = copy.deepcopy(whole)
        offer = next(e for e in entries if e["content"]["of"] == ["run#2", 1])
        conditions = json.loads(offer["content"]["conditions"]) | change
        offer["content"]["conditions"] = canonical_bytes(conditions).decode()
        with pytest.raises(VerificationError, match=reason):
            check_entries(resigned(entries))
    for name, reason in (
        ("run#3", "the period before it is not settled"),
        ("other#2", "the period before it is not settled"),
        ("run#02", "there is no such period"),
        ("run#1", "there is no such period"),
        ("other", "run must be 'other'; found 'run#2'"),
    ):
        text = json.dumps(whole).replace('"run#2"', json.dumps(name))
        entries = json.loads(text.replace("escrow:run#2", f"escrow:{name}"))
        with pytest.raises(VerificationError, match=reason):
            check_entries(resigned(entries))
    entries = copy.deepcopy(whole)
    (settled,) = (e for e in entries if e["content"].get("of") == ["run"] and
                  e["content"]["kind"] == "settle")  # fmt: skip
    entries.remove(settled)
    entries.append(settled)
    with pytest.raises(VerificationError, match="the period before it is not settled"):
        check_entries(resigned(entries))


def test_measured_norms_are_those_of_the_history() -> None:
    """The ledger holds six digits of each norm."""
    ledger = Ledger("sqlite://", identity=IDENTITY)
    first, second = period(ledger, "run"), period(ledger, "run#2", "run")
    for name, history in (("run", first), ("run#2", second)):
        found = measured_norms(ledger, [name])
        norms = dict(zip(NAMES, history.update_norm.tolist(), strict=True))
        expected = {client: norm for client, norm in norms.items() if not np.isnan(norm)}
        assert found == pytest.approx(expected, rel=1e-5)
    both = measured_norms(ledger, ["run", "run#2"])  # the last period counts in which one joined
    before, after = (measured_norms(ledger, [name]) for name in ("run", "run#2"))
    assert both == before | grown(before, after)
    ledger.close()


class Recorded:
    """Entries of a ledger in the format of refused records: reason, update, norm, signature."""

    def __init__(self, **rounds: list[dict[str, Any]]) -> None:
        self._rounds = rounds

    def entries(self, period: str) -> list[Any]:
        return [SimpleNamespace(content=content) for content in self._rounds[period]]


def test_what_is_refused_for_its_norm_counts_as_its_cap_for_caps_and_not_for_prices() -> None:
    joined = {"alice": ["ab" * 32, "1.0", "3.0", "", "3,0,0,0", "00"]}
    first = {
        "joined": joined,
        "refused": {
            "bob": ["its norm 900 is above the cap of 10.", "ab" * 32, "10", "00"],
            "carol": ["it changes nothing.", "ab" * 32, "", "00"],
        },
    }
    second = {"joined": {}, "refused": {"alice": ["its norm …", "ab" * 32, "4.0", "00"]}}
    ledger: Any = Recorded(run=[{"kind": "open"}, first, second])
    assert measured_norms(ledger, ["run"]) == {"alice": 3.0}
    tried = measured_norms(ledger, ["run"], refused=True)
    assert tried == pytest.approx({"alice": 12.5**0.5, "bob": 10.0})


def test_a_norm_cap_shuts_nobody_out_for_good() -> None:
    """A client whose updates have a norm of 100 is let in again after a few periods."""
    cap, periods = norm_cap(None, None, 1.0, most=1e6), 0
    while cap < 100:
        refused = {"bob": ["its norm is above the cap", "ab" * 32, repr(cap), "00"]}
        ledger: Any = Recorded(run=[{"joined": {}, "refused": refused}])
        tried = measured_norms(ledger, ["run"], refused=True)["bob"]
        assert norm_cap(None, None, tried, most=1e6) == pytest.approx(SLACK * cap)
        cap, periods = norm_cap(None, None, tried, most=1e6), periods + 1
    assert periods == 6


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warm_up": -1}, "`warm_up` must be a whole number of rounds, at least 0; got -1"),
        ({"warm_up": 2.0}, "`warm_up` must be a whole number"),
        ({"level": 0}, r"`level` must lie in \(0, 1\]; got 0"),
        ({"level": "half"}, r"`level` must lie in \(0, 1\]; got 'half'"),
        ({"every": 0}, "`every` must be a whole number of rounds, at least 1; got 0"),
    ],
)
def test_bad_periods(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Periods(**settings)
    with pytest.raises(InputError, match="a warm-up of 9 rounds leaves none of 9 to price"):
        Periods(warm_up=9).split(9)


def test_a_period_is_no_longer_than_its_outcome() -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    with pytest.raises(InputError, match=f"`rounds` must be at most {ROUNDS}: the outcome"):
        period(ledger, "run", rounds=ROUNDS + 1)
    assert list(ledger.verify().runs) == []
    bound = Bound(alpha=3, rounds=ROUNDS)
    assert small_outcome(small_task().federation).game.bound.rounds == bound.rounds
    ledger.close()


def test_learning_rates_and_batches_go_on_in_the_next_period() -> None:
    """A task sees the rounds of the whole run, not those of a period."""
    seen: list[int] = []

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        seen.append(round_)
        return [np.full(2, 0.1 + 0.01 * client + 0.001 * round_, np.float32)]

    task = Task.of(
        initial=[np.ones(2, np.float32)],
        samples=[10, 20],
        update=update,
        evaluate=lambda model: {"loss": 1.0},
    )
    clients = Clients(samples=[10, 20], grad_norm=1, cost=1, value=0)
    outcome = solve(Game(clients, bound=Bound(alpha=3, rounds=10), budget=100))
    ledger = Ledger("sqlite://", identity=IDENTITY)
    simulate_market(task, outcome, ledger=ledger, run="run", rounds=4)
    simulate_market(task, outcome, ledger=ledger, run="run#2", follows="run", rounds=6)
    assert sorted(set(seen)) == list(range(10))
    ledger.close()


def test_periods_do_not_spend_more_than_the_outcome() -> None:
    ledger = Ledger("sqlite://", identity=IDENTITY)
    period(ledger, "run")
    with pytest.raises(InputError, match="`rounds` must be at most 7: the outcome was priced for"):
        period(ledger, "run#2", "run", rounds=8)
    ledger.close()


def test_clients_of_an_outcome_are_those_of_the_task() -> None:
    """Whoever is paid under a name has that client's data."""
    task = small_task()
    named = Task.of(
        initial=[np.zeros(1)],
        samples=[10, 20],
        ids=["a", "b"],
        update=lambda model, client, round_, seed: [np.ones(1)],
        evaluate=lambda model: {"loss": 1.0},
    )
    clients = Clients(samples=[10, 20], grad_norm=1, cost=1, value=0, ids=["b", "a"])
    swapped = solve(Game(clients, bound=Bound(alpha=3, rounds=10), budget=1))
    ledger = Ledger("sqlite://", identity=IDENTITY)
    with pytest.raises(InputError, match="in the order of the task's `ids`"):
        simulate_market(named, swapped, ledger=ledger, run="run")
    other = Clients(samples=[1, 1, 1, 1], grad_norm=1, cost=1, value=0)
    outcome = solve(Game(other, bound=Bound(alpha=3, rounds=10), budget=1))
    with pytest.raises(InputError, match="must have the task's shares of samples; client '1' has"):
        simulate_market(task, outcome, ledger=ledger, run="run")
    ledger.close()
