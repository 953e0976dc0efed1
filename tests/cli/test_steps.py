"""`fedprice calibrate --steps`: pilots at several local steps, or calibrations of before."""

import json
from pathlib import Path

import polars as pl
import pytest

from fedprice.calibration import Calibration
from tests.conftest import Run

TASK = """
import fedprice as fp
import numpy as np

goals = np.array([0.0, 1.0, 5.0])

def task(local_steps=1):
    def update(model, client, round_, seed):
        noise = np.random.default_rng([seed, round_, client]).normal(size=1)
        return [(1 - 0.95**local_steps) * (goals[client] - model[0] + 0.1 * noise)]

    return fp.Task.of(
        initial=[np.zeros(1)],
        samples=[10, 10, 20],
        ids=["a", "b", "c"],
        update=update,
        evaluate=lambda model: {"loss": float((10 + (goals - model[0]) ** 2).mean())},
        name="goals",
    )

def fixed():
    return task()
"""
SPLIT = "client_id,compute,communication,value\nc,0.001,0.02,0\na,0.002,0.01,3\nb,0.001,0.03,0\n"
PILOTS = ("--levels", "0.2,0.9", "--repeats", 20, "--checkpoints", "5,10")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a task whose local steps can be set, and costs by step and by round."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(TASK, encoding="utf-8")
    Path("split.csv").write_text(SPLIT, encoding="utf-8")
    return tmp_path


GIVEN = ("--clients", "split.csv", "--budget", 30)
STEPS = ("--steps", "1,3", *GIVEN)


def test_pilots_find_the_best(run: Run) -> None:
    pilots = ("calibrate", "own.py:task", *GIVEN, "--steps", "2,4,8", *PILOTS)
    code, out, err = run(*pilots, "-o", "steps.json", "--plot", "steps.png")
    assert (code, err) == (0, "wrote steps.json\nwrote steps.png\n")
    answer = json.loads(Path("steps.json").read_text("utf-8"))
    rows = answer["steps"]
    assert [row["steps"] for row in rows] == list(range(2, 9))
    best = min(rows, key=lambda row: float(row["loss"]))["steps"]
    assert answer["best"]["steps"] == best
    assert f"best number of local steps: {best}" in out
    assert "the pilots' lowest, is used instead" in out  # functions know no least loss
    for row in answer["clients"]:
        split = row["price_per_step"] * best + row["price_per_round"]
        assert 1000 * split == pytest.approx(row["price"])
    assert [row["client_id"] for row in answer["clients"]] == ["a", "b", "c"]
    Path("own.csv").write_text(SPLIT.replace("client_id", "site"), encoding="utf-8")
    other = (*pilots[:2], "--clients", "own.csv", "--rename", "site=client_id", *pilots[4:])
    code, out, _ = run(*other, "--format", "csv")
    assert pl.read_csv(out.encode())["loss"].to_list() == [row["loss"] for row in rows]


def test_the_order_of_rows_changes_nothing_and_the_exponent_does(run: Run) -> None:
    head, *rows = SPLIT.splitlines()
    Path("sorted.csv").write_text("\n".join([head, *sorted(rows)]) + "\n", encoding="utf-8")
    found = []
    for clients, *more in (("split.csv",), ("sorted.csv",), ("split.csv", "--exponent", 3)):
        given = ("--clients", clients, "--budget", 30, "--steps", "1,3", *PILOTS)
        code, out, _ = run("calibrate", "own.py:task", *given, *more, "--format", "json")
        assert code == 0
        found.append(json.loads(out))
    assert found[0] == found[1]
    assert found[0]["steps"] != found[2]["steps"]
    assert [row["alpha"] for row in found[0]["steps"]] == [
        row["alpha"] for row in found[2]["steps"]
    ]


