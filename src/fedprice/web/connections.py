"""Connections of the server: how many there are, and how long their headers may take.

uvicorn limits the size of headers, but neither the connections nor the time: a thousand connections
on which nothing is ever sent take all the files that a process may open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["BACKLOG", "LARGEST_HEADERS", "LONGEST_HEADERS", "MOST_CONNECTIONS", "Limited"]

BACKLOG = 100  # connections that are taken in at once, before any of them can be refused
MOST_CONNECTIONS = 500  # below the 1,024 files that a process may usually open
LARGEST_HEADERS = 64 * 2**10  # bytes
LONGEST_HEADERS = 10.0  # seconds, from the connection or the answer before


class Limited(H11Protocol):
    """Uvicorn's protocol, which closes connections that are too many or whose headers take long."""

    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Take a connection in, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._watch_headers()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; headers are awaited for a limited time."""
        super().data_received(data)
        if self._awaits_headers():
            self._watch_headers()
        else:
            self._stop_watching()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_watching()
        super().connection_lost(exc)

    def _awaits_headers(self) -> bool:
        is_ours = self.transport.get_protocol() is self  # otherwise it has become a websocket's
        return is_ours and (self.cycle is None or self.cycle.response_complete)

    def _watch_headers(self) -> None:
        if self._watch is None:
            self._watch = self.loop.call_later(LONGEST_HEADERS, self._give_up)

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _give_up(self) -> None:
        if self._awaits_headers():
            self.transport.abort()
