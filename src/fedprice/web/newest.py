"""`Newest`: work that follows what people do, without falling behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["Newest"]


class Newest:
    """Work that is done once at a time, and once more if it was asked for meanwhile.

    Parameters
    ----------
    work
        What to do; it may look at `wanted`, whether it will be done again, and leave things out.
    """

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        self._work, self.wanted, self._busy = work, False, False

    async def __call__(self) -> None:
        """Do it now, or as soon as it is done."""
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
