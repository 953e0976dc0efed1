"""Tutorials that are quick enough, as a reader runs them; `make docs` executes all of them."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"


def test_slow_sites_are_in_the_model_although_nobody_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page, names = (TUTORIALS / "sites.md").read_text("utf-8"), dict[str, Any]()
    level = logging.getLogger("flwr").level
    try:
        for cell in re.findall(r"```\{code-cell\} python\n(.*?)```", page, re.DOTALL):
            exec(compile(cell, "sites.md", "exec"), names)
    finally:
        logging.getLogger("flwr").setLevel(level)
    printed = capsys.readouterr().out
    in_time, ours, best = map(float, re.findall(r"\d+\.\d+", printed)[:3])
    assert in_time > 1.2 * best
    assert ours < 1.01 * best
    counts = names["ours"].delivered.values()
    assert [count for count in counts if count < 100] == [70, 25, 14]
