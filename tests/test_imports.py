"""Heavy packages are imported when needed, not before; a missing extra names its cure."""

import pkgutil
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import fedprice
from fedprice import MissingExtraError
from fedprice.errors import require

HEAVY = {"matplotlib", "cvxpy", "pandas", "polars", "numba", "scipy"}


@pytest.mark.parametrize(
    "code",
    [
        "import fedprice",
        "import fedprice.cli, sys; sys.argv = ['fedprice', '--help']; fedprice.cli.main()",
        "import fedprice.cli, sys; sys.argv = ['fedprice', 'price', '--help']; fedprice.cli.main()",
    ],
)
def test_heavy_imports_are_lazy(code: str) -> None:
    program = f"""
import atexit, sys
atexit.register(lambda: print("LOADED", *sorted(m for m in sys.modules if "." not in m)))
{code}
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(run.stdout.rpartition("LOADED")[2].split())
    assert "fedprice" in loaded
    assert not loaded & HEAVY


def test_no_name_of_a_package_hides_one_of_its_modules() -> None:
    pytest.importorskip("flwr", reason="one of the packages needs Flower")
    found = pkgutil.walk_packages(fedprice.__path__, "fedprice.")
    packages = ["fedprice", *(module.name for module in found if module.ispkg)]
    assert "fedprice.rounds.aggregation" in packages
    for name in packages:
        package = import_module(name)
        for module in pkgutil.iter_modules(package.__path__):
            found_there = getattr(package, module.name, package)
            assert isinstance(found_there, ModuleType), f"{name}.{module.name}"


def test_the_contract_on_imports_has_the_order_of_the_docs() -> None:
    """The docs had `market` before `commands`, which it imported; no contract noticed."""
    root = Path(__file__).parents[1]
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contracts["tool"]["importlinter"]["contracts"][-1]["layers"]
    design = (root / "docs" / "design.md").read_text(encoding="utf-8")
    table = design.partition("in reading order")[2].partition("Imports point upward")[0]
    rooms = re.findall(r"^\| `(\w+)/?` \|", table, re.MULTILINE)
    assert [f"fedprice.{room}" for room in reversed(rooms)] == layers
    modules = {module.name for module in pkgutil.iter_modules(fedprice.__path__)}
    assert set(rooms) == modules - {"__main__"}


def test_the_table_of_the_paper_names_what_is_there() -> None:
    root = Path(__file__).parents[1]
    design = (root / "docs" / "design.md").read_text(encoding="utf-8")
    table = design.partition("## The paper in the code")[2].partition("## Rooms")[0]
    named = re.findall(r"`([\w/]+\.py): (\w+)", table)
    assert len(named) > 25
    for file, name in named:
        path = root / file if file.startswith("tests/") else root / "src" / "fedprice" / file
        assert re.search(rf"^(def|class) {name}\b", path.read_text("utf-8"), re.MULTILINE), file


def test_missing_extra_names_the_command() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'fedprice\[plot\]'"):
        require("no_such_module", "plot")
