"""The engine against a numpy loop, and JAX where it is installed: `make bench-learning`.

The unit is client-updates a second with all cores, compile time apart; every figure is a ratio
within this run. Writes learning.json and learning.md beside this file.
"""

from __future__ import annotations

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
from typing import TYPE_CHECKING, Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # the numpy loop is single-threaded; before numpy is imported

import numpy as np

from fedprice.data import Federation
from fedprice.data.partition import few_classes, power_law_sizes
from fedprice.data.synthetic import synthetic
from fedprice.learning import Training, simulate, simulate_runs
from fedprice.learning.draws import batch_rows, joiners

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
STEPS, BATCH, LEVEL = 100, 24, 0.25
WORKLOADS = {
    "A": (60, 10, 22_377, 10),
    "B": (784, 10, 14_463, 6),
    "C": (784, 26, 35_155, 10),
}
LIMITS = {"A": 10, "B": 8, "C": 5}


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
    """Run local SGD as one writes it in numpy, float32."""
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
    """Return updates a second of the numpy loop, the draws of batches not counted."""
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
    """Return updates a second of the engine: a run a core, evaluated at the ends only."""
    training = Training(rounds=rounds, local_steps=STEPS, batch=BATCH, evaluate_every=rounds)
    simulate(federation, LEVEL, training=Training(rounds=1, local_steps=STEPS, batch=BATCH))
    runs = [(LEVEL, seed) for seed in range(os.cpu_count() or 1)]
    start = time.perf_counter()
    histories = simulate_runs(federation, runs, training=training)
    updates = sum(int(history.joined.sum()) for history in histories)
    return updates / (time.perf_counter() - start)


def jax_rate(federation: Federation, seconds: float) -> float:
    """Return updates a second of JAX: vmap over ten joiners, scan over their steps."""
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


def median(measure: Callable[[], float], repeats: int = 3) -> float:
    """Return the median of repeated measurements."""
    return statistics.median(measure() for _ in range(repeats))


def compile_seconds() -> tuple[float, float]:
    """Return the time of a first tiny run without and with a compiled cache."""
    program = (
        "import time; from fedprice.data.synthetic import synthetic; "
        "import fedprice.learning as fl; "
        "f = synthetic(num_clients=4, samples=400); t = time.perf_counter(); "
        "fl.simulate(f, 0.9, training=fl.Training(rounds=2, local_steps=2)); "
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


def main() -> None:
    """Run all lanes, print and write the table."""
    result: dict[str, Any] = {}
    rows: list[tuple[str, float, str, float]] = []
    for name in WORKLOADS:
        federation = workload(name)
        slow = median(lambda f=federation: numpy_rate(f, 2.0))  # type: ignore[misc]
        rounds = {"A": 300, "B": 150, "C": 100}[name]
        fast = median(lambda f=federation, r=rounds: engine_rate(f, r))  # type: ignore[misc]
        result[name] = {"numpy": slow, "engine": fast, "ratio": fast / slow}
        rows.append((f"{name}: engine / numpy loop", fast / slow, ">=", LIMITS[name]))
        if name == "A" and importlib.util.find_spec("jax"):
            other = median(lambda f=federation: jax_rate(f, 2.0))  # type: ignore[misc]
            result[name] |= {"jax": other}
            rows.append(("A: engine / JAX vmap + scan", fast / other, ">=", 3))
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
            "ten joiners a round, 100 local steps of batch 24. A: 60 × 10, 22,377 samples; "
            "B: 784 × 10, 14,463; C: 784 × 26, 35,155.",
            "",
            *lines,
            "",
            f"Client-updates a second: {rates}. {machine}.",
            "",
        ]
    )
    (HERE / "learning.md").write_text(text, encoding="utf-8")
    (HERE / "learning.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(text)
    if "| NO |" in text:
        sys.exit("a limit is not met")


if __name__ == "__main__":
    main()
