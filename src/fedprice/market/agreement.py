"""`Agreement`: what all clients of a run and its server signed, and the coins that follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from fedprice.errors import InputError
from fedprice.market.coins import Coins, coin_key
from fedprice.market.messages import ModelSchema, Signed
from fedprice.market.offers import Commitment, Commitments, Offer, Terms, coin_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedprice.market.messages import SigningKey

__all__ = ["Agreement", "Deal"]


@dataclass(frozen=True)
class Deal:
    """One client's part: its offer and commitment, and the server's coin secret, now revealed."""

    offer: Signed
    commitment: Signed
    secret: bytes

    @cached_property
    def offered(self) -> Offer:
        """What the server offered."""
        offer: Offer = self.offer.open(Offer, self.offer.key)
        return offer

    @cached_property
    def committed(self) -> Commitment:
        """What the client committed to."""
        commitment: Commitment = self.commitment.open(Commitment, self.commitment.key)
        return commitment

    @property
    def terms(self) -> Terms:
        """Price, level and samples."""
        return Terms(self.offered.price, self.committed.level, self.committed.samples)

    @property
    def coins(self) -> Coins:
        """The client's coins."""
        key = coin_key(self.secret, bytes.fromhex(self.committed.secret))
        return Coins(key, self.offered.run, self.committed.level)


@dataclass(frozen=True)
class Agreement:
    """What server and clients of a run signed.

    Attributes
    ----------
    server
        The server's public key.
    deals
        By client, in the order of the model's sum.
    """

    server: bytes
    deals: Mapping[str, Deal]

    @classmethod
    def seal(cls, key: SigningKey, offers: Mapping[str, Signed], commitments: Commitments) -> Self:
        """Put together what was signed, with the server's secrets; who did not commit is left out.

        Nothing is revealed before the run is opened in the ledger.
        """
        if not commitments.signed:
            raise InputError("nobody has committed to an offer; there is no run without clients.")
        return cls(
            key.public,
            {
                client: Deal(
                    signed,
                    commitments.signed[client],
                    coin_secret(key, signed.open(Offer, key.public)),
                )
                for client, signed in offers.items()
                if client in commitments.signed
            },
        )

    @classmethod
    def load(cls, run: str, opened: dict[str, Any]) -> Self:
        """Return the agreement of a run from the entry that opened it."""
        kept = opened["agreement"]
        if kept is None:
            raise InputError(f"run {run!r} was opened without an agreement.")
        server = bytes.fromhex(kept["server"])
        deals = {}
        for client, *_ in opened["terms"]:
            own = kept["clients"][client]
            deals[client] = Deal(
                Signed(own["offer"].encode(), bytes.fromhex(own["offer_signature"]), server),
                Signed(
                    own["commitment"].encode(),
                    bytes.fromhex(own["commitment_signature"]),
                    bytes.fromhex(own["key"]),
                ),
                bytes.fromhex(own["secret"]),
            )
        return cls(server, deals)

    @cached_property
    def _any(self) -> Offer:
        return next(iter(self.deals.values())).offered

    @property
    def run(self) -> str:
        """The name that the period has in the ledger."""
        return self._any.run

    @property
    def follows(self) -> str:
        """The name of the period before this one; empty if it is the first of its run."""
        return self._any.follows

    @property
    def rounds(self) -> int:
        """How many rounds the period has."""
        return self._any.rounds

    @property
    def run_rounds(self) -> int:
        """How many rounds the whole run has."""
        return self._any.run_rounds

    @property
    def task(self) -> str:
        """Hash of what else determines the training."""
        return self._any.task

    @cached_property
    def schema(self) -> ModelSchema:
        """What an update looks like."""
        return ModelSchema.load(self._any.schema)

    @cached_property
    def terms(self) -> dict[str, Terms]:
        """Price, level and samples of each client."""
        return {client: deal.terms for client, deal in self.deals.items()}

    @cached_property
    def coins(self) -> dict[str, Coins]:
        """Each client's coins."""
        return {client: deal.coins for client, deal in self.deals.items()}

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """The public key that each client signed with."""
        return {client: deal.commitment.key for client, deal in self.deals.items()}

    def content(self) -> dict[str, Any]:
        """Return all of it for the ledger, as text."""
        return {
            "server": self.server.hex(),
            "clients": {
                client: {
                    "offer": deal.offer.content.decode(),
                    "offer_signature": deal.offer.signature.hex(),
                    "commitment": deal.commitment.content.decode(),
                    "commitment_signature": deal.commitment.signature.hex(),
                    "key": deal.commitment.key.hex(),
                    "secret": deal.secret.hex(),
                }
                for client, deal in self.deals.items()
            },
        }
