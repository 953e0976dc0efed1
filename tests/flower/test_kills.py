"""A server that is killed while it comes to an agreement goes on: nothing signed is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flower.kills import STEPS


@pytest.mark.parametrize(
    "form",
    [
        pytest.param("in turn, briefly", marks=pytest.mark.slow),
        pytest.param("in turn", marks=pytest.mark.slow),
        pytest.param("blocks", marks=pytest.mark.slow),
    ],
)
def test_a_killed_server_loses_no_answer(form: str, tmp_path: Path) -> None:
    """Between the turns of offers, between commitments and the opening, and in the rounds."""
    command = [sys.executable, "-m", "tests.flower.kills", str(tmp_path), form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["wrong"] == []
    assert found["kills"] >= len(STEPS[form])
