"""`Table`: rows for people, for programs and for papers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedprice.experiments.measures import Estimate
from fedprice.experiments.number_text import half_width, interval_text, number_text, parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

__all__ = ["Table", "shown"]

WIDTH = 80  # of a terminal


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

    def without(self, *columns: str) -> Table:
        """Return the table without some columns."""
        kept = [name for name in self.columns if name not in columns]
        return replace(self, rows=[{name: row[name] for name in kept} for row in self.rows])

    def renamed(self, **columns: str) -> Table:
        """Return the table with other names of columns, by their names here."""
        rows = [{columns.get(name, name): x for name, x in row.items()} for row in self.rows]
        return replace(self, rows=rows)

    def text(self) -> list[list[str]]:
        """Return the cells as texts."""
        return [[shown(value) for value in row.values()] for row in self.rows]

    def __str__(self) -> str:
        """Return the table as aligned text, symmetric intervals as ±, text to the left.

        Columns that do not fit into 80 characters follow below, beside those that tell the rows
        apart.
        """
        lines = [self.columns, *([_short(value) for value in r.values()] for r in self.rows)]
        columns = [
            [cell.ljust(width) if kind == "text" else cell.rjust(width) for cell in column]
            for column, kind in zip(zip(*lines, strict=True), self.kinds.values(), strict=True)
            for width in [max(map(len, column))]
        ]
        keys = next(n for n in range(1, len(columns) + 1) if n == len(columns)
                    or len(set(zip(*columns[:n], strict=True))) == len(lines))  # fmt: skip
        blocks = [columns[:keys]]
        for column in columns[keys:]:
            width = sum(len(cells[0]) + 2 for cells in blocks[-1]) + len(column[0])
            if width > WIDTH and len(blocks[-1]) > keys:
                blocks.append(columns[:keys])
            blocks[-1] = [*blocks[-1], column]
        return "\n\n".join(
            "\n".join("  ".join(cells).rstrip() for cells in zip(*block, strict=True))
            for block in blocks
        )

    def cells(self) -> list[list[tuple[str, str]]]:
        """Return the cells as texts with their kinds; an estimate is a number and an interval."""
        kinds, rows = self.kinds, []
        for row in self.rows:
            cells: list[tuple[str, str]] = []
            for name, value in row.items():
                if isinstance(value, Estimate):
                    number, interval = parts_of(*value.numbers)
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
        best = set()
        for name, which in self.best.items():
            groups: dict[Any, list[tuple[float, int]]] = {}
            for at, row in enumerate(self.rows):
                value = row[name].value if isinstance(row[name], Estimate) else row[name]
                if not isinstance(value, str) and not math.isnan(value):
                    signed = value if which == "least" else -value
                    groups.setdefault(row.get("setup"), []).append((signed, at))
            best |= {(min(group)[1], name) for group in groups.values()}
        return best


def shown(value: Any) -> str:
    """Return a value as text.

    Examples
    --------
    >>> shown(0.78745), shown(12345), shown(Estimate(0.5, 0.4, 0.61)), shown("words")
    ('0.787', '12,345', '0.50 (0.40 to 0.61)', 'words')
    """
    if isinstance(value, Estimate):
        return interval_text(*value.numbers)
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else number_text(value)


def _short(value: Any, sign: str = "±") -> str:
    """Return a value as text, a symmetric interval as ± its half width.

    >>> _short(Estimate(0.5, 0.4, 0.6)), _short(Estimate(0.5, 0.4, 0.61)), _short(12345)
    ('0.50±0.10', '0.50 (0.40 to 0.61)', '12,345')
    """
    if not isinstance(value, Estimate) or value.low == value.high:
        return shown(value)
    if math.isnan(value.low + value.high):
        return number_text(value.value)
    half = half_width(*value.numbers)
    return shown(value) if half is None else f"{parts_of(*value.numbers)[0]}{sign}{half}"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "–": "--", "−": "$-$", "∞": r"$\infty$", "α": r"$\alpha$",
    "β": r"$\beta$", "·": r"$\cdot$", "≈": r"$\approx$", "Σ": r"$\sum$", "²": "$^2$",
    "“": "``", "”": "''", "̄": "", "±": r"$\pm$", "τ": r"$\tau$",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_cell(value: Any) -> str:
    """Return a cell; the ends of an interval that is not symmetric are separated by a comma."""
    text = _latex(_short(value, " ± "))
    return text.replace(" to ", ", ") if isinstance(value, Estimate) else text
