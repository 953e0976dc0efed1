"""Connections of the server: how many there are, and how long their headers may take.

uvicorn limits neither: a thousand connections on which nothing is ever sent take all the files that
a process may open, and headers without an end take all of its memory. So do headers after a body,
and those of a next request that is sent before the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio

__all__ = ["BACKLOG", "LONGEST_HEADERS", "MOST_CONNECTIONS", "Limited"]

BACKLOG = 100  # connections that are taken in at once, before any of them can be refused
MOST_CONNECTIONS = 500  # below the 1,024 files that a process may usually open
LARGEST_HEADERS = 64 * 2**10  # bytes
LONGEST_HEADERS = 10.0  # seconds, from the connection or the answer before


class Limited(HttpToolsProtocol):
    """Uvicorn's protocol, which closes connections that are too many or whose headers take long."""

    _watch: asyncio.TimerHandle | None = None
    _received = 0  # bytes since the last piece of a body

    def connection_made(self, transport: Any) -> None:
        """Take a connection in, unless there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self._watch_headers()

    def data_received(self, data: bytes) -> None:
        """Parse what arrived; headers are awaited for a limited time, and up to a limited size."""
        self._received += len(data)
        super().data_received(data)
        if self._awaits_headers():
            self._watch_headers()
        else:
            self._stop_watching()
        if self._received > LARGEST_HEADERS:
            self.transport.abort()

    def on_message_begin(self) -> None:
        """Count the headers of the next request."""
        self._received = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """Count headers only, since the size of bodies is limited elsewhere."""
        self._received = 0
        super().on_body(body)

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
