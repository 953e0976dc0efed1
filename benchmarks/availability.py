"""Which estimator learns the right model from clients that are away: `make bench-availability`.

Twenty clients with unlike data, levels that rise along their labels, and every kind of absence. All
estimators see the same coins, absences and batches. The bias of an estimator is the distance of its
mean final model from that of full participation, relative to the length of the latter; what the
spread over seeds contributes to it is subtracted. FedVARP, MIFA and FedStale are special cases of
memory; FedAU is written here. Writes availability.json and availability.md beside this file.
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

import numpy as np

import fedprice as fp
from fedprice.data.synthetic import synthetic
from fedprice.learning import Decay, Training
from fedprice.learning.draws import ABSENCES, uniforms
from fedprice.rounds import (
    DivergedError,
    FedAvg,
    Hajek,
    HorvitzThompson,
    Memory,
    TrotterTukey,
    simulate,
)
from fedprice.rounds.aggregation.base import Arrivals, WeightedSum
from fedprice.rounds.availability import (
    Availability,
    ByLabel,
    Cyclic,
    Diurnal,
    Independent,
    Markov,
    Presence,
    Trace,
)
from fedprice.rounds.coins import COINS

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray, State
    from fedprice.rounds import Aggregator, History

HERE = Path(__file__).parent
NUM_CLIENTS, ROUNDS, EVERY, LATE, SEEDS = 20, 400, 10, 10, range(20)
IN_STEP = 4  # the period of absences that spaced coins of level 1/4 fall in step with


@dataclass(frozen=True)
class FedAU:
    """Σ_joined a_n ω_n Δ_n, ω_n the mean gap between a client's joins so far, cut off.

    Wang and Ji, "A Lightweight Method for Tackling Unknown Participation Statistics in Federated
    Averaging", ICLR 2024, Algorithm 2. It needs no probabilities.
    """

    cutoff: int = 50
    name: str = "fedau"

    def start(self, num_clients: int, size: int) -> State:
        """Return ω, the number of gaps behind it, and the rounds since the last one."""
        nothing = np.zeros(num_clients)
        return {"gap": np.ones(num_clients), "gaps": nothing, "since": nothing}

    def begin(self, state: State, arrivals: Arrivals) -> _Gaps:
        """Begin a round."""
        return _Gaps(self.cutoff, state, arrivals)


class _Gaps:
    def __init__(self, cutoff: int, state: State, arrivals: Arrivals) -> None:
        self._cutoff, self._state, self._weight = cutoff, state, arrivals.weight
        self._sum, self._joined = WeightedSum(arrivals.size), np.zeros(arrivals.weight.size, bool)

    def add(self, clients: IntArray, updates: Any) -> None:
        self._sum.add(self._weight[clients] * self._state["gap"][clients], updates)
        self._joined[clients] = True

    def finish(self) -> FloatArray:
        return self._sum.total

    def state(self) -> State:
        gap, gaps, since = self._state["gap"], self._state["gaps"], self._state["since"] + 1
        over = self._joined | (since == self._cutoff)
        return {
            "gap": np.where(over, (gaps * gap + since) / (gaps + 1), gap),
            "gaps": gaps + over,
            "since": np.where(over, 0, since),
        }


@dataclass(frozen=True)
class Unequal(Availability):
    """There by coins with probabilities from 1 to 0.2, which fall along the labels.

    A server that does not know them takes them for 1.
    """

    known: bool

    def begin(self, task: fp.Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        share = along_labels(task, 1.0, 0.2)
        told = share if self.known else np.ones_like(share)
        return Presence(told, lambda round_: uniforms(seed, ABSENCES, round_, share.size) < share)


class Unforeseen(Cyclic):
    """A cycle that is not known beforehand, so that coins in step with it are not refused."""

    def begin(self, task: fp.Task, rounds: int, seed: int) -> Presence:
        """Begin a run."""
        return super().begin(task, rounds, seed)._replace(chance=None)


ESTIMATORS: dict[str, Aggregator] = {
    "FedAvg": FedAvg(),
    "Horvitz–Thompson": HorvitzThompson(),
    "Trotter–Tukey": TrotterTukey(),
    "Hájek": Hajek(),
    "FedVARP": Memory(coefficient=1.0, cap=math.inf, share=0.0),
    "MIFA": Memory(coefficient=1.0, cap=0.0, share=0.0),
    "FedStale": Memory(coefficient=0.5, cap=math.inf, share=0.0),
    "FedAU": FedAU(),
    "memory": Memory(),
    "memory, unbiased": Memory(cap=math.inf, share=0.0),
}
WITH_COINS = ("Horvitz–Thompson", "Trotter–Tukey", "memory", "memory, unbiased")


class Kind(NamedTuple):
    """A kind of absence, and what is left of Lemma 1 under it."""

    availability: Availability | None
    lemma: str


def along_labels(task: fp.Task, first: float, last: float) -> FloatArray:
    """Return numbers that rise or fall evenly along the clients' labels."""
    numbers, order = np.empty(task.num_clients), task.label_order()
    assert order is not None
    numbers[order] = np.linspace(first, last, task.num_clients)
    return numbers


