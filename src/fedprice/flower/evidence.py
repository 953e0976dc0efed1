"""`Evidence`: the signed messages that a client keeps, and what it must not do twice.

A client keeps every commitment that it signs, and every offer, roster, receipt and head that it
gets, one signed message per line, in the form that `fedprice verify EXPORT --receipts FILE` checks
against the server's ledger. What follows from these messages, such as which offers are open, is
also in the client's Flower context, which lasts as long as a Flower run; with a file it outlasts
restarts and other Flower runs.
"""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from flwr.app import ConfigRecord

from fedprice.errors import InputError
from fedprice.flower.receipts import LINKS
from fedprice.flower.wire import MARKET, market_fields, market_record
from fedprice.market.agreement import Mix
from fedprice.market.canonical import canonical_bytes
from fedprice.market.messages import (
    Message,
    RefusedError,
    Signed,
)
from fedprice.market.money import MICRO
from fedprice.market.offers import Call, Ending, Opening
from fedprice.verify import MOST_ATTEMPTS, chained_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from flwr.app import Context

    from fedprice.market.offers import Conditions, Offer

__all__ = ["Evidence", "Head", "kept_evidence"]

DAY = 86_400.0  # seconds
REVEALED_FOR = DAY  # for which an offer stays open after its secret was revealed
HEADS = 64  # per ledger, compared with new ones; the file has all
NORMS = 8  # of the last updates, compared with the caps of offers
UNRECEIPTED = 3  # runs that a server may leave without their last receipt
REFUSED = 5  # updates of a run that a server may refuse one after another


@dataclass(frozen=True)
class Head(Message):
    """What the server signs about each entry of its ledger."""

    ledger: str
    number: int
    hash: str


