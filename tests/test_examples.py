"""The examples run as they are, and are short enough to be read."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
NEEDS = {"torch_cnn": "torch"}


@pytest.mark.first_case
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_learns(path: Path) -> None:
    needed = NEEDS.get(path.stem, "fedprice")
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} is not installed: pip install '.[torch]'")
    assert len(path.read_text("utf-8").splitlines()) < 60
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stderr == ""
    accuracy = float(done.stdout.partition("accuracy=")[2].partition(",")[0])
    assert accuracy > 0.75
