"""Tails of tariffs: levels for clients that are more expensive than all beliefs.

Symbols: q level, c cost, τ cost exponent, v value, k impact, T payment.

A client without value whose cost is above all believed ones finds no level on the best tariff that
pays its cost: the lowest row pays the highest believed cost and no more. It stays away, and the
loss is infinite. So every client is paid a small fee for the lowest level that the beliefs expect,
and part of it for levels below.

The fee changes no choice of a believed type on a menu. It is paid for every level that such a type
would choose, and less is paid for lower ones, which would suit the type less well even if they were
paid the same. So the tail costs exactly the fee.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray

__all__ = ["tail_fee", "with_tail"]

SHARE = 1e-3  # of what is spent, for the fees of all clients together
BEYOND = 1e6  # multiple of the highest believed cost up to which a list of levels pays
ROWS = 16  # of the tail of such a list
LOWEST = 2.0**-30  # the lowest level of a tail: levels are signed in units of 2⁻³²


def tail_fee(spend: float, clients: int) -> float:
    """Return the fee of each client: together they are a thousandth of what is spent."""
    return SHARE * spend / clients


def with_tail(
    tariffs: Tariffs, fee: FloatArray, highest: FloatArray, cost_exponent: float
) -> Tariffs:
    """Return tariffs that also pay for levels below the first.

    With every level for sale, the fee is added to the first block, in proportion to the level, so
    that no cost is too high. A list of levels gets rows below its first, for costs up to a million
    times the highest believed one.

    Parameters
    ----------
    tariffs
        N tariffs.
    fee
        What is paid for the first end of each tariff on top, shape (N,).
    highest
        The highest believed cost of each client, shape (N,).
    cost_exponent
        τ.

    Examples
    --------
    >>> menu = Tariffs(np.array([[0.5, 1.0]]), np.array([[5.0, 15.0]]), menu=True)  # pays 2.5, 10
    >>> menu.best_levels(np.array([12.0]), np.zeros(1), cost_exponent=2)
    array([0.])
    >>> longer = with_tail(menu, np.array([0.01]), np.array([10.0]), cost_exponent=2)
    >>> longer.best_levels(np.array([12.0]), np.zeros(1), cost_exponent=2).round(3)
    array([0.008])
    """
    if not tariffs.menu:
        prices = tariffs.prices.copy()
        prices[:, 0] += fee / tariffs.ends[:, 0]
        return Tariffs(tariffs.ends, prices)
    first = tariffs.ends[:, :1]
    part = np.arange(1, ROWS + 1) / (ROWS + 1)  # of the fee
    least = (part[0] * fee / (BEYOND * highest)) ** (1 / cost_exponent)
    least = np.minimum(np.maximum(least, LOWEST)[:, None], first / 2)
    ends = np.concatenate(
        [least * (first / least) ** np.linspace(0, 1, ROWS, False), tariffs.ends], 1
    )
    paid = np.concatenate([fee[:, None] * part, tariffs.end_payments + fee[:, None]], axis=1)
    prices = np.diff(paid, axis=1, prepend=0.0) / np.diff(ends, axis=1, prepend=0.0)
    return Tariffs(ends, prices, menu=True)
