"""Users' own models, calibrated, priced and trained: `make bench-own-models`.

For an MLP in numpy and, where torch is installed, a CNN in PyTorch: α with its interval and the
clients' norms from pilots, prices of three schemes with the same budget, and training at the levels
that they buy. Writes own_models.json and own_models.md beside this file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import numpy as np

import fedprice as fp
from benchmarks.models import NUM_CLIENTS, cnn, digits, mlp
from fedprice.rounds import HorvitzThompson, TrotterTukey, simulate_runs

if TYPE_CHECKING:
    from fedprice.rounds import Aggregator

HERE = Path(__file__).parent
ROUNDS, SEEDS, BUDGET = 20, range(10), 60.0
MEAN_COST, MEAN_VALUE = 50.0, 20.0
SCHEMES = {"equilibrium": "optimal", "uniform": "uniform", "weighted": "weighted"}
AGGREGATORS: dict[str, Aggregator] = {
    "Horvitz–Thompson": HorvitzThompson(),
    "Trotter–Tukey": TrotterTukey(),
}


def study(task: fp.Task, aggregator: Aggregator) -> dict[str, Any]:
    """Calibrate, price and train; pilots and runs use the same aggregator."""
    measured = fp.calibrate(task, checkpoints=(10, 15, ROUNDS), aggregator=aggregator)
    rng = np.random.default_rng(0)
    costs, values = rng.exponential(size=(2, NUM_CLIENTS))
    clients = measured.clients(cost=MEAN_COST * costs, value=MEAN_VALUE * values)
    game = fp.Game(clients, bound=measured.bound(ROUNDS), budget=BUDGET)
    result: dict[str, Any] = {
        "alpha": measured.alpha,
        "interval": measured.interval,
        "weight": task.weight.tolist(),
        "norm": measured.updates.norm.tolist(),
        "pilots": measured.pilots.tolist(),
        "schemes": {},
    }
    for scheme in SCHEMES:
        outcome = fp.solve(game, scheme=scheme)
        histories = simulate_runs(
            task,
            [(outcome.levels, seed) for seed in SEEDS],
            rounds=ROUNDS,
            aggregator=aggregator,
            evaluate_every=ROUNDS,
        )
        result["schemes"][scheme] = {
            "prices": outcome.prices.tolist(),
            "levels": outcome.levels.tolist(),
            "spend": outcome.spend,
            "expected_loss": outcome.expected_loss,
            "largest_weight": float((task.weight / outcome.levels).max()),
            "loss": [float(h.loss[-1]) for h in histories],
            "accuracy": [float(h.accuracy[-1]) for h in histories],
        }
    return result


def tables(task: str, by_aggregator: dict[str, dict[str, Any]]) -> list[str]:
    """Return what was found on one task, as Markdown."""
    lines = [f"## {task}", ""]
    for label, found in by_aggregator.items():
        low, high = found["interval"]
        lines += [
            f"{label}: α = {found['alpha']:.2f}, 95 % interval {low:.2f} to {high:.2f}.",
            "",
            "| client | share of the data | norm of updates | "
            + " | ".join(f"{words} price, level" for words in SCHEMES.values())
            + " |",
            "|---:|---:|---:|" + "---:|" * len(SCHEMES),
        ]
        for n in range(NUM_CLIENTS):
            cells = [
                f"{found['schemes'][s]['prices'][n]:.1f}, {found['schemes'][s]['levels'][n]:.2f}"
                for s in SCHEMES
            ]
            lines.append(
                f"| {n + 1} | {found['weight'][n]:.3f} | {found['norm'][n]:.2f} | "
                + " | ".join(cells)
                + " |"
            )
        lines += [
            "",
            "| scheme | bound's loss | loss | accuracy | worst accuracy | loss above optimal's |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        best = np.array(found["schemes"]["equilibrium"]["loss"])
        for scheme, words in SCHEMES.items():
            own = found["schemes"][scheme]
            gap = np.array(own["loss"]) - best
            error = gap.std(ddof=1) / np.sqrt(gap.size)
            above = "" if scheme == "equilibrium" else f"{gap.mean():+.3f} ± {error:.3f}"
            lines.append(
                f"| {words} | {own['expected_loss']:.3f} | {np.mean(own['loss']):.3f} ± "
                f"{np.std(own['loss'], ddof=1):.3f} | {np.mean(own['accuracy']):.3f} ± "
                f"{np.std(own['accuracy'], ddof=1):.3f} | {min(own['accuracy']):.3f} | {above} |"
            )
        lines.append("")
    return lines


def main() -> None:
    """Run all, print and write the tables."""
    begun = time.perf_counter()
    tasks = {"MLP (numpy)": mlp(digits(skew=0.5), momentum=0.9)}
    if importlib.util.find_spec("torch"):
        tasks["CNN (PyTorch)"] = cnn(digits(), rate=0.1)
    result = {
        name: {label: study(task, aggregator) for label, aggregator in AGGREGATORS.items()}
        for name, task in tasks.items()
    }
    text = "\n".join(
        [
            "# Users' own models: calibrated, priced, trained",
            "",
            f"Written by `make bench-own-models`. Ten clients, {ROUNDS} rounds, a budget of "
            f"{BUDGET:g}, costs and values drawn exponentially with means {MEAN_COST:g} and "
            f"{MEAN_VALUE:g}. Pilots at levels 0.1 and 0.3, ten repeats; training with "
            f"{len(SEEDS)} seeds, mean ± standard deviation; the last column is the mean "
            "difference over seeds ± its standard error.",
            "",
            *(line for name, found in result.items() for line in tables(name, found)),
            f"{(time.perf_counter() - begun) / 60:.0f} minutes; Python "
            f"{platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores.",
            "",
        ]
    )
    (HERE / "own_models.md").write_text(text, encoding="utf-8")
    (HERE / "own_models.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
