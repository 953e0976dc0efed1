"""Partial exports: one client's entries, and the hashes of all others."""

import copy
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedprice.market.chain import Entry
from fedprice.market.export import shown_to
from fedprice.verify import (
    Books,
    UncheckedError,
    VerificationError,
    canonical,
    check_entries,
    describe,
)
from fedprice.verify.export import HIDDEN
from trials.forger import ODD, Forger, InapplicableError
from trials.honest import KNOWN, Entries, Market, Message, hash_of, honest_market
from trials.lies import OPERATORS

CLIENTS = ["alice", "bob", "carol", "dora", "erin", "frank"]


@pytest.fixture(scope="module")
def market() -> Market:
    """Two periods of a run with everybody, a run without frank, payouts, new keys, a mistake."""
    return honest_market(0)


def shown(entries: Entries, client: str) -> set[int]:
    return shown_to(client, [Entry(**entry) for entry in entries])


def hide(entries: Entries, client: str, numbers: set[int]) -> Entries:
    """Return entries of which some are hashes only."""
    kept = ("number", "hash", "signature")
    return [
        {"client": client, **{name: entry[name] for name in kept}}
        if entry["number"] in numbers
        else copy.deepcopy(entry)
        for entry in entries
    ]


def part_for(entries: Entries, client: str) -> Entries:
    everything = {entry["number"] for entry in entries}
    return hide(entries, client, everything - shown(entries, client))


def check(entries: Entries, **checks: Any) -> Books:
    return check_entries(entries, valid=KNOWN.valid, partial=True, **checks)


def refused(entries: Entries, **checks: Any) -> str:
    """Return why entries do not verify; empty if they do."""
    try:
        check(entries, **checks)
    except VerificationError as error:
        return str(error)
    return ""


def kept_by(market: Market, client: str) -> list[Message]:
    """Return what a client kept, without heads: these fix hashes, not what is shown."""
    keys = market.clients.get(client, [])
    mine = [m for m in market.kept["commitment"] if m["signed by"] in keys]
    hashes = {hash_of(own["text"]) for own in mine}
    rosters = [m for m in market.kept["roster"] if m["commitment"] in hashes]
    return mine + rosters + [m for m in market.kept["receipt"] if m["client"] == client]


@pytest.mark.parametrize("client", CLIENTS)
def test_an_honest_part_says_the_same_of_its_client(client: str, market: Market) -> None:
    whole, entries = market.books, part_for(market.entries, client)
    books = check(entries, receipts=kept_by(market, client))
    assert (books.only, books.hidden) == (client, sum(e.keys() == HIDDEN for e in entries))
    assert books.hashes == whole.hashes
    account = f"client:{client}"
    assert books.balances.get(account, 0) == whole.balances.get(account, 0)
    assert books.keys.get(account) == whole.keys.get(account)
    for name, run in whole.runs.items():
        if client in run.clients:
            found = {n: replace(own, coins=None) for n, own in books.runs[name].clients.items()}
            assert found == {n: replace(own, coins=None) for n, own in run.clients.items()}
            assert replace(books.runs[name], clients={}) == replace(run, clients={})
    assert books.unsigned == []


def test_a_part_hides_what_concerns_others_alone(market: Market) -> None:
    text = canonical(part_for(market.entries, "frank"))
    assert '"of":["run",' in text
    for other in ('"of":["5"', "bank 1", "bank 2", "to my bank", "rent", 'Rotation\\",\\"client'):
        assert other not in text, other
    assert "to my bank" in canonical(part_for(market.entries, "bob"))


def test_a_part_cannot_pass_for_the_whole(market: Market) -> None:
    entries = part_for(market.entries, "frank")
    with pytest.raises(UncheckedError, match="it is a partial export, and a whole one is needed"):
        check_entries(entries, valid=KNOWN.valid)
    *_, last, more = describe(check(entries), "frank")
    assert re.match(r"verified IN PART: .* entries \([0-9]+ hidden\), ", last)
    assert "a partial export, for client 'frank'. It does not show what hidden entries" in more
    assert not any("IN PART" in line for line in describe(market.books))


def swap_two_hashes(entries: Entries) -> None:
    first, second = [e for e in entries if e.keys() == HIDDEN][:2]
    first["hash"], second["hash"] = second["hash"], first["hash"]


def swap_two_hidden_entries(entries: Entries) -> None:
    first, second = [n for n, e in enumerate(entries) if e.keys() == HIDDEN][:2]
    entries[first], entries[second] = entries[second], entries[first]


def invent_a_hash(entries: Entries) -> None:
    next(e for e in entries if e.keys() == HIDDEN)["hash"] = "ab" * 32


def invent_a_signature(entries: Entries) -> None:
    next(e for e in entries if e.keys() == HIDDEN)["signature"] = "ab" * 64


def drop_a_hash(entries: Entries) -> None:
    entries.remove(next(e for e in entries if e.keys() == HIDDEN))


def drop_all_hashes(entries: Entries) -> None:
    entries[:] = [e for e in entries if e.keys() != HIDDEN]


def drop_a_hash_and_count_anew(entries: Entries) -> None:
    drop_a_hash(entries)
    for number, entry in enumerate(entries, start=1):
        entry["number"] = number


def add_a_hash(entries: Entries) -> None:
    entries.append(copy.deepcopy(next(e for e in entries if e.keys() == HIDDEN)))
    entries[-1]["number"] = len(entries)


def hide_the_first_entry(entries: Entries) -> None:
    entries[:] = hide(entries, "frank", {1})


def hide_the_servers_new_key(entries: Entries) -> None:
    of_server = {
        e["number"]
        for e in entries
        if e.get("content", {}).get("kind") == "rotate" and e["content"]["of"][0] == "treasury"
    }
    entries[:] = hide(entries, "frank", of_server)


