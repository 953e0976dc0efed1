"""`Result`: a setup with all its runs; `Table`: rows for the eye and for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments.measures import Estimate, evaluation_time, resample_indices
from fedprice.experiments.settings import PAPER_SCHEMES
from fedprice.experiments.study import SWEEP_TIME, SWEEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from fedprice.arrays import FloatArray
    from fedprice.experiments.cells import Curve
    from fedprice.experiments.settings import Settings
    from fedprice.experiments.study import Study


__all__ = [
    "SETUP_TITLES",
    "Result",
    "Table",
    "basis",
    "mean",
    "shown",
    "std",
    "title_of",
]

SETUP_TITLES = {"setup1": "Setup 1", "setup2": "Setup 2", "setup3": "Setup 3"}


@dataclass(frozen=True, eq=False)
class Result:
    """A setup with all its runs, by name and seed."""

    study: Study
    curves: dict[str, list[Curve]]

    @property
    def name(self) -> str:
        """The setup's name."""
        return self.study.setup.name

    @property
    def title(self) -> str:
        """The setup's name as the paper writes it."""
        return SETUP_TITLES[self.name]

    @cached_property
    def schemes(self) -> dict[str, list[Curve]]:
        """The runs of the pricing schemes."""
        return {name: self.curves[name] for name in self.study.outcomes}

    @cached_property
    def end(self) -> float:
        """The evaluation time: what every run of the paper's schemes covers."""
        return evaluation_time({name: self.curves[name] for name in PAPER_SCHEMES})

    @cached_property
    def sweep(self) -> dict[float, list[Curve]]:
        """The runs of Figure 5, 6 or 7, by the mean or budget that varies."""
        what, values = SWEEPS[self.name]
        usual = getattr(self.study.setup, what)
        names = {v: "equilibrium" if v == usual else f"{what}={v:g}" for v in values}
        return {value: self.curves[name] for value, name in names.items()}

    @property
    def sweep_end(self) -> float:
        """The simulated seconds that those runs are shown for."""
        return min(SWEEP_TIME, *(float(c.time[-1]) for runs in self.sweep.values() for c in runs))

    @property
    def seconds(self) -> float:
        """What calibration and all runs took, summed over workers."""
        return self.study.seconds + sum(c.seconds for runs in self.curves.values() for c in runs)

    def last(self, name: str, what: str = "loss") -> FloatArray:
        """Return the last loss or accuracy of each run."""
        return np.array([getattr(curve, what)[-1] for curve in self.curves[name]])

    def estimate(
        self, names: Sequence[str], measure: Callable[..., Any], what: str = "loss"
    ) -> Estimate:
        """Return a measure of the last values of some runs, resampled over common seeds.

        `measure` gets, for each name, values with the seeds along the last axis.
        """
        last = [self.last(name, what) for name in names]
        count = min(values.size for values in last)
        chosen = resample_indices(count)
        value = measure(*(values[:count] for values in last))
        return Estimate.of(float(value), measure(*(values[chosen] for values in last)), count)


def mean(values: FloatArray) -> Any:
    """Return the mean over seeds, the last axis."""
    return values.mean(axis=-1)


def std(values: FloatArray) -> Any:
    """Return the standard deviation over seeds, the last axis."""
    return values.std(axis=-1, ddof=1)


@dataclass(frozen=True, eq=False)
class Table:
    """A table of the report.

    Attributes
    ----------
    key, title
        Its file name, and its heading.
    rows
        Column to value: text, numbers, or estimates with intervals.
    note
        What to know when reading it.
    basis
        How many runs it stands on.
    """

    key: str
    title: str
    rows: list[dict[str, Any]]
    note: str = ""
    basis: str = ""

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows[0])

    def text(self) -> list[list[str]]:
        """Return the cells as texts."""
        return [[shown(value) for value in row.values()] for row in self.rows]

    def frame(self) -> pl.DataFrame:
        """Return a polars table in which an estimate has three columns."""
        import polars as pl

        flat = []
        for row in self.rows:
            cells: dict[str, Any] = {}
            for name, value in row.items():
                if isinstance(value, Estimate):
                    cells |= {name: value.value, f"{name} low": value.low}
                    cells[f"{name} high"] = value.high
                else:
                    cells[name] = float(value) if isinstance(value, int) else value
            flat.append(cells)
        return pl.DataFrame(flat, infer_schema_length=None)

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.text()]
        return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs."""
        body = [[_latex(cell) for cell in row] for row in [self.columns, *self.text()]]
        lines = [" & ".join(row) + r" \\" for row in body]
        return "\n".join(
            [
                rf"\begin{{tabular}}{{{'l' * len(self.columns)}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
                "",
            ]
        )


def title_of(name: str) -> str:
    """Return a scheme's name as the paper's tables write it."""
    return "proposed" if name == "equilibrium" else name


def shown(value: Any) -> str:
    """Return a value as text: three digits, thousands grouped, intervals in brackets.

    Examples
    --------
    >>> shown(0.78745), shown(12345.6), shown(Estimate(0.5, 0.4, 0.61)), shown(float("inf"))
    ('0.787', '12,346', '0.5 (0.4 to 0.61)', '∞')
    """
    if isinstance(value, Estimate):
        if math.isnan(value.low) and math.isnan(value.high):
            return f"{shown(value.value)} (no interval)"
        return f"{shown(value.value)} ({shown(value.low)} to {shown(value.high)})"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def basis(settings: Settings, seeds: int | None = None, rounds: int | None = None) -> str:
    """Return in words what runs something stands on, by default those of the schemes."""
    return (
        f"{seeds or settings.seeds} seeds, R = {rounds or settings.rounds:,}, "
        f"E = {settings.local_steps}, batch {settings.batch}"
    )


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "–": "--", "−": "$-$", "∞": r"$\infty$", "α": r"$\alpha$",
    "β": r"$\beta$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)
