"""What `fedprice verify` computes: whether an exported ledger holds."""

from __future__ import annotations

from argparse import Namespace
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedprice.errors import InputError, UnverifiedError
from fedprice.verify import UncheckedError, VerificationError, verified

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import BufferedReader
    from pathlib import Path

__all__ = ["verify", "verifying"]


@contextmanager
def verifying(name: str) -> Iterator[None]:
    """Turn what the verifier raises into errors that name the export, each with its exit code."""
    try:
        yield
    except VerificationError as error:
        raise UnverifiedError(f"{name} does not verify: {error}") from error
    except UncheckedError as error:
        raise InputError(str(error)) from error
    except MemoryError as error:
        raise InputError(f"{name} is too large for the memory of this machine.") from error


def verify(
    export: BufferedReader,
    name: str,
    *,
    client: str | None = None,
    key: str | None = None,
    server: str | None = None,
    heads: Sequence[str] = (),
    receipts: Path | None = None,
    unsigned: bool = False,
) -> list[str]:
    """Return what is to be said of an exported ledger that verifies, line by line.

    Parameters
    ----------
    export, name
        What `fedprice ledger export` wrote, and how errors call it.
    client, key
        Show one client only; its public key, as 64 hexadecimal digits.
    server
        The public key of the server.
    heads
        Hashes of entries that must be there.
    receipts
        What the client kept, to be found in the ledger.
    unsigned
        Whether to let money pass that moved without its owner's signature.

    Raises
    ------
    UnverifiedError
        Naming the first thing that is wrong.
    InputError
        If it is no export, or nothing can be said of it.
    """
    given = Namespace(
        export=name, client=client, key=key, server=server, head=list(heads), receipts=receipts,
        unsigned=unsigned,
    )  # fmt: skip
    if export.peek(15)[:15] == b"SQLite format 3":
        raise InputError(
            f"{name} is a database, not an export; try: fedprice ledger verify --ledger {name}"
        )
    with verifying(name):
        return verified(given, export)
