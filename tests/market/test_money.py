"""Money and levels in whole numbers: nothing is lost, nothing invented."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.market.money import (
    LEVEL_ONE,
    accrued,
    level_units,
    micro_units,
    payment_units,
    split,
)

totals = st.integers(-(10**15), 10**15)


@given(totals, st.lists(st.floats(0, 1e9), min_size=1, max_size=50).filter(lambda s: sum(s) > 0))
def test_a_split_adds_up_and_no_part_is_off_by_a_unit(total: int, shares: list[float]) -> None:
    parts = split(total, shares)
    assert sum(parts) == total
    whole = sum(map(Fraction, shares))
    for part, share in zip(parts, shares, strict=True):
        assert abs(part - total * Fraction(share) / whole) < 1


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
    with pytest.raises(InputError, match="shares must be at least 0"):
        split(10, [0, 0])
    assert micro_units(0.1) == 100_000
