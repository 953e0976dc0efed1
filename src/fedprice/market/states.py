"""The state that a run resumes from, as rows beside the chain: any size, in bounded memory.

One row describes the arrays of a run's state and holds a digest of all of it; their bytes, one
array after the other, are in parts of at most 1 MiB. A run's next state overwrites the parts of the
last one: SQLite then writes the same pages again, which takes half the time of deleting and
inserting them.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice.errors import InputError
from fedprice.market.canonical import canonical_bytes
from fedprice.market.schema import sa, state_parts, states

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    from sqlalchemy import Connection, Row

    from fedprice.arrays import State

__all__ = ["KINDS", "check_states", "drop_state", "read_state", "stray_parts", "write_state"]

PART = 1 << 20  # bytes; larger rows are slower
SMALL = 1 << 16  # bytes of an array that shares a part with others
KINDS = "biufSU"  # of arrays that are nothing but their bytes

_OWN = {
    table: table.c.run == sa.bindparam("of_run")  # what every round needs, put together once
    for table in (states, state_parts)
}
_THIS_PART = _OWN[state_parts] & (state_parts.c.number == sa.bindparam("of_number"))
_STATE = sa.select(states).where(_OWN[states])
_SIZES = sa.select(sa.func.count(), sa.func.sum(sa.func.length(state_parts.c.bytes)))
_SIZE = _SIZES.where(_OWN[state_parts])
_PART = sa.select(state_parts.c.bytes).where(_THIS_PART)
_REPLACE_STATE = states.update().where(_OWN[states])
_REPLACE_PART = state_parts.update().where(_THIS_PART).values(bytes=sa.bindparam("new"))
_NEW_PART = state_parts.insert()
_DROP_REST = state_parts.delete().where(
    _OWN[state_parts] & (state_parts.c.number >= sa.bindparam("count"))
)
_DROP = states.delete().where(_OWN[states])


class _Described(NamedTuple):
    """An array of a state: what it is called, and what its bytes stand for."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


def write_state(connection: Connection, run: str, done: int, state: State) -> None:
    """Replace the state of a run, in the transaction of the round that it belongs to.

    Parameters
    ----------
    run, done
        Whose it is, and after how many rounds.
    state
        Arrays of numbers and text, by name.
    """
    arrays = {name: np.asarray(array, order="C") for name, array in state.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in KINDS:
            raise InputError(
                f"a state holds arrays of numbers and text; {name!r} is of type {array.dtype}."
            )
    about = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    described = canonical_bytes(about).decode()
    parts = list(_parts(map(_bytes_of, arrays.values())))
    with ThreadPoolExecutor(1) as hashing:  # while the database writes
        digests = hashing.map(_digest, parts) if len(parts) > 1 else map(_digest, parts)
        for number, part in enumerate(parts):
            of = {"of_run": run, "of_number": number, "new": part}
            if connection.execute(_REPLACE_PART, of).rowcount == 0:
                connection.execute(_NEW_PART, {"run": run, "number": number, "bytes": part})
        digest = _whole_digest(run, done, described, digests)
    connection.execute(_DROP_REST, {"of_run": run, "count": len(parts)})
    row = {"run": run, "done": done, "arrays": described, "digest": digest}
    if connection.execute(_REPLACE_STATE, row | {"of_run": run}).rowcount == 0:
        connection.execute(states.insert(), row)


def drop_state(connection: Connection, run: str) -> None:
    """Forget the state of a run, if there is one."""
    if connection.execute(_DROP, {"of_run": run}).rowcount:
        connection.execute(_DROP_REST, {"of_run": run, "count": 0})


def read_state(connection: Connection, run: str) -> tuple[int, State] | None:
    """Return after how many rounds a run kept its state, and the state; None if it has none.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    row = connection.execute(_STATE, {"of_run": run}).first()
    if row is None:
        return None
    about = _described(connection, row)
    state = {own.name: np.empty(own.shape, own.dtype) for own in about}
    left = [_bytes_of(array) for array in reversed(state.values()) if array.nbytes]
    for part in _stream(connection, row, about):
        rest = memoryview(part)
        while rest:
            content = left.pop()
            size = min(len(rest), len(content))
            content[:size] = rest[:size]
            rest = rest[size:]
            if size < len(content):
                left.append(content[size:])
    return row.done, state


def check_states(connection: Connection) -> Iterator[tuple[str, int | None]]:
    """Yield the runs that have a state, and after how many rounds; None if it is damaged."""
    for row in connection.execute(sa.select(states)).all():
        try:
            for _ in _stream(connection, row, _described(connection, row)):
                pass
            yield row.run, row.done
        except ValueError:
            yield row.run, None


def stray_parts(connection: Connection) -> list[str]:
    """Return the runs of which there are parts of a state, but no state."""
    query = sa.select(state_parts.c.run).where(state_parts.c.run.not_in(sa.select(states.c.run)))
    return list(connection.execute(query.distinct().order_by(state_parts.c.run)).scalars())


def _described(connection: Connection, row: Row[Any]) -> list[_Described]:
    """Return what a state consists of, before memory is taken for it."""
    try:
        about = [
            _Described(name, np.dtype(kind), (*shape,))
            for name, kind, shape in json.loads(row.arrays)
        ]
    except (TypeError, RecursionError, SyntaxError) as error:  # the last of types like "f4,("
        raise ValueError("it is not described") from error
    sides = [side for own in about for side in own.shape]
    sound = type(row.arrays) is str and type(row.done) is int
    sound = sound and all(type(side) is int and side >= 0 for side in sides)
    sound = sound and all(own.dtype.kind in KINDS and type(own.name) is str for own in about)
    sound = sound and len({own.name for own in about}) == len(about)
    size = connection.execute(_SIZE, {"of_run": row.run}).one()[1] or 0
    if not sound or size != sum(own.nbytes for own in about):
        raise ValueError("it has another size")
    return about


def _stream(connection: Connection, row: Row[Any], about: list[_Described]) -> Iterator[bytes]:
    """Yield the parts of a state, as many bytes as its arrays have."""
    digests, left = list[bytes](), sum(own.nbytes for own in about)
    while left:
        of = {"of_run": row.run, "of_number": len(digests)}
        part = connection.execute(_PART, of).scalar()
        if not isinstance(part, bytes) or not 0 < len(part) <= left:
            raise ValueError("a part is missing")
        digests.append(_digest(part))
        yield part
        left -= len(part)
    if _whole_digest(row.run, row.done, row.arrays, digests) != row.digest:
        raise ValueError("it has another digest")


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """Return the bytes of an array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _parts(contents: Iterable[memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the bytes of arrays in parts: small arrays together, large ones not copied."""
    together: list[memoryview] = []
    for content in contents:
        if len(content) > SMALL or sum(map(len, together)) + len(content) > PART:
            yield from filter(None, [b"".join(together)])
            together.clear()
        if len(content) > SMALL:
            yield from (content[at : at + PART] for at in range(0, len(content), PART))
        else:
            together.append(content)
    yield from filter(None, [b"".join(together)])


def _digest(part: bytes | memoryview) -> bytes:
    return hashlib.sha256(part).digest()


def _whole_digest(run: str, done: int, described: str, digests: Iterable[bytes]) -> str:
    whole = hashlib.sha256(canonical_bytes([run, done, described]))
    for digest in digests:
        whole.update(digest)
    return whole.hexdigest()
