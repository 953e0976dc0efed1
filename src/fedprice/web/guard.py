"""`Guard`: the ASGI middleware that decides which requests reach the page and its API.

A page on loopback can be reached by every program of the machine, and by every web page that its
user has open. Headers that browsers set themselves show which requests to refuse:

- `Host` must be what is served. A foreign name that resolves to this machine (DNS rebinding) is
  refused, on HTTP and on websockets.
- `Origin` must be the same host wherever it is present, and `Sec-Fetch-Site` must not say that
  another site sent the request, unless a person merely follows a link.
- On any address other than loopback, every request needs the token: as the cookie that
  `?token=…` sets once, or as `Authorization: Bearer …`.

The size and duration of bodies are limited. Every refusal is one line: as JSON below `/api`, as
text elsewhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import re
import secrets
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from fedprice.errors import InputError
from fedprice.web.uploads import LARGEST_UPLOAD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST_BODY", "WILDCARDS", "Guard", "is_loopback", "new_token"]

LARGEST_BODY = LARGEST_UPLOAD + 2**20  # bytes of a request: an upload and what a form adds to it
MOST_BODIES = 2 * LARGEST_BODY  # bytes of all bodies that are held at once
LONGEST_WAIT = 30.0  # seconds for the next piece of a body
LEAST_TOKEN = 16  # characters
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
WILDCARDS = ("0.0.0.0", "::")
READING = ("GET", "HEAD")

# NiceGUI starts with inline scripts, and Vue compiles templates; no foreign host is ever needed.
POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}
# Headers that an answer may bring itself: a report without scripts needs less than a page.
OWN_POLICY = (b"content-security-policy", b"x-frame-options")


class GuardError(Exception):
    """A request is refused: the status of the answer, and the line that says why."""

    def __init__(self, status: int, line: str) -> None:
        super().__init__(line)
        self.status, self.line = status, line


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(32)


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Request:
    """What the guard reads from a request."""

    method: str  # "" for a websocket
    path: str  # below the root path
    query: str
    headers: dict[str, list[str]]

    @classmethod
    def of(cls, scope: Scope) -> Request:
        """Return what an ASGI scope says; header names are lower case there."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        path, root = scope["path"], scope.get("root_path", "")
        if root and f"{path}/".startswith(f"{root}/"):
            path = path[len(root) :] or "/"
        query = scope.get("query_string", b"").decode("latin-1")
        return cls(scope.get("method", ""), path, query, headers)

    def header(self, name: str) -> str:
        """Return a header that may occur once, or nothing."""
        given = self.headers.get(name, [])
        if len(given) > 1:
            raise GuardError(400, f"the header {name} must be given once; got {len(given)}.")
        return given[0].strip() if given else ""

    @property
    def is_api(self) -> bool:
        """Whether the request comes from a program, which reads JSON."""
        return self.path == "/api" or self.path.startswith("/api/")


