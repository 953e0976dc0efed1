"""Whole numbers of money and level: micro-units, and multiples of 2⁻³².

Integers are exact, and two computers that compute with them agree to the last unit.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LEVEL_ONE",
    "MICRO",
    "accrued",
    "level_units",
    "micro_units",
    "money",
    "payment_units",
    "price_units",
    "whole_payments",
]

MICRO = 1_000_000  # micro-units in a unit of money
LEVEL_ONE = 1 << 32  # a level of 1


def micro_units(amount: float) -> int:
    """Return an amount of money in whole micro-units, halves to even.

    Examples
    --------
    >>> micro_units(12.3456789), micro_units(-0.5)
    (12345679, -500000)
    """
    return round(Fraction(amount) * MICRO)


def money(units: int) -> Decimal:
    """Return micro-units as units of money, exactly, with all six decimals.

    Examples
    --------
    >>> money(-1_500_000), f"{money(250_000)}"
    (Decimal('-1.500000'), '0.250000')
    """
    return Decimal(units).scaleb(-6)


def level_units(level: float) -> int:
    """Return a level in whole multiples of 2⁻³², rounded down: never more than was meant.

    Examples
    --------
    >>> level_units(0.5) == 2**31, level_units(1.0) == LEVEL_ONE
    (True, True)
    """
    if not 0 <= level <= 1:
        raise InputError(f"a level must lie between 0 and 1; got {level}.")
    return int(Fraction(level) * LEVEL_ONE)


def payment_units(price: int, level: int) -> int:
    """Return price × level in micro-units, halves to even.

    Parameters
    ----------
    price
        In micro-units a unit of level, of either sign.
    level
        In multiples of 2⁻³².

    Examples
    --------
    >>> payment_units(micro_units(12.5), level_units(0.4))
    5000000
    """
    return round(Fraction(price * level, LEVEL_ONE))


def accrued(total: int, rounds: int, done: int) -> int:
    """Return what of a total is due after some of its rounds: all of it after the last.

    A round's share is the difference of two of these, so that shares differ by at most one unit and
    add up exactly.

    Examples
    --------
    >>> [accrued(10, 4, r + 1) - accrued(10, 4, r) for r in range(4)]
    [2, 3, 2, 3]
    >>> [accrued(-10, 4, r + 1) - accrued(-10, 4, r) for r in range(4)]
    [-2, -3, -2, -3]
    """
    due = abs(total) * done // rounds
    return due if total >= 0 else -due


def whole_payments(payments: Iterable[float], most: int) -> list[int]:
    """Round payments to whole micro-units by largest remainder, so that their sum is exact.

    They add up to the sum of the payments, rounded, or to `most` micro-units if that is less. Of
    equal remainders the first is rounded up first.

    Examples
    --------
    >>> whole_payments([1 / 3, 1 / 3, 1 / 3, -0.5], most=10**6)
    [333334, 333333, 333333, -500000]
    """
    exact = [Fraction(payment) * MICRO for payment in payments]
    parts = [math.floor(amount) for amount in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: parts[i] - exact[i])
    missing = min(round(sum(exact)), most) - sum(parts)
    for i in by_remainder[: max(missing, 0)]:
        parts[i] += 1
    if missing < 0:  # payers bring in less than was priced: the largest payment gives way
        parts[parts.index(max(parts))] += missing
    return parts


def price_units(payment: int, level: int) -> int:
    """Return the whole price at which a level earns exactly this payment.

    A price is rounded by at most half a unit, and a level is at most 1, so nothing is lost.

    Examples
    --------
    >>> price_units(333_334, level_units(0.7))
    476191
    >>> payment_units(476_191, level_units(0.7))
    333334
    """
    return round(Fraction(payment * LEVEL_ONE, level)) if level else 0
