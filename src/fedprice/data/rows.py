"""The rows of a data file: tables and npz files, checked and converted to one form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice._plumbing.tables import BROKEN, load_arrays
from fedprice.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy.typing as npt
    import polars as pl

    from fedprice._plumbing.arrays import BoolArray

__all__ = ["Rows", "npz_rows", "table_rows"]

_ARRAYS = ("features", "labels", "client_ids")
_TEST_ARRAYS = ("test_features", "test_labels")
_MOST_SHOWN = 10  # columns named in a message


class Rows(NamedTuple):
    """The content of a file, one row per sample, and how to name a row in a message.

    Labels are whole numbers or text, ids are text. `test` marks the test set, if the file has one.
    """

    features: npt.NDArray[np.float32]
    labels: pl.Series
    ids: pl.Series
    test: BoolArray | None
    place: Callable[[int], str]


def table_rows(frame: pl.DataFrame) -> Rows:
    """Return the rows of a table with `client_id`, `label`, features and perhaps `split`."""
    for column in frame.columns:
        if "_duplicated_" in column:  # how polars renames a repeated column
            raise InputError(f"there are two columns {column.partition('_duplicated_')[0]!r}.")
    for column, what in (("client_id", "the client"), ("label", "the class")):
        if column not in frame.columns:
            shown = ", ".join(frame.columns[:_MOST_SHOWN])
            more = ", …" if frame.width > _MOST_SHOWN else ""
            raise InputError(
                f"there is no column {column!r}; the columns are {shown}{more}. Rename the one "
                f"that names {what} of each row."
            )
    if frame.height == 0:
        raise InputError("there are no rows below the names of the columns.")
    test = None
    if "split" in frame.columns:
        split = _text("column 'split'", frame["split"]).str.strip_chars().fill_null("")
        wrong = ~split.is_in(["train", "test"])
        if wrong.any():
            row = wrong.arg_max() or 0
            raise InputError(
                f"column 'split' must hold 'train' or 'test'; got {_got(frame['split'][row])} in "
                f"{_row(row)}."
            )
        test = (split == "test").to_numpy()
    features = frame.drop("client_id", "label", "split", strict=False)
    if features.width == 0:
        raise InputError("there is no column with a feature besides 'client_id' and 'label'.")
    return Rows(
        _feature_columns(features),
        _labels("column 'label'", frame["label"], _row),
        _text("column 'client_id'", frame["client_id"]),
        test,
        _row,
    )


def _row(row: int) -> str:
    return f"row {row + 1}"


def npz_rows(path: Path) -> Rows:
    """Return the rows of an npz: those of the training set, then those of the test set if any."""
    import polars as pl

    try:
        arrays = {
            name: array.astype(array.dtype.newbyteorder("="), copy=False)  # polars takes no other
            for name, array in load_arrays(path).items()
        }
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    except BROKEN as error:
        raise InputError(
            f"{path} is not an npz of numbers and text. Write it with np.savez(path, features=…, "
            "labels=…, client_ids=…), and text as `.astype(str)`."
        ) from error
    for name in arrays:
        if name not in (*_ARRAYS, *_TEST_ARRAYS):
            raise InputError(f"unknown array {name!r}. {nearest(name, (*_ARRAYS, *_TEST_ARRAYS))}")
    has_test = any(name in arrays for name in _TEST_ARRAYS)
    for name in (*_ARRAYS, *(_TEST_ARRAYS if has_test else ())):
        if name not in arrays:
            raise InputError(f"there is no array {name!r}; the arrays are {', '.join(arrays)}.")
    count, features = _npz_part(arrays, "features", ("labels", "client_ids"))
    labels, test, place = arrays["labels"], None, _row
    if has_test:
        test_count, test_features = _npz_part(arrays, "test_features", ("test_labels",))
        shape, test_shape = (arrays[name].shape[1:] for name in ("features", "test_features"))
        if shape != test_shape:
            raise InputError(
                "'features' and 'test_features' must have samples of the same shape; got "
                f"{shape} and {test_shape}."
            )
        features = np.concatenate([features, test_features])
        labels = np.concatenate([labels, arrays["test_labels"]])
        test = np.arange(count + test_count) >= count

        def place(row: int) -> str:
            return _row(row) if row < count else f"{_row(row - count)} of the test set"

    ids = _text("array 'client_ids'", pl.Series(arrays["client_ids"]))
    return Rows(
        features,
        _labels("labels", pl.Series(labels), place),
        ids.extend_constant(None, len(labels) - count),
        test,
        place,
    )


def _npz_part(
    arrays: dict[str, npt.NDArray[Any]], name: str, beside: tuple[str, ...]
) -> tuple[int, npt.NDArray[np.float32]]:
    """Return the number of samples, and their features as a table; check the other arrays."""
    given = arrays[name]
    if given.dtype.kind not in "biuf" or given.ndim < 1:
        raise InputError(
            f"array {name!r} must hold numbers, one row per sample; got {given.dtype} of shape "
            f"{given.shape}."
        )
    for other in beside:
        array = arrays[other]
        if array.shape != given.shape[:1] or array.dtype.kind not in "biufU":
            raise InputError(
                f"array {other!r} must hold one whole number or text for each of the "
                f"{len(given)} rows of {name!r}; got {array.dtype} of shape {array.shape}."
            )
    if given.size == 0:
        raise InputError(f"array {name!r} is empty; got shape {given.shape}.")
    with np.errstate(over="ignore"):  # numbers that are too large are found right below
        features = given.reshape(len(given), -1).astype(np.float32)
    finite = np.isfinite(features)
    if not finite.all():
        row, column = map(int, np.argwhere(~finite)[0])
        got = given.reshape(len(given), -1)[row, column]
        raise InputError(
            _not_finite(f"array {name!r}", f"{got:g}", f"{_row(row)}, column {column + 1}")
        )
    return len(given), features


def _feature_columns(frame: pl.DataFrame) -> npt.NDArray[np.float32]:
    """Return columns of numbers, or of numbers as text, as one array of shape (rows, columns)."""
    import polars as pl

    for column in frame:
        kind = column.dtype
        if not (kind.is_numeric() or kind in (pl.String, pl.Boolean, pl.Null)):
            raise InputError(
                f"column {column.name!r} must hold numbers; got {kind}. Convert it, or leave it "
                "out."
            )
    stripped = frame.with_columns(pl.col(pl.String).str.strip_chars())
    # Via 64 bits, so that a number is rounded the same way in CSV and Parquet.
    numbers = stripped.select(pl.all().cast(pl.Float64, strict=False).cast(pl.Float32))
    finite = numbers.select(pl.all().is_finite().fill_null(False))
    for column in finite:
        if not column.all():
            row = column.arg_min() or 0
            got = _got(frame[column.name][row])
            raise InputError(_not_finite(f"column {column.name!r}", got, _row(row)))
    return numbers.to_numpy(order="c")


def _not_finite(where: str, got: str, place: str) -> str:
    return (
        f"{where} must hold finite numbers (32-bit floats); got {got} in {place}. Correct it, or "
        "leave the row or column out."
    )


def _labels(where: str, given: pl.Series, place: Callable[[int], str]) -> pl.Series:
    """Return labels as whole numbers, or as text if one of them is not a number."""
    import polars as pl

    labels = given if given.dtype.is_numeric() else _text(where, given).str.strip_chars()
    numbers = labels.cast(pl.Float64, strict=False)
    if labels.dtype == pl.String:
        missing = (labels == "").fill_null(True)
        if missing.any():
            raise InputError(
                f"{where} must not be empty; got nothing in {place(missing.arg_max() or 0)}."
            )
        if numbers.null_count():
            return labels
    whole = ((numbers % 1 == 0) & (numbers.abs() < 2**53)).fill_null(False)
    if not whole.all():
        row = whole.arg_min() or 0
        raise InputError(
            f"{where} must hold whole numbers below 2^53, or text; got {_got(given[row])} in "
            f"{place(row)}."
        )
    return numbers.cast(pl.Int64)


def _text(where: str, column: pl.Series) -> pl.Series:
    """Return names as text; whole numbers that are stored as floats lose their decimal point."""
    import polars as pl

    kind = InputError(f"{where} must hold text or whole numbers; got {column.dtype}.")
    if column.dtype.is_nested():
        raise kind
    if column.dtype.is_float():
        column = column.fill_nan(None)
        whole = ((column % 1 == 0) & (column.abs() < 2**53)).fill_null(True)
        if not whole.all():
            row = whole.arg_min() or 0
            raise InputError(
                f"{where} must hold text or whole numbers below 2^53; got {column[row]:g} in "
                f"{_row(row)}."
            )
        column = column.cast(pl.Int64)
    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError as error:
        raise kind from error


def _got(value: object) -> str:
    return "nothing" if value is None or value == "" else repr(value)
