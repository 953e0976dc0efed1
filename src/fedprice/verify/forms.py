"""Forms of values: canonical text, digests, signatures, names, numbers and tariffs."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any, NoReturn

__all__ = [
    "DECIMAL",
    "GENESIS",
    "HASH",
    "INFINITY",
    "LARGEST",
    "LATEST",
    "LEVEL_ONE",
    "LONGEST_NAME",
    "MOST_BLOCKS",
    "MOST_SAMPLES",
    "NUMBER",
    "SIGNATURE",
    "UncheckedError",
    "VerificationError",
    "canonical",
    "chained_hash",
    "check_signed",
    "digest",
    "entry_digest",
    "fail",
    "is_name",
    "is_of_small_order",
    "plain",
    "require_decimal",
    "require_digest",
    "require_name",
    "require_number",
    "require_tariff",
    "require_unit",
    "whole",
]

GENESIS = "0" * 64
INFINITY = float("inf")
LEVEL_ONE = 1 << 32
LARGEST = 1 << 62
LATEST = 1 << 40  # seconds, rounds and entries
LONGEST_NAME = 200
MOST_BLOCKS = 256  # of a tariff
MOST_SAMPLES = 1 << 53
HASH = re.compile(r"[0-9a-f]{64}\Z")
SIGNATURE = re.compile(r"[0-9a-f]{128}\Z")
NUMBER = r"[0-9]{1,25}(?:\.[0-9]{1,25})?(?:e[+-]?[0-9]{1,3})?"
DECIMAL = re.compile(rf"{NUMBER}\Z", re.ASCII)
_UNIT = re.compile(r"[A-Z][A-Z0-9]{0,11}\Z", re.ASCII)
# Of Ed25519: the prime of its field, and the y of the eight points whose order divides eight.
_PRIME = 2**255 - 19
_Y_OF_ORDER_8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = {0, 1, _PRIME - 1, _Y_OF_ORDER_8, _PRIME - _Y_OF_ORDER_8}


class VerificationError(Exception):
    """The ledger is not what an honest market would have written; the text says where."""


class UncheckedError(Exception):
    """Nothing can be concluded: signatures cannot be checked here, or the client is unknown."""


_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical(value: Any) -> str:
    """Return the one text that stands for some content: keys sorted, no spaces."""
    return _CANONICAL.encode(value)


def digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def entry_digest(content: str, postings: str) -> str:
    """Return the digest of an entry, from the canonical texts of its content and postings."""
    hashed = hashlib.sha256(content.encode())
    hashed.update(f"\n{postings}".encode())  # without a copy of the content: it may be long
    return hashed.hexdigest()


def chained_hash(previous: str, number: int, digest_: str) -> str:
    """Return the hash of an entry: a few digests show that one entry follows from another."""
    return digest(f"{previous}\n{number}\n{digest_}")


def is_of_small_order(key: bytes) -> bool:
    """Return whether a point of Ed25519 is nobody's key: its order divides eight.

    Signatures that are valid for it can be made without a private key, some of them for any text.
    """
    # The highest bit is the sign of x; y may be written with the prime added to it.
    return int.from_bytes(key, "little") % 2**255 % _PRIME in _SMALL_ORDER


def check_signed(key: str, signature: str, text: str) -> bool:
    """Return whether an Ed25519 key signed a text; key and signature are hexadecimal.

    Keys of low order have signed nothing.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        raise UncheckedError(
            "signatures cannot be checked without the library cryptography; run: "
            "pip install cryptography"
        ) from None
    if not (HASH.match(key) and SIGNATURE.match(signature)):
        return False
    try:
        if is_of_small_order(bytes.fromhex(key)):
            return False
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), text.encode())
    except (InvalidSignature, ValueError):
        return False
    return True


def plain(text: str) -> str:
    """Return a text that can be shown: characters that cannot be printed are replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def fail(what: str, expected: object, found: object) -> NoReturn:
    """Say what something should have been."""
    raise VerificationError(f"{what} must be {expected!r:.200}; found {found!r:.100}.")


def whole(value: Any) -> int:
    """Return a whole number; anything else has not the form of an entry."""
    if type(value) is not int:
        raise TypeError(value)
    return value


def require_number(what: str, value: Any, least: int, most: int) -> int:
    """Return a whole number within limits; refuse anything else."""
    if type(value) is not int or not least <= value <= most:
        raise VerificationError(
            f"`{what}` must be a whole number from {least} to {most}; got {value!r:.40}."
        )
    return value


def require_decimal(what: str, value: Any) -> float:
    """Return a finite number, at least 0, that is written as decimal text."""
    if isinstance(value, str) and DECIMAL.match(value) and float(value) < INFINITY:
        return float(value)
    raise VerificationError(f"`{what}` must be a decimal number, at least 0; got {value!r:.40}.")


def require_digest(what: str, value: Any) -> str:
    """Return a digest, a key or a secret: 64 hexadecimal digits."""
    if isinstance(value, str) and HASH.match(value):
        return value
    raise VerificationError(f"`{what}` must be 64 hexadecimal digits; got {value!r:.80}.")


def is_name(value: Any) -> bool:
    """Return whether something can be shown, compared and hashed as a name.

    It is 1 to 200 printable characters, without spaces around them, and has no second form that
    looks the same (NFC).
    """
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST_NAME
        and value.isprintable()
        and value == value.strip()
        and unicodedata.is_normalized("NFC", value)
    )


def require_name(what: str, value: Any) -> str:
    """Return what `is_name` accepts."""
    if is_name(value):
        return str(value)
    shown = repr(value) if len(repr(value)) <= LONGEST_NAME else f"{repr(value)[:40]}…"
    raise VerificationError(
        f"`{what}` must be 1 to {LONGEST_NAME} printable characters without spaces around them; "
        f"got {shown}."
    )


def require_unit(value: Any) -> str:
    """Return a unit of money that every bookkeeping format can represent."""
    if isinstance(value, str) and _UNIT.match(value):
        return value
    raise VerificationError(
        f"`unit` must be 1 to 12 capital letters and digits, such as EUR; got {value!r:.40}."
    )


def require_tariff(blocks: Any) -> int:
    """Return the level at which the last block of a tariff ends; refuse what is no tariff."""
    if not (isinstance(blocks, list | tuple) and 1 <= len(blocks) <= MOST_BLOCKS):
        raise VerificationError(
            f"`tariff` must have 1 to {MOST_BLOCKS} blocks; got {blocks!r:.80}."
        )
    last = 0
    for block in blocks:
        if not (
            isinstance(block, list | tuple)
            and [type(part) for part in block] == [int, int]
            and last < block[0] <= LEVEL_ONE
            and abs(block[1]) <= LARGEST
        ):
            raise VerificationError(
                "each block of `tariff` must be a level in multiples of 2⁻³², above the one before "
                f"it and at most {LEVEL_ONE}, and a price from -{LARGEST} to {LARGEST}; got "
                f"{block!r:.80}."
            )
        last = block[0]
    return last
