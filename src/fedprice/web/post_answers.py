"""`Believed`: clients under beliefs, and what the Beliefs page computes for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.beliefs.beliefs import CELLS
from fedprice.beliefs.lies import manipulability
from fedprice.beliefs.refusals import refusals
from fedprice.commands.games import read_assuming, read_calibration, read_clients
from fedprice.errors import InputError, precision_error
from fedprice.game import Game
from fedprice.pricing import Status, solve
from fedprice.pricing.display import infeasible_line, number
from fedprice.random_clients import population
from fedprice.web.belief_charts import distribution_chart, quartile_line
from fedprice.web.post_state import BELIEFS_FILE, PostAsked
from fedprice.web.price_state import EXAMPLE, asked_in

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    import polars as pl

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.lies import Manipulability
    from fedprice.beliefs.posted import Posted
    from fedprice.beliefs.refusals import Refusals
    from fedprice.calibration import Calibration
    from fedprice.clients import Clients
    from fedprice.pricing import Outcome
    from fedprice.web.dropped import DroppedTable
    from fedprice.web.served_files import Served

__all__ = ["DRAWS", "FEW", "Believed", "forms_to_compare", "tariff_frame"]

DRAWS = 200  # populations over which postings are compared with full information
FEW = 200  # up to this many clients, that is done without a request
MOST = {"price": 2_000_000, "blocks": 20_000, "tariff": 20_000, "menu": 20_000}  # clients
MOST_OTHERS, MOST_LIARS, MOST_COMPARED = 300, 400, 5_000
MOST_BLOCKS = 8  # whose prices the table shows


@dataclass(frozen=True, eq=False)
class Believed:
    """Clients, and the beliefs in a file that was dropped.

    Attributes
    ----------
    clients
        Their costs and values may be unknown.
    name
        The name of their file; None for the example.
    file, file_name
        The beliefs in the file that was dropped, and its name, if there is one.
    calibration, calibration_name
        Where α and the norms come from, if they were measured, and the name of that file.
    rename, assumed
        Columns of the clients' file that have other names, in pairs of the old and the new one, and
        those that it lacks, for which assumptions stand.
    """

    clients: Clients
    name: str | None = None
    file: Beliefs | None = None
    file_name: str | None = None
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
        clients, assumed = table.clients(types=False)
        return cls(clients, table.name, rename=table.rename, assumed=assumed)

    @classmethod
    @lru_cache(maxsize=1)
    def _read(cls, served: Served, stamps: object) -> Self:
        del stamps
        assert served.clients is not None
        name, rename = str(served.clients), served.rename
        measured = read_calibration(served.calibration, None)
        if measured is None or served.calibration is None:
            clients, assumed = read_assuming(served.clients, dict(rename), types=False)
            return cls(clients, name, rename=rename, assumed=assumed, budget=served.budget)
        notes: list[str] = []
        clients, _, _ = read_clients(
            served.clients, alpha=None, calibration=measured, rounds=1, max_weight=None,
            types=False, rename=dict(rename), by_order=served.by_order, say=notes.append,
        )  # fmt: skip
        return cls(
            clients, name, calibration=measured, calibration_name=str(served.calibration),
            rename=rename, budget=served.budget, by_order=served.by_order, notes=tuple(notes),
        )  # fmt: skip

    @property
    def usual(self) -> PostAsked:
        """The default state: clients of a user's table only sell, at about its costs."""
        measured, asked = self.calibration, PostAsked()
        if self.name is not None:
            asked = replace(asked, value=0.0, value_high=0.0)
            costs = self.true("cost")
            if costs is not None and costs.min() < costs.max():
                whole = (costs.mean(), costs.min(), costs.max())
                mean, low, high = (float(f"{cost:.3g}") for cost in whole)
                asked = replace(asked, cost=mean, cost_low=low, cost_high=high)
        if self.budget is not None:
            asked = replace(asked, budget=self.budget)
        return asked if measured is None else replace(asked, alpha=measured.alpha)

    def asked(self, address: Mapping[str, str]) -> PostAsked:
        """Return the state that an address asks for."""
        return asked_in(address, self.usual, self.calibration)

    @cached_property
    def place(self) -> dict[str, int]:
        """The row of each client, by its name."""
        return {name: row for row, name in enumerate(self.clients.ids.tolist())}

    @property
    def knows_types(self) -> bool:
        """Whether the table has costs and values."""
        return not self.clients.unknown

    def true(self, what: str) -> FloatArray | None:
        """Return the costs or values of the table, if it has them."""
        if what in self.clients.unknown:
            return None
        found: FloatArray = getattr(self.clients, what)
        return found

    def distributions(self, asked: PostAsked) -> dict[str, tuple[dict[str, Any], str]]:
        """Return charts of the beliefs about cost and value, each with its quartiles in words."""
        alone = asked.marginals(self.clients, self.file)
        return {
            what: (
                distribution_chart(what, types, self.true(what)),
                quartile_line(types, self.true(what)),
            )
            for what, types in alone.items()
        }

    def post(self, asked: PostAsked, cells: int = CELLS) -> Posted:
        """Return what to post, if it is not too much for a page."""
        count, most = len(self.clients), MOST[asked.form]
        if asked.beliefs == "others":
            most = min(most, MOST_OTHERS)
        if count > most:
            how = "from the other clients' types" if asked.beliefs == "others" else asked.form
            raise InputError(
                f"the page posts {how} for up to {number(most)} clients; got {number(count)}. "
                "Copy the command, which has no limit."
            )
        try:
            with np.errstate(all="ignore"):
                posted = asked.post(self.clients, self.file, cells)
        except (ArithmeticError, IndexError) as error:  # a table with numbers of extreme magnitudes
            raise precision_error("what to post") from error
        if np.isnan(posted.expected_loss + posted.spend_std):
            raise precision_error("what to post")
        return posted

    def command(self, asked: PostAsked) -> str:
        """Return the command that computes the same."""
        beliefs = self.file_name if asked.beliefs == "file" else None
        line = asked.command(
            self.name or EXAMPLE, beliefs or BELIEFS_FILE, self.calibration_name, self.rename,
            by_order=self.by_order,
        )  # fmt: skip
        return line if self.name else f"fedprice data example -o {EXAMPLE}\n{line}"

    def python(self, asked: PostAsked) -> str:
        """Return the Python that computes the same."""
        return asked.python(
            self.name, self.file_name or BELIEFS_FILE, self.calibration_name, self.rename,
            self.assumed, by_order=self.by_order,
        )  # fmt: skip

    def equilibrium(self, asked: PostAsked) -> Outcome:
        """Return the prices of a server that knows the costs and values of the table."""
        self.clients.require_types()
        game = Game(
            self.clients, bound=asked.bound(), budget=asked.budget, cost_exponent=asked.exponent
        )
        found = solve(game)
        if found.status is Status.INFEASIBLE:
            raise InputError(infeasible_line(found))
        return found

    def lies(self, truth: Outcome) -> Manipulability:
        """Return what each client would gain by lying to that server."""
        count = len(self.clients)
        if count > MOST_LIARS:
            raise InputError(
                f"the page looks for lies of up to {MOST_LIARS} clients; got {number(count)}. "
                f"Run: fedprice compare --lies 2 {self.name or 'clients.csv'}"
            )
        return manipulability(truth.game)

    def refusals(self, truth: Outcome, outside: str) -> Refusals:
        """Return who would refuse that server's prices."""
        return refusals(truth, outside)

    def comparable(self) -> None:
        """Refuse to compare with full information if there are too many clients."""
        count = len(self.clients)
        if count > MOST_COMPARED:
            raise InputError(
                f"the page compares with full information for up to {number(MOST_COMPARED)} "
                f"clients; got {number(count)}. Copy the command, and add --information."
            )


