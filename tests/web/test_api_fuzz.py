"""Twenty thousand requests that mean no good: no 500, no traceback, no hang.

Each seed is a test of its own, so that a failure can be repeated.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI

from fedprice.market.ledger import Ledger
from fedprice.random_clients import population
from fedprice.web.api import api
from fedprice.web.guard import Guard
from fedprice.web.served_files import Served
from tests.web.asgi import HOST, Answer, asked
from tests.web.markets import exported
from trials.markets import small_market

if TYPE_CHECKING:
    from starlette.types import ASGIApp

SEEDS = range(20)
REQUESTS = 1000  # of each seed
SLOWEST = 20.0  # seconds for one answer, on a busy machine
ODD_NUMBERS = [
    0, -1, 1, 1.5, -0.0, 1e-300, 1e300, -1e300, 5e-324, 1e308, 2**31, 2**53 + 1, 2**63, 10**18,
    -(10**30), 10**400,
]  # fmt: skip
ODD_TEXTS = [
    "", " ", "a", "=1+1", "<b>x</b>", "NaN", "inf", "1e5", "\0", "\u202e", "\ud800", "é" * 300,
    "../../etc/passwd", "/etc/passwd", "x.py:f", "equilibrium", "others", "exponential", "alice",
]  # fmt: skip
ODD_PATHS = [
    "/api/../etc/passwd", "/api/%2e%2e/%2e%2e/etc/passwd", "//api//price", "/api/price/..",
    "/api/runs/%00", "/api/runs/..%2f..%2fx", "/api/clients//statement",
    "/api/clients/%ff/statement", "/api/clients/%2e%2e/statement", "/api//etc/passwd",
    "/etc/passwd", "/api/runs//etc/passwd",
    "/api/runs/C:%5Cx", "/api\\price", "/api/runs/a%0d%0aSet-Cookie:x", "/api/runs/" + "a" * 5000,
    "/api/runs?ledger=/etc/passwd", "/api/openapi.json?x", "/API/price", "/api/./runs", "/",
    "/api/verify?client=%ff&unsigned=1", "/api/clients/a/b/c/statement",
    "/api/runs/run%23" + "9" * 400,
]  # fmt: skip
KNOWN = {200, 400, 403, 404, 405, 409, 413, 422}


def valid_bodies() -> dict[str, list[dict[str, Any]]]:
    """One or two questions per address that are answered, with few clients."""
    clients = population(2).to_frame().to_dicts()
    game = {"clients": clients, "alpha": 3.3, "budget": 60, "rounds": 100, "exponent": 2}
    types = {"cost": [20, 80], "value": [0, 10], "probability": [0.5, 0.5]}
    columns = {name: [row[name] for row in clients] for name in clients[0]}
    losses = [{"client_id": one["client_id"], "own": 0.5} for one in clients]
    nothing = {"outside": "nothing", "outside_losses": losses}
    return {
        "price": [game, game | {"clients": columns, "max_weight": 0.9}, game | nothing],
        "compare": [game | {"scheme": ["uniform", "subset"]}],
        "frontier": [{"clients": columns, "alpha": 3.3, "budgets": [1, 10, 100]}],
        "lies": [game | {"factor": 2.0, "free_response": True}],
        "post": [
            game | {"beliefs": types, "classes": 1},
            game | {"beliefs": "others"},
        ],
        "respond": [{"price": 10, "impact": 0.01, "cost": 40, "value": 3, "level_max": 0.9}],
    }


def odd_value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return rng.choice(ODD_NUMBERS)
    if kind == 2:
        return rng.choice(ODD_TEXTS)
    if kind == 3:
        return rng.choice([None, True, False])
    if kind == 4:
        return rng.uniform(-1e3, 1e3)
    if kind == 5:
        return [odd_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {
        rng.choice([*ODD_TEXTS, "client_id", "cost"]): odd_value(rng, depth + 1)
        for _ in range(rng.randrange(4))
    }


def mutated(value: Any, rng: random.Random) -> Any:
    """The value with one thing changed, somewhere inside it."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        changed, key = dict(value), rng.choice(list(value))
        how = rng.randrange(6)
        if how == 0:
            del changed[key]
        elif how == 1:
            changed[rng.choice([key + "s", key[:-1], *ODD_TEXTS])] = odd_value(rng)
        else:
            changed[key] = mutated(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        copied, at = list(value), rng.randrange(len(value))
        how = rng.randrange(6)
        if how == 0:
            del copied[at]
        elif how == 1:
            copied.insert(at, copied[at])
        else:
            copied[at] = mutated(value[at], rng)
        return copied
    if isinstance(value, int | float) and abs(value) < 1e300 and rng.random() < 0.5:
        return value * rng.choice([-1, 0, 2, 0.5, 1e-9, 1e9, 1e150])
    return odd_value(rng)


def broken(body: bytes, rng: random.Random) -> bytes:
    """The bytes with something torn out, doubled, or that is no text."""
    at = rng.randrange(len(body) + 1)
    how = rng.randrange(7)
    if how == 0:
        return body[:at]
    if how == 1:
        return body[:at] + rng.randbytes(rng.randrange(1, 5)) + body[at:]
    if how == 2:
        return body.decode().encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "cp500"]))
    if how == 3:
        return rng.choice([b"[", b'{"a":', b'{"clients":[{"cost":']) * rng.choice([10, 10_000])
    if how == 4:
        return body.replace(
            b"3.3", rng.choice([b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b"01"])
        )
    if how == 5:
        return rng.randbytes(rng.randrange(100))
    return body + body


