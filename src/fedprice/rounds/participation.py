"""Who takes part in a round: by default, coins drawn from a seed decide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from fedprice.learning.draws import DELIVERIES, key, uniform

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.rounds.availability import Presence
    from fedprice.rounds.coins import Coins

__all__ = ["Drawn", "Participation", "deliveries"]


class Participation(Protocol):
    """Says who is called in a round, and how likely updates are to arrive; clients count from 0."""

    def heads(self, round_: int) -> IntArray:
        """Return the clients that are called, in rising order."""

    def arrival(self) -> FloatArray:
        """Return the probability that each client's update arrives in the next round."""


class Drawn:
    """Coins from a seed, of clients that may be away.

    Parameters
    ----------
    coins
        Whose coins show heads, with q_n.
    delivery
        ρ_n, shape (num_clients,).
    presence
        Who is there; by default everybody.
    """

    def __init__(
        self, coins: Coins, delivery: FloatArray, presence: Presence | None = None
    ) -> None:
        self._coins, self._presence = coins, presence
        self._arrival = coins.levels * delivery
        if presence is not None:
            self._arrival *= presence.share

    def heads(self, round_: int) -> IntArray:
        """Return the clients that are there and whose coin shows heads."""
        heads = self._coins.heads(round_)
        if self._presence is None:
            return heads
        return heads[self._presence.available(round_)[heads]]

    def arrival(self) -> FloatArray:
        """Return q_n ρ_n times the share of rounds with client n, the same in all rounds."""
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
