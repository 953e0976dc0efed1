"""What the market costs on top of Flower, in process: `make bench-flower`.

The same joiners train with the same code, once under a bare loop of Flower messages with a mean,
once under the whole market: signed, checked, recorded in SQLite on disk. Clients train in numpy, as
a Flower app might; and, to show the market's fixed cost, with the compiled engine. A model of ten
million parameters is compared with Flower's own FedAvg in time and memory, and with memory of each
client's last update; one of 150 million has to work. Writes flower.json and flower.md here.

`python -m benchmarks.flower --against PATH` compares the market with that of another checkout
instead, in turn with this one, on models of every shape: seconds per update, training included.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy

from benchmarks.learning import numpy_update, workload
from fedprice.flower import (
    Client,
    FullInformation,
    InProcessGrid,
    ParticipationMod,
    PostedPrice,
    PricedParticipation,
)
from fedprice.flower.wire import to_record
from fedprice.learning import LogisticRegression
from fedprice.market.ledger import Ledger
from fedprice.market.messages import _opened, _valid
from fedprice.market.simulation import simulation_key
from fedprice.rounds.aggregation import AGGREGATORS

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
ROOT = HERE.parent
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
        """Train like any Flower app."""
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
        """Return the client of a context."""
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
        _opened.cache_clear()  # all runs have the same messages, and must not share a cache
        _valid.clear()
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


# What either checkout runs: a line of input for each measurement, answered with seconds per update.
RIVAL = """
import logging, sys, tempfile
from pathlib import Path
logging.disable(logging.INFO)
from benchmarks.flower import Lane
own = Lane(sys.argv[1], False)
with tempfile.TemporaryDirectory() as name:
    own.market(Path(name))
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, joined = own.market(Path(name))
        print(seconds / sum(map(len, joined)), flush=True)
