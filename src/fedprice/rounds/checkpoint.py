"""`Checkpoint`: a run in a file, written atomically, that resumes as if it had never stopped.

The file is an npz, a zip with a member for each array. Remembered vectors are members of their own:
those that changed, and all small arrays, are appended with a new directory, which lists the others
where they are, until the file would be twice as large as its content. If that is interrupted, the
directory before it is still there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, BinaryIO
from zipfile import ZipFile

import numpy as np

from fedprice._plumbing.rows import chunks_of, rounds_of, whole_rows
from fedprice._plumbing.tables import BROKEN, whole_file
from fedprice.errors import InputError

if TYPE_CHECKING:
    from io import BufferedRandom
    from pathlib import Path
    from zipfile import ZipInfo

    import numpy.typing as npt

    from fedprice._plumbing.arrays import State
    from fedprice._plumbing.rows import Chunk
    from fedprice.rounds.loop import Rounds

LAST = "diverged"  # the array that is written last
END, END_SIZE = b"PK\5\6", 22  # of a zip

__all__ = ["Checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """A file that a run is written to, and resumed from.

    Attributes
    ----------
    path
        The file.
    what
        A hash of what is trained: task, levels, rounds, seed. The file of another run is refused,
        and that of another aggregator or server step, unless the run diverged with it.
    """

    path: Path
    what: str

    def restore(self, loop: Rounds) -> None:
        """Resume a run from the file, if there is one."""
        if not self.path.exists():
            return
        try:
            state = self._read()
            what, diverged = str(state.pop("what")), bool(state.pop(LAST))
            same = np.array_equal(state["how"], loop.state()["how"])
        except (*BROKEN, KeyError) as error:
            raise InputError(
                f"{self.path} is not a checkpoint; remove it to start again."
            ) from error
        if what != self.what or not (same or diverged):
            raise InputError(
                f"{self.path} is the checkpoint of another run (task, levels, settings or seed "
                "differ); remove it to start again."
            )
        loop.restore(state)

    def write(self, state: State) -> None:
        """Write the state of a run."""
        self._write(state | {"what": np.array(self.what), LAST: np.array(False)})

    def mark_diverged(self) -> None:
        """Note that the run can resume only with another aggregator or server step."""
        if self.path.exists():
            self._write(self._read() | {LAST: np.array(True)})

    def _read(self) -> State:
        """Return the newest state whose writing was not interrupted."""
        with self.path.open("rb") as file:
            try:
                return _state_in(file)
            except BROKEN:
                file.seek(0)
                content = file.read()
                end = len(content)
                while (end := content.rfind(END, 0, end)) >= 0:
                    with suppress(*BROKEN):
                        state = _state_in(BytesIO(content[: end + END_SIZE]))
                        os.truncate(self.path, end + END_SIZE)
                        return state
                raise

    def _write(self, arrays: State) -> None:
        """Write a state into a new file, or what changed to the end of the last one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)  # it may have been removed meanwhile
        chunks = {f"{own.array}/{own.first}": own for own in chunks_of(arrays)}
        large = {own.array for own in chunks.values()}
        named: dict[str, Any] = {name: own.rows for name, own in chunks.items()}
        named |= {name: array for name, array in arrays.items() if name not in large}
        kept = self._kept(named, chunks) if chunks else {}
        if not kept:
            with whole_file(self.path) as part, part.open("wb") as file:
                np.savez(file, **named)
            return
        try:
            with self.path.open("rb+") as file:
                file.seek(0, os.SEEK_END)
                with ZipFile(file, "w") as archive:
                    archive.infolist().extend(kept.values())
                    for name in named.keys() - kept.keys() - {LAST}:
                        _append(archive, name, named[name])
                    _append(archive, LAST, named[LAST])
                    _sync(file)  # before the directory, which makes them valid
                _sync(file)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}.") from error

    def _kept(self, named: State, chunks: dict[str, Chunk]) -> dict[str, ZipInfo]:
        """Return the members of the file that stay, none if it is better rewritten."""
        try:
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                members = {name: saved.zip.getinfo(f"{name}.npy") for name in named}
                since, used = rounds_of(saved), file.seek(0, os.SEEK_END)
                same = all(np.array_equal(saved[name], named[name]) for name in ("what", "how"))
        except (*BROKEN, KeyError):
            return {}
        kept = {name: members[name] for name, own in chunks.items() if own.written < since}
        whole = sum(array.nbytes for array in named.values())
        used += whole - sum(member.file_size for member in kept.values())
        return kept if same and since <= rounds_of(named) and used <= 2 * whole else {}


def _state_in(file: BinaryIO) -> State:
    with np.load(file, allow_pickle=False) as saved:
        if LAST not in saved:
            raise ValueError("its writing was interrupted")
        return whole_rows(saved)


def _append(archive: ZipFile, name: str, array: npt.NDArray[Any]) -> None:
    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
        np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)


def _sync(file: BufferedRandom) -> None:
    file.flush()
    os.fsync(file.fileno())