class Sender:
    """Sends requests of one seed and looks at every answer."""

    def __init__(self, app: ASGIApp, export: bytes, seed: int) -> None:
        self.app, self.export, self.rng = app, export, random.Random(seed)
        self.bodies = valid_bodies()

    async def one(self) -> tuple[str, str, Answer]:
        rng = self.rng
        headers = [("host", HOST)]
        kind = rng.choices(["json", "verify", "path", "stranger"], [78, 4, 10, 8])[0]
        method, body = "POST", b""
        if kind in ("json", "stranger"):
            # Posting takes the longest by far.
            name = rng.choices(list(self.bodies), [5, 3, 3, 3, 1, 5])[0]
            target, question = f"/api/{name}", rng.choice(self.bodies[name])
            for _ in range(rng.randrange(4)):
                question = mutated(question, rng)
            body = json.dumps(question).encode()
            if rng.random() < 0.15:
                body = broken(body, rng)
        elif kind == "verify":
            # A tenth of the export: what is checked grows with it.
            lines = self.export.splitlines(keepends=True)[: rng.randrange(1, 6)]
            target = "/api/verify" + rng.choice(["", "?unsigned=true", "?client=alice", "?head=x"])
            body = broken(b"".join(lines), rng) if rng.random() < 0.8 else b"".join(lines)
        else:
            method = rng.choice(["GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "ODD"])
            target = rng.choice(ODD_PATHS)
        if kind == "stranger":
            odd = rng.choice(
                ["evil.example", "127.0.0.1", "null", "", "http://127.0.0.1:8080@evil"]
            )
            headers = rng.choice(
                [
                    [("host", odd)],
                    [("host", HOST), ("origin", odd)],
                    [("host", HOST), ("sec-fetch-site", "cross-site")],
                    [("host", HOST), ("host", odd)],
                ]
            )
        pieces: bytes | list[bytes] = body
        if rng.random() < 0.1:
            pieces = [body[i : i + 100] for i in range(0, len(body), 100)] or [b""]
        sent = asked(self.app, method, target, headers=headers, body=pieces)
        return kind, target, await asyncio.wait_for(sent, SLOWEST)

    async def all(self, count: int) -> list[int]:
        """Return how often each status was the answer."""
        seen = []
        for number in range(count):
            kind, target, answer = await self.one()
            assert answer.status in KNOWN, (number, target, answer)
            assert b"Traceback" not in answer.body
            if kind == "stranger":
                assert answer.status in (400, 403), (number, answer)
            if answer.status != 200 and target.startswith("/api/"):
                assert list(answer.json()) == ["error"]
                assert "\n" not in answer.json()["error"]
            seen.append(answer.status)
        return seen


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[ASGIApp, bytes]:
    folder = tmp_path_factory.mktemp("fuzz")
    opened = Ledger(f"sqlite:///{folder}/market.db", unit="EUR")
    small_market(opened)
    export = exported(opened, folder / "market.jsonl")
    opened.close()
    app = FastAPI(openapi_url=None)
    app.mount("/api", api(Served(ledger=f"sqlite:///{folder}/market.db")))
    return Guard(app, host="127.0.0.1", port=8080), export


@pytest.mark.first_case
@pytest.mark.parametrize("seed", SEEDS)
def test_no_request_breaks_the_api(
    served: tuple[ASGIApp, bytes], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    app, export = served
    with caplog.at_level(logging.WARNING):
        seen = asyncio.run(Sender(app, export, seed).all(REQUESTS))
    assert not caplog.records
    assert seen.count(200) > REQUESTS // 20, "some of them are good"
    assert seen.count(422) > REQUESTS // 10
