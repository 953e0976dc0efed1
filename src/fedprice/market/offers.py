"""Offers and commitments: what binds the server and a client, signed by both.

The server signs an `Offer` under the `Conditions` that all offers of a period share; the client
answers with a signed `Commitment` to that very offer, with a level that it chooses among those that
the tariff pays for. When all have answered, the server signs a `Roster` for each, and the
client reveals its coin secret. All are canonical JSON, so that there is one text to hash and to
sign, and money and levels are whole numbers, so that there is nothing to round.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.market.canonical import canonical_bytes, digest
from fedprice.market.coins import own_secret, secret_hash
from fedprice.market.messages import (
    Message,
    ModelSchema,
    RefusedError,
    Signed,
    SigningKey,
    refusing,
)
from fedprice.market.money import LEVEL_ONE, MICRO, level_units
from fedprice.market.tariffs import Tariff
from fedprice.tariff import Tariffs
from fedprice.verify import REDRAWN, SPACED, check_answer, require_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fedprice._plumbing.arrays import FloatArray

__all__ = [
    "FOREVER",
    "Call",
    "Commitment",
    "Conditions",
    "Ending",
    "Offer",
    "Opening",
    "Proposal",
    "Receipt",
    "Roster",
    "Terms",
    "answer",
    "check_commitment",
    "chosen_level",
    "coin_secret",
    "coins_for",
    "fresh_nonce",
    "make_offers",
    "norm_text",
    "run_tariffs",
]

FOREVER = 253_402_300_799  # the last second of the year 9999, for offers of simulations


def fresh_nonce() -> str:
    """Return a fresh random number, which was never used before."""
    return secrets.token_hex(32)


@dataclass(frozen=True)
class Conditions(Message):
    """What all offers of a period have in common.

    Attributes
    ----------
    ledger, server
        The identity of the ledger that will record the run, and the server's public key.
    run, follows
        The name that the period has in the ledger, and that of the period before it in the same
        run; empty if it is the first.
    rounds, run_rounds
        Rounds of the period, and of the whole run.
    unit
        The unit of money, such as EUR.
    schema, task, model
        What an update looks like, the hash of what else determines the training, and the hash of
        the model at the start.
    max_weight, longest_gap
        The largest a / q of an update, as a decimal number, and the most heads since a client's
        last accepted update that count: no weight exceeds their product.
    nonce, expires
        A number that was never used before, and the Unix time after which the offer expires.
    coins
        How coins follow from the secrets, one of `fedprice.verify.COINS`; see `coins_for`.
    beacon
        The public value that will be mixed into the coins, such as "drand 4815162"; empty for none.
    """

    ledger: str
    server: str
    run: str
    follows: str
    rounds: int
    run_rounds: int
    unit: str
    schema: dict[str, Any]
    task: str
    model: str
    max_weight: str
    longest_gap: int
    nonce: str
    expires: int
    coins: str = SPACED
    beacon: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        ModelSchema.load(self.schema)

    @property
    def text(self) -> str:
        """The one text that represents them."""
        return canonical_bytes(asdict(self) | {"kind": "Conditions"}).decode()

    @property
    def hash(self) -> str:
        """Their digest, which every offer contains."""
        return digest(self.text.encode())


@dataclass(frozen=True)
class Offer(Message):
    """What the server offers one client for one period: rounds under one agreement.

    Attributes
    ----------
    conditions
        Hash of what all offers of the period have in common.
    client
        The client to whom it is made.
    tariff
        What each level is paid for the whole period. For each block, the level at which it ends, in
        multiples of 2⁻³², and its price in micro-units per unit of level; a client pays where that
        is negative. The last end is the highest level that is paid for.
    menu
        Whether only the ends of blocks may be committed to.
    level_floor
        The least level that the server accepts.
    norm_cap
        The largest norm of an update that is accepted, as a decimal number; empty for any.
    impact
        k, what the client's absence costs the model according to the server, as a decimal number.
    coin_hash
        Hash of the server's coin secret.
    position
        Where the last period that the client was in left its coin, from which it goes on; None if
        it begins.
    replaces
        Hash of the offer to the same client that this one replaces; empty for the first.
    """

    conditions: str
    client: str
    tariff: tuple[tuple[int, int], ...]
    menu: bool
    level_floor: int
    norm_cap: str
    impact: str
    coin_hash: str
    position: int | None = None
    replaces: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tariff", self.pays.blocks)  # a message has lists

    @cached_property
    def pays(self) -> Tariff:
        """What each level is paid."""
        return Tariff(self.tariff, self.menu)


@dataclass(frozen=True)
class Commitment(Message):
    """A client's answer: the offer it accepts, its level, its coin secret's hash, and its data.

    Attributes
    ----------
    key
        The client's public key.
    samples, grad_norm
        What the client declares about its data: its share in the model, and a bound on the norm of
        its stochastic gradients, as a decimal number; empty where norms are measured.
    """

    offer: str
    key: str
    level: int
    secret_hash: str
    samples: int
    grad_norm: str


@dataclass(frozen=True)
class Roster(Message):
    """The server's receipt for a commitment: the hash of all commitments, and this one.

    A client that has it reveals its secret, since no commitment can be added any more.
    """

    ledger: str
    run: str
    attempt: int
    commitments: str
    commitment: str


@dataclass(frozen=True)
class Opening(Message):
    """The server's message that a run was opened, and what is mixed into its coins."""

    ledger: str
    run: str
    attempt: int
    mixed: str