def hide_for_two_clients(entries: Entries) -> None:
    [e for e in entries if e.keys() == HIDDEN][-1]["client"] = "zoe"


def hide_for_nobody(entries: Entries) -> None:
    for entry in entries:
        if entry.keys() == HIDDEN:
            entry["client"] = ""


@pytest.mark.parametrize(
    "attack",
    [
        swap_two_hashes, swap_two_hidden_entries, invent_a_hash, invent_a_signature, drop_a_hash,
        drop_all_hashes, drop_a_hash_and_count_anew, add_a_hash, hide_the_first_entry,
        hide_the_servers_new_key, hide_for_two_clients, hide_for_nobody,
    ],
)  # fmt: skip
def test_whoever_passes_a_part_on_cannot(attack: Callable[[Entries], None], market: Market) -> None:
    entries = part_for(market.entries, "frank")
    assert not refused(entries)
    attack(entries)
    assert refused(entries)


def test_whoever_passes_a_part_on_cannot_change_what_is_shown(market: Market) -> None:
    """Every number and every text of every entry that is shown, one at a time."""
    entries = part_for(market.entries, "frank")
    made = 0
    for place, entry in enumerate(entries):
        if entry.keys() == HIDDEN:
            continue
        for part in ("content", "postings"):
            text = canonical(entry[part])
            for found in [*re.finditer(r"[0-9]+", text)][::7]:
                digit = str(9 - int(found[0][-1]))
                new = text[: found.end() - 1] + digit + text[found.end() :]
                forged = [*entries]
                forged[place] = entry | {part: json.loads(new)} if _is_json(new) else entry
                if forged[place][part] != entry[part]:
                    made += 1
                    assert refused(forged), (place, part, found)
    assert made > 100


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_hiding_an_own_entry_is_found_where_another_depends_on_it(market: Market) -> None:
    """Only what nothing after it needs can be hidden.

    That is the end of a run, commitments to offers that were then replaced, and money in and out.
    """
    found, kinds = 0, set()
    for client in CLIENTS:
        own = part_for(market.entries, client)
        for number in sorted(shown(market.entries, client)):
            content = market.entries[number - 1]["content"]
            if refused(hide(own, client, {number})):
                found += 1
                continue
            kinds.add(content["kind"])
            if content["kind"] in ("round", "settle"):
                later = [
                    e["number"]
                    for e in market.entries[number:]
                    if e["content"]["of"][:1] == content["of"][:1]
                ]
                assert not later, (client, content["kind"], content["of"])
            if content["kind"] == "commit":
                run, attempt = content["of"]
                replaced = [e for e in market.entries if e["content"]["of"] == [run, attempt + 1]]
                assert replaced, (client, content["of"])
                forged = hide(own, client, {number})
                if client in content["commitments"]:
                    assert refused(forged, receipts=kept_by(market, client)), client
    assert found > 100
    assert kinds <= {"commit", "deposit", "withdraw", "reverse", "round", "settle"}


def test_a_hidden_deposit_that_pays_in_for_a_run_is_found(market: Market) -> None:
    (number,) = (e["number"] for e in market.entries if e["content"]["of"][-1:] == ["bank 2"])
    own = part_for(market.entries, "dora")
    assert "overdraws client:dora" in refused(hide(own, "dora", {number}))


def test_kept_messages_uncover_a_hidden_run_and_a_hidden_end(market: Market) -> None:
    for client in ("bob", "carol"):
        own, kept = part_for(market.entries, client), kept_by(market, client)
        assert not refused(own, receipts=kept)
        of_run = [e["number"] for e in market.entries if e["content"]["of"][:1] == ["5"]]
        assert not refused(hide(own, client, {*of_run}))
        assert "is nowhere in the ledger" in refused(hide(own, client, {*of_run}), receipts=kept)
        sent = [m["round"] for m in kept if (m["kind"], m.get("run")) == ("Receipt", "5")]
        rounds = [n for n in of_run if market.entries[n - 1]["content"]["kind"] == "round"]
        end = {n for n in of_run if n >= rounds[sent[-1]]}
        assert not refused(hide(own, client, end))
        assert "has a receipt for round" in refused(hide(own, client, end), receipts=kept)


UNSEEN_IN_PART = re.compile(r"it overdraws (treasury|client:)|has another key in this ledger")


@pytest.mark.slow
def test_a_lying_server_hides_nothing_in_a_part_but_what_is_documented(market: Market) -> None:
    """What the whole export would not pass, a part passes only if the lie is hidden in it.

    Or if it is about money or keys of others, which a part does not show.
    """
    rng = random.Random(7)
    passed = caught = 0
    for name in [*OPERATORS] * 2:
        forger = Forger(market, rng)
        try:
            OPERATORS[name](forger)
        except InapplicableError:
            continue
        except ODD:
            pass
        forger.repair(thorough=False)
        entries = [*forger.written()]
        try:
            check_entries(entries, valid=KNOWN.valid)
            continue  # docs/verification.md lists what a whole export does not show
        except VerificationError as error:
            why = str(error)
        for client in ("alice", "dora", "frank"):
            try:
                seen = shown(entries, client)
            except ODD:
                continue  # no ledger writes such entries
            if refused(hide(entries, client, {e["number"] for e in entries} - seen)):
                caught += 1
                continue
            passed += 1
            where = re.match(r"entry ([0-9]+) ", why)
            assert where, why
            assert int(where[1]) not in seen or UNSEEN_IN_PART.search(why), (name, client, why)
            assert f"client:{client}:" not in why
            assert f"{client!r} has another key" not in why
    assert caught > 100
    assert passed > 0  # otherwise nothing was hidden
