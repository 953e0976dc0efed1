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
from fedprice.flower.wire import MARKET, market_fields, market_record
from fedprice.market.canonical import canonical_bytes
from fedprice.market.messages import (
    RefusedError,
    Signed,
    require_hash,
    require_number,
)
from fedprice.market.offers import Opening
from fedprice.verify import MOST_ATTEMPTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flwr.app import Context

    from fedprice.market.offers import Conditions, Offer

__all__ = ["Evidence", "Head", "kept_evidence"]

REVEALED_FOR = 86_400.0  # seconds for which an offer stays open after its secret was revealed
HEADS = 64  # per ledger, compared with new ones; the file has all


@dataclass(frozen=True)
class Head:
    """What the server signs about each entry of its ledger."""

    ledger: str
    number: int
    hash: str

    def __post_init__(self) -> None:
        require_hash(self, "ledger", "hash")
        require_number(self, "number", 1, 1 << 40)


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
            "read": 0, "offers": {}, "heads": {}, "receipts": {}, "asked": {}, "odd": "",
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
        elif kind == "Receipt":
            self.state["receipts"][f"{message['ledger']} {message['run']}"] = signed.hash
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

    def require_roster(self, offer: Signed, commitments: str) -> None:
        """Refuse a second roster for the same offer."""
        if self.state["offers"][offer.hash]["roster"] not in ("", commitments):
            raise RefusedError("the secret was revealed for another set of commitments.")

    def note_opened(self, offer: Signed, opening: Signed) -> None:
        """Keep the server's message about a run's coins; refuse another one for the same run."""
        known = self.state["offers"][offer.hash]["mixed"]
        mixed = opening.open(Opening, offer.key).mixed
        if known != mixed and self.state["odd"] != opening.hash:
            self.keep(opening)
        if known not in ("", mixed):
            self.state["odd"] = opening.hash  # both are signed: together they prove it
            raise RefusedError("the coins of this run were mixed with something else before.")

    def note_head(self, signed: Signed, ledger: str, server: bytes) -> None:
        """Keep a head of a ledger; refuse one that contradicts another.

        An older one does not contradict: several runs of a ledger may call a client at the same
        time.
        """
        head: Head = signed.open(Head, server)
        if head.ledger != ledger:
            raise RefusedError("it has the head of another ledger.")
        known = self.state["heads"].get(ledger, {}).get(str(head.number))
        if known is None:
            self.keep(signed)
        elif known != head.hash:
            if self.state["odd"] != signed.hash:
                self.keep(signed)  # both are signed: together they prove it
                self.state["odd"] = signed.hash
            raise RefusedError(
                f"the ledger was written anew: its entry {head.number} was {known}, and is "
                f"{head.hash}."
            )

    def note_asked(self, conditions: Conditions, round_: int, base: str) -> None:
        """Note the model that a round starts from; refuse another model in the same round.

        Otherwise a server could ask twice, and use the answer that it prefers.
        """
        run = f"{conditions.ledger} {conditions.run}"
        last, known = self.state["asked"].get(run, [0, base])
        if round_ < last:
            raise RefusedError(f"round {round_ + 1} is over; round {last + 1} was asked for.")
        if round_ == last and known != base:
            raise RefusedError(f"round {round_ + 1} was asked for with another model before.")
        self.state["asked"][run] = [round_, base]

    def note_receipt(self, signed: Signed, ledger: str, run: str) -> None:
        """Keep a receipt, unless it repeats the last one."""
        if self.state["receipts"].get(f"{ledger} {run}") != signed.hash:
            self.keep(signed)


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
