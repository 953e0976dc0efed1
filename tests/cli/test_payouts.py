"""Money leaves, mistakes are undone, stuck runs end, keys change: as typed, with real keys."""

import json
from pathlib import Path

import pytest

from fedprice.market.keys import read_key, write_keys
from fedprice.market.ledger import Ledger
from fedprice.market.offers import Proposal
from fedprice.market.tariffs import Tariff
from tests.conftest import Run
from trials.markets import conditions

IDENTITY = "ab" * 32


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger of a server and a client with keys; the client has earned 10, 5 of it twice."""
    from fedprice.market.bargain import Bargain
    from fedprice.market.coins import own_secret
    from fedprice.market.offers import answer

    monkeypatch.chdir(tmp_path)
    write_keys(tmp_path / "keys", ["alice"])
    write_keys(tmp_path / "new", ["alice"])
    server, alice = read_key("keys/server.key"), read_key("keys/client-alice.key")
    ledger = Ledger("market.db", key=server, identity=IDENTITY)
    ledger.deposit("treasury", 20_000_000, "grant")
    ledger.deposit("client:alice", 5_000_000, "wrong")
    bargain = Bargain(ledger, server, "run")
    offer = {"alice": Proposal(Tariff.flat(10_000_000, 1 << 32), 1 << 32)}
    common = conditions(ledger, server=server.public.hex(), rounds=2)
    bargain.offer(common, offer)
    own = answer(alice, bargain.offers["alice"], 1 << 32, samples=1, grad_norm=None)
    bargain.commit("alice", own, alice.public)
    bargain.close()
    bargain.reveal("alice", own_secret(alice.private, bargain.offers["alice"].hash))
    bargain.open(10_000_000)
    ledger.close()
    return tmp_path


def balances(run: Run) -> dict[str, str]:
    code, out, err = run("ledger", "open", "market.db", "--format", "json")
    assert code == 0, err
    return {row["account"]: row["balance"] for row in json.loads(out)["rows"]}


KEY = ("--key", "keys/server.key")
ALICE = ("alice", "--key", "keys/client-alice.key", "--identity", IDENTITY)


def test_a_stuck_run_can_be_ended(run: Run, home: Path) -> None:
    code, _, err = run("ledger", "settle", "run")
    assert code == 5
    assert "its private key is needed (--key FILE)" in err
    for told in ("settled run after 0 rounds", "recorded before: settled run"):
        code, _, err = run("ledger", "settle", "run", *KEY)
        assert code == 0, err
        assert told in err
    assert balances(run)["treasury"] == "20.000000"
    code, _, err = run("ledger", "settle", "ran", *KEY)
    assert (code, "Did you mean 'run'" in err) == (2, True)


def test_a_client_is_paid_out_what_it_asked_for(run: Run, home: Path) -> None:
    asked = ("ledger", "request", *ALICE, "--withdraw", 3, "--reference", "may", "-o", "r.json")
    assert run(*asked)[0] == 0
    assert (home / "r.json").stat().st_mode & 0o777 == 0o600
    for told in ("withdrawn from client:alice, may", "recorded before"):
        code, _, err = run("ledger", "withdraw", "--request", "r.json", *KEY)
        assert (code, told in err) == (0, True), err
    assert balances(run)["client:alice"] == "2.000000"
    request = json.loads((home / "r.json").read_text())
    request["content"] = request["content"].replace("3000000", "2000000")
    (home / "r.json").write_text(json.dumps(request))
    code, _, err = run("ledger", "withdraw", "--request", "r.json", *KEY)
    assert (code, "is not a request" in err) == (2, True)
    code, _, err = run("ledger", "withdraw", "--amount", 4, "--reference", "rent", *KEY)
    assert code == 0, err
    assert balances(run)["treasury"] == "6.000000"
    assert run("ledger", "verify")[0] == 0


def test_requests_of_another_form_are_one_line(run: Run, home: Path) -> None:
    """They ended in a traceback."""
    alice = read_key("keys/client-alice.key")
    for command, content in (
        ("withdraw", {"kind": "Withdrawal"}),
        ("rotate", {"kind": "Rotation", "ledger": IDENTITY, "account": "a", "old": "", "new": 5}),
        ("rotate", {"kind": "Withdrawal"}),
    ):
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        request = {"content": text, "signature": alice.sign_text(text).hex()}
        (home / "r.json").write_text(json.dumps(request | {"key": alice.public.hex()}))
        code, out, err = run("ledger", command, "--request", "r.json", *KEY)
        assert (code, out, len(err.splitlines())) == (2, "", 1), err


def test_a_ledger_gets_its_servers_key_by_opening_it_only(run: Run, home: Path) -> None:
    """A command that failed said that nothing was recorded, and had bound the key."""
    assert run("ledger", "open", "bare.db", "--deposit", 5, "--reference", "x")[0] == 0
    code, _, err = run("ledger", "reverse", 2, "--reason", "y", "--ledger", "bare.db", *KEY)
    assert (code, "has no server key yet" in err) == (2, True)
    code, _, err = run("ledger", "reverse", 2, "--reason", "y", "--ledger", "bare.db")
    assert code == 0, err


def test_nobody_is_paid_out_without_asking(run: Run, home: Path) -> None:
    """Another client's signature, another ledger's, a larger amount than there is."""
    other = ("alice", "--key", "new/client-alice.key", "--identity", IDENTITY)
    for who, amount, code, told in (
        (other, 3, 5, "the signature of the withdrawal of client:alice is not valid"),
        ((*ALICE[:-1], "cd" * 32), 3, 5, "client:alice signed something else: another ledger"),
        (ALICE, 9, 5, "overdraws client:alice"),
    ):
        asked = ("ledger", "request", *who, "--withdraw", amount, "--reference", "x")
        assert run(*asked, "-o", "r.json", "--force")[0] == 0
        got, _, err = run("ledger", "withdraw", "--request", "r.json", *KEY)
        assert (got, told in err, len(err.splitlines())) == (code, True, 1), err
    assert balances(run)["client:alice"] == "5.000000"


def test_what_was_reversed_is_not_said_to_be_recorded(run: Run, home: Path) -> None:
    """Whoever repeated the command would pay out money that is in the account again."""
    asked = ("ledger", "request", *ALICE, "--withdraw", 3, "--reference", "may", "-o", "r.json")
    assert run(*asked)[0] == 0
    before = balances(run)
    for command, title in (
        (("withdraw", "--request", "r.json"), "withdraw client:alice may"),
        (("open", "market.db", "--deposit", 7, "--reference", "late"), "deposit treasury late"),
    ):
        assert run("ledger", *command, *KEY)[0] == 0
        ledger = Ledger("market.db", create=False)
        number = ledger.head().number
        ledger.close()
        assert run("ledger", "reverse", number, "--reason", "returned", *KEY)[0] == 0
        code, _, err = run("ledger", *command, *KEY)
        told = f"{title} was recorded as entry {number}, and reversed since; use another reference"
        assert (code, told in err, err.count("\n")) == (5, True, 1)
        assert balances(run) == before


def test_a_deposit_is_undone_with_its_owners_signature(run: Run, home: Path) -> None:
    code, _, err = run("ledger", "reverse", 3, "--reason", "twice", *KEY)
    assert (code, "client:alice has to sign it" in err) == (5, True)
    asked = ("ledger", "request", *ALICE, "--reverse", 3, "--amount", 5, "--reason", "twice")
    assert run(*asked, "-o", "r.json")[0] == 0
    code, _, err = run("ledger", "reverse", 3, "--reason", "twice", "--request", "r.json", *KEY)
    assert code == 0, err
    assert balances(run)["client:alice"] == "0.000000"
    code, _, err = run("ledger", "reverse", 1, "--reason", "why not", *KEY)
    assert (code, "no such deposit or withdrawal" in err) == (5, True)
    assert run("ledger", "verify")[0] == 0
    code, out, err = run("statement", "--client", "alice")
    assert code == 0, err
    assert "of entry 3: twice" in out


def test_keys_change_by_both_signatures(run: Run, home: Path) -> None:
    asked = ("ledger", "request", *ALICE, "--rotate", "new/client-alice.key", "-o", "r.json")
    assert run(*asked)[0] == 0
    for _ in range(2):  # again changes nothing
        code, _, err = run("ledger", "rotate", "--request", "r.json", *KEY)
        assert code == 0, err
    code, _, err = run("ledger", "rotate", "--to", "new/server.key", *KEY)
    assert (code, "run 'run' is under way with the old key" in err) == (5, True)
    assert run("ledger", "settle", "run", *KEY)[0] == 0
    code, _, err = run("ledger", "rotate", "--to", "new/server.key", *KEY)
    assert code == 0, err
    again = ("ledger", "rotate", "--to", "new/server.key", "--key", "new/server.key")
    assert run(*again)[0] == 0
    code, _, err = run("ledger", "withdraw", "--amount", 1, "--reference", "rent", *KEY)
    assert (code, "is the ledger of the server" in err) == (5, True)
    assert run("ledger", "export", "-o", "m.jsonl")[0] == 0
    for key in ("keys/client-alice.pub", "new/client-alice.pub"):
        code, _, err = run("verify", "m.jsonl", "--client", "alice", "--key", key)
        assert code == 0, err
    assert run("verify", "m.jsonl", "--server", "new/server.pub")[0] == 0
    assert run("verify", "m.jsonl", "--client", "alice", "--key", "new/server.pub")[0] == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ("withdraw",),
        ("withdraw", "--amount", 3),
        ("withdraw", "--amount", 3, "--reference", "x", "--request", "r.json"),
        ("withdraw", "--request", "none.json"),
        ("withdraw", "--request", "market.db"),
        ("rotate",),
        ("request", *ALICE, "-o", "r.json"),
        ("request", *ALICE, "--withdraw", 3, "-o", "r.json"),
        ("request", *ALICE, "--withdraw", "3e5", "--reference", "x", "-o", "r.json"),
        ("request", *ALICE[:-1], "5", "--withdraw", 3, "--reference", "x", "-o", "r.json"),
        ("request", *ALICE, "--reverse", 3, "-o", "r.json"),
        ("request", *ALICE, "--withdraw", 3, "--reference", "x", "-o", "r.txt"),
    ],
)
def test_bad_input_is_one_line(run: Run, home: Path, arguments: tuple[object, ...]) -> None:
    code, out, err = run("ledger", *arguments)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert not (home / "r.json").exists()
