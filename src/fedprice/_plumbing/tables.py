"""Tables: any dataframe in; CSV, Parquet and other files, written atomically."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import threading
import warnings
import zipfile
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.dialects import FORMULA, csv_table, plain_numbers
from fedprice._plumbing.foreign_tables import is_foreign, read_apart
from fedprice.errors import InputError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pandas as pd
    import polars as pl

    from fedprice._plumbing.arrays import FloatArray

__all__ = [
    "BROKEN",
    "LARGEST_TABLE",
    "TABLE_SUFFIXES",
    "as_pandas",
    "as_polars",
    "check_folder",
    "check_output",
    "csv_text",
    "json_text",
    "load_arrays",
    "number_column",
    "read_table",
    "table_of",
    "text_column",
    "whole_file",
    "whole_folder",
    "write_table",
]

TABLE_SUFFIXES = (".csv", ".parquet")
LARGEST_TABLE = 200 * 2**20  # bytes: some two million clients as CSV
LONGEST_NAME = 10_000  # characters of a client or class
_ONE_AT_A_TIME = threading.Lock()  # reading a table may take 1 GB


def as_polars(frame: Any) -> pl.DataFrame:
    """Return any dataframe as a polars table: polars, pandas, pyarrow, modin, DuckDB and others.

    Taken is what has the Arrow PyCapsule interface or the dataframe interchange protocol. Frames in
    the manner of pandas go through numpy, column by column: neither pandas nor polars can do it
    without pyarrow. Their index is ignored, and NaN is a missing value, as it is in pandas.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"cost": [4.0, 5.0]})
    >>> as_polars(frame) is frame
    True
    >>> as_polars({"cost": [4.0, 5.0]})
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: a table must be a dataframe (polars, pandas, pyarrow, …); ...
    """
    import polars as pl

    if isinstance(frame, pl.DataFrame):
        return frame
    arrow, interchange = hasattr(frame, "__arrow_c_stream__"), hasattr(frame, "__dataframe__")
    if (arrow or interchange) and hasattr(frame, "isna"):
        return _from_pandas(frame)
    if arrow:
        try:
            return pl.DataFrame(frame)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
            raise InputError(f"cannot read the dataframe: {str(error).splitlines()[0]}") from error
    if interchange:
        reader = require("pandas", "pandas").api.interchange
        with warnings.catch_warnings():
            # pandas will drop the protocol; until then it is the reader that is left.
            warnings.simplefilter("ignore")
            return _from_pandas(reader.from_dataframe(frame))
    raise InputError(
        f"a table must be a dataframe (polars, pandas, pyarrow, …); got a {type(frame).__name__}."
    )


def _from_pandas(frame: Any) -> pl.DataFrame:
    import polars as pl

    names = [str(name) for name in frame.columns]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"there are two columns {name!r}.")
    columns = []
    for name in frame.columns:
        column = frame[name]
        values = column.to_numpy()
        if values.dtype.kind not in "biuf":
            values = column.astype(object).where(column.notna(), None).tolist()
        columns.append(pl.Series(str(name), values, strict=False, nan_to_null=True))
    return pl.DataFrame(columns)


def as_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return a polars table as a pandas one (extra `pandas`); pyarrow is not needed."""
    pandas = require("pandas", "pandas")
    return pandas.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


def read_table(path: str | Path) -> pl.DataFrame:
    """Read a CSV, Parquet or .xlsx file, told apart by its content.

    Columns of CSV may be separated by commas, semicolons or tabs, in UTF-8 or UTF-16. All columns
    of CSV and .xlsx (extra `excel`) are text; `number_column` makes numbers of them.

    Parameters
    ----------
    path
        The file to read, or "-" for standard input.

    Raises
    ------
    InputError
        If there is no such file, or if it cannot be read in one way only.
    """
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{path} is a directory; give a CSV, Parquet or .xlsx file.")
        if str(path) == "-":
            content = sys.stdin.buffer.read(LARGEST_TABLE + 1)
        else:
            with path.open("rb") as file:
                content = file.read(LARGEST_TABLE + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}.") from error
    return table_of(content, str(path))


def table_of(content: bytes, name: str) -> pl.DataFrame:
    """Return the table in the content of a file of this name (see `read_table`)."""
    if len(content) > LARGEST_TABLE:
        raise InputError(
            f"{name} must have at most {LARGEST_TABLE:,} bytes; save it as Parquet, which takes "
            "fewer."
        )
    with _ONE_AT_A_TIME:
        if is_foreign(content, name):
            return read_apart(content, name)
        return csv_table(content, name)


def text_column(column: pl.Series) -> npt.NDArray[np.object_]:
    """Return a column of names as text, empty where there is none."""
    import polars as pl

    try:
        # An empty name is refused with its row, like one that is missing altogether.
        text = column.cast(pl.String).fill_null("")
    except pl.exceptions.PolarsError as error:
        raise InputError(f"column {column.name!r} must hold text.") from error
    long = text.str.len_chars() > LONGEST_NAME
    if long.any():
        row = long.arg_max() or 0
        raise InputError(
            f"column {column.name!r} must hold names of at most {LONGEST_NAME:,} characters; got "
            f"{len(text[row]):,} in row {row + 1}."
        )
    return text.to_numpy()


