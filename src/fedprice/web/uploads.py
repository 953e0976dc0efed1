"""Files dropped on a page: limited in size, kept in memory, and read like any other file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from fedprice._plumbing.columns import ColumnsError, suggested
from fedprice._plumbing.tables import LARGEST_TABLE, table_of
from fedprice.commands.games import assuming
from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nicegui.events import UploadEventArguments
    from starlette.requests import Request
    from starlette.responses import Response

    from fedprice.clients import Clients

__all__ = [
    "COLUMNS",
    "LARGEST_UPLOAD",
    "clients_of",
    "columns_to_rename",
    "content_of",
    "of_upload",
]

LARGEST_UPLOAD = LARGEST_TABLE  # bytes
NEEDED = ("client_id", "samples", "cost")
COLUMNS = (
    "client_id", "samples", "weight", "cost", "value", "grad_norm", "update_norm", "level_min",
    "level_max", "class",
)  # fmt: skip


async def of_upload(request: Request, error: Exception) -> Response:
    """Answer with one line if the form in which a file is sent is malformed."""
    if "/upload/" not in request.url.path:
        raise error
    return JSONResponse({"detail": "an upload must be a form with a file."}, 400)


async def content_of(event: UploadEventArguments) -> tuple[str, bytes]:
    """Return the name and the content of a dropped file."""
    if event.file.size() > LARGEST_UPLOAD:
        raise InputError(
            f"{event.file.name} must have at most {LARGEST_UPLOAD:,} bytes; got "
            f"{event.file.size():,}."
        )
    # A control character could move the cursor of the terminal into which a command is pasted.
    name = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in event.file.name)
    return name, await event.file.read()


def clients_of(
    name: str, content: bytes, rename: Mapping[str, str] | None = None, *, types: bool = True
) -> tuple[Clients, tuple[str, ...]]:
    r"""Return the clients in a file's content, and which columns were assumed because it has none.

    Without `types`, costs and values that the file lacks stay unknown.

    Examples
    --------
    >>> clients_of("a.csv", b"client_id,samples,cost\na,1,3")
    (Clients(num_clients=1), ('grad_norm', 'value'))
    >>> clients_of("a.csv", b"hospital,samples", types=False)
    Traceback (most recent call last):
    ...
    fedprice._plumbing.columns.ColumnsError: a.csv: there is no column 'client_id'; ...
    """
    table = table_of(content, name)
    try:
        return assuming(table, rename, types=types)
    except ColumnsError as error:
        raise ColumnsError(f"{name}: {error.text}", error.rename) from error
    except InputError as error:
        raise InputError(f"{name}: {error}") from error


def columns_to_rename(name: str, content: bytes) -> dict[str, str]:
    r"""Return the columns of a file that are none of ours, with what each may be, or "".

    Examples
    --------
    >>> columns_to_rename("a.csv", b"Krankenhaus,patients,cost\na,1,3")
    {'Krankenhaus': '', 'patients': 'samples'}
    """
    given = table_of(content, name).columns
    unknown = [column for column in given if column not in COLUMNS]
    other = [column for column in COLUMNS if column not in given]
    likely = suggested(unknown, [column for column in NEEDED if column in other], other)
    return {column: likely.get(column, "") for column in unknown}
