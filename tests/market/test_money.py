"""Money and levels in whole numbers: nothing is lost, nothing invented."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.market.money import (
    LEVEL_ONE,
    MICRO,
    level_units,
    micro_units,
    price_units,
    whole_payments,
)
from fedprice.verify import due, tariff_payment


@given(st.lists(st.floats(-1e6, 1e6), max_size=50), st.integers(-2, 2))
def test_whole_payments_add_up_and_none_is_off_by_a_unit(payments: list[float], off: int) -> None:
    exact = sum(map(Fraction, payments)) * MICRO
    parts = whole_payments(payments, most=round(exact))
    assert sum(parts) == round(exact)
    for part, payment in zip(parts, payments, strict=True):
        assert abs(part - Fraction(payment) * MICRO) < 1
    assert sum(whole_payments(payments, most=round(exact) + abs(off))) == round(exact)


@given(st.integers(-(10**12), 10**12), st.integers(1, LEVEL_ONE))
def test_a_level_earns_exactly_its_payment(payment: int, level: int) -> None:
    assert tariff_payment([[level, price_units(payment, level)]], level) == payment


Round = tuple[bool, bool]  # whether the coin shows heads, and whether an update was accepted


def run_pay(payment: int, rounds: list[Round]) -> list[tuple[int, int]]:
    """What a client has been paid after each round, and its due; checks the rule on the way."""
    paid = heads = delivered = 0
    course = []
    for done, (head, accepted) in enumerate(rounds, start=1):
        heads, delivered = heads + head, delivered + (head and accepted)
        owed = due(payment, len(rounds), done, heads, delivered)
        paid += max(0, owed - paid)
        course.append((paid, owed))
    return course


payments = st.integers(0, 10**15)
any_rounds = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@given(payments, any_rounds)
def test_honest_clients_earn_the_accrual_to_the_unit(payment: int, rounds: list[Round]) -> None:
    honest = run_pay(payment, [(head, True) for head, _ in rounds])
    expected = [payment * (r + 1) // len(rounds) for r in range(len(rounds))]
    assert [paid for paid, _ in honest] == expected


@given(payments, any_rounds)
def test_pay_is_never_above_the_accrual_and_never_taken_back(
    payment: int, rounds: list[Round]
) -> None:
    """And over a run it lies between the share that was delivered and the whole payment."""
    before = 0
    for done, (paid, owed) in enumerate(run_pay(payment, rounds), start=1):
        assert max(before, owed) <= paid <= payment * done // len(rounds)
        before = paid
    heads = sum(head for head, _ in rounds)
    delivered = sum(head and accepted for head, accepted in rounds)
    share = Fraction(delivered, heads) if heads else Fraction(1)
    assert payment * share - 1 < before <= payment


def test_tails_do_not_pay_a_client_that_skips_its_heads() -> None:
    """Level ½, 10 rounds: shares of rounds paid 500 for never delivering; now the first wait."""
    rounds = [(r % 2 == 1, False) for r in range(10)]
    assert run_pay(1000, rounds)[-1][0] == 100  # until the first head shows that it skips
    half = [(r % 2 == 1, r < 6) for r in range(10)]
    assert run_pay(1000, half)[-1][0] == 700  # three of five, and the wait before the fourth


@given(st.floats(0, 1))
def test_a_level_is_never_rounded_up(level: float) -> None:
    units = level_units(level)
    assert Fraction(units, LEVEL_ONE) <= Fraction(level) < Fraction(units + 1, LEVEL_ONE)


@given(st.integers(-(10**12), 10**12), st.integers(0, LEVEL_ONE))
def test_payments_are_price_times_level(price: int, level: int) -> None:
    assert abs(
        tariff_payment([[LEVEL_ONE, price]], level) - Fraction(price * level, LEVEL_ONE)
    ) <= Fraction(1, 2)


def test_bad_numbers() -> None:
    with pytest.raises(InputError, match="a level must lie between 0 and 1"):
        level_units(1.0000001)
    assert micro_units(0.1) == 100_000
