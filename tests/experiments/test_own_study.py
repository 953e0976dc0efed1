"""A study of one's own, on real digits and on functions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import fedprice as fp
from fedprice.calibration import Calibration, Fit
from fedprice.data.digits import digits
from fedprice.errors import InputError
from fedprice.experiments.cells import Cell, Store, TaskSource, compute
from fedprice.experiments.measures import Estimate
from fedprice.experiments.report_lead import _beside
from fedprice.experiments.results import Result
from fedprice.experiments.verdicts import Claim, Verdict
from fedprice.learning import Training
from fedprice.web.study_results import accuracy_bought, studied_budgets

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Run

pytest.importorskip("sklearn", reason="needs the extra `digits`")

OWN = """
import fedprice as fp
from fedprice.calibration import Calibration, Fit

def mine(game):
    return fp.Outcome.from_prices(game, game.clients.cost / 20, scheme="mine")
"""
POOR = """
import fedprice as fp
from fedprice.calibration import Calibration, Fit

def poor(game):
    return fp.Outcome.from_prices(game, 0.001, scheme="poor")
"""
SMALL = ("--clients", 6, "--partition", "dirichlet:1", "--seeds", 5, "--rounds", 40,
         "--local-steps", 5, "--batch", 8, "--max-weight", "inf")  # fmt: skip


def test_a_study_of_digits_from_the_command_line(run: Run, tmp_path: Path) -> None:
    own, cells = tmp_path / "own.py", tmp_path / "cells"
    own.write_text(OWN, encoding="utf-8")
    schemes = ("--scheme", "equilibrium", "--scheme", "uniform", "--scheme", f"{own}:mine")
    given = ("study", "digits", *schemes, *SMALL, "--cells", cells)
    code, printed, err = run(*given, "--out", tmp_path / "one")
    assert code == 0, err
    assert printed.rstrip().endswith("report.html")
    verdicts = pl.read_csv(tmp_path / "one" / "tables" / "verdicts.csv")
    assert {*verdicts["verdict"]} <= {v.value for v in Verdict}
    curves = pl.read_parquet(tmp_path / "one" / "results.parquet")
    assert {*curves["run"]} == {"equilibrium", "uniform", "mine", "full"}
    one_sentence_each(tmp_path / "one")
    summary = pl.read_csv(tmp_path / "one" / "tables" / "table-summary.csv")
    assert summary["scheme"].to_list() == ["equilibrium", "uniform", "mine", "everybody joins"]
    assert summary.columns[-2:] == ["rounds to the target", "equilibrium is"]
    for setting in ("largest weight none", "aggregator memory", "local steps 5; batch 8"):
        assert setting in " ".join(printed.split())
    latex = (tmp_path / "one" / "tables" / "table-training.tex").read_text(encoding="utf-8")
    assert r"\caption{" in latex
    assert latex.count(r"\textbf{") == 3  # the best loss, accuracy and spread
    # Other coins and absences are other runs.
    code, _, err = run(*given[:6], *SMALL, "--cells", cells, "--coins", "blocks", "--availability",
                       "by-label:10", "--out", tmp_path / "other")  # fmt: skip
    assert code == 0, err
    page = (tmp_path / "other" / "report.html").read_text(encoding="utf-8")
    assert "coins = blocks\navailability = ByLabel(period=10, share=0.5)" in page
    assert sum("equilibrium" in path.name for path in cells.iterdir()) == 10
    # Another directory, and one scheme less: nothing is trained again.
    before = {path: path.stat().st_mtime_ns for path in cells.iterdir()}
    code, _, err = run("study", "digits", *schemes[:4], *SMALL, "--cells", cells,
                       "--out", tmp_path / "two")  # fmt: skip
    assert code == 0, err
    assert {path: path.stat().st_mtime_ns for path in cells.iterdir()} == before
    assert (tmp_path / "two" / "report.html").exists()


def one_sentence_each(folder: Path) -> None:
    """The names of a study of one's own were those of the paper, and captions were essays."""
    assert {path.stem for path in (folder / "figures").iterdir()} == {
        "fig-differences-digits", "fig-training-digits", "fig-prices-digits",
    }  # fmt: skip
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Figure " not in page
    captions = re.findall(r"<figcaption>(.*)</figcaption>", page)
    captions += re.findall(r'</div>\s*<p class="soft">(.*)</p>', page)
    captions = [re.sub(r" \([^()]*\)$", "", caption) for caption in captions]
    assert len(captions) >= 8
    assert [caption for caption in captions if caption.count(". ") or caption[-1] != "."] == []


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
        calibration=fp.calibrate(
            task, levels=(0.1, 0.9), max_weight=4, aggregator="horvitz-thompson"
        ),
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


