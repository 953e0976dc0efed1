"""A federation of one's own on the command line: calibrate, price, simulate and compare it."""

import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from fedprice import Bound, Clients, Game, Outcome
from fedprice.calibration import Calibration, Fit
from fedprice.cli.simulate import _screen
from tests.conftest import Run

TASK = """
import fedprice as fp
import numpy as np

goals = np.array([0.0, 1.0, 5.0])

def update(model, client, round_, seed):
    noise = np.random.default_rng([seed, round_, client]).normal(size=1)
    return [0.5 * (goals[client] - model[0]) + 0.1 * noise]

def task():
    return fp.Task.of(
        initial=[np.zeros(1)],
        samples=[10, 10, 20],
        ids=["a", "b", "c"],
        update=update,
        evaluate=lambda model: {"loss": float(((goals - model[0]) ** 2).mean())},
        name="goals",
    )

def wrong():
    return 3

def broken():
    raise RuntimeError("no data")
"""

COSTS = "client_id,cost,value\nc,3,0\na,4,900\nb,5,100\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a task, a data file, costs and values, and a cache of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("own.py").write_text(TASK, encoding="utf-8")
    Path("costs.csv").write_text(COSTS, encoding="utf-8")
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=120)
    pl.DataFrame(
        {
            "client_id": ["a"] * 40 + ["b"] * 30 + ["c"] * 50,
            "label": labels,
            "x": labels + rng.normal(size=120),
        }
    ).write_csv("wards.csv")
    return tmp_path


def calibration(low: float = 2.0, high: float = 8.0, **changes: Any) -> Calibration:
    fit = Fit(4.0, low, high, 0.0, np.array([1.0, 2.0, 3.0]))
    whole: dict[str, Any] = {
        "name": "goals", "ids": ("a", "b", "c"), "samples": np.array([10, 10, 20]),
        "task": "0" * 64, "aggregator": "memory", "server_step": "plain",
        "gradients": None, "updates": fit, "grad_norm_max": None, "rounds": np.array([5]),
        "pilots": np.array([[1.0], [0.5]]),
    }  # fmt: skip
    return Calibration(**(whole | changes))


def test_a_calibration_is_written_and_priced_with(run: Run, home: Path) -> None:
    pilots = ("calibrate", "own.py:task", "--levels", "0.1,0.9", "--repeats", 8)
    code, out, err = run(*pilots, "--checkpoints", "5,10", "--max-weight", 4, "-o", "c.json")
    assert (code, err) == (0, "wrote c.json\n")
    assert "α for them" in out
    assert "fedprice price CLIENTS.csv --calibration c.json" in out
    assert "gradient norms" not in out
    found = Calibration.read("c.json")
    assert found.norms == "updates"
    code, out, err = run(*pilots, "--checkpoints", "5,10", "--max-weight", 4, "--format", "json")
    assert (code, out) == (0, Path("c.json").read_text("utf-8")), err
    code, out, err = run(
        "price", "costs.csv", "--calibration", "c.json", "--budget", 3, "--format", "json"
    )
    assert code == 0, err
    answer = json.loads(out)
    assert [row["client_id"] for row in answer["clients"]] == ["c", "a", "b"]
    assert [row["samples"] for row in answer["clients"]] == [20, 10, 10]
    assert [row["update_norm"] for row in answer["clients"]] == found.updates.norm[
        [2, 0, 1]
    ].tolist()
    assert (answer["summary"]["alpha"], answer["summary"]["norms"]) == (found.alpha, "updates")


def test_calibrate_tells_how_it_searched_and_stops_early_where_values_are_equal(run: Run) -> None:
    command = ("calibrate", "own.py:task", "--width", 1, "--limit", 20, "--max-weight", 4)
    code, out, err = run(*command, "--format", "json")
    assert code == 0, err
    searched = json.loads(out)["search"]
    assert (searched["width"], searched["limit"]) == (1.0, 20)
    lines = err.splitlines()
    assert len(lines) == len(searched["steps"]) > 1
    for line, step in zip(lines, searched["steps"], strict=True):
        assert line.startswith(f"{step['purpose']}: levels ")
        assert line.endswith(step["said"])
    Path("sellers.csv").write_text("client_id,cost,value\na,4,0\nb,5,0\nc,3,0\n")
    code, out, err = run(*command, "--clients", "sellers.csv", "-o", "c.json")
    assert code == 0, err
    assert "all values are 0, so prices do not depend on α" in err
    assert "prices do not depend on α" in " ".join(out.split())
    found = Calibration.read("c.json").search
    assert found is not None
    assert found.steps[-1].repeats <= searched["steps"][-1]["repeats"]


