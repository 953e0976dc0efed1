"""How often each client takes part, and how much it counts: from numbers, tables or prices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from fedprice.errors import InputError, number_like

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.clients import Clients
    from fedprice.pricing import Outcome

__all__ = ["Levels"]

NAMES = ("client_id", "client", "id")  # columns that name clients, the first that a table has
TOLERANCE = 1e-6  # of the sum of weights


@dataclass(frozen=True)
class Levels:
    """The levels of clients, and their weights.

    Attributes
    ----------
    every
        The level of all clients; None if `by_name` has them.
    by_name
        The level by client, or by class of clients.
    weights
        a_n by client or class, which sum to 1; None if samples decide.
    """

    every: float | None
    by_name: dict[str, float]
    weights: dict[str, float] | None

    @classmethod
    def of(
        cls,
        levels: float | Mapping[Any, float] | Clients | Outcome | str | PathLike[str],
        *,
        weights: Mapping[Any, float] | None = None,
        budget: float | None = None,
    ) -> Self:
        """Return levels from any of the forms that `Participation` accepts.

        Examples
        --------
        >>> Levels.of({"clinic": 1, "phone": 0.1}).by_name
        {'clinic': 1.0, 'phone': 0.1}
        >>> Levels.of({"clinic": 1, "phone": 2})
        Traceback (most recent call last):
        ...
        fedprice.errors.InputError: the level of 'phone' must be above 0 and at most 1; got 2.
        """
        if budget is not None and isinstance(levels, int | float | Mapping):
            raise InputError("`budget` needs a table of clients with their costs as `levels`.")
        shares = None if weights is None else _weights(weights)
        if isinstance(levels, Mapping):
            by_name = {str(name): _level(level, name) for name, level in levels.items()}
            if not by_name:
                raise InputError("`levels` must name at least one client; got none.")
        elif isinstance(levels, int | float):
            every = _level(levels)
            if shares is None:
                return cls(every, {}, None)
            by_name = dict.fromkeys(shares, every)
        else:
            by_name, known = _of_table(levels, budget)
            shares = shares or known
        if shares is not None and (other := by_name.keys() ^ shares.keys()):
            name = sorted(other)[0]
            has, lacks = ("levels", "weights") if name in by_name else ("weights", "levels")
            raise InputError(f"`{has}` names {name!r}, which `{lacks}` does not; give both.")
        return cls(None, by_name, shares)

    def level(self, name: str) -> float | None:
        """Return the level of a client or class; None if it is never called."""
        return self.by_name.get(name) if self.every is None else self.every

    def __str__(self) -> str:
        if self.every is not None:
            return f"level {self.every:g}"
        low, high = min(self.by_name.values()), max(self.by_name.values())
        return f"{len(self.by_name)} levels of {low:g} to {high:g}"


def _level(level: object, name: object = None) -> float:
    what = "`levels`" if name is None else f"the level of {str(name)!r}"
    found = number_like("levels", level)
    if not 0 < found <= 1:
        raise InputError(f"{what} must be above 0 and at most 1; got {level!r}.")
    return found


def _weights(weights: Mapping[Any, float]) -> dict[str, float]:
    found = {str(name): number_like("weights", own) for name, own in weights.items()}
    for name, own in found.items():
        if not 0 <= own < math.inf:
            raise InputError(f"the weight of {name!r} must be at least 0; got {own!r}.")
    if abs(total := sum(found.values()) - 1) > TOLERANCE:
        raise InputError(f"`weights` must sum to 1; got {total + 1:g}.")
    return found


def _of_table(
    table: Clients | Outcome | str | PathLike[str], budget: float | None
) -> tuple[dict[str, float], dict[str, float] | None]:
    """Return levels and weights by client from a table, or from what prices buy."""
    from fedprice._plumbing.tables import number_column, read_table
    from fedprice.bound import Bound
    from fedprice.clients import Clients
    from fedprice.game import Game
    from fedprice.pricing import Outcome, Status, solve

    if isinstance(table, str | PathLike):
        frame = read_table(str(table))

        def column(name: str) -> FloatArray:
            return number_column(frame[name])

        if "level" in frame.columns:
            if budget is not None:
                raise InputError(f"{table}: it has levels; leave `budget` out.")
            name = next((own for own in NAMES if own in frame.columns), None)
            if name is None:
                raise InputError(f"{table}: no column names the clients; call it `client_id`.")
            names = [str(own) for own in frame[name].to_list()]
            _require_distinct(names, str(table))
            known = [_level(float(own), n) for n, own in zip(names, column("level"), strict=True)]
            by_name = dict(zip(names, known, strict=True))
            share = next((own for own in ("weight", "samples") if own in frame.columns), None)
            if share is None:
                return by_name, None
            total = column(share).sum() or 1.0
            return by_name, _weights(dict(zip(names, column(share) / total, strict=True)))
        table = Clients.read(str(table), assume={"value": 0.0})
    if isinstance(table, Clients):
        if budget is None:
            raise InputError("a table of clients has costs, not levels: give `budget`, too.")
        table.require_types()
        if table.value.any():
            raise InputError(
                "these clients value the model, which needs the bound's alpha: give "
                "fp.solve(game) as `levels`."
            )
        # Without values, α and the number of rounds scale the loss, and change no level.
        table = solve(Game(table, bound=Bound(alpha=1.0, rounds=1), budget=budget))
    elif budget is not None:
        raise InputError("`budget` needs a table of clients with their costs as `levels`.")
    if not isinstance(table, Outcome):
        raise InputError(
            "`levels` must be a number, a mapping from clients to levels, a table, or an outcome "
            f"of fp.solve; got {type(table).__name__}."
        )
    if table.status is Status.INFEASIBLE:
        raise InputError(
            f"the budget does not suffice: at least {table.least_budget:.6g} is needed."
        )
    clients = table.game.clients
    bought = {
        str(name): (float(level), float(weight))
        for name, level, weight in zip(clients.ids, table.levels, clients.weight, strict=True)
        if level > 0
    }
    total = sum(weight for _, weight in bought.values())
    return (
        {name: level for name, (level, _) in bought.items()},
        {name: weight / total for name, (_, weight) in bought.items()},
    )


def _require_distinct(names: Iterable[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{where}: client {name!r} is there twice.")
        seen.add(name)
