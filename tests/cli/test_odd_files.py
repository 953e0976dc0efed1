"""Files that are given where something else is needed: the error says what they are."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedprice as fp
from fedprice.calibration import Calibration, Fit
from tests.conftest import Run

EXPORT = '{"content":{"kind":"begin"},"hash":"ea58","number":1,"postings":[],"signature":""}\n'
SAID = {
    "believed.csv": "is a table of clients; fedprice price believed.csv prices it",
    "clients.csv": "is a table of clients; fedprice price clients.csv prices it",
    "clients.parquet": "is a table of clients; fedprice price clients.parquet prices it",
    "prices.csv": "is a result of fedprice; give the file that it was made from",
    "prices.json": "is a result of fedprice; give the file that it was made from",
    "beliefs.csv": "has beliefs; give it as --beliefs beliefs.csv",
    "calibration.json": "is a calibration; give it as --calibration calibration.json",
    "market.jsonl": "is an exported ledger; fedprice verify market.jsonl checks it",
    "market.db": "is a ledger; fedprice ledger runs --ledger market.db lists its runs",
    "wards.csv": "has data to train on; fedprice data show wards.csv shows them",
    "own.py": "is Python code; name a function in it, as own.py:FUNCTION",
}
TABLES = {"clients.csv", "clients.parquet", "believed.csv"}
COMMANDS = {
    ("price", "{}"): TABLES,
    ("compare", "{}", "--alpha", 1): TABLES,
    ("price", "clients.csv", "--calibration", "{}"): {"calibration.json"},
    ("price", "clients.csv", "--calibration={}"): {"calibration.json"},
    ("post", "clients.csv", "--alpha", 1, "--beliefs", "{}"): {"beliefs.csv"},
    ("data", "show", "{}"): {"wards.csv"},
    ("serve", "{}"): TABLES,
    ("verify", "{}"): {"market.jsonl", "market.db"},
    ("statement", "--client", "1", "--export", "{}"): {"market.jsonl", "market.db"},
    ("ledger", "verify", "--ledger", "{}"): {"market.db"},
    ("reveal", "{}"): set(),
}


@pytest.fixture
def files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from fedprice.market.ledger import Ledger

    monkeypatch.chdir(tmp_path)
    clients = fp.population(num_clients=3)
    clients.write("clients.csv")
    clients.write("clients.parquet")
    pl.DataFrame({"client_id": ["a", "b"], "samples": [1, 2]}).write_csv("believed.csv")
    for name in ("prices.csv", "prices.json"):
        assert run("price", "clients.csv", "--alpha", 1, "--budget", 20, "-o", name)[0] == 0
    fp.Beliefs.exponential(cost=50, value=100, cells=3).write("beliefs.csv")
    fit = Fit(4.0, 2.0, 8.0, 0.0, np.ones(3))
    Calibration(
        "test", ("1", "2", "3"), np.ones(3, int), "0" * 64, "memory", "plain", None, fit, None,
        np.array([5]), np.ones((2, 1)),
    ).write("calibration.json")  # fmt: skip
    Path("market.jsonl").write_text(EXPORT, encoding="utf-8")
    Ledger("sqlite:///market.db").close()
    pl.DataFrame({"client_id": ["a"], "label": ["x"], "f": [1.0]}).write_csv("wards.csv")
    Path("own.py").write_text("def mine(game):\n    return game\n", encoding="utf-8")
    return tmp_path


def test_every_file_is_named_where_something_else_is_needed(run: Run, files: Path) -> None:
    for command, taken in COMMANDS.items():
        for name in set(SAID) - taken:
            code, out, err = run(*(str(word).format(name) for word in command))
            assert (code, out, err.count("\n")) == (2, "", 1), err
            assert err.startswith(f"fedprice: {name} {SAID[name]}"), (command, err)


def test_a_file_that_is_what_it_should_be_keeps_its_own_error(run: Run, files: Path) -> None:
    whole = Path("clients.csv").read_text("utf-8")
    broken = whole.replace("client_id,samples", "client_id,smaples")
    Path("clients.csv").write_text(broken, encoding="utf-8")
    assert "Try --rename smaples=samples" in run("price", "clients.csv")[2]
    Path("clients.csv").write_text(whole, encoding="utf-8")
    Path("calibration.json").write_text('{"format": "fedprice calibration 1"}', encoding="utf-8")
    err = run("price", "clients.csv", "--calibration", "calibration.json")[2]
    assert "give it as" not in err
    err = run("price", "clients.csv", "--alpha", 1, "-o", "calibration.json")[2]
    assert "calibration.json exists" in err
    err = run("price", "own.json")[2]
    assert "cannot read own.json" in err
