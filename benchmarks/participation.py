"""The model of full participation, from some of the joins: `make bench-participation`.

On the paper's setups, draws of costs and values vary together with the seeds of coins and batches:
one run of each kind per draw, all runs of a draw with the same seed. Prices are the equilibrium's
and uniform ones, at the paper's budget and a tenth of it, with no weight a/q above 1; coins are
independent or evenly spaced; and each is trained by Horvitz–Thompson's estimator, with memory, and
by MIFA, beside everybody joining every round. Intervals are 95 %, Student's over the draws.

Then what to spend, with the equilibrium's prices at six budgets; and what prices should know: does
the bound, or a delay of (1 − q) / q rounds that counts linearly in a_n, order random levels of one
mean as training does, and which of them makes the better prices at equal budgets.

Writes participation.json and participation.md beside this file. FEDPRICE_DATA names the images;
setups may be given as arguments.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import fedprice as fp
from fedprice._plumbing.plots import COLORS, new_figure
from fedprice.bound import random_loss
from fedprice.experiments import paper_numbers as paper
from fedprice.experiments.measures import Timed, students_interval
from fedprice.experiments.setups import Setup, setup_of
from fedprice.rounds import Memory, simulate
from fedprice.rounds.aggregation.stored import bytes_needed

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.calibration import Calibration

HERE = Path(__file__).parent
PRICES = ("equilibrium", "uniform")
BUDGETS, CURVE = (1.0, 0.1), (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # of the paper's
COINS = ("independent", "spaced")
NAMES = {"horvitz-thompson": "Horvitz–Thompson", "memory": "memory", "mifa": "MIFA"}
VECTORS, MEAN_LEVEL, LEAST_LEVEL = 30, 0.25, 0.02


@dataclass(frozen=True)
class Size:
    """How much is trained on a setup.

    Attributes
    ----------
    draws, rounds
        Draws of costs and values, and rounds of each run.
    looks
        The rounds at which losses are compared.
    level_seeds, level_rounds
        Runs of each vector of random levels, and their rounds.
    """

    draws: int
    rounds: int
    looks: tuple[int, int]
    level_seeds: int
    level_rounds: int


SIZES = {  # on Setup 1 as far as the paper's target, which takes 903 of 1,000 seconds
    "setup1": Size(20, 1000, (150, 300), 4, 150),
    "setup2": Size(20, 300, (150, 300), 2, 100),
    "setup3": Size(8, 150, (70, 150), 2, 60),
}


class Curve(NamedTuple):
    """What is kept of a run."""

    rounds: list[int]
    time: FloatArray
    loss: FloatArray
    accuracy: FloatArray
    joiners: float


class Job(NamedTuple):
    """A run: its setup, levels, and how it is trained."""

    setup: str
    levels: FloatArray
    rounds: int
    seed: int
    aggregator: str | Memory = "horvitz-thompson"
    coins: str = "independent"


@cache
def task_of(name: str) -> fp.LogisticRegression:
    """Return a setup's task, made once per process."""
    return fp.LogisticRegression(setup_of(name).federation())


def train(job: Job) -> Curve:
    """Train once."""
    task = task_of(job.setup)
    warnings.simplefilter("ignore", UserWarning)  # less than one update per client is remembered
    history = simulate(
        task, job.levels, rounds=job.rounds, seed=job.seed, aggregator=job.aggregator,
        coins=job.coins, clock=setup_of(job.setup).clock(task.federation), threads=1,
        stop_on_explosion=False,
    )  # fmt: skip
    return Curve(
        history.rounds.tolist(), history.time, history.loss, history.accuracy,
        float(history.joined.mean()),
    )  # fmt: skip


def game_of(setup: Setup, calibration: Calibration, draw: int, budget: float = 1.0) -> fp.Game:
    """Return a draw's game, at a share of the paper's budget."""
    game = setup.game(task_of(setup.name).federation, calibration, seed=draw)
    clients = game.clients.with_max_weight(1.0)
    return replace(game, clients=clients, budget=budget * game.budget)


def by_delay(game: fp.Game) -> fp.Game:
    """Return a game whose impacts are linear in a_n: k_n ∝ a_n D_n, with the same sum."""
    # a_n² D_n² with √(D_n / a_n) in the place of D_n is a_n D_n.
    weight, norms = game.clients.weight, np.sqrt(game.impact) / game.clients.weight
    delay = np.sqrt(norms / weight)
    other = replace(game, clients=game.clients.with_norms(delay, "updates"))
    scale = np.sqrt(game.impact.sum() / other.impact.sum())
    return replace(game, clients=game.clients.with_norms(scale * delay, "updates"))


