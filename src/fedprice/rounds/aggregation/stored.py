"""Vectors that are remembered: in 32 bits, or in 8 bits with a scale for every 64 numbers."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprice._plumbing.arrays import in_parts, scratch

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays, FloatArray, IntArray, State

    Singles = npt.NDArray[np.float32]
    Packed = tuple[npt.NDArray[Any], Singles | None]
    Held = tuple[IntArray, npt.NDArray[Any]]

SCALED = 64  # numbers that share a scale in 8 bits
TILE = 1 << 16  # columns that are worked on at a time
SUMMED = 1 << 19  # numbers that are added up at a time
LINE = 16  # numbers in a line of the processor's cache, the least that is worth reading

__all__ = ["TILE", "Stored", "add_weighted", "bytes_needed", "in_tiles"]


def bytes_needed(rows: int, size: int, bits: int) -> int:
    """Return how many bytes so many vectors take."""
    return 4 * rows * size if bits == 32 else rows * _blocks(size) * (SCALED + 4)


@dataclass(frozen=True)
class Stored:
    """The rows of a state, one vector each.

    Attributes
    ----------
    numbers, scales
        Shape (rows, size) of 32 bits, without scales; or (rows, blocks, 64) of 8 bits, and (rows,
        blocks).
    size
        The length of a vector.
    """

    numbers: npt.NDArray[Any]
    scales: Singles | None
    size: int

    @classmethod
    def empty(cls, rows: int, size: int, bits: int) -> Stored:
        """Return rows of zeros."""
        if bits == 32:
            return cls(np.zeros((rows, size), np.float32), None, size)
        shape = rows, _blocks(size), SCALED
        return cls(np.zeros(shape, np.int8), np.zeros(shape[:2], np.float32), size)

    @classmethod
    def of(cls, state: State, size: int | None = None) -> Self:
        """Return the rows of a state, by default with all numbers of their blocks."""
        numbers, scales = state["rows"], state.get("scales")
        return cls(numbers, scales, prod(numbers.shape[1:]) if size is None else size)

    @property
    def arrays(self) -> State:
        """The arrays that a state holds."""
        return {"rows": self.numbers} | ({} if self.scales is None else {"scales": self.scales})

    def at(self, rows: IntArray) -> IntArray:
        """Return where the arrays have some rows."""
        return rows

    def hold(self, rows: IntArray, vectors: npt.NDArray[Any]) -> list[Held]:
        """Return vectors, some rows' next ones, as they will be while the round goes on."""
        return [(rows, np.array(vectors))]

    def read(self, rows: IntArray, part: slice = slice(None)) -> Singles:
        """Return a copy of some rows, or of a part of them that begins at a multiple of 64."""
        return self._unpacked(*self.raw(self.at(rows), part), part)

    def write(self, rows: IntArray, vectors: npt.NDArray[Any]) -> FloatArray:
        """Replace some rows, each another; return the squared norms of what is stored."""

        def write(part: slice) -> Singles:
            numbers, scales, squares = self.packed(vectors, part)
            blocks = self.blocks_of(part)
            self.numbers[rows, blocks] = numbers
            if self.scales is not None:
                self.scales[rows, blocks] = scales
            return squares

        return total_of(in_tiles(self.size, rows.size, write))

    def copy(self, rows: IntArray, other: Stored, theirs: IntArray) -> None:
        """Replace some rows by those of another state, in the same form."""
        self.numbers[rows] = other.numbers[other.at(theirs)]
        if self.scales is not None and other.scales is not None:
            self.scales[rows] = other.scales[other.at(theirs)]

    def times(self, rows: IntArray, vectors: npt.NDArray[Any]) -> FloatArray:
        """Return the inner products of vectors with some rows, one each, and with themselves."""

        def multiply(part: slice) -> list[Singles]:
            own = vectors[:, part].astype(np.float32, copy=False)
            return [np.einsum("ij,ij->i", own, other) for other in (self.read(rows, part), own)]

        return total_of(in_tiles(self.size, rows.size, multiply))

    def add_to(self, total: FloatArray, factors: FloatArray) -> None:
        """Add Σ factor · row to a vector in double precision."""
        if self.scales is None:
            add_weighted(total, factors, [self.numbers])
            return
        rows = np.flatnonzero(factors)
        at, own, numbers, scales = self.at(rows), factors[rows, None], self.numbers, self.scales

        def add(part: slice) -> None:
            blocks = self.blocks_of(part)
            sums = np.einsum("ib,ibk->bk", own * scales[at, blocks], numbers[at, blocks])
            total[part] += sums.ravel()[: part.stop - part.start]

        in_tiles(total.size, rows.size, add)

    def raw(self, at: IntArray, part: slice) -> Packed:
        """Return a part of what the arrays have in some places, and its scales."""
        blocks = self.blocks_of(part)
        return self.numbers[at, blocks], None if self.scales is None else self.scales[at, blocks]

    def packed(
        self, vectors: npt.NDArray[Any], part: slice
    ) -> tuple[npt.NDArray[Any], Singles | None, Singles]:
        """Return a part of vectors as it is stored, its scales, and its squared norms."""
        numbers, scales = vectors[:, part].astype(np.float32, copy=False), None
        if self.scales is not None:
            padded = np.zeros((len(numbers), _blocks(numbers.shape[1]), SCALED), np.float32)
            padded.reshape(len(numbers), -1)[:, : numbers.shape[1]] = numbers
            scales = np.abs(padded).max(axis=2) / np.float32(127)
            padded /= np.where(scales > 0, scales, 1)[:, :, None]
            numbers = np.rint(padded, out=padded).astype(np.int8)
        own = self._unpacked(numbers, scales, part)
        return numbers, scales, np.einsum("ij,ij->i", own, own)

    def blocks_of(self, part: slice) -> slice:
        """Return where the arrays have a part of the vectors that begins at a multiple of 64."""
        if self.scales is None:
            return part
        first, end, _ = part.indices(self.size)
        return slice(first // SCALED, _blocks(end))

    def _unpacked(self, numbers: npt.NDArray[Any], scales: Singles | None, part: slice) -> Singles:
        if scales is None:
            return numbers
        first, end, _ = part.indices(self.size)
        whole: Singles = numbers * scales[:, :, None]
        return whole.reshape(len(whole), -1)[:, : end - first]


def add_weighted(total: FloatArray, factors: FloatArray, vectors: Arrays) -> None:
    """Add Σ factor · vector in double precision, bit-identical however vectors are batched."""
    count = factors.size
    width = max(SUMMED // max(count, 1) // SCALED * SCALED, LINE)

    def add(part: slice) -> None:
        own = vectors[0][:, part]
        if len(vectors) > 1:  # new memory would cost more than the sum
            own = scratch(count * (part.stop - part.start)).reshape(count, -1)
            np.concatenate([some[:, part] for some in vectors], out=own)
        total[part] += np.einsum("i,ij->j", factors, own)

    in_tiles(total.size, count, add, width)


def total_of(parts: list[Any]) -> FloatArray:
    """Return the sum of what tiles gave."""
    if len(parts) == 1:  # several times as fast
        return np.asarray(parts[0], np.float64)
    return np.asarray(np.sum(parts, axis=0, dtype=np.float64))


def in_tiles(size: int, rows: int, work: Callable[[slice], Any], width: int = TILE) -> list[Any]:
    """Call a function for all tiles of the columns of some rows, and return what it gives."""
    if size <= width:
        return [work(slice(0, size))]

    def some(tiles: slice) -> list[Any]:
        starts = range(tiles.start * width, min(tiles.stop * width, size), width)
        return [work(slice(start, min(start + width, size))) for start in starts]

    parts = in_parts(-(-size // width), some, each=width * rows)
    return [found for part in parts for found in part]


def _blocks(size: int) -> int:
    return -(-size // SCALED)
