"""From prices to an agreement, over Flower: offers, commitments, secrets, and the opened run."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from flwr.app import RecordDict

from fedprice.errors import InputError
from fedprice.flower.receipts import Receipts
from fedprice.flower.wire import MARKET, market_fields, market_record, signed_fields, signed_of
from fedprice.market.agreement import Agreement
from fedprice.market.bargain import NO_ANSWER
from fedprice.market.messages import RefusedError
from fedprice.market.money import money
from fedprice.market.offers import Commitment, Ending, Offer, Proposal, norm_text
from fedprice.market.run import fund_run
from fedprice.market.terms import one_more
from fedprice.market.updates import norm_cap
from fedprice.verify import MOST_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flwr.app import Message
    from flwr.serverapp import Grid

    from fedprice.flower.exchange import Exchange
    from fedprice.flower.presence import Presence
    from fedprice.flower.pricing import Priced, Turns
    from fedprice.flower.wire import Profile
    from fedprice.market.bargain import Bargain
    from fedprice.market.offers import Conditions
    from fedprice.market.periods import Period
    from fedprice.market.tariffs import Tariff

    Offered = list[tuple[Tariff, int]]
    Propose = Callable[[list[str]], tuple[Conditions, Mapping[str, Proposal], Turns | None]]

__all__ = ["Deals", "in_order", "proposals_of"]

_log = logging.getLogger("flwr")


def in_order(names: Iterable[str]) -> list[str]:
    """Return names in the order of the model's sum: shorter ones first, so that 10 follows 9."""
    return sorted(names, key=lambda name: (len(name), name))


def proposals_of(
    profiles: Sequence[Profile],
    priced: Priced,
    period: Period,
    reach: float | None,
    most: float,
) -> dict[str, Proposal]:
    """Return what is proposed to each client, with the largest norm of its updates.

    Parameters
    ----------
    profiles, priced, period
        The clients that are present, what to offer each, and the period.
    reach
        The largest η E of the period's rounds, where it is known.
    most
        The largest norm of an update of a client whose norm is neither declared nor measured.
    """
    proposals = {}
    for profile, own, floor, impact in zip(
        profiles, priced.tariffs, priced.floors, priced.impacts, strict=True
    ):
        declared = float(profile.grad_norm) if profile.grad_norm else None
        cap = norm_cap(declared, reach, period.tried.get(profile.client), most)
        known = cap if math.isfinite(cap) else None
        proposals[profile.client] = Proposal(own, floor, impact, known)
    return proposals


