"""`Ledger`: double entry, append-only, in whole units, each entry chained to the last by its hash.

Accounts: `world`, where money comes from and goes to; `treasury`, the server's; `escrow:RUN`, what
a run may spend; `client:NAME`. Only `world` may be below 0, by a constraint of the database.

One event is one entry is one transaction: it is there wholly or not at all, and recording it again
changes nothing. What a round pays is computed here, from the terms that the run was opened with.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import FedpriceError, InputError, nearest, require
from fedprice.market.canonical import canonical_bytes, parsed
from fedprice.market.money import accrued, payment_units

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sqlalchemy import Connection, Engine

__all__ = ["Entry", "Ledger", "LedgerError", "Terms"]

GENESIS = "0" * 64
Posting = tuple[str, int]


class LedgerError(FedpriceError):
    """What the ledger refuses, or finds wrong with itself."""


@dataclass(frozen=True)
class Terms:
    """What a client committed to: price in micro-units, level in multiples of 2⁻³²."""

    price: int
    level: int

    @property
    def payment(self) -> int:
        """What the client earns in all if it keeps its word; negative if it pays."""
        return payment_units(self.price, self.level)


class Entry(NamedTuple):
    """One entry: its number, its content, and the hash that chains it to the one before."""

    number: int
    content: dict[str, Any]
    hash: str


class Ledger:
    """A ledger in a database.

    Parameters
    ----------
    url
        A database as SQLAlchemy names it, such as sqlite:///market.db, or
        postgresql+psycopg://user@host/market (extra `postgres`).

    Examples
    --------
    >>> ledger = Ledger("sqlite://")
    >>> ledger.deposit("treasury", 10_000_000, "first")
    >>> ledger.open_run("run-1", 5_000_000, {"alice": Terms(8_000_000, 2**31)}, rounds=4)
    >>> for r in range(4):  # alice misses the first
    ...     missed = ["alice"] if r == 0 else []
    ...     ledger.record_round("run-1", r, model="0" * 64, heads=["alice"], missed=missed)
    >>> ledger.settle("run-1")
    >>> ledger.balances()
    {'client:alice': 3000000, 'escrow:run-1': 0, 'treasury': 7000000, 'world': -10000000}
    """

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        _tables().metadata.create_all(self._engine)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """One writer at a time: each entry follows the last one."""
        with self._engine.begin() as connection:
            if self._engine.dialect.name == "postgresql":
                connection.exec_driver_sql("LOCK TABLE entries IN EXCLUSIVE MODE")
            yield connection

    def deposit(self, account: str, amount: int, reference: str) -> None:
        """Bring money in from outside, once a reference."""
        if amount <= 0:
            raise InputError(f"a deposit must be above 0; got {amount}.")
        content = {"kind": "deposit", "key": f"deposit:{account}:{reference}"}
        with self._transaction() as connection:
            self._append(connection, content, [("world", -amount), (account, amount)])

    def open_run(self, run: str, budget: int, terms: Mapping[str, Terms], *, rounds: int) -> None:
        """Move the budget of a run, and what payers owe, into its escrow."""
        escrow = f"escrow:{run}"
        due = {name: own.payment for name, own in sorted(terms.items())}
        needed = sum(due.values())
        if needed > budget:
            raise LedgerError(
                f"run {run!r} needs {needed} units for what was committed; its budget is {budget}."
            )
        postings = [("treasury", -budget), (escrow, budget)]
        for name, amount in due.items():
            if amount < 0:
                postings += [(f"client:{name}", amount), (escrow, -amount)]
        content = {
            "kind": "open",
            "key": f"open:{run}",
            "run": run,
            "rounds": rounds,
            "budget": budget,
            "terms": {name: [own.price, own.level] for name, own in sorted(terms.items())},
        }
        with self._transaction() as connection:
            self._append(connection, content, postings)

    def record_round(
        self,
        run: str,
        round_: int,
        *,
        model: str,
        heads: Collection[str],
        missed: Collection[str] = (),
        refused: Mapping[str, str] | None = None,
    ) -> None:
        """Record a round, and pay whoever kept its word: tails, or heads and an accepted update.

        Parameters
        ----------
        run, round_
            Which; rounds come one after the other, from 0.
        model
            Hash of the model after the round.
        heads
            Who drew heads.
        missed, refused
            Who of them sent nothing, and whose update was refused, with the reason.
        """
        refused = dict(refused or {})
        with self._transaction() as connection:
            opened = self._opened(connection, run)
            terms = {name: Terms(*pair) for name, pair in opened["terms"].items()}
            for name in (*heads, *missed, *refused):
                if name not in terms:
                    raise LedgerError(f"run {run!r} has no client {name!r}. {nearest(name, terms)}")
            content: dict[str, Any] = {
                "kind": "round",
                "key": f"round:{run}:{round_}",
                "run": run,
                "round": round_,
                "model": model,
                "heads": sorted(heads),
                "missed": sorted(missed),
                "refused": dict(sorted(refused.items())),
            }
            if self._entry(connection, content["key"]) is None:
                self._require_next(connection, run, round_, opened["rounds"])
            postings: list[Posting] = []
            for name, own in terms.items():
                if own.payment > 0 and name not in missed and name not in refused:
                    share = accrued(own.payment, opened["rounds"], round_ + 1)
                    share -= accrued(own.payment, opened["rounds"], round_)
                    postings += [(f"escrow:{run}", -share), (f"client:{name}", share)]
            self._append(connection, content, postings)

    def settle(self, run: str) -> None:
        """Close a run: payers get back what no round used, the treasury gets the rest."""
        with self._transaction() as connection:
            opened = self._opened(connection, run)
            if self._entry(connection, f"settle:{run}") is not None:
                return
            done = self._rounds_done(connection, run)
            left = self.balance(f"escrow:{run}", connection)
            postings: list[Posting] = []
            for name, pair in opened["terms"].items():
                owed = -Terms(*pair).payment
                if owed > 0:
                    back = owed - accrued(owed, opened["rounds"], done)
                    postings += [(f"escrow:{run}", -back), (f"client:{name}", back)]
                    left -= back
            postings += [(f"escrow:{run}", -left), ("treasury", left)]
            content = {"kind": "settle", "key": f"settle:{run}", "run": run, "rounds": done}
            self._append(connection, content, postings)

    def balance(self, account: str, connection: Connection | None = None) -> int:
        """Return the balance of an account; 0 if it has none yet."""
        if connection is None:
            with self._transaction() as own:
                return self.balance(account, own)
        t = _tables()
        row = connection.execute(
            t.select(t.accounts.c.balance).where(t.accounts.c.name == account)
        ).scalar()
        return int(row or 0)

    def balances(self) -> dict[str, int]:
        """Return every account's balance, by name."""
        t = _tables()
        with self._transaction() as connection:
            rows = connection.execute(t.select(t.accounts).order_by(t.accounts.c.name))
            return {name: int(balance) for name, balance in rows}

    def entries(self) -> list[Entry]:
        """Return the whole chain, the first entry first."""
        t = _tables()
        with self._transaction() as connection:
            rows = connection.execute(t.select(t.entries).order_by(t.entries.c.number)).all()
        return [Entry(row.number, parsed(row.content.encode()), row.hash) for row in rows]

    def verify(self) -> int:
        """Check the chain, every posting and every balance; return the number of entries.

        Raises
        ------
        LedgerError
            Naming the first thing that is wrong.
        """
        t = _tables()
        with self._transaction() as connection:
            rows = connection.execute(t.select(t.entries).order_by(t.entries.c.number)).all()
            kept = connection.execute(t.select(t.accounts)).all()
        previous, sums = GENESIS, dict[str, int]()
        for number, row in enumerate(rows, start=1):
            try:
                content = parsed(row.content.encode())
                postings = [(str(a), int(m)) for a, m in content["postings"]]
                sound = row.number == content["number"] == number and row.key == content["key"]
            except (InputError, KeyError, TypeError, ValueError) as error:
                raise LedgerError(f"entry {number} cannot be read.") from error
            if not sound or row.hash != _chained(previous, row.content):
                raise LedgerError(f"entry {number} is not the one that was recorded.")
            if sum(amount for _, amount in postings) != 0:
                raise LedgerError(f"the postings of entry {number} do not add up to 0.")
            for account, amount in postings:
                sums[account] = sums.get(account, 0) + amount
                if sums[account] < 0 and account != "world":
                    raise LedgerError(f"entry {number} overdraws {account}.")
            previous = row.hash
        if {name: int(balance) for name, balance in kept} != sums:
            raise LedgerError("the balances are not the sums of the postings.")
        return len(rows)

    def _append(
        self, connection: Connection, content: dict[str, Any], postings: Iterable[Posting]
    ) -> None:
        t = _tables()
        found = self._entry(connection, content["key"])
        entered = list(postings)
        lines = [list(posting) for posting in entered]
        if found is not None:
            same = {k: v for k, v in found.items() if k != "number"}
            if same != content | {"postings": lines}:
                raise LedgerError(f"{content['key']!r} is recorded already, with other content.")
            return
        last = connection.execute(
            t.select(t.entries.c.number, t.entries.c.hash)
            .order_by(t.entries.c.number.desc())
            .limit(1)
        ).first()
        number, previous = (last.number + 1, last.hash) if last else (1, GENESIS)
        text = canonical_bytes(content | {"number": number, "postings": lines}).decode()
        connection.execute(
            t.entries.insert().values(
                number=number, key=content["key"], content=text, hash=_chained(previous, text)
            )
        )
        totals: dict[str, int] = {}
        for account, amount in entered:
            totals[account] = totals.get(account, 0) + amount
        known = self._known(connection, totals)
        for account, amount in totals.items():
            if known.get(account, 0) + amount < 0 and account != "world":
                raise LedgerError(
                    f"{account} has {known.get(account, 0)} units; {-amount} are needed."
                )
        new = [{"name": a, "balance": m} for a, m in totals.items() if a not in known]
        if new:
            connection.execute(t.accounts.insert(), new)
        old = [{"account": a, "amount": m} for a, m in totals.items() if a in known]
        if old:
            connection.execute(t.change, old)

    def _known(self, connection: Connection, names: Iterable[str]) -> dict[str, int]:
        t = _tables()
        wanted, found = list(names), dict[str, int]()
        for first in range(0, len(wanted), 500):
            some = wanted[first : first + 500]
            rows = connection.execute(t.select(t.accounts).where(t.accounts.c.name.in_(some)))
            found |= {name: int(balance) for name, balance in rows}
        return found

    def _entry(self, connection: Connection, key: str) -> dict[str, Any] | None:
        t = _tables()
        text = connection.execute(
            t.select(t.entries.c.content).where(t.entries.c.key == key)
        ).scalar()
        return None if text is None else dict(parsed(text.encode()))

    def _opened(self, connection: Connection, run: str) -> dict[str, Any]:
        opened = self._entry(connection, f"open:{run}")
        if opened is None:
            t = _tables()
            keys = connection.execute(
                t.select(t.entries.c.key).where(t.entries.c.key.startswith("open:"))
            ).scalars()
            known = [key.removeprefix("open:") for key in keys]
            raise LedgerError(f"there is no run {run!r}. {nearest(run, known)}")
        return opened

    def _rounds_done(self, connection: Connection, run: str) -> int:
        t = _tables()
        starts = t.entries.c.key.startswith(f"round:{run}:", autoescape=True)
        return int(connection.execute(t.select(t.count()).where(starts)).scalar() or 0)

    def _require_next(self, connection: Connection, run: str, round_: int, rounds: int) -> None:
        if self._entry(connection, f"settle:{run}") is not None:
            raise LedgerError(f"run {run!r} is settled.")
        done = self._rounds_done(connection, run)
        if not round_ == done < rounds:
            raise LedgerError(
                f"round {round_} of run {run!r} cannot follow: {done} of {rounds} are recorded."
            )


