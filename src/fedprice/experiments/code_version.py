"""`code_version`: a hash of all code that results depend on, as it is executed."""

from __future__ import annotations

import ast
import hashlib
import pkgutil
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING

from fedprice._plumbing.python_files import executed_code

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["code_version", "executed_modules"]

LIBRARIES = ("llvmlite", "numba", "numpy", "scipy")  # that decide the numbers of a run
ENGINE = ("fedprice.learning", "fedprice.rounds")


@lru_cache
def code_version(*packages: str) -> str:
    """Return a hash of the modules that training executes, and of the libraries' versions.

    Comments and docstrings do not change it.

    Parameters
    ----------
    packages
        Packages that are executed besides `learning` and `rounds`, such as
        "fedprice.calibration".
    """
    digest = hashlib.sha256()
    for name, code in sorted(executed_modules(*ENGINE, *packages).items()):
        digest.update(f"{name}\0{code}\0".encode())
    for library in LIBRARIES:
        digest.update(f"{library} {_version(library)}\0".encode())
    return digest.hexdigest()


def executed_modules(*packages: str) -> dict[str, str]:
    """Return the code of all modules of packages, and of those that they import from this one.

    Examples
    --------
    >>> "fedprice._plumbing.arrays" in executed_modules("fedprice.learning")
    True
    """
    todo = list(packages)
    for package in packages:
        folders = import_module(package).__path__
        todo += [module.name for module in pkgutil.walk_packages(folders, f"{package}.")]
    modules: dict[str, str] = {}
    while todo:
        name = todo.pop()
        path = _path_of(name)
        if name not in modules and path is not None:
            modules[name] = executed_code(path.read_bytes())
            todo += _imported(ast.parse(modules[name]))
    return modules


def _path_of(name: str) -> Path | None:
    """Return the file of a module of this package; None for anything else."""
    if not name.startswith("fedprice."):
        return None
    base = Path(__file__).parents[1].joinpath(*name.split(".")[1:])
    files = (base.with_suffix(".py"), base / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def _imported(node: ast.AST) -> Iterator[str]:
    """Yield what code imports, apart from what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield str(child.module)
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from _imported(child)


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "none"
