"""Updates are checked before any arithmetic touches the model; refused ones are never paid."""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice._plumbing.arrays import at_once, in_parts, scratch
from fedprice.market.messages import ANY, Message, RefusedError, Signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.market.messages import ModelSchema

__all__ = [
    "SLACK",
    "Accepted",
    "NormRefusedError",
    "Update",
    "UpdateDesk",
    "array_digests",
    "arrays_hash",
    "hash_of",
    "norm_cap",
    "shown_grad_norm",
    "sketch_of",
]

LARGEST_NORM = 1e150  # of any update: squares of larger numbers overflow
SLACK = 2.0  # how far an update's norm may exceed what the declared or measured norm implies
SAME = 1e-6  # two updates whose norms and projections differ by less, relative to the norm: copies
HASHED = 1 << 22  # bytes of an array that are hashed at once
PROJECTIONS, WIDTH, PIECE = 3, 1 << 12, 1 << 16  # of a sketch
RUN = 8 * PIECE  # numbers that are processed at once


@dataclass(frozen=True)
class Update(Message):
    """What a client signs about an update.

    Attributes
    ----------
    run, client, round
        The period's name, the client's, and the round, counted from 0.
    arrays, base
        The hash of what is sent, the new weights or new − old; and that of the model that the
        client started from.
    """

    run: str
    client: str
    round: int
    arrays: str
    base: str


class Accepted(NamedTuple):
    """What is recorded about an accepted update besides its digest: its norm and its sketch."""

    norm: float
    sketch: str


class NormRefusedError(RefusedError):
    """An update whose norm is above the cap.

    Attributes
    ----------
    norm
        The cap, which stands for the update in `measured_norms`: always finite.
    """

    def __init__(self, reason: str, norm: float) -> None:
        super().__init__(reason)
        self.norm = norm


def arrays_hash(arrays: Sequence[npt.NDArray[Any]], *, update: bool = False) -> str:
    """Return the hash of a model, or of an update new − old: of its arrays' digests, in order."""
    return hash_of(array_digests(arrays), update=update)


def hash_of(digests: Sequence[bytes], *, update: bool = False) -> str:
    """Return the hash of a model, or of an update, from the digests of its arrays."""
    # An update and a model with the same numbers have different hashes, so they cannot be confused.
    return hashlib.sha256(b"update" * update + b"".join(digests)).hexdigest()


