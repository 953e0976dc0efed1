"""Looks: after how many seeds claims are examined, and what error each look may have.

Seeds are added while a claim is inconclusive, so it is examined more than once. Its intervals at
the looks miss with probabilities that sum to ERROR at most, so all of them contain the true number
with probability 1 − ERROR (Boole's inequality), and it does not matter at which one the adding
stops.

References
----------
C. Jennison and B. W. Turnbull, Group sequential methods with applications to clinical trials,
chapter 9 (repeated confidence intervals), 2000.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ERROR", "error_of_a_look", "looks", "next_look"]

ERROR = 0.05  # probability that any interval of a claim misses the true number


def looks(first: int, most: int, others: Iterable[int] = ()) -> tuple[int, ...]:
    """Return the numbers of seeds at which a claim is examined: doubled up to the most.

    Parameters
    ----------
    first, most
        Numbers of seeds.
    others
        Further numbers, with which some of the runs that the claim is about begin.

    Examples
    --------
    >>> looks(20, 200), looks(20, 200, [5]), looks(5, 5)
    ((20, 40, 80, 160, 200), (5, 20, 40, 80, 160, 200), (5,))
    """
    counts = {first, most, *others}
    count = 2 * first
    while count < most:
        counts.add(count)
        count *= 2
    return tuple(sorted(counts))


def error_of_a_look(first: int, most: int, others: Iterable[int] = ()) -> float:
    """Return the probability with which the interval at one look may miss.

    >>> round(error_of_a_look(20, 200), 4), error_of_a_look(5, 5)
    (0.01, 0.05)
    """
    return ERROR / len(looks(first, most, others))


def next_look(count: int, first: int, most: int) -> int | None:
    """Return the number of seeds of the next look, or None after the last.

    >>> next_look(5, 20, 200), next_look(160, 20, 200), next_look(200, 20, 200)
    (20, 200, None)
    """
    return next((look for look in looks(first, most) if look > count), None)