def test_calibrations_of_before_are_read(run: Run) -> None:
    Path("three.py").write_text(TASK + "\ndef three():\n    return task(3)\n", encoding="utf-8")
    for name in ("own.py:fixed", "three.py:three"):
        path = f"{name.partition(':')[2]}.json"
        code, _, err = run("calibrate", name, *PILOTS, "-o", path)
        assert code == 0, err
    read = ("--steps", "1=fixed.json,3=three.json")
    code, out, err = run("calibrate", *GIVEN, *read, "--format", "csv")
    assert code == 0, err
    rows = pl.read_csv(out.encode())
    assert rows["steps"].to_list() == [1, 2, 3]
    assert rows["alpha"][0] == pytest.approx(Calibration.read("fixed.json").alpha)
    limit = ("--time-limit", 60, "--step-time", 0.1, "--round-time", 0.2)
    code, out, _ = run("calibrate", *GIVEN, *read, *limit, "--format", "csv")
    assert (code, pl.read_csv(out.encode())["rounds"].to_list()) == (0, [200, 150, 120])
    code, _, err = run("calibrate", *GIVEN, *read, "--time-limit", 60)
    assert (code, "--time-limit needs --step-time and --round-time" in err) == (2, True)
    code, _, err = run("calibrate", "--clients", "split.csv", "--budget=-900", *read)
    assert (code, "infeasible: equilibrium needs a budget" in err) == (3, True)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--steps", "1,3", *GIVEN), "--steps E,E,… needs WHAT, whose pilots it runs"),
        (("--steps", "1=x.json", *GIVEN, "own.py:task"), "E=FILE,… reads calibrations instead"),
        (("own.py:task", "--steps", "1,3"), "--steps needs --budget and --clients FILE"),
        (("own.py:task", "--budget", 3), "--budget requires --steps E,E,…; leave it out."),
        (("own.py:task", "--plot", "x.png"), "--plot requires --steps E,E,…; leave it out."),
        ((*STEPS, "own.py:task", "--width", 1), "--width cannot be combined with --steps"),
        ((*STEPS, "own.py:fixed"), "own.py:fixed must take the argument `local_steps`"),
        ((*STEPS, "own.py:task", "--batch", 3), "--batch applies only to setups, digits"),
        ((*GIVEN, "own.py:task", "--steps", "3"), "--steps must be two or more whole numbers"),
        ((*GIVEN, "own.py:task", "--steps", "3,x"), "--steps must be numbers such as 20,30,50"),
        ((*STEPS, "app"), "the local steps of a Flower app are a setting of its own"),
        ((*GIVEN, "--steps", "1=y.json,x.json"), "must be E=FILE,E=FILE,…, such as 3=three.json"),
        ((*GIVEN, "--steps", "2=x.json"), "cannot read x.json"),
        ((*STEPS, "own.py:task", "--step-time", 3), "require --time-limit"),
        (
            (*STEPS, "own.py:task", "--rounds", 3, "--time-limit", 3),
            "--rounds cannot be combined with --time-limit",
        ),
        (
            ("own.py:task", "--steps", "1,3", "--budget", 3, "--clients", "costs.csv"),
            "costs.csv: unknown column 'cost'. The cost is split here into compute and",
        ),
        (
            ("own.py:task", "--steps", "1,3", "--budget", 3, "--clients", "less.csv"),
            "less.csv: there is no column 'value'",
        ),
        (
            ("own.py:task", "--steps", "1,3", "--budget", 3, "--clients", "two.csv"),
            "two.csv lacks client 'b' of the pilots' task",
        ),
    ],
)  # fmt: skip
def test_bad_input_gets_one_clear_line(run: Run, arguments: tuple[object, ...], line: str) -> None:
    Path("app").mkdir()
    Path("app/pyproject.toml").write_text("")
    Path("costs.csv").write_text("client_id,cost,value\na,1,2\n")
    Path("less.csv").write_text("client_id,compute,communication\na,1,2\n")
    Path("two.csv").write_text("client_id,compute,communication,value\na,1,2,3\nc,1,2,3\n")
    code, out, err = run("calibrate", *arguments)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1
