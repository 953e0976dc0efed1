"""WHAT: what a command trains, named on the command line in one of four ways."""

from __future__ import annotations

import hashlib
import inspect
import math
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedprice._plumbing.python_files import beside, executed_code, function_failed, load_function
from fedprice.cli.extras import require_extras
from fedprice.errors import InputError, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedprice.calibration import Calibration
    from fedprice.data import Federation
    from fedprice.experiments.setups import Setup
    from fedprice.game import Game
    from fedprice.learning import Clock, Task

__all__ = ["WHAT", "Batch", "DataPath", "LearningRate", "LocalSteps", "RunConfig", "What",
           "WhatArgument", "WhatOptions", "extras_for", "federation_of", "find_what",
           "find_with_steps"]  # fmt: skip

WHAT = (
    "setup1, setup2 or setup3; digits; a data file (CSV, Parquet or npz); FILE.py:FUNCTION, which "
    "returns a Task; or the directory of a Flower app."
)
WhatArgument = Annotated[str, typer.Argument(metavar="WHAT", help=WHAT)]
DataPath = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Images for setup2 or setup3: an npz of your own, or a directory with it.",
    ),
]
_FOR = "For a setup or a data file"
LocalSteps = Annotated[
    int | None, typer.Option(min=1, help=f"{_FOR}: local steps per round; 100 by default.")
]
Batch = Annotated[
    int | None, typer.Option(min=1, help=f"{_FOR}: samples per local step; 24 by default.")
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        help=f"{_FOR}: learning rate in the first round, which falls by 0.4 % per round; "
        "0.1 by default."
    ),
]
RunConfig = Annotated[
    str | None,
    typer.Option(
        "--run-config", metavar="SETTINGS", help="For a Flower app: settings, such as 'seed=1'."
    ),
]


class Kind(Enum):
    """The ways to name what is trained."""

    SETUP = auto()
    DIGITS = auto()
    DATA_FILE = auto()
    FUNCTION = auto()
    FLOWER_APP = auto()


@dataclass(frozen=True)
class WhatOptions:
    """The options that belong to some kinds of WHAT only; None where not given."""

    data: Path | None = None
    local_steps: int | None = None
    batch: int | None = None
    learning_rate: float | None = None
    run_config: str | None = None
    num_clients: int | None = None
    partition: str | None = None

    def given(self) -> Iterable[tuple[str, tuple[Kind, ...], str]]:
        """Yield each option that was given, the kinds that take it, and these in words."""
        trained = ((Kind.SETUP, Kind.DIGITS, Kind.DATA_FILE), "setups, digits and data files")
        for name, kinds, words in (
            ("data", (Kind.SETUP,), "setup2 and setup3"),
            ("local_steps", *trained),
            ("batch", *trained),
            ("learning_rate", *trained),
            ("run_config", (Kind.FLOWER_APP,), "Flower apps"),
            ("num_clients", (Kind.DIGITS,), "digits"),
            ("partition", (Kind.DIGITS,), "digits"),
        ):
            if getattr(self, name) is not None:
                option = "clients" if name == "num_clients" else name.replace("_", "-")
                yield f"--{option}", kinds, words


@dataclass(frozen=True)
class What:
    """What a command trains.

    Attributes
    ----------
    name
        What its runs are called in a ledger.
    task
        What is learned, and from whom.
    federation, local_steps
        The data of a setup or a data file, and how many local steps its clients take per round.
    setup
        The paper's setup, if it is one.
    source
        A hash of the code that made the task, where the task's own fingerprint cannot know it.
    """

    name: str
    task: Task
    federation: Federation | None = None
    local_steps: int = 0
    setup: Setup | None = None
    source: str = ""

    def clock(self) -> Clock | None:
        """Return the simulated time of a setup; nothing else has one."""
        if self.setup is None or self.federation is None:
            return None
        return self.setup.clock(self.federation, self.local_steps)

    def drawn_game(self, calibration: Calibration, rounds: int) -> Game:
        """Return the game of a setup, with costs and values as the paper draws them."""
        assert self.setup is not None
        assert self.federation is not None
        return self.setup.game(self.federation, calibration, rounds=rounds)


def find_what(what: str, given: WhatOptions) -> What:
    """Return what WHAT stands for, or raise an error that says why it cannot be found."""
    kind = _kind(what)
    _refuse_options(what, kind, given)
    if kind is Kind.FUNCTION:
        return _from_function(what)
    if kind is Kind.FLOWER_APP:
        return _from_flower(Path(what), given.run_config or "")
    return _from_data(what, given)


