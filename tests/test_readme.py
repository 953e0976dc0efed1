"""The commands of the README, executed as written, in the order of their block.

Its Python blocks are doctests.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import urllib.request
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path

import pytest

from fedprice.experiments.settings import Settings
from tests.conftest import Run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")

# Lines that are not executed, and why.
EXCLUDED = {
    "make demo": "installs, and reproduces Setup 1 as `fedprice study setup1 --quick` does",
    "source .venv/bin/activate": "the environment of the tests is active",
}
# Lines that are executed for fewer rounds: what is put in the place of what.
SHORTENED = {
    "fedprice simulate setup1": ("setup1", "setup1 --rounds 20"),
    "fedprice study digits": ("digits", "digits --seeds 2 --rounds 20"),
    "fedprice study examples": ("--rounds 50 --seeds 5", "--rounds 20 --seeds 2"),
    "fedprice study setup1 --quick": ("--quick", "--settings small.toml"),
}
# Lines that serve until they are stopped; they must answer.
SERVES = "fedprice serve"
# Lines that only `make test-all` executes, as they take long in any case.
SLOW = "fedprice flower up"


def blocks() -> list[list[str]]:
    found = re.findall(r"^```sh\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    return [[line for line in block.splitlines() if line.strip()] for block in found]


def commands() -> list[str]:
    return [line for block in blocks() for line in block]


def plain(line: str) -> str:
    return line.partition("  #")[0].strip()


def surroundings(folder: Path) -> dict[str, str]:
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    environment.pop("FEDPRICE_LEDGER", None)
    return environment


def execute(line: str, folder: Path) -> None:
    done = subprocess.run(
        line, shell=True, cwd=folder, capture_output=True, text=True, timeout=600,
        env=surroundings(folder),
    )  # fmt: skip
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


def ask(line: str, folder: Path) -> None:
    """Run a line that serves, ask it for its page, and end it as Ctrl-C does."""
    words = [*shlex.split(plain(line)), "--no-browser", "--port", "0"]
    with subprocess.Popen(
        words, cwd=folder, stderr=subprocess.PIPE, text=True, env=surroundings(folder)
    ) as process:
        ended = threading.Timer(60, process.kill)
        ended.start()
        assert process.stderr is not None
        said = process.stderr.readline()
        with urllib.request.urlopen(said.partition("fedprice is at ")[2].split()[0]) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        ended.cancel()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory that looks like a clone from inside."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    small = Settings.quick(
        setups=("setup1",), seeds=2, most_seeds=2, rounds=50, local_steps=10, num_clients=8,
        pilot_repeats=8, pilot_rounds=(5, 10),
    )  # fmt: skip
    (tmp_path / "small.toml").write_text(small.to_toml(), encoding="utf-8")
    return tmp_path


def test_the_lists_of_lines_are_those_of_the_readme() -> None:
    lines = list(map(plain, commands()))
    assert set(EXCLUDED) <= set(lines)
    for start in (*SHORTENED, SLOW):
        assert sum(line.startswith(start) for line in lines) == 1, start


def executed() -> list[list[str]]:
    """The lines of each block as the tests execute them."""

    def shortened(line: str) -> str:
        for start, (old, new) in SHORTENED.items():
            if line.startswith(start):
                return line.replace(old, new, 1)
        return line

    return [
        [shortened(line) for line in block if plain(line) not in EXCLUDED and SLOW not in line]
        for block in blocks()
    ]


@pytest.mark.slow
def test_the_commands_of_the_readme(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, but for those that serve: nearly all of a short command is its start."""
    monkeypatch.chdir(folder)
    for name, value in surroundings(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("FEDPRICE_LEDGER", raising=False)
    for line in chain(*executed()):
        if line.startswith(SERVES):
            ask(line, folder)
        else:
            program, *arguments = shlex.split(plain(line))
            assert program == "fedprice"
            code, out, err = run(*arguments)
            assert code == 0, f"{line}\n{out}{err}"
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    made = {path.name for path in folder.iterdir()} - {"examples", "small.toml", "cache"}
    assert len(made) > 5
    for name in made:
        assert any(fnmatch(f"/{name}", rule.rstrip("/")) for rule in ignored), name


@pytest.mark.slow
def test_the_commands_of_the_readme_in_a_shell(folder: Path) -> None:
    for line in chain(*executed()):
        if not line.startswith(SERVES):
            execute(line, folder)


@pytest.mark.slow
def test_the_deployment_of_the_readme(folder: Path) -> None:
    for line in commands():
        if line.startswith(SLOW):
            execute(line, folder)
