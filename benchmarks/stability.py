"""Which estimator trains models that are not convex without collapsing: `make bench-stability`.

Every estimator sees the same coins and the same batches. An estimator passes a task if its worst
seed ends within 5 points of accuracy of FedAvg's worst seed with the same joiners. Its bias and its
noise are not estimated but enumerated, over all 1,024 outcomes of ten coins, on real updates of
the task. The tasks in PyTorch are left out where torch is not installed. Writes stability.json and
stability.md beside this file.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import multiprocessing
import os
import platform
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # one process per core; before numpy is imported

import numpy as np

import fedprice as fp
from benchmarks.models import NUM_CLIENTS, cnn, digits, mlp, quickstart
from fedprice.data.synthetic import synthetic
from fedprice.experiments.setups import setup_of
from fedprice.rounds import (
    AGGREGATORS,
    Adam,
    DivergedError,
    FedAvg,
    Hajek,
    HorvitzThompson,
    Memory,
    Momentum,
    Plain,
    TrotterTukey,
    simulate,
    simulate_runs,
)
from fedprice.rounds.aggregation.base import Arrivals

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.rounds import Aggregator, ServerStep

HERE = Path(__file__).parent
ROUNDS, SEEDS, MANY, LATE = 20, range(100, 110), range(200, 260), 8
TOLERANCE = 0.05
LOW_TO_HIGH = np.linspace(0.1, 0.6, NUM_CLIENTS)
# Flower's quickstart at its shipped settings, at two mean levels: the lowest and the highest.
MEAN_LEVELS = {"0.6": (0.3, 0.9), "0.3": (0.1, 0.5)}
SHIPPED_ROUNDS, SHIPPED_SAMPLES, SHIPPED_SEEDS = 10, 640, range(8)
NOISY_SEEDS = range(8)
NORMALISED = "with batch normalisation"
NETWORKS = ["as shipped", NORMALISED]


@dataclass(frozen=True)
class Study:
    """One task of the study: how to make it, the levels, and the server step."""

    make: Callable[[], fp.Task]
    levels: FloatArray
    step: ServerStep = field(default_factory=Plain)
    torch: bool = False
    many: bool = False  # whether it is run with many seeds, too


def shuffled() -> FloatArray:
    """Return levels from 0.1 to 0.6 that are unrelated to the sizes."""
    return np.random.default_rng(1).permutation(LOW_TO_HIGH)


def against_size() -> FloatArray:
    """Return levels from 0.1 for the largest client to 0.6 for the smallest."""
    levels = np.empty(NUM_CLIENTS)
    levels[np.argsort(-digits().samples)] = LOW_TO_HIGH
    return levels


def a_tenth_rare() -> FloatArray:
    """Return these levels, but 0.02 for the client that has nearest to a tenth of the data."""
    levels = shuffled()
    levels[np.argmin(np.abs(digits().weight - 0.1))] = 0.02
    return levels


@cache
def studies() -> dict[str, Study]:
    """Return the tasks; the three after the first are harder, each in its own way."""

    def usual() -> fp.Task:
        return mlp(digits(), momentum=0.9)

    return {
        "CNN": Study(lambda: cnn(digits()), shuffled(), torch=True),
        "quickstart CNN": Study(
            lambda: cnn(digits(uneven=1.0, skew=100.0), momentum=0.9, epochs=1),
            shuffled(),
            torch=True,
        ),
        "MLP": Study(lambda: mlp(digits(skew=0.5), momentum=0.9), shuffled(), many=True),
        "MLP, large clients rare": Study(usual, against_size(), many=True),
        "MLP, five epochs": Study(lambda: mlp(digits(), momentum=0.9, epochs=5), shuffled()),
        "MLP, levels from 1 %": Study(
            usual, np.random.default_rng(2).permutation(np.geomspace(0.01, 0.6, NUM_CLIENTS))
        ),
        "MLP, a tenth of the data at 2 %": Study(usual, a_tenth_rare()),
        "MLP, server momentum": Study(usual, shuffled(), Momentum()),
        "MLP, server Adam": Study(usual, shuffled(), Adam()),
    }


@dataclass(frozen=True)
class Estimator:
    """An aggregator with floors; `rival` is FedAvg with the same joiners."""

    aggregator: Aggregator
    max_weight: float = np.inf
    rival: str = "FedAvg"

    def levels(self, weight: FloatArray, levels: FloatArray) -> FloatArray:
        """Return the levels, raised so that no weight exceeds the largest."""
        return np.clip(weight / self.max_weight, levels, 1.0)


HT, HALF, MEMORY = HorvitzThompson(), TrotterTukey(), Memory()
CAPPED = "FedAvg, largest weight 1"
ESTIMATORS = {
    "full participation": Estimator(HT, max_weight=1e-9),
    "FedAvg": Estimator(FedAvg()),
    CAPPED: Estimator(FedAvg(), max_weight=1.0, rival=CAPPED),
    "Horvitz–Thompson": Estimator(HT),
    "Horvitz–Thompson, largest weight 1": Estimator(HT, max_weight=1.0, rival=CAPPED),
    "Trotter–Tukey": Estimator(HALF),
    "Trotter–Tukey, largest weight 1": Estimator(HALF, max_weight=1.0, rival=CAPPED),
    "Hájek": Estimator(Hajek()),
    "FedVARP": Estimator(AGGREGATORS["fedvarp"]),
    "FedStale": Estimator(AGGREGATORS["fedstale"]),
    "MIFA": Estimator(AGGREGATORS["mifa"]),
    "memory, unbiased": Estimator(AGGREGATORS["unbiased-memory"]),
    "memory": Estimator(MEMORY),
    "memory, largest weight 1": Estimator(MEMORY, max_weight=1.0, rival=CAPPED),
}
MANY_LABELS = [
    "FedAvg", CAPPED, "Horvitz–Thompson", "Trotter–Tukey", "MIFA", "memory",
    "memory, largest weight 1",
]  # fmt: skip
SHIPPED = [
    CAPPED,
    "memory, largest weight 1",  # the default of PricedParticipation
    "Trotter–Tukey, largest weight 1",
    "Horvitz–Thompson, largest weight 1",
]


@cache
def task_of(study: str) -> fp.Task:
    """Return a task, made once per process."""
    return studies()[study].make()


def final_accuracy(
    task: fp.Task,
    levels: FloatArray,
    estimator: Estimator,
    seed: int,
    rounds: int = ROUNDS,
    step: ServerStep | None = None,
) -> float:
    """Return the accuracy after the last round; a run that diverges counts as guessing."""
    try:
        history = simulate(
            task,
            estimator.levels(task.weight, levels),
            rounds=rounds,
            seed=seed,
            aggregator=estimator.aggregator,
            server_step=step,
            evaluate_every=rounds,
        )
    except DivergedError:
        return 0.1
    return float(history.accuracy[-1])


def accuracies(study: str, label: str, seeds: range = SEEDS) -> list[float]:
    """Return the final accuracy of each seed."""
    task, own, estimator = task_of(study), studies()[study], ESTIMATORS[label]
    return [final_accuracy(task, own.levels, estimator, seed, step=own.step) for seed in seeds]


def shipped_accuracies(network: str, mean: str, label: str) -> list[float]:
    """Return the final accuracy of each seed of Flower's quickstart at its shipped settings."""
    levels = np.random.default_rng(1).permutation(np.linspace(*MEAN_LEVELS[mean], NUM_CLIENTS))
    found = []
    for seed in SHIPPED_SEEDS:
        task = quickstart(seed, SHIPPED_SAMPLES, normalised=network == NORMALISED)
        found.append(final_accuracy(task, levels, ESTIMATORS[label], seed, SHIPPED_ROUNDS))
    return found