def array_digests(arrays: Sequence[npt.NDArray[Any]]) -> list[bytes]:
    """Return the SHA-256 of each array's type, shape and bytes.

    An array above 4 MiB is represented by the digests of its pieces of that size, so that several
    cores can work on them.
    """
    flats = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    pieces = [
        flat[start : start + HASHED].data
        for flat in flats
        if flat.size > HASHED
        for start in range(0, flat.size, HASHED)
    ]
    # One piece at a time: any free core takes the next one, of any array.
    found = iter(at_once(pieces, lambda piece: hashlib.sha256(piece).digest()))
    digests = []
    for array, flat in zip(arrays, flats, strict=True):
        digest = hashlib.sha256(f"{array.dtype.str}{array.shape}\0".encode())
        if flat.size <= HASHED:
            digest.update(flat.data)
        else:
            digest.update(b"".join(itertools.islice(found, -(-flat.size // HASHED))))
        digests.append(digest.digest())
    return digests


@lru_cache(maxsize=8)
def _signs(what: str, count: int) -> FloatArray:
    """Return fixed signs, shape (PROJECTIONS, count); a smaller count gives a prefix."""
    stream = hashlib.shake_256(f"fedprice sketch {what}".encode())
    bits = np.frombuffer(stream.digest(-(-count * PROJECTIONS // 8)), np.uint8)
    signs = np.where(np.unpackbits(bits)[: count * PROJECTIONS], 1.0, -1.0)
    return np.ascontiguousarray(signs.reshape(count, PROJECTIONS).T)


def sketch_of(arrays: Sequence[npt.NDArray[Any]]) -> Accepted:
    """Return the Euclidean norm of arrays, taken together, and the sketch that finds their copies.

    A sketch is the norm and three projections on fixed vectors of signs, relative to the norm, as
    text with nine significant digits. Sums are taken in float64 and in a fixed order, so that
    machines agree in nearly all of these digits. The norm is infinite if its square overflows.

    Examples
    --------
    >>> sketch_of([np.array([3.0, 4.0])])
    Accepted(norm=5.0, sketch='5,-1.4,0.2,1.4')
    """
    flats = [np.ascontiguousarray(array).reshape(-1) for array in arrays]
    runs = [flat[at : at + RUN] for flat in flats for at in range(0, flat.size, RUN)]
    # A number's sign is that of its position, modulo WIDTH, times that of its piece: this
    # distinguishes updates as well as independent signs, and most of the work is additions.
    inner = _signs("places", WIDTH)
    outer = _signs("pieces", sum(-(-flat.size // PIECE) for flat in flats))
    sizes = [run.size for run in runs] or [0]
    tall, each = -(-max(sizes) // WIDTH), -(-sum(sizes) // len(sizes))

    def look(part: slice) -> list[tuple[float, FloatArray]]:
        table = scratch(tall * WIDTH).reshape(tall, WIDTH)
        found: list[tuple[float, FloatArray]] = []
        with np.errstate(over="ignore", invalid="ignore"):  # of this thread
            for run in runs[part]:
                rows = table[: -(-run.size // WIDTH)]
                rows.reshape(-1)[run.size :] = 0.0
                rows.reshape(-1)[: run.size] = run
                # Rows of whole pieces; one may be left.
                whole = run.size // PIECE * (PIECE // WIDTH)
                for some in (rows[:whole].reshape(-1, PIECE // WIDTH, WIDTH), rows[None, whole:]):
                    if some.size:
                        squares = np.vecdot(some, some)  # rows are too short for BLAS's own threads
                        sums = np.vecdot(inner, some.sum(axis=1)[:, None])
                        found += zip(squares.sum(axis=1).tolist(), sums, strict=True)
        return found

    seen = [own for part in in_parts(len(runs), look, each=each) for own in part]
    squares, sums = 0.0, np.zeros(PROJECTIONS)
    with np.errstate(over="ignore", invalid="ignore"):
        for sign, (square, projected) in zip(outer.T, seen, strict=True):
            squares += square
            sums += sign * projected
    norm = math.sqrt(squares) if math.isfinite(squares) else math.inf
    relative = sums / norm if 0 < norm < math.inf else sums
    return Accepted(norm, ",".join(f"{x:.9g}" for x in (norm, *relative.tolist())))


def norm_cap(
    declared: float | None,
    reach: float | None,
    measured: float | None,
    most: float,
    slack: float = SLACK,
) -> float:
    """Return the largest norm of a client's updates that is accepted in a period.

    Parameters
    ----------
    declared
        The gradient norm G that the client declared, if it did.
    reach
        The largest η E of the period's rounds, learning rate times local steps, where it is known:
        an update has at most the norm η E G (Assumption 3).
    measured
        The norm of the client's updates in earlier periods, by `measured_norms`.
    most
        The largest norm that the server accepts from a client about which it knows nothing else; it
        also limits the other caps, but not below what the declared norm allows.
    slack
        The cap is this multiple of what the declared norm implies, or else of the measured norm.

    Examples
    --------
    >>> norm_cap(3.0, 0.5, 1.0, most=100.0), norm_cap(None, 0.5, 1.2, most=100.0)
    (3.0, 2.4)
    >>> norm_cap(3.0, None, None, most=100.0), norm_cap(3.0, 0.5, None, most=1.0)
    (100.0, 1.5)
    """
    implied = None if declared is None or reach is None else declared * reach
    known = implied if implied is not None else measured
    cap = most if known is None else min(slack * known, most)
    return max(cap, implied or 0.0)


@dataclass(eq=False)
class UpdateDesk:
    """Checks the updates of one period.

    Parameters
    ----------
    run, schema
        Which period, and what its updates look like.
    keys
        The clients' registered public keys.
    caps
        The largest norm of an update that is accepted, by client (`norm_cap`); a client that is
        missing here has no cap.

    Examples
    --------
    >>> from fedprice.market.messages import ModelSchema, SigningKey
    >>> key, model, update = SigningKey(), [np.zeros(3, np.float32)], [np.ones(3, np.float32)]
    >>> keys, base = {"alice": key.public}, arrays_hash(model)
    >>> desk = UpdateDesk("run-1", ModelSchema.of(update), keys, caps={"alice": 10.0})
    >>> signed = key.sign(Update("run-1", "alice", 0, arrays_hash(update, update=True), base))
    >>> round(desk.accept("alice", 0, signed, update, base=base).norm, 3)
    1.732
    >>> desk.accept("alice", 0, signed, update, base=base)
    Traceback (most recent call last):
    ...
    fedprice.market.messages.RefusedError: it is the same as an earlier update.
    """

    run: str
    schema: ModelSchema
    keys: Mapping[str, bytes]
    caps: Mapping[str, float] = field(default_factory=dict)
    _hashes: set[str] = field(default_factory=set, init=False)
    # Sketches by bucket: a copy is in the same one or the next. Where norms are clipped they are
    # all equal, so a bucket also depends on the first projection.
    _sketches: dict[tuple[int, int], list[list[float]]] = field(default_factory=dict, init=False)

    def remember(self, update_hash: str, sketch: str) -> None:
        """Add an update that was accepted earlier, as recorded in the ledger."""
        self._hashes.add(update_hash)
        numbers = _numbers(sketch)
        self._sketches.setdefault(_place(numbers), []).append(numbers)

    def accept(
        self,
        client: str,
        round_: int,
        signed: Signed,
        arrays: Sequence[npt.NDArray[Any]],
        *,
        base: str,
        digest: str | None = None,
        change: Sequence[npt.NDArray[Any]] | None = None,
    ) -> Accepted:
        """Return norm and sketch of an update that may touch the model; refuse it otherwise.

        Parameters
        ----------
        client, round_
            The client that was called, and the round.
        signed, arrays
            What the client sent.
        base
            The hash of the model that the round started from.
        digest, change
            The hash of what was sent, and new − old of the model's parameters; by default `arrays`
            are an update.

        Raises
        ------
        RefusedError
            With the reason; `NormRefusedError` if the norm is above the cap.
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
        if update.base != base:
            raise RefusedError("it started from another model.")
        if len(arrays) != len(self.schema.shapes):
            raise RefusedError(f"it has {len(arrays)} arrays, not {len(self.schema.shapes)}.")
        for name, shape, dtype, array in zip(
            self.schema.names, self.schema.shapes, self.schema.dtypes, arrays, strict=True
        ):
            fits = list(array.shape) == shape or (shape == ANY and array.ndim == 1)
            if not fits or array.dtype.str != dtype:
                raise RefusedError(
                    f"{name} is {array.dtype.str} of shape {array.shape}, not {dtype} of shape "
                    f"{tuple(shape)}."
                )
        if (digest or arrays_hash(arrays, update=True)) != update.arrays:
            raise RefusedError("its arrays are not the ones that were signed.")
        own = zip(arrays, self.schema.buffers, strict=True)
        parts = [array for array, is_buffer in own if not is_buffer] if change is None else change
        found = sketch_of(parts)
        if ANY in self.schema.shapes and found.norm:
            found = found._replace(norm=1.0)  # bytes have no norm: all count the same
        # A finite norm implies finite parameters; buffers are few.
        looked_at = [a for a, kept in zip(arrays, self.schema.buffers, strict=True) if kept]
        looked_at += [] if found.norm < math.inf else parts
        if not all(np.isfinite(array).all() for array in looked_at):
            raise RefusedError("it is not finite.")
        if not found.norm:
            raise RefusedError("it changes nothing.")
        cap = self.caps.get(client, math.inf)
        if found.norm > min(cap, LARGEST_NORM):
            if cap > LARGEST_NORM:
                raise RefusedError(f"its norm is above {LARGEST_NORM:g}.")
            norm = f"{found.norm:.4g}" if found.norm < math.inf else f"above {LARGEST_NORM:g}"
            raise NormRefusedError(f"its norm {norm} is above the cap of {cap:.4g}.", norm=cap)
        if update.arrays in self._hashes:
            raise RefusedError("it is the same as an earlier update.")
        if self._is_copy(found.sketch):
            raise RefusedError("it is nearly the same as an earlier update.")
        self.remember(update.arrays, found.sketch)
        return found

    def _is_copy(self, sketch: str) -> bool:
        norm, *projections = numbers = _numbers(sketch)
        row, column = _place(numbers)
        return any(
            abs(other / norm - 1) <= SAME
            and all(abs(x - y) <= SAME for x, y in zip(projections, others, strict=True))
            for near in itertools.product((row - 1, row, row + 1), (column - 1, column, column + 1))
            for other, *others in self._sketches.get(near, ())
        )


def _numbers(sketch: str) -> list[float]:
    return [float(part) for part in sketch.split(",")]


def _place(numbers: list[float]) -> tuple[int, int]:
    return math.floor(math.log(numbers[0]) / (2 * SAME)), math.floor(numbers[1] / (2 * SAME))


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
