"""The engine against a numpy loop, and JAX where it is installed: `make bench-learning`.

The unit is client-updates per second with all cores, without compile time; every figure is a ratio
within this run. Writes learning.json and learning.md beside this file.

`python -m benchmarks.learning --against PATH` also runs the engine of another checkout of this
repository, in turn with this one, and reports how fast this one is in comparison.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # the numpy loop is single-threaded; before numpy is imported

import numpy as np

from fedprice.data import Federation
from fedprice.data.partition import few_classes, power_law_sizes
from fedprice.data.synthetic import synthetic
from fedprice.learning import FunctionTask, LogisticRegression, Task, Training
from fedprice.learning.draws import batch_rows, joiners
from fedprice.rounds import HorvitzThompson, simulate, simulate_runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import Arrays

HERE = Path(__file__).parent
STEPS, BATCH, LEVEL = 100, 24, 0.25
WORKLOADS = {
    "A": (60, 10, 22_377, 10),
    "B": (784, 10, 14_463, 6),
    "C": (784, 26, 35_155, 10),
}
LIMITS = {"A": 26, "B": 13, "C": 8}
JAX_LIMITS = {"A": 3, "B": 5, "C": 2}
ROUNDS = {"A": 300, "B": 150, "C": 100}
# Limits of the function task, of the comparison with PATH, and of a round with memory.
FUNCTIONS, BEFORE, MEMORY = 1.05, 0.97, 1.15

# What another checkout runs: it reads a workload's file and rounds from each line, and answers with
# a rate. The second form is for checkouts from before tasks.
RIVAL = """
import os, sys, time
import numpy as np
from fedprice.data import Federation
from fedprice.learning import Training
level, steps, batch = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for line in sys.stdin:
    path, rounds = line.rsplit(" ", 1)
    rounds = int(rounds)
    with np.load(path) as f:
        a = {name: f[name] for name in f.files}
    federation = Federation(
        "rival", a["x"], a["y"], a["offsets"], a["x"][:100], a["y"][:100], num_classes=int(a["k"])
    )
    runs = [(level, seed) for seed in range(os.cpu_count() or 1)]
    try:
        from fedprice.learning import LogisticRegression
        from fedprice.rounds import simulate_runs
        task = LogisticRegression(federation, Training(local_steps=steps, batch=batch))
        def work(rounds):
            return simulate_runs(task, runs, rounds=rounds, evaluate_every=rounds)
    except ImportError:
        from fedprice.learning import simulate_runs
        def work(rounds):
            training = Training(
                rounds=rounds, local_steps=steps, batch=batch, evaluate_every=rounds
            )
            return simulate_runs(federation, runs, training=training)
    work(1)
    start = time.perf_counter()
    histories = work(rounds)
    spent = time.perf_counter() - start
    print(sum(int(h.joined.sum()) for h in histories) / spent, flush=True)
"""


class Sizes(NamedTuple):
    """How much is measured."""

    seconds: float = 2.0  # of the numpy loop and of JAX
    repeats: int = 3
    rounds: dict[str, int] = ROUNDS
    pairs: int = 9  # of two checkouts
    function_pairs: int = 61  # of the function task and its bare loop
    function_rounds: int = 20


FULL = Sizes()


def workload(name: str) -> Federation:
    """Return data of the setups' shapes: setup 1 itself, noise in the shape of 2 and 3."""
    features, classes, samples, most = WORKLOADS[name]
    if name == "A":
        return synthetic()
    rng = np.random.default_rng(2)
    sizes = power_law_sizes(40, samples, rng)
    labels = np.repeat(np.arange(classes), 3 * samples // classes).astype(np.int32)
    dealt = few_classes(labels, sizes, most, rng)
    pixels = rng.random((samples, features), np.float32)
    pixels *= rng.random((samples, features)) < 0.2
    ends = np.cumsum(sizes)
    clients = [(pixels[e - s : e], labels[r]) for e, s, r in zip(ends, sizes, dealt, strict=True)]
    return Federation.of(name, clients, (pixels[:100], labels[dealt[0]][:100]), num_classes=classes)


def numpy_update(w: Any, x: Any, y: Any, rows: Any, rate: float) -> Any:
    """Run local SGD in the usual numpy way, in float32."""
    own = w.copy()
    for batch in rows:
        xb = x[batch]
        z = xb @ own
        z -= z.max(axis=1, keepdims=True)
        p = np.exp(z)
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(batch)), y[batch]] -= 1
        own -= rate / len(batch) * (xb.T @ p)
    return own - w