def test_prices_at_the_ends_of_the_interval(run: Run) -> None:
    calibration().write("c.json")
    priced = ("price", "costs.csv", "--calibration", "c.json", "--budget", 3)
    rows = pl.read_csv(run(*priced, "--format", "csv")[1].encode())
    assert rows.columns[-2:] == ["price_alpha_low", "price_alpha_high"]
    for end, alpha in (("low", 2.0), ("high", 8.0)):
        calibration().with_alpha(alpha).write("end.json", force=True)
        known = run(
            "price", "costs.csv", "--calibration", "end.json", "--budget", 3, "--format=csv"
        )
        assert (
            pl.read_csv(known[1].encode())["price"].to_list()
            == rows[f"price_alpha_{end}"].to_list()
        )
    code, out, _ = run(*priced)
    assert (code, "How prices change with α" in out) == (0, True)
    assert "α = 4, 95 % from 2 to 8, for norms of updates." in out
    # Nobody values the model, so α only scales what everybody is worth.
    Path("sellers.csv").write_text("client_id,cost,value\na,4,0\nb,5,0\nc,3,0\n")
    priced = ("price", "sellers.csv", "--calibration", "c.json", "--budget", 3)
    code, out, _ = run(*priced)
    assert (code, "prices are the same at both ends" in out) == (0, True)
    assert "price_alpha_low" not in run(*priced, "--format", "csv")[1]


def test_prices_that_nobody_refuses_at_the_ends_of_the_interval(run: Run) -> None:
    Path("eager.csv").write_text("client_id,cost,value\nc,3,0\na,4,9000\nb,5,10\n")
    options = ("--budget", 3, "--max-weight", 9, "--outside", "free")
    calibration().write("c.json")
    priced = ("price", "eager.csv", "--calibration", "c.json", *options)
    rows = pl.read_csv(run(*priced, "--format", "csv")[1].encode())
    assert rows["refuses"].to_list() == [False, True, False]
    for end, alpha in (("low", 2.0), ("high", 8.0)):
        calibration().with_alpha(alpha).write("end.json", force=True)
        known = run("price", "eager.csv", "--calibration", "end.json", *options, "--format=csv")
        prices = pl.read_csv(known[1].encode())["price"]
        assert prices.to_list() == rows[f"price_alpha_{end}"].to_list()
    out = run(*priced)[1]
    assert "How prices change with α" in out
    assert "would refuse" in out


def test_every_command_prices_with_the_norms_that_are_asked_for(run: Run) -> None:
    gradients = Fit(9.0, 8.0, 10.0, 0.0, np.array([3.0, 1.0, 1.0]))
    both: dict[str, Any] = {"gradients": gradients, "grad_norm_max": gradients.norm}
    calibration(**both).write("both.json")
    calibration(**both).with_impact("gradients").write("paper.json")
    common = ("costs.csv", "--format", "csv", "--calibration")
    for command in (
        ("price", "--budget", 3), ("compare", "--budget", 3), ("price", "--budgets=3:5:2"),
        ("compare", "--scheme", "equilibrium", "--lies", 2, "--budget", 3),
    ):  # fmt: skip
        usual = run(*command, *common, "both.json")
        asked = run(*command, *common, "both.json", "--impact", "gradients")
        assert (usual[0], asked[0]) == (0, 0), usual[2] + asked[2]
        assert usual[1] != asked[1]
        assert asked == run(*command, *common, "paper.json")
        assert usual == run(*command, *common, "paper.json", "--impact", "updates")
    rows = pl.read_csv(run("price", "--budget", 3, *common, "paper.json")[1].encode())
    assert rows["grad_norm"].to_list() == [1.0, 3.0, 1.0]
    assert "update_norm" not in rows.columns


