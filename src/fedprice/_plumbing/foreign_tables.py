"""Tables that are read in a separate process, which has little memory.

A few kilobytes of a Parquet file or a spreadsheet can stand for any number of cells, and a
malformed file can end the process that reads it. It is sent to a child, which sends back columns or
one line, and so are long files of text. The child looks at the schema, or at the dimensions of a
sheet, before it loads anything.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import threading
import zipfile
import zlib
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from fedprice._plumbing.dialects import csv_table, is_spreadsheet, sheet
from fedprice._plumbing.table_limits import require_few, require_short
from fedprice.errors import InputError, require

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

__all__ = ["is_foreign", "read_apart"]

MOST_TEXT = 256 * 2**20  # bytes of characters
LONG = 4 * 2**20  # bytes of text that are read here
MEMORY = 2**30  # bytes of the child, besides the file
LONGEST = 30.0  # seconds
PART = 64_000_000  # bytes of the columns that are sent at once
UNPACKED = 512 * 2**20  # bytes of a spreadsheet's parts
_PARQUET = b"PAR1"
_TABLE, _ERROR, _END = b"T", b"E", b"."
_DIMENSION = re.compile(rb'<dimension ref="[A-Z]{1,3}[0-9]{1,7}:([A-Z]{1,3})([0-9]{1,7})"')


def is_foreign(content: bytes, name: str) -> bool:
    """Return whether the content of a file is to be read in a separate process."""
    return len(content) > LONG or content.startswith(_PARQUET) or is_spreadsheet(content, name)


def read_apart(content: bytes, name: str) -> pl.DataFrame:
    """Return the table in the content of a file of this name, read in a separate process."""
    import polars as pl

    if is_spreadsheet(content, name):
        require("fastexcel", "excel")
    child = subprocess.Popen(
        # -P: whatever lies in the current directory is not imported.
        [sys.executable, "-P", "-m", __name__, name[:1000]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=os.environ | {"POLARS_MAX_THREADS": "1"},
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    feeder = threading.Thread(target=_feed, args=(child.stdin, content), daemon=True)
    watch = threading.Timer(LONGEST, child.kill)
    parts: list[pl.DataFrame] = []
    with child:
        feeder.start()
        watch.start()
        try:
            while (kind := child.stdout.read(1)) in (_TABLE, _ERROR):
                size = int.from_bytes(child.stdout.read(8))
                part = child.stdout.read(size)
                if len(part) < size:
                    break
                if kind == _ERROR:
                    raise InputError(part.decode(errors="surrogateescape"))
                parts.append(pl.read_ipc_stream(part))
        finally:
            watch.cancel()
            child.kill()
    if kind != _END:
        raise InputError(
            f"{name} cannot be read: it is damaged, or takes more than {MEMORY >> 30} GiB of "
            f"memory or {LONGEST:.0f} seconds. Save the table as CSV (UTF-8), without what is not "
            "needed."
        )
    return pl.concat(parts, how="horizontal") if parts else pl.DataFrame()


def _feed(pipe: IO[bytes], content: bytes) -> None:
    with suppress(OSError), pipe:  # the child may have ended
        pipe.write(content)


# In the child


def _main() -> None:
    """Send the table that comes in, in parts, or the line that says why there is none."""
    name, content = sys.argv[1], sys.stdin.buffer.read()
    with suppress(ImportError):  # Windows
        import resource

        most = MEMORY + len(content)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        left = MOST_TEXT
        for part in _parts(content, name):
            require_short(part, name)
            left -= sum(_text_bytes(column) for column in part)
            if left < 0:
                raise InputError(f"{name} has more than {MOST_TEXT:,} bytes of text.")
            ipc = io.BytesIO()
            part.write_ipc_stream(ipc)
            _send(_TABLE, ipc.getbuffer())
        _send(_END, b"")
    except InputError as error:
        _send(_ERROR, str(error).encode(errors="surrogateescape"))


def _send(kind: bytes, content: bytes | memoryview) -> None:
    sys.stdout.buffer.write(kind + len(content).to_bytes(8))
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _parts(content: bytes, name: str) -> Iterator[pl.DataFrame]:
    """Yield the columns of a table, a few at once."""
    if content.startswith(_PARQUET):
        yield from _parquet_parts(content, name)
        return
    is_sheet = is_spreadsheet(content, name)
    if is_sheet:
        _require_small(content, name)
    table = sheet(content, name) if is_sheet else csv_table(content, name)
    require_few(name, *table.shape)
    yield from _column_groups(table.lazy(), table.columns, table.height)


def _parquet_parts(content: bytes, name: str) -> Iterator[pl.DataFrame]:
    import polars as pl

    try:
        table = pl.scan_parquet(content)
        schema, rows = table.collect_schema(), table.select(pl.len()).collect().item()
        for column, kind in schema.items():
            if kind.is_nested() or kind in (pl.Object, pl.Unknown):
                raise InputError(
                    f"{name}: column {column!r:.100} must hold numbers or text; got "
                    f"{kind.base_type()}."
                )
        width = sum(8 if kind.is_numeric() else 16 for kind in schema.dtypes())
        require_few(name, rows, len(schema), width / max(len(schema), 1))
        yield from _column_groups(table, schema.names(), rows)
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"{name} is neither a CSV nor a Parquet file: {reason:.300}.") from error


def _require_small(content: bytes, name: str) -> None:
    """Refuse a spreadsheet that says that it unpacks to too much, or has too many cells."""
    for size, start in _unpacked(content):
        if size > UNPACKED:
            raise InputError(
                f"{name} unpacks to more than {UNPACKED:,} bytes; save the table as CSV (UTF-8)."
            )
        _require_few_cells(name, start)


def _unpacked(content: bytes) -> list[tuple[int, bytes]]:
    """Return the unpacked size of a spreadsheet's parts in sum, and how each sheet begins."""
    starts: list[tuple[int, bytes]] = []
    # What is wrong with an archive, the reader says.
    with (
        suppress(zipfile.BadZipFile, ValueError, RuntimeError, OSError, zlib.error),
        zipfile.ZipFile(io.BytesIO(content)) as archive,
    ):
        size = sum(part.file_size for part in archive.infolist())
        starts.append((size, b""))
        for part in archive.namelist():
            if part.startswith("xl/worksheets/"):
                with archive.open(part) as file:
                    starts.append((size, file.read(4096)))
    return starts


def _require_few_cells(name: str, start: bytes) -> None:
    """Refuse a sheet by the dimensions at its start: its reader makes room for all of its cells."""
    found = _DIMENSION.search(start)
    if found is not None:
        columns = 0
        for letter in found[1]:
            columns = 26 * columns + letter - ord("A") + 1
        require_few(name, int(found[2]), columns)


def _column_groups(table: pl.LazyFrame, names: list[str], rows: int) -> Iterator[pl.DataFrame]:
    """Yield the columns of a table, as many at once as take little memory."""
    count = max(PART // (16 * max(rows, 1)), 1)
    for start in range(0, len(names), count):
        yield table.select(names[start : start + count]).collect()


def _text_bytes(column: pl.Series) -> int:
    """Return how long a column's text is, written out cell by cell."""
    import polars as pl

    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    if column.dtype not in (pl.String, pl.Binary):
        return 0
    sizes = column.str.len_bytes() if column.dtype == pl.String else column.bin.size()
    return int(sizes.cast(pl.UInt64).sum())


if __name__ == "__main__":
    _main()
