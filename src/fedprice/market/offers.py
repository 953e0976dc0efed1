"""Offers and commitments: what binds the server and a client, signed by both.

The server signs an `Offer`; the client answers with a signed `Commitment` to that very offer, with
a level of its own choosing up to the offer's cap. Both are canonical JSON, so that there is one
text to hash and to sign, and whole numbers only, so that there is nothing to round.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedprice.market.messages import (
    RefusedError,
    Signed,
    require_hash,
    require_number,
    require_text,
)
from fedprice.market.money import LEVEL_ONE

__all__ = ["Commitment", "Commitments", "Offer"]

MOST_MONEY = 1 << 62


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
        require_text(self, "run", "client", "unit")
        require_hash(self, "schema", "coin_hash")
        require_number(self, "price", -MOST_MONEY, MOST_MONEY)
        require_number(self, "level_cap", 0, LEVEL_ONE)
        require_number(self, "rounds", 1, 1 << 40)
        require_number(self, "deadline", 0, self.rounds)


@dataclass(frozen=True)
class Commitment:
    """A client's answer: the offer it accepts, its level, and its coin secret."""

    offer: str
    level: int
    secret: str

    def __post_init__(self) -> None:
        require_hash(self, "offer", "secret")
        require_number(self, "level", 0, LEVEL_ONE)


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
