"""Tables as spreadsheets save them: separators, decimal commas, UTF-16 and .xlsx.

What can be read in one way only is read. What has two readings is refused with both of them: a
number that is wrong by a factor of a thousand is worse than an error. The same holds for numbers
that people type, on the command line and on pages.
"""

from __future__ import annotations

import logging
import math
import re
from typing import TYPE_CHECKING

from fedprice._plumbing.table_limits import require_few, require_short
from fedprice.errors import InputError, require

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "FORMULA",
    "csv_table",
    "is_spreadsheet",
    "number_text",
    "plain_numbers",
    "sheet",
    "typed_number",
]

SEPARATORS = (",", ";", "\t")
LONGEST_HEADER = 2**20  # bytes
UTF16 = (b"\xff\xfe", b"\xfe\xff")

# A spreadsheet runs a cell that starts with one of these, full-width forms included; a quote in
# front makes it text. Text that already looks quoted gets one more quote, so that reading takes
# exactly one off again.
FORMULA = r"^('*[=+\-@\t\r＝＋－＠])"
_QUOTED = r"^'('*[=+\-@\t\r＝＋－＠])"

# Decimal commas, as in 12,5 and 1.234,5. A single group of three digits, as in 1,234, is as likely
# to be thousands; 0,125 and 1234,567 are not.
_DECIMAL_COMMA = r"^[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+([eE][+-]?\d+)?$"
_GROUPED_BY_COMMA = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?$"
_EITHER = r"^[+-]?[1-9]\d{0,2},\d{3}$"
_ONE_GROUP_BY_POINT = r"^[+-]?[1-9]\d{0,2}\.\d{3}$"
_GROUPED_BY_POINT = r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$"
_TYPED = r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]{1,4})?"
LONGEST_TYPED = 40  # characters of what was typed that a message repeats


def typed_number(text: str, *, factor: bool = False) -> float:
    """Return a number that somebody typed, with a decimal point and no marks between thousands.

    Of an amount, one point before exactly three digits may also stand between thousands, as it
    does in 3.000 in German, and is refused. A `factor`, such as α, has no thousands.

    Examples
    --------
    >>> typed_number(" 5000.5 "), typed_number("1e-3"), typed_number("3.142", factor=True)
    (5000.5, 0.001, 3.142)
    >>> typed_number("3.000")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: '3.000' may be 3000 or 3; write 3000 or 3.
    """
    text = text.strip()
    if not text:
        raise InputError("Type a number, such as 5000 or 0.5.")
    if re.fullmatch(_TYPED, text, re.I) is None or not math.isfinite(float(text)):
        raise InputError(
            f"{text[:LONGEST_TYPED]!r} is not a number. Write it like 5000 or 5000.5, without "
            "separators between thousands."
        )
    if not factor and re.match(_ONE_GROUP_BY_POINT, text):
        thousands, decimal = text.replace(".", ""), number_text(float(text))
        raise InputError(
            f"{text!r} may be {thousands} or {decimal}; write {thousands} or {decimal}."
        )
    return float(text)


def number_text(value: float) -> str:
    """Return a number as `typed_number` reads it: all of its digits, and no superfluous ones.

    Examples
    --------
    >>> number_text(60.0), number_text(0.1), number_text(1.234)
    ('60', '0.1', '1.2340')
    """
    text = repr(value).removesuffix(".0")
    return f"{text}0" if re.match(_ONE_GROUP_BY_POINT, text) else text


def _decoded(content: bytes, name: str) -> bytes:
    r"""Return text as UTF-8, of which a byte order mark says that it is UTF-16.

    Examples
    --------
    >>> _decoded("cost\n4".encode("utf-16"), "a.csv")
    b'cost\n4'
    """
    if not content.startswith(UTF16):
        return content
    try:
        return content.decode("utf-16").encode()
    except UnicodeError as error:
        raise InputError(
            f"{name} begins like UTF-16 text but is not; save it as CSV (UTF-8)."
        ) from error


