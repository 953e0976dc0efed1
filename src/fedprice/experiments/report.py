"""The report: one HTML file that needs no network, and beside it every table and figure."""

from __future__ import annotations

import base64
import re
from importlib import resources
from typing import TYPE_CHECKING

from fedprice.errors import require
from fedprice.experiments.figures import leading_figures, other_figures
from fedprice.experiments.lead import lead
from fedprice.experiments.looks import ERROR, FEW, WIDENED, looks
from fedprice.experiments.table import Table
from fedprice.experiments.tables import all_tables
from fedprice.experiments.verdicts import RULE, Verdict, all_claims
from fedprice.tables import csv_text, whole_file

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from fedprice.experiments.figures import Drawing
    from fedprice.experiments.reproduce import Reproduction

__all__ = ["write_report"]

# Black becomes the text's colour, so that a figure is readable on a dark page too.
SVG_STYLE = (
    "<style>svg{color:#222}text{fill:currentColor}"
    "@media(prefers-color-scheme:dark){svg{color:#ddd}}</style>"
)


def write_report(reproduction: Reproduction, folder: Path) -> tuple[Path, Table]:
    """Write the report and its companions; return the report's path and the verdicts.

    Each file appears whole; the report itself comes last.
    """
    jinja2 = require("jinja2", "reproduce")
    tables = all_tables(reproduction.results)
    claims = all_claims(reproduction.results)
    verdicts = Table("verdicts", "Verdicts", [claim.row() for claim in claims], RULE)
    first, others = leading_figures(reproduction.results), other_figures(reproduction.results)
    drawings = first + others
    paragraphs = lead(reproduction.settings, reproduction.results, claims)
    for name in ("tables", "figures"):
        (folder / name).mkdir(exist_ok=True)
    keys = {table.key for table in tables} | {drawing.key for drawing in drawings}
    for old in (*(folder / "tables").iterdir(), *(folder / "figures").iterdir()):
        if old.stem not in keys and old.stem.startswith(("table-", "fig-")):
            old.unlink()  # of other settings
    for table in (verdicts, *tables):
        _write_table(table, folder / "tables")
    images = {drawing.key: _write_figure(drawing, folder / "figures") for drawing in drawings}
    with whole_file(folder / "results.parquet") as part:
        _long_frame(reproduction).write_parquet(part)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    source = resources.files("fedprice.experiments").joinpath("report.html.j2")
    settings, count = reproduction.settings, [c.verdict for c in claims].count
    page = environment.from_string(source.read_text(encoding="utf-8")).render(
        paragraphs=paragraphs,
        counts=[(v.value, count(v)) for v in Verdict],
        verdicts=verdicts,
        differences=[claim.difference for claim in claims if claim.difference],
        tables=tables,
        first=first,
        others=others,
        images=images,
        widths={drawing.key: round(drawing.figure.get_figwidth(), 1) for drawing in drawings},
        machine=reproduction.machine,
        wall=_duration(reproduction.wall_seconds),
        worked=", ".join(f"{r.title} {_duration(r.seconds)}" for r in reproduction.results),
        finished=reproduction.finished,
        settings=settings.to_toml(),
        version=reproduction.version,
        notes=run_notes(reproduction),
    )
    with whole_file(folder / "results.md") as part:
        text = _markdown(reproduction, paragraphs, first, [verdicts, *tables], others)
        part.write_text(text, encoding="utf-8")
    path = folder / "report.html"
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8")
    return path, verdicts


def _markdown(
    reproduction: Reproduction,
    paragraphs: list[str],
    first: list[Drawing],
    tables: list[Table],
    others: list[Drawing],
) -> str:
    """Return the report's tables and figures as a page of Markdown."""
    settings = reproduction.settings
    parts = ["# Results", *paragraphs, *_markdown_figures(first)]
    for table in tables:
        parts += [f"## {table.title}", table.markdown().rstrip(), table.note]
    parts += _markdown_figures(others)
    parts += [
        "## How it was run",
        f"`fedprice reproduce {' '.join(settings.setups)}`, finished {reproduction.finished} after "
        f"{_duration(reproduction.wall_seconds)} on {reproduction.machine}.",
        *(f"- {note}" for note in run_notes(reproduction)),
    ]
    return "\n\n".join(parts) + "\n"


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


def run_notes(reproduction: Reproduction) -> list[str]:
    """Return what a reader must know of the runs and the data."""
    settings = reproduction.settings
    counts = looks(settings.seeds, settings.most_seeds)
    notes = [
        f"A run has {settings.rounds:,} rounds of {settings.local_steps} local steps with batches "
        f"of {settings.batch} samples.",
        f"Claims are looked at after {', '.join(map(str, counts))} seeds, as long as they are "
        "open; differences are between runs of the same seed. An interval at one look misses with "
        f"a probability of {100 * ERROR / len(counts):.2g} %, so that those at all looks together "
        f"miss with at most {100 * ERROR:.0f} %."
        if len(counts) > 1
        else f"There are {counts[0]} seeds; differences are between runs of the same seed, and "
        f"intervals miss with a probability of {100 * ERROR:.0f} %.",
        "Times are simulated: the paper's 40 Raspberry Pis are clients whose speeds are drawn at "
        "random, set so that 1,000 rounds take about as long as in the paper. The evaluation time "
        "of a setup is what every run of the three schemes covers.",
        "Costs and values are one exponential draw per setup, the same under all schemes; seeds "
        "vary coins and batches, the same under all schemes.",
        "The authors' public code uses other settings than the paper (50 local steps, constant "
        "costs), and its generators do not give 14,463 or 35,155 samples; ours follow the paper's "
        "text.",
    ]
    if settings.seeds < FEW:
        notes.insert(2, WIDENED)
    notes += [
        f"{result.title}: {result.study.federation.name}; evaluated over {result.end:,.0f} "
        f"simulated seconds, and over {result.published_end:,.0f} with the baselines as published."
        for result in reproduction.results
    ]
    return notes


def _duration(seconds: float) -> str:
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
    drawing.figure.set_layout_engine("none")  # laid out once, not for every format
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


def _long_frame(reproduction: Reproduction) -> pl.DataFrame:
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
            for result in reproduction.results
            for name, curves in result.curves.items()
            for seed, curve in enumerate(curves)
        ]
    )
