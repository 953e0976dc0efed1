"""Periods: a run is a chain of them, each with its own agreement; training continues throughout.

The first period has the name of the run, the later ones `run#2`, `run#3`, … The ledger links them,
and the verifier checks that each follows one that is settled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, Self

from fedprice.errors import InputError
from fedprice.market.agreement import Agreement
from fedprice.market.money import LEVEL_ONE, money
from fedprice.market.offers import run_tariffs
from fedprice.verify import next_period

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fedprice.market.ledger import Ledger
    from fedprice.tariff import Tariffs

__all__ = [
    "Answer",
    "Period",
    "Periods",
    "answers_in",
    "at_their_caps",
    "grown",
    "is_finished",
    "measured_norms",
    "paid_in",
    "require_period",
    "rounds_before",
    "spent_in",
]

GROWTH = 1.1  # the most that prices let a norm grow per period, over the fleet's median growth


def is_finished(ledger: Ledger, run: str) -> bool:
    """Return whether all rounds of a run are done, and all its periods settled."""
    runs, done, period = ledger.books.runs, 0, run
    while period in runs and runs[period].settled:
        done, period = done + runs[period].done, next_period(period)
    return done > 0 and done >= runs[run].run_rounds


def require_period(period: str, follows: str) -> None:
    """Refuse a name that neither follows the previous period nor is that of a new run."""
    if follows and period != next_period(follows):
        raise InputError(
            f"a period that follows {follows!r} must be called {next_period(follows)!r}; got "
            f"{period!r}."
        )
    # Digits of any script: `demo#٢` reads like the second period of demo.
    before, _, number = period.rpartition("#")
    if not follows and before and number.isdigit():
        raise InputError(f"the name of a run must not end with # and a number; got {period!r}.")


@dataclass(frozen=True)
class Periods:
    """How the rounds of a run are split into periods.

    Attributes
    ----------
    warm_up
        Rounds of a first period at a flat level, in which norms are measured; 0 for none. A number
        below 1 is a share of the run's rounds: at least one of them, and at most all but one.
    level
        That flat level.
    every
        Rounds after which clients are priced again; None for never.

    Examples
    --------
    >>> Periods(warm_up=5).split(20), Periods(warm_up=5, every=6).split(20), Periods().split(20)
    ([5, 15], [5, 6, 6, 3], [20])
    >>> Periods(warm_up=0.1).split(20), Periods(warm_up=0.1).split(3), Periods(warm_up=0.1).split(1)
    ([2, 18], [1, 2], [1])
    """

    warm_up: float = 0
    level: float = 0.5
    every: int | None = None

    def __post_init__(self) -> None:
        whole = type(self.warm_up) is int and self.warm_up >= 0
        if not whole and not (type(self.warm_up) is float and 0 < self.warm_up < 1):
            raise InputError(
                f"`warm_up` must be a whole number of rounds, at least 0; got {self.warm_up!r}. "
                "A number between 0 and 1 is a share of them."
            )
        if not (isinstance(self.level, int | float) and 0 < self.level <= 1):
            raise InputError(f"`level` must lie in (0, 1]; got {self.level!r}.")
        if self.every is not None and (type(self.every) is not int or self.every < 1):
            raise InputError(
                f"`every` must be a whole number of rounds, at least 1; got {self.every!r}."
            )

    def split(self, rounds: int) -> list[int]:
        """Return the rounds of each period of a run."""
        if rounds < 1:
            raise InputError(f"a run has at least 1 round; got {rounds}.")
        warm_up = self.warm_up
        if not isinstance(warm_up, int):
            warm_up = min(max(int(warm_up * rounds), 1), rounds - 1)
        if warm_up >= rounds:
            raise InputError(
                f"a warm-up of {warm_up} rounds leaves none of {rounds} to price; use fewer."
            )
        parts = [warm_up] if warm_up else []
        left = rounds - warm_up
        each = self.every or left
        return parts + [min(each, left - done) for done in range(0, left, each)]


class Answer(NamedTuple):
    """What a client was offered for a period, and the level that it chose.

    Attributes
    ----------
    tariff
        What the offer pays, in one row, as if its terms held for the whole run.
    impact, floor
        What the offer says about the client's impact, and the least level that it allows.
    level
        What the client committed to.
    """

    tariff: Tariffs
    impact: float
    floor: float
    level: float


@dataclass(frozen=True)
class Period:
    """A period that is to be priced, and what is known before it starts.

    Attributes
    ----------
    number
        Which period of its run, counted from 1.
    rounds, run_rounds, done
        Rounds of the period, of the whole run, and of the periods before.
    spent
        What the previous periods paid out minus what they took in, in micro-units.
    norms
        The norms of the clients' accepted updates in these periods, by client.
    tried
        The same with updates that were refused for their norm, each counted as the cap that it
        exceeded: what the caps of the period are made from.
    answers
        Returns what clients were offered and chose in the previous periods, by client; few pricings
        need it.
    """

    number: int
    rounds: int
    run_rounds: int
    done: int = 0
    spent: int = 0
    norms: Mapping[str, float] = field(default_factory=dict)
    tried: Mapping[str, float] = field(default_factory=dict)
    answers: Callable[[], Mapping[str, Sequence[Answer]]] = dict

    @classmethod
    def after(cls, ledger: Ledger, before: Sequence[str], plan: Sequence[int]) -> Self:
        """Return the period that comes after some others in a run with these rounds per period."""
        number = len(before) + 1
        return cls(
            number=number,
            rounds=plan[number - 1],
            run_rounds=sum(plan),
            done=sum(plan[: number - 1]),
            spent=spent_in(ledger, before),
            norms=measured_norms(ledger, before),
            tried=measured_norms(ledger, before, refused=True),
            answers=lambda: answers_in(ledger, before),
        )

    def budget(self, total: int) -> int:
        """Return the period's share of what is left of a run's budget, in micro-units.

        Examples
        --------
        >>> Period(2, rounds=10, run_rounds=40, done=20, spent=30).budget(100)
        35
        """
        return (total - self.spent) * self.rounds // (self.run_rounds - self.done)


def measured_norms(
    ledger: Ledger, periods: Iterable[str], *, refused: bool = False
) -> dict[str, float]:
    """Return the root mean square norm of each client's accepted updates.

    Of several periods, the last one in which a client joined counts: norms shrink as a model is
    trained. What a client's norm grows by counts up to `GROWTH` times the fleet's median growth, so
    that a client that scales its updates up raises its price by no more than that per period.

    Parameters
    ----------
    ledger, periods
        The ledger, and the periods in order.
    refused
        Whether updates that were refused for their norm count, too, each as the cap that it
        exceeded. Caps are made from these norms, so that a cap that was too low for a client grows
        by the slack every period; prices are not, so that what is refused earns nothing.
    """
    norms: dict[str, float] = {}
    for period in periods:
        squares: dict[str, list[float]] = {}
        for entry in ledger.entries(period):
            seen = [(c, record[2]) for c, record in entry.content.get("joined", {}).items()]
            if refused:
                lost = entry.content.get("refused", {})
                seen += [(c, record[2]) for c, record in lost.items()]
            for client, norm in seen:
                if norm:  # updates refused for other reasons have none
                    squares.setdefault(client, []).append(float(norm) ** 2)
        found = {client: (sum(own) / len(own)) ** 0.5 for client, own in squares.items()}
        norms |= found if refused else grown(norms, found)
    return norms


def grown(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the norms of a period, each limited by what it was and the fleet's median growth.

    Examples
    --------
    >>> before = {"a": 1.0, "b": 1.0, "c": 2.0}
    >>> grown(before, {"a": 2.0, "b": 0.5, "c": 1.0, "d": 9.0})  # all others have halved
    {'a': 0.55, 'b': 0.5, 'c': 1.0, 'd': 9.0}
    """
    known = [client for client in after if before.get(client)]
    if not known:
        return dict(after)
    usual = GROWTH * median(after[client] / before[client] for client in known)
    return {
        client: min(norm, usual * before[client]) if before.get(client) else norm
        for client, norm in after.items()
    }


