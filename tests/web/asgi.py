"""Requests to an ASGI app in process, byte for byte: also those that no polite client sends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message

Headers = dict[str, str] | list[tuple[str, str]] | tuple[()]
HOST = "127.0.0.1:8080"
LONGEST = 60.0  # seconds that an answer may take


@dataclass(frozen=True)
class Answer:
    """What came back: the status (101 for a websocket that was accepted), headers and body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)


async def asked(
    app: ASGIApp,
    method: str,
    target: str,
    *,
    headers: Headers = (),
    body: bytes | Iterable[bytes] = b"",
    root_path: str = "",
    kind: str = "http",
) -> Answer:
    """Return the answer of an app to one request."""
    pairs = list(headers.items() if isinstance(headers, dict) else headers)
    if not any(name == "host" for name, _ in pairs):
        pairs.insert(0, ("host", HOST))
    pieces = [body] if isinstance(body, bytes) else list(body)
    if isinstance(body, bytes) and body and not any(n == "content-length" for n, _ in pairs):
        pairs.append(("content-length", str(len(body))))
    path, _, query = target.partition("?")
    raw = path.encode("utf-8", "surrogateescape")
    scope: dict[str, Any] = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http" if kind == "http" else "ws",
        "path": unquote_to_bytes(raw).decode("utf-8", "replace"),
        "raw_path": raw,
        "query_string": query.encode("utf-8", "surrogateescape"),
        "root_path": root_path,
        "headers": [(n.encode("latin-1"), v.encode("latin-1", "replace")) for n, v in pairs],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8080),
    }
    if kind == "http":
        scope["method"] = method
        waiting: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": n < len(pieces)}
            for n, piece in enumerate(pieces, start=1)
        ]
        waiting.append({"type": "http.disconnect"})
    else:
        waiting = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]
    sent: list[Message] = []

    async def receive() -> Message:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await asyncio.wait_for(app(scope, receive, send), LONGEST)
    first = sent[0]
    if first["type"] == "websocket.accept":
        return Answer(101, {}, b"")
    if first["type"] == "websocket.close":
        return Answer(403, {}, first.get("reason", "").encode())
    own = {name.decode(): value.decode() for name, value in first.get("headers", [])}
    return Answer(first["status"], own, b"".join(m.get("body", b"") for m in sent[1:]))


@dataclass(frozen=True)
class Asking:
    """An app that is asked one thing after another."""

    app: ASGIApp
    root_path: str = ""

    def get(self, target: str, **more: Any) -> Answer:
        return self.ask("GET", target, **more)

    def post(self, target: str, **more: Any) -> Answer:
        return self.ask("POST", target, **more)

    def connect(self, target: str, **more: Any) -> Answer:
        return self.ask("", target, kind="websocket", **more)

    def ask(self, method: str, target: str, **more: Any) -> Answer:
        return asyncio.run(asked(self.app, method, target, root_path=self.root_path, **more))
