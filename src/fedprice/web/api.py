"""The API: what the commands answer with `--format json`, over HTTP.

Every answer is one JSON object, and every error is `{"error": one line}`. Ledgers are read, never
written, and only the one that `fedprice serve --ledger` names.
"""

from __future__ import annotations

import io
import json
import re
import time
from asyncio import Lock
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from fedprice._plumbing.tables import json_text
from fedprice.commands.verify import verify
from fedprice.errors import FedpriceError, InputError, MissingExtraError, nearest
from fedprice.web.answers import QUESTIONS
from fedprice.web.answers import answer as answer_to
from fedprice.web.limited import computed
from fedprice.web.questions import line_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from fedprice.market.ledger import Ledger
    from fedprice.web.served_files import Served

__all__ = ["LARGEST_EXPORT", "LARGEST_QUESTION", "MOST_AT_ONCE", "api"]

LARGEST_QUESTION = 32 * 2**20  # bytes of JSON
LARGEST_EXPORT = 128 * 2**20  # bytes of an exported ledger
LONGEST_VERIFYING = 60.0  # seconds
MOST_AT_ONCE = 8  # computations, each in a thread
HEXADECIMAL = re.compile("[0-9a-f]{64}")
ERROR = {"type": "object", "properties": {"error": {"type": "string"}}}
RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/json": {"schema": {"type": "object"}}}},
    "4XX": {
        "description": "One line that says what is wrong.",
        "content": {"application/json": {"schema": ERROR}},
    },
}


