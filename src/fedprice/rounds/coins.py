"""Which rounds a client is called in: independent coins, or evenly spaced ones at the same levels.

Even spacing is exact in whole numbers. A level is L = q · 2³², rounded; a client's phase is uniform
in [0, 2³²), so C_r = phase + r L is, modulo 2³², uniform in every round r.

spaced
    Heads if C_r mod 2³² < L: a window of W rounds has ⌊W q⌋ or ⌈W q⌉ heads.
blocks
    The rounds with the same C_r div 2³² are a block; one of them, at random, shows heads. The
    first block began before round 0. Given its start, every place in a block is as likely to be
    round r as any other, so that P(heads in r) = q, too.
shared
    With T_n the sum of the levels of the clients before n, heads if (S_r − T_n) mod 2³² < L: of all
    clients, one per 2³² of their levels in a row. The starts S_r are spread by the golden ratio.

Given earlier rounds, such coins are not unbiased; on average over the phases they are. A level that
changes must accumulate: C_r is then the phase plus the sum of the levels of the rounds before r.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedprice.errors import InputError, require
from fedprice.learning.draws import PHASES, PLACES, highest_levels, joiners, keys, mix

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.learning.task import Task

__all__ = [
    "COINS",
    "BlockCoins",
    "Coins",
    "IndependentCoins",
    "SpacedCoins",
    "check_coins",
    "coins_of",
    "picked",
]

COINS = ("independent", "spaced", "blocks", "shared")
WHOLE = 1 << 32  # level 1
GOLDEN = 0x9E3779B9  # the golden ratio's fraction of it, made odd


class Coins(Protocol):
    """Says whose coins show heads; `levels` are the exact probabilities."""

    levels: FloatArray

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose coins show heads, in rising order."""


class IndependentCoins:
    """A coin of its own for every client and round."""

    def __init__(self, levels: FloatArray, seed: int) -> None:
        self.levels, self._seed = levels, seed
        self._highest, self._buffer = highest_levels(levels), np.empty(levels.size, np.int64)
        self._draw = None
        if importlib.util.find_spec("numba"):
            self._draw = require("fedprice.learning.kernels", "learn").draw_joiners

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose coins show heads, in rising order."""
        if self._draw is None:
            return joiners(self._seed, round_, self.levels)  # the same, for fewer clients
        return self._buffer[: self._draw(self._seed, round_, self._highest, self._buffer)].copy()


class SpacedCoins:
    """Heads if (phase + r · step) mod `whole` is below the level.

    Parameters
    ----------
    level, phase, step
        Whole numbers, the first two one per client.
    whole
        Level 1.
    """

    def __init__(
        self, level: IntArray, phase: IntArray, step: IntArray | int, whole: int = WHOLE
    ) -> None:
        self.levels = level / whole
        self._level, self._phase, self._step, self._whole = level, phase, step, whole

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose coins show heads, in rising order."""
        return np.flatnonzero((self._phase + round_ * self._step) % self._whole < self._level)


class BlockCoins:
    """One join at a random place of each 1 / q rounds."""

    def __init__(self, level: IntArray, phase: IntArray, seed: int) -> None:
        self.levels = level / WHOLE
        self._level, self._phase = level, phase
        self._keys = keys(seed, PLACES, 0, level.size)

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose coins show heads, in rising order."""
        total = self._phase + round_ * self._level
        luck = mix(self._keys + (total // WHOLE).astype(np.uint64)) >> 33
        return np.flatnonzero(picked(total, self._level, luck.astype(np.int64)))


def picked(total: IntArray, level: IntArray, luck: IntArray, whole: int = WHOLE) -> BoolArray:
    """Return whether a round is the one that was picked in its block.

    Parameters
    ----------
    total, level
        C_r and L of each client.
    luck
        Random numbers of 31 bits, each that of a client's block.
    whole
        Level 1.
    """
    place, start = np.divmod(total % whole, np.maximum(level, 1))
    places = -((start - whole) // np.maximum(level, 1))
    chosen: BoolArray = (place == luck * places >> 31) & (level > 0)
    return chosen


def check_coins(name: str) -> None:
    """Refuse a name that no coins have."""
    if name not in COINS:
        *words, last = COINS
        raise InputError(f"`coins` must be {', '.join(words)} or {last}; got {name!r}.")


def coins_of(name: str, levels: FloatArray, seed: int, task: Task | None = None) -> Coins:
    """Return the coins with a name.

    Parameters
    ----------
    name
        "independent", "spaced", "blocks" or "shared".
    levels, seed
        The probability of heads of each client, and what determines the coins.
    task
        Whose clients; shared coins count them in the order of their labels, where it knows them,
        and otherwise in the order given.
    """
    check_coins(name)
    if name == "independent":
        return IndependentCoins(levels, seed)
    level = np.rint(levels * WHOLE).astype(np.int64)
    phase = (keys(seed, PHASES, 0, levels.size) >> 32).astype(np.int64)
    if name == "blocks":
        return BlockCoins(level, phase, seed)
    if name == "spaced":
        return SpacedCoins(level, phase, step=level)
    known = None if task is None else task.label_order()
    order = np.arange(level.size) if known is None else known
    before = np.empty_like(level)
    before[order] = np.cumsum(level[order]) - level[order]
    return SpacedCoins(level, phase[0] - before, step=GOLDEN)