class Evidence:
    """The signed messages that a client keeps, and what follows from them.

    Parameters
    ----------
    state
        What followed from them so far, from `state`.
    file
        Where each message is appended; None for nowhere.
    """

    def __init__(self, state: dict[str, Any], file: BinaryIO | None) -> None:
        self.state: dict[str, Any] = {
            "read": 0, "offers": {}, "heads": {}, "receipts": {}, "asked": {}, "sent": {},
            "odd": "", "ended": [], "faults": {}, "norms": [], "spent": [], "got": {},
        } | state  # fmt: skip
        self._file = file
        self._conditions: dict[str, dict[str, Any]] = {}
        self._offered: dict[str, dict[str, Any]] = {}
        if file is not None:
            self._read(file)

    def _read(self, file: BinaryIO) -> None:
        """Read what was appended since, by this process or another one of the same client."""
        if os.fstat(file.fileno()).st_size < self.state["read"]:
            self.state["read"] = 0  # it is another file
        file.seek(self.state["read"])
        for line in file:
            if not line.endswith(b"\n"):  # the client crashed while writing it
                file.truncate(self.state["read"])
                break
            try:
                stored = json.loads(line)
                text, signature, key = (stored[name] for name in ("content", "signature", "key"))
                self._enter(Signed(text.encode(), bytes.fromhex(signature), bytes.fromhex(key)))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise InputError(f"{file.name} is not a file of receipts.") from error
            self.state["read"] += len(line)

    def keep(self, *messages: Signed) -> None:
        """Keep some messages, all of them or none."""
        for signed in messages:
            self._enter(signed)
        if self._file is None:
            return
        lines = b"".join(
            canonical_bytes(
                {
                    "content": signed.content.decode(),
                    "signature": signed.signature.hex(),
                    "key": signed.key.hex(),
                }
            )
            + b"\n"
            for signed in messages
        )
        self._file.seek(0, os.SEEK_END)
        self._file.write(lines)
        self._file.flush()
        os.fsync(self._file.fileno())
        self.state["read"] += len(lines)

    def _enter(self, signed: Signed) -> None:
        message = json.loads(signed.content)
        kind, offers = message["kind"], self.state["offers"]
        if kind == "Conditions":
            self._conditions[signed.hash] = message
        elif kind == "Offer":
            self._offered[signed.hash] = message
        elif kind == "Commitment":
            own = self._conditions[self._offered[message["offer"]]["conditions"]]
            attempt = 1
            for known, other in list(offers.items()):
                if other["ledger"] == own["ledger"]:
                    if other["run"] == own["run"]:
                        attempt += other["attempt"]
                    if other["run"] in (own["run"], own["follows"]):
                        del offers[known]
            offers[message["offer"]] = {
                **{name: own[name] for name in ("server", "ledger", "run", "expires")},
                "attempt": attempt,
                "commitment": [signed.content.decode(), signed.signature.hex()],
                "hash": signed.hash,
                "roster": "",
                "mixed": "",
            }
        elif kind == "Roster":
            for own in offers.values():
                if own["hash"] == message["commitment"]:
                    own["roster"] = message["commitments"]
        elif kind == "Opening":
            for own in offers.values():
                if (own["ledger"], own["run"]) == (message["ledger"], message["run"]):
                    own["mixed"] = own["mixed"] or message["mixed"]
        elif kind == "Ending":
            ended = f"{message['ledger']} {message['run']}"
            self.state["ended"] = [*self.state["ended"][-HEADS:], ended]
            for known, own in list(offers.items()):
                if f"{own['ledger']} {own['run']}" == ended and not own["mixed"]:
                    del offers[known]  # no coins were used
        elif kind == "Update":
            self.state["sent"][message["run"]] = [message["round"], message["arrays"]]
            for own in offers.values():  # after a restart, its calls are known by what it sent
                key = f"{own['ledger']} {own['run']}"
                asked = self.state["asked"].get(key, [-1])
                if own["run"] == message["run"] and asked[0] < message["round"]:
                    self.state["asked"][key] = [message["round"], message["base"], 0]
        elif kind == "Receipt":
            key = f"{message['ledger']} {message['run']}"
            self.state["receipts"][key] = signed.hash
            last, accepted, refused, _ = self.state["got"].get(key, [-1, 0, 0, 0])
            if message["round"] > last:
                is_good = message["refused"] == ""
                self.state["got"][key] = [
                    message["round"], accepted + is_good, 0 if is_good else refused + 1,
                    message["paid"],
                ]  # fmt: skip
            if self.state["sent"].get(message["run"]) == [message["round"], message["update"]]:
                del self.state["sent"][message["run"]]
        elif kind == "Head":
            heads = self.state["heads"].setdefault(message["ledger"], {})
            heads.setdefault(str(message["number"]), message["hash"])
            for oldest in list(heads)[:-HEADS]:
                del heads[oldest]

    def commitment_to(self, offer: Signed, key: bytes) -> Signed | None:
        """Return what a client with this key answered to an offer before, if it did."""
        own = self.state["offers"].get(offer.hash)
        if own is None:
            return None
        text, signature = own["commitment"]
        return Signed(text.encode(), bytes.fromhex(signature), key)

    def require_free(self, offer: Offer, conditions: Conditions, now: float) -> None:
        """Refuse an offer while another one of the same server is open.

        Otherwise a server could collect commitments under many names and open the run with the most
        favourable coins; and a client could choose among its coins.
        """
        for own in self.state["offers"].values():
            if own["server"] != conditions.server:
                continue
            if (own["ledger"], own["run"]) == (conditions.ledger, conditions.run):
                if own["mixed"]:
                    raise RefusedError("the run was opened with another offer.")
                if not offer.replaces:
                    raise RefusedError("another offer of this run was committed to before.")
                if own["attempt"] >= MOST_ATTEMPTS:
                    raise RefusedError(f"a run takes at most {MOST_ATTEMPTS} sets of offers.")
                continue
            run = f"{own['ledger']} {own['run']}"
            is_idle = own["mixed"] and run not in self.state["asked"] and "idle" not in own
            if is_idle and own["run"] != conditions.follows:
                own["idle"] = True
                self.fault("runs opened and not played")
            # A server with the secret knows the coins: it must not just wait for the offer to
            # expire.
            until = own["expires"] + (REVEALED_FOR if own["roster"] else 0)
            passed = (own["ledger"], own["run"]) == (conditions.ledger, conditions.follows)
            if own["mixed"] or (passed and not own["roster"]):  # open, or without this client
                continue
            if until > now:
                raise RefusedError(
                    f"an offer of the same server for run {own['run']!r:.60} is still open."
                )

    def fault(self, what: str) -> None:
        """Count something that the server did and should not have done."""
        self.state["faults"][what] = self.state["faults"].get(what, 0) + 1

    def require_receipts(self, run: str) -> None:
        """Refuse to work for a server that owes receipts: for the run, or for several others."""
        if run in self.state["sent"]:
            self.fault("updates without a receipt")
            round_, update = self.state["sent"][run]
            raise RefusedError(
                f"there is no receipt yet for its update of round {round_ + 1} of run {run!r:.60}, "
                f"{update:.12}; it sends no other one before."
            )
        if len(self.state["sent"]) >= UNRECEIPTED:
            raise RefusedError(
                f"{len(self.state['sent'])} updates of other runs never got a receipt."
            )

    def require_paid(self, run: str, earned: Callable[[int], int]) -> None:
        """Refuse to work on where receipts say that updates are not paid, or not accepted.

        Parameters
        ----------
        run
            The ledger and the run.
        earned
            What a number of accepted updates earns, in micro-units.
        """
        _, accepted, refused, paid = self.state["got"].get(run, [-1, 0, 0, 0])
        if paid < earned(accepted):
            self.fault("updates accepted and not paid")
            many = "update was" if accepted == 1 else "updates were"
            raise RefusedError(
                f"it declines: receipts say that {accepted} accepted {many} paid {paid} "
                f"micro-units, not {earned(accepted)}."
            )
        if refused >= REFUSED:
            raise RefusedError(f"it declines: its last {refused} updates of this run were refused.")

    def note_ended(self, signed: Signed, ledger: str, server: bytes) -> None:
        """Keep the server's word that offers came to nothing: they bind this client no more."""
        ending: Ending = signed.open(Ending, server)
        if ending.ledger == ledger and f"{ledger} {ending.run}" not in self.state["ended"]:
            self.keep(signed)

    def require_roster(self, offer: Signed, commitments: str) -> None:
        """Refuse a second roster for the same offer."""
        if self.state["offers"][offer.hash]["roster"] not in ("", commitments):
            raise RefusedError("the secret was revealed for another set of commitments.")

    def note_opened(self, offer: Signed, opening: Signed, mix: str | None) -> None:
        """Keep the server's message about a run's coins; refuse another one for the same run.

        Parameters
        ----------
        offer, opening
            What was committed to, and the message.
        mix
            What the coins are mixed from, as `Mix.text`: whoever chose something else, or chose
            after secrets were revealed, could choose coins. Needed once per run.
        """
        own = self.state["offers"][offer.hash]
        known, opened = own["mixed"], opening.open(Opening, offer.key)
        mixed = opened.mixed
        if f"{opened.ledger} {opened.run}" in self.state["ended"]:
            raise RefusedError("the server signed that the offers of this run came to nothing.")
        if not known and mix is None:
            raise RefusedError("it lacks the secrets that the coins of the run were mixed from.")
        if not known and mix is not None:
            found = Mix.read(mix)
            if own["hash"] not in found.commitments.values():
                raise RefusedError("the coins of this run were mixed without this client.")
            if found.roster != (own["roster"] or found.roster) or found.value.hex() != mixed:
                raise RefusedError("the coins of this run were not mixed from these secrets.")
        if known != mixed and self.state["odd"] != opening.hash:
            self.keep(opening)
        if known not in ("", mixed):
            self.state["odd"] = opening.hash  # both are signed: together they prove it
            raise RefusedError("the coins of this run were mixed with something else before.")

    def note_head(
        self, signed: Signed, ledger: str, server: bytes, after: Any = 0, links: Any = "",
        run: str = "",
    ) -> int:  # fmt: skip
        """Keep a head of a ledger, and return its number; refuse one that contradicts another.

        An older one does not contradict: several runs of a ledger may call a client at the same
        time. A newer one must follow from one that is known, by the digests of the entries between.

        Parameters
        ----------
        signed, ledger, server
            The head, and whose it should be.
        after, links
            The number of an entry, and the digests of those that follow up to the head.
        run
            The ledger and the run that it came with: only the first head of a run may be too far
            ahead to be linked.
        """
        head: Head = signed.open(Head, server)
        if head.ledger != ledger:
            raise RefusedError("it has the head of another ledger.")
        known = self.state["heads"].get(ledger, {}).get(str(head.number))
        if known is None:
            self._require_link(head, after, links, run)
            self.keep(signed)
        elif known != head.hash:
            if self.state["odd"] != signed.hash:
                self.keep(signed)  # both are signed: together they prove it
                self.state["odd"] = signed.hash
            raise RefusedError(
                f"the ledger was rewritten: its entry {head.number} was {known}, and is "
                f"{head.hash}."
            )
        return head.number

    def _require_link(self, head: Head, after: Any, links: Any, run: str) -> None:
        """Refuse a head that does not follow from the newest one before it that is known."""
        heads = self.state["heads"].get(head.ledger, {})
        before = max((int(n) for n in heads if int(n) < head.number), default=None)
        if before is None:
            return
        known = type(after) is int and type(links) is str
        if known and after > before and len(links) >= 64 * LINKS and run not in self.state["asked"]:
            self.fault("heads too far apart to be linked")
            return
        if not known or after > before:
            raise RefusedError(f"nothing shows that the ledger's head follows from entry {before}.")
        digests = [links[at : at + 64] for at in range(64 * (before - after), len(links), 64)]
        found = heads[str(before)]
        for number, digest in enumerate(digests, start=before + 1):
            found = chained_hash(found, number, digest)
        if (before + len(digests), found) != (head.number, head.hash):
            self.fault("heads that do not follow")
            raise RefusedError(f"the ledger's head does not follow from its entry {before}.")

    def note_asked(
        self, conditions: Conditions, signed: Signed, head: int, server: bytes, base: str
    ) -> int:
        """Keep a call, and return its round; refuse one that is out of order.

        A server that asked twice for a round could use the answer that it prefers, and one whose
        ledger does not grow between calls does not record what it got.

        Parameters
        ----------
        conditions
            Of the run.
        signed
            The call.
        head
            The number of the ledger's head that came with it.
        server, base
            The server's key, and the hash of the model that came with the call.
        """
        call: Call = signed.open(Call, server)
        if (call.ledger, call.run) != (conditions.ledger, conditions.run):
            raise RefusedError("it has the call of another run.")
        if (call.model, call.number) != (base, head):
            raise RefusedError("its call names another model or head than it has.")
        if call.round >= conditions.rounds:
            raise RefusedError("there is no such round.")
        run = f"{conditions.ledger} {conditions.run}"
        last, known, before = self.state["asked"].get(run, [-1, base, 0])
        if call.round == last and known == base:
            return call.round  # again: the answer was lost on the way
        self.keep(signed)
        if call.round <= last:
            self.fault("calls out of order")
            raise RefusedError(
                f"round {call.round + 1} was asked for after round {last + 1}, or twice with "
                "different models: calls are out of order."
            )
        if head <= before:
            self.fault("heads that did not grow")
            raise RefusedError(f"the ledger has not grown since round {last + 1}, at entry {head}.")
        self.require_receipts(conditions.run)
        self.state["asked"][run] = [call.round, base, head]
        return call.round

    def note_sent(self, signed: Signed, norm: float, now: float, cost: float) -> None:
        """Keep what was sent, and remember its norm and what it cost."""
        self.keep(signed)
        self.note_norm(norm)
        self.state["spent"] = [*self.spent_since(now - DAY), [now, cost]]

    def note_norm(self, norm: float) -> None:
        """Remember the norm of an update, sent or not."""
        self.state["norms"] = [*self.state["norms"][1 - NORMS :], norm]

    def spent_since(self, since: float) -> list[list[float]]:
        """Return when and how much was spent since, and what receipts brought back."""
        return [own for own in self.state["spent"] if own[0] >= since]

    def note_receipt(self, signed: Signed, ledger: str, run: str, now: float) -> None:
        """Keep a receipt, unless it repeats the last one."""
        key = f"{ledger} {run}"
        if self.state["receipts"].get(key) != signed.hash:
            before = self.state["got"].get(key, [0])[-1]
            self.keep(signed)
            self.state["spent"].append([now, (before - self.state["got"][key][-1]) / MICRO])


@contextmanager
def kept_evidence(context: Context, path: Path | None) -> Iterator[Evidence]:
    """Yield a client's evidence, locked against changes by other processes.

    Parameters
    ----------
    context
        The client's Flower context.
    path
        The file of receipts, which is created if it does not exist; None for none.
    """
    state = json.loads(str(market_fields(context.state).get("evidence", "{}")))
    if path is None:
        evidence = Evidence(state, None)
        try:
            yield evidence
        finally:
            _remember(context, evidence)
        return
    import fcntl

    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(f"cannot open the receipts {path}: {error.strerror}.") from error
    with os.fdopen(handle, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        evidence = Evidence(state, file)
        try:
            yield evidence
        finally:
            _remember(context, evidence)


def _remember(context: Context, evidence: Evidence) -> None:
    known, text = context.state.get(MARKET), json.dumps(evidence.state)
    if isinstance(known, ConfigRecord):
        known["evidence"] = text
    else:
        context.state[MARKET] = market_record(evidence=text)