class Deals:
    """Reaches an agreement with the clients that are present.

    Parameters
    ----------
    grid, exchange, presence
        How to reach clients, and which ones are present.
    bargain
        The bargain as recorded in the ledger so far; one that was started is resumed.
    propose
        Maps names of clients to conditions, proposals, and how to make offers in turn, if they are
        made so; the proposals are then in the order of the turns.
    held
        Maps tariffs and least levels to the most that clients may be promised with them, in
        micro-units.
    rounds
        Rounds of the period: one update more than promised of each client may have to be paid.
    lifetime
        Seconds for which offers are valid.
    fund
        Whether to deposit the money that is needed (simulations).
    sequential
        Whether offers are made one after another.
    """

    def __init__(
        self,
        grid: Grid,
        exchange: Exchange,
        presence: Presence,
        bargain: Bargain,
        *,
        propose: Propose,
        held: Callable[[Offered], int],
        rounds: int,
        lifetime: float,
        fund: bool,
        sequential: bool = False,
    ) -> None:
        self._grid, self._exchange, self._presence = grid, exchange, presence
        self._bargain, self._propose, self._promised = bargain, propose, held
        self._rounds = rounds
        self._wait, self._fund, self._sequential = lifetime / 2, fund, sequential
        self._left_out: set[str] = set()

    def agree(self, run: str, beacon: Callable[[], str] | None) -> Agreement:
        """Offer, take commitments and secrets, and open the run; return what was agreed.

        If payers bring in less than expected, or a client does not reveal its secret, the others
        are priced again without them. A bargain that a restart interrupted is resumed from the
        ledger: clients repeat what they answered.

        Parameters
        ----------
        run
            The name of the period.
        beacon
            Returns the public value that the conditions name; None if they name none.
        """
        bargain = self._bargain
        self._require_money(self._offered(bargain.offers))
        begun, why = bargain.attempt > 0, ""
        if bargain.conditions is not None and bargain.conditions.expires <= time.time():
            why = "the offers expired before the run was opened"
        if self._sequential and begun and not (why or bargain.is_closed):
            conditions, proposals, turns = self._propose(in_order(self._presence.nodes))
            if turns is not None:
                self._offer_in_turn(conditions, proposals, turns, "")
        while True:
            if why or not bargain.attempt:
                self._offer(run, why)
            if bargain.wants:
                self._take_commitments(self._wait)
            if begun and not bargain.terms:
                begun, why = False, "none of the clients with an offer is still connected"
                continue
            bargain.close()
            why = self._shortfall()
            if not why:
                why = self._take_secrets()
            if not why:
                break
        budget = self._held(self._offered(bargain.terms))
        if self._fund:
            fund_run(bargain, budget)
        return bargain.open(budget, beacon() if beacon is not None else "")

    def _offer(self, run: str, why: str) -> None:
        """Record offers to the clients that are present, except those that let the others down."""
        bargain = self._bargain
        if bargain.attempt == MOST_ATTEMPTS:
            raise InputError(
                f"run {run!r} reached no agreement in {MOST_ATTEMPTS} sets of offers: {why}. End "
                f"it with `fedprice ledger settle {run}`, and choose another name."
            )
        names = in_order(set(self._presence.nodes) - self._left_out)
        conditions, proposals, turns = self._propose(names)
        if bargain.attempt == MOST_ATTEMPTS - 1:
            # From now on, no client is expected to pay.
            while payers := {name for name, own in proposals.items() if own.tariff.is_income}:
                self._left_out |= payers
                conditions, proposals, turns = self._propose(in_order(set(proposals) - payers))
        if why:
            without = f" without {', '.join(in_order(self._left_out))}" if self._left_out else ""
            _log.warning("run %s: %s; new offers are made%s", run, why, without)
        self._require_money([(own.tariff, own.level_floor) for own in proposals.values()])
        if turns is None:
            bargain.offer(conditions, proposals, why)
        else:
            self._offer_in_turn(conditions, proposals, turns, why)

    def _offer_in_turn(
        self, conditions: Conditions, proposals: Mapping[str, Proposal], turns: Turns, why: str
    ) -> None:
        """Make one offer after another, each within the budget that earlier commitments leave.

        A client that does not answer within its share of the time costs nothing. After a restart,
        clients that were asked before are asked again with the same offers, and then the others.
        """
        bargain, left = self._bargain, self._promised([])
        begins, until = bool(why) or not bargain.attempt, time.monotonic() + self._wait
        asked = set() if begins else set(bargain.offers)
        waiting = [(turn, client) for turn, client in enumerate(proposals) if client not in asked]
        if asked:
            self._take_commitments(self._wait * len(asked) / (len(asked) + len(waiting)))
            self._drop_silent()
            left -= sum(own.payment for own in bargain.terms.values())
        for place, (turn, client) in enumerate(waiting):
            if left < 0:  # a late client has answered now: make other offers
                break
            made = replace(proposals[client], tariff=turns.tariff(turn, left))
            if begins and place == 0:
                bargain.offer(conditions, {client: made}, why)
            else:
                bargain.offer_next({client: made})
            within = (until - time.monotonic()) / (len(waiting) - place)
            for level in self._take_commitments(max(within, 0.0)):
                left -= made.tariff.payment(level)
            self._drop_silent()

    def _drop_silent(self) -> None:
        for client in self._bargain.wants:
            self._bargain.drop(client, NO_ANSWER)

    def _require_money(self, offered: Offered) -> None:
        """Refuse to continue if the treasury lacks money, before an offer binds any client."""
        bargain, needed = self._bargain, self._held(offered)
        there = bargain.ledger.balance("treasury")
        if not self._fund and there < needed:
            raise InputError(
                f"run {bargain.run!r} needs {money(needed)} in the treasury of "
                f"{bargain.ledger.name}; {money(there)} are there. Deposit the rest with: "
                "fedprice ledger open URL --deposit AMOUNT --reference TEXT"
            )

    def _held(self, offered: Offered) -> int:
        """Return what the period may cost with these tariffs and least levels, in micro-units."""
        return self._promised(offered) + one_more(offered, self._rounds)

    def _offered(self, clients: Iterable[str]) -> Offered:
        """Return the tariffs and least levels that clients were offered."""
        signed = [self._bargain.offers[client] for client in clients]
        offers: list[Offer] = [own.open(Offer, own.key) for own in signed]
        return [(own.pays, own.level_floor) for own in offers]

    @cached_property
    def _before(self) -> dict[str, dict[str, Any]]:
        """What each client is told of its last run, and of offers to it that came to nothing."""
        ledger, key = self._bargain.ledger, self._bargain.key
        last: dict[str, str] = {}
        told: dict[str, dict[str, Any]] = {}
        for name, run in ledger.books.runs.items():
            if run.signed and run.clients:
                last |= dict.fromkeys(run.clients, name)
            elif run.signed:
                ending = signed_fields(f"ended.{name}", key.sign(Ending(ledger.identity, name)))
                for client in run.dropped:
                    told.setdefault(client, {}).update(ending)
        agreements = {name: Agreement.load(ledger, name) for name in {*last.values()}}
        proofs = {
            name: Receipts(ledger, key, agreement)
            for name, agreement in agreements.items()
            if agreement.conditions.server == key.public.hex()
        }
        for client, name in last.items():
            same = ledger.books.key_of(f"client:{client}") == ledger.run(name).clients[client].key
            if same and name in proofs:  # whoever changed its key since cannot check the old one
                fields = proofs[name].fields(client, proofs[name].head())
                own = {f"before.{field}": value for field, value in fields.items()}
                told[client] = told.get(client, {}) | own
        return told

    def _take_commitments(self, within: float) -> list[int]:
        """Ask clients that have not answered yet; return the levels of those that commit."""
        bargain, presence, levels = self._bargain, self._presence, list[int]()
        for client, reply in self._answers("offer", bargain.wants, self._before, within):
            try:
                signed = signed_of(_sound(reply), "commitment")
                profile = presence.profiles[client]
                norm = norm_text(float(profile.grad_norm) if profile.grad_norm else None)
                commitment: Commitment = signed.open(Commitment, presence.keys[client])
                if (commitment.samples, commitment.grad_norm) != (profile.samples, norm):
                    raise RefusedError("it commits to other data than it was priced for.")
                bargain.commit(client, signed, presence.keys[client])
                levels.append(commitment.level)
            except RefusedError as error:
                _log.warning("no commitment of %s: %.200s", client, error)
                bargain.drop(client, str(error))
        return levels

    def _take_secrets(self) -> str:
        """Ask for the clients' secrets; return which clients withhold theirs, if any."""
        bargain = self._bargain
        rosters, commitments = bargain.rosters(), bargain.commitments
        fields = {
            client: signed_fields("roster", roster)
            | signed_fields("commitment", commitments[client])
            for client, roster in rosters.items()
        }
        for client, reply in self._answers("reveal", list(rosters), fields, self._wait):
            try:
                bargain.reveal(client, _sound(reply).get("secret"))
            except RefusedError as error:
                _log.warning("no secret of %s: %.200s", client, error)
        if not bargain.silent:
            return ""
        self._left_out |= set(bargain.silent)
        return f"{', '.join(in_order(bargain.silent))} did not reveal a secret"

    def _answers(
        self,
        kind: str,
        clients: list[str],
        fields: Mapping[str, dict[str, Any]],
        within: float,
    ) -> Iterator[tuple[str, Message]]:
        """Ask clients that are present about their offers; yield each client with its answer."""
        bargain, presence = self._bargain, self._presence
        if bargain.conditions is None:
            return
        asked, text = [], bargain.conditions.text
        for client in clients:
            if client not in presence.nodes:
                continue
            record = market_record(
                conditions=text,
                **signed_fields("offer", bargain.offers[client]),
                **fields.get(client, {}),
            )
            node, content = presence.nodes[client], RecordDict({MARKET: record})
            asked.append((client, self._exchange.message(content, node, f"query.{kind}", kind)))
        yield from self._exchange.answers(self._grid, asked, within)

    def _shortfall(self) -> str:
        """Return why the run cannot be opened with the remaining clients; empty if it can."""
        bargain, terms = self._bargain, self._bargain.terms
        if not terms:
            return "nobody is left"
        poor = {
            client
            for client, own in terms.items()
            if not self._fund and bargain.ledger.balance(f"client:{client}") < -own.payment
        }
        promised = sum(own.payment for own in terms.values())
        missing = promised - self._promised(self._offered(terms))
        if missing <= 0 and not poor:
            return ""
        unwilling = poor | (set(bargain.unwilling_payers()) if missing > 0 else set())
        self._left_out |= unwilling
        return (
            f"the payment that was counted on does not come from {', '.join(in_order(unwilling))}"
            if unwilling
            else f"{money(missing)} more than the budget is needed"
        )


def _sound(reply: Message) -> dict[str, Any]:
    """Return the market's fields of a reply; refuse an error."""
    if reply.has_error():
        raise RefusedError(str(reply.error.reason))
    return market_fields(reply.content)
