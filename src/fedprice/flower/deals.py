"""From profiles to an agreement: price the clients, make offers, take their commitments."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flwr.app import RecordDict

from fedprice.flower.wire import MARKET, market_fields, market_record, signed_fields, signed_of
from fedprice.market.agreement import Agreement
from fedprice.market.messages import RefusedError
from fedprice.market.offers import Commitment, Commitments, make_offers, norm_text

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedprice.flower.exchange import Exchange
    from fedprice.flower.presence import Presence
    from fedprice.flower.pricing import Priced
    from fedprice.market.messages import ModelSchema, SigningKey
    from fedprice.market.periods import Period

__all__ = ["in_order", "make_agreement"]

_log = logging.getLogger("flwr")


def in_order(names: list[str]) -> list[str]:
    """Return names in the order of the model's sum: shorter ones first, so that 10 follows 9."""
    return sorted(names, key=lambda name: (len(name), name))


def make_agreement(
    grid: Grid,
    presence: Presence,
    exchange: Exchange,
    priced: Priced,
    *,
    key: SigningKey,
    name: str,
    follows: str,
    period: Period,
    unit: str,
    schema: ModelSchema,
    task: str,
) -> Agreement:
    """Offer clients what they were priced at, and seal what they commit to.

    Parameters
    ----------
    presence, priced
        Who is there, and what to offer each, in order.
    key
        The server's.
    name, follows, period
        The names of the period and of the one before it in the ledger, and its rounds.
    unit, schema, task
        As in an offer.
    """
    names = in_order(list(presence.nodes))
    offers = make_offers(
        key,
        name,
        dict(zip(names, priced.terms, strict=True)),
        rounds=period.rounds,
        run_rounds=period.run_rounds,
        follows=follows,
        unit=unit,
        schema=schema,
        task=task,
        impacts=dict(zip(names, priced.impacts, strict=True)),
    )
    desk = Commitments(offers, presence.keys, key.public)
    asked = []
    for client in names:
        content = RecordDict({MARKET: market_record(**signed_fields("offer", offers[client]))})
        node = presence.nodes[client]
        asked.append((client, exchange.message(content, node, "query.offer", "offer")))
    for client, reply in exchange.answers(grid, asked):
        try:
            if reply.has_error():
                raise RefusedError(str(reply.error.reason))
            signed = signed_of(market_fields(reply.content), "commitment")
            commitment: Commitment = signed.open(Commitment, presence.keys[client])
            profile = presence.profiles[client]
            norm = norm_text(float(profile.grad_norm) if profile.grad_norm else None)
            if (commitment.samples, commitment.grad_norm) != (profile.samples, norm):
                raise RefusedError("it commits to other data than it was priced for.")
            desk.accept(client, signed, round_=0)
        except RefusedError as error:
            _log.warning("no commitment of %s: %.200s", client, error)
    return Agreement.seal(key, offers, desk)
