"""Runs and their clients: what was agreed, and what has happened to each of them so far."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .forms import INFINITY, LEVEL_ONE, VerificationError
from .pay import LONGEST_GAP, delivery_correction, due, tariff_payment

if TYPE_CHECKING:
    from .coins import Coins
    from .pay import Blocks

__all__ = [
    "Client",
    "Offered",
    "Run",
    "is_later",
    "next_period",
    "period_before",
    "period_number",
    "period_of",
    "run_of",
    "weigh",
]

_LATER = re.compile(r"(.+)#([0-9]+)\Z", re.DOTALL)


def is_later(period: str) -> bool:
    """Return whether a name is that of a period that is not the first of its run."""
    return _LATER.match(period) is not None


def run_of(period: str) -> str:
    """Return the run that a period belongs to.

    Examples
    --------
    >>> run_of("demo"), run_of("demo#3")
    ('demo', 'demo')
    """
    found = _LATER.match(period)
    return found[1] if found else period


def period_number(period: str) -> int:
    """Return which period of its run this is, counted from 1."""
    found = _LATER.match(period)
    return int(found[2]) if found else 1


def period_of(run: str, number: int) -> str:
    """Return the name of a period of a run, counted from 1.

    Examples
    --------
    >>> period_of("demo", 1), period_of("demo", 2)
    ('demo', 'demo#2')
    """
    return run if number == 1 else f"{run}#{number}"


def next_period(period: str) -> str:
    """Return the name of the period that follows one."""
    return period_of(run_of(period), period_number(period) + 1)


def period_before(period: str) -> str:
    """Return the period that one follows: x#3 follows x#2, which follows x, which follows none.

    Examples
    --------
    >>> period_before("demo#3"), period_before("demo")
    ('demo#2', '')
    """
    if not is_later(period):
        return ""
    run = run_of(period)
    digits = period[len(run) + 1 :]
    number = int(digits) if len(digits) < 10 else 0
    if number < 2 or str(number) != digits:
        raise VerificationError("there is no such period.")
    return period_of(run, number - 1)


@dataclass
class Client:
    """A client of a run: its terms, its keys, and what happened to it."""

    tariff: Blocks
    level: int
    samples: int
    key: str = ""
    grad_norm: str = ""
    menu: bool = False
    norm_cap: float = INFINITY
    coins: Coins | None = None
    share: float = 0.0  # of all samples
    counted: float = 0.0  # its level, or a higher one with which its weight is the largest allowed
    heads: int = 0
    joined: int = 0
    missed: int = 0
    refused: int = 0
    gap: int = 0  # heads since its last accepted update
    paid: int = 0

    @cached_property
    def payment(self) -> int:
        """What its level is paid, in micro-units; negative if it pays."""
        return tariff_payment(self.tariff, self.level)

    def earned(self, rounds: int, delivered: int) -> int:
        """Return what a number of updates has earned it in a run of some rounds."""
        return due(self.payment, self.level, rounds, delivered) if self.payment > 0 else 0

    def fresh(self) -> Client:
        """Return the client as it was when its run was opened."""
        return replace(self, heads=0, joined=0, missed=0, refused=0, gap=0, paid=0)


@dataclass
class Run:
    """A run, or a period of one: its clients in the order of the model's sum, how far it got."""

    rounds: int
    budget: int
    clients: dict[str, Client]
    signed: bool = False
    follows: str = ""
    run_rounds: int = 0
    longest_gap: int = LONGEST_GAP
    max_weight: float = INFINITY
    beacon: str = ""
    mixed: str = ""
    attempts: int = 0
    dropped: dict[str, str] = field(default_factory=dict)
    done: int = 0
    settled: bool = False
    state: bool = False
    model: str = ""
    updates: set[str] = field(default_factory=set)

    @cached_property
    def payees(self) -> list[tuple[str, str, Client]]:
        """The clients that are paid, with names and accounts; every round goes through them."""
        return [
            (name, f"client:{name}", own) for name, own in self.clients.items() if own.payment > 0
        ]

    @cached_property
    def usual_weights(self) -> dict[str, str]:
        """The weights of updates after which nobody missed heads, as entries have them.

        Of the clients that can draw heads: their level is above 0.
        """
        return {n: repr(own.share / own.counted) for n, own in self.clients.items() if own.level}

    def advance(self, content: dict[str, Any]) -> None:
        """Apply a round: who drew heads, who delivered, and the model after it."""
        for client in content["joined"]:
            own = self.clients[client]
            own.heads += 1
            own.joined += 1
            own.gap = 0
        for client in (*content["missed"], *content["refused"]):
            own = self.clients[client]
            own.heads += 1
            own.gap += 1
            own.refused += client in content["refused"]
            own.missed += client not in content["refused"]
        self.done, self.model, self.state = self.done + 1, content["model"], content["state"]

    def arrival(self, client: str) -> float:
        """Return q ρ of a client that draws heads in the next round, as its weight has it.

        1 / ρ is the number of its heads since its last accepted update, this one included.
        """
        own = self.clients[client]
        return own.counted / delivery_correction(own.gap + 1, self.longest_gap)

    def weight(self, client: str) -> float:
        """Return the weight of a client's update in the next round, if it draws heads."""
        return self.clients[client].share / self.arrival(client)


@dataclass
class Offered:
    """The offers of a run that is not open yet, and the commitments to them."""

    attempt: int
    conditions: dict[str, Any]
    sheet: str
    offers: dict[str, dict[str, Any]]
    hashes: dict[str, str]
    replaced: dict[str, str]
    turns: int = 1
    commitments: dict[str, dict[str, Any]] | None = None
    roster: str = ""
    dropped: dict[str, str] = field(default_factory=dict)


def weigh(run: Run) -> None:
    """Give every client its share of the samples, and the level that its weight is made with."""
    total = sum(own.samples for own in run.clients.values())
    for own in run.clients.values():
        own.share = own.samples / total if total else 0.0
        own.counted = max(own.level / LEVEL_ONE, own.share / run.max_weight)
