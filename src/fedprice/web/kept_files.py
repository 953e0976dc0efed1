"""`KeptFiles`: the scripts, styles and fonts of the pages, served from memory.

They come with NiceGUI and never change while the server runs. Reading one through the layers of
frameworks takes 10 ms, and a page that is opened for the first time needs twenty of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nicegui import __version__
from starlette.datastructures import Headers

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["KeptFiles"]

PLACE = f"/_nicegui/{__version__}/"  # where NiceGUI serves its own files
MADE = f"{PLACE}dynamic_resources/"  # what it makes while it runs
MOST = 32 * 2**20  # bytes; all files of the pages take 10 MB, plain and compressed
PARTIAL = ("range", "if-none-match", "if-modified-since")  # headers of requests for less


class KeptFiles:
    """Keeps whole answers for files that never change.

    Parameters
    ----------
    app
        The ASGI app that reads them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._kept: dict[tuple[str, bool], list[Message]] = {}  # by path, and whether compressed
        self._size = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, from memory if possible."""
        if not _is_for_file(scope):
            await self.app(scope, receive, send)
            return
        accepted = Headers(scope=scope).get("accept-encoding", "")
        key = scope["path"], "gzip" in accepted
        if key in self._kept:
            for message in self._kept[key]:
                await send(message)
            return
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)
            await send(message)

        await self.app(scope, receive, keep)
        size = sum(len(message.get("body", b"")) for message in sent)
        whole = sent and sent[0].get("status") == 200 and not sent[-1].get("more_body")
        if whole and key not in self._kept and self._size + size <= MOST:
            self._kept[key] = sent
            self._size += size


def _is_for_file(scope: Scope) -> bool:
    """Return whether a request is for a whole file that comes with NiceGUI, plainly spelled."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
        return False
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if not path.startswith(PLACE) or path.startswith(MADE) or "//" in path:
        return False
    headers = Headers(scope=scope)
    return not any(name in headers for name in PARTIAL)
