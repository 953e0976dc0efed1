"""`Beliefs`: what the server believes about costs and values that it does not know.

A client's *type* is its cost and its value. Beliefs are types with weights: shared by all clients,
one set per class, or one per client. Distributions are cut into cells of equal probability, each of
which is represented by its mean: Σ k/q is heavy-tailed in the cost, so a few random draws would
miss the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy import special

from fedprice._plumbing.client_columns import WEIGHT_TOLERANCE
from fedprice._plumbing.tables import as_polars, number_column, read_table, write_table
from fedprice.errors import InputError, nearest, number_like

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy.typing as npt
    import polars as pl

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.clients import Clients

__all__ = ["Beliefs", "Types"]

CELLS = 32  # for the cost, and as many for the value: 1,024 types
_COLUMNS = ("client_id", "class", "cost", "value", "probability")


class Types(NamedTuple):
    """Types with their weights, arrays of shape (S,); the weights sum to 1."""

    cost: FloatArray
    value: FloatArray
    weight: FloatArray

    @classmethod
    def of(
        cls, cost: npt.ArrayLike, value: npt.ArrayLike, weight: npt.ArrayLike | None = None
    ) -> Self:
        """Return types from unchecked numbers; without weights, all are equally likely."""
        try:
            arrays = [np.asarray(x, np.float64) for x in (cost, value)]
            shares = np.asarray(1.0 if weight is None else weight, np.float64)
            c, v, w = np.broadcast_arrays(*map(np.atleast_1d, (*arrays, shares)))
        except (TypeError, ValueError) as error:
            raise InputError(f"beliefs must be numbers, one per type; {error}.") from error
        if c.ndim != 1 or not c.size:
            raise InputError(f"beliefs need one row per type, at least one; got shape {c.shape}.")
        for name, array, holds, rule in (
            ("cost", c, c > 0, "a finite number above 0"),
            ("value", v, v >= 0, "a finite number, at least 0"),
            ("weight", w, w >= 0, "a finite number, at least 0"),
        ):
            bad = ~(np.isfinite(array) & holds)
            if bad.any():
                row = int(np.argmax(bad))
                raise InputError(
                    f"`{name}` of beliefs must be {rule}; got {array[row]:g} in row {row + 1}."
                )
        total = float(w.sum())
        if weight is not None and not abs(total - 1) <= WEIGHT_TOLERANCE:
            raise InputError(
                f"the weights of beliefs must sum to 1; got {total:.9g}. Divide by the sum."
            )
        some = w > 0
        return cls(*(np.array(x[some]) for x in (c, v, w / total))).with_moments()

    def with_moments(self, whose: str = "") -> Self:
        """Return the types if mean and variance of cost and value are finite, or else raise."""
        for name, x in (("cost", self.cost), ("value", self.value)):
            with np.errstate(over="ignore", invalid="ignore"):
                mean = float(self.weight @ x)
                moments = {"mean": mean, "variance": float(self.weight @ (x - mean) ** 2)}
            for moment, found in moments.items():
                if not np.isfinite(found):
                    raise InputError(
                        f"the {moment} of `{name}` of beliefs{whose} is not finite; the largest "
                        f"{name} is {x.max():.3g}. Use a larger unit of money, or a smaller spread."
                    )
        return self

    @property
    def means(self) -> tuple[float, float]:
        """The mean cost and the mean value."""
        return float(self.weight @ self.cost), float(self.weight @ self.value)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Beliefs:
    """What the server believes about the clients' costs and values.

    Parameters
    ----------
    cost, value
        The costs c > 0 and values v ≥ 0 of S types that every client may have, shape (S,).
    weight
        The probability of each type, shape (S,), summing to 1; by default all are equally likely.

    Notes
    -----
    The other constructors are `exponential`, `lognormal`, `ranges`, `around`, `known`,
    `leave_one_out`, `by_class`, `by_client` and `read`.

    Examples
    --------
    >>> Beliefs(cost=[20, 80], value=[0, 4000], weight=[0.7, 0.3])
    Beliefs(shared by all, types=2, mean_cost=38, mean_value=1200)
    >>> Beliefs.exponential(cost=50, value=4000)
    Beliefs(shared by all, types=1024, mean_cost=50, mean_value=4000)
    """

    kind: str
    types: dict[str, Types]

    def __init__(
        self, *, cost: npt.ArrayLike, value: npt.ArrayLike, weight: npt.ArrayLike | None = None
    ) -> None:
        self._set("all", {"": Types.of(cost, value, weight)})

    def _set(self, kind: str, types: dict[str, Types]) -> Self:
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "types", types)
        return self

    @classmethod
    def _of(cls, kind: str, types: dict[str, Types]) -> Self:
        return cls.__new__(cls)._set(kind, types)

    def __repr__(self) -> str:
        whose = {"all": "shared by all", "class": f"{len(self.types)} classes"}
        who = whose.get(self.kind, f"{len(self.types)} clients")
        means = np.mean([types.means for types in self.types.values()], axis=0)
        count = sum(types.cost.size for types in self.types.values())
        return f"Beliefs({who}, types={count}, mean_cost={means[0]:.6g}, mean_value={means[1]:.6g})"

    @classmethod
    def exponential(cls, *, cost: float, value: float, cells: int = CELLS) -> Self:
        """Return independent exponential costs and values with these means.

        Parameters
        ----------
        cost, value
            The means; a value of 0 means that no client values the model.
        cells
            Into how many cells of equal probability each of the two is cut.
        """
        edges = np.linspace(0, 1, _whole(cells) + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            # ∫ F⁻¹ over a cell: of −log(1 − u) it is (1 − u) log(1 − u) + u.
            area = np.where(edges < 1, (1 - edges) * np.log1p(-edges), 0.0) + edges
        unit = np.diff(area) * cells
        with np.errstate(over="ignore"):
            costs, values = _mean("cost", cost) * unit, _mean("value", value, zero=True) * unit
        return cls._independent(costs, values)

    @classmethod
    def lognormal(
        cls, *, cost: float, value: float, spread: float, value_spread: float | None = None,
        cells: int = CELLS,
    ) -> Self:  # fmt: skip
        """Return independent lognormal costs and values around these means.

        Parameters
        ----------
        cost, value
            The means.
        spread, value_spread
            Standard deviations of the logarithms of the cost and of the value; if only one is
            given, it applies to both. 0.25 means that they are known to about ±25 %.
        cells
            As for `exponential`.
        """
        widths = (spread, spread if value_spread is None else value_spread)
        means = (_mean("cost", cost), _mean("value", value, zero=True))
        with np.errstate(over="ignore"):  # `_independent` reports it in one line
            costs, values = (m * _lognormal(w, cells) for m, w in zip(means, widths, strict=True))
        return cls._independent(costs, values)

    @classmethod
    def ranges(
        cls, *, cost: tuple[float, float], value: tuple[float, float], cells: int = CELLS
    ) -> Self:
        """Return costs and values that are uniform in these ranges."""
        middles = (np.arange(_whole(cells)) + 0.5) / cells
        axes = []
        for name, ends in (("cost", cost), ("value", value)):
            try:
                low, high = (number_like(name, end) for end in ends)
            except (TypeError, ValueError):
                raise InputError(
                    f"the range of `{name}` must be (low, high); got {ends!r}."
                ) from None
            if not low <= high < np.inf:
                raise InputError(f"the range of `{name}` must be (low, high); got {ends}.")
            axes.append(low + (high - low) * (middles if high > low else np.full(1, 0.5)))
        return cls._independent(*axes)

    @classmethod
    def _independent(cls, costs: FloatArray, values: FloatArray) -> Self:
        """Return all pairs of costs and values, equally likely."""
        for name, axis in (("cost", costs), ("value", values)):
            if not np.isfinite(axis).all():
                raise InputError(
                    f"the mean of `{name}` of beliefs is not finite in their highest cells. Use a "
                    "larger unit of money, or a smaller spread."
                )
        values = np.zeros(1) if not values.any() else values
        c, v = np.meshgrid(costs, values, indexing="ij")
        return cls(cost=c.ravel(), value=v.ravel())

    @classmethod
    def around(cls, clients: Clients, *, spread: float, cells: int = CELLS) -> Self:
        """Return beliefs about each client: lognormal around its cost and value."""
        clients.require_types()
        unit = cls._independent(*[_lognormal(spread, cells)] * 2).types[""]
        named = zip(clients.ids.tolist(), clients.cost, clients.value, strict=True)
        found = {}
        for name, c, v in named:
            with np.errstate(over="ignore"):
                types = Types(c * unit.cost, v * unit.value, unit.weight)
            found[name] = types.with_moments(f" about client {name!r}")
        return cls._of("client", found)

    @classmethod
    def known(cls, clients: Clients) -> Self:
        """Return beliefs that are certain: each client has the cost and value of its row."""
        clients.require_types()
        certain = np.ones(1)
        named = zip(clients.ids.tolist(), clients.cost, clients.value, strict=True)
        return cls._of(
            "client", {name: Types(c * certain, v * certain, certain) for name, c, v in named}
        )

    @classmethod
    def leave_one_out(cls, clients: Clients, *, unseen: bool = False) -> Self:
        """Return for each client the costs and values of all others, equally likely.

        Nothing that a client says then affects the beliefs about itself.

        Parameters
        ----------
        clients
            The clients, with their costs and values.
        unseen
            Whether to add a type of mean cost and value 0, as likely as each other: of n samples,
            the next lies below all of them with probability 1/(n + 1). For tariffs, which would
            otherwise start at a price of 0 and leave such a client near level 0.
        """
        clients.require_types()
        count = len(clients)
        if count < 2:
            raise InputError("leaving one out needs at least two clients; got one.")
        weight = np.full(count - 1 + unseen, 1 / (count - 1 + unseen))
        types = {}
        for n, name in enumerate(clients.ids):
            cost, value = np.delete(clients.cost, n), np.delete(clients.value, n)
            if unseen:
                cost, value = np.append(cost, cost.mean()), np.append(value, 0.0)
            types[str(name)] = Types(cost, value, weight).with_moments(f" about client {name!r}")
        return cls._of("client", types)

    @classmethod
    def by_class(cls, beliefs: Mapping[str, Beliefs]) -> Self:
        """Return one set of shared beliefs per class; `Clients(classes=…)` says who is in which."""
        return cls._of("class", {str(k): shared._shared() for k, shared in beliefs.items()})

    @classmethod
    def by_client(cls, beliefs: Mapping[str, Beliefs]) -> Self:
        """Return one set of beliefs per client, by its id."""
        return cls._of("client", {str(k): shared._shared() for k, shared in beliefs.items()})

    def _shared(self) -> Types:
        if self.kind != "all":
            raise InputError("beliefs of a class or a client must not be by class or client.")
        return self.types[""]

    def with_costs_times(self, factor: float) -> Beliefs:
        """Return the beliefs of a server that takes every cost to be `factor` times as high.

        Examples
        --------
        >>> Beliefs(cost=[20, 80], value=[0, 4000], weight=[0.7, 0.3]).with_costs_times(2)
        Beliefs(shared by all, types=2, mean_cost=76, mean_value=1200)
        """
        types = {
            name: believed._replace(cost=factor * believed.cost)
            for name, believed in self.types.items()
        }
        return self._of(self.kind, types)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read beliefs from a CSV or Parquet file (see `from_frame` for the columns)."""
        try:
            return cls.from_frame(read_table(path))
        except InputError as error:
            text = str(error)
            raise InputError(text if str(path) in text else f"{path}: {text}") from error

    @classmethod
    def from_frame(cls, frame: Any) -> Self:
        """Return the beliefs in a table with one row per type.

        The columns are `cost`, `value` and `probability`, and either `client_id` or `class` where
        beliefs differ; without them all clients share the types. The probabilities of a client or
        class sum to 1.

        Examples
        --------
        >>> import polars as pl
        >>> Beliefs.from_frame(pl.DataFrame({"cost": [20, 80], "value": 0, "probability": 0.5}))
        Beliefs(shared by all, types=2, mean_cost=50, mean_value=0)
        """
        frame = as_polars(frame)
        for name in frame.columns:
            if name not in _COLUMNS:
                raise InputError(f"unknown column {name!r:.100}. {nearest(name, _COLUMNS)}")
        for name in ("cost", "value", "probability"):
            if name not in frame.columns:
                raise InputError(
                    f"there is no column {name!r}; the columns are {', '.join(frame.columns)}."
                )
        if frame.height == 0:
            raise InputError("the table has no rows; give at least one type.")
        named = [name for name in ("client_id", "class") if name in frame.columns]
        if len(named) > 1:
            raise InputError("give exactly one of the columns 'client_id' and 'class'.")
        if not named:
            return cls._of("all", {"": _types(frame, "")})
        kind = "client" if named[0] == "client_id" else "class"
        groups = frame.group_by(named[0], maintain_order=True)
        return cls._of(
            kind, {str(key): _types(rows, f" of {kind} {key!r}") for (key,), rows in groups}
        )

    def to_frame(self) -> pl.DataFrame:
        """Return the beliefs as a polars table with the columns of `from_frame`."""
        import polars as pl

        column = {"class": "class", "client": "client_id"}.get(self.kind)
        tables = []
        for name, types in self.types.items():
            rows = pl.DataFrame(
                {"cost": types.cost, "value": types.value, "probability": types.weight}
            )
            if column is not None:
                rows = rows.select(pl.lit(name).alias(column), pl.all())
            tables.append(rows)
        return pl.concat(tables)

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write the beliefs to a CSV or Parquet file, by its suffix, atomically."""
        write_table(self.to_frame(), path, force=force)

    def groups(self, clients: Clients) -> tuple[list[Types], IntArray]:
        """Return the distinct sets of types, and which of them each client has.

        Returns
        -------
        types
            The sets.
        own
            Shape (N,): the number of each client's set, from 0.
        """
        if self.kind == "all":
            return [self.types[""]], np.zeros(len(clients), np.int64)
        if self.kind == "class":
            if clients.classes is None:
                raise InputError(
                    "the beliefs are given by class, but the clients have no classes: add a column "
                    "'class' (`Clients(classes=…)`)."
                )
            names, whose = clients.classes.tolist(), "class"
        else:
            names, whose = clients.ids.tolist(), "client"
        at = {name: n for n, name in enumerate(self.types)}
        missing = next((name for name in names if name not in at), None)
        if missing is not None:
            known = nearest(missing, at)
            hint = f" {known}" if known.startswith("Did you mean") else ""
            raise InputError(f"the beliefs do not cover {whose} {missing!r}: add its types.{hint}")
        return list(self.types.values()), np.array([at[name] for name in names], np.int64)

    def draw(self, clients: Clients, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Return a cost and a value for each client, drawn from the beliefs, both shape (N,)."""
        types, group = self.groups(clients)
        cost, value = np.empty(len(clients)), np.empty(len(clients))
        for n, believed in enumerate(types):
            who = np.flatnonzero(group == n)
            drawn = rng.choice(believed.cost.size, who.size, p=believed.weight)
            cost[who], value[who] = believed.cost[drawn], believed.value[drawn]
        return cost, value


