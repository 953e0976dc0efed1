"""`Agreement`: what all clients of a run and its server signed, and the coins that follow."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from fedprice.errors import InputError
from fedprice.market.coins import Coins, coin_key
from fedprice.market.offers import Commitment, Commitments, Offer, Terms, coin_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedprice.market.messages import ModelSchema, Signed, SigningKey

__all__ = ["Agreement", "Deal"]


@dataclass(frozen=True)
class Deal:
    """One client's part: its offer and commitment, and the server's coin secret, now revealed.

    Attributes
    ----------
    samples, grad_norm
        What the client declared of its data; the norm as a decimal number.
    """

    offer: Signed
    commitment: Signed
    secret: bytes
    samples: int
    grad_norm: str


@dataclass(frozen=True)
class Agreement:
    """The deals of a run, by client.

    Attributes
    ----------
    run, rounds, schema
        The run's name, its rounds, and what an update looks like.
    task
        Hash of what else determines the training: data and settings.
    server
        The server's public key.
    deals
        By client, in the order of the model's sum.
    """

    run: str
    rounds: int
    schema: ModelSchema
    task: str
    server: bytes
    deals: Mapping[str, Deal]

    @classmethod
    def seal(
        cls,
        key: SigningKey,
        offers: Mapping[str, Signed],
        commitments: Commitments,
        *,
        schema: ModelSchema,
        task: str,
        samples: Mapping[str, int],
        grad_norms: Mapping[str, float],
    ) -> Self:
        """Reveal the server's coin secrets to whoever committed; the others are left out."""
        if not commitments.signed:
            raise InputError("nobody has committed to an offer; there is no run without clients.")
        first = next(iter(offers.values())).open(Offer, key.public)
        return cls(
            run=first.run,
            rounds=first.rounds,
            schema=schema,
            task=task,
            server=key.public,
            deals={
                client: Deal(
                    signed,
                    commitments.signed[client],
                    coin_secret(key, first.run, client),
                    samples[client],
                    f"{grad_norms[client]:.6g}",
                )
                for client, signed in offers.items()
                if client in commitments.signed
            },
        )

    @cached_property
    def terms(self) -> dict[str, Terms]:
        """Price, level and samples of each client."""
        return {
            client: Terms(
                deal.offer.open(Offer, self.server).price,
                deal.commitment.open(Commitment, deal.commitment.key).level,
                deal.samples,
            )
            for client, deal in self.deals.items()
        }

    @cached_property
    def coins(self) -> dict[str, Coins]:
        """Each client's coins."""
        return {
            client: Coins(
                coin_key(
                    deal.secret,
                    bytes.fromhex(deal.commitment.open(Commitment, deal.commitment.key).secret),
                ),
                self.run,
                self.terms[client].level,
            )
            for client, deal in self.deals.items()
        }

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """The public key that each client signed with."""
        return {client: deal.commitment.key for client, deal in self.deals.items()}

    def content(self) -> dict[str, Any]:
        """Return all of it for the ledger, as text and whole numbers."""
        return {
            "schema": asdict(self.schema),
            "task": self.task,
            "server": self.server.hex(),
            "clients": {
                client: {
                    "offer": deal.offer.content.decode(),
                    "offer_signature": deal.offer.signature.hex(),
                    "commitment": deal.commitment.content.decode(),
                    "commitment_signature": deal.commitment.signature.hex(),
                    "key": deal.commitment.key.hex(),
                    "secret": deal.secret.hex(),
                    "grad_norm": deal.grad_norm,
                }
                for client, deal in self.deals.items()
            },
        }