def _chained(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


def _engine(url: str) -> Engine:
    sa = require("sqlalchemy", "market")
    settings: dict[str, Any] = {}
    if url in ("sqlite://", "sqlite:///:memory:"):
        settings = {"poolclass": sa.pool.StaticPool, "connect_args": {"check_same_thread": False}}
    try:
        engine: Engine = sa.create_engine(url, **settings)
    except sa.exc.ArgumentError as error:
        raise InputError(f"{url!r} names no database; try sqlite:///market.db.") from error
    if engine.dialect.name == "sqlite":

        def prepare(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # transactions are begun below, not by the driver
            for line in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 30000"):
                connection.execute(f"PRAGMA {line}")

        def begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        sa.event.listen(engine, "connect", prepare)
        sa.event.listen(engine, "begin", begin)

    return engine


class _Tables(NamedTuple):
    metadata: Any
    accounts: Any
    entries: Any
    change: Any
    select: Any
    count: Any


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    sa = require("sqlalchemy", "market")
    metadata = sa.MetaData()
    accounts = sa.Table(
        "accounts",
        metadata,
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("balance", sa.BigInteger, nullable=False),
        sa.CheckConstraint("balance >= 0 OR name = 'world'", name="no_overdraft"),
    )
    entries = sa.Table(
        "entries",
        metadata,
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    change = (
        sa.update(accounts)
        .where(accounts.c.name == sa.bindparam("account"))
        .values(balance=accounts.c.balance + sa.bindparam("amount"))
    )
    return _Tables(metadata, accounts, entries, change, sa.select, sa.func.count)
