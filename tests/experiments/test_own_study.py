"""A study of one's own, on real digits and on functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import fedprice as fp
from fedprice.data.digits import digits
from fedprice.errors import InputError
from fedprice.experiments.verdicts import Verdict
from fedprice.learning import Training
from fedprice.web.reproduction import read_reproduction

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Run

pytest.importorskip("sklearn", reason="needs the extra `digits`")

OWN = """
import fedprice as fp

def mine(game):
    return fp.Outcome.from_prices(game, game.clients.cost / 20, scheme="mine")
"""
SMALL = ("--clients", 6, "--partition", "dirichlet:1", "--seeds", 5, "--rounds", 40,
         "--local-steps", 5, "--batch", 8)  # fmt: skip


def test_a_study_of_digits_from_the_command_line(run: Run, tmp_path: Path) -> None:
    own, cells = tmp_path / "own.py", tmp_path / "cells"
    own.write_text(OWN, encoding="utf-8")
    schemes = ("--scheme", "equilibrium", "--scheme", "uniform", "--scheme", f"{own}:mine")
    given = ("study", "digits", *schemes, *SMALL, "--cells", cells)
    code, printed, err = run(*given, "--out", tmp_path / "one")
    assert code == 0, err
    assert printed.rstrip().endswith("report.html")
    found = read_reproduction(tmp_path / "one")
    assert {row[-1].text for row in found.verdicts.rows} <= {v.value for v in Verdict}
    assert set(found.runs["digits"]) == {"equilibrium", "uniform", "mine"}
    latex = (tmp_path / "one" / "tables" / "table-training.tex").read_text(encoding="utf-8")
    assert r"\caption{" in latex
    assert latex.count(r"\textbf{") == 3  # the best loss, accuracy and spread
    # Another directory, and one scheme less: nothing is trained again.
    before = {path: path.stat().st_mtime_ns for path in cells.iterdir()}
    code, _, err = run("study", "digits", *schemes[:4], *SMALL, "--cells", cells,
                       "--out", tmp_path / "two")  # fmt: skip
    assert code == 0, err
    assert {path: path.stat().st_mtime_ns for path in cells.iterdir()} == before
    assert (tmp_path / "two" / "report.html").exists()


def test_a_study_in_python_without_accuracy_and_clock(tmp_path: Path) -> None:
    goals = np.array([0.0, 1.0, 5.0])

    def update(model: Any, client: int, round_: int, seed: int) -> Any:
        noise = np.random.default_rng([seed, round_, client]).normal(size=1)
        return [0.5 * (goals[client] - model[0]) + 0.1 * noise]

    def evaluate(model: Any) -> dict[str, float]:
        return {"loss": float(((goals - model[0]) ** 2).mean())}

    task = fp.Task.of(initial=[np.zeros(1)], samples=[10, 10, 20], update=update, evaluate=evaluate)
    told: list[str] = []
    report = fp.study(
        task, ["equilibrium", "uniform"], 5, most_seeds=10, rounds=60, budget=4,
        cost=[4, 5, 3], value=[9, 1, 0], cells=tmp_path / "cells", report=told.append,
        calibration=fp.calibrate(task, levels=(0.1, 0.9), max_weight=4),
    )  # fmt: skip
    assert any("to 10 seeds" in line for line in told)
    assert report.results[0].seeds("equilibrium") == 10
    assert [claim for claim in report.claims if "accuracy" in claim.text] == []
    assert report.results[0].study.priced.clients.value.tolist() == [9, 1, 0]
    assert report.write(tmp_path / "out").exists()
    # The loss by hand: the last one of each seed, over schemes.
    gain = next(c for c in report.claims if "ends at a lower loss" in c.text).ours.value
    last = [report.results[0].last(name).mean() for name in ("equilibrium", "uniform")]
    assert gain == pytest.approx(last[0] - last[1])


def test_a_single_mean_is_drawn_as_the_paper_does(tmp_path: Path) -> None:
    federation = digits(num_clients=6, partition="dirichlet:1")
    task = fp.LogisticRegression(federation, Training(local_steps=5, batch=8))
    report = fp.study(
        task, ("equilibrium", "uniform"), 5, rounds=20, cost=7.0, value=0.0, cells=tmp_path
    )
    clients = report.results[0].study.priced.clients
    assert clients.cost == pytest.approx(7 * np.random.default_rng(0).exponential(size=6))
    assert not clients.value.any()


def test_bad_input(run: Run, tmp_path: Path) -> None:
    cells = ("--cells", tmp_path / "cells")
    cases = [
        (("study", "digts"), "there is no setup 'digts'"),
        (("study", "setup1", "--clients", "9"), "--clients is for digits"),
        (("study", "setup1", "--partition", "iid"), "--partition is for digits"),
        (("study", "digits", "--partition", "dirichlet:0"), "a partition is iid, dirichlet:A or"),
        (("study", "digits", "--partition", "halves"), "a partition is iid, dirichlet:A or"),
        (("study", "digits", "--clients", "900"), "too few for 900 clients"),
        (("study", "digits", "--scheme", "uniform", *cells), "needs at least two schemes"),
        (("study", "digits", "--clients", "a.csv", "--cost", 3), "give either --clients FILE"),
        (("study", "digits", "--seeds", 5, "--most-seeds", 4, *cells), "`most_seeds` must be at"),
    ]
    for arguments, message in cases:
        code, _, err = run(*arguments, "--out", tmp_path / "out")
        assert code == 2, err
        assert message in err
        assert err.count("\n") == 1
    task = fp.LogisticRegression(digits(num_clients=2, partition="iid"), Training(local_steps=2))
    with pytest.raises(InputError, match="`cost` must be a number, or one per client, 2 in all"):
        fp.study(task, seeds=5, cost=[1, 2, 3], cells=tmp_path / "cells")
