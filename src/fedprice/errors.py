"""The tree of errors, each with the exit code with which it ends a command.

::

    FedpriceError               2
    ├── InputError              2  malformed input: a value, a table, a file, a name
    │   └── NoPriceError        3  no posted price meets the budget (fedprice.beliefs)
    ├── MissingExtraError       2  an optional dependency is not installed
    ├── UnavailableError        2  data that could not be found or fetched (fedprice.data)
    ├── InfeasibleError         3  the budget does not suffice
    ├── UnverifiedError         4  a ledger is not what an honest market would have written
    ├── LedgerError             5  a ledger refused, or could not be written (fedprice.market)
    │   └── DamagedError        4  a ledger is not what was recorded; also an UnverifiedError
    ├── DivergedError           6  training diverged
    ├── DeploymentError         7  a deployment or a run on Flower failed (fedprice.flower)
    ├── FinishedError           8  the run had already finished; nothing was done (fedprice.cli)
    ├── UndeliveredError        9  nobody delivers; the run was stopped
    └── StoppedError          130  stopped by the user (fedprice.cli)

In Python an infeasible game is not an error: it is a status of the outcome.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

__all__ = [
    "DivergedError",
    "FedpriceError",
    "InfeasibleError",
    "InputError",
    "MissingExtraError",
    "UndeliveredError",
    "UnverifiedError",
    "nearest",
    "number_like",
    "precision_error",
    "require",
]

MOST_SHOWN = 50  # options named in a hint


class FedpriceError(Exception):
    """Base of all errors of this package; the message is one line that says what to do.

    `exit_code` is the exit code of a command that the error ends.
    """

    exit_code: ClassVar[int] = 2


class InputError(FedpriceError, ValueError):
    """Malformed input: what, where, got what, try what."""


class InfeasibleError(FedpriceError):
    """The budget does not suffice, and a command or the API was asked for prices."""

    exit_code = 3


class UnverifiedError(FedpriceError):
    """A ledger, or an export of it, is not what an honest market would have written."""

    exit_code = 4


class UndeliveredError(FedpriceError):
    """A run was stopped because no client delivers updates; the message says why."""

    exit_code = 9


class DivergedError(FedpriceError):
    """The model stopped being finite, or its loss exploded; the message says where and what to do.

    A checkpoint can be resumed with another aggregator or server step: from the round before if a
    step was not finite, and from the last evaluation if an update was not finite or the loss
    exploded. A ledger is resumed from the last round that was recorded.
    """

    exit_code = 6


class MissingExtraError(FedpriceError, ImportError):
    """An optional dependency is not installed; the message names the command that installs it."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or name the exact line that installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this needs {(error.name or module).partition('.')[0]}, which is not installed. "
            f"Run: pip install 'fedprice[{extra}]' (in a clone: pip install '.[{extra}]')"
        ) from error


def precision_error(what: str) -> InputError:
    """Return the error for numbers of magnitudes too far apart for floating point."""
    return InputError(
        f"{what} lost its precision: cost, value, norms, alpha and budget are too many orders "
        "of magnitude apart. Rescale them."
    )


def number_like(name: str, given: object) -> float:
    """Return a parameter as a float, or refuse it: text and truth values are not numbers.

    Examples
    --------
    >>> number_like("alpha", 3)
    3.0
    >>> number_like("alpha", "3.3")
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: `alpha` must be a number; got '3.3'.
    """
    kind = getattr(getattr(given, "dtype", None), "kind", "f")  # of a numpy scalar
    try:
        if isinstance(given, str | bytes | bytearray | bool) or kind not in "iuf":
            raise TypeError
        return float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"`{name}` must be a number; got {given!r}.") from None


def nearest(word: str, options: Iterable[str]) -> str:
    """Return a hint for a mistyped word: the nearest option, or all of them.

    Examples
    --------
    >>> nearest("unifrom", ["equilibrium", "uniform"])
    "Did you mean 'uniform'?"
    >>> nearest("x", ["equilibrium", "uniform"])
    "Choose from 'equilibrium', 'uniform'."
    """
    options = list(options)
    match = difflib.get_close_matches(word, options, n=1)
    if match:
        return f"Did you mean {match[0]!r}?"
    shown = ", ".join(map(repr, options[:MOST_SHOWN]))
    more = len(options) - MOST_SHOWN
    return f"Choose from {shown}{f', … ({more} more)' if more > 0 else ''}."
