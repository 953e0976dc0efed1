"""Files dropped on a page: limited in size, kept in memory, and read like any other file."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fedprice.clients import Clients
from fedprice.commands.games import assuming
from fedprice.dialects import is_spreadsheet
from fedprice.errors import InputError
from fedprice.tables import table_of

if TYPE_CHECKING:
    import polars as pl
    from nicegui.events import UploadEventArguments

__all__ = ["LARGEST_UPLOAD", "assumed_clients_of", "clients_of", "content_of", "table_in"]

LARGEST_UPLOAD = 256 * 2**20  # bytes: some three million clients as CSV
COMMAND_LINE = "Give the file on the command line: fedprice serve FILE"
# Limits of a table: a few bytes of Parquet can stand for any number of equal cells.
MOST_ROWS, MOST_COLUMNS, MOST_TEXT = 5_000_000, 1_000, 2**30


async def content_of(event: UploadEventArguments) -> tuple[str, bytes]:
    """Return the name and the content of a dropped file."""
    if event.file.size() > LARGEST_UPLOAD:
        raise InputError(
            f"{event.file.name} has {event.file.size():,} bytes; at most {LARGEST_UPLOAD:,} are "
            f"read. {COMMAND_LINE}"
        )
    # A control character could move the cursor of the terminal into which a command is pasted.
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in event.file.name)
    return name, await event.file.read()


def table_in(name: str, content: bytes) -> pl.DataFrame:
    r"""Return the table in a file's content, unless it would fill the memory of this machine.

    Examples
    --------
    >>> table_in("a.csv", b"client_id,cost\na,4").shape
    (1, 2)
    """
    import polars as pl

    if content.startswith(b"PAR1"):
        with suppress(pl.exceptions.PolarsError):  # reported when it is read
            lazy = pl.scan_parquet(content)
            _require_few(name, lazy.select(pl.len()).collect().item(), len(lazy.collect_schema()))
    else:
        if is_spreadsheet(content, name):  # which may unpack to any size
            raise InputError(f"{name} is a spreadsheet; save it as CSV (UTF-8). {COMMAND_LINE}")
        first = content.partition(b"\n")[0]
        _require_few(name, 0, max(map(first.count, (b",", b";", b"\t"))) + 1)
    table = table_of(content, name)
    _require_few(name, *table.shape)
    if sum(_text_bytes(column) for column in table) > MOST_TEXT:
        raise InputError(f"{name} has more than {MOST_TEXT:,} bytes of text. {COMMAND_LINE}")
    return table


def _text_bytes(column: pl.Series) -> int:
    """Return how long a column's text is, written out cell by cell."""
    import polars as pl

    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype not in (pl.String, pl.Binary):
        return 0
    sizes = column.str.len_bytes() if column.dtype == pl.String else column.bin.size()
    return int(sizes.cast(pl.UInt64).sum())


def _require_few(name: str, rows: int, columns: int) -> None:
    if rows > MOST_ROWS or columns > MOST_COLUMNS:
        raise InputError(
            f"{name} must have at most {MOST_ROWS:,} rows and {MOST_COLUMNS:,} columns; got "
            f"{rows:,} and {columns:,}. {COMMAND_LINE}"
        )


def clients_of(name: str, content: bytes, *, types: bool = True) -> Clients:
    r"""Return the clients in a file's content, read as `Clients.read` reads a file.

    Examples
    --------
    >>> clients_of("a.csv", b"client_id,samples,grad_norm,cost,value\na,1,2,3,4")
    Clients(num_clients=1)
    >>> clients_of("a.csv", b"client_id,samples")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: a.csv: there is no column 'grad_norm', 'cost' or 'value'; ...
    """
    table = table_in(name, content)
    try:
        return Clients.from_frame(table, types=types)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def assumed_clients_of(name: str, content: bytes) -> tuple[Clients, tuple[str, ...]]:
    r"""Return the clients in a file's content, and which columns were assumed because it has none.

    Examples
    --------
    >>> assumed_clients_of("a.csv", b"client_id,samples,cost\na,1,3")
    (Clients(num_clients=1), ('grad_norm', 'value'))
    """
    table = table_in(name, content)
    try:
        return assuming(table)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
