"""Tariffs in whole numbers: what they pay, what clients choose from them, and whole markets."""

import datetime
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.game import best_level, profit_at
from fedprice.market.agreement import Agreement
from fedprice.market.earnings import levels_of
from fedprice.market.export import export
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.messages import RefusedError
from fedprice.market.money import LEVEL_ONE, MICRO, level_units, money
from fedprice.market.offers import Conditions, Offer, Terms, chosen_level, run_tariffs
from fedprice.market.simulation import simulate_market
from fedprice.market.statements import clients_of, statement_of
from fedprice.market.tariffs import Tariff, whole_tariffs
from fedprice.market.terms import offered_tariffs
from fedprice.tariff import Tariffs
from fedprice.verify import MOST_BLOCKS, check_export
from tests.market.test_oracle import check as recompute
from tests.packed import verifier
from trials.markets import (
    NAMES,
    ROUNDS,
    at_price,
    commit,
    conditions,
    offered,
    reveal,
    small_outcome,
    small_task,
)

TODAY = datetime.date(2026, 1, 2)
ALL = conditions(Ledger("sqlite://", identity="ab" * 32))
prices = st.integers(-(10**10), 10**10)


@st.composite
def tariffs(draw: st.DrawFn, cap: int = LEVEL_ONE, least: int = -(10**10)) -> Tariff:
    ends = draw(st.lists(st.integers(1, cap), min_size=1, max_size=8, unique=True))
    own = draw(st.lists(st.integers(least, 10**10), min_size=len(ends), max_size=len(ends)))
    return Tariff(tuple(zip(sorted(ends), own, strict=True)), draw(st.booleans()))


def offer_of(tariff: Tariff, floor: int = 1, impact: str = "0.001") -> Offer:
    zero = "0" * 64
    return Offer(ALL.hash, "a", tariff.blocks, tariff.menu, floor, "", impact, zero)


@given(tariffs(), st.integers(0, LEVEL_ONE))
def test_a_payment_is_that_of_the_tariff_to_half_a_micro_unit(tariff: Tariff, level: int) -> None:
    level = min(level, tariff.cap)
    (exact,) = run_tariffs(offer_of(tariff), ALL).payments(np.array([level / LEVEL_ONE]))
    size = max(abs(price) for _, price in tariff.blocks) / MICRO
    assert abs(tariff.payment(level) / MICRO - exact) <= 0.5 / MICRO + 1e-13 * size
    assert tariff.payment(0) == 0


@given(prices, st.integers(1, LEVEL_ONE), st.integers(0, LEVEL_ONE))
def test_one_block_pays_what_one_price_pays(price: int, end: int, level: int) -> None:
    level = min(level, end)
    assert Tariff.flat(price, end).payment(level) == round(Fraction(price * level, LEVEL_ONE))


@given(tariffs(), st.data())
def test_a_block_that_is_cut_in_two_pays_the_same(tariff: Tariff, data: st.DataObject) -> None:
    """Rounded block by block, every cut could be worth half a micro-unit."""
    cuts = data.draw(st.lists(st.integers(1, tariff.cap), max_size=10))
    ends = sorted({*tariff.ends, *cuts})
    own = [next(price for end, price in tariff.blocks if end >= cut) for cut in ends]
    cut = Tariff(tuple(zip(ends, own, strict=True)), tariff.menu)
    for level in (*ends, data.draw(st.integers(0, tariff.cap))):
        assert cut.payment(level) == tariff.payment(level)


@given(tariffs(least=0), st.integers(0, LEVEL_ONE), st.integers(0, LEVEL_ONE))
def test_where_no_price_is_negative_more_is_never_paid_less(tariff: Tariff, a: int, b: int) -> None:
    assert tariff.payment(min(a, b)) <= tariff.payment(max(a, b))
    assert tariff.most(1) == tariff.payment(tariff.cap)


@given(tariffs(cap=40), st.integers(1, 40), st.integers(0, 36))
def test_the_largest_payment_is_that_of_a_level_that_can_be_chosen(
    tariff: Tariff, floor: int, scale: int
) -> None:
    tariff = replace(tariff, blocks=tuple((e, p << scale >> 8) for e, p in tariff.blocks))
    floor = min(floor, tariff.cap)
    levels = tariff.ends if tariff.menu else range(tariff.cap + 1)
    assert tariff.most(floor) == max(tariff.payment(q) for q in levels if q >= floor)