def number_column(column: pl.Series) -> FloatArray:
    """Return a column of numbers, or of text that reads as numbers; none may be missing.

    Text may have decimal commas; what could be thousands as well is refused.

    Examples
    --------
    >>> import polars as pl
    >>> number_column(pl.Series("cost", ["4", " 5.5"]))
    array([4. , 5.5])
    >>> number_column(pl.Series("cost", ["4", "5,5"]))
    array([4. , 5.5])
    """
    import polars as pl

    if not (column.dtype.is_numeric() or column.dtype == pl.String):
        raise InputError(f"column {column.name!r} must hold numbers; got {column.dtype}.")
    text = column.str.strip_chars() if column.dtype == pl.String else column
    numbers = text.cast(pl.Float64, strict=False)
    if column.dtype == pl.String and numbers.null_count() > text.null_count():
        numbers = plain_numbers(text).cast(pl.Float64, strict=False)
    if numbers.null_count():
        row = numbers.is_null().arg_max() or 0
        got = "nothing" if column[row] is None else f"{column[row]!r:.60}"
        raise InputError(f"column {column.name!r} must hold numbers; got {got} in row {row + 1}.")
    return numbers.to_numpy()


def csv_text(frame: pl.DataFrame) -> str:
    """Return a table as CSV, text that a spreadsheet would run as a formula quoted.

    Numbers stay as they are: a payment may be negative.

    Examples
    --------
    >>> import polars as pl
    >>> print(csv_text(pl.DataFrame({"client_id": ["=1+1", "b"], "payment": [-1.5, 2.0]})))
    client_id,payment
    '=1+1,-1.5
    b,2.0
    <BLANKLINE>
    """
    import polars as pl

    return frame.with_columns(pl.col(pl.String).str.replace(FORMULA, "'$1")).write_csv()


def json_text(**parts: dict[str, Any] | list[str] | pl.DataFrame) -> str:
    """Return one strict JSON object; numbers that are not finite become null.

    Examples
    --------
    >>> import polars as pl
    >>> rows = pl.DataFrame({"price": [1.5, float("inf")]})
    >>> print(json_text(summary={"spend": 2}, clients=rows))
    {"summary": {"spend": 2},
     "clients": [{"price":1.5},{"price":null}]}
    <BLANKLINE>
    """
    import polars as pl

    texts = []
    for name, part in parts.items():
        if isinstance(part, pl.DataFrame):
            floats = pl.col(pl.Float64)
            text = part.with_columns(pl.when(floats.is_finite()).then(floats)).write_json()
        elif isinstance(part, list):
            text = json.dumps(part, ensure_ascii=False)
        else:
            finite = {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in part.items()
            }
            text = json.dumps(finite, ensure_ascii=False)
        texts.append(f'"{name}": {text}')
    return "{" + ",\n ".join(texts) + "}\n"


def write_table(frame: pl.DataFrame, path: str | Path, *, force: bool = False) -> None:
    """Write a table as CSV or Parquet, by the suffix of the path, atomically."""
    path = check_output(path, TABLE_SUFFIXES, force=force)
    with whole_file(path) as part:
        if path.suffix == ".csv":
            part.write_text(csv_text(frame), encoding="utf-8", newline="")
        else:
            frame.write_parquet(part)


def check_output(path: str | Path, suffixes: tuple[str, ...], *, force: bool = False) -> Path:
    """Refuse an output path that could not be written, before any work is done for it."""
    path = Path(path)
    if path.suffix not in suffixes:
        raise InputError(
            f"cannot tell the format of {path} by its suffix; use one of {', '.join(suffixes)}."
        )
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: there is no directory {path.parent}.")
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory.")
    if path.exists() and not force:
        raise InputError(f"{path} exists; choose another name, or overwrite it with --force.")
    return path


def check_folder(path: str | Path) -> Path:
    """Refuse a directory that could not be written, before any work is done for it."""
    path = Path(path)
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: there is no directory {path.parent}.")
    if path.exists() and not path.is_dir():
        raise InputError(f"cannot write {path}: it is a file, not a directory.")
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{path} is not empty; name a directory that is, or a new one.")
    return path


# What reading an npz raises that is cut short, altered, or something else.
BROKEN = (
    OSError,
    ValueError,
    EOFError,
    TypeError,
    RuntimeError,  # and NotImplementedError: flags and methods of a zip that nobody wrote
    zipfile.BadZipFile,
    zlib.error,
)


def load_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of an npz file; raises one of BROKEN if it is not one."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


@contextmanager
def whole_file(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path; what was written there appears at `path` when the block ends well.

    A private file can be read by its owner only, whatever the umask.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}.") from error
    part = Path(name)
    try:
        # mkstemp makes private files; a result gets the permissions that open() would give it.
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(handle, 0o600 if private else 0o666 & ~mask)
        os.close(handle)
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from error
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary directory; what was written there appears at `path` if the block ends well.

    `path` must not exist, or be an empty directory.
    """
    path = check_folder(path).absolute()
    try:
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as beside:
            part = Path(beside) / "part"
            part.mkdir()  # with the permissions of any other directory
            yield part
            if path.is_dir():
                path.rmdir()
            part.rename(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}.") from error
