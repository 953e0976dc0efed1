"""Verification of a ledger in the background: in a process of its own, as the ledger grows."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.errors import FedpriceError
from fedprice.market.database import DamagedError, Database, NoLedgerError
from fedprice.market.inspection import Inspection
from fedprice.market.schema import entries, sa

if TYPE_CHECKING:
    from collections.abc import Mapping
    from multiprocessing.connection import Connection

__all__ = ["Checked", "Counts", "Verification"]

PAUSE = 1.0  # seconds between looks at a ledger that was verified to its end
TURN = 0.2  # seconds that entries are checked before questions are answered
MOST = 5000  # entries of a turn


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
        Whether that is about what is recorded, so that it stays, and not about reading it.
    rounds, clients
        Rounds of the run that was asked for, and what its clients did in them.

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
        """Whether all that is there was verified."""
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
    """A process that verifies a ledger, entry by entry, and goes on as the ledger grows.

    It has a low priority, and ends with the process that started it, however that ends.

    Parameters
    ----------
    url
        The ledger; it need not be there yet.
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
        self._process.start()
        theirs.close()

    def checked(self, run: str = "") -> Checked:
        """Return how far the ledger is verified, as known now, and ask for news: never waits.

        Parameters
        ----------
        run
            Whose clients' counts are wanted; none by default.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server gets it, too, and ends this process
    os.nice(10)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    desk = _Desk(url)
    while True:
        wait = desk.go_on()
        until = time.monotonic() + wait
        try:
            while pipe.poll(max(0.0, until - time.monotonic())):
                run = pipe.recv_bytes().decode()
                pipe.send_bytes(json.dumps(desk.answer(run)).encode())
        except (EOFError, OSError):
            return


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, in the middle of whatever it does."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(0)


class _Desk:
    """The side of the process: an inspection, what it found, and answers about it."""

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
        """Return how far the verification is, and what it knows of a run's clients."""
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
            pass  # it is told when it is inspected
        return 0
