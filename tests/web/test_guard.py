"""Who is let through to the page: hosts, origins, tokens, sizes."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute

from fedprice.errors import InputError
from fedprice.web.guard import HEADERS, Guard, is_loopback, new_token
from tests.web.asgi import Asking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request
    from starlette.websockets import WebSocket

HERE = "http://127.0.0.1:8080"
TOKEN = "0123456789abcdef-._~"


async def _echo(request: Request) -> Response:
    body = await request.body()
    prefix = request.headers.get("x-forwarded-prefix", "")
    return PlainTextResponse(f"{request.method} {request.url.path} {len(body)}{prefix}")


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("hello")
    await websocket.close()


def behind() -> Starlette:
    methods = ["GET", "POST", "PUT", "DELETE"]
    return Starlette(
        routes=[WebSocketRoute("/ws", _socket), Route("/{path:path}", _echo, methods=methods)]
    )


def client_of(host: str = "127.0.0.1", **options: Any) -> Asking:
    return Asking(Guard(behind(), host=host, port=8080, **options))


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"]
)
def test_loopback_names_with_the_port_pass(host: str) -> None:
    assert client_of().get("/", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1",
        "127.0.0.1:8081",
        "localhost.evil.example:8080",
        "127.0.0.1:8080.evil.example",
        "evil@127.0.0.1:8080",
        "192.168.0.7:8080",
        "",
    ],
)
def test_foreign_hosts_are_refused_in_one_line(host: str) -> None:
    answer = client_of().get("/", headers={"host": host})
    assert answer.status == 403
    assert answer.text.count("\n") == 1
    assert "is not served here" in answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    below = client_of().get("/api/runs", headers={"host": host})
    assert below.status == 403
    assert "is not served here" in below.json()["error"]


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:8081",
        "http://localhost:8080",
        "http://127.0.0.1:8080.evil.example",
        "http://evil@127.0.0.1:8080",
        "file://127.0.0.1:8080",
        "127.0.0.1:8080",
    ],
)
def test_foreign_origins_are_refused(origin: str) -> None:
    client = client_of()
    assert client.get("/", headers={"origin": origin}).status == 403
    assert client.post("/api/price", headers={"origin": origin}).status == 403
    assert client.connect("/ws", headers={"origin": origin}).status == 403


def test_the_same_origin_passes_over_http_and_websocket() -> None:
    client = client_of()
    assert client.post("/x", headers={"origin": HERE}).status == 200
    assert client.connect("/ws", headers={"origin": HERE}).status == 101


def test_what_another_site_sends_without_an_origin_is_refused() -> None:
    client = client_of()
    for site in ("cross-site", "same-site", "whatever"):
        headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
        assert client.post("/api/price", headers=headers).status == 403
        assert client.get("/api/runs", headers=headers).status == 403
        navigated = headers | {"sec-fetch-mode": "navigate"}
        assert client.post("/api/price", headers=navigated).status == 403
        assert client.get("/price?budget=3", headers=navigated).status == 200, "a link"
    for site in ("same-origin", "none"):
        assert client.post("/api/price", headers={"sec-fetch-site": site}).status == 200


def test_frames_of_another_site_do_not_keep_the_server_busy() -> None:
    client = client_of()
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    for inside in ("iframe", "frame", "object", "embed", "image"):
        assert client.get("/", headers=link | {"sec-fetch-dest": inside}).status == 403
    assert client.get("/", headers=link | {"sec-fetch-dest": "document"}).status == 200


def test_the_cookie_of_a_page_behind_tls_is_never_sent_without_it() -> None:
    client = client_of(names=["prices.example.org"], token=TOKEN)
    behind_tls = {"host": "prices.example.org", "x-forwarded-proto": "https"}
    cookie = client.get(f"/?token={TOKEN}", headers=behind_tls).headers["set-cookie"]
    assert cookie.endswith("; Secure")


def test_a_header_that_is_there_twice_is_refused() -> None:
    client = client_of()
    twice = [("host", "127.0.0.1:8080"), ("host", "evil.example")]
    assert client.get("/", headers=twice).status == 400
    assert client.get("/", headers=[("origin", HERE), ("origin", "null")]).status == 400


def test_names_behind_a_proxy_are_served_with_a_token_only() -> None:
    with pytest.raises(InputError, match=r"serving prices\.example\.org needs a token"):
        client_of(names=["prices.example.org"])
    client = client_of(names=["prices.example.org", "other.example:8443"], token=TOKEN)
    own = {"authorization": f"Bearer {TOKEN}"}
    for host in ("prices.example.org", "other.example:8443", "127.0.0.1:8080"):
        assert client.get("/", headers=own | {"host": host}).status == 200
    for host in ("example.org", "other.example", "prices.example.org:8080"):
        assert client.get("/", headers=own | {"host": host}).status == 403
    secure = own | {"host": "prices.example.org", "origin": "https://prices.example.org"}
    assert client.post("/", headers=secure).status == 200
    with pytest.raises(InputError, match="HOST or HOST:PORT; got 'http://x'"):
        client_of(names=["http://x"], token=TOKEN)


def test_all_addresses_mean_numeric_ones_and_the_name_of_this_machine() -> None:
    client = client_of(host="0.0.0.0", token=TOKEN)
    own = {"authorization": f"bearer {TOKEN}"}
    for host in ("192.168.0.7:8080", "[fe80::1]:8080", f"{socket.gethostname()}:8080"):
        assert client.get("/", headers=own | {"host": host}).status == 200
    for host in (
        "evil.example:8080",
        "192.168.0.7",
        "192.168.0.7:1",
        "192.168.0.7.evil.example:8080",
    ):
        assert client.get("/", headers=own | {"host": host}).status == 403


def test_another_address_than_loopback_needs_a_token() -> None:
    with pytest.raises(InputError, match="needs a token"):
        client_of(host="192.168.0.7")
    for bad in ("short", "x" * 15, "x" * 20 + ";", "é" * 20):
        with pytest.raises(InputError, match="at least 16 letters"):
            client_of(token=bad)
    assert is_loopback("127.8.9.1")
    assert is_loopback("::1")
    assert not is_loopback("192.168.0.7")
    assert len(new_token()) > 40


def test_the_token_is_kept_as_a_cookie_and_leaves_the_address() -> None:
    client = client_of(token=TOKEN)
    refused = client.get("/api/runs")
    assert refused.status == 401
    assert "Authorization: Bearer TOKEN" in refused.json()["error"]
    assert client.get("/?token=wrong").status == 401
    assert client.post(f"/?token={TOKEN}").status == 401, "not in an address that is sent to"
    first = client.get(f"/price?budget=3&token={TOKEN}&scheme=a%26b")
    assert first.status == 303
    assert first.headers["location"] == "/price?budget=3&scheme=a%26b"
    cookie = first.headers["set-cookie"]
    assert cookie == f"fedprice_8080={TOKEN}; Path=/; HttpOnly; SameSite=Lax"
    kept = {"cookie": cookie.partition(";")[0]}
    assert client.get("/price?budget=3", headers=kept).status == 200
    assert client.post("/x", headers=kept).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": "Bearer \xff\xfe"},
        {"cookie": f"fedprice_8081={TOKEN}"},
        {"cookie": "fedprice_8080="},
        {"cookie": f"fedprice_8080x={TOKEN}; fedprice_8080"},
    ],
)
def test_wrong_tokens_are_refused(headers: dict[str, str]) -> None:
    client = client_of(token=TOKEN)
    assert client.get("/", headers=headers).status == 401
    assert client.connect("/ws", headers=headers).status == 403


def test_websockets_need_the_token_too() -> None:
    client = client_of(token=TOKEN)
    headers = {"cookie": f"a=b; fedprice_8080={TOKEN}"}
    assert client.connect("/ws", headers=headers).status == 101
    assert client.connect(f"/ws?token={TOKEN}").status == 403, "addresses are written to logs"


def test_the_redirect_never_leads_to_another_host() -> None:
    client = client_of(token=TOKEN)
    for path in ("//evil.example/", "///evil.example", "/%2Fevil.example", "/%5Cevil.example"):
        to = client.get(f"{path}?token={TOKEN}").headers["location"]
        assert to.startswith("/")
        assert not to.startswith(("//", "/\\")), to


def test_a_root_path_is_kept_in_redirects_and_cookies() -> None:
    guard = Guard(behind(), host="127.0.0.1", port=8080, token=TOKEN)
    client = Asking(guard, root_path="/lab")
    first = client.get(f"/lab/price?token={TOKEN}")
    assert first.headers["location"] == "/lab/price"
    assert "; Path=/lab;" in first.headers["set-cookie"]
    assert "error" in client.get("/lab/api/runs").json(), "JSON below the API, wherever it is"


def test_the_prefix_of_a_header_is_ignored() -> None:
    answer = client_of().get("/", headers={"x-forwarded-prefix": "/evil"})
    assert answer.text == "GET / 0"


@pytest.mark.parametrize(
    "path", ["/api/%2e%2e/x", "/a/%2E/b", "/%00", "/a%0d%0ab", "/..%2fapi", "/a%c2%9bb"]
)
def test_path_tricks_are_refused(path: str) -> None:
    answer = client_of().get(path)
    assert answer.status == 400
    assert "the path must have neither" in answer.text


def test_bodies_are_bounded_with_and_without_a_length() -> None:
    client = client_of(largest_body=1000)
    assert client.post("/", body=b"x" * 1000).text == "POST / 1000"
    assert client.post("/", body=b"x" * 1001).status == 413

    def pieces() -> Iterator[bytes]:
        yield from [b"x" * 100] * 11

    chunked = client.post("/api/price", body=pieces())
    assert chunked.status == 413
    assert chunked.json() == {"error": "the request must have at most 1,000 bytes."}
    for length in ("-1", "1e3", "9" * 30):
        assert client.post("/", headers={"content-length": length}).status in (400, 413)


def test_every_answer_has_the_headers() -> None:
    client = client_of(token=TOKEN)
    own = {"authorization": f"Bearer {TOKEN}"}
    refused, welcomed = client.get("/"), client.get(f"/?token={TOKEN}")
    for answer in (refused, welcomed, client.get("/", headers=own)):
        for name, value in HEADERS.items():
            assert answer.headers[name.decode()] == value.decode()
    policy = HEADERS[b"content-security-policy"].decode()
    assert "http" not in policy, "no foreign host"
    assert "*" not in policy
    assert "frame-ancestors 'none'" in policy


def test_the_bodies_of_all_requests_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprice.web.guard.MOST_BODIES", 5)
    client = client_of()
    for _ in range(2):  # what was held is given back
        assert client.post("/", body=b"123456").status == 503
        assert client.post("/", body=b"12345").status == 200


def test_errors_of_the_app_are_not_hidden() -> None:
    async def broken(scope: Any, receive: Any, send: Any) -> None:
        raise ZeroDivisionError

    async def ask() -> None:
        guard = Guard(broken, host="127.0.0.1", port=8080)
        headers = [(b"host", b"127.0.0.1:8080")]
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
        await guard(scope, None, None)  # type: ignore[arg-type]

    with pytest.raises(ZeroDivisionError):
        asyncio.run(ask())


# A real server, and bytes that no polite client would send.


@contextmanager
def serving(**options: Any) -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = int(listening.getsockname()[1])
        guard = Guard(behind(), host="127.0.0.1", port=port, **options)
        server = uvicorn.Server(uvicorn.Config(guard, log_config=None, ws="websockets-sansio"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(60)


def answer_to(port: int, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.sendall(text)
        received = b""
        while piece := link.recv(65536):
            received += piece
            if b"\r\n\r\n" in received and b"101 Switching" in received:
                break
        return received


UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def test_binary_messages_end_a_websocket() -> None:
    """Pieces of them would be kept without a limit."""
    waiting = [{"type": "websocket.receive", "bytes": b"x"}]
    seen, sent = [], []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.extend([await receive(), await receive()])
        await send({"type": "websocket.send", "text": "more"})

    async def receive() -> Any:
        return waiting.pop()

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/", "headers": [(b"host", b"127.0.0.1:8080")]}
    asyncio.run(Guard(app, host="127.0.0.1", port=8080)(scope, receive, send))
    assert [message["type"] for message in seen] == ["websocket.disconnect"] * 2
    assert sent == [{"type": "websocket.close", "code": 1003}]


def test_messages_of_pages_come_over_websockets_only() -> None:
    answer = client_of().get("/_nicegui_ws/socket.io/?EIO=4&transport=polling")
    assert answer.status == 400
    assert client_of().connect("/_nicegui_ws/socket.io/").status != 400


def test_on_the_wire_only_our_host_and_origin_pass() -> None:
    with serving() as port:
        here = b"127.0.0.1:%d" % port

        def get(path: bytes, host: bytes, *more: bytes) -> bytes:
            lines = b"".join(line + b"\r\n" for line in more)
            close = b"" if UPGRADE in lines + b"\r\n" else b"Connection: close\r\n"
            return answer_to(
                port,
                b"GET " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + lines + close + b"\r\n",
            )

        assert get(b"/", here).startswith(b"HTTP/1.1 200 ")
        assert get(b"/", b"evil.example").startswith(b"HTTP/1.1 403 ")
        absolute = get(b"http://evil.example/", here)
        assert b"evil.example is" not in absolute
        assert get(b"/", here, b"Origin: http://evil.example").startswith(b"HTTP/1.1 403 ")
        upgrade = UPGRADE.removesuffix(b"\r\n")
        own = b"Origin: http://" + here
        assert get(b"/ws", here, upgrade, own).startswith(b"HTTP/1.1 101 ")
        for host, origin in (
            (here, b"Origin: http://evil.example"),
            (here, b"Origin: null"),
            (b"evil.example", b"Origin: http://evil.example"),
            (b"evil.example:%d" % port, b"Origin: http://evil.example:%d" % port),
        ):
            refused = get(b"/ws", host, upgrade, origin)
            assert refused.startswith(b"HTTP/1.1 403 "), refused
            assert b"refused" in refused or b"is not served here" in refused


def test_a_request_that_is_under_way_when_the_server_ends_is_no_traceback() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        guard = Guard(behind(), host="127.0.0.1", port=8080)
        headers = [(b"host", b"127.0.0.1:8080")]
        scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
        task = asyncio.create_task(guard(scope, receive, send))
        await asyncio.sleep(0.1)
        task.cancel()
        await task

    asyncio.run(ask())
    assert sent[0]["status"] == 503
    assert sent[1]["body"] == b"the server is shutting down.\n"


def test_on_the_wire_bodies_without_a_length_end() -> None:
    with serving(largest_body=1000, longest_wait=0.2) as port:
        head = b"POST /api/x HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n" % port
        chunk = b"64\r\n" + b"x" * 100 + b"\r\n"
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        large = answer_to(port, chunked + chunk * 11 + b"0\r\n\r\n")
        assert large.startswith(b"HTTP/1.1 413 ")
        assert b'{"error": "the request must have at most 1,000 bytes."}' in large
        fits = answer_to(port, chunked + chunk * 9 + b"0\r\n\r\n")
        assert fits.startswith(b"HTTP/1.1 200 ")
        with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
            link.sendall(chunked + chunk)  # and then nothing
            assert link.recv(65536).startswith(b"HTTP/1.1 408 ")
