"""`load_function`: load a user's function, named as FILE.py:FUNCTION."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["function_failed", "load_function"]


def load_function(name: str, kind: str) -> Callable[..., Any]:
    """Run a Python file, and return the function in it that FILE.py:FUNCTION names.

    The file may import others that lie beside it.

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
    spec = importlib.util.spec_from_file_location(f"fedprice_{kind}_{Path(path).stem}", path)
    if spec is None or spec.loader is None or not Path(path).is_file():
        raise InputError(f"there is no {kind} {name!r}: no Python file {path}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise function_failed(name, kind, error) from error
    found = getattr(module, attribute, None)
    if not callable(found):
        raise InputError(f"there is no {kind} {name!r}: {path} has no function {attribute!r}.")
    return found  # type: ignore[no-any-return]


def function_failed(name: str, kind: str, error: BaseException) -> InputError:
    """Return the error for a user's function that raised one."""
    return InputError(f"{kind} {name!r} failed: {type(error).__name__}: {error}.")
