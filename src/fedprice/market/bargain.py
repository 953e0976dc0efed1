"""`Bargain`: how the server and its clients reach an agreement, one recorded step after another.

Offers are recorded before anybody sees them, commitments before anybody reveals a secret, and each
offer is answered or recorded as dropped. So a server that crashes resumes its bargain from the
ledger, and one that tries for other coins leaves a trace of every attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.errors import InputError
from fedprice.market.agreement import Agreement, conditions_of, signed_commitment
from fedprice.market.coins import is_opening, roster_hash
from fedprice.market.messages import RefusedError, Signed, refusing
from fedprice.market.offers import (
    Commitment,
    Offer,
    Roster,
    Terms,
    check_commitment,
    coin_secret,
    make_offers,
)
from fedprice.verify import MOST_ATTEMPTS, SPACED, cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import SigningKey
    from fedprice.market.offers import Conditions, Proposal

__all__ = ["Bargain", "positions_under"]

NO_ANSWER = "it did not answer"


class Bargain:
    """The server's side of reaching an agreement about a run.

    Parameters
    ----------
    ledger, key
        Where every step is recorded, and the server's key.
    run
        The name of the run, or of a period of it. A bargain that the ledger has already is resumed.

    Attributes
    ----------
    ledger, key, run
        As given.
    attempt
        Which set of offers this is, counted from 1; 0 before the first.
    conditions, offers
        What was offered, by client, in the order of the model's sum.
    dropped
        Why clients are no longer in the bargain.
    """

    def __init__(self, ledger: Ledger, key: SigningKey, run: str) -> None:
        self.ledger, self.key, self.run = ledger, key, run
        self.attempt = 0
        self.conditions: Conditions | None = None
        self.offers: dict[str, Signed] = {}
        self.dropped: dict[str, str] = {}
        self._commitments: dict[str, tuple[Signed, Commitment]] = {}
        self._secrets: dict[str, bytes] = {}
        self._committed = False
        self._signers = {key.public}  # so that each key has one name
        for attempt in range(1, MOST_ATTEMPTS + 1):
            if (offered := ledger.offers(run, attempt)) is None:
                break
            self.attempt, self.conditions = attempt, conditions_of(offered[0])
            server = bytes.fromhex(self.conditions.server)
            self.offers = {}
            for text, signature in offered[1]:
                signed = Signed(text.encode(), bytes.fromhex(signature), server)
                self.offers[signed.open(Offer, server).client] = signed
        if self.attempt and (found := ledger.find("commit", run, self.attempt)) is not None:
            self._committed, self.dropped = True, dict(found["dropped"])
            for client, (text, signature) in found["commitments"].items():
                own = signed_commitment(text, signature)
                self._commitments[client] = own, own.open(Commitment, own.key)

    @property
    def is_over(self) -> bool:
        """Whether the run is open."""
        return self.ledger.opening(self.run) is not None

    def offer(
        self, conditions: Conditions, proposals: Mapping[str, Proposal], why: str = ""
    ) -> None:
        """Record offers; earlier ones are dropped.

        Parameters
        ----------
        conditions, proposals
            What all offers have in common, and what is specific to each client.
        why
            Why earlier offers are dropped.
        """
        replaced = {client: signed.hash for client, signed in self.offers.items()}
        dropped = dict.fromkeys(self.offers, why)
        positions = positions_under(self.ledger, conditions, proposals)
        offers = make_offers(self.key, conditions, proposals, replaced, positions)
        self.ledger.record_offers(
            self.run, self.attempt + 1, conditions.text, list(offers.values()), dropped
        )
        self.attempt, self.conditions, self.offers = self.attempt + 1, conditions, offers
        self.dropped, self._commitments, self._secrets = {}, {}, {}
        self._committed, self._signers = False, {self.key.public}

    def offer_next(self, proposals: Mapping[str, Proposal]) -> None:
        """Record more offers of the same set, made after others were answered."""
        made = self.ledger.books.offered.get(self.run)
        if self.conditions is None or made is None:
            raise InputError("no set of offers was begun; call `offer`.")
        positions = positions_under(self.ledger, self.conditions, proposals)
        offers = make_offers(self.key, self.conditions, proposals, made.replaced, positions)
        self.ledger.record_offers(
            self.run, self.attempt, self.conditions.text, list(offers.values()), {}, made.turns + 1
        )
        self.offers |= offers

    @property
    def is_closed(self) -> bool:
        """Whether the commitments are recorded."""
        return self._committed

    @property
    def wants(self) -> list[str]:
        """The clients whose commitment is still missing."""
        if self._committed:
            return []
        return [c for c in self.offers if c not in self._commitments and c not in self.dropped]

    def commit(self, client: str, signed: Signed, key: bytes) -> Commitment:
        """Take a client's commitment, or refuse it with a reason.

        Parameters
        ----------
        client, signed
            Who sent it, and what.
        key
            The client's registered public key.
        """
        if client not in self.offers:
            raise RefusedError(f"{client!r} was offered nothing.")
        if self._committed:
            raise RefusedError("it is late: all commitments are recorded.")
        if client in self._commitments:
            raise RefusedError("the client has committed before.")
        with refusing(RefusedError):
            self.ledger.books.check_key(client, key.hex())
        if key in self._signers:
            raise RefusedError(f"{client!r} has the key of somebody else.")
        commitment = check_commitment(self.offers[client], signed, key)
        self._signers.add(key)
        self._commitments[client] = signed, commitment
        return commitment

    def drop(self, client: str, reason: str) -> None:
        """Leave a client out, for a reason."""
        if client in self.offers and client not in self._commitments:
            self.dropped[client] = reason

    @property
    def commitments(self) -> dict[str, Signed]:
        """What each client that committed has signed."""
        return {client: signed for client, (signed, _) in self._commitments.items()}

    @property
    def terms(self) -> dict[str, Terms]:
        """Tariff, level and samples of the clients that committed and are not dropped."""
        found = {}
        for client, signed in self.offers.items():
            if client in self._commitments and client not in self.dropped:
                offer: Offer = signed.open(Offer, signed.key)
                own = self._commitments[client][1]
                found[client] = Terms(offer.pays, own.level, own.samples)
        return found

    @property
    def cost(self) -> int:
        """What the run costs at most with the clients that committed, in micro-units."""
        rounds = self.conditions.rounds if self.conditions else 1
        return sum(cost(own.payment, own.level, rounds) for own in self.terms.values())

    def unwilling_payers(self) -> list[str]:
        """Return the payers that do not bring in what was expected: absent, or at a lower level."""
        found = []
        for client, signed in self.offers.items():
            offer: Offer = signed.open(Offer, signed.key)
            there = client in self._commitments and client not in self.dropped
            if offer.pays.is_income and not (
                there and self._commitments[client][1].level == offer.pays.cap
            ):
                found.append(client)
        return found

    def close(self) -> None:
        """Record the commitments: from now on none can be added."""
        if self._committed:
            return
        for client in self.wants:
            self.dropped[client] = NO_ANSWER
        if not self._commitments:
            raise InputError("nobody has committed to an offer; there is no run without clients.")
        self.ledger.record_commitments(self.run, self.attempt, self.commitments, self.dropped)
        self._committed = True

    def rosters(self) -> dict[str, Signed]:
        """Return the receipt of each commitment, which asks for the client's secret."""
        if not self._committed:
            raise InputError("the commitments are not recorded yet; call `close`.")
        own = self._commitments.items()
        hashes = {client: signed.hash for client, (signed, _) in own}
        everything = roster_hash({c: (s.hash, message.secret_hash) for c, (s, message) in own})
        return {
            client: self.key.sign(
                Roster(self.ledger.identity, self.run, self.attempt, everything, hashes[client])
            )
            for client in self.offers
            if client in hashes and client not in self._secrets
        }

    def reveal(self, client: str, secret: object) -> None:
        """Take a client's secret, or refuse it with a reason."""
        if client not in self._commitments:
            raise RefusedError(f"{client!r} has not committed.")
        if not (
            isinstance(secret, bytes)
            and is_opening(secret, self._commitments[client][1].secret_hash)
        ):
            raise RefusedError("its secret is not the one that it committed to.")
        self._secrets[client] = secret

    @property
    def silent(self) -> list[str]:
        """The clients that committed but have not revealed their secret."""
        return [client for client in self._commitments if client not in self._secrets]

    def open(self, budget: int, beacon: str = "") -> Agreement:
        """Open the run; return what was agreed.

        All clients that committed must have revealed their secret: otherwise another set of offers,
        with other coins, is needed.
        """
        if not self.is_over:
            secrets = {}
            for client, secret in self._secrets.items():
                offer: Offer = self.offers[client].open(Offer, self.key.public)
                secrets[client] = (coin_secret(self.key, offer).hex(), secret.hex())
            self.ledger.open_run(
                self.run, budget, attempt=self.attempt, secrets=secrets, beacon=beacon
            )
        return Agreement.load(self.ledger, self.run)


def positions_under(
    ledger: Ledger, conditions: Conditions, clients: Iterable[str]
) -> dict[str, int | None]:
    """Return where the coins of clients go on under these conditions; None where they begin."""
    after = conditions.follows if conditions.coins == SPACED else ""
    return {client: ledger.books.position_after(after, client) for client in clients}
