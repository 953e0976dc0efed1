"""Who takes part in a round: by default, coins drawn from a seed decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedprice.errors import require
from fedprice.learning.draws import DELIVERIES, highest_levels, key, uniform

if TYPE_CHECKING:
    from fedprice.arrays import FloatArray, IntArray

__all__ = ["Drawn", "Participation", "deliveries"]


class Participation(Protocol):
    """Says who is called in a round, and how likely updates are to arrive; clients count from 0."""

    def heads(self, round_: int) -> IntArray:
        """Return the clients that are called, in rising order."""

    def arrival(self) -> FloatArray:
        """Return the probability that each client's update arrives in the next round."""


class Drawn:
    """Coins from a seed.

    Parameters
    ----------
    levels, delivery
        q_n and ρ_n, shape (num_clients,).
    seed
        Determines the coins.
    """

    def __init__(self, levels: FloatArray, delivery: FloatArray, seed: int) -> None:
        self._seed, self._arrival = seed, levels * delivery
        self._highest, self._buffer = highest_levels(levels), np.empty(levels.size, np.int64)
        self._draw = require("fedprice.learning.kernels", "learn").draw_joiners

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose coin shows heads."""
        return self._buffer[: self._draw(self._seed, round_, self._highest, self._buffer)].copy()

    def arrival(self) -> FloatArray:
        """Return q_n ρ_n, the same in all rounds."""
        return self._arrival


def deliveries(seed: int, round_: int, heads: IntArray, delivery: FloatArray) -> IntArray:
    """Return the clients among those that drew heads whose updates arrive, drawn from the seed.

    Parameters
    ----------
    seed, round_
        The seed and the round, which determine the result.
    heads
        The clients that drew heads.
    delivery
        ρ_n of all clients, shape (num_clients,).
    """
    if (delivery == 1).all():
        return heads
    drawn = [uniform(key(seed, DELIVERIES, round_, n)) for n in heads.tolist()]
    return heads[np.array(drawn, np.float64) < delivery[heads]]
