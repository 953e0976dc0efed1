"""Whole numbers of money and level: micro-units, and multiples of 2⁻³².

Integers are exact, and two computers that compute with them agree to the last unit.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from fedprice.errors import InputError
from fedprice.verify import LEVEL_ONE

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "LEVEL_ONE",
    "MICRO",
    "level_units",
    "micro_units",
    "money",
    "money_text",
    "price_units",
    "whole_payments",
]

MICRO = 1_000_000  # micro-units in a unit of money


def micro_units(amount: float) -> int:
    """Return an amount of money in whole micro-units, halves to even.

    Examples
    --------
    >>> micro_units(12.3456789), micro_units(-0.5)
    (12345679, -500000)
    """
    if not math.isfinite(amount):
        raise InputError(f"an amount of money must be finite; got {amount}.")
    return round(Fraction(amount) * MICRO)


def money(units: int) -> Decimal:
    """Return micro-units as units of money, exactly, with all six decimals.

    Examples
    --------
    >>> money(-1_500_000), f"{money(250_000)}"
    (Decimal('-1.500000'), '0.250000')
    """
    return Decimal(units).scaleb(-6)


def money_text(units: int) -> str:
    """Return micro-units as people write money: exactly, with two decimals or as many as it takes.

    Examples
    --------
    >>> money_text(6_400_000), money_text(-1_234_567_890_123)
    ('6.40', '-1,234,567.890123')
    """
    whole, decimals = f"{money(units):,}".split(".")
    return f"{whole}.{decimals.rstrip('0').ljust(2, '0')}"


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
    if missing < 0:  # payers bring in less than was priced: reduce the largest payment
        parts[parts.index(max(parts))] += missing
    return parts


def price_units(payment: int, level: int) -> int:
    """Return the whole price at which a level earns exactly this payment.

    A price is rounded by at most half a unit, and a level is at most 1, so nothing is lost.

    Examples
    --------
    >>> price_units(333_334, level_units(0.7))
    476191
    >>> round(Fraction(476_191 * level_units(0.7), LEVEL_ONE))
    333334
    """
    return round(Fraction(payment * LEVEL_ONE, level)) if level else 0
