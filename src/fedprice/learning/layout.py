"""`Layout`: converts a list of arrays to flat vectors of parameters and buffers, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from fedprice._plumbing.arrays import in_parts
from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays, FloatArray

__all__ = ["Layout", "buffers_among"]

_T = TypeVar("_T")

# The names that PyTorch and Keras use for the buffers of normalisation layers.
STATISTICS = (
    "running_mean", "running_var", "num_batches_tracked", "moving_mean", "moving_variance",
)  # fmt: skip


def buffers_among(
    arrays: Sequence[npt.NDArray[Any]],
    names: Sequence[str] | None = None,
    said: Sequence[str] | None = None,
) -> tuple[bool, ...]:
    """Return which arrays of a model are buffers: stored with its parameters, but not trained.

    Arrays that do not hold floating-point numbers are buffers, unless no array does (then, truth
    values are); so are the running statistics of normalisation layers, by their names.

    Parameters
    ----------
    arrays, names
        The model.
    said
        Patterns of names, such as "*.running_*", that say which arrays are buffers, instead of what
        their names suggest.

    Examples
    --------
    >>> model = [np.ones(2), np.ones(2), np.array(0)]
    >>> buffers_among(model, ["weight", "bn.running_var", "bn.num_batches_tracked"])
    (False, True, True)
    """
    names = [""] * len(arrays) if names is None else names
    for pattern in said or ():
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(
                f"`buffers` must name arrays of the model; {pattern!r} matches none of "
                f"{', '.join(names)}."
            )
    floats = [array.dtype.kind == "f" for array in arrays]
    if not any(floats):  # truth values cannot be trained, even then
        floats = [array.dtype.kind != "b" for array in arrays]
        said = []
    found = tuple(
        not is_float
        or (
            name.endswith(STATISTICS)
            if said is None
            else any(fnmatchcase(name, pattern) for pattern in said)
        )
        for name, is_float in zip(names, floats, strict=True)
    )
    if found and all(found):
        raise InputError(
            "all arrays of the model are buffers, so there is nothing to train. Say in `buffers` "
            "which ones are, or [] for none."
        )
    return found


@dataclass(frozen=True)
class Layout:
    """Shapes and types of the arrays of a model, and which of them are buffers.

    The server keeps the parameters of a model as one vector of 64-bit floats, so that sums of
    updates do not lose what 32 bits would, and its buffers as another; clients get the model in its
    own types.

    Examples
    --------
    >>> layout = Layout.of([np.ones((2, 2), np.float32), np.array([3], np.int32)])
    >>> layout.size, layout.flat([np.ones((2, 2)), np.array([3])])
    (4, array([1., 1., 1., 1.]))
    >>> layout.arrays(np.array([1.5, 0, 0, 0]), np.array([2.7]))
    [array([[1.5, 0. ],
           [0. , 0. ]], dtype=float32), array([3], dtype=int32)]
    """

    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype[Any], ...]
    buffers: tuple[bool, ...]

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[Any]], buffers: Sequence[bool] | None = None) -> Self:
        """Return the layout of a model; which arrays are buffers is inferred if it is not given."""
        for i, array in enumerate(arrays, start=1):
            if array.dtype.kind not in "fiub":
                raise InputError(
                    f"array {i} of the model must hold real numbers; got {array.dtype}."
                )
        return cls(
            tuple(array.shape for array in arrays),
            tuple(array.dtype.newbyteorder("<") for array in arrays),
            buffers_among(arrays) if buffers is None else tuple(buffers),
        )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers each array holds."""
        return tuple(int(np.prod(shape)) for shape in self.shapes)

    @cached_property
    def size(self) -> int:
        """How many numbers the parameters hold."""
        return sum(size for size, own in zip(self.sizes, self.buffers, strict=True) if not own)

    @cached_property
    def buffer_size(self) -> int:
        """How many numbers the buffers hold."""
        return sum(self.sizes) - self.size

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of flat updates: 32-bit floats where no parameter needs more."""
        kinds = [k for k, own in zip(self.dtypes, self.buffers, strict=True) if not own]
        small = all(kind.kind == "f" and kind.itemsize <= 4 for kind in kinds)
        return np.dtype(np.float32 if small else np.float64)

    @cached_property
    def largest(self) -> tuple[float, ...]:
        """The largest number that each array can hold."""
        return tuple(_largest(kind) for kind in self.dtypes)

    def sized(self, size: int) -> Self:
        """Return this layout for parameters of another size, which only a model of bytes may have.

        Bytes are one array of uint8, such as trees that others are added to.
        """
        if size == self.size:
            return self
        if len(self.shapes) != 1 or self.dtypes[0] != np.uint8:
            raise InputError(f"the model must hold {self.size} numbers; got {size}.")
        return replace(self, shapes=((size,),))

    def parameters(self, arrays: Sequence[_T]) -> list[_T]:
        """Return the items, one per array, that belong to parameters and not to buffers."""
        return [array for array, own in zip(arrays, self.buffers, strict=True) if not own]

    def split(self, vector: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
        """Yield the part of a flat vector that belongs to each parameter, as a view."""
        at = 0
        for size, own in zip(self.sizes, self.buffers, strict=True):
            if not own:
                yield vector[at : at + size]
                at += size

    def holds(self, vector: FloatArray, buffers: FloatArray | None = None) -> bool:
        """Return whether a model is finite, and within what its arrays of floats can hold."""
        for part, kind, largest in self._parts(vector, buffers):
            limit = largest if kind.kind == "f" else np.inf  # whole numbers are clipped
            if not all(-limit < end < limit for end in _ends(part)):  # nor is NaN within it
                return False
        return True

    def flat(self, arrays: Sequence[npt.NDArray[Any]]) -> FloatArray:
        """Return the parameters of a model as one vector of 64-bit floats."""
        return _joined(self.parameters(arrays))

    def flat_buffers(self, arrays: Sequence[npt.NDArray[Any]]) -> FloatArray:
        """Return the buffers of a model as one vector of 64-bit floats."""
        return _joined([a for a, own in zip(arrays, self.buffers, strict=True) if own])

    def own(self, arrays: Sequence[npt.NDArray[Any]]) -> Arrays:
        """Return a copy of a model in the types of this layout, as clients get it."""
        floats = all(kind.kind == "f" and kind.itemsize <= 8 for kind in self.dtypes)
        if floats and tuple(array.dtype for array in arrays) == self.dtypes:
            return [np.array(array, order="C") for array in arrays]  # a cast would change nothing
        return self.arrays(self.flat(arrays), self.flat_buffers(arrays))

    def arrays(self, vector: npt.NDArray[Any], buffers: npt.NDArray[Any] | None = None) -> Arrays:
        """Return a model as arrays of their own shapes and types, rounded where needed.

        Parameters
        ----------
        vector, buffers
            Its parameters, or an update of them; and its buffers, by default 0.
        """
        made = []
        with np.errstate(over="ignore"):  # callers that need finite numbers check for them
            for shape, (part, kind, _) in zip(
                self.shapes, self._parts(vector, buffers), strict=True
            ):
                if kind.kind == "b":
                    part = part >= 0.5
                elif kind.kind != "f":
                    info = np.iinfo(kind)
                    # As a float, the largest of 64 bits is one too many, and would wrap.
                    most = np.nextafter(float(info.max), 0) if kind.itemsize == 8 else info.max
                    part = np.clip(np.rint(part), info.min, most)
                made.append(_as_type(part, kind).reshape(shape))
        return made

    def _parts(
        self, vector: npt.NDArray[Any], buffers: npt.NDArray[Any] | None
    ) -> Iterator[tuple[npt.NDArray[Any], np.dtype[Any], float]]:
        """Yield each array of a model as its flat part, with its type and its largest number."""
        kept = np.zeros(self.buffer_size) if buffers is None else buffers
        at = {False: 0, True: 0}
        for kind, size, largest, own in zip(
            self.dtypes, self.sizes, self.largest, self.buffers, strict=True
        ):
            yield (kept if own else vector)[at[own] : at[own] + size], kind, largest
            at[own] += size


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> FloatArray:
    joined, at = np.empty(sum(array.size for array in arrays)), 0
    for array in arrays:
        _write(np.ravel(array), joined[at : at + array.size])
        at += array.size
    return joined


def _as_type(vector: npt.NDArray[Any], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a copy of a vector in another type."""
    made = np.empty(vector.size, kind)
    _write(vector, made)
    return made


def _write(vector: npt.NDArray[Any], into: npt.NDArray[Any]) -> None:
    """Copy a vector into another one, which may be of another type."""

    def write(part: slice) -> None:
        with np.errstate(over="ignore"):  # of this thread
            into[part] = vector[part]

    in_parts(vector.size, write)


def _ends(vector: npt.NDArray[Any]) -> list[Any]:
    """Return two numbers that are within limits only if the whole vector is."""

    def ends(part: slice) -> tuple[Any, Any]:
        return vector[part].max(), vector[part].min()

    return [end for pair in in_parts(vector.size, ends) for end in pair]


def _largest(kind: np.dtype[Any]) -> float:
    if kind.kind == "b":
        return 1.0
    return float(np.finfo(kind).max if kind.kind == "f" else np.iinfo(kind).max)
