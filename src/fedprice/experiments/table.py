"""`Table`: rows for people, for programs and for papers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fedprice.experiments.measures import Estimate
from fedprice.experiments.text import interval_text, number_text, parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["Table", "shown"]


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
        The runs that it is based on.
    best
        Columns whose best number is set in bold in LaTeX, within a setup: "least" or "most".
    """

    key: str
    title: str
    rows: list[dict[str, Any]]
    note: str = ""
    basis: str = ""
    best: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.rows[0])

    @property
    def kinds(self) -> dict[str, str]:
        """What each column holds: "text", "number" or "estimate"."""
        return {name: self._kind([row[name] for row in self.rows]) for name in self.columns}

    @staticmethod
    def _kind(values: list[Any]) -> str:
        if any(isinstance(value, Estimate) for value in values):
            return "estimate"
        return "text" if all(isinstance(value, str) for value in values) else "number"

    def text(self) -> list[list[str]]:
        """Return the cells as texts."""
        return [[shown(value) for value in row.values()] for row in self.rows]

    def cells(self) -> list[list[tuple[str, str]]]:
        """Return the cells as texts with their kinds; an estimate is a number and an interval."""
        kinds, rows = self.kinds, []
        for row in self.rows:
            cells: list[tuple[str, str]] = []
            for name, value in row.items():
                if isinstance(value, Estimate):
                    number, interval = parts_of(value.value, value.low, value.high)
                    cells += [(number, "number"), (interval, "interval")]
                else:
                    cells.append((shown(value), kinds[name].replace("estimate", "number")))
                    if kinds[name] == "estimate":
                        cells.append(("", "interval"))
            rows.append(cells)
        return rows

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
        # A column that mixes numbers and words, such as the paper's, becomes text.
        return pl.DataFrame(flat, infer_schema_length=None, strict=False)

    def markdown(self) -> str:
        """Return the table in Markdown."""
        rule = ["---" if kind == "text" else "---:" for kind in self.kinds.values()]
        lines = [self.columns, rule, *self.text()]
        return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)

    def latex(self) -> str:
        """Return a floating table in LaTeX, for the package booktabs, with its caption."""
        best = self._best()
        body = [
            [
                rf"\textbf{{{cell}}}" if (at, name) in best else cell
                for name, cell in zip(self.columns, map(_latex_cell, row.values()), strict=True)
            ]
            for at, row in enumerate(self.rows)
        ]
        lines = [" & ".join(row) + r" \\" for row in [[_latex(c) for c in self.columns], *body]]
        kinds = "".join("l" if kind == "text" else "r" for kind in self.kinds.values())
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_latex(self.title)}. {_latex(self.note)}}}",
                rf"\label{{tab:{self.key}}}",
                rf"\begin{{tabular}}{{{kinds}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def _best(self) -> set[tuple[int, str]]:
        """Return where the best numbers are: row and column."""
        found = set()
        for name, which in self.best.items():
            groups: dict[Any, list[tuple[float, int]]] = {}
            for at, row in enumerate(self.rows):
                value = row[name].value if isinstance(row[name], Estimate) else row[name]
                if not isinstance(value, str) and not math.isnan(value):
                    signed = value if which == "least" else -value
                    groups.setdefault(row.get("setup"), []).append((signed, at))
            found |= {(min(group)[1], name) for group in groups.values()}
        return found


def shown(value: Any) -> str:
    """Return a value as text.

    Examples
    --------
    >>> shown(0.78745), shown(12345), shown(Estimate(0.5, 0.4, 0.61)), shown("words")
    ('0.787', '12,345', '0.50 (0.40 to 0.61)', 'words')
    """
    if isinstance(value, Estimate):
        return interval_text(value.value, value.low, value.high)
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number_text(value)


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "–": "--", "−": "$-$", "∞": r"$\infty$", "α": r"$\alpha$",
    "β": r"$\beta$", "·": r"$\cdot$", "≈": r"$\approx$", "Σ": r"$\sum$", "²": "$^2$",
    "“": "``", "”": "''", "̄": "", "τ": r"$\tau$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_cell(value: Any) -> str:
    """Return a cell; a symmetric interval is written with ±."""
    if not isinstance(value, Estimate) or math.isnan(value.low + value.high):
        return _latex(shown(value))
    number, interval = parts_of(value.value, value.low, value.high)
    half, off = (value.high - value.low) / 2, abs((value.high + value.low) / 2 - value.value)
    if math.isfinite(half) and off <= 0.1 * half:
        decimals = len(number.partition(".")[2])
        return f"{_latex(number)} $\\pm$ {half:,.{decimals}f}"
    low, _, high = interval.partition(" to ")
    return f"{_latex(number)} ({_latex(low)}, {_latex(high)})"
