"""States of runs with memory, in every form that it has, as they are after each round."""

import warnings
from collections.abc import Iterator

import numpy as np

from fedprice._plumbing.arrays import State
from fedprice.rounds import Memory
from fedprice.rounds.aggregation import Arrivals

COUNT, SIZE = 12, 20_000  # 80 kB each, in 8 bits 20 kB: three to a chunk
FORMS = {
    "one per client": (Memory(), 1),
    "8 bits": (Memory(limit=500_000), 3),
    "similar clients": (Memory(limit=250_000), 1),
    "a column": (Memory(groups=np.arange(COUNT) % 4), 1),
}  # the rows in a chunk


def remembered(memory: Memory, rounds: int = 8) -> Iterator[State]:
    """Yield the state after each round, with nobody in the fourth; it changes in place."""
    rng, levels = np.random.default_rng(3), np.full(COUNT, 0.25)
    with warnings.catch_warnings(action="ignore"):  # less than one update per client
        state = memory.start(COUNT, SIZE)
    for r in range(rounds):
        joined = np.flatnonzero(rng.random(COUNT) < (levels if r != 3 else 0.0))
        round_ = memory.begin(state, Arrivals(joined, np.full(COUNT, 1 / COUNT), levels, SIZE))
        round_.add(joined, rng.normal(size=(joined.size, SIZE)).astype(np.float32))
        round_.finish()
        state = round_.state()
        yield {f"aggregator.{name}": array for name, array in state.items()} | {
            "model": np.full(50 * r, float(r)),  # it grows: what follows the vectors moves
            "how": np.array([memory.name, "plain"]),
        }