def answers_in(ledger: Ledger, periods: Iterable[str]) -> dict[str, list[Answer]]:
    """Return what clients were offered in some periods and chose, by client.

    Only agreements count: clients that declined or did not reveal their secret are left out.
    """
    answers: dict[str, list[Answer]] = {}
    for period in periods:
        agreement = Agreement.load(ledger, period)
        for client, deal in agreement.deals.items():
            offer = deal.offered
            answers.setdefault(client, []).append(
                Answer(
                    run_tariffs(offer, agreement.conditions),
                    float(offer.impact),
                    offer.level_floor / LEVEL_ONE,
                    deal.committed.level / LEVEL_ONE,
                )
            )
    return answers


def at_their_caps(ledger: Ledger, period: str) -> list[str]:
    """Return the clients whose accepted updates were, on average, within 5 % of their cap."""
    run = ledger.run(period)
    norms: dict[str, list[float]] = {}
    for content in ledger.rounds(period):
        for client, record in content["joined"].items():
            norms.setdefault(client, []).append(float(record[2]))
    return [
        client
        for client, own in norms.items()
        if sum(own) / len(own) >= 0.95 * run.clients[client].norm_cap
    ]


def rounds_before(ledger: Ledger, period: str) -> int:
    """Return the rounds of a period and of all that it follows; 0 if there is none."""
    total = 0
    while period:
        total += ledger.rounds_done(period)
        period = ledger.run(period).follows
    return total


def paid_in(ledger: Ledger, periods: Iterable[str]) -> float:
    """Return what clients were paid in some periods so far, in the ledger's unit."""
    paid = sum(own.paid for name in periods for own in ledger.run(name).clients.values())
    return float(money(paid))


def spent_in(ledger: Ledger, periods: Iterable[str]) -> int:
    """Return what some periods paid out minus what they took in, in micro-units."""
    return sum(
        amount
        for period in periods
        for entry in ledger.entries(period)
        for account, amount in entry.postings
        if account.startswith("client:")
    )
