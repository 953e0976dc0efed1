"""The API answers as the commands do, and refuses the rest in one line."""

from __future__ import annotations

import asyncio
import http.client
import json
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import polars as pl
import pytest
from fastapi import FastAPI

from fedprice.errors import InputError
from fedprice.market.ledger import Ledger
from fedprice.random_clients import population
from fedprice.web import answers
from fedprice.web import api as api_module
from fedprice.web.answers import answer as answer_to
from fedprice.web.api import api
from fedprice.web.guard import Guard
from fedprice.web.questions import MOST_CLIENTS
from fedprice.web.served_files import Served
from tests.web.asgi import Answer, Asking, asked
from tests.web.markets import exported
from trials.markets import NAMES, small_market

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Run
    from trials.serving import Serving

ALPHA = 3.3


def asking(served: Served | None = None) -> Asking:
    app = FastAPI(openapi_url=None)
    app.mount("/api", api(served or Served()))
    return Asking(Guard(app, host="127.0.0.1", port=8080))


def post(path: str, **fields: Any) -> Answer:
    return asking().post(f"/api/{path}", body=json.dumps(fields).encode())


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "clients.csv"
    population(5).write(path)
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return pl.read_csv(path).to_dicts()


@pytest.mark.parametrize(
    ("command", "options", "fields"),
    [
        ("price", "--budget 60 --rounds 500", {"budget": 60, "rounds": 500}),
        ("price", "--budget 60 --max-weight 0.9", {"budget": 60, "max_weight": 0.9}),
        ("price", "--scheme uniform --exponent 3", {"scheme": "uniform", "exponent": 3.0}),
        ("price", "--budget 400 --outside stay", {"budget": 400, "outside": "stay"}),
        ("compare", "--budget 60 --scheme subset --scheme uniform",
         {"budget": 60, "scheme": ["subset", "uniform"]}),
        ("post", "--budget 60 --beliefs exponential --cost 50 --value 4000 --sequential",
         {"budget": 60, "beliefs": "exponential", "cost": 50, "value": 4000, "sequential": True}),
        ("post", "--budget 60 --beliefs others",
         {"budget": 60, "beliefs": "others"}),
        ("post", "--budget 60 --beliefs exponential --cost 50 --value 0 --information --risk 0.1",
         {"budget": 60, "beliefs": "exponential", "cost": 50, "value": 0, "information": True,
          "risk": 0.1}),
    ],
)  # fmt: skip
def test_the_api_answers_byte_for_byte_as_the_command(
    run: Run, table: Path, command: str, options: str, fields: dict[str, Any]
) -> None:
    alpha = ["--alpha", ALPHA, "--format", "json"]
    code, out, err = run(command, table, *options.split(), *alpha)
    assert code == 0, err
    answer = post(command, clients=rows_of(table), alpha=ALPHA, **fields)
    assert answer.status == 200, answer.text
    assert answer.text == out
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("asked", "typed", "fields"),
    [
        ("frontier", "price --budgets 10:50:3", {"budgets": [10, 30.0, 50]}),
        ("lies", "compare --scheme equilibrium --budget 60 --lies 3 --free-response",
         {"budget": 60, "factor": 3, "free_response": True}),
    ],
)  # fmt: skip
def test_the_api_answers_a_part_of_what_the_command_does(
    run: Run, table: Path, asked: str, typed: str, fields: dict[str, Any]
) -> None:
    command, *options = typed.split()
    code, out, err = run(command, table, *options, "--alpha", ALPHA, "--format", "json")
    assert code == 0, err
    answer = post(asked, clients=rows_of(table), alpha=ALPHA, **fields)
    assert answer.status == 200, answer.text
    whole, part = json.loads(out), answer.json()
    assert len(part) == 2
    assert part == {name: whole[name] for name in part}


def test_clients_may_be_given_as_columns(table: Path) -> None:
    rows = rows_of(table)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    by_row = post("price", clients=rows, alpha=ALPHA)
    assert by_row.status == 200
    assert post("price", clients=columns, alpha=ALPHA).text == by_row.text


