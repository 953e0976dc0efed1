"""What all tests share."""

import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

from fedprice.cli import main

# The same examples on every run: a failure can be repeated, and chance cannot turn a run red.
settings.register_profile("fedprice", deadline=None, derandomize=True, max_examples=150)
settings.load_profile("fedprice")

pytest_plugins = ["tests.databases", "tests.images"]

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in process: exit code, stdout and stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedprice", *map(str, arguments)])
        monkeypatch.setattr("fedprice.cli.end_now", sys.exit)  # the process is that of the tests
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call
