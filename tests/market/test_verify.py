"""The verifier: it stands alone, and finds what a cheating server or a stranger changed."""

import contextlib
import copy
import datetime
import hashlib
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
from fedprice.market.coins import Coins, coin_key
from fedprice.market.export import export
from fedprice.market.ledger import Ledger
from fedprice.verify import VerificationError, check_entries, check_export, describe
from tests.market.markets import ROUNDS, small_agreement, small_market

TODAY = datetime.date(2026, 1, 2)
Entries = list[dict[str, Any]]


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


def rechain(entries: Entries) -> Entries:
    """Give every entry the hash that follows: what whoever owns the database can do."""
    previous = "0" * 64
    for number, entry in enumerate(entries, start=1):
        entry["number"] = number
        parts = [
            json.dumps(entry[part], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            for part in ("content", "postings")
        ]
        previous = hashlib.sha256("\n".join([previous, str(number), *parts]).encode()).hexdigest()
        entry["hash"] = previous
    return entries


def at(entries: Entries, kind: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["content"]["kind"] == kind)


def test_an_honest_ledger_verifies(exported: Path) -> None:
    report = check_export(exported)
    assert report.signatures == 8 + sum(c.joined for c in report.runs["run"].clients.values())
    lines = list(describe(report, "alice"))
    assert "'alice': 12 of 12 rounds" in lines[0]
    assert lines[1].startswith("  agreed: level 0.88")
    assert report.runs["run"].server in lines[3]
    assert report.hashes[-1] in lines[-1]


def test_the_file_stands_alone(exported: Path, tmp_path: Path) -> None:
    """Copied elsewhere and run by an interpreter that sees nothing else of the package."""
    alone = tmp_path / "verify.py"
    alone.write_bytes(Path(fedprice.verify.__file__).read_bytes())
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


def raise_price(entries: Entries) -> None:
    at(entries, "open")["content"]["terms"][0][1] += 1


def raise_level(entries: Entries) -> None:
    at(entries, "open")["content"]["terms"][0][2] += 1


def other_secret(entries: Entries) -> None:
    deal = at(entries, "open")["content"]["agreement"]["clients"]["alice"]
    deal["secret"] = "00" * 32


def other_client_secret(entries: Entries) -> None:
    deal = at(entries, "open")["content"]["agreement"]["clients"]["alice"]
    commitment = json.loads(deal["commitment"])
    commitment["secret"] = "00" * 32
    deal["commitment"] = json.dumps(commitment, sort_keys=True, separators=(",", ":"))


def drop_client(entries: Entries) -> None:
    content = at(entries, "open")["content"]
    content["terms"] = content["terms"][:-1]


def more_samples(entries: Entries) -> None:
    at(entries, "open")["content"]["terms"][0][3] += 5


def other_weight(entries: Entries) -> None:
    content = next(e["content"] for e in entries if e["content"].get("joined"))
    next(iter(content["joined"].values()))[1] = "0.5"


def hide_samples(entries: Entries) -> None:
    more_samples(entries)
    reweigh(entries)


def reweigh(entries: Entries) -> None:
    """Write the weights that follow from the terms, as a careful cheat would."""
    terms = {n: (lv, s) for n, _, lv, s in at(entries, "open")["content"]["terms"]}
    total = sum(samples for _, samples in terms.values())
    for entry in entries:
        for name, update in entry["content"].get("joined", {}).items():
            level, samples = terms[name]
            update[1] = repr((samples / total) / (level / 2**32))


def invent_an_update(entries: Entries) -> None:
    content = next(e["content"] for e in entries if e["content"].get("joined"))
    next(iter(content["joined"].values()))[0] = "00" * 32


def copy_an_update(entries: Entries) -> None:
    rounds = [e["content"] for e in entries if "<b>bob</b>" in e["content"].get("joined", {})]
    rounds[1]["joined"]["<b>bob</b>"][0] = rounds[0]["joined"]["<b>bob</b>"][0]


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
    entry["content"] |= {"account": "escrow:x", "of": ["escrow:x", "run"]}
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
        (raise_price, "price must be"),
        (raise_level, "level must be"),
        (other_secret, "server's coin secret must be"),
        (other_client_secret, "signature of its commitment is not valid"),
        (drop_client, "name different clients"),
        (more_samples, "samples must be"),
        (other_weight, "weight must be"),
        (pay_more, "posting must be"),
        (pay_another, "posting must be"),
        (skip_a_round, r"\(round 2 of run 'run'\) does not follow: 0 of"),
        (settle_twice, "settled before"),
        (keep_the_rest, "posting must be"),
        (deposit_twice, "was made before"),
        (invent_money, "posting must be"),
        (start_anew, "wrong place"),
        (other_unit, "unit must be"),
        (strange_kind, "unknown kind"),
        (no_form, "not of the form"),
        (huge_amount, "not of the form"),
        (hide_samples, "samples must be"),
        (invent_an_update, "signature of its update is not valid"),
        (copy_an_update, "copy of an earlier one"),
        (more_fields, "not the fields of its kind"),
        (odd_number, "not of the form"),
        (no_postings, "is no deposit"),
        (of_nothing, "not of the form"),
        (short_update, "not of the form"),
        (into_escrow, "is no deposit"),
    ],
)
def test_a_cheating_server_is_found_out(
    entries: Entries, cheat: Callable[[Entries], None], reason: str
) -> None:
    """Even though it chains all hashes anew."""
    cheat(entries)
    with pytest.raises(VerificationError, match=reason):
        check_entries(rechain(entries))


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
            shown = "'heads'; found 'tails'" if client in drew else "'tails'; found 'heads'"
            with pytest.raises(VerificationError, match=f"coin must be {shown}"):
                check_entries(rechain(forged))
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


