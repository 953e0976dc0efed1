"""Offers and commitments: what binds the server and a client, signed by both.

The server signs an `Offer`; the client answers with a signed `Commitment` to that very offer, with
a level of its own choosing up to the offer's cap. Both are canonical JSON, so that there is one
text to hash and to sign, and whole numbers only, so that there is nothing to round.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from fedprice.errors import FedpriceError, InputError, require
from fedprice.market.canonical import canonical_bytes, digest, parsed
from fedprice.market.money import LEVEL_ONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = [
    "Commitment",
    "Commitments",
    "ModelSchema",
    "Offer",
    "RefusedError",
    "Signed",
    "SigningKey",
]

_HASH = re.compile(r"[0-9a-f]{64}\Z")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z")
MOST_MONEY = 1 << 62


class RefusedError(FedpriceError):
    """A message that is not accepted; the text is the reason."""


@dataclass(frozen=True)
class ModelSchema:
    """What an update must look like: names, shapes and types of its arrays, in order.

    Examples
    --------
    >>> import numpy as np
    >>> ModelSchema.of([np.zeros((2, 3), np.float32)]).shapes
    [[2, 3]]
    """

    names: list[str]
    shapes: list[list[int]]
    dtypes: list[str]

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[Any]], names: Sequence[str] | None = None) -> Self:
        """Return the schema of a model."""
        return cls(
            list(names) if names is not None else [f"array{i}" for i in range(len(arrays))],
            [list(array.shape) for array in arrays],
            [array.dtype.str for array in arrays],
        )

    @property
    def hash(self) -> str:
        """The schema's digest, which is what an offer holds."""
        return digest(canonical_bytes(asdict(self)))


@dataclass(frozen=True)
class Offer:
    """What the server offers one client for one run.

    Attributes
    ----------
    run, client
        The run's name and the client's.
    price
        Micro-units a unit of level, for the whole run; negative if the client pays.
    level_cap
        The level that the server has budgeted for, in multiples of 2⁻³².
    rounds, deadline
        Rounds of the run, and the round by whose start the commitment must be there.
    unit
        What the money is.
    schema
        Hash of the model's schema.
    coin_hash
        Hash of the server's coin secret.
    """

    run: str
    client: str
    price: int
    level_cap: int
    rounds: int
    deadline: int
    unit: str
    schema: str
    coin_hash: str

    def __post_init__(self) -> None:
        _require_text(self, "run", "client", "unit")
        _require_hash(self, "schema", "coin_hash")
        _require_number(self, "price", -MOST_MONEY, MOST_MONEY)
        _require_number(self, "level_cap", 0, LEVEL_ONE)
        _require_number(self, "rounds", 1, 1 << 40)
        _require_number(self, "deadline", 0, self.rounds)


@dataclass(frozen=True)
class Commitment:
    """A client's answer: the offer it accepts, its level, and its coin secret."""

    offer: str
    level: int
    secret: str

    def __post_init__(self) -> None:
        _require_hash(self, "offer", "secret")
        _require_number(self, "level", 0, LEVEL_ONE)


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

    def open(self, kind: type[Any], key: bytes) -> Any:
        """Return the message if it is of this kind and signed by this key.

        Raises
        ------
        RefusedError
            With the reason.
        """
        if self.key != key:
            raise RefusedError("it is signed by another key than the one registered.")
        _verify(self)
        try:
            values = parsed(self.content)
            if not isinstance(values, dict) or values.pop("kind", None) != kind.__name__:
                raise RefusedError(f"it is no {kind.__name__.lower()}.")
            wanted = {field.name for field in fields(kind)}
            if set(values) != wanted:
                raise RefusedError("its fields are not those of its kind.")
            return kind(**values)
        except InputError as error:
            raise RefusedError(str(error)) from error


class SigningKey:
    """An Ed25519 key pair of the server or a client."""

    def __init__(self, private: bytes | None = None) -> None:
        ed25519 = _ed25519()
        make = ed25519.Ed25519PrivateKey
        self._private = make.generate() if private is None else make.from_private_bytes(private)

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return bytes(self._private.public_key().public_bytes_raw())

    @property
    def private(self) -> bytes:
        """The private key, 32 bytes: to be kept, and shown to nobody."""
        return bytes(self._private.private_bytes_raw())

    def sign(self, message: Offer | Commitment) -> Signed:
        """Return the message, signed.

        Examples
        --------
        >>> key = SigningKey(bytes(range(32)))
        >>> signed = key.sign(Commitment(offer="0" * 64, level=2**31, secret="1" * 64))
        >>> signed.open(Commitment, key.public).level == 2**31
        True
        """
        content = canonical_bytes(asdict(message) | {"kind": type(message).__name__})
        return Signed(content, bytes(self._private.sign(content)), self.public)


class Commitments:
    """The commitments to a run's offers, each client's first and only one.

    Parameters
    ----------
    offers
        The signed offers, by client.
    keys
        The clients' registered public keys.
    server_key
        The key that the offers must be signed with.
    """

    def __init__(
        self, offers: dict[str, Signed], keys: dict[str, bytes], server_key: bytes
    ) -> None:
        self._by_hash = {signed.hash: signed.open(Offer, server_key) for signed in offers.values()}
        self._keys = keys
        self.accepted: dict[str, Commitment] = {}

    def accept(self, client: str, signed: Signed, *, round_: int) -> Commitment:
        """Take a client's commitment, or refuse it with a reason.

        Parameters
        ----------
        client
            Who sent it.
        signed
            What was sent.
        round_
            The round that begins now.
        """
        if client not in self._keys:
            raise RefusedError(f"{client!r} has no registered key.")
        commitment: Commitment = signed.open(Commitment, self._keys[client])
        offer = self._by_hash.get(commitment.offer)
        if offer is None:
            raise RefusedError("it answers no offer of this run.")
        if offer.client != client:
            raise RefusedError("it answers the offer to another client.")
        if round_ > offer.deadline:
            raise RefusedError(f"it is late: round {round_}, the deadline was {offer.deadline}.")
        if client in self.accepted:
            raise RefusedError("the client has committed before.")
        if commitment.level > offer.level_cap:
            raise RefusedError("its level is above the cap of the offer.")
        self.accepted[client] = commitment
        return commitment


def _ed25519() -> Any:
    return require("cryptography.hazmat.primitives.asymmetric.ed25519", "market")


def _verify(signed: Signed) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        key = _ed25519().Ed25519PublicKey.from_public_bytes(signed.key)
        key.verify(signed.signature, signed.content)
    except (InvalidSignature, ValueError, TypeError) as error:
        raise RefusedError("its signature is not valid.") from error


def _require_text(message: Any, *names: str) -> None:
    for name in names:
        value = getattr(message, name)
        if not (isinstance(value, str) and _NAME.match(value)):
            raise InputError(f"`{name}` must be text without control characters; got {value!r}.")


def _require_hash(message: Any, *names: str) -> None:
    for name in names:
        value = getattr(message, name)
        if not (isinstance(value, str) and _HASH.match(value)):
            raise InputError(f"`{name}` must be 64 hexadecimal digits; got {value!r}.")


def _require_number(message: Any, name: str, least: int, most: int) -> None:
    value = getattr(message, name)
    if type(value) is not int or not least <= value <= most:
        raise InputError(f"`{name}` must be a whole number from {least} to {most}; got {value!r}.")