def numpy_rate(federation: Federation, seconds: float) -> float:
    """Return updates per second of the numpy loop, the draws of batches not counted."""
    x = np.hstack([federation.features, np.ones((len(federation.labels), 1), np.float32)])
    w = np.zeros((x.shape[1], federation.num_classes), np.float32)
    levels = np.full(federation.num_clients, LEVEL)
    spent, updates, r = 0.0, 0, 0
    while spent < seconds:
        for n in joiners(0, r, levels):
            own = slice(federation.offsets[n], federation.offsets[n + 1])
            xs, ys = x[own], federation.labels[own]
            rows = batch_rows(0, r, int(n), STEPS, BATCH, ys.size)
            start = time.perf_counter()
            numpy_update(w, xs, ys, rows, 0.1)
            spent += time.perf_counter() - start
            updates += 1
        r += 1
    return updates / spent


def engine_rate(federation: Federation, rounds: int) -> float:
    """Return updates per second of the engine: one run per core, evaluated at the ends only."""
    task = LogisticRegression(federation, Training(local_steps=STEPS, batch=BATCH))
    simulate(task, LEVEL, rounds=1)
    runs = [(LEVEL, seed) for seed in range(os.cpu_count() or 1)]
    start = time.perf_counter()
    histories = simulate_runs(
        task, runs, rounds=rounds, evaluate_every=rounds, aggregator="horvitz-thompson"
    )
    updates = sum(int(history.joined.sum()) for history in histories)
    return updates / (time.perf_counter() - start)


def jax_rate(federation: Federation, seconds: float) -> float:
    """Return updates per second of JAX: vmap over ten joiners, scan over their steps."""
    import jax
    import jax.numpy as jnp

    x = np.hstack([federation.features, np.ones((len(federation.labels), 1), np.float32)])
    y = np.eye(federation.num_classes, dtype=np.float32)[federation.labels]

    def update(w: Any, rows: Any, x: Any, y: Any) -> Any:
        def step(w: Any, batch: Any) -> Any:
            xb, yb = x[batch], y[batch]
            return w - 0.1 / BATCH * (xb.T @ (jax.nn.softmax(xb @ w) - yb)), None

        return jax.lax.scan(step, w, rows)[0] - w

    many = jax.jit(jax.vmap(update, in_axes=(None, 0, None, None)))
    w = jnp.zeros((x.shape[1], federation.num_classes))
    xs, ys = jnp.asarray(x), jnp.asarray(y)
    rng = np.random.default_rng(0)
    rows = jnp.asarray(
        [
            o + rng.integers(0, s, (STEPS, BATCH))
            for o, s in zip(federation.offsets, federation.samples, strict=False)
        ][:10]
    )
    many(w, rows, xs, ys).block_until_ready()
    start, updates = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        many(w, rows, xs, ys).block_until_ready()
        updates += 10
    return updates / (time.perf_counter() - start)


