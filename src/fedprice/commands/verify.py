"""What `fedprice verify` computes: whether an exported ledger holds."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from fedprice.errors import InputError
from fedprice.market.verifying import verifying
from fedprice.verify import verified

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedReader
    from pathlib import Path

__all__ = ["verify"]


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
    """Return the findings about an exported ledger that verifies, line by line.

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
        Receipts that the client kept; the ledger must contain them.
    unsigned
        Whether to accept transfers that nobody signed.

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