def departures(task: fp.Task) -> Trace:
    """Return a trace: a quarter of the clients, with similar labels, leave for good halfway."""
    ends = np.where(along_labels(task, 0, 1) > 3 / 4, ROUNDS // 2, ROUNDS)
    rows = [f"{name},0,{end}\n" for name, end in zip(task.ids, ends, strict=True)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "departures.csv"
        path.write_text("client,from,to\n" + "".join(rows), encoding="utf-8")
        return Trace(path)


def kinds(task: fp.Task) -> dict[str, Kind]:
    """Return all kinds of absence."""
    given_past, on_average = "holds given the past", "holds on average over rounds"
    return {
        "always there": Kind(None, given_past),
        "coins": Kind(Independent(0.5), given_past),
        "unequal coins": Kind(Unequal(known=True), given_past),
        "unequal coins, unknown": Kind(Unequal(known=False), "fails: wrong probabilities"),
        "chain, 20 rounds": Kind(Markov(0.5, 20), on_average),
        "cycle of 40": Kind(Cyclic(40, 0.5), on_average),
        "day of 40": Kind(Diurnal(40, 0.5), on_average),
        "by label, 40": Kind(ByLabel(40, 0.5), on_average),
        "by label, 200": Kind(ByLabel(200, 0.5), "holds over 200 rounds, too slowly"),
        "a quarter leaves": Kind(departures(task), "fails: probabilities become 0"),
    }


def runs(
    task: fp.Task,
    levels: FloatArray,
    aggregator: Aggregator,
    availability: Availability | None = None,
    coins: str = "independent",
) -> list[History]:
    """Train once per seed."""
    return [
        simulate(
            task, levels, rounds=ROUNDS, seed=seed, aggregator=aggregator, coins=coins,
            availability=availability, evaluate_every=EVERY, threads=1, stop_on_explosion=False,
        )
        for seed in SEEDS
    ]  # fmt: skip


@dataclass(frozen=True)
class Reference:
    """Full participation: its mean final model, late loss, and its loss halfway, the target."""

    model: FloatArray
    loss: float
    target: float

    @classmethod
    def of(cls, histories: list[History]) -> Reference:
        """Return the reference."""
        losses = np.mean([h.loss for h in histories], axis=0)
        model = np.mean([h.model[0] for h in histories], axis=0)
        return cls(model, float(losses[-LATE:].mean()), float(losses[losses.size // 2]))

    def measures(self, histories: list[History]) -> dict[str, float]:
        """Return bias, its resolution, late loss above full participation, rounds to the target."""
        models, length = np.array([h.model[0] for h in histories]), np.linalg.norm(self.model)
        mean = models.mean(axis=0)
        noise = float(((models - mean) ** 2).sum()) / (len(models) - 1) / len(models)
        bias = float(((mean - self.model) ** 2).sum()) - noise
        excess = np.array([h.loss[-LATE:].mean() / self.loss - 1 for h in histories])
        below = [h.rounds[h.loss <= self.target] for h in histories]
        return {
            "bias": math.sqrt(max(bias, 0.0)) / float(length),
            "resolution": math.sqrt(noise) / float(length),
            "excess": float(excess.mean()),
            "error": float(excess.std(ddof=1)) / math.sqrt(len(excess)),
            "rounds": float(np.median([one[0] if one.size else math.inf for one in below])),
        }


def measured(reference: Reference, *how: Any) -> dict[str, float] | None:
    """Return the measures of an estimator, or None if a run diverged."""
    try:
        return reference.measures(runs(*how))
    except DivergedError:
        return None


def measure() -> dict[str, Any]:
    """Run all that the tables need."""
    task = fp.LogisticRegression(
        synthetic(num_clients=NUM_CLIENTS, samples=4000, seed=1),
        Training(local_steps=10, rate=Decay(0.05, 0.999), l2=0.01),
    )
    reference = Reference.of(runs(task, np.ones(NUM_CLIENTS), HorvitzThompson()))
    rising, even = along_labels(task, 0.1, 0.6), np.full(NUM_CLIENTS, 1 / IN_STEP)
    absences = {
        title: {
            label: measured(reference, task, rising, aggregator, kind.availability)
            for label, aggregator in ESTIMATORS.items()
        }
        for title, kind in kinds(task).items()
    }
    designs = {
        "levels 0.1 to 0.6": (rising, None),
        "levels 1/4": (even, None),
        "levels 1/4, there for 2 of 4 rounds": (even, Unforeseen(IN_STEP, 0.5)),
    }
    coins = {
        title: {
            label: {
                kind: measured(reference, task, levels, ESTIMATORS[label], absence, kind)
                for kind in COINS
            }
            for label in WITH_COINS
        }
        for title, (levels, absence) in designs.items()
    }
    lemma = {title: kind.lemma for title, kind in kinds(task).items()}
    return {"absences": absences, "coins": coins, "lemma": lemma}


def shown(measures: dict[str, float] | None, what: str) -> str:
    """Return one measure as a cell of a table."""
    if measures is None:
        return "diverged"
    if what == "bias":
        bias, resolution = measures["bias"], measures["resolution"]
        return f"{bias:.2f}" if bias > resolution else f"< {resolution:.2f}"
    if what == "excess":
        return f"{round(100 * measures['excess'], 1) + 0.0} ± {100 * measures['error']:.1f}"
    return "–" if math.isinf(measures["rounds"]) else f"{measures['rounds']:.0f}"


def table(rows: dict[str, dict[str, Any]], what: str) -> list[str]:
    """Return the lines of a table of one measure: absences down, estimators across."""
    return [
        f"| | {' | '.join(ESTIMATORS)} |",
        f"|---|{'---:|' * len(ESTIMATORS)}",
        *(
            f"| {title} | {' | '.join(shown(own[label], what) for label in ESTIMATORS)} |"
            for title, own in rows.items()
        ),
    ]


def best(own: dict[str, dict[str, float] | None]) -> list[str]:
    """Return the estimators whose late loss is within two standard errors of the least."""
    known = {label: measures for label, measures in own.items() if measures is not None}
    least = min(known.values(), key=lambda measures: measures["excess"])
    limit = least["excess"] + 2 * least["error"]
    return [label for label, measures in known.items() if measures["excess"] <= limit]


def report(found: dict[str, Any]) -> str:
    """Return the tables as Markdown."""
    lines = [
        "# Absence: which estimator learns the right model",
        "",
        "Written by `make bench-availability`. Logistic regression on Synthetic(1, 1), "
        f"{NUM_CLIENTS} clients, ten local steps, {ROUNDS} rounds, {len(SEEDS)} seeds; levels from "
        "0.1 to 0.6 along the labels. Clients are there in half of the rounds: by coins; in "
        "absences of 20 rounds on average (chain); in 20 of every 40 rounds, each client in its "
        "own (cycle) or with others of similar labels (by label); with a probability that follows "
        "a sine (day). Unequal coins have probabilities from 1 to 0.2 along the labels; a server "
        "that does not know them takes them for 1. In the last row, a quarter of the clients, with "
        "similar labels, leaves after half of the rounds, which the server knows as a probability "
        "of a half. FedVARP, MIFA, FedStale and memory remember updates; FedAvg, FedAU and MIFA "
        "use no probabilities.",
        "",
        "## Bias",
        "",
        "Distance of the mean final model from that of full participation, relative to the "
        "latter's length, without what the spread over seeds adds to it; < where it is below that "
        "spread's standard error.",
        "",
        *table(found["absences"], "bias"),
        "",
        "## Loss",
        "",
        f"Per cent above full participation's, in the last {LATE * EVERY} rounds, ± standard "
        "error.",
        "",
        *table(found["absences"], "excess"),
        "",
        "## Time",
        "",
        f"Rounds until the loss is what full participation reaches after {ROUNDS // 2}; median "
        "over seeds, – if most never reach it.",
        "",
        *table(found["absences"], "rounds"),
        "",
        "## Evenly spaced coins",
        "",
        "Bias, and per cent of loss above full participation's. If all levels are 1/4, a spaced "
        "client joins in every fourth round, always with the same others. If it is there in two "
        "rounds of four, it is as likely as not to be away whenever its coin shows heads.",
        "",
        f"| levels and absence | estimator | {' | '.join(COINS)} |",
        f"|---|---|{'---:|' * len(COINS)}",
    ]
    for title, own in found["coins"].items():
        for label, measures in own.items():
            cells = [f"{shown(m, 'bias')}; {shown(m, 'excess')}" for m in measures.values()]
            lines.append(f"| {title} | {label} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Where unbiasedness ends, and what to use there",
        "",
        "Lemma 1 is about Horvitz–Thompson's step. To use: the estimators whose loss is within two "
        "standard errors of the least.",
        "",
        "| absence | Lemma 1 | Horvitz–Thompson: bias | loss, % | use | bias | loss, % |",
        "|---|---|---:|---:|---|---:|---:|",
    ]
    for title, own in found["absences"].items():
        first, *others = (
            f"{label} | {shown(own[label], 'bias')} | {shown(own[label], 'excess')} |"
            for label in best(own)
        )
        usual = own["Horvitz–Thompson"]
        lines.append(
            f"| {title} | {found['lemma'][title]} | {shown(usual, 'bias')} | "
            f"{shown(usual, 'excess')} | {first}"
        )
        lines += [f"| | | | | {other}" for other in others]
    return "\n".join([*lines, "", found["run"], ""])


def main() -> None:
    """Run all, print and write the tables."""
    begun = time.process_time()
    found = measure()
    minutes = (time.process_time() - begun) / 60
    found["run"] = (
        f"{minutes:.1f} minutes of one core; Python {platform.python_version()}, numpy "
        f"{np.__version__}."
    )
    text = report(found)
    (HERE / "availability.md").write_text(text, encoding="utf-8")
    (HERE / "availability.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
