"""Pay: what a tariff pays for a level, what updates have earned, and the factor of their weight."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from .coins import most_heads
from .forms import LEVEL_ONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    Blocks = Sequence[Sequence[int]]  # of a tariff: the level at which each ends, and its price

__all__ = ["LONGEST_GAP", "cost", "delivery_correction", "due", "tariff_payment"]

LONGEST_GAP = 10  # heads that one update stands for, unless an agreement says otherwise


def tariff_payment(tariff: Blocks, level: int) -> int:
    """Return what a tariff pays for a level in micro-units, halves to even.

    Σ price · (min(level, end) − start)⁺ over its blocks. The sum is rounded, not its parts, so that
    a block that is cut in two pays the same.

    Parameters
    ----------
    tariff
        For each block, the level at which it ends, in multiples of 2⁻³², and its price in
        micro-units per unit of level, of either sign; the next block starts where it ends.
    level
        In multiples of 2⁻³².

    Examples
    --------
    >>> tariff_payment([[LEVEL_ONE, 12_500_000]], LEVEL_ONE * 2 // 5)
    5000000
    >>> tariff_payment([[LEVEL_ONE // 2, 8_000_000], [LEVEL_ONE, 2_000_000]], LEVEL_ONE * 3 // 4)
    4500000
    """
    paid = start = 0
    for end, price in tariff:
        if level <= start:
            break
        paid += price * (min(level, end) - start)
        start = end
    return round(Fraction(paid, LEVEL_ONE))


def due(payment: int, level: int, rounds: int, delivered: int) -> int:
    """Return what a client has earned with its updates: each earns what it was agreed to earn.

    ⌊payment · delivered / (q · rounds)⌋, where q · rounds is how many updates its level has. What
    an update earns is fixed when the client commits: neither coins, nor the end of the run, nor
    other updates change it (docs/incentives.md). At most ⌈q · rounds⌉ updates are paid.

    Parameters
    ----------
    payment
        What the level is paid for all rounds, at least 0.
    level, rounds
        The level, in multiples of 2⁻³², and the rounds of the agreement.
    delivered
        How many of the client's updates were accepted.

    Examples
    --------
    >>> due(1000, LEVEL_ONE // 2, rounds=10, delivered=5)
    1000
    >>> due(1000, LEVEL_ONE // 2, rounds=10, delivered=3)
    600
    """
    if not delivered:
        return 0
    return payment * min(delivered, most_heads(level, rounds)) * LEVEL_ONE // (level * rounds)


def cost(payment: int, level: int, rounds: int) -> int:
    """Return the most that a client can be paid for a level; negative if it pays.

    >>> cost(1000, LEVEL_ONE // 2, rounds=5), cost(-1000, LEVEL_ONE // 2, rounds=5)
    (1200, -1000)
    """
    if payment <= 0 or not level:
        return payment
    return due(payment, level, rounds, most_heads(level, rounds))


def delivery_correction(gap: int, longest: int = LONGEST_GAP) -> int:
    """Return the factor of an update's weight that makes up for the heads missed before it.

    An update also stands for the heads since the client's last accepted one. No delivery rate has
    to be estimated.

    Parameters
    ----------
    gap
        The number of the client's heads since its last accepted update, including this one: 1 for
        a client that has missed nothing since. Before the first accepted update, all its heads.
    longest
        The most heads that one update stands for, so that nobody returns from a long absence with a
        weight large enough to destabilise training.

    Notes
    -----
    Over any run, whatever a client does, the factors of its updates add up to at most the number of
    its heads: gaps do not overlap. For independent deliveries with probability ρ, the expectation
    of the factor times delivery at the h-th head is exactly 1 − (1 − ρ)^min(h, longest): the share
    of its due weight that the client has. Its second moment is at most (2 − ρ)/ρ, against 1/ρ
    for a known ρ.

    Examples
    --------
    >>> delivery_correction(1), delivery_correction(3), delivery_correction(500)
    (1, 3, 10)
    """
    return min(gap, longest)
