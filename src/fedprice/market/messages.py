"""Messages between server and clients: canonical, signed with Ed25519, refused with a reason."""

from __future__ import annotations

import math
import threading
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from fedprice.errors import FedpriceError, InputError, require
from fedprice.market.canonical import canonical_bytes, digest, parsed
from fedprice.verify import (
    DECIMAL,
    HASH,
    LONGEST_NAME,
    UNIT,
    check_signed,
    is_name,
    is_of_small_order,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = [
    "ANY",
    "ModelSchema",
    "RefusedError",
    "Signed",
    "SigningKey",
    "plain_reason",
    "require_decimal",
    "require_digest",
    "require_hash",
    "require_name",
    "require_number",
    "require_public_key",
    "require_text",
    "require_unit",
    "require_whole",
    "valid_signature",
]

LONGEST_REASON = 200
MOST_VALID = 1 << 16  # signatures that are remembered as valid; the oldest are forgotten
_valid: dict[tuple[str, str, str], None] = {}
_lock = threading.Lock()
ANY = [-1]  # the shape of a model of bytes, whose size changes from round to round


class RefusedError(FedpriceError):
    """A message that is not accepted; the text is the reason."""


@dataclass(frozen=True)
class ModelSchema:
    """What an update must look like: names, shapes and types of its arrays, in order.

    `buffers` says which of them are buffers: stored with the parameters, and averaged.

    Examples
    --------
    >>> import numpy as np
    >>> ModelSchema.of([np.zeros((2, 3), np.float32)]).shapes
    [[2, 3]]
    """

    names: list[str]
    shapes: list[list[int]]
    dtypes: list[str]
    buffers: list[bool]

    @classmethod
    def of(
        cls,
        arrays: Sequence[npt.NDArray[Any]],
        names: Sequence[str] | None = None,
        buffers: Sequence[bool] | None = None,
    ) -> Self:
        """Return the schema of a model; by default it has no buffers."""
        return cls(
            list(names) if names is not None else [f"array{i}" for i in range(len(arrays))],
            [list(array.shape) for array in arrays],
            [array.dtype.str for array in arrays],
            [False] * len(arrays) if buffers is None else list(buffers),
        )

    @property
    def hash(self) -> str:
        """The schema's digest."""
        return digest(canonical_bytes(asdict(self)))

    def content(self) -> dict[str, Any]:
        """Return the schema with its hash, as an offer contains it."""
        return asdict(self) | {"hash": self.hash}

    @classmethod
    def load(cls, content: Any) -> Self:
        """Return the schema in an offer, or refuse what is not a schema."""
        try:
            found = cls(**{name: part for name, part in content.items() if name != "hash"})
            shapes = [[int(side) for side in shape] for shape in found.shapes]
            whole = all(type(own) is bool for own in found.buffers)
            sound = whole and found.shapes == shapes and found.content() == content
            lengths = {len(found.names), len(found.shapes), len(found.dtypes), len(found.buffers)}
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError("`schema` is not a schema of a model.") from error
        if not sound or len(lengths) != 1:
            raise InputError("`schema` is not a schema of a model, or does not match its hash.")
        return found


@dataclass(frozen=True)
class Signed:
    """A message with its signature and the key that signed it, all as bytes."""

    content: bytes
    signature: bytes
    key: bytes

    @property
    def hash(self) -> str:
        """The digest of the message, by which others refer to it."""
        return digest(self.content)

    @property
    def text(self) -> str:
        """The message as text."""
        try:
            return self.content.decode()
        except UnicodeDecodeError:
            raise RefusedError("it is no text.") from None

    @property
    def is_valid(self) -> bool:
        """Whether the key signed the message."""
        try:
            return valid_signature(self.key.hex(), self.signature.hex(), self.text)
        except RefusedError:
            return False

    def open(self, kind: Any, key: bytes) -> Any:
        """Return the message if it is of this kind and signed by this key.

        Raises
        ------
        RefusedError
            With the reason.
        """
        if self.key != key:
            raise RefusedError("it is signed by another key than the one registered.")
        return _opened(self, kind)


class SigningKey:
    """An Ed25519 key pair of the server or a client."""

    def __init__(self, private: bytes | None = None) -> None:
        ed25519 = _ed25519()
        make = ed25519.Ed25519PrivateKey
        self._private = make.generate() if private is None else make.from_private_bytes(private)
        self._public = bytes(self._private.public_key().public_bytes_raw())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SigningKey) and other.public == self.public

    def __hash__(self) -> int:
        return hash(self.public)

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._public

    @property
    def private(self) -> bytes:
        """The private key, 32 bytes, which must be kept secret."""
        return bytes(self._private.private_bytes_raw())

    def sign(self, message: Any) -> Signed:
        """Return the message, signed.

        Examples
        --------
        >>> key = SigningKey(bytes(range(32)))
        >>> signed = key.sign(ModelSchema(["w"], [[2]], ["<f4"], [False]))
        >>> signed.open(ModelSchema, key.public).shapes
        [[2]]
        """
        # Not `asdict`, whose copies of all values take longer than the signature.
        values = {field.name: getattr(message, field.name) for field in fields(message)}
        content = canonical_bytes(values | {"kind": type(message).__name__})
        return Signed(content, self.sign_text(content.decode()), self.public)

    def sign_text(self, text: str) -> bytes:
        """Return the signature of a text."""
        signature = bytes(self._private.sign(text.encode()))
        _remember(self.public.hex(), signature.hex(), text)  # not checked again in this process
        return signature


