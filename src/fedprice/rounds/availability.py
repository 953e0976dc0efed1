"""Absence that is not a coin: which clients can be reached in a round.

A client that draws heads while it is away is not called: it sends nothing, and nobody waits for it.
Updates then arrive with probability q ρ · share, the share being that of the rounds in which the
client is there. Absence is a function of the seed, the round and the client, as coins are.

::

    Availability
    ├── Independent   a coin for every round
    ├── Markov        spells of absence and presence of random lengths
    ├── Cyclic        there for the same part of every period, each client in its own
    ├── Diurnal       a coin for every round, likelier by day, each client in its own time zone
    ├── ByLabel       cyclic, clients with similar labels at the same time
    └── Trace         rounds from a file
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice._plumbing.tables import (
    TABLE_SUFFIXES,
    csv_text,
    number_column,
    read_table,
    text_column,
)
from fedprice.errors import InputError, nearest, number_like
from fedprice.learning.draws import ABSENCES, uniforms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.learning.task import Task
    from fedprice.rounds.coins import Coins

__all__ = [
    "KINDS",
    "Availability",
    "ByLabel",
    "Cyclic",
    "Diurnal",
    "Independent",
    "Markov",
    "Presence",
    "Trace",
    "availability_of",
    "check_met",
    "presence_of",
]

START = -1  # the round of the numbers that are drawn once per client


class Presence(NamedTuple):
    """Who is there in a run.

    Attributes
    ----------
    share
        The share of rounds in which each client is there, in the long run, shape (num_clients,).
    available
        round → whether each client is there, shape (num_clients,).
    chance
        round → the probability of that, where it is known before the run and follows the clock.
    """

    share: FloatArray
    available: Callable[[int], BoolArray]
    chance: Callable[[int], FloatArray | BoolArray] | None = None


class Availability(ABC):
    """Says when clients can be reached."""

    @abstractmethod
    def begin(self, task: Task, rounds: int, seed: int) -> Presence:
        """Return who is there in a run of so many rounds, drawn from its seed."""

    @property
    def fingerprint(self) -> str:
        """What determines it, for checkpoints."""
        return repr(self)


@dataclass(frozen=True)
class Independent(Availability):
    """There in a share of the rounds, by an independent coin for each."""

    share: float

    def __post_init__(self) -> None:
        _check_share(self.share)

    def begin(self, task: Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        count = task.num_clients
        share = np.full(count, self.share)
        return Presence(share, lambda round_: uniforms(seed, ABSENCES, round_, count) < share)


@dataclass(frozen=True)
class Markov(Availability):
    """There in a share of the rounds; an absence lasts `length` rounds on average.

    Both kinds of spells have geometric lengths, those of presence length · share / (1 − share) on
    average.
    """

    share: float
    length: float

    def __post_init__(self) -> None:
        _check_share(self.share)
        least = max(1.0, (1 - self.share) / self.share)  # presence lasts at least one round
        if not least <= number_like("length", self.length) < np.inf:
            raise InputError(
                f"`length` must be at least {least:.4g} rounds for a share of {self.share:g}; got "
                f"{self.length!r}."
            )

    def begin(self, task: Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        count, enter = task.num_clients, 1 / self.length
        leave = enter * (1 - self.share) / self.share
        start = uniforms(seed, ABSENCES, START, count) < self.share
        last, there = START, start

        def available(round_: int) -> BoolArray:
            nonlocal last, there
            if round_ < last:
                last, there = START, start
            while last < round_:
                last += 1
                drawn = uniforms(seed, ABSENCES, last, count)
                there = np.where(there, drawn >= leave, drawn < enter)
            return there

        return Presence(np.full(count, self.share), available)


@dataclass(frozen=True)
class Cyclic(Availability):
    """There for a share of every period, in consecutive rounds; each client starts at random.

    Warnings
    --------
    Coins that are spaced evenly can fall in step with a period: a client whose heads all come while
    it is away never joins. Coins in blocks cannot.
    """

    period: int
    share: float

    def __post_init__(self) -> None:
        _width(self.period, self.share)

    def begin(self, task: Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        starts = uniforms(seed, ABSENCES, START, task.num_clients) * self.period
        return _cycles(starts.astype(np.int64), self.period, self.share)


@dataclass(frozen=True)
class Diurnal(Availability):
    """There by a coin whose probability goes up and down like a sine, around the share.

    Clients are in time zones of their own, drawn at random. The probability varies as far as it
    can: with a share of a half, from 0 at night to 1 by day.
    """

    period: int
    share: float

    def __post_init__(self) -> None:
        _check_share(self.share)
        _check_period(self.period)

    def begin(self, task: Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        count, swing = task.num_clients, min(self.share, 1 - self.share)
        zone = uniforms(seed, ABSENCES, START, count)

        def chance(round_: int) -> FloatArray:
            hour = round_ / self.period + zone
            return np.asarray(self.share + swing * np.sin(2 * np.pi * hour), np.float64)

        def available(round_: int) -> BoolArray:
            there: BoolArray = uniforms(seed, ABSENCES, round_, count) < chance(round_)
            return there

        return Presence(np.full(count, self.share), available, chance)


@dataclass(frozen=True)
class ByLabel(Availability):
    """Cyclic, clients in the order of their labels: whoever has the same kind is away together."""

    period: int
    share: float = 0.5

    def __post_init__(self) -> None:
        _width(self.period, self.share)

    def begin(self, task: Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        order = task.label_order()
        if order is None:
            raise InputError(
                f"availability by label needs a fp.LogisticRegression, whose labels are known; got "
                f"{task.name}. Choose another availability."
            )
        return _cycles(np.argsort(order) * self.period // order.size, self.period, self.share)


class Trace(Availability):
    r"""Rounds from a CSV file (or Parquet) with the columns client, from and to.

    A row says that a client is there from one round until another, which is not included. Rounds
    are counted from 0. Every client needs a row, and may have several, which may overlap.

    Examples
    --------
    >>> import fedprice as fp
    >>> from tempfile import TemporaryDirectory
    >>> task = fp.LogisticRegression(fp.Federation.of("two", [([[0.5], [1.5]], [0, 1])] * 2,
    ...     test=([[1.0]], [1]), num_classes=2, ids=["a", "b"]))
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "trace.csv"
    ...     _ = path.write_text("client,from,to\na,0,100\nb,10,30\nb,20,40\n", "utf-8")
    ...     Trace(path).begin(task, rounds=100, seed=0).share
    array([1. , 0.3])
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        table = read_table(path)
        if set(table.columns) != {"client", "from", "to"}:
            raise InputError(
                f"{path} must have the columns client, from and to; it has "
                f"{', '.join(table.columns)}."
            )
        try:
            first, end = number_column(table["from"]), number_column(table["to"])
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        wrong = ~((first >= 0) & (first < end) & (first % 1 == 0) & (end % 1 == 0))
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"{path}: row {row + 1} must have whole numbers with 0 ≤ from < to; got "
                f"{first[row]:g} and {end[row]:g}. Rounds are counted from 0, and the client is "
                "away in round `to`."
            )
        self._names, self._first, self._end = text_column(table["client"]), first, end
        self._hash = hashlib.sha256(csv_text(table).encode()).hexdigest()

    def __repr__(self) -> str:
        return f"Trace({str(self.path)!r})"

    @property
    def fingerprint(self) -> str:
        """A hash of the rows."""
        return self._hash

    def begin(self, task: Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        numbers = {name: n for n, name in enumerate(task.ids)}
        for name in self._names:
            if name not in numbers:
                raise InputError(
                    f"{self.path} names client {name!r}, which {task.name} does not have. "
                    f"{nearest(name, numbers)}"
                )
        client = np.array([numbers[name] for name in self._names], np.int64)

        def available(round_: int) -> BoolArray:
            there = np.zeros(task.num_clients, np.bool_)
            there[client[(self._first <= round_) & (round_ < self._end)]] = True
            return there

        share = sum((available(r) for r in range(rounds)), np.zeros(task.num_clients)) / rounds
        if not share.all():
            raise InputError(
                f"{self.path}: client {task.ids[int(share.argmin())]!r} is never there in the "
                f"{rounds} rounds of this run; add a row for it, or train without it."
            )
        return Presence(share, available, available)


KINDS: dict[str, type[Any]] = {
    "independent": Independent,
    "markov": Markov,
    "cyclic": Cyclic,
    "diurnal": Diurnal,
    "by-label": ByLabel,
}


def availability_of(text: str) -> Availability:
    """Return what a word with its numbers says, or the trace in a file.

    Examples
    --------
    >>> availability_of("markov:0.5,20")
    Markov(share=0.5, length=20)
    >>> availability_of("markov")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: availability must be markov:SHARE,LENGTH; got 'markov'.
    """
    word, _, rest = text.partition(":")
    if word in KINDS:
        kind = KINDS[word]
        try:
            numbers = [float(number) for number in rest.split(",")]
        except ValueError:
            numbers = []
        try:
            found: Availability = kind(*(int(n) if n.is_integer() else n for n in numbers))
            return found
        except TypeError:
            names = ",".join(field.name.upper() for field in fields(kind))
            raise InputError(f"availability must be {word}:{names}; got {text!r}.") from None
    if Path(text).suffix.lower() in TABLE_SUFFIXES:
        return Trace(text)
    raise InputError(f"there is no availability {text!r}, nor a CSV file. {nearest(word, KINDS)}")


def presence_of(
    availability: Availability | None, task: Task, rounds: int, seed: int
) -> Presence | None:
    """Return who is there in a run, or None for everybody, always."""
    if availability is None:
        return None
    if not isinstance(availability, Availability):
        raise InputError(
            f"`availability` must be one of fedprice.rounds.availability, such as Markov(0.5, 20); "
            f"got {availability!r}."
        )
    presence, there = availability.begin(task, rounds, seed), np.zeros(task.num_clients, np.bool_)
    chance = presence.chance
    if chance is None:
        return presence
    for round_ in range(rounds):
        there |= chance(round_) > 0
        if there.all():
            return presence
    raise InputError(
        f"{availability!r}: client {task.ids[int(there.argmin())]!r} is never there in the "
        f"{rounds} rounds of this run; use more rounds or a shorter period."
    )


def check_met(coins: Coins, presence: Presence, rounds: int, ids: Sequence[str]) -> None:
    """Refuse coins that show heads whenever a client is known to be away.

    A client counts as shut out if it joins less than once, or in less than a twentieth of the
    rounds expected; fewer than twelve expected rounds could be missed by chance.
    """
    chance = presence.chance
    if chance is None:
        return
    expected = coins.levels * presence.share * rounds
    least, met = np.maximum(1, expected / 20), np.where(expected < 12, np.inf, 0)
    for round_ in range(rounds):
        if (met >= least).all():
            return
        heads = coins.heads(round_)
        met[heads] += chance(round_)[heads]
    if (met < least).any():
        n = int((met - least).argmin())
        raise InputError(
            f"client {ids[n]!r} should join {expected[n]:.0f} of {rounds} rounds, but is away in "
            "nearly all rounds in which its evenly spaced coin shows heads. Use independent coins "
            "or blocks."
        )


def _cycles(start: IntArray, period: int, share: float) -> Presence:
    """Return clients that are there at the beginning of a period, which they start in turn."""
    width = _width(period, share)

    def available(round_: int) -> BoolArray:
        there: BoolArray = (start + round_) % period < width
        return there

    return Presence(np.full(start.size, width / period), available, available)


def _width(period: int, share: float) -> int:
    """Return in how many rounds of a period a client is there."""
    _check_share(share)
    _check_period(period)
    width = round(share * period)
    if width < 1:
        raise InputError(
            f"`share` of a period of {period} rounds must be at least one round; got {share:g}."
        )
    return width


def _check_share(share: float) -> None:
    if not 0 < number_like("share", share) <= 1:
        raise InputError(f"`share` must be above 0 and at most 1; got {share:g}.")


def _check_period(period: int) -> None:
    if not (isinstance(period, int | np.integer) and period >= 2):
        raise InputError(f"`period` must be a whole number of rounds, at least 2; got {period!r}.")
