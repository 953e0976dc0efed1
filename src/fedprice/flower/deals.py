"""From prices to an agreement, over Flower: offers, commitments, secrets, and the opened run."""

from __future__ import annotations

import logging
import math
import time
from typing import TYPE_CHECKING, Any

from flwr.app import RecordDict

from fedprice.errors import InputError
from fedprice.flower.wire import MARKET, market_fields, market_record, signed_fields, signed_of
from fedprice.market.agreement import Agreement
from fedprice.market.messages import RefusedError
from fedprice.market.money import money
from fedprice.market.offers import Commitment, Proposal, norm_text
from fedprice.market.run import fund_run
from fedprice.market.updates import norm_cap
from fedprice.verify import MOST_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flwr.app import Message
    from flwr.serverapp import Grid

    from fedprice.flower.exchange import Exchange
    from fedprice.flower.presence import Presence
    from fedprice.flower.pricing import Priced
    from fedprice.flower.wire import Profile
    from fedprice.market.bargain import Bargain
    from fedprice.market.offers import Conditions
    from fedprice.market.periods import Period

    Propose = Callable[[list[str]], tuple[Conditions, Mapping[str, Proposal]]]

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
        Who is there, what to offer each, and for which period.
    reach
        The largest η E of the period's rounds, where it is known.
    most
        The largest norm of an update of a client whose norm is neither declared nor measured.
    """
    proposals = {}
    for profile, own, floor, impact in zip(
        profiles, priced.terms, priced.floors, priced.impacts, strict=True
    ):
        declared = float(profile.grad_norm) if profile.grad_norm else None
        cap = norm_cap(declared, reach, period.tried.get(profile.client), most)
        known = cap if math.isfinite(cap) else None
        proposals[profile.client] = Proposal(own.price, own.level, floor, impact, known)
    return proposals


class Deals:
    """Comes to an agreement with the clients that are there.

    Parameters
    ----------
    grid, exchange, presence
        How to reach clients, and who is there.
    bargain
        What the ledger has of it so far; a bargain that was begun is taken up.
    propose
        From names of clients to conditions and what is proposed to each.
    budget
        The most that the period may cost, in micro-units.
    lifetime
        Seconds for which offers hold.
    fund
        Whether to bring in what is needed (simulations).
    """

    def __init__(
        self,
        grid: Grid,
        exchange: Exchange,
        presence: Presence,
        bargain: Bargain,
        *,
        propose: Propose,
        budget: int,
        lifetime: float,
        fund: bool,
    ) -> None:
        self._grid, self._exchange, self._presence = grid, exchange, presence
        self._bargain, self._propose, self._budget = bargain, propose, budget
        self._wait, self._fund = lifetime / 2, fund
        self._left_out: set[str] = set()

    def agree(self, run: str, beacon: Callable[[], str] | None) -> Agreement:
        """Offer, take commitments and secrets, and open the run; return what was agreed.

        If payers bring in less than was counted on, or somebody does not reveal its secret, the
        others are priced again without them.

        Parameters
        ----------
        run
            The name of the period.
        beacon
            Returns the public value that the conditions name; None if they name none.
        """
        bargain = self._bargain
        there = bargain.ledger.balance("treasury")
        if not self._fund and there < self._budget:  # before anybody is bound to an offer
            raise InputError(
                f"run {run!r} needs {money(self._budget)} in the treasury of {bargain.ledger.name};"
                f" {money(there)} are there. Bring in the rest with: fedprice ledger open URL "
                "--deposit AMOUNT --reference TEXT"
            )
        begun, why = bargain.attempt > 0, ""
        if bargain.conditions is not None and bargain.conditions.expires <= time.time():
            why = "the offers expired before the run was opened"
        while True:
            if why or not bargain.attempt:
                self._offer(run, why)
            if bargain.wants:
                self._take_commitments()
            if begun and not bargain.terms:
                begun, why = False, "nobody is there any more who was made an offer"
                continue
            bargain.close()
            why = self._shortfall()
            if not why:
                why = self._take_secrets()
            if not why:
                break
        if self._fund:
            fund_run(bargain, self._budget)
        return bargain.open(self._budget, beacon() if beacon is not None else "")

    def _offer(self, run: str, why: str) -> None:
        """Record offers to whoever is there, less those who were counted on in vain."""
        bargain = self._bargain
        if bargain.attempt == MOST_ATTEMPTS:
            raise InputError(
                f"run {run!r} came to no agreement in {MOST_ATTEMPTS} sets of offers: {why}. End "
                f"it with `fedprice ledger settle {run}`, and take another name."
            )
        names = in_order(set(self._presence.nodes) - self._left_out)
        conditions, proposals = self._propose(names)
        if bargain.attempt == MOST_ATTEMPTS - 1:
            # Nobody is counted on to pay any more.
            while payers := {name for name, own in proposals.items() if own.price < 0}:
                self._left_out |= payers
                conditions, proposals = self._propose(in_order(set(proposals) - payers))
        if why:
            without = f" without {', '.join(in_order(self._left_out))}" if self._left_out else ""
            _log.warning("run %s: %s; new offers are made%s", run, why, without)
        bargain.offer(conditions, proposals, why)

    def _take_commitments(self) -> None:
        bargain, presence = self._bargain, self._presence
        follows = bargain.conditions.follows if bargain.conditions else ""
        before = opened_fields(Agreement.load(bargain.ledger, follows), bargain) if follows else {}
        for client, reply in self._answers("offer", bargain.wants, before):
            try:
                signed = signed_of(_sound(reply), "commitment")
                profile = presence.profiles[client]
                norm = norm_text(float(profile.grad_norm) if profile.grad_norm else None)
                commitment: Commitment = signed.open(Commitment, presence.keys[client])
                if (commitment.samples, commitment.grad_norm) != (profile.samples, norm):
                    raise RefusedError("it commits to other data than it was priced for.")
                bargain.commit(client, signed, presence.keys[client])
            except RefusedError as error:
                _log.warning("no commitment of %s: %.200s", client, error)
                bargain.drop(client, str(error))

    def _take_secrets(self) -> str:
        """Ask for the clients' secrets; return who keeps it, if somebody does."""
        bargain = self._bargain
        rosters, commitments = bargain.rosters(), bargain.commitments
        fields = {
            client: signed_fields("roster", roster)
            | signed_fields("commitment", commitments[client])
            for client, roster in rosters.items()
        }
        for client, reply in self._answers("reveal", list(rosters), fields):
            try:
                bargain.reveal(client, _sound(reply).get("secret"))
            except RefusedError as error:
                _log.warning("no secret of %s: %.200s", client, error)
        if not bargain.silent:
            return ""
        self._left_out |= set(bargain.silent)
        return f"{', '.join(in_order(bargain.silent))} did not reveal a secret"

    def _answers(
        self, kind: str, clients: list[str], fields: Mapping[str, dict[str, Any]] | None = None
    ) -> Iterator[tuple[str, Message]]:
        """Ask those clients that are there about their offers; yield who answers what."""
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
                **(fields or {}).get(client, {}),
            )
            node, content = presence.nodes[client], RecordDict({MARKET: record})
            asked.append((client, self._exchange.message(content, node, f"query.{kind}", kind)))
        yield from self._exchange.answers(self._grid, asked, self._wait)

    def _shortfall(self) -> str:
        """Return why the run cannot be opened with those who are left; empty if it can."""
        bargain, terms = self._bargain, self._bargain.terms
        if not terms:
            return "nobody is left"
        poor = {
            client
            for client, own in terms.items()
            if not self._fund and bargain.ledger.balance(f"client:{client}") < -own.payment
        }
        missing = sum(own.payment for own in terms.values()) - self._budget
        if missing <= 0 and not poor:
            return ""
        unwilling = poor | (set(bargain.unwilling_payers()) if missing > 0 else set())
        self._left_out |= unwilling
        return (
            f"the payment that was counted on does not come from {', '.join(in_order(unwilling))}"
            if unwilling
            else f"{money(missing)} more than the budget is needed"
        )


def opened_fields(agreement: Agreement, bargain: Bargain) -> dict[str, dict[str, Any]]:
    """Return what tells each client of a period that it was opened."""
    opening = signed_fields("opening", agreement.opening(bargain.key))
    return {
        client: {
            f"before.{name}": value
            for name, value in {
                "conditions": agreement.conditions.text,
                **signed_fields("offer", deal.offer),
                **signed_fields("commitment", deal.commitment),
                "secret": deal.secret,
                **opening,
            }.items()
        }
        for client, deal in agreement.deals.items()
    }


def _sound(reply: Message) -> dict[str, Any]:
    """Return the market's fields of a reply; refuse an error."""
    if reply.has_error():
        raise RefusedError(str(reply.error.reason))
    return market_fields(reply.content)
