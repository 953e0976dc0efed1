"""Check an exported ledger without trusting whoever wrote it: `python verify.py EXPORT`.

This file stands alone. It imports nothing of the package that writes ledgers, and derives again,
from what server and clients signed, who had to join each round, the weight of each update, every
payment, every balance and the chain of hashes. Signatures are checked with the library
`cryptography`; without it, that is said.

An export is a text file with one entry a line, as canonical JSON: `number`, `content`, `postings`
(account and micro-units) and `hash` = SHA-256(previous hash, number, content, postings).
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "Report",
    "VerificationError",
    "check_entries",
    "check_export",
    "describe",
    "entry_title",
    "main",
]

GENESIS = "0" * 64
LEVEL_ONE = 1 << 32
LARGEST = 1 << 62
LEAST_DELIVERY = 0.25
FIELDS = {
    "begin": {"unit"},
    "deposit": {"account", "reference"},
    "open": {"rounds", "budget", "terms", "follows", "agreement"},
    "round": {"model", "joined", "missed", "refused", "state"},
    "settle": {"rounds"},
}
_INNER = bytes(b ^ 0x36 for b in range(256))
_OUTER = bytes(b ^ 0x5C for b in range(256))
Posting = tuple[str, int]


class VerificationError(Exception):
    """The ledger is not what an honest market would have written; the text says where."""


@dataclass
class Client:
    """A client of a run: its terms, its keys, and what happened to it."""

    price: int
    level: int
    samples: int
    key: str = ""
    coin_key: bytes | None = None
    heads: int = 0
    joined: int = 0
    missed: int = 0
    refused: int = 0
    paid: int = 0

    @cached_property
    def payment(self) -> int:
        """Price × level in micro-units, halves to even."""
        return round(Fraction(self.price * self.level, LEVEL_ONE))

    def prepare(self, run: str) -> None:
        """Key the two halves of HMAC-SHA256 once for all coins of a run."""
        block = (self.coin_key or b"").ljust(64, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER) + run.encode() + b"\0")
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def drew_heads(self, round_: int) -> bool:
        """Return whether the coin of a round shows heads."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(round_.to_bytes(8, "big"))
        outer.update(inner.digest())
        return int.from_bytes(outer.digest()[:8], "big") < self.level << 32


@dataclass
class Run:
    """A run: its clients, and how far it got."""

    rounds: int
    budget: int
    clients: dict[str, Client]
    server: str = ""
    done: int = 0
    settled: bool = False
    state: bool = False
    model: str = ""
    follows: str = ""
    run_rounds: int = 0
    updates: set[str] = field(default_factory=set)


@dataclass
class Report:
    """What was found in a ledger that verifies."""

    unit: str = ""
    hashes: list[str] = field(default_factory=list)
    balances: dict[str, int] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    deposits: set[tuple[str, str]] = field(default_factory=set)
    signatures: int = 0
    unchecked: int = 0


