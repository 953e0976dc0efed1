"""Honesty pays, for the client and for the server: exhaustive search with the rules themselves.

`make bench-incentives` does the same for more runs, and for the paper's three setups.
"""

import numpy as np
import pytest

from benchmarks.incentives import (
    PHASES,
    choose_levels,
    deals,
    deliver,
    heads_of,
    played,
    redrawn,
    respond,
    save,
    units,
    without_value,
)
from fedprice import Bound, Clients, Game, Outcome, solve
from fedprice.market.bargain import Bargain
from fedprice.market.ledger import Ledger
from fedprice.market.offers import Offer, Proposal, coins_for
from fedprice.market.run import MarketRun
from fedprice.market.simulation import simulate_market, simulation_key
from fedprice.market.tariffs import Tariff
from fedprice.verify import COINS, LEVEL_ONE, REDRAWN, SPACED, due, tariff_payment
from trials.markets import ROUNDS, agreed, at_price, conditions, small_outcome, small_task


def outcome(value: float, budget: float = 8.0) -> Outcome:
    rng = np.random.default_rng(1)
    costs, values = rng.exponential(size=(2, 8)) + 0.1
    clients = Clients(
        samples=100 * np.arange(1, 9), grad_norm=2, cost=8 * costs, value=value * values
    )
    return solve(Game(clients, bound=Bound(alpha=3, rounds=300), budget=budget))


@pytest.mark.parametrize(("value", "payers"), [(0.0, 0), (40.0, 0), (3000.0, 3)])
def test_every_client_does_best_by_delivering_everything(value: float, payers: int) -> None:
    """Also one that knows its coins, which skipped its last heads before."""
    priced = outcome(value)
    assert (priced.prices < 0).sum() == payers
    assert all(own == {"gain": 0.0, "least share": 1.0} for own in respond(priced, draws=40))


@pytest.mark.parametrize("exponent", [1.2, 2.0, 3.0])
@pytest.mark.parametrize(("level", "rounds"), [(0.15, 7), (0.37, 10)])
def test_no_choice_of_heads_gains_in_a_short_run(
    level: float, rounds: int, exponent: float
) -> None:
    """In periods of 20 rounds, skipping heads earned up to 1.44 times the honest profit."""
    assert deliver(level, rounds, exponent) == 0


@pytest.mark.parametrize("level", [0.15, 0.6])
def test_no_phase_end_or_split_saves_the_server_anything(level: float) -> None:
    """Settling at the best moment bought updates for 77 to 84 % of their pay."""
    assert save(level, 7) < 1e-7  # of a payment, by rounding down to micro-units


def test_openings_that_are_not_played_save_nothing() -> None:
    """The server opened 400 runs, looked at the coins, and got 12 updates for 25 % of their pay."""
    assert redrawn(outcome(0.0), openings=400) < 1e-5


def test_one_price_pays_the_same_however_the_level_moves() -> None:
    assert choose_levels(1, 4, ((1.0, 12.0),)) < 1e-9


@pytest.mark.parametrize("cost", [3.0, 10.0, 25.0])
@pytest.mark.parametrize(("period", "periods"), [(1, 3), (1, 12), (2, 4), (5, 3)])
def test_tariffs_of_several_blocks_in_short_periods_leave_no_gain(
    period: int, periods: int, cost: float
) -> None:
    """Who knew that its next head was due took the level that pays most for it: 77 % more."""
    assert choose_levels(period, periods, cost=cost, coins=REDRAWN) < 0.004  # of its grid
    assert choose_levels(1, 3) > 0.3  # if coins went on


@pytest.mark.parametrize("choice", [False, True])
def test_coins_begin_anew_where_a_client_can_choose_its_level(choice: bool) -> None:
    """It took a low level when its head was due, and had 10 times its weight in the model."""
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 1000, "first")
    terms = {name: at_price(30, LEVEL_ONE // 3) for name in ("alice", "bob")}
    before = agreed(ledger, 100, terms, "run", 2, run_rounds=4)
    for _ in range(2):
        MarketRun(ledger, before).close_round("0" * 64)
    ledger.settle("run")
    floor = LEVEL_ONE // (4 if choice else 3)
    proposals = {name: Proposal(own.tariff, floor) for name, own in terms.items()}
    rule = coins_for(proposals.values())
    assert rule == COINS[choice]
    bargain = Bargain(ledger, simulation_key("server"), "run#2")
    bargain.offer(
        conditions(ledger, "run#2", rounds=2, run_rounds=4, follows="run", coins=rule), proposals
    )
    positions = {
        name: None if choice or own.coins is None else own.coins.position(2)
        for name, own in ledger.books.runs["run"].clients.items()
    }
    server = simulation_key("server").public
    assert {n: o.open(Offer, server).position for n, o in bargain.offers.items()} == positions
    assert coins_for([Proposal(Tariff(((9, 1), (20, 1)), menu=True), 10)]) == SPACED
    assert coins_for([Proposal(Tariff(((9, 1), (20, 1))), 10)]) == REDRAWN


def test_a_client_that_stays_away_for_a_period_finds_its_coin_where_it_was() -> None:
    """Who declined a period after each head had a fresh coin: 1.8 times the heads at level 0.1."""
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 1000, "first")
    terms = {name: at_price(30, LEVEL_ONE // 3) for name in ("alice", "bob")}
    follows = ""
    for number, present in enumerate((["alice", "bob"], ["bob"], ["bob"], ["alice", "bob"])):
        name = f"run#{number + 1}" if number else "run"
        agreement = agreed(
            ledger, 100, {n: terms[n] for n in present}, name, 1, follows=follows, run_rounds=4
        )
        MarketRun(ledger, agreement).close_round("0" * 64)
        ledger.settle(name)
        follows = name
    first, last = (ledger.books.runs[name].clients["alice"] for name in ("run", "run#4"))
    assert first.coins is not None
    assert last.coins is not None
    assert last.coins.phase == (first.coins.position(1) + last.level) % LEVEL_ONE
    ledger.verify()


def test_coins_that_go_on_play_a_run_as_if_it_were_not_cut() -> None:
    level = units(0.37)

    def pay(level: int, rounds: int) -> int:
        return tariff_payment([[LEVEL_ONE, 7_000_000 * rounds]], level)

    for phase in PHASES[::16]:
        whole, parts = (played(phase, [level] * len(p), p, pay) for p in ((12,), (1, 4, 2, 5)))
        assert whole[1] == parts[1] == len(heads_of(phase, level, 12))
        assert whole[0] == pytest.approx(parts[0], abs=4)


def test_a_market_that_ends_early_has_paid_for_what_it_got() -> None:
    """Whatever the round, every accepted update was paid what was agreed for it."""
    ledger, task = Ledger("sqlite://"), small_task()

    def stop(done: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate_market(
            task, small_outcome(task.federation), ledger=ledger, run="run", progress=stop, threads=1
        )
    ledger.settle("run")
    for own in ledger.verify().runs["run"].clients.values():
        if own.payment > 0:
            assert own.paid == due(own.payment, own.level, ROUNDS, own.joined)


def test_money_alone_prices_without_value() -> None:
    assert not without_value(outcome(40.0).game).clients.value.any()
    assert {deal.rounds for deal in deals(outcome(40.0))} == {300}
