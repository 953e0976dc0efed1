"""Print the oldest supported version of every dependency, as constraints: `make test-floors`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

# Flower requires newer releases than ours of what both use, so it is tested at its newest only.
OTHERS = {"docs", "flower", "ray", "release", "rivals", "test", "torch"}


def floors(project: dict[str, object]) -> list[str]:
    """Return one constraint per dependency that has a floor.

    >>> floors({"dependencies": ["numpy>=2.0"], "optional-dependencies": {"x": ["pandas>=2.2.2"]}})
    ['numpy==2.0', 'pandas==2.2.2']
    """
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    lines: list[str] = [*project["dependencies"]]  # type: ignore[misc]
    lines += [line for name, own in extras.items() if name not in OTHERS for line in own]
    found = [re.match(r"([a-z0-9-]+)(?:\[[a-z]+\])?>=([0-9.]+)", line) for line in lines]
    return [f"{match[1]}=={match[2]}" for match in found if match]


if __name__ == "__main__":
    text = Path(__file__).parent.with_name("pyproject.toml").read_text("utf-8")
    sys.stdout.write("\n".join(floors(tomllib.loads(text)["project"])) + "\n")
