"""`Checkpoint`: a run in a file, written whole or not at all, that resumes as if never stopped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError
from fedprice.tables import BROKEN, load_arrays, whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.arrays import State
    from fedprice.rounds.loop import Rounds

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
            state = load_arrays(self.path)
            what, diverged = str(state.pop("what")), bool(state.pop("diverged"))
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
        self._write(state | {"what": np.array(self.what), "diverged": np.array(False)})

    def mark_diverged(self) -> None:
        """Note that the run can resume only with another aggregator or server step."""
        if self.path.exists():
            self._write(load_arrays(self.path) | {"diverged": np.array(True)})

    def _write(self, arrays: State) -> None:
        named: dict[str, Any] = dict(arrays)
        self.path.parent.mkdir(parents=True, exist_ok=True)  # it may have been removed meanwhile
        with whole_file(self.path) as part, part.open("wb") as file:
            np.savez(file, **named)
