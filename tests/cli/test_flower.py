"""`fedprice flower`, as typed: in process, and what it says to bad input."""

from pathlib import Path

import pytest

from tests.conftest import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDPRICE_LEDGER", raising=False)
    return tmp_path


def simulate(run: Run, settings: str) -> tuple[int, str, str]:
    return run("flower", "simulate", EXAMPLE, "--run-config", settings)


def test_an_app_in_process(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = simulate(run, "rounds=2 clients=2 budget=60")
    assert code == 0, err
    assert "first: 2 of 2 rounds, settled" in out
    assert (home / "market.db").exists()
    monkeypatch.setenv("FEDPRICE_LEDGER", "other.db")
    code, out, err = simulate(run, "rounds=3 clients=2 budget=60")
    assert code == 0, err
    assert "first: 3 of 3 rounds, settled" in out
    assert (home / "other.db").exists()


def test_bad_input_is_one_line(run: Run, home: Path) -> None:
    (home / "notes").write_text("x")
    (home / "broken").mkdir()
    (home / "broken" / "pyproject.toml").write_text("[project]")
    assert simulate(run, "rounds=2 clients=2 budget=60")[0] == 0
    for arguments, text in (
        (("simulate", home / "none"), "there is no Flower app in"),
        (("simulate", home / "broken"), "not that of a Flower app"),
        (("simulate", EXAMPLE, "--run-config", "runds=3"), "Did you mean 'rounds'"),
        (("simulate", EXAMPLE, "--run-config", "rounds=many"), "text needs quotes"),
        (("simulate", EXAMPLE, "--run-config", 'rounds="ten"'), "must be a whole number"),
        (("simulate", EXAMPLE, "--run-config", "budget=true"), "must be a number"),
        (("simulate", EXAMPLE, "--run-config", "at-once=-1"), "at least 0"),
        (("simulate", EXAMPLE, "--run-config", "clients=0"), "at least one"),
        (("simulate", EXAMPLE, "--run-config", "rounds=3 clients=2 budget=60"), "another name"),
        (("simulate", EXAMPLE, "--run-config", "budget=9 rounds=2 clients=2"), "another budget"),
        (("keys", home / "notes", "--clients", 2), "is not a directory"),
    ):
        code, out, err = run("flower", *arguments)
        assert (code, out) == (2, ""), (arguments, err)
        assert text in err.splitlines()[-1]


def test_a_deployment_that_fails_is_exit_code_7(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, out, err = run("flower", "up", EXAMPLE, "--clients", 2, "--netns")
    assert (code, out) == (7, "")
    assert "needs the commands ip and tc" in err.splitlines()[-1]


def test_keys_for_everybody(run: Run, home: Path) -> None:
    assert run("flower", "keys", "keys", "--clients", 2)[0] == 0
    names = sorted(path.name for path in (home / "keys").iterdir())
    assert names == [
        "client-1.key", "client-1.pub", "client-2.key", "client-2.pub", "server.key", "server.pub",
    ]  # fmt: skip
    assert (home / "keys" / "server.key").stat().st_mode & 0o077 == 0
    code, _, err = run("flower", "keys", "keys", "--clients", 2)
    assert code == 2
    assert "a key is not overwritten" in err