def chosen_before(
    price: int, cap: int, floor: int, all_: Conditions, impact: str, cost: float, value: float
) -> int:
    """What a client chose when an offer had one price."""
    own = price / MICRO * (all_.run_rounds / all_.rounds)
    value_impact = value * float(impact)
    best = float(best_level(own, cost, value_impact, 2.0))

    def utility(level: float) -> float:
        return profit_at(level, own, cost, 2.0) - (value_impact / level if value_impact else 0.0)

    if best < cap / LEVEL_ONE and utility(best) - utility(cap / LEVEL_ONE) >= 1 / MICRO:
        return max(level_units(best), floor)
    return cap


@given(
    st.integers(-(10**9), 10**9),
    st.integers(1, LEVEL_ONE),
    st.integers(1, LEVEL_ONE),
    st.floats(1e-3, 1e3),
    st.sampled_from([0.0, 1.0, 50.0, 4000.0]),
)
@example(8_000_000, LEVEL_ONE, LEVEL_ONE - 1, 10.0, 0.0)  # the floor is as good as the cap
@example(0, LEVEL_ONE, 1, 1.0, 0.0)
def test_from_one_price_a_client_chooses_what_it_chose_before(
    price: int, cap: int, floor: int, cost: float, value: float
) -> None:
    floor, all_ = min(floor, cap), replace(ALL, run_rounds=3 * ALL.rounds)
    chosen = chosen_level(offer_of(Tariff.flat(price, cap), floor), all_, cost=cost, value=value)
    assert chosen == chosen_before(price, cap, floor, all_, "0.001", cost, value)


@given(
    tariffs(least=-(10**7)),
    st.integers(1, LEVEL_ONE),
    st.floats(1e-2, 1e4),
    st.sampled_from([0.0, 50.0, 4000.0]),
)
def test_no_level_that_can_be_chosen_is_better(
    tariff: Tariff, floor: int, cost: float, value: float
) -> None:
    floor = min(floor, tariff.cap)
    offer = offer_of(tariff, floor)
    chosen = chosen_level(offer, ALL, cost=cost, value=value)
    assert floor <= chosen <= tariff.cap
    assert not tariff.menu or chosen in tariff.ends
    grid = np.linspace(floor, tariff.cap, 0 if tariff.menu else 400)
    levels = np.array([*grid, *(end for end in tariff.ends if end >= floor), chosen]) / LEVEL_ONE
    paid = Tariffs.payments(run_tariffs(offer, ALL), levels[None])[0]
    utility = paid - cost * levels**2 - value * 0.001 / levels
    scale = np.abs(paid).max() + cost + value * 0.001 / levels.min() + 1
    slope = 2**-32 * (max(abs(p) for _, p in tariff.blocks) / MICRO + 2 * cost)
    if value == 0.0 or chosen > 1000:  # a coarse step of the levels otherwise
        slope += 2**-32 * value * 0.001 / levels[-1] ** 2
        assert utility[-1] >= utility.max() - 1 / MICRO - slope - 1e-12 * scale


@pytest.mark.parametrize("menu", [False, True])
def test_best_levels_from_a_least_one_on(menu: bool) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        ends = np.sort(rng.random((1, 4)))
        own = Tariffs(ends, rng.normal(size=(1, 4)) * 10, menu)
        cost, pull = rng.random(1) * 10, rng.choice([0.0, 0.1]) * rng.random(1)
        floor = float(rng.random() * ends[0, -1])
        (best,) = own.best_levels(cost, pull, 2.0, level_min=floor)
        levels = ends[0] if menu else np.append(np.linspace(floor, ends[0, -1], 2000), ends[0])
        levels = np.append(levels[levels >= floor], best)
        utility = own.payments(levels[None])[0] - cost * levels**2 - pull / levels
        assert best >= floor
        assert utility[-1] >= utility.max() - 1e-12


