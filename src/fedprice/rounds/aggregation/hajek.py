"""Hájek's self-normalised estimator: a step of steady length, with a small and bounded bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprice.rounds.aggregation.base import Arrivals, State, WeightedSum

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray

__all__ = ["Hajek", "Normalised"]


@dataclass(frozen=True)
class Hajek:
    """w ← w + Σ_joined (a_n / q_n)(w_n − w) / W with W = Σ_joined a_n / q_n; no step if W = 0.

    The total weight W of a round is 1 only on average. Dividing by it keeps the step inside the
    convex hull of the updates, so that a round with few or unlikely joiners cannot derail training.

    Warnings
    --------
    It is biased. With Δ̄ = Σ a_n Δ_n, the step of full participation, and H the estimate,
    E[H] − Δ̄ = −Cov(H, W), because E[H W] = Δ̄ and E[W] = 1. So
    ‖E[H] − Δ̄‖ ≤ max(‖Δ̄‖, max_n ‖Δ_n − Δ̄‖) · √(Σ a_n² (1 − q_n) / q_n): the bias vanishes as the
    levels approach 1, as clients grow many and small, and where their updates agree.
    """

    name: str = "hajek"

    def start(self, num_clients: int, size: int) -> State:
        """Remember nothing."""
        return {}

    def begin(self, state: State, arrivals: Arrivals) -> Normalised:
        """Begin a round."""
        return Normalised(arrivals, share=1.0)


class Normalised:
    """Σ (a_n / q_n) Δ_n, divided by 1 − share + share · W; no step if nobody arrived."""

    def __init__(self, arrivals: Arrivals, share: float) -> None:
        self._arrivals, self._share = arrivals, share
        self._sum, self._weight = WeightedSum(arrivals.size), 0.0

    def add(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        """Take some updates."""
        factors = self._arrivals.weight[clients] / self._arrivals.probability[clients]
        self._sum.add(factors, updates)
        for factor in factors.tolist():  # in order: bit-identical however updates are batched
            self._weight += factor

    def finish(self) -> FloatArray:
        """Return the step."""
        if self._weight:
            self._sum.divide(1 - self._share + self._share * self._weight)
            self._weight = 0.0  # so that another call returns the same step
        return self._sum.total

    def state(self) -> State:
        """Remember nothing."""
        return {}
