"""`fedprice flower new`: an app that runs as it is written."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedprice.cli.app import app
from fedprice.cli.flower_new import examples
from fedprice.errors import InputError
from fedprice.flower.processes import offline


def ask(*words: str) -> None:
    result = CliRunner().invoke(app, ["flower", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def files(folder: Path) -> dict[Path, bytes]:
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize(("options", "name"), [([], "flower-app"), (["--torch"], "flower-torch")])
def test_the_app_is_written_whole(tmp_path: Path, options: list[str], name: str) -> None:
    ask("new", str(tmp_path / "mine"), *options)
    assert files(tmp_path / "mine") == files(examples() / name) != {}
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_the_app_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ask("new", "mine")
    ask("simulate", "mine", "--rounds", "1")
    assert (tmp_path / "market.db").is_file()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="exists already"):
        ask("new", str(tmp_path))
    with pytest.raises(InputError, match="is not a directory"):
        ask("new", str(tmp_path / "none" / "mine"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--torch"]])
def test_flowers_own_tools_build_it(tmp_path: Path, options: list[str]) -> None:
    ask("new", str(tmp_path / "mine"), *options)
    done = subprocess.run(
        [Path(sys.executable).with_name("flwr"), "build", "--app", tmp_path / "mine"],
        cwd=tmp_path, env=offline(tmp_path / "home", "mark"), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = tmp_path.glob("*.fab")
    with zipfile.ZipFile(built) as archive:
        assert {"LICENSE", "README.md", "pyproject.toml"} <= set(archive.namelist())
