"""The how-to for NVIDIA FLARE, executed in its simulator: `pip install nvflare 'flwr<1.40'`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fedprice.market.ledger import Ledger
from tests.flower.test_guide import PLAIN, priced

__all__ = ["priced"]  # a fixture

HOWTO = Path(__file__).parents[2] / "docs" / "howto" / "nvidia-flare.md"


@pytest.mark.slow
def test_a_market_in_nvidia_flares_simulator(priced: Path) -> None:
    pytest.importorskip("nvflare", reason="NVIDIA FLARE is not installed")
    here, text = Path.cwd(), HOWTO.read_text("utf-8")
    assert PLAIN.exists()
    (here / "app").symlink_to(priced)
    shell, python = (
        re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0] for kind in ("sh", "python")
    )
    lines = [line for line in shell.splitlines() if not line.startswith("pip install")]
    (here / "job.py").write_text(python, "utf-8")
    script = "set -e\n" + "\n".join([*lines, f"{sys.executable} job.py"])
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ledger = Ledger("sqlite:///market.db", create=False)
    found = ledger.verify().runs["run"]
    ledger.close()
    assert (found.done, found.settled, [*found.clients]) == (6, True, ["1", "2"])
    assert sum(client.joined for client in found.clients.values()) > 0
