"""Updates are checked before any arithmetic touches the model; what is refused is never paid."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.market.messages import (
    RefusedError,
    Signed,
    require_hash,
    require_number,
    require_text,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fedprice.market.messages import ModelSchema

__all__ = ["Update", "UpdateDesk", "arrays_hash", "arrays_norm", "shown_grad_norm"]


@dataclass(frozen=True)
class Update:
    """What a client signs of an update: its run and round (from 0), and its arrays' digest."""

    run: str
    client: str
    round: int
    arrays: str

    def __post_init__(self) -> None:
        require_text(self, "run", "client")
        require_number(self, "round", 0, 1 << 40)
        require_hash(self, "arrays")


def arrays_hash(arrays: Sequence[npt.NDArray[Any]]) -> str:
    """Return the SHA-256 of arrays: their types, shapes and bytes, in order."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}\0".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def arrays_norm(arrays: Sequence[npt.NDArray[Any]]) -> float:
    """Return the Euclidean norm of arrays, taken together."""
    return math.sqrt(sum(float(np.sum(np.square(a, dtype=np.float64))) for a in arrays))


@dataclass(eq=False)
class UpdateDesk:
    """Takes the updates of one run.

    Parameters
    ----------
    run, schema
        Which run, and what its updates look like.
    keys
        The clients' registered public keys.
    norm_cap
        The largest norm of an update that is accepted.

    Attributes
    ----------
    seen
        Hashes of the updates accepted so far.

    Examples
    --------
    >>> from fedprice.market.messages import ModelSchema, SigningKey
    >>> key, update = SigningKey(), [np.ones(3, np.float32)]
    >>> desk = UpdateDesk("run-1", ModelSchema.of(update), {"alice": key.public}, norm_cap=10.0)
    >>> signed = key.sign(Update("run-1", "alice", 0, arrays_hash(update)))
    >>> round(desk.accept("alice", 0, signed, update), 3)
    1.732
    >>> desk.accept("alice", 0, signed, update)
    Traceback (most recent call last):
    ...
    fedprice.market.messages.RefusedError: it is the same as an earlier update.
    """

    run: str
    schema: ModelSchema
    keys: dict[str, bytes]
    norm_cap: float = math.inf
    seen: set[str] = field(default_factory=set, init=False)

    def accept(
        self, client: str, round_: int, signed: Signed, arrays: Sequence[npt.NDArray[Any]]
    ) -> float:
        """Return the norm of an update that may touch the model; refuse it with a reason otherwise.

        Parameters
        ----------
        client, round_
            Who was asked for an update, and of which round.
        signed, arrays
            What came.

        Raises
        ------
        RefusedError
            With the reason.
        """
        if client not in self.keys:
            raise RefusedError(f"{client!r} has no registered key.")
        update: Update = signed.open(Update, self.keys[client])
        if update.run != self.run:
            raise RefusedError("it is for another run.")
        if update.client != client:
            raise RefusedError("it is another client's.")
        if update.round != round_:
            raise RefusedError(f"it is for round {update.round + 1}, not {round_ + 1}.")
        if len(arrays) != len(self.schema.shapes):
            raise RefusedError(f"it has {len(arrays)} arrays, not {len(self.schema.shapes)}.")
        for name, shape, dtype, array in zip(
            self.schema.names, self.schema.shapes, self.schema.dtypes, arrays, strict=True
        ):
            if list(array.shape) != shape or array.dtype.str != dtype:
                raise RefusedError(
                    f"{name} is {array.dtype.str} of shape {array.shape}, not {dtype} of shape "
                    f"{tuple(shape)}."
                )
        if arrays_hash(arrays) != update.arrays:
            raise RefusedError("its arrays are not the ones that were signed.")
        if not all(np.isfinite(array).all() for array in arrays):
            raise RefusedError("it is not finite.")
        norm = arrays_norm(arrays)
        if not norm <= self.norm_cap:
            raise RefusedError(f"its norm {norm:.4g} is above the cap of {self.norm_cap:.4g}.")
        if update.arrays in self.seen:
            raise RefusedError("it is the same as an earlier update.")
        self.seen.add(update.arrays)
        return norm


def shown_grad_norm(update_norm: float, reach: float) -> float:
    """Return the least gradient norm that an update proves: ‖w_n − w‖ ≤ η E G (Assumption 3).

    `reach` is η E, learning rate times local steps. A client whose update shows more than the G
    that it declared has declared too little.

    Examples
    --------
    >>> shown_grad_norm(update_norm=5.0, reach=0.1 * 10)
    5.0
    """
    return update_norm / reach
