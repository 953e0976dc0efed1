"""Whole numbers of money and level: micro-units, and multiples of 2⁻³².

Integers are exact, and two computers that compute with them agree to the last unit.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["LEVEL_ONE", "MICRO", "accrued", "level_units", "micro_units", "payment_units", "split"]

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


def split(total: int, shares: Sequence[float]) -> list[int]:
    """Split an amount in proportion to shares, by largest remainder: the parts add up exactly.

    Of equal remainders the first comes first.

    Examples
    --------
    >>> split(100, [1, 1, 1]), split(-7, [0.5, 0.25, 0.25])
    ([34, 33, 33], [-3, -2, -2])
    """
    exact = [Fraction(share) for share in shares]
    whole = sum(exact)
    if whole <= 0 or min(exact) < 0:
        raise InputError("shares must be at least 0, and not all 0.")
    sign = -1 if total < 0 else 1
    quotas = [abs(total) * share / whole for share in exact]
    parts = [int(quota) for quota in quotas]
    by_remainder = sorted(range(len(parts)), key=lambda i: parts[i] - quotas[i])
    for i in by_remainder[: abs(total) - sum(parts)]:
        parts[i] += 1
    return [sign * part for part in parts]