def rival_ratios(path: Path, sizes: Sizes) -> dict[str, float]:
    """Return, by workload, the rate of this engine relative to that of another checkout.

    Both measure in turn, in separate long-lived processes; the figure is the median of the ratios
    of neighbouring measurements.
    """
    places = {"here": HERE.parent, "there": path}
    children = {
        name: subprocess.Popen(
            [sys.executable, "-c", RIVAL, str(LEVEL), str(STEPS), str(BATCH)],
            env=os.environ | {"PYTHONPATH": str(place / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, place in places.items()
    }

    def rate(name: str, file: Path, rounds: int) -> float:
        child = children[name]
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{file} {rounds}\n")
        child.stdin.flush()
        answer = child.stdout.readline()
        if not answer:
            sys.exit(f"the engine of {places[name]} failed")
        return float(answer)

    found = {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for workload_name, rounds in sizes.rounds.items():
                federation = workload(workload_name)
                file = Path(folder) / f"{workload_name}.npz"
                np.savez(
                    file, x=federation.features, y=federation.labels,
                    offsets=federation.offsets, k=federation.num_classes,
                )  # fmt: skip
                ratios = []
                for turn in range(sizes.pairs):
                    order = list(children) if turn % 2 else list(children)[::-1]
                    rates = {name: rate(name, file, rounds) for name in order}
                    ratios.append(rates["here"] / rates["there"])
                found[workload_name] = statistics.median(ratios)
    finally:
        for child in children.values():
            assert child.stdin is not None
            child.stdin.close()
            child.wait()
    return found


def function_task() -> FunctionTask:
    """Return softmax regression in numpy as a task of functions: ten clients of 1,000 samples."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(10, 1000, 60)).astype(np.float32)
    truth = rng.normal(size=(10, 60, 10))
    y = np.array([(own @ w).argmax(axis=1) for own, w in zip(x, truth, strict=True)])

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        rows = np.random.default_rng([seed, round_, client]).integers(0, 1000, (STEPS, BATCH))
        return [numpy_update(model[0], x[client], y[client], rows, 0.1)]

    def evaluate(model: Arrays) -> dict[str, float]:
        hits = [(own @ model[0]).argmax(axis=1) == of for own, of in zip(x, y, strict=True)]
        return {"loss": 1 - float(np.mean(hits))}

    return Task.of(
        initial=[np.zeros((60, 10), np.float32)],
        samples=np.full(10, 1000),
        update=update,
        evaluate=evaluate,
    )


def bare_loop(task: FunctionTask, rounds: int) -> Any:
    """Train with the functions of a task without this package; return the model."""
    levels = np.full(task.num_clients, 0.5)
    weight = task.weight / levels
    model = task.initial[0].astype(np.float64)
    task._evaluate([model.astype(np.float32)])
    for r in range(rounds):
        sent, step = model.astype(np.float32), np.zeros_like(model)
        for n in joiners(0, r, levels).tolist():
            step += weight[n] * task._update([sent], n, r, 0)[0]
        model += step
    task._evaluate([model.astype(np.float32)])
    return model.astype(np.float32)


def function_ratio(sizes: Sizes) -> float:
    """Return the time of `simulate` relative to that of a bare loop over the same functions.

    Both run in one thread, and processor time is measured. The result is the median over many short
    pairs that take turns in going first, so that other load on the machine slows down both.
    """
    task, rounds = function_task(), sizes.function_rounds

    def ours() -> Any:
        unbiased = HorvitzThompson()
        settings = {"rounds": rounds, "evaluate_every": rounds, "aggregator": unbiased}
        return simulate(task, 0.5, **settings).model[0]  # type: ignore[arg-type]

    def bare() -> Any:
        return bare_loop(task, rounds)

    if not np.array_equal(ours(), bare()):  # also a warm-up
        sys.exit("the bare loop does not do what `simulate` does")
    ratios = []
    for turn in range(sizes.function_pairs):
        taken = {}
        for work in (ours, bare) if turn % 2 else (bare, ours):
            start = time.thread_time()
            work()
            taken[work] = time.thread_time() - start
        ratios.append(taken[ours] / taken[bare])
    return statistics.median(ratios)


def memory_ratio(federation: Federation, rounds: int, pairs: int = 7) -> float:
    """Return the processor time of a round with memory relative to one without, in one thread."""
    task = LogisticRegression(federation, Training(local_steps=STEPS, batch=BATCH))
    ratios = []
    for turn in range(-1, pairs):  # the first is a warm-up
        taken = {}
        for name in ("memory", "horvitz-thompson") if turn % 2 else ("horvitz-thompson", "memory"):
            start = time.thread_time()
            simulate(task, LEVEL, rounds=rounds, evaluate_every=rounds, threads=1, aggregator=name)
            taken[name] = time.thread_time() - start
        ratios.append(taken["memory"] / taken["horvitz-thompson"])
    return statistics.median(ratios[1:])


def median(measure: Callable[[], float], repeats: int = 3) -> float:
    """Return the median of repeated measurements."""
    return statistics.median(measure() for _ in range(repeats))


def compile_seconds() -> tuple[float, float]:
    """Return the time of a first tiny run without and with a compiled cache."""
    program = (
        "import time; from fedprice.data.synthetic import synthetic; import fedprice as fp; "
        "f = synthetic(num_clients=4, samples=400); t = time.perf_counter(); "
        "fp.simulate(fp.LogisticRegression(f, fp.Training(local_steps=2)), 0.9, rounds=2); "
        "print(time.perf_counter() - t)"
    )
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"NUMBA_CACHE_DIR": folder}
        times = [
            float(subprocess.run([sys.executable, "-c", program], env=env, check=True,
                                 capture_output=True, text=True, timeout=300).stdout)
            for _ in range(2)
        ]  # fmt: skip
    return times[0], times[1]


def main(sizes: Sizes = FULL, folder: Path = HERE) -> None:
    """Run all lanes, print and write the table."""
    parser = argparse.ArgumentParser(description="The engine against its rivals.")
    parser.add_argument("--against", type=Path, help="another checkout, to compare its engine with")
    against: Path | None = parser.parse_args().against
    if against is not None and not (against / "src" / "fedprice").is_dir():
        parser.error(f"{against} is not a checkout of fedprice")
    result: dict[str, Any] = {}
    rows: list[tuple[str, float, str, float]] = []
    for name in WORKLOADS:
        federation = workload(name)
        slow = median(lambda f=federation: numpy_rate(f, sizes.seconds), sizes.repeats)  # type: ignore[misc]
        rounds = sizes.rounds[name]
        fast = median(lambda f=federation, r=rounds: engine_rate(f, r), sizes.repeats)  # type: ignore[misc]
        result[name] = {"numpy": slow, "engine": fast, "ratio": fast / slow}
        rows.append((f"{name}: engine / numpy loop", fast / slow, ">=", LIMITS[name]))
        result[name]["memory"] = memory_ratio(federation, rounds // 4)
        rows.append((f"{name}: with memory / without", result[name]["memory"], "<=", MEMORY))
        if importlib.util.find_spec("jax"):
            other = median(lambda f=federation: jax_rate(f, sizes.seconds), sizes.repeats)  # type: ignore[misc]
            result[name] |= {"jax": other}
            rows.append((f"{name}: engine / JAX vmap + scan", fast / other, ">=", JAX_LIMITS[name]))
    if against is not None:
        result["against"] = rival_ratios(against.resolve(), sizes)
        for name, ratio in result["against"].items():
            rows.append((f"{name}: engine / engine of the other checkout", ratio, ">=", BEFORE))
    result["functions"] = function_ratio(sizes)
    rows.append(("function task / bare loop, processor time", result["functions"], "<=", FUNCTIONS))
    cold, warm = compile_seconds()
    result["compile"] = {"cold_s": cold, "warm_s": warm}
    rows.append(("first call without a cache, s", cold, "<=", 15))
    rows.append(("first call with a cache, s", warm, "<=", 1.5))
    lines = ["| figure | measured | limit | holds |", "|---|---:|---:|---|"]
    for label, value, relation, limit in rows:
        holds = value >= limit if relation == ">=" else value <= limit
        sign = "≥" if relation == ">=" else "≤"
        lines.append(f"| {label} | {value:,.3g} | {sign} {limit:g} | {'yes' if holds else 'NO'} |")
    rates = ", ".join(f"{n}: {result[n]['engine']:,.0f}" for n in WORKLOADS)
    machine = f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores"
    text = "\n".join(
        [
            "# Learning: the engine against its rivals",
            "",
            "Written by `make bench-learning`; medians, ratios within one run. 40 clients, about "
            "ten joiners per round, 100 local steps of batch 24. A: 60 × 10, 22,377 samples; "
            "B: 784 × 10, 14,463; C: 784 × 26, 35,155. Function task: softmax regression in numpy, "
            "60 × 10, ten clients, five joiners per round, the same local steps.",
            "",
            *lines,
            "",
            f"Client-updates per second: {rates}. {machine}.",
            "",
        ]
    )
    (folder / "learning.md").write_text(text, encoding="utf-8")
    (folder / "learning.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(text)
    if "| NO |" in text:
        sys.exit("a limit is not met")


if __name__ == "__main__":
    main()