def test_lies_take_a_calibration(run: Run) -> None:
    calibration().write("c.json")
    lies = ("compare", "costs.csv", "--calibration", "c.json", "--budget", 3, "--lies", 2)
    code, out, err = run(*lies, "--scheme", "equilibrium", "--format", "json")
    assert code == 0, err
    rows = json.loads(out)["clients"]
    assert [row["update_norm"] for row in rows] == [3, 1, 2]
    assert all(row["gain"] > 0 for row in rows)


def test_post_takes_a_calibration_without_costs_and_values(run: Run) -> None:
    calibration().write("c.json")
    Path("ids.csv").write_text("client_id,class\nc,x\na,y\nb,x\n", encoding="utf-8")
    Path("beliefs.csv").write_text(
        "class,cost,value,probability\nx,3,0,0.5\nx,6,100,0.5\ny,4,900,1\n", encoding="utf-8"
    )
    post = ("post", "ids.csv", "--calibration", "c.json", "--beliefs", "beliefs.csv")
    terms = ("--budget", 3, "--format", "json")
    once, robust = (json.loads(run(*post, *terms, *more)[1]) for more in ((), ("--robust",)))
    assert [row["update_norm"] for row in once["clients"]] == [3, 1, 2]
    assert [row["class"] for row in once["clients"]] == ["x", "y", "x"]
    assert once["summary"]["alpha"] == 4
    assert (robust["summary"]["alpha_low"], robust["summary"]["alpha_high"]) == (2, 8)
    assert robust["summary"]["expected_spend"] < once["summary"]["expected_spend"]
    code, _, err = run(*post[:2], "--alpha", 3, *post[4:])
    assert (code, "there is no column 'samples'" in err) == (2, True)


def test_robust_prices_keep_the_budget_over_the_interval(run: Run) -> None:
    calibration().write("c.json")
    priced = ("price", "costs.csv", "--calibration", "c.json", "--budget", 3)
    code, out, err = run(*priced, "--robust")
    assert (code, err) == (0, "")
    assert "largest over α" in out
    for known in ("posted", "±", "beliefs", "lottery", "expected level"):  # types are known
        assert known not in out
    answer = json.loads(run(*priced, "--robust", "--format", "json")[1])
    prices = np.array([row["price"] for row in answer["clients"]])
    assert (prices < 0).any()
    assert (prices > 0).any()
    clients = Clients(
        samples=[20, 10, 10], grad_norm=[3, 1, 2], cost=[3, 4, 5], value=[0, 900, 100]
    )
    for alpha in (2, 4, 8):
        game = Game(clients, bound=Bound(alpha=alpha, rounds=1000), budget=3)
        assert Outcome.from_prices(game, prices, scheme="robust").spend <= 3 + 1e-9
    for more in (("--outside", "free"), ("--scheme", "uniform")):
        code, out, err = run(*priced, "--robust", *more)
        assert (code, out) == (2, "")
        assert "cannot be combined with --outside, --scheme or --pay cost" in err
    assert run("price", "costs.csv", "--alpha", 3, "--robust")[0] == 2


def test_compare_and_budgets_take_a_calibration(run: Run) -> None:
    calibration().write("c.json")
    both = ("costs.csv", "--calibration", "c.json")
    code, out, err = run("compare", *both, "--budget", 3, "--format", "json")
    assert (code, len(json.loads(out)["schemes"])) == (0, 3), err
    code, out, err = run("price", *both, "--budgets", "1:3:3", "--format", "json")
    assert (code, len(json.loads(out)["frontier"])) == (0, 3), err


def test_simulate_trains_a_task(run: Run, home: Path) -> None:
    calibration().write("c.json")
    common = ("--calibration", "c.json", "--budget", 3, "--rounds", 20, "--format", "json")
    code, out, err = run("simulate", "own.py:task", "--clients", "costs.csv", *common)
    assert code == 0, err
    simulated = json.loads(out)
    assert list(simulated["result"]) == ["status", "spend", "expected_loss", "joiners", "loss"]
    assert list(simulated["settings"]) == [
        "what", "scheme", "budget", "largest_weight", "norms", "rounds", "seed", "aggregator",
        "server_step", "coins", "availability", "delivery",
    ]  # fmt: skip
    assert (simulated["settings"]["budget"], simulated["settings"]["largest_weight"]) == (3, 1)
    other = run("simulate", "own.py:task", "--clients", "costs.csv", *common, "--seed", 1)[1]
    assert json.loads(other)["result"]["loss"] != simulated["result"]["loss"]
    assert not any((home / "cache").rglob("*.npz"))


