"""The report of a study behind the guard, and what its budgets bought."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fedprice.errors import InputError
from fedprice.web.guard import Guard
from fedprice.web.pages.results import POLICY
from fedprice.web.study_results import accuracy_bought, report_of, studied_budgets

from .asgi import Asking
from .conftest import REPORT

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi import FastAPI

TOKEN = "0123456789abcdef-._~"


@pytest.fixture
def guarded(in_process: FastAPI) -> Guard:
    return Guard(in_process, host="127.0.0.1", port=8080, token=TOKEN)


def test_a_report_needs_the_token_and_may_run_no_script(guarded: Guard) -> None:
    client = Asking(guarded)
    assert client.get("/results/report.html").status == 401
    answer = client.get("/results/report.html", headers={"authorization": f"Bearer {TOKEN}"})
    assert (answer.status, answer.text) == (200, REPORT)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert "script-src" not in POLICY
    assert POLICY.startswith("default-src 'none'")
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"
    assert answer.headers["x-content-type-options"] == "nosniff"
    for other in ("/results/run.json", "/results/tables/table-budgets.csv"):
        assert client.get(other, headers={"authorization": f"Bearer {TOKEN}"}).status == 404


def test_a_report_that_leads_out_of_the_directory_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.html").write_text("secret", encoding="utf-8")
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "report.html").symlink_to(tmp_path / "secret.html")
    with pytest.raises(InputError, match="leads out of the directory"):
        report_of(tmp_path / "study")
    (tmp_path / "study" / "tables").mkdir()
    (tmp_path / "study" / "tables" / "table-budgets.csv").symlink_to(tmp_path / "secret.html")
    with pytest.raises(InputError, match="leads out of the directory"):
        studied_budgets(tmp_path / "study")
    with pytest.raises(InputError, match=r"has no report\.html\. Write one with: fedprice study"):
        report_of(tmp_path)


def test_the_accuracy_that_budgets_bought(tmp_path: Path) -> None:
    assert studied_budgets(tmp_path) is None
    assert studied_budgets(None) is None
    (tmp_path / "tables").mkdir()
    file = tmp_path / "tables" / "table-budgets.csv"
    file.write_text("other\n1\n", encoding="utf-8")
    assert studied_budgets(tmp_path) is None
    file.write_text(
        "scheme,budget,accuracy,accuracy low,accuracy high\n"
        "equilibrium,100,0.8,0.79,0.81\nequilibrium,300,0.9,,\nfull,NaN,0.95,NaN,NaN\n",
        encoding="utf-8",
    )
    table = studied_budgets(tmp_path)
    assert table is not None
    assert accuracy_bought(table, "equilibrium", 200) == (
        "Accuracy in the study: 0.800 (0.790 to 0.810) with a budget of 100; 0.9 with a budget of "
        "300; 0.95 if everybody joins."
    )
    assert accuracy_bought(table, "uniform", 200) == ""
    file.write_text("scheme,budget,loss\nequilibrium,100,0.4\nfull,NaN,0.3\n", encoding="utf-8")
    table = studied_budgets(tmp_path)
    assert table is not None
    assert accuracy_bought(table, "equilibrium", 200) == (
        "Loss in the study: 0.4 with a budget of 100; 0.3 if everybody joins."
    )
    file.write_text("scheme,budget,accuracy\nequilibrium,much,0.8\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"table-budgets\.csv: "):
        studied_budgets(tmp_path)
