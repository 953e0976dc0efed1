"""Files from strangers: each is refused in one line, and no process ends or fills the memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import pytest

from fedprice import InputError
from fedprice.web.api import LARGEST_QUESTION
from fedprice.web.uploads import clients_of
from tests.hostile import HOSTILE, LARGE, SETTINGS
from tests.web.conftest import wait_for_card

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    from tests.conftest import Run
    from trials.serving import Serving

# Those of which nothing is known to be slow to make or to read.
QUICK = [
    "structs",
    "100 columns of 700,000 zeros",
    "5,000,001 rows",
    "one long category in every row",
    "a Parquet file with a footer of 4 GB",
    "cells A1 and XFD1048576",
    "dimensions of 17 thousand million cells",
    "100,000 columns",
    "a field of 900 KB",
    "a name of 1,000,000 characters",
    "a column's name of 50 MB",
    "40,000 empty fields in 1,000 rows",
    "a quote that never ends",
    "a number of 1,000,000 digits",
    "control characters",
]
MEMORY = 2**30  # bytes
LONGEST = 10.0  # seconds of a processor


def require_line(line: str) -> None:
    """Require that an error is one short line that can be printed."""
    assert line
    assert line.isprintable(), line
    assert len(line) < 1000


@pytest.mark.parametrize("what", QUICK)
def test_a_hostile_file_is_refused_in_one_line(what: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "file"
    path.write_bytes(HOSTILE[what]())
    with pytest.raises(InputError) as refused:
        clients_of("file", path.read_bytes())
    require_line(str(refused.value))
    code, out, err = run("price", path, "--alpha", "3.3")
    assert (code, out) == (2, "")
    require_line(err.removesuffix("\n"))


@pytest.mark.slow
@pytest.mark.parametrize("what", [*HOSTILE, *LARGE])
def test_a_hostile_file_ends_no_command_and_fills_no_memory(what: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((HOSTILE | LARGE)[what]())
    command = [sys.executable, "-m", "fedprice", "price", str(path), "--alpha", "3.3"]
    before = seconds_of_children()
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    most = MEMORY + path.stat().st_size
    resource.prlimit(child.pid, resource.RLIMIT_DATA, (most, most))  # and its children
    out, err = child.communicate(timeout=120)
    assert seconds_of_children() - before < LONGEST
    assert (child.returncode, out) == (2, "")
    require_line(err.removesuffix("\n"))


def seconds_of_children() -> float:
    """Return the processor time of all children that have ended: other load adds none to it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def peak_of(process: int) -> int:
    """Return the most memory that a process has had, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


@pytest.mark.slow
def test_hostile_files_do_not_end_the_api(serving: Callable[..., Serving]) -> None:
    server = serving()
    for what, make in (HOSTILE | LARGE).items():
        for address in ("price", "verify"):
            content = make()
            question = Request(f"{server.url}api/{address}", content, method="POST")
            with pytest.raises(URLError) as refused:
                urlopen(question, timeout=120)
            if not isinstance(refused.value, HTTPError):
                # The answer is sent, and the connection closed, before so much has arrived.
                assert len(content) > LARGEST_QUESTION, what
                continue
            assert refused.value.code in (413, 422), what
            require_line(json.loads(refused.value.read())["error"])
    assert peak_of(server.process.pid) < MEMORY


@pytest.mark.slow
def test_hostile_files_do_not_end_the_page(
    page: Page, serving: Callable[..., Serving], tmp_path: Path
) -> None:
    server = serving()
    page.goto(server.url)
    path = tmp_path / "file.csv"
    for what, make in (HOSTILE | LARGE).items():
        wait_for_card(page, "spend", "200")
        path.write_bytes(make())
        page.locator("input[type=file]").set_input_files(path)
        alert = page.get_by_role("alert").filter(has_text="file.csv")
        alert.wait_for(timeout=120_000)
        require_line(alert.inner_text().splitlines()[-1])
        page.reload()
        assert server.process.poll() is None, what
    assert peak_of(server.process.pid) < MEMORY


GOOD = "client_id,samples,grad_norm,cost,value\na,120,1.2,40,0\n"
READERS = {
    "calibration": ["price", "clients.csv", "--calibration", "file"],
    "offer": ["respond", "--offer", "file.json", "--cost", "3"],
    "settings": ["study", "paper", "--settings", "file"],
    "receipts": ["verify", "export", "--receipts", "file"],
    "key": ["verify", "export", "--server", "file"],
    "export": ["verify", "file"],
    "statement": ["statement", "alice", "--export", "file"],
    "answers": ["reveal", "file"],
}


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_file_of_settings_ends_no_command(reader: str, tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text(GOOD)
    (tmp_path / "export").write_bytes(b"{}\n")
    for name in ("file", "file.json"):
        (tmp_path / name).symlink_to("/dev/zero")
    assert_refused(READERS[reader], tmp_path, "/dev/zero")
    for what, make in SETTINGS.items():
        for name in ("file", "file.json"):
            (tmp_path / name).unlink()
            (tmp_path / name).write_bytes(make())
        assert_refused(READERS[reader], tmp_path, what)


def assert_refused(arguments: list[str], folder: Path, what: str) -> None:
    before = seconds_of_children()
    child = subprocess.Popen(
        [sys.executable, "-m", "fedprice", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    resource.prlimit(child.pid, resource.RLIMIT_DATA, (MEMORY * 5 // 4, MEMORY * 5 // 4))
    out, err = child.communicate(timeout=120)
    assert seconds_of_children() - before < LONGEST, what
    assert child.returncode in (2, 4), (what, err)
    assert out == "", what
    require_line(err.removesuffix("\n"))
