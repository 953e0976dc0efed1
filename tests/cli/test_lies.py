"""`fedprice compare --lies` and `fedprice price --outside`, run in process."""

import json
from pathlib import Path

import polars as pl
import pytest

from fedprice import Bound, Clients, Game, manipulability, population, refusals, solve
from tests.conftest import Run

ALPHA = ("--alpha", "3.3")
LIES = ("--scheme", "equilibrium", "--lies", 2)
FORTY = Game(population(), bound=Bound(alpha=3.3, rounds=1000), budget=200)


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    path = tmp_path / "clients.csv"
    population().write(path)
    return path


def losses(tmp_path: Path, **columns: float) -> Path:
    """Losses outside the federation, in another order than the clients."""
    path = tmp_path / "losses.csv"
    ids = [str(n) for n in range(40, 0, -1)]
    pl.DataFrame({"client_id": ids, **{name: [x] * 40 for name, x in columns.items()}}).write_csv(
        path
    )
    return path


def test_lies_shows_who_gains_and_who_pays(run: Run, clients: Path) -> None:
    code, out, err = run("compare", clients, *ALPHA, *LIES)
    assert (code, err) == (0, "")
    for text in (
        "the 10 that gain the most",
        "40 of 40",
        "median 1.509",
        "+12.53%",
        "19.37 less",
        "loss +100%",
        "0 of 40 are better off",
    ):
        assert text in out, text
    free = run("compare", clients, *ALPHA, *LIES, "--free-response")[1]
    assert "overspends" in free
    assert "by up to 61.89" in free


