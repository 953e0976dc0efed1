"""Backing up a ledger: database and write-ahead log together, in one file that verifies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fedprice._plumbing.tables import whole_file
from fedprice.errors import InputError
from fedprice.market.database import Database
from fedprice.market.ledger import Ledger
from fedprice.market.ledger_errors import DamagedError

if TYPE_CHECKING:
    from fedprice.verify import Books

__all__ = ["back_up"]


def back_up(url: str, path: Path) -> Books:
    """Copy an SQLite ledger, which may be in use, to a private file; return the copy's totals.

    The copy is a snapshot, and appears at `path` once it has been verified.

    Raises
    ------
    InputError
        For a ledger on PostgreSQL, with the line that dumps it; and where the file would replace
        the ledger, or join the log of another one.
    DamagedError
        If the copy does not verify; then it is not written.
    """
    database = Database(url, create=False)
    try:
        command = database.dump_command(path)
        if command is not None:
            raise InputError(
                f"{database.name} is copied by PostgreSQL's own program; run: {command}"
            )
        if path.exists() and path.resolve() == Path(database.name).resolve():
            raise InputError(f"{path} is the ledger itself; give another name to its copy.")
        for log in (Path(f"{path}-wal"), Path(f"{path}-journal")):
            if log.exists():  # SQLite would apply it to the copy
                raise InputError(f"{log} belongs to another database; give the copy another name.")
        with whole_file(path, private=True) as part:
            database.copy_to(part)
            try:
                copy = Ledger(str(part), create=False)
                try:
                    books = copy.verify()
                finally:
                    copy.close()
            except DamagedError as error:
                reason = str(error).replace(str(part), database.name)
                raise DamagedError(f"{reason} No copy was written.") from error
    finally:
        database.close()
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # so that the name of the file survives a loss of power, too
    os.close(folder)
    return books
