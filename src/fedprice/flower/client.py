"""`ParticipationMod`: the client's side of the market, in one line of a Flower app.

    app = ClientApp()
    ParticipationMod(client).answer(app)          # client: Context → Client

It answers offers with the level that suits the client best, one offer per server at a time, reveals
its coin secret when all commitments are recorded, trains only when its own coin shows heads, and
signs what it sends. `fedprice.flower.evidence` keeps the messages as evidence; a client that has
lost them can still continue, with what new messages contain.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from flwr.app import Message, RecordDict

from fedprice.errors import FedpriceError, InputError
from fedprice.flower.compat import is_legacy, mods_of
from fedprice.flower.evidence import DAY, kept_evidence
from fedprice.flower.limits import chosen_within
from fedprice.flower.wire import (
    MARKET,
    Profile,
    Question,
    arrays_of,
    declined,
    hash_of_record,
    market_fields,
    market_record,
    signed_fields,
    signed_of,
    the_arrays,
)
from fedprice.market.agreement import conditions_of
from fedprice.market.coins import Coins, coin_key, coin_phase, is_opening, own_secret, secret_hash
from fedprice.market.messages import ANY, RefusedError, Signed
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import (
    Call,
    Commitment,
    Conditions,
    Offer,
    Opening,
    Receipt,
    Roster,
    answer,
)
from fedprice.market.updates import SLACK, Update
from fedprice.verify import due

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flwr.app import Context
    from flwr.clientapp import ClientApp

    from fedprice._plumbing.arrays import Arrays
    from fedprice.flower.evidence import Evidence
    from fedprice.market.messages import SigningKey

    Next = Callable[[Message, Context], Message]

__all__ = ["PILOT", "Client", "ParticipationMod"]

_log = logging.getLogger("flwr")

ANSWERS = "_fedprice_answers"  # attribute of an app's class: it takes part in a market
SECURE = {"secagg_mod", "secaggplus_mod"}  # Flower's mods of secure aggregation
PILOT = "fedprice-pilot"  # a node's own setting: train without a market, for pilots in one process


@dataclass(frozen=True)
class Client:
    """What a client knows about itself.

    Attributes
    ----------
    name, key
        As registered with the server.
    samples
        How much data it has.
    cost, value, cost_exponent
        c, v and τ: what joining every round of a run costs it, and what a unit less of loss is
        worth to it.
    least_profit
        The least that a whole run must earn it in money, payment minus cost, whatever the server
        says that the model is worth to it. By default 0: pay covers cost. A client that values the
        model, or pays for it, says here how much of a loss it accepts, as a number below 0.
    largest_level
        The largest level that it commits to.
    largest_loss
        The most that a day may cost it above what receipts show that it was paid; then it declines
        to train until the next one.
    rounds
        The rounds of the run that its cost and value are for; None accepts the server's number.
    grad_norm
        A bound on the norm of its stochastic gradients; None where norms are to be measured.
    server
        The public key of its server; None accepts any server.
    reveals
        Whether it tells the server its cost and value (a run with full information).
    receipts
        A file in which it keeps signed messages, for `fedprice verify`; None for none.
    """

    name: str
    key: SigningKey
    samples: int
    cost: float
    value: float = 0.0
    cost_exponent: float = 2.0
    least_profit: float = 0.0
    largest_level: float = 1.0
    largest_loss: float = math.inf
    rounds: int | None = None
    grad_norm: float | None = None
    server: bytes | None = None
    reveals: bool = False
    receipts: Path | None = None


class ParticipationMod:
    """Lets a ClientApp take part in a market.

    Whatever other mods the app has, this one is the outermost: what it signs is what is sent. It
    may be listed in `ClientApp(mods=[…])` or not.

    Parameters
    ----------
    client
        Returns this client from its Flower context (node and run configuration).
    returns
        What the app's train function returns: new "weights", as usual with Flower; or the "update"
        new − old, with the new values of buffers.
    """

    def __init__(
        self,
        client: Callable[[Context], Client],
        *,
        returns: Literal["weights", "update"] = "weights",
    ) -> None:
        self._client, self._returns = client, returns

    def answer(self, app: ClientApp) -> None:
        """Make an app answer the market's messages, and train only when its coin shows heads."""
        if SECURE & {getattr(mod, "__name__", "") for mod in mods_of(app)}:
            raise InputError(
                "secure aggregation hides each update from the server, which could then not "
                "check, weight, remember or pay for it; leave the mod out (docs/flower.md)."
            )
        if is_legacy(app):
            raise InputError(
                "this ClientApp is made from a client_fn (NumPyClient), whose replies cannot be "
                "signed; use functions of Flower's Message API, @app.train() and @app.evaluate()."
            )
        questions = {
            "query.profile": self._guarded(self._profile),
            "query.offer": self._guarded(self._offer),
            "query.reveal": self._guarded(self._reveal),
            "query.receipt": self._guarded(self._receipt),
        }
        plain = type(app)
        if getattr(plain, ANSWERS, False):
            raise InputError("this app already answers the market; call `answer` only once.")
        train = self._guarded(lambda m, c: self._train(m, c, partial(plain.__call__, app)))

        def call(own: ClientApp, message: Message, context: Context) -> Message:
            kind = message.metadata.message_type
            if kind.partition(".")[0] == "train":
                return train(message, context)
            return questions.get(kind, partial(plain.__call__, own))(message, context)

        # Wraps the app itself rather than being one of its mods: mods that change what is sent run
        # first.
        app.__class__ = type(plain.__name__, (plain,), {"__call__": call, ANSWERS: True})

    def __call__(self, message: Message, context: Context, call_next: Next) -> Message:
        """Do nothing: `answer` does all the work."""
        return call_next(message, context)

    @staticmethod
    def _guarded(handle: Next) -> Next:
        """Decline what cannot be answered, instead of failing with a traceback."""

        def handler(message: Message, context: Context) -> Message:
            try:
                return handle(message, context)
            except FedpriceError as error:
                _log.warning("declined %s: %s", message.metadata.message_type, error)
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
        own, now = self._client(context), time.time()
        record = market_fields(message.content)
        signed = signed_of(record, "offer")
        offer, conditions = _own_offer(own, str(record.get("conditions")), signed)
        told = {name[7:]: value for name, value in record.items() if name.startswith("before.")}
        before = _agreed(own, told) if told else None  # the last run of this client, opened
        with kept_evidence(context, own.receipts) as evidence:
            answered = evidence.commitment_to(signed, own.key.public)
            if before is not None and answered is None:
                _note(evidence, own, told, before)
            for name in record:
                if name.startswith("ended."):
                    evidence.note_ended(signed_of(record, name), conditions.ledger, signed.key)
            if conditions.expires <= now:
                raise RefusedError("this offer has expired.")
            if answered is None:
                evidence.require_free(offer, conditions, now)
                evidence.require_receipts(conditions.follows)
                _require_cap(offer, evidence.state["norms"])
                level = chosen_within(own, offer, conditions)
                answered = answer(
                    own.key, signed, level, samples=own.samples, grad_norm=own.grad_norm
                )
                evidence.keep(_noted(own, conditions), signed, answered)
                _tell(own, offer, conditions, level, context)
        return _reply(message, **signed_fields("commitment", answered))

    def _reveal(self, message: Message, context: Context) -> Message:
        own, record = self._client(context), market_fields(message.content)
        signed, committed = signed_of(record, "offer"), signed_of(record, "commitment")
        _, conditions = _own_offer(own, str(record.get("conditions")), signed)
        _own_commitment(own, committed, signed)
        roster = signed_of(record, "roster")
        named: Roster = roster.open(Roster, signed.key)
        if (named.ledger, named.run) != (conditions.ledger, conditions.run):
            raise RefusedError("this roster is that of another run.")
        if named.commitment != committed.hash:
            raise RefusedError("this roster does not name the commitment of this client.")
        if conditions.expires <= time.time():
            raise RefusedError("this offer has expired.")
        with kept_evidence(context, own.receipts) as evidence:
            _ensure(evidence, own, conditions, signed, committed)
            evidence.require_roster(signed, named.commitments)
            evidence.keep(roster)
        return _reply(message, secret=own_secret(own.key.private, signed.hash))

    def _receipt(self, message: Message, context: Context) -> Message:
        own, record = self._client(context), market_fields(message.content)
        agreed = _agreed(own, record)
        with kept_evidence(context, own.receipts) as evidence:
            _note(evidence, own, record, agreed)
        return _reply(message)

    def _train(self, message: Message, context: Context, call_next: Next) -> Message:
        own = self._client(context)
        if context.node_config.get(PILOT):
            reply = self._trained(message, context, call_next)
            if not reply.has_error():
                reply.content[MARKET] = market_record(
                    client=own.name, samples=own.samples, returns=self._returns
                )
            return reply
        old = the_arrays(message.content)
        base, before = hash_of_record(old), arrays_of(old)
        agreed, round_ = self._called(own, message, context, base)
        reply = self._trained(message, context, call_next)
        if reply.has_error():
            return reply
        update, new = self._returns == "update", the_arrays(reply.content)
        norm, cap = _norm(before, arrays_of(new), agreed.conditions, update), agreed.cap
        with kept_evidence(context, own.receipts) as evidence:
            if norm > cap:
                evidence.note_norm(norm)
                return _reply(message, norm=norm)
            sent = hash_of_record(new, update=update)
            signed = own.key.sign(Update(agreed.conditions.run, own.name, round_, sent, base))
            evidence.note_sent(signed, norm, time.time(), _cost_of_update(own, agreed))
        reply.content[MARKET] = market_record(
            returns=self._returns, **signed_fields("update", signed)
        )
        return reply

    @staticmethod
    def _trained(message: Message, context: Context, call_next: Next) -> Message:
        """Return the app's reply, if its arrays have the names that they should have."""
        names = list(the_arrays(message.content).keys())  # an app may change what it received
        message.content.pop(MARKET, None)  # some mods expect only one ConfigRecord, the app's
        reply = call_next(message, context)
        if not isinstance(reply, Message):
            raise RefusedError("the app's train function returned no message.")
        if not reply.has_error() and list(the_arrays(reply.content).keys()) != names:
            raise RefusedError("the app returned arrays of other names than it was given.")
        return reply

    def _called(
        self, own: Client, message: Message, context: Context, base: str
    ) -> tuple[_Agreed, int]:
        """Return what was agreed and the round of a call, if it follows from what was signed."""
        record = market_fields(message.content)
        agreed, signed = _agreed(own, record), signed_of(record, "call")
        server = agreed.offer.key
        call: Call = signed.open(Call, server)
        if call.client != own.name:
            raise RefusedError("it calls another client.")
        if not agreed.coins.heads(call.round):
            raise RefusedError(f"the coin of round {call.round + 1} shows tails.")
        now = time.time()
        with kept_evidence(context, own.receipts) as evidence:
            head = _note(evidence, own, record, agreed)
            evidence.require_paid(agreed.run, agreed.earned)
            lost = sum(amount for _, amount in evidence.spent_since(now - DAY))
            if lost + _cost_of_update(own, agreed) > own.largest_loss:
                raise RefusedError(
                    f"it declines: the last day has cost it {lost:.6g} more than it was paid; at "
                    f"most it loses {own.largest_loss:.6g}."
                )
            round_ = evidence.note_asked(agreed.conditions, signed, head, server, base)
        return agreed, round_


