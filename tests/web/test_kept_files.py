"""Files of the pages are read once; nothing else is kept."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fedprice.web.kept_files import MOST, KeptFiles

FOREVER = (b"cache-control", b"public, immutable")


class Files:
    """An ASGI app that counts what it is asked for."""

    def __init__(self, status: int = 200, header: tuple[bytes, bytes] = FOREVER) -> None:
        self.status, self.header, self.asked = status, header, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        start = {"type": "http.response.start", "status": self.status, "headers": [self.header]}
        await send(start)
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        await send({"type": "http.response.body", "body": scope["path"].encode()})


def get(app: KeptFiles, path: str, query: bytes = b"", **headers: bytes) -> bytes:
    """Return the body of an answer."""
    given = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "path": path, "query_string": query}
    body: list[bytes] = []

    async def send(message: Any) -> None:
        body.append(message.get("body", b""))

    async def receive() -> Any:
        raise AssertionError

    asyncio.run(app(scope | {"headers": given}, receive, send))
    return b"".join(body)


def test_a_file_is_read_once_for_each_encoding() -> None:
    files = Files()
    app = KeptFiles(files)
    for _ in range(3):
        assert get(app, "/_nicegui/3/a.js") == b"half/_nicegui/3/a.js"
    assert files.asked == 1
    get(app, "/_nicegui/3/a.js", accept_encoding=b"gzip, br")
    assert files.asked == 2
    assert get(app, "/_nicegui/3/b.js") == b"half/_nicegui/3/b.js"


@pytest.mark.parametrize(
    ("path", "query", "headers"),
    [
        ("/", b"", {}),
        ("/api/runs", b"", {}),
        ("/_nicegui/3/a.js", b"x=1", {}),
        ("/_nicegui/3/a.js", b"", {"range": b"bytes=0-1"}),
        ("/_nicegui/3/a.js", b"", {"if_none_match": b"tag"}),
    ],
)
def test_pages_and_parts_of_files_are_not_kept(
    path: str, query: bytes, headers: dict[str, bytes]
) -> None:
    files = Files()
    app = KeptFiles(files)
    for _ in range(2):
        get(app, path, query, **headers)
    assert files.asked == 2


@pytest.mark.parametrize("files", [Files(404), Files(206), Files(header=(b"x", b"y"))])
def test_answers_that_may_change_are_not_kept(files: Files) -> None:
    app = KeptFiles(files)
    for _ in range(2):
        get(app, "/_nicegui/3/a.js")
    assert files.asked == 2


def test_other_spellings_of_a_path_do_not_fill_the_memory() -> None:
    files = Files()
    app = KeptFiles(files)
    for turn in range(2):
        for number in range(MOST + 5):
            get(app, f"/_nicegui/{'./' * number}a.js")
        assert files.asked == MOST + 5 + 5 * turn
