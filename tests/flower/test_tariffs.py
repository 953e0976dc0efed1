"""Tariffs over Flower: any pricing may offer them, and clients choose on their own machines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord

from fedprice import InputError
from fedprice.flower import Client
from fedprice.flower.grid import InProcessGrid
from fedprice.flower.pricing import PostedPrice, Priced
from fedprice.flower.wire import Profile
from fedprice.market.bargain import Bargain
from fedprice.market.ledger import Ledger
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.offers import chosen_level
from fedprice.market.periods import Period
from fedprice.market.responses import read_offer
from fedprice.market.tariffs import Tariff, whole_tariffs
from fedprice.tariff import Tariffs
from tests.flower.apps import OUTCOME, client_app, client_of, initial, strategy
from tests.flower.test_evidence import ask, commitment, conditions, offered, reason
from trials.markets import NAMES, ROUNDS

ENDS = np.array([0.2, 0.4, 0.7, 1.0])
PRICES = np.array([9.0, 4.0, 4.5, 1.0])
IMPACT = 0.01


@dataclass(frozen=True)
class PostedTariff(PostedPrice):
    """The same tariff for everybody, whatever it costs."""

    menu: bool = False

    @property
    def budget_is_expected(self) -> bool:
        return True

    def __call__(self, profiles: Sequence[Profile], period: Period) -> Priced:
        share = Fraction(period.rounds, period.run_rounds)
        count = len(profiles)
        tariffs = Tariffs(np.tile(ENDS, (count, 1)), np.tile(PRICES, (count, 1)), self.menu)
        floors = [LEVEL_ONE // 10] * count
        return Priced(whole_tariffs(tariffs, share), [IMPACT] * count, floors, 10.0)


def private(context: Any) -> Client:
    return Client(**vars(client_of(context)) | {"reveals": False})


@pytest.mark.parametrize("menu", [False, True])
def test_clients_choose_from_tariffs_and_are_paid_by_them(menu: bool, tmp_path: Path) -> None:
    """And what they keep of an offer is what `fedprice respond --offer` takes."""

    def keeping(context: Any) -> Client:
        return replace(private(context), receipts=tmp_path / f"{client_of(context).samples}")

    ledger, grid = Ledger("sqlite://"), InProcessGrid(client_app(client=keeping), 4)
    pricing = PostedTariff(budget=8.0, menu=menu)
    strategy(ledger, pricing=pricing).start(grid, initial(), num_rounds=ROUNDS)
    books = ledger.verify()
    clients = books.runs["run"].clients
    costs = OUTCOME.game.clients
    one = Tariffs(ENDS[None], PRICES[None], menu)
    best = [
        float(one.best_levels(np.array([c]), np.array([v * IMPACT]), 2.0, level_min=0.1)[0])
        for c, v in zip(costs.cost, costs.value, strict=True)
    ]
    assert [own.level / LEVEL_ONE for own in clients.values()] == pytest.approx(best, abs=1e-9)
    assert len(set(best)) > 1
    payments = [float(one.payments(np.array([q]))[0]) for q in best]
    assert [own.payment / MICRO for own in clients.values()] == pytest.approx(payments, abs=2e-6)
    paid = sum(own.paid for own in clients.values())
    assert paid == sum(own.earned(ROUNDS, own.heads) for own in clients.values())  # all delivered
    most = books.runs["run"].budget
    assert 17 * MICRO < most < 20.1 * MICRO  # 4 clients at level 1, and one update more of each
    assert ledger.balance("treasury") == most - paid
    for own, cost, value in zip(clients.values(), costs.cost, costs.value, strict=True):
        offer, all_ = read_offer(tmp_path / f"{own.samples}")
        assert chosen_level(offer, all_, cost=cost, value=value) == own.level


def test_what_clients_can_choose_must_be_there_before_anything_is_offered() -> None:
    ledger, grid = Ledger("sqlite://"), InProcessGrid(client_app(client=private), 4)
    pricing = PostedTariff(budget=8.0)
    ledger.use_key(strategy(ledger).key)
    ledger.deposit("treasury", 10 * MICRO, "grant")  # more than is expected to be spent
    with pytest.raises(InputError, match=r"needs 20\.000004 in the treasury .* 10\.000000 are"):
        strategy(ledger, pricing=pricing, fund=False).start(grid, initial(), num_rounds=ROUNDS)
    assert Bargain(ledger, strategy(ledger).key, "run").attempt == 0
    ledger.deposit("treasury", 11 * MICRO, "more")
    strategy(ledger, pricing=pricing, fund=False).start(grid, initial(), num_rounds=ROUNDS)
    assert ledger.verify().runs["run"].settled


def test_a_run_with_tariffs_goes_on_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is opened, and in the middle of its rounds."""
    ledger, pricing = Ledger("sqlite://"), PostedTariff(budget=8.0)
    own = Bargain.open

    def die(*_: Any) -> Any:
        monkeypatch.setattr(Bargain, "open", own)
        raise KeyboardInterrupt

    monkeypatch.setattr(Bargain, "open", die)
    for _ in range(2):
        grid = InProcessGrid(client_app(client=private), 4)
        ours = strategy(ledger, pricing=pricing)
        try:
            arrays = ours.agree(grid, initial(), ROUNDS)
        except KeyboardInterrupt:
            continue
        sent = ours.configure_train(1, arrays, ConfigRecord(), grid)
        ours.aggregate_train(1, grid.send_and_receive(sent))
    assert ledger.rounds_done("run") == 1
    grid = InProcessGrid(client_app(client=private), 4)
    strategy(ledger, pricing=pricing).start(grid, initial(), num_rounds=ROUNDS)
    run = ledger.verify().runs["run"]
    assert (run.done, run.attempts, set(run.clients)) == (ROUNDS, 1, set(NAMES))


