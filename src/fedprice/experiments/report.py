"""The report: one HTML file that needs no network, and a file for every table and figure."""

from __future__ import annotations

import base64
import re
import textwrap
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any

from fedprice._plumbing.tables import csv_text, whole_file
from fedprice.errors import require
from fedprice.experiments.table import Table
from fedprice.experiments.verdicts import RULE, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from fedprice.experiments.results import Result
    from fedprice.experiments.study_figures import Drawing
    from fedprice.experiments.verdicts import Claim

__all__ = ["Report", "duration", "settings_text"]

# Black becomes the text's colour, so that a figure is readable on a dark page too.
SVG_STYLE = (
    "<style>svg{color:#222}text{fill:currentColor}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"
)


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What a report says.

    Attributes
    ----------
    title, paragraphs
        The heading, and the first paragraphs: what was run, what was found, and others.
    first, others
        Figures before the verdicts, and after the tables.
    claims, tables
        The claims, and all other tables.
    notes, ran, settings
        How it was run: notes, when and where, and all settings.
    results
        The runs that it is based on.
    summary
        A table that answers what was asked, if there is one; it comes before everything else.
    """

    title: str
    paragraphs: list[str]
    first: list[Drawing]
    claims: list[Claim]
    tables: list[Table]
    others: list[Drawing]
    notes: list[str]
    ran: str
    settings: str
    results: Sequence[Result]
    summary: Table | None = None

    @property
    def all_tables(self) -> list[Table]:
        """All tables but the verdicts, the summary first."""
        return [*([] if self.summary is None else [self.summary]), *self.tables]

    @property
    def in_force(self) -> str:
        """The settings, defaults included, as a paragraph for a screen."""
        pairs = (line.partition(" = ") for line in self.settings.splitlines())
        words = (f"{name.replace('_', ' ')} {value}".rstrip() for name, _, value in pairs)
        return textwrap.fill("; ".join(words), 80)

    @property
    def verdicts(self) -> Table:
        """The claims as a table; without the paper's numbers if there are none."""
        table = Table("verdicts", "Verdicts", [claim.row() for claim in self.claims], RULE)
        printed = any(claim.paper != "–" for claim in self.claims)
        return table if printed else table.without("setup", "paper").renamed(ours="found")

    def __repr__(self) -> str:
        text = textwrap.fill(self.paragraphs[1], 80)
        return f"{self.title}\n\n{self.all_tables[0]}\n\n{text}\n\n{self.in_force}"

    def to_frame(self) -> pl.DataFrame:
        """Return the first table as a polars table."""
        return self.all_tables[0].frame()

    def write(self, folder: Path) -> Path:
        """Write the report and its companions; return the report's path.

        Each file appears whole; the report itself comes last.
        """
        jinja2 = require("jinja2", "reproduce")
        drawings = self.first + self.others
        for name in ("tables", "figures"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        keys = {table.key for table in self.all_tables} | {drawing.key for drawing in drawings}
        for old in (*(folder / "tables").iterdir(), *(folder / "figures").iterdir()):
            if old.stem not in keys and old.stem.startswith(("table-", "fig-")):
                old.unlink()  # left from other settings
        for table in (self.verdicts, *self.all_tables):
            _write_table(table, folder / "tables")
        images = {drawing.key: _write_figure(drawing, folder / "figures") for drawing in drawings}
        with whole_file(folder / "results.parquet") as part:
            _long_frame(self.results).write_parquet(part)
        environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        source = resources.files("fedprice.experiments").joinpath("report.html.j2")
        count = [claim.verdict for claim in self.claims].count
        page = environment.from_string(source.read_text(encoding="utf-8")).render(
            report=self,
            counts=[(verdict.value, n) for verdict in Verdict if (n := count(verdict))],
            verdicts=self.verdicts,
            differences=[
                claim.difference
                for claim in self.claims
                if claim.difference and "paper" in self.verdicts.columns
            ],
            images=images,
            widths={drawing.key: round(drawing.figure.get_figwidth(), 1) for drawing in drawings},
        )
        with whole_file(folder / "results.md") as part:
            part.write_text(self._markdown(), encoding="utf-8")
        path = folder / "report.html"
        with whole_file(path) as part:
            part.write_text(page, encoding="utf-8")
        return path

    def _markdown(self) -> str:
        """Return the report's tables and figures as a page of Markdown."""
        parts = ["# Results", *self.paragraphs]
        parts += [] if self.summary is None else _markdown_table(self.summary)
        parts += _markdown_figures(self.first)
        for table in (self.verdicts, *self.tables):
            parts += _markdown_table(table)
        parts += _markdown_figures(self.others)
        parts += ["## How it was run", self.ran, *(f"- {note}" for note in self.notes)]
        parts.append(f"```\n{self.settings}```")
        return "\n\n".join(parts) + "\n"


def settings_text(in_force: Mapping[str, Any]) -> str:
    r"""Return settings as lines, in the words of other screens.

    >>> settings_text({"largest_weight": 1.0, "coins": "spaced"})
    'largest weight = 1\ncoins = spaced\n'
    """
    return "".join(
        f"{name.replace('_', ' ')} = {f'{x:,.12g}' if isinstance(x, float) else x}\n"
        for name, x in in_force.items()
    )


def _markdown_table(table: Table) -> list[str]:
    return [f"## {table.title}", table.markdown().rstrip(), table.note]


def _markdown_figures(drawings: list[Drawing]) -> list[str]:
    return [
        part
        for drawing in drawings
        for part in (
            f"## {drawing.title}",
            f"![{drawing.title}](figures/{drawing.key}.svg)",
            drawing.note,
        )
    ]


def duration(seconds: float) -> str:
    """Return seconds, or minutes if there are many, as text."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _write_table(table: Table, folder: Path) -> None:
    for suffix, text in (
        ("csv", csv_text(table.frame())),
        ("md", table.markdown()),
        ("tex", table.latex()),
    ):
        with whole_file(folder / f"{table.key}.{suffix}") as part:
            part.write_text(text, encoding="utf-8", newline="")


def _write_figure(drawing: Drawing, folder: Path) -> str:
    """Write a figure in three formats; return its SVG as a data address."""
    import matplotlib as mpl

    drawing.figure.draw_without_rendering()
    drawing.figure.set_layout_engine(None)  # laid out once, not for every format
    with mpl.rc_context({"svg.hashsalt": drawing.key, "svg.fonttype": "none"}):
        for suffix in ("svg", "png", "pdf"):
            with whole_file(folder / f"{drawing.key}.{suffix}") as part:
                undated = {"png": {"Software": None}, "svg": {"Date": None}}.get(
                    suffix, {"CreationDate": None}
                )
                drawing.figure.savefig(
                    part, format=suffix, transparent=suffix == "svg", metadata=undated
                )
                if suffix == "svg":
                    text = _adaptable(part.read_text(encoding="utf-8"))
                    part.write_text(text, encoding="utf-8")
    return "data:image/svg+xml;base64," + base64.b64encode(text.encode()).decode()


def _adaptable(svg: str) -> str:
    svg = svg.replace("#000000", "currentColor")
    return re.sub(r"(<svg[^>]*>)", rf"\1{SVG_STYLE}", svg, count=1)


def _long_frame(results: Sequence[Result]) -> pl.DataFrame:
    import polars as pl

    return pl.concat(
        [
            pl.DataFrame(
                {
                    "setup": result.name,
                    "run": name,
                    "seed": seed,
                    "round": curve.rounds,
                    "time": curve.time,
                    "loss": curve.loss,
                    "accuracy": curve.accuracy,
                }
            )
            for result in results
            for name, curves in result.curves.items()
            for seed, curve in enumerate(curves)
        ]
    )
