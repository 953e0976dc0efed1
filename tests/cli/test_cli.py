"""The command line, run in process; what users type, what they see, and how it ends."""

import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from fedprice import SCHEMES, Bound, Clients, Game, population, solve
from fedprice.cli.app import MOVED
from fedprice.cli.console import FinishedError, StoppedError
from fedprice.errors import (
    DivergedError,
    FedpriceError,
    InfeasibleError,
    InputError,
    MissingExtraError,
    UndeliveredError,
    UnverifiedError,
)
from fedprice.flower.processes import DeploymentError
from fedprice.market.ledger_errors import DamagedError, LedgerError
from tests.conftest import Run

ALPHA = ("--alpha", "3.3")


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    path = tmp_path / "clients.csv"
    population().write(path)
    return path


def test_example_is_the_population(run: Run, tmp_path: Path) -> None:
    code, out, err = run("data", "example", "-o", tmp_path / "new.csv")
    assert (code, out) == (0, "")
    assert err.endswith("new.csv; price them with --alpha 3.3\n")
    assert Clients.read(tmp_path / "new.csv").cost.tolist() == population().cost.tolist()
    assert run("data", "example")[1] == (tmp_path / "new.csv").read_text()
    assert run("data", "example", "--clients", 3, "--seed", 1)[1].count("\n") == 4


def test_price_shows_summary_extremes_and_certificate(run: Run, clients: Path) -> None:
    code, out, err = run("price", clients, *ALPHA)
    assert (code, err) == (0, "")
    for text in ("equilibrium, 40 clients", "optimal", "200 of 200", "Largest payers", "3 of 40"):
        assert text in out
    assert sum("this is proven" in line for line in out.splitlines()) == 1


def test_price_json_is_the_outcome(run: Run, clients: Path) -> None:
    code, out, _ = run(
        "price", clients, *ALPHA, "--budget", 100, "--exponent", 3, "--format", "json"
    )
    assert code == 0
    answer = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    game = Game(population(), Bound(alpha=3.3, rounds=1000), budget=100, cost_exponent=3)
    best = solve(game)
    assert answer["summary"]["spend"] == best.spend
    assert [row["price"] for row in answer["clients"]] == best.prices.tolist()
    assert [row["client_id"] for row in answer["clients"]] == best.game.clients.ids.tolist()


