"""Which norms order training, those of gradients or those of updates: `make bench-impact`.

The bound's impact is k = α a² G² / R with the paper's G, the norms of stochastic gradients. The
variance of a round is exactly Σ a² (1 − q) / q ‖Δ‖², with the norms of updates. On each setup:

- random levels, all with the same mean, are trained; Spearman's correlation of the loss that each
  kind of norm predicts with the loss that is measured, by bootstrap over the level vectors;
- equilibria from either kind of norm, under the same budget, are trained with the same seeds;
  their difference in loss, by Student's interval over the seeds.

Writes impact.json and impact.md beside this file. FEDPRICE_DATA names the images.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import bootstrap, rankdata, t

import fedprice as fp
from fedprice.bound import random_loss
from fedprice.experiments.setups import setup_of
from fedprice.rounds import simulate_runs

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray
    from fedprice.calibration import Calibration, Fit

HERE = Path(__file__).parent
MEAN_LEVEL, LEAST_LEVEL, RESAMPLES = 0.25, 0.02, 4000
KINDS = ("gradients", "updates")


@dataclass(frozen=True)
class Size:
    """How much is trained on a setup.

    Attributes
    ----------
    vectors, seeds, rounds
        Random levels, runs of each, and after how many rounds their losses are compared.
    price_seeds, price_rounds
        Runs under either kind of prices, and after how many rounds they are compared.
    """

    vectors: int
    seeds: int
    rounds: tuple[int, ...]
    price_seeds: int
    price_rounds: tuple[int, ...]


SIZES = {
    "setup1": Size(60, 8, (50, 100, 200, 300), 40, (100, 300, 1000)),
    "setup2": Size(60, 4, (50, 100, 150), 20, (100, 200, 400)),
    "setup3": Size(40, 3, (50, 100), 10, (50, 100, 200)),
}


def level_vectors(weight: FloatArray, count: int) -> FloatArray:
    """Return random levels, shape (count, num_clients), that all have the same mean.

    With different means, any rule that prefers more joiners would order them well. No level is
    below a_n, so that no weight exceeds 1, as under prices.
    """
    rng = np.random.default_rng(0)
    levels = np.exp(rng.normal(0, 1, (count, weight.size)))
    floors = np.maximum(weight, LEAST_LEVEL)
    for _ in range(50):  # scale and clip until both the mean and the limits hold
        levels = np.clip(levels * MEAN_LEVEL / levels.mean(axis=1, keepdims=True), floors, 1.0)
    return levels


def fit_of(calibration: Calibration, kind: str) -> Fit:
    """Return the constants for one kind of norm."""
    fit = calibration.updates if kind == "updates" else calibration.gradients
    assert fit is not None
    return fit


def spearman(a: FloatArray, b: FloatArray, axis: int = -1) -> FloatArray:
    """Return Spearman's rank correlation along an axis."""
    a, b = rankdata(a, axis=axis), rankdata(b, axis=axis)
    a = a - a.mean(axis=axis, keepdims=True)
    b = b - b.mean(axis=axis, keepdims=True)
    found: FloatArray = (a * b).sum(axis) / np.sqrt((a**2).sum(axis) * (b**2).sum(axis))
    return found


def correlations(predicted: dict[str, FloatArray], measured: FloatArray) -> dict[str, Any]:
    """Return both correlations and their difference, each with its bootstrap interval."""

    def difference(a: FloatArray, b: FloatArray, c: FloatArray, axis: int = -1) -> FloatArray:
        return spearman(a, c, axis) - spearman(b, c, axis)

    settings: dict[str, Any] = {
        "paired": True, "vectorized": True, "n_resamples": RESAMPLES, "method": "percentile",
        "rng": np.random.default_rng(1),
    }  # fmt: skip
    found = {}
    for kind in KINDS:
        own = (predicted[kind], measured)
        interval = bootstrap(own, spearman, **settings).confidence_interval
        found[kind] = [float(spearman(*own)), float(interval.low), float(interval.high)]
    both = (predicted["updates"], predicted["gradients"], measured)
    interval = bootstrap(both, difference, **settings).confidence_interval
    found["difference"] = [float(difference(*both)), float(interval.low), float(interval.high)]
    return found


