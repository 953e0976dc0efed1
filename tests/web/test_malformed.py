"""Malformed messages and uploads: one line each in the server's log, and pages go on."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import websockets

from fedprice.web.logs import OneLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from trials.serving import Serving


def test_a_record_is_one_printable_line_that_says_where() -> None:
    try:
        json.loads("[\n")
    except ValueError as error:
        raised = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord(
        {"levelname": "ERROR", "msg": "a\x1b[31m\nb\u202e", "exc_info": raised}
    )
    line = OneLine().format(record)
    assert line.isprintable()
    assert re.fullmatch(
        r"ERROR: a \[31m b : JSONDecodeError: Expecting value: .*, json/decoder.py:\d+\)", line
    )


def event(name: str, *values: object) -> str:
    return "42" + json.dumps([name, *values])


def messages(client: str) -> list[str]:
    named = {"client_id": client}
    hands = {"tab_id": "t", "document_id": "d", "old_tab_id": None, "next_message_id": 0}
    return [
        event("handshake", named | hands),
        *("9", "4", "42", "42[", "42{}", "42null", "42[]", "42[[]]", "42[{}]", "44x", "49", "b!!!"),
        *("451-[]", "45999999999-[]", "43" + "9" * 400 + "[]", "42[NaN]", "42" + "[" * 10**5),
        *(event(name) for name in ("event", "handshake", "ack", "log", "javascript_response")),
        *(event(name, {}) for name in ("event", "handshake", "ack", "log", "javascript_response")),
        *(event(name, named) for name in ("event", "handshake", "ack", "log")),
        event("event", 1, 2, 3),
        event("event", named | {"id": 0, "listener_id": "x", "args": ["{"]}),
        event(
            "log", named | {"level": "error", "message": "Traceback\x1b[2J\nERROR: a forged line"}
        ),
    ]


async def send(url: str, client: str) -> str:
    """Send all messages on one connection, then one that ends it; return the last answer."""
    place = f"ws{url.removeprefix('http')}_nicegui_ws/socket.io/?EIO=4&transport=websocket"
    answer = ""
    async with websockets.connect(place) as connection:
        await connection.recv()
        await connection.send("40")
        for message in messages(client):
            await connection.send(message)
        await connection.send("42" + "7" + json.dumps(["handshake", {"client_id": "nobody"}]))
        while not answer.startswith("437"):
            answer = str(await asyncio.wait_for(connection.recv(), 60))
        await connection.send("x")
    return answer


PART = b'--x\r\nContent-Disposition: form-data; name="f"%s\r\n\r\na\r\n--x--\r\n'
FILE = b'; filename="a.csv"'
FORM = "multipart/form-data; boundary=x"
UPLOADS = {
    "a field without a file name": (PART % b"", FORM),
    "a form of text": (b"a=1", "application/x-www-form-urlencoded"),
    "noise": (b"\xff" * 100, FORM),
    "no boundary": (PART % FILE, "multipart/form-data"),
    "a long boundary": (PART % FILE, f"multipart/form-data; boundary={'x' * 5000}"),
    "a file name of 1,000,000 characters": (PART % (b'; filename="%s"' % (b"a" * 10**6)), FORM),
    "100,000 headers of a part": (PART % (FILE + b"\r\na: b" * 10**5), FORM),
}


@pytest.mark.slow
def test_malformed_messages_and_uploads_leave_one_line_each(
    serving: Callable[..., Serving],
) -> None:
    server = serving()
    place = re.search(r"/_nicegui/client/([\w-]+)/upload/\d+", urlopen(server.url).read().decode())
    assert place is not None
    asyncio.run(send(server.url, place[1]))
    for what, (body, kind) in UPLOADS.items():
        upload = Request(server.url.rstrip("/") + place[0], body, {"content-type": kind})
        with pytest.raises(HTTPError) as refused:
            urlopen(upload, timeout=60)
        assert refused.value.code == 400, what
        assert list(json.loads(refused.value.read())) == ["detail"]
    assert urlopen(server.url, timeout=60).status == 200
    server.stop()
    said, expected = [*server.said], len(messages(place[1])) + 1 + len(UPLOADS)
    server.said.clear()
    assert 20 < len(said) <= expected
    for line in said:
        assert re.match("(ERROR|WARNING): ", line)
        assert line.removesuffix("\n").isprintable()
