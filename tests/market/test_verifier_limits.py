"""The verifier as a program, and odd calls of a ledger: one line, and nothing is broken."""

import contextlib
import cProfile
import functools
import io
import json
import os
import pstats
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Delivered, Ledger, Refused
from fedprice.market.messages import Signed, SigningKey
from fedprice.market.payouts import Reversal, Rotation, Withdrawal
from fedprice.verify import (
    GENESIS,
    LEVEL_ONE,
    Books,
    VerificationError,
    canonical,
    chained_hash,
    check_entries,
    check_export,
    check_signed,
    entry_digest,
    kept,
    lines,
    read_receipts,
    rounds,
    secret_hash,
)
from fedprice.verify.program import main
from tests.packed import verifier
from trials.honest import Market, hash_of, honest_market, key_for, text_of
from trials.markets import at_price

MIB = 1 << 20


def chained(contents: Iterable[dict[str, Any]], *, valid: Any = check_signed) -> Iterator[str]:
    """Yield the lines of a ledger that nobody signed, with the postings that follow."""
    books = Books(valid=valid)
    for content in contents:
        lines, enter = books.expect(content)
        number, previous = len(books.hashes) + 1, books.hashes[-1] if books.hashes else GENESIS
        posted = [list(line) for line in lines]
        hash_ = chained_hash(previous, number, entry_digest(canonical(content), canonical(posted)))
        enter()
        books.hashes.append(hash_)
        entry = {"number": number, "content": content, "postings": posted, "hash": hash_}
        yield canonical(entry | {"signature": ""}) + "\n"


BEGIN = {"kind": "begin", "of": [], "format": 5, "ledger": "1" * 64, "server": "", "unit": "EUR"}


def deposits() -> Iterator[dict[str, Any]]:
    yield BEGIN
    number = 0
    while True:
        yield {"kind": "deposit", "of": ["treasury", f"gift {number}"], "amount": 1}
        number += 1