def forms_to_compare(asked: PostAsked, *, values: bool) -> dict[str, PostAsked]:
    """Return the requested offer in every form, by its name in the figure.

    Parameters
    ----------
    asked
        What is asked for.
    values
        Whether the clients' values are known, as a menu requires.
    """
    plain = replace(asked, classes=0, risk=0.0)
    forms = {"one price per client": replace(plain, form="price")}
    if asked.beliefs != "others":
        forms = {"one price for all": replace(plain, form="price", classes=1)} | forms
    forms |= {f"{n} blocks": replace(plain, form="blocks", blocks=n) for n in (2, 4)}
    forms["nonlinear tariff"] = replace(plain, form="tariff")
    if values and asked.beliefs != "others":
        forms["menu, values known"] = replace(plain, form="menu")
    return forms


def tariff_frame(posted: Posted) -> pl.DataFrame:
    """Return the columns of the page's table: the client, its offer, what is expected, the rest."""
    import polars as pl

    frame = posted.to_frame().with_columns(pl.Series("impact", posted.impact))
    offered = [name for name in frame.columns if name.startswith("price")]
    if len(offered) > MOST_BLOCKS + 1:
        offered = []
    own = [name for name in ("samples", "weight", "cost", "value") if name in frame.columns]
    expected = ["expected_level", "expected_payment", "payment_std"]
    if posted.clients.level_min.any():
        expected.append("floor_missed")
    return frame.select("client_id", *offered, *expected, *own, "impact")
