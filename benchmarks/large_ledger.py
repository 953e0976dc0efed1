"""A large but real ledger: everything is signed, and the ledger itself records every payment.

`python -m benchmarks.large_ledger market.db` writes the one that `make bench-web` opens.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from fedprice.market.ledger import Delivered, Ledger, Refused
from fedprice.market.money import MICRO
from fedprice.market.simulation import simulation_key
from fedprice.market.updates import Update
from fedprice.verify import cost
from trials.markets import agreed, at_price

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["large_ledger"]

MISSED, REFUSED = 0.03, 0.01  # of the heads
REASON = "the norm of the update is above its cap"


def large_ledger(
    url: str,
    *,
    rounds: int = 100_000,
    clients: int = 40,
    run: str = "large",
    evaluate_every: int = 10,
    stop_after: int | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> None:
    """Write a run of many rounds, with metrics, into a ledger.

    Parameters
    ----------
    url
        The ledger; an unfinished run is resumed.
    rounds, clients, run, evaluate_every
        Rounds of the run, its clients, its name, and after how many rounds metrics are recorded.
    stop_after
        Rounds to record before the run is left open; None records all and settles.
    tell
        Called with the number of rounds recorded so far.
    """
    rng = np.random.default_rng(15)
    names = [f"client-{n + 1}" for n in range(clients)]
    levels = (rng.uniform(0.05, 0.35, clients) * 2**32).astype(int).tolist()
    terms = {
        name: at_price(MICRO * (5 + n), level, samples=100 + n)
        for n, (name, level) in enumerate(zip(names, levels, strict=True))
    }
    budget = sum(cost(own.payment, own.level, rounds) for own in terms.values())
    with closing(Ledger(url)) as ledger:
        if ledger.opening(run) is None:
            ledger.deposit("treasury", budget, run)
            agreed(ledger, budget, terms, run, rounds)
        ledger.use_key(simulation_key("server"))
        keys = {name: simulation_key(f"client {name}") for name in names}
        own = ledger.run(run)
        for round_ in range(own.done, rounds if stop_after is None else stop_after):
            joined: dict[str, Delivered] = {}
            missed: list[str] = []
            refused: dict[str, Refused] = {}
            for name, client in own.clients.items():
                if client.coins is None or not client.coins.heads(round_):
                    continue
                luck = rng.random()
                arrays = hashlib.sha256(f"{run} {round_} {name}".encode()).hexdigest()
                if luck < MISSED:
                    missed.append(name)
                    continue
                signed = keys[name].sign(Update(run, name, round_, arrays, own.model))
                signature = signed.signature.hex()
                if luck < MISSED + REFUSED:
                    refused[name] = Refused(REASON, arrays, "9.5", signature)
                    continue
                norm = f"{1 + luck:.6g}"
                joined[name] = Delivered(
                    arrays, repr(own.weight(name)), norm, norm, "0.1,0.2,0.3", signature
                )
            model = hashlib.sha256(f"{run} {round_}".encode()).hexdigest()
            ledger.record_round(
                run, round_, model=model, joined=joined, missed=missed, refused=refused
            )
            done = round_ + 1
            if done % evaluate_every == 0 or done == rounds:
                loss = 0.4 + 1.9 * math.exp(-6 * done / rounds) + 0.01 * rng.normal()
                metrics = {"loss": loss, "accuracy": 1 - loss / 2.4}
                ledger.record_metrics(run, done, "server", metrics)
            tell(done)
        if own.done == rounds:
            ledger.settle(run)


def main() -> None:
    """Write a ledger from the command line."""
    parser = argparse.ArgumentParser(description="Write a large ledger.")
    parser.add_argument("url", metavar="LEDGER")
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--stop-after", type=int)
    given = parser.parse_args()
    start = time.perf_counter()

    def tell(done: int) -> None:
        if done % 1000 == 0:
            print(f"{done:,} rounds, {time.perf_counter() - start:.0f} s", flush=True)

    large_ledger(
        given.url,
        rounds=given.rounds,
        clients=given.clients,
        stop_after=given.stop_after,
        tell=tell,
    )


if __name__ == "__main__":
    main()