@dataclass(frozen=True)
class _Agreed:
    """What was agreed with this client according to a message, and what determines its coins."""

    conditions: Conditions
    offer: Signed
    commitment: Signed
    opening: Signed
    coins: Coins
    cap: float
    payment: int

    @property
    def run(self) -> str:
        """The ledger and the run."""
        return f"{self.conditions.ledger} {self.conditions.run}"

    def earned(self, accepted: int) -> int:
        """Return what a number of accepted updates earns, in micro-units."""
        return due(max(self.payment, 0), self.coins.level, self.conditions.rounds, accepted)


def _agreed(own: Client, record: dict[str, Any]) -> _Agreed:
    """Return what was agreed, if it follows from what this client signed."""
    secret, text = record.get("secret"), str(record.get("conditions"))
    if not isinstance(secret, bytes):
        raise RefusedError("the server's secret is not the one it committed to.")
    names = ("offer", "commitment", "opening")
    return _read_agreed(own, text, secret, *(signed_of(record, name) for name in names))


@lru_cache(maxsize=64)  # the same agreement recurs in every round
def _read_agreed(
    own: Client, text: str, secret: bytes, signed: Signed, committed: Signed, opening: Signed
) -> _Agreed:
    """Return what was agreed; it does not change, so it may be shared."""
    offer, conditions = _own_offer(own, text, signed)
    commitment = _own_commitment(own, committed, signed)
    if not is_opening(secret, offer.coin_hash):
        raise RefusedError("the server's secret is not the one it committed to.")
    opened: Opening = opening.open(Opening, signed.key)
    if (opened.ledger, opened.run) != (conditions.ledger, conditions.run):
        raise RefusedError("it says that another run was opened.")
    mine = own_secret(own.key.private, signed.hash)
    key = coin_key(secret, mine, bytes.fromhex(opened.mixed))
    coins = Coins(coin_phase(key, commitment.level, offer.position), commitment.level)
    cap, payment = float(offer.norm_cap or "inf"), offer.pays.payment(commitment.level)
    return _Agreed(conditions, signed, committed, opening, coins, cap, payment)


