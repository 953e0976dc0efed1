"""Checks of single columns of `Clients`: shapes, ranges, and which client an error is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError, precision_error

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray

__all__ = [
    "WEIGHT_TOLERANCE",
    "Columns",
    "class_names",
    "client_names",
    "floats",
    "require_shares",
    "shares_of",
]

WEIGHT_TOLERANCE = 1e-6  # weights that went through float32 still pass


@dataclass(frozen=True)
class Columns:
    """Takes the columns of some clients.

    Attributes
    ----------
    count
        The number of clients.
    names
        Their ids, if they have any; otherwise they are numbered from 1.
    """

    count: int
    names: npt.NDArray[np.object_] | None

    def column(self, name: str, given: npt.ArrayLike) -> FloatArray:
        """Return one number per client, from one each or one for all."""
        array = floats(name, given)
        if array.shape not in ((), (self.count,)):
            raise InputError(
                f"`{name}` must have one entry for each of the {self.count} clients; "
                f"got shape {array.shape}."
            )
        return array if array.ndim else np.broadcast_to(array, self.count)

    def check(self, name: str, array: FloatArray, holds: Callable[[Any], Any], rule: str) -> None:
        """Refuse a column in which a number is not finite, or the rule does not hold for it."""
        # A broadcast scalar is tested once, not once per client.
        distinct = array[:1] if array.strides == (0,) else array
        bad = ~(np.isfinite(distinct) & holds(distinct))
        if bad.any():
            row = int(np.argmax(bad))
            who = str(row + 1) if self.names is None else self.names[row]
            raise InputError(
                f"`{name}` must be {rule}; got {_shown(array[row])} in row {row + 1} "
                f"(client {who!r:.100})."
            )

    def check_levels(self, floor: FloatArray, cap: FloatArray) -> None:
        """Refuse floors and caps of levels that are no probabilities, or cross."""
        self.check("level_max", cap, lambda x: (x > 0) & (x <= 1), "in (0, 1]")
        self.check("level_min", floor, lambda x: (x >= 0) & (x <= 1), "in [0, 1]")
        if (floor > cap).any():
            row = int(np.argmax(floor > cap))
            raise InputError(
                f"`level_min` must be at most `level_max` = {_shown(cap[row])}; "
                f"got {_shown(floor[row])} in row {row + 1}."
            )


def shares_of(samples: FloatArray) -> FloatArray:
    """Return the clients' shares of all samples."""
    total = _total(samples)
    if total == 0:
        raise InputError("`samples` must not be 0 for every client.")
    shares: FloatArray = samples / total
    return shares


def require_shares(weight: FloatArray) -> None:
    """Refuse weights that do not sum to 1."""
    total = _total(weight)
    if abs(total - 1) > WEIGHT_TOLERANCE:
        raise InputError(
            f"`weight` must sum to 1; got {total:.9g}. Divide by the sum, or give `samples`."
        )


def _total(share: FloatArray) -> float:
    with np.errstate(over="ignore"):
        total = float(share.sum())
    if not np.isfinite(total):
        raise precision_error("the sum of samples")
    return total


def floats(name: str, given: npt.ArrayLike) -> FloatArray:
    """Return numbers as 64-bit floats that the caller cannot change any more."""
    if type(given) is np.ndarray and given.strides == (0,) and given.size:
        # One number for all clients stays one: the copy is of that number.
        return np.broadcast_to(floats(name, given[0]), given.shape)
    frozen = type(given) is np.ndarray and given.flags.owndata and not given.flags.writeable
    try:
        array = np.array(given, dtype=np.float64, copy=None if frozen else True)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must be numbers; {error}.") from error
    array.flags.writeable = False
    return array


def class_names(given: Sequence[str] | npt.NDArray[Any], count: int) -> npt.NDArray[np.object_]:
    """Return the class of each client."""
    names = [str(name) for name in given]
    if len(names) != count:
        raise InputError(
            f"`classes` must name the class of each of the {count} clients; got {len(names)} names."
        )
    if "" in names:
        raise InputError(
            f"every client needs a class, or none has one; row {names.index('') + 1} has none."
        )
    kept = np.array(names, dtype=object)
    kept.flags.writeable = False
    return kept


def client_names(given: Sequence[str] | npt.NDArray[Any], count: int) -> npt.NDArray[np.object_]:
    """Return the id of each client; they are distinct, and none is empty."""
    names = [str(name) for name in given]
    if len(names) != count:
        raise InputError(f"`ids` must name each of the {count} clients; got {len(names)} names.")
    distinct = set(names)
    if "" in distinct:
        raise InputError(f"client ids must not be empty; row {names.index('') + 1} has none.")
    if len(distinct) != count:
        seen: dict[str, int] = {}
        for row, name in enumerate(names, start=1):
            if (first := seen.setdefault(name, row)) != row:
                raise InputError(
                    f"client ids must be distinct; rows {first} and {row} are both {name!r:.100}."
                )
    kept = np.array(names, dtype=object)
    kept.flags.writeable = False
    return kept


def _shown(value: float) -> str:
    """Return a number with all its digits, and none that it does not need."""
    return repr(float(value)).removesuffix(".0")