class Guard:
    """Pass only valid requests, from this machine or with the token, to an ASGI app.

    Parameters
    ----------
    app
        The ASGI app behind it.
    host, port
        The address that is served. Loopback's own names always count; "0.0.0.0" and "::" also
        stand for every numeric address and for the name of this machine.
    names
        Further names under which browsers reach the page, such as behind a proxy: "HOST" or
        "HOST:PORT", as a browser shows it.
    token
        The secret that every request must carry; required unless only loopback is served.
    largest_body
        Bytes of a request's body.
    longest_wait
        Seconds to wait for the next piece of a body.

    Examples
    --------
    >>> async def app(scope, receive, send): ...
    >>> Guard(app, host="0.0.0.0", port=8080)
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: serving 0.0.0.0 needs a token: anybody could read it without one.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        host: str,
        port: int,
        names: Sequence[str] = (),
        token: str | None = None,
        largest_body: int = LARGEST_BODY,
        longest_wait: float = LONGEST_WAIT,
    ) -> None:
        for name in names:
            if not re.fullmatch(r"([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?", name, re.IGNORECASE):
                raise InputError(f"a name that is served must be HOST or HOST:PORT; got {name!r}.")
        hosts = (host, *(urlsplit(f"//{name}").hostname or "" for name in names))
        foreign = [name for name in hosts if not is_loopback(name)]
        if foreign and token is None:
            raise InputError(
                f"serving {foreign[0]} needs a token: anybody could read it without one."
            )
        if token is not None and not re.fullmatch(rf"[\w~.-]{{{LEAST_TOKEN},}}", token, re.ASCII):
            raise InputError(
                f"a token must have at least {LEAST_TOKEN} letters, digits or '-._~'; got "
                f"{len(token)} characters."
            )
        self.app = app
        self.token, self.cookie = token, f"fedprice_{port}"
        self.largest_body, self.longest_wait = largest_body, longest_wait
        self.any_address = host in WILDCARDS
        own = {*LOOPBACK, _bracketed(host)}
        if self.any_address:
            own.add(socket.gethostname())
        self.port = port
        self.hosts = {_host(f"{name}:{port}") for name in own} | {_host(name) for name in names}
        self.held = 0  # bytes of bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer with the reason for refusing it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        request = Request.of(scope)
        try:
            self.check(request)
            if self._has_token_in_query(request):
                await self._welcome(request, scope, send)
                return
        except GuardError as error:
            await _refuse(request, error, scope, receive, send)
            return
        # The prefix of the paths is the root path, never what a header says.
        kept = [(name, value) for name, value in scope["headers"] if name != b"x-forwarded-prefix"]
        await self._pass(request, {**scope, "headers": kept}, receive, send)

    def check(self, request: Request) -> None:
        """Raise `GuardError` unless a request may pass."""
        host = request.header("host")
        if not self._is_served(host):
            served = " or ".join(sorted(self.hosts))
            raise GuardError(403, f"the host {host!r:.100} is not served here; use {served}.")
        self._check_origin(request, host)
        if any(category(c) == "Cc" for c in request.path) or {".", ".."} & set(
            request.path.split("/")
        ):
            raise GuardError(400, "the path must have neither '.' nor '..' nor control characters.")
        if request.method and request.path.startswith("/_nicegui_ws/"):
            raise GuardError(400, "pages are kept up to date over websockets only.")
        length = request.header("content-length")
        if length and not re.fullmatch("[0-9]{1,20}", length):
            raise GuardError(400, "the header content-length must be a number.")
        if length and int(length) > self.largest_body:
            raise self._too_large()
        if self.token is not None and not self._has_token(request):
            raise GuardError(
                401,
                "the token is missing or wrong; open the address that `fedprice serve` printed, or "
                "send the header Authorization: Bearer TOKEN.",
            )

    def _is_served(self, host: str) -> bool:
        name = _host(host)
        if name in self.hosts:
            return True
        if not self.any_address:
            return False
        # A numeric address cannot be a foreign name that resolves to this machine.
        address, _, port = name.rpartition(":")
        try:
            ipaddress.ip_address(address.strip("[]"))
        except ValueError:
            return False
        return port == str(self.port)

    def _check_origin(self, request: Request, host: str) -> None:
        """Refuse requests from pages of other sites."""
        if "origin" in request.headers:
            origin = request.header("origin")
            scheme, _, rest = origin.partition("://")
            default = {"http": "80", "https": "443"}.get(scheme)
            if default is None or _host(rest, default) != _host(host, default):
                raise GuardError(403, f"requests from {origin!r:.100} are refused: another site.")
        # Only a person's own window: frames would let another site's page keep this server busy.
        follows_link = (
            request.method in READING
            and request.header("sec-fetch-mode") == "navigate"
            and request.header("sec-fetch-dest") in ("", "document")
        )
        site = request.header("sec-fetch-site")
        if site not in ("", "same-origin", "none") and not follows_link:
            raise GuardError(403, "requests from another site are refused.")

    def _has_token(self, request: Request) -> bool:
        kind, _, bearer = request.header("authorization").partition(" ")
        given = [bearer.strip()] if kind.lower() == "bearer" else []
        for cookies in request.headers.get("cookie", []):
            pairs = (pair.strip().partition("=") for pair in cookies.split(";"))
            given += [value for name, _, value in pairs if name == self.cookie]
        if request.method in READING:
            given += [value for name, value in _pairs(request.query) if name == "token"]
        return any(self._is_token(text) for text in given)

    def _is_token(self, text: str) -> bool:
        expected = (self.token or "").encode()
        return secrets.compare_digest(text.encode("utf-8", "replace"), expected)

    def _has_token_in_query(self, request: Request) -> bool:
        """Whether the address contains the token, from which it must then be removed."""
        names = {name for name, _ in _pairs(request.query)}
        return self.token is not None and request.method in READING and "token" in names

    async def _welcome(self, request: Request, scope: Scope, send: Send) -> None:
        """Store the token as a cookie, and redirect the browser to the address without it."""
        rest = urlencode([(n, value) for n, value in _pairs(request.query) if n != "token"])
        root = scope.get("root_path", "")
        # One slash at the front: two would lead to another host.
        target = quote(f"{root}/" + request.path.lstrip("/")) + (f"?{rest}" if rest else "")
        cookie = f"{self.cookie}={self.token}; Path={root or '/'}; HttpOnly; SameSite=Lax"
        if "https" in (scope.get("scheme"), request.header("x-forwarded-proto")):
            cookie += "; Secure"
        headers = [(b"location", target.encode()), (b"set-cookie", cookie.encode())]
        await _answer(303, headers, b"", send)

    async def _pass(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the app with a limited body, and add our headers to its answer."""
        left, held, complete, started, refused = self.largest_body, 0, False, False, False

        async def bounded() -> Message:
            nonlocal left, held, complete, refused
            if refused:
                return {"type": f"{scope['type']}.disconnect", "code": 1003}
            if complete:
                return await receive()
            if scope["type"] == "websocket":
                message = await receive()
                # Our pages send text only; pieces of binary messages would be kept without a limit.
                if message.get("bytes") is not None:
                    refused = True
                    await send({"type": "websocket.close", "code": 1003})
                    return {"type": "websocket.disconnect", "code": 1003}
                return message
            error = None
            try:
                message = await asyncio.wait_for(receive(), self.longest_wait)
            except TimeoutError:
                error = GuardError(408, "the rest of the request did not arrive in time.")
            else:
                complete = message["type"] != "http.request" or not message.get("more_body", False)
                size = len(message.get("body", b""))
                left -= size
                held += size
                self.held += size
                if left < 0:
                    error = self._too_large()
                elif self.held > MOST_BODIES:
                    error = GuardError(503, "other requests hold much data; try again later.")
            if error is None:
                return message
            refused = True
            if not started:
                await _refuse(request, error, scope, receive, send)
            return {"type": "http.disconnect"}

        async def headed(message: Message) -> None:
            nonlocal started
            if refused:
                return
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                started = True
                given = message.get("headers", [])
                kept = {name for name, _ in given if name in OWN_POLICY}
                headers = [h for h in given if h[0].lower() not in HEADERS.keys() - kept]
                headers += [h for h in HEADERS.items() if h[0] not in kept]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.app(scope, bounded, headed)
        except asyncio.CancelledError:
            if started or scope["type"] != "http":
                raise
            # Otherwise every request that is under way at shutdown would leave a traceback.
            ending = GuardError(503, "the server is shutting down.")
            await _refuse(request, ending, scope, receive, send)
        except Exception:
            if not refused:  # errors of the app about a truncated request are expected
                raise
        finally:
            self.held -= held

    def _too_large(self) -> GuardError:
        return GuardError(413, f"the request must have at most {self.largest_body:,} bytes.")


