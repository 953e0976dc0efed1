"""How often the intervals of Tables II and III contain the truth: `make bench-intervals`.

Stored runs of Setup 1 stand for all runs there could be: 5, 10 or 20 seeds are drawn from them with
replacement, the ratio of times and the difference at equal times are estimated from these, and it
is counted how often the 95 % interval contains the value of all stored runs, and how wide it is
beside that of 20 seeds. Twenty stored runs are few for this, as a draw of five repeats one of them
two times in five; so it is done with 60 and with the first 20 of them.

The same is counted for the interval of a mean, which other claims use, over random numbers.

    fedprice study setup1 --quick --seeds 60 --out DIR
    python -m benchmarks.intervals DIR

Writes intervals.json and intervals.md beside this file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.experiments.interim_looks import ERROR
from fedprice.experiments.measures import Estimate, interval_of_mean, on_grid, race_between, smooth
from fedprice.experiments.number_text import interval_text
from fedprice.experiments.reproduce import gather
from fedprice.experiments.setup_claims import RACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.setup_results import SetupResult

HERE = Path(__file__).parent
SEEDS, STORED, DRAWS, NUMBERS = (5, 10, 20), (60, 20), 2000, 20_000
LAWS: dict[str, tuple[Callable[[np.random.Generator, tuple[int, int]], FloatArray], float]] = {
    "normal": (lambda rng, size: rng.standard_normal(size), 0.0),
    "exponential": (lambda rng, size: rng.exponential(size=size), 1.0),
    "lognormal, σ = 1": (lambda rng, size: np.exp(rng.standard_normal(size)), float(np.exp(0.5))),
    "Student, 3 degrees": (lambda rng, size: rng.standard_t(3, size), 0.0),
}


def races(result: SetupResult, stored: int) -> list[dict[str, Any]]:
    """Return coverage and relative width of both estimates for each claim and number of seeds."""
    rng, study = np.random.default_rng(0), result.study
    rows: list[dict[str, Any]] = []
    for what, other in RACES:
        grids = [
            smooth(on_grid(result.curves[name][:stored], what, result.end))
            for name in (study.subject, other, study.reference)
        ]

        def race(
            chosen: Any, what: str = what, grids: list[FloatArray] = grids
        ) -> tuple[Estimate, Estimate]:
            own, others, reference = (grid[chosen] for grid in grids)
            return race_between(
                own, others, reference, study.fraction(what), result.end,
                falling=what == "loss", error=ERROR,
            )  # fmt: skip

        truth = race(slice(None))
        widths = {}
        for seeds in SEEDS:
            draws = [race(rng.integers(0, stored, seeds)) for _ in range(DRAWS)]
            for at, estimate in enumerate(("ratio of times", "difference")):
                found = [draw[at] for draw in draws]
                inside = [own.low <= truth[at].value <= own.high for own in found]
                widths[at, seeds] = float(np.median([own.high - own.low for own in found]))
                rows.append(
                    {
                        "stored": stored, "target": what, "against": other, "estimate": estimate,
                        "truth": interval_text(truth[at].value, truth[at].low, truth[at].high),
                        "seeds": seeds, "coverage": float(np.mean(inside)),
                        "width": widths[at, seeds],
                    }
                )  # fmt: skip
        for row in rows[-2 * len(SEEDS) :]:
            at = 0 if row["estimate"] == "ratio of times" else 1
            row["width"] /= widths[at, SEEDS[-1]]
    return rows


def means() -> list[dict[str, Any]]:
    """Return how often the interval of a mean contains it, by law and number of observations."""
    rng, rows = np.random.default_rng(0), []
    for law, (draw, truth) in LAWS.items():
        for seeds in SEEDS:
            low, high = interval_of_mean(draw(rng, (seeds, NUMBERS)), ERROR)
            inside = float(((low <= truth) & (truth <= high)).mean())
            rows.append({"law": law, "seeds": seeds, "coverage": inside})
    return rows


def page(rows: list[dict[str, Any]], laws: list[dict[str, Any]]) -> str:
    """Return the results in Markdown."""
    lines = [
        "# Intervals of Tables II and III",
        "",
        f"{(__doc__ or '').split(chr(10) * 2)[1]}",
        "",
        f"`make bench-intervals`; {DRAWS:,} draws each, so a coverage of 95 % is seen as 94 to 96 "
        "%. Widths are medians, relative to that of 20 seeds.",
    ]
    head = "".join(f" {n} seeds | width |" for n in SEEDS)
    for stored in STORED:
        lines += ["", f"## {stored} stored seeds", ""]
        lines += [
            f"| target | against | estimate | of all |{head}",
            "|---" * (4 + 2 * len(SEEDS)) + "|",
        ]
        keys = dict.fromkeys(
            tuple(row[k] for k in ("target", "against", "estimate", "truth"))
            for row in rows
            if row["stored"] == stored
        )
        for key in keys:
            cells = [
                f"{row['coverage']:.1%} | {row['width']:.2f}"
                for row in rows
                if row["stored"] == stored
                and tuple(row[k] for k in ("target", "against", "estimate", "truth")) == key
            ]
            lines.append(f"| {' | '.join(key)} | {' | '.join(cells)} |")
    lines += ["", "## The interval of a mean", ""]
    lines += ["| law |" + "".join(f" {n} |" for n in SEEDS), "|---" * (1 + len(SEEDS)) + "|"]
    for law in LAWS:
        cells = [f"{row['coverage']:.1%}" for row in laws if row["law"] == law]
        lines.append(f"| {law} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Simulate, and write both files."""
    (result,) = gather(Path(sys.argv[1])).results
    rows, laws = [row for stored in STORED for row in races(result, stored)], means()
    (HERE / "intervals.json").write_text(
        json.dumps({"races": rows, "means": laws}, indent=1) + "\n"
    )
    text = page(rows, laws)
    (HERE / "intervals.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
