"""Kill a running market, again and again: `python -m trials.kills URL KILLS [SEED]`.

Each life of the market is a process of its own, ended by SIGKILL at a named point of a transaction
or at a random moment; the next one goes on from the ledger. After every death the ledger must
verify and hold every round that the dead process had reported as recorded; at the end of a run the
ledger and the model must be those of a run that nobody killed.
"""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sqlalchemy
from sqlalchemy import event

from fedprice._plumbing import rows
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulate_market
from fedprice.rounds.aggregation import filed
from trials.markets import small_outcome, small_task

POINTS = (
    "begin", "INSERT INTO entries", "INSERT INTO accounts", "INSERT INTO postings",
    "UPDATE accounts", "UPDATE state_parts", "INSERT INTO state_parts", "DELETE FROM state_parts",
    "UPDATE states", "INSERT INTO states", "commit", "recorded",
)  # fmt: skip
IDENTITY = "ab" * 32  # so that ledgers can be compared
TASK = small_task()
OUTCOME = small_outcome(TASK.federation)


def market(
    ledger: Ledger, progress: Callable[[int], None] | None = None
) -> "np.ndarray[Any, np.dtype[np.float32]]":
    history = simulate_market(
        TASK, OUTCOME, ledger=ledger, run="run", evaluate_every=5, delivery=0.8, seed=3, threads=1,
        progress=progress,
    )  # fmt: skip
    model: np.ndarray[Any, np.dtype[np.float32]] = history.model[0]
    return model


def live(url: str, point: str | None, nth: int, pipe: int) -> None:
    """Be the market, and die at the nth passing of a point."""
    left = nth

    def reach(name: str) -> None:
        nonlocal left
        if point is not None and name.startswith(point):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def ran(*args: Any) -> None:
        reach(args[2])

    def recorded(done: int) -> None:
        os.write(pipe, bytes([done]))
        reach("recorded")

    event.listen(sqlalchemy.Engine, "begin", lambda _: reach("begin"))
    event.listen(sqlalchemy.Engine, "commit", lambda _: reach("commit"))
    event.listen(sqlalchemy.Engine, "after_cursor_execute", ran)
    ledger = Ledger(url, identity=IDENTITY)
    market(ledger, recorded)
    ledger.close()


def one_life(url: str, rng: np.random.Generator) -> tuple[bool, int, str]:
    """Start a market and kill it; return whether it died, what it had reported, and where."""
    named = rng.random() < 0.6
    point = str(rng.choice(POINTS)) if named else None
    nth = int(rng.integers(1, 9))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            live(url, point, nth, writing)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    if not named:
        time.sleep(float(rng.exponential(0.03)))
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        reported = pipe.read()
    died = os.WIFSIGNALED(status)
    if not died and os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit("a market failed without being killed")
    return died, max(reported, default=0), point or "at random"


def fresh(url: str) -> str:
    """Create the database where that takes more than a file."""
    address = sqlalchemy.make_url(url)
    if address.get_backend_name() == "postgresql":
        engine = sqlalchemy.create_engine(
            address.set(database="postgres"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.exec_driver_sql(f'CREATE DATABASE "{address.database}"')
        engine.dispose()
    return url


def main(url: str, kills: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    reference = Ledger("sqlite://", identity=IDENTITY)
    model = market(reference)
    hashes = reference.verify().hashes
    reference.close()
    found: dict[str, Any] = {
        "kills": 0, "runs": 0, "rounds lost": 0, "payments doubled": 0, "not verified": 0,
        "other models": 0, "points": {},
    }  # fmt: skip
    run = 0
    while found["kills"] < kills:
        filed.LARGE = (
            1 if run % 2 else 1 << 22
        )  # what is remembered is in a file in every other run
        here = fresh(url.replace("{run}", str(run)))
        run += 1
        died = True
        while died:
            died, reported, where = one_life(here, rng)
            if died:
                found["kills"] += 1
                found["points"][where] = found["points"].get(where, 0) + 1
            ledger = Ledger(here, identity=IDENTITY)
            try:
                chain = ledger.verify().hashes
                kinds = [entry.content["kind"] for entry in ledger.entries()]
                found["rounds lost"] += max(0, reported - kinds.count("round"))
                # The same entries in the same places: nothing was paid twice, or otherwise.
                found["payments doubled"] += chain != hashes[: len(chain)]
            except Exception as error:
                found["not verified"] += 1
                sys.stderr.write(f"{where}: {error}\n")
            ledger.close()
        ledger = Ledger(here)
        found["other models"] += not np.array_equal(market(ledger), model)
        found["payments doubled"] += ledger.verify().hashes != hashes
        found["runs"] += 1
        ledger.close()
    return found


if __name__ == "__main__":
    rows.CHUNK = 64  # rounds write only what they change of what is remembered
    print(json.dumps(main(sys.argv[1], *map(int, sys.argv[2:]))))
