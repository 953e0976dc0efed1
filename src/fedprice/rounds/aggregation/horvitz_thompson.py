"""Horvitz–Thompson: the unbiased aggregation of Lemma 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedprice.rounds.aggregation.base import Arrivals, State, WeightedSum

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray

__all__ = ["HorvitzThompson"]


@dataclass(frozen=True)
class HorvitzThompson:
    """w ← w + Σ_joined (a_n / q_n ρ_n)(w_n − w): unbiased for independent coins with any levels."""

    name: str = "horvitz-thompson"

    def start(self, num_clients: int, size: int) -> State:
        """Remember nothing."""
        return {}

    def begin(self, state: State, arrivals: Arrivals) -> _Sum:
        """Begin a round."""
        return _Sum(arrivals)


class _Sum:
    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals, self._sum = arrivals, WeightedSum(arrivals.size)

    def add(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        weight, probability = self._arrivals.weight, self._arrivals.probability
        self._sum.add(weight[clients] / probability[clients], updates)

    def finish(self) -> FloatArray:
        return self._sum.total

    def state(self) -> State:
        return {}
