"""`PostAsked`: the state of the Beliefs page: as an address, as a command and as Python."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.dialects import number_text
from fedprice.beliefs.beliefs import CELLS, Beliefs, Types
from fedprice.beliefs.from_others import post_from_others
from fedprice.beliefs.posting import FORMS, post
from fedprice.bound import Bound
from fedprice.clients import LARGEST_WEIGHT
from fedprice.commands.assumptions import ASSUMED
from fedprice.errors import InputError, nearest
from fedprice.random_clients import EXAMPLE_ALPHA
from fedprice.web.price_state import (
    asked_in,
    calibrated_clients,
    plain_path,
    rename_argument,
    rename_words,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.posted import Posted
    from fedprice.clients import Clients
    from fedprice.web.price_state import Renaming

__all__ = ["BELIEFS_FILE", "BLOCKS", "ROUGH_CELLS", "SOURCES", "PostAsked"]

SOURCES = ("exponential", "lognormal", "ranges", "file", "others")
BLOCKS = (2, 4, 8)
ROUGH_CELLS = 8  # of a distribution while a control moves: 64 types instead of 1,024
LARGEST = 1e9  # the largest number of any kind that a page accepts
FINE_CELLS = 2048  # of one distribution that is drawn
BELIEFS_FILE = "beliefs.csv"  # the name of the file of beliefs in commands that need one


@dataclass(frozen=True)
class PostAsked:
    """What to post to clients, from which beliefs.

    Attributes
    ----------
    beliefs
        One of SOURCES: a distribution, a file that was dropped, or the other clients' types.
    cost, value
        The means of exponential and lognormal beliefs.
    spread
        The standard deviation of the logarithms, for lognormal beliefs.
    cost_low, cost_high, value_low, value_high
        The ends of ranges.
    form, blocks, classes, risk
        As `post` takes them; `classes` and `risk` are 0 for none, and belong to the form "price",
        as `blocks` does to "blocks".
    budget, rounds, alpha, exponent
        As `fedprice post` takes them.

    Examples
    --------
    >>> PostAsked().changed({"cost": "40", "form": "blocks"}).address(PostAsked())
    {'cost': '40', 'form': 'blocks'}
    >>> print(PostAsked(cost=40, risk=0.05).command("clients.csv"))
    fedprice post clients.csv --beliefs exponential --cost 40 --value 4000 --risk 0.05
    --budget 200 --alpha 3.3 --rounds 1000
    >>> PostAsked().changed({"form": "auction"})
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: there is no form 'auction'. ...
    """

    beliefs: str = "exponential"
    cost: float = 50.0
    value: float = 4000.0
    spread: float = 0.5
    cost_low: float = 10.0
    cost_high: float = 90.0
    value_low: float = 0.0
    value_high: float = 8000.0
    form: str = "price"
    blocks: int = 4
    classes: int = 0
    risk: float = 0.0
    budget: float = 200.0
    rounds: int = 1000
    alpha: float = EXAMPLE_ALPHA
    exponent: float = 2.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, str) and value and not 1 / LARGEST <= abs(value) <= LARGEST:
                raise InputError(
                    f"`{name}` must be 0, or between {1 / LARGEST:g} and {LARGEST:g} in size; "
                    f"got {value:g}."
                )
        if self.beliefs not in SOURCES:
            raise InputError(
                f"there are no beliefs {self.beliefs!r}. {nearest(self.beliefs, SOURCES)}"
            )
        if self.form not in FORMS:
            raise InputError(f"there is no form {self.form!r}. {nearest(self.form, FORMS)}")
        if self.form == "menu" and self.beliefs == "others":
            raise InputError(
                "a menu cannot be made from the other clients' types: choose a distribution, "
                "or another form."
            )

    def changed(self, address: Mapping[str, str]) -> Self:
        """Return this state with the changes that an address gives."""
        return asked_in(address, self, None)

    def address(self, usual: Self) -> dict[str, str]:
        """Return the state as parameters of an address: fields that differ from the defaults."""
        own, given = asdict(self), asdict(usual)
        return {name: _text(value) for name, value in own.items() if value != given[name]}

    @property
    def drawn_from(self) -> bool:
        """Whether the beliefs are a distribution that is cut into cells."""
        return self.beliefs in ("exponential", "lognormal", "ranges")

    def beliefs_about(
        self, clients: Clients, file: Beliefs | None = None, cells: int = CELLS
    ) -> Beliefs:
        """Return the beliefs; `file` are those of the file that was dropped, if there was one."""
        if self.beliefs == "exponential":
            return Beliefs.exponential(cost=self.cost, value=self._value, cells=cells)
        if self.beliefs == "lognormal":
            return Beliefs.lognormal(
                cost=self.cost, value=self._value, spread=self.spread, cells=cells
            )
        if self.beliefs == "ranges":
            return Beliefs.ranges(
                cost=(self.cost_low, self.cost_high),
                value=(self.value_low, self.value_high),
                cells=cells,
            )
        if self.beliefs == "others":
            clients.require_types()
            return Beliefs.leave_one_out(clients, unseen=self.form != "price")
        if file is None:
            raise InputError(
                "drop a file of beliefs with the columns cost, value and probability, or choose "
                "a distribution."
            )
        return file

    @property
    def _value(self) -> float:
        """The believed mean value; a menu takes values from the clients."""
        return 0.0 if self.form == "menu" else self.value

    def bound(self) -> Bound:
        """Return the bound."""
        return Bound(alpha=self.alpha, rounds=self.rounds)

    def _how(self) -> dict[str, Any]:
        """Return the options of the form, by their names in `post`."""
        if self.form == "blocks":
            return {"blocks": self.blocks}
        if self.form != "price" or self.beliefs == "others":
            return {}
        given = {"classes": self.classes, "risk": self.risk}
        return {name: value for name, value in given.items() if value}

    def post(self, clients: Clients, file: Beliefs | None = None, cells: int = CELLS) -> Posted:
        """Return what to post; approximately, with fewer cells than usual."""
        settings: dict[str, Any] = {
            "bound": self.bound(), "budget": self.budget, "form": self.form,
            "cost_exponent": self.exponent,
        } | self._how()  # fmt: skip
        if self.beliefs == "others":
            clients.require_types()
            return post_from_others(clients, **settings)
        return post(clients, self.beliefs_about(clients, file, cells), **settings)

    def marginals(self, clients: Clients, file: Beliefs | None = None) -> dict[str, Types | None]:
        """Return the beliefs about cost alone and about value alone, fine enough to be drawn.

        Each is given as the costs of types without value. A menu takes values from the clients, so
        that there are no beliefs about them to draw.
        """
        if self.drawn_from:
            return {"cost": self._alone("cost"), "value": self._alone("value")}
        types, own = self.beliefs_about(clients, file).groups(clients)
        share = np.bincount(own, minlength=len(types)) / own.size
        weight = np.concatenate([s * one.weight for s, one in zip(share, types, strict=True)])
        found = {}
        for what in ("cost", "value"):
            every = np.concatenate([getattr(one, what) for one in types])
            found[what] = Types(every, np.zeros_like(every), weight)
        return found | ({"value": None} if self.form == "menu" else {})

    def _alone(self, what: str) -> Types | None:
        if what == "value" and self.form == "menu":
            return None
        if self.beliefs == "ranges":
            ends = getattr(self, f"{what}_low"), getattr(self, f"{what}_high")
            middles = (np.arange(FINE_CELLS) + 0.5) / FINE_CELLS
            return _sure(ends[0] + (ends[1] - ends[0]) * middles)
        mean = getattr(self, what)
        if mean == 0:
            return _sure(np.zeros(1))
        if self.beliefs == "exponential":
            return Beliefs.exponential(cost=mean, value=0, cells=FINE_CELLS).types[""]
        one = Beliefs.lognormal(cost=mean, value=0, spread=self.spread, cells=FINE_CELLS)
        return one.types[""]

    def needs_file(self) -> bool:
        """Return whether the command has to read the beliefs from a file."""
        return self.beliefs in ("lognormal", "ranges", "file")

    def command(
        self,
        clients: str,
        beliefs: str = BELIEFS_FILE,
        calibration: str | None = None,
        rename: Renaming = (),
        *,
        by_order: bool = False,
    ) -> str:
        """Return the command that computes the same from a file of clients.

        Parameters
        ----------
        clients
            The name of their file.
        beliefs
            The name of a file of beliefs, where the command line has no option for them.
        calibration
            The name of the calibration with α and the norms, if they were measured.
        rename, by_order
            Columns of the clients' file that have other names, and whether its rows are in the
            order of the calibration.
        """
        parts = ["fedprice", "post", plain_path(clients), *rename_words(rename)]
        parts += ["--by-order", "--beliefs"] if by_order else ["--beliefs"]
        parts.append(plain_path(beliefs) if self.needs_file() else self.beliefs)
        if self.beliefs == "exponential":
            parts += ["--cost", _text(self.cost)]
            if self.form != "menu":
                parts += ["--value", _text(self.value)]
        if self.form != "price":
            parts += ["--form", self.form]
        for name, value in self._how().items():
            parts += [f"--{name}", _text(value)]
        parts += ["--budget", _text(self.budget)]
        parts += ["--alpha", _text(self.alpha)] if calibration is None else []
        parts += ["--calibration", plain_path(calibration)] if calibration is not None else []
        parts += ["--rounds", str(self.rounds)]
        if self.exponent != 2:
            parts += ["--exponent", _text(self.exponent)]
        return shlex.join(parts)

    def python(
        self,
        clients: str | None,
        beliefs: str = BELIEFS_FILE,
        calibration: str | None = None,
        rename: Renaming = (),
        assumed: Sequence[str] = (),
        *,
        by_order: bool = False,
    ) -> str:
        """Return the Python that computes the same.

        Parameters
        ----------
        clients
            The name of the clients' file; None for the example.
        beliefs
            The name of the file of beliefs, if one was dropped.
        calibration
            The name of the calibration with α and the norms, if they were measured.
        rename, assumed, by_order
            Columns of the clients' file that have other names, those that it lacks, and whether
            its rows are in the order of the calibration.
        """
        types = self.beliefs == "others"
        bound = f"fp.Bound(alpha={_text(self.alpha)}, rounds={self.rounds})"
        if clients is None:
            made = "import fedprice as fp\n\nclients = fp.population()\n"
        elif calibration is None:
            more = ("" if types else ", types=False") + rename_argument(rename)
            if assumed:
                more += f", assume={ {name: ASSUMED[name] for name in assumed} }"
            made = f"import fedprice as fp\n\nclients = fp.Clients.read({clients!r}{more})\n"
        else:
            made = calibrated_clients(
                clients, calibration, LARGEST_WEIGHT, rename, types=types, by_order=by_order
            )
            bound = f"calibration.bound({self.rounds})"
        given = [f"bound={bound}", f"budget={_text(self.budget)}"]
        if self.form != "price":
            given.append(f"form={self.form!r}")
        if self.exponent != 2:
            given.append(f"cost_exponent={_text(self.exponent)}")
        given += [f"{name}={_text(value)}" for name, value in self._how().items()]
        lines = [made.rstrip("\n")]
        if self.beliefs == "others":
            call = "fp.post_from_others(clients, "
        else:
            lines.append(f"beliefs = {self._python_beliefs(beliefs)}")
            call = "fp.post(clients, beliefs, "
        lines += [f"posted = {call}{', '.join(given)})", "print(posted)", ""]
        return "\n".join(lines)

    def _python_beliefs(self, file: str) -> str:
        means = f"cost={_text(self.cost)}, value={_text(self._value)}"
        if self.beliefs == "exponential":
            return f"fp.Beliefs.exponential({means})"
        if self.beliefs == "lognormal":
            return f"fp.Beliefs.lognormal({means}, spread={_text(self.spread)})"
        if self.beliefs == "ranges":
            ends = [_text(getattr(self, f"{what}_{end}"))
                    for what in ("cost", "value") for end in ("low", "high")]  # fmt: skip
            return f"fp.Beliefs.ranges(cost=({ends[0]}, {ends[1]}), value=({ends[2]}, {ends[3]}))"
        return f"fp.Beliefs.read({file!r})"


def _sure(numbers: FloatArray) -> Types:
    return Types(numbers, np.zeros_like(numbers), np.full(numbers.size, 1 / numbers.size))


def _text(value: float | str) -> str:
    """Return a number with all of its digits, but no superfluous ones."""
    return value if isinstance(value, str) else number_text(value)
