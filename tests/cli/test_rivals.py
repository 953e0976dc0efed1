"""Rivals side by side, and warnings of fees that nobody would pay, on the command line."""

import json
from pathlib import Path

import pytest

from fedprice import population
from fedprice.contrib import RIVALS
from tests.conftest import Run

ALPHA = ("--alpha", "3.3")


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    path = tmp_path / "clients.csv"
    population().write(path)
    return path


@pytest.fixture
def few(tmp_path: Path) -> Path:
    path = tmp_path / "few.csv"
    population(6).write(path)
    return path


def test_compare_with_rivals_and_tariffs(run: Run, clients: Path) -> None:
    code, out, err = run(
        "compare", clients, *ALPHA, "--rivals", "--beliefs", "exponential", "--cost", 50,
        "--value", 4000, "--format", "json",
    )  # fmt: skip
    assert code == 0, err
    rows = {row["scheme"]: row for row in json.loads(out)["schemes"]}
    tariffs = [f"posted {form}" for form in ("price", "blocks", "tariff", "menu")]
    assert list(rows) == ["equilibrium", "weighted", "uniform", *RIVALS, *tariffs]
    assert rows["equilibrium"]["loss_ratio"] == pytest.approx(1)
    assert rows["contracts"]["loss_ratio"] < 0.6
    assert rows["contracts"]["client_surplus"] == pytest.approx(0, abs=1e-6)
    assert rows["multidimensional-auction"]["spend"] < 200
    assert not any(row["biased"] or row["left_out"] for row in rows.values())


def test_compare_says_who_gains_by_lying_and_who_is_left_out(
    run: Run, few: Path, tmp_path: Path
) -> None:
    table = ("--scheme", "equilibrium", "--scheme", "proportional-share", "--format", "json")
    code, out, _ = run("compare", few, *ALPHA, "--budget", 30, "--lies", 2, *table)
    honest, auction = json.loads(out)["schemes"]
    assert code == 0
    assert honest["median_gain"] > 0.5
    assert (auction["median_gain"], auction["largest_gain"]) == (0, 0)
    sellers = tmp_path / "sellers.csv"
    population(6, mean_value=0).write(sellers)
    code, out, _ = run("compare", sellers, *ALPHA, "--budget", 30, "--rivals")
    assert code == 0
    (line,) = (line for line in out.splitlines() if line.startswith(" proportional-share"))
    assert "inf" in line
    assert "yes" in line


def test_price_takes_a_rival(run: Run, clients: Path) -> None:
    code, out, _ = run("price", clients, *ALPHA, "--scheme", "proportional-share")
    assert code == 0
    assert "proportional-share, 40 clients" in out


def test_options_that_do_nothing_are_refused(run: Run, clients: Path) -> None:
    code, _, err = run("compare", clients, *ALPHA, "--cost", 50)
    assert (code, err) == (2, "fedprice: --cost and --value require --beliefs exponential.\n")


def test_price_warns_of_a_fee_that_nobody_would_pay(run: Run, clients: Path) -> None:
    ask = ("price", clients, *ALPHA)
    code, out, err = run(*ask, "--budget", -1000000)
    assert code == 0
    assert "optimal" in out
    assert err.startswith("warning: client 7 and 2 more would have to pay more than they can gain")
    assert "1,000,093 for a level of 1.375e-06" in err
    code, out, err = run(*ask, "--budget", -1000000, "--format", "json")
    assert err == f"warning: {json.loads(out)['warnings'][0]}\n"
    code, out, err = run(*ask, "--budget", 10, "--outside", "free", "--format", "json")
    assert (code, err, json.loads(out)["warnings"]) == (0, "", [])


def test_compare_says_which_offers_are_whole_and_what_contracts_know(
    run: Run, clients: Path
) -> None:
    schemes = ("--scheme", "equilibrium", "--scheme", "contracts", "--scheme", "at-cost")
    code, out, _ = run("compare", clients, *ALPHA, *schemes)
    assert code == 0
    assert "Offers that are whole (contracts, at-cost): one level for one payment" in out
    assert "contracts know every cost and value" in out
    assert "at-cost reimburses costs as clients state them" in out
    rows = json.loads(run("compare", clients, *ALPHA, *schemes, "--format", "json")[1])["schemes"]
    assert [row["offers"] for row in rows] == ["price", "whole", "whole"]
    assert rows[1]["distance"] < rows[2]["distance"] < rows[0]["distance"]
    assert "whole" not in run("compare", clients, *ALPHA)[1]


def test_frontier_and_compare_warn_too(run: Run, clients: Path) -> None:
    _, out, err = run("price", clients, *ALPHA, "--budgets=-50:500:12", "--format", "json")
    assert err == f"warning: {json.loads(out)['warnings'][0]}\n"
    assert err.startswith("warning: losses at budgets up to 150 rely on fees")
    _, out, err = run("compare", clients, *ALPHA, "--budget", 10, "--format", "json")
    assert err == f"warning: {json.loads(out)['warnings'][0]}\n"
    assert err.startswith("warning: equilibrium: client 7 and 2 more")
