"""`Settings`: what a reproduction of the paper runs; read from and written as TOML."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from fedprice._plumbing.table_limits import limited_content
from fedprice.errors import InputError, nearest
from fedprice.experiments.setups import SETUPS, setup_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PAPER_SCHEMES", "PUBLISHED_SCHEMES", "Settings", "StudySettings"]

LARGEST = 2**16  # bytes of a file: the time that TOML takes grows with the square of a name
PAPER_SCHEMES = ("equilibrium", "weighted", "uniform")
PUBLISHED_SCHEMES = ("weighted-published", "uniform-published")
SEEDS = 12  # of a quick run


@dataclass(frozen=True)
class StudySettings:
    """The settings of any study.

    Attributes
    ----------
    schemes
        Names, or FILE.py:FUNCTION.
    seeds, most_seeds
        The initial number of runs per scheme, and the largest while a verdict is inconclusive.
    rounds
        The number of training rounds.
    """

    schemes: tuple[str, ...] = PAPER_SCHEMES
    seeds: int = 20
    most_seeds: int = 200
    rounds: int = 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 2 if field.name in ("seeds", "bias_seeds", "num_clients", "rounds") else 1
            if field.type == "int" and not (type(value) is int and value >= least):
                raise InputError(
                    f"`{field.name}` must be a whole number, at least {least}; got {value!r}."
                )
        if self.most_seeds < self.seeds:
            raise InputError(
                f"`most_seeds` must be at least `seeds`, {self.seeds}; got {self.most_seeds}."
            )


@dataclass(frozen=True)
class Settings(StudySettings):
    """What to run. The defaults are the paper's section VI.

    Attributes
    ----------
    schemes
        Schemes in addition to the paper's: names, or FILE.py:FUNCTION.
    seeds, most_seeds, rounds
        As for any study; the rounds are R.
    setups
        Which of the paper's setups.
    scope
        "paper" for the whole of section VI, or "times" for Tables II and III alone.
    local_steps, batch
        E and the batch size.
    num_clients
        Clients of a setup; with fewer than the paper's 40, samples shrink in proportion.
    pilot_repeats, pilot_rounds
        The repeats and rounds of the calibration's pilots.
    bias_seeds
        Runs of each mechanism in the comparison of biases, and of training with memory.
    level_vectors, level_rounds
        Random levels, and rounds of training, to compare the bound with what is measured.
    population_draws
        Draws of costs and values for the number of payers.
    random_prices
        Random price vectors to compare the equilibrium with.
    """

    schemes: tuple[str, ...] = ()
    setups: tuple[str, ...] = tuple(SETUPS)
    scope: str = "paper"
    local_steps: int = 100
    batch: int = 24
    num_clients: int = 40
    pilot_repeats: int = 10
    pilot_rounds: tuple[int, ...] = (20, 30, 50)
    bias_seeds: int = 5
    level_vectors: int = 60
    level_rounds: int = 300
    population_draws: int = 200
    random_prices: int = 1000

    def __post_init__(self) -> None:
        for name, kind in (("setups", str), ("schemes", str), ("pilot_rounds", int)):
            value = getattr(self, name)
            if not (isinstance(value, tuple) and all(type(part) is kind for part in value)):
                what = "names" if kind is str else "whole numbers"
                raise InputError(f"`{name}` must be a list of {what}; got {value!r}.")
        for name in self.setups:
            setup_of(name)
        if len(set(self.setups)) < len(self.setups):
            raise InputError(f"`setups` must name each once; got {', '.join(self.setups)}.")
        if not self.pilot_rounds or min(self.pilot_rounds) < 1:
            raise InputError(f"`pilot_rounds` must be at least 1; got {self.pilot_rounds}.")
        if self.scope not in ("paper", "times"):
            raise InputError(f'`scope` must be "paper" or "times"; got {self.scope!r}.')
        if not self.setups:
            raise InputError(f"`setups` must name at least one of {', '.join(SETUPS)}.")
        super().__post_init__()

    @classmethod
    def quick(cls, **changes: Any) -> Self:
        """Return settings that decide Tables II and III of a small setup in less than a minute."""
        few: dict[str, Any] = {"scope": "times", "seeds": SEEDS, "most_seeds": SEEDS}
        return cls(**(few | changes))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read settings as `to_toml` writes them."""
        try:
            content = tomllib.loads(limited_content(path, LARGEST).decode())
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}.") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path} is not TOML: {error}.") from error
        known = [field.name for field in fields(cls)]
        for name in content:
            if name not in known:
                raise InputError(f"{path}: there is no setting {name!r}. {nearest(name, known)}")
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in content.items()
        }
        return cls(**values)

    def to_toml(self) -> str:
        """Return the settings as TOML."""
        # Numbers, strings and lists of them look the same in JSON and TOML.
        return "".join(f"{k} = {json.dumps(v)}\n" for k, v in asdict(self).items())
