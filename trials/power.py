"""Lose power under a running market, again and again: `python -m trials.power LOSSES [SEED]`.

disk.c, loaded before the C library, records what a market writes to its directory. A loss of power
is a moment in that record: what was synced before it is on the disk; of what was not, each write
is there wholly, or not at all, or in some of its sectors, and each file was created, renamed or
deleted, or was not. The market goes on from there. After every loss the ledger must verify and hold
all deposits and rounds that had been reported as recorded.
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

SECTOR = 512
ROOT = Path(__file__).parents[1]
HAS_COMPILER = shutil.which("cc") is not None
REPORTS = "reports"  # not on the disk that loses power: what the market had said by then


def preloaded(folder: Path) -> dict[str, str]:
    """Compile disk.c into a directory; return an environment in which it is loaded."""
    library = folder / "disk.so"
    source = Path(__file__).with_name("disk.c")
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(library),
        str(source),
        "-ldl",
        "-lpthread",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": path}


def power_losses(count: int, seed: int = 0) -> dict[str, int]:
    """Lose power that often; return what was lost and what did not verify."""
    with tempfile.TemporaryDirectory(prefix="fedprice-power-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "trials.power", str(count), str(seed)],
            env=preloaded(Path(folder)), capture_output=True, text=True, timeout=60 + 10 * count,
            check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    sys.stderr.write(done.stderr)
    found: dict[str, int] = json.loads(done.stdout)
    return found


@dataclass
class File:
    """What the disk holds of a file, and what was written since it was last synced."""

    content: bytearray = field(default_factory=bytearray)
    since: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: truncated to

    def sync(self) -> None:
        for offset, data in self.since:
            self._apply(offset, data)
        self.since.clear()

    def lose(self, rng: np.random.Generator) -> bytes:
        """Return what is left: each change since the last sync wholly, in part, or not at all."""
        for offset, data in self.since:
            fate = rng.random()
            if fate < 1 / 3:
                self._apply(offset, data)
            elif data is not None and fate < 2 / 3:
                first = 0
                while first < len(data):  # sectors are those of the disk
                    last = min(len(data), first + SECTOR - (offset + first) % SECTOR)
                    if rng.random() < 0.5:
                        self._apply(offset + first, data[first:last])
                    first = last
        return bytes(self.content)

    def _apply(self, offset: int, data: bytes | None) -> None:
        end = offset + len(data or b"")
        self.content.extend(bytes(max(0, end - len(self.content))))
        if data is None:
            del self.content[offset:]
        else:
            self.content[offset:end] = data


def records_of(log: bytes) -> list[tuple[str, list[str], bytes]]:
    """Return what was recorded: kind, arguments, and the bytes of a write."""
    found, at = [], 0
    while at < len(log):
        end = log.index(b"\n", at)
        kind, _, rest = log[at:end].decode().partition(" ")
        arguments = rest.split(" ", 2) if kind == "O" else rest.split(" ")
        at, data = end + 1, b""
        if kind == "W":
            data = log[at : at + int(arguments[2])]
            at += len(data)
        found.append((kind, arguments, data))
    return found


def after_loss(
    before: dict[str, bytes],
    records: list[tuple[str, list[str], bytes]],
    rng: np.random.Generator,
) -> tuple[dict[str, bytes], bytes]:
    """Return the files after a loss of power, and what had been reported until then."""
    kept = {name: File(bytearray(content)) for name, content in before.items()}
    seen, by_serial = dict(kept), dict[str, File | None]()
    since: list[tuple[str, File | None]] = []  # names given to files, or taken away
    reports = b""
    for kind, arguments, data in records:
        if kind == "O":
            serial, created, name = arguments
            if name == ".":
                by_serial[serial] = None
                continue
            if created == "1":
                seen[name] = File()
                since.append((name, seen[name]))
            by_serial[serial] = seen[name]
        elif kind == "U":
            del seen[arguments[0]]
            since.append((arguments[0], None))
        elif kind == "R":
            raise NotImplementedError("a ledger renames nothing")
        else:
            file = by_serial[arguments[0]]
            if file is not None and file is seen.get(REPORTS):
                reports += data
            elif kind == "S" and file is None:
                for name, named in since:
                    _give(kept, name, named)
                since.clear()
            elif kind == "S" and file is not None:
                file.sync()
            elif file is not None:
                file.since.append((int(arguments[1]), data if kind == "W" else None))
    for name, named in since:
        if rng.random() < 0.5:
            _give(kept, name, named)
    # The shared memory beside a database is rebuilt by whoever opens it first.
    left = {name: file.lose(rng) for name, file in kept.items() if not name.endswith("-shm")}
    left.pop(REPORTS, None)
    return left, reports


def _give(names: dict[str, File], name: str, file: File | None) -> None:
    if file is None:
        names.pop(name, None)
    else:
        names[name] = file


def life(folder: Path, log: Path, reference: str) -> None:
    """Be the market, from wherever its ledger ends; report a deposit (0) and each round."""
    from fedprice.market.ledger import Ledger
    from fedprice.market.simulation import simulation_key
    from trials.kills import market

    disk = ctypes.CDLL(None)
    disk.disk_record(str(folder).encode(), str(log).encode())
    reports = os.open(folder / REPORTS, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    ledger = Ledger(str(folder / "market.db"), key=simulation_key("server"))
    ledger.deposit("treasury", 5, reference)
    os.write(reports, bytes([0]))

    def recorded(done: int) -> None:
        os.write(reports, bytes([done]))

    market(ledger, recorded)
    ledger.close()
    os.close(reports)
    disk.disk_record(b"", b"")
    (folder / REPORTS).unlink()


def main(losses: int, seed: int = 0) -> dict[str, Any]:
    from fedprice.errors import FedpriceError
    from fedprice.market.ledger import Ledger
    from fedprice.rounds.aggregation import filed

    rng = np.random.default_rng(seed)
    found = {"losses": 0, "runs": 0, "acknowledged entries lost": 0, "not verified": 0}
    settled, deposits, rounds = True, set[str](), 0
    with tempfile.TemporaryDirectory(prefix="fedprice-") as spare:
        top = Path(spare).resolve()
        while found["losses"] < losses:
            if settled:
                folder = top / f"run{found['runs']}"
                folder.mkdir()
                found["runs"] += 1
                filed.LARGE = 1 if found["runs"] % 2 else 1 << 22
                deposits, rounds = set(), 0
            before = {path.name: path.read_bytes() for path in folder.iterdir()}
            reference = f"life {found['losses']}"
            life(folder, top / "log", reference)
            records = records_of((top / "log").read_bytes())
            moment = int(rng.integers(len(records) + 1))
            left, reports = after_loss(before, records[:moment], rng)
            found["losses"] += 1
            for path in folder.iterdir():
                path.unlink()
            for name, content in left.items():
                (folder / name).write_bytes(content)
            deposits |= {reference} if reports else set()
            rounds = max([rounds, *reports])
            try:
                ledger = Ledger(str(folder / "market.db"), create=not deposits)
                ledger.verify()
                contents = [entry.content for entry in ledger.entries()]
                settled = ledger.is_settled("run")
                ledger.close()
            except FedpriceError as error:
                found["not verified"] += 1
                sys.stderr.write(f"loss {found['losses']}: {error}\n")
                settled = True
                continue
            there = {c["of"][1] for c in contents if c["kind"] == "deposit"}
            recorded = sum(c["kind"] == "round" for c in contents)
            found["acknowledged entries lost"] += len(deposits - there) + max(0, rounds - recorded)
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*map(int, sys.argv[1:]))))