def test_the_verifier_draws_the_same_coins() -> None:
    """Two codes, one stream."""
    agreement, _ = small_agreement()
    for client, deal in agreement.deals.items():
        secret = bytes.fromhex(json.loads(deal.commitment.content)["secret"])
        key = coin_key(deal.secret, secret)
        terms = agreement.terms[client]
        other = fedprice.verify.Client(terms.price, terms.level, terms.samples, coin_key=key)
        assert terms.payment == other.payment
        coins = Coins(key, "run", terms.level)
        other.prepare("run")
        for r in range(300):
            assert coins.heads(r) == other.drew_heads(r)


@pytest.mark.parametrize("content", ["", "{}\n", "nonsense\n", "[]\n", '{"number": 1}\n'])
def test_what_is_no_export(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(VerificationError):
        check_export(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(VerificationError):
        check_export(path)


def test_a_client_knows_its_own_key(exported: Path, entries: Entries, tmp_path: Path) -> None:
    """Whoever signs in a client's name with a key of its own is found by the client's key."""
    deal = at(entries, "open")["content"]["agreement"]["clients"]["alice"]
    commands = [["--client", "alice", "--key", deal["key"]], ["--server", "ab" * 32]]
    commands.append(["--client", "alice", "--key", "ab" * 32])
    commands.append(["--head", entries[-1]["hash"]])
    commands.append(["--head", "ab" * 32])
    codes = [fedprice.verify.main([str(exported), *command]) for command in commands]
    assert codes == [0, 4, 4, 0, 4]
    at(entries, "open")["content"]["agreement"] = None
    for entry in entries:
        for update in entry["content"].get("joined", {}).values():
            update[4] = ""
    unsigned = check_entries(rechain(entries))
    assert any("NOBODY SIGNED" in line for line in describe(unsigned))
    with pytest.raises(VerificationError, match="is not signed"):
        fedprice.verify.check_keys(unsigned, "alice", deal["key"], None)


def test_random_edits_never_crash(entries: Entries) -> None:
    """2,000 changes of any value to any other, chained anew: refused or harmless."""
    rng = random.Random(1)
    values: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], {}, [[]], 1 << 80, "ab" * 32]
    for _ in range(2000):
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
            check_entries(rechain(forged))