def test_of_equally_good_rows_a_client_takes_the_highest() -> None:
    """A hair's breadth of money, less than a micro-unit, does not decide."""
    cost = 10.0
    rows = [(q, cost * (q / LEVEL_ONE) ** 2) for q in (LEVEL_ONE // 4, LEVEL_ONE // 2, LEVEL_ONE)]
    blocks, start, paid = [], 0, Fraction(0)
    for end, payment in rows:  # every row pays just its cost
        blocks.append((end, round((Fraction(payment) * MICRO - paid) * LEVEL_ONE / (end - start))))
        start, paid = end, Fraction(payment) * MICRO
    offer = offer_of(Tariff(tuple(blocks), menu=True))
    assert chosen_level(offer, ALL, cost=cost, value=0.0) == LEVEL_ONE
    assert chosen_level(offer, ALL, cost=cost * 1.001, value=0.0) == LEVEL_ONE // 4


BLOCKS = Tariffs(
    np.tile([0.2, 0.45, 0.7, 0.95], (4, 1)),
    np.array([[9.0, 6, 4, 1], [3, 5, 7, 2], [12, 2, 6, -1], [4, -30, -20, -10]]),
)
MENU = Tariffs(
    np.tile([0.25, 0.5, 0.75], (4, 1)),
    np.array([[4.0, 3, 2], [7, 5, 1], [2, 6, 9], [3, 1, -8]]),
    menu=True,
)


def test_whole_tariffs_are_for_a_share_of_the_rounds() -> None:
    for given_ in (BLOCKS, MENU):
        for exact, own in zip(
            given_.end_payments, whole_tariffs(given_, Fraction(1, 3)), strict=True
        ):
            assert [own.payment(end) for end in own.ends] == pytest.approx(
                exact * MICRO / 3, abs=1.01
            )
            assert own.menu == given_.menu
    narrow = Tariffs(np.array([[1e-12, 0.5, 0.5 + 1e-12]]), np.array([[1.0, 2, 3]]))
    assert whole_tariffs(narrow, Fraction(1)) == [Tariff.flat(2 * MICRO, LEVEL_ONE // 2)]
    many = Tariffs(np.linspace(0.1, 1, MOST_BLOCKS + 1)[None], np.ones((1, MOST_BLOCKS + 1)))
    with pytest.raises(InputError, match="`tariff` must have 1 to 256 blocks"):
        whole_tariffs(many, Fraction(1))


def test_what_is_offered_fits_the_outcome() -> None:
    outcome = small_outcome(small_task().federation)
    with pytest.raises(InputError, match="`tariffs` must have 4 rows, one per client; got 3"):
        offered_tariffs(outcome, Tariffs(BLOCKS.ends[:3], BLOCKS.prices[:3]), ROUNDS)
    floored = replace(outcome.game, clients=outcome.game.clients.with_max_weight(0.9))
    low = Tariffs.flat(np.ones(4), 0.01)
    with pytest.raises(InputError, match=r"must end at its least level of .* or above; got 0\.01"):
        offered_tariffs(replace(outcome, game=floored), low, ROUNDS)
    found, budget = offered_tariffs(outcome, MENU, ROUNDS)
    most = sum(max(own.payment(end) for end in own.ends) for own in found)
    assert budget == most + sum(own.one_more(1, ROUNDS) for own in found)


def run_market(ledger: Ledger, given_: Tariffs, **settings: Any) -> None:
    task = small_task()
    outcome = small_outcome(task.federation)
    simulate_market(
        task, outcome, ledger=ledger, tariffs=given_, delivery=0.8, seed=3, threads=1, **settings
    )


@pytest.mark.parametrize("given_", [BLOCKS, MENU], ids=["blocks", "menu"])
def test_a_market_of_tariffs_from_offers_to_the_verifier(given_: Tariffs, tmp_path: Path) -> None:
    """Each client chooses from its own tariff, is paid by it, and the export says so."""
    path = tmp_path / "market.db"
    with closing(Ledger(str(path))) as ledger:
        run_market(ledger, given_, run="run")
        assert recompute(list(ledger.entries("run"))) == ROUNDS
        game = small_outcome(small_task().federation).game
        clients = ledger.verify().runs["run"].clients
        levels = np.array([own.level for own in clients.values()]) / LEVEL_ONE
        best = given_.best_levels(
            game.clients.cost, game.clients.value * game.impact, game.cost_exponent
        )
        assert levels == pytest.approx(best, abs=1e-9)
        assert len(set(levels.tolist())) >= 2
        payments = given_.payments(levels)
        assert [own.payment / MICRO for own in clients.values()] == pytest.approx(
            payments, abs=2e-6
        )
        assert payments[3] < 0  # it values the model
        whole, budget = offered_tariffs(small_outcome(small_task().federation), given_, ROUNDS)
        assert ledger.run("run").budget == budget
        paid = sum(own.paid for own in clients.values())
        assert ledger.balance("treasury") == budget - paid  # what nobody chose comes back
        rows, _ = clients_of(ledger, "run")
        assert rows["tariff"].to_list() == list(map(str, whole))
        assert rows["price"].null_count() == 4
        opened = statement_of(ledger, NAMES[0])[0].filter(event="opened")["note"].item()
        assert opened == (f"offered {whole[0]} for {ROUNDS} rounds, chose level {levels[0]:.6f}")
        exported = tmp_path / "market.jsonl"
        export(ledger, exported, date=TODAY)
    found = check_export(exported).runs["run"].clients
    for name, own in clients.items():
        assert (found[name].payment, found[name].paid) == (own.payment, own.paid)
    command = [sys.executable, "-I", str(verifier()), str(exported), "--client", NAMES[0]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    words = "a menu of 3" if given_.menu else "a tariff of 4 blocks"
    assert (
        f"level {levels[0]:.6f} of {words}, for {money(clients[NAMES[0]].payment)}" in done.stdout
    )


def test_a_market_of_tariffs_goes_on_and_knows_its_tariffs(tmp_path: Path) -> None:
    def stop(done: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    whole, halves = (Ledger("sqlite://", identity="ab" * 32) for _ in range(2))
    run_market(whole, BLOCKS, run="run")
    with pytest.raises(KeyboardInterrupt):
        run_market(halves, BLOCKS, run="run", progress=stop)
    with pytest.raises(InputError, match="or prices; choose another name"):
        run_market(halves, MENU, run="run")
    run_market(halves, BLOCKS, run="run")
    assert [e.hash for e in halves.entries()] == [e.hash for e in whole.entries()]
    run_market(whole, MENU, run="other", rounds=ROUNDS // 2)  # a period pays its share
    half, _ = offered_tariffs(small_outcome(small_task().federation), MENU, ROUNDS // 2)
    assert [own.tariff for own in Agreement.load(whole, "other").terms.values()] == half
    assert statement_of(whole, NAMES[0])[1]["agreed"].len() == 2


def test_a_level_between_those_of_a_menu_is_refused() -> None:
    menu = Tariff(((LEVEL_ONE // 4, 40), (LEVEL_ONE, 10)), menu=True)
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 100, "start")
    terms = {"alice": replace(at_price(1, LEVEL_ONE), tariff=menu, level=LEVEL_ONE // 4)}
    bargain = offered(ledger, terms)
    for level, reason in (
        (LEVEL_ONE // 2, "its level is not one of the offer's menu"),
        (LEVEL_ONE // 4 - 1, "below the least one"),
    ):
        with pytest.raises(RefusedError, match=reason):
            commit(bargain, "alice", replace(terms["alice"], level=level))
    commit(bargain, "alice", terms["alice"])
    bargain.close()


def test_the_ledger_refuses_a_level_between_those_of_a_menu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the rules of the verifier, whoever forgets to check the commitment."""
    menu = Tariff(((LEVEL_ONE // 4, 40), (LEVEL_ONE, 10)), menu=True)
    ledger = Ledger("sqlite://")
    terms = {"alice": replace(at_price(1, LEVEL_ONE), tariff=menu, level=LEVEL_ONE // 4)}
    bargain = offered(ledger, terms)
    monkeypatch.setattr("fedprice.market.bargain.check_commitment", lambda _, signed, key: signed)
    commit(bargain, "alice", replace(terms["alice"], level=LEVEL_ONE // 2))
    with pytest.raises(LedgerError, match="its level is not one of the offer"):
        bargain.close()


def test_an_export_shows_the_money_that_was_chosen_not_the_most_that_was_offered() -> None:
    """As docs/verification.md says: offers may promise more than the treasury ever had."""
    tariff = Tariff(((LEVEL_ONE // 4, 40), (LEVEL_ONE, 4_000)))
    chosen = Terms(tariff, LEVEL_ONE // 4)
    assert (chosen.payment, tariff.most(1)) == (10, 3010)
    ledger = Ledger("sqlite://")
    bargain = offered(ledger, {"alice": chosen})  # nothing is there yet
    commit(bargain, "alice", chosen)
    bargain.close()
    reveal(bargain)
    assert bargain.cost == 11  # two heads in seven rounds, of which the level has 1.75
    ledger.deposit("treasury", bargain.cost - 1, "late")
    with pytest.raises(LedgerError, match="overdraws treasury: 10 micro-units are there, 11 are"):
        bargain.open(bargain.cost)
    ledger.deposit("treasury", 1, "the rest")
    bargain.open(11)
    assert ledger.verify().runs["run"].budget == 11


@pytest.mark.parametrize("menu", [False, True])
def test_levels_to_compare_are_those_that_may_be_chosen(menu: bool) -> None:
    ends, floor = [LEVEL_ONE // 10, LEVEL_ONE // 2, LEVEL_ONE], LEVEL_ONE // 4
    found = levels_of(ends, LEVEL_ONE // 2, menu=menu, floor=floor)
    assert found.min() >= floor / LEVEL_ONE
    assert found.tolist() == sorted({*found.tolist()})
    assert {0.5, 1.0} <= {*found.tolist()}
    assert len(found) == (2 if menu else 8)
