"""Markets under beliefs on the command line: offers, answers, training, payments, verified."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_own import TASK, calibration
from tests.conftest import Run
from tests.packed import verifier

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"
COSTS = "client_id,class,cost,value\nc,x,3,150\na,y,4,900\nb,x,5,100\n"
SIMULATE = (
    "simulate", "own.py:task", "--clients", "costs.csv", "--calibration", "c.json", "--budget", 3,
    "--rounds", 4,
)  # fmt: skip
EXPONENTIAL = ("--beliefs", "exponential", "--cost", 4)


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("own.py").write_text(TASK, encoding="utf-8")
    Path("costs.csv").write_text(COSTS, encoding="utf-8")
    calibration().write("c.json")


def verified(run: Run, ledger: str) -> str:
    """What the verifier, a program of its own, says of a ledger."""
    run("ledger", "export", "-o", "export.jsonl", "--ledger", ledger, "--force")
    done = subprocess.run(
        [sys.executable, str(verifier()), "export.jsonl"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.first_case
@pytest.mark.parametrize("form", ["menu", "price", "blocks", "tariff"])
def test_a_market_is_simulated_under_beliefs(run: Run, form: str) -> None:
    value = () if form == "menu" else ("--value", 300)
    how = (*EXPONENTIAL, *value, "--form", form, "--ledger", "market.db")
    code, out, err = run(*SIMULATE, *how, "--format", "json")
    assert code == 0, err
    row = json.loads(out)["result"]
    assert list(row)[:5] == ["status", "expected_spend", "spend_std", "spend", "expected_loss"]
    scheme = json.loads(out)["settings"]["scheme"]
    assert (scheme, row["status"]) == (f"posted {form}", "posted")
    assert 0 < row["expected_spend"] < 3.001
    assert row["spend"] != row["expected_spend"]  # clients answered as nobody could know
    said = verified(run, "market.db")
    assert said.count("3 clients: 4 of 4 rounds") == 1
    assert "0 missed, 0 refused" in said
    again = run(*SIMULATE, *how, "--format", "json")
    assert (again[0], json.loads(again[1])["result"]["spend"]) == (0, row["spend"])


def test_beliefs_by_class_and_a_number_of_blocks(run: Run) -> None:
    Path("beliefs.csv").write_text(
        "class,cost,value,probability\nx,3,100,0.5\nx,6,150,0.5\ny,4,900,1\n", encoding="utf-8"
    )
    how = ("--beliefs", "beliefs.csv", "--form", "blocks", "--blocks", 2, "--ledger", "market.db")
    code, _, err = run(*SIMULATE, *how)
    assert code == 0, err
    assert "recorded in market.db: task-posted-blocks-0" in err
    shown = run("ledger", "show", "task-posted-blocks-0", "--ledger", "market.db")[1]
    assert re.search(r"[0-9.]+ up to [0-9.]+, [0-9.]+ up to 1 ", shown)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((*EXPONENTIAL, "--value", 300), "--beliefs needs --ledger URL"),
        ((*EXPONENTIAL, "--ledger", "m.db"), "needs the means of cost and value"),
        (("--form", "blocks"), "--form requires --beliefs"),
        (("--cost", 4), "--cost requires --beliefs"),
        (
            (*EXPONENTIAL, "--value", 3, "--ledger", "m.db", "--scheme", "uniform"),
            "--scheme cannot be combined",
        ),
        (
            (*EXPONENTIAL, "--value", 3, "--ledger", "m.db", "--blocks", 2),
            "requires --form blocks",
        ),
        (("--beliefs", "none.csv", "--ledger", "m.db"), "none.csv"),
        (
            ("--beliefs", "others", "--ledger", "m.db"),
            "others works only with `fedprice post`; here, give",
        ),
    ],
)
def test_options_that_do_not_go_together(
    run: Run, options: tuple[object, ...], message: str
) -> None:
    code, out, err = run(*SIMULATE, *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("m.db").exists()


@pytest.mark.parametrize("config", ['form="blocks"', "sequential=true"])
def test_the_example_app_is_simulated_under_beliefs(run: Run, config: str) -> None:
    settings = f'pricing="beliefs" rounds=2 local-steps=2 {config}'
    code, out, err = run(
        "flower", "simulate", EXAMPLE, "--run-config", settings, "--ledger", "market.db"
    )
    assert code == 0, err
    assert (" up to " in out) == ("blocks" in config)
    assert "4 clients: 2 of 2 rounds" in verified(run, "market.db")


def test_the_example_app_refuses_a_pricing_that_there_is_not(run: Run) -> None:
    settings = 'pricing="belief" rounds=2'
    code, _, err = run(
        "flower", "simulate", EXAMPLE, "--run-config", settings, "--ledger", "market.db"
    )
    assert code == 2
    assert "`pricing` must be 'full' or 'beliefs'; got 'belief'." in err