def _note(evidence: Evidence, own: Client, record: dict[str, Any], agreed: _Agreed) -> int:
    """Keep what a message proves, and return its head's number; refuse what contradicts it."""
    server, ledger = agreed.offer.key, agreed.conditions.ledger
    _ensure(evidence, own, agreed.conditions, agreed.offer, agreed.commitment)
    mix = record.get("mix")
    evidence.note_opened(agreed.offer, agreed.opening, None if mix is None else str(mix))
    if "receipt" in record:
        signed = signed_of(record, "receipt")
        receipt: Receipt = signed.open(Receipt, server)
        if (receipt.ledger, receipt.client) != (ledger, own.name):
            raise RefusedError("it has a receipt for another client or ledger.")
        evidence.note_receipt(signed, ledger, receipt.run, time.time())
    head, after, links = signed_of(record, "head"), record.get("after"), record.get("links")
    return evidence.note_head(head, ledger, server, after, links, agreed.run)


def _own_offer(own: Client, text: str, signed: Signed) -> tuple[Offer, Conditions]:
    """Return an offer that this client's server made to it."""
    offer: Offer = signed.open(Offer, own.server or signed.key)
    if offer.client != own.name:
        raise RefusedError("this offer is for another client.")
    conditions, hash_ = _read_conditions(text)
    if hash_ != offer.conditions:
        raise RefusedError("these are not the conditions of the offer.")
    if conditions.server != signed.key.hex():
        raise RefusedError("its conditions name another server than the one that signed it.")
    return offer, conditions


