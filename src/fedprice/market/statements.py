"""What a ledger says, as tables: its runs, the clients of a run, and a client's statement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from fedprice.errors import InputError, nearest
from fedprice.market.money import LEVEL_ONE, money
from fedprice.market.tariffs import Tariff

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedprice.market.ledger import Entry, Ledger
    from fedprice.verify import Books, Client, Run

__all__ = [
    "Undelivered",
    "clients_of",
    "entries_of",
    "no_client",
    "part_of",
    "postings_of",
    "runs_of",
    "runs_with",
    "statement_of",
    "tariff_of",
    "undelivered_in",
]

MONEY: Any = pl.Decimal(38, 6)
SENT_NOTHING = "selected, but sent no update"
MOST_ROUNDS = 12  # named on a page, in a line of why nothing was paid
OVER = 4.0  # declared over shown, in multiples of the median; honest clients reach 3.9


@dataclass(frozen=True)
class Undelivered:
    """Heads of a client that it was not paid for, and why: it missed them, or was refused."""

    event: str
    why: str
    rounds: tuple[int, ...]  # counted from 1

    def __str__(self) -> str:
        return self.sentence(MOST_ROUNDS)

    def sentence(self, most: int) -> str:
        """Return it as a sentence that names so many rounds at most.

        >>> Undelivered("refused", "its norm is too large", (3, 7)).sentence(12)
        'Refused in rounds 3 and 7: its norm is too large.'
        """
        shown = [f"{round_:,}" for round_ in self.rounds[:most]]
        if more := len(self.rounds) - len(shown):
            shown.append(f"{more:,} more")
        listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
        word = "rounds" if len(self.rounds) > 1 else "round"
        return f"{self.event.capitalize()} in {word} {listed}: {self.why.rstrip('.')}."


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
    rows += [
        {
            "run": name,
            "follows": made.conditions["follows"] or None,
            "status": "offered",
            "rounds": made.conditions["rounds"],
            "done": 0,
            "clients": len(made.offers),
        }
        for name, made in report.offered.items()
    ]
    schema: dict[str, Any] = dict.fromkeys(("run", "follows", "status"), pl.String)
    schema |= dict.fromkeys(("rounds", "done", "clients"), pl.Int64)
    schema |= dict.fromkeys(("budget", "paid_out", "paid_in", "escrow"), MONEY)
    schema |= dict.fromkeys(("joined", "missed", "refused"), pl.Int64) | {"model": pl.String}
    return pl.DataFrame(rows, schema=schema)


def clients_of(ledger: Ledger, run: str) -> tuple[pl.DataFrame, Run]:
    """Return the clients of a run in a ledger that verifies, one per row, and the run.

    `update_norm` is the root mean square norm of a client's accepted updates. `grad_norm` is what
    it declared, and `shown` the root mean square of the gradient norms that its updates prove,
    where learning rate and local steps are known: for SGD without momentum, and models without
    batch normalisation. `declared` compares the two where both are there: "below shown", or "far
    above shown" if the ratio of declared to shown is more than four times the fleet's median. It is
    a hint, not a proof, since honest clients differ, too. `tariff` says in words what was offered
    where that was more than one `price`.
    """
    found, whole = ledger.verified()
    if run not in found.runs:
        hint = nearest(run, found.runs) if found.runs else "It has none yet."
        raise InputError(f"{ledger.name} has no run {run!r}. {hint}")
    report = found.runs[run]
    norms: dict[str, list[float]] = {name: [] for name in report.clients}
    shown: dict[str, list[float]] = {name: [] for name in report.clients}
    rounds = (
        e.content for e in whole if e.content["kind"] == "round" and e.content["of"][0] == run
    )
    for content in rounds:
        for name, (_, _, norm, gradient, *_) in content["joined"].items():
            norms[name].append(float(norm))
            shown[name] += [float(gradient)] if gradient else []
    rows = []
    for name, own in report.clients.items():
        rows.append(
            {
                "client": name,
                "price": money(own.tariff[0][1]) if _is_price(own) else None,
                "level": own.level / LEVEL_ONE,
                "agreed": money(own.payment),
                "heads": own.heads,
                "joined": own.joined,
                "missed": own.missed,
                "refused": own.refused,
                "paid": money(own.paid),
                "update_norm": _root_mean_square(norms[name]),
                "grad_norm": float(own.grad_norm) if own.grad_norm else None,
                "shown": _root_mean_square(shown[name]),
                "tariff": None if _is_price(own) else str(tariff_of(own)),
            }
        )
    schema = {"client": pl.String, "price": MONEY, "level": pl.Float64, "agreed": MONEY}
    schema |= dict.fromkeys(("heads", "joined", "missed", "refused"), pl.Int64)
    schema |= {"paid": MONEY} | dict.fromkeys(("update_norm", "grad_norm", "shown"), pl.Float64)
    schema |= {"tariff": pl.String}
    return _compared(pl.DataFrame(rows, schema=schema)), report


def _compared(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the column `declared`: how the declared norm compares with the one that updates show."""
    ratio = pl.col("grad_norm") / pl.col("shown")
    below = pl.when(ratio < 1).then(pl.lit("below shown"))
    above = below.when(ratio > OVER * ratio.median()).then(pl.lit("far above shown"))
    return rows.with_columns(above.otherwise(pl.lit(None, pl.String)).alias("declared"))


def _root_mean_square(values: list[float]) -> float | None:
    return (sum(x * x for x in values) / len(values)) ** 0.5 if values else None