def csv_table(content: bytes, name: str) -> pl.DataFrame:
    """Return the table in the content of a text file of this name, all of its columns text."""
    import polars as pl
    import polars.selectors as cs

    content = _decoded(content, name)
    if not content or content.isspace():
        raise InputError(f"{name} is empty; its first line must name the columns.")
    if b"\0" in content[:4096]:
        raise InputError(f"{name} is neither a CSV nor a Parquet file.")
    first = _first_line(content)
    if len(first) > LONGEST_HEADER:
        raise InputError(
            f"{name}: the first line must be the names of columns; got more than "
            f"{LONGEST_HEADER:,} bytes, which begin with {first[:20].decode(errors='replace')!r}."
        )
    if b"\r" in first or first.count(b'"') % 2:  # how many columns follow, nobody has counted
        raise InputError(
            f"{name}: the names of the columns must be on one line, which ends with a line feed."
        )
    mark = _separator(content, name)
    require_few(name, content.count(b"\n"), first.count(mark.encode()) + 1)
    try:
        frame = pl.read_csv(content, infer_schema=False, separator=mark)
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        if "utf-8" in reason.lower() or "utf8" in reason.lower():
            raise InputError(f"{name} is not UTF-8 text; save it as CSV (UTF-8).") from error
        if "found more fields" in reason:
            raise InputError(f"{name} has a row with more fields than its first line.") from error
        raise InputError(f"{name} is neither a CSV nor a Parquet file: {reason}.") from error
    require_short(frame, name)
    # Most columns have no quotes, and the pattern is slow on millions of cells.
    quoted = cs.by_name([c.name for c in frame if c.str.starts_with("'").any()])
    frame = _without_blank_rows(frame).with_columns(quoted.str.replace(_QUOTED, "$1"))
    if mark != ",":
        _refuse_grouping(frame, name)
    return frame


def _first_line(content: bytes) -> bytes:
    """Return the first line that is not empty, or more of it than a header may have."""
    start = re.match(b"[\r\n]*", content)
    begin = start.end() if start else 0
    return content[begin : begin + LONGEST_HEADER + 2].partition(b"\n")[0].removesuffix(b"\r")


def _separator(content: bytes, name: str) -> str:
    r"""Return what separates the columns: a comma, a semicolon or a tab, by the first line.

    Examples
    --------
    >>> _separator(b"hospital;patients\nA;120", "a.csv")
    ';'
    >>> _separator(b"cost, EUR;patients\n4;120", "a.csv")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: the first line of a.csv has both ',' and ';', ...
    """
    line = _first_line(content).decode("utf-8", errors="replace")
    unquoted = re.sub(r'"[^"]*("|$)', "", line)
    found = [mark for mark in SEPARATORS if mark in unquoted]
    if len(found) > 1:
        shown = " and ".join(map(repr, found))
        raise InputError(
            f"the first line of {name} has both {shown}, so that the separator of its columns is "
            "unclear; put names with one of them in double quotes, or take it out."
        )
    return found[0] if found else ","


def _refuse_grouping(frame: pl.DataFrame, name: str) -> None:
    """Refuse 1.234 where it may be 1234: programs that write semicolons write decimal commas.

    A column with 12.5, 0.125 or 12,5 says itself what its points are.
    """
    import polars as pl

    for column in frame.select(pl.exclude("client_id")):
        text = column.str.strip_chars()
        pointed = text.filter(text.str.contains(".", literal=True).fill_null(False))
        if text.str.contains(",", literal=True).any():
            continue  # `plain_numbers` looks at those
        if pointed.len() and pointed.str.contains(_ONE_GROUP_BY_POINT).all():
            first = (text == pointed[0]).fill_null(False)
            raise InputError(f"{name}: {_two_readings(column, first, '.')}")


