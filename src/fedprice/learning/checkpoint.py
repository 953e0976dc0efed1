"""Checkpoints: a run on disk, whole or not at all, that goes on as if never stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError
from fedprice.tables import BROKEN, load_arrays, whole_file

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["load_checkpoint", "save_checkpoint"]


def save_checkpoint(
    path: str | Path, fingerprint: str, arrays: dict[str, npt.NDArray[Any]]
) -> None:
    """Write the arrays of a run, and the fingerprint of what determines it."""
    with whole_file(Path(path)) as part, part.open("wb") as file:
        named: dict[str, Any] = {"fingerprint": np.array(fingerprint)} | arrays
        np.savez(file, **named)


def load_checkpoint(path: str | Path, fingerprint: str) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of a run; refuse those of another one."""
    try:
        arrays = load_arrays(Path(path))
        kept = str(arrays.pop("fingerprint"))
    except (*BROKEN, KeyError) as error:
        raise InputError(f"{path} is no checkpoint; remove it to start anew.") from error
    if kept != fingerprint:
        raise InputError(
            f"{path} is the checkpoint of another run (data, levels, settings or seed differ); "
            "remove it to start anew."
        )
    return arrays