def test_losses_and_beliefs_are_tables_too(run: Run, table: Path, tmp_path: Path) -> None:
    rows = rows_of(table)
    own = [{"client_id": row["client_id"], "own": 0.5} for row in rows]
    losses = tmp_path / "losses.csv"
    pl.DataFrame(own).write_csv(losses)
    _, out, _ = run(
        "price", table, "--alpha", ALPHA, "--outside", "nothing", "--outside-losses", losses,
        "--format", "json",
    )  # fmt: skip
    asked = {"clients": rows, "alpha": ALPHA, "outside": "nothing"}
    assert post("price", **asked, outside_losses=own).text == out
    types = [{"cost": c, "value": 10, "probability": 0.5} for c in (20, 80)]
    believed = tmp_path / "beliefs.csv"
    pl.DataFrame(types).write_csv(believed)
    _, out, _ = run("post", table, "--alpha", ALPHA, "--beliefs", believed, "--format", "json")
    assert post("post", clients=rows, alpha=ALPHA, beliefs=types).text == out
    refused = post("price", **asked, outside_losses=own[1:])
    assert refused.status == 422
    assert "lacks client '1' of the table of clients" in refused.json()["error"]


def test_a_response_is_that_of_the_command(run: Run) -> None:
    _, out, _ = run(
        "respond", "--price", 10, "--impact", 0.01, "--cost", 40, "--value", 3, "--format", "json"
    )
    assert post("respond", price=10, impact=0.01, cost=40, value=3).text == out


CLIENT = {"client_id": "a", "samples": 1, "grad_norm": 1, "cost": 1, "value": 0}


@pytest.mark.parametrize(
    ("path", "fields", "line"),
    [
        ("price", {"budgt": 1}, "unknown field 'budgt'. Did you mean 'budget'?"),
        ("price", {"calibration": {}}, "unknown field 'calibration'."),
        ("frontier", {"budget": 1, "budgets": [1]}, "unknown field 'budget'."),
        ("frontier", {}, "there is no field `budgets`, which has no default."),
        ("frontier", {"budgets": []}, "`budgets` must"),
        ("frontier", {"budgets": [1, True]}, "`budgets[1]` must be a valid number; got True."),
        ("price", {"budget": "60"}, "`budget` must be a valid number; got '60'."),
        ("price", {"rounds": 1.5}, "`rounds` must be a valid integer; got 1.5."),
        ("price", {"rounds": 10**30}, "`rounds` must be a valid integer"),
        ("price", {"clients": 3}, "`clients` must be a list of objects, or lists by name"),
        ("price", {"clients": []}, "`clients`: there is no column 'client_id'"),
        ("price", {"clients": [3]}, "`clients` must hold objects; got a number in row 1."),
        ("price", {"clients": [CLIENT | {"cost": True}]}, "got a truth value in row 1"),
        ("price", {"clients": [CLIENT | {"cots": 1}]}, "unknown column 'cots'. Did you mean"),
        ("price", {"clients": [CLIENT, CLIENT]}, "`clients`: client ids must be distinct"),
        ("price", {"clients": {"client_id": ["a"], "cost": []}}, "columns of one length"),
        ("price", {"clients": [CLIENT | {"cost": -1}]}, "`cost` must be a finite number above 0"),
        ("price", {"scheme": "own.py:scheme"}, "there is no scheme 'own.py:scheme' here"),
        ("price", {"scheme": "reference-scipy"}, "there is no scheme 'reference-scipy' here"),
        ("compare", {"scheme": ["/etc/passwd:x"]}, "there is no scheme '/etc/passwd:x' here"),
        ("price", {"outside": "nothing"}, "`outside` nothing needs `outside_losses`"),
        ("price", {"outside": "x"}, "`outside` must be 'free', 'stay' or 'nothing'; got 'x'."),
        ("post", {"beliefs": "clients.csv"}, "`beliefs` must be a table, exponential or others"),
        ("post", {"beliefs": "others", "cost": 1}, "`cost` and `value` require `beliefs`"),
        ("post", {"beliefs": "exponential"}, "give `cost` and `value`"),
        ("post", {"beliefs": "others", "risk": 0.1}, "`beliefs` others cannot be combined"),
        ("post", {"beliefs": "others", "form": "blocks", "blocks": 99}, "`blocks` must be"),
    ],
)  # fmt: skip
def test_mistakes_are_one_clear_line(path: str, fields: dict[str, Any], line: str) -> None:
    answer = post(path, **{"clients": [CLIENT], "alpha": ALPHA} | fields)
    assert answer.status == 422
    assert list(answer.json()) == ["error"]
    assert line in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", "must be a JSON object in UTF-8: Expecting value, line 1"),
        (b"[]", "must be a JSON object; got a list"),
        (b"\xff\xfe", "must be a JSON object in UTF-8."),
        (b'{"alpha": NaN}', "numbers must be finite; got NaN."),
        (b'{"alpha": -Infinity}', "numbers must be finite; got -Infinity."),
        (b'{"price": 1e999}', "`price` must be a finite number; got inf."),
        (b'{"price": ' + b"9" * 5000 + b"}", "`price` must be a finite number; got inf."),
        (b'{"alpha": 1, "alpha": 2}', "the field 'alpha' is there twice."),
        (b'{"al\\ud800pha": 1}', "must be a JSON object in UTF-8."),
        (b"[" * 100_000, "must be a JSON object in UTF-8."),
    ],
)
def test_bodies_that_are_no_strict_json_are_refused(body: bytes, line: str) -> None:
    answer = asking().post("/api/respond", body=body)
    assert answer.status == 422
    assert line in answer.json()["error"]


