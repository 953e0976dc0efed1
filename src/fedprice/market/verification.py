"""Verification of a ledger in the background: in a separate process, as the ledger grows."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice._plumbing.children import follow_parent, sparing_children
from fedprice.errors import FedpriceError
from fedprice.market.database import Database
from fedprice.market.inspection import Inspection
from fedprice.market.ledger_errors import DamagedError, NoLedgerError
from fedprice.market.schema import entries, sa

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

__all__ = ["Checked", "Counts", "Verification"]

PAUSE = 1.0  # seconds between checks of a ledger that was verified to its end
TURN = 0.2  # seconds of checking entries before requests are answered
MOST = 5000  # entries of a turn
REST = 1.5  # seconds that the verification leaves to a page that is being opened
_REST = b"\0"  # asks for that; names of runs have no such character


class Counts(NamedTuple):
    """What a client did in a run, by the entries that were verified; `paid` is in micro-units."""

    heads: int
    joined: int
    missed: int
    refused: int
    paid: int


@dataclass(frozen=True)
class Checked:
    """How far a ledger was verified.

    Attributes
    ----------
    entries, of
        Entries that were verified, and all that are there.
    problem
        The first thing that is wrong; empty if nothing is so far.
    is_damaged
        Whether the problem lies in the recorded entries, and so is permanent, not in reading them.
    rounds, clients
        Rounds of the requested run, and what its clients did in them.

    Examples
    --------
    >>> print(Checked(52_000, 100_012))
    verified to entry 52,000 of 100,012
    >>> print(Checked(100_012, 100_012))
    verified, 100,012 entries
    """

    entries: int = 0
    of: int = 0
    problem: str = ""
    is_damaged: bool = False
    rounds: int = 0
    clients: Mapping[str, Counts] | None = None

    @property
    def is_verified(self) -> bool:
        """Whether all entries were verified."""
        return 0 < self.entries == self.of and not self.problem

    def __str__(self) -> str:
        """Return one line for people."""
        if self.problem:
            return self.problem
        if self.is_verified:
            return f"verified, {self.entries:,} entries"
        if not self.entries:
            return "not verified yet"
        return f"verified to entry {self.entries:,} of {self.of:,}"


class Verification:
    """A process that verifies a ledger entry by entry, and continues as the ledger grows.

    It has a low priority, and ends with the process that started it, however that one ends.

    Parameters
    ----------
    url
        The ledger, which need not exist yet.
    """

    def __init__(self, url: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._lock = threading.Lock()
        self._known: dict[str, Checked] = {}  # by run
        self._asked: set[str] = set()
        self._process = context.Process(
            target=_verify, args=(url, theirs), name="fedprice verification", daemon=True
        )
        with sparing_children():
            self._process.start()
        theirs.close()

    def checked(self, run: str = "") -> Checked:
        """Return how far the ledger is known to be verified, and request an update; never waits.

        Parameters
        ----------
        run
            The run whose clients' counts are requested; none by default.
        """
        with self._lock:
            try:
                while self._pipe.poll():
                    answer = json.loads(self._pipe.recv_bytes())
                    asked = answer.pop("run")
                    self._known[asked] = _read(answer)
                    self._asked.discard(asked)
                if run not in self._asked:
                    self._pipe.send_bytes(run.encode())
                    self._asked.add(run)
            except (EOFError, OSError):
                return Checked(problem="the verification has ended; start the server again.")
            return self._known.get(run, Checked())

    def rest(self) -> None:
        """Let the process pause for a moment, in which something else needs the machine."""
        with self._lock, suppress(OSError):
            self._pipe.send_bytes(_REST)

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()
        self._pipe.close()


def _read(answer: dict[str, Any]) -> Checked:
    clients = answer["clients"]
    if clients is not None:
        answer["clients"] = {name: Counts(*own) for name, own in clients.items()}
    return Checked(**answer)


def _verify(url: str, pipe: Connection) -> None:
    """Verify a ledger until the other end of the pipe is closed."""
    follow_parent()
    os.nice(10)
    desk = _Desk(url)
    while True:
        wait = desk.go_on()
        until = time.monotonic() + wait
        try:
            while pipe.poll(max(0.0, until - time.monotonic())):
                asked = pipe.recv_bytes()
                if asked == _REST:
                    until = time.monotonic() + REST
                else:
                    pipe.send_bytes(json.dumps(desk.answer(asked.decode())).encode())
        except (EOFError, OSError):
            return


class _Desk:
    """The process's side: an inspection, its findings, and answers about them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database: Database | None = None
        self._inspection: Inspection | None = None
        self._most, self._problem, self._is_damaged = 10, "", False

    def go_on(self) -> float:
        """Verify for a moment; return the seconds after which there may be more to verify."""
        if self._is_damaged:
            return PAUSE
        try:
            self._database = self._database or Database(self._url, read_only=True)
            self._inspection = self._inspection or Inspection(self._database)
            start = time.monotonic()
            at_end = self._inspection.go_on(self._most)
            self._problem = ""
        except NoLedgerError:
            return PAUSE  # not there yet
        except FedpriceError as error:
            self._problem, self._is_damaged = str(error), isinstance(error, DamagedError)
            return PAUSE
        if at_end:
            return PAUSE
        share = TURN / max(time.monotonic() - start, 1e-3)
        self._most = min(max(int(self._most * share), 1), MOST)
        return 0.0

    def answer(self, run: str) -> dict[str, Any]:
        """Return the progress of the verification, and what it knows about a run's clients."""
        books = None if self._inspection is None else self._inspection.books
        own = None if books is None else books.runs.get(run)
        clients = own and {
            name: (one.heads, one.joined, one.missed, one.refused, one.paid)
            for name, one in own.clients.items()
        }
        return {
            "run": run,
            "entries": 0 if books is None else len(books.hashes),
            "of": self._entries(),
            "problem": self._problem,
            "is_damaged": self._is_damaged,
            "rounds": 0 if own is None else own.done,
            "clients": clients,
        }

    def _entries(self) -> int:
        """Return how many entries there are now."""
        try:
            if self._database is not None:
                with self._database.reading() as connection:
                    last = connection.execute(sa.select(sa.func.max(entries.c.number))).scalar()
                return int(last or 0)
        except FedpriceError:
            pass  # reported by the inspection
        return 0
