"""What a client kept: signed messages, what they prove alone, and what a ledger must confirm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from .agreements import check_answer
from .forms import (
    LEVEL_ONE,
    UncheckedError,
    VerificationError,
    canonical,
    check_signed,
    digest,
    plain,
)
from .lines import fits, lines_of
from .messages import KEPT, MESSAGES, check_fields, message_in
from .pay import due, tariff_payment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .books import Books

__all__ = ["check_kept", "describe_kept", "read_receipts", "signed_messages"]


def signed_messages(file: BinaryIO, name: str) -> Iterator[dict[str, Any]]:
    """Yield the messages in a file of receipts, each with its text and the key that signed it.

    Each line is JSON with `content`, `signature` and `key`; whose key it is, is not checked here.
    """
    for number, line in lines_of(file):
        try:
            stored = json.loads(line)
            text, signature, key = (stored[n] for n in ("content", "signature", "key"))
            if not fits(text.encode()):  # it may be escaped in its line, which hides its values
                raise ValueError
            message = json.loads(text)
            sound = canonical(message) == text and check_signed(key, signature, text)
            kind = message.pop("kind")
            if kind in KEPT:
                check_fields(kind, message)
            elif kind in _OF and not isinstance(message[_OF[kind]], str):
                raise ValueError
        except (VerificationError, ValueError, TypeError, LookupError, AttributeError):
            sound = False
        except RecursionError:
            sound = False
        if not sound:
            raise VerificationError(f"line {number} of {name} is not a signed message.")
        yield message | {"kind": kind, "signed by": key, "text": text, "line": line.decode()}


def read_receipts(path: str | Path) -> list[dict[str, Any]]:
    """Return the messages that a client kept: its commitments, and what the server signed.

    Conditions and offers that were kept tell of which ledger a commitment is; messages of other
    kinds are left out.
    """
    kept = []
    ledgers: dict[str, str] = {}  # by the hash of conditions, and of offers
    with Path(path).open("rb") as file:
        for message in signed_messages(file, str(path)):
            kind, hash_ = message["kind"], digest(message["text"])
            if kind == "Conditions":
                ledgers[hash_] = str(message.get("ledger"))
            elif kind in ("Offer", "Commitment"):
                ledgers[hash_] = ledgers.get(str(message.get(_UNDER[kind])), "")
            if kind in KEPT:
                own = {"ledger": ledgers[hash_]} if kind == "Commitment" else {}
                kept.append(message | own)
    return kept


_OF = {"Conditions": "ledger", "Offer": "conditions"}  # what these must name
_UNDER = {"Offer": "conditions", "Commitment": "offer"}  # what each of these is an answer to


def describe_kept(messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield what a client's messages prove by themselves, to somebody without the ledger.

    Of every run: what both signed, how often the client was asked, what it sent, and what the
    server says that it accepted and paid.

    Raises
    ------
    VerificationError
        If the server's messages contradict each other, or the pay of their own receipts.
    """
    by_hash: dict[str, dict[str, Any]] = {}
    runs: dict[tuple[str, str], dict[str, Any]] = {}
    seen: dict[tuple[Any, ...], str] = {}
    for own in messages:
        kind = own["kind"]
        if kind in MESSAGES:
            message_in(own["text"], kind)
        by_hash[digest(own["text"])] = own
        if kind == "Commitment":
            offer = by_hash.get(own["offer"], {})
            all_ = by_hash.get(offer.get("conditions", ""))
            if all_ is None:
                continue
            if offer["signed by"] != all_["server"] or own["signed by"] != own["key"]:
                raise VerificationError(
                    f"the commitment to run {all_['run']!r:.200} is not its own."
                )
            check_answer(offer, own["offer"], own)
            run = {"commitment": own, "offer": offer, "conditions": all_}
            runs[all_["ledger"], all_["run"]] = run | {"Call": {}, "Update": {}, "Receipt": {}}
        elif kind in ("Call", "Receipt", "Head", "Opening", "Ending", "Roster"):
            place = [own[name] for name in _PLACE[kind]]
            if seen.setdefault((kind, own["signed by"], *place), own["text"]) != own["text"]:
                raise VerificationError(
                    f"the server {own['signed by']} signed two {kind.lower()}s that contradict "
                    f"each other: {plain(str(place[1:])):.200}."
                )
        found = runs.get((own.get("ledger", ""), own.get("run", "")))
        if kind == "Update":  # it names no ledger: the run that it answers was committed to last
            found = next((r for (_, name), r in reversed(runs.items()) if name == own["run"]), None)
        if found is None or kind not in ("Call", "Update", "Receipt"):
            continue
        signer = "commitment" if kind == "Update" else "offer"
        if own["signed by"] == found[signer]["signed by"]:
            found[kind][own["round"]] = own
    if not runs:
        raise UncheckedError("it holds no commitment with its offer and conditions.")
    for (ledger, name), run in runs.items():
        yield from _told(ledger, name, run)


_PLACE = {
    "Call": ("ledger", "run", "round", "client"),
    "Receipt": ("ledger", "run", "round", "client"),
    "Head": ("ledger", "number"),
    "Opening": ("ledger", "run"),
    "Ending": ("ledger", "run"),
    "Roster": ("ledger", "run", "attempt"),
}