def test_many_fields_one_of_which_is_there_twice_take_little_time() -> None:
    fields = "".join(f'"a{n}": 0, ' for n in range(30_000))
    began = time.process_time()
    answer = asking().post("/api/price", body=f'{{{fields}"a29999": 0}}'.encode())
    assert answer.json() == {"error": "the field 'a29999' is there twice."}
    assert time.process_time() - began < 2


def test_columns_are_bounded_like_fields_of_rows() -> None:
    names = [f"c{n}" for n in range(101)]
    for clients in ([dict.fromkeys(names, 1)], {name: [1] for name in names}):
        answer = post("price", alpha=1, clients=clients)
        assert answer.json() == {"error": "`clients` has more than 100 different fields."}


def test_an_infeasible_budget_is_the_line_of_the_command(run: Run, tmp_path: Path) -> None:
    rows = [CLIENT | {"level_min": 0.9, "cost": 50}]
    table = tmp_path / "clients.csv"
    pl.DataFrame(rows).write_csv(table)
    code, _, err = run("price", table, "--alpha", 1, "--budget", 1)
    answer = post("price", clients=rows, alpha=1, budget=1)
    assert (code, answer.status) == (3, 422)
    assert f"fedprice: {answer.json()['error']}\n" == err


def test_questions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [CLIENT, CLIENT | {"client_id": "b"}]

    def refused(name: str, **fields: Any) -> str:
        with pytest.raises(InputError) as error:
            answer_to(name, json.dumps({"clients": two, "alpha": 1} | fields).encode())
        return str(error.value)

    monkeypatch.setitem(MOST_CLIENTS, "lies", 1)
    assert "`clients` must have at most 1 rows here; got 2." in refused("lies")
    assert answer_to("price", json.dumps({"clients": two, "alpha": 1}).encode())
    monkeypatch.setattr(answers, "MOST_POINTS", 3)
    assert "at most 3; got 4" in refused("frontier", budgets=[1, 2])
    monkeypatch.setattr(answers, "MOST_BELIEFS", 1)
    many = refused("post", beliefs="others", form="tariff")
    assert "at most 1 different beliefs here; got 2." in many
    monkeypatch.setattr(answers, "MOST_TYPES", 3)
    types = {"cost": [1, 2], "value": [0, 0], "probability": [0.5, 0.5]}
    assert "must be at most 3 here; got 4." in refused("post", beliefs=types)
    monkeypatch.setitem(MOST_CLIENTS, "others", 1)
    assert "`clients` must have at most 1 rows here; got 2." in refused("post", beliefs="others")
    monkeypatch.setattr("fedprice.web.questions.MOST_VALUES", 3)
    assert "must have at most 3 values" in refused("price")


def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "LARGEST_QUESTION", 10)
    assert post("price", clients=[CLIENT], alpha=1).status == 413
    monkeypatch.setattr(api_module, "MOST_AT_ONCE", 0)
    busy = post("respond")
    assert busy.status == 503
    assert "try again later" in busy.json()["error"]


