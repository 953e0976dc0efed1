"""The array types that signatures name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Arrays", "BoolArray", "FloatArray", "IntArray", "State"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Arrays = list[npt.NDArray[Any]]  # a model, or an update of it
State = dict[str, npt.NDArray[Any]]  # what is remembered between rounds, by name
