"""The market against crashes, damage, cheaters and the clock: `make bench-market`.

Counts must be 0; timings are ratios within this run, or rates that the market needs. Writes
market.json and market.md beside this file.
"""

from __future__ import annotations

import copy
import datetime
import hmac
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import FedpriceError
from fedprice.market.coins import Coins, coin_key, coin_phase
from fedprice.market.export import export
from fedprice.market.ledger import Delivered, Ledger
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Terms
from fedprice.market.tariffs import Tariff
from fedprice.verify import VerificationError, check_entries, most_heads
from trials import kills
from trials.flips import flips
from trials.forgeries import forgeries
from trials.markets import small_market
from trials.mutations import mutants
from trials.operations import random_operations
from trials.power import power_losses
from trials.resigned import resigned

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
COINS, JOINERS, OPERATIONS, WRITERS = 1_000_000, 10_000, 1_000_000, 8
Row = tuple[str, float, str, float]


def seconds(work: Callable[[], Any]) -> float:
    """Return how long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def both_clocks(work: Callable[[], Any]) -> tuple[float, float]:
    """Return how long some work takes, and how much processor time."""
    used, start = time.process_time(), time.perf_counter()
    work()
    return time.perf_counter() - start, time.process_time() - used


def coins(result: dict[str, Any]) -> list[Row]:
    """Draw a million coins on one core, against a plain call of HMAC each."""
    key = coin_key(bytes(32), bytes(range(32)), bytes(32))
    level = LEVEL_ONE // 3
    ours = Coins(coin_phase(key, level), level)
    taken = statistics.median(
        seconds(lambda: [ours.heads(r) for r in range(COINS)]) for _ in range(3)
    )
    few, half = COINS // 10, 1 << 63
    plain = 10 * statistics.median(
        seconds(
            lambda: [
                int.from_bytes(hmac.digest(key, r.to_bytes(8), "sha256")[:8]) < half
                for r in range(few)
            ]
        )
        for _ in range(3)
    )
    result["coins"] = {"coins": COINS, "seconds": taken, "plain_hmac_seconds": plain}
    return [
        ("a million coins drawn or verified on one core, s", taken, "<=", 2),
        ("coins / plain hmac.digest calls", plain / taken, ">=", 1),
    ]


def rounds(result: dict[str, Any], folder: Path) -> list[Row]:
    """Record rounds of 10,000 joiners, against bare inserts of the same postings.

    The ratio is one of processor time, which hardly depends on other load on the machine: waiting
    for the disk, which would bring both sides closer together, does not count. The rate uses
    wall-clock time. Every client has its own numbers, with as many digits as training gives.
    """
    ledger = Ledger(str(folder / "rounds.db"))
    terms = {
        f"client-{i}": Terms(Tariff.flat(10**6 + i, LEVEL_ONE // 2), LEVEL_ONE // 2, 1 + i % 7)
        for i in range(JOINERS)
    }
    ledger.deposit("treasury", 10**12, "all")
    ledger.open_unsigned("run", 10**11, terms, rounds=100)
    total = sum(own.samples for own in terms.values())
    joined = delivered({name: repr(own.samples / total / 0.5) for name, own in terms.items()})
    bare = sqlite3.connect(folder / "bare.db", isolation_level=None)
    bare.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")
    bare.execute("CREATE TABLE postings (entry INTEGER, line INTEGER, name TEXT, amount INTEGER)")

    def insert(number: int) -> None:
        bare.execute("BEGIN IMMEDIATE")
        rows = [(number, i, f"client:{name}", 5) for i, name in enumerate(terms)]
        bare.executemany("INSERT INTO postings VALUES (?, ?, ?, ?)", rows)
        bare.execute("COMMIT")

    times, floors = [], []
    for r in range(60):  # in turn, so that other load on the machine slows down both
        record = partial(ledger.record_round, "run", r, model="0" * 64, joined=joined)
        times.append(both_clocks(record))
        floors.append(both_clocks(partial(insert, r)))
    ledger.verify()
    ledger.close()
    bare.close()
    wall, taken = (statistics.median(own) for own in zip(*times, strict=True))
    bare_wall, floor = (statistics.median(own) for own in zip(*floors, strict=True))
    ratio = statistics.median(
        ours / least for (_, ours), (_, least) in zip(times, floors, strict=True)
    )
    result["rounds"] = {
        "joiners": JOINERS,
        "seconds": wall,
        "bare_insert_seconds": bare_wall,
        "processor_seconds": taken,
        "bare_insert_processor_seconds": floor,
        "ratio": ratio,
    }
    return [
        ("postings per second, rounds of 10,000 joiners", (JOINERS + 1) / wall, ">=", 50_000),
        ("a round / bare inserts of its postings, processor time", ratio, "<=", 10),
    ]


def delivered(weights: dict[str, str]) -> dict[str, Delivered]:
    """Return what is recorded of an accepted update of each client, by name."""
    rng, size = np.random.default_rng(1), len(weights)
    hashes, signatures = rng.bytes(32 * size).hex(), rng.bytes(64 * size).hex()
    numbers = rng.random((size, 5))
    return {
        name: Delivered(
            hashes[64 * i : 64 * (i + 1)],
            weight,
            repr(norm),
            repr(gradient),
            f"{first:.6g},{second:.6g},{third:.6g}",
            signatures[128 * i : 128 * (i + 1)],
        )
        for i, ((name, weight), (norm, gradient, first, second, third)) in enumerate(
            zip(weights.items(), numbers.tolist(), strict=True)
        )
    }


def killed(result: dict[str, Any], folder: Path) -> list[Row]:
    """Kill markets 500 times."""
    found = kills.main(f"sqlite:///{folder}/kills{{run}}.db", 500)
    result["kills"] = found
    bad = ("rounds lost", "payments doubled", "not verified", "other models")
    return [(f"{found['kills']} kills: {name}", found[name], "<=", 0) for name in bad]


def one_share(seed: int) -> dict[str, int]:
    """Do a part of the random operations, in a separate process."""
    return random_operations(Ledger("sqlite://"), OPERATIONS // 4, seed)


def one_writer(url: str, number: int) -> int:
    """Write as one of several at once; return the number of errors."""
    ledger, errors = Ledger(url), 0
    for i in range(200):
        try:
            ledger.deposit(f"client:{number}", 1 + i, str(i))
        except FedpriceError:
            errors += 1
    ledger.close()
    return errors


def operations(result: dict[str, Any], folder: Path) -> list[Row]:
    """Do a million random operations, and write from eight processes at once."""
    with ProcessPoolExecutor(2) as pool:
        parts = list(pool.map(one_share, range(4)))
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    url = f"sqlite:///{folder / 'writers.db'}"
    Ledger(url).close()
    with ProcessPoolExecutor(WRITERS) as pool:
        errors = sum(pool.map(one_writer, [url] * WRITERS, range(WRITERS)))
    ledger = Ledger(url)
    entries = len(ledger.verify().hashes)
    ledger.close()
    result["operations"] = total | {"writers": WRITERS, "writers' errors": errors}
    done = f"{total['operations']:,} operations ({total['refused']:,} refused)"
    return [
        (f"{done}: sum of postings", abs(total["sum of postings"]), "<=", 0),
        (f"{done}: overspent accounts", total["overspent"], "<=", 0),
        ("eight writers at once: errors", errors, "<=", 0),
        ("eight writers at once: entries missing", 1 + 200 * WRITERS - entries, "<=", 0),
    ]


def damaged(result: dict[str, Any], folder: Path) -> list[Row]:
    """Flip 1,500 bits of a ledger's file, one at a time."""
    found = flips(folder, 1500)
    result["flips"] = found
    told = f"{found['flips']:,} flipped bits ({found['without effect']:,} in empty space)"
    return [(f"{told}: changes undetected", found["undetected"], "<=", 0)]


