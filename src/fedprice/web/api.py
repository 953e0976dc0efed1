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

import numpy as np
from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from fedprice.beliefs.beliefs import Beliefs
from fedprice.beliefs.refusals import Outside
from fedprice.bound import Bound
from fedprice.clients import Clients
from fedprice.commands.compare import compare, compared
from fedprice.commands.frontier import frontier
from fedprice.commands.lies import lies
from fedprice.commands.post import EXPONENTIAL, OTHERS, check_post, exponential_beliefs, post
from fedprice.commands.price import LOSSES, check_outside, losses_of, price
from fedprice.commands.respond import respond
from fedprice.commands.verify import verify
from fedprice.commands.warnings import frontier_warnings, scheme_warnings
from fedprice.errors import FedpriceError, InputError, MissingExtraError, nearest
from fedprice.game import Game
from fedprice.pricing import find_schemes
from fedprice.tables import json_text
from fedprice.web.questions import (
    MOST_BELIEFS,
    MOST_CLIENTS,
    MOST_POINTS,
    MOST_TYPES,
    OFFERED,
    ClientsQuestion,
    CompareQuestion,
    FrontierQuestion,
    LiesQuestion,
    PostQuestion,
    PriceQuestion,
    Question,
    RespondQuestion,
    line_of,
    parsed,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from fedprice.market.ledger import Ledger
    from fedprice.web.served import Served

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

    async def answer(work: Callable[[], str]) -> Response:
        """Run work in a thread and return its JSON, or one line about what is wrong."""
        nonlocal under_way
        if under_way >= MOST_AT_ONCE:
            return _error(503, f"{MOST_AT_ONCE} computations are under way; try again later.")
        under_way += 1
        try:
            return _json(200, await to_thread.run_sync(_quietly, work))
        except FedpriceError as error:
            return _error(_status(error), line_of(error))
        except MemoryError:
            return _error(422, "this needs more memory than there is; send fewer clients.")
        finally:
            under_way -= 1

    def ask(path: str, question: type[Question], command: Callable[[Any], str]) -> None:
        """Add the route of a question that is asked as JSON."""

        async def route(request: Request) -> Response:
            _require_known(request)
            body = await _body(request, LARGEST_QUESTION)
            return await answer(lambda: command(parsed(body, question)))

        content = {"application/json": {"schema": question.model_json_schema()}}
        app.add_api_route(
            path, route, methods=["POST"], summary=(question.__doc__ or "").strip(),
            operation_id=path[1:], response_class=Response, responses=RESPONSES,
            openapi_extra={"requestBody": {"required": True, "content": content}},
        )  # fmt: skip

    def read(path: str, work: Callable[..., str], name: str, summary: str) -> None:
        """Add the route of something that is read from the ledger."""

        async def route(request: Request) -> Response:
            _require_known(request)
            return await answer(partial(work, served, **request.path_params))

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

    ask("/price", PriceQuestion, _price)
    ask("/compare", CompareQuestion, _compare)
    ask("/frontier", FrontierQuestion, _frontier)
    ask("/lies", LiesQuestion, _lies)
    ask("/post", PostQuestion, _post)
    ask("/respond", RespondQuestion, _respond)
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
            return await answer(lambda: _verify(body, options))

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


def _quietly(work: Callable[[], str]) -> str:
    """Return what `work` returns; numbers that overflow are refused or null, and are not logged."""
    with np.errstate(all="ignore"):
        return work()


# Pricing


def _clients(asked: ClientsQuestion, most: int, *, types: bool = True) -> Clients:
    table = table_of(asked.clients, "clients", most)
    try:
        clients = Clients.from_frame(table, types=types)
    except InputError as error:
        raise InputError(f"`clients`: {error}") from error
    return clients if asked.max_weight is None else clients.with_max_weight(asked.max_weight)


def _game(asked: ClientsQuestion, most: int, budget: float) -> Game:
    bound = Bound(alpha=asked.alpha, rounds=asked.rounds)
    clients = _clients(asked, most)
    return Game(clients, bound=bound, budget=budget, cost_exponent=asked.exponent)


def _require_offered(scheme: str) -> None:
    """Refuse schemes that would read a file, or take minutes."""
    if scheme not in OFFERED:
        raise InputError(f"there is no scheme {scheme!r:.60} here. {nearest(scheme, OFFERED)}")


def _price(asked: PriceQuestion) -> str:
    _require_offered(asked.scheme)
    outside = None if asked.outside is None else Outside(asked.outside)
    check_outside(outside, asked.scheme, losses=asked.outside_losses is not None)
    most = MOST_CLIENTS["price"]
    game = _game(asked, most, asked.budget)
    losses = None
    if outside is not None and asked.outside_losses is not None:
        table = table_of(asked.outside_losses, "outside_losses", most)
        losses = losses_of(table, LOSSES[outside], game.clients)
    return price(game, scheme=asked.scheme, outside=outside, losses=losses).to_json()


def _compare(asked: CompareQuestion) -> str:
    for scheme in asked.scheme:
        _require_offered(scheme)
    game = _game(asked, MOST_CLIENTS["compare"], asked.budget)
    found = compare(game, find_schemes(asked.scheme))
    return json_text(schemes=compared(found), warnings=scheme_warnings(found))


def _frontier(asked: FrontierQuestion) -> str:
    game = _game(asked, MOST_CLIENTS["frontier"], asked.budgets[0])
    if len(game.clients) * len(asked.budgets) > MOST_POINTS:
        raise InputError(
            f"clients times budgets must be at most {MOST_POINTS:,}; got "
            f"{len(game.clients) * len(asked.budgets):,}. Send fewer budgets."
        )
    traced = frontier(game, asked.budgets)
    return json_text(frontier=traced.to_frame(), warnings=frontier_warnings(traced))


def _lies(asked: LiesQuestion) -> str:
    game = _game(asked, MOST_CLIENTS["lies"], asked.budget)
    found = lies(game, asked.factor, free_response=asked.free_response)
    return json_text(summary=found.summary(), clients=found.to_frame())


def _post(asked: PostQuestion) -> str:
    how: dict[str, Any] = asked.model_dump(
        include={"blocks", "classes", "risk", "sequential", "information"}
    )
    check_post(asked.form, **how, robust=False, others=asked.beliefs == OTHERS)
    believed = _beliefs(asked)
    most = MOST_CLIENTS["others" if believed is None else "post"]  # one problem for each of them
    clients = _clients(asked, most, types=believed is None)
    count = len(clients) if believed is None else len(believed.groups(clients)[0])
    types = 0 if believed is None else max(len(own.weight) for own in believed.types.values())
    if len(clients) * types > MOST_TYPES:
        raise InputError(
            f"clients times types of a client must be at most {MOST_TYPES:,} here; got "
            f"{len(clients) * types:,}. The command line has no such limit."
        )
    if asked.form != "price" and count > MOST_BELIEFS:
        raise InputError(
            f"`form` {asked.form} must have at most {MOST_BELIEFS} different beliefs here; got "
            f"{count:,}. The command line has no such limit."
        )
    return post(
        clients, believed, bound=Bound(alpha=asked.alpha, rounds=asked.rounds),
        budget=asked.budget, exponent=asked.exponent, form=asked.form, **how,
    ).to_json()  # fmt: skip


def _beliefs(asked: PostQuestion) -> Beliefs | None:
    """Return the given beliefs; None stands for what all other clients reported."""
    given = asked.beliefs
    if given == EXPONENTIAL:
        return exponential_beliefs(asked.cost, asked.value, asked.form)
    if asked.cost is not None or asked.value is not None:
        raise InputError("`cost` and `value` require `beliefs` exponential; leave them out.")
    if given == OTHERS:
        return None
    if isinstance(given, str):
        raise InputError(f"`beliefs` must be a table, exponential or others; got {given!r:.60}.")
    table = table_of(given, "beliefs", MOST_CLIENTS["beliefs"])
    try:
        return Beliefs.from_frame(table)
    except InputError as error:
        raise InputError(f"`beliefs`: {error}") from error


def _respond(asked: RespondQuestion) -> str:
    return json_text(response=respond(**asked.model_dump()))


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
