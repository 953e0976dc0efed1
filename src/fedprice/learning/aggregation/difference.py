"""The difference estimator: unbiased like Horvitz–Thompson, with remembered updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.learning.aggregation.base import State, weighted_sum

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice.arrays import FloatArray


__all__ = ["Difference"]


@dataclass(frozen=True)
class Difference:
    """w ← w + Σ a_n h_n + Σ_joined (a_n / q_n)(Δ_n − h_n), with h_n the last update of client n.

    Unbiased whatever the h_n, because they are fixed before the coins fall; and of far smaller
    variance, because only the change of an update since the client last joined is scaled up. It
    remembers one update a client.
    """

    name: str = "difference"

    def start(self, num_clients: int, size: int) -> State:
        """Remember an update of 0 of every client, and their weighted sum."""
        return {"last": np.zeros((num_clients, size), np.float32), "expected": np.zeros(size)}

    def step(
        self,
        state: State,
        joined: npt.NDArray[np.int64],
        updates: npt.NDArray[np.float32],
        weight: FloatArray,
        arrival: FloatArray,
        everyone: npt.NDArray[np.int64] | None = None,
    ) -> FloatArray:
        """Return the estimate, and remember the updates that arrived."""
        last, expected = state["last"], state["expected"]
        change = updates - last[joined]
        step = weighted_sum(weight[joined] / arrival[joined], change)
        if everyone is None or not joined.size or joined[0] == everyone[0]:  # once a round
            step += expected
        expected += weighted_sum(weight[joined], change)
        last[joined] = updates
        return step
