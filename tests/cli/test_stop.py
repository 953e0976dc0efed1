"""Ctrl-C: commands end at once, and simulate goes on where it was."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedprice._plumbing.python_files import load_function
from tests.cli.test_own import COSTS, TASK, calibration
from tests.conftest import Run

# A kernel that is being compiled keeps its thread busy for many seconds, as this task does: for
# longer than a stopped command is waited for, on a busy machine too.
BUSY = """
import time
from pathlib import Path
import fedprice as fp
from fedprice.data.synthetic import synthetic

class Busy(fp.LogisticRegression):
    def updates(self, *arguments):
        Path("begun").touch()
        time.sleep(600)

def task():
    return Busy(synthetic(num_clients=3, samples=300))
"""

# The update of a round is the last one if a file says so.
STOPPING = TASK.replace(
    "    noise =",
    """    from pathlib import Path
    with Path("calls").open("a") as file:
        file.write(".")
    if Path("stop").exists() and round_ == 35:
        raise KeyboardInterrupt
    noise =""",
)


@pytest.mark.first_case
@pytest.mark.parametrize("command", ["calibrate", "simulate"])
def test_ctrl_c_waited_for_threads(tmp_path: Path, command: str) -> None:
    """It took up to 18 s: polars lets waits go on after a signal, and pools waited, too."""
    (tmp_path / "busy.py").write_text(BUSY, encoding="utf-8")
    (tmp_path / "costs.csv").write_text("client_id,cost,value\n1,3,0\n2,4,9\n3,5,1\n")
    more = ("--clients", "costs.csv", "--budget", "3") if command == "simulate" else ()
    with subprocess.Popen(
        [sys.executable, "-m", "fedprice", command, "busy.py:task", *more],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
    ) as process:
        while not (tmp_path / "begun").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        try:
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
    assert (process.returncode, err.strip()) == (130, "fedprice: stopped.")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("own.py").write_text(STOPPING, encoding="utf-8")
    Path("costs.csv").write_text(COSTS, encoding="utf-8")
    fingerprint = load_function("own.py:task", "task")().fingerprint
    calibration(task=fingerprint).write("c.json")
    return tmp_path


@pytest.mark.parametrize("work", [(), ("--work", "kept")])
def test_a_stopped_run_lost_its_work(run: Run, home: Path, work: tuple[str, ...]) -> None:
    arguments = (
        "simulate", "own.py:task", "--clients", "costs.csv", "--calibration", "c.json", "--budget",
        3, "--rounds", 50, *work, "--format", "json",
    )  # fmt: skip
    code, whole, told = run(*arguments)  # `told`: what is said of the prices, if anything
    assert code == 0, told
    calls = len(Path("calls").read_text())
    folder = home / "kept" if work else home / "cache" / "fedprice" / "work"
    assert not folder.exists()
    Path("stop").touch()
    code, out, err = run(*arguments)
    assert (code, out) == (130, "")
    shown = "kept" if work else folder
    assert err == (
        f"fedprice: stopped; all progress is kept in {shown}. Run the same command again to "
        "resume.\n"
    )
    Path("stop").unlink()
    Path("calls").unlink()
    assert run(*arguments) == (0, whole, told)
    assert len(Path("calls").read_text()) < calls / 2
    assert not folder.exists()


def test_changed_code_does_not_go_on(run: Run, home: Path) -> None:
    arguments = (
        "simulate", "own.py:task", "--clients", "costs.csv", "--calibration", "c.json",
        "--budget", 3, "--rounds", 50, "--scheme", "uniform", "--format", "json",
    )  # fmt: skip
    Path("stop").touch()
    assert run(*arguments)[0] == 130
    Path("stop").unlink()
    Path("own.py").write_text(STOPPING.replace("0.5 *", "0.4 *"), encoding="utf-8")
    changed = run(*arguments)[1]
    assert changed == run(*arguments)[1]


def test_the_pilots_are_not_run_twice(run: Run, home: Path) -> None:
    arguments = (
        "simulate", "own.py:task", "--clients", "costs.csv", "--budget", 3, "--rounds", 50,
        "--scheme", "uniform", "--format", "json", "--work", "kept",
    )  # fmt: skip
    text = STOPPING.replace("round_ == 35", "round_ == 35 and seed == 0")
    Path("own.py").write_text(text, encoding="utf-8")
    Path("stop").touch()
    code, _, err = run(*arguments)
    assert (code, "all progress is kept in kept" in err) == (130, True)
    assert json.loads(next(Path("kept").glob("*.json")).read_text())["name"] == "goals"
    Path("stop").unlink()
    Path("calls").unlink()
    assert run(*arguments)[0] == 0
    assert len(Path("calls").read_text()) < 100


def test_an_empty_work_directory_of_the_user_stays(run: Run, home: Path) -> None:
    (home / "mine").mkdir()
    code, _, err = run(
        "simulate", "own.py:task", "--clients", "costs.csv", "--calibration", "c.json", "--budget",
        3, "--rounds", 5, "--scheme", "equilibrium", "--work", "mine",
    )  # fmt: skip
    assert code == 0, err
    assert list((home / "mine").iterdir()) == []
