"""`Tariff`: what each level is paid, in whole numbers, as in offers.

Its counterpart in floating-point numbers, for all clients at once, is `fedprice.tariff.Tariffs`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Self

from fedprice.errors import InputError
from fedprice.market.messages import refusing
from fedprice.market.money import LEVEL_ONE, MICRO, level_units, micro_units, money
from fedprice.verify import MOST_BLOCKS, require_tariff, tariff_payment

if TYPE_CHECKING:
    from fedprice.tariff import Tariffs

__all__ = ["Tariff", "whole_tariffs"]

MOST_SHOWN = 8  # blocks; of more, the first two and the last one are shown
MOST_BRIEF = 4  # in the short form; of more, the first and the last one


@dataclass(frozen=True)
class Tariff:
    """What each level is paid.

    Attributes
    ----------
    blocks
        For each block, the level at which it ends, in multiples of 2⁻³², and its price in
        micro-units per unit of level, of either sign. A block starts where the one before it ends;
        the last end is the highest level that is paid for.
    menu
        Whether only the ends of blocks can be chosen.

    Examples
    --------
    >>> tariff = Tariff(((LEVEL_ONE // 2, 8_000_000), (LEVEL_ONE, -2_000_000)))
    >>> tariff.payment(LEVEL_ONE * 3 // 4), tariff.payment(tariff.cap), tariff.most(floor=1)
    (3500000, 3000000, 4000000)
    >>> print(tariff)
    prices of 8.000000 up to level 0.500000, -2.000000 up to level 1.000000
    """

    blocks: tuple[tuple[int, int], ...]
    menu: bool = False

    def __post_init__(self) -> None:
        with refusing():
            require_tariff(self.blocks)
        if type(self.menu) is not bool:
            raise InputError(f"`menu` must be true or false; got {self.menu!r:.40}.")
        object.__setattr__(self, "blocks", tuple((end, price) for end, price in self.blocks))

    @classmethod
    def flat(cls, price: int, end: int) -> Self:
        """Return one price for every level up to an end."""
        return cls(((end, price),))

    @property
    def ends(self) -> list[int]:
        """The levels at which blocks end."""
        return [end for end, _ in self.blocks]

    @property
    def cap(self) -> int:
        """The highest level that is paid for."""
        return self.blocks[-1][0]

    @property
    def is_income(self) -> bool:
        """Whether the highest level brings money in: the client that takes it pays."""
        return self.payment(self.cap) < 0

    def payment(self, level: int) -> int:
        """Return what a level is paid, in micro-units; negative if the client pays."""
        return tariff_payment(self.blocks, level)

    def most(self, floor: int) -> int:
        """Return the largest payment of the levels that can be chosen, from a least one on."""
        return max(map(self.payment, self._levels(floor)))

    def one_more(self, floor: int, rounds: int) -> int:
        """Return the most that an update can earn in a number of rounds, rounded up.

        Evenly spaced coins show at most one head more than a level has, and it is paid.
        """
        dearest = max(
            Fraction(self.payment(q) * LEVEL_ONE, q * rounds) for q in self._levels(floor)
        )
        return max(math.ceil(dearest), 0)

    def _levels(self, floor: int) -> list[int]:
        """Return the levels among which payments, and what an update earns, are largest."""
        ends = [end for end in self.ends if end >= floor]
        return ends if self.menu else [floor, *ends]

    @property
    def brief(self) -> str:
        """The short form: prices up to levels or, for a menu, payments for levels.

        >>> Tariff(((LEVEL_ONE // 2, 8_000_000), (LEVEL_ONE, 1_234_567))).brief
        '8 up to 0.5, 1.235 up to 1'
        """
        rows = [
            f"{self.payment(end) / MICRO:.4g} for {end / LEVEL_ONE:.4g}"
            if self.menu
            else f"{price / MICRO:.4g} up to {end / LEVEL_ONE:.4g}"
            for end, price in self.blocks
        ]
        if len(rows) <= MOST_BRIEF:
            return ", ".join(rows)
        return f"{rows[0]} … {rows[-1]} ({len(rows)} {'levels' if self.menu else 'blocks'})"

    def __str__(self) -> str:
        if self.menu:
            kind, many = "a choice of", "levels"
            rows = [f"{money(self.payment(q))} for level {q / LEVEL_ONE:.6f}" for q in self.ends]
        else:
            kind, many = "a price of" if len(self.blocks) == 1 else "prices of", "blocks"
            rows = [
                f"{money(price)} up to level {end / LEVEL_ONE:.6f}" for end, price in self.blocks
            ]
        if len(rows) <= MOST_SHOWN:
            return f"{kind} {', '.join(rows)}"
        return f"{kind} {rows[0]}, {rows[1]}, … {rows[-1]} ({len(rows)} {many})"


def whole_tariffs(tariffs: Tariffs, share: Fraction) -> list[Tariff]:
    """Return tariffs for a whole run in whole numbers, for a share of its rounds.

    Levels are rounded down, and blocks narrower than 2⁻³² are left out. A payment is off by less
    than a micro-unit, apart from the effect of rounding its level.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from fedprice.tariff import Tariffs
    >>> (tariff,) = whole_tariffs(Tariffs([[0.5, 1.0]], [[8.0, 2.0]]), Fraction(1, 2))
    >>> print(tariff)
    prices of 4.000000 up to level 0.500000, 1.000000 up to level 1.000000
    """
    found = []
    for ends, prices in zip(tariffs.ends.tolist(), tariffs.prices.tolist(), strict=True):
        blocks: dict[int, int] = {}
        for end, price in zip(map(level_units, ends), prices, strict=True):
            if end > max(blocks, default=0):
                blocks[end] = micro_units(price * float(share))
        if len(blocks) > MOST_BLOCKS:
            raise InputError(
                f"`tariff` must have 1 to {MOST_BLOCKS} blocks to be offered; got {len(blocks)}. "
                "Use beliefs with fewer costs, or form 'blocks'."
            )
        found.append(Tariff(tuple(blocks.items()), tariffs.menu))
    return found
