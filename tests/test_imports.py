"""Heavy packages are imported when needed, not before; a missing extra names its cure."""

import subprocess
import sys

import pytest

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


def test_missing_extra_names_the_command() -> None:
    with pytest.raises(MissingExtraError, match=r"pip install 'fedprice\[plot\]'"):
        require("no_such_module", "plot")