def check_export(path: str | Path, head: str | None = None) -> Report:
    """Check an exported ledger; raises `VerificationError`, or OSError if it cannot be read."""

    def lines() -> Iterator[dict[str, Any]]:
        with Path(path).open(encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                try:
                    entry = json.loads(line)
                    sound = isinstance(entry, dict) and _canonical(entry) + "\n" == line
                except (ValueError, RecursionError):
                    sound = False
                if not sound or set(entry) != {"number", "content", "postings", "hash"}:
                    raise VerificationError(f"line {number} is no entry of an exported ledger.")
                yield entry

    try:
        return check_entries(lines(), head)
    except UnicodeDecodeError:
        raise VerificationError("this is no exported ledger.") from None


def check_entries(entries: Iterable[dict[str, Any]], head: str | None = None) -> Report:
    """Check the entries of a ledger, the first one first.

    Parameters
    ----------
    head
        The hash of an entry that must be there: what somebody kept as proof.
    """
    report = Report()
    for number, entry in enumerate(entries, start=1):
        where = f"entry {number}"
        try:
            _check_entry(report, entry, number, where)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            raise VerificationError(f"{where} is not of the form of an entry.") from None
        except RecursionError:
            raise VerificationError(f"{where} is not of the form of an entry.") from None
    if not report.hashes:
        raise VerificationError("there is no entry.")
    if head is not None and head not in report.hashes:
        raise VerificationError(
            f"no entry has the hash {head}; the ledger was cut short or written anew."
        )
    return report


def entry_title(kind: str, of: list[Any]) -> str:
    """Return what an entry is about, for people: rounds count from 1, in the entry from 0.

    >>> entry_title("round", ["first", 0]), entry_title("open", ["first"])
    ("round 1 of run 'first'", 'open first')
    """
    if kind == "round":
        name, number = of
        return f"round {_whole(number) + 1} of run {name!r}"
    return " ".join(map(str, [kind, *of]))


def _check_entry(report: Report, entry: dict[str, Any], number: int, where: str) -> None:
    content, lines = entry["content"], [_posting(line) for line in entry["postings"]]
    if _whole(entry["number"]) != number:
        _fail(where, "number", number, entry["number"])
    previous = report.hashes[-1] if report.hashes else GENESIS
    text = f"{previous}\n{number}\n{_canonical(content)}\n{_canonical(entry['postings'])}"
    chained = hashlib.sha256(text.encode()).hexdigest()
    if entry["hash"] != chained:
        _fail(where, "hash", chained, entry["hash"])
    kind, of = content["kind"], content["of"]
    where = f"{where} ({_plain(entry_title(kind, of))})"
    if kind not in FIELDS:
        raise VerificationError(f"{where} is of an unknown kind.")
    if set(content) != FIELDS[kind] | {"kind", "of"}:
        raise VerificationError(f"{where} has not the fields of its kind.")
    if (kind == "begin") != (number == 1):
        raise VerificationError(f"{where} is in the wrong place.")
    if kind == "begin":
        report.unit, expected = str(content["unit"]), []
    elif kind == "deposit":
        expected = _deposited(report, content, lines, where)
    elif kind == "open":
        (name,) = of
        expected = _opened(report, name, content, where)
    elif kind == "round":
        name, round_ = of
        expected = _round(report, name, _whole(round_), content, where)
    else:
        (name,) = of
        expected = _settled(report, name, content, where)
    if lines != expected:
        odd = next(
            (pair for pair in zip(expected, lines, strict=False) if pair[0] != pair[1]),
            (f"{len(expected)} postings", f"{len(lines)}"),
        )
        _fail(where, "posting", *odd)
    if sum(amount for _, amount in lines) != 0:
        raise VerificationError(f"{where}: its postings do not add up to 0.")
    for account, amount in lines:
        report.balances[account] = report.balances.get(account, 0) + amount
    for account, _ in lines:
        if report.balances[account] < 0 and account != "world":
            raise VerificationError(f"{where} overdraws {_plain(account)}.")
    report.hashes.append(chained)


def _deposited(
    report: Report, content: dict[str, Any], lines: list[Posting], where: str
) -> list[Posting]:
    account, reference = content["account"], content["reference"]
    amount = lines[-1][1] if lines else 0
    known = account == "treasury" or account.startswith("client:")
    if amount <= 0 or not known or content["of"] != [account, reference]:
        raise VerificationError(f"{where} is no deposit.")
    if (account, reference) in report.deposits:
        raise VerificationError(f"{where} was made before.")
    report.deposits.add((account, reference))
    return [("world", -amount), (account, amount)]


def _opened(report: Report, name: str, content: dict[str, Any], where: str) -> list[Posting]:
    if name in report.runs:
        raise VerificationError(f"{where}: the run was opened before.")
    run = Run(_whole(content["rounds"]), _whole(content["budget"]), {})
    for client, price, level, samples in content["terms"]:
        run.clients[client] = Client(_whole(price), _whole(level), _whole(samples))
        if not (0 <= level <= LEVEL_ONE and samples >= 0 and abs(price) <= LARGEST):
            raise VerificationError(f"{where}: the terms of {client!r} are out of bounds.")
    if len(run.clients) != len(content["terms"]) or run.rounds < 1:
        raise VerificationError(f"{where} names a client twice, or has no rounds.")
    run.follows = content["follows"]
    _check_period(report, name, run.follows, where)
    if content["agreement"] is not None:
        _check_agreement(report, name, run, content["agreement"], where)
    if run.follows:
        before = report.runs[run.follows]
        for what, expected, found in (
            ("server", before.server, run.server),
            ("rounds of the whole run", before.run_rounds, run.run_rounds),
        ):
            if expected != found:
                _fail(where, what, expected, found)
        run.updates = before.updates  # a copy of an earlier period's update is one, too
    if sum(own.payment for own in run.clients.values()) > run.budget:
        raise VerificationError(f"{where} promises more than its budget.")
    report.runs[name] = run
    escrow = f"escrow:{name}"
    lines = [("treasury", -run.budget), (escrow, run.budget)] if run.budget > 0 else []
    for client, own in run.clients.items():
        if own.payment < 0:
            own.paid = own.payment
            lines += [(f"client:{client}", own.payment), (escrow, -own.payment)]
    return lines


def _check_period(report: Report, name: str, follows: str, where: str) -> None:
    """Check that a period follows the one before it in its run, which is over.

    The second period of the run x is called x#2, the third x#3.
    """
    chain, _, number = name.rpartition("#")
    later = bool(chain) and number.isascii() and number.isdigit()
    expected = ""
    if later:
        expected = chain if number == "2" else f"{chain}#{int(number) - 1}"
        if int(number) < 2 or str(int(number)) != number:
            raise VerificationError(f"{where}: there is no such period.")
    if follows != expected:
        _fail(where, "period before it", expected, follows)
    if expected and not _run(report, expected, where).settled:
        raise VerificationError(f"{where}: the period before it is not settled.")


def _check_agreement(
    report: Report, name: str, run: Run, agreement: dict[str, Any], where: str
) -> None:
    """Check that the terms are what both sides signed, and derive the keys of the coins."""
    run.server = agreement["server"]
    if set(agreement["clients"]) != set(run.clients):
        raise VerificationError(f"{where}: its terms and its agreement name different clients.")
    schemas = set()
    for client, deal in agreement["clients"].items():
        own, which = run.clients[client], f"{where}, {client!r}"
        offer, commitment = _message(deal["offer"]), _message(deal["commitment"])
        secret = bytes.fromhex(deal["secret"])
        opened = hashlib.sha256(b"fedprice coin secret\0" + secret).hexdigest()
        for what, expected, found in (
            ("offer", ["Offer", name, client], [offer[k] for k in ("kind", "run", "client")]),
            ("rounds of the offer", run.rounds, offer["rounds"]),
            ("period before it in the offer", run.follows, offer["follows"]),
            ("price", offer["price"], own.price),
            ("unit", report.unit, offer["unit"]),
            ("server's coin secret", offer["coin_hash"], opened),
            ("commitment", "Commitment", commitment["kind"]),
            ("offer committed to", _sha(deal["offer"]), commitment["offer"]),
            ("level", commitment["level"], own.level),
            ("samples", commitment["samples"], own.samples),
        ):
            if expected != found:
                _fail(which, what, expected, found)
        if not 0 <= own.level <= _whole(offer["level_cap"]) <= LEVEL_ONE:
            raise VerificationError(f"{which}: its level is above the cap of its offer.")
        _check_signature(report, run.server, deal["offer_signature"], deal["offer"], which)
        _check_signature(
            report, deal["key"], deal["commitment_signature"], deal["commitment"], which
        )
        other = bytes.fromhex(commitment["secret"])
        own.key = deal["key"]
        own.coin_key = hmac.digest(secret, b"fedprice coins\0" + other, "sha256")
        own.prepare(name)
        schemas.add((_canonical(offer["schema"]), offer["task"], _whole(offer["run_rounds"])))
    if len(schemas) > 1:
        raise VerificationError(f"{where}: clients were offered different models, tasks or runs.")
    run.run_rounds = next(iter(schemas))[2] if schemas else 0


def _check_signature(report: Report, key: str, signature: str, text: str, where: str) -> None:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        report.unchecked += 1
        return
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        public.verify(bytes.fromhex(signature), text.encode())
    except InvalidSignature:
        what = json.loads(text)["kind"].lower()
        raise VerificationError(f"{where}: the signature of its {what} is not valid.") from None
    report.signatures += 1


def _round(
    report: Report, name: str, number: int, content: dict[str, Any], where: str
) -> list[Posting]:
    run = _run(report, name, where)
    if run.settled or number != run.done or number >= run.rounds:
        raise VerificationError(f"{where} does not follow: {run.done} of {run.rounds} are there.")
    joined, missed, refused = content["joined"], set(content["missed"]), content["refused"]
    drew = [*joined, *content["missed"], *refused]
    if len(set(drew)) != len(drew) or not set(drew) <= set(run.clients):
        raise VerificationError(f"{where} names a client twice, or one that is not in the run.")
    if not _is_hash(content["model"]) or type(content["state"]) is not bool:
        raise VerificationError(f"{where} names no model.")
    total = sum(own.samples for own in run.clients.values())
    pay: list[Posting] = []
    for client, own in run.clients.items():
        came = client in joined
        heads = came or client in missed or client in refused
        if own.coin_key is not None and heads != own.drew_heads(number):
            shown, said = ("tails", "heads") if heads else ("heads", "tails")
            _fail(f"{where}, {client!r}", "coin", shown, said)
        if came:
            _check_update(report, run, name, number, client, joined[client], total, where)
        own.heads += heads
        own.joined += came
        own.missed += client in missed
        own.refused += client in refused
        if own.payment > 0 and (came or not heads):
            share = own.payment * (number + 1) // run.rounds - own.payment * number // run.rounds
            own.paid += share
            if share:
                pay.append((f"client:{client}", share))
    run.done, run.model, run.state = number + 1, content["model"], content["state"]
    spent = sum(amount for _, amount in pay)
    return [(f"escrow:{name}", -spent), *pay] if pay else []


def _check_update(
    report: Report,
    run: Run,
    name: str,
    number: int,
    client: str,
    recorded: list[str],
    total: int,
    where: str,
) -> None:
    """Check an accepted update: its weight, its signature, and that it is no copy."""
    own, which = run.clients[client], f"{where}, {client!r}"
    update, weight, norm, shown, signature = recorded
    delivery = max((own.joined + 1) / (own.heads + 1), LEAST_DELIVERY)
    expected = repr((own.samples / total) / (own.level / LEVEL_ONE * delivery))
    if weight != expected:
        _fail(which, "weight", expected, weight)
    if not _is_hash(update) or not all(0 <= float(x) < float("inf") for x in (norm, shown or 0)):
        raise VerificationError(f"{which}: this is no update.")
    if own.key:
        if update in run.updates:
            raise VerificationError(f"{which}: its update is a copy of an earlier one.")
        run.updates.add(update)
        content = {
            "arrays": update,
            "client": client,
            "kind": "Update",
            "round": number,
            "run": name,
        }
        _check_signature(report, own.key, signature, _canonical(content), which)


def _settled(report: Report, name: str, content: dict[str, Any], where: str) -> list[Posting]:
    run = _run(report, name, where)
    if run.settled or _whole(content["rounds"]) != run.done:
        raise VerificationError(f"{where}: {run.done} rounds are there, or it was settled before.")
    run.settled = True
    back: list[Posting] = []
    for client, own in run.clients.items():
        refund = -own.payment * (run.rounds - run.done) // run.rounds
        if refund > 0:
            own.paid += refund
            back.append((f"client:{client}", refund))
    left = report.balances.get(f"escrow:{name}", 0)
    rest = left - sum(amount for _, amount in back)
    lines = [(f"escrow:{name}", -left), *back, ("treasury", rest)]
    return [(account, amount) for account, amount in lines if amount]


def _run(report: Report, name: str, where: str) -> Run:
    if name not in report.runs:
        raise VerificationError(f"{where}: the run was not opened.")
    return report.runs[name]


def _message(text: str) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(text)
    if _canonical(message) != text:
        raise ValueError(text)
    return message


def _posting(line: list[Any]) -> Posting:
    account, amount = line
    if type(account) is not str or type(amount) is not int or not -LARGEST <= amount <= LARGEST:
        raise ValueError(line)
    return account, amount


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _is_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _fail(where: str, what: str, expected: object, found: object) -> NoReturn:
    raise VerificationError(f"{where}: {what} must be {expected!r}; found {found!r:.100}.")


def check_keys(report: Report, client: str | None, key: str | None, server: str | None) -> None:
    """Check that what was signed was signed by the keys that somebody knows to be theirs."""
    for name, run in report.runs.items():
        own = run.clients.get(client or "")
        if client is not None and own is None:
            continue
        for whose, known, found in (
            (f"the client {client!r}", key, "" if own is None else own.key),
            ("the server", server, run.server),
        ):
            if known is not None and known != found:
                said = f"signed by the key {found}" if found else "not signed"
                raise VerificationError(
                    f"run {_plain(name)!r} is {said}, not by {whose} with the key {known}."
                )


def describe(report: Report, client: str | None = None) -> Iterator[str]:
    """Yield lines that say what was found, of all clients or of one."""
    unit = report.unit

    def money(units: int) -> str:
        return f"{units // 10**6:,}.{units % 10**6:06d} {unit}"

    for name, run in report.runs.items():
        clients = {n: c for n, c in run.clients.items() if client in (None, n)}
        if not clients:
            continue
        own = clients.values()
        counts = ", ".join(
            f"{sum(getattr(c, what) for c in own):,} {what}"
            for what in ("heads", "joined", "missed", "refused")
        )
        whose = f"{len(own)} client{'s' * (len(own) > 1)}" if client is None else f"{client!r}"
        yield f"run {_plain(name)!r}, {whose}: {run.done} of {run.rounds} rounds, {counts}"
        if client is not None:
            (one,) = own
            side = "for" if one.payment >= 0 else "to be paid in:"
            yield (
                f"  agreed: level {one.level / LEVEL_ONE:.6f} at a price of "
                f"{one.price / 10**6:.6f} {unit}, {side} {money(abs(one.payment))} in "
                f"{run.rounds} rounds"
            )
        paid = sum(c.paid for c in own if c.paid > 0)
        yield f"  paid out {money(paid)}, paid in {money(-sum(c.paid for c in own if c.paid < 0))}"
        if not run.server:
            yield "  NOBODY SIGNED this run: no agreement, no shared coins"
        else:
            signed = f"server {run.server}"
            if client is not None:
                signed = f"client {clients[client].key}, {signed}"
            yield f"  coins and weights are right for what was signed by: {signed}"
    signed = f"{report.signatures:,} signatures valid"
    if report.unchecked:
        signed = f"{report.unchecked:,} signatures NOT CHECKED (pip install cryptography)"
    yield f"verified: {len(report.hashes):,} entries, {signed}, head {report.hashes[-1]}"


def is_hash(text: str) -> str:
    """Return a hash or key from the command line; refuse what is none."""
    if not _is_hash(text):
        raise argparse.ArgumentTypeError(f"64 hexadecimal digits are wanted; got {text!r}")
    return text


def main(arguments: list[str] | None = None) -> int:
    """Check an export from the command line; 0 if it verifies, 4 if not, 2 if it is not there."""
    parser = argparse.ArgumentParser(prog="verify", description="Check an exported ledger.")
    parser.add_argument("export", metavar="EXPORT", help="what `fedprice ledger export` wrote")
    parser.add_argument("--client", metavar="NAME", help="show one client only")
    parser.add_argument("--key", metavar="HEX", type=is_hash, help="that client's public key")
    parser.add_argument("--server", metavar="HEX", type=is_hash, help="the server's public key")
    parser.add_argument("--head", metavar="HASH", type=is_hash, help="an entry that must be there")
    given = parser.parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        report = check_export(given.export, given.head)
        names = {name for run in report.runs.values() for name in run.clients}
        if given.client not in {None, *names}:
            sys.stderr.write(f"{given.export}: no run has a client {given.client!r}.\n")
            return 2
        check_keys(report, given.client, given.key, given.server)
        for line in describe(report, given.client):
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except VerificationError as error:
        sys.stderr.write(f"{given.export} does not verify: {error}\n")
        return 4
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        sys.stderr.write(f"cannot read {given.export}: {error.strerror}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
