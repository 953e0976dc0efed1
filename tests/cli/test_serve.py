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
    assert (code, out) == (2, "")
    assert "'nan' is not a number" in err


def test_an_order_needs_something_to_match_with(run: Run, tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text("client_id,samples,cost\na,1,2\n")
    code, out, err = run("serve", tmp_path / "clients.csv", "--by-order", "--no-browser")
    assert (code, out) == (2, "")
    assert "--by-order matches rows with measured clients; give --calibration FILE" in err
    code, out, err = run("serve", "--by-order", "--no-browser")
    assert (code, out) == (2, "")
    assert "there is no table of clients" in err
