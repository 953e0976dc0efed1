"""`fedprice ledger`, `fedprice verify` and `fedprice simulate --ledger`, as typed."""

import json
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy

from fedprice.calibration import calibrate
from fedprice.experiments import setup_of
from fedprice.learning import LogisticRegression
from fedprice.market.ledger import Ledger
from fedprice.tariff import Tariffs
from tests.conftest import Run
from tests.market.test_tariffs import BLOCKS, MENU, run_market
from trials.markets import NAMES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def simulating(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    """A command that runs a market, with a calibration, which would take most of its time."""
    path = tmp_path_factory.mktemp("pilots") / "calibration.json"
    task = LogisticRegression(setup_of("setup1").federation())
    calibrate(task, levels=(0.1, 0.3), checkpoints=(20, 30), repeats=10).write(path)
    return (
        "simulate", "setup1", "--scheme", "equilibrium", "--rounds", 5,
        "--delivery", 0.8, "--calibration", path,
    )  # fmt: skip


def test_a_market_from_the_command_line(
    run: Run, home: Path, simulating: tuple[object, ...]
) -> None:
    code, first, err = run(*simulating, "--ledger", "sqlite:///market.db", "--format", "json")
    assert code == 0, err
    code, again, err = run(*simulating, "--ledger", "sqlite:///market.db", "--format", "json")
    assert (code, again) == (0, first)
    code, out, err = run("ledger", "runs")
    assert code == 0, err
    assert "setup1-equilibrium-0" in out
    assert "…" not in out
    code, out, err = run("ledger", "show", "setup1-equilibrium-0")
    assert code == 0, err
    assert "shown: the gradient norm that a client's updates prove" in out
    assert "5 of 5 rounds, settled" in out
    assert "model " in out
    code, out, err = run("statement", "--client", "4", "-o", "four.csv")
    assert code == 0, err
    assert "offered a price of" in out
    assert (home / "four.csv").read_text().splitlines()[0].startswith("entry,run,round,event")
    code, out, err = run("ledger", "verify")
    assert code == 0, err
    head = out.split()[-1]
    assert run("ledger", "verify", "--head", head)[0] == 0
    assert run("ledger", "verify", "--head", "0" * 64)[0] == 4
    code, _, err = run("ledger", "export", "-o", "market.jsonl")
    assert code == 0, err
    code, out, err = run("verify", "market.jsonl", "--client", "4")
    assert code == 0, err
    assert "coins and weights are right" in out
    assert head in out


def test_ledger_show_has_one_line_per_client_whatever_was_offered(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal with room for it; the file has the tariffs in full."""
    monkeypatch.setenv("COLUMNS", "160")
    with closing(Ledger("sqlite:///market.db")) as ledger:
        run_market(ledger, BLOCKS, run="blocks")
        run_market(ledger, MENU, run="menu")
        ends, prices = np.linspace(0.1, 1, 40), np.linspace(8, 2, 40)
        many = Tariffs(np.tile(ends, (4, 1)), np.tile(prices, (4, 1)), menu=True)
        run_market(ledger, many, run="many")
    for name, brief, whole in (
        ("blocks", "9 up to 0.2, 6 up to 0.45, 4 up to 0.7, 1 up to 0.95", "prices of 9.000000 up"),
        ("menu", "1 for 0.25, 1.75 for 0.5, 2.25 for 0.75", "a choice of 1.000000 for level 0.25"),
        ("many", "0.8 for 0.1 … 5.231 for 1 (40 levels)", "a choice of 0.800000 for level 0.10"),
    ):
        code, out, err = run("ledger", "show", name, "-o", f"{name}.csv")
        assert code == 0, err
        rows = out.split("─")[-1].split("model ")[0].strip().splitlines()
        assert len(rows) == len(NAMES), out
        assert brief in rows[0]
        assert whole in (home / f"{name}.csv").read_text()


def test_bad_input_is_one_line(run: Run, home: Path, simulating: tuple[object, ...]) -> None:
    run(*simulating, "--ledger", "market.db")
    run("ledger", "export", "-o", "market.jsonl")
    (home / "broken.jsonl").write_text((home / "market.jsonl").read_text().replace("setup1", "x"))
    for arguments, code, text in (
        (("ledger", "runs", "--ledger", "none.db"), 2, "there is no ledger none.db"),
        (("ledger", "show", "setup1-equilibrum-0"), 2, "Did you mean 'setup1-equilibrium-0'"),
        (("statement", "--client", "444"), 2, "has no client '444'"),
        (("ledger", "export", "-o", "market.xls"), 2, "cannot tell the format"),
        (("ledger", "export", "-o", "market.jsonl"), 2, "exists"),
        (("verify", "none.jsonl"), 2, "cannot read none.jsonl"),
        (("verify", "broken.jsonl"), 4, "broken.jsonl does not verify: entry"),
        (("verify", "market.db"), 2, "is a database, not an export"),
        (("verify", "market.jsonl", "--key", "ab" * 32), 2, "name the client with --client"),
        (
            ("verify", "market.jsonl", "--client", "4", "--key", "ab" * 32),
            4,
            "the client '4' signs with",
        ),
        (("verify", "market.jsonl", "--server", "ab" * 32), 4, "the server signs with"),
        (("verify", "market.jsonl", "--head", "ab" * 32), 4, "truncated or rewritten"),
        (("verify", "market.jsonl", "--head", "5f2c"), 2, "64 hexadecimal digits"),
        (("ledger", "verify", "--head", "5f2c"), 2, "64 hexadecimal digits"),
        (("ledger", "runs", "--ledger", ""), 2, "a ledger needs a name"),
        (("verify", "market.jsonl", "--client", "no"), 2, "has no client 'no'"),
        (("ledger", "open", "--deposit", 5), 2, "--deposit and --reference require each other"),
        (("ledger", "open", "--deposit", -5, "--reference", "x"), 2, "must be above 0"),
        (("ledger", "open", "--deposit", "0.1234567", "--reference", "x"), 2, "six decimals"),
        (("ledger", "open", "--deposit", "much", "--reference", "x"), 2, "six decimals"),
        ((*simulating, "--rounds", 6, "--ledger", "market.db"), 2, "was started with"),
        (("simulate", "setup1", "--scheme", "subset", "--ledger", "m.db"), 2, "is no market"),
    ):
        got, out, err = run(*arguments)
        assert (got, out) == (code, ""), (arguments, err)
        assert text in err
        assert len(err.splitlines()) == 1
    assert run("ledger", "verify")[0] == 0
    assert not list(home.glob("*.part"))
    assert not (home / "none.db").exists()


def test_a_ledger_that_cannot_be_opened_is_exit_code_5(run: Run, home: Path) -> None:
    (home / "notes.db").write_text("no database")
    code, out, err = run("ledger", "runs", "--ledger", "notes.db")
    assert (code, out) == (5, "")
    assert "is not an SQLite database" in err
    code, _, err = run("ledger", "open", "notes.db")
    assert (code, len(err.splitlines())) == (5, 1)


def test_money_comes_in_once(run: Run, home: Path) -> None:
    for _ in range(2):
        code, out, err = run(
            "ledger", "open", "sqlite:///own.db", "--unit", "EUR", "--deposit", 12.5,
            "--reference", "grant", "--format", "json",
        )  # fmt: skip
        assert code == 0, err
        assert json.loads(out)["rows"][0] == {"account": "treasury", "balance": "12.500000"}
    code, out, err = run(
        "ledger", "open", "own.db", "--deposit", 1, "--to", "=cmd", "--reference", "own",
        "--format", "csv",
    )  # fmt: skip
    assert code == 0, err
    assert "client:=cmd,1.000000" in out
    code, _, err = run(
        "ledger", "open", "own.db", "--deposit", 1, "--to", "a\x1b[31m", "--reference", "own"
    )
    assert code == 2
    assert "printable" in err


@pytest.mark.parametrize("amount", ["١٢", "1_000", " 5", "+5", "1e3", "5.", "0", "0.0", "1" * 13])
def test_amounts_are_plain_digits(run: Run, home: Path, amount: str) -> None:
    code, out, err = run("ledger", "open", "own.db", "--deposit", amount, "--reference", "x")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "six decimals" in err
    assert not list(home.iterdir())


def test_a_low_order_key_is_refused(run: Run, home: Path, simulating: tuple[object, ...]) -> None:
    run(*simulating, "--ledger", "market.db")
    run("ledger", "export", "-o", "market.jsonl")
    code, _, err = run("verify", "market.jsonl", "--server", "00" * 32)
    assert code == 2
    assert "point of small order" in err


def test_commands_do_not_show_the_password_of_a_ledger(
    run: Run,
    home: Path,
    simulating: tuple[object, ...],
    postgres: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = sqlalchemy.make_url(postgres)
    engine = sqlalchemy.create_engine(address)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    engine.dispose()
    url = address.set(password="s3cr3t").render_as_string(hide_password=False)
    shown = str(run(*simulating, "--ledger", url))
    monkeypatch.setenv("FEDPRICE_LEDGER", url)
    for arguments, code in (
        (("ledger", "open"), 0),
        (("ledger", "runs"), 0),
        (("ledger", "show", "setup1-equilibrium-0"), 0),
        (("ledger", "show", "other"), 2),
        (("statement", "--client", "4"), 0),
        (("statement", "--client", "other"), 2),
        (("ledger", "verify"), 0),
        (("ledger", "verify", "--head", "ab" * 32), 4),
        (("ledger", "export", "-o", "market.jsonl"), 0),
        (("ledger", "backup", "-o", "market.dump"), 2),
        (("ledger", "runs", "--help"), 0),
    ):
        got = run(*arguments)
        assert got[0] == code, got
        shown += str(got)
    assert "--ledger postgresql+psycopg://postgres:***@" in shown
    assert "s3cr3t" not in shown
    assert "s3cr3t" not in (home / "market.jsonl").read_text()
