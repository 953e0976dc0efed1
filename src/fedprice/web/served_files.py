"""`Served`: the files given on the command line; no others are ever read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Served"]

LARGE = 5 * 2**20  # bytes of a table


@dataclass(frozen=True)
class Served:
    """What the pages and the API may read.

    Attributes
    ----------
    clients, calibration
        A table of clients, and its calibration.
    ledger
        The URL of a ledger, which need not exist yet.
    results
        A directory that `fedprice study` wrote.
    rename
        Columns of the table that have other names, in pairs of the old and the new one.
    by_order
        Whether the rows of the table are the calibration's clients in its order.
    budget
        The budget with which the pages open; by default 200.
    currency
        The label of money, if it has one.
    """

    clients: Path | None = None
    calibration: Path | None = None
    ledger: str | None = None
    results: Path | None = None
    rename: tuple[tuple[str, str], ...] = ()
    by_order: bool = False
    budget: float | None = None
    currency: str = ""

    def stamps(self) -> tuple[tuple[int, int] | None, ...]:
        """Return when the tables were written, and their sizes: whether to read them again."""
        return tuple(_stamp(path) for path in (self.clients, self.calibration))

    @property
    def is_large(self) -> bool:
        """Whether the table of clients takes a while to be read."""
        stamp = _stamp(self.clients)
        return stamp is not None and stamp[1] > LARGE


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        found = None if path is None else path.stat()
    except OSError:  # reported when it is read
        return None
    return found and (found.st_mtime_ns, found.st_size)