def trained(task: fp.Task, levels: FloatArray, seeds: int, rounds: tuple[int, ...]) -> FloatArray:
    """Return losses, shape (vectors, seeds, rounds)."""
    runs = [(own, seed) for own in levels for seed in range(seeds)]
    every = int(np.gcd.reduce(rounds))
    histories = simulate_runs(task, runs, rounds=max(rounds), evaluate_every=every)
    losses = np.array([h.loss[np.searchsorted(h.rounds, rounds)] for h in histories])
    return losses.reshape(len(levels), seeds, len(rounds))


def paired(differences: FloatArray) -> list[float]:
    """Return the mean of paired differences with Student's 95 % interval."""
    count = differences.size
    half = t.ppf(0.975, count - 1) * differences.std(ddof=1) / np.sqrt(count)
    mean = float(differences.mean())
    return [mean, mean - float(half), mean + float(half)]


def study(name: str, size: Size) -> dict[str, Any]:
    """Calibrate a setup, train random levels, and train at both equilibria."""
    setup = setup_of(name)
    federation = setup.federation()
    task = fp.LogisticRegression(federation)
    measured = fp.calibrate(task, levels=(0.1, 0.3), checkpoints=(20, 30, 50), repeats=10)
    weight = task.weight
    found: dict[str, Any] = {}
    fits = {kind: fit_of(measured, kind) for kind in KINDS}
    ratio = fits["updates"].norm / fits["gradients"].norm
    found["ratio"] = float(ratio.max() / ratio.min())
    found["alpha"] = {kind: [fit.alpha, fit.low, fit.high] for kind, fit in fits.items()}

    levels = level_vectors(weight, size.vectors)
    predicted = {
        kind: np.array([random_loss((weight * fit.norm) ** 2, own) for own in levels])
        for kind, fit in fits.items()
    }
    losses = trained(task, levels, size.seeds, size.rounds)
    found["correlations"] = {
        str(after): correlations(predicted, losses[:, :, i].mean(axis=1))
        for i, after in enumerate(size.rounds)
    }
    halves = [losses[:, half::2].mean(axis=1) for half in (0, 1)] if size.seeds > 1 else []
    found["repeatable"] = {
        str(after): float(spearman(halves[0][:, i], halves[1][:, i]))
        for i, after in enumerate(size.rounds)
    }

    costs, values = np.random.default_rng(0).exponential(size=(2, federation.num_clients))
    outcomes = {}
    for kind in KINDS:
        clients = measured.clients(
            cost=setup.mean_cost * costs, value=setup.mean_value * values, impact=kind
        )
        bound = measured.bound(1000, impact=kind)
        outcomes[kind] = fp.solve(fp.Game(clients, bound=bound, budget=setup.budget))
    priced = np.array([outcomes[kind].levels for kind in KINDS])
    losses = trained(task, priced, size.price_seeds, size.price_rounds)
    found["prices"] = {
        "mean level": {kind: float(outcomes[kind].levels.mean()) for kind in KINDS},
        "spend": {kind: outcomes[kind].spend for kind in KINDS},
        "loss": {
            kind: losses[i].mean(axis=0).tolist() for i, kind in enumerate(KINDS)
        },
        "difference": [
            paired(losses[1, :, i] - losses[0, :, i]) for i in range(len(size.price_rounds))
        ],
    }  # fmt: skip
    return found


def interval(three: list[float], digits: int = 2) -> str:
    """Return an estimate with its interval, as text."""
    value, low, high = (f"{one:.{digits}f}" for one in three)
    return f"{value} ({low} to {high})"


