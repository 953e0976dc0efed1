"""Files appear whole or not at all."""

import os
import stat
import sys
from pathlib import Path

import polars as pl
import pytest

from fedprice import InputError
from fedprice._plumbing.dialects import plain_numbers
from fedprice._plumbing.foreign_tables import read_apart
from fedprice._plumbing.table_limits import require_short
from fedprice._plumbing.tables import check_output, whole_file, write_table
from tests.conftest import Run

FRAME = pl.DataFrame({"client_id": ["a"], "payment": [-1.0]})


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("old")

    def stopped() -> None:
        with whole_file(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_permissions_are_those_of_an_ordinary_file(tmp_path: Path) -> None:
    write_table(FRAME, tmp_path / "out.csv")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out.csv", "plain")}
    assert len(modes) == 1


def test_refusals(tmp_path: Path) -> None:
    write_table(FRAME, tmp_path / "out.csv")
    with pytest.raises(InputError, match="exists; choose another name, or overwrite"):
        write_table(FRAME, tmp_path / "out.csv")
    write_table(FRAME, tmp_path / "out.csv", force=True)
    with pytest.raises(InputError, match=r"use one of \.csv, \.parquet"):
        write_table(FRAME, tmp_path / "out.xlsx")
    with pytest.raises(InputError, match="there is no directory"):
        write_table(FRAME, tmp_path / "none" / "out.csv")
    (tmp_path / "dir.csv").mkdir()
    with pytest.raises(InputError, match="is a directory"):
        check_output(tmp_path / "dir.csv", (".csv",), force=True)


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    if not os.access("/dev/full", os.W_OK):
        pytest.skip("there is no /dev/full here to stand for a full disk")
    path = tmp_path / "out.csv"

    def write() -> None:
        with whole_file(path), Path("/dev/full").open("w") as file:
            file.write("x")
            file.flush()

    with pytest.raises(InputError, match=r"cannot write .*out.csv: No space left on device\."):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("umask", [0, 0o022, 0o777])
def test_private_files_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "money.csv"
    path.touch(0o666)
    before = os.umask(umask)
    try:
        with whole_file(path, private=True) as part:
            assert stat.S_IMODE(part.stat().st_mode) == 0o600
            part.write_text("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "new"


def test_a_file_name_that_is_too_long_is_said_to_be(run: Run) -> None:
    code, _, err = run("price", "n" * 300)
    assert code == 2
    assert err.startswith("fedprice: cannot read nnn")


def test_long_cells_and_names_are_cut_in_errors() -> None:
    with pytest.raises(InputError) as caught:
        plain_numbers(pl.Series("cost", ["1,234,567" + ",000" * 100_000, "1,5"]))
    assert len(str(caught.value)) < 1000
    with pytest.raises(InputError) as caught:
        require_short(pl.DataFrame({"c" * 100_000: ["x" * (2**20 + 1)]}), "a.parquet")
    assert len(str(caught.value)) < 1000


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, file names are text")
def test_a_file_name_that_is_no_text_is_named_in_errors() -> None:
    name = b"\xff.csv".decode(errors="surrogateescape")
    with pytest.raises(InputError, match="more fields than its first line"):
        read_apart(b"client_id,x\n" + b"a,x,z\n", name)
