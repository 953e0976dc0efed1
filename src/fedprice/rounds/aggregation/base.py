"""What an aggregator is: begin a round, add the updates that may be used, finish with a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fedprice._plumbing.arrays import State, in_parts, scratch

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray

BLOCK = 1 << 18  # numbers that are scaled and added while they are in a cache

__all__ = ["Aggregator", "Arrivals", "Collector", "State", "WeightedSum"]


class Arrivals(NamedTuple):
    """What is known about a round before any update arrives.

    Attributes
    ----------
    clients
        The clients whose updates are expected, in rising order; some may be refused or missing.
    weight, probability
        a_n, and the probability q_n ρ_n that an update of client n arrives, of all clients, shape
        (num_clients,).
    size
        How many numbers an update has.
    """

    clients: IntArray
    weight: FloatArray
    probability: FloatArray
    size: int


class Collector(Protocol):
    """Takes the updates of one round, in as many parts as they come in.

    What was added may be overwritten afterwards: copy it if it is needed later.
    """

    def add(self, clients: IntArray, updates: npt.NDArray[Any]) -> None:
        """Take updates w_n − w that may be used, shape (len(clients), size), clients rising."""

    def finish(self) -> FloatArray:
        """Return the step of the model, shape (size,)."""

    def state(self) -> State:
        """Return the state after the step; the state given to `begin` must not be used again."""


class Aggregator(Protocol):
    """Turns the updates of a round into a step of the model.

    Updates that are refused never reach it. It sees clients by their numbers, counted from 0.
    """

    @property
    def name(self) -> str:
        """A name for results and checkpoints; another way of aggregating needs another name."""

    def start(self, num_clients: int, size: int) -> State:
        """Return what the aggregator remembers before the first round.

        Of large arrays `rows` and `scales`, beside `stored` and `round` as in
        `fedprice._plumbing.rows`, only the rows that a round wrote are saved after it.
        """

    def begin(self, state: State, arrivals: Arrivals) -> Collector:
        """Return a collector for the updates of one round."""


class WeightedSum:
    """Σ factor · update in double precision, in order: bit-identical however they are batched."""

    def __init__(self, size: int) -> None:
        self.total = np.zeros(size)

    def add(self, factors: FloatArray, updates: npt.NDArray[Any]) -> None:
        """Add some updates, each with its factor."""
        for factor, update in zip(factors, updates, strict=True):

            def add(part: slice, factor: float = factor, update: Any = update) -> None:
                scaled = scratch(min(BLOCK, part.stop - part.start))
                for start in range(part.start, part.stop, BLOCK):
                    own = slice(start, min(start + BLOCK, part.stop))
                    some, total = scaled[: own.stop - start], self.total[own]
                    some[:] = update[own]  # a separate cast is faster than one inside `multiply`
                    some *= factor
                    total += some

            in_parts(update.size, add)

    def divide(self, by: float) -> None:
        """Divide the sum by a number."""

        def divide(part: slice) -> None:
            self.total[part] /= by

        in_parts(self.total.size, divide)