def interval(values: FloatArray) -> list[float]:
    """Return a mean with Student's interval."""
    low, high = students_interval(values, 0.05)
    return [float(values.mean()), float(low), float(high)]


def measure(name: str, run: Callable[[list[Job]], list[Curve]]) -> dict[str, Any]:
    """Return everything about one setup."""
    setup, size, task = setup_of(name), SIZES[name], task_of(name)
    draws = range(size.draws)
    calibrations = {a: fp.calibrate(task, aggregator=a) for a in ("horvitz-thompson", "memory")}
    calibration = calibrations["horvitz-thompson"]
    groups: dict[tuple[Any, ...], list[Job]] = {}
    spends: dict[tuple[Any, ...], list[float]] = {}

    def add(key: tuple[Any, ...], games: list[fp.Game], prices: str, *how: Any) -> None:
        outcomes = [fp.solve(game, prices) for game in games]
        rounds = size.rounds if key in timed else size.looks[1]
        groups[key] = [Job(name, o.levels, rounds, d, *how) for d, o in enumerate(outcomes)]
        spends[key] = [o.spend for o in outcomes]

    timed = {(p, b, COINS[0], a) for p in PRICES for b in BUDGETS for a in list(NAMES)[:2]}
    ones = np.ones(task.num_clients)
    groups["full",] = [Job(name, ones, size.rounds, draw) for draw in draws]
    for budget in sorted({*BUDGETS, *CURVE}):
        games = [game_of(setup, calibration, draw, budget) for draw in draws]
        for prices in PRICES if budget in BUDGETS else PRICES[:1]:
            for coins in COINS if budget in BUDGETS else COINS[:1]:
                for aggregator in NAMES if budget in BUDGETS else list(NAMES)[:2]:
                    add((prices, budget, coins, aggregator), games, prices, aggregator, coins)
        if budget in BUDGETS:
            known = [game_of(setup, calibrations["memory"], draw, budget) for draw in draws]
            add(("equilibrium, α with memory", budget), known, "equilibrium", "memory")
            add(("uniform, α with memory", budget), known, "uniform", "memory")
            for form, memory in forms(task).items():
                add(("form", budget, form), games, "equilibrium", memory)
            delays = [by_delay(game) for game in known]
            add(("equilibrium, by delay", budget), delays, "equilibrium", "memory")
    vectors = random_levels(task.weight)
    for aggregator in list(NAMES)[:2]:
        groups["levels", aggregator] = [
            Job(name, q, size.level_rounds, 1_000 + s, aggregator)
            for q in vectors for s in range(size.level_seeds)
        ]  # fmt: skip
    done = iter(run([job for jobs in groups.values() for job in jobs]))
    found = {key: [next(done) for _ in jobs] for key, jobs in groups.items()}
    full = found["full",]

    def excess(key: tuple[Any, ...], look: int) -> FloatArray:
        at = full[0].rounds.index(look)
        return np.array(
            [100 * (c.loss[at] / f.loss[at] - 1) for c, f in zip(found[key], full, strict=True)]
        )

    def row(key: tuple[Any, ...]) -> dict[str, Any]:
        last = full[0].rounds.index(size.looks[1])
        ours, others = ([c.accuracy[last] for c in runs] for runs in (found[key], full))
        losses = np.array([c.loss[last] for c in found[key]])
        return {
            "joiners": float(np.mean([c.joiners for c in found[key]])),
            "spend": float(np.mean(spends[key])) if key in spends else None,
            "excess": [interval(excess(key, look)) for look in size.looks],
            "worst": float(excess(key, size.looks[1]).max()),
            "loss": float(losses.mean()),
            "spread": float(losses.std(ddof=1) / losses.mean()),
            "accuracy": float(np.mean(ours)),
            "accuracy above full": interval(100 * np.subtract(ours, others)),
        }

    plain, own = list(NAMES)[:2]

    def against(one: tuple[Any, ...], other: tuple[Any, ...]) -> list[list[float]]:
        return [interval(excess(one, look) - excess(other, look)) for look in size.looks]

    coins = COINS[0]
    paired = {
        "memory − Horvitz–Thompson": against(
            ("equilibrium", 1.0, coins, own), ("equilibrium", 1.0, coins, plain)
        ),
        "memory at a tenth of the budget − Horvitz–Thompson at all of it": against(
            ("equilibrium", 0.1, coins, own), ("equilibrium", 1.0, coins, plain)
        ),
        "memory − MIFA": against(
            ("equilibrium", 1.0, coins, own), ("equilibrium", 1.0, coins, "mifa")
        ),
        "memory − MIFA, at a tenth": against(
            ("equilibrium", 0.1, coins, own), ("equilibrium", 0.1, coins, "mifa")
        ),
    }
    for label, aggregator, budget in (
        ("Horvitz–Thompson", plain, 1.0), ("memory", own, 1.0),
        ("Horvitz–Thompson, at a tenth", plain, 0.1), ("memory, at a tenth", own, 0.1),
    ):  # fmt: skip
        paired[f"equilibrium − uniform prices, {label}"] = against(
            ("equilibrium", budget, coins, aggregator), ("uniform", budget, coins, aggregator)
        )
        paired[f"spaced − independent coins, {label}"] = against(
            ("equilibrium", budget, "spaced", aggregator),
            ("equilibrium", budget, "independent", aggregator),
        )
    for budget, words in ((1.0, ""), (0.1, ", at a tenth")):
        today = ("equilibrium", budget, coins, own)
        learned = ("equilibrium, α with memory", budget)
        paired[f"equilibrium − uniform prices, memory, α with memory{words}"] = against(
            learned, ("uniform, α with memory", budget)
        )
        paired[f"α with memory − α with Horvitz–Thompson, memory{words}"] = against(learned, today)
        paired[f"by delay − by the bound, memory, α with memory{words}"] = against(
            ("equilibrium, by delay", budget), learned
        )
    norms = task_norms(calibration, task)
    measured = {
        a: np.array([c.loss[-1] for c in found["levels", a]]).reshape(VECTORS, -1).mean(axis=1)
        for a in list(NAMES)[:2]
    }
    predictions = {
        "the bound": [random_loss(task.weight**2 * norms**2, q) for q in vectors],
        "delay": [random_loss(task.weight * norms, q) for q in vectors],
    }
    result: dict[str, Any] = {
        "looks": size.looks,
        "draws": size.draws,
        "alpha": {a: [c.fit.alpha, c.fit.low, c.fit.high] for a, c in calibrations.items()},
        "full": row(("full",)),
        "cells": [
            {"prices": p, "budget": b, "coins": c, "estimator": NAMES[a], **row((p, b, c, a))}
            for p in PRICES for b in BUDGETS for c in COINS for a in NAMES
        ],
        "budgets": [
            {"budget": b * setup.budget, "estimator": NAMES[a],
             **row(("equilibrium", b, COINS[0], a))}
            for b in CURVE for a in list(NAMES)[:2]
        ],
        "forms": [
            {"budget": key[1], "form": key[2], **row(key)} for key in found if key[0] == "form"
        ],
        "paired": paired,
        "order": {
            f"{of}, {NAMES[a]}": rank_correlation(np.array(predicted), measured[a])
            for of, predicted in predictions.items() for a in measured
        },
    }  # fmt: skip
    if size.rounds == 1000:
        result["times"] = times(found, setup)
        result["curves"] = {"rounds": full[0].rounds[: 1 + size.looks[1] // 10]}
        for label, key in {
            "everybody": ("full",),
            "memory": ("equilibrium", 0.1, coins, own),
            "Horvitz–Thompson": ("equilibrium", 0.1, coins, plain),
        }.items():
            losses = np.array([c.loss[: 1 + size.looks[1] // 10] for c in found[key]])
            low, high = np.quantile(losses, [0.1, 0.9], axis=0)
            result["curves"][label] = {
                "joiners": float(np.mean([c.joiners for c in found[key]])),
                "loss": [row.round(5).tolist() for row in (losses.mean(axis=0), low, high)],
            }
    return result


def forms(task: fp.LogisticRegression) -> dict[str, Memory]:
    """Return memories of less than one 32-bit vector per client."""
    count, size = task.num_clients, task.layout.sized(task.initial[0].size).size
    kinds = task.federation.offsets[:-1]  # the label that most of a client's samples have
    labels = np.split(task.federation.labels, kinds[1:])
    common = np.array([np.bincount(own).argmax() for own in labels])
    return {
        "8 bits": Memory(limit=bytes_needed(count, size, 8)),
        "one for each most common label": Memory(groups=np.unique(common, return_inverse=True)[1]),
        "one for each of six groups by similarity": Memory(limit=bytes_needed(6, size, 32)),
        "nothing": Memory(limit=0),
    }


def task_norms(calibration: Calibration, task: fp.LogisticRegression) -> FloatArray:
    """Return D_n, the norms of updates that the calibration measured."""
    assert calibration.norms == "updates"
    return np.asarray(calibration.fit.norm[: task.num_clients])


def random_levels(weight: FloatArray) -> FloatArray:
    """Return random levels that all have the same mean, none below a_n."""
    rng = np.random.default_rng(0)
    levels = np.exp(rng.normal(0, 1, (VECTORS, weight.size)))
    for _ in range(50):  # scale and clip until both the mean and the limits hold
        levels *= MEAN_LEVEL / levels.mean(axis=1, keepdims=True)
        levels = np.clip(levels, np.maximum(weight, LEAST_LEVEL), 1.0)
    return levels


def rank_correlation(predicted: FloatArray, measured: FloatArray) -> list[float]:
    """Return Spearman's correlation, with a percentile interval of its bootstrap."""
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    drawn = rng.integers(0, predicted.size, (2_000, predicted.size))
    resampled = [spearmanr(predicted[own], measured[own])[0] for own in drawn]
    low, high = np.quantile(resampled, [0.025, 0.975])
    return [float(spearmanr(predicted, measured)[0]), float(low), float(high)]


def times(found: dict[tuple[Any, ...], list[Curve]], setup: Setup) -> list[dict[str, Any]]:
    """Return the times to the paper's targets, over those of the paper's prices and estimator."""
    reference = ("uniform", 1.0, "independent", "horvitz-thompson")
    base = ("equilibrium", 1.0, "independent", "horvitz-thompson")
    last = found[base][0].rounds[-1]
    keys = [key for key, runs in found.items() if runs[0].rounds[-1] == last]
    rows: list[dict[str, Any]] = [{"key": list(map(str, key))} for key in keys]
    printed = {"loss": paper.TIME_TO_LOSS, "accuracy": paper.TIME_TO_ACCURACY}
    for what, of in printed.items():
        fraction = of[setup.name]["uniform"] / setup.time
        end = min(float(c.time[-1]) for key in (reference, base) for c in found[key])
        for row, key in zip(rows, keys, strict=True):
            curves = {"own": found[key], "base": found[base], "reference": found[reference]}
            timed = Timed.measure(
                {n: [Run(c) for c in runs] for n, runs in curves.items()},  # type: ignore[misc]
                what, fraction, end, own="own", reference="reference",
            )  # fmt: skip
            ratio = timed.ratios["base"]
            row[what] = [ratio.value, ratio.low, ratio.high]
    return rows


class Run:
    """A curve as `Timed` reads it."""

    def __init__(self, curve: Curve) -> None:
        self.time, self.loss, self.accuracy = curve.time, curve.loss, curve.accuracy


def text(found: list[float], digits: int = 2) -> str:
    """Return a mean with half of its interval."""
    mean, low, high = found
    return f"{mean:+.{digits}f} ± {(high - low) / 2:.{digits}f}"


def ends(found: list[float]) -> str:
    """Return a number with the ends of its interval."""
    return "{:.2f} ({:.2f} to {:.2f})".format(*found)


def page(results: dict[str, Any]) -> str:
    """Return the results in Markdown."""
    paragraphs = (__doc__ or "").split("\n\n")
    lines = [
        "# The model of full participation, from some of the joins", "",
        "Written by `make bench-participation`. " + " ".join(paragraphs[1].split()), "",
        "Loss is in per cent above that of everybody joining every round with the same seed; "
        "accuracy in points above theirs; the spread is the standard deviation of the loss over "
        "draws and seeds, in per cent.",
    ]  # fmt: skip
    for name, found in results["setups"].items():
        first, last = found["looks"]
        full = found["full"]
        lines += [
            "", f"## Setup {name[-1]}", "",
            f"{found['draws']} draws. Everybody, after {last} rounds: loss {full['loss']:.4f}, "
            f"accuracy {full['accuracy']:.3f}, spread {100 * full['spread']:.2f} %.", "",
            "| prices | budget | coins | estimator | joiners | loss, % above, round "
            f"{first} | round {last} | worst | accuracy, points | spread |",
            "|---" * 10 + "|",
        ]  # fmt: skip
        lines += [
            f"| {c['prices']} | {c['budget']:.0%} | {c['coins']} | {c['estimator']} | "
            f"{c['joiners']:.1f} | {text(c['excess'][0])} | {text(c['excess'][1])} | "
            f"{c['worst']:.1f} | {text(c['accuracy above full'])} | {100 * c['spread']:.2f} |"
            for c in found["cells"]
        ]
        lines += ["", f"| paired difference, points of loss | round {first} | round {last} |"]
        lines += ["|---|---|---|"]
        lines += [
            f"| {words} | {text(a)} | {text(b)} |" for words, (a, b) in found["paired"].items()
        ]
        lines += [
            "", "What to spend, at the equilibrium's prices:", "",
            "| budget | estimator | spend | joiners | loss, % above | accuracy | points |",
            "|---" * 7 + "|",
        ]  # fmt: skip
        lines += [
            f"| {c['budget']:g} | {c['estimator']} | {c['spend']:.1f} | {c['joiners']:.1f} | "
            f"{text(c['excess'][1])} | {c['accuracy']:.3f} | {text(c['accuracy above full'])} |"
            for c in found["budgets"]
        ]
        lines += [
            "", "What is remembered, with the equilibrium's prices and independent coins:", "",
            "| budget | remembered | loss, % above | worst | accuracy, points |", "|---" * 5 + "|",
        ]  # fmt: skip
        lines += [
            f"| {c['budget']:.0%} | {c['form']} | {text(c['excess'][1])} | {c['worst']:.1f} | "
            f"{text(c['accuracy above full'])} |"
            for c in found["forms"]
        ]
        alphas = "; ".join(f"{NAMES[a]} {ends(of)}" for a, of in found["alpha"].items())
        orders = "; ".join(f"{words} {ends(of)}" for words, of in found["order"].items())
        lines += [
            "", f"α by the estimator of the pilots: {alphas}. Spearman's correlation over "
            f"{VECTORS} random levels of one mean: {orders}.",
        ]  # fmt: skip
        if "times" in found:
            lines += [
                "", "Time to the paper's targets, over that of the equilibrium's prices with "
                "Horvitz–Thompson's estimator (simulated time; below 1 is faster):", "",
                "| prices | budget | coins | estimator | loss | accuracy |", "|---" * 6 + "|",
            ]  # fmt: skip
            for row in found["times"]:
                key = row["key"] if len(row["key"]) == 4 else ["everybody", "–", "–", "–"]
                key[3] = NAMES.get(key[3], key[3])
                lines.append(
                    f"| {' | '.join(key)} | {ends(row['loss'])} | {ends(row['accuracy'])} |"
                )
    lines += ["", f"{results['machine']}, {results['minutes']:.0f} minutes."]
    return "\n".join(lines) + "\n"


def draw(curves: dict[str, Any]) -> None:
    """Draw the loss over rounds for the README."""
    figure, (axis,) = new_figure()
    colors = {"everybody": "0.35", "memory": COLORS[2], "Horvitz–Thompson": COLORS[5]}
    for label, color in colors.items():
        mean, low, high = (np.array(row)[2:] for row in curves[label]["loss"])
        words = {"memory": "memory", "Horvitz–Thompson": "no memory"}.get(label, label)
        axis.plot(
            curves["rounds"][2:], mean, color=color, linewidth=1.6,
            linestyle=":" if label == "everybody" else "-", zorder=3 if label == "everybody" else 2,
            label=f"{words}: {curves[label]['joiners']:.2g} of 40 clients per round",
        )  # fmt: skip
        axis.fill_between(curves["rounds"][2:], low, high, color=color, alpha=0.18, linewidth=0)
    axis.set(xlabel="rounds", ylabel="loss", yscale="log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}")
    axis.legend(frameon=False, fontsize="small")
    figure.savefig(HERE.parent / "docs" / "memory.png")


def main() -> None:
    """Train, and write both files and the README's picture."""
    start = time.perf_counter()
    names = sys.argv[1:] or list(SIZES)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:

        def run(jobs: list[Job]) -> list[Curve]:
            return list(pool.map(train, jobs, chunksize=4))

        setups = {name: measure(name, run) for name in names}
    results = {
        "setups": setups,
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "minutes": (time.perf_counter() - start) / 60,
    }
    (HERE / "participation.json").write_text(json.dumps(results, indent=1) + "\n")
    if "curves" in setups.get("setup1", {}):
        draw(setups["setup1"]["curves"])
    found = page(results)
    (HERE / "participation.md").write_text(found, encoding="utf-8")
    print(found)


if __name__ == "__main__":
    main()
