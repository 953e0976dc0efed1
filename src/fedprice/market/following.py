"""Following a ledger as it grows: what a page shows of its runs, reading only what is new.

`Ledger` proves what it says by replaying every entry first. Here the database answers from its
indices, in time that does not depend on the number of rounds, and nothing is proved:
`fedprice.market.verification` does that in the meantime. What was read once is kept, since entries
never change.
"""

from __future__ import annotations

import json
import math
import shlex
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fedprice.errors import InputError, nearest
from fedprice.market.database import Database
from fedprice.market.database_url import masked
from fedprice.market.keys import simulation_key
from fedprice.market.ledger_errors import DamagedError, LedgerError, NoLedgerError, NoRunError
from fedprice.market.period_reader import PeriodReader, Point, RoundSeen, RunSummary
from fedprice.market.schema import entries, sa
from fedprice.verify import next_period, run_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection

    from fedprice.market.metrics import RoundMetrics
    from fedprice.verify import Client

__all__ = ["Following", "Point", "RoundSeen", "RunSeen", "RunSummary"]

QUIET = 60.0  # seconds without a new entry after which a run counts as stopped
FRESH = 0.5  # seconds for which a result is reused, as several pages may ask

_LAST = sa.select(sa.func.max(entries.c.number))
_HASH = sa.select(entries.c.hash).where(entries.c.number == sa.bindparam("number"))
_BEGIN = sa.select(entries.c.content).where(entries.c.number == 1)
# The names of all runs by one index lookup each, not by a scan of all entries.
_NAMES = sa.text(
    "WITH RECURSIVE names(run) AS (SELECT min(run) FROM entries UNION ALL "
    "SELECT (SELECT min(run) FROM entries WHERE run > names.run) FROM names "
    "WHERE names.run IS NOT NULL) SELECT run FROM names WHERE run IS NOT NULL"
)
# Neither DISTINCT nor NOT NULL, for which the database would scan the index of runs.
_NEW_NAMES = sa.select(entries.c.run).where(entries.c.number > sa.bindparam("after"))


@dataclass(frozen=True)
class RunSeen:
    """One period of a run, for a page.

    Attributes
    ----------
    summary
        Its progress.
    unit
        The unit of its money.
    before
        Rounds of the periods before it.
    terms
        What was agreed with each client; empty while the run is only offered.
    dropped
        Why some clients that received an offer are not in it.
    newest
        The newest rounds, the last one first.
    history
        At most about 1,000 evenly spaced rounds, and the newest one.
    metrics
        What was measured, thinned in the same way; rounds count those of the whole run.
    periods
        All periods of the run, the first one first.
    goes_on, ends
        How to resume a stopped run, and the command that ends it instead; empty for others.
    """

    summary: RunSummary
    unit: str
    before: int
    terms: Mapping[str, Client]
    dropped: Mapping[str, str]
    newest: tuple[RoundSeen, ...]
    history: tuple[Point, ...]
    metrics: tuple[RoundMetrics, ...]
    periods: tuple[RunSummary, ...]
    goes_on: str = ""
    ends: str = ""


