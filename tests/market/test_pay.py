"""Why a client was paid what it was paid: lines that add up to the ledger's numbers."""

from collections.abc import Iterator
from typing import Any

import pytest

from fedprice.market.ledger import Ledger
from fedprice.market.money import LEVEL_ONE, MICRO, money
from fedprice.market.pay import pay_lines, why_paid
from fedprice.verify import Client, Run
from trials.markets import NAMES, small_market


def client(payment: int, **done: Any) -> Client:
    return Client([[LEVEL_ONE, payment]], LEVEL_ONE, 1, **done)


@pytest.fixture(scope="module")
def settled() -> Iterator[Ledger]:
    ledger = Ledger("sqlite://", unit="EUR", identity="ab" * 32)
    small_market(ledger, delivery=0.7)
    yield ledger
    ledger.close()


@pytest.mark.parametrize("name", NAMES)
def test_lines_add_up_to_what_the_ledger_paid(settled: Ledger, name: str) -> None:
    run = settled.books.runs["run"]
    own = run.clients[name]
    assert sum(line.amount for line in pay_lines(run, own)) == money(own.paid)
    assert all(line.amount for line in pay_lines(run, own))


def test_the_rule_has_the_numbers_of_the_client(settled: Ledger) -> None:
    run = settled.books.runs["run"]
    own = run.clients["alice"]
    said = why_paid(run, own, "EUR")
    assert f"{own.joined} of {own.heads} heads were delivered in 12 of 12 rounds" in said
    assert f"{own.joined} updates × " in said
    assert "This client pays" in why_paid(run, run.clients["dora-dorothea"], "EUR")


def test_what_luck_and_missed_heads_have_taken() -> None:
    own = Client([[LEVEL_ONE, 40 * MICRO]], LEVEL_ONE // 4, 1, heads=2, joined=1, missed=1)
    own.paid = 4 * MICRO
    run = Run(10, 0, {"a": own}, done=10)
    assert [(int(line.amount), line.what) for line in pay_lines(run, own)] == [
        (10, "agreed for 10 rounds at level 0.25"),
        (-2, "heads below the average of the level: 0.5 of 2.5"),
        (-4, "heads not delivered: 1 of 2"),
    ]
    assert why_paid(run, own, "EUR").startswith("Paid 4.00 EUR = 1 update × 4.00 EUR; 1 of 2")


def test_no_heads_and_no_payment() -> None:
    idle = client(10 * MICRO)
    run = Run(10, 0, {"a": idle}, done=5)
    assert "it drew no heads in 5 of 10 rounds" in why_paid(run, idle, "EUR")
    assert [line.what for line in pay_lines(run, idle)][1:] == ["heads not drawn yet: 10 of 10"]
    assert "No payment was agreed" in why_paid(run, client(0), "EUR")
    assert [line.amount for line in pay_lines(run, client(0))] == [0]


def test_a_payer_gets_back_the_rounds_that_were_not_done() -> None:
    payer = client(-10 * MICRO, heads=3, joined=2, missed=1, paid=-10 * MICRO)
    under_way = Run(10, 0, {"a": payer}, done=5)
    said = why_paid(under_way, payer, "EUR")
    assert "10.00 EUR were held when the run was opened. If the run ends early" in said
    assert "Heads that it does not deliver change nothing." in said
    payer.paid, ended = -5 * MICRO, Run(10, 0, {"a": payer}, done=5, settled=True)
    assert "5.00 EUR came back, because the run ended after 5 of 10 rounds" in why_paid(
        ended, payer, "EUR"
    )
    assert [line.amount for line in pay_lines(ended, payer)] == [-10, 5]
