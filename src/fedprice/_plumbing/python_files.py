"""Users' Python files: functions named as FILE.py:FUNCTION, and what of a file is executed."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

__all__ = ["beside", "executed_code", "function_failed", "load_function"]


def load_function(name: str, kind: str) -> Callable[..., Any]:
    """Run a Python file, and return the function in it that FILE.py:FUNCTION names.

    The file may import others that lie beside it. It runs once per process, and again only after
    it has changed.

    Parameters
    ----------
    name
        FILE.py:FUNCTION.
    kind
        What the function is for, as messages name it: "scheme" or "task".

    Examples
    --------
    >>> load_function("none.py:mine", "scheme")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: there is no scheme 'none.py:mine': no Python file none.py.
    """
    path, _, attribute = name.rpartition(":")
    if not (path.endswith(".py") and Path(path).is_file()):
        raise InputError(f"there is no {kind} {name!r}: no Python file {path}.")
    try:
        module = _module_in(Path(path).resolve())
    except (Exception, SystemExit) as error:
        raise function_failed(name, kind, error) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise InputError(f"there is no {kind} {name!r}: {path} has no function {attribute!r}.")
    return function  # type: ignore[no-any-return]


def _module_in(path: Path) -> ModuleType:
    """Return the module that a file defines, as it was loaded if the file is still the same."""
    source = path.read_bytes()
    name = f"fedprice_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__spec__.loader_state == source:  # type: ignore[union-attr]
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    spec.loader_state = source
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    try:
        with beside(path):
            exec(compile(source, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def beside(path: str | Path) -> Iterator[None]:
    """Let code import files that lie beside a file, and leave `sys.path` as it was."""
    folder = str(Path(path).resolve().parent)
    if folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        with suppress(ValueError):  # the code itself may have taken it away
            sys.path.remove(folder)


def executed_code(source: bytes) -> str:
    r"""Return what of a Python file is executed: its code without comments and docstrings.

    Examples
    --------
    >>> executed_code(b"def f():  # once\n    'Return one.'\n    return  1")
    'def f():\n    return 1'
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


def function_failed(name: str, kind: str, error: BaseException) -> InputError:
    """Return the error for a user's function that raised one."""
    return InputError(f"{kind} {name!r} failed: {type(error).__name__}: {error}.")
