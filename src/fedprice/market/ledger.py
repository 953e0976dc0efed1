"""`Ledger`: double entry, append-only, in whole units, each entry chained to the last by its hash.

Accounts: `world`, where money comes from and goes to; `treasury`, the server's; `escrow:RUN`, what
a run may spend; `client:NAME`. Only `world` may be below 0, by a constraint of the database.

Each event is one entry and one transaction: it is recorded completely or not at all, and recording
it again is a no-op. What may be recorded, and what it posts, is defined once, in `fedprice.verify`;
the ledger applies these rules inside the transaction, so that it holds nothing that does not
verify. The server signs every entry.
"""

from __future__ import annotations

import secrets as random_bytes
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import FedpriceError, InputError
from fedprice.market.accounts import account_ids
from fedprice.market.canonical import canonical_text
from fedprice.market.chain import Entry, append, recorded
from fedprice.market.database import Database
from fedprice.market.ledger_errors import DamagedError, LedgerError, NoLedgerError
from fedprice.market.ledger_reader import Head, LedgerReader
from fedprice.market.messages import (
    plain_reason,
    require_digest,
    require_name,
    require_unit,
    require_whole,
)
from fedprice.market.metrics import metrics_text, require_place
from fedprice.market.payouts import Rotation, require_account
from fedprice.market.schema import measured
from fedprice.market.states import drop_state, write_state
from fedprice.verify import (
    FORMAT,
    GENESIS,
    VerificationError,
    canonical,
    chained_hash,
    entry_digest,
    entry_title,
    fits,
    head_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sqlalchemy import Connection

    from fedprice._plumbing.arrays import State
    from fedprice.market.messages import Signed, SigningKey
    from fedprice.market.offers import Terms

__all__ = ["DamagedError", "Delivered", "Entry", "Head", "Ledger", "LedgerError", "Refused"]

DIGESTS = 64  # kept of the last entries, for clients that are sent them
UNIT = "CREDIT"
# What an entry's line has besides its content and postings.
_AROUND = canonical(
    {"content": 0, "hash": GENESIS, "number": 1 << 62, "postings": 0, "signature": 2 * GENESIS}
)


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
    sketch
        Finds copies of it.
    """

    update: str
    weight: str
    update_norm: str
    grad_norm: str = ""
    sketch: str = ""
    signature: str = ""


class Refused(NamedTuple):
    """An update that was not accepted: why, and what of it the client is known to have signed."""

    reason: str
    update: str = ""
    update_norm: str = ""
    signature: str = ""


class Ledger(LedgerReader):
    """A ledger in a database.

    Parameters
    ----------
    url
        A database as SQLAlchemy names it, such as sqlite:///market.db, or
        postgresql+psycopg://user@host/market (extra `postgres`); or the path of an SQLite file.
    unit
        The unit of its money, such as EUR, for a new ledger; an existing one must have the same.
    create
        Whether to create a missing ledger.
    read_only
        Whether to open it for reading only, which leaves its file as it is and creates nothing.
    timeout
        Seconds to wait for other writers.
    key
        The server's key, which signs every entry. A ledger with a key can only be written with it.
    identity
        The identity of a new ledger, 64 hexadecimal digits; random by default.

    Examples
    --------
    >>> from fedprice.market.offers import Terms
    >>> from fedprice.market.tariffs import Tariff
    >>> ledger = Ledger("sqlite://")
    >>> ledger.deposit("treasury", 10_000_000, "first")
    True
    >>> terms = {"alice": Terms(Tariff.flat(8_000_000, 2**31), 2**31)}
    >>> ledger.open_unsigned("run-1", 5_000_000, terms, rounds=4)
    >>> for r in range(4):  # alice draws heads twice, and misses once
    ...     missed = ["alice"] if r in (0, 1) else []
    ...     ledger.record_round("run-1", r, model="0" * 64, missed=missed)
    >>> ledger.settle("run-1")
    >>> ledger.balances()
    {'escrow:run-1': 0, 'treasury': 10000000, 'world': -10000000}
    """

    def __init__(
        self,
        url: str,
        *,
        unit: str | None = None,
        create: bool = True,
        read_only: bool = False,
        timeout: float = 30.0,
        key: SigningKey | None = None,
        identity: str | None = None,
    ) -> None:
        if unit is not None:
            require_unit(unit)
        if identity is not None:
            require_digest("identity", identity)
        super().__init__(Database(url, create=create, read_only=read_only, timeout=timeout))
        self._ids: dict[str, int] = {}
        self._key = key
        try:
            self._begin(unit, identity, read_only)
            if key is not None:
                self.use_key(key)
        except FedpriceError:
            self.close()
            raise

    def _begin(self, unit: str | None, identity: str | None, read_only: bool) -> None:
        """Write the first entry, or read it; refuse another unit or identity."""
        if (begun := self.find("begin")) is None:
            if read_only:
                raise NoLedgerError(f"{self.name} holds no ledger yet.")
            content = {
                "format": FORMAT,
                "ledger": identity or random_bytes.token_hex(32),
                "server": "" if self._key is None else self._key.public.hex(),
                "unit": unit or UNIT,
            }
            try:
                self._write("begin", [], content)
            except LedgerError:
                if self.find("begin") is None:  # unless another process was faster
                    raise
            begun = self.find("begin") or {}
        self.unit, self.identity = str(begun.get("unit")), str(begun.get("ledger"))
        if unit not in (None, self.unit):
            raise LedgerError(f"{self.name} is a ledger of {self.unit}, not of {unit}.")
        if identity not in (None, self.identity):
            raise LedgerError(f"{self.name} is the ledger {self.identity}, not {identity}.")

    def use_key(self, key: SigningKey) -> None:
        """Sign with the server's key from now on; a ledger without a key adopts it."""
        with self._lock:
            server = self.books.server
            if server not in ("", key.public.hex()):
                raise LedgerError(
                    f"{self.name} is the ledger of the server {server}, not of "
                    f"{key.public.hex()}; use its key, or replace it with: fedprice ledger rotate"
                )
            if not server:
                try:
                    self.renew_key(key)
                except LedgerError:
                    if self.books.server != key.public.hex():  # unless another process was faster
                        raise
            self._key = key

    def deposit(self, account: str, amount: int, reference: str) -> bool:
        """Deposit money; return whether it is new: a reference counts once per account.

        Parameters
        ----------
        account
            `treasury` or `client:NAME`.
        amount
            In micro-units.
        reference
            What identifies the deposit.
        """
        _require_move("deposit", account, amount, reference)
        return self._write("deposit", [account, reference], {"amount": amount})

    def withdraw(
        self,
        account: str,
        amount: int,
        reference: str,
        signed: Signed | None = None,
        *,
        unsigned: bool = False,
    ) -> bool:
        """Pay money out; return whether it is new: a reference counts once per account.

        Parameters
        ----------
        account, amount, reference
            As for `deposit`.
        signed
            The `Withdrawal` that the client signed; None for the treasury, whose owner signs the
            entry itself.
        unsigned
            Whether to take the money of a client that has no key yet, without its signature; the
            ledger then verifies only with `--unsigned`.
        """
        _require_move("withdrawal", account, amount, reference)
        self._require_owner(account, signed, unsigned)
        content = {"amount": amount} | _message(signed)
        return self._write("withdraw", [account, reference], content)

    def reverse(
        self, number: int, reason: str, signed: Signed | None = None, *, unsigned: bool = False
    ) -> bool:
        """Reverse a deposit or a withdrawal, once; return whether this is new.

        Parameters
        ----------
        number, reason
            The entry that was wrong, and why.
        signed
            The `Reversal` that the client signed, if it takes the client's money.
        unsigned
            As for `withdraw`.
        """
        require_whole("number", number)
        require_name("reason", reason)
        kind, account, _ = self.books.moves.get(number, ("", "treasury", 0))
        if kind == "deposit":
            self._require_owner(account, signed, unsigned)
        return self._write("reverse", [number], {"reason": reason} | _message(signed))

    def _require_owner(self, account: str, signed: Signed | None, unsigned: bool) -> None:
        """Refuse to take a client's money without its signature, unless that is meant."""
        may = account == "treasury" or signed is not None or unsigned
        if not may and not self.books.key_of(account):
            raise LedgerError(
                f"{account} has no key in this ledger, so that it cannot sign; to take its money "
                "without a signature, reverse its deposit with --unsigned."
            )

    def rotate(self, account: str, signed: Signed | None, proof: Signed) -> None:
        """Replace the key of an account's owner by a new one.

        Parameters
        ----------
        account
            `treasury` or `client:NAME`.
        signed, proof
            The `Rotation`, signed by the old key and by the new one; the former is None where there
            was no key.
        """
        keys = self.books.keys.get(account, [])
        if keys and keys[-1] == proof.key.hex():
            return  # already recorded
        content = {
            "message": proof.text,
            "signature": "" if signed is None else signed.signature.hex(),
            "proof": proof.signature.hex(),
        }
        self._write("rotate", [account, len(keys) + 1], content)

    def renew_key(self, key: SigningKey) -> None:
        """Replace the server's key by a new one, with which it signs from now on.

        Refused while a run is under way, since its clients know only the old key.
        """
        with self._lock:
            if self.books.server == key.public.hex():
                self._key = key
                return
            under_way = [*self._books.offered]
            under_way += [
                n for n, own in self._books.runs.items() if own.signed and not own.settled
            ]
            if under_way:
                raise LedgerError(
                    f"run {under_way[0]!r} is under way with the old key; end it first: fedprice "
                    f"ledger settle {under_way[0]}"
                )
            old = self._key if self.books.server else None
            before = "" if old is None else old.public.hex()
            message = Rotation(self.identity, "treasury", before, key.public.hex())
            signed = None if old is None else old.sign(message)
            self._key = key
            try:
                self.rotate("treasury", signed, key.sign(message))
            except FedpriceError:
                self._key = old
                raise

    def record_offers(
        self,
        run: str,
        attempt: int,
        conditions: str,
        offers: Sequence[Signed],
        dropped: Mapping[str, str],
        turn: int = 1,
    ) -> None:
        """Record the offers of a run, before anybody sees them.

        Parameters
        ----------
        run, attempt
            The run, and the number of the set of offers, counted from 1.
        conditions, offers
            The text of what the offers have in common, and each offer.
        dropped
            Why the offers of the previous attempt are dropped, by client.
        turn
            Offers of one set that are made one after another are recorded in turns, counted from 1.
        """
        require_name("run", run)
        content = {
            "conditions": conditions,
            "offers": [[own.text, own.signature.hex()] for own in offers],
            "dropped": {client: plain_reason(why) for client, why in dropped.items()},
        }
        self._write("offer", [run, attempt, *([turn] if turn > 1 else [])], content)

    def record_commitments(
        self, run: str, attempt: int, commitments: Mapping[str, Signed], dropped: Mapping[str, str]
    ) -> None:
        """Record the commitments to a set of offers, before anybody reveals a secret.

        Parameters
        ----------
        run, attempt
            Which set of offers.
        commitments, dropped
            What each client signed, and why the others are dropped.
        """
        content = {
            "commitments": {
                client: [own.text, own.signature.hex()] for client, own in commitments.items()
            },
            "dropped": {client: plain_reason(why) for client, why in dropped.items()},
        }
        self._write("commit", [run, attempt], content)

    def open_run(
        self,
        run: str,
        budget: int,
        *,
        attempt: int,
        secrets: Mapping[str, tuple[str, str]],
        beacon: str = "",
    ) -> None:
        """Move the budget of a run, and what payers owe, into its escrow; its coins are fixed.

        Where the budget is negative, nothing moves out: what payers bring stays in the escrow until
        the run is settled.

        Parameters
        ----------
        run, budget
            The name of the run, or of a later period of it; the most it may cost in micro-units.
        attempt
            The set of offers that was committed to.
        secrets
            The server's and the client's coin secret, of every client that committed.
        beacon
            The public value that the conditions named.
        """
        require_name("run", run)
        require_whole("budget", budget)
        content = {
            "attempt": attempt,
            "budget": budget,
            "secrets": {client: list(own) for client, own in secrets.items()},
            "beacon": beacon,
        }
        self._write("open", [run], content)

    def open_unsigned(
        self, run: str, budget: int, terms: Mapping[str, Terms], *, rounds: int
    ) -> None:
        """Open an unsigned run: there are no shared coins, and no client pays in it.

        Parameters
        ----------
        run, budget, rounds
            The name of the run, the most it may cost in micro-units, and how many rounds it has.
        terms
            What the server and each client agreed on.
        """
        require_name("run", run)
        require_whole("budget", budget)
        require_whole("rounds", rounds)
        for name in terms:
            require_name("client", name)
        content = {
            "rounds": rounds,
            "budget": budget,
            "terms": [
                [name, [*map(list, own.tariff.blocks)], own.level, own.samples]
                for name, own in terms.items()
            ],
        }
        self._write("open", [run], content)

    def record_round(
        self,
        run: str,
        round_: int,
        *,
        model: str,
        joined: Mapping[str, Delivered] | None = None,
        missed: Collection[str] = (),
        refused: Mapping[str, Refused] | None = None,
        state: State | None = None,
    ) -> None:
        """Record a round, and pay for the updates that were accepted in it.

        Parameters
        ----------
        run, round_
            The run and the round; rounds are recorded in order, from 0.
        model
            Hash of the model after the round.
        joined, missed, refused
            Of the clients that drew heads: whose update was accepted, which ones sent nothing, and
            whose update was refused, with the reason.
        state
            What the run needs to resume after this round, arrays by name; only the last is kept.
        """
        require_name("run", run)
        require_whole("round", round_)
        require_digest("model", model)
        if run not in self._books.runs:  # runs are never removed, so a known one exists
            self._require_run(run)
        for client in missed:
            require_name("client", client)
        content: dict[str, Any] = {
            "model": model,
            "joined": dict(joined or {}),
            "missed": sorted(missed),
            "refused": {
                name: [plain_reason(own.reason), *own[1:]] for name, own in (refused or {}).items()
            },
            "state": state is not None,
        }

        def keep(connection: Connection) -> None:
            if state is None:
                drop_state(connection, run)
            else:
                write_state(connection, run, round_ + 1, state)

        self._write("round", [run, round_], content, keep)

    def record_metrics(
        self, run: str, round_: int, who: str, metrics: Mapping[str, float | int | list[Any]]
    ) -> None:
        """Record metrics of a model; recording them again replaces them.

        Metrics are stored outside the chain: no entry contains their hash, they are not signed, and
        `verify` neither needs nor trusts them.

        Parameters
        ----------
        run, round_
            The period, and how many rounds of the whole run were done: 0 is before the first.
        who
            What they are: "server" (the server's evaluation), "clients" (the clients' evaluation)
            or "train" (the clients' training).
        metrics
            Numbers and lists of numbers by name; NaN and infinities are kept as such.
        """
        require_name("run", run)
        require_place(round_, who)
        row = {"run": run, "round": round_, "who": who, "metrics": metrics_text(metrics)}
        own = (measured.c.run == run) & (measured.c.round == round_) & (measured.c.who == who)
        with self._lock, self._database.writing() as connection:
            connection.execute(measured.delete().where(own))
            connection.execute(measured.insert(), row)

    def settle(self, run: str) -> None:
        """Close a run: payers get back what no round used, the treasury gets the rest.

        Offers that led to no agreement are withdrawn.
        """
        require_name("run", run)
        with self._lock:
            if self.find("settle", run) is None:
                if run not in self.books.offered:
                    self._require_run(run)
                run_ = self._books.runs.get(run)
                self._write("settle", [run], {"rounds": run_.done if run_ else 0})

    def _write(
        self,
        kind: str,
        of: list[Any],
        content: dict[str, Any],
        then: Callable[[Connection], None] | None = None,
    ) -> bool:
        """Write an entry that verifies, in one transaction; return whether it is new.

        Parameters
        ----------
        kind, of, content
            Its kind, subject and content; writing an identical entry again is a no-op.
        then
            Further work in the same transaction.
        """
        content = content | {"kind": kind, "of": of}
        text, title = canonical_text(content), entry_title(content)
        with self._lock:
            with self._database.writing() as connection:
                found = recorded(connection, [kind, *of])
                if found is not None:
                    before, at = found
                    if before != text:
                        raise LedgerError(
                            f"{title} is already recorded with different content; use another "
                            "name or ledger."
                        )
                    moves = kind in ("deposit", "withdraw")
                    if moves and at not in self._caught_up(connection).moves:
                        raise LedgerError(
                            f"{title} was recorded as entry {at}, and reversed since; use another "
                            "reference. Nothing was recorded."
                        )
                    return False
                books = self._caught_up(connection)
                try:
                    lines, enter = books.expect(content)
                except VerificationError as error:
                    raise LedgerError(f"{title}: {error} Nothing was recorded.") from None
                except (LookupError, TypeError, ValueError, AttributeError) as error:
                    raise LedgerError(f"{title} does not have the form of an entry.") from error
                number = len(books.hashes) + 1
                previous = books.hashes[-1] if books.hashes else GENESIS
                posted = canonical(lines)
                if not _fits_a_line(text, posted):
                    raise LedgerError(f"{title} is too large to be verified. Nothing was recorded.")
                digest = entry_digest(text, posted)
                hash_ = chained_hash(previous, number, digest)
                signature = self._signature(content, number, hash_)
                ids = account_ids(connection, lines, self._ids)
                run, round_ = _place(kind, of)
                row = {"number": number, "run": run, "round": round_, "content": text}
                row |= {"hash": hash_, "signature": signature}
                append(connection, [kind, *of], row, lines, ids)
                if then is not None:
                    then(connection)
            enter()
            books.hashes.append(hash_)
            self._digests[number] = digest
            self._digests.pop(number - DIGESTS, None)
        return True

    def _signature(self, content: dict[str, Any], number: int, hash_: str) -> str:
        """Return the server's signature of an entry; empty if the ledger has no server key."""
        wanted, ledger = self._books.server, self._books.ledger
        if content["kind"] == "begin":
            wanted, ledger = content["server"], content["ledger"]
        if content["kind"] == "rotate" and content["of"][0] == "treasury":
            wanted = "" if self._key is None else self._key.public.hex()
        if not wanted:
            return ""
        if self._key is None or self._key.public.hex() != wanted:
            raise LedgerError(
                f"every entry of {self.name} is signed by its server {wanted}; its private key is "
                "needed (--key FILE)."
            )
        return self._key.sign_text(head_text(ledger, number, hash_)).hex()


def _fits_a_line(text: str, posted: str) -> bool:
    """Return whether the verifier would accept the length of the entry's line in an export."""
    return fits(f"{text}{posted}{_AROUND}".encode())


def _require_move(what: str, account: str, amount: int, reference: str) -> None:
    require_account(account)
    require_whole("amount", amount)
    if amount <= 0:
        raise InputError(f"a {what} must be above 0; got {amount}.")
    require_name("reference", reference)


def _message(signed: Signed | None) -> dict[str, str]:
    """Return what an owner signed, as an entry stores it."""
    if signed is None:
        return {"message": "", "signature": ""}
    return {"message": signed.text, "signature": signed.signature.hex()}


def _place(kind: str, of: list[Any]) -> tuple[str | None, int | None]:
    """Return the run and the round that an entry belongs to."""
    if kind == "round":
        return of[0], of[1]
    return (of[0], None) if kind in ("offer", "commit", "open", "settle") else (None, None)