def disk_full(result: dict[str, Any], folder: Path) -> list[Row]:
    """Let a small file system fill up during a run, free some space, and resume."""
    small = folder / "small"
    small.mkdir()
    # Larger than SQLite's log ever is (1,000 pages): with the ballast gone, everything has room.
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        result["disk full"] = "not run: no right to mount a small file system here"
        return []
    try:
        ballast = small / "ballast"
        ledger = Ledger(str(small / "market.db"))
        ledger.deposit("treasury", 10**7, "all")
        ledger.open_unsigned(
            "run", 10**7, {"alice": Terms(Tariff.flat(10**7, LEVEL_ONE), LEVEL_ONE)}, rounds=50
        )
        ballast.write_bytes(bytes(16_000_000))
        stopped, message = -1, ""
        for r in range(50):
            try:
                ledger.record_round(
                    "run", r, model="0" * 64, state={"model": np.full(2_500, float(r))}
                )
            except FedpriceError as error:
                stopped, message = r, str(error)
                break
        half_done = ledger.rounds_done("run") != stopped
        ledger.verify()
        ballast.unlink()
        for r in range(stopped, 50):
            ledger.record_round("run", r, model="0" * 64, state={"model": np.full(2_500, float(r))})
        ledger.settle("run")
        unpaid = 10**7 - ledger.balance("client:alice")
        ledger.verify()
        ledger.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)
    result["disk full"] = {"stopped in round": stopped, "said": message.partition(" ")[2]}
    return [
        ("disk full: rounds recorded before", stopped, ">=", 1),
        ("disk full: partial rounds", half_done, "<=", 0),
        ("disk full: unpaid after space returned", unpaid, "<=", 0),
    ]


