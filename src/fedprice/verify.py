"""Check an exported ledger without trusting whoever wrote it: `python verify.py EXPORT`.

This file stands alone. It imports nothing of the package that writes ledgers, and derives again,
from what server and clients signed, who had to join each round, the weight of each update, every
payment, every balance and the chain of hashes. Signatures are checked with the library
`cryptography`; without it, that is said.

An export is a text file with one entry a line, as JSON: `number`, `content`, `postings` (account
and micro-units) and `hash` = SHA-256(previous hash, number, content, postings).
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Report", "VerificationError", "check_entries", "check_export", "main"]

GENESIS = "0" * 64
LEVEL_ONE = 1 << 32
LARGEST = (1 << 62) + 1
Posting = tuple[str, int]


class VerificationError(Exception):
    """The ledger is not what an honest market would have written; the text says where."""


@dataclass
class Client:
    """A client of a run: its terms, its coins, and what happened to it."""

    price: int
    level: int
    samples: int
    coin_key: bytes | None = None
    heads: int = 0
    joined: int = 0
    missed: int = 0
    refused: int = 0
    paid: int = 0

    @property
    def payment(self) -> int:
        """Price × level in micro-units, halves to even."""
        return round(Fraction(self.price * self.level, LEVEL_ONE))


@dataclass
class Run:
    """A run: its clients, and how far it got."""

    rounds: int
    budget: int
    clients: dict[str, Client]
    done: int = 0
    settled: bool = False
    coins: bool = False
    model: str = ""


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


def check_export(path: str | Path) -> Report:
    """Check an exported ledger; raises `VerificationError`, or OSError if it cannot be read."""

    def lines() -> Iterator[dict[str, Any]]:
        with Path(path).open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    entry = json.loads(line)
                    known = isinstance(entry, dict) and set(entry) == {
                        "number", "content", "postings", "hash",
                    }  # fmt: skip
                except (ValueError, RecursionError):
                    known = False
                if not known:
                    raise VerificationError(f"line {number} of {path} is no entry of a ledger.")
                yield entry

    try:
        return check_entries(lines())
    except UnicodeDecodeError:
        raise VerificationError(f"{path} is no exported ledger.") from None


def check_entries(entries: Iterable[dict[str, Any]]) -> Report:
    """Check the entries of a ledger, the first one first."""
    report = Report()
    for number, entry in enumerate(entries, start=1):
        where = f"entry {number}"
        try:
            _check_entry(report, entry, number, where)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
            raise VerificationError(f"{where} is not of the form of an entry.") from None
    if not report.hashes:
        raise VerificationError("there is no entry.")
    return report


def _check_entry(report: Report, entry: dict[str, Any], number: int, where: str) -> None:
    content, lines = entry["content"], [_posting(line) for line in entry["postings"]]
    if entry["number"] != number:
        _fail(where, "number", number, entry["number"])
    previous = report.hashes[-1] if report.hashes else GENESIS
    text = f"{previous}\n{number}\n{_canonical(content)}\n{_canonical(entry['postings'])}"
    chained = hashlib.sha256(text.encode()).hexdigest()
    if entry["hash"] != chained:
        _fail(where, "hash", chained, entry["hash"])
    kind, of = content["kind"], content["of"]
    where = f"{where} ({' '.join(map(str, [kind, *of]))})"
    if (kind == "begin") != (number == 1):
        raise VerificationError(f"{where} is in the wrong place.")
    if kind == "begin":
        report.unit, expected = str(content["unit"]), []
    elif kind == "deposit":
        expected = _deposited(report, content, lines, where)
    elif kind == "open":
        expected = _opened(report, of[0], content, where)
    elif kind == "round":
        expected = _round(_run(report, of[0], where), of, content, where)
    elif kind == "settle":
        expected = _settled(report, _run(report, of[0], where), of[0], content, where)
    else:
        raise VerificationError(f"{where} is of an unknown kind.")
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
            raise VerificationError(f"{where} overdraws {account}.")
    report.hashes.append(chained)


def _deposited(
    report: Report, content: dict[str, Any], lines: list[Posting], where: str
) -> list[Posting]:
    account, reference = content["account"], content["reference"]
    (_, amount) = lines[-1]
    if amount <= 0 or content["of"] != [account, reference]:
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
    if len(run.clients) != len(content["terms"]) or run.rounds < 1:
        raise VerificationError(f"{where} names a client twice, or has no rounds.")
    if content["agreement"] is not None:
        _check_agreement(report, name, run, content["agreement"], where)
    if sum(own.payment for own in run.clients.values()) > run.budget:
        raise VerificationError(f"{where} promises more than its budget.")
    report.runs[name] = run
    lines = [("treasury", -run.budget), (f"escrow:{name}", run.budget)] if run.budget else []
    for client, own in run.clients.items():
        if own.payment < 0:
            own.paid = own.payment
            lines += [(f"client:{client}", own.payment), (f"escrow:{name}", -own.payment)]
    return lines


def _check_agreement(
    report: Report, name: str, run: Run, agreement: dict[str, Any], where: str
) -> None:
    """Check that the terms are what both sides signed, and derive the keys of the coins."""
    run.coins = True
    schema = hashlib.sha256(_canonical(agreement["schema"]).encode()).hexdigest()
    if set(agreement["clients"]) != set(run.clients):
        raise VerificationError(f"{where}: its terms and its agreement name different clients.")
    for client, deal in agreement["clients"].items():
        own, which = run.clients[client], f"{where}, {client!r}"
        offer, commitment = json.loads(deal["offer"]), json.loads(deal["commitment"])
        secret = bytes.fromhex(deal["secret"])
        opened = hashlib.sha256(b"fedprice coin secret\0" + secret).hexdigest()
        for what, expected, found in (
            ("offer", ["Offer", name, client], [offer[k] for k in ("kind", "run", "client")]),
            ("rounds of the offer", run.rounds, offer["rounds"]),
            ("price", offer["price"], own.price),
            ("unit", report.unit, offer["unit"]),
            ("model schema", schema, offer["schema"]),
            ("server's coin secret", offer["coin_hash"], opened),
            ("commitment", "Commitment", commitment["kind"]),
            ("offer committed to", _sha(deal["offer"]), commitment["offer"]),
            ("level", commitment["level"], own.level),
        ):
            if expected != found:
                _fail(which, what, expected, found)
        if not 0 <= own.level <= offer["level_cap"] <= LEVEL_ONE:
            raise VerificationError(f"{which}: its level is above the cap of its offer.")
        _check_signature(report, agreement["server"], deal, "offer", which)
        _check_signature(report, deal["key"], deal, "commitment", which)
        other = bytes.fromhex(commitment["secret"])
        own.coin_key = hmac.digest(secret, b"fedprice coins\0" + other, "sha256")


def _check_signature(report: Report, key: str, deal: dict[str, Any], what: str, where: str) -> None:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ModuleNotFoundError:
        report.unchecked += 1
        return
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)).verify(
            bytes.fromhex(deal[f"{what}_signature"]), deal[what].encode()
        )
    except InvalidSignature:
        raise VerificationError(f"{where}: the signature of its {what} is not valid.") from None
    report.signatures += 1


def _round(run: Run, of: list[Any], content: dict[str, Any], where: str) -> list[Posting]:
    name, number = of
    if run.settled or number != run.done or number >= run.rounds:
        raise VerificationError(f"{where} does not follow: {run.done} of {run.rounds} are there.")
    joined, missed, refused = content["joined"], content["missed"], content["refused"]
    drew = [*joined, *missed, *refused]
    if len(set(drew)) != len(drew) or not set(drew) <= set(run.clients):
        raise VerificationError(f"{where} names a client twice, or one that is not in the run.")
    total = sum(own.samples for own in run.clients.values())
    pay: list[Posting] = []
    for client, own in run.clients.items():
        came = client in joined
        heads = came or client in missed or client in refused
        if own.coin_key is not None and heads != _heads(own, name, number):
            shown = "heads" if not heads else "tails"
            _fail(f"{where}, {client!r}", "coin", shown, "tails" if heads else "heads")
        if came:
            weight = (own.samples / total) / (
                own.level / LEVEL_ONE * ((own.joined + 1) / (own.heads + 1))
            )
            if joined[client][1] != repr(weight):
                _fail(f"{where}, {client!r}", "weight", repr(weight), joined[client][1])
        own.heads += heads
        own.joined += came
        own.missed += client in missed
        own.refused += client in refused
        if own.payment > 0 and (came or not heads):
            share = own.payment * (number + 1) // run.rounds - own.payment * number // run.rounds
            own.paid += share
            if share:
                pay.append((f"client:{client}", share))
    run.done, run.model = number + 1, str(content["model"])
    spent = sum(amount for _, amount in pay)
    return [(f"escrow:{name}", -spent), *pay] if pay else []


def _heads(client: Client, run: str, round_: int) -> bool:
    message = run.encode() + b"\0" + round_.to_bytes(8, "big")
    drawn = hmac.digest(client.coin_key or b"", message, "sha256")
    return int.from_bytes(drawn[:8], "big") < client.level << 32


def _settled(
    report: Report, run: Run, name: str, content: dict[str, Any], where: str
) -> list[Posting]:
    if run.settled or content["rounds"] != run.done:
        raise VerificationError(f"{where}: {run.done} rounds are there, or it was settled before.")
    run.settled = True
    back: list[Posting] = []
    for client, own in run.clients.items():
        owed = -own.payment
        if owed > 0 and run.done < run.rounds:
            refund = owed - owed * run.done // run.rounds
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


def _posting(line: list[Any]) -> Posting:
    account, amount = line
    if type(account) is not str or type(amount) is not int or not -LARGEST < amount < LARGEST:
        raise ValueError(line)
    return account, amount


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(value)
    return value


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _fail(where: str, what: str, expected: object, found: object) -> NoReturn:
    raise VerificationError(f"{where}: {what} must be {expected!r}; found {found!r}.")


def describe(report: Report, client: str | None = None) -> Iterator[str]:
    """Yield lines that say what was found, of all clients or of one."""
    unit = report.unit
    for name, run in report.runs.items():
        own = {n: c for n, c in run.clients.items() if client in (None, n)}
        heads, joined, missed, refused, paid = (
            sum(getattr(c, what) for c in own.values())
            for what in ("heads", "joined", "missed", "refused", "paid")
        )
        whose = f"{len(own)} clients" if client is None else repr(client)
        coins = "all coins as drawn" if run.coins else "no shared coins"
        if own:
            yield (
                f"run {name!r}, {whose}: {run.done} of {run.rounds} rounds, {heads} heads, "
                f"{joined} joined, {missed} missed, {refused} refused, {coins}; "
                f"{'paid out' if paid >= 0 else 'paid in'} {abs(paid) / 1e6:,.6f} {unit}"
            )
    signed = f"{report.signatures} signatures valid"
    if report.unchecked:
        signed = f"{report.unchecked} signatures not checked (pip install cryptography)"
    yield f"verified: {len(report.hashes)} entries, {signed}, head {report.hashes[-1]}"


def main(arguments: list[str] | None = None) -> int:
    """Check an export from the command line; 0 if it verifies, 4 if not, 2 if it is not there."""
    parser = argparse.ArgumentParser(prog="verify", description="Check an exported ledger.")
    parser.add_argument("export", metavar="EXPORT", help="what `fedprice ledger export` wrote")
    parser.add_argument("--client", metavar="NAME", help="show one client only")
    given = parser.parse_args(arguments)
    try:
        report = check_export(given.export)
    except (VerificationError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        sys.stderr.write(f"{given.export}: {reason}\n")
        return 2 if isinstance(error, OSError) else 4
    names = {name for run in report.runs.values() for name in run.clients}
    if given.client not in {None, *names}:
        sys.stderr.write(f"{given.export}: no run has a client {given.client!r}.\n")
        return 2
    for line in describe(report, given.client):
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
