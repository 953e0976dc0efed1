"""Crashes and damage: nothing is lost, nothing is doubled, nothing goes unnoticed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from trials.flips import flips
from trials.forgeries import forgeries
from trials.kills import POINTS
from trials.power import HAS_COMPILER, power_losses


@pytest.mark.first_case
@pytest.mark.parametrize(("kind", "kills"), [("sqlite", 20), ("sqlite", 60), ("postgresql", 20)])
def test_killed_markets_go_on(
    kind: str, kills: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`make bench-market` kills 500."""
    url = f"sqlite:///{tmp_path}/{{run}}.db"
    if kind == "postgresql":
        url = request.getfixturevalue("postgres").replace("/postgres?", "/kills{run}?")
    command = [sys.executable, "-m", "trials.kills", url, str(kills)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] >= kills
    assert len(found["points"]) >= len(POINTS) // 2
    for bad in ("rounds lost", "payments doubled", "not verified", "other models"):
        assert found[bad] == 0, found


@pytest.mark.slow
def test_flipped_bits_do_not_go_unnoticed(tmp_path: Path) -> None:
    """`make bench-market` flips 1,500."""
    found = flips(tmp_path, 300)
    assert found["undetected"] == 0
    assert found["detected"] > 50


def test_forged_messages_are_refused() -> None:
    """`make bench-market` sends 20,000."""
    found = forgeries(2000)
    assert (found["accepted"], found["crashes"], found["not finite"]) == (0, 0, 0)


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler (cc)")
def test_a_power_loss_takes_nothing_that_was_reported_as_recorded() -> None:
    """`make bench-market` loses power 400 times."""
    found = power_losses(8)
    assert found["losses"] == 8
    assert (found["acknowledged entries lost"], found["not verified"]) == (0, 0)
