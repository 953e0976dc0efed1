"""Messages between server and clients: canonical, signed with Ed25519, refused with a reason."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from fedprice import verify
from fedprice.errors import FedpriceError, InputError, require
from fedprice.market.canonical import canonical_bytes, digest, parsed
from fedprice.verify import (
    LONGEST_NAME,
    VerificationError,
    check_fields,
    check_signed,
    is_of_small_order,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

__all__ = [
    "ANY",
    "Message",
    "ModelSchema",
    "RefusedError",
    "Signed",
    "SigningKey",
    "plain_reason",
    "refusing",
    "require_digest",
    "require_name",
    "require_public_key",
    "require_unit",
    "require_whole",
    "valid_signature",
]

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
        return kind(**values)
    except TypeError:
        raise RefusedError("its fields are not those of its kind.") from None
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


@contextmanager
def refusing(kind: type[FedpriceError] = InputError) -> Iterator[None]:
    """Turn what the verifier finds wrong into an error of fedprice."""
    try:
        yield
    except VerificationError as error:
        raise kind(str(error)) from None


class Message:
    """A message whose fields are checked when it is made, by the rules of the verifier."""

    def __post_init__(self) -> None:
        """Refuse fields that no verifier would accept."""
        with refusing():
            check_fields(type(self).__name__, vars(self))


def require_name(what: str, given: object) -> None:
    """Refuse what is not 1 to 200 printable characters: names are shown, compared and hashed."""
    with refusing():
        verify.require_name(what, given)


def require_digest(what: str, given: object) -> None:
    """Refuse what is not 64 hexadecimal digits."""
    with refusing():
        verify.require_digest(what, given)


def require_unit(given: object) -> None:
    """Refuse a unit of money that some bookkeeping format cannot represent."""
    with refusing():
        verify.require_unit(given)


def plain_reason(text: object) -> str:
    """Return a reason that can be stored and signed: printable, and not too long."""
    if not isinstance(text, str):
        raise InputError(f"a reason must be text; got {text!r:.40}.")
    shown = verify.plain(text).strip()
    return shown if len(shown) <= LONGEST_NAME else shown[: LONGEST_NAME - 1] + "…"


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
