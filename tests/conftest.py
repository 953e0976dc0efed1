"""What all tests share."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from fedprice.cli import main

# The same examples on every run: a failure can be repeated, and chance cannot turn a run red.
# Nor can a busy machine: neither an example nor the choice of examples has a limit of time.
settings.register_profile(
    "few", deadline=None, derandomize=True, max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
settings.register_profile("all", settings.get_profile("few"), max_examples=150)  # `make test-all`
settings.load_profile("few")

pytest_plugins = ["tests.databases", "tests.images"]

Run = Callable[..., tuple[int, str, str]]
HERE = Path(__file__).parent
# What takes longest, so that no process is left with it at the end.
FIRST = [HERE / name for name in ("test_readme.py", "web", "experiments", "flower", "market")]


@pytest.hookimpl(tryfirst=True)  # before slow tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the long files, and leave to `make test-all` what repeats other tests."""
    seen: set[str] = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if parameters.get("url") == "postgresql":
            repeats = not item.get_closest_marker("both_databases")
        else:
            repeats = test in seen and item.get_closest_marker("first_case") is not None
        if repeats:
            item.add_marker("slow")
        seen.add(test)
    ranks = {path: rank for rank, path in enumerate(reversed(FIRST), start=1)}
    items.sort(key=lambda item: -max(ranks.get(path, 0) for path in (item.path, item.path.parent)))


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run a command in this process, and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["fedprice", *map(str, arguments)])
    for end in ("end", "end_now"):
        monkeypatch.setattr(f"fedprice.cli.{end}", sys.exit)  # the process is that of the tests
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in process: exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = exit_code(monkeypatch, *arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call
