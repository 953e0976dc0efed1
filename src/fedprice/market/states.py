"""The state that a run resumes from, as rows outside the chain: of any size, in limited memory.

One row describes the arrays of a run's state and holds a digest of all of it, followed by that of
each part; their bytes, one array after the other, are in parts of at most 1 MiB. A run's next state
overwrites the parts of the last one: SQLite then writes the same pages again, which takes half the
time of deleting and inserting them. Of remembered vectors, which come first, only those are
overwritten that the round has written.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice._plumbing.rows import KINDS, chunks_of, rounds_of
from fedprice.errors import InputError
from fedprice.market.canonical import canonical_bytes
from fedprice.market.schema import sa, state_parts, states

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt
    from sqlalchemy import Connection, Row

    from fedprice._plumbing.arrays import State

__all__ = ["check_states", "drop_state", "read_state", "stray_parts", "write_state"]

PART = 1 << 20  # bytes; larger rows are slower
SMALL = 1 << 16  # bytes of an array that shares a part with others

_OWN = {
    table: table.c.run == sa.bindparam("of_run")  # expressions that every round needs, built once
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
    """An array of a state: its name, and what its bytes represent."""

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
        The run, and the number of rounds after which this is its state.
    state
        Arrays of numbers and text, by name.
    """
    arrays = {name: np.asarray(array, order="C") for name, array in state.items()}
    for name, array in arrays.items():
        if array.dtype.kind not in KINDS:
            raise InputError(
                f"a state holds arrays of numbers and text; {name!r} is of type {array.dtype}."
            )
    chunks = chunks_of(arrays)
    large = {name: arrays.pop(name) for name in dict.fromkeys(chunk.array for chunk in chunks)}
    about = [_Described(name, a.dtype, a.shape) for name, a in (large | arrays).items()]
    described = canonical_bytes([[name, kind.str, list(s)] for name, kind, s in about]).decode()
    parts, written = list[bytes | memoryview](), list[int]()
    for chunk in chunks:
        parts += _pieces(_bytes_of(chunk.rows))
        written += [chunk.written] * (len(parts) - len(written))
    parts += _parts(map(_bytes_of, arrays.values()))
    digests, last = list[bytes](), rounds_of(arrays) - 1 if chunks else 0
    if last > 0:  # in the first round of a memory, the last state is that of another one
        digests = _last_digests(connection, run, about[: len(large)])[: len(written)]
    changed = [n for n in range(len(parts)) if n >= len(digests) or written[n] >= last]
    digests += [b""] * (len(parts) - len(digests))
    with ThreadPoolExecutor(1) as hashing:  # while the database writes
        new = [parts[number] for number in changed]
        hashed = hashing.map(_digest, new) if len(new) > 1 else map(_digest, new)
        for number in changed:
            of = {"of_run": run, "of_number": number, "new": parts[number]}
            if connection.execute(_REPLACE_PART, of).rowcount == 0:
                row = {"run": run, "number": number, "bytes": parts[number]}
                connection.execute(_NEW_PART, row)
        for number, digest in zip(changed, hashed, strict=True):
            digests[number] = digest
    connection.execute(_DROP_REST, {"of_run": run, "count": len(parts)})
    row = {"run": run, "done": done, "arrays": described}
    row["digest"] = _digests_text(run, done, described, digests)
    if connection.execute(_REPLACE_STATE, row | {"of_run": run}).rowcount == 0:
        connection.execute(states.insert(), row)


def _last_digests(connection: Connection, run: str, first: list[_Described]) -> list[bytes]:
    """Return the digests of the parts of the last state, none unless it begins with such arrays."""
    row = connection.execute(_STATE, {"of_run": run}).first()
    try:
        if row is None or _described(connection, row)[: len(first)] != first:
            return []
        text = bytes.fromhex(row.digest[64:])
    except (TypeError, ValueError):  # it is damaged, and replaced
        return []
    digests = [text[at : at + 32] for at in range(0, len(text), 32)]
    return digests if row.digest == _digests_text(run, row.done, row.arrays, digests) else []


def drop_state(connection: Connection, run: str) -> None:
    """Forget the state of a run, if there is one."""
    if connection.execute(_DROP, {"of_run": run}).rowcount:
        connection.execute(_DROP_REST, {"of_run": run, "count": 0})


def read_state(connection: Connection, run: str) -> tuple[int, State] | None:
    """Return a run's state and the number of rounds before it; None if it has none.

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
    """Yield the runs that have a state, and the rounds before it; None if it is damaged."""
    for row in connection.execute(sa.select(states)).all():
        try:
            for _ in _stream(connection, row, _described(connection, row)):
                pass
            yield row.run, row.done
        except ValueError:
            yield row.run, None


def stray_parts(connection: Connection) -> list[str]:
    """Return the runs that have parts of a state, but no state."""
    query = sa.select(state_parts.c.run).where(state_parts.c.run.not_in(sa.select(states.c.run)))
    return list(connection.execute(query.distinct().order_by(state_parts.c.run)).scalars())


def _described(connection: Connection, row: Row[Any]) -> list[_Described]:
    """Return what a state consists of, before memory is allocated for it."""
    try:
        about = [
            _Described(name, np.dtype(kind), (*shape,))
            for name, kind, shape in json.loads(row.arrays)
        ]
    except (TypeError, RecursionError, SyntaxError) as error:  # SyntaxError: of types like "f4,("
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
    text = _digests_text(row.run, row.done, row.arrays, digests)
    if row.digest not in (text, text[:64]):  # earlier versions stored no digests of parts
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
            yield from _pieces(content)
        else:
            together.append(content)
    yield from filter(None, [b"".join(together)])


def _pieces(content: memoryview) -> Iterator[memoryview]:
    return (content[at : at + PART] for at in range(0, len(content), PART))


def _digest(part: bytes | memoryview) -> bytes:
    return hashlib.sha256(part).digest()


def _digests_text(run: str, done: int, described: str, digests: list[bytes]) -> str:
    """Return the digest of a state, followed by those of its parts."""
    whole = hashlib.sha256(canonical_bytes([run, done, described]))
    parts = b"".join(digests)
    whole.update(parts)
    return whole.hexdigest() + parts.hex()
