"""`Participation` beside FedAvg, on Flower: `make bench-strategies`.

Ten clients with different data train a softmax regression in process. First, each has a level of
its own, between 0.1 and 1, whatever its size and data: rare clients cost accuracy, which weights
make up for in part. The last three rows have as many joiners, and the same level for all. Then two
clients are slow, so that their updates come some rounds late, and rounds do not wait for them; one
more goes away after a third of the rounds, and comes back after two thirds. Losses are the global
ones, in per cent above that of FedAvg with everybody in the same seed's run; intervals are 95 %,
Student's over the seeds, which draw data, batches and coins.

Writes strategies.json and strategies.md beside this file.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import fedprice as fp
from fedprice.data.synthetic import synthetic
from fedprice.experiments.measures import students_interval
from fedprice.flower import InProcessGrid, Limits, Participation
from fedprice.flower.wire import to_record
from fedprice.rounds import FedAvg as Mean
from fedprice.rounds import HorvitzThompson, Memory

if TYPE_CHECKING:
    from collections.abc import Iterable

    from flwr.serverapp.strategy import Strategy

HERE = Path(__file__).parent
CLIENTS, SEEDS, ROUNDS = 10, 20, 150
LEVELS = (0.1, 1.0, 0.2, 0.5, 0.3, 1.0, 0.1, 0.4, 0.2, 0.2)
SLOW, AWAY = {0: 4, 1: 7}, 2  # by how many looks, and who goes away
ENOUGH = 7


class CountingGrid(InProcessGrid):
    """Counts the replies that FedAvg gets: those that come at once."""

    used = 0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Return the replies that come at once, as servers do that end a round at a time-out."""
        replies = super().send_and_receive(messages, timeout=timeout)
        self.used += len(replies)
        return replies


def app_of(task: fp.LogisticRegression, seed: int) -> ClientApp:
    """Return a ClientApp that trains the task, in Flower's own words."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        n = int(context.node_config["partition-id"])
        model = message.content.array_records["arrays"]["weights"].numpy()
        round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        row = task.updates([model], np.array([n]), round_, seed).values[0]
        arrays = to_record(["weights"], [model + row.reshape(model.shape)])
        metrics = MetricRecord({"num-examples": int(task.samples[n])})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def run(strategy: Strategy, seed: int, *, hard: bool) -> tuple[float, float]:
    """Return the loss after the last round, and how many updates were used per round."""
    federation = synthetic(num_clients=CLIENTS, samples=2_000, seed=seed)
    task = fp.LogisticRegression(federation, fp.Training(local_steps=10, batch=24))
    nodes = CountingGrid(app_of(task, seed), CLIENTS, delays=SLOW if hard else {})

    def come_and_go(server_round: int, _: Any) -> None:
        if hard:
            nodes.gone = {AWAY} if ROUNDS < 3 * server_round < 2 * ROUNDS else set()

    result = strategy.start(
        nodes, to_record(["weights"], task.initial), ROUNDS, evaluate_fn=come_and_go
    )
    loss = task.evaluate([result.arrays["weights"].numpy()], None)["loss"]
    joined = [own.get("joined", 0) for own in result.train_metrics_clientapp.values()]
    used = nodes.used + sum(map(int, joined))  # type: ignore[arg-type]
    return loss, used / ROUNDS


def strategies(seed: int) -> dict[str, dict[str, tuple[Strategy, bool]]]:
    """Return what is compared."""
    levels = {InProcessGrid.FIRST + n: level for n, level in enumerate(LEVELS)}
    common: dict[str, Any] = {"seed": seed, "evaluate_clients": False, "limits": Limits(wait=0.0)}
    late = {**common, "enough": ENOUGH}
    plain: dict[str, Any] = {"fraction_evaluate": 0.0, "min_train_nodes": 1}
    return {
        "levels of 0.1 to 1": {
            "FedAvg with everybody": (FedAvg(**plain), False),
            "Participation": (Participation(levels, **common), False),
            "Participation, memory without a cap": (
                Participation(levels, aggregator=Memory(cap=math.inf), **common), False
            ),
            "Participation, Horvitz–Thompson": (
                Participation(levels, aggregator=HorvitzThompson(), **common), False
            ),
            "FedAvg over the same joiners": (
                Participation(levels, aggregator=Mean(), **common), False
            ),
            "Participation, the same level for all": (
                Participation(sum(LEVELS) / CLIENTS, **common), False
            ),
            "Participation, the same, memory without a cap": (
                Participation(
                    sum(LEVELS) / CLIENTS, aggregator=Memory(cap=math.inf), **common
                ),
                False,
            ),
            "FedAvg over as many random clients": (
                FedAvg(**{**plain, "fraction_train": sum(LEVELS) / CLIENTS}), False
            ),
        },
        f"two slow, one away, {ENOUGH} of {CLIENTS} suffice": {
            "FedAvg with everybody": (FedAvg(**plain), False),
            "Participation": (Participation(**late), True),
            "Participation, memory without a cap": (
                Participation(aggregator=Memory(cap=math.inf), **late), True
            ),
            "Participation, Horvitz–Thompson": (
                Participation(aggregator=HorvitzThompson(), **late), True
            ),
            "FedAvg over the same updates": (Participation(aggregator=Mean(), **late), True),
            "FedAvg over whoever is in time": (FedAvg(**plain), True),
        },
    }  # fmt: skip


def main() -> None:
    """Measure, and write the tables."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    started = time.time()
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for seed in range(SEEDS):
        for world, rows in strategies(seed).items():
            for name, (strategy, hard) in rows.items():
                found.setdefault(world, {}).setdefault(name, []).append(
                    run(strategy, seed, hard=hard)
                )
        print(f"seed {seed}: {time.time() - started:.0f} s", file=sys.stderr)
    write(
        {
            world: {
                name: {
                    "used": float(np.mean([used for _, used in runs])),
                    "loss": [loss for loss, _ in runs],
                }
                for name, runs in rows.items()
            }
            for world, rows in found.items()
        }
    )


def write(result: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Write the tables."""
    lines = ["# `Participation` beside FedAvg", ""]
    lines += [
        f"Written by `make bench-strategies`. {' '.join((__doc__ or '').split()[7:-7])}", "",
        f"{SEEDS} seeds, {ROUNDS} rounds.",
    ]  # fmt: skip
    for world, kinds in result.items():
        lines += ["", f"## {world[0].upper()}{world[1:]}", ""]
        lines += ["| strategy | updates used per round | loss, % above everybody's | worst |"]
        lines += ["|---|---|---|---|"]
        base = np.array(kinds["FedAvg with everybody"]["loss"])
        for name, row in kinds.items():
            excess = 100 * (np.array(row["loss"]) / base - 1)
            low, high = students_interval(excess, 0.05)
            row["excess"] = [float(excess.mean()), float(low), float(high)]
            told = f"{excess.mean():+.2f} ± {(high - low) / 2:.2f}"
            told = told if excess.any() else f"{base.mean():.4f} (loss)"
            lines += [f"| {name} | {row['used']:.1f} | {told} | {excess.max():.1f} |"]
    (HERE / "strategies.json").write_text(json.dumps(result, indent=1) + "\n")
    (HERE / "strategies.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