def find_with_steps(what: str, given: WhatOptions, local_steps: int) -> What:
    """Return WHAT with a number of local steps; a function must take `local_steps`."""
    kind = _kind(what)
    if kind is Kind.FLOWER_APP:
        raise InputError(
            "the local steps of a Flower app are a setting of its own: make a calibration at each "
            "number of them with `fedprice calibrate --run-config`, and give --steps E=FILE,E=FILE."
        )
    if kind is Kind.FUNCTION:
        _refuse_options(what, kind, given)
        return _from_function(what, local_steps=local_steps)
    return find_what(what, replace(given, local_steps=local_steps))


def _refuse_options(what: str, kind: Kind, given: WhatOptions) -> None:
    """Refuse options that are for other kinds of WHAT."""
    for option, kinds, words in given.given():
        if kind not in kinds:
            raise InputError(f"{option} applies only to {words}; leave it out with {what}.")


def federation_of(what: str, data: Path | None, **dealing: Any) -> Federation:
    """Return the federation of a setup, the one in a data file, or digits split among clients."""
    from fedprice.data.files import read_federation
    from fedprice.experiments.setups import setup_of

    kind = _kind(what)
    if kind is Kind.SETUP:
        return setup_of(what).federation(data)
    if data is not None:
        raise InputError(f"--data applies only to setup2 and setup3; leave it out with {what}.")
    if kind is Kind.DIGITS:
        from fedprice.data.digits import digits

        return digits(**dealing)
    if kind is not Kind.DATA_FILE:
        raise InputError(f"data can be shown only for a setup, digits or a data file; got {what}.")
    return read_federation(what)


def extras_for(what: str) -> tuple[str, ...]:
    """Return the extras that training needs."""
    more = {Kind.FLOWER_APP: ("flower",), Kind.DIGITS: ("digits",)}.get(_kind(what), ())
    return (*more, "learn")


def _kind(what: str) -> Kind:
    from fedprice.data.files import DATA_SUFFIXES
    from fedprice.experiments.setups import SETUPS

    path = Path(what)
    if what in SETUPS:
        return Kind.SETUP
    if what == "digits":
        return Kind.DIGITS
    if path.is_dir():
        return Kind.FLOWER_APP
    if path.suffix.lower() in DATA_SUFFIXES:
        return Kind.DATA_FILE
    if ":" in what:
        return Kind.FUNCTION
    if path.suffix == ".py":
        raise InputError(f"{what} does not name a function; write {what}:FUNCTION.")
    if path.exists():
        return Kind.DATA_FILE
    raise InputError(
        f"there is no setup {what!r}, nor a file or directory of that name. {nearest(what, SETUPS)}"
    )


def _from_data(what: str, given: WhatOptions) -> What:
    from fedprice.experiments.setups import SETUPS
    from fedprice.learning import Decay, LogisticRegression, Training

    dealing = {"num_clients": given.num_clients, "partition": given.partition}
    federation = federation_of(
        what, given.data, **{name: one for name, one in dealing.items() if one is not None}
    )
    settings: dict[str, Any] = {"local_steps": given.local_steps, "batch": given.batch}
    if given.learning_rate is not None:
        if not 0 < given.learning_rate < math.inf:
            raise InputError(f"--learning-rate must be above 0; got {given.learning_rate}.")
        settings["rate"] = Decay(given.learning_rate)
    training = Training(**{name: one for name, one in settings.items() if one is not None})
    return What(
        name=Path(what).stem,
        task=LogisticRegression(federation, training),
        federation=federation,
        local_steps=training.local_steps,
        setup=SETUPS.get(what),
    )


def _from_function(what: str, **settings: int) -> What:
    from fedprice.learning import Task

    make = load_function(what, "task")
    for name in settings:
        if name not in inspect.signature(make).parameters:
            raise InputError(f"{what} must take the argument `{name}`, which is varied here.")
    path, _, function = what.rpartition(":")
    try:
        with beside(path):
            task = make(**settings)
    except (Exception, SystemExit) as error:
        raise function_failed(what, "task", error) from error
    if not isinstance(task, Task):
        raise InputError(
            f"{what} must return a Task; got {type(task).__name__}. Make one with fp.Task.of(…)."
        )
    return What(function, task, source=_hash_of([Path(path)]))


def _from_flower(folder: Path, run_config: str) -> What:
    if not (folder / "pyproject.toml").is_file():
        raise InputError(
            f"{folder} is a directory, but not of a Flower app: it has no pyproject.toml."
        )
    require_extras("flower", "learn")
    from fedprice.flower.task import flower_task

    code = sorted([*folder.rglob("*.py"), folder / "pyproject.toml"])
    return What(folder.resolve().name, flower_task(folder, run_config), source=_hash_of(code))


def _hash_of(files: Iterable[Path]) -> str:
    """Return a hash of what is executed of Python files, and of all that is in others."""
    digest = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".py":
            with suppress(SyntaxError, ValueError):  # such a file is not imported
                content = executed_code(content).encode()
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
