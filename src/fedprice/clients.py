"""`Clients`: the table of client parameters, one row per client."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedprice._plumbing.client_columns import (
    Columns,
    class_names,
    client_names,
    floats,
    require_shares,
    shares_of,
)
from fedprice._plumbing.columns import ColumnsError, check_columns, refuse_totals, renamed
from fedprice._plumbing.tables import (
    as_pandas,
    as_polars,
    number_column,
    read_table,
    text_column,
    write_table,
)
from fedprice.errors import InputError, nearest, number_like

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pandas as pd
    import polars as pl

    from fedprice._plumbing.arrays import FloatArray


__all__ = [
    "COLUMNS",
    "LARGEST_WEIGHT",
    "Clients",
    "missing_columns",
    "require_same",
]

_TYPE = ("cost", "value")  # what a server may not know
_OPTIONAL = ("level_min", "level_max")
_NORMS = {"gradients": "grad_norm", "updates": "update_norm"}  # the column of each kind of norm
COLUMNS = ("client_id", "class", "samples", "weight", *_NORMS.values(), *_TYPE, *_OPTIONAL)

LARGEST_WEIGHT = 1.0  # of an update, unless something else is said where runs are priced
MOST_NAMED = 5  # clients in an error


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Clients:
    """The clients of a federation, as arrays of length N with one entry per client.

    Parameters
    ----------
    samples
        Number of samples d_n ≥ 0, not all zero. Weights follow: a_n = d_n / Σ d.
    weight
        Instead of `samples`: the weights a_n ≥ 0 themselves, which sum to 1.
    grad_norm
        Bound G_n ≥ 0 on the norm of the client's stochastic gradient.
    update_norm
        Instead of `grad_norm`: the root mean square norm D_n ≥ 0 of the client's updates, which
        takes the place of G_n in the bound (docs/theory.md, "Which norms").
    cost
        Cost c_n > 0 of joining every round; a level q costs c_n q^τ.
    value
        Value v_n ≥ 0 of one unit of loss improvement to the client. Leave out `cost` or `value`
        where the server does not know it: a `Game` needs both, `post` neither.
    level_min, level_max
        Least and largest level the server may buy, 0 ≤ level_min ≤ level_max ≤ 1, level_max > 0.
    ids
        Names of the clients, distinct; by default "1", "2", …
    classes
        The class of each client, if beliefs about costs and values go by class.
    given_ids
        `ids` under the name of the attribute that keeps them, as `dataclasses.replace` passes it.
    unknown
        Which of "cost" and "value" may be NaN for every client; those that are left out are.

    Notes
    -----
    A scalar stands for all clients. Arrays are copied, unless they are read-only and own their
    data, and cannot be written afterwards: what was checked stays true.
    `dataclasses.replace(clients, cost=…)` returns clients that are checked like new ones; whoever
    replaces `samples` sets `weight` to None, and the other way round; likewise the norms.
    `clients.unknown` names those of "cost" and "value" that the server does not know.

    Examples
    --------
    >>> from dataclasses import replace
    >>> clients = Clients(samples=[120, 900, 60], grad_norm=1.0, cost=[40, 55, 20], value=0)
    >>> clients
    Clients(num_clients=3)
    >>> clients.weight.round(3)
    array([0.111, 0.833, 0.056])
    >>> replace(clients, cost=[50, 55, 20]).cost
    array([50., 55., 20.])
    >>> Clients(samples=[120, 900], grad_norm=1.0, cost=[40, -1], value=0)
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: `cost` must be a finite number above 0; got -1 in row 2 ...
    """

    samples: FloatArray | None
    weight: FloatArray
    grad_norm: FloatArray | None
    update_norm: FloatArray | None
    cost: FloatArray
    value: FloatArray
    level_min: FloatArray
    level_max: FloatArray
    classes: npt.NDArray[np.object_] | None
    given_ids: npt.NDArray[np.object_] | None
    unknown: tuple[str, ...]

    def __init__(
        self,
        *,
        samples: npt.ArrayLike | None = None,
        weight: npt.ArrayLike | None = None,
        grad_norm: npt.ArrayLike | None = None,
        update_norm: npt.ArrayLike | None = None,
        cost: npt.ArrayLike | None = None,
        value: npt.ArrayLike | None = None,
        level_min: npt.ArrayLike = 0.0,
        level_max: npt.ArrayLike = 1.0,
        ids: Sequence[str] | npt.NDArray[Any] | None = None,
        classes: Sequence[str] | npt.NDArray[Any] | None = None,
        given_ids: Sequence[str] | npt.NDArray[Any] | None = None,
        unknown: Sequence[str] | npt.NDArray[Any] = (),
    ) -> None:
        if samples is None and weight is None:
            raise InputError("give exactly one of `samples` and `weight`.")
        share_name = "weight" if samples is None else "samples"
        share = np.atleast_1d(floats(share_name, weight if samples is None else samples))  # type: ignore[arg-type]
        if share.ndim != 1 or share.size == 0:
            raise InputError(
                f"`{share_name}` must have one entry per client, and at least one; "
                f"got shape {share.shape}."
            )
        if (grad_norm is None) == (update_norm is None):
            raise InputError("give exactly one of `grad_norm` and `update_norm`.")
        chosen = given_ids if ids is None else ids
        names = None if chosen is None else client_names(chosen, share.size)
        columns = Columns(share.size, names)
        given_norms = {"grad_norm": grad_norm, "update_norm": update_norm}
        norms = {
            name: columns.column(name, norm)
            for name, norm in given_norms.items()
            if norm is not None
        }
        types = {"cost": cost, "value": value}
        values = norms | {
            name: columns.column(name, np.nan if given is None else given)
            for name, given in types.items()
        }
        values["level_min"] = columns.column("level_min", level_min)
        values["level_max"] = columns.column("level_max", level_max)
        at_least_0 = "a finite number, at least 0"
        columns.check(share_name, share, lambda x: x >= 0, at_least_0)
        for name, norm in norms.items():
            columns.check(name, norm, lambda x: x >= 0, at_least_0)
        missing = tuple(
            name
            for name, column in types.items()
            if column is None or (name in unknown and np.isnan(values[name]).all())
        )
        if "cost" not in missing:
            columns.check("cost", values["cost"], lambda x: x > 0, "a finite number above 0")
        if "value" not in missing:
            columns.check("value", values["value"], lambda x: x >= 0, at_least_0)
        columns.check_levels(values["level_min"], values["level_max"])
        if samples is None:
            require_shares(share)
            values["weight"] = share
        else:
            values |= {"samples": share, "weight": shares_of(share)}
            if weight is not None and not np.array_equal(
                floats("weight", weight), values["weight"]
            ):
                raise InputError(
                    "give exactly one of `samples` and `weight`: these weights are not the "
                    "clients' shares of the samples. If you replace one, set the other to None."
                )
        for name, array in values.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        for name in ("samples", *given_norms):
            if name not in values:
                object.__setattr__(self, name, None)
        object.__setattr__(self, "given_ids", names)
        object.__setattr__(self, "unknown", missing)
        chosen_classes = None if classes is None else class_names(classes, share.size)
        object.__setattr__(self, "classes", chosen_classes)

    def __len__(self) -> int:
        return self.weight.size

    def __repr__(self) -> str:
        return f"Clients(num_clients={len(self)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies are made like new clients: arrays that were merely unpickled could be written.
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return partial(type(self), **columns), ()

    @property
    def ids(self) -> npt.NDArray[np.object_]:
        """Names of the clients: those given, or the numbers from "1" on."""
        if self.given_ids is not None:
            return self.given_ids
        return np.arange(1, len(self) + 1).astype(str).astype(object)

    @property
    def norms(self) -> str:
        """Of what the norms are: "gradients" or "updates"."""
        return "updates" if self.grad_norm is None else "gradients"

    @property
    def norm(self) -> FloatArray:
        """`grad_norm` or `update_norm`, whichever is there, shape (N,)."""
        norm = self.update_norm if self.grad_norm is None else self.grad_norm
        assert norm is not None
        return norm

    def with_norms(self, norm: npt.ArrayLike, norms: str) -> Self:
        """Return the same clients with other norms, of "gradients" or of "updates".

        Examples
        --------
        >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=1, value=0)
        >>> clients.with_norms([2, 4], "updates").update_norm
        array([2., 4.])
        """
        columns: dict[str, Any] = dict.fromkeys(_NORMS.values())
        return replace(self, **columns | {_NORMS[norms]: norm})

    def require_types(self) -> None:
        """Refuse clients whose costs or values are not known."""
        if self.unknown:
            raise InputError(
                f"the clients have no {' and no '.join(self.unknown)}, which this needs: add "
                "the column, or post prices that need none (`fedprice post`, `fp.post`)."
            )

    def with_max_weight(self, max_weight: float) -> Self:
        """Return the same clients with floors that keep aggregation weights a_n / q_n bounded.

        Parameters
        ----------
        max_weight
            Largest weight w_max that one update may get; the floors become
            max(level_min, a_n / w_max).

        Examples
        --------
        >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=1, value=0)
        >>> clients.with_max_weight(2.5).level_min
        array([0.1, 0.3])
        """
        max_weight = number_like("max_weight", max_weight)
        least = float((self.weight / self.level_max).max())
        if not max_weight >= least * (1 - 1e-15):
            raise InputError(
                f"`max_weight` must be at least {least:.6g}, the largest weight / level_max; "
                f"got {max_weight:.6g}."
            )
        floor = np.minimum(np.maximum(self.level_min, self.weight / max_weight), self.level_max)
        return replace(self, level_min=floor)

    @classmethod
    def read(
        cls,
        path: str | Path,
        *,
        types: bool = True,
        rename: Mapping[str, str] | None = None,
        assume: Mapping[str, float] | None = None,
    ) -> Self:
        """Read clients from a CSV, Parquet or .xlsx file (see `from_frame` for the columns)."""
        frame = read_table(path)
        try:
            frame = renamed(frame, rename, COLUMNS)
            refuse_totals(frame)
            return cls.from_frame(frame, types=types, assume=assume)
        except ColumnsError as error:
            raise ColumnsError(f"{path}: {error.text}", error.rename) from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def write(self, path: str | Path, *, force: bool = False) -> None:
        """Write the clients to a CSV or Parquet file, by its suffix, atomically."""
        write_table(self.to_frame(), path, force=force)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        types: bool = True,
        rename: Mapping[str, str] | None = None,
        assume: Mapping[str, float] | None = None,
    ) -> Self:
        """Return the clients of a dataframe: polars, pandas, pyarrow or any other.

        The columns are `client_id`, `samples` or `weight`, `grad_norm` or `update_norm`, `cost`,
        `value` and optionally `class`, `level_min`, `level_max`, in any order and no others.

        Parameters
        ----------
        frame
            A dataframe with the Arrow PyCapsule interface or the dataframe interchange protocol;
            an index is ignored.
        types
            Whether `cost` and `value` must be there.
        rename
            Columns that have other names, from theirs to the ones above.
        assume
            Numbers for all clients in the place of columns that the table does not have, such as
            `{"value": 0, "grad_norm": 1}`; columns that it has stay.

        Examples
        --------
        >>> import polars as pl
        >>> columns = {"samples": [12, 90], "grad_norm": [1, 1], "cost": [4, 5], "value": [0, 9]}
        >>> Clients.from_frame(pl.DataFrame({"client_id": ["a", "b"]} | columns)).ids
        array(['a', 'b'], dtype=object)
        >>> own = pl.DataFrame({"hospital": ["a", "b"], "patients": [12, 90], "cost": [4, 5]})
        >>> names = {"hospital": "client_id", "patients": "samples"}
        >>> Clients.from_frame(own, rename=names, assume={"value": 0, "grad_norm": 1}).value
        array([0., 0.])
        """
        frame, assume = renamed(as_polars(frame), rename, COLUMNS), assume or {}
        missing = [
            name
            for name in missing_columns(frame.columns, types=types)
            if name not in assume and not (name == "grad_norm" and "update_norm" in assume)
        ]
        check_columns(frame.columns, COLUMNS, missing)
        frame = _with_assumed(frame, assume)
        if set(_NORMS.values()) <= set(frame.columns):
            raise InputError("give exactly one of the columns 'grad_norm' and 'update_norm'.")
        if {"samples", "weight"} <= set(frame.columns):
            raise InputError("give exactly one of the columns 'samples' and 'weight'.")
        if frame.height == 0:
            raise InputError("the table has no rows; give at least one client.")
        numbers: dict[str, Any] = {
            name: number_column(frame[name])
            for name in frame.columns
            if name not in ("client_id", "class")
        }
        classes = text_column(frame["class"]) if "class" in frame.columns else None
        return cls(ids=text_column(frame["client_id"]), classes=classes, **numbers)

    def to_frame(self) -> pl.DataFrame:
        """Return the clients as a polars table with the columns of `from_frame`."""
        import polars as pl

        if self.samples is None:
            share = pl.Series("weight", self.weight)
        else:
            share = pl.Series("samples", self.samples)
            if self.samples.max() < 2**53 and (self.samples == np.floor(self.samples)).all():
                share = share.cast(pl.Int64)
        known = [name for name in _TYPE if name not in self.unknown]
        names = (_NORMS[self.norms], *known, *_OPTIONAL)
        rest = [pl.Series(name, getattr(self, name)) for name in names]
        if self.classes is not None:
            rest.insert(0, pl.Series("class", self.classes, dtype=pl.String))
        return pl.DataFrame([pl.Series("client_id", self.ids, dtype=pl.String), share, *rest])

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())


def missing_columns(given: Sequence[str], *, types: bool = True) -> list[str]:
    """Return which of the columns that clients need are not there.

    Examples
    --------
    >>> missing_columns(["client_id", "weight", "cost"])
    ['grad_norm', 'value']
    """
    alternatives = [("client_id",), ("samples", "weight"), tuple(_NORMS.values())]
    alternatives += [(name,) for name in _TYPE if types]
    return [names[0] for names in alternatives if not set(names) & set(given)]


def _with_assumed(frame: pl.DataFrame, assume: Mapping[str, float]) -> pl.DataFrame:
    """Return a table with numbers for all clients in the place of columns that it lacks."""
    import polars as pl

    missing = missing_columns(frame.columns)
    for name in assume:
        if name not in COLUMNS:
            raise InputError(f"cannot assume a column {name!r}. {nearest(name, COLUMNS)}")
    lacks = [
        name
        for name in assume
        if name not in frame.columns and (name not in _NORMS.values() or "grad_norm" in missing)
    ]
    return frame.with_columns(pl.lit(float(assume[name])).alias(name) for name in lacks)


def require_same(name: str | Path, given: Sequence[str], known: Sequence[str], whose: str) -> None:
    """Refuse a table, by its name, whose clients differ from the known ones."""
    unknown, missing = set(given) - set(known), set(known) - set(given)
    both = f"{name} names {_shown(given)}; {whose} names {_shown(known)}."
    if unknown:
        raise InputError(
            f"{name} has {_named(one for one in given if one in unknown)}, which {whose} does "
            f"not have. {both}"
        )
    if missing:
        raise InputError(
            f"{name} lacks {_named(one for one in known if one in missing)} of {whose}; add a "
            f"row for each. {both}"
        )


def _named(ids: Iterable[str]) -> str:
    names = list(dict.fromkeys(ids))
    return f"{'client' if len(names) == 1 else 'clients'} {_shown(names)}"


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more