def enumerated(study: str) -> dict[str, dict[str, float]]:
    """Return bias and noise of every estimator, over all outcomes of the coins of a late round.

    All are relative to the length of the full step: the length of the bias; its part along the full
    step, which acts like another learning rate; its part across, relative to the expected step,
    which turns it; and the root mean square error.
    """
    task = task_of(study)
    weight, everyone = task.weight, np.arange(task.num_clients)
    model, past = task.initial, []
    for round_ in range(LATE):  # full participation; the last updates are those of round LATE
        past.append(task.updates(model, everyone, round_, 0).values.astype(np.float64))
        step = task.layout.arrays(weight @ past[-1])
        model = [(old + new).astype(old.dtype) for old, new in zip(model, step, strict=True)]
    updates, full = past[-1], weight @ past[-1]
    length = float(np.linalg.norm(full))
    outcomes = np.array(list(itertools.product([False, True], repeat=task.num_clients)))
    result = {}
    for label, estimator in ESTIMATORS.items():
        levels = estimator.levels(weight, studies()[study].levels)
        chance = np.where(outcomes, levels, 1 - levels).prod(axis=1)
        # What an estimator with a memory remembers: the rounds before, with coins of their own.
        rng, state = np.random.default_rng(0), estimator.aggregator.start(len(weight), full.size)
        for earlier in past[:-1]:
            clients = np.flatnonzero(rng.random(levels.size) < levels)
            arrivals = Arrivals(clients, weight, levels, full.size)
            collector = estimator.aggregator.begin(state, arrivals)
            collector.add(clients, earlier[clients])
            state = collector.state()
        steps = np.zeros((len(outcomes), full.size))
        for row, joined in zip(steps, outcomes, strict=True):
            clients = np.flatnonzero(joined)
            collector = estimator.aggregator.begin(
                state, Arrivals(clients, weight, levels, full.size)
            )
            collector.add(clients, updates[clients])
            row[:] = collector.finish()
        mean = chance @ steps
        along = float((mean - full) @ full / length**2)
        across = float(np.linalg.norm(mean - full * (1 + along))) / length / (1 + along)
        result[label] = {
            "bias": float(np.linalg.norm(mean - full)) / length,
            "along": along,
            "across": across,
            "noise": float(np.sqrt(chance @ ((steps - full) ** 2).sum(axis=1))) / length,
        }
    return result