@lru_cache(maxsize=64)  # the same conditions recur in every round
def _read_conditions(text: str) -> tuple[Conditions, str]:
    """Return conditions and their hash; they do not change, so they may be shared."""
    conditions = conditions_of(text)
    return conditions, conditions.hash


def _own_commitment(own: Client, signed: Signed, offer: Signed) -> Commitment:
    """Return what this client committed to, if it is this offer."""
    commitment: Commitment = signed.open(Commitment, own.key.public)
    mine = own_secret(own.key.private, offer.hash)
    if commitment.offer != offer.hash or commitment.secret_hash != secret_hash(mine):
        raise RefusedError("this is not the offer that was committed to.")
    return commitment


def _require_cap(offer: Offer, norms: list[float]) -> None:
    """Refuse a cap that the last updates would have exceeded more than twofold.

    A cap that is too low for a client grows by that factor from period to period.
    """
    if norms and offer.norm_cap and float(offer.norm_cap) < min(norms) / SLACK:
        raise RefusedError(
            f"it declines: updates are accepted up to a norm of {offer.norm_cap}; its last ones "
            f"had at least {min(norms):.6g}, and would be refused, unpaid."
        )


def _norm(before: Arrays, after: Arrays, conditions: Conditions, update: bool) -> float:
    """Return the norm of an update, of the model's parameters; 1 for a model of bytes."""
    schema = conditions.schema
    if ANY in schema["shapes"]:
        return 1.0
    squares = 0.0
    for old, new, is_buffer in zip(before, after, schema["buffers"], strict=True):
        if not is_buffer and old.shape == new.shape:
            change = np.asarray(new, np.float64) - (0.0 if update else np.asarray(old, np.float64))
            squares += float(np.vdot(change, change))
    return math.sqrt(squares)


def _cost_of_update(own: Client, agreed: _Agreed) -> float:
    """Return what an update costs a client: c q^(τ − 1), of all rounds of the run."""
    level = agreed.coins.level / LEVEL_ONE
    cost: float = own.cost * level ** (own.cost_exponent - 1)
    return cost / agreed.conditions.run_rounds


def _noted(own: Client, conditions: Conditions) -> Signed:
    """Return conditions as a client stores them: they come with offers that the server signed."""
    text = conditions.text
    return Signed(text.encode(), own.key.sign_text(text), own.key.public)


def _ensure(
    evidence: Evidence, own: Client, conditions: Conditions, offer: Signed, commitment: Signed
) -> None:
    """Restore a commitment that this client no longer remembers, such as after a restart."""
    if evidence.commitment_to(offer, own.key.public) is None:
        evidence.keep(_noted(own, conditions), offer, commitment)


def _tell(own: Client, offer: Offer, conditions: Conditions, level: int, context: Context) -> None:
    """Log what was offered and chosen, and what was offered in the previous period."""
    known = dict(context.state.config_records.get(MARKET) or {})
    told = f"{offer.pays} for {conditions.rounds} rounds, in {conditions.unit}"
    earlier = known.get(f"terms of {conditions.follows}")
    changed = f"; in the previous period: {earlier}" if isinstance(earlier, str) else ""
    chose = f"{level / LEVEL_ONE:.4f}"
    _log.info("%s: run %s offers %s%s; chosen: %s", own.name, conditions.run, told, changed, chose)
    context.state[MARKET] = market_record(**known | {f"terms of {conditions.run}": told})


def _reply(message: Message, **fields: bytes | float | list[bytes]) -> Message:
    return Message(RecordDict({MARKET: market_record(**fields)}), reply_to=message)
