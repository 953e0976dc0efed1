"""`Ledger`: double entry, append-only, in whole units, each entry chained to the last by its hash.

Accounts: `world`, where money comes from and goes to; `treasury`, the server's; `escrow:RUN`, what
a run may spend; `client:NAME`. Only `world` may be below 0, by a constraint of the database.

One event is one entry is one transaction: it is there wholly or not at all, and recording it again
changes nothing. What a round pays is computed here, from the terms that the run was opened with;
`fedprice.verify` derives it again from an export, with code of its own.
"""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import FedpriceError, InputError, nearest
from fedprice.market.accounts import Posting, balances_of
from fedprice.market.chain import Entry, append, chain, find
from fedprice.market.database import (
    DamagedError,
    Database,
    LedgerError,
    accounts,
    entries,
    sa,
    states,
)
from fedprice.market.messages import require_digest, require_name, require_unit, require_whole
from fedprice.market.money import accrued
from fedprice.market.offers import MOST_MONEY, Terms
from fedprice.market.periods import require_period

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlalchemy import Connection

    from fedprice.market.agreement import Agreement
    from fedprice.verify import Report

__all__ = ["DamagedError", "Delivered", "Entry", "Ledger", "LedgerError"]

UNIT = "CREDIT"
MOST_HINTS = 1000  # runs among which the nearest to a mistyped one is looked for
LONGEST_REASON = 200

_ROUNDS = sa.select(sa.func.max(entries.c.round)).where(entries.c.run == sa.bindparam("of_run"))


