"""`ParticipationMod`: the client's side of the market, in three lines of a Flower app.

    market = ParticipationMod(client)          # client: Context → Client
    app = ClientApp(mods=[market])
    market.answer(app)                         # the server's questions

It answers offers with the level that suits the client best, trains only when the client's own coin
shows heads, and signs what leaves. It keeps nothing between messages: a restarted client goes on.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from flwr.app import Message, RecordDict

from fedprice.errors import FedpriceError
from fedprice.flower.wire import (
    MARKET,
    Profile,
    Question,
    arrays_of,
    declined,
    market_fields,
    market_record,
    signed_fields,
    signed_of,
    the_arrays,
    to_record,
)
from fedprice.market.coins import Coins, coin_key, is_opening, own_secret
from fedprice.market.messages import RefusedError
from fedprice.market.money import LEVEL_ONE, money
from fedprice.market.offers import Commitment, Offer, answer, chosen_level
from fedprice.market.updates import Update, arrays_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.app import Context
    from flwr.clientapp import ClientApp

    from fedprice.arrays import Arrays
    from fedprice.market.messages import Signed, SigningKey

    Next = Callable[[Message, Context], Message]

__all__ = ["PILOT", "Client", "ParticipationMod"]

_log = logging.getLogger("flwr")

PILOT = "fedprice-pilot"  # a node's own setting: train without a market, for pilots in one process


@dataclass(frozen=True)
class Client:
    """What a client knows of itself.

    Attributes
    ----------
    name, key
        As registered with the server.
    samples
        How much data it has.
    cost, value, cost_exponent
        c, v and τ: what joining every round of a run costs it, and what a unit less of loss is
        worth to it.
    grad_norm
        A bound on the norm of its stochastic gradients; None where norms are to be measured.
    server
        The public key of the server it deals with; None takes any that asks.
    reveals
        Whether it tells the server its cost and value (a run with full information).
    """

    name: str
    key: SigningKey
    samples: int
    cost: float
    value: float = 0.0
    cost_exponent: float = 2.0
    grad_norm: float | None = None
    server: bytes | None = None
    reveals: bool = False


class ParticipationMod:
    """A mod that lets a ClientApp take part in a market.

    Parameters
    ----------
    client
        Who this client is, from its Flower context (node and run configuration).
    returns
        What the app's train function returns: new "weights", as usual with Flower, from which the
        mod subtracts the old ones; or the "update" itself.
    """

    def __init__(
        self,
        client: Callable[[Context], Client],
        *,
        returns: Literal["weights", "update"] = "weights",
    ) -> None:
        self._client, self._returns = client, returns

    def answer(self, app: ClientApp) -> None:
        """Let an app answer the market's questions: who it is, and what it says to an offer."""
        app.query("profile")(self._guarded(self._profile))
        app.query("offer")(self._guarded(self._offer))

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        """Train only if the client's coin shows heads, and sign the update."""
        if message.metadata.message_type.partition(".")[0] != "train":
            return call_next(message, context)
        return self._guarded(lambda m, c: self._train(m, c, call_next))(message, context)

    @staticmethod
    def _guarded(handle: Next) -> Next:
        """Decline what cannot be answered, instead of failing with a traceback."""

        def handler(message: Message, context: Context) -> Message:
            try:
                return handle(message, context)
            except FedpriceError as error:
                return declined(message, str(error))

        return handler

    def _profile(self, message: Message, context: Context) -> Message:
        own = self._client(context)
        signed = signed_of(market_fields(message.content), "question")
        question: Question = signed.open(Question, own.server or signed.key)
        profile = Profile(
            run=question.run,
            nonce=question.nonce,
            client=own.name,
            samples=own.samples,
            grad_norm="" if own.grad_norm is None else repr(float(own.grad_norm)),
            cost=repr(float(own.cost)) if own.reveals else "",
            value=repr(float(own.value)) if own.reveals else "",
        )
        return _reply(message, **signed_fields("profile", own.key.sign(profile)))

    def _offer(self, message: Message, context: Context) -> Message:
        own = self._client(context)
        record = market_fields(message.content)
        signed = signed_of(record, "offer")
        offer = _own_offer(own, signed)
        level = chosen_level(
            offer,
            cost=own.cost,
            value=own.value,
            cost_exponent=own.cost_exponent,
        )
        kept = context.state.config_records.get(MARKET)
        before = None if kept is None else kept.get(f"offer of {offer.run}")
        if before not in (None, signed.hash):
            raise RefusedError("another offer of this run was committed to before.")
        answered = answer(own.key, signed, level, samples=own.samples, grad_norm=own.grad_norm)
        known = {} if kept is None else dict(kept)
        told = (
            f"a price of {money(offer.price)} {offer.unit} up to level "
            f"{offer.level_cap / LEVEL_ONE:.4f} for {offer.rounds} rounds"
        )
        earlier = known.get(f"terms of {offer.follows}")
        changed = f"; in the period before: {earlier}" if isinstance(earlier, str) else ""
        chose = f"{level / LEVEL_ONE:.4f}"
        _log.info("%s: run %s offers %s%s; chosen: %s", own.name, offer.run, told, changed, chose)
        own_terms = {f"offer of {offer.run}": signed.hash, f"terms of {offer.run}": told}
        context.state[MARKET] = market_record(**known | own_terms)
        return _reply(message, **signed_fields("commitment", answered))

    def _train(self, message: Message, context: Context, call_next: Next) -> Message:
        own = self._client(context)
        if context.node_config.get(PILOT):
            reply, _ = self._update(message, context, call_next)
            if not reply.has_error():
                reply.content[MARKET] = market_record(client=own.name, samples=own.samples)
            return reply
        offer, round_ = self._called(own, message)
        reply, update = self._update(message, context, call_next)
        if reply.has_error():
            return reply
        signed = own.key.sign(Update(offer.run, own.name, round_, arrays_hash(update)))
        reply.content[MARKET] = market_record(**signed_fields("update", signed))
        return reply

    def _update(
        self, message: Message, context: Context, call_next: Next
    ) -> tuple[Message, Arrays]:
        """Return the app's reply, its arrays new − old, and these arrays."""
        reply = call_next(message, context)
        if not isinstance(reply, Message):
            raise RefusedError("the app's train function returned no message.")
        if reply.has_error():
            return reply, []
        record, given = the_arrays(reply.content), the_arrays(message.content)
        if list(record.keys()) != list(given.keys()):
            raise RefusedError("the app returned arrays of other names than it was given.")
        update = arrays_of(record)
        if self._returns == "weights":
            old = arrays_of(given)
            if [array.shape for array in update] != [array.shape for array in old]:
                raise RefusedError("the app returned other arrays than it was given.")
            update = [
                np.asarray(new - w, dtype=w.dtype) for new, w in zip(update, old, strict=True)
            ]
            named = next(iter(reply.content.array_records))
            reply.content[named] = to_record(list(given.keys()), update)
        return reply, update

    def _called(self, own: Client, message: Message) -> tuple[Offer, int]:
        """Return the offer and the round of a call, if it follows from what this client signed."""
        record = market_fields(message.content)
        signed = signed_of(record, "offer")
        offer = _own_offer(own, signed)
        commitment: Commitment = signed_of(record, "commitment").open(Commitment, own.key.public)
        round_, secret = record.get("round"), record.get("secret")
        mine = own_secret(own.key.private, signed.hash)
        if commitment.offer != signed.hash or commitment.secret != mine.hex():
            raise RefusedError("this is not the offer that was committed to.")
        if not (isinstance(secret, bytes) and is_opening(secret, offer.coin_hash)):
            raise RefusedError("the server's secret is not the one it committed to.")
        if type(round_) is not int or not 0 <= round_ < offer.rounds:
            raise RefusedError("there is no such round.")
        coins = Coins(coin_key(secret, mine), offer.run, commitment.level)
        if not coins.heads(round_):
            raise RefusedError(f"the coin of round {round_} shows tails.")
        return offer, round_


def _own_offer(own: Client, signed: Signed) -> Offer:
    """Return an offer that was made to this client, by the server it deals with."""
    offer: Offer = signed.open(Offer, own.server or signed.key)
    if offer.client != own.name:
        raise RefusedError("this offer is for another client.")
    return offer


def _reply(message: Message, **fields: bytes) -> Message:
    return Message(RecordDict({MARKET: market_record(**fields)}), reply_to=message)
