"""A missing extra is named before a command works, not minutes later."""

import sys
from pathlib import Path

import pytest

from fedprice.cli.extras import MODULES
from fedprice.random_clients import population
from tests.conftest import Run


@pytest.mark.parametrize(
    ("arguments", "module", "extra"),
    [
        ("calibrate setup1", "numba", "learn"),
        ("calibrate setup1", "threadpoolctl", "learn"),
        ("simulate setup1", "numba", "learn"),
        ("simulate setup1 --ledger m.db", "sqlalchemy", "market"),
        ("simulate setup1 --ledger m.db", "cryptography", "market"),
        ("simulate setup1 --scheme reference-convex", "cvxpy", "reference"),
        ("simulate app", "flwr", "flower"),
        ("compare clients.csv --alpha 3.3 --plot x.png", "matplotlib", "plot"),
        ("price clients.csv --alpha 3.3 --plot x.png", "matplotlib", "plot"),
        ("data show setup1 --plot x.png", "matplotlib", "plot"),
        ("study setup1", "jinja2", "reproduce"),
        ("study setup1", "matplotlib", "reproduce"),
        ("study setup1 --workers ray", "ray", "ray"),
        ("flower simulate app", "flwr", "flower"),
        ("flower simulate app --ray", "ray", "ray"),
    ],
)
def test_a_missing_extra_is_named_first(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    module: str,
    extra: str,
) -> None:
    """A study trained everything, and then missed jinja2."""
    monkeypatch.chdir(tmp_path)
    population().write("clients.csv")
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "pyproject.toml").touch()
    before = sorted(tmp_path.iterdir())
    monkeypatch.setitem(sys.modules, module, None)  # which is how Python remembers a missing one
    code, out, err = run(*arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert (
        f"this needs {module}, which is not installed. Run: pip install 'fedprice[{extra}]'" in err
    )
    assert sorted(tmp_path.iterdir()) == before


def test_the_extras_are_those_of_the_package() -> None:
    import tomllib

    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(MODULES) <= set(project["optional-dependencies"])
