"""Faults of a real deployment: the run ends or resumes correctly, and the books are right."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedprice.flower.app import FlowerApp
from fedprice.flower.certificates import write_node_key
from fedprice.flower.deployment import Deployment
from fedprice.flower.processes import MARK, DeploymentError, free_port, marked
from fedprice.market.ledger import Ledger
from tests.flower.faults import KINDS, faulty_app
from tests.flower.test_places import engine, example, hashes

__all__ = ["engine"]

pytestmark = pytest.mark.slow


def test_clients_that_misbehave(tmp_path: Path) -> None:
    """One honest client, and one each that raises, lies, forges, replays, hangs and is killed."""
    url = f"sqlite:///{tmp_path / 'market.db'}"
    # A budget that buys everybody for every round: all draw heads always.
    config = (
        f'clients={len(KINDS)} rounds=2 run="faults" budget=100000.0 round-timeout=60.0 '
        f'ledger="{url}"'
    )
    app = FlowerApp.read(faulty_app(tmp_path / "app"), config)

    with Deployment(tmp_path / "work", len(KINDS)) as deployment:
        stranger = tmp_path / "stranger"
        write_node_key(stranger)
        assert_turned_away(deployment, stranger)
        ended = False

        def watch() -> None:
            nonlocal ended
            if not ended and (tmp_path / "market.db").exists():
                ledger = Ledger(url, create=False)
                if ledger.opening("faults") is not None:
                    deployment.kill(f"node-{KINDS.index('killed') + 1}")  # in the first round
                    ended = True
                ledger.close()

        app.config["keys"] = str(tmp_path / "work" / "keys" / "all")
        assert deployment.run(app, watch, timeout=400) == "finished:completed"
    assert ended
    assert marked(deployment.mark) == []
    ledger = Ledger(url, create=False)
    run = ledger.verify().runs["faults"]
    found = {kind: run.clients[str(n + 1)] for n, kind in enumerate(KINDS)}
    reasons: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for entry in ledger.entries("faults"):
        for name, (reason, *_) in entry.content.get("refused", {}).items():
            reasons[KINDS[int(name) - 1]].add(reason)
    ledger.close()
    assert (run.done, run.settled) == (2, True)
    assert all(own.heads == 2 for own in found.values())
    assert found["honest"].joined == 2
    assert found["honest"].paid == found["honest"].payment
    assert found["replayed"].joined == 1
    for kind in set(KINDS) - {"honest", "replayed"}:
        assert found[kind].joined == 0, kind
        assert found[kind].paid <= 0, kind
    assert found["hangs"].missed + found["hangs"].refused == 2
    assert found["killed"].missed + found["killed"].refused == 2
    for kind, said in (
        ("raises", "its program failed"),
        ("not finite", "it is not finite"),
        ("wrong shape", "of shape"),
        ("forged", "not the ones that were signed"),
        ("replayed", "it is for round 1, not"),
    ):
        assert reasons[kind], kind
        assert all(said in reason for reason in reasons[kind]), (kind, reasons[kind])


def assert_turned_away(deployment: Deployment, key: Path) -> None:
    """A SuperNode whose key is not registered does not get in."""
    command = [
        "flower-supernode", "--superlink", f"127.0.0.1:{deployment.port}",
        "--host", "127.0.0.1", "--root-certificates", str(deployment.folder / "ca.crt"),
        "--auth-supernode-private-key", str(key), "--port", str(free_port()),
    ]  # fmt: skip
    said = deployment.folder / "stranger.log"
    with said.open("wb") as log:  # a file: what it starts keeps a pipe open a little longer
        process = subprocess.Popen(
            command, env=deployment._environment("stranger"), stdout=log, stderr=log
        )
        assert process.wait(60) != 0
    assert "2004" in said.read_text()  # not activated


def test_a_killed_superlink(tmp_path: Path, engine: list[str]) -> None:
    """It is started again, and the run goes on from the ledger to the same end."""
    app = example(tmp_path)
    url, killed = app.config["ledger"], False
    with Deployment(tmp_path / "work", 4, market_keys=False) as deployment:

        def crash() -> None:
            nonlocal killed
            if not killed and (tmp_path / "market.db").exists():
                ledger = Ledger(url, create=False)
                if ledger.opening("same") is not None and ledger.rounds_done("same") > 0:
                    deployment.kill("superlink")
                    killed = True
                ledger.close()

        with pytest.raises(DeploymentError):
            deployment.run(app, crash, timeout=120)
        assert killed
        deployment.start_link()
        deployment.await_nodes()
        assert deployment.run(app, lambda: None, timeout=300) == "finished:completed"
    assert hashes(app) == engine
    assert marked(deployment.mark) == []


@pytest.mark.parametrize("running", [False, True])
def test_ctrl_c_takes_everything_down(tmp_path: Path, running: bool) -> None:
    """While the processes start, and while the market runs."""
    command = [
        sys.executable, "-c", "from fedprice.cli import main; main()", "flower", "up",
        str(example(tmp_path).folder), "--clients", "2", "--rounds", "500", "--work",
        str(tmp_path / "work"), "--run-config", "budget=100000.0",
    ]  # fmt: skip
    said = tmp_path / "said.txt"
    with said.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    started = tmp_path / "work" / "superlink.log"
    until = time.monotonic() + 120
    while not ("round 1:" in said.read_text() if running else started.exists()):
        assert process.poll() is None, said.read_text()
        assert time.monotonic() < until
        time.sleep(0.1)
    time.sleep(0.5)
    os.kill(process.pid, signal.SIGINT)
    code = process.wait(timeout=120)
    assert code == 130, said.read_text()
    assert "stopped; all processes have ended" in said.read_text()
    time.sleep(1)
    left = [
        path
        for path in Path("/proc").glob("[0-9]*/environ")
        if f"FLWR_HOME={tmp_path / 'work'}".encode() in read(path) and MARK.encode() in read(path)
    ]
    assert left == []


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