def _bracketed(host: str) -> str:
    """Return an address as it is written in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _host(text: str, default: str = "80") -> str:
    """Return HOST or HOST:PORT in the normal form in which they are compared.

    Examples
    --------
    >>> _host("LocalHost:8080"), _host("example.org:80"), _host("[::1]:8080")
    ('localhost:8080', 'example.org', '[::1]:8080')
    """
    name = text.strip().lower()
    return name.removesuffix(f":{default}")


def _pairs(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True)


async def _refuse(
    request: Request, error: GuardError, scope: Scope, receive: Receive, send: Send
) -> None:
    """Answer with one line: JSON to programs, text to people; a websocket is never accepted."""
    body = (json.dumps({"error": error.line}) if request.is_api else error.line) + "\n"
    kind = "application/json" if request.is_api else "text/plain; charset=utf-8"
    headers = [(b"content-type", kind.encode()), (b"connection", b"close")]
    if error.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if scope["type"] == "http":
        await _answer(error.status, headers, body.encode(), send)
        return
    await receive()  # websocket.connect
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await _answer(error.status, headers, body.encode(), send, "websocket.http.response")
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": error.line[:120]})


async def _answer(
    status: int,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    send: Send,
    kind: str = "http.response",
) -> None:
    length = (b"content-length", str(len(body)).encode())
    every = [*headers, length, *HEADERS.items()]
    await send({"type": f"{kind}.start", "status": status, "headers": every})
    await send({"type": f"{kind}.body", "body": body})
