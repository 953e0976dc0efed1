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
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import pytest

from fedprice.experiments.settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")

# Lines that are not executed, and why.
EXCLUDED = {
    "make demo": "installs, and reproduces Setup 1 as `fedprice reproduce setup1 --quick` does",
    "source .venv/bin/activate": "the environment of the tests is active",
    "fedprice reproduce": "trains for most of an hour, with data that have to be downloaded",
}
# Lines that are executed for fewer rounds: what is put in the place of what.
SHORTENED = {
    "fedprice simulate setup1 --scheme equilibrium": ("--seeds 1", "--seeds 1 --rounds 20"),
    "fedprice simulate setup1 --seeds 20": ("--seeds 20", "--seeds 2 --rounds 20"),
    "fedprice reproduce setup1 --quick": ("--quick", "--settings small.toml"),
}
# Lines that serve until they are stopped; they must answer.
SERVES = "fedprice serve"
# Lines that take long in any case.
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
    small = Settings(
        setups=("setup1",), seeds=2, most_seeds=2, rounds=50, local_steps=10, num_clients=8,
        pilot_repeats=8, pilot_rounds=(5, 10), bias_seeds=2, level_vectors=6, level_rounds=20,
        population_draws=5, random_prices=20,
    )  # fmt: skip
    (tmp_path / "small.toml").write_text(small.to_toml(), encoding="utf-8")
    return tmp_path


def test_the_lists_of_lines_are_those_of_the_readme() -> None:
    lines = list(map(plain, commands()))
    assert set(EXCLUDED) <= set(lines)
    for start in (*SHORTENED, SLOW):
        assert sum(line.startswith(start) for line in lines) == 1, start


def test_the_commands_of_the_readme(folder: Path) -> None:
    def execute_block(lines: list[str]) -> None:
        for line in lines:
            if plain(line) in EXCLUDED or line.startswith(SLOW):
                continue
            if line.startswith(SERVES):
                ask(line, folder)
                continue
            for start, (old, new) in SHORTENED.items():
                if line.startswith(start):
                    line = line.replace(old, new, 1)
            execute(line, folder)

    with ThreadPoolExecutor(2) as pool:  # no block needs another one
        list(pool.map(execute_block, blocks()))
    ignored = (ROOT / ".gitignore").read_text("utf-8").splitlines()
    made = {path.name for path in folder.iterdir()} - {"examples", "small.toml", "cache"}
    assert len(made) > 5
    for name in made:
        assert any(fnmatch(f"/{name}", rule.rstrip("/")) for rule in ignored), name


@pytest.mark.slow
def test_the_deployment_of_the_readme(folder: Path) -> None:
    for line in commands():
        if line.startswith(SLOW):
            execute(line, folder)