def api(served: Served) -> FastAPI:
    """Return the application below `/api`, which `/api/openapi.json` describes."""
    from fedprice import __version__

    app = FastAPI(
        title="fedprice", summary="Prices for participation in federated learning.",
        version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    app.add_exception_handler(HTTPException, _of_http)
    under_way = 0

    async def answer(work: Callable[[], Awaitable[str]]) -> Response:
        """Return the JSON that work returns, or one line about what is wrong."""
        nonlocal under_way
        if under_way >= MOST_AT_ONCE:
            return _error(503, f"{MOST_AT_ONCE} computations are under way; try again later.")
        under_way += 1
        try:
            return _json(200, await work())
        except FedpriceError as error:
            return _error(_status(error), line_of(error))
        finally:
            under_way -= 1

    def ask(name: str) -> None:
        """Add the route of a question that is asked as JSON."""
        question, _ = QUESTIONS[name]

        async def route(request: Request) -> Response:
            _require_known(request)
            body = await _body(request, LARGEST_QUESTION)
            return await answer(lambda: computed(answer_to, name, body))

        content = {"application/json": {"schema": question.model_json_schema()}}
        app.add_api_route(
            f"/{name}", route, methods=["POST"], summary=(question.__doc__ or "").strip(),
            operation_id=name, response_class=Response, responses=RESPONSES,
            openapi_extra={"requestBody": {"required": True, "content": content}},
        )  # fmt: skip

    def read(path: str, work: Callable[..., str], name: str, summary: str) -> None:
        """Add the route of something that is read from the ledger."""

        async def route(request: Request) -> Response:
            _require_known(request)
            return await answer(
                lambda: to_thread.run_sync(partial(work, served, **request.path_params))
            )

        named = re.findall(r"\{(\w+)", path)
        parameters = [
            {"name": one, "in": "path", "required": True, "schema": {"type": "string"}}
            for one in named
        ]
        app.add_api_route(
            path, route, methods=["GET"], summary=summary, operation_id=name,
            response_class=Response, responses=RESPONSES,
            openapi_extra={"parameters": parameters},
        )  # fmt: skip

    for name in QUESTIONS:
        ask(name)
    read("/runs", _runs, "runs", "The runs of the ledger, one per row.")
    read("/runs/{run:path}", _run, "run", "The clients of a run, one per row.")
    read(
        "/clients/{client:path}/statement", _statement, "statement",
        "A client's entries, one per row, and its runs in sum.",
    )  # fmt: skip

    one_export = Lock()  # each may take a gigabyte

    async def verify_route(request: Request) -> Response:
        options = _verify_options(request)
        busy = _error(503, "another export is being verified; try again later.")
        if one_export.locked():
            return busy
        body = await _body(request, LARGEST_EXPORT)  # which may take long to arrive
        if one_export.locked():
            return busy
        async with one_export:
            return await answer(lambda: to_thread.run_sync(_verify, body, options))

    export = {"application/x-ndjson": {"schema": {"type": "string", "format": "binary"}}}
    app.add_api_route(
        "/verify", verify_route, methods=["POST"], response_class=Response, responses=RESPONSES,
        summary="The totals of an exported ledger, sent as the body, if it verifies.",
        operation_id="verify",
        openapi_extra={
            "requestBody": {"required": True, "content": export},
            "parameters": [
                {"name": name, "in": "query", "schema": schema}
                for name, schema in VERIFY_OPTIONS.items()
            ],
        },
    )  # fmt: skip
    return app


# Ledgers


@contextmanager
def _ledger(served: Served) -> Iterator[Ledger]:
    """Open the ledger that is served, and close it."""
    if served.ledger is None:
        raise HTTPException(404, "no ledger is served; start: fedprice serve --ledger URL")
    from fedprice.market.ledger import Ledger

    opened = Ledger(served.ledger, read_only=True)
    try:
        yield opened
    finally:
        opened.close()


def _runs(served: Served) -> str:
    from fedprice.market.statements import runs_of

    with _ledger(served) as ledger:
        return json_text(rows=runs_of(ledger))


def _run(served: Served, run: str) -> str:
    from fedprice.market.statements import clients_of

    with _ledger(served) as ledger, _found():
        rows, _ = clients_of(ledger, run)
    return json_text(rows=rows)


def _statement(served: Served, client: str) -> str:
    from fedprice.market.statements import statement_of

    with _ledger(served) as ledger, _found():
        rows, runs = statement_of(ledger, client)
    return json_text(rows=rows, runs=runs)


@contextmanager
def _found() -> Iterator[None]:
    """Answer with 404 if no client has this name."""
    try:
        yield
    except InputError as error:
        raise HTTPException(404, line_of(error)) from error


# Verification

VERIFY_OPTIONS: dict[str, dict[str, Any]] = {
    "client": {"type": "string"},
    "key": {"type": "string"},
    "server": {"type": "string"},
    "head": {"type": "array", "items": {"type": "string"}},
    "unsigned": {"type": "boolean"},
}


def _verify_options(request: Request) -> dict[str, Any]:
    """Return the options for verifying that an address gives, checked."""
    _require_known(request, VERIFY_OPTIONS)
    given = request.query_params
    for name in ("client", "key", "server", "unsigned"):
        if len(given.getlist(name)) > 1:
            raise HTTPException(422, f"`{name}` must be given once.")
    if "key" in given and "client" not in given:
        raise HTTPException(422, "`key` is a client's; name the client with `client`.")
    for name in ("key", "server", "head"):
        for text in given.getlist(name):
            if not HEXADECIMAL.fullmatch(text):
                raise HTTPException(
                    422, f"`{name}` must be 64 hexadecimal digits; got {text!r:.80}."
                )
    unsigned = given.get("unsigned", "false")
    if unsigned not in ("true", "false"):
        raise HTTPException(422, f"`unsigned` must be true or false; got {unsigned!r:.60}.")
    names = ("client", "key", "server")
    keys = {name: given.get(name) for name in names}
    return keys | {"heads": given.getlist("head"), "unsigned": unsigned == "true"}


class _Timed(io.BufferedReader):
    """An export that is read for a limited time."""

    def __init__(self, body: bytes) -> None:
        super().__init__(io.BytesIO(body))
        self._until = time.monotonic() + LONGEST_VERIFYING

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line, or refuse it because the time is over."""
        if time.monotonic() > self._until:
            raise InputError(
                f"verifying took longer than {LONGEST_VERIFYING:.0f} seconds; do it with: fedprice "
                "verify EXPORT"
            )
        return super().readline(size)


def _verify(body: bytes, options: dict[str, Any]) -> str:
    from fedprice.market.messages import require_public_key

    for name in ("key", "server"):
        if options[name] is not None:
            require_public_key(f"--{name}", bytes.fromhex(options[name]))
    lines = verify(_Timed(body), "the export", **options)
    return json.dumps({"verified": True, "lines": lines}, ensure_ascii=False) + "\n"


# HTTP


async def _body(request: Request, most: int) -> bytes:
    """Return the body of a request, whose size is limited."""
    body = bytearray()
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > most:
                raise HTTPException(413, f"the request must have at most {most:,} bytes.")
    except ClientDisconnect:
        raise HTTPException(400, "the request was cut short.") from None
    return bytes(body)


def _require_known(request: Request, known: Iterable[str] = ()) -> None:
    """Refuse unknown parameters in the address."""
    for name in request.query_params:
        if name not in known:
            hint = nearest(name, known) if known else "There are none here."
            raise HTTPException(422, f"unknown parameter {name!r:.60} in the address. {hint}")


def _status(error: FedpriceError) -> int:
    """Return the status of an answer: 422 unless a ledger or this machine is at fault."""
    if isinstance(error, MissingExtraError):
        return 501
    from fedprice.market.ledger_errors import LedgerError

    return 409 if isinstance(error, LedgerError) else 422


def _json(status: int, text: str) -> Response:
    headers = {"cache-control": "no-store"}
    return Response(text, status, headers, media_type="application/json")


def _error(status: int, line: str) -> Response:
    return _json(status, json.dumps({"error": line}, ensure_ascii=False) + "\n")


async def _of_http(request: Request, error: Exception) -> Response:
    """Answer with the line of an error that has a status."""
    assert isinstance(error, HTTPException)
    line = str(error.detail)
    if error.status_code == 404 and line == "Not Found":
        line = f"there is nothing at {request.url.path!r:.100}; see openapi.json."
    elif error.status_code == 405:
        line = f"{request.method[:20]} is not allowed at this address; see openapi.json."
    answer = _error(error.status_code, line)
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer
