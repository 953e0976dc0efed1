"""The in-process Flower tests on several versions of Flower: `make test-flower-versions`.

One line per version: what was installed, whether the tests pass, and hashes of models trained in a
market, without a strategy of Flower's and with one, which are the same on all versions.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "flower-versions"
NAMES = ("compat", "guide", "mods", "participation", "strategies", "wire", "wrapped")
TRAIN = """
from flwr.serverapp.strategy import FedAdam
from fedprice.flower import InProcessGrid
from fedprice.market.ledger import Ledger
from fedprice.market.updates import arrays_hash
from tests.flower import apps

for strategy in (None, FedAdam()):
    ledger = Ledger("sqlite://", identity="ab" * 32)  # from which coins follow
    market = apps.strategy(ledger, strategy=strategy, aggregator=None)
    grid = InProcessGrid(apps.client_app(apps.train), 4)
    result = market.start(grid, apps.initial(), num_rounds=5)
    print("model", arrays_hash(result.arrays.to_numpy_ndarrays())[:12])
"""
PIP = ("-m", "pip", "--disable-pip-version-check", "--quiet")


def oldest() -> str:
    """Return the oldest minor version that pyproject.toml allows."""
    match = re.search(r'"flwr>=([0-9.]+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert match
    return match[1]


def published() -> list[str]:
    """Return the newest release of every minor version from the oldest on, oldest first."""
    said = _run(sys.executable, *PIP[:-1], "index", "versions", "flwr").stdout
    match = re.search(r"Available versions: (.*)", said)
    assert match, said
    newest: dict[tuple[int, ...], str] = {}
    for version in match[1].split(", "):
        newest.setdefault(_numbers(version)[:2], version)
    return [newest[key] for key in sorted(newest) if key >= _numbers(oldest())[:2]]


def chosen(versions: list[str]) -> list[str]:
    """Return the oldest, two between and the newest.

    >>> chosen(["1.32.1", "1.33.0", "1.34.0", "1.35.0", "1.36.0", "1.37.0", "1.38.0"])
    ['1.32.1', '1.34.0', '1.36.0', '1.38.0']
    """
    last = len(versions) - 1
    return [versions[number] for number in sorted({0, last // 3, 2 * last // 3, last})]


def check(version: str, before: str) -> tuple[str, str, bool]:
    """Return the line of a version, its model's hash, and whether the tests pass."""
    place = BUILD / version
    python = str(place / "bin" / "python")
    _run(sys.executable, "-m", "venv", "--clear", str(place)).check_returncode()
    needs = [f"{ROOT}[flower,learn]", "hypothesis", "pytest", "pyyaml"]
    note = ""
    if _run(python, *PIP, "install", f"flwr=={version}", *needs).returncode:
        # A release may need another one that this index does not have yet.
        note = f" (with the dependencies of {before})"
        _run(python, *PIP, "install", f"flwr=={before}", *needs).check_returncode()
        _run(python, *PIP, "install", "--no-deps", f"flwr=={version}").check_returncode()
    tests = [
        str(path) for name in NAMES if (path := ROOT / f"tests/flower/test_{name}.py").exists()
    ]
    tested = _run(python, "-m", "pytest", "-q", "-W", "default", *tests)
    (place / "tests.log").write_text(tested.stdout + tested.stderr, "utf-8")
    counts = re.findall(r"\d+ (?:passed|failed|errors?|skipped)", tested.stdout[-2000:])
    trained = _run(python, "-c", TRAIN)
    (place / "train.log").write_text(trained.stdout + trained.stderr, "utf-8")
    digest = " ".join(re.findall(r"^model (\w+)", trained.stdout, re.MULTILINE)) or "none"
    sound = not tested.returncode and not trained.returncode
    return f"{version}{note}: {', '.join(counts)}; model {digest}", digest, sound


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    own = {name: x for name, x in os.environ.items() if not name.startswith("FEDPRICE_")}
    return subprocess.run(command, cwd=ROOT, env=own, capture_output=True, text=True, check=False)


def main(wanted: list[str]) -> int:
    """Check the given versions, or a choice of those published; return an exit code."""
    versions = published()
    digests, sound = set(), True
    for version in wanted or chosen(versions):
        earlier = [v for v in versions if _numbers(v) < _numbers(version)]
        line, digest, passed = check(version, (earlier or [version])[-1])
        digests.add(digest)
        sound &= passed
        sys.stdout.write(f"Flower {line}\n")
        sys.stdout.flush()
    return 0 if sound and len(digests) == 1 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
