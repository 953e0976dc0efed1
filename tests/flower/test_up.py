"""`fedprice flower up` and `--ray`, as typed, with real processes: killed, failing, resumed."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fedprice.flower.processes import MARK, DeploymentError, end_marked, flwr, free_port, offline
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulation_key
from tests.flower.plain import plain_app

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in ("FEDPRICE_LEDGER", "FEDPRICE_RUN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return here


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from fedprice.cli import main; main()", *map(str, arguments)]


def typed(*arguments: object, timeout: float = 400) -> tuple[int, str, str]:
    """The command line, in a process of its own."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout, check=False
    )
    return done.returncode, done.stdout, done.stderr


def processes(home: Path) -> set[int]:
    """The processes of all deployments of a test: they know where it keeps its notes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            said = path.read_bytes()
        except OSError:
            continue
        if MARK.encode() in said and f"XDG_RUNTIME_DIR={home.parent}\0".encode() in said:
            found.add(int(path.parent.name))
    return found


def test_a_killed_up_leaves_nothing_behind_and_goes_on(home: Path) -> None:
    """A SIGKILL in the second round; the same command again ends the run, with the same keys."""
    arguments = (
        "flower", "up", EXAMPLE, "--clients", 2, "--work", "work", "--run-config",
        'rounds=6 budget=60.0 run="long" local-steps=2',
    )  # fmt: skip
    ledger, said = home / "work" / "market.db", home / "killed.log"
    with said.open("wb") as log:
        process = subprocess.Popen(command(*arguments), stdout=log, stderr=log)
        try:
            until = time.monotonic() + 300
            while process.poll() is None and "\nround 1:" not in said.read_text():
                assert time.monotonic() < until
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    done, left = rounds(ledger), processes(home)
    assert 0 < done < 6, said.read_text()
    assert len(left) > 3
    key = (home / "work" / "keys" / "all" / "server.key").read_text()
    certificate = (home / "work" / "ca.crt").read_bytes()
    code, out, err = typed(*arguments)
    assert code == 0, err
    assert "long: 6 of 6 rounds, settled" in out
    assert not left & processes(home)
    assert processes(home) == set()
    assert (home / "work" / "keys" / "all" / "server.key").read_text() == key
    assert (home / "work" / "ca.crt").read_bytes() == certificate
    found = Ledger(str(ledger), create=False)
    found.verify()
    found.close()
    assert list((home.parent / "fedprice").iterdir()) == []


def rounds(path: Path) -> int:
    ledger = Ledger(str(path), create=False)
    try:
        return ledger.rounds_done("long") if ledger.opening("long") is not None else 0
    finally:
        ledger.close()


def test_files_that_an_app_writes_are_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = plain_app(home.parent / "app")
    for arguments in (
        ("up", app, "--clients", 2, "--ledger", "up.db", "--rounds", 1),
        ("simulate", app, "--clients", 2, "--ledger", "ray.db", "--ray", "--rounds", 1),
    ):
        with tempfile.TemporaryDirectory(prefix="fp-") as spare:  # Ray needs a short path
            monkeypatch.setenv("TMPDIR", spare)
            code, out, err = typed("flower", *arguments)
            assert list(Path(spare).glob("fedprice-*")) == []
        assert code == 0, err
        assert "plain: 1 of 1 rounds, settled" in out
        assert np.load("model.npy").shape == (3,)
        Path("model.npy").unlink()
    assert {path.name for path in home.iterdir()} == {"up.db", "ray.db", "plain.log"}
    assert processes(home) == set()


def test_a_run_that_fails_says_why_and_keeps_its_log(home: Path) -> None:
    app = plain_app(home.parent / "app")
    for arguments in (("up",), ("simulate", "--ray")):
        code, out, err = typed(
            "flower",
            arguments[0],
            app,
            "--clients",
            2,
            "--run-config",
            "fails=true",
            *arguments[1:],
        )
        assert (code, out) == (7, ""), err
        last = err.splitlines()[-1]
        assert "the run failed: RuntimeError: the cable is loose See " in last
        log = Path(last.rpartition("See ")[2].removesuffix("."))
        assert "the cable is loose" in log.read_text()
        if arguments == ("up",):
            shutil.rmtree(log.parent)
    assert log == home / "plain.log"
    code, out, err = typed(
        "flower", "simulate", app, "--clients", 2, "--ray", "--timeout", 15, "--run-config",
        "sleeps=60.0",
    )  # fmt: skip
    assert code == 7
    assert f"flwr run took more than 15 s; see {log}" in err.splitlines()[-1]
    assert processes(home) == set()


def test_a_dead_node_starts_again_and_a_dead_server_is_named(home: Path) -> None:
    """First a SuperNode is killed, then the ServerApp; a ledger may be in --work beforehand."""
    (home / "work").mkdir()
    Ledger(str(home / "work" / "market.db"), key=simulation_key("server")).close()
    said = home / "killed.log"
    arguments = (
        "flower", "up", plain_app(home.parent / "app"), "--clients", 2, "--work", "work",
        "--rounds", 40,
    )  # fmt: skip
    with said.open("wb") as log:
        process = subprocess.Popen(command(*arguments), stdout=log, stderr=log)
        try:
            await_text(said, process, "\nround 1:")
            kill(home, "flower-supernode")
            await_text(said, process, "node-1 ended (exit status -9)")
            kill(home, "flwr-serverapp")
            code = process.wait(300)
        finally:
            process.kill()
            process.wait()
    assert code == 7, said.read_text()
    last = said.read_text().splitlines()[-1]
    assert "the ServerApp died: its log holds no error. See " in last
    assert processes(home) == set()


def await_text(path: Path, process: subprocess.Popen[bytes], text: str) -> None:
    until = time.monotonic() + 300
    while text not in path.read_text():
        assert process.poll() is None, path.read_text()
        assert time.monotonic() < until
        time.sleep(0.1)


def kill(home: Path, program: str) -> None:
    """End the oldest process of a program as a crash would."""
    for number in sorted(processes(home)):
        with suppress(OSError):
            if f"/{program}\0".encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                os.kill(number, signal.SIGKILL)
                return
    raise AssertionError(f"there is no {program}")


def test_flwr_run_on_the_example_with_flowers_default_federation(home: Path) -> None:
    """As typed in a fresh installation: two nodes, and nothing to install."""
    mark = secrets.token_hex(8)
    environment = offline(home.parent / "home", mark) | {
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
        "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
        "UV_OFFLINE": "1",
    }
    del environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"]
    try:
        for _ in range(3):  # Flower gives its SuperLink 15 seconds, which a busy machine may exceed
            with suppress(DeploymentError):
                said = flwr(["run", str(EXAMPLE), "--stream"], environment, home, timeout=200)
                break
    finally:
        end_marked(mark)
    assert "2 simulated SuperNodes" in said
    ledger = Ledger("sqlite:///market.db", create=False)
    found = ledger.verify().runs["first"]
    ledger.close()
    assert (found.done, found.settled, len(found.clients)) == (5, True, 2)