def plain_numbers(column: pl.Series) -> pl.Series:
    """Return a column of text with its numbers as Python writes them; other text stays.

    Examples
    --------
    >>> import polars as pl
    >>> plain_numbers(pl.Series("cost", ["1.234,5", "7", "0,25"])).to_list()
    ['1234.5', '7', '0.25']
    >>> plain_numbers(pl.Series("cost", ["1,234", "7"]))
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: column 'cost' has '1,234' in row 1, which may be 1234 or 1.234; ...
    """
    if not column.str.contains(",", literal=True).any():
        return column
    either = column.str.contains(_EITHER).fill_null(False)
    decimal = column.str.contains(_DECIMAL_COMMA).fill_null(False) & ~either
    grouped = column.str.contains(_GROUPED_BY_COMMA).fill_null(False) & ~either
    if decimal.any() and grouped.any():
        raise InputError(
            f"column {column.name!r} has decimal commas ({_first(column, decimal)}) and commas "
            f"between thousands ({_first(column, grouped)}); write all numbers in one way."
        )
    if decimal.any():
        pointed = ~decimal & column.str.contains(".", literal=True).fill_null(False)
        odd = pointed & ~column.str.contains(_GROUPED_BY_POINT).fill_null(False)
        if odd.any():
            raise InputError(
                f"column {column.name!r} has decimal commas ({_first(column, decimal)}) and "
                f"decimal points ({_first(column, odd)}); write all numbers in one way."
            )
        return column.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    if grouped.any():
        return column.str.replace_all(",", "", literal=True)
    if either.any():
        raise InputError(_two_readings(column, either, ","))
    return column


def _two_readings(column: pl.Series, which: pl.Series, mark: str) -> str:
    """Say how a number can be read, each way as it is read in that way only."""
    text = column.filter(which)[0].strip()
    thousands, decimal = text.replace(mark, ""), text.replace(mark, ".")
    return (
        f"column {column.name!r} has {_first(column, which)}, which may be {thousands:.100} or "
        f"{decimal:.100}; write {thousands:.100} or {decimal:.100}0."
    )


def _first(column: pl.Series, which: pl.Series) -> str:
    row = which.arg_max() or 0
    return f"{column[row]!r:.100} in row {row + 1}"


def is_spreadsheet(content: bytes, name: str) -> bool:
    """Return whether this is a spreadsheet file; those that cannot be read are refused."""
    if content.startswith(b"\xd0\xcf\x11\xe0"):
        raise InputError(
            f"{name} is an Excel file of an old kind, or has a password; save it as .xlsx without "
            "a password, or as CSV (UTF-8)."
        )
    return content.startswith(b"PK\x03\x04")


def sheet(content: bytes, name: str) -> pl.DataFrame:
    """Return the only sheet with cells of a spreadsheet (.xlsx, .ods).

    Reading needs fastexcel (extra `excel`). A column is of numbers if all of its cells are, and of
    text otherwise.
    """
    import polars as pl
    import polars.selectors as cs

    fastexcel = require("fastexcel", "excel")
    # It warns of columns without cells, which are dropped below.
    logging.getLogger("fastexcel").setLevel(logging.ERROR)
    try:
        reader = fastexcel.read_excel(content)
        sheets = {
            # All rows decide on types: by the first ones alone, a later text would be lost.
            one: pl.DataFrame(reader.load_sheet(one, schema_sample_rows=None))
            for one in reader.sheet_names
        }
    except fastexcel.FastExcelError as error:
        raise InputError(
            f"{name} is an archive, not a spreadsheet; save the table as CSV (UTF-8)."
        ) from error
    filled = {one: frame for one, frame in sheets.items() if frame.width}
    if not filled:
        raise InputError(f"{name} is empty; its first line must name the columns.")
    if len(filled) > 1:
        raise InputError(
            f"{name} has {len(filled)} sheets with cells: {', '.join(filled)}. Keep one of them, "
            "or save it as CSV (UTF-8)."
        )
    (frame,) = filled.values()
    unnamed = [
        column.name
        for column in frame
        if column.name.startswith("__UNNAMED__") and column.null_count() == len(column)
    ]
    frame = frame.drop(unnamed)
    whole = [
        column.name
        for column in frame.select(cs.float())
        if ((column == column.floor()) & (column.abs() < 2**53)).all()
    ]
    frame = frame.with_columns(pl.col(whole).cast(pl.Int64))  # an id is 1, not 1.0
    return _without_blank_rows(frame)


def _without_blank_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a table without the rows that have no cell."""
    import polars as pl

    return frame.filter(~pl.all_horizontal(pl.all().is_null()))
