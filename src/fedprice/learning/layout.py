"""`Layout`: a list of arrays as one flat vector, and back in their own precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fedprice.arrays import Arrays, FloatArray

__all__ = ["Layout"]


@dataclass(frozen=True)
class Layout:
    """Shapes and types of the arrays of a model.

    The server keeps a model as one vector of 64-bit floats, so that sums of updates do not lose
    what 32 bits would; clients get it in its own types.

    Examples
    --------
    >>> layout = Layout.of([np.ones((2, 2), np.float32), np.array([3], np.int32)])
    >>> layout.size, layout.flat([np.ones((2, 2)), np.array([3])])
    (5, array([1., 1., 1., 1., 3.]))
    >>> layout.arrays(np.array([1.5, 0, 0, 0, 2.7]))
    [array([[1.5, 0. ],
           [0. , 0. ]], dtype=float32), array([3], dtype=int32)]
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[Any]]) -> Self:
        """Return the layout of a model."""
        for i, array in enumerate(arrays, start=1):
            if array.dtype.kind not in "fiu":
                raise InputError(
                    f"array {i} of the model must hold real numbers; got {array.dtype}."
                )
        return cls(
            tuple(array.shape for array in arrays),
            tuple(array.dtype.newbyteorder("<") for array in arrays),
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each array holds."""
        return tuple(int(np.prod(shape)) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """How many numbers the model holds."""
        return sum(self.sizes)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of flat updates: 32-bit floats where no array needs more."""
        small = all(kind.kind == "f" and kind.itemsize <= 4 for kind in self.dtypes)
        return np.dtype(np.float32 if small else np.float64)

    @cached_property
    def largest(self) -> tuple[float, ...]:
        """The largest number that each array can hold."""
        return tuple(
            float(np.finfo(kind).max if kind.kind == "f" else np.iinfo(kind).max)
            for kind in self.dtypes
        )

    def holds(self, vector: FloatArray) -> bool:
        """Return whether a vector is finite, and within what its arrays of floats can hold."""
        if len(self.dtypes) == 1 and self.dtypes[0].kind == "f":
            return bool(np.abs(vector).max() < self.largest[0])  # nor is NaN below it
        at = 0
        for kind, size, largest in zip(self.dtypes, self.sizes, self.largest, strict=True):
            limit = largest if kind.kind == "f" else np.inf  # whole numbers are clipped
            if not np.abs(vector[at : at + size]).max(initial=0.0) < limit:
                return False
            at += size
        return True

    def flat(self, arrays: Sequence[npt.NDArray[Any]]) -> FloatArray:
        """Return arrays of this layout as one vector of 64-bit floats."""
        return np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays] or [np.empty(0)])

    def arrays(self, vector: npt.NDArray[Any]) -> Arrays:
        """Return a vector as arrays of their own shapes and types, rounded where needed."""
        parts, at = [], 0
        with np.errstate(over="ignore"):  # whoever needs finite numbers looks for them
            for shape, kind, size in zip(self.shapes, self.dtypes, self.sizes, strict=True):
                part = vector[at : at + size].reshape(shape)
                if kind.kind != "f":
                    info = np.iinfo(kind)
                    part = np.clip(np.rint(part), info.min, info.max)
                parts.append(part.astype(kind))
                at += size
        return parts