def convex() -> dict[str, dict[str, list[float]]]:
    """Return the excess loss of Setup 1 after 100 and 1,000 rounds, at its equilibrium levels."""
    setup = setup_of("setup1")
    federation = setup.federation()
    task = fp.LogisticRegression(federation)
    measured = fp.calibrate(task)
    levels = fp.solve(setup.game(federation, measured)).levels
    least = task.least_loss()
    estimators = {
        "full participation": (HT, Plain(), np.ones_like(levels)),
        "Horvitz–Thompson": (HT, Plain(), levels),
        "Trotter–Tukey": (HALF, Plain(), levels),
        "Hájek": (Hajek(), Plain(), levels),
        "FedVARP": (AGGREGATORS["fedvarp"], Plain(), levels),
        "MIFA": (AGGREGATORS["mifa"], Plain(), levels),
        "memory": (MEMORY, Plain(), levels),
        "FedAvg": (FedAvg(), Plain(), levels),
    }
    result: dict[str, dict[str, list[float]]] = {}
    for label, (aggregator, step, q) in estimators.items():
        histories = simulate_runs(
            task,
            [(q, seed) for seed in range(5)],
            rounds=1000,
            aggregator=aggregator,
            server_step=step,
            evaluate_every=100,
        )
        losses = np.array([history.loss for history in histories]) - (least or 0.0)
        result[label] = {"100": losses[:, 1].tolist(), "1000": losses[:, -1].tolist()}
    weight = task.weight
    result["levels"] = {
        "levels": levels.tolist(),
        "largest_weight": [float((weight / levels).max())],
        "variance": [float((weight**2 * (1 - levels) / levels).sum())],
    }
    return result


def noisy() -> dict[str, dict[str, list[float]]]:
    """Return per cent of loss above full participation's where updates are noisy: ten local steps.

    Clients have a level of a quarter, or a_n where that is more, so that weights a/q reach 1.
    """
    federation = synthetic(num_clients=20, samples=4_000)
    task = fp.LogisticRegression(federation, fp.Training(local_steps=10))
    levels = np.maximum(task.weight, 0.25)
    kinds = {
        "Horvitz–Thompson": HT,
        "MIFA": AGGREGATORS["mifa"],
        "memory, unbiased": AGGREGATORS["unbiased-memory"],
        "memory, no cap": Memory(cap=np.inf),
        "memory": MEMORY,
    }

    def losses(q: FloatArray, aggregator: Aggregator) -> FloatArray:
        histories = simulate_runs(
            task, [(q, seed) for seed in NOISY_SEEDS],
            rounds=1600, aggregator=aggregator, evaluate_every=400,
        )  # fmt: skip
        return np.array([history.loss[[1, 4]] for history in histories])

    full = losses(np.ones_like(levels), HT)
    above = {label: 100 * (losses(levels, kind) / full - 1) for label, kind in kinds.items()}
    return {e: {"400": a[:, 0].tolist(), "1600": a[:, 1].tolist()} for e, a in above.items()}


