"""The verifier: it stands alone, and finds what a cheating server or a stranger changed."""

import contextlib
import copy
import datetime
import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedprice.verify
from fedprice.market.export import export
from fedprice.market.ledger import Delivered, Ledger
from fedprice.market.money import LEVEL_ONE
from fedprice.market.simulation import simulation_key
from fedprice.verify import (
    MOST_BLOCKS,
    UncheckedError,
    VerificationError,
    check_entries,
    check_export,
    describe,
)
from tests.packed import pack, verifier
from trials.markets import ROUNDS, at_price, small_market
from trials.resigned import Entries, canonical, resigned

TODAY = datetime.date(2026, 1, 2)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "market.jsonl"
    ledger = Ledger("sqlite://")
    small_market(ledger, delivery=0.7)
    export(ledger, path, date=TODAY)
    ledger.close()
    return path


@pytest.fixture
def entries(exported: Path) -> Entries:
    return [json.loads(line) for line in exported.read_text("utf-8").splitlines()]


def at(entries: Entries, kind: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["content"]["kind"] == kind)


def test_an_honest_ledger_verifies(exported: Path) -> None:
    books = check_export(exported)
    run = books.runs["run"]
    joined = sum(own.joined for own in run.clients.values())
    # A key, four offers and commitments, updates, and every entry but the first.
    assert books.signatures == 1 + 8 + joined + len(books.hashes) - 1
    lines = list(describe(books, "alice"))
    assert "'alice': 12 of 12 rounds" in lines[0]
    assert lines[1].startswith("  agreed: level 0.88")
    assert run.clients["alice"].key in lines[3]
    assert books.server in lines[-1]
    assert books.hashes[-1] in lines[-1]


