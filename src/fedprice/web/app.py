"""The server: the pages, the API, and who may reach them."""

from __future__ import annotations

import html
import os
import re
import socket
import tempfile
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from fastapi.middleware.gzip import GZipMiddleware
from nicegui import app as nicegui_app
from nicegui import ui
from python_multipart.exceptions import FormParserError
from starlette.formparsers import MultiPartParser

from fedprice.errors import InputError
from fedprice.web import limited
from fedprice.web.api import api
from fedprice.web.connections import BACKLOG, LARGEST_HEADERS, Limited
from fedprice.web.dropped import DroppedTables
from fedprice.web.guard import WILDCARDS, Guard, is_loopback, new_token
from fedprice.web.kept_files import KeptFiles
from fedprice.web.logs import LOG
from fedprice.web.pages.beliefs import beliefs_page
from fedprice.web.pages.client import client_page
from fedprice.web.pages.price import price_page
from fedprice.web.pages.results import report, results_page
from fedprice.web.pages.runs import run_page, runs_page
from fedprice.web.uploads import LARGEST_UPLOAD, of_upload
from fedprice.web.watched_ledger import read_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

    from fedprice.web.served_files import Served

__all__ = ["build", "handed_over", "serve"]

PATIENCE = 60.0  # seconds that a browser waits for a page with a large table
LAST = 4.0  # seconds that a shutdown takes at most
# Seconds that a browser may be silent, as on a busy machine. After that the page reloads
# itself, and a file of beliefs that was dropped on it is lost.
SILENCE = 30.0


def build(served: Served, *, compress: bool = False) -> FastAPI:
    """Return the application that shows what is served; compressing suits other machines."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.mount("/api", api(served))
    dropped = DroppedTables()
    MultiPartParser.spool_max_size = LARGEST_UPLOAD + 1  # uploads stay in memory
    for mistake in (FormParserError, AttributeError):  # of NiceGUI, if a field is no file
        nicegui_app.add_exception_handler(mistake, of_upload)

    @ui.page("/", response_timeout=PATIENCE)
    async def _price() -> None:
        await price_page(served, dropped)

    @ui.page("/runs", response_timeout=PATIENCE)
    async def _runs() -> None:
        await runs_page(served)

    @ui.page("/runs/{run:path}", response_timeout=PATIENCE)
    async def _run(run: str) -> None:
        await run_page(served, run)

    @ui.page("/client")
    def _clients() -> None:
        client_page(served)

    @ui.page("/client/{name:path}")
    def _client(name: str) -> None:
        client_page(served, name)

    @ui.page("/beliefs", response_timeout=PATIENCE)
    async def _beliefs() -> None:
        await beliefs_page(served, dropped)

    @ui.page("/results", response_timeout=PATIENCE)
    async def _results() -> None:
        await results_page(served)

    app.add_route("/results/report.html", lambda _: report(served))

    ui.run_with(
        app, title="fedprice", dark=None, show_welcome_message=False, reconnect_timeout=SILENCE,
        tailwind=False,  # it compiles styles in the browser; the pages bring their own
        gzip_middleware_factory=GZipMiddleware if compress else None,
    )  # fmt: skip
    return app


def serve(
    served: Served,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    names: Sequence[str] = (),
    token: str | None = None,
    root_path: str = "",
    tell: Callable[[str], None] = print,
    browser: bool = False,
) -> None:
    """Serve pages and API until Ctrl-C, which ends the process.

    Parameters
    ----------
    served
        What may be read.
    host, port
        Where to serve; port 0 chooses a free one.
    names
        Further names by which browsers reach it, such as that of a proxy: HOST or HOST:PORT.
    token
        The secret that every request must carry; generated if none is given and other machines can
        reach the address.
    root_path
        The URL path under which a proxy serves it, such as /fedprice.
    tell
        Called with the address once the server answers.
    browser
        Whether to open it in the user's browser.
    """
    if root_path and not re.fullmatch("(/[A-Za-z0-9._~-]+)+", root_path):
        raise InputError(f"--root-path must be like /fedprice; got {root_path!r}.")
    if token is None and not all(is_loopback(name) for name in (host, *map(_name, names))):
        token = new_token()
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    # On this machine, compressing what is sent takes longer than sending it.
    compress = not is_loopback(host)
    guarded = Guard(
        KeptFiles(build(served, compress=compress)), host=host, port=port, names=names, token=token,
        largest_body=LARGEST_UPLOAD + 2**20,
    )  # fmt: skip
    shown = socket.gethostname() if host in WILDCARDS else f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}{root_path}/" + (f"?token={token}" if token else "")

    private = tempfile.TemporaryDirectory(prefix="fedprice-")

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            tell(url)
            if served.ledger is not None:
                threading.Thread(target=read_ahead, args=[served.ledger], daemon=True).start()
            if browser:
                webbrowser.open(url if token is None else handed_over(url, Path(folder)).as_uri())

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # Python would wait for threads whose results nobody needs any more.
            end = threading.Timer(LAST, os._exit, [0])
            end.daemon = True
            end.start()
            private.cleanup()
            limited.close()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        _below(guarded, root_path), log_level="warning", timeout_graceful_shutdown=1,
        log_config=LOG, server_header=False, ws_max_size=2**22, proxy_headers=False,
        ws_per_message_deflate=compress, http=Limited, backlog=BACKLOG,
        h11_max_incomplete_event_size=LARGEST_HEADERS,
    )  # fmt: skip
    with listening, private as folder:
        Server(config).run(sockets=[listening])


def handed_over(url: str, folder: Path) -> Path:
    """Return a file for its owner alone that leads a browser to an address with a token.

    Everybody on this machine can read the arguments with which a browser is started.
    """
    path = folder / "fedprice.html"
    target = html.escape(url)
    path.touch(0o600)
    path.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={target}">', "utf-8")
    return path


def _below(app: ASGIApp, root: str) -> ASGIApp:
    """Return the app mounted under a path, whether or not a proxy strips that path."""
    if not root:
        return app

    async def below(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            path = scope["path"]
            inside = path == root or path.startswith(f"{root}/")
            scope = {**scope, "root_path": root, "path": path if inside else f"{root}{path}"}
        await app(scope, receive, send)

    return below


def _name(name: str) -> str:
    return urlsplit(f"//{name}").hostname or ""


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, or raise an error that says why there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise InputError(
            f"cannot serve at {host}, port {port}: {error.strerror or error}. Try another --port, "
            "or 0 for any free one."
        ) from error
    return listening
