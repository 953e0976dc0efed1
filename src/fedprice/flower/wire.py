"""Market messages as Flower records: signed bytes in, signed bytes out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

from fedprice.errors import InputError
from fedprice.market.messages import RefusedError, Signed, require_number, require_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Arrays = list[npt.NDArray[Any]]

__all__ = [
    "MARKET",
    "Profile",
    "arrays_of",
    "declined",
    "market_fields",
    "market_record",
    "signed_fields",
    "signed_of",
    "the_arrays",
    "to_record",
]

MARKET = "fedprice"  # the record of a message that is the market's
DECLINED = 6  # Flower's code for a mod that refuses a message


@dataclass(frozen=True)
class Profile:
    """What a client declares before it is priced; numbers as decimal text.

    `cost` and `value` are empty where the client keeps them to itself.
    """

    run: str
    client: str
    samples: int
    grad_norm: str
    cost: str
    value: str

    def __post_init__(self) -> None:
        require_text(self, "run", "client")
        require_number(self, "samples", 0, 1 << 53)
        for name in ("grad_norm", "cost", "value"):
            text = getattr(self, name)
            if not isinstance(text, str) or (text and not _is_number(text)):
                raise InputError(f"`{name}` must be a decimal number; got {text!r}.")
        if not self.grad_norm:
            raise InputError("`grad_norm` must be declared.")


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text)) and float(text) >= 0
    except ValueError:
        return False


def signed_fields(name: str, signed: Signed) -> dict[str, bytes]:
    """Return a signed message as fields of a ConfigRecord."""
    return {
        f"{name}.content": signed.content,
        f"{name}.signature": signed.signature,
        f"{name}.key": signed.key,
    }


def market_fields(content: RecordDict) -> dict[str, Any]:
    """Return the market's record of a message as it came: any fields of any type."""
    found = content.get(MARKET)
    return dict(found) if isinstance(found, ConfigRecord) else {}


def signed_of(record: dict[str, Any], name: str) -> Signed:
    """Return a signed message of the market's fields, or refuse what is none."""
    text, signature, key = (record.get(f"{name}.{p}") for p in ("content", "signature", "key"))
    if not (isinstance(text, bytes) and isinstance(signature, bytes) and isinstance(key, bytes)):
        raise RefusedError(f"it has no signed {name}.")
    return Signed(text, signature, key)


def the_arrays(content: RecordDict) -> ArrayRecord:
    """Return the one ArrayRecord of a message."""
    records = [record for record in content.values() if isinstance(record, ArrayRecord)]
    if len(records) != 1:
        raise RefusedError(f"it has {len(records)} records of arrays, not 1.")
    return records[0]


def arrays_of(record: ArrayRecord) -> Arrays:
    """Return the arrays of a record, in order; refuse what cannot be read."""
    try:
        return [array.numpy() for array in record.values()]
    except Exception as error:  # whatever numpy makes of bytes from a stranger
        raise RefusedError("its arrays cannot be read.") from error


def to_record(names: Sequence[str], arrays: Sequence[npt.NDArray[Any]]) -> ArrayRecord:
    """Return named arrays as a record."""
    return ArrayRecord(
        {
            name: Array(np.ascontiguousarray(array))
            for name, array in zip(names, arrays, strict=True)
        }
    )


def declined(message: Message, reason: str) -> Message:
    """Return a client's refusal to do what a message asks."""
    return Message(Error(DECLINED, reason), reply_to=message)


def market_record(**fields: Any) -> ConfigRecord:
    """Return the market's record of a message."""
    return ConfigRecord(fields)