def test_the_packed_verifier_stands_alone(exported: Path, tmp_path: Path) -> None:
    """One file, run by an interpreter that sees nothing else of the package."""
    alone = tmp_path / "verify.pyz"
    pack(alone)
    assert alone.read_bytes() == verifier().read_bytes()  # whoever packs it gets the same
    command = [sys.executable, "-I", str(alone), str(exported)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "verified: " in done.stdout
    probe = (
        "import runpy, sys\n"
        f"sys.argv = ['verify', {str(exported)!r}]\n"
        f"try: runpy.run_path({str(alone)!r}, run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'fedprice']\n"
        "assert 'numpy' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", probe], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    broken = tmp_path / "broken.jsonl"
    broken.write_text(exported.read_text("utf-8").replace("alice", "alicf", 1), "utf-8")
    for path, code in ((broken, 4), (alone, 4), (tmp_path / "none.jsonl", 2)):
        command[-1] = str(path)
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (code, "")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("end", [b"\r\n", b"\r\r\n", b"\n\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_changed_line_ends_are_no_forgery(
    end: bytes, mark: bytes, last: bool, exported: Path, tmp_path: Path
) -> None:
    """What mail programs, editors and version control do to a text file."""
    text = exported.read_bytes()
    path = tmp_path / "changed.jsonl"
    changed = text.replace(b"\n", end) if last else text.replace(b"\n", end).removesuffix(end)
    path.write_bytes(mark + changed)
    assert check_export(path).hashes == check_export(exported).hashes
    path.write_bytes(mark + changed.replace(b"alice", b"alicf", 1))
    with pytest.raises(VerificationError):
        check_export(path)


def test_carriage_returns_alone_are_named_and_no_forgery(exported: Path, tmp_path: Path) -> None:
    path = tmp_path / "changed.jsonl"
    path.write_bytes(exported.read_bytes().replace(b"\n", b"\r"))
    with pytest.raises(UncheckedError, match="lines of the file end with carriage returns, not"):
        check_export(path)


def change_offer(entries: Entries, **change: Any) -> None:
    own = at(entries, "offer")["content"]["offers"][0]
    own[0] = canonical(json.loads(own[0]) | change)


def change_commitment(entries: Entries, **change: Any) -> None:
    own = at(entries, "commit")["content"]["commitments"]["alice"]
    own[0] = canonical(json.loads(own[0]) | change)


EACH = "offer of 'alice': each block of `tariff` must be a level .* and a price"


@pytest.mark.parametrize(
    ("tariff", "reason"),
    [
        ([], "1 to 256 blocks"),
        ([[n + 1, 1] for n in range(MOST_BLOCKS + 1)], "1 to 256 blocks"),
        ("55", "1 to 256 blocks"),
        ([[LEVEL_ONE, 2**62 + 1]], EACH),
        ([[LEVEL_ONE, 1.0]], EACH),
        ([[LEVEL_ONE + 1, 1]], EACH),
        ([[0, 1]], EACH),
        ([[5, 1], [5, 1]], EACH),
        ([[5, 1], [4, 1]], EACH),
        ([[True, 1]], EACH),
        ([[5]], EACH),
        ([[5, 1, 1]], EACH),
        ([5], EACH),
    ],
)
def test_what_is_no_tariff_does_not_verify(entries: Entries, tariff: Any, reason: str) -> None:
    change_offer(entries, tariff=tariff)
    with pytest.raises(VerificationError, match=rf"entry [0-9]+ \(offer run 1\).*{reason}"):
        check_entries(resigned(entries))


def test_a_menu_is_true_or_false(entries: Entries) -> None:
    change_offer(entries, menu=1)
    with pytest.raises(VerificationError, match="offer of 'alice': `menu` must be true or false"):
        check_entries(resigned(entries))


def raise_price(entries: Entries) -> None:
    change_offer(entries, tariff=[[LEVEL_ONE, 10**9]])


def raise_level(entries: Entries) -> None:
    change_commitment(
        entries, level=json.loads(at(entries, "offer")["content"]["offers"][0][0])["level_floor"]
    )


def other_secret(entries: Entries) -> None:
    at(entries, "open")["content"]["secrets"]["alice"][0] = "00" * 32


def other_client_secret(entries: Entries) -> None:
    at(entries, "open")["content"]["secrets"]["alice"][1] = "00" * 32


def drop_client(entries: Entries) -> None:
    del at(entries, "open")["content"]["secrets"]["alice"]


def drop_commitment(entries: Entries) -> None:
    del at(entries, "commit")["content"]["commitments"]["alice"]


def more_samples(entries: Entries) -> None:
    change_commitment(entries, samples=10**6)


def other_weight(entries: Entries) -> None:
    content = next(e["content"] for e in entries if e["content"].get("joined"))
    next(iter(content["joined"].values()))[1] = "0.5"


def invent_an_update(entries: Entries) -> None:
    content = next(e["content"] for e in entries if e["content"].get("joined"))
    next(iter(content["joined"].values()))[0] = "00" * 32


def other_base(entries: Entries) -> None:
    at(entries, "round")["content"]["model"] = "00" * 32


def copy_an_update(entries: Entries) -> None:
    rounds = [e["content"] for e in entries if "<b>bob</b>" in e["content"].get("joined", {})]
    rounds[1]["joined"]["<b>bob</b>"][0] = rounds[0]["joined"]["<b>bob</b>"][0]


def other_ledger(entries: Entries) -> None:
    entries[0]["content"]["ledger"] = "00" * 32


def old_format(entries: Entries) -> None:
    entries[0]["content"]["format"] = 1


def more_fields(entries: Entries) -> None:
    entries[-1]["content"]["note"] = "hello"


def odd_number(entries: Entries) -> None:
    at(entries, "round")["content"]["of"][1] = 0.0


def no_postings(entries: Entries) -> None:
    at(entries, "deposit")["postings"] = []


def of_nothing(entries: Entries) -> None:
    at(entries, "open")["content"]["of"] = []


def short_update(entries: Entries) -> None:
    content = next(e["content"] for e in entries if e["content"].get("joined"))
    content["joined"] = {name: [] for name in content["joined"]}


def into_escrow(entries: Entries) -> None:
    entry = at(entries, "deposit")
    entry["content"]["of"] = ["escrow:x", "run"]
    entry["postings"][1][0] = "escrow:x"


def pay_more(entries: Entries) -> None:
    lines = at(entries, "round")["postings"]
    lines[0][1] -= 1
    lines[1][1] += 1


def pay_another(entries: Entries) -> None:
    lines = at(entries, "round")["postings"]
    lines[1][0] = "client:mallory"


def skip_a_round(entries: Entries) -> None:
    entries.remove(at(entries, "round"))


def settle_twice(entries: Entries) -> None:
    entries.append(copy.deepcopy(at(entries, "settle")))


def keep_the_rest(entries: Entries) -> None:
    entry = at(entries, "settle")
    entry["postings"] = entry["postings"][:-1]


def deposit_twice(entries: Entries) -> None:
    entries.insert(3, copy.deepcopy(at(entries, "deposit")))


def invent_money(entries: Entries) -> None:
    at(entries, "deposit")["postings"][1][1] += 5


def start_anew(entries: Entries) -> None:
    entries.append(copy.deepcopy(entries[0]))


def other_unit(entries: Entries) -> None:
    entries[0]["content"]["unit"] = "EUR"


def strange_kind(entries: Entries) -> None:
    entries[-1]["content"]["kind"] = "gift"


def no_form(entries: Entries) -> None:
    entries[-1]["content"] = [1, 2]


def huge_amount(entries: Entries) -> None:
    at(entries, "deposit")["postings"] = [["world", -(1 << 70)], ["treasury", 1 << 70]]


@pytest.mark.parametrize(
    ("cheat", "reason"),
    [
        (raise_price, "commitment of 'alice': it answers another offer"),
        (raise_level, "signature of the commitment of 'alice' is not valid"),
        (other_secret, "server's secret for 'alice' does not match its hash"),
        (other_client_secret, "client's secret for 'alice' does not match its hash"),
        (drop_client, "not every client that committed has revealed"),
        (drop_commitment, "must be either answered or dropped"),
        (more_samples, "signature of the commitment of 'alice' is not valid"),
        (other_weight, "weight of .* must be"),
        (other_base, "signature of the update of .* is not valid"),
        (other_ledger, "message must be"),
        (old_format, "is of format 1; this verifier knows 5"),
        (pay_more, "posting must be"),
        (pay_another, "posting must be"),
        (skip_a_round, r"\(round 2 of run 'run'\): it does not follow: 0 of"),
        (settle_twice, "already settled"),
        (keep_the_rest, "posting must be"),
        (deposit_twice, "already recorded"),
        (invent_money, "posting must be"),
        (start_anew, "wrong place"),
        (other_unit, "unit must be"),
        (strange_kind, "kind is unknown"),
        (no_form, "does not have the form"),
        (huge_amount, "does not have the form"),
        (invent_an_update, "signature of the update of .* is not valid"),
        (copy_an_update, "copy of an earlier one"),
        (more_fields, "fields are not those of its kind"),
        (odd_number, "does not have the form"),
        (no_postings, "posting must be"),
        (of_nothing, "does not have the form"),
        (short_update, "does not have the form"),
        (into_escrow, "an account must be treasury or client:NAME"),
    ],
)
def test_a_cheating_server_is_found_out(
    entries: Entries, cheat: Callable[[Entries], None], reason: str
) -> None:
    """Even though it chains and signs everything anew."""
    cheat(entries)
    with pytest.raises(VerificationError, match=reason):
        check_entries(resigned(entries))


def test_every_skipped_head_is_exposed(entries: Entries) -> None:
    """Each head of each client in each round, hidden as tails; each tails, claimed as heads."""
    cheats = 0
    for index, entry in enumerate(entries):
        if entry["content"]["kind"] != "round":
            continue
        drew = {*entry["content"]["joined"], *entry["content"]["missed"]}
        for client in ("alice", "=1+1+1", "<b>bob</b>", "dora-dorothea"):
            forged = copy.deepcopy(entries)
            content = forged[index]["content"]
            if client in drew:
                content["joined"].pop(client, None)
                content["missed"] = [name for name in content["missed"] if name != client]
            else:
                content["missed"] = sorted([*content["missed"], client])
            shown = "heads, not tails" if client in drew else "tails, not heads"
            with pytest.raises(VerificationError, match=f"the coin of .* shows {shown}"):
                check_entries(resigned(forged))
            cheats += 1
    assert cheats == 4 * ROUNDS


def test_a_changed_text_breaks_the_chain(exported: Path, tmp_path: Path) -> None:
    """Any one character of an export."""
    text = exported.read_text("utf-8")
    rng = np.random.default_rng(0)
    changed = tmp_path / "changed.jsonl"
    for spot in rng.integers(0, len(text), 200):
        other = "x" if text[spot] != "x" else "y"
        changed.write_text(text[:spot] + other + text[spot + 1 :], "utf-8")
        with pytest.raises(VerificationError):
            check_export(changed)


@pytest.mark.parametrize("content", ["", "{}\n", "nonsense\n", "[]\n", '{"number": 1}\n'])
def test_what_is_no_export(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(VerificationError):
        check_export(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(VerificationError):
        check_export(path)


def test_a_client_knows_its_own_key(exported: Path, entries: Entries) -> None:
    """Whoever signs in a client's name with a key of its own is found by the client's key."""
    own = json.loads(at(entries, "commit")["content"]["commitments"]["alice"][0])["key"]
    server = simulation_key("server").public.hex()
    for code, *command in (
        (0, "--client", "alice", "--key", own, "--server", server),
        (4, "--server", "ab" * 32),
        (4, "--client", "alice", "--key", "ab" * 32),
        (2, "--key", own),  # whose?
        (2, "--client", "mallory"),
        (0, "--head", entries[-1]["hash"], "--head", entries[0]["hash"]),
        (4, "--head", entries[-1]["hash"], "--head", "ab" * 32),
    ):
        assert fedprice.verify.main([str(exported), *command]) == code, command


def test_money_without_a_signature_does_not_verify_by_itself(tmp_path: Path) -> None:
    """It ended with 0 where nobody had signed."""
    ledger, path = Ledger("sqlite://"), tmp_path / "market.jsonl"
    ledger.deposit("treasury", 10, "first")
    ledger.open_unsigned("run", 10, {"alice": at_price(10, LEVEL_ONE)}, rounds=1)
    ledger.record_round(
        "run", 0, model="0" * 64, joined={"alice": Delivered("ab" * 32, "1.0", "1")}
    )
    export(ledger, path, date=TODAY)
    assert fedprice.verify.main([str(path)]) == 4
    assert fedprice.verify.main([str(path), "--unsigned"]) == 0
    ledger.withdraw("client:alice", 4, "payout", unsigned=True)  # alice has no key in this ledger
    assert ledger.verify().unsigned == ["run 'run'", "a withdrawal of client:alice"]
    ledger.close()
    ledger = Ledger("sqlite://")  # nor has its server
    ledger.deposit("treasury", 10, "first")
    ledger.withdraw("treasury", 4, "rent")
    export(ledger, tmp_path / "own.jsonl", date=TODAY)
    assert fedprice.verify.main([str(tmp_path / "own.jsonl")]) == 4
    ledger.close()


@pytest.mark.parametrize("count", [500, pytest.param(2000, marks=pytest.mark.slow)])
def test_random_edits_never_crash(entries: Entries, count: int) -> None:
    """Changes of any value to any other, chained anew: refused or harmless."""
    rng = random.Random(1)
    values: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], {}, [[]], 1 << 80, "ab" * 32]
    for _ in range(count):
        forged = copy.deepcopy(entries[: rng.randrange(4, len(entries))])
        spot: Any = rng.choice(forged)["content" if rng.random() < 0.8 else "postings"]
        for _ in range(rng.randrange(1, 5)):
            inner = list(spot.values()) if isinstance(spot, dict) else list(spot)
            nested = [part for part in inner if isinstance(part, dict | list) and part]
            if not nested:
                break
            spot = rng.choice(nested)
        if not spot:
            continue
        where = rng.choice(list(spot)) if isinstance(spot, dict) else rng.randrange(len(spot))
        spot[where] = rng.choice(values)
        with contextlib.suppress(VerificationError):
            check_entries(resigned(forged))