def report(result: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    lines = [
        "# Norms of updates or of gradients: which order training?",
        "",
        "Written by `make bench-impact`. The paper's setups, 100 local steps of batch 24, "
        "calibrated by ten repeats of pilots at levels 0.1 and 0.3, compared after 20, 30 and 50 "
        "rounds. Intervals are at 95 %.",
        "",
        "## Random levels",
        "",
        "Spearman's correlation of the loss that the bound predicts with the loss that training "
        "measures, over random levels with a mean of 0.25. Intervals by bootstrap over the level "
        "vectors, one for each row. The last column is the correlation of the measured losses of "
        "one half of the seeds with those of the other half: what is measured is noisy itself, "
        "which lowers both correlations.",
        "",
        "| setup | vectors × seeds | rounds | gradients (G) | updates (D) | D − G | repeatable |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["setups"].items():
        size = found["size"]
        for after, own in found["correlations"].items():
            lines.append(
                f"| {name} | {size['vectors']} × {size['seeds']} | {after} | "
                f"{interval(own['gradients'])} | {interval(own['updates'])} | "
                f"{interval(own['difference'])} | {found['repeatable'][after]:.2f} |"
            )
    lines += [
        "",
        "The ratio D / G differs between the clients of a setup by a factor of "
        + ", ".join(f"{found['ratio']:.1f} ({name})" for name, found in result["setups"].items())
        + ".",
        "",
        "## Prices",
        "",
        "Equilibria under the setup's budget, with costs and values as in the reproduction, priced "
        "with G or with D and trained with the same seeds. The difference is that of the losses; "
        "below 0, prices from D train better. Setups 2 and 3 are trained for fewer rounds than the "
        "reproduction's 1,000, and Setup 3 with 10 seeds, to save time.",
        "",
        "| setup | seeds | rounds | loss, priced with G | loss, priced with D | D − G |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, found in result["setups"].items():
        size, own = found["size"], found["prices"]
        for i, after in enumerate(size["price_rounds"]):
            lines.append(
                f"| {name} | {size['price_seeds']} | {after} | {own['loss']['gradients'][i]:.4f} | "
                f"{own['loss']['updates'][i]:.4f} | {interval(own['difference'][i], 4)} |"
            )
    lines += ["", "## What follows", "", *verdicts(result["setups"]), "", result["run"], ""]
    return "\n".join(lines)


def verdicts(setups: dict[str, Any]) -> list[str]:
    """Return what the intervals support, and no more."""
    lines = []
    for name, found in setups.items():
        order = {after: own["difference"] for after, own in found["correlations"].items()}
        rounds = [str(one) for one in found["size"]["price_rounds"]]
        # A lower loss is a gain.
        gains = [[-mean, -high, -low] for mean, low, high in found["prices"]["difference"]]
        loss = dict(zip(rounds, gains, strict=True))
        lines.append(f"- {name}, D orders levels better than G: {_told(order)}.")
        lines.append(f"- {name}, prices from D train better than prices from G: {_told(loss)}.")
    return lines


def _told(gains: dict[str, list[float]]) -> str:
    """Return after how many rounds a gain is above 0, below 0, or may be either."""
    groups: dict[str, list[str]] = {"holds": [], "fails": [], "inconclusive": []}
    for after, (_, low, high) in gains.items():
        groups["holds" if low > 0 else "fails" if high < 0 else "inconclusive"].append(after)
    parts = [f"{word} after {', '.join(some)} rounds" for word, some in groups.items() if some]
    return "; ".join(parts)


def main() -> None:
    """Run all, print and write the tables."""
    begun = time.perf_counter()
    names = sys.argv[1:] or list(SIZES)
    setups = {}
    for name in names:
        setups[name] = {"size": asdict(SIZES[name])} | study(name, SIZES[name])
        sys.stderr.write(f"{name}: {json.dumps(setups[name])}\n")
    minutes = (time.perf_counter() - begun) / 60
    result = {
        "setups": setups,
        "run": f"{minutes:.0f} minutes; Python {platform.python_version()}, numpy "
        f"{np.__version__}, {os.cpu_count()} cores.",
    }
    text = report(result)
    (HERE / "impact.md").write_text(text, encoding="utf-8")
    (HERE / "impact.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
