"""`Priced`: clients and all that the Price page shows of them, cached where possible."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from fedprice.bound import Bound
from fedprice.clients import LARGEST_WEIGHT
from fedprice.commands.games import read_assuming, read_calibration, read_measured_assuming
from fedprice.commands.price import price
from fedprice.commands.what_if import what_if
from fedprice.errors import InputError
from fedprice.game import Game
from fedprice.pricing import Status, solve
from fedprice.pricing.frontier import frontier
from fedprice.random_clients import population
from fedprice.web.price_state import EXAMPLE, Asked, asked_in
from fedprice.web.pricing_charts import budget_range, budget_step, thinned

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import polars as pl

    from fedprice._plumbing.arrays import IntArray
    from fedprice.calibration import Calibration
    from fedprice.clients import Clients
    from fedprice.commands.what_if import WhatIf
    from fedprice.pricing import Outcome
    from fedprice.web.dropped import DroppedTable
    from fedprice.web.served_files import Served

__all__ = ["MANY", "SOME", "Priced"]

SOME = 500  # from this many clients on, work is done in a thread, so that it blocks no tab
MANY = 20_000  # from this many clients on, curves follow later
POINTS, FEW_POINTS = 61, 13  # of a frontier


@dataclass(frozen=True, eq=False)
class Priced:
    """Clients, and what the page computes for them.

    Attributes
    ----------
    clients
        As they were given.
    name
        The file that they come from, or None for the example.
    calibration, calibration_name
        Where α and the norms come from, if they were measured, and the name of that file.
    rename, assumed
        Columns of the file that have other names, in pairs of the old and the new one, and those
        that it lacks, for which assumptions stand.
    budget
        The budget to start with; by default 200.
    by_order, notes
        Whether the rows of the file are the measured clients in their order, and what to say about
        columns of the file that differ from what was measured.
    """

    clients: Clients
    name: str | None = None
    calibration: Calibration | None = None
    calibration_name: str | None = None
    rename: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()
    budget: float | None = None
    by_order: bool = False
    notes: tuple[str, ...] = ()

    @classmethod
    def served(cls, served: Served) -> Self:
        """Return the clients of the command line, or of the example if it names none.

        All tabs share those of the command line, as long as the files do not change.
        """
        if served.clients is None:
            return cls(population(), budget=served.budget)
        return cls._read(served, served.stamps())

    @classmethod
    def dropped(cls, table: DroppedTable) -> Self:
        """Return the clients of a table that was dropped on a page."""
        clients, assumed = table.clients(types=True)
        return cls(clients, table.name, rename=table.rename, assumed=assumed)

    @classmethod
    @lru_cache(maxsize=1)
    def _read(cls, served: Served, stamps: object) -> Self:
        del stamps
        assert served.clients is not None
        name, rename = str(served.clients), served.rename
        measured = read_calibration(served.calibration, None)
        if measured is None or served.calibration is None:
            clients, assumed = read_assuming(served.clients, dict(rename))
            return cls(clients, name, rename=rename, assumed=assumed, budget=served.budget)
        notes: list[str] = []
        clients, assumed = read_measured_assuming(
            served.clients, measured, dict(rename), by_order=served.by_order, say=notes.append
        )
        return cls(
            clients, name, measured, str(served.calibration), rename, assumed, served.budget,
            served.by_order, tuple(notes),
        )  # fmt: skip

    @property
    def usual(self) -> Asked:
        """The default state of the page."""
        second = "" if len(self.clients) > MANY else Asked.against  # which takes seconds for many
        largest = 0.0 if self.calibration is None else LARGEST_WEIGHT
        usual = Asked(max_weight=largest, against=second)
        return usual if self.budget is None else replace(usual, budget=self.budget)

    def asked(self, address: Mapping[str, str]) -> Asked:
        """Return the state that an address asks for."""
        return asked_in(address, self.usual, self.calibration)

    def game(self, asked: Asked) -> Game:
        """Return the game for a state of the page."""
        measured, clients = self.calibration, self.clients
        bound = (
            Bound(asked.alpha, asked.rounds) if measured is None else measured.bound(asked.rounds)
        )
        if asked.max_weight:
            clients = clients.with_max_weight(asked.max_weight)
        return Game(clients, bound=bound, budget=asked.budget, cost_exponent=asked.exponent)

    @cached_property
    def table(self) -> pl.DataFrame:
        """The clients' own columns."""
        return self.clients.to_frame()

    @cached_property
    def place(self) -> dict[str, int]:
        """The row of each client, by its name."""
        return {name: row for row, name in enumerate(self.clients.ids.tolist())}

    def outcome(self, asked: Asked) -> Outcome:
        """Return the prices for a state of the page; numbers that overflow are not logged."""
        with np.errstate(all="ignore"):
            return solve(self.game(asked), asked.scheme)

    def rival(self, asked: Asked) -> Outcome | None:
        """Return what the second scheme offers, if there is one."""
        return self.outcome(replace(asked, scheme=asked.against)) if asked.against else None

    def frame(self, outcome: Outcome) -> pl.DataFrame:
        """Return one row per client, with what is offered: `Outcome.to_frame`, but faster."""
        import polars as pl

        own = {"level": outcome.levels, "price": outcome.prices, "payment": outcome.payments}
        own["utility"] = outcome.utilities
        series = [pl.Series(name, column) for name, column in own.items()]
        return self.table.with_columns(pl.Series("level_min", outcome.game.clients.level_min),
                                       *series)  # fmt: skip

    def ends(self, asked: Asked) -> tuple[float, float]:
        """Return the range of budgets that is worth showing, from the least that suffices."""
        low, high = budget_range(self.game(asked))
        first = solve(replace(self.game(asked), budget=low))
        if first.status is Status.INFEASIBLE and np.isfinite(first.least_budget):
            step = budget_step(high - low)
            low = step * (np.floor(first.least_budget / step) + 1)
        return float(low), float(max(high, low + budget_step(abs(low) + 1)))

    def frontier(self, asked: Asked, ends: tuple[float, float]) -> list[tuple[float, float]]:
        """Return budgets, closer together at the lower end, and the distances that they buy."""
        game = self.game(asked)
        count = POINTS if len(self.clients) <= MANY else FEW_POINTS
        low, high = ends
        steps = np.linspace(0, 1, count) ** 2
        start = max(low, 0.0)
        below = [low, low / 2] if low < 0 else [low]
        budgets = np.unique(np.concatenate([start + (high - start) * steps, below]))
        with np.errstate(all="ignore"):
            return [
                (outcome.game.budget, outcome.distance)
                for outcome in frontier(game, budgets.tolist())
                if outcome.status is not Status.INFEASIBLE
            ]

    def what_if(self, asked: Asked, changes: Mapping[str, Mapping[str, float]]) -> WhatIf:
        """Return the offers before and after some clients change."""
        count = len(self.clients)
        if count > MANY:
            raise InputError(
                f"the page answers what-ifs for up to {MANY:,} clients; got {count:,}. Copy the "
                "command, which has no limit."
            )
        with np.errstate(all="ignore"):
            return what_if(
                self.clients, changes, lambda clients: replace(self, clients=clients).outcome(asked)
            )

    def command(
        self, asked: Asked, changes: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    ) -> str:
        """Return the command that computes the same; `changes` are what-ifs."""
        line = asked.command(
            self.name or EXAMPLE,
            self.calibration_name,
            self.rename,
            changes,
            by_order=self.by_order,
        )
        return line if self.name else f"fedprice data example -o {EXAMPLE}\n{line}"

    def python(self, asked: Asked) -> str:
        """Return the Python that computes the same."""
        return asked.python(
            self.name or EXAMPLE, self.calibration_name, self.rename, self.assumed,
            by_order=self.by_order,
        )  # fmt: skip

    def exported(self, asked: Asked) -> pl.DataFrame:
        """Return the table that `fedprice price -o FILE` writes."""
        answer = price(self.game(asked), scheme=asked.scheme, calibration=self.calibration)
        return answer.to_frame()

    @cached_property
    def rows(self) -> IntArray:
        """The rows that charts draw."""
        return thinned(self.clients)
