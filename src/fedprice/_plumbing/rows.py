"""The vectors in a run's state, in chunks, so that only those that were written are saved again.

`aggregator.rows` and `aggregator.scales` have one row per vector, `aggregator.stored` has the round
in which each was last written, −1 for never, and `aggregator.round` how many rounds there were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from fedprice._plumbing.arrays import State

CHUNK = 1 << 16  # bytes; shorter rows share a chunk. Saved states rely on it.
ROWS = "aggregator.rows", "aggregator.scales"
KINDS = "biufSU"  # dtype kinds whose arrays are fully described by their bytes

__all__ = ["KINDS", "Chunk", "chunks_of", "rounds_of", "whole_rows"]


class Chunk(NamedTuple):
    """Rows that are next to each other.

    Attributes
    ----------
    array, first
        The name of their array, and the number of the first row.
    rows
        What they hold.
    written
        The last round in which one of them was written.
    """

    array: str
    first: int
    rows: npt.NDArray[Any]
    written: int


def rounds_of(state: Mapping[str, npt.NDArray[Any]]) -> int:
    """Return how many rounds a memory had."""
    return int(state["aggregator.round"][0])


def chunks_of(state: State) -> list[Chunk]:
    """Return the chunks of the vectors, none if they are few.

    Examples
    --------
    >>> state = {"aggregator.rows": np.zeros((3, 1 << 15), np.float32)}
    >>> state |= {"aggregator.stored": np.array([-1, 4, 2]), "aggregator.round": np.array([5])}
    >>> [(own.first, own.rows.shape, own.written) for own in chunks_of(state)]
    [(0, (1, 32768), -1), (1, (1, 32768), 4), (2, (1, 32768), 2)]
    """
    found: list[Chunk] = []
    if not {"aggregator.stored", "aggregator.round"} <= state.keys():
        return found
    stored = state["aggregator.stored"]
    for name in ROWS:
        array = state.get(name)
        if array is not None and array.nbytes > CHUNK and array.shape[:1] == stored.shape:
            step = max(1, CHUNK * len(array) // array.nbytes)
            starts = range(0, len(array), step)
            written = np.maximum.reduceat(stored, starts).tolist()
            found += [
                Chunk(name, first, array[first : first + step], last)
                for first, last in zip(starts, written, strict=True)
            ]
    return found


def whole_rows(saved: Mapping[str, npt.NDArray[Any]]) -> State:
    """Return a state whose chunks were saved as `ARRAY/FIRST`."""
    state: State = {}
    for name, array in saved.items():
        whole, _, first = name.partition("/")
        if whole not in ROWS or not first:
            state[name] = array
            continue
        if whole not in state:
            shape = saved["aggregator.stored"].size, *array.shape[1:]
            state[whole] = np.empty(shape, array.dtype)
        state[whole][int(first) :][: len(array)] = array
    return state
