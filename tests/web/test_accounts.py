"""Accounts of clients: the same from a ledger and from its export, and exports that are refused."""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from fedprice import InputError
from fedprice.errors import FedpriceError, UnverifiedError
from fedprice.market.export import export
from fedprice.market.ledger import Ledger, Refused
from fedprice.market.statements import Undelivered, statement_of
from fedprice.verify import Books
from fedprice.web.accounts import (
    Account,
    account_of,
    checked_export,
    client_names,
)
from fedprice.web.ledger_reading import Reading
from tests.web.markets import exported
from trials.markets import NAMES, agreed, commit, offered, paying, small_market


class Small:
    """A small market: its ledger, and an export of it."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'market.db'}"
        self.ledger = Ledger(self.url, unit="EUR", identity="ab" * 32)
        small_market(self.ledger, delivery=0.7)
        self.export = exported(self.ledger, folder / "market.jsonl")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    found = Small(tmp_path_factory.mktemp("market"))
    yield found
    found.ledger.close()


def check(content: bytes, *heads: str, client: str = "") -> tuple[Books, Account | None]:
    return checked_export(
        content, "x.jsonl", client=client, heads=[*heads], unsigned=False, count=Reading().count
    )


@pytest.mark.parametrize("client", NAMES)
def test_an_account_is_the_statement(small: Small, client: str) -> None:
    read: list[int] = []
    account = account_of(small.url, client, read.append)
    rows, runs = statement_of(small.ledger, client)
    assert account.entries.equals(rows)
    assert account.balance == rows["balance"][-1]
    (part,), (summed,) = account.parts, runs.to_dicts()
    assert (part.paid, part.lost) == (summed["paid"], summed["lost"])
    assert sum(line.amount for line in part.lines) == summed["paid"]
    counted = {why.event: len(why.rounds) for why in part.undelivered}
    assert counted == {name: summed[name] for name in ("missed", "refused") if summed[name]}
    assert read == list(range(1, account.size + 1))
    assert account.head == small.ledger.head().hash


def test_an_export_has_the_same_account(small: Small) -> None:
    books, account = check(small.export, small.ledger.head().hash, client="alice")
    assert account is not None
    of_ledger = account_of(small.url, "alice", Reading().count)
    assert account.entries.equals(of_ledger.entries)
    assert [part.lines for part in account.parts] == [part.lines for part in of_ledger.parts]
    assert len(books.hashes) == account.size == small.export.count(b"\n")
    assert check(small.export)[1] is None


def test_an_export_for_a_client_has_its_account_and_says_that_it_is_a_part(
    small: Small, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    export(small.ledger, path, date=date(2026, 1, 2), client="alice")
    books, account = check(path.read_bytes(), small.ledger.head().hash, client="alice")
    assert account is not None
    assert account.entries.equals(statement_of(small.ledger, "alice")[0])
    assert (books.only, books.hidden) == ("alice", path.read_bytes().count(b'{"client":"alice"'))
    with pytest.raises(InputError, match="shows only what concerns client 'alice'"):
        check(path.read_bytes(), client=NAMES[1])


def test_what_is_refused(small: Small) -> None:
    nobody_missed = re.sub(rb'"missed":\[[^\]]+\]', b'"missed":[]', small.export, count=1)
    for content, heads, said in (
        (nobody_missed, (), "does not verify"),
        (b"".join(small.export.splitlines(True)[:-1]), (small.ledger.head().hash,), "truncated"),
        (b"", (), "there is no entry"),
        (b"\x00\xff" * 50, (), "line 1 is not an entry of an exported ledger"),
        (b"[" * 100_000, (), "line 1 is not an entry"),
    ):
        with pytest.raises(UnverifiedError, match=said) as found:
            check(content, *heads)
        assert "\n" not in str(found.value)
    with pytest.raises(InputError, match="is a database, not an export"):
        check(b"SQLite format 3\x00")
    with pytest.raises(InputError, match=r"has no client 'alicia'\. Did you mean 'alice'"):
        check(small.export, client="alicia")


def test_a_reading_stops_when_nobody_waits_and_after_a_time(small: Small) -> None:
    reading = Reading()
    reading.stop()
    with pytest.raises(FedpriceError, match="nobody waits"):
        account_of(small.url, "alice", reading.count)
    with pytest.raises(FedpriceError, match="the limit of a page"):
        Reading(longest=-1).count(1)


def test_an_account_with_all_kinds_of_entries(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'market.db'}"
    ledger = Ledger(url)
    ledger.deposit("treasury", 10**9, "grant")
    ledger.deposit("client:alice", 5_000_000, "own")
    ledger.deposit("client:alice", 1_000_000, "by mistake")
    ledger.reverse(4, "it was a mistake", unsigned=True)
    name = "client:alice"  # a run may be called so, too
    terms = {"alice": paying(7_000_000), "bob": paying(1_000_000)}
    ledger.open_unsigned(name, 8_000_000, terms, rounds=6)
    refused = {"alice": Refused("its norm is too large"), "bob": Refused("no alice")}
    ledger.record_round(name, 0, model="0" * 64, refused=refused)
    ledger.record_round(name, 1, model="0" * 64, missed=["alice"])
    for round_ in range(2, 5):
        ledger.record_round(name, round_, model="0" * 64)
    ledger.settle(name)
    agreed(ledger, -(10**6), {"alice": paying(-2_000_000), "bob": paying(10**6)}, run="second")
    ledger.settle("second")
    agreed(ledger, 10**6, {"bob": paying(10**6)}, run="third")
    bargain = offered(ledger, {"alice": paying(10**6), "carol": paying(10**6)}, run="fourth")
    commit(bargain, "carol", paying(10**6))
    bargain.close()
    assert account_of(url, "carol", Reading().count).offered == ("fourth",)
    for client in ("alice", "bob"):
        account = account_of(url, client, Reading().count)
        rows, runs = statement_of(ledger, client)
        assert account.entries.equals(rows)
        found = [(part.name, part.own.heads, part.paid, part.lost) for part in account.parts]
        assert found == runs.select("run", "heads", "paid", "lost").rows()
        for part in account.parts:
            assert sum(line.amount for line in part.lines) == part.paid
            assert part.run.settled == (part.name != "third")
    ledger.close()


def test_a_client_that_only_has_an_offer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'market.db'}"
    ledger = Ledger(url)
    ledger.deposit("treasury", 10**9, "grant")
    agreed(ledger, 10**6, {"bob": paying(10**6)}, run="before")
    offered(ledger, {"alice": paying(10**6)}, run="next")
    account = account_of(url, "alice", Reading().count)
    assert (account.offered, account.parts, account.entries.height) == (("next",), (), 0)
    with pytest.raises(InputError, match="has no client 'carol'"):
        account_of(url, "carol", Reading().count)
    ledger.close()


def test_clients_to_choose_from(small: Small) -> None:
    found, unit, total = client_names(small.url, "", 3)
    assert (len(found), unit, total) == (3, "EUR", 4)
    ((name, balance),), _, _ = client_names(small.url, "BOB", 3)
    assert name == "<b>bob</b>"
    assert balance == statement_of(small.ledger, name)[0]["balance"][-1]


def test_many_rounds_are_not_all_named() -> None:
    said = str(Undelivered("missed", "selected, but sent no update", tuple(range(1, 1001))))
    assert said == (
        "Missed in rounds 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 988 more: selected, but sent "
        "no update."
    )
