"""Tables of clients whose samples and norms are measured: the same tables that are priced without.

What a table says of samples and norms is compared with what was measured, which counts.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.columns import ColumnsError, check_columns, renamed
from fedprice._plumbing.tables import number_column, read_table, text_column
from fedprice.clients import COLUMNS, Clients, require_same
from fedprice.commands.assumptions import MEANING
from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.calibration import Calibration

__all__ = ["in_order", "read_measured", "read_terms", "reading", "unsaid", "with_norms"]

NORMS = {"updates": "update_norm", "gradients": "grad_norm"}
MEASURED = ("samples", "weight", *NORMS.values(), "grad_norm_max")
CLOSE = 1e-6  # relative: numbers that went through a spreadsheet are still the same


def unsaid(line: str) -> None:
    """Say nothing."""


def read_terms(
    path: Path,
    ids: Sequence[str],
    samples: IntArray,
    whose: str,
    *,
    types: bool = True,
    rename: Mapping[str, str] | None = None,
    by_order: bool = False,
    say: Callable[[str], None] = unsaid,
    norms: Mapping[str, FloatArray] | None = None,
) -> Clients:
    """Return the clients of a file with measured samples, and norms of 1 until they are measured.

    They are in the order of the file, under its names.

    Parameters
    ----------
    path
        The file, which must have exactly the clients that were measured.
    ids, samples, whose
        What was measured: names and samples, and whose they are.
    types
        Whether costs must be there; values are then assumed to be 0 where they are not.
    rename
        What a command was told to rename, and None for one that cannot be told.
    by_order
        Whether the rows are the clients of `ids` in this order, whatever their names.
    say
        Called with one line about each column that differs from what was measured.
    norms
        The norms that were measured, by the name of their column.
    """
    with reading(path, rename):
        frame = renamed(read_table(path), rename, (*COLUMNS, "grad_norm_max"))
        needed = ("client_id", "cost") if types else ("client_id",)
        missing = [name for name in needed if name not in frame.columns]
        check_columns(frame.columns, (*COLUMNS, "grad_norm_max"), missing)
        rows = _rows(path, text_column(frame["client_id"]).tolist(), ids, whose, by_order=by_order)
        own = samples[rows]
        known = {"samples": own, "weight": own / own.sum()}
        known |= {name: norm[rows] for name, norm in (norms or {}).items()}
        for name in frame.columns:
            if name in MEASURED and (line := _compared(frame, name, known.get(name))):
                say(f"{path}: {line}")
        table = frame.drop(MEASURED, strict=False)
        if types and "value" not in frame.columns:
            say(f"{path}: value is {MEANING['value']}")
        assume = {"value": 0.0} if types else {}
        told = {"samples": own, "grad_norm": np.ones(len(own))}
        return Clients.from_frame(table.with_columns(**_series(told)), types=types, assume=assume)


def read_measured(
    path: Path,
    calibration: Calibration,
    *,
    types: bool = True,
    rename: Mapping[str, str] | None = None,
    by_order: bool = False,
    say: Callable[[str], None] = unsaid,
) -> Clients:
    """Return the clients of a file, which must be those of a calibration, with its norms.

    The parameters are those of `read_terms`.
    """
    fits = {"updates": calibration.updates, "gradients": calibration.gradients}
    norms = {NORMS[kind]: fit.norm for kind, fit in fits.items() if fit is not None}
    terms = read_terms(
        path, calibration.ids, calibration.samples, f"the calibration of {calibration.name}",
        types=types, rename=rename, by_order=by_order, say=say, norms=norms,
    )  # fmt: skip
    return with_norms(terms, calibration, by_order=by_order)


def with_norms(terms: Clients, calibration: Calibration, *, by_order: bool = False) -> Clients:
    """Return clients with their norms as measured."""
    ids = terms.ids.tolist()
    rows = _rows("the table", ids, calibration.ids, calibration.name, by_order=by_order)
    return terms.with_norms(calibration.fit.norm[rows], calibration.norms)


def in_order(
    path: Path, clients: Clients, ids: Sequence[str], whose: str, *, by_order: bool = False
) -> Clients:
    """Return the clients of a file in the order of `ids`, and under these names."""
    rows = _rows(path, clients.ids.tolist(), ids, whose, by_order=by_order)
    return Clients.from_frame(
        clients.to_frame()[np.argsort(rows).tolist()].with_columns(**_series({"client_id": ids})),
        types=not clients.unknown,
    )


def _rows(
    path: Path | str, given: Sequence[str], ids: Sequence[str], whose: str, *, by_order: bool
) -> IntArray:
    """Return which measured client each row of a table is."""
    if by_order:
        if len(given) != len(ids):
            raise InputError(
                f"{path} has {len(given)} rows, and {whose} {len(ids)} clients; to match them by "
                "order, give as many rows."
            )
        return np.arange(len(ids))
    try:
        require_same(path, given, ids, whose)
    except InputError as error:
        if len(given) != len(ids):
            raise
        raise InputError(f"{error} If the rows are in that order, add --by-order.") from error
    at = {name: n for n, name in enumerate(ids)}
    return np.array([at[name] for name in given])


def _compared(frame: pl.DataFrame, name: str, measured: FloatArray | None) -> str:
    """Return how a column differs from what was measured; empty if it does not."""
    if measured is None:
        return f"the column {name!r} is not used, because it is measured."
    told = number_column(frame[name])
    far = np.abs(told - measured) - CLOSE * np.abs(measured)
    differ = int((far > 0).sum())
    if not differ:
        return ""
    n = int(np.argmax(far / np.maximum(np.abs(measured), 1e-300)))
    return (
        f"the column {name!r} differs from what was measured for {differ} of {len(told)} clients, "
        f"most for {str(frame['client_id'][n])!r}: {told[n]:.6g}, measured {measured[n]:.6g}. What "
        "was measured is used."
    )


def _series(columns: Mapping[str, Any]) -> dict[str, pl.Series]:
    import polars as pl

    return {name: pl.Series(name, values) for name, values in columns.items()}


@contextmanager
def reading(path: Path, rename: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let errors about a table name its file, and the option that renames its columns.

    A command that has no such option passes None.
    """
    try:
        yield
    except ColumnsError as error:
        text = error.text if str(path) in error.text else f"{path}: {error.text}"
        if rename is None:
            raise ColumnsError(text, error.rename) from error
        old_names = {new: old for old, new in rename.items()}
        both = {old_names.get(old, old): new for old, new in error.rename.items()}
        raise InputError(ColumnsError(text, {**rename, **both}).on_command_line()) from error
    except InputError as error:
        text = str(error)
        raise InputError(text if str(path) in text else f"{path}: {text}") from error
