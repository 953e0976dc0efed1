"""`fedprice reveal`: costs and values from answers, a value from money per point of accuracy."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fedprice import Bound, Clients, Game, best_response, population, solve
from fedprice.beliefs.beliefs import Beliefs
from fedprice.calibration import Calibration, Fit, Slope
from tests.conftest import Run


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with answers of the forty clients, one of whom always joins."""
    monkeypatch.chdir(tmp_path)
    frames = []
    clients = population()
    game = Game(clients, Bound(alpha=3.3, rounds=1000), budget=200)
    best = solve(game)
    for share in (0.2, 0.5, 1.0):
        price = share * np.abs(best.prices)
        price[0] = 1e4
        columns = {"client_id": clients.ids.tolist(), "impact": game.impact, "price": price}
        frames.append(pl.DataFrame(columns | {"level": best_response(game, price)}))
    pl.concat(frames).write_csv("answers.csv")
    return tmp_path


def measured(slope: Slope | None) -> Calibration:
    return Calibration(
        name="toy", ids=("a", "b"), samples=np.array([1, 3]), task="0" * 64,
        aggregator="horvitz-thompson", server_step="plain", gradients=None,
        updates=Fit(2.0, 1.0, 3.0, 0.0, np.ones(2)), grad_norm_max=None, rounds=np.array([5]),
        pilots=np.array([[1.0], [0.5]]), accuracy=slope,
    )  # fmt: skip


def test_answers_become_costs_and_values(run: Run) -> None:
    code, out, err = run("reveal", "answers.csv")
    assert (code, err) == (0, "")
    assert "at its largest level at every price; offer lower prices" in out
    assert "39 of 40 clients identified. Offer low prices first" in out
    code, out, _ = run("reveal", "answers.csv", "--format", "json")
    rows = json.loads(out)["clients"]
    clients = population()
    assert rows[0]["cost"] is None
    assert [row["cost"] for row in rows[1:]] == pytest.approx(clients.cost[1:].tolist())
    assert rows[5]["cost_low"] <= rows[5]["cost"] <= rows[5]["cost_high"]


def test_what_is_written_can_be_priced(run: Run) -> None:
    code, _, err = run("reveal", "answers.csv", "-o", "terms.csv", "--beliefs", "beliefs.csv")
    left_out = "without client 1, not identified; `post` needs their types, too"
    assert (code, err) == (0, f"wrote terms.csv\nwrote beliefs.csv {left_out}\n")
    terms = pl.read_csv("terms.csv", schema_overrides={"client_id": pl.String})
    assert terms.columns == ["client_id", "cost", "value"]
    assert terms.height == 39
    clients = population()
    known = clients.to_frame().drop("cost", "value").join(terms, on="client_id")
    known.write_csv("clients.csv")
    code, out, err = run("price", "clients.csv", "--alpha", 3.3, "--format", "json")
    assert code == 0, err
    assert json.loads(out)["summary"]["spend"] == pytest.approx(200)
    types, own = Beliefs.read("beliefs.csv").groups(Clients.read("clients.csv"))
    means = np.array([types[n].means[0] for n in own])
    assert means == pytest.approx(clients.cost[1:], rel=1e-6)
    # Where files exist, nothing is written.
    code, _, err = run("reveal", "answers.csv", "-o", "new.csv", "--beliefs", "beliefs.csv")
    assert (code, "beliefs.csv exists" in err) == (2, True)
    assert not Path("new.csv").exists()


def test_a_value_from_money_per_point(run: Run) -> None:
    measured(Slope(15.9, 14.0, 17.8)).write("c.json")
    code, out, _ = run("reveal", "--calibration", "c.json", "--per-point", 251)
    assert code == 0
    assert "15.9 points per unit of loss" in out
    assert "3,991 per unit of loss" in out
    assert "3,514 to 4,468" in out
    code, out, _ = run("reveal", "--calibration", "c.json", "--per-point", 251, "--format", "json")
    assert json.loads(out)["value"]["value"] == pytest.approx(251 * 15.9)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ((), "give ANSWERS, or --calibration FILE with --per-point MONEY."),
        (("--calibration", "c.json"), "give ANSWERS, or --calibration FILE with --per-point"),
        (("answers.csv", "--per-point", 3), "give either ANSWERS, or --calibration with"),
        (("--calibration", "c.json", "--per-point", 3), "the pilots of toy recorded no accuracy"),
        (
            ("--calibration", "c.json", "--per-point", 3, "--beliefs", "b.csv"),
            "--beliefs applies only to ANSWERS",
        ),
        (("answers.csv", "--exponent", 1), "`cost_exponent` τ must be above 1"),
        (("bad.csv",), "bad.csv: `level` must be between 0 and `level_max`; got 2 in row 1"),
        (("answers.csv", "--beliefs", "b.json"), "use one of .csv, .parquet"),
    ],
)
def test_bad_input_gets_one_clear_line(run: Run, arguments: tuple[object, ...], line: str) -> None:
    measured(None).write("c.json")
    Path("bad.csv").write_text("client_id,impact,price,level\na,1,1,2\n")
    code, out, err = run("reveal", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("fedprice: ")
    assert line in err
    assert err.count("\n") == 1
