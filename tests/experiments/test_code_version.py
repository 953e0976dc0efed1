"""What makes stored results be computed again: what is executed, and by which libraries."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import fedprice
from fedprice.cli.what import WhatOptions, find_what
from fedprice.experiments import code_version as versions
from fedprice.experiments.code_version import code_version, executed_modules

ENGINE = ("fedprice.learning", "fedprice.rounds")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the source code whose version is asked for."""
    copy = tmp_path / "fedprice"
    monkeypatch.setattr(versions, "ENGINE", ("fedprice.learning",))
    shutil.copytree(Path(fedprice.__file__).parent, copy, ignore=lambda folder, names: [
        name for name in names if name in ("web", "cli", "market", "flower", "__pycache__")
    ])  # fmt: skip
    monkeypatch.setattr(versions, "__file__", str(copy / "experiments" / "code_version.py"))
    return copy


def version() -> str:
    return code_version.__wrapped__()


def test_whatever_a_run_executes_is_in_the_version() -> None:
    modules = executed_modules(*ENGINE)
    assert {
        "fedprice._plumbing.arrays", "fedprice._plumbing.rows", "fedprice.learning.kernels",
        "fedprice.rounds.loop", "fedprice.rounds.aggregation.memory",
    } <= set(modules)  # fmt: skip
    assert not any(name.startswith("fedprice.pricing") for name in modules)


@pytest.mark.parametrize("module", ["_plumbing/arrays.py", "learning/kernels.py"])
def test_a_comment_changes_nothing_and_code_does(source: Path, module: str) -> None:
    before, path = version(), source / module
    text = path.read_text(encoding="utf-8").replace('"""', '"""Roughly: ', 1)
    path.write_text(f"# A remark.\n\n{text}\n# The end.\n", encoding="utf-8")
    assert version() == before
    path.write_text(f"{text}\nMORE = 1\n", encoding="utf-8")
    assert version() != before


def test_another_library_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = version()
    monkeypatch.setattr(versions, "_version", lambda library: f"{library} of tomorrow")
    assert version() != before


def test_a_comment_in_a_file_of_a_task_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    code = (
        "import numpy as np, fedprice as fp\ndef task():\n"
        "    return fp.Task.of(initial=[np.zeros(1)], samples=[1],\n"
        "        update=lambda model, *_: [model[0] + 1], evaluate=lambda model: {'loss': 1.0})\n"
    )
    found = []
    for text in (code, f"# A remark.\n{code}", code.replace("+ 1", "+ 2")):
        path.write_text(text, encoding="utf-8")
        found.append(find_what(f"{path}:task", WhatOptions()).source)
    assert found[0] == found[1] != found[2]
