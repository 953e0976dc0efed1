"""Connections on which nothing useful arrives: they end, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import resource
import socket
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import uvicorn

from fedprice.web.connections import LARGEST_HEADERS, LONGEST_HEADERS, MOST_CONNECTIONS, Limited

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import Receive, Scope, Send

    from trials.serving import Serving

PIECE = b"GET /api/openapi.json HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"


def is_closed(connection: socket.socket, within: float) -> bool:
    """Return whether the other side has ended a connection, after waiting for that."""
    connection.settimeout(within)
    try:
        return connection.recv(4096) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def send_until_closed(connection: socket.socket, piece: bytes, *, pause: float, most: int) -> None:
    """Send a piece again and again, until the other side has closed the connection."""
    for _ in range(most):
        connection.sendall(piece)
        time.sleep(pause)


async def sized(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the size of the body, for a while never."""
    size, more = 0, scope["type"] == "http"
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    if scope.get("path") == "/never":
        await asyncio.sleep(60)
    text = b"%d" % size
    headers = [(b"content-length", b"%d" % len(text))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text})


@contextmanager
def limited() -> Iterator[tuple[str, int]]:
    """Yield the address of a server in a thread, with our limits."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            sized, log_config=None, http=Limited, ws="none", lifespan="off",
            timeout_graceful_shutdown=0, h11_max_incomplete_event_size=LARGEST_HEADERS,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[:2]
        finally:
            server.should_exit = True
            thread.join(60)


CHUNKED = b"POST /%s HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n"


@pytest.mark.parametrize(
    "begun",
    [CHUNKED % b"", b"GET /never HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n"],
    ids=["trailers", "headers of the next request"],
)
def test_what_follows_a_request_is_limited_in_size(begun: bytes) -> None:
    with limited() as address, socket.create_connection(address, timeout=1) as connection:
        connection.sendall(begun)
        with pytest.raises((ConnectionError, TimeoutError)):  # closed, or not read any further
            send_until_closed(connection, b"x: a\r\n" * 1000, pause=0.001, most=2000)


def test_a_large_body_and_many_requests_pass_the_limit_of_headers() -> None:
    with limited() as address, socket.create_connection(address, timeout=60) as connection:
        headers = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"
        connection.sendall(headers + bytes(10**6))
        assert connection.recv(4096).endswith(b"1000000")
        for _ in range(20):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nx: %s\r\n\r\n" % (b"a" * 9000))
            assert connection.recv(4096).endswith(b"0")


@pytest.mark.slow
def test_a_thousand_connections_without_headers_do_not_stop_the_server(
    serving: Callable[..., Serving],
) -> None:
    server = serving()
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (1024, 1024))
    place = urlsplit(server.url)
    assert place.hostname is not None
    assert place.port is not None
    address = place.hostname, place.port
    with ExitStack() as stack:
        opened = []
        for number in range(1100):
            connection = stack.enter_context(socket.create_connection(address, timeout=60))
            if number % 2:
                connection.sendall(PIECE % place.port)
            opened.append(connection)
        assert is_closed(opened[-1], 60), "one too many"
        assert all(is_closed(connection, 60 + LONGEST_HEADERS) for connection in opened)
        with urlopen(f"{server.url}api/openapi.json", timeout=60) as answer:
            assert answer.status == 200
    assert server.process.poll() is None
    assert MOST_CONNECTIONS < 1024


@pytest.mark.slow
def test_headers_are_limited_in_time_and_size(serving: Callable[..., Serving]) -> None:
    server = serving()
    place = urlsplit(server.url)
    assert place.port is not None
    begun = PIECE % place.port

    def connection() -> socket.socket:
        return stack.enter_context(socket.create_connection(("127.0.0.1", place.port), timeout=60))

    with ExitStack() as stack:
        endless, kept = connection(), connection()
        endless.sendall(begun)
        with pytest.raises(ConnectionError):
            send_until_closed(endless, b"x: %s\r\n" % (b"y" * 1000), pause=0, most=10_000)
        # A second request on a connection has no more time than the first one.
        kept.sendall(begun + b"\r\n")
        while not kept.recv(2**20).endswith(b"}"):
            pass
        kept.sendall(begun)
        began = time.monotonic()
        dripping = connection()
        dripping.sendall(begun)
        with pytest.raises(ConnectionError):  # each piece arrives in time, the whole never
            send_until_closed(dripping, b"a: b\r\n", pause=0.5, most=600)
        assert time.monotonic() - began > LONGEST_HEADERS / 2
        assert is_closed(kept, 60 + LONGEST_HEADERS)
