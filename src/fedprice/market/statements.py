"""What a ledger says, as tables: its runs, the clients of a run, and a client's statement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from fedprice.errors import InputError, nearest
from fedprice.market.money import LEVEL_ONE, money

if TYPE_CHECKING:
    from fedprice.market.ledger import Entry, Ledger
    from fedprice.verify import Run

__all__ = ["clients_of", "postings_of", "runs_of", "statement_of"]

MONEY: Any = pl.Decimal(38, 6)


def runs_of(ledger: Ledger) -> pl.DataFrame:
    """Return the runs of a ledger that verifies, one per row; later periods of a run follow it."""
    report = ledger.verify()
    rows = []
    for name, run in report.runs.items():
        clients = run.clients.values()
        left = report.balances.get(f"escrow:{name}", 0)
        rows.append(
            {
                "run": name,
                "follows": run.follows or None,
                "status": "settled" if run.settled else "open",
                "rounds": run.rounds,
                "done": run.done,
                "clients": len(run.clients),
                "budget": money(run.budget),
                "paid_out": money(sum(own.paid for own in clients if own.paid > 0)),
                "paid_in": money(-sum(own.paid for own in clients if own.paid < 0)),
                "escrow": money(left),
                "joined": sum(own.joined for own in clients),
                "missed": sum(own.missed for own in clients),
                "refused": sum(own.refused for own in clients),
                "model": run.model,
            }
        )
    schema: dict[str, Any] = dict.fromkeys(("run", "follows", "status"), pl.String)
    schema |= dict.fromkeys(("rounds", "done", "clients"), pl.Int64)
    schema |= dict.fromkeys(("budget", "paid_out", "paid_in", "escrow"), MONEY)
    schema |= dict.fromkeys(("joined", "missed", "refused"), pl.Int64) | {"model": pl.String}
    return pl.DataFrame(rows, schema=schema)


def clients_of(ledger: Ledger, run: str) -> tuple[pl.DataFrame, Run]:
    """Return the clients of a run in a ledger that verifies, one per row, and the run.

    `update_norm` is the root mean square norm of a client's accepted updates. `grad_norm` is what
    it declared, and `shown` the root mean square of the gradient norms that its updates prove,
    where learning rate and local steps are known: one that shows more has declared too little.
    """
    found, whole = ledger.verified()
    if run not in found.runs:
        hint = nearest(run, found.runs) if found.runs else "It has none yet."
        raise InputError(f"{ledger.name} has no run {run!r}. {hint}")
    entries = [e for e in whole if e.content["of"][:1] == [run] and e.content["kind"] != "deposit"]
    report, agreement = found.runs[run], entries[0].content["agreement"]
    norms: dict[str, list[float]] = {name: [] for name in report.clients}
    shown: dict[str, list[float]] = {name: [] for name in report.clients}
    for entry in entries:
        for name, (_, _, norm, gradient, _) in entry.content.get("joined", {}).items():
            norms[name].append(float(norm))
            shown[name] += [float(gradient)] if gradient else []
    rows = []
    for name, own in report.clients.items():
        declared = ""
        if agreement is not None:
            declared = json.loads(agreement["clients"][name]["commitment"])["grad_norm"]
        rows.append(
            {
                "client": name,
                "price": money(own.price),
                "level": own.level / LEVEL_ONE,
                "agreed": money(own.payment),
                "heads": own.heads,
                "joined": own.joined,
                "missed": own.missed,
                "refused": own.refused,
                "paid": money(own.paid),
                "update_norm": _root_mean_square(norms[name]),
                "grad_norm": float(declared) if declared else None,
                "shown": _root_mean_square(shown[name]),
            }
        )
    schema = {"client": pl.String, "price": MONEY, "level": pl.Float64, "agreed": MONEY}
    schema |= dict.fromkeys(("heads", "joined", "missed", "refused"), pl.Int64)
    schema |= {"paid": MONEY} | dict.fromkeys(("update_norm", "grad_norm", "shown"), pl.Float64)
    return pl.DataFrame(rows, schema=schema), report


def _root_mean_square(values: list[float]) -> float | None:
    return (sum(x * x for x in values) / len(values)) ** 0.5 if values else None


def statement_of(ledger: Ledger, client: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return all that concerns a client, one entry per row, and its runs in sum, one per row.

    `round` counts from 1: a statement is for people. `event` is deposit, opened, tails, joined,
    missed, refused or settled; `note` says what was offered and chosen, or why nothing was paid.
    """
    account, balance = f"client:{client}", 0
    rows, known = [], set[str]()
    inside: dict[str, dict[str, Any]] = {}  # by name: how the client's periods were opened
    report, whole = ledger.verified()
    for entry in whole:
        content = entry.content
        known |= {a.removeprefix("client:") for a, _ in entry.postings if a.startswith("client:")}
        if content["kind"] == "open":
            names = {name for name, *_ in content["terms"]}
            known |= names
            if client in names:
                inside[content["of"][0]] = content
        amount = sum(m for a, m in entry.postings if a == account)
        concerned = content["kind"] in ("open", "round", "settle") and content["of"][0] in inside
        if not (concerned or amount):
            continue
        balance += amount
        event, note = _event(content, client)
        of = content["of"]
        if event == "opened" and (before := inside.get(content["follows"])) is not None:
            note += f"; in the period before: {_offered(before, client)}"
        rows.append(
            {
                "entry": entry.number,
                "run": of[0] if concerned else None,
                "round": of[1] + 1 if content["kind"] == "round" else None,
                "event": event,
                "amount": money(amount),
                "balance": money(balance),
                "note": note,
            }
        )
    if not rows:
        hint = nearest(client, sorted(known)) if known else "It has none yet."
        raise InputError(f"{ledger.name} has no client {client!r}. {hint}")
    sums = [
        {
            "run": name,
            "rounds": run.done,
            "agreed": money(own.payment),
            "heads": own.heads,
            "joined": own.joined,
            "missed": own.missed,
            "refused": own.refused,
            "paid": money(own.paid),
            # What breaking its word cost it: the shares of those rounds.
            "lost": money(max(0, own.payment * run.done // run.rounds - own.paid)),
        }
        for name, run in report.runs.items()
        if (own := run.clients.get(client)) is not None
    ]
    schema = {"run": pl.String, "rounds": pl.Int64, "agreed": MONEY}
    schema |= dict.fromkeys(("heads", "joined", "missed", "refused"), pl.Int64)
    schema |= {"paid": MONEY, "lost": MONEY}
    details = {"entry": pl.Int64, "run": pl.String, "round": pl.Int64, "event": pl.String}
    details |= {"amount": MONEY, "balance": MONEY, "note": pl.String}
    return pl.DataFrame(rows, schema=details), pl.DataFrame(sums, schema=schema)


def _event(content: dict[str, Any], client: str) -> tuple[str, str]:
    kind = content["kind"]
    if kind == "deposit":
        return "deposit", str(content["reference"])
    if kind == "settle":
        return "settled", f"after {content['rounds']} rounds"
    if kind == "open":
        return "opened", _offered(content, client)
    if client in content["refused"]:
        return "refused", str(content["refused"][client])
    if client in content["missed"]:
        return "missed", "drew heads, and sent nothing; paid nothing for this round"
    if client in content["joined"]:
        weight = content["joined"][client][1]
        return "joined", f"weight {float(weight):.4g}"
    return "tails", ""


def _offered(content: dict[str, Any], client: str) -> str:
    """Return what a client was offered for a period, and chose."""
    _, price, level, _ = next(terms for terms in content["terms"] if terms[0] == client)
    offered = f"offered a price of {money(price)}"
    if content["agreement"] is not None:
        offer = json.loads(content["agreement"]["clients"][client]["offer"])
        offered += f" up to level {offer['level_cap'] / LEVEL_ONE:.6f}"
    chose = f"chose level {level / LEVEL_ONE:.6f}"
    return f"{offered} for {content['rounds']} rounds, {chose}"


def postings_of(chain: list[Entry]) -> pl.DataFrame:
    """Return the postings of a ledger, one per row; `of` counts rounds from 0, like the entries."""
    rows = [
        {
            "entry": entry.number,
            "kind": entry.content["kind"],
            "of": " ".join(map(str, entry.content["of"])),
            "account": account,
            "amount": money(amount),
            "hash": entry.hash,
        }
        for entry in chain
        for account, amount in entry.postings
    ]
    schema = {"entry": pl.Int64, "kind": pl.String, "of": pl.String, "account": pl.String}
    return pl.DataFrame(rows, schema=schema | {"amount": MONEY, "hash": pl.String})
