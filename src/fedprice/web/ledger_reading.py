"""Reading long ledgers and exports in threads: how far they are, and when to stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from nicegui import context, run, ui

from fedprice.errors import FedpriceError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LONGEST", "Reading", "read_with_progress"]

LONGEST = 600.0  # seconds that a page reads; the command line has no limit


class Reading:
    """How far a thread has read; it stops when no page waits for it, or after a time limit.

    Examples
    --------
    >>> reading = Reading(longest=10)
    >>> reading.count(3)
    >>> reading.number
    3
    >>> reading.stop()
    >>> reading.count(4)
    Traceback (most recent call last):
    ...
    fedprice.errors.FedpriceError: nobody waits for this any more.
    """

    def __init__(self, longest: float = LONGEST) -> None:
        self.number = 0
        self._until, self._longest, self._stopped = time.monotonic() + longest, longest, False

    def count(self, number: int) -> None:
        """Note that the entry with this number has been read; raise if reading should stop."""
        self.number = number
        if self._stopped:
            raise FedpriceError("nobody waits for this any more.")
        if time.monotonic() > self._until:
            raise FedpriceError(
                f"{number:,} entries were checked in {self._longest:.0f} seconds, which is the "
                "limit of a page. Check it with: fedprice verify EXPORT, or fedprice ledger verify"
            )

    def stop(self) -> None:
        """Let the reading end at its next entry."""
        self._stopped = True


async def read_with_progress(
    read: Callable[[Reading], Any], what: str, box: ui.element, total: int = 0
) -> Any:
    """Call a function that reads in a thread, show its progress in a box, and return its result.

    Parameters
    ----------
    read
        Gets a `Reading`, and calls its `count`.
    what, box
        What is done, and where to show it; the box is emptied before and after.
    total
        The number of entries; 0 if unknown.
    """
    reading = Reading()
    context.client.on_delete(reading.stop)
    box.clear()
    with box:
        label = ui.label(f"{what} …").classes("fp-muted")
        bar = ui.linear_progress(0.0, show_value=False).props(f'aria-label="{what}"')
        if not total:
            bar.props("indeterminate")

        def show() -> None:
            of = f" of {total:,}" if total else ""
            label.set_text(f"{what}: {reading.number:,}{of} entries")
            bar.set_value(min(reading.number / total, 1.0) if total else 0.0)

        timer = ui.timer(0.25, show)
    try:
        return await run.io_bound(read, reading)
    finally:
        timer.cancel()
        box.clear()
