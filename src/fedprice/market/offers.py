"""Offers and commitments: what binds the server and a client, signed by both.

The server signs an `Offer`; the client answers with a signed `Commitment` to that very offer, with
a level of its own choosing up to the offer's cap. Both are canonical JSON, so that there is one
text to hash and to sign, and whole numbers only, so that there is nothing to round.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from fedprice.game import best_level, profit_at
from fedprice.market.canonical import canonical_bytes, digest
from fedprice.market.coins import own_secret, secret_hash
from fedprice.market.messages import (
    ModelSchema,
    RefusedError,
    Signed,
    SigningKey,
    require_decimal,
    require_hash,
    require_number,
    require_text,
    require_unit,
)
from fedprice.market.money import LEVEL_ONE, MICRO, level_units, payment_units

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Commitment",
    "Commitments",
    "Offer",
    "Terms",
    "answer",
    "chosen_level",
    "make_offers",
    "norm_text",
]

MOST_MONEY = 1 << 62


@dataclass(frozen=True)
class Offer:
    """What the server offers one client for one period: rounds under one agreement.

    Attributes
    ----------
    run, client
        The name that the period has in the ledger, and the client's.
    follows
        The name of the period before it in the same run; empty if it is the first.
    price
        Micro-units per unit of level, for the whole period; negative if the client pays.
    level_cap
        The level that the server has budgeted for, in multiples of 2⁻³².
    rounds, run_rounds, deadline
        Rounds of the period, and of the whole run; and the round (from 0) by whose start the
        commitment must be there.
    unit
        What the money is, such as EUR.
    schema, task
        What an update looks like, and the hash of what else determines the training.
    impact
        k, what the client's absence costs the model according to the server, as a decimal number.
    coin_hash
        Hash of the server's coin secret.
    """

    run: str
    client: str
    follows: str
    price: int
    level_cap: int
    rounds: int
    run_rounds: int
    deadline: int
    unit: str
    schema: dict[str, Any]
    task: str
    impact: str
    coin_hash: str

    def __post_init__(self) -> None:
        require_text(self, "run", "client", *(["follows"] if self.follows != "" else []))
        require_unit(self.unit)
        require_hash(self, "task", "coin_hash")
        require_decimal(self, "impact")
        ModelSchema.load(self.schema)
        require_number(self, "price", -MOST_MONEY, MOST_MONEY)
        require_number(self, "level_cap", 0, LEVEL_ONE)
        require_number(self, "rounds", 1, 1 << 40)
        require_number(self, "run_rounds", self.rounds, 1 << 40)
        require_number(self, "deadline", 0, self.rounds)


@dataclass(frozen=True)
class Terms:
    """What a client and the server agreed on.

    Attributes
    ----------
    price, level
        In micro-units a unit of level; in multiples of 2⁻³².
    samples
        How many samples the client has: its share in the model.
    """

    price: int
    level: int
    samples: int = 1

    def __post_init__(self) -> None:
        require_number(self, "price", -MOST_MONEY, MOST_MONEY)
        require_number(self, "level", 0, LEVEL_ONE)
        require_number(self, "samples", 0, 1 << 53)

    @property
    def payment(self) -> int:
        """What the client earns in all if it keeps its word; negative if it pays."""
        return payment_units(self.price, self.level)


def make_offers(
    key: SigningKey,
    run: str,
    budgeted: Mapping[str, Terms],
    *,
    rounds: int,
    run_rounds: int | None = None,
    follows: str = "",
    unit: str,
    schema: ModelSchema,
    task: str,
    impacts: Mapping[str, float],
) -> dict[str, Signed]:
    """Return the server's signed offers, by client: its price, and the level budgeted as the cap.

    The server's coin secrets follow from its private key and the offer: `coin_secret`. Without
    `run_rounds` the period is the whole run.
    """
    offers = {}
    for client, terms in budgeted.items():
        offer = Offer(
            run=run,
            client=client,
            follows=follows,
            price=terms.price,
            level_cap=terms.level,
            rounds=rounds,
            run_rounds=run_rounds or rounds,
            deadline=0,
            unit=unit,
            schema=schema.content(),
            task=task,
            impact=repr(float(impacts[client])),
            coin_hash="0" * 64,
        )
        hidden = secret_hash(coin_secret(key, offer))
        offers[client] = key.sign(replace(offer, coin_hash=hidden))
    return offers


def coin_secret(key: SigningKey, offer: Offer) -> bytes:
    """Return the server's coin secret for an offer: other terms have another secret."""
    fields = asdict(offer) | {"coin_hash": ""}
    return own_secret(key.private, digest(canonical_bytes(fields)))