def spread(values: list[float], digits_: int = 2) -> str:
    """Return the least and the greatest, or one number if they print the same."""
    low, high = f"{min(values):.{digits_}f}", f"{max(values):.{digits_}f}"
    return low if low == high else f"{low} to {high}"


def measure_shipped() -> dict[str, Any]:
    """Run Flower's quickstart with the default estimator and its rivals, at the same coins."""
    if importlib.util.find_spec("torch") is None:
        return {}
    spawn = multiprocessing.get_context("spawn")  # PyTorch does not survive a fork
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        runs = {
            n: {
                m: {e: pool.submit(shipped_accuracies, n, m, e) for e in SHIPPED}
                for m in MEAN_LEVELS
            }
            for n in NETWORKS
        }
        return {
            n: {m: {e: f.result() for e, f in r.items()} for m, r in own.items()}
            for n, own in runs.items()
        }


def measure() -> dict[str, Any]:
    """Run all that the tables need."""
    torch = importlib.util.find_spec("torch") is not None
    known = [s for s, study in studies().items() if torch or not study.torch]
    spawn = multiprocessing.get_context("spawn")  # PyTorch does not survive a fork
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as pool:
        bias = {s: pool.submit(enumerated, s) for s in known}
        accuracy = {s: {e: pool.submit(accuracies, s, e) for e in ESTIMATORS} for s in known}
        many = {
            s: {e: pool.submit(accuracies, s, e, MANY) for e in MANY_LABELS}
            for s in known
            if studies()[s].many
        }
        return {
            "accuracy": {s: {e: f.result() for e, f in r.items()} for s, r in accuracy.items()},
            "many": {s: {e: f.result() for e, f in r.items()} for s, r in many.items()},
            "bias": {s: future.result() for s, future in bias.items()},
            "setup1": convex(),
            "noisy": noisy(),
            "shipped": measure_shipped(),
        }


