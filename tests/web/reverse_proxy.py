"""A reverse proxy as people put in front: it shows a server below a path, websockets included."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE = 2**16


@contextmanager
def proxied(port: int, listening: socket.socket, path: str, *, takes_off: bool) -> Iterator[None]:
    """Pass what comes to a socket on to a port; take the path off, or leave it there.

    Every connection has one request, or one websocket: the proxy says `Connection: close`.
    """
    threading.Thread(
        target=_accept, args=(listening, port, path.encode(), takes_off), daemon=True
    ).start()
    try:
        yield
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        listening.close()


def _accept(listening: socket.socket, port: int, path: bytes, takes_off: bool) -> None:
    with suppress(OSError):  # it is closed
        while True:
            browser, _ = listening.accept()
            threading.Thread(
                target=_serve, args=(browser, port, path, takes_off), daemon=True
            ).start()


def _serve(browser: socket.socket, port: int, path: bytes, takes_off: bool) -> None:
    with browser, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server:
        head, body = _head(browser)
        line, *headers = head.split(b"\r\n")
        method, target, version = line.split(b" ")
        if not target.startswith(path):
            browser.sendall(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\nof the proxy")
            return
        if takes_off:
            target = target.removeprefix(path) or b"/"
        if not any(h.lower().startswith(b"upgrade:") for h in headers):
            headers = [h for h in headers if not h.lower().startswith(b"connection:")]
            headers.append(b"Connection: close")
        request = b"\r\n".join([b" ".join([method, target, version]), *headers])
        server.sendall(request + b"\r\n\r\n" + body)
        threading.Thread(target=_pump, args=(browser, server), daemon=True).start()
        _pump(server, browser)


def _head(browser: socket.socket) -> tuple[bytes, bytes]:
    """Return the head of a request, and what came with it of the body."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = browser.recv(PIECE)
        if not piece:
            raise ConnectionError
        received += piece
    head, _, body = received.partition(b"\r\n\r\n")
    return head, body


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