def _ed25519() -> Any:
    return require("cryptography.hazmat.primitives.asymmetric.ed25519", "market")


@lru_cache(maxsize=4096)  # the same offers and commitments recur in every round
def _opened(signed: Signed, kind: Any) -> Any:
    """Return a message whose signature is valid; messages do not change, so they may be shared."""
    if not signed.is_valid:
        raise RefusedError("its signature is not valid.")
    try:
        values = parsed(signed.content)
        if not isinstance(values, dict) or values.pop("kind", None) != kind.__name__:
            raise RefusedError(f"it is no {kind.__name__.lower()}.")
        if set(values) != {field.name for field in fields(kind)}:
            raise RefusedError("its fields are not those of its kind.")
        return kind(**values)
    except InputError as error:
        raise RefusedError(str(error)) from error


def valid_signature(key: str, signature: str, text: str) -> bool:
    """Return whether an Ed25519 key signed a text; key and signature are hexadecimal.

    Signatures that this process made or checked before are remembered as valid: a message is
    checked when it arrives and again when it is recorded, and in a simulation one process signs and
    checks.
    """
    if (key, signature, text) in _valid:
        return True
    if not check_signed(key, signature, text):
        return False
    _remember(key, signature, text)
    return True


def _remember(key: str, signature: str, text: str) -> None:
    with _lock:
        _valid[key, signature, text] = None
        if len(_valid) > MOST_VALID:
            del _valid[next(iter(_valid))]


def require_text(message: Any, *names: str) -> None:
    """Refuse fields that are not a name."""
    for name in names:
        require_name(name, getattr(message, name))


def require_name(what: str, given: object) -> None:
    """Refuse what is not 1 to 200 printable characters: names are shown, compared and hashed.

    They may not begin or end with a space, nor have another form that looks the same (NFC).
    """
    if not is_name(given):
        shown = repr(given) if len(repr(given)) <= LONGEST_NAME else f"{repr(given)[:40]}…"
        raise InputError(
            f"`{what}` must be 1 to {LONGEST_NAME} printable characters without spaces around them;"
            f" got {shown}."
        )


def plain_reason(text: object) -> str:
    """Return a reason that can be stored and signed: printable, and not too long."""
    if not isinstance(text, str):
        raise InputError(f"a reason must be text; got {text!r:.40}.")
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text).strip()
    return plain if len(plain) <= LONGEST_REASON else plain[: LONGEST_REASON - 1] + "…"


def require_decimal(message: Any, *names: str) -> None:
    """Refuse fields that are not a finite number, at least 0, as decimal text."""
    for name in names:
        text = getattr(message, name)
        fits = isinstance(text, str) and len(text) <= 30 and DECIMAL.match(text)
        if not (fits and float(text) < math.inf):
            raise InputError(f"`{name}` must be a decimal number, at least 0; got {text!r:.40}.")


def require_unit(given: object) -> None:
    """Refuse a unit of money that some bookkeeping format cannot represent."""
    if not (isinstance(given, str) and UNIT.match(given)):
        raise InputError(
            f"`unit` must be 1 to 12 capital letters and digits, such as EUR; got {given!r}."
        )


def require_hash(message: Any, *names: str) -> None:
    """Refuse fields that are not a digest."""
    for name in names:
        require_digest(name, getattr(message, name))


def require_digest(what: str, given: object) -> None:
    """Refuse what is not 64 hexadecimal digits."""
    if not (isinstance(given, str) and HASH.match(given)):
        raise InputError(f"`{what}` must be 64 hexadecimal digits; got {given!r:.80}.")


def require_public_key(what: str, given: object) -> None:
    """Refuse what is not an Ed25519 public key, and points of small order in any encoding.

    Such a point cannot be anybody's key: signatures that are valid for it can be made without a
    private key, and some of them for any message.

    Examples
    --------
    >>> require_public_key("key", SigningKey(bytes(32)).public)
    >>> require_public_key("key", bytes(32))
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: `key` must not be a point of small order; ...
    """
    if not (isinstance(given, bytes) and len(given) == 32):
        raise InputError(f"`{what}` must be a public key of 32 bytes; got {given!r:.80}.")
    if is_of_small_order(given):
        raise InputError(
            f"`{what}` must not be a point of small order; got {given.hex()}. Make a new key."
        )


def require_whole(what: str, given: object) -> None:
    """Refuse what is not a whole number."""
    if type(given) is not int:
        raise InputError(f"`{what}` must be a whole number; got {given!r:.80}.")


def require_number(message: Any, name: str, least: int, most: int) -> None:
    """Refuse a field that is not a whole number within limits."""
    value = getattr(message, name)
    if type(value) is not int or not least <= value <= most:
        raise InputError(
            f"`{name}` must be a whole number from {least} to {most}; got {value!r:.40}."
        )