def _types(rows: pl.DataFrame, whose: str) -> Types:
    try:
        columns = [number_column(rows[name]) for name in ("cost", "value", "probability")]
        return Types.of(*columns)
    except InputError as error:
        text = str(error).replace(" of beliefs", f" of the beliefs{whose}", 1)
        for in_python, in_table in (
            ("`weight`", "`probability`"),
            ("the weights", "probabilities"),
        ):
            text = text.replace(in_python, in_table, 1)
        raise InputError(text) from error


def _lognormal(spread: float, cells: int) -> FloatArray:
    """Return the means of cells of a lognormal distribution with mean 1."""
    sigma = number_like("spread", spread)
    if not 0 <= sigma < 10:
        raise InputError(f"`spread` must be at least 0, and below 10; got {spread}.")
    if sigma == 0:
        return np.ones(1)
    # E[X; X < F⁻¹(u)] of a lognormal with mean 1 is Φ(Φ⁻¹(u) − σ).
    below = special.ndtr(special.ndtri(np.linspace(0, 1, _whole(cells) + 1)) - sigma)
    means: FloatArray = np.diff(below) * cells
    return means


def _mean(name: str, given: float, *, zero: bool = False) -> float:
    mean = number_like(name, given)
    if not (0 < mean < np.inf or (zero and mean == 0)):
        rule = "a finite number, at least 0" if zero else "a finite number above 0"
        raise InputError(f"the mean `{name}` of beliefs must be {rule}; got {given}.")
    return mean


def _whole(cells: int) -> int:
    number = number_like("cells", cells)
    if not 1 <= number <= 4096 or number != int(number):
        raise InputError(f"`cells` must be a whole number from 1 to 4096; got {cells}.")
    return int(number)
