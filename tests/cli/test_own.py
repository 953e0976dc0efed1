"""A federation of one's own on the command line: calibrate, price, simulate and compare it."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedprice import Bound, Clients, Game, Outcome
from fedprice.calibration import Calibration, Fit
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
        "task": "0" * 64, "aggregator": "trotter-tukey", "server_step": "plain",
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
    assert "all values are 0, so that prices do not depend on α" in err
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
    assert (code, "Prices over α's interval" in out) == (0, True)
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
    assert "Prices over α's interval" in out
    assert "would refuse" in out


def test_every_command_prices_with_the_norms_that_are_asked_for(run: Run) -> None:
    gradients = Fit(9.0, 8.0, 10.0, 0.0, np.array([3.0, 1.0, 1.0]))
    both: dict[str, Any] = {"gradients": gradients, "grad_norm_max": gradients.norm}
    calibration(**both).write("both.json")
    calibration(**both).with_impact("gradients").write("paper.json")
    common = ("costs.csv", "--format", "csv", "--calibration")
    for command in (
        ("price", "--budget", 3), ("compare", "--budget", 3), ("frontier", "--budgets=3:5:2"),
        ("lies", "--budget", 3),
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
    lies = ("lies", "costs.csv", "--calibration", "c.json", "--budget", 3, "--format", "csv")
    code, out, err = run(*lies)
    assert code == 0, err
    rows = pl.read_csv(out.encode())
    assert rows["update_norm"].to_list() == [3, 1, 2]
    assert (rows["gain"] > 0).all()


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
    assert (code, "there is no column 'samples' or 'grad_norm'" in err) == (2, True)


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
        assert "goes with neither --outside nor --scheme" in err
    assert run("price", "costs.csv", "--alpha", 3, "--robust")[0] == 2


def test_compare_and_frontier_take_a_calibration(run: Run) -> None:
    calibration().write("c.json")
    both = ("costs.csv", "--calibration", "c.json")
    code, out, err = run("compare", *both, "--budget", 3, "--format", "json")
    assert (code, len(json.loads(out)["schemes"])) == (0, 3), err
    code, out, err = run("frontier", *both, "--budgets", "1:3:3", "--format", "json")
    assert (code, len(json.loads(out)["frontier"])) == (0, 3), err


def test_simulate_and_compare_train_a_task(run: Run, home: Path) -> None:
    calibration().write("c.json")
    common = ("--calibration", "c.json", "--budget", 3, "--rounds", 20, "--seeds", 2)
    code, out, err = run(
        "simulate", "own.py:task", "--clients", "costs.csv", *common, "--format", "json"
    )
    assert code == 0, err
    simulated = json.loads(out)["schemes"]
    assert list(simulated[0]) == [
        "scheme", "status", "spend", "expected_loss", "joiners", "loss", "loss_std",
    ]  # fmt: skip
    code, out, err = run("compare", "costs.csv", "--train", "own.py:task", *common, "--format=json")
    assert code == 0, err
    for one, other in zip(simulated, json.loads(out)["schemes"], strict=True):
        assert (one["scheme"], one["loss"]) == (other["scheme"], other["loss"])
    assert not any((home / "cache").rglob("*.npz"))


def test_a_data_file_is_simulated_as_a_market(run: Run) -> None:
    samples = json.loads(run("data", "show", "wards.csv", "--format", "json")[1])["clients"]
    counts = np.array([row["samples"] for row in samples])
    calibration(name="wards", samples=counts, aggregator="hajek",
                server_step="bounded 1.5 5 plain").write("c.json")  # fmt: skip
    code, _, err = run(
        "simulate", "wards.csv", "--clients", "costs.csv", "--calibration", "c.json", "--budget", 3,
        "--rounds", 5, "--seeds", 1, "--scheme", "equilibrium", "--local-steps", 5, "--batch", 8,
        "--learning-rate", 0.05, "--aggregator", "hajek", "--server-step", "bounded",
        "--max-weight", 2, "--ledger", "market.db",
    )  # fmt: skip
    assert code == 0, err
    assert "recorded in market.db: wards-equilibrium-0" in err
    assert (
        "5 of 5 rounds, settled"
        in run("ledger", "show", "wards-equilibrium-0", "--ledger=market.db")[1]
    )


@pytest.mark.parametrize(
    "command",
    [
        "simulate own.py:task --budget 3 --clients",
        "compare --train own.py:task",
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


def test_compare_calibrates_what_it_trains(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("costs.csv").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        code, out, err = run(
            "compare", "-", "--train", "own.py:task", "--budget", 3, "--rounds", 10, "--seeds", 1,
            "--format", "json",
        )  # fmt: skip
    assert code == 0, err
    rows = json.loads(out)["schemes"]
    assert [row["scheme"] for row in rows] == ["equilibrium", "weighted", "uniform"]
    assert all(row["loss"] > 0 for row in rows)


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
        "c.json", "--rounds", 3, "--seeds", 1, "--scheme", "uniform", "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["schemes"][0]["loss"] > 0


def test_alarms_go_to_stderr(run: Run) -> None:
    text = TASK.replace("0.5 *", "2.3 *").replace("[10, 10, 20]", "[10, 10, 2000]")
    Path("wild.py").write_text(text, encoding="utf-8")
    calibration(samples=np.array([10, 10, 2000])).write("c.json")
    code, _, err = run(
        "simulate", "wild.py:task", "--clients", "costs.csv", "--calibration", "c.json",
        "--budget", 30, "--rounds", 10, "--seeds", 1, "--scheme", "equilibrium",
    )  # fmt: skip
    assert code in (0, 6)
    assert "the loss is" in err


def test_a_table_under_other_names_trains_the_same(run: Run, home: Path) -> None:
    calibration().write("c.json")
    other = COSTS.replace("client_id", "hospital", 1).replace("cost", "cost_eur", 1)
    Path("other.csv").write_text(other, encoding="utf-8")
    more = ("--budget", 3, "--calibration", "c.json", "--rounds", 4, "--seeds", 1, "--format=csv")
    names = "hospital=client_id,cost_eur=cost"
    code, out, _ = run(
        "simulate", "own.py:task", "--clients", "other.csv", "--rename", names, *more
    )  # fmt: skip
    assert (code, out) == run("simulate", "own.py:task", "--clients", "costs.csv", *more)[:2]
    assert code == 0


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
        (["calibrate", "own.py:task", "--data", "x"], "--data is for setup2 and setup3; leave"),
        (["calibrate", "own.py:task", "--batch", "3"], "--batch is for setups, digits and data"),
        (["calibrate", "wards.csv", "--run-config", "a=1"], "--run-config is for Flower apps"),
        (["calibrate", "wards.csv", "--learning-rate=-1"], "--learning-rate must be above 0; got"),
        (["calibrate", "own.py:task", "--levels", "x"], "--levels must be numbers such as 0.1,0.3"),
        (["calibrate", "own.py:task", "--checkpoints", "1.5"], "--checkpoints must be numbers"),
        (["calibrate", "own.py:task", "--server-step", "adm"], "Did you mean 'adam'"),
        (["calibrate", "own.py:task", "--aggregator", "x"], "there is no aggregator 'x'"),
        (["data", "show", "own.py:task"], "data can be shown only for a setup, digits or"),
        (["simulate", "own.py:task"], "says nothing about costs and values: give --clients"),
        (["simulate", "own.py:task", "--clients", "costs.csv"], "no budget of its own"),
        ([*SIMULATE, "--calibration", "none.json"], "cannot read none.json"),
        ([*SIMULATE, "--calibration", "costs.csv"], "this is not a calibration"),
        ([*SIMULATE, "--calibration", "other.json"], "with other clients or samples than task"),
        (["price", "costs.csv", "--alpha=1", "--calibration=c.json"], "one of the two"),
        ([*CALIBRATE, "--levels=0.1,0.9", "--width=0.3"],
         "--width is for the search, which --levels switches off"),
        ([*CALIBRATE, "--repeats=4", "--clients=costs.csv"], "--clients is for the search"),
        ([*CALIBRATE, "--width=0"], "`width` must be above 0"),
        ([*CALIBRATE, "--limit=3"], "`limit` must be at least 10"),
        ([*CALIBRATE, "--clients=less.csv"], "less.csv lacks clients 'a', 'b'"),
        ([*CALIBRATE, "--impact=gradients", "--repeats=9", "--levels=0.1,1", "--max-weight=4"],
         "knows no norms of gradients"),
        (["price", "costs.csv", "--alpha=1", "--impact=updates"], "give --calibration FILE"),
        (["frontier", "costs.csv", "--budgets=1:2:2", "--alpha=1", "--impact=gradients"],
         "--impact chooses between the norms of a calibration"),
        (["price", "costs.csv", "--calibration=c.json", "--impact=gradients"],
         "goals knows no norms of gradients"),
        ([*SIMULATE, "--calibration", "c.json", "--impact", "gradients"],
         "goals knows no norms of gradients"),
        ([*CALIBRATE, "--clients=typo.csv"], "Try --rename costs=cost"),
        ([*CALIBRATE, "--rename=costs=cost"], "--rename is for the columns of CLIENTS, and there"),
        (["simulate", "own.py:task", "--clients=typo.csv", "--budget=1"], "--rename costs=cost"),
        (["study", "own.py:task", "--clients=typo.csv"], "Try --rename costs=cost"),
        ([*CALIBRATE, "--clients=full.csv", "--rename=samples=samples"],
         "leave out the column 'samples'"),
        (["study", "own.py:task", "--rename=costs=cost"], "--rename is for the columns of CLIENTS"),
        (["price", "more.csv", "--calibration=c.json"], "more.csv has client 'd', which the"),
        (["price", "less.csv", "--calibration=c.json"], "less.csv lacks clients 'a', 'b' of"),
        (["price", "full.csv", "--calibration=c.json"], "leave out the column 'samples'"),
        (["price", "typo.csv", "--calibration=c.json"], "Try --rename costs=cost"),
        (["price", "text.csv", "--calibration=c.json"], "text.csv: column 'cost' must hold"),
        (["price", "twice.csv", "--calibration=c.json"], "twice.csv: client ids must be distinct"),
        (["compare", "costs.csv", "--alpha=1", "--train=own.py:task"], "or 'grad_norm'; the"),
        (["compare", "whole.csv", "--alpha=1", "--train=own.py:task"], "client 'a' has 0.3333"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(run: Run, home: Path, arguments: list[str], message: str) -> None:
    calibration().write("c.json")
    calibration(samples=np.array([10, 10, 21])).write("other.json")
    for name, text in {
        "more": f"{COSTS}d,1,0\n",
        "less": "client_id,cost,value\nc,3,0\n",
        "full": "client_id,cost,value,samples\na,3,0,1\nb,1,1,1\nc,1,1,1\n",
        "typo": "client_id,costs,value\na,3,0\nb,1,1\nc,1,1\n",
        "text": "client_id,cost,value\na,3,0\nb,x,1\nc,1,1\n",
        "twice": "client_id,cost,value\na,3,0\nb,1,1\nc,1,1\nc,1,1\n",
        "whole": "client_id,samples,grad_norm,cost,value\na,1,1,3,0\nb,1,1,1,1\nc,1,1,1,1\n",
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
