"""The guide's diff (docs/flower.md), applied to an app that has none of our code, and run."""

import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedprice.flower.identity import _FIELDS, own_file
from fedprice.market.ledger import Ledger
from tests.conftest import Run

GUIDE = Path(__file__).parents[2] / "docs" / "flower.md"
PLAIN = Path(__file__).with_name("guide_app")
TRUTH = np.array([1.0, -2.0, 0.5, 3.0])


def block(kind: str) -> str:
    """Return the first fenced block of a kind in the guide's section on adding pricing."""
    section = GUIDE.read_text("utf-8").partition("## Add pricing to a Flower app")[2]
    found = re.search(rf"```{kind}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def hunks(diff: str) -> Iterator[tuple[str, str, str]]:
    """Yield each hunk of a diff without line numbers: file, lines before, lines after."""
    for part in re.split(r"^--- ", diff, flags=re.MULTILINE)[1:]:
        file, _, body = part.partition("\n")
        for hunk in body.split("@@\n"):
            lines = [(line[:1] or " ", line[1:] + "\n") for line in hunk.splitlines()]
            assert {mark for mark, _ in lines} <= {" ", "+", "-"}
            yield (
                file,
                "".join(line for mark, line in lines if mark != "+"),
                "".join(line for mark, line in lines if mark != "-"),
            )


@pytest.fixture
def priced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plain app with the guide's diff, and the test in a directory beside it."""
    folder = tmp_path / "app"
    shutil.copytree(PLAIN, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file, before, after in hunks(block("diff")):
        text = (folder / file).read_text("utf-8")
        assert text.count(before) == 1, f"{file} has no such lines:\n{before}"
        (folder / file).write_text(text.replace(before, after), "utf-8")
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("FEDPRICE_LEDGER", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "guideapp"]:
        monkeypatch.delitem(sys.modules, name)
    return folder


def test_the_diff_is_short() -> None:
    added = [line for line in block("diff").splitlines() if line.startswith("+")]
    assert len(added) == 5  # the docs say so
    assert all("fedprice" not in path.read_text("utf-8") for path in PLAIN.rglob("*.*"))


def test_the_guides_diff_runs(priced: Path, run: Run) -> None:
    code, out, err = run("flower", "simulate", priced)
    assert code == 0, err
    assert "guideapp: 6 of 6 rounds, settled" in out
    ledger = Ledger("sqlite:///market.db", create=False)
    found = ledger.verify().runs["guideapp"]
    ledger.close()
    assert [*found.clients] == [str(n + 1) for n in range(10)]
    assert 0 < sum(client.paid for client in found.clients.values()) <= 10_000_000
    assert sum(client.joined for client in found.clients.values()) > 20
    assert not any(client.refused for client in found.clients.values())
    model = np.load("final_model.npy")
    assert np.abs(model - TRUTH).max() < 0.2
    assert "gradient norm" not in out


def test_the_guides_client_file_has_every_field(tmp_path: Path) -> None:
    text = block("toml")
    assert set(tomllib.loads(text)) == set(_FIELDS)
    path = tmp_path / "client.toml"
    path.write_text(text, "utf-8")
    assert own_file(path)["cost"] == 12.5
