"""`Newest`: work that keeps up with a user's actions by skipping outdated requests."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Newest"]


class Newest:
    """Work that runs one call at a time, and once more if it was requested meanwhile.

    Parameters
    ----------
    work
        What to do; it may skip parts if `wanted` says that it will run again.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work, self.wanted, self._busy = work, False, False

    async def __call__(self) -> None:
        """Run it now, or again as soon as the current call has finished."""
        self.wanted = True
        if self._busy:
            return
        self._busy = True
        try:
            while self.wanted:
                self.wanted = False
                await self._work()
        finally:
            self._busy = False

    def at_once(self) -> None:
        """Run work that never waits before this returns: a browser gets all changes together.

        Otherwise a page would be drawn twice, when a control has moved and when its results follow.
        """
        with suppress(StopIteration):
            self().send(None)
            raise RuntimeError("this work waits for something; await it instead")
