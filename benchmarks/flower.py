"""What the market costs on top of Flower, in process: `make bench-flower`.

The same joiners train with the same code, once under a bare loop of Flower messages with a mean,
once under the whole market: signed, checked, recorded in SQLite on disk. Clients train in numpy, as
a Flower app might; and, to show the market's fixed cost, with the compiled engine. Writes
flower.json and flower.md beside this file.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from benchmarks.learning import numpy_update, workload
from fedprice.flower import (
    Client,
    FullInformation,
    InProcessGrid,
    ParticipationMod,
    PricedParticipation,
)
from fedprice.flower.wire import to_record
from fedprice.learning import LogisticRegression
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulation_key

HERE = Path(__file__).parent
ROUNDS, REPEATS, LIMIT = 40, 3, 1.3
SHAPES = {"A": "60 × 10", "B": "784 × 10", "C": "784 × 26"}


class Lane:
    """One workload under both loops."""

    def __init__(self, name: str, compiled: bool) -> None:
        self.federation, self.compiled = workload(name), compiled
        ones = np.ones((len(self.federation.labels), 1), np.float32)
        self.features = np.hstack([self.federation.features, ones])
        self.task = LogisticRegression(self.federation)
        self.training = self.task.training
        self.costs = np.random.default_rng(0).exponential(50, self.federation.num_clients)
        clients = range(self.federation.num_clients)
        self.keys = [simulation_key(f"client {n + 1}") for n in clients]
        self.shape = (self.federation.num_classes, self.federation.features.shape[1] + 1)

    def train(self, message: Message, context: Context) -> Message:
        """Train as any Flower app would."""
        n = int(context.node_config["partition-id"])
        model = message.content.array_records["arrays"]["w"].numpy()
        round_ = int(message.content.config_records["config"]["server-round"]) - 1  # type: ignore[arg-type]
        if self.compiled:
            found = self.task.updates([model], np.array([n]), round_, seed=0)
            update = found.values[0].reshape(model.shape)
        else:
            own = slice(self.federation.offsets[n], self.federation.offsets[n + 1])
            x, y = self.features[own], self.federation.labels[own]
            rng = np.random.default_rng([n, round_])
            rows = rng.integers(0, y.size, (self.training.local_steps, self.training.batch))
            update = numpy_update(model.T.copy(), x, y, rows, self.training.rate(round_)).T
        return Message(RecordDict({"arrays": to_record(["w"], [update])}), reply_to=message)

    def client(self, context: Context) -> Client:
        """Say who a client is."""
        n = int(context.node_config["partition-id"])
        key = self.keys[n]
        cost = float(self.costs[n])
        return Client(
            str(n + 1), key, int(self.federation.samples[n]), cost, grad_norm=4.0, reveals=True
        )

    def initial(self) -> ArrayRecord:
        """Return the model to start from."""
        return to_record(["w"], [np.zeros(self.shape, np.float32)])

    def market(self, folder: Path) -> tuple[float, list[list[int]]]:
        """Return the seconds of the market's rounds, and who joined in each."""
        mod = ParticipationMod(self.client, returns="update")
        app = ClientApp(mods=[mod])
        mod.answer(app)
        app.train()(self.train)
        grid = InProcessGrid(app, self.federation.num_clients)
        ours = PricedParticipation(
            Ledger(str(folder / f"{time.monotonic_ns()}.db"), identity="0" * 64), "run",
            key=simulation_key("server"), clients=self.federation.num_clients, fund=True,
            pricing=FullInformation(budget=200.0, alpha=0.2), learning_rate=self.training.rate,
            local_steps=self.training.local_steps, seed=0,
        )  # fmt: skip
        arrays = ours.agree(grid, self.initial(), ROUNDS)
        joined = []
        start = time.perf_counter()
        for server_round in range(1, ROUNDS + 1):
            sent = ours.configure_train(server_round, arrays, ConfigRecord(), grid)
            joined.append([message.metadata.dst_node_id for message in sent])
            arrays, _ = ours.aggregate_train(server_round, grid.send_and_receive(sent))
        taken = time.perf_counter() - start
        ours.ledger.close()
        return taken, joined

    def bare(self, joined: list[list[int]]) -> float:
        """Return the seconds of a bare loop of Flower with the same joiners."""
        app = ClientApp()
        app.train()(self.train)
        grid = InProcessGrid(app, self.federation.num_clients)
        arrays, model = self.initial(), np.zeros(self.shape)
        start = time.perf_counter()
        for server_round, nodes in enumerate(joined, start=1):
            config = ConfigRecord({"server-round": server_round})
            content = RecordDict({"arrays": arrays, "config": config})
            replies = grid.send_and_receive([Message(content, node, "train") for node in nodes])
            for reply in replies:
                model += reply.content.array_records["arrays"]["w"].numpy() / len(nodes)
            arrays = to_record(["w"], [model.astype(np.float32)])
        return time.perf_counter() - start


def main() -> None:
    """Run all lanes, print and write the table."""
    logging.disable(logging.INFO)
    result: dict[str, Any] = {}
    lines = [
        "| workload | clients train in | market / bare loop | cost an update | limit | holds |",
        "|---|---|---:|---:|---:|---|",
    ]
    with tempfile.TemporaryDirectory() as name:
        for lane, compiled in itertools.product(SHAPES, (False, True)):
            own = Lane(lane, compiled)
            _, joined = own.market(Path(name))  # compiles, too
            plain, taken = [], []
            for _ in range(REPEATS):
                plain.append(own.bare(joined))
                seconds, again = own.market(Path(name))
                taken.append(seconds)
                if again != joined:
                    sys.exit("the joiners changed")
            ratio = statistics.median(t / p for t, p in zip(taken, plain, strict=True))
            calls = sum(map(len, joined))
            cost = (statistics.median(taken) - statistics.median(plain)) / calls
            engine = "the compiled engine" if compiled else "numpy"
            result[f"{lane}, {engine}"] = {"ratio": ratio, "updates": calls, "cost_s": cost}
            limit = "none" if compiled else f"≤ {LIMIT}"
            holds = "-" if compiled else "yes" if ratio <= LIMIT else "NO"
            lines.append(
                f"| {lane}: {SHAPES[lane]}, {calls} updates | {engine} | {ratio:.2f} | "
                f"{1e3 * cost:.1f} ms | {limit} | {holds} |"
            )
    text = "\n".join(
        [
            "# The market on Flower: what it costs in process",
            "",
            "Written by `make bench-flower`; medians of ratios within one run. 40 clients, 40 "
            "rounds of 100 local steps of batch 24; the market signs and checks every update and "
            "records every round in SQLite on disk.",
            "",
            *lines,
            "",
            f"Python {platform.python_version()}, {os.cpu_count()} cores.",
            "",
        ]
    )
    (HERE / "flower.md").write_text(text, encoding="utf-8")
    (HERE / "flower.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(text)
    if "| NO |" in text:
        sys.exit("a limit is not met")


if __name__ == "__main__":
    main()