def limited(memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


# The peak of a child's resources would count the memory that it had before it became a program.
MEASURED = """
import atexit, os, runpy, sys
place, sys.argv = int(sys.argv[1]), sys.argv[2:]
def note():
    with open("/proc/self/status") as status:
        os.write(place, next(line.split()[1] for line in status if "VmHWM" in line).encode())
atexit.register(note)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def verify(
    path: Path | str,
    *options: str,
    feed: Iterable[bytes] = (),
    memory: int = 4 << 30,
    flags: str = "-I",
) -> tuple[int, list[str], int]:
    """Run the program; return its exit code, what it said, and its peak memory in bytes."""
    reading, writing = os.pipe()
    own = [str(writing), str(verifier()), str(path), *options]
    child = subprocess.Popen(
        [sys.executable, *flags.split(), "-c", MEASURED, *own],
        pass_fds=[writing],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=functools.partial(limited, memory),
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def pour() -> None:
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin:
            for piece in feed:
                child.stdin.write(piece)

    feeder = threading.Thread(target=pour)
    feeder.start()
    said = child.stdout.read().decode()
    child.stdout.close()
    child.wait()
    os.close(writing)
    feeder.join()
    with os.fdopen(reading) as peak:
        return child.returncode, said.splitlines(), int(peak.read()) * 1024


def checked(path: Path | str, *options: str) -> tuple[int, list[str], int]:
    """Run the program in this process, where nothing of it is limited; as `verify` otherwise."""
    said = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main([str(path), *options])
    said.seek(0)
    return code, said.read().splitlines(), 0


@pytest.fixture(scope="module")
def market() -> Market:
    return honest_market(1)


@pytest.fixture(scope="module")
def exported(market: Market, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "market.jsonl"
    path.write_text("".join(canonical(entry) + "\n" for entry in market.entries), "utf-8")
    return path


# The program.


def test_an_honest_export_verifies(exported: Path) -> None:
    code, said, _ = verify(exported)
    assert code == 0
    assert said[-1].startswith("verified: ")


def deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth + b"\n"


ODD_FILES = {
    "empty": b"",
    "an empty line": b"\n",
    "no JSON": b"hello\n",
    "invalid UTF-8": b'{"number":1,"content":"\xff\xfe"}\n',
    "UTF-16": '{"number":1}\n'.encode("utf-16"),
    "a lone surrogate": b'{"content":{"kind":"begin","of":[]},"hash":"\\ud800","number":1,'
    b'"postings":[],"signature":""}\n',
    "a null byte": b"\0\n",
    "deep nesting": deep(200_000),
    "a huge integer": b'{"number":' + b"9" * 100_000 + b"}\n",
    "an integer of 4,000 digits": b'{"content":{"kind":"deposit","of":["treasury",'
    + b"9" * 4000
    + b']},"hash":"","number":1,"postings":[],"signature":""}\n',
    "NaN": b'{"content":NaN,"hash":"","number":1,"postings":[],"signature":""}\n',
    "Infinity": b'{"content":{"kind":"begin","of":[]},"hash":"","number":Infinity,"postings":[],'
    b'"signature":""}\n',
    "duplicate keys": b'{"content":{"kind":"begin","kind":"begin","of":[]},"hash":"","number":1,'
    b'"postings":[],"signature":""}\n',
    "content is no object": b'{"content":[],"hash":"","number":1,"postings":[],"signature":""}\n',
    "a kind that is no text": b'{"content":{"kind":[],"of":[]},"hash":"","number":1,"postings":[],'
    b'"signature":""}\n',
    "a title of many parts": canonical(
        {
            "content": {"kind": "open", "of": ["x" * 1000] * 1000},
            "hash": "",
            "number": 1,
            "postings": [],
            "signature": "",
        }
    ).encode()
    + b"\n",
    "a long name of a run": canonical(
        {
            "content": {"kind": "round", "of": ["x\n" * 100_000, 1]},
            "hash": "",
            "number": 1,
            "postings": [],
            "signature": "",
        }
    ).encode()
    + b"\n",
    "deep nesting in an entry": b'{"content":{"kind":"begin","of":'
    + deep(900)[:-1]
    + b'},"hash":"","number":1,"postings":[],"signature":""}\n',
}


@pytest.mark.parametrize("what", ODD_FILES)
def test_an_odd_file_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(ODD_FILES[what])
    code, said, _ = checked(path)
    assert (code, len(said)) == (4, 1), said
    assert "does not verify" in said[0]
    assert len(said[0]) < 1000
    assert said[0].isprintable()


def test_a_directory_and_a_missing_file_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.jsonl", tmp_path / "li\nne.jsonl"):
        code, said, _ = checked(path)
        assert (code, len(said)) == (2, 1), said


@pytest.mark.parametrize("unit", ["EUR\x1b[2J", "EUR\n", "", "eur", "€", "X" * 13, "\u202eEUR"])
def test_control_characters_in_units_are_refused(unit: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    content = BEGIN | {"unit": unit}
    entry = {"number": 1, "content": content, "postings": [], "signature": ""}
    entry["hash"] = chained_hash(GENESIS, 1, entry_digest(canonical(content), "[]"))
    path.write_text(canonical(entry) + "\n", "utf-8")
    code, said, _ = checked(path)
    assert (code, len(said)) == (4, 1), said
    assert "`unit` must be 1 to 12 capital letters and digits" in said[0]


@pytest.mark.parametrize(
    "name",
    ["\x1b]0;x\x07", "two\nlines", "\u202eabc", " alice", "alice ", "", "e\u0301", "x" * 201, 5],
)
def test_control_characters_in_names_are_refused(name: Any, tmp_path: Path) -> None:
    terms = [[name, [[LEVEL_ONE, 0]], LEVEL_ONE, 1]]
    run = {"kind": "open", "of": ["run"], "rounds": 1, "budget": 0, "terms": terms}
    move = {"kind": "deposit", "of": [f"client:{name}", "x"], "amount": 1}
    named = {"kind": "open", "of": [name], "rounds": 1, "budget": 0, "terms": []}
    referred = {"kind": "deposit", "of": ["treasury", name], "amount": 1}
    for content in (run, named, referred) if name == 5 else (run, move, named, referred):
        first = next(chained([BEGIN]))
        previous = json.loads(first)["hash"]
        entry = {"number": 2, "content": content, "postings": [], "signature": ""}
        entry["hash"] = chained_hash(previous, 2, entry_digest(canonical(content), "[]"))
        path = tmp_path / "odd.jsonl"
        path.write_text(first + canonical(entry) + "\n", "utf-8")
        code, said, _ = checked(path, "--unsigned")
        assert (code, len(said)) == (4, 1), said
        assert said[0].isprintable()
        assert len(said[0]) < 1000


def test_a_line_of_600_megabytes_is_not_read_to_its_end() -> None:
    """It comes through a pipe; what is read of it is bounded, and so is the memory."""
    pieces = (b'{"content":"' if n == 0 else b"x" * MIB for n in range(600))
    code, said, peak = verify("/dev/stdin", feed=pieces, memory=1 << 30)
    assert (code, len(said)) == (4, 1), said
    assert "line 1 is longer than 134,217,728 bytes" in said[0]
    assert peak < 700 * MIB


def test_a_line_of_many_values_is_not_parsed() -> None:
    """Each {} would take 64 bytes."""
    pieces = (b'{"content":[{}' if n == 0 else b",{}" * (MIB // 3) for n in range(60))
    code, said, peak = verify("/dev/stdin", feed=[*pieces, b"]}\n"], memory=1 << 30)
    assert (code, len(said)) == (4, 1), said
    assert "line 1 has more than 4,194,304 values" in said[0]
    assert peak < 700 * MIB


def line_of(parts: str) -> bytes:
    """Return the line of an entry with these parts of a list, chained as it must be."""
    content = f'{{"kind":"begin","of":[{parts}]}}'
    hash_ = chained_hash(GENESIS, 1, entry_digest(content, "[]"))
    rest = f'"hash":"{hash_}","number":1,"postings":[],"signature":""'
    return f'{{"content":{content},{rest}}}\n'.encode()


FEW = lines.MOST_VALUES - 20
HEAVY = {
    "pairs in pairs": lambda: ",".join(["[[0,0],[0,0]]"] * (FEW // 7)),
    "lists": lambda: ",".join(["[0]"] * (FEW // 2)),
    "objects": lambda: ",".join(['{"a":0}'] * (FEW // 2)),
    "an object of many fields": lambda: "{" + ",".join(f'"{n:08}":0' for n in range(FEW)) + "}",
    "long texts": lambda: ",".join(f'"{n:028}"' for n in range(FEW)),
    "a long text": lambda: '"' + "x" * (127 * MIB) + '"',
    "texts of two bytes a character": lambda: ",".join(['"字字"'] * FEW),
    "a long text with a wide character": lambda: '"' + "x" * (31 * MIB) + '😀"',
}


@pytest.mark.parametrize("what", [pytest.param(what, marks=pytest.mark.slow) for what in HEAVY])
def test_no_line_takes_more_than_a_gigabyte(what: str) -> None:
    """One of 117 MB took 4.4 GB, and one character beyond ASCII made another take 1.7 GB."""
    code, said, peak = verify("/dev/stdin", feed=[line_of(HEAVY[what]())], memory=1 << 30)
    assert (code, len(said)) == (4, 1), said
    assert "its fields are not those of its kind" in said[0]
    assert peak < 1 << 30


@pytest.mark.first_case
@pytest.mark.parametrize("text", ["\U0001f600", "\\ud83d\\ude00", "\\u5b57", "\\u0100"])
def test_characters_beyond_ascii_count_four_times(text: str) -> None:
    line = line_of(f'"{"x" * (33 * MIB)}{text}"')
    code, said, _ = verify("/dev/stdin", feed=[line], memory=1 << 30)
    assert (code, len(said)) == (4, 1), said
    assert "33,554,432 characters that are not all ASCII" in said[0]


def test_brackets_count_as_values() -> None:
    line = line_of(",".join(["[[[[]]]]"] * (FEW // 4)))
    code, said, peak = verify("/dev/stdin", feed=[line], memory=1 << 30)
    assert (code, len(said)) == (4, 1), said
    assert "line 1 has more than 4,194,304 values" in said[0]
    assert peak < 300 * MIB


def test_an_endless_pipe_without_lines_is_left() -> None:
    endless = iter(functools.partial(bytes, MIB), b"")  # ends when nobody reads any more
    code, said, peak = verify("/dev/stdin", feed=endless, memory=1 << 30)
    assert (code, len(said)) == (4, 1), said
    assert peak < 700 * MIB


def test_an_endless_pipe_of_good_entries_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_ENTRIES", 100)
    reading, writing = os.pipe()

    def pour() -> None:
        with contextlib.suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
            for line in chained(deposits()):
                pipe.write(line.encode())

    feeder = threading.Thread(target=pour)
    feeder.start()
    with pytest.raises(VerificationError, match="it has more than 100 lines"):
        check_export(f"/dev/fd/{reading}")
    os.close(reading)
    feeder.join()


def unsigned_run(clients: int, rounds: int) -> list[dict[str, Any]]:
    terms = [[f"c{n}", [[LEVEL_ONE, 1000]], LEVEL_ONE // 2, 1] for n in range(clients)]
    opened = {"kind": "open", "of": ["run"], "rounds": rounds, "budget": 500 * clients}
    empty: dict[str, Any] = {"joined": {}, "refused": {}, "model": "0" * 64, "state": False}
    return [
        BEGIN,
        {"kind": "deposit", "of": ["treasury", "x"], "amount": 500 * clients},
        opened | {"terms": terms},
        *(
            {"kind": "round", "of": ["run", r], "missed": sorted(f"c{n}" for n in range(r))} | empty
            for r in range(rounds)
        ),
        {"kind": "settle", "of": ["run"], "rounds": rounds},
    ]


def signed_run(clients: int, rounds: int) -> list[dict[str, Any]]:
    """Return a run whose signatures are all fake, to be checked by who takes any."""
    server, schema = "5" * 64, "0" * 128
    conditions = {
        "kind": "Conditions", "ledger": "1" * 64, "server": server, "run": "run", "follows": "",
        "rounds": rounds, "run_rounds": rounds, "unit": "EUR", "schema": {}, "task": "0" * 64,
        "model": "0" * 64, "max_weight": "9", "longest_gap": 3, "nonce": "0" * 64, "expires": 0,
        "coins": "spaced", "beacon": "",
    }  # fmt: skip
    sheet = hash_of(canonical(conditions))
    names = [f"c{n}" for n in range(clients)]
    mine, other = bytes(32), bytes([1]) * 32
    offers, commitments = [], {}
    for n, name in enumerate(names):
        offer = {
            "kind": "Offer", "conditions": sheet, "client": name, "menu": False,
            "tariff": [[LEVEL_ONE // 2, 1000]], "level_floor": 1, "norm_cap": "", "impact": "0",
            "coin_hash": secret_hash(mine), "position": None, "replaces": "",
        }  # fmt: skip
        own = {
            "kind": "Commitment", "offer": hash_of(canonical(offer)), "key": f"{n + 1:064x}",
            "level": LEVEL_ONE // 2, "secret_hash": secret_hash(other), "samples": 1,
            "grad_norm": "",
        }  # fmt: skip
        offers.append([canonical(offer), schema])
        commitments[name] = [canonical(own), schema]
    entries: list[dict[str, Any]] = [
        BEGIN | {"server": server},
        {"kind": "deposit", "of": ["treasury", "x"], "amount": 1000 * clients},
        {
            "kind": "offer", "of": ["run", 1], "conditions": canonical(conditions),
            "offers": offers, "dropped": {},
        },
        {"kind": "commit", "of": ["run", 1], "commitments": commitments, "dropped": {}},
        {
            "kind": "open", "of": ["run"], "attempt": 1, "budget": 1000 * clients,
            "beacon": "", "secrets": {name: [mine.hex(), other.hex()] for name in names},
        },
    ]  # fmt: skip
    books = Books(valid=lambda *_: True)
    for content in entries:
        books.expect(content)[1]()
        books.hashes.append("")
    for r in range(rounds):
        own_ = books.runs["run"].clients.items()
        missed = sorted(name for name, c in own_ if c.coins and c.coins.heads(r))
        entries.append(
            {
                "kind": "round",
                "of": ["run", r],
                "joined": {},
                "refused": {},
                "missed": missed,
                "model": "0" * 64,
                "state": False,
            }
        )
    return entries


def lines_of(contents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in chained(contents, valid=lambda *_: True)]
    signature = "0" * 128 if contents[0]["server"] else ""
    return [line | {"signature": signature} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("make", [unsigned_run, signed_run])
def test_time_is_linear_in_clients_and_rounds(
    make: Callable[[int, int], list[dict[str, Any]]],
) -> None:
    """Calls are counted, which is exact; and measured, which finds slow single calls."""
    clients, rounds = 500, 30
    sizes = (clients, rounds), (2 * clients, rounds), (clients, 2 * rounds)
    runs, calls = [lines_of(make(*size)) for size in sizes], []
    for entries in runs:
        with cProfile.Profile() as profile:
            check_entries(entries, valid=lambda *_: True)
        calls.append(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]
    seconds = [float("inf")] * len(runs)
    for _ in range(4):  # in turns, so that other load on the machine slows down all of them
        for i, entries in enumerate(runs):
            start = time.thread_time()
            check_entries(entries, valid=lambda *_: True)
            seconds[i] = min(seconds[i], time.thread_time() - start)
    assert calls[1] < 2.1 * calls[0]
    assert calls[2] < 2.1 * calls[0]
    assert max(seconds) < 3.5 * seconds[0]


class Unread(dict[str, Any]):
    """Knows what is in it, and cannot be looked through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("it was looked through")


def test_time_is_linear_in_turns() -> None:
    """A turn that looked through all turns before it took hours where there were many."""
    begin, _, offered, *_ = signed_run(3, 1)
    *first, last = offered["offers"]
    books = Books(valid=lambda *_: True)
    for content in (begin, offered | {"offers": first}):
        books.expect(content)[1]()
        books.hashes.append("")
    made = books.offered["run"]
    made.offers = Unread(made.offers)
    books.expect(offered | {"of": ["run", 1, 2], "offers": [last]})[1]()
    assert (made.turns, len(made.offers)) == (2, 3)
    with pytest.raises(VerificationError, match="has two offers"):
        books.expect(offered | {"of": ["run", 1, 3], "offers": [last]})


@pytest.mark.slow
def test_a_hundred_thousand_clients_are_checked() -> None:
    contents = unsigned_run(100_000, 2)
    books = check_entries(lines_of(contents))
    assert books.coins == 200_000
    assert books.runs["run"].done == 2


def test_too_many_coins_are_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = lines_of(unsigned_run(10, 6))
    check_entries(entries)
    monkeypatch.setattr(rounds, "MOST_COINS", 50)
    with pytest.raises(VerificationError, match=r"entry 9 .*there are more than 50 coins to check"):
        check_entries(entries)


def test_without_the_library_nothing_passes(exported: Path) -> None:
    """Without its installed packages, the interpreter has no library cryptography."""
    code, said, _ = verify(exported, flags="-I -S")
    assert (code, len(said)) == (2, 1), said
    assert "pip install cryptography" in said[0]


# What clients kept.


def kept_line(signed: Signed) -> str:
    own = {"content": signed.content.decode(), "signature": signed.signature.hex()}
    return canonical(own | {"key": signed.key.hex()}) + "\n"


def signed_text(key: SigningKey, /, **message: Any) -> Signed:
    text = text_of(message)
    return Signed(text.encode(), key.sign_text(text), key.public)


def head(key: SigningKey, market: Market, **changes: Any) -> Signed:
    last = market.entries[-1]
    fields = {"ledger": market.books.ledger, "number": last["number"], "hash": last["hash"]}
    return signed_text(key, **{"kind": "Head", **fields, **changes})


def test_kept_messages_pass(market: Market, exported: Path, tmp_path: Path) -> None:
    server = market.servers[market.books.server]
    path = tmp_path / "kept.jsonl"
    elsewhere = head(server, market, ledger="7" * 64, hash="8" * 64)
    other = signed_text(server, kind="Offer", conditions="x")
    path.write_text("".join(map(kept_line, (head(server, market), elsewhere, other))), "utf-8")
    assert checked(exported, "--receipts", str(path))[0] == 0
    assert [message["kind"] for message in read_receipts(path)] == ["Head", "Head"]


def test_a_commitment_to_another_ledger_is_not_looked_for(
    market: Market, exported: Path, tmp_path: Path
) -> None:
    """A client keeps one file for all its servers; conditions and offers tell them apart."""
    server, own = market.servers[market.books.server], key_for("zoe")
    path = tmp_path / "kept.jsonl"
    for ledger, code in (("7" * 64, 0), (market.books.ledger, 4)):
        conditions = signed_text(own, kind="Conditions", ledger=ledger)
        offer = signed_text(server, kind="Offer", conditions=conditions.hash)
        fields = {"offer": offer.hash, "key": "6" * 64, "secret_hash": "6" * 64}
        commitment = signed_text(own, kind="Commitment", level=1, samples=1, grad_norm="", **fields)
        lines = [head(server, market), conditions, offer, commitment]
        path.write_text("".join(map(kept_line, lines)), "utf-8")
        assert checked(exported, "--receipts", str(path))[0] == code


def odd_receipts(market: Market) -> dict[str, tuple[bytes, str]]:
    server, mallory = market.servers[market.books.server], key_for("mallory")
    fields = {"ledger": market.books.ledger, "run": "run", "round": 0, "client": "alice"}
    receipt = {"kind": "Receipt", **fields, "update": "9" * 64, "refused": "", "paid": 1}
    good = kept_line(head(server, market))
    roster = {"ledger": market.books.ledger, "run": "run", "attempt": 2, "commitments": "6" * 64}
    own = {"offer": "6" * 64, "key": "6" * 64, "level": 1, "secret_hash": "6" * 64, "samples": 1}
    none = "is not a signed message"
    spaced = json.loads(good)
    spaced["key"] = spaced["key"][:32] + "\n" + spaced["key"][32:]

    def line(signer: SigningKey, /, **message: Any) -> str:
        return kept_line(signed_text(signer, **message))

    odd = {
        "no JSON": ("hello\n", none),
        "an empty line": ("\n", none),
        "a list": ("[]\n", none),
        "content that is no text": ('{"content":5,"key":"","signature":""}\n', none),
        "deep nesting": ("[" * 100_000 + "\n", none),
        "another signature": (good.replace('"signature":"', '"signature":"00')[:-3] + "\n", none),
        "a key with a line break": (canonical(spaced) + "\n", none),
        "content changed": (good.replace("Head", "Haed"), none),
        "a head without a number": (line(server, kind="Head", ledger="1", hash="2"), none),
        "a number that is none": (kept_line(head(server, market, number="1")), none),
        "a number that is true": (kept_line(head(server, market, number=True)), none),
        "a kind that is no text": (line(server, kind=[]), none),
        "an offer of a list": (line(server, kind="Offer", conditions=[]), none),
        "conditions of no ledger": (line(server, kind="Conditions"), none),
        "a run that is no text": (line(server, **receipt | {"run": ["run"]}), none),
        "a head of 0": (kept_line(head(server, market, number=0)), none),
        "a head below 0": (kept_line(head(server, market, number=-1)), none),
        "a head after the end": (kept_line(head(server, market, number=10**9)), "signed entry 10"),
        "another hash": (kept_line(head(server, market, hash="8" * 64)), "not in the ledger"),
        "a head by somebody else": (kept_line(head(mallory, market)), "not by the server"),
        "a receipt by somebody else": (line(mallory, **receipt), "not by the server"),
        "another receipt": (line(server, **receipt), "the ledger has"),
        "a receipt of no round": (line(server, **receipt | {"round": 99}), "has nothing"),
        "a round that has too many digits": (
            line(server, **receipt | {"round": 10**4300 - 1}),
            none,
        ),
        "control characters": (line(server, **receipt | {"client": "\x1b\n" * 500}), none),
        "another roster": (
            line(server, kind="Roster", **roster, commitment="6" * 64),
            "other commitments",
        ),
        "a commitment left out": (
            line(mallory, kind="Commitment", **own, grad_norm=""),
            "nowhere in the ledger",
        ),
        "another ledger": (kept_line(head(server, market, ledger="7" * 64)), "what was kept is of"),
    }
    return {what: (text.encode(), why) for what, (text, why) in odd.items()} | {
        "invalid UTF-8": (b'{"content":"\xff"}\n', none)
    }


def test_a_receipt_is_parsed_only_if_its_text_is_as_small_as_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are escaped in the line took 1.6 GB."""
    monkeypatch.setattr(lines, "MOST_VALUES", 10)
    parsed: list[Any] = []
    monkeypatch.setattr(kept, "canonical", parsed.append)
    path = tmp_path / "kept.jsonl"
    path.write_bytes(b'{"content":"[0%s]","signature":"","key":""}\n' % (rb"\u002c0" * 20))
    with pytest.raises(VerificationError, match=r"line 1 of .*kept\.jsonl is not a signed message"):
        read_receipts(path)
    assert not parsed


@pytest.mark.slow
def test_odd_receipts_are_refused_in_one_line(
    market: Market, exported: Path, tmp_path: Path
) -> None:
    path = tmp_path / "kept.jsonl"
    for what, (content, why) in odd_receipts(market).items():
        path.write_bytes(content)
        code, said, _ = checked(exported, "--receipts", str(path))
        assert (code, len(said)) == (4, 1), (what, said)
        assert why in said[0], (what, said)
        assert said[0].isprintable(), what
        assert len(said[0]) < 1500, what
    for missing in (tmp_path, tmp_path / "none"):
        code, said, _ = checked(exported, "--receipts", str(missing))
        assert (code, len(said)) == (2, 1), said


# Money without signatures.


def test_unsigned_money_needs_a_flag(tmp_path: Path) -> None:
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 1000, "x")
    path = tmp_path / "market.jsonl"

    def written() -> Path:
        path.write_text("".join(canonical(e.line()) + "\n" for e in ledger.entries()), "utf-8")
        return path

    assert checked(written())[0] == 0
    ledger.deposit("client:alice", 500, "x")
    ledger.withdraw("client:alice", 100, "y", unsigned=True)
    code, said, _ = checked(written())
    assert (code, len(said)) == (4, 1)
    assert "without its owner's signature: a withdrawal of client:alice" in said[0]
    assert checked(path, "--unsigned")[0] == 0
    ledger.open_unsigned("run", 1000, {"alice": at_price(10, LEVEL_ONE)}, rounds=2)
    code, said, _ = checked(written())
    assert code == 4
    assert "and 1 more" in said[0]
    code, said, _ = checked(path, "--unsigned")
    assert code == 0
    assert any("NOBODY SIGNED" in line for line in said)
    with pytest.raises(FedpriceError, match="the payment of 'alice' must lie between 0"):
        ledger.open_unsigned("debts", 1000, {"alice": at_price(-10, LEVEL_ONE)}, rounds=2)
    ledger.verify()


def test_an_unsigned_run_with_negative_prices_never_verifies() -> None:
    first = [json.loads(line) for line in chained([BEGIN])]
    terms = [["alice", [[LEVEL_ONE, -10]], LEVEL_ONE, 1]]
    content = {"kind": "open", "of": ["run"], "rounds": 1, "budget": 0, "terms": terms}
    posted = [["client:alice", -10], ["escrow:run", 10]]
    entry = {"number": 2, "content": content, "postings": posted, "signature": ""}
    entry["hash"] = chained_hash(
        first[0]["hash"], 2, entry_digest(canonical(content), canonical(posted))
    )
    with pytest.raises(VerificationError, match="the payment of 'alice' must lie between 0"):
        check_entries([*first, entry])


def test_money_of_a_client_without_a_key_is_taken_only_on_purpose() -> None:
    ledger = Ledger("sqlite://")
    ledger.deposit("client:alice", 500, "x")
    no_key = "client:alice has no key in this ledger, so that"
    with pytest.raises(FedpriceError, match=no_key):
        ledger.withdraw("client:alice", 500, "taken")
    with pytest.raises(FedpriceError, match=no_key):
        ledger.reverse(2, "a mistake")
    ledger.reverse(2, "a mistake", unsigned=True)
    assert ledger.books.unsigned == ["a reversal for client:alice"]


# Odd calls of a ledger: each is refused, and breaks nothing.

ZERO = "0" * 64


def round_with(**parts: Any) -> Callable[[Ledger], object]:
    def call(ledger: Ledger) -> None:
        given: dict[str, Any] = {"model": ZERO} | parts
        ledger.record_round("run", 0, **given)

    return call


def joined(**changes: Any) -> dict[str, Delivered]:
    return {"alice": Delivered(ZERO, "0.5", "1", "1", "", "")._replace(**changes)}


def signed(message: Any, seed: int = 1) -> Signed:
    return SigningKey(bytes([seed]) * 32).sign(message)


ODD_CALLS: dict[str, Callable[[Ledger], object]] = {
    "a norm that is NaN": round_with(joined=joined(update_norm="nan")),
    "a norm that is infinite": round_with(joined=joined(update_norm="inf")),
    "a norm beyond all numbers": round_with(joined=joined(update_norm="1e999")),
    "a norm that is a number": round_with(joined=joined(update_norm=1e200)),
    "a norm of NumPy": round_with(joined=joined(update_norm=np.float64(1.0))),
    "a negative norm": round_with(joined=joined(update_norm="-1")),
    "a gradient norm that is NaN": round_with(joined=joined(grad_norm="nan")),
    "a weight as other text": round_with(joined=joined(weight="0.50")),
    "a weight that is a number": round_with(joined=joined(weight=0.5)),
    "another weight": round_with(joined=joined(weight="7.0")),
    "an update that is no hash": round_with(joined=joined(update="update")),
    "an update in capitals": round_with(joined=joined(update="A" * 64)),
    "a sketch with a line break": round_with(joined=joined(sketch="1\n")),
    "a signature of another length": round_with(joined=joined(signature="ab" * 63)),
    "an unknown client that joined": round_with(joined={"zoe": joined()["alice"]}),
    "an unknown client that missed": round_with(missed=["zoe"]),
    "an unknown client that was refused": round_with(refused={"zoe": Refused("why")}),
    "a joiner with level 0": round_with(joined={"bob": joined()["alice"]}),
    "a client that joined and missed": round_with(joined=joined(), missed=["alice"]),
    "a client that missed twice": round_with(missed=["alice", "alice"]),
    "a client that is no text": round_with(missed=[5]),
    "clients of two types": round_with(missed=["alice", 5]),
    "a refusal with an update that is no hash": round_with(
        refused={"alice": Refused("why", "update", "1", "ab" * 64)}
    ),
    "a refusal that somebody signed": round_with(
        refused={"alice": Refused("why", ZERO, "1", "ab" * 64)}
    ),
    "a refusal with a norm that is NaN": round_with(refused={"alice": Refused("why", "", "nan")}),
    "a refusal without a reason": round_with(refused={"alice": Refused(None)}),  # type: ignore[arg-type]
    "a model that is no hash": round_with(model="model"),
    "a model that is a number": round_with(model=5),
    "a negative round": lambda ledger: ledger.record_round("run", -1, model=ZERO),
    "a round that is true": lambda ledger: ledger.record_round("run", True, model=ZERO),
    "a later round": lambda ledger: ledger.record_round("run", 1, model=ZERO),
    "a huge round": lambda ledger: ledger.record_round("run", 10**30, model=ZERO),
    "a run that is a number": lambda ledger: ledger.record_round(5, 0, model=ZERO),  # type: ignore[arg-type]
    "a run that is a list": lambda ledger: ledger.record_round(["run"], 0, model=ZERO),  # type: ignore[arg-type]
    "settling a run that is a number": lambda ledger: ledger.settle(5),  # type: ignore[arg-type]
    "opening a run that is a number": lambda ledger: ledger.open_unsigned(5, 0, {}, rounds=1),  # type: ignore[arg-type]
    "a run with control characters": lambda ledger: ledger.open_unsigned("a\nb", 0, {}, rounds=1),
    "a run with a long name": lambda ledger: ledger.open_unsigned("x" * 201, 0, {}, rounds=1),
    "a run with the name of a period": lambda ledger: ledger.open_unsigned("x#2", 0, {}, rounds=1),
    "a run with no rounds": lambda ledger: ledger.open_unsigned("x", 0, {}, rounds=0),
    "a run with endless rounds": lambda ledger: ledger.open_unsigned("x", 0, {}, rounds=1 << 50),
    "a budget that is a fraction": lambda ledger: ledger.open_unsigned("x", 0.5, {}, rounds=1),  # type: ignore[arg-type]
    "a budget that is true": lambda ledger: ledger.open_unsigned("x", True, {}, rounds=1),
    "a huge budget": lambda ledger: ledger.open_unsigned("x", 1 << 70, {}, rounds=1),
    "a budget that is not there": lambda ledger: ledger.open_unsigned("x", 10**9, {}, rounds=1),
    "more promised than the budget": lambda ledger: ledger.open_unsigned(
        "x", 1, {"alice": at_price(100, LEVEL_ONE)}, rounds=1
    ),
    "a client whose name is a number": lambda ledger: ledger.open_unsigned(
        "x",
        0,
        {5: at_price(0, 1)},  # type: ignore[dict-item]
        rounds=1,
    ),
    "a client whose name has control characters": lambda ledger: ledger.open_unsigned(
        "x", 0, {"\x1b": at_price(0, 1)}, rounds=1
    ),
    "a client that pays unsigned": lambda ledger: ledger.open_unsigned(
        "x", 0, {"alice": at_price(-1000, LEVEL_ONE)}, rounds=1
    ),
    "opening without offers": lambda ledger: ledger.open_run(
        "x", 0, attempt=1, secrets={"alice": (ZERO, ZERO)}
    ),
    "opening in a set of offers that is true": lambda ledger: ledger.open_run(
        "x", 0, attempt=True, secrets={}
    ),
    "offers that nobody signed": lambda ledger: ledger.record_offers("x", 1, "{}", [], {}),
    "offers with other conditions": lambda ledger: ledger.record_offers(
        "x", 1, "conditions", [Signed(b"offer", bytes(64), bytes(32))], {}
    ),
    "offers that are no text": lambda ledger: ledger.record_offers(
        "x", 1, "{}", [Signed(b"\xff", bytes(64), bytes(32))], {}
    ),
    "commitments to nothing": lambda ledger: ledger.record_commitments(
        "x", 1, {"alice": Signed(b"{}", bytes(64), bytes(32))}, {}
    ),
    "a deposit of 0": lambda ledger: ledger.deposit("treasury", 0, "y"),
    "a negative deposit": lambda ledger: ledger.deposit("treasury", -5, "y"),
    "a huge deposit": lambda ledger: ledger.deposit("treasury", 1 << 63, "y"),
    "deposits that add up to too much": lambda ledger: ledger.deposit("treasury", 1 << 62, "y"),
    "a deposit that is true": lambda ledger: ledger.deposit("treasury", True, "y"),
    "a deposit of NumPy": lambda ledger: ledger.deposit("treasury", np.int64(5), "y"),  # type: ignore[arg-type]
    "a deposit for the world": lambda ledger: ledger.deposit("world", 5, "y"),
    "a deposit for an escrow": lambda ledger: ledger.deposit("escrow:run", 5, "y"),
    "a deposit for nobody": lambda ledger: ledger.deposit("client:", 5, "y"),
    "a deposit for a number": lambda ledger: ledger.deposit(5, 5, "y"),  # type: ignore[arg-type]
    "a reference with control characters": lambda ledger: ledger.deposit("treasury", 5, "y\x00"),
    "a reference that is a number": lambda ledger: ledger.deposit("treasury", 5, 5),  # type: ignore[arg-type]
    "the same deposit with another amount": lambda ledger: ledger.deposit("treasury", 6, "x"),
    "a withdrawal of more than is there": lambda ledger: ledger.withdraw("treasury", 10**9, "y"),
    "a withdrawal that nobody has to sign": lambda ledger: ledger.withdraw(
        "client:carol", 5, "y", signed(Withdrawal(ledger.identity, "client:carol", 5, "y"))
    ),
    "a reversal of nothing": lambda ledger: ledger.reverse(99, "why"),
    "a reversal of the first entry": lambda ledger: ledger.reverse(1, "why"),
    "a reversal that is true": lambda ledger: ledger.reverse(True, "why"),
    "a reversal with control characters": lambda ledger: ledger.reverse(2, "w\nhy"),
    "a reversal that nobody has to sign": lambda ledger: ledger.reverse(
        2, "why", signed(Reversal(ledger.identity, 2, 5, "why"))
    ),
    "a reversal of what was spent": lambda ledger: ledger.reverse(2, "why"),
    "a new key for nobody": lambda ledger: ledger.rotate(
        "client:zoe", None, signed(Rotation(ledger.identity, "client:zoe", "", "3" * 64))
    ),
    "a new key for an account that is none": lambda ledger: ledger.rotate(
        "esc\nrow", None, signed(Rotation(ledger.identity, "client:zoe", "", "3" * 64))
    ),
    "a new key by another message": lambda ledger: ledger.rotate(
        "treasury", None, signed(Withdrawal(ledger.identity, "client:carol", 5, "y"))
    ),
}


@pytest.fixture(scope="module")
def written() -> Ledger:
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 1_000_000, "x")
    ledger.deposit("client:carol", 10, "x")
    terms = {"alice": at_price(1_000_000, LEVEL_ONE, 1), "bob": at_price(0, 0, 1)}
    ledger.open_unsigned("run", 1_000_000, terms, rounds=1000)
    return ledger


@pytest.mark.parametrize("what", ODD_CALLS)
def test_an_odd_call_is_refused_in_one_line_and_breaks_nothing(what: str, written: Ledger) -> None:
    before = written.head()
    with pytest.raises(FedpriceError) as refused:
        ODD_CALLS[what](written)
    assert str(refused.value).isprintable()
    assert written.head() == before
    written.deposit("client:carol", 1, f"after {what}")
    written.verify()


def test_after_all_odd_calls_the_ledger_goes_on(written: Ledger) -> None:
    written.record_round("run", 0, model=ZERO, joined=joined())
    written.settle("run")
    written.verify()


def test_a_ledger_writes_no_line_that_its_verifier_would_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names full of commas: the ledger verified, and its export did not, for good."""
    ledger = Ledger("sqlite://")
    for limit, most in (("LONGEST_LINE", 1000), ("MOST_VALUES", 200)):
        monkeypatch.setattr(lines, limit, most)
        terms = {"," * 30 + str(n): at_price(0, LEVEL_ONE, 1) for n in range(20)}
        with pytest.raises(FedpriceError, match="is too large to be verified"):
            ledger.open_unsigned("run", 0, terms, rounds=1)
        monkeypatch.undo()
    ledger.verify()