def statement_of(ledger: Ledger, client: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return all that concerns a client, one entry per row, and its runs in sum, one per row.

    `round` counts from 1: a statement is for people. `event` is deposit, withdrawal, reversal,
    dropped, opened, tails, joined, missed, refused or settled; `note` says what was offered and
    chosen, or why nothing was paid.
    """
    report, whole = ledger.verified(lambda entry: part_of(entry, client))
    rows = entries_of(report, whole, client)
    if rows.is_empty():
        raise no_client(ledger.name, report, client)
    return rows, runs_with(report, client)


def no_client(name: str, report: Books, client: str) -> InputError:
    """Return the error for a client that a ledger does not have; `name` is the ledger's."""
    known = {name[7:] for name in report.balances if name.startswith("client:")}
    known |= {name for run in report.runs.values() for name in (*run.clients, *run.dropped)}
    hint = nearest(client, sorted(known)) if known else "It has none yet."
    return InputError(f"{name} has no client {client!r}. {hint}")


def part_of(entry: Entry, client: str) -> Entry:
    """Return what `entries_of` needs of an entry: a ledger may be larger than the memory."""
    content = {
        name: value
        for name, value in entry.content.items()
        if name in ("kind", "of", "reason", "rounds")
    }
    for name in ("joined", "missed", "refused", "dropped"):
        found = entry.content.get(name, ())
        if isinstance(found, dict):
            content[name] = {client: found[client]} if client in found else {}
        elif name in entry.content:
            content[name] = [client] if client in found else []
    account = f"client:{client}"
    own = [line for line in entry.postings if line[0] == account]
    return entry._replace(content=content, postings=own)


def entries_of(report: Books, whole: Iterable[Entry], client: str) -> pl.DataFrame:
    """Return the entries of a verified ledger that concern a client, as `statement_of` does.

    Parameters
    ----------
    report, whole
        What the ledger adds up to, and its entries, or the client's part of them.
    client
        Name of the client.
    """
    account, balance = f"client:{client}", 0
    inside = {name for name, run in report.runs.items() if client in run.clients}
    rows = []
    for entry in whole:
        content = entry.content
        kind, of = content["kind"], content["of"]
        amount = sum(m for a, m in entry.postings if a == account)
        concerned = kind in ("open", "round", "settle") and of[0] in inside
        dropped = kind in ("offer", "commit") and client in content["dropped"]
        if not (concerned or amount or dropped):
            continue
        balance += amount
        event, note = _event(content, client, report)
        rows.append(
            {
                "entry": entry.number,
                "run": of[0] if concerned or dropped else None,
                "round": of[1] + 1 if kind == "round" else None,
                "event": event,
                "amount": money(amount),
                "balance": money(balance),
                "note": note,
            }
        )
    details = {"entry": pl.Int64, "run": pl.String, "round": pl.Int64, "event": pl.String}
    details |= {"amount": MONEY, "balance": MONEY, "note": pl.String}
    return pl.DataFrame(rows, schema=details)


def runs_with(report: Books, client: str) -> pl.DataFrame:
    """Return the runs of a client in sum, one per row, as `statement_of` does."""
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
            # What breaking its word cost it.
            "lost": money(max(0, own.earned(run.rounds, own.heads) - own.paid)),
        }
        for name, run in report.runs.items()
        if (own := run.clients.get(client)) is not None
    ]
    schema = {"run": pl.String, "rounds": pl.Int64, "agreed": MONEY}
    schema |= dict.fromkeys(("heads", "joined", "missed", "refused"), pl.Int64)
    schema |= {"paid": MONEY, "lost": MONEY}
    return pl.DataFrame(sums, schema=schema)


def undelivered_in(entries: pl.DataFrame, run: str) -> tuple[Undelivered, ...]:
    """Return the heads of a run that were not paid for, by what happened and why."""
    missing = entries.filter(entries["run"] == run, entries["event"].is_in(["missed", "refused"]))
    why: dict[tuple[str, str], list[int]] = {}
    for event, note, round_ in missing.select("event", "note", "round").iter_rows():
        why.setdefault((event, note), []).append(round_)
    return tuple(
        Undelivered(event, SENT_NOTHING if event == "missed" else note, tuple(rounds))
        for (event, note), rounds in why.items()
    )


def _event(content: dict[str, Any], client: str, books: Books) -> tuple[str, str]:
    kind, of = content["kind"], content["of"]
    if kind in ("deposit", "withdraw"):
        return {"deposit": "deposit", "withdraw": "withdrawal"}[kind], str(of[1])
    if kind == "reverse":
        return "reversal", f"of entry {of[0]}: {content['reason']}"
    if client in content.get("dropped", {}):
        return "dropped", str(content["dropped"][client])
    if kind == "settle":
        return "settled", f"after {content['rounds']} rounds"
    if kind == "open":
        note, before = _offered(books.runs[of[0]], client), books.runs[of[0]].follows
        if before and client in books.runs[before].clients:
            note += f"; in the previous period: {_offered(books.runs[before], client)}"
        return "opened", note
    if client in content["refused"]:
        return "refused", str(content["refused"][client][0])
    if client in content["missed"]:
        return "missed", f"{SENT_NOTHING}: it is paid for the share it delivers"
    if client in content["joined"]:
        weight = content["joined"][client][1]
        return "joined", f"weight {float(weight):.4g}"
    return "tails", ""


def _offered(run: Run, client: str) -> str:
    """Return what a client was offered for a period, and chose."""
    own = run.clients[client]
    chose = f"chose level {own.level / LEVEL_ONE:.6f}"
    return f"offered {tariff_of(own)} for {run.rounds} rounds, {chose}"


def tariff_of(client: Client) -> Tariff:
    """Return what a client of a run was offered."""
    return Tariff(tuple((end, price) for end, price in client.tariff), client.menu)


def _is_price(client: Client) -> bool:
    """Return whether a client was offered one price for every level up to an end."""
    return len(client.tariff) == 1 and not client.menu


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