def test_json_has_null_for_infinity(run: Run, clients: Path) -> None:
    _, out, _ = run("price", clients, *ALPHA, "--scheme", "subset", "--format", "json")
    answer = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert answer["summary"]["expected_loss"] is None
    assert answer["clients"][0]["utility"] is None


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".json"])
def test_price_writes_files(run: Run, clients: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"prices{suffix}"
    code, out, err = run("price", clients, *ALPHA, "-o", path, "--format", "csv")
    assert code == 0
    assert str(path) in err
    assert out.startswith("client_id,samples,grad_norm,cost,value,level_min,level_max,level,price,")
    if suffix == ".json":
        frame = pl.DataFrame(json.loads(path.read_text())["clients"])
    else:
        frame = pl.read_csv(path) if suffix == ".csv" else pl.read_parquet(path)
    assert frame["payment"].sum() == pytest.approx(200)
    assert (frame["payment"] < 0).sum() == 3
    if suffix == ".csv":
        assert path.read_text() == out


def test_output_is_in_the_order_of_the_input(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    names = [f"c{n}" for n in (5, 3, 9, 1)]
    Clients(samples=[4, 3, 2, 1], grad_norm=1, cost=1, value=0, ids=names).write(path)
    _, out, _ = run("price", path, *ALPHA, "--budget", 1, "--format", "csv")
    assert [line.split(",")[0] for line in out.splitlines()[1:]] == names


def test_formulas_in_names_are_quoted_and_payments_are_not(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    names = ["=cmd|' /C calc'!A0", "+1", "ok"]
    Clients(samples=[1, 2, 9], grad_norm=9, cost=1, value=[0, 0, 1e5], ids=names).write(path)
    _, out, _ = run("price", path, *ALPHA, "--budget", -1, "--format", "csv")
    lines = out.splitlines()
    assert lines[1].startswith("'=cmd")
    assert lines[2].startswith("'+1,")
    assert float(lines[3].split(",")[-2]) < 0


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize(
    "command",
    [
        ("price",),
        ("compare",),
        ("compare", "--scheme", "subset"),
        ("price", "--budgets", "200:400:3"),
    ],
)
def test_figures(
    run: Run, clients: Path, tmp_path: Path, command: tuple[str, ...], suffix: str
) -> None:
    path = tmp_path / f"figure{suffix}"
    code, _, err = run(command[0], clients, *ALPHA, *command[1:], "--plot", path)
    assert (code, err) == (0, f"wrote {path}\n")
    start = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(start)


OWN = """
import fedprice as fp

def mine(game):
    return fp.Outcome.from_prices(game, game.clients.cost / 20, scheme="mine")

@fp.scheme("draw", posts_prices=False, aggregator="median")
def drawn(game):
    return mine(game)
"""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    yield path
    SCHEMES.pop("draw", None)


def test_schemes_of_ones_own(run: Run, clients: Path, own: Path) -> None:
    code, out, err = run("price", clients, *ALPHA, "--scheme", f"{own}:mine", "--format", "json")
    assert (code, json.loads(out)["summary"]["scheme"]) == (0, "mine"), err
    both = ("--scheme", "uniform", "--scheme", f"{own}:mine")
    code, out, err = run("compare", clients, *ALPHA, *both, "--format", "json")
    assert [row["scheme"] for row in json.loads(out)["schemes"]] == ["uniform", "mine"], err
    for arguments, message in (
        (("price", clients, *ALPHA, "--scheme", f"{own}:ours"), "own.py has no function 'ours'"),
        (("compare", clients, *ALPHA, "--scheme", "none.py:f"), "no Python file none.py"),
        (("simulate", "setup1", "--scheme", "equilibrum"), "Did you mean 'equilibrium'"),
        (("simulate", "setup1", "--scheme", f"{own}:drawn"), "there is no aggregator 'median'"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), err
        assert message in err
        assert err.count("\n") == 1


def test_compare_lists_the_schemes(run: Run, clients: Path) -> None:
    code, out, _ = run("compare", clients, *ALPHA, "--format", "json")
    rows = json.loads(out)["schemes"]
    assert code == 0
    assert [row["scheme"] for row in rows] == ["equilibrium", "weighted", "uniform"]
    assert rows[0]["expected_loss"] < min(row["expected_loss"] for row in rows[1:])
    assert all(row["spend"] == pytest.approx(200) for row in rows)


def test_frontier_rows(run: Run, clients: Path) -> None:
    code, out, _ = run("price", clients, *ALPHA, "--budgets=-50:500:12", "--format", "csv")
    frame = pl.read_csv(out.encode())
    assert code == 0
    assert frame["budget"].to_list() == [-50 + 50.0 * n for n in range(12)]
    assert frame["expected_loss"].is_sorted(descending=True)
    assert frame["payers"].is_sorted(descending=True)


def test_respond(run: Run) -> None:
    offer = ("respond", "--price", 12, "--cost", 40, "--value", 4000, "--impact", 0.0005)
    code, out, _ = run(*offer, "--format", "json")
    answer = json.loads(out)["response"]
    assert code == 0
    q = answer["level"]
    assert 12 + 2 / q**2 == pytest.approx(80 * q)
    assert answer["profit"] == pytest.approx(12 * q - 40 * q**2)
    assert answer["utility"] == pytest.approx(12 * q - 40 * q**2 - 2 * (1 / q - 1))
    assert answer["pays_below"] == 0
    assert answer["level_unpaid"] == pytest.approx((2 / 80) ** (1 / 3))
    assert "pay the server" in run(*offer)[1]
    assert (
        "no payment, no cost"
        in run("respond", "--price=-1", "--cost=4", "--value=0", "--impact=1")[1]
    )


def test_infeasible_is_exit_code_3_and_names_the_least_budget(
    run: Run, clients: Path, tmp_path: Path
) -> None:
    path = tmp_path / "out.csv"
    code, out, err = run("price", clients, *ALPHA, "--budget=-1e6", "--max-weight", 1, "-o", path)
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "needs a budget of at least" in err
    assert not path.exists()
    least = err.split("at least ")[1].split(";")[0]
    assert run("price", clients, *ALPHA, f"--budget={least}", "--max-weight", 1)[0] == 0
    assert run("price", clients, *ALPHA, "--budgets=-9e9:-8e9:3", "--max-weight", 1)[0] == 3
    assert run("compare", clients, *ALPHA, "--budget=-1e9", "--max-weight", 1)[0] == 3
    code, out, _ = run("compare", clients, *ALPHA, "--budget=-1")
    assert code == 0
    assert "infeasible" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["price"], "Missing argument"),
        (["price", "{clients}", "--alpha=3.3", "--calibratio", "3"], "Did you mean --calibration"),
        (["prise"], "Did you mean 'price'"),
        (["price", "{dir}/none.csv", "--alpha=3.3"], "cannot read"),
        (["price", "{dir}", "--alpha=3.3"], "is a directory"),
        (["price", "{clients}", "--alpha=3.3", "--budget", "much"], "'much' is not a number"),
        (["price", "{clients}", "--alpha=3.3", "--budget", "nan"], "'nan' is not a number"),
        (["price", "{clients}", "--alpha=-1"], "`alpha` must be"),
        (["price", "{clients}", "--alpha=3.3", "--rounds", "0"], "`rounds` must be"),
        (
            ["price", "{clients}", "--alpha=3.3", "--exponent", "1"],
            "`cost_exponent` τ must be above 1",
        ),
        (
            ["price", "{clients}", "--alpha=3.3", "--max-weight", "0"],
            "`max_weight` must be at least",
        ),
        (["price", "{clients}", "--alpha=3.3", "--scheme", "uniforn"], "Did you mean 'uniform'"),
        (["price", "{clients}", "--alpha=3.3", "-o", "{clients}"], "exists; choose another name"),
        (
            ["price", "{clients}", "--alpha=3.3", "-o", "{dir}/x.xlsx"],
            "use one of .csv, .parquet, .json",
        ),
        (
            ["price", "{clients}", "--alpha=3.3", "--plot", "{dir}/x.bmp"],
            "use one of .png, .svg, .pdf",
        ),
        (["price", "{clients}", "--alpha=3.3", "-o", "{dir}/no/x.csv"], "there is no directory"),
        (["price", "{clients}", "--alpha=3.3", "--format", "xml"], "table"),
        (["data", "example", "-o", "{clients}"], "exists"),
        (["data", "example", "--clients", "0"], "--clients"),
        (
            ["price", "{clients}", "--alpha=3.3", "--budgets", "1:2"],
            "or LO:HI:N, such as 10:500:50",
        ),
        (["price", "{clients}", "--alpha=3.3", "--budgets", "3:2:5"], "finite LO ≤ HI"),
        (["price", "{clients}", "--alpha=3.3", "--budgets", "1:2:0"], "N ≥ 1"),
        (
            ["price", "{clients}", "--alpha=3.3", "--budgets", "10:500:10000000"],
            "at most 10,000 budgets; got N = 10,000,000. Try 10:500:100.",
        ),
        (
            ["respond", "--price", "1", "--cost", "0", "--value", "1", "--impact", "1"],
            "--cost must be",
        ),
        (["respond", "--price", "1"], "Missing option"),
        (["respond", "--price=1", "--cost=1e308", "--value=1", "--impact=1"], "lost its precision"),
        (["price", "{clients}", "--alpha=3.3", "--budget=-1e308"], "lost its precision"),
        (["price", "{clients}", "--alpha", "1e-308"], "lost its precision"),
        (["price", "{clients}", "--alpha=3.3", "--exponent", "1e308"], "at most 1e+06"),
        (["price", "{clients}", "--alpha=3.3", "--rounds", "9" * 400], "`rounds` must be a number"),
        (["price", "{clients}", "--alpha=3.3", "--budgets=-1e308:1e308:3"], "finite LO ≤ HI"),
        (["data", "example", "--clients", "1000000000000"], "--clients"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    run: Run, clients: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    before = sorted(tmp_path.iterdir())
    code, out, err = run(*(a.format(clients=clients, dir=tmp_path) for a in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("fedprice: ")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (FedpriceError, 2),
        (InputError, 2),
        (MissingExtraError, 2),
        (InfeasibleError, 3),
        (UnverifiedError, 4),
        (DamagedError, 4),
        (LedgerError, 5),
        (DivergedError, 6),
        (DeploymentError, 7),
        (FinishedError, 8),
        (UndeliveredError, 9),
        (StoppedError, 130),
    ],
)
def test_each_error_has_its_exit_code(
    run: Run, clients: Path, monkeypatch: pytest.MonkeyPatch, error: type[FedpriceError], code: int
) -> None:
    def fail(*_: object) -> None:
        raise error("this is why.")

    monkeypatch.setattr("fedprice.commands.price.find_scheme", fail)
    assert run("price", clients, *ALPHA) == (code, "", "fedprice: this is why.\n")
    documented = (Path(__file__).parents[2] / "docs" / "commands.md").read_text("utf-8")
    assert f"\n| {code} | " in documented


def test_a_budget_that_only_just_fails_is_named_as_too_small(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    Clients(samples=[1, 2], grad_norm=1, cost=1, value=0).write(path)
    code, _, err = run("price", path, *ALPHA, "--budget", 0)
    assert (code, "needs a budget above 0; got 0. Raise the budget." in err) == (3, True)
    code, _, err = run("price", path, *ALPHA, "--budget=-1", "--scheme", "reference-scipy")
    assert (code, "found no prices within a budget of -1." in err) == (3, True)


def test_standard_input(run: Run, clients: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with clients.open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert run("price", "-", *ALPHA, "--format", "csv") == run(
            "price", clients, *ALPHA, "--format", "csv"
        )


def test_a_figure_that_cannot_be_drawn_leaves_no_table(
    run: Run, clients: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedprice.pricing.figures.draw_outcome", fail)
    table, plot = tmp_path / "out.csv", tmp_path / "out.png"
    code, out, err = run("price", clients, *ALPHA, "-o", table, "--plot", plot)
    assert (code, out) == (2, "")
    assert "No space left" in err
    assert [p.name for p in tmp_path.iterdir()] == ["clients.csv"]


def test_force_overwrites(run: Run, clients: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")
    assert run("price", clients, *ALPHA, "-o", path, "--force")[0] == 0
    assert path.read_text().startswith("client_id")


def test_a_figure_is_not_overwritten_unless_forced(run: Run, clients: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    path.write_text("old")
    code, _, err = run("price", clients, *ALPHA, "--plot", path)
    assert (code, "out.png exists" in err) == (2, True)
    assert path.read_text() == "old"
    assert run("price", clients, *ALPHA, "--plot", path, "--force")[0] == 0
    assert path.read_bytes().startswith(b"\x89PNG")


def test_version_and_no_arguments(run: Run) -> None:
    assert run("--version")[1].startswith("fedprice 0.")
    _, out, err = run()
    assert "Usage: fedprice" in out + err


def test_as_a_program(clients: Path) -> None:
    """The installed command, in a process of its own: no colour, no traceback, quiet pipes."""
    command = [str(Path(sys.executable).with_name("fedprice")), "price", str(clients), *ALPHA]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env={"NO_COLOR": "1"}
    )
    assert "\x1b" not in shown.stdout
    assert shown.stderr == ""
    narrow = subprocess.run(
        [command[0], "compare", str(clients), *ALPHA],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"COLUMNS": "40", "PYTHONIOENCODING": "ascii"},
    )
    assert "…" not in narrow.stdout
    assert "equilibrium" in narrow.stdout
    with Path("/dev/full").open("w") as full:
        lost = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (lost.returncode, lost.stderr) == (
        1,
        "fedprice: cannot write the result: No space left on device.\n",
    )
    cut = subprocess.Popen(
        [*command, "--format", "csv"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert cut.stdout is not None
    assert cut.stderr is not None
    cut.stdout.close()
    assert cut.wait(timeout=60) in (0, 1)
    assert cut.stderr.read() == ""
    cut.stderr.close()


def test_data_show(run: Run, tmp_path: Path) -> None:
    plot = tmp_path / "data.png"
    code, out, _ = run("data", "show", "setup1", "--plot", plot)
    assert code == 0
    assert "22,377 samples" in out
    assert plot.read_bytes().startswith(b"\x89PNG")
    code, out, _ = run("data", "show", "setup1", "--format", "json")
    answer = json.loads(out)
    assert sum(row["samples"] for row in answer["clients"]) == 22_377
    code, _, err = run("data", "show", "setup2", "--data", tmp_path)
    assert (code, "Run: fedprice data get mnist" in err) == (2, True)
    assert run("data", "get", "minst")[2].count("\n") == 1
    assert "Did you mean 'setup1'" in run("calibrate", "setup")[2] + run("calibrate", "setup11")[2]


def test_data_show_takes_a_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "wards.csv"
    path.write_text(
        "client_id,label,age,split\n"
        "[b]north,ill,61,train\n[b]north,well,44,train\nsouth,well,38,train\n,ill,70,test\n"
    )
    code, out, _ = run("data", "show", path)
    assert (code, "[b]north" in out) == (0, True)
    assert "3 samples, and 1 for testing" in out
    rows = json.loads(run("data", "show", path, "--format", "json")[1])["clients"]
    assert [(row["client_id"], row["samples"]) for row in rows] == [("[b]north", 2), ("south", 1)]
    (tmp_path / "notes.txt").touch()
    for arguments, message in (
        ([path, "--data", path], "--data applies only to setup2 and setup3; leave it out with"),
        ([tmp_path / "none.parquet"], "none.parquet: No such file"),
        ([tmp_path / "notes.txt"], "use one of .csv, .parquet, .npz"),
        (["setup4"], "there is no setup 'setup4'"),
    ):
        code, out, err = run("data", "show", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err


@pytest.mark.parametrize("command", ["data show", "calibrate", "simulate", "study"])
def test_data_was_silently_ignored_with_setup1(run: Run, tmp_path: Path, command: str) -> None:
    """Even a file that does not exist passed."""
    out = ("--out", tmp_path / "out") if command == "study" else ()
    code, _, err = run(*command.split(), "setup1", "--data", tmp_path / "none.npz", *out)
    assert (code, err.count("\n")) == (2, 1)
    assert "setup1 has synthetic data and takes none from elsewhere" in err


def test_simulate_trains_once_and_names_the_settings(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "run.csv"
    code, out, err = run("simulate", "setup1", "--rounds", 20, "--scheme", "uniform", "-o", table)
    *steps, last = err.splitlines()
    assert (code, last) == (0, f"wrote {table}")
    assert all(step.startswith(("scout: ", "measure: ")) for step in steps), err
    for line in ("largest weight   1", "aggregator       memory", "coins            independent"):
        assert line in out
    (row,) = pl.read_csv(table).iter_rows(named=True)
    assert (row["scheme"], row["seed"], row["rounds"], row["largest_weight"]) == (
        "uniform", 0, 20, 1,
    )  # fmt: skip
    assert (row["local_steps"], row["batch"], row["learning_rate"]) == (100, 24, 0.1)
    assert row["spend"] == pytest.approx(200)
    assert row["loss"] < math.log(10)
    code, _, err = run("simulate", "setup4")
    assert code == 2
    assert "there is no setup 'setup4'" in err


@pytest.mark.parametrize(
    ("more", "study"),
    [
        (("--seeds", 5), "fedprice study setup1 --seeds 5"),
        (
            ("--scheme", "uniform", "--scheme", "subset"),
            "fedprice study setup1 --scheme uniform --scheme subset --seeds 20",
        ),
    ],
)
def test_simulate_ranked_schemes_without_an_interval(
    run: Run, more: tuple[object, ...], study: str
) -> None:
    code, out, err = run("simulate", "setup1", *more)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.endswith(f"to compare schemes over seeds: {study}\n")


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_old_names_answer_with_the_new_one(run: Run, old: str, new: str) -> None:
    code, out, err = run(*old.split(), "clients.csv", "--some", "option")
    assert (code, out, err) == (2, "", f"fedprice: `fedprice {old}` is now: fedprice {new}\n")


def test_the_help_has_three_groups_and_fourteen_entries(run: Run) -> None:
    code, out, _ = run("--help")
    entries = re.findall(r"^│ ([a-z]+) ", out, flags=re.MULTILINE)
    groups = re.findall(r"^╭─ (A [a-z]+) ", out, flags=re.MULTILINE)
    assert (code, groups) == (0, ["A server", "A client", "A researcher"])
    assert entries == [
        "price", "post", "calibrate", "simulate", "serve", "ledger", "flower", "respond",
        "statement", "verify", "study", "compare", "reveal", "data",
    ]  # fmt: skip
    assert "fedprice explain WORD" in out


def test_budgets_take_what_price_takes(run: Run, tmp_path: Path) -> None:
    """`frontier` refused a table without values and norms, which `price` prices."""
    path, plot = tmp_path / "costs.csv", tmp_path / "frontier.png"
    path.write_text("client_id,samples,cost\na,3,5\nb,1,4\n", encoding="utf-8")
    ask = ("price", path, "--budgets", "2,8")
    code, out, _ = run(*ask, "--plot", plot)
    assert (code, plot.stat().st_size > 1000) == (0, True)
    assert "assumed to be 0" in out
    code, out, err = run(*ask, "--format", "csv")
    rows = pl.read_csv(out.encode())
    assert (code, rows["budget"].to_list()) == (0, [2, 8])
    assert "expected_loss_per_alpha" in rows.columns
    assert "grad_norm: assumed" in err
    answer = json.loads(run(*ask, "--format", "json")[1])
    assert answer["assumptions"]["assumed"] == {"value": 0, "grad_norm": 1}
    for option in (("--budget", 3), ("--letters", "l"), ("--scheme", "uniform"), ("--robust",)):
        code, out, err = run(*ask, *option)
        assert (code, out) == (2, "")
        assert err == (
            f"fedprice: {option[0]} cannot be combined with --budgets; leave out one of them.\n"
        )


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_no_color_on_a_terminal(no_color: str, coloured: bool) -> None:
    """On a pseudo-terminal the help has colours, and with NO_COLOR none."""
    import os
    import pty

    ours, theirs = pty.openpty()
    environment = {"TERM": "xterm-256color", "PATH": os.defpath, "NO_COLOR": no_color}
    if not no_color:
        del environment["NO_COLOR"]
    subprocess.run(
        [str(Path(sys.executable).with_name("fedprice")), "--help"],
        stdout=theirs,
        stderr=theirs,
        check=True,
        timeout=60,
        env=environment,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert b"Usage" in shown
    assert (b"\x1b[3" in shown or b"\x1b[1;3" in shown) is coloured
