"""`Asked`: the state of the Price page: as an address, as a command and as Python."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fedprice._plumbing.columns import rename_text
from fedprice._plumbing.dialects import number_text, typed_number
from fedprice.commands.assumptions import ASSUMED
from fedprice.errors import InputError
from fedprice.random_clients import EXAMPLE_ALPHA

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self, TypeVar

    from _typeshed import DataclassInstance

    from fedprice.calibration import Calibration

    T = TypeVar("T", bound=DataclassInstance)
    Renaming = Sequence[tuple[str, str]]  # columns of a file: the old and the new name

__all__ = [
    "EXAMPLE",
    "OFFERED",
    "Asked",
    "asked_in",
    "calibrated_clients",
    "plain_path",
    "rename_argument",
    "rename_words",
]

EXAMPLE = "clients.csv"  # what the example is called in commands
# The others compute the same prices more slowly, or are what the paper's authors published.
OFFERED = ("equilibrium", "uniform", "weighted", "subset", "full")
FACTORS = ("alpha", "exponent", "max_weight", "spread", "risk")  # numbers without thousands
MOST_ROUNDS = 10**15  # beyond this, a browser's numbers are rounded


@dataclass(frozen=True)
class Asked:
    """What to price clients for.

    Attributes
    ----------
    budget, rounds, alpha, exponent, max_weight, scheme
        As `fedprice price` takes them; `max_weight` 0 sets no floors.
    against
        A second scheme to show beside the first, or "".

    Examples
    --------
    >>> Asked().changed({"budget": "60", "scheme": "uniform"}).address(Asked())
    {'budget': '60', 'scheme': 'uniform'}
    >>> print(Asked(budget=60).command("clients.csv"))
    fedprice price clients.csv --budget 60 --alpha 3.3 --rounds 1000
    >>> Asked().changed({"budget": "much"})
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: `budget` in the address must be a number: 'much' is ...
    """

    budget: float = 200.0
    rounds: int = 1000
    alpha: float = EXAMPLE_ALPHA
    exponent: float = 2.0
    max_weight: float = 0.0
    scheme: str = "equilibrium"
    against: str = "uniform"

    def __post_init__(self) -> None:
        for name, allowed in (("scheme", OFFERED), ("against", ("", *OFFERED))):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"there is no scheme {getattr(self, name)!r:.60} on this page; choose one of "
                    f"{', '.join(OFFERED)}."
                )
        if not float(self.rounds).is_integer():
            raise InputError(f"`rounds` must be a whole number; got {self.rounds:g}.")
        if self.rounds > MOST_ROUNDS:
            raise InputError(f"`rounds` must be at most {MOST_ROUNDS:,}; got {self.rounds:.3g}.")

    def changed(self, address: Mapping[str, str]) -> Self:
        """Return this state with the changes that an address gives."""
        return asked_in(address, self, None)

    def address(self, usual: Self) -> dict[str, str]:
        """Return the state as parameters of an address: fields that differ from the defaults."""
        own, given = asdict(self), asdict(usual)
        return {name: _text(value) for name, value in own.items() if value != given[name]}

    def command(
        self,
        file: str,
        calibration: str | None = None,
        rename: Renaming = (),
        changes: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
        *,
        by_order: bool = False,
    ) -> str:
        """Return the command that computes the same from a file, with a calibration if given.

        `changes` are what-ifs: numbers by client and field.
        """
        parts = ["fedprice", "price", plain_path(file), *rename_words(rename)]
        parts += ["--by-order"] if by_order else []
        parts += ["--budget", _text(self.budget)]
        parts += ["--alpha", _text(self.alpha)] if calibration is None else []
        parts += ["--calibration", plain_path(calibration)] if calibration is not None else []
        parts += ["--rounds", str(self.rounds)]
        parts += ["--exponent", _text(self.exponent)] if self.exponent != 2 else []
        if self.max_weight or calibration is not None:
            parts += ["--max-weight", _text(self.max_weight) if self.max_weight else "inf"]
        parts += ["--scheme", self.scheme] if self.scheme != "equilibrium" else []
        for client, numbers in changes.items():
            parts += ["--what-if", f"{client} {_numbers(numbers)}"]
        return shlex.join(parts)

    def python(
        self,
        file: str,
        calibration: str | None = None,
        rename: Renaming = (),
        assumed: Sequence[str] = (),
        *,
        by_order: bool = False,
    ) -> str:
        """Return the Python that computes the same from a file, with a calibration if given.

        `assumed` are the columns that the file lacks.
        """
        exponent = f", cost_exponent={_text(self.exponent)}" if self.exponent != 2 else ""
        scheme = f", scheme={self.scheme!r}" if self.scheme != "equilibrium" else ""
        if calibration is None:
            floors = f".with_max_weight({_text(self.max_weight)})" if self.max_weight else ""
            more = rename_argument(rename)
            if assumed:
                more += f", assume={ {name: ASSUMED[name] for name in assumed} }"
            made = (
                "import fedprice as fp\n\n"
                f"clients = fp.Clients.read({file!r}{more}){floors}\n"
                f"bound = fp.Bound(alpha={_text(self.alpha)}, rounds={self.rounds})\n"
            )
        else:
            weight = self.max_weight or math.inf
            made = calibrated_clients(file, calibration, weight, rename, by_order=by_order)
            made += f"bound = calibration.bound({self.rounds})\n"
        return (
            f"{made}"
            f"game = fp.Game(clients, bound=bound, budget={_text(self.budget)}{exponent})\n"
            f"outcome = fp.solve(game{scheme})\n"
            "print(outcome.to_frame())\n"
        )


def rename_words(rename: Renaming) -> list[str]:
    """Return the option that renames columns, if there are any to rename."""
    return ["--rename", rename_text(dict(rename))] if rename else []


def rename_argument(rename: Renaming) -> str:
    """Return the argument of `fp.Clients.read` that renames columns, after a comma."""
    return f", rename={dict(rename)!r}" if rename else ""


def calibrated_clients(
    file: str,
    calibration: str,
    max_weight: float,
    rename: Renaming = (),
    *,
    types: bool = True,
    by_order: bool = False,
) -> str:
    """Return the Python that makes clients of a file and of a calibration."""
    more = ("" if types else ", types=False") + rename_argument(rename)
    more += ", by_order=True" if by_order else ""
    floors = f".with_max_weight({_text(max_weight)})" if max_weight < math.inf else ""
    return (
        "from pathlib import Path\n\n"
        "import fedprice as fp\n"
        "from fedprice.commands.measured import read_measured\n\n"
        f"calibration = fp.Calibration.read({calibration!r})\n"
        f"clients = read_measured(Path({file!r}), calibration{more}){floors}\n"
    )


def asked_in(address: Mapping[str, str], usual: T, calibration: Calibration | None) -> T:
    """Return a state with the changes that an address gives; a measured α cannot be changed."""
    if calibration is not None and "alpha" in address:
        raise InputError(
            f"`alpha` in the address cannot replace the measured α, which is "
            f"{calibration.alpha:.4g}; leave it out, or serve without --calibration."
        )
    return replace(usual, **given_in(address, usual))


def given_in(address: Mapping[str, str], usual: DataclassInstance) -> dict[str, Any]:
    """Return the fields of a state that an address gives, converted to their types."""
    found: dict[str, Any] = {}
    for field in fields(usual):
        if field.name not in address:
            continue
        text = address[field.name]
        if isinstance(field.default, str):
            found[field.name] = text
            continue
        try:
            number = typed_number(text, factor=field.name in FACTORS)
        except InputError as error:
            raise InputError(f"`{field.name}` in the address must be a number: {error}") from None
        if isinstance(field.default, int) and not number.is_integer():
            raise InputError(f"`{field.name}` must be a whole number; got {text[:40]}.")
        found[field.name] = int(number) if isinstance(field.default, int) else number
    return found


def _numbers(numbers: Mapping[str, float]) -> str:
    return " ".join(f"{field}={_text(value)}" for field, value in numbers.items())


def plain_path(file: str) -> str:
    """Return a file's name as an argument that cannot be mistaken for an option.

    Examples
    --------
    >>> plain_path("--force.csv"), plain_path("a.csv")
    ('./--force.csv', 'a.csv')
    """
    return f"./{file}" if file.startswith("-") else file


def _text(value: float | str) -> str:
    """Return a number with all of its digits, but no superfluous ones."""
    return value if isinstance(value, str) else number_text(value)
