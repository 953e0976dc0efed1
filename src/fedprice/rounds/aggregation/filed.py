"""Remembered vectors in a file: what a run works on, mapped into memory, and what it resumes from.

A state has the place of each vector in the file, and its checksum. A round writes only to places
that the state before it does not name: whenever the process is killed, the file holds all that the
last recorded state names. Nothing waits for the disk. What a loss of power takes is found by its
checksum and forgotten, so that memory of these clients begins again.
"""

from __future__ import annotations

import os
import warnings
import weakref
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprice._plumbing.arrays import State
from fedprice.errors import InputError
from fedprice.rounds.aggregation.stored import Stored, add_weighted, in_tiles, total_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.rounds.aggregation.stored import Held, Singles

__all__ = ["MappedRows", "in_file", "reopened", "stored_of"]

LARGE = 1 << 22  # bytes of vectors that are put into a file; fewer add little to a round's records
ARRAYS = "rows", "scales"
PRIVATE = 0o600  # permissions of a file with updates in it


class MappedRows(np.memmap[Any, np.dtype[Any]]):
    """Rows in a file, mapped to be read.

    They are written by way of the file, because a new page of a mapping costs ten times as much.
    """

    handle: int

    @classmethod
    def of(cls, path: Path, kind: str, shape: tuple[int, ...], offset: int) -> Self:
        """Map a part of a file."""
        rows = cls(path, np.dtype(kind), "r", offset, shape)
        rows.handle = os.open(path, os.O_WRONLY)
        weakref.finalize(rows, os.close, rows.handle)
        return rows

    def write(self, row: int, first: int, block: npt.NDArray[Any]) -> None:
        """Write a block into a row, from its item `first` on."""
        offset = self.offset + row * self.strides[0] + first * self.strides[1]
        left = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
        try:
            while left:
                written = os.pwrite(self.handle, left, offset)
                left, offset = left[written:], offset + written
        except OSError as error:
            raise InputError(f"cannot write {self.filename}: {error.strerror}.") from error


@dataclass(frozen=True)
class StoredInFile(Stored):
    """The rows of a state in a file.

    Attributes
    ----------
    mapped
        The arrays of the file.
    place, checksum
        Where the file has each row, −1 for none, and its checksum.
    """

    mapped: tuple[MappedRows, ...]
    place: IntArray
    checksum: npt.NDArray[np.uint32]
    _free: list[int] = field(init=False)
    _new: dict[int, tuple[int, int, float]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, state: State, size: int | None = None) -> Self:
        """Return the rows of a state that are in a file."""
        mapped = tuple(own for own in map(state.get, ARRAYS) if isinstance(own, MappedRows))
        numbers, *scales = map(np.asarray, mapped)
        size = prod(numbers.shape[1:]) if size is None else size
        places = state["place"], state["checksum"]
        return cls(numbers, scales[0] if scales else None, size, mapped, *places)

    def __post_init__(self) -> None:
        free = np.setdiff1d(np.arange(len(self.numbers)), self.place)
        object.__setattr__(self, "_free", free[::-1].tolist())

    def at(self, rows: IntArray) -> IntArray:
        """Return where the file has some rows."""
        return self.place[rows]

    def hold(self, rows: IntArray, vectors: npt.NDArray[Any]) -> list[Held]:
        """Return vectors one by one, from the file if they are stored there as they are."""
        each = [(rows[i : i + 1], vectors[i : i + 1]) for i in range(rows.size)]
        if self.scales is not None or vectors.dtype != np.float32:
            return [(row, own.copy()) for row, own in each]
        places = [(row, self._put(int(row[0]), own)) for row, own in each]
        return [(row, self.numbers[place : place + 1]) for row, place in places]

    def write(self, rows: IntArray, vectors: npt.NDArray[Any]) -> FloatArray:
        """Replace some rows, each another; return the squared norms of what is stored."""
        squares = np.empty(rows.size)
        for i, row in enumerate(rows.tolist()):
            if row not in self._new:
                self._put(row, vectors[i : i + 1])
            self.place[row], self.checksum[row], squares[i] = self._new.pop(row)
        return squares

    def copy(self, rows: IntArray, other: Stored, theirs: IntArray) -> None:
        """Replace some rows by those of another state, in the same form."""
        for row, at in zip(rows.tolist(), other.at(theirs)[:, None], strict=True):
            self.place[row] = place = self._free.pop()
            save = partial(self._save_copy, place, other, at)
            self.checksum[row] = _combined(in_tiles(self.size, 1, save))

    def add_to(self, total: FloatArray, factors: FloatArray) -> None:
        """Add Σ factor · row to a vector in double precision."""
        if self.scales is not None:
            super().add_to(total, factors)
            return
        rows = np.flatnonzero(factors)
        places = self.place[rows].tolist()
        add_weighted(total, factors[rows], [self.numbers[p : p + 1] for p in places])

    def is_whole(self, row: int) -> bool:
        """Return whether the file has a row as it was written."""
        at = self.place[[row]]
        sums = in_tiles(self.size, 1, lambda part: _checksum(*self.raw(at, part)))
        return bool(self.checksum[row] == _combined(sums))

    def _put(self, row: int, vector: npt.NDArray[Any]) -> int:
        """Write a row's next vector into a place that is free, and return the place."""
        place = self._free.pop()

        def save(part: slice) -> tuple[int, float]:
            numbers, scales, squares = self.packed(vector, part)
            return self._save(place, part, numbers, scales), float(squares[0])

        found = in_tiles(self.size, 1, save)
        squares = float(total_of([square for _, square in found]))
        self._new[row] = place, _combined([checksum for checksum, _ in found]), squares
        return place

    def _save_copy(self, place: int, other: Stored, at: IntArray, part: slice) -> int:
        return self._save(place, part, *other.raw(at, part))

    def _save(
        self, place: int, part: slice, numbers: npt.NDArray[Any], scales: Singles | None
    ) -> int:
        for rows, block in zip(self.mapped, (numbers, scales), strict=False):
            if block is not None:
                rows.write(place, self.blocks_of(part).start, block)
        return _checksum(numbers, scales)