def report(result: dict[str, Any]) -> str:
    """Return the tables, as Markdown."""
    accuracy, many, bias = result["accuracy"], result["many"], result["bias"]
    lines = [
        "| estimator | " + " | ".join(accuracy) + " | passes | bias | across | noise |",
        "|---|" + "---|" * len(accuracy) + "---|---|---|---|",
    ]
    tails = [
        "| estimator | " + " | ".join(many) + " |",
        "|---|" + "---|" * len(many),
    ]
    for label, estimator in ESTIMATORS.items():
        cells, passed = [], 0
        for runs in accuracy.values():
            own, rival = runs[label], runs[estimator.rival]
            cells.append(f"{np.mean(own):.3f} / {min(own):.3f}")
            passed += min(own) >= min(rival) - TOLERANCE
        cells.append(f"{passed} of {len(accuracy)}")
        cells += [spread([b[label][k] for b in bias.values()]) for k in ("bias", "across", "noise")]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    for label in MANY_LABELS:
        cells = []
        for runs in many.values():
            own, rival = np.array(runs[label]), np.array(runs[ESTIMATORS[label].rival])
            low = np.percentile(own, 5)
            gap = low - np.percentile(rival, 5)
            cells.append(f"{own.mean():.3f} / {low:.3f} ({100 * gap:+.1f})")
        tails.append(f"| {label} | " + " | ".join(cells) + " |")
    facts = []
    for s in accuracy:
        weight, levels = task_of(s).weight, studies()[s].levels
        facts.append(
            f"- {s}: largest weight {(weight / levels).max():.2f}, variance of the total weight "
            f"{(weight**2 * (1 - levels) / levels).sum():.2f}, {levels.sum():.1f} joiners per "
            f"round; with a largest weight of 1, {np.clip(weight, levels, 1).sum():.1f}."
        )
    setup1 = dict(result["setup1"])
    levels = setup1.pop("levels")
    one = [
        "| estimator | excess loss after 100 rounds | after 1,000 rounds |",
        "|---|---:|---:|",
    ]
    for label, found in setup1.items():
        cells = [f"{np.mean(v):.4f} ± {np.std(v, ddof=1):.4f}" for v in found.values()]
        one.append(f"| {label} | " + " | ".join(cells) + " |")
    few = ["| estimator | round 400 | round 1,600 |", "|---|---:|---:|"]
    for label, found in result["noisy"].items():
        cells = [f"{np.mean(v):+.2f} ± {np.std(v, ddof=1):.2f}" for v in found.values()]
        few.append(f"| {label} | " + " | ".join(cells) + " |")
    shipped = [
        "| network | estimator | mean level 0.6 | collapsed | mean level 0.3 | collapsed |",
        "|---|---|---|---:|---|---:|",
    ]
    for network, means in result["shipped"].items():
        for label in SHIPPED:
            cells = []
            for runs in means.values():
                own, usual = runs[label], float(np.mean(runs[CAPPED]))
                gap = 100 * (np.mean(own) - usual)
                cells.append(f"{np.mean(own):.3f} / {min(own):.3f} ({gap:+.1f})")
                cells.append(f"{sum(a < usual / 2 for a in own)} of {len(own)}")
            shipped.append(f"| {network} | {label} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            "# Stability: which estimator does not collapse",
            "",
            f"Written by `make bench-stability`. Ten clients, levels 0.1 to 0.6, {ROUNDS} rounds, "
            f"{len(SEEDS)} seeds, the same coins for all. Final accuracy, mean / worst seed; "
            "passes if the worst seed is within 5 points of FedAvg's worst seed with the same "
            "joiners. Bias, its part across the full step, and noise: enumerated in round "
            f"{LATE}, relative to the full step, least to greatest over the tasks.",
            "",
            *lines,
            "",
            *facts,
            "",
            f"The quick tasks with {len(MANY)} other seeds: mean / 5th percentile, and in brackets "
            "its distance in points from FedAvg's with the same joiners:",
            "",
            *tails,
            "",
            "Flower's PyTorch quickstart at its shipped settings (rate 0.1, momentum 0.9, batches "
            "of 32, one epoch, ten equal clients with data of the same kind), with lower-case "
            f"letters instead of CIFAR-10, {SHIPPED_SAMPLES:,} per client; {SHIPPED_ROUNDS} "
            f"rounds, {len(SHIPPED_SEEDS)} seeds, each with an initial model of its own, levels "
            "spread evenly around their mean. Final accuracy, mean / worst seed, in brackets the "
            "distance of the mean in points from FedAvg's with the same joiners; collapsed: below "
            "half of FedAvg's mean.",
            "",
            *shipped,
            "",
            "Setup 1 (convex) at its equilibrium levels, largest weight "
            f"{levels['largest_weight'][0]:.2f}, variance of the total weight "
            f"{levels['variance'][0]:.2f}; five seeds, mean ± standard deviation:",
            "",
            *one,
            "",
            "Noisy updates: logistic regression on Synthetic(1, 1), 20 clients, ten local steps, "
            f"levels of ¼ or a_n; {len(NOISY_SEEDS)} seeds, loss in per cent above that of "
            "everybody joining, mean ± standard deviation:",
            "",
            *few,
            "",
            f"Python {platform.python_version()}, numpy {np.__version__}.",
            "",
        ]
    )


def main() -> None:
    """Run all, or one part alone (`shipped` or `noisy`); print and write the tables."""
    file, parts = HERE / "stability.json", {"shipped": measure_shipped, "noisy": noisy}
    if sys.argv[1:]:
        (part,) = sys.argv[1:]
        result = json.loads(file.read_text("utf-8")) | {part: parts[part]()}
    else:
        result = measure()
    text = report(result)
    (HERE / "stability.md").write_text(text, encoding="utf-8")
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
