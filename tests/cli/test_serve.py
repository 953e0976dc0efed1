"""`fedprice serve`: what it refuses before it serves anything."""

from pathlib import Path

from tests.conftest import Run


def test_a_missing_file_is_said_before_anything_is_served(run: Run, tmp_path: Path) -> None:
    code, out, err = run("serve", tmp_path / "clients.csv", "--no-browser", "--port", "0")
    assert (code, out) == (2, "")
    assert "there is no file" in err


def test_a_calibration_goes_with_clients(run: Run, tmp_path: Path) -> None:
    code, out, err = run("serve", "--calibration", tmp_path / "x.json", "--no-browser")
    assert (code, out) == (2, "")
    assert "fedprice serve CLIENTS --calibration FILE" in err


def test_a_budget_is_a_number(run: Run) -> None:
    code, out, err = run("serve", "--budget", "nan")
    assert (code, out, err) == (2, "", "fedprice: --budget must be a finite number; got nan.\n")
