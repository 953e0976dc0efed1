"""Who takes part in a round of training: by default, whoever a seed says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedprice.errors import require
from fedprice.learning.draws import DELIVERIES, highest_levels, key, uniform

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.learning.aggregation.base import State


__all__ = ["Drawn", "Participation"]


class Participation(Protocol):
    """Decides who joins, whose updates count, and what is kept of a round.

    Clients are numbered from 0, in the order of the federation.
    """

    def restore(self) -> State | None:
        """Return what `close` was given after the last round that was kept, if any."""

    def heads(self, round_: int) -> IntArray:
        """Return the clients that are asked for an update, in rising order."""

    def delivering(self, round_: int, heads: IntArray) -> IntArray:
        """Return those of them whose update arrives."""

    def arrival(self) -> FloatArray:
        """Return the probability that each client's update arrives in this round, shape (N,)."""

    def admit(
        self, round_: int, clients: IntArray, updates: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.bool_]:
        """Return which of some updates may touch the model, shape (len(clients),).

        Parameters
        ----------
        updates
            w_n − w of these clients, shape (len(clients), classes, features + 1).
        """

    def close(self, round_: int, model: npt.NDArray[np.float32], state: State) -> None:
        """Take note of a round that is over.

        Parameters
        ----------
        model
            The model after it, shape (classes, features + 1).
        state
            What the run needs to go on from here.
        """


class Drawn:
    """Coins and deliveries from a seed: nobody checks anything, nothing is kept."""

    def __init__(self, levels: FloatArray, delivery: FloatArray, seed: int) -> None:
        self._delivery, self._seed = delivery, seed
        self._arrival = levels * delivery
        self._highest, self._buffer = highest_levels(levels), np.empty(levels.size, np.int64)
        self._draw = require("fedprice.learning.kernels", "learn").draw_joiners

    def restore(self) -> State | None:
        """Return nothing: nothing was kept."""
        return None

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose coin shows heads."""
        return self._buffer[: self._draw(self._seed, round_, self._highest, self._buffer)]

    def delivering(self, round_: int, heads: IntArray) -> IntArray:
        """Return those of the joiners whose update arrives."""
        if (self._delivery == 1).all():
            return heads
        return heads[deliveries(self._seed, round_, heads) < self._delivery[heads]]

    def arrival(self) -> FloatArray:
        """Return q_n ρ_n, the same in all rounds."""
        return self._arrival

    def admit(
        self, round_: int, clients: IntArray, updates: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.bool_]:
        """Admit every update."""
        return np.ones(clients.size, np.bool_)

    def close(self, round_: int, model: npt.NDArray[np.float32], state: State) -> None:
        """Keep nothing."""


def deliveries(seed: int, round_: int, clients: IntArray) -> FloatArray:
    """Return a uniform number for each client: its update arrives if it is below ρ_n."""
    return np.array([uniform(key(seed, DELIVERIES, round_, int(n))) for n in clients], np.float64)