@dataclass(frozen=True)
class Receipt(Message):
    """The server's receipt for an update (round from 0): accepted, or refused with a reason.

    `paid` is what the run has paid the client so far, in micro-units, this update included.
    """

    ledger: str
    run: str
    round: int
    client: str
    update: str
    refused: str = ""
    paid: int = 0


@dataclass(frozen=True)
class Call(Message):
    """The server's word that it asked a client for an update (round from 0).

    `model` is the hash of the model to start from; `number` is that of the ledger's last entry
    then: a round is called when the rounds before it are recorded.
    """

    ledger: str
    run: str
    round: int
    client: str
    model: str
    number: int


@dataclass(frozen=True)
class Ending(Message):
    """The server's word that offers of a run came to nothing: no coins were used."""

    ledger: str
    run: str


@dataclass(frozen=True)
class Terms:
    """What a client and the server agreed on.

    Attributes
    ----------
    tariff, level
        What each level is paid, and the level that was chosen, in multiples of 2⁻³².
    samples
        How many samples the client has: its share in the model.
    """

    tariff: Tariff
    level: int
    samples: int = 1

    def __post_init__(self) -> None:
        with refusing():
            require_number("level", self.level, 0, self.tariff.cap)
            require_number("samples", self.samples, 0, 1 << 53)

    @property
    def payment(self) -> int:
        """What the level is paid for all rounds; negative if the client pays."""
        return self.tariff.payment(self.level)


@dataclass(frozen=True)
class Proposal:
    """What the server proposes to one client, before it is signed.

    Attributes
    ----------
    tariff, level_floor
        What each level is paid, and the least level that is accepted.
    impact, norm_cap
        k, and the largest norm of an update; None for any.
    """

    tariff: Tariff
    level_floor: int
    impact: float = 0.0
    norm_cap: float | None = None


def make_offers(
    key: SigningKey,
    conditions: Conditions,
    proposals: Mapping[str, Proposal],
    replaced: Mapping[str, str] | None = None,
    positions: Mapping[str, int | None] | None = None,
) -> dict[str, Signed]:
    """Return the server's signed offers, by client.

    The server's coin secrets follow from its private key and the offer: `coin_secret`.

    Parameters
    ----------
    key
        The server's key.
    conditions, proposals
        What all offers have in common, and what is specific to each client.
    replaced
        Hashes of earlier offers of the same run, by client, that these replace.
    positions
        Where earlier periods left the coins of these clients.
    """
    offers = {}
    for client, own in proposals.items():
        offer = Offer(
            conditions=conditions.hash,
            client=client,
            tariff=own.tariff.blocks,
            menu=own.tariff.menu,
            level_floor=own.level_floor,
            norm_cap="" if own.norm_cap is None else f"{own.norm_cap:.6g}",
            impact=repr(float(own.impact)),
            coin_hash="0" * 64,
            position=(positions or {}).get(client),
            replaces=(replaced or {}).get(client, ""),
        )
        hidden = secret_hash(coin_secret(key, offer))
        offers[client] = key.sign(replace(offer, coin_hash=hidden))
    return offers