def test_lies_json_and_files(run: Run, clients: Path, tmp_path: Path) -> None:
    table, plot = tmp_path / "lies.csv", tmp_path / "lies.png"
    files = ("-o", table, "--plot", plot)
    five = (*LIES[:-1], 5)
    code, out, err = run("compare", clients, *ALPHA, *five, "--format", "json", *files)
    assert (code, err) == (0, f"wrote {table}\nwrote {plot}\n")
    answer = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    found = manipulability(FORTY, 5)
    assert answer["summary"] == found.summary()
    assert [row["report_cost"] for row in answer["clients"]] == found.cost.tolist()
    assert [row["gain"] for row in answer["clients"]] == found.gain.tolist()
    assert pl.read_csv(table)["largest_gain"].to_list() == [found.gain.max()]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_lies_that_exceed_the_budget_together(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    Clients(samples=[1, 1], grad_norm=1, cost=10, value=0, level_min=0.3).write(path)
    code, out, _ = run("compare", path, *ALPHA, *LIES, "--budget", 4.3)
    assert (code, "the budget no longer suffices" in out) == (0, True)
    code, out, err = run("compare", path, *ALPHA, *LIES, "--budget", 1)
    assert (code, out) == (3, "")
    assert "needs a budget of at least 3.6" in err


def test_price_that_nobody_refuses(run: Run, clients: Path) -> None:
    code, out, err = run("price", clients, *ALPHA, "--outside", "free")
    assert (code, err) == (0, "")
    joined = " ".join(out.split())
    assert "3 of 40 would refuse the equilibrium's prices: 7, 8, 14." in joined
    assert "the distance to full participation is 62.4% instead of 62.3%." in joined
    assert "Largest payers" not in out
    answer = json.loads(run("price", clients, *ALPHA, "--outside", "free", "--format", "json")[1])
    asked = refusals(solve(FORTY))
    assert [row["price"] for row in answer["clients"]] == asked.respected.prices.tolist()
    assert sum(row["refuses"] for row in answer["clients"]) == 3
    assert answer["summary"]["outside"] == "free"
    assert answer["summary"]["loss_increase"] == asked.loss_increase


def test_price_with_losses_outside(run: Run, clients: Path, tmp_path: Path) -> None:
    alone = run("price", clients, *ALPHA, "--outside", "stay")[1]
    assert "assumed to be as good" in alone
    assert "8 of 40 would refuse" in " ".join(alone.split())
    path = losses(tmp_path, without=0.016, own=2.1)
    for outside in ("stay", "nothing"):
        command = ("price", clients, *ALPHA, "--outside", outside, "--outside-losses", path)
        code, out, err = run(*command)
        assert (code, err) == (0, "")
        assert "Nobody would refuse" in out
        assert "assumed to be as good" not in out
    lines = path.read_text().splitlines()
    lines[1] = "40,0.016,0.0"  # its own model is perfect
    path.write_text("\n".join(lines))
    rows = json.loads(run(*command, "--format", "json")[1])["clients"]
    assert [row["client_id"] for row in rows if row["refuses"]] == ["40"]
    assert rows[39]["level_min"] > 0


def test_prices_that_nobody_refuses_may_cost_too_much(
    run: Run, clients: Path, tmp_path: Path
) -> None:
    command = ("price", clients, *ALPHA, "--outside", "free", "--max-weight", 1)
    code, out, err = run(*command, "--budget=-1")
    assert (code, out) == (3, "")
    assert "--outside free needs a budget of at least" in err
    least = float(err.split("at least ")[1].split(";")[0])
    assert run(*command, f"--budget={least}")[0] == 0
    path = losses(tmp_path, own=0.0)
    nothing = ("price", clients, *ALPHA, "--outside", "nothing", "--outside-losses", path)
    code, out, err = run(*nothing, "--budget", 1)
    assert (code, out) == (3, "")
    assert "--outside nothing found no prices within a budget of 1." in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare", "{clients}", "--lies=2"], "prices need the bound's α"),
        (["compare", "{clients}", "--alpha=3.3", "--lies=1"], "`factor` must be a finite number"),
        (["compare", "{clients}", "--alpha=3.3", "--lies=inf"], "above 1; got inf"),
        (["compare", "{clients}", "--alpha=3.3", "--free-response"], "--free-response requires"),
        (["price", "{clients}", "--alpha=3.3", "--outside=fre"], "free"),
        (["price", "{clients}", "--alpha=3.3", "--outside=nothing"], "FILE with the columns"),
        (
            ["price", "{clients}", "--alpha=3.3", "--outside=free", "--scheme=uniform"],
            "leave out --scheme",
        ),
        (
            ["price", "{clients}", "--alpha=3.3", "--outside=free", "--outside-losses={losses}"],
            "needs --outside stay or --outside nothing",
        ),
        (["price", "{clients}", "--alpha=3.3", "--outside-losses={losses}"], "needs --outside"),
        (
            ["price", "{clients}", "--alpha=3.3", "--outside=stay", "--outside-losses={losses}"],
            "the columns are client_id, own. Add by how much the loss of the best model without",
        ),
        (
            [
                "price",
                "{clients}",
                "--alpha=3.3",
                "--outside=nothing",
                "--outside-losses={clients}",
            ],
            "unknown column 'samples'",
        ),
        (
            ["price", "{clients}", "--alpha=3.3", "--outside=nothing", "--outside-losses={losses}"],
            "`own` must be finite numbers, at least 0; got -1",
        ),
    ],
)
def test_bad_input_is_one_line(
    run: Run, clients: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    path = losses(tmp_path, own=-1.0)
    code, out, err = run(*(a.format(clients=clients, losses=path) for a in arguments))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client_id,own\n1,1\n", "lacks clients '2', '3', '4', '5', '6' and 34 more"),
        ("client_id,own\nx,1\n", "client 'x', which the table of clients does not have"),
        ("client_id,own\n1,1\n1,2\n", "client ids must be distinct"),
    ],
)
def test_losses_of_other_clients(
    run: Run, clients: Path, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "losses.csv"
    path.write_text(text)
    outside = ("--outside", "nothing", "--outside-losses", path)
    code, _, err = run("price", clients, *ALPHA, *outside)
    assert (code, message in err) == (2, True), err


def test_a_loss_that_is_no_number(run: Run, tmp_path: Path) -> None:
    clients, path = tmp_path / "clients.csv", tmp_path / "losses.csv"
    Clients(samples=[1, 2], grad_norm=1, cost=1, value=1).write(clients)
    path.write_text("client_id,own\n2,3\n1,much\n")
    outside = ("--outside", "nothing", "--outside-losses", path)
    code, _, err = run("price", clients, *ALPHA, "--budget", 1, *outside)
    assert (code, "column 'own' must hold numbers; got 'much' in row 2" in err) == (2, True), err