"""
PAIRS, SLOWER = 9, 1.03  # of two checkouts; the limit of their ratio


def compare(against: Path) -> bool:
    """Print how long an update takes here, over there; return whether all limits hold."""
    holds = True
    for lane in SHAPES:
        with ExitStack() as stack:
            here, there = (stack.enter_context(_rival(path, lane)) for path in (ROOT, against))
            ratios = []
            for n in range(PAIRS):  # each goes first in turn
                both = (here, there) if n % 2 else (there, here)
                taken = {own: _ask(own) for own in both}
                ratios.append(taken[here] / taken[there])
        ratio, low, high = statistics.median(ratios), min(ratios), max(ratios)
        holds &= ratio <= SLOWER
        print(f"{lane}: {SHAPES[lane]}: {ratio:.3f} ({low:.3f} to {high:.3f}); limit {SLOWER}")
    return holds


@contextmanager
def _rival(checkout: Path, lane: str) -> Iterator[subprocess.Popen[str]]:
    own = os.environ | {"PYTHONPATH": f"{checkout / 'src'}:{checkout}"}
    with subprocess.Popen(
        [sys.executable, "-c", RIVAL, lane], cwd=checkout, env=own, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _ask(rival: subprocess.Popen[str]) -> float:
    assert rival.stdin is not None
    assert rival.stdout is not None
    rival.stdin.write("\n")
    rival.stdin.flush()
    return float(rival.stdout.readline())


LARGE, HUGE = (10_000_000, 20, 5), (150_000_000, 2, 2)  # parameters, clients, rounds
TIME, MEMORY = 1.6, 1.3  # limits, relative to FedAvg
REMEMBERING = 1.15  # limit of a round with memory, relative to one with Horvitz–Thompson
FEATURES, STEPS, BATCH = 10_000, 5, 24  # of clients that train


def large(
    parameters: int,
    clients: int,
    rounds: int,
    aggregator: str,
    level: float = 1.0,
    steps: int = 0,
) -> dict[str, float]:
    """Return seconds and peak memory of a run; without an aggregator, of Flower's FedAvg.

    Every client joins at the level, by default in every round, and trains for some local steps, by
    default for none: it adds a number to the model.
    """
    app, shapes = ClientApp(), {"first": (parameters // 2,), "second": (parameters // 4, 2)}
    if steps:
        shapes = {"w": (FEATURES, parameters // FEATURES)}

    @app.train()
    def train(message: Message, context: Context) -> Message:
        n = int(context.node_config["partition-id"])
        round_ = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
        step = np.float32(0.001 * (n + 1) + 0.01 * round_)
        given = message.content.array_records["arrays"]
        if steps:
            w, rng = given["w"].numpy(), np.random.default_rng([n, round_])
            x = rng.standard_normal((steps * BATCH, FEATURES), np.float32)
            y = rng.integers(0, w.shape[1], len(x))
            rows = np.arange(len(x)).reshape(steps, BATCH)
            new = {"w": Array(w + numpy_update(w, x, y, rows, 0.01))}
        else:
            new = {name: Array(a.numpy() * np.float32(0.99) + step) for name, a in given.items()}
        metrics = MetricRecord({"num-examples": 10, "loss": 1.0})
        content = RecordDict({"arrays": ArrayRecord(new), "metrics": metrics})
        return Message(content, reply_to=message)

    def client(context: Context) -> Client:
        name = str(int(context.node_config["partition-id"]) + 1)
        return Client(name, simulation_key(f"client {name}"), samples=10, cost=1e-6)

    arrays = to_record(list(shapes), [np.zeros(shape, np.float32) for shape in shapes.values()])
    with tempfile.TemporaryDirectory() as folder:
        strategy: Strategy = FedAvg(fraction_evaluate=0.0)
        if aggregator:
            ParticipationMod(client).answer(app)
            strategy = PricedParticipation(
                Ledger(f"{folder}/market.db", identity="0" * 64), "run",
                key=simulation_key("server"), seed=1,
                pricing=PostedPrice(budget=100.0, level_cap=level), clients=clients, fund=True,
                aggregator=AGGREGATORS[aggregator],
            )  # fmt: skip
        start = time.perf_counter()
        strategy.start(InProcessGrid(app, clients), arrays, num_rounds=rounds)
        taken = time.perf_counter() - start
    # Not `getrusage`, whose peak is at least that of the process that started this one.
    status = Path("/proc/self/status").read_text("utf-8")
    (peak,) = re.findall(r"VmHWM:\s*(\d+) kB", status)
    return {"seconds": taken, "megabytes": int(peak) / 1024}


def measured(sizes: tuple[int, int, int], *how: str | float) -> dict[str, float]:
    """Run `large` in a separate process, so that its memory can be measured."""
    code = f"from benchmarks.flower import *; print(json.dumps(large(*{sizes + how})))"
    command = [
        sys.executable,
        "-c",
        f"logging = __import__('logging'); logging.disable(30); {code}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def large_models(result: dict[str, Any]) -> list[str]:
    """Return the lines about large models."""
    each = "", "horvitz-thompson"
    runs = [[measured(LARGE, own) for own in each] for _ in range(REPEATS)]
    lines = [
        "| 10 million parameters, 20 clients, 5 rounds | FedAvg | market | ratio | limit | holds |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for what, limit in (("seconds", TIME), ("megabytes", MEMORY)):
        plain, ours = (statistics.median(run[i][what] for run in runs) for i in (0, 1))
        ratio = statistics.median(run[1][what] / run[0][what] for run in runs)
        result[f"10 million, {what}"] = {"fedavg": plain, "market": ours, "ratio": ratio}
        holds = "yes" if ratio <= limit else "NO"
        lines.append(f"| {what} | {plain:,.1f} | {ours:,.1f} | {ratio:.2f} | ≤ {limit} | {holds} |")
    huge = measured(HUGE, "memory")
    result["150 million"] = huge
    told = f"{huge['seconds']:,.0f} s, {huge['megabytes'] / 1024:,.1f} GiB"
    lines += ["", *memory(result)]
    return [*lines, "", f"150 million parameters, 2 clients, 2 rounds: {told}."]


def memory(result: dict[str, Any]) -> list[str]:
    """Return the lines about what memory costs, with ten clients in a round."""
    each = "horvitz-thompson", "memory"
    lines = [
        "| 10 million parameters, ten of 20 clients, 5 rounds | Horvitz–Thompson | memory | ratio "
        "| limit | holds |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for steps in (STEPS, 0):
        runs = list[dict[str, float]]()
        for n in range(REPEATS):  # each goes first in turn
            order = each if n % 2 else each[::-1]
            runs.append({own: measured(LARGE, own, 0.5, steps)["seconds"] for own in order})
        plain, ours = (statistics.median(run[own] for run in runs) for own in each)
        ratio = statistics.median(run["memory"] / run["horvitz-thompson"] for run in runs)
        what = f"{steps} local steps of batch {BATCH}" if steps else "clients do nearly nothing"
        found = {"horvitz_thompson": plain, "memory": ours, "ratio": ratio}
        result[f"10 million, memory, {what}"] = found
        limit, holds = "none", "-"
        if steps:
            limit, holds = f"≤ {REMEMBERING}", "yes" if ratio <= REMEMBERING else "NO"
        lines.append(
            f"| seconds, {what} | {plain:,.1f} | {ours:,.1f} | {ratio:.2f} | {limit} | {holds} |"
        )
    return lines


def main() -> None:
    """Run all lanes, print and write the table."""
    parser = argparse.ArgumentParser(description="What the market costs on top of Flower.")
    parser.add_argument("--against", type=Path, help="another checkout, to compare its market with")
    against: Path | None = parser.parse_args().against
    if against is not None:
        if not (against / "benchmarks" / "flower.py").is_file():
            parser.error(f"{against} is not a checkout of fedprice")
        sys.exit(0 if compare(against.resolve()) else "a limit is not met")
    logging.disable(logging.INFO)
    result: dict[str, Any] = {}
    lines = [
        "| workload | clients train in | market / bare loop | cost per update | limit | holds |",
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
    lines += ["", *large_models(result)]
    text = "\n".join(
        [
            "# The market on Flower: what it costs in process",
            "",
            "Written by `make bench-flower`; medians of ratios within one run. 40 clients, 40 "
            "rounds of 100 local steps of batch 24; the market signs and checks every update and "
            "records every round in SQLite on disk. What one process signs it need not verify: in "
            "a deployment, each side verifies one more signature per update, which takes 0.1 ms.",
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