def test_an_export_is_verified_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "LONGEST_VERIFYING", -1.0)
    answer = asking().post("/api/verify", body=b"{}\n")
    assert answer.status == 422
    assert "do it with: fedprice verify EXPORT" in answer.json()["error"]


def test_an_export_that_does_not_arrive_keeps_nobody_from_verifying() -> None:
    app = asking().app
    begun = asyncio.Event()
    scope = {
        "type": "http", "method": "POST", "path": "/api/verify", "root_path": "",
        "query_string": b"", "headers": [(b"host", b"127.0.0.1:8080")],
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        begun.set()
        await asyncio.sleep(60)
        raise AssertionError

    async def send(message: Any) -> None:
        """Take what is said when the request is given up."""

    async def second() -> Answer:
        first = asyncio.ensure_future(app(scope, receive, send))
        await begun.wait()
        answer = await asked(app, "POST", "/api/verify", body=b"{}\n")
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        return answer

    assert asyncio.run(second()).status == 422


def test_nothing_else_is_there() -> None:
    ask = asking()
    for path in ("/api/", "/api/docs", "/api/redoc", "/api/price/", "/api/nothing", "/api/runs/"):
        answer = ask.get(path)
        assert answer.status == 404, path
        assert list(answer.json()) == ["error"]
    wrong = ask.get("/api/price")
    assert wrong.status == 405
    assert wrong.headers["allow"] == "POST"
    assert "GET is not allowed at this address" in wrong.json()["error"]
    odd = ask.post("/api/price?budget=3", body=b"{}")
    assert odd.status == 422
    assert "unknown parameter 'budget' in the address" in odd.json()["error"]


def test_openapi_describes_every_address_without_foreign_hosts() -> None:
    text = asking().get("/api/openapi.json").text
    described = json.loads(text)
    assert set(described["paths"]) == {
        "/price", "/compare", "/frontier", "/lies", "/post", "/respond", "/verify", "/runs",
        "/runs/{run}", "/clients/{client}/statement",
    }  # fmt: skip
    assert "http" not in text.replace("HTTP", "")
    body = described["paths"]["/price"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["required"] == ["clients", "alpha"]
    assert body["schema"]["additionalProperties"] is False
    assert described["servers"] == [{"url": "/api"}]


# Ledgers


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, bytes]:
    """A ledger with one run, and its export."""
    folder = tmp_path_factory.mktemp("ledger")
    url = f"sqlite:///{folder}/market.db"
    opened = Ledger(url, unit="EUR")
    small_market(opened)
    text = exported(opened, folder / "market.jsonl")
    opened.close()
    return url, text


def test_a_ledger_is_read_as_the_commands_read_it(run: Run, ledger: tuple[str, bytes]) -> None:
    url, _ = ledger
    ask = asking(Served(ledger=url))
    own = ("--ledger", url, "--format", "json")
    assert ask.get("/api/runs").text == run("ledger", "runs", *own)[1]
    assert ask.get("/api/runs/run").text == run("ledger", "show", "run", *own)[1]
    for name in NAMES:
        quoted = name.replace("%", "%25").replace("/", "%2F").replace("?", "%3F")
        answer = ask.get(f"/api/clients/{quoted}/statement")
        assert answer.status == 200, answer.text
        said = json.loads(run("statement", "--client", name, *own)[1])
        assert answer.json()["rows"] == said["rows"]
        assert [one["run"] for one in answer.json()["runs"]] == ["run"]


def test_reading_a_ledger_leaves_its_file_as_it_is(ledger: tuple[str, bytes]) -> None:
    path = Path(ledger[0].removeprefix("sqlite:///"))
    before = path.read_bytes()
    ask = asking(Served(ledger=ledger[0]))
    for address in ("runs", "runs/run", "runs/none", "clients/alice/statement"):
        ask.get(f"/api/{address}")
    log = Path(f"{path}-wal")  # SQLite's own, which readers share
    assert path.read_bytes() == before
    assert not log.exists() or not log.read_bytes()


def test_what_a_ledger_does_not_have_is_not_found(
    ledger: tuple[str, bytes], tmp_path: Path
) -> None:
    ask = asking(Served(ledger=ledger[0]))
    for path, line in (
        ("runs/rum", "has no run 'rum'. Did you mean 'run'?"),
        ("clients/alicia/statement", "has no client 'alicia'. Did you mean 'alice'?"),
    ):
        answer = ask.get(f"/api/{path}")
        assert answer.status == 404
        assert line in answer.json()["error"]
    assert ask.get("/api/runs?ledger=other.db").status == 422
    without = asking().get("/api/runs")
    assert without.status == 404
    assert "fedprice serve --ledger URL" in without.json()["error"]
    missing = asking(Served(ledger=f"{tmp_path}/none.db")).get("/api/runs")
    assert missing.status == 409
    assert "there is no ledger" in missing.json()["error"]
    assert not (tmp_path / "none.db").exists()


def test_a_damaged_ledger_is_said_to_be(ledger: tuple[str, bytes], tmp_path: Path) -> None:
    copy = tmp_path / "market.db"
    with (
        sqlite3.connect(ledger[0].removeprefix("sqlite:///")) as whole,
        sqlite3.connect(copy) as to,
    ):
        whole.backup(to)
    with sqlite3.connect(copy) as damaged:
        damaged.execute("UPDATE accounts SET balance = balance + 1")
    for connection in (whole, to, damaged):
        connection.close()
    answer = asking(Served(ledger=str(copy))).get("/api/runs")
    assert answer.status == 409
    assert "\n" not in answer.json()["error"]


def test_an_export_is_verified_and_a_changed_one_refused(
    run: Run, ledger: tuple[str, bytes], tmp_path: Path
) -> None:
    _, export = ledger
    path = tmp_path / "market.jsonl"
    path.write_bytes(export)
    said = run("verify", path, "--client", "alice")[1]
    answer = asking().post("/api/verify?client=alice", body=export)
    assert answer.status == 200, answer.text
    assert answer.json()["verified"] is True
    *lines, advice = said.splitlines()  # the command adds what to give it
    assert answer.json()["lines"] == lines
    assert "give --head HASH" in advice
    for body, query, line in (
        (export.replace(b"alice", b"alicf"), "", "the export does not verify: entry"),
        (b"SQLite format 3\0", "", "the export is a database, not an export"),
        (b"", "", "the export"),
        (export, "?client=nobody", "the export has no client 'nobody'"),
        (export, f"?head={'ab' * 32}", "does not verify"),
        (export, f"?server={'ab' * 32}", "the server signs with"),
        (export, "?head=ab", "`head` must be 64 hexadecimal digits; got 'ab'."),
        (export, f"?key={'ab' * 32}", "`key` is a client's; name the client with `client`."),
        (export, "?unsigned=yes", "`unsigned` must be true or false; got 'yes'."),
        (export, "?receipts=/etc/passwd", "unknown parameter 'receipts' in the address."),
        (export, "?client=a&client=b", "`client` must be given once."),
    ):
        refused = asking().post(f"/api/verify{query}", body=body)
        assert refused.status == 422, (query, refused.text)
        assert line in refused.json()["error"]


def test_the_command_serves_the_api_to_this_machine_alone(
    serving: Callable[..., Serving], ledger: tuple[str, bytes]
) -> None:
    url = urlsplit(serving("--ledger", ledger[0]).url)
    question = json.dumps({"clients": [CLIENT], "alpha": 1})

    def status(method: str, path: str, **headers: str) -> int:
        link = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        link.request(method, path, question if method == "POST" else None, names)
        found = link.getresponse().status
        link.close()
        return found

    assert status("POST", "/api/price") == 200
    assert status("GET", "/api/runs") == 200
    assert status("GET", "/api/runs/run") == 200
    assert status("GET", "/api/nothing") == 404
    assert status("GET", "/") == 200
    upgrade = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13",
        "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }  # fmt: skip
    socket = "/_nicegui_ws/socket.io/?EIO=4&transport="
    assert status("GET", f"{socket}websocket", Origin=f"http://{url.netloc}", **upgrade) == 101
    for stranger in ({"Host": f"evil.example:{url.port}"}, {"Origin": "http://evil.example"}):
        assert status("POST", "/api/price", **stranger) == 403
        assert status("GET", "/", **stranger) == 403
        assert status("GET", f"{socket}polling", **stranger) == 403
        assert status("GET", f"{socket}websocket", **stranger, **upgrade) == 403
    assert status("GET", "/api/%2e%2e/%2e%2e/etc/passwd") == 400