def windows(result: dict[str, Any]) -> list[Row]:
    """Count heads in every window of many coins: ⌊L q⌋ or ⌈L q⌉, without any statistics."""
    rng, odd = np.random.default_rng(5), 0
    for _ in range(2000):
        level, length = int(rng.integers(1, LEVEL_ONE + 1)), int(rng.integers(1, 400))
        own = Coins(int(rng.integers(0, LEVEL_ONE)), level)
        total = np.cumsum([0, *(own.heads(r) for r in range(1000))])
        counts = set((total[length:] - total[:-length]).tolist())
        odd += not counts <= {level * length // LEVEL_ONE, most_heads(level, length)}
    result["windows"] = {"coins": 2000, "odd": odd}
    return [("2,000 coins: windows with other heads than ⌊L q⌋ or ⌈L q⌉", odd, "<=", 0)]


def asked_of_a_lone_client(result: dict[str, Any]) -> list[Row]:
    """Open runs and settle them at once, as a server does that waits for coins it likes."""
    savings = []
    for seed in range(40):
        ledger = Ledger("sqlite://")
        small_market(ledger, delivery=1.0, seed=seed)
        for own in ledger.books.runs["run"].clients.values():
            if own.payment > 0 and own.joined:
                agreed = own.payment * LEVEL_ONE / (own.level * 12)
                savings.append(1 - own.paid / own.joined / agreed)
        ledger.close()
    result["openings"] = {"runs": 40, "most saved": max(savings)}
    return [("40 runs to choose from: the most saved per update", max(savings), "<=", 0.01)]


def exposed(result: dict[str, Any], folder: Path) -> list[Row]:
    """Hide every head of an export in turn, chained again; count those that verification misses."""
    ledger = Ledger("sqlite://")
    small_market(ledger, delivery=0.7)
    export(ledger, folder / "heads.jsonl", date=datetime.date(2026, 1, 1))
    ledger.close()
    entries = [json.loads(line) for line in (folder / "heads.jsonl").read_text().splitlines()]
    hidden = unseen = 0
    for number, entry in enumerate(entries):
        for name in [*entry["content"].get("joined", {}), *entry["content"].get("missed", [])]:
            forged = copy.deepcopy(entries)
            content = forged[number]["content"]
            content["joined"].pop(name, None)
            content["missed"] = [other for other in content["missed"] if other != name]
            hidden += 1
            try:
                check_entries(resigned(forged))
                unseen += 1
            except VerificationError:
                pass
    result["hidden heads"] = {"hidden": hidden, "unseen": unseen}
    return [(f"{hidden} heads hidden by the server: not exposed", unseen, "<=", 0)]


def forged(result: dict[str, Any]) -> list[Row]:
    """Send altered, stolen and random messages."""
    found = forgeries(20_000)
    result["forgeries"] = found
    told = f"{found['sent']:,} forged messages"
    return [
        (f"{told}: accepted", found["accepted"], "<=", 0),
        (f"{told}: crashes", found["crashes"], "<=", 0),
        (f"{told}: models not finite", found["not finite"], "<=", 0),
    ]


def mutated(result: dict[str, Any]) -> list[Row]:
    """Play a dishonest server that signs everything again, 20,000 times."""
    found = mutants(20_000)
    result["mutants"] = found
    told = f"{found['made']:,} forged exports"
    return [
        (f"{told}: kinds of forgery", len(found["by operator"]), ">=", 40),
        (f"{told}: accepted, and not on the list", len(found["unlisted"]), "<=", 0),
        (f"{told}: not uncovered by receipts", len(found["covered up"]), "<=", 0),
    ]


def powerless(result: dict[str, Any]) -> list[Row]:
    """Cut the power under running markets: what was not synced may be lost."""
    found = power_losses(400)
    result["power"] = found
    told = f"{found['losses']} power losses"
    bad = ("acknowledged entries lost", "not verified")
    return [(f"{told}: {name}", found[name], "<=", 0) for name in bad]


def main() -> None:
    """Run everything, print and write the table."""
    result: dict[str, Any] = {}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows += killed(
            result, folder
        )  # first, because it forks, which must happen before threads start
        rows += coins(result) + rounds(result, folder) + windows(result)
        rows += powerless(result) + exposed(result, folder) + mutated(result)
        rows += forged(result) + damaged(result, folder) + disk_full(result, folder)
        rows += operations(result, folder) + asked_of_a_lone_client(result)
    lines = ["| figure | measured | limit | holds |", "|---|---:|---:|---|"]
    for label, value, relation, limit in rows:
        holds = value >= limit if relation == ">=" else value <= limit
        sign = "≥" if relation == ">=" else "≤"
        shown = f"{value:,.0f}" if value == int(value) else f"{value:,.3g}"
        if abs(value) >= 1000:
            shown = f"{value:,.0f}"
        lines.append(f"| {label} | {shown} | {sign} {limit:,g} | {'yes' if holds else 'NO'} |")
    full = result["disk full"]
    text = "\n".join(
        [
            "# The market: crashes, damage, cheaters and the clock",
            "",
            "Written by `make bench-market`; times are medians within one run.",
            "",
            *lines,
            "",
            *([f"Disk full: {full}."] if isinstance(full, str) else []),
            f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
            f"{os.cpu_count()} cores.",
            "",
        ]
    )
    (HERE / "market.md").write_text(text, encoding="utf-8")
    numbers = json.dumps(result, indent=2, default=str).replace("Infinity", "null")
    (HERE / "market.json").write_text(numbers + "\n", encoding="utf-8")
    sys.stdout.write(text)
    if "| NO |" in text:
        sys.exit("a limit is not met")


if __name__ == "__main__":
    main()
