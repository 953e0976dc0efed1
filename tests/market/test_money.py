"""Money and levels in whole numbers: nothing is lost, nothing invented."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.market.money import (
    LEVEL_ONE,
    MICRO,
    accrued,
    level_units,
    micro_units,
    payment_units,
    price_units,
    whole_payments,
)

totals = st.integers(-(10**15), 10**15)


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
    assert payment_units(price_units(payment, level), level) == payment


@given(totals, st.integers(1, 5000), st.data())
def test_rounds_add_up(total: int, rounds: int, data: st.DataObject) -> None:
    assert accrued(total, rounds, 0) == 0
    assert accrued(total, rounds, rounds) == total
    done = data.draw(st.integers(0, rounds - 1))
    share = accrued(total, rounds, done + 1) - accrued(total, rounds, done)
    assert abs(share - Fraction(total, rounds)) < 1


@given(st.floats(0, 1))
def test_a_level_is_never_rounded_up(level: float) -> None:
    units = level_units(level)
    assert Fraction(units, LEVEL_ONE) <= Fraction(level) < Fraction(units + 1, LEVEL_ONE)


@given(st.integers(-(10**12), 10**12), st.integers(0, LEVEL_ONE))
def test_payments_are_price_times_level(price: int, level: int) -> None:
    assert abs(payment_units(price, level) - Fraction(price * level, LEVEL_ONE)) <= Fraction(1, 2)


def test_bad_numbers() -> None:
    with pytest.raises(InputError, match="a level must lie between 0 and 1"):
        level_units(1.0000001)
    assert micro_units(0.1) == 100_000