def _told(ledger: str, name: str, run: dict[str, Any]) -> Iterator[str]:
    """Yield what the messages about one run prove."""
    level, offer, all_ = run["commitment"]["level"], run["offer"], run["conditions"]
    payment, unit = tariff_payment(offer["tariff"], level), plain(all_["unit"])
    calls, updates, receipts = run["Call"], run["Update"], run["Receipt"]
    accepted = paid = 0
    for round_ in sorted(receipts):
        receipt = receipts[round_]
        accepted, paid = accepted + (receipt["refused"] == ""), receipt["paid"]
        earned = due(max(payment, 0), level, all_["rounds"], accepted)
        if paid < earned:
            raise VerificationError(
                f"run {name!r:.200}: after {accepted} accepted updates the server had paid "
                f"{paid} micro-units, and {earned} were earned."
            )
    last = 0
    for number, round_ in sorted((own["number"], own["round"]) for own in calls.values()):
        if round_ < last:
            raise VerificationError(
                f"run {name!r:.200}: the server called round {round_ + 1} at entry {number}, after "
                f"round {last + 1}: out of order."
            )
        last = round_
    owed = sum(round_ not in receipts for round_ in updates)
    yield (
        f"run {plain(name)!r} of ledger {ledger:.12}: {plain(offer['client'])!r} committed to "
        f"level {level / LEVEL_ONE:.6f} for {payment / 10**6:,.6f} {unit} in "
        f"{all_['rounds']:,} rounds"
    )
    yield (
        f"  asked in {len(calls):,} rounds, sent {len(updates):,} updates: {accepted:,} accepted, "
        f"{len(receipts) - accepted:,} refused, {owed:,} without a receipt; paid "
        f"{paid / 10**6:,.6f} {unit} by the server's last receipt"
    )
    yield f"  signed by server {all_['server']} and client {run['commitment']['key']}"


def check_kept(books: Books, kept: list[dict[str, Any]]) -> None:
    """Check that a ledger says what a client has in writing."""
    ledgers = {message["ledger"] for message in kept} - {""}  # of some commitments it is not known
    if ledgers and books.ledger not in ledgers:
        raise VerificationError(
            f"it is the ledger {books.ledger}; what was kept is of {min(ledgers):.64}."
        )
    for message in kept:
        kind, key = message["kind"], message["signed by"]
        if message["ledger"] not in ("", books.ledger):
            continue
        if kind == "Commitment":
            if digest(message["text"]) not in books.commitments:
                raise VerificationError(
                    f"a commitment signed by the key {key} is nowhere in the ledger: a client was "
                    "left out, its answer was lost, or its run is not recorded yet."
                )
            continue
        if key not in books.keys["treasury"]:
            raise VerificationError(f"a {kind.lower()} is signed by {key}, not by the server.")
        if kind == "Head":
            number = message["number"]
            if books.hashes[number - 1 : number] != [message["hash"]]:
                raise VerificationError(
                    f"the server signed entry {number} with the hash {message['hash']:.64}, which "
                    "is not in the ledger; it was truncated or rewritten."
                )
        elif kind == "Call":
            _check_call(books, message)
        elif kind == "Ending":
            run = books.runs.get(message["run"])
            if run is None or not run.settled or run.clients:
                raise VerificationError(
                    f"the server signed that the offers of run {message['run']!r:.200} came to "
                    "nothing; the ledger says otherwise."
                )
        elif kind == "Opening":
            run = books.runs.get(message["run"])
            if run is None or (run.mixed, run.attempts) != (message["mixed"], message["attempt"]):
                raise VerificationError(
                    f"the server signed that run {message['run']!r:.200} was opened, with other "
                    "coins than the ledger has, if it has any."
                )
        elif kind == "Roster":
            found = books.rosters.get((message["run"], message["attempt"]))
            if found != message["commitments"] or message["commitment"] not in books.commitments:
                raise VerificationError(
                    f"the server signed for other commitments to run {message['run']!r:.200} than "
                    "it recorded."
                )
        else:
            _check_receipt(books, message)


def _check_call(books: Books, call: dict[str, Any]) -> None:
    """Check that a client was called in the round that came next when it was called."""
    done = books.called.get((call["number"], call["run"]))
    if done != call["round"]:
        found = (
            f"{done:,} rounds were recorded"
            if (done or 0) >= 0 and done is not None
            else ("the run was not under way")
        )
        raise VerificationError(
            f"the server called {call['client']!r:.200} for round {call['round'] + 1} of run "
            f"{call['run']!r:.200} at entry {call['number']}, when {found}."
        )


def _check_receipt(books: Books, receipt: dict[str, Any]) -> None:
    """Compare what is recorded of an update with a receipt that its client kept."""
    run, round_, client = receipt["run"], receipt["round"], receipt["client"]
    found = books.recorded.get((run, round_, client))
    if found != (receipt["update"], receipt["refused"], receipt["paid"]):
        said = f"refused: {receipt['refused']:.200}" if receipt["refused"] else "accepted"
        recorded = "nothing" if found is None or found[:2] == ("", "") else "something else"
        raise VerificationError(
            f"{client!r:.200} has a receipt for round {round_ + 1} of run {run!r:.200}, update "
            f"{receipt['update']:.64}, {said}; the ledger has {recorded}."
        )