def test_a_client_declines_what_it_would_pay_at_the_level_of_its_choice() -> None:
    """A tariff that charges in places is fine, if the chosen level costs no more than is said."""

    def app(**own: Any) -> Any:
        changes = {"value": 5000.0, "cost": 1.0, "least_profit": -0.0} | own
        return InProcessGrid(client_app(client=lambda c: Client(**vars(client_of(c)) | changes)), 4)

    under = conditions("run")
    # The first block charges 2, the second one pays 3: who takes both is paid 1.
    dear = Tariff(((LEVEL_ONE // 2, -4 * MICRO), (LEVEL_ONE, 6 * MICRO)))
    offer = offered(under, tariff=dear.blocks, impact="0.001")
    commitment(ask(app(), "offer", under, offer))
    assert "would earn it -" in reason(ask(app(cost=40.0), "offer", under, offer))
    least = offered(under, tariff=dear.blocks, impact="0.000001", level_floor=LEVEL_ONE // 4)
    assert "would earn it -" in reason(ask(app(cost=40.0), "offer", under, least))


def test_a_charge_that_floats_round_away_is_declined() -> None:
    """Two prices that almost cancel out leave 200 micro-units that their floats do not have."""

    def grid(most_payment: float) -> InProcessGrid:
        changes = {"value": 5000.0, "cost": 1e-12, "least_profit": -most_payment}
        return InProcessGrid(client_app(client=lambda c: Client(**vars(client_of(c)) | changes)), 4)

    under, half = conditions("run", run_rounds=18), LEVEL_ONE // 2
    hidden = Tariff(((half, -(1 << 62)), (LEVEL_ONE, (1 << 62) - 400)))
    assert hidden.payment(LEVEL_ONE) == -200  # in one of two periods
    offer = offered(under, tariff=hidden.blocks, impact="0.001", level_floor=LEVEL_ONE)
    for most, why in ((0.0, "would earn it -0.000400"), (0.000398, "takes at least -0.000398")):
        assert why in reason(ask(grid(most), "offer", under, offer))
    commitment(ask(grid(0.0004), "offer", under, offer))
    # One micro-unit is a charge, too; less than half of one is what rounding makes of a share.
    for price, most, charged in ((-1, 0.0, True), (-2, 0.0000032, False), (-2, 0.000002, True)):
        offer = offered(under, tariff=((LEVEL_ONE, price),), impact="0.001", level_floor=LEVEL_ONE)
        assert ask(grid(most), "offer", under, offer).has_error() == charged
