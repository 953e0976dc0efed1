"""`Ledger`: double entry, append-only, in whole units, each entry chained to the last by its hash.

Accounts: `world`, where money comes from and goes to; `treasury`, the server's; `escrow:RUN`, what
a run may spend; `client:NAME`. Only `world` may be below 0, by a constraint of the database.

One event is one entry is one transaction: it is there wholly or not at all, and recording it again
changes nothing. What a round pays is computed here, from the terms that the run was opened with;
`fedprice.verify` derives it again from an export, with code of its own.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import FedpriceError, InputError, nearest
from fedprice.market.accounts import Posting, account_ids, add_postings, balances_of
from fedprice.market.canonical import canonical_bytes, parsed
from fedprice.market.database import (
    Database,
    LedgerError,
    accounts,
    entries,
    postings,
    sa,
    states,
)
from fedprice.market.messages import require_name, require_unit
from fedprice.market.money import accrued
from fedprice.market.offers import MOST_MONEY, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from sqlalchemy import Connection

    from fedprice.market.agreement import Agreement
    from fedprice.verify import Report

__all__ = ["Delivered", "Entry", "Ledger", "LedgerError"]

GENESIS = "0" * 64
UNIT = "CREDIT"
MOST_HINTS = 1000  # runs among which the nearest to a mistyped one is looked for


# What every entry needs, put together once.
_BY_KEY = sa.select(entries.c.content).where(entries.c.key == sa.bindparam("of_key"))
_LAST = sa.select(entries.c.number, entries.c.hash).order_by(entries.c.number.desc()).limit(1)
_ROUNDS = sa.select(sa.func.max(entries.c.round)).where(entries.c.run == sa.bindparam("of_run"))
_NEW_ENTRY = entries.insert()


class Delivered(NamedTuple):
    """An accepted update: its hash, the weight it got, and the gradient norm that it shows."""

    update: str
    weight: str
    grad_norm: str


class Entry(NamedTuple):
    """One entry: its number, content and postings, and the hash that chains it to the last."""

    number: int
    content: dict[str, Any]
    postings: list[Posting]
    hash: str


class _Opened(NamedTuple):
    """What every round needs of a run."""

    rounds: int
    terms: dict[str, Terms]
    due: list[tuple[str, int]]


class Ledger:
    """A ledger in a database.

    Parameters
    ----------
    url
        A database as SQLAlchemy names it, such as sqlite:///market.db, or
        postgresql+psycopg://user@host/market (extra `postgres`); or the path of an SQLite file.
    unit
        What its money is, such as EUR: of a new ledger, or what an old one must have.
    create
        Whether to create what is not there.
    timeout
        Seconds to wait for other writers.

    Examples
    --------
    >>> ledger = Ledger("sqlite://")
    >>> ledger.deposit("treasury", 10_000_000, "first")
    >>> ledger.open_run("run-1", 5_000_000, {"alice": Terms(8_000_000, 2**31)}, rounds=4)
    >>> for r in range(4):  # alice misses the first
    ...     missed = ["alice"] if r == 0 else []
    ...     ledger.record_round("run-1", r, model="0" * 64, missed=missed)
    >>> ledger.settle("run-1")
    >>> ledger.balances()
    {'client:alice': 3000000, 'escrow:run-1': 0, 'treasury': 7000000, 'world': -10000000}
    """

    def __init__(
        self, url: str, *, unit: str | None = None, create: bool = True, timeout: float = 30.0
    ) -> None:
        if unit is not None:
            require_unit(unit)
        self._database = Database(url, create=create, timeout=timeout)
        self.name = self._database.name
        self._ids: dict[str, int] = {}
        self._open: dict[str, _Opened] = {}
        try:
            self.unit = self._begun(unit)
        except FedpriceError:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _begun(self, unit: str | None) -> str:
        """Return the unit of the ledger, which its first entry names."""
        with self._database.reading() as connection:
            begun = self._entry(connection, ["begin"])
        if begun is None:
            with self._database.writing() as connection:
                self._append(connection, ["begin"], {"unit": unit or UNIT}, [])
            return unit or UNIT
        kept = str(begun.get("unit"))
        if unit not in (None, kept):
            raise LedgerError(f"{self.name} is a ledger of {kept}, not of {unit}.")
        return kept

    def deposit(self, account: str, amount: int, reference: str) -> None:
        """Bring money in from outside, into `treasury` or `client:NAME`, once a reference."""
        if amount <= 0:
            raise InputError(f"a deposit must be above 0; got {amount}.")
        if account != "treasury":
            if not account.startswith("client:"):
                raise InputError(f"deposits go to treasury or client:NAME; got {account!r}.")
            require_name("client", account.removeprefix("client:"))
        require_name("reference", reference)
        with self._database.writing() as connection:
            there = -balances_of(connection, ["world"]).get("world", 0)
            if there + amount > MOST_MONEY:
                raise LedgerError(f"{self.name} holds at most {MOST_MONEY} micro-units in all.")
            self._append(
                connection,
                ["deposit", account, reference],
                {"account": account, "reference": reference},
                [("world", -amount), (account, amount)],
            )

    def open_run(
        self,
        run: str,
        budget: int,
        terms: Mapping[str, Terms],
        *,
        rounds: int,
        agreement: Agreement | None = None,
    ) -> None:
        """Move the budget of a run, and what payers owe, into its escrow.

        Parameters
        ----------
        run, budget, rounds
            Its name, the most it may cost in micro-units, and how many rounds it has.
        terms
            What each client and the server agreed on.
        agreement
            What they signed, with the secrets of their coins; None where coins are not shared.
        """
        require_name("run", run)
        if rounds < 1:
            raise InputError(f"`rounds` must be at least 1; got {rounds}.")
        for name in terms:
            require_name("client", name)
        due = {name: own.payment for name, own in terms.items()}
        needed = sum(due.values())
        if needed > budget:
            raise LedgerError(
                f"run {run!r} needs {needed} micro-units for what was committed; its budget is "
                f"{budget}. Raise the budget, or offer less."
            )
        escrow = f"escrow:{run}"
        lines: list[Posting] = [("treasury", -budget), (escrow, budget)] if budget else []
        for name, amount in due.items():
            if amount < 0:
                lines += [(f"client:{name}", amount), (escrow, -amount)]
        content = {
            "rounds": rounds,
            "budget": budget,
            "terms": [[name, own.price, own.level, own.samples] for name, own in terms.items()],
            "agreement": None if agreement is None else agreement.content(),
        }
        with self._database.writing() as connection:
            self._append(connection, ["open", run], content, lines, run=run)

    def record_round(
        self,
        run: str,
        round_: int,
        *,
        model: str,
        joined: Mapping[str, Delivered] | None = None,
        missed: Collection[str] = (),
        refused: Mapping[str, str] | None = None,
        state: bytes | None = None,
    ) -> None:
        """Record a round, and pay whoever kept its word: tails, or heads and an accepted update.

        Parameters
        ----------
        run, round_
            Which; rounds come one after the other, from 0.
        model
            Hash of the model after the round.
        joined, missed, refused
            Of those who drew heads: whose update was accepted, who sent nothing, and whose update
            was refused, with the reason.
        state
            What the run needs to go on after this round; the last one is kept.
        """
        joined, refused = joined or {}, refused or {}
        with self._database.writing() as connection:
            opened = self._opened(connection, run)
            drew = [*joined, *missed, *refused]
            for name in drew:
                if name not in opened.terms:
                    hint = nearest(name, opened.terms)
                    raise LedgerError(f"run {run!r} has no client {name!r}. {hint}")
            if len(set(drew)) < len(drew):
                raise LedgerError(f"round {round_} of run {run!r} names a client twice.")
            content: dict[str, Any] = {
                "model": model,
                "joined": {name: list(update) for name, update in joined.items()},
                "missed": sorted(missed),
                "refused": dict(refused),
            }
            broken = {*missed, *refused}
            pay: list[Posting] = []
            for name, payment in opened.due:
                share = accrued(payment, opened.rounds, round_ + 1)
                share -= accrued(payment, opened.rounds, round_)
                if share > 0 and name not in broken:
                    pay.append((f"client:{name}", share))
            total = sum(amount for _, amount in pay)
            lines = [(f"escrow:{run}", -total), *pay] if pay else []
            new = self._append(
                connection,
                ["round", run, round_],
                content,
                lines,
                run=run,
                round_=round_,
                first=lambda: self._require_next(connection, run, round_, opened.rounds),
            )
            if new:
                connection.execute(states.delete().where(states.c.run == run))
            if new and state is not None:
                digest = hashlib.sha256(state).hexdigest()
                connection.execute(states.insert().values(run=run, state=state, digest=digest))

    def settle(self, run: str) -> None:
        """Close a run: payers get back what no round used, the treasury gets the rest."""
        with self._database.writing() as connection:
            opened = self._opened(connection, run)
            if self._entry(connection, ["settle", run]) is not None:
                return
            done = self._rounds_done(connection, run)
            left = balances_of(connection, [f"escrow:{run}"]).get(f"escrow:{run}", 0)
            back: list[Posting] = []
            for name, payment in opened.due:
                if payment < 0 and done < opened.rounds:
                    refund = accrued(payment, opened.rounds, done) - payment
                    back.append((f"client:{name}", refund))
            rest = left - sum(amount for _, amount in back)
            lines = [(f"escrow:{run}", -left), *back, ("treasury", rest)]
            lines = [(account, amount) for account, amount in lines if amount]
            self._append(connection, ["settle", run], {"rounds": done}, lines, run=run)

    def balance(self, account: str) -> int:
        """Return the balance of an account in micro-units; 0 if it has none yet."""
        with self._database.reading() as connection:
            return balances_of(connection, [account]).get(account, 0)

    def balances(self) -> dict[str, int]:
        """Return every account's balance, by name."""
        with self._database.reading() as connection:
            rows = connection.execute(sa.select(accounts.c.name, accounts.c.balance))
            return dict(sorted((name, int(balance)) for name, balance in rows))

    def entries(self, run: str | None = None) -> Iterator[Entry]:
        """Yield the whole chain, or the entries of a run, the first entry first."""
        with self._database.reading() as connection:
            if run is not None:
                self._opened(connection, run)
            query = sa.select(entries.c.number, entries.c.content, entries.c.hash)
            lines = sa.select(postings.c.entry, accounts.c.name, postings.c.amount).join(
                accounts, accounts.c.id == postings.c.account, isouter=True
            )
            if run is not None:
                query = query.where(entries.c.run == run)
                lines = lines.join(entries, entries.c.number == postings.c.entry)
                lines = lines.where(entries.c.run == run)
            rows = connection.execute(query.order_by(entries.c.number))
            posted = connection.execute(lines.order_by(postings.c.entry, postings.c.line))
            line = next(posted, None)
            for number, content, hash_ in rows:
                own: list[Posting] = []
                while line is not None and line[0] == number:
                    own.append((line[1], line[2]))
                    line = next(posted, None)
                yield Entry(number, content_of(content), own, hash_)
            if line is not None:
                raise LedgerError(f"there are postings of an entry {line[0]} that is not there.")

    def runs(self) -> list[str]:
        """Return the names of all runs, in the order of their opening."""
        with self._database.reading() as connection:
            return self._runs(connection)

    def rounds_done(self, run: str) -> int:
        """Return how many rounds of a run are recorded."""
        with self._database.reading() as connection:
            self._opened(connection, run)
            return self._rounds_done(connection, run)

    def state(self, run: str) -> bytes | None:
        """Return what a run needs to go on after its last recorded round."""
        with self._database.reading() as connection:
            found = connection.execute(sa.select(states).where(states.c.run == run)).first()
        if found is None:
            return None
        if hashlib.sha256(found.state).hexdigest() != found.digest:
            raise LedgerError(f"{self.name}: the state of run {run!r} is damaged.")
        return bytes(found.state)

    def verify(self, head: str | None = None) -> Report:
        """Check the database, the chain, every payment and balance; return what is there.

        Parameters
        ----------
        head
            The hash of an entry that must be there: what somebody kept as proof.

        Raises
        ------
        LedgerError
            Naming the first thing that is wrong.
        """
        from fedprice.market.inspection import inspect

        return inspect(self._database, self.entries(), head)

    def _append(
        self,
        connection: Connection,
        key: list[Any],
        content: dict[str, Any],
        lines: list[Posting],
        *,
        run: str | None = None,
        round_: int | None = None,
        first: Callable[[], None] | None = None,
    ) -> bool:
        """Append an entry; return whether it is new. The same again is nothing.

        `first` is called before a new entry is written, and may refuse it.
        """
        content = content | {"kind": key[0], "of": key[1:]}
        text = canonical_bytes(content).decode()
        found = connection.execute(_BY_KEY, {"of_key": key_text(key)}).scalar()
        if found is not None:
            # What was posted follows from the content, except for a deposit's amount.
            if found != text or (key[0] == "deposit" and self._posted(connection, key) != lines):
                raise LedgerError(
                    f"{' '.join(map(str, key))} is recorded already, with other content."
                )
            return False
        if first is not None:
            first()
        last = connection.execute(_LAST).first()
        number, previous = (last.number + 1, last.hash) if last else (1, GENESIS)
        ids = account_ids(connection, lines, self._ids)
        connection.execute(
            _NEW_ENTRY,
            {
                "number": number,
                "key": key_text(key),
                "run": run,
                "round": round_,
                "content": text,
                "hash": _chained(previous, number, text, lines),
            },
        )
        if lines:
            rows = [(number, i, ids[account], amount) for i, (account, amount) in enumerate(lines)]
            add_postings(connection, number, rows)
        return True

    def _posted(self, connection: Connection, key: list[Any]) -> list[Posting]:
        rows = connection.execute(
            sa.select(accounts.c.name, postings.c.amount)
            .join(accounts, accounts.c.id == postings.c.account)
            .join(entries, entries.c.number == postings.c.entry)
            .where(entries.c.key == key_text(key))
            .order_by(postings.c.line)
        )
        return [(name, amount) for name, amount in rows]

    def _entry(self, connection: Connection, key: list[Any]) -> dict[str, Any] | None:
        text = connection.execute(_BY_KEY, {"of_key": key_text(key)}).scalar()
        return None if text is None else content_of(text)

    def _opened(self, connection: Connection, run: str) -> _Opened:
        if run in self._open:  # what is recorded does not change
            return self._open[run]
        content = self._entry(connection, ["open", run])
        if content is None:
            known = self._runs(connection, last=MOST_HINTS)
            hint = nearest(run, known) if known else "It has none yet."
            raise LedgerError(f"{self.name} has no run {run!r}. {hint}")
        try:
            terms = {name: Terms(*rest) for name, *rest in content["terms"]}
            due = [(name, own.payment) for name, own in terms.items()]
            self._open[run] = _Opened(int(content["rounds"]), terms, due)
        except (KeyError, TypeError, ValueError) as error:
            raise LedgerError(f"{self.name}: the opening of run {run!r} is damaged.") from error
        return self._open[run]

    def _runs(self, connection: Connection, last: int | None = None) -> list[str]:
        opened = entries.c.key.startswith('["open",')
        query = sa.select(entries.c.run).where(opened).order_by(entries.c.number.desc()).limit(last)
        return [str(run) for run in connection.execute(query).scalars()][::-1]

    def _rounds_done(self, connection: Connection, run: str) -> int:
        found = connection.execute(_ROUNDS, {"of_run": run}).scalar()
        return 0 if found is None else int(found) + 1

    def _require_next(self, connection: Connection, run: str, round_: int, rounds: int) -> None:
        if self._entry(connection, ["settle", run]) is not None:
            raise LedgerError(f"run {run!r} is settled.")
        done = self._rounds_done(connection, run)
        if not round_ == done < rounds:
            raise LedgerError(
                f"round {round_} of run {run!r} cannot follow: {done} of {rounds} are recorded."
            )


def content_of(text: Any) -> dict[str, Any]:
    """Return what an entry's text stands for."""
    content = parsed(text.encode()) if isinstance(text, str) else None
    if not isinstance(content, dict):
        raise InputError("an entry cannot be read.")
    return content


def key_text(key: list[Any]) -> str:
    """Return the text by which an entry is known: its kind, and what of."""
    return canonical_bytes(key).decode()


def _chained(previous: str, number: int, text: str, lines: list[Posting]) -> str:
    posted = canonical_bytes(lines).decode()
    return hashlib.sha256(f"{previous}\n{number}\n{text}\n{posted}".encode()).hexdigest()
