"""A small directory in the form that `fedprice reproduce` writes, made in a moment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = 3
TABLES = {
    "verdicts": (
        "Verdicts",
        "setup,claim,paper,ours,ours low,ours high,verdict\n"
        "Setup 1,The equilibrium is sooner,0.787,0.9,0.8,0.999999,holds\n"
        "Setup 1,The equilibrium varies less,smaller,1.2,,,inconclusive\n"
        "Setup 1,Some clients pay,3,0,0,0,fails\n",
        "A claim says that a number lies on one side of a limit.",
    ),
    "table-v": (
        "Table V: clients with a negative price, Setup 1",
        'mean value,"payers, median"\n0.0,0.0\n4000.0,3.0\n80000.0,11.0\n',
        "Over 200 draws.",
    ),
    "table-ii": (
        "Table II: simulated time to the target loss",
        'setup,"time, s"\nSetup 1,inf\nSetup 1,711\n',
        "",
    ),
}


def write_small(folder: Path) -> Path:
    """Write verdicts, two tables and the curves of a few runs; return the directory."""
    (folder / "tables").mkdir(parents=True)
    page = ["# Results", "- a note"]
    for key, (title, text, note) in TABLES.items():
        (folder / "tables" / f"{key}.csv").write_text(text)
        body = f"| as written |\n| --- |\n| {key} |"
        (folder / "tables" / f"{key}.md").write_text(body + "\n")
        page += [f"## {title}", body, note]
    (folder / "results.md").write_text("\n\n".join(page) + "\n")
    facts = {"finished": "2026-01-02", "machine": "2 cores", "wall_seconds": 80.1}
    (folder / "run.json").write_text(json.dumps(facts))
    _curves().write_parquet(folder / "results.parquet")
    return folder


def _curves() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    rounds = np.arange(0, 101, 10)
    parts = []
    for run, scale in (
        ("equilibrium", 1.0), ("uniform", 1.2), ("fedavg", 2.0), ("mean_value=0", 1.1),
        ("levels=0", 1.0),
    ):  # fmt: skip
        for seed in range(SEEDS):
            loss = scale * (0.3 + 2 * np.exp(-rounds / 20)) + 0.05 * rng.standard_normal() * scale
            parts.append(
                pl.DataFrame(
                    {
                        "setup": "setup1", "run": run, "seed": seed, "round": rounds,
                        "time": 8.0 * rounds * (1 + 0.01 * seed), "loss": loss,
                        "accuracy": 1 - loss / 4,
                    }
                )
            )  # fmt: skip
    return pl.concat(parts)
