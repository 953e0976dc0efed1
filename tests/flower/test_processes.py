"""What a killed command leaves behind, and why a program failed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedprice.errors import InputError
from fedprice.flower.certificates import holds_certificates, write_certificates
from fedprice.flower.deployment import Deployment
from fedprice.flower.processes import (
    MARK,
    DeploymentError,
    flwr,
    free_port,
    marked,
    reason_of,
    working_directory,
)
from fedprice.market.keys import read_key, write_missing_keys

CAUSED = "The above exception was the direct cause of the following exception:"
OWNER = """
import os, subprocess, sys, time
from pathlib import Path
from fedprice.flower.processes import MARK, working_directory

with working_directory(Path(sys.argv[2]) if sys.argv[2:] else None, sys.argv[1]) as folder:
    folder.mkdir(exist_ok=True)
    (folder / "server.key").touch(0o600)
    subprocess.Popen(["sleep", "60"], env=os.environ | {MARK: sys.argv[1]}, start_new_session=True)
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "fedprice"


def owner(mark: str, *kept: Path) -> tuple[subprocess.Popen[str], Path]:
    """A command that has started a process, and the directory that it works in."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, mark, *map(str, kept)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        return process, Path(process.stdout.readline().strip())


@pytest.mark.slow
def test_the_next_command_cleans_up_after_one_that_was_killed(notes: Path, tmp_path: Path) -> None:
    """Its processes and its temporary files, but not what it was told to keep."""
    killed, folder = owner("first-mark")
    keeping, kept = owner("second-mark", tmp_path / "work")
    alive, other = owner("third-mark")
    try:
        for process in (killed, keeping):
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert len(marked("first-mark")) == 1
        assert (folder / "server.key").exists()
        with working_directory(None, "fourth-mark") as own:
            assert marked("first-mark") == marked("second-mark") == []
            assert not folder.exists()
            assert (kept / "server.key").exists()
            assert len(marked("third-mark")) == 1  # whose command is alive
            assert other.exists()
            assert sorted(path.stem for path in notes.iterdir()) == ["fourth-mark", "third-mark"]
        assert not own.exists()
    finally:
        alive.kill()
        alive.wait()
        with working_directory(None, "fifth-mark"):
            pass
    assert marked("third-mark") == []
    assert list(notes.iterdir()) == []


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with (
        working_directory(tmp_path / "work", "one"),
        pytest.raises(InputError, match=f"in use by process {os.getpid()}"),
        working_directory(tmp_path / "work", "two"),
    ):
        pass


def test_a_directory_of_notes_that_others_can_write_is_refused(notes: Path) -> None:
    notes.mkdir(mode=0o777)
    notes.chmod(0o777)
    with (
        pytest.raises(InputError, match="accessible only to you"),
        working_directory(None, "x"),
    ):
        pass


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("\x1b[91mERROR\x1b[0m: x\nTraceback:\n  File\nValueError: bad\n\nbye", "ValueError: bad"),
        ("KeyError: 1\nDuring handling …\na.b.OtherError: two\n", "OtherError: two"),
        (f"OSError: root\n{CAUSED}\n  File\nRuntimeError: ending\n", "OSError: root"),
        (f"OSError: root\n{CAUSED}\nfedprice.errors.InputError: y\n", "InputError: y"),
        ("  AssertionError\n", "AssertionError"),
        ("nothing of the kind\n\n", "nothing of the kind"),
    ],
)
def test_the_last_error_is_the_reason(log: str, reason: str) -> None:
    assert reason_of(log) == reason


@pytest.mark.slow
def test_a_log_is_there_after_a_timeout(tmp_path: Path) -> None:
    (tmp_path / "flwr").write_text("#!/bin/sh\necho so far\nexec sleep 30\n")
    (tmp_path / "flwr").chmod(0o700)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", MARK: "x"}
    log = tmp_path / "run.log"
    log.write_text("before\n")
    with pytest.raises(DeploymentError, match=rf"flwr run took more than 1 s; see {log}"):
        flwr(["run", "x"], environment, tmp_path, timeout=1, log=log)
    assert log.read_text() == "before\nso far\n"


def test_keys_and_certificates_are_used_again(tmp_path: Path) -> None:
    write_missing_keys(tmp_path / "all", ["1"])
    first = read_key(tmp_path / "all" / "client-1.key").public
    (tmp_path / "all" / "client-2.key").touch(0o600)  # killed while it was written
    write_missing_keys(tmp_path / "all", ["1", "2"])
    assert read_key(tmp_path / "all" / "client-1.key").public == first
    assert read_key(tmp_path / "all" / "client-2.key").public != first
    own = Deployment(tmp_path / "work", 2, keys=tmp_path / "all")
    own.folder.mkdir()
    own._prepare_keys(["1", "2"])
    copied = tmp_path / "work" / "keys" / "client-1"
    assert read_key(copied / "client-1.key").public == first
    assert {path.name for path in copied.iterdir()} == {
        "client-1.key", "client.toml", "server.pub",
    }  # fmt: skip
    assert not holds_certificates(tmp_path)
    write_certificates(tmp_path)
    assert holds_certificates(tmp_path)
    assert not holds_certificates(tmp_path, "10.213.0.1")


def test_one_failed_poll_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = Deployment(tmp_path, 2)
    monkeypatch.setattr("time.sleep", lambda _: None)
    answers = ["not JSON", '{"success": false}', '{"runs": [{"run-id": "7", "status": "running"}]}']
    monkeypatch.setattr(own, "flwr", lambda *_: answers.pop(0))
    link = own._processes["superlink"] = subprocess.Popen(["sleep", "60"])
    try:
        assert own._patiently(lambda: own._status("7")) == "running"
    finally:
        link.kill()
        link.wait()
    answers.append("not JSON")
    with pytest.raises(DeploymentError, match="the SuperLink does not answer any more; see "):
        own._patiently(lambda: own._status("7"))


def test_a_free_port_is_taken_neither_by_connections_nor_twice() -> None:
    """A SuperNode among forty could not start: a connection had taken its port meanwhile."""
    ports = [free_port() for _ in range(300)]
    assert len({*ports}) == 300
    own = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(own.read_text().split()[0]) if own.exists() else 32768
    assert max(ports) < lowest


def test_an_older_flower_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedprice.flower.processes.version", lambda _: "1.38.0")
    with (
        pytest.raises(DeploymentError, match=r"need Flower 1.41; 1.38.0 is installed.*pip install"),
        Deployment(tmp_path / "work", 2),
    ):
        pass
    assert not (tmp_path / "work").exists()
