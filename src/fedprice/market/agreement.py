"""`Agreement`: what all clients of a run and its server signed, as the ledger has it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from fedprice.errors import InputError
from fedprice.market.canonical import canonical_text, digest, parsed
from fedprice.market.coins import coin_mix, roster_hash, secret_hash
from fedprice.market.messages import ModelSchema, RefusedError, Signed, require_name
from fedprice.market.offers import Commitment, Conditions, Offer, Opening, Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import SigningKey

__all__ = ["Agreement", "Deal", "Mix", "conditions_of", "signed_commitment"]


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
        """Tariff, level and samples."""
        return Terms(self.offered.pays, self.committed.level, self.committed.samples)


@dataclass(frozen=True)
class Mix:
    """What all clients of a run, and a public value, add to every coin.

    Attributes
    ----------
    commitments, secrets
        The hash of each client's commitment, and its secret, by client.
    beacon
        The public value; empty for none.
    """

    commitments: Mapping[str, str]
    secrets: Mapping[str, bytes]
    beacon: str

    @cached_property
    def roster(self) -> str:
        """The hash of all commitments, as in the receipt of each."""
        own = self.secrets.items()
        return roster_hash({c: (self.commitments[c], secret_hash(secret)) for c, secret in own})

    @cached_property
    def value(self) -> bytes:
        """What is mixed into the coins."""
        return coin_mix(self.roster, dict(self.secrets), self.beacon)

    @cached_property
    def text(self) -> str:
        """All of it as text, from which a client computes the value itself."""
        own = {c: [self.commitments[c], secret.hex()] for c, secret in self.secrets.items()}
        return canonical_text({"beacon": self.beacon, "clients": own})

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what a text contains, or refuse it."""
        try:
            content = parsed(text.encode())
            for client, (hash_, _) in content["clients"].items():
                require_name("client", client)
                if type(hash_) is not str:
                    raise RefusedError("the secrets of the run cannot be read.")
            return cls(
                {client: hash_ for client, (hash_, _) in content["clients"].items()},
                {client: bytes.fromhex(own) for client, (_, own) in content["clients"].items()},
                str(content["beacon"]),
            )
        except (TypeError, ValueError, LookupError, AttributeError, InputError) as error:
            raise RefusedError("the secrets of the run cannot be read.") from error


def conditions_of(text: str) -> Conditions:
    """Return the conditions in a text, or refuse a text that is not conditions."""
    try:
        return Conditions(
            **{name: part for name, part in parsed(text.encode()).items() if name != "kind"}
        )
    except (TypeError, AttributeError) as error:  # it has other fields than it should
        raise RefusedError("its conditions cannot be read.") from error


def signed_commitment(text: str, signature: str) -> Signed:
    """Return a commitment as the ledger stores it: it names the key that signed it."""
    key = bytes.fromhex(parsed(text.encode())["key"])
    return Signed(text.encode(), bytes.fromhex(signature), key)


@dataclass(frozen=True)
class Agreement:
    """What server and clients of a run signed.

    Attributes
    ----------
    conditions
        What all deals have in common.
    deals
        By client, in the order of the model's sum.
    budget
        The most that the run may cost, in micro-units.
    attempt, mix
        Which set of offers it was, and what all clients added to the coins.
    """

    conditions: Conditions
    deals: Mapping[str, Deal]
    budget: int
    attempt: int
    mix: Mix

    @classmethod
    def load(cls, ledger: Ledger, run: str) -> Self:
        """Return the agreement of a run that was opened."""
        opened = ledger.opening(run)
        if opened is None or "attempt" not in opened:
            raise InputError(f"run {run!r} was opened without an agreement, or not at all.")
        offered = ledger.offers(run, opened["attempt"])
        committed = ledger.find("commit", run, opened["attempt"])
        if offered is None or committed is None:
            raise InputError(f"run {run!r} has no offers and commitments.")
        conditions = conditions_of(offered[0])
        server = bytes.fromhex(conditions.server)
        deals = {}
        for text, signature in offered[1]:
            offer = Signed(text.encode(), bytes.fromhex(signature), server)
            client = offer.open(Offer, server).client
            if client not in opened["secrets"]:
                continue
            commitment = signed_commitment(*committed["commitments"][client])
            deals[client] = Deal(offer, commitment, bytes.fromhex(opened["secrets"][client][0]))
        secrets = {client: bytes.fromhex(own[1]) for client, own in opened["secrets"].items()}
        signed = committed["commitments"].items()
        hashes = {client: digest(text.encode()) for client, (text, _) in signed}
        mix = Mix(hashes, secrets, opened["beacon"])
        return cls(conditions, deals, opened["budget"], opened["attempt"], mix)

    @property
    def run(self) -> str:
        """The name that the period has in the ledger."""
        return self.conditions.run

    @property
    def follows(self) -> str:
        """The name of the period before this one; empty if it is the first of its run."""
        return self.conditions.follows

    @property
    def rounds(self) -> int:
        """How many rounds the period has."""
        return self.conditions.rounds

    def opening(self, key: SigningKey) -> Signed:
        """Return the server's message that the run was opened."""
        conditions = self.conditions
        return key.sign(Opening(conditions.ledger, self.run, self.attempt, self.mix.value.hex()))

    @cached_property
    def schema(self) -> ModelSchema:
        """What an update looks like."""
        return ModelSchema.load(self.conditions.schema)

    @cached_property
    def terms(self) -> dict[str, Terms]:
        """Tariff, level and samples of each client."""
        return {client: deal.terms for client, deal in self.deals.items()}

    @cached_property
    def keys(self) -> dict[str, bytes]:
        """The public key that each client signed with."""
        return {client: deal.commitment.key for client, deal in self.deals.items()}

    @cached_property
    def caps(self) -> dict[str, float]:
        """The largest norm of an update of each client."""
        return {
            client: float(deal.offered.norm_cap or "inf") for client, deal in self.deals.items()
        }