def test_the_better_scheme_is_ahead_by_a_lower_loss_and_by_a_higher_accuracy(
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.py"
    own.write_text(POOR, encoding="utf-8")

    def update(model: Any, client: int, round_: int, seed: int) -> Any:
        return [0.1 * (3.0 - model[0])]

    def evaluate(model: Any) -> dict[str, float]:
        loss = 1 + float((3.0 - model[0][0]) ** 2)
        return {"loss": loss, "accuracy": 1 / loss}

    task = fp.Task.of(initial=[np.zeros(1)], samples=[10, 20], update=update, evaluate=evaluate)
    clients = fp.Clients(samples=[10, 20], grad_norm=1, cost=[4, 5], value=0)
    report = fp.study(
        task, ["equilibrium", f"{own}:poor"], 5, rounds=20, cells=tmp_path / "cells",
        calibration=fp.calibrate(task, levels=(0.1, 0.9), max_weight=4),
        game=lambda _: fp.Game(clients, bound=fp.Bound(alpha=1, rounds=20), budget=9),
        max_weight=np.inf,
    )  # fmt: skip
    ends = {c.text.split(" than ")[0]: c.verdict for c in report.claims if " ends at " in c.text}
    assert ends == {
        "equilibrium ends at a lower loss": Verdict.HOLDS,
        "equilibrium ends at a higher accuracy": Verdict.HOLDS,
    }


def test_a_sentence_begins_with_a_capital() -> None:
    undecided = Claim("", "", "–", Estimate(0.9, 0.8, 1.1), 1.0, True, ("mine", "flat"), 5, "loss")
    assert _beside("mine", [undecided]) == "Beside flat, mine is neither clearly ahead nor behind."


def test_runs_are_not_reused_once_the_code_of_the_task_has_changed(tmp_path: Path) -> None:
    """Functions cannot be hashed; the hash of their file tells two versions of them apart."""
    task = fp.Task.of(
        initial=[np.zeros(1)], samples=[1], update=lambda model, *_: [model[0] + 1],
        evaluate=lambda model: {"loss": float(model[0][0])},
    )  # fmt: skip
    old, new = (
        Cell(TaskSource("own", task, code=code), "equilibrium", 0, np.ones(1), 2, 1)
        for code in ("old", "new")
    )
    store = Store(tmp_path)
    store.save_curve(old, compute(old, old.fingerprint()))
    assert store.load_curve(old) is not None
    assert store.load_curve(new) is None


def test_a_single_mean_is_drawn_as_the_paper_does(tmp_path: Path) -> None:
    report = fp.study(
        small_task(), ("equilibrium", "uniform"), 5, rounds=20, cost=7.0, value=0.0, cells=tmp_path
    )
    clients = report.results[0].study.priced.clients
    assert clients.cost == pytest.approx(7 * np.random.default_rng(0).exponential(size=6))
    assert not clients.value.any()


def small_task() -> fp.LogisticRegression:
    federation = digits(num_clients=6, partition="dirichlet:1")
    return fp.LogisticRegression(federation, Training(local_steps=5, batch=8))


def test_what_to_spend_from_the_command_line(run: Run, tmp_path: Path) -> None:
    given = ("study", "digits", *SMALL, "--value", 0, "--cells", tmp_path / "cells")
    out = tmp_path / "out"
    schemes = ("--schemes", "equilibrium,uniform,full")
    code, printed, err = run(*given, "--out", out, *schemes, "--budgets", "40,3", "--within", "5%")
    assert code == 0, err
    assert printed.rstrip().endswith("report.html")
    lines = printed.splitlines()[2:8]
    assert [line.split()[:2] for line in lines] == [
        ["scheme", "budget"], ["equilibrium", "3"], ["equilibrium", "40"], ["uniform", "3"],
        ["uniform", "40"], ["full", "–"],
    ]  # fmt: skip
    assert max(map(len, lines)) <= 80
    assert " ".join(printed.split()).count("within 5 % of") == 2  # a sentence per scheme
    assert {*pl.read_parquet(out / "results.parquet")["run"]} == {
        "equilibrium at 3", "equilibrium at 40", "uniform at 3", "uniform at 40", "full"
    }  # fmt: skip
    assert len(pl.read_csv(out / "tables" / "verdicts.csv")) == 4
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "are not the paper's" not in page
    assert "<h2>Tables</h2>" not in page  # it was an empty heading
    assert (out / "figures" / "fig-budgets-digits.svg").exists()
    table = studied_budgets(out)
    assert table is not None
    told = accuracy_bought(table, "uniform", 7)
    assert re.fullmatch(r"Accuracy in the study: .* 3; .* 40; .* if everybody joins\.", told)
    assert " 3; " in accuracy_bought(table, "equilibrium", 3)
    assert "budget of 3;" not in accuracy_bought(table, "equilibrium", 40)
    assert accuracy_bought(table, "weighted", 7) == ""
    assert studied_budgets(tmp_path) is None


def test_what_to_spend_by_hand(tmp_path: Path) -> None:
    """The numbers of the table, from the runs; every run has the seeds of everybody's."""
    report = fp.study(
        small_task(),
        seeds=5,
        rounds=40,
        budgets=[40, 2],
        value=0.0,
        max_weight=np.inf,
        cells=tmp_path,
        within=0.02,
    )
    result, frame = report.results[0], report.to_frame()
    assert frame["budget"].to_list()[:2] == [2, 40]
    assert frame["spend"].to_list()[:2] == pytest.approx([2, 40])
    assert frame["joiners"][-1] == 6
    everybody = result.last("full")
    for name, claim in zip(("equilibrium at 2", "equilibrium at 40"), report.claims, strict=True):
        above = 100 * (result.last(name) / everybody - 1).mean()
        assert claim.ours.value == pytest.approx(above)
        assert claim.limit == 2
    assert frame["accuracy"][-1] == pytest.approx(result.last("full", "accuracy").mean())
    assert repr(report).startswith("digits, 6 clients, dirichlet:1, seed 0: what to spend\n")


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (
            [(0.5, 0.4, 0.6), (0.2, 0.1, 0.3)],
            r"3 is the smallest budget whose loss is shown to be within 1 % of .* 0\.50 \(0\.40 to",
        ),
        ([(0.5, -1, 2), (0.2, 0.1, 0.3)], "40 is the smallest budget whose loss is shown"),
        (
            [(2.0, 1.5, 3), (0.9, 0.1, 1.3)],
            "no budget is shown .* closest by its mean is 40, .* If the mean .* about [0-9]+ seeds",
        ),
        (
            [(9.0, 8, 10), (5.0, 4, 6)],
            r"no budget is .* is 40, 5 \(4 to 6\) % above\. The accuracy",
        ),
        (
            [(9.0, np.nan, np.nan), (0.1, np.nan, np.nan)],
            "closest by its mean is 40, .* Intervals need at least 5 seeds; there are 2",
        ),
    ],
)
def test_the_smallest_budget_and_whether_its_interval_supports_it(
    ours: list[tuple[float, float, float]],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = dict(zip(("equilibrium at 3", "equilibrium at 40"), ours, strict=True))
    plain = Result.estimate

    def estimate(result: Result, names: Any, *more: Any, **settings: Any) -> Estimate:
        if len(names) == 1:
            return plain(result, names, *more, **settings)
        return Estimate(*runs[names[0]])

    monkeypatch.setattr(Result, "estimate", estimate)
    report = fp.study(
        small_task(), None, 2, rounds=2, budgets=[3, 40], value=0.0, max_weight=np.inf,
        cells=tmp_path,
    )  # fmt: skip
    assert re.search(words, report.paragraphs[1])


def test_budgets_that_cannot_be_studied(run: Run, tmp_path: Path) -> None:
    cases = [
        (
            ("--budgets", "5,x"),
            "--budgets must be numbers separated by commas, such as 5,10,20, or",
        ),
        (("--budgets", ""), "--budgets must be numbers separated by commas"),
        (("--budgets", "5,-1"), "`budgets` must be finite numbers, at least 0; got -1"),
        (("--budgets", "5,nan"), "--budgets must be numbers separated by commas"),
        (("--budgets", "5,10,5.0"), "`budgets` must differ; got 5 twice. Leave one out."),
        (("--budgets", "5", "--budget", 9), "--budget cannot be combined with --budgets."),
        (("--budgets", "5", "--within", "a"), "--within must be a share, such as 1% or 0.01"),
        (("--budgets", "5", "--within=-1%"), "`within` must be a share of the loss, at least 0"),
        (("--within", "1%"), "`within` requires `budgets`; got 0.01 alone. Add `budgets`."),
    ]
    for arguments, message in cases:
        given = ("study", "digits", *arguments, "--cells", tmp_path / "cells")
        code, _, err = run(*given, "--out", tmp_path / "out")
        assert code == 2, err
        assert message in err
        assert err.count("\n") == 1
    with pytest.raises(InputError, match=r"`budgets` must be at least one; got none"):
        fp.study(small_task(), budgets=[])


def test_bad_input(run: Run, tmp_path: Path) -> None:
    cells = ("--cells", tmp_path / "cells")
    cases = [
        (("study", "digts"), "there is no setup 'digts'"),
        (("study", "digits", "wards.csv"), "a study has one WHAT, or some of setup1, setup2"),
        (
            ("study", "digits", "--quick"),
            "--quick applies only to the paper's setups; leave it out",
        ),
        (
            ("study", "digits", "--workers", "ray"),
            "--workers ray applies only to the paper's setups",
        ),
        (("study", "digits", "--partition", "dirichlet:0"), "a partition is iid, dirichlet:A or"),
        (("study", "digits", "--partition", "halves"), "a partition is iid, dirichlet:A or"),
        (("study", "digits", "--clients", "900"), "too few for 900 clients"),
        (("study", "digits", "--scheme", "uniform", *cells), "needs at least two schemes"),
        (
            ("study", "digits", "--clients", "a.csv", "--cost", 3),
            "--clients FILE cannot be combined",
        ),
        (("study", "digits", "--seeds", 5, "--most-seeds", 4, *cells), "`most_seeds` must be at"),
        (("study", "digits", "--coins", "even", *cells), "`coins` must be independent, spaced,"),
        (("study", "digits", "--availability", "cyclic:9,0", *cells), "`share` must be above 0"),
    ]
    for arguments, message in cases:
        code, _, err = run(*arguments, "--out", tmp_path / "out")
        assert code == 2, err
        assert message in err
        assert err.count("\n") == 1
    task = fp.LogisticRegression(digits(num_clients=2, partition="iid"), Training(local_steps=2))
    with pytest.raises(InputError, match="`cost` must be a number, or one per client, 2 in all"):
        fp.study(task, seeds=5, cost=[1, 2, 3], cells=tmp_path / "cells")


def test_schemes_that_pay_the_same_are_equal(tmp_path: Path) -> None:
    """Equal clients: the prices of all schemes differ by rounding errors, which were a result."""
    task = fp.Task.of(
        initial=[np.zeros(1)], samples=[1] * 6, update=lambda model, n, *_: [(n - model[0]) / 2],
        evaluate=lambda model: {"loss": float((model[0][0] - 2.5) ** 2)},
    )  # fmt: skip
    fit = Fit(3.0, 2.0, 4.0, 0.0, np.ones(6))
    pilots = Calibration(
        "alike", tuple(task.ids), task.samples, task.fingerprint, "horvitz-thompson", "plain", None,
        fit, None, np.array([1]), np.ones((2, 1)),
    )  # fmt: skip
    report = fp.study(
        task, ("equilibrium", "weighted", "uniform"), 5, most_seeds=20, rounds=20, budget=0.7,
        cost=np.full(6, 3.0), value=np.zeros(6), calibration=pilots,
        max_weight=np.inf, cells=tmp_path,
    )  # fmt: skip
    assert [claim for claim in report.claims if claim.verdict is not Verdict.EQUAL] == []
    assert {claim.seeds for claim in report.claims} == {5}  # more of them would decide nothing
    latex = report.verdicts.latex()
    assert "e-1" not in latex
    assert "equal" in latex
