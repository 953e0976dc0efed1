"""Market messages as Flower records: signed bytes in, signed bytes out."""

from __future__ import annotations

import io
import math
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from fedprice import verify
from fedprice.errors import InputError
from fedprice.market.messages import RefusedError, Signed, refusing, require_name
from fedprice.market.updates import array_digests, hash_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays


__all__ = [
    "LONGEST",
    "MARKET",
    "Profile",
    "Question",
    "arrays_of",
    "declined",
    "hash_of_record",
    "market_fields",
    "market_record",
    "named_arrays",
    "signed_fields",
    "signed_of",
    "the_arrays",
    "to_record",
    "with_content",
]

MARKET = "fedprice"  # the market's record in a message
MOST = 1e12  # the largest number in a profile
LONGEST = 200  # characters of a reason
DIGEST = "_fedprice_digest"  # attribute of an array: its bytes and their digest
HEADER = 1 << 14  # bytes that hold the header of a packed array
DECLINED = 6  # Flower's code for a mod that refuses a message


@dataclass(frozen=True)
class Question:
    """The server's first question: who a node is, for this run."""

    run: str
    nonce: str

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            require_name(name, value)


@dataclass(frozen=True)
class Profile:
    """What a client declares before it is priced; numbers as decimal text.

    `nonce` is that of the question, so that the answer cannot be reused by others. `cost` and
    `value` are empty where the client keeps them to itself, `grad_norm` where it is to be measured.
    """

    run: str
    nonce: str
    client: str
    samples: int
    grad_norm: str
    cost: str
    value: str

    def __post_init__(self) -> None:
        with refusing():
            for name in ("run", "nonce", "client"):
                verify.require_name(name, getattr(self, name))
            verify.require_number("samples", self.samples, 0, 1 << 53)
            for name in ("grad_norm", "cost", "value"):
                if getattr(self, name) != "":
                    verify.require_decimal(name, getattr(self, name))
        if max(float(getattr(self, n) or 0) for n in ("grad_norm", "cost", "value")) > MOST:
            raise InputError(f"`grad_norm`, `cost` and `value` must be at most {MOST:g}.")
        if self.cost and not float(self.cost):
            raise InputError("`cost` must be above 0.")


def signed_fields(name: str, signed: Signed) -> dict[str, list[bytes]]:
    """Return a signed message as a field of a ConfigRecord."""
    return {name: [signed.content, signed.signature, signed.key]}


def market_fields(content: RecordDict) -> dict[str, Any]:
    """Return the market's record of a message, unchecked: any fields of any type."""
    found = content.get(MARKET)
    return dict(found) if isinstance(found, ConfigRecord) else {}


def signed_of(record: dict[str, Any], name: str) -> Signed:
    """Return a signed message from the market's fields, or refuse what is not one."""
    match record.get(name):
        case [bytes() as text, bytes() as signature, bytes() as key]:
            return Signed(text, signature, key)
    raise RefusedError(f"it has no signed {name}.")


def the_arrays(content: RecordDict) -> ArrayRecord:
    """Return the one ArrayRecord of a message."""
    records = [record for record in content.values() if isinstance(record, ArrayRecord)]
    if len(records) != 1:
        raise RefusedError(f"it has {len(records)} records of arrays, not 1.")
    return records[0]


def arrays_of(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record, in order, to be read only; refuse what cannot be read."""
    return _all_read(record.values())


def _all_read(arrays: Iterable[Array]) -> Arrays:
    try:
        return [_read(array) for array in arrays]
    except Exception as error:  # numpy may raise anything on bytes from a stranger
        raise RefusedError("its arrays cannot be read.") from error


def _read(array: Array) -> npt.NDArray[Any]:
    """Return an array without copying it, as Flower's `numpy` does."""
    if array.stype != "numpy.ndarray":
        raise ValueError(array.stype)
    shape, fortran, dtype, start = _header(array.data[:HEADER])
    count = math.prod(shape)
    # This rejects objects, and fewer bytes than the shape needs.
    flat = np.frombuffer(array.data, dtype, count, start) if count else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(beginning: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, order and type of a packed array, and where its numbers start."""
    width = 2 if beginning[6:7] == b"\x01" else 4  # bytes of the header's length, by the version
    end = 8 + width + int.from_bytes(beginning[8 : 8 + width], "little")
    return _parsed(beginning[:end])


@lru_cache(maxsize=1024)  # the same few headers recur
def _parsed(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    file = io.BytesIO(header)
    reads = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    shape, fortran, dtype = reads[np.lib.format.read_magic(file)](file)
    if any(size < 0 for size in shape):  # numpy would infer this dimension
        raise ValueError(shape)
    return shape, fortran, dtype, file.tell()


def hash_of_record(record: ArrayRecord, *, update: bool = False) -> str:
    """Return `arrays_hash` of a record's arrays, each of which is hashed once."""
    arrays = list(record.values())
    # Stored with the array, as Flower does with its chunks, so that copies have it, too.
    new = [array for array in arrays if not _has_digest(array)]
    for array, digest in zip(new, array_digests(_all_read(new)), strict=True):
        array.__dict__[DIGEST] = array.data, digest
    return hash_of([array.__dict__[DIGEST][1] for array in arrays], update=update)


def _has_digest(array: Array) -> bool:
    """Return whether the digest of an array is known, and its bytes are still the same."""
    data, _ = array.__dict__.get(DIGEST, (None, None))
    return data is array.data


def named_arrays(record: ArrayRecord, names: Sequence[str]) -> Arrays:
    """Return the arrays of a record; refuse it unless it has real numbers under these names."""
    if list(record.keys()) != list(names):
        raise RefusedError("its arrays have other names.")
    arrays = arrays_of(record)
    if not all(array.dtype.kind in "fiub" for array in arrays):
        raise RefusedError("its arrays do not hold real numbers.")
    return arrays


def to_record(names: Sequence[str], arrays: Sequence[npt.NDArray[Any]]) -> ArrayRecord:
    """Return named arrays as a record."""
    return ArrayRecord({n: _packed(array) for n, array in zip(names, arrays, strict=True)})


def _packed(array: npt.NDArray[Any]) -> Array:
    """Return an array as Flower packs it, copied once."""
    given = np.asarray(array, order="C")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(given))
    data = b"".join([head.getvalue(), given.reshape(-1).view(np.uint8).data])
    return Array(str(given.dtype), tuple(given.shape), "numpy.ndarray", data)


def with_content(message: Message, content: RecordDict) -> Message:
    """Return a message of the same metadata with other content."""
    twin = copy(message)
    twin.content = content
    return twin


def declined(message: Message, reason: str) -> Message:
    """Return a client's refusal to do what a message asks."""
    return Message(Error(DECLINED, reason[:LONGEST]), reply_to=message)


def market_record(**fields: Any) -> ConfigRecord:
    """Return the market's record of a message."""
    return ConfigRecord(fields)