class Following:
    """A ledger that others write, followed without writing to it; threads may share it.

    Parameters
    ----------
    url
        As for `Ledger`. It need not exist yet: until then, every call raises `NoLedgerError`.

    Examples
    --------
    >>> import tempfile
    >>> from fedprice.market.ledger import Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger(f"{folder.name}/market.db")
    >>> ledger.open_unsigned("first", 0, {}, rounds=4)
    >>> ledger.record_round("first", 0, model="0" * 64)
    >>> following = Following(f"{folder.name}/market.db")
    >>> [(own.name, own.state, own.done, own.rounds) for own in following.runs()]
    [('first', 'open', 1, 4)]
    >>> ledger.close(); following.close(); folder.cleanup()
    """

    def __init__(self, url: str) -> None:
        self._url, self._lock = url, threading.RLock()
        self._database: Database | None = None
        self._forget()

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            if self._database is not None:
                self._database.close()
            self._database = None

    def _forget(self) -> None:
        self._unit, self._seen, self._hash, self._looked = "", 0, "", -math.inf
        self._runs: dict[str, PeriodReader] = {}
        self._changed: dict[str, float] = {}  # when something new was recorded of a run

    def runs(self) -> list[RunSummary]:
        """Return all periods of all runs, in the order in which they were started."""
        with self._lock:
            self._look()
            return [self._summary(name) for name in self._runs]

    @property
    def unit(self) -> str:
        """The unit of the ledger's money; empty before anything was read."""
        return self._unit

    def run(self, name: str) -> RunSeen:
        """Return what is known about a period of a run.

        Raises
        ------
        NoRunError
            If there is none with this name.
        """
        with self._lock:
            self._look()
            if name not in self._runs:
                hint = nearest(name, self._runs) if self._runs else "It has none yet."
                raise NoRunError(f"{masked(self._url)} has no run {name!r}. {hint}")
            own = self._runs[name]
            with self._reading() as connection:
                own.catch_up(connection)
            chain = [run_of(name)]
            while (following := next_period(chain[-1])) in self._runs:
                chain.append(following)
            periods = [self._summary(period) for period in chain if period in self._runs]
            summary = self._summary(name)
            goes_on = self._goes_on(periods)
            return RunSeen(
                summary=summary,
                unit=self._unit,
                before=sum(other.done for other in periods if other.period < summary.period),
                terms=own.terms,
                dropped=own.dropped,
                newest=tuple(own.newest),
                history=tuple(own.history),
                metrics=tuple(own.metrics),
                periods=tuple(periods),
                goes_on=goes_on,
                ends=self._ends(periods[-1]) if goes_on else "",
            )

    def _summary(self, name: str) -> RunSummary:
        """Return the summary of a period, which may have been stopped."""
        own = self._runs[name].summary
        if own.state != "settled" and self._is_quiet(own):
            return replace(own, state="stopped")
        return own

    def _is_quiet(self, own: RunSummary) -> bool:
        return time.time() - self._changed[own.name] >= QUIET

    def _goes_on(self, periods: list[RunSummary]) -> str:
        """Return how to resume a run that was stopped, also between two of its periods."""
        last, done = periods[-1], sum(own.done for own in periods)
        between = last.state == "settled" and 0 < last.done == last.rounds
        waits = between and done < last.run_rounds and self._is_quiet(last)
        if last.state != "stopped" and not waits:
            return ""
        where = f"after round {done:,}" if done else "from its offers"
        if last.server == simulation_key("server").public.hex():
            what = f"fedprice simulate … --ledger {shlex.quote(masked(self._url))}"
            return (
                f"If its program has ended, run the same command again ({what}): the run resumes "
                f"{where}."
            )
        return (
            "If its server has ended, start it again with the same command: the run resumes "
            f"{where}."
        )

    def _ends(self, own: RunSummary) -> str:
        """Return the command that ends a run as it stands; empty if it is settled."""
        if own.state == "settled":
            return ""
        words = ["fedprice", "ledger", "settle", own.name, "--ledger", masked(self._url)]
        return shlex.join(words) + (" --key FILE" if own.server else "")

    def _look(self) -> None:
        """Read what is new of the runs that are not settled."""
        if time.monotonic() - self._looked < FRESH:
            return
        if self._database is None:
            self._database = Database(self._url, read_only=True)
        changed = time.time()
        if not self._seen:  # nothing is known about when it was written
            changed = self._database.last_written() or changed
        with self._reading() as connection:
            last = connection.execute(_LAST).scalar() or 0
            if not last:
                raise NoLedgerError(f"{self._database.name} holds no ledger yet.")
            known = connection.execute(_HASH, {"number": self._seen}).scalar()
            if self._seen and known != self._hash:
                self._forget()  # another ledger took its place
            if last > self._seen:
                self._catch_up(connection, changed)
                self._hash = connection.execute(_HASH, {"number": last}).scalar_one()
            self._seen = last
        self._looked = time.monotonic()

    def _catch_up(self, connection: Connection, changed: float) -> None:
        if not self._unit:
            self._unit = json.loads(connection.execute(_BEGIN).scalar_one())["unit"]
        new = _NEW_NAMES.params(after=self._seen) if self._seen else _NAMES
        for name in {*connection.execute(new).scalars()} - {None}:
            reader = self._runs.get(name) or PeriodReader(name)
            reader.look(connection)
            self._runs[name], self._changed[name] = reader, changed
        order = sorted(self._runs, key=lambda name: self._runs[name].first)
        self._runs = {name: self._runs[name] for name in order}

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        """Read one snapshot; entries that cannot be understood are damage."""
        assert self._database is not None
        try:
            with self._database.reading() as connection:
                yield connection
        except LedgerError:
            raise
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise DamagedError(
                f"{self._database.name} has entries that cannot be understood; run: fedprice "
                f"ledger verify --ledger {shlex.quote(masked(self._url))}"
            ) from error
