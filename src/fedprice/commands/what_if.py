r"""What `fedprice price --what-if` computes: offers before and after clients haggle.

An offer is a level q and a payment T. It **stands** at another cost c′ of its client as long as
neither side has a reason to reopen it:

* the client still prefers level q for T to joining unpaid at its best level q₀(c′),

      T − c′ q^τ − v k / q  ≥  − c′ q₀^τ − v k / q₀,

  whose left side minus its right side is concave in c′, so that it holds between two costs;
* the server could not lower the expected loss by more than `REOPEN` by making everybody new offers
  for the cost c′. This is examined for schemes with a certificate: their loss rises with each cost,
  so that it holds from one cost on.

A client without value accepts any cost up to T / q^τ. That is τ times the cost that a price is
made for, and 1 + margin times the cost that is paid at cost.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from functools import cached_property, partial
from math import exp, log
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.dialects import typed_number
from fedprice.commands.feasible import require_feasible
from fedprice.errors import FedpriceError, InputError, nearest
from fedprice.game import best_level
from fedprice.pricing.display import money, number, safe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import polars as pl

    from fedprice._plumbing.arrays import BoolArray, FloatArray, IntArray
    from fedprice.clients import Clients
    from fedprice.pricing import Outcome

__all__ = ["FIELDS", "REOPEN", "WhatIf", "parse_changes", "what_if", "with_changes"]

FIELDS = ("cost", "value", "samples", "level_min", "level_max")
REOPEN = 0.01  # the share of the expected loss for which the server would make new offers
FACTOR = 1e6  # how far from a client's cost the ends of its range are sought
EXACT = 1e-9  # relative error of the ends
SAME = 1e-7  # relative difference of ends that are the same in words


@dataclass(frozen=True, eq=False)
class WhatIf:
    """What changes if clients have other costs, values, samples or limits.

    Attributes
    ----------
    before, after
        The offers as they are, and those that would be made.
    rows
        The clients that were changed, in the order of the table.
    lowest, highest
        Between which of its costs the offer to each of these clients stands, all else as before,
        shape (len(rows),). 0 and infinity where there is no limit; NaN where the offer stands at
        no cost: the client pays, and would rather join unpaid.
    renews
        Whether `lowest` is where the server would make new offers, shape (len(rows),).
    """

    before: Outcome
    after: Outcome
    rows: IntArray
    lowest: FloatArray
    highest: FloatArray
    renews: BoolArray

    def order(self, most: int | None = None) -> IntArray:
        """Return the changed clients, and the `most` others whose payment changes most."""
        shift = np.abs(self.after.payments - self.before.payments)
        shift[self.rows] = -1.0
        others = np.argsort(-shift, kind="stable")[: shift.size - self.rows.size]
        return np.concatenate([self.rows, others if most is None else others[:most]])

    @cached_property
    def kept(self) -> FloatArray:
        """The level that each changed client would choose if its price stayed; NaN at contracts."""
        game, rows = self.after.game, self.rows
        clients = game.clients
        levels = best_level(
            self.before.prices[rows], clients.cost[rows], (clients.value * game.impact)[rows],
            game.cost_exponent, clients.level_max[rows],
        )  # fmt: skip
        chosen = self.before.posts_prices and self.before.bought is None
        return levels if chosen else np.full(rows.size, np.nan)

    def to_frame(self) -> pl.DataFrame:
        """Return one row per client: level, price and payment, now and in the what-if."""
        import polars as pl

        changed = np.isin(np.arange(len(self.before.levels)), self.rows)
        columns = {
            f"{name}{end}": column
            for end, outcome in (("", self.before), ("_if", self.after))
            for name, column in (
                ("level", outcome.levels), ("price", outcome.prices), ("payment", outcome.payments),
            )
        }  # fmt: skip
        ids = pl.Series("client_id", self.before.game.clients.ids, dtype=pl.String)
        return pl.DataFrame([ids]).with_columns(
            *(pl.Series(name, column) for name, column in columns.items()),
            pl.Series("changed", changed),
        )

    def stands(self) -> pl.DataFrame:
        """Return one row per changed client: where its offer stands, and its level if kept."""
        import polars as pl

        ids = pl.Series("client_id", self.before.game.clients.ids[self.rows], dtype=pl.String)
        columns = {
            "lowest_cost": self.lowest,
            "highest_cost": self.highest,
            "level_at_same_price": self.kept,
        }
        return pl.DataFrame([ids]).with_columns(
            pl.Series(name, column) for name, column in columns.items()
        )

    def summary(self) -> dict[str, Any]:
        """Return distance to full participation, loss and spend, now and in the what-if."""
        return {
            f"{name}{end}": getattr(outcome, name)
            for name in ("distance", "expected_loss", "spend")
            for end, outcome in (("", self.before), ("_if", self.after))
        }

    def sentences(self, currency: str = "") -> list[str]:
        """Return in words where the offer to each changed client stands, and why no further."""
        return [line for at in range(self.rows.size) for line in self._sentences(at, currency)]

    def _sentences(self, at: int, currency: str) -> list[str]:
        n, low, high = int(self.rows[at]), float(self.lowest[at]), float(self.highest[at])
        before, kept = self.before, float(self.kept[at])
        name = safe(str(before.game.clients.ids[n]))
        paid, level = money(float(before.payments[n]), currency), number(float(before.levels[n]))
        offer = f"{name}: the offer of {paid} for a level of {level} stands"
        wants = before.game.clients.value[n] * before.game.impact[n] > 0
        unpaid = f"{name} would rather {'join unpaid' if wants else 'not join'}"
        if np.isnan(low):
            return [f"{offer} at no cost: {unpaid}."]
        least, most = (
            money(_rounded(x, how), currency)
            for x, how in ((low, ROUND_CEILING), (high, ROUND_FLOOR))
        )
        anew = f"new offers to everybody would lower the loss by more than {REOPEN:.0%}"
        reopens = anew if self.renews[at] else unpaid
        if np.isfinite(kept):
            # Who chooses its level at a price keeps none: the range is that of its present one.
            joins = f"{name}, if held to its level of {level} for {paid}, keeps joining"
            above = (
                f"up to a cost of {most}: above that, {unpaid}" if high < np.inf else "at any cost"
            )
            below = f" At a cost below {least}, {reopens}." if low > 0 else ""
            paid = money(float(before.prices[n]) * kept, currency)
            return [
                f"{joins} {above}.{below}",
                f"Free to choose at its price as it is, {name} would then choose a level of "
                f"{number(kept)}, for {paid}.",
            ]
        limits, reasons = [], []
        if low > 0:
            limits.append(f"from {least}")
            reasons.append(f"below that, {reopens}")
        if high < np.inf:
            limits.append(f"up to {most}")
            reasons.append(f"above that, {unpaid}")
        where = f"{' '.join(limits)}; {'; '.join(reasons)}" if limits else "of any size"
        return [f"{offer} at a cost {where}."]


def _rounded(cost: float, how: str) -> float:
    """Return a cost with three significant digits, not beyond the end that it stands for."""
    end = cost * (1 + (SAME if how == ROUND_FLOOR else -SAME))
    return float(Context(prec=3, rounding=how).create_decimal_from_float(end))


def parse_changes(texts: Iterable[str]) -> dict[str, dict[str, float]]:
    """Return what `CLIENT FIELD=NUMBER …` says, by client and field.

    Examples
    --------
    >>> parse_changes(["St. Anna cost=6000 value=10", "7 samples=120"])
    {'St. Anna': {'cost': 6000.0, 'value': 10.0}, '7': {'samples': 120.0}}
    """
    changes: dict[str, dict[str, float]] = {}
    for given in texts:
        parts = re.fullmatch(r"\s*(.+?)((?:\s+\w+=\S+)+)\s*", given)
        if parts is None:
            raise InputError(
                f"a what-if must name a client and what changes, such as 'Ashford cost=6000'; "
                f"got {given!r}."
            )
        of_client = changes.setdefault(parts[1], {})
        for field, _, text in (word.partition("=") for word in parts[2].split()):
            if field in of_client:
                raise InputError(f"a what-if has {field!r} of client {parts[1]!r} twice.")
            try:
                of_client[field] = typed_number(text)
            except InputError as error:
                raise InputError(f"{field} of client {parts[1]!r}: {error}") from None
    return changes


def with_changes(clients: Clients, changes: Mapping[str, Mapping[str, float]]) -> Clients:
    """Return the clients with other numbers, by client id and by the fields in `FIELDS`.

    More samples of one client mean a smaller share for all others. Floors that follow from a
    largest weight are not computed anew: apply them afterwards (`Clients.with_max_weight`).
    """
    place = {str(name): n for n, name in enumerate(clients.ids)}
    columns: dict[str, Any] = {}
    for client, fields in changes.items():
        if client not in place:
            raise InputError(f"there is no client {client!r}. {nearest(client, place)}")
        for field, value in fields.items():
            if field not in FIELDS:
                raise InputError(f"a what-if cannot change {field!r}. {nearest(field, FIELDS)}")
            column = getattr(clients, field)
            if column is None:
                raise InputError(
                    "a what-if cannot change 'samples': the table has weights. Give it samples."
                )
            columns.setdefault(field, column.copy())[place[client]] = value
    if "samples" in columns:
        columns["weight"] = None
    return replace(clients, **columns)


def what_if(
    clients: Clients,
    changes: Mapping[str, Mapping[str, float]],
    priced: Callable[[Clients], Outcome],
) -> WhatIf:
    """Return the offers before and after some clients change, and where the offers stand.

    Parameters
    ----------
    clients
        The clients as they are, without the floors that a largest weight sets.
    changes
        By client id, what changes: any of `FIELDS`. All changes hold together.
    priced
        Prices a table of clients: the scheme, the budget, and floors if there are any.

    Raises
    ------
    InfeasibleError
        If the budget suffices for one of the two no more.

    Examples
    --------
    >>> import fedprice as fp
    >>> clients = fp.Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=0, ids=["a", "b"])
    >>> bound = fp.Bound(alpha=2, rounds=1000)
    >>> found = what_if(clients, {"a": {"cost": 6}}, lambda c: fp.solve(fp.Game(c, bound, 3)))
    >>> found.before.levels.round(3), found.after.levels.round(3)
    (array([0.257, 0.497]), array([0.222, 0.491]))
    >>> found.lowest.round(2), found.highest.round(2)  # its cost is 4
    (array([3.76]), array([8.]))
    """
    before = priced(clients)
    require_feasible(before)
    after = priced(with_changes(clients, changes))
    require_feasible(after)
    place = {str(name): n for n, name in enumerate(clients.ids)}
    rows = np.array(sorted(place[name] for name in changes), dtype=np.intp)
    ranges = [_range(clients, before, int(n), priced) for n in rows]
    accepts, keeps, highest = np.array(ranges).reshape(-1, 3).T
    return WhatIf(before, after, rows, np.fmax(accepts, keeps), highest, keeps > accepts)


def _range(
    clients: Clients, before: Outcome, n: int, priced: Callable[[Clients], Outcome]
) -> tuple[float, float, float]:
    """Return the least cost for the client, the least one for the server, and the highest."""
    cost, name = float(clients.cost[n]), str(clients.ids[n])
    accepts = partial(_surplus, before, n)
    if accepts(cost) < -EXACT * (abs(float(before.payments[n])) + cost):
        return np.nan, np.nan, np.nan

    def keeps(other: float) -> float:
        """Return by how much the loss of new offers exceeds one that makes them worthwhile."""
        try:
            renewed = priced(with_changes(clients, {name: {"cost": other}}))
        except FedpriceError:  # numbers too far apart for prices
            return 1.0
        return renewed.expected_loss / before.expected_loss - (1 - REOPEN)

    low = _end(accepts, cost, cost / FACTOR)
    proven = np.isfinite(before.certificate.dual) and 0 < before.expected_loss < np.inf
    least = _end(keeps, cost, max(low, cost / FACTOR)) if proven else 0.0
    return low, least, _end(accepts, cost, cost * FACTOR)


def _surplus(outcome: Outcome, n: int, cost: float) -> float:
    """Return what the offer is worth to the client in row n at another cost of its own."""
    game, clients, tau = outcome.game, outcome.game.clients, outcome.game.cost_exponent
    level, wants = float(outcome.levels[n]), float(clients.value[n] * game.impact[n])
    unpaid = float(best_level(0.0, cost, wants, tau, clients.level_max[n]))
    gain: float = float(outcome.payments[n]) - cost * (level**tau - unpaid**tau)
    if not wants:
        return gain
    return gain - wants * (1 / level - 1 / unpaid) if level > 0 else -np.inf


def _end(stands: Callable[[float], float], cost: float, limit: float) -> float:
    """Return the cost, between a client's own and a limit, beyond which a function is below 0."""
    from scipy.optimize import brentq  # lazily, as all heavy imports

    if stands(limit) >= 0:
        return 0.0 if limit < cost else np.inf
    if stands(cost) <= 0:
        return cost
    found = brentq(lambda x: stands(exp(x)), log(cost), log(limit), xtol=EXACT)
    return exp(float(found))