def chosen_level(offer: Offer, *, cost: float, value: float, cost_exponent: float = 2.0) -> int:
    """Return the level, in multiples of 2⁻³², that suits a client best, at most the offer's cap.

    Where the cap is worth less than a micro-unit less than the best level, the client takes the
    cap: money knows nothing smaller.

    Parameters
    ----------
    offer
        What was offered.
    cost, value, cost_exponent
        c, v and τ of the client for the whole run, which the server need not know. A period of some
        of its rounds costs, and is worth, that share of them.

    Examples
    --------
    >>> schema = ModelSchema([], [], []).content()
    >>> zero = "0" * 64
    >>> offer = Offer(
    ...     "run", "alice", "", 8_000_000, 1 << 30, 9, 9, 0, "EUR", schema, zero, "0.1", zero
    ... )
    >>> chosen_level(offer, cost=10.0, value=0.0) / LEVEL_ONE  # at 0.4 the cap binds
    0.25
    >>> chosen_level(offer, cost=20.0, value=0.0) / LEVEL_ONE
    0.19999999995343387
    """
    # The price of a period, as if the whole run were paid so.
    price = offer.price / MICRO * (offer.run_rounds / offer.rounds)
    cap = offer.level_cap / LEVEL_ONE
    value_impact = value * float(offer.impact)
    best = float(best_level(price, cost, value_impact, cost_exponent))

    def utility(level: float) -> float:
        own = value_impact / level if value_impact else 0.0
        return profit_at(level, price, cost, cost_exponent) - own

    if best < cap and utility(best) - utility(cap) >= 1 / MICRO:
        return level_units(best)
    return offer.level_cap


def answer(
    key: SigningKey, signed: Signed, level: int, *, samples: int, grad_norm: float | None
) -> Signed:
    """Return a client's signed commitment to an offer, with a coin secret of its own.

    A client commits once to a run: a server that may choose among several commitments chooses
    among their coins.
    """
    secret = own_secret(key.private, signed.hash).hex()
    return key.sign(Commitment(signed.hash, level, secret, samples, norm_text(grad_norm)))


def norm_text(norm: float | None) -> str:
    """Return a declared norm as messages hold it; empty where it is to be measured."""
    return "" if norm is None else f"{norm:.6g}"


@dataclass(frozen=True)
class Commitment:
    """A client's answer: the offer it accepts, its level, its coin secret, and its data.

    Attributes
    ----------
    samples, grad_norm
        What the client declares of its data: its share in the model, and a bound on the norm of its
        stochastic gradients, as a decimal number; empty where norms are measured.
    """

    offer: str
    level: int
    secret: str
    samples: int
    grad_norm: str

    def __post_init__(self) -> None:
        require_hash(self, "offer", "secret")
        require_number(self, "level", 0, LEVEL_ONE)
        require_number(self, "samples", 0, 1 << 53)
        require_decimal(self, *(["grad_norm"] if self.grad_norm != "" else []))


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
        self.signed: dict[str, Signed] = {}

    def accept(self, client: str, signed: Signed, *, round_: int) -> Commitment:
        """Take a client's commitment, or refuse it with a reason.

        Parameters
        ----------
        client
            Who sent it.
        signed
            What was sent.
        round_
            The round that begins now, from 0.
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
            raise RefusedError(
                f"it is late: round {round_ + 1} begins, the deadline was the start of round "
                f"{offer.deadline + 1}."
            )
        if client in self.accepted:
            raise RefusedError("the client has committed before.")
        if commitment.level > offer.level_cap:
            raise RefusedError("its level is above the cap of the offer.")
        self.accepted[client], self.signed[client] = commitment, signed
        return commitment
