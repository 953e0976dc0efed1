"""`fedprice statement`, from a ledger and from an export alone, and exports for one client."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from fedprice.market.ledger import Ledger, Refused
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.simulation import simulation_key
from tests.conftest import Run
from tests.market.test_tariffs import BLOCKS, MENU, run_market
from trials.markets import agreed, at_price, paying, small_market

HIDDEN = 7  # dora's money, the treasury's, zoe's, and the second run with its three steps
LONG = "a hospital with a name that is as long as the names of hospitals are"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a ledger of two runs: alice is in the first one only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    with closing(Ledger("sqlite:///market.db", unit="EUR", identity="ab" * 32)) as ledger:
        small_market(ledger, delivery=0.5)
        ledger.deposit("treasury", 20 * MICRO, "second")
        ledger.deposit("client:zoe", 5 * MICRO, "secret transfer 7")
        agreed(ledger, 10 * MICRO, {"bob": paying(5), "zoe": paying(6)}, run="second")
    return tmp_path


def export(run: Run, *more: str) -> str:
    name = "mine.jsonl" if more else "market.jsonl"
    code, _, err = run("ledger", "export", *more, "-o", name)
    assert code == 0, err
    assert ("of them as hashes only" in err) == bool(more)
    return name


def test_a_statement_needs_nothing_but_an_export(run: Run, home: Path) -> None:
    options = ("statement", "--client", "alice")
    from_ledger = {f: run(*options, "--format", f)[1] for f in ("table", "csv", "json")}
    whole, part = export(run), export(run, "--client", "alice")
    (home / "market.db").rename(home / "gone")
    for file in (whole, part):
        for format_, expected in from_ledger.items():
            code, out, err = run(*options, "--export", file, "--format", format_)
            assert (code, err) == (0, "")
            if format_ == "table" and file == part:
                assert f"The export is partial, and hides {HIDDEN} entries" in out
            else:
                assert out == expected
        assert run(*options, "--export", file, "-o", f"{file}.csv")[0] == 0
        assert (home / f"{file}.csv").read_text() == from_ledger["csv"]
    rows = json.loads(from_ledger["json"])["rows"]
    missed = [row["round"] for row in rows if row["event"] == "missed"]
    assert len(missed) > 1
    listed = f"{', '.join(map(str, missed[:-1]))} and {missed[-1]}"
    assert f"Missed in rounds {listed}: selected, but sent no update." in from_ledger["table"]
    for column in ("heads", "joined", "missed", "refused", "paid"):
        assert column in from_ledger["table"]


def test_refused_rounds_are_listed_with_their_reasons(run: Run, home: Path) -> None:
    with closing(Ledger("sqlite:///market.db")) as ledger:
        ledger.use_key(simulation_key("server"))
        ledger.open_unsigned("third", 10, {"alice": at_price(10, LEVEL_ONE)}, rounds=9)
        for round_ in range(4):
            why = {"alice": Refused("it is not finite." if round_ % 2 else "its norm is 9.")}
            ledger.record_round("third", round_, model="ab" * 32, refused=why)
    file = export(run)
    code, out, err = run("statement", "--client", "alice", "--export", file, "--unsigned")
    assert (code, err) == (0, "")
    assert "third: Refused in rounds 1 and 3: its norm is 9.\n" in out
    assert "third: Refused in rounds 2 and 4: it is not finite.\n" in out


def test_an_export_that_does_not_verify_has_no_statement(run: Run, home: Path) -> None:
    text = (home / export(run)).read_text("utf-8")
    for changed in (text.replace("alice", "alicf", 1), text[:-20] + "\n", "hello\n"):
        (home / "changed.jsonl").write_text(changed, "utf-8")
        code, out, err = run("statement", "--client", "alice", "--export", "changed.jsonl")
        assert (code, out, err.count("\n")) == (4, "", 1)
        assert "changed.jsonl does not verify" in err


def test_a_part_for_a_client_from_the_command_line(run: Run, home: Path) -> None:
    """Nothing of zoe is in it, and it says that it is a part."""
    text = (home / export(run, "--client", "alice")).read_text("utf-8")
    assert "zoe" not in text
    assert "secret transfer" not in text
    code, out, err = run("verify", "mine.jsonl")
    assert (code, err) == (0, "")
    assert "run 'run', 'alice': 12 of 12 rounds" in out
    assert "coins and weights are right for what client" in out
    assert "verified IN PART: " in out
    assert f"({HIDDEN} hidden)" in out
    assert run("verify", "mine.jsonl", "--client", "alice")[1] == out
    dropped = text.splitlines(keepends=True)
    del dropped[next(n for n, line in enumerate(dropped) if '"content"' not in line)]
    (home / "dropped.jsonl").write_text("".join(dropped), "utf-8")
    assert run("verify", "dropped.jsonl")[0] == 4


def test_a_clients_export_says_who_asks(run: Run, home: Path) -> None:
    part = export(run, "--client", "alice")
    named = run("statement", "--client", "alice", "--export", part)
    assert run("statement", "--export", part) == named
    assert run("respond", "--offer", part, "--cost", 3)[1].startswith("alice: answer to the offer")
    assert run("statement", "--export", export(run))[2] == (
        "fedprice: say whose statement it is: --client NAME.\n"
    )


def test_without_a_ledger_a_client_is_told_of_exports(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPRICE_LEDGER", raising=False)
    code, out, err = run("statement", "--client", "alice")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "there is no ledger market.db here. As a client, read what the server exported" in err
    assert "--export FILE" in err


def test_a_verified_export_may_be_cut_short_and_a_run_not_settled(run: Run, home: Path) -> None:
    whole = export(run)
    code, out, _ = run("verify", whole)
    lines = out.splitlines()
    assert (code, lines[-1].startswith("An export that was cut short at its end verifies")) == (
        0, True,
    )  # fmt: skip
    assert "--head HASH" in lines[-1]
    (second,) = (n for n, line in enumerate(lines) if line.startswith("run 'second'"))
    assert not any("not settled" in line for line in lines[:second])
    assert "  not settled yet: what was not earned is still in escrow" in lines[second:]
    head = next(line for line in lines if line.startswith("verified")).split()[-1]
    assert "cut short" not in run("verify", whole, "--head", head)[1]


def test_bad_input_is_one_line(run: Run, home: Path) -> None:
    whole, part = export(run), export(run, "--client", "alice")
    (home / "return.jsonl").write_bytes((home / whole).read_bytes().replace(b"\n", b"\r"))
    own = ("statement", "--client", "alice")
    for arguments, said in (
        (
            (*own, "--export", whole, "--ledger", "market.db"),
            "--export cannot be combined with --ledger",
        ),
        ((*own, "--unsigned"), "--unsigned applies only to an export: give --export FILE, too."),
        ((*own, "--export", "none.jsonl"), "cannot read none.jsonl"),
        ((*own, "--export", "market.db"), "market.db is a database, not an export; try: fedprice"),
        ((*own, "--export", "return.jsonl"), "lines of the file end with carriage returns"),
        (("statement", "--client", "alic", "--export", whole), "Did you mean 'alice'"),
        (("statement", "--client", "bob", "--export", part), "shows only what concerns client 'al"),
        (("verify", part, "--client", "bob"), "mine.jsonl shows only what concerns client 'alice'"),
        (("statement",), "say whose statement it is: --client NAME."),
        (("ledger", "export", "--client", "alic", "-o", "x.jsonl"), "Did you mean 'alice'"),
        (("ledger", "export", "--client", "alice", "-o", "x.csv"), "must be a .jsonl file; got x."),
        (
            ("ledger", "export", "--date", "2026-01-02", "-o", "x.csv"),
            "--date applies only to .beancount files",
        ),
    ):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1), (arguments, err)
        assert said in err
    assert not (home / "x.jsonl").exists()


def test_the_ledger_of_the_environment_does_not_contradict_an_export(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = export(run)
    monkeypatch.setenv("FEDPRICE_LEDGER", "sqlite:///other.db")
    assert run("statement", "--client", "alice", "--export", file)[0] == 0


def test_market_tables_fit_80_columns(run: Run, home: Path) -> None:
    with closing(Ledger("sqlite:///market.db")) as ledger:
        for name, tariffs in (("blocks", BLOCKS), ("a menu with a longer name", MENU)):
            run_market(ledger, tariffs, run=name)
        ledger.deposit("treasury", 10**6 * MICRO, "more")
        large = {"alice": at_price(99_999 * MICRO, LEVEL_ONE), "bob": at_price(MICRO, LEVEL_ONE)}
        agreed(ledger, 100_000 * MICRO, large, run="fourth")
    for command in (
        ("ledger", "open", "market.db"),
        ("ledger", "runs"),
        ("ledger", "show", "run"),
        ("ledger", "show", "blocks"),
        ("ledger", "show", "a menu with a longer name"),
        ("ledger", "show", "fourth"),
        ("statement", "--client", "alice"),
        ("statement", "--client", "dora-dorothea"),
    ):
        code, out, err = run(*command)
        assert code == 0, err
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= 80, out
    assert "Hidden column" in run("ledger", "runs")[1]


def test_a_name_that_does_not_fit_is_wrapped_and_not_cut(run: Run, home: Path) -> None:
    with closing(Ledger("sqlite:///market.db")) as ledger:
        agreed(ledger, 10, {LONG: paying(5)}, run="third")
        ledger.deposit(f"client:{LONG}", 5, "own")
    for command in (("ledger", "show", "third"), ("ledger", "open", "market.db")):
        out = run(*command)[1]
        assert max(map(len, out.splitlines())) <= 80, out
        assert all(word in out for word in LONG.split()), out
    assert "third" in run("statement", "--client", LONG)[1]
