"""Files of the pages are read once; nothing else is kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fedprice.web.kept_files import MADE, MOST, PLACE, KeptFiles

if TYPE_CHECKING:
    from fastapi import FastAPI


class Files:
    """An ASGI app that counts what it is asked for."""

    def __init__(self, status: int = 200, body: bytes = b"", whole: bool = True) -> None:
        self.status, self.body, self.whole, self.asked = status, body, whole, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        await send({"type": "http.response.start", "status": self.status, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        if self.whole:
            body = self.body or scope["path"].encode()
            await send({"type": "http.response.body", "body": body})


def get(
    app: KeptFiles, path: str, query: bytes = b"", *headers: tuple[bytes, bytes], root: str = ""
) -> bytes:
    """Return the body of an answer."""
    scope = {"type": "http", "method": "GET", "path": root + path, "query_string": query}
    scope |= {"root_path": root, "http_version": "1.1", "scheme": "http"}
    body: list[bytes] = []

    async def send(message: Any) -> None:
        body.append(message.get("body", b""))

    async def receive() -> Any:
        return {"type": "http.request"}

    asyncio.run(app(scope | {"headers": list(headers)}, receive, send))
    return b"".join(body)


def test_a_file_is_read_once_for_each_encoding() -> None:
    files = Files()
    app = KeptFiles(files)
    for _ in range(3):
        assert get(app, f"{PLACE}a.js") == f"half{PLACE}a.js".encode()
    assert files.asked == 1
    get(app, f"{PLACE}a.js", b"", (b"accept-encoding", b"gzip, br"))
    assert files.asked == 2
    assert get(app, f"{PLACE}b.js") == f"half{PLACE}b.js".encode()


def test_the_first_of_two_headers_counts_as_it_does_for_the_app() -> None:
    files = Files()
    app = KeptFiles(files)
    two = ((b"accept-encoding", b"gzip"), (b"accept-encoding", b"identity"))
    get(app, f"{PLACE}a.js", b"", *two)
    get(app, f"{PLACE}a.js")
    assert files.asked == 2, "what may be compressed is not sent to who did not ask for it"


@pytest.mark.parametrize(
    ("path", "query", "headers"),
    [
        ("/", b"", ()),
        ("/api/runs", b"", ()),
        (f"/other{PLACE}a.js", b"", ()),
        (f"{MADE}a.css", b"", ()),
        (f"{PLACE}a.js", b"x=1", ()),
        (f"{PLACE}a.js", b"", ((b"range", b"bytes=0-1"),)),
        (f"{PLACE}a.js", b"", ((b"if-none-match", b"tag"),)),
        (f"{PLACE}static//a.js", b"", ()),
    ],
)
def test_pages_and_parts_of_files_are_not_kept(
    path: str, query: bytes, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    files = Files()
    app = KeptFiles(files)
    for _ in range(2):
        get(app, path, query, *headers)
    assert files.asked == 2


@pytest.mark.parametrize("files", [Files(404), Files(206), Files(whole=False)])
def test_other_answers_are_not_kept(files: Files) -> None:
    app = KeptFiles(files)
    for _ in range(2):
        get(app, f"{PLACE}a.js")
    assert files.asked == 2


def test_what_is_kept_is_limited() -> None:
    files = Files(body=bytes(MOST // 8))
    app = KeptFiles(files)
    for turn in range(2):
        for number in range(10):
            get(app, f"{PLACE}{number}.js")
        assert files.asked == 10 + 3 * turn


def test_real_files_are_kept_below_any_path(in_process: FastAPI) -> None:
    """The files of NiceGUI itself, with a proxy's path and without."""
    asked = []

    async def counted(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        await in_process(scope, receive, send)

    for root in ("", "/fedprice"):
        app, before = KeptFiles(counted), len(asked)
        first = get(app, f"{PLACE}static/nicegui.css", root=root)
        assert len(first) > 1000
        assert get(app, f"{PLACE}static/nicegui.css", root=root) == first
        assert len(asked) == before + 1