class Delivered(NamedTuple):
    """An accepted update.

    Attributes
    ----------
    update, signature
        The hash of its arrays, and the client's signature of it; the latter is empty where nothing
        is signed.
    weight, update_norm
        The weight it got, and the norm of its arrays, as decimal numbers.
    grad_norm
        The norm of stochastic gradients that it shows, as a decimal number; empty where learning
        rate and local steps are not known.
    """

    update: str
    weight: str
    update_norm: str
    grad_norm: str = ""
    signature: str = ""


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
    True
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
        with self._reading() as connection:
            begun = find(connection, ["begin"])
        if begun is None:
            with self._database.writing() as connection:
                append(connection, ["begin"], {"unit": unit or UNIT}, [], ids=self._ids)
            return unit or UNIT
        kept = str(begun.get("unit"))
        if unit not in (None, kept):
            raise LedgerError(f"{self.name} is a ledger of {kept}, not of {unit}.")
        return kept

    def deposit(self, account: str, amount: int, reference: str) -> bool:
        """Bring money in from outside, once an account and reference; return whether it is new.

        Parameters
        ----------
        account
            `treasury` or `client:NAME`.
        amount
            In micro-units.
        reference
            What it is.
        """
        require_whole("amount", amount)
        if amount <= 0:
            raise InputError(f"a deposit must be above 0; got {amount}.")
        if account != "treasury":
            if not account.startswith("client:"):
                raise InputError(f"deposits go to treasury or client:NAME; got {account!r}.")
            require_name("client", account.removeprefix("client:"))
        require_name("reference", reference)
        with self._database.writing() as connection:

            def first() -> None:
                there = -balances_of(connection, ["world"]).get("world", 0)
                if there + amount > MOST_MONEY:
                    raise LedgerError(f"{self.name} holds at most {MOST_MONEY} micro-units in all.")

            return append(
                connection,
                ["deposit", account, reference],
                {"account": account, "reference": reference},
                [("world", -amount), (account, amount)],
                ids=self._ids,
                first=first,
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

        Where the budget is negative, nothing moves out: what payers bring stays in the escrow until
        the run is settled.

        Parameters
        ----------
        run, budget, rounds
            The name of the run, or of a later period of it; the most it may cost in micro-units,
            and how many rounds it has.
        terms
            What each client and the server agreed on.
        agreement
            What they signed, with the secrets of their coins; None where coins are not shared.
        """
        require_name("run", run)
        require_whole("budget", budget)
        require_whole("rounds", rounds)
        if rounds < 1:
            raise InputError(f"`rounds` must be at least 1; got {rounds}.")
        for name in terms:
            require_name("client", name)
        if agreement is not None and dict(terms) != agreement.terms:
            raise InputError("the terms of a run must be those of its agreement.")
        follows = "" if agreement is None else agreement.follows
        require_period(run, follows)
        due = {name: own.payment for name, own in terms.items()}
        needed = sum(due.values())
        if needed > budget:
            raise LedgerError(
                f"run {run!r} needs {needed} micro-units for what was committed; its budget is "
                f"{budget}. Raise the budget, or offer less."
            )
        escrow = f"escrow:{run}"
        lines: list[Posting] = [("treasury", -budget), (escrow, budget)] if budget > 0 else []
        for name, amount in due.items():
            if amount < 0:
                lines += [(f"client:{name}", amount), (escrow, -amount)]
        content = {
            "rounds": rounds,
            "budget": budget,
            "terms": [[name, own.price, own.level, own.samples] for name, own in terms.items()],
            "follows": follows,
            "agreement": None if agreement is None else agreement.content(),
        }
        with self._database.writing() as connection:
            append(
                connection,
                ["open", run],
                content,
                lines,
                ids=self._ids,
                run=run,
                first=lambda: self._require_end(connection, follows),
            )

    def _require_end(self, connection: Connection, before: str) -> None:
        """Refuse a period that follows one that is not over."""
        if before:
            self._opened(connection, before)
            if find(connection, ["settle", before]) is None:
                raise LedgerError(f"run {before!r} is not settled, so nothing can follow it yet.")

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
        require_whole("round", round_)
        require_digest("model", model)
        with self._database.writing() as connection:
            opened = self._opened(connection, run)
            drew = [*joined, *missed, *refused]
            for name in drew:
                if name not in opened.terms:
                    hint = nearest(name, opened.terms)
                    raise LedgerError(f"run {run!r} has no client {name!r}. {hint}")
            if len(set(drew)) < len(drew):
                raise LedgerError(f"round {round_ + 1} of run {run!r} names a client twice.")
            if any(not opened.terms[name].level for name in drew):
                raise LedgerError(f"round {round_ + 1} of run {run!r} has a client of level 0.")
            content: dict[str, Any] = {
                "model": model,
                "joined": {name: list(update) for name, update in joined.items()},
                "missed": sorted(missed),
                "refused": {name: _reason(text) for name, text in refused.items()},
                "state": state is not None,
            }
            broken = {*missed, *refused}
            pay: list[Posting] = []
            for name, payment in opened.due:
                share = accrued(payment, opened.rounds, round_ + 1)
                share -= accrued(payment, opened.rounds, round_)
                if share > 0 and name not in broken:
                    pay.append((f"client:{name}", share))
            total = sum(amount for _, amount in pay)
            new = append(
                connection,
                ["round", run, round_],
                content,
                [(f"escrow:{run}", -total), *pay] if pay else [],
                ids=self._ids,
                run=run,
                round_=round_,
                first=lambda: self._require_next(connection, run, round_, opened.rounds),
            )
            if new:
                connection.execute(states.delete().where(states.c.run == run))
            if new and state is not None:
                digest = hashlib.sha256(state).hexdigest()
                kept = {"run": run, "done": round_ + 1, "state": state, "digest": digest}
                connection.execute(states.insert(), kept)

    def settle(self, run: str) -> None:
        """Close a run: payers get back what no round used, the treasury gets the rest."""
        with self._database.writing() as connection:
            opened = self._opened(connection, run)
            if find(connection, ["settle", run]) is not None:
                return
            done = self._rounds_done(connection, run)
            left = balances_of(connection, [f"escrow:{run}"]).get(f"escrow:{run}", 0)
            back: list[Posting] = []
            for name, payment in opened.due:
                # Rounded down, so that what is left suffices whatever the rounds paid.
                refund = -payment * (opened.rounds - done) // opened.rounds
                if refund > 0:
                    back.append((f"client:{name}", refund))
            rest = left - sum(amount for _, amount in back)
            lines = [(f"escrow:{run}", -left), *back, ("treasury", rest)]
            lines = [(account, amount) for account, amount in lines if amount]
            append(connection, ["settle", run], {"rounds": done}, lines, ids=self._ids, run=run)

    def balance(self, account: str) -> int:
        """Return the balance of an account in micro-units; 0 if it has none yet."""
        with self._reading() as connection:
            return balances_of(connection, [account]).get(account, 0)

    def balances(self) -> dict[str, int]:
        """Return every account's balance, by name."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(accounts.c.name, accounts.c.balance))
            return dict(sorted((name, int(balance)) for name, balance in rows))

    def entries(self, run: str | None = None) -> Iterator[Entry]:
        """Yield the whole chain, or the entries of a run, the first entry first."""
        with self._reading() as connection:
            if run is not None:
                self._opened(connection, run)
            yield from chain(connection, run)

    def opening(self, run: str) -> dict[str, Any] | None:
        """Return the entry that opened a run, or None if there is none."""
        with self._reading() as connection:
            return find(connection, ["open", run])

    def is_settled(self, run: str) -> bool:
        """Return whether a run is closed."""
        with self._reading() as connection:
            return find(connection, ["settle", run]) is not None

    def rounds_done(self, run: str) -> int:
        """Return how many rounds of a run are recorded."""
        with self._reading() as connection:
            self._opened(connection, run)
            return self._rounds_done(connection, run)

    def progress(self, run: str) -> tuple[list[dict[str, Any]], bytes | None]:
        """Return the rounds of a run so far, and what it needs to go on, both of one moment."""
        with self._reading() as connection:
            self._opened(connection, run)
            rounds = [e.content for e in chain(connection, run) if e.content["kind"] == "round"]
            found = connection.execute(sa.select(states).where(states.c.run == run)).first()
        if found is None:
            if rounds and rounds[-1]["state"]:
                raise DamagedError(f"{self.name}: the state of run {run!r} is missing.")
            return rounds, None
        state = bytes(found.state)
        if found.done != len(rounds) or hashlib.sha256(state).hexdigest() != found.digest:
            raise DamagedError(f"{self.name}: the state of run {run!r} is damaged.")
        return rounds, state

    def verify(self, head: str | None = None) -> Report:
        """Check the database, the chain, every payment and balance; return what is there.

        Parameters
        ----------
        head
            The hash of an entry that must be there: what somebody kept as proof.

        Raises
        ------
        DamagedError
            Naming the first thing that is wrong.
        """
        return self._verified(head, None)

    def verified(self) -> tuple[Report, list[Entry]]:
        """Verify, and return what is there with the entries of that very moment."""
        kept: list[Entry] = []
        return self._verified(None, kept), kept

    def _verified(self, head: str | None, kept: list[Entry] | None) -> Report:
        from fedprice.market.inspection import inspect

        with self._reading() as connection:
            return inspect(self._database, connection, head, kept)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Read at one moment; what cannot be understood is damage."""
        try:
            with self._database.reading() as connection:
                yield connection
        except InputError as error:
            raise DamagedError(f"{self.name} is damaged: {error}") from error

    def _opened(self, connection: Connection, run: str) -> _Opened:
        if run in self._open:  # what is recorded does not change
            return self._open[run]
        content = find(connection, ["open", run])
        if content is None:
            known = self._runs(connection)
            hint = nearest(run, known) if known else "It has none yet."
            raise LedgerError(f"{self.name} has no run {run!r}. {hint}")
        try:
            terms = {name: Terms(*rest) for name, *rest in content["terms"]}
            due = [(name, own.payment) for name, own in terms.items()]
            self._open[run] = _Opened(int(content["rounds"]), terms, due)
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedError(f"{self.name}: the opening of run {run!r} is damaged.") from error
        return self._open[run]

    def _runs(self, connection: Connection) -> list[str]:
        """Return the names of the last runs."""
        query = sa.select(entries.c.run).where(entries.c.key.startswith('["open",'))
        last = query.order_by(entries.c.number.desc()).limit(MOST_HINTS)
        return [str(run) for run in connection.execute(last).scalars()][::-1]

    def _rounds_done(self, connection: Connection, run: str) -> int:
        found = connection.execute(_ROUNDS, {"of_run": run}).scalar()
        return 0 if found is None else int(found) + 1

    def _require_next(self, connection: Connection, run: str, round_: int, rounds: int) -> None:
        if find(connection, ["settle", run]) is not None:
            raise LedgerError(f"run {run!r} is settled.")
        done = self._rounds_done(connection, run)
        if not round_ == done < rounds:
            raise LedgerError(
                f"round {round_ + 1} of run {run!r} cannot follow: {done} of {rounds} are recorded."
            )


def _reason(text: str) -> str:
    """Return a reason that is fit to be kept: printable, and not long."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return plain if len(plain) <= LONGEST_REASON else plain[: LONGEST_REASON - 1] + "…"