def stored_of(state: State, size: int | None = None) -> Stored:
    """Return the rows of a state, as `Stored.of` does, wherever they are."""
    return (StoredInFile if "place" in state else Stored).of(state, size)


def in_file(state: State, path: Path) -> State:
    """Return the state of a memory with its rows in a new file, unless they are few.

    Raises
    ------
    InputError
        If the file cannot be created, or there is no room for it.
    """
    size = sum(state[name].nbytes for name in ARRAYS if name in state)
    if "stored" not in state or "place" in state or size < LARGE:
        return state
    count = state["stored"].size
    form = np.array([2 * count, *state["rows"].shape[1:]])  # a round may write all of them
    try:
        path.unlink(missing_ok=True)  # whoever has it open keeps it
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(handle, "wb", 0):
            os.posix_fallocate(handle, 0, 2 * size)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise InputError(
            f"cannot create {path} with {2 * size / 2**20:,.0f} MiB for remembered updates: "
            f"{error.strerror}. Free some space, or lower the `limit` of `Memory`."
        ) from error
    places = {"place": np.full(count, -1), "checksum": np.zeros(count, np.uint32), "form": form}
    filed = {**state, **places, **_mapped(path, form)}
    known = np.flatnonzero(state["stored"] >= 0)
    stored_of(filed).copy(known, stored_of(state), known)
    return filed


def reopened(state: State, path: Path | None) -> State:
    """Return the state of a memory with the rows that it has in a file.

    What is missing or damaged there is forgotten, and a warning says so.
    """
    known = np.flatnonzero(state["stored"] >= 0)
    try:
        whole = state | _mapped(path, state["form"])
    except (OSError, ValueError):  # it is missing, or shorter
        whole, lost = _emptied(state), known
    else:
        rows = StoredInFile.of(whole)
        lost = known[[not rows.is_whole(n) for n in known.tolist()]]
        whole["place"][lost] = -1
    whole["stored"][lost], whole["squares"][lost] = -1, 0
    if lost.size:
        warnings.warn(
            f"{path}: {lost.size} of {known.size} remembered updates are missing or damaged; "
            "memory of them begins again.",
            stacklevel=2,
        )
    return whole


def _emptied(state: State) -> State:
    """Return the state of a memory whose file is lost."""
    count, (_, *row) = state["stored"].size, state["form"].tolist()
    empty = {name: np.zeros((count, *own[1:]), kind) for name, kind, own in _arrays_of([0, *row])}
    rest = {name: own for name, own in state.items() if name not in ("place", "checksum", "form")}
    return rest | empty


def _arrays_of(form: list[int]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return the name, type and shape of each array of a file."""
    if len(form) == 2:
        return [("rows", "f4", (*form,))]
    return [("rows", "i1", (*form,)), ("scales", "f4", (*form[:2],))]


def _mapped(path: Path | None, form: IntArray) -> State:
    """Return the arrays of a file."""
    arrays, offset = State(), 0
    if path is None:
        raise FileNotFoundError
    for name, kind, shape in _arrays_of(form.tolist()):
        arrays[name] = MappedRows.of(path, kind, shape, offset)
        offset += arrays[name].nbytes
    return arrays


def _checksum(numbers: npt.NDArray[Any], scales: Singles | None) -> int:
    checksum = zlib.crc32(np.ascontiguousarray(numbers).data)
    return checksum if scales is None else zlib.crc32(np.ascontiguousarray(scales).data, checksum)


def _combined(checksums: Sequence[int]) -> int:
    return zlib.crc32(np.array(checksums, "<u4").data)
