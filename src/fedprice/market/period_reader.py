"""Reading one period of a run as it grows, from the indices of the database: only what is new.

The work of a call depends on what was recorded since the last one, not on the rounds before. The
first call sums up in the database what rounds paid; all else that it reads is limited.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from fedprice.market.accounts import balances_of
from fedprice.market.canonical import key_text
from fedprice.market.metrics import WHO, metrics_text, round_metrics
from fedprice.market.schema import accounts, entries, measured, postings, sa
from fedprice.verify import Client, period_number, run_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from fedprice.market.metrics import RoundMetrics

__all__ = ["PeriodReader", "Point", "RoundSeen", "RunSummary", "State"]

NEWEST = 50  # rounds that are stored with all names
POINTS = 400  # of a history: more would not be seen on a chart
NEWEST_TEXT, POINTS_TEXT = 4_000_000, 16_000_000  # characters that are read for them
FEWEST = 20  # least number of points of a history, however long its entries are
AT_ONCE = 500  # rounds in a query
State = Literal["offered", "open", "stopped", "settled"]

_OWN = entries.c.run == sa.bindparam("of_run")
_TERMS = (
    sa.select(entries.c.number, entries.c.content)
    .where(_OWN, entries.c.round.is_(None))
    .order_by(entries.c.number)
)
_BY_KEY = sa.select(entries.c.number).where(entries.c.key == sa.bindparam("of_key"))
_DONE = sa.select(sa.func.max(entries.c.round)).where(_OWN)
_POSTED = (
    sa.select(accounts.c.name, postings.c.amount)
    .join(accounts, accounts.c.id == postings.c.account)
    .where(postings.c.entry == sa.bindparam("of_entry"))
)
# The first posting of a round takes its payments out of the escrow.
_NEW_ROUNDS = (
    sa.select(entries.c.round, entries.c.content, -postings.c.amount)
    .join(postings, (postings.c.entry == entries.c.number) & (postings.c.line == 0), isouter=True)
    .where(_OWN, entries.c.round >= sa.bindparam("first"), entries.c.round < sa.bindparam("done"))
    .order_by(entries.c.round.desc())
    .limit(sa.bindparam("most"))
)
_PAID = sa.text(
    "SELECT e.round / :step AS stretch, -sum(p.amount) FROM entries e "
    "JOIN postings p ON p.entry = e.number AND p.line = 0 "
    "WHERE e.run = :of_run AND e.round >= :first AND e.round < :done GROUP BY stretch"
)
_SOME_ROUNDS = sa.select(entries.c.round, entries.c.content).where(
    _OWN, entries.c.round.in_(sa.bindparam("some", expanding=True))
)
# One index lookup for each; one query for both would scan all of them.
_FIRST_MEASURED, _LAST_MEASURED = (
    sa.select(extreme(measured.c.round)).where(measured.c.run == sa.bindparam("of_run"))
    for extreme in (sa.func.min, sa.func.max)
)
_MEASURED = sa.select(measured.c.round, measured.c.who, measured.c.metrics).where(
    measured.c.run == sa.bindparam("of_run"),
    measured.c.round.in_(sa.bindparam("some", expanding=True)),
)
# The first measured round of each stretch, by one index lookup each.
_MEASURED_ROUNDS = sa.text(
    "WITH RECURSIVE places(place) AS (SELECT CAST(:first AS BIGINT) UNION ALL "
    "SELECT CAST(place + :step AS BIGINT) FROM places WHERE place + :step <= :last) "
    "SELECT (SELECT min(round) FROM metrics WHERE run = :of_run AND round >= places.place "
    "AND round < places.place + :step) FROM places"
)


@dataclass(frozen=True)
class RunSummary:
    """A period of a run at one moment.

    Attributes
    ----------
    name
        The period's name: that of its run for the first one, then `run#2`, …
    state
        "offered", "open", "settled", or "stopped": offered or open, but nothing was recorded for a
        minute.
    rounds, done
        Rounds agreed on, and recorded.
    clients
        The number of clients, or of those that received an offer.
    budget, paid_in, paid_out
        The most that the server pays, what payers brought in, and what clients were paid so far,
        in micro-units.
    follows
        The period before; empty if there is none.
    run_rounds
        Rounds of the whole run.
    server
        The key of the server that its offers name; empty for an unsigned run.
    """

    name: str
    state: State
    rounds: int = 0
    done: int = 0
    clients: int = 0
    budget: int = 0
    paid_in: int = 0
    paid_out: int = 0
    follows: str = ""
    run_rounds: int = 0
    server: str = ""

    @property
    def run(self) -> str:
        """The run that the period belongs to."""
        return run_of(self.name)

    @property
    def period(self) -> int:
        """Which period of its run it is, counted from 1."""
        return period_number(self.name)

    @property
    def funds(self) -> int:
        """What may be paid out in total: a budget above 0, and what payers brought in."""
        return max(self.budget, 0) + self.paid_in


class RoundSeen(NamedTuple):
    """A recorded round, counted from 0 within its period.

    `refused` has the reason by client; `paid` is what all clients got, in micro-units.
    """

    round: int
    joined: tuple[str, ...]
    missed: tuple[str, ...]
    refused: Mapping[str, str]
    paid: int

    @property
    def heads(self) -> int:
        """How many clients drew heads."""
        return len(self.joined) + len(self.missed) + len(self.refused)


class Point(NamedTuple):
    """A period after some of its rounds.

    `paid` is what all of them paid, in micro-units; `joined`, `missed` and `refused` count the
    clients of the last of them.
    """

    done: int
    paid: int
    joined: int
    missed: int
    refused: int


class PeriodReader:
    """What was read of a period so far; every call reads what is new within one transaction.

    Attributes
    ----------
    summary
        Its progress; a stopped period is "open" here, since the database does not know.
    first
        The number of its first entry.
    terms
        What was agreed with each client; empty before it is open.
    dropped
        Why some clients that received an offer are not in it.
    newest
        The newest rounds, the last one first.
    points
        Evenly spaced rounds of its history.
    metrics
        Metrics of evenly spaced rounds, which count those of the whole run.
    """

    def __init__(self, name: str) -> None:
        self.summary = RunSummary(name, "offered")
        self.first = 0
        self.terms: dict[str, Client] = {}
        self.dropped: dict[str, str] = {}
        self.newest: list[RoundSeen] = []
        self.points: list[Point] = []
        self.metrics: list[RoundMetrics] = []
        self._name, self._of = name, {"of_run": name}
        self._is_open = False
        self._caught_up = self._paid = 0  # rounds of `newest` and `points`, and what they paid
        self._step = self._measured_step = 1  # rounds from point to point
        self._known: list[RoundMetrics] = []  # except for the newest, which may be of any round

    @property
    def history(self) -> list[Point]:
        """The points, and the newest round."""
        if not self.newest or (self.points and self.points[-1].done == self._caught_up):
            return self.points
        return [*self.points, _point(self._caught_up, self._paid, self.newest[0])]

    def look(self, connection: Connection) -> None:
        """Update the summary."""
        own = self.summary
        if own.state == "settled":
            return
        if not self._is_open:
            own = self._agreed(connection)
        done = connection.execute(_DONE, self._of).scalar()
        escrow = f"escrow:{self._name}"
        left = balances_of(connection, [escrow]).get(escrow, 0)
        state: State = "open" if self._is_open else "offered"
        paid_in = own.paid_in
        settled = connection.execute(_BY_KEY, {"of_key": key_text(["settle", self._name])}).scalar()
        if settled is not None:
            state = "settled"
            for account, amount in connection.execute(_POSTED, {"of_entry": settled}):
                if account == escrow:
                    left = -amount
                elif account.startswith("client:"):  # of a payer, for rounds that were not done
                    paid_in -= amount
        funds = max(own.budget, 0) + own.paid_in
        self.summary = RunSummary(
            self._name,
            state,
            own.rounds,
            0 if done is None else done + 1,
            own.clients,
            own.budget,
            paid_in,
            funds - left if self._is_open else 0,
            own.follows,
            own.run_rounds,
            own.server,
        )

    def _agreed(self, connection: Connection) -> RunSummary:
        """Return what was offered or agreed on, from the few entries about it."""
        conditions: dict[str, Any] = {}
        offered: dict[str, Any] = {}  # of the last set of offers, the only one that counts
        committed: dict[str, Any] = {}
        opening: dict[str, Any] | None = None
        for number, text in connection.execute(_TERMS, self._of):
            self.first = self.first or number
            content = json.loads(text)
            if content["kind"] == "offer":
                conditions = json.loads(content["conditions"])
                offered = offered if len(content["of"]) > 2 else {}  # in turn, or a new set
                made = [json.loads(offer) for offer, _ in content["offers"]]
                offered |= {own["client"]: own for own in made}
            elif content["kind"] == "commit":
                committed, self.dropped = content["commitments"], content["dropped"]
            elif content["kind"] == "open":
                opening = content
        if opening is not None and "terms" in opening:  # nobody signed it
            conditions = {"rounds": opening["rounds"], "run_rounds": opening["rounds"]}
            self.terms = {
                client: Client(tariff, level, samples)
                for client, tariff, level, samples in opening["terms"]
            }
        elif opening is not None:
            self.terms = {
                client: _client(offer, json.loads(committed[client][0]))
                for client, offer in offered.items()
                if client in committed
            }
        self._is_open = opening is not None
        return RunSummary(
            self._name,
            "offered",
            conditions["rounds"],
            clients=len(self.terms if self._is_open else offered),
            budget=0 if opening is None else opening["budget"],
            paid_in=-sum(min(own.payment, 0) for own in self.terms.values()),
            follows=conditions.get("follows", ""),
            run_rounds=conditions["run_rounds"],
            server=conditions.get("server", ""),
        )

    def catch_up(self, connection: Connection) -> None:
        """Read the rounds and metrics since the last call."""
        if self.summary.done > self._caught_up:
            self._catch_up_rounds(connection, self.summary.done)
        self._catch_up_metrics(connection)

    def _catch_up_rounds(self, connection: Connection, done: int) -> None:
        new = {"first": self._caught_up, "done": done, "most": 1} | self._of
        ((_, text, _),) = connection.execute(_NEW_ROUNDS, new)
        most = _bounded(NEWEST_TEXT, len(text), 1, NEWEST)
        rows = connection.execute(_NEW_ROUNDS, new | {"most": most})
        seen = [_round(round_, text, paid) for round_, text, paid in rows]
        self.newest = (seen + self.newest)[:most]
        most = _bounded(POINTS_TEXT, len(text), FEWEST, POINTS)
        while done // self._step > most:
            self._step *= 2
        self.points = [own for own in self.points if own.done % self._step == 0]
        among = {"first": self._caught_up, "step": self._step, "done": done} | self._of
        paid = {stretch: int(own) for stretch, own in connection.execute(_PAID, among)}
        ends = range((self._caught_up // self._step + 1) * self._step, done + 1, self._step)
        rounds = self._rounds(connection, [end - 1 for end in ends])
        for end in ends:
            self._paid += paid.pop(end // self._step - 1, 0)
            self.points.append(_point(end, self._paid, rounds[end - 1]))
        self._caught_up, self._paid = done, self._paid + sum(paid.values())

    def _rounds(self, connection: Connection, wanted: list[int]) -> dict[int, RoundSeen]:
        found = self._some(connection, _SOME_ROUNDS, wanted)
        return {round_: _round(round_, text, None) for round_, text in found}

    def _some(self, connection: Connection, query: Any, rounds: list[int]) -> list[Any]:
        """Return the rows of some rounds."""
        rows: list[Any] = []
        for start in range(0, len(rounds), AT_ONCE):
            some = {"some": rounds[start : start + AT_ONCE]} | self._of
            rows += connection.execute(query, some)
        return rows

    def _catch_up_metrics(self, connection: Connection) -> None:
        last = connection.execute(_LAST_MEASURED, self._of).scalar()
        if last is None:
            return
        newest = self._metrics_of(connection, [last])
        first = connection.execute(_FIRST_MEASURED, self._of).scalar() or 0
        size = sum(len(metrics_text(own.metrics)) for own in newest)
        most, step = _bounded(POINTS_TEXT, size, FEWEST, POINTS), self._measured_step
        while (last - first) // step > most:
            step *= 2
        if step > self._measured_step:
            self._measured_step, self._known = step, _first_of_each(self._known, step)
        # The last known round may have been measured again, or by other parties, too.
        again = (self._known[-1].round if self._known else first) // step * step
        places = {"first": again, "step": step, "last": last} | self._of
        rounds = connection.execute(_MEASURED_ROUNDS, places).scalars()
        self._known = [own for own in self._known if own.round < again]
        self._known += self._metrics_of(connection, [own for own in rounds if own is not None])
        self.metrics = self._known + (newest if self._known[-1].round < last else [])

    def _metrics_of(self, connection: Connection, rounds: list[int]) -> list[RoundMetrics]:
        rows = self._some(connection, _MEASURED, rounds)
        found = [round_metrics(self._name, *row) for row in rows]
        return sorted(found, key=lambda own: (own.round, WHO.index(own.who)))


def _bounded(text: int, size: int, least: int, most: int) -> int:
    """Return how many texts of a size may be read within a limit of characters."""
    return min(max(text // max(size, 1), least), most)


def _round(round_: int, text: str, paid: int | None) -> RoundSeen:
    content = json.loads(text)
    refused = {client: own[0] for client, own in content["refused"].items()}
    return RoundSeen(
        round_, tuple(content["joined"]), tuple(content["missed"]), refused, int(paid or 0)
    )


def _point(done: int, paid: int, last: RoundSeen) -> Point:
    return Point(done, paid, len(last.joined), len(last.missed), len(last.refused))


def _client(offer: dict[str, Any], commitment: dict[str, Any]) -> Client:
    return Client(
        offer["tariff"],
        commitment["level"],
        commitment["samples"],
        commitment["key"],
        commitment["grad_norm"],
        offer["menu"],
    )


def _first_of_each(found: list[RoundMetrics], step: int) -> list[RoundMetrics]:
    """Return the metrics of the first round in each stretch of rounds."""
    first: dict[int, int] = {}
    for own in found:
        first.setdefault(own.round // step, own.round)
    return [own for own in found if first[own.round // step] == own.round]