def coins_for(proposals: Iterable[Proposal]) -> str:
    """Return the rule of coins for a period with these proposals.

    A client that knew that its next head is due would choose the level at which an update earns
    most, or has the largest weight a/q. So coins begin anew in each period, unless nobody chooses.
    """
    forced = all(
        own.level_floor > max([0, *own.tariff.ends[:-1]])
        and (own.tariff.menu or own.level_floor == own.tariff.cap)
        for own in proposals
    )
    return SPACED if forced else REDRAWN


def coin_secret(key: SigningKey, offer: Offer) -> bytes:
    """Return the server's coin secret for an offer: another offer has another secret."""
    fields = asdict(offer) | {"coin_hash": ""}
    return own_secret(key.private, digest(canonical_bytes(fields)))


def chosen_level(
    offer: Offer, conditions: Conditions, *, cost: float, value: float, cost_exponent: float = 2.0
) -> int:
    """Return the level, in multiples of 2⁻³², that suits a client best among those offered.

    Where the end of a block is worse than the best level by less than a micro-unit, the smallest
    amount of money, the client takes the end, and of several such ends the highest.

    Parameters
    ----------
    offer, conditions
        The offer.
    cost, value, cost_exponent
        c, v and τ of the client for the whole run, which the server need not know. A period of some
        of its rounds costs, and is worth, that share of them.

    Examples
    --------
    >>> zero, schema = "0" * 64, ModelSchema([], [], [], []).content()
    >>> all_ = Conditions(
    ...     zero, zero, "run", "", 9, 9, "EUR", schema, zero, zero, "1", 10, zero, FOREVER
    ... )
    >>> blocks = ((1 << 30, 8_000_000), (1 << 32, 4_000_000))
    >>> offer = Offer(all_.hash, "alice", blocks, False, 1, "", "0.1", zero)
    >>> chosen_level(offer, all_, cost=10.0, value=0.0) / LEVEL_ONE  # 8 is too much, 4 too little
    0.25
    >>> chosen_level(offer, all_, cost=20.0, value=0.0) / LEVEL_ONE
    0.19999999995343387
    """
    tariffs, value_impact = run_tariffs(offer, conditions), value * float(offer.impact)
    own, floor = (np.array([cost]), np.array([value_impact])), offer.level_floor / LEVEL_ONE
    best = free = tariffs.best_levels(*own, cost_exponent)
    if free < floor:
        best = tariffs.best_levels(*own, cost_exponent, level_min=floor)

    def utility(levels: FloatArray) -> FloatArray:
        (paid,) = tariffs.payments(levels[None])
        lost = value_impact / levels if value_impact else 0.0
        return paid - cost * levels**cost_exponent - lost  # type: ignore[no-any-return]

    (ends,) = tariffs.ends
    as_good = ends[(ends > best) & (utility(free) - utility(ends) < 1 / MICRO)]
    if as_good.size:
        return level_units(float(as_good[-1]))
    return max(level_units(float(best[0])), offer.level_floor)


def run_tariffs(offer: Offer, conditions: Conditions) -> Tariffs:
    """Return what an offer pays, in units of money, as if its terms held for the whole run."""
    ends, prices = np.array(offer.tariff, np.float64).T
    periods = conditions.run_rounds / conditions.rounds
    return Tariffs(ends[None] / LEVEL_ONE, prices[None] / MICRO * periods, offer.menu)


def answer(
    key: SigningKey, signed: Signed, level: int, *, samples: int, grad_norm: float | None
) -> Signed:
    """Return a client's signed commitment to an offer, with its own coin secret."""
    hidden = secret_hash(own_secret(key.private, signed.hash))
    return key.sign(
        Commitment(signed.hash, key.public.hex(), level, hidden, samples, norm_text(grad_norm))
    )


def norm_text(norm: float | None) -> str:
    """Return a declared norm as messages contain it; empty where it is to be measured."""
    return "" if norm is None else f"{norm:.6g}"


def check_commitment(offer: Signed, signed: Signed, key: bytes) -> Commitment:
    """Return a commitment to an offer that was made, or refuse it with a reason."""
    commitment: Commitment = signed.open(Commitment, key)
    offered: Offer = offer.open(Offer, offer.key)
    if commitment.key != key.hex():
        raise RefusedError("it names another key than the one that signed it.")
    with refusing(RefusedError):
        check_answer(vars(offered), offer.hash, vars(commitment))
    return commitment
