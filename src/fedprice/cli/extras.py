"""`require_extras`: check for optional packages before a command starts, not minutes later."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from fedprice.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["extras_of_schemes", "require_extras"]

# The modules that each extra of pyproject.toml installs, by the names they are imported with.
MODULES = {
    "digits": ("sklearn",),
    "excel": ("fastexcel",),
    "flower": ("flwr", "sqlalchemy", "alembic", "cryptography"),
    "learn": ("numba", "pooch", "threadpoolctl", "tqdm"),
    "market": ("sqlalchemy", "alembic", "cryptography"),
    "plot": ("matplotlib",),
    "ray": ("ray",),
    "reference": ("cvxpy",),
    "reproduce": ("jinja2", "matplotlib", "numba", "pooch", "threadpoolctl", "tqdm"),
    "web": ("nicegui", "matplotlib", "sqlalchemy", "alembic", "cryptography"),
}


def require_extras(*extras: str) -> None:
    """Raise an error if a module of these extras is missing; it names the line that installs them.

    Examples
    --------
    >>> require_extras("plot")
    """
    missing = {
        extra: [module for module in MODULES[extra] if find_spec(module) is None]
        for extra in sorted(set(extras))
    }
    modules = sorted({module for some in missing.values() for module in some})
    if modules:
        names = ",".join(extra for extra, some in missing.items() if some)
        raise MissingExtraError(
            f"this needs {', '.join(modules)}, which {'is' if len(modules) == 1 else 'are'} not "
            f"installed. Run: pip install 'fedprice[{names}]' (in a clone: pip install "
            f"'.[{names}]')"
        )


def extras_of_schemes(names: Iterable[str]) -> list[str]:
    """Return the extras that the schemes of these names need."""
    return ["reference"] if {"reference-convex", "reference-msearch"} & set(names) else []