def test_one_default_for_the_largest_weight(run: Run) -> None:
    """`simulate` had 1 and `study` none, and neither said so."""
    calibration().write("c.json")
    common = ("own.py:task", "--clients", "costs.csv", "--calibration", "c.json", "--budget", 3)
    few = ("--rounds", 3, "--format", "json")
    settings = json.loads(run("simulate", *common, *few)[1])["settings"]
    code, out, err = run("study", *common, "--rounds", 3, "--seeds", 2, "--cells", "cells")
    assert (code, settings["largest_weight"]) == (0, 1), err
    assert "warning: 2 seeds give no interval and no verdict; at least 5 do." in err
    assert "largest weight 1;" in " ".join(out.split())


def test_coins_and_availability_on_the_command_line(run: Run) -> None:
    calibration().write("c.json")
    common = (*SIMULATE, "--calibration", "c.json", "--rounds", 20, "--seed", 1)
    results = {}
    for kind in ("independent", "spaced", "blocks", "shared"):
        code, out, err = run(*common, "--coins", kind, "--format", "json")
        assert code == 0, err
        results[kind] = json.loads(out)["result"]["loss"]
    assert len(set(results.values())) == 4
    Path("trace.csv").write_text("client,from,to\na,0,20\nb,0,9\nc,5,12\n", encoding="utf-8")
    for kind in ("markov:0.5,5", "trace.csv"):
        code, out, err = run(*common, "--availability", kind, "--format", "json")
        assert code == 0, err
        assert json.loads(out)["result"]["loss"] not in results.values()
    code, _, err = run(*common, "--coins", "spaced", "--ledger", "market.db")
    assert (code, err.count("\n")) == (2, 1)
    assert "a market has coins of its own" in err


def test_a_data_file_is_simulated_as_a_market(run: Run) -> None:
    samples = json.loads(run("data", "show", "wards.csv", "--format", "json")[1])["clients"]
    counts = np.array([row["samples"] for row in samples])
    calibration(name="wards", samples=counts, aggregator="hajek",
                server_step="bounded 1.5 5 plain").write("c.json")  # fmt: skip
    code, printed, err = run(
        "simulate", "wards.csv", "--clients", "costs.csv", "--calibration", "c.json", "--budget", 3,
        "--rounds", 5, "--scheme", "equilibrium", "--local-steps", 5, "--batch", 8,
        "--learning-rate", 0.05, "--aggregator", "hajek", "--server-step", "bounded",
        "--max-weight", 2, "--ledger", "market.db",
    )  # fmt: skip
    assert code == 0, err
    assert "recorded in market.db: wards-equilibrium-0" in err
    assert (
        "5 of 5 rounds, settled"
        in run("ledger", "show", "wards-equilibrium-0", "--ledger=market.db")[1]
    )
    settings = " ".join(printed.split())
    assert "coins spaced" in settings  # they were called independent


def test_the_time_of_a_run_has_a_unit() -> None:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(_screen("digits", {"coins": "spaced"}, {"spend": 3.0, "time": 35.54}))
    assert re.search(r"simulated seconds +35\.54", captured.get())


