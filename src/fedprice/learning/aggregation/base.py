"""What an aggregator is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.arrays import FloatArray

    State = dict[str, npt.NDArray[Any]]
else:
    State = dict

__all__ = ["Aggregator", "State", "weighted_sum"]


class Aggregator(Protocol):
    """Turns the updates of a round into a step of the model.

    Weights are given with the probability that an update arrives: the level, times the probability
    of delivery where clients that drew heads may still fail.
    """

    @property
    def name(self) -> str:
        """A word for results and checkpoints: what aggregates differently needs another."""

    def start(self, num_clients: int, size: int) -> State:
        """Return what the aggregator remembers before the first round."""

    def step(
        self,
        state: State,
        joined: npt.NDArray[np.int64],
        updates: npt.NDArray[np.float32],
        weight: FloatArray,
        arrival: FloatArray,
        everyone: npt.NDArray[np.int64] | None = None,
    ) -> FloatArray:
        """Return the step of the model, shape (size,), and update the state in place.

        A round of many updates comes in parts, whose steps are added.

        Parameters
        ----------
        state
            What `start` returned.
        joined
            The clients whose updates arrived, in rising order.
        updates
            Their updates w_n − w, shape (len(joined), size).
        weight, arrival
            a_n, and q_n ρ_n, of all clients, shape (num_clients,).
        everyone
            All clients whose updates arrive in this round, if `joined` is only part of them.
        """


def weighted_sum(factors: FloatArray, updates: npt.NDArray[np.float32]) -> FloatArray:
    """Return Σ factor · update in double precision, in an order that nothing changes."""
    total = np.zeros(updates.shape[1])
    for factor, update in zip(factors, updates, strict=True):
        total += factor * update
    return total
