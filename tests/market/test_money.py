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
from fedprice.verify import cost, due, most_heads, tariff_payment


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


payments = st.integers(0, 10**15)
levels, many_rounds = st.integers(1, LEVEL_ONE), st.integers(1, 10**6)


@given(payments, levels, many_rounds)
def test_all_heads_of_a_level_earn_its_payment(payment: int, level: int, rounds: int) -> None:
    """To one update: ⌊q R⌋ of them earn at most the payment, and ⌈q R⌉ at least."""
    few, many = level * rounds // LEVEL_ONE, most_heads(level, rounds)
    assert many - few in (0, 1)
    assert due(payment, level, rounds, few) <= payment <= due(payment, level, rounds, many) + 1


@given(payments, levels, many_rounds, st.integers(0, 50))
def test_every_update_earns_the_same_to_a_unit(
    payment: int, level: int, rounds: int, delivered: int
) -> None:
    each = Fraction(payment * LEVEL_ONE, level * rounds)
    most = most_heads(level, rounds)
    assert due(payment, level, rounds, delivered) == each * min(delivered, most) // 1
    assert cost(payment, level, rounds) == due(payment, level, rounds, most)
    assert cost(-payment, level, rounds) == -payment


def test_tails_do_not_pay_a_client_that_skips_its_heads() -> None:
    """Level ½, 10 rounds: shares of rounds paid 500 for never delivering; now nothing is."""
    assert [due(1000, LEVEL_ONE // 2, 10, delivered) for delivered in (0, 3, 5, 9)] == [
        0, 600, 1000, 1000,
    ]  # fmt: skip


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