@pytest.mark.parametrize(
    "command",
    [
        "simulate own.py:task --budget 3 --clients",
        "simulate setup1 --clients",
    ],
)
def test_a_broken_table_is_named_before_the_pilots(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    import_module("fedprice.cli.app")  # else it would be first imported with what is patched here
    patched = "fedprice.cli.training.run_pilots"
    monkeypatch.setattr(patched, lambda *_, **__: pytest.fail("pilots"))
    Path("less.csv").write_text("client_id,cost,value\nc,3,0\n", encoding="utf-8")
    code, out, err = run(*command.split(), "less.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "less.csv " in err


def test_a_flower_app_is_calibrated_and_simulated(run: Run) -> None:
    app = Path(__file__).parents[2] / "examples" / "flower-app"
    Path("costs.csv").write_text("client_id,cost,value\n1,4,0\n2,6,10\n3,5,0\n", encoding="utf-8")
    settings = ("--run-config", "clients=3 local-steps=5")
    pilots = ("--levels", "0.05,1", "--checkpoints", "10,15", "--repeats", 14, "--max-weight", 5)
    for command in (("calibrate",), ("flower", "calibrate")):
        code, out, err = run(*command, app, *settings, *pilots, "-o", "c.json", "--force")
        assert (code, "update norms" in out) == (0, True), err
    code, out, err = run(
        "simulate", app, *settings, "--clients", "costs.csv", "--budget", 8, "--calibration",
        "c.json", "--rounds", 3, "--scheme", "uniform", "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["result"]["loss"] > 0


def test_alarms_go_to_stderr(run: Run) -> None:
    text = TASK.replace("0.5 *", "2.3 *").replace("[10, 10, 20]", "[10, 10, 2000]")
    Path("wild.py").write_text(text, encoding="utf-8")
    calibration(samples=np.array([10, 10, 2000])).write("c.json")
    code, _, err = run(
        "simulate", "wild.py:task", "--clients", "costs.csv", "--calibration", "c.json",
        "--budget", 30, "--rounds", 10, "--scheme", "equilibrium",
    )  # fmt: skip
    assert code in (0, 6)
    assert "the loss is" in err


def test_unbiased_memory_warns_of_large_and_rare_clients(run: Run) -> None:
    told = {}
    for name in ("memory", "unbiased-memory", "fedvarp"):
        calibration(aggregator=name).write(f"{name}.json")
        code, _, err = run(
            *SIMULATE, "--calibration", f"{name}.json", "--rounds", 2,
            "--scheme", "equilibrium", "--aggregator", name,
        )  # fmt: skip
        assert code == 0, err
        told[name] = "can take training along in one step" in " ".join(err.split())
    assert told == {"memory": False, "unbiased-memory": True, "fedvarp": True}


def test_a_table_under_other_names_trains_the_same(run: Run, home: Path) -> None:
    calibration().write("c.json")
    other = COSTS.replace("client_id", "hospital", 1).replace("cost", "cost_eur", 1)
    Path("other.csv").write_text(other, encoding="utf-8")
    more = ("--budget", 3, "--calibration", "c.json", "--rounds", 4, "--format=csv")
    names = "hospital=client_id,cost_eur=cost"
    code, out, _ = run(
        "simulate", "own.py:task", "--clients", "other.csv", "--rename", names, *more
    )  # fmt: skip
    assert (code, out) == run("simulate", "own.py:task", "--clients", "costs.csv", *more)[:2]
    assert code == 0


ONE_TABLE = """hospital,patients,cost_eur,update_norm
c,20,3,3
a,10,1,1
b,12,2,2
"""
RENAME = ("--rename", "hospital=client_id,patients=samples,cost_eur=cost")


def test_one_table_serves_whatever_is_measured(run: Run, home: Path) -> None:
    """It took a table per command: without samples, without norms, with values."""
    calibration().write("c.json")
    Path("one.csv").write_text(ONE_TABLE, encoding="utf-8")
    Path("names.csv").write_text(
        ONE_TABLE.replace("c,", "Camden,").replace("a,", "Ashford,").replace("b,", "Barrow,"),
        "utf-8",
    )
    said = (
        "the column 'samples' differs from what was measured for 1 of 3 clients, most for 'b': 12, "
        "measured 10. What was measured is used.\n"
    )
    measured = ("--calibration", "c.json", "--budget", 3)
    train = ("--rounds", 4)
    for command in (
        ("price", "one.csv", *measured, "--format", "csv"),
        ("compare", "one.csv", *measured, "--format", "csv"),
        ("simulate", "own.py:task", "--clients", "one.csv", *measured, *train, "--format", "csv"),
        ("study", "own.py:task", "--clients", "one.csv", *measured, *train, "--seeds", 2, "--out",
         "out", "--cells", "cells"),
    ):  # fmt: skip
        code, _, err = run(*command, *RENAME)
        assert code == 0, err
        assert f"one.csv: {said}" in err
        if command[0] != "price":  # which lists it with its other assumptions
            assert "one.csv: value is assumed to be 0 for every client" in err
    prices = [
        json.loads(run("price", table, *measured, "--format", "json", *more, *RENAME)[1])["clients"]
        for table, more in (("one.csv", ()), ("names.csv", ("--by-order",)))
    ]
    assert [row["client_id"] for row in prices[0]] == ["c", "a", "b"]
    assert [row["samples"] for row in prices[0]] == [20, 10, 10]
    assert [row["client_id"] for row in prices[1]] == ["Camden", "Ashford", "Barrow"]
    assert [row["samples"] for row in prices[1]] == [10, 10, 20]


def test_values_are_those_of_the_clients_and_not_of_the_rows(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search for pilots took values in the order of the file."""
    values: list[list[float]] = []

    def pilots(*_: object, value: np.ndarray[Any, Any], **settings: object) -> Calibration:
        values.append(value.tolist())
        return calibration()

    monkeypatch.setattr(sys.modules["fedprice.cli.calibrate"], "run_pilots", pilots)
    Path("mixed.csv").write_text("client_id,cost,value\nc,1,30\na,1,10\nb,1,20\n", "utf-8")
    assert run("calibrate", "own.py:task", "--clients", "mixed.csv")[0] == 0
    assert run("calibrate", "own.py:task", "--clients", "mixed.csv", "--by-order")[0] == 0
    assert values == [[10, 20, 30], [30, 10, 20]]
    Path("one.csv").write_text(ONE_TABLE, encoding="utf-8")
    code, _, err = run("calibrate", "own.py:task", "--clients", "one.csv", *RENAME)
    assert code == 0, err
    assert "the column 'samples' differs from what was measured" in err
    assert values[-1] == [0, 0, 0]


CALIBRATE = ["calibrate", "own.py:task"]
SIMULATE = ["simulate", "own.py:task", "--clients", "costs.csv", "--budget", "3"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibrate", "own.py"], "own.py does not name a function; write own.py:FUNCTION."),
        (["calibrate", "none.py:task"], "there is no task 'none.py:task': no Python file none.py."),
        (["calibrate", "own.py:tusk"], "own.py has no function 'tusk'"),
        (["calibrate", "own.py:wrong"], "own.py:wrong must return a Task; got int."),
        (["calibrate", "own.py:broken"], "task 'own.py:broken' failed: RuntimeError: no data."),
        (["calibrate", "."], "not of a Flower app: it has no pyproject.toml"),
        (["calibrate", "none.csv"], "none.csv: No such file"),
        (["calibrate", "setup4"], "there is no setup 'setup4', nor a file or directory"),
        (["calibrate", "own.py:task", "--data", "x"], "--data applies only to setup2 and setup3"),
        (["calibrate", "own.py:task", "--batch", "3"], "--batch applies only to setups, digits"),
        (["calibrate", "wards.csv", "--run-config", "a=1"], "--run-config applies only to Flower"),
        (["calibrate", "wards.csv", "--learning-rate=-1"], "--learning-rate must be above 0; got"),
        (["calibrate", "own.py:task", "--levels", "x"], "--levels must be numbers such as 0.1,0.3"),
        (["calibrate", "own.py:task", "--checkpoints", "1.5"], "--checkpoints must be numbers"),
        (["calibrate", "own.py:task", "--server-step", "adm"], "Did you mean 'adam'"),
        (["calibrate", "own.py:task", "--aggregator", "x"], "there is no aggregator 'x'"),
        (["data", "show", "own.py:task"], "data can be shown only for a setup, digits or"),
        (["simulate", "own.py:task"], "says nothing about costs and values: give --clients"),
        (["simulate", "own.py:task", "--clients", "costs.csv"], "no budget of its own"),
        ([*SIMULATE, "--coins", "x"], "must be independent, spaced, blocks or shared; got 'x'"),
        ([*SIMULATE, "--availability", "x"], "there is no availability 'x', nor a CSV file"),
        ([*SIMULATE, "--availability", "by-label:9"], "needs a fp.LogisticRegression"),
        ([*SIMULATE, "--calibration", "none.json"], "cannot read none.json"),
        ([*SIMULATE, "--calibration", "costs.csv"], "costs.csv is a table of clients; fedprice"),
        ([*SIMULATE, "--calibration", "other.json"], "with other clients or samples than task"),
        (["price", "costs.csv", "--alpha=1", "--calibration=c.json"], "--alpha cannot be combined"),
        ([*CALIBRATE, "--levels=0.1,0.9", "--width=0.3"],
         "--width applies to the search, which --levels switches off"),
        ([*CALIBRATE, "--repeats=4", "--clients=costs.csv"], "--clients applies to the search"),
        ([*CALIBRATE, "--width=0"], "`width` must be above 0"),
        ([*CALIBRATE, "--limit=3"], "`limit` must be at least 10"),
        ([*CALIBRATE, "--clients=less.csv"], "less.csv lacks clients 'a', 'b'"),
        ([*CALIBRATE, "--impact=gradients", "--repeats=9", "--levels=0.1,1", "--max-weight=4",
          "--aggregator=horvitz-thompson"], "has no gradient norms"),
        (["price", "costs.csv", "--alpha=1", "--impact=updates"], "give --calibration FILE"),
        (["price", "costs.csv", "--budgets=1:2:2", "--alpha=1", "--impact=gradients"],
         "--impact chooses between the norms of a calibration"),
        (["price", "costs.csv", "--calibration=c.json", "--impact=gradients"],
         "goals has no gradient norms"),
        ([*SIMULATE, "--calibration", "c.json", "--impact", "gradients"],
         "goals has no gradient norms"),
        ([*CALIBRATE, "--clients=typo.csv"], "Try --rename costs=cost"),
        ([*CALIBRATE, "--rename=costs=cost"], "--rename applies to the columns of CLIENTS"),
        (["simulate", "own.py:task", "--clients=typo.csv", "--budget=1"], "--rename costs=cost"),
        (["study", "own.py:task", "--clients=typo.csv"], "Try --rename costs=cost"),
        ([*CALIBRATE, "--by-order"], "--by-order is for the rows of CLIENTS, and there"),
        ([*CALIBRATE, "--clients=names.csv"], "names 'a', 'b', 'c'. If the rows are in that order"),
        ([*CALIBRATE, "--clients=less.csv", "--by-order"], "less.csv has 1 rows, and task 3"),
        (["price", "names.csv", "--calibration=c.json"],
         "names.csv names 'Ashford', 'Barrow', 'Camden'; the calibration of goals names 'a', 'b',"),
        (["price", "whole.csv", "--alpha=1", "--by-order"], "--by-order matches rows with"),
        (["study", "own.py:task", "--rename=costs=cost"], "--rename applies to the"),
        (["price", "more.csv", "--calibration=c.json"], "more.csv has client 'd', which the"),
        (["price", "less.csv", "--calibration=c.json"], "less.csv lacks clients 'a', 'b' of"),
        (["price", "city.csv", "--calibration=c.json"], "city.csv: unknown column 'city'"),
        (["price", "city.csv", "--alpha=1"], "city.csv: unknown column 'city'"),
        (["price", "typo.csv", "--calibration=c.json"], "Try --rename costs=cost"),
        (["price", "text.csv", "--calibration=c.json"], "text.csv: column 'cost' must hold"),
        (["price", "twice.csv", "--calibration=c.json"], "twice.csv: client ids must be distinct"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(run: Run, home: Path, arguments: list[str], message: str) -> None:
    calibration().write("c.json")
    calibration(samples=np.array([10, 10, 21])).write("other.json")
    for name, text in {
        "more": f"{COSTS}d,1,0\n",
        "less": "client_id,cost,value\nc,3,0\n",
        "names": "client_id,cost,value\nAshford,3,0\nBarrow,1,1\nCamden,1,1\n",
        "city": "client_id,cost,samples,city\na,3,10,x\nb,1,10,y\nc,1,20,z\n",
        "typo": "client_id,costs,value\na,3,0\nb,1,1\nc,1,1\n",
        "text": "client_id,cost,value\na,3,0\nb,x,1\nc,1,1\n",
        "twice": "client_id,cost,value\na,3,0\nb,1,1\nc,1,1\nc,1,1\n",
    }.items():
        Path(f"{name}.csv").write_text(text, encoding="utf-8")
    before = sorted(path for path in home.iterdir() if path.name != "cache")
    code, out, err = run(*arguments)
    assert (code, out) == (2, ""), err
    assert err.startswith("fedprice: ")
    assert err.count("\n") == 1
    assert message in err
    assert (
        sorted(path for path in home.iterdir() if path.name not in ("cache", "__pycache__"))
        == before
    )
