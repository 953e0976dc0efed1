"""`KeptFiles`: the scripts, styles and fonts of the pages, served from memory.

They come with NiceGUI and never change while the server runs. Reading one through the layers of
frameworks takes 10 ms, and a page that is opened for the first time needs twenty of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["KeptFiles"]

PLACE = "/_nicegui/"  # where NiceGUI serves its own files
MOST = 200  # files; a path can be spelled in many ways
PARTIAL = {b"range", b"if-none-match", b"if-modified-since"}  # headers of requests for less


class KeptFiles:
    """Keeps the answers for files that may be cached forever.

    Parameters
    ----------
    app
        The ASGI app that reads them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, bool], list[Message]] = {}  # by path, and whether compressed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, from memory if possible."""
        is_file = scope["type"] == "http" and scope["method"] == "GET" and PLACE in scope["path"]
        if not is_file or scope["query_string"] or PARTIAL & dict(scope["headers"]).keys():
            await self._app(scope, receive, send)
            return
        key = scope["path"], b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b"")
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)
            await send(message)

        if key in self._kept:
            for message in self._kept[key]:
                await send(message)
            return
        await self._app(scope, receive, keep)
        if sent and _is_lasting(sent[0]) and len(self._kept) < MOST:
            self._kept[key] = sent


def _is_lasting(start: Message) -> bool:
    """Return whether an answer is a whole file that never changes."""
    headers = dict(start.get("headers", ()))
    return start.get("status") == 200 and b"immutable" in headers.get(b"cache-control", b"")
