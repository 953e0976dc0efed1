"""Random operations on a ledger, about half of them wrong, as fast as they come."""

import random
import sys

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Ledger
from fedprice.market.money import LEVEL_ONE
from trials.markets import at_price

MODEL = "ab" * 32
NAMES = [f"c{i}" for i in range(6)]
ROUNDS = 5


def random_operations(ledger: Ledger, count: int, seed: int = 4) -> dict[str, int]:
    """Do many operations; return how many were refused, and what is wrong after them."""
    rng = random.Random(seed)
    refused = 0
    recent = [("none", 0)] * 8  # runs, and the round that comes next
    for step in range(count):
        kind, slot = rng.random(), rng.randrange(8)
        run, next_round = recent[slot]
        try:
            if kind < 0.1:
                account = rng.choice(["treasury", *(f"client:{n}" for n in NAMES)])
                ledger.deposit(account, rng.randrange(1, 10**7), str(rng.randrange(count)))
            elif kind < 0.2:
                terms = {
                    name: at_price(rng.randrange(-(10**4), 10**6), rng.randrange(LEVEL_ONE))
                    for name in rng.sample(NAMES, rng.randrange(1, 6))
                }
                run = f"r{step}" if rng.random() < 0.9 else run
                ledger.open_unsigned(run, rng.randrange(10**7), terms, rounds=ROUNDS)
                recent[slot] = (run, 0)
            elif kind < 0.3:
                ledger.settle(run)
            else:
                round_ = next_round if rng.random() < 0.8 else rng.randrange(ROUNDS + 2)
                missed = [rng.choice(NAMES)] if rng.random() < 0.2 else []
                ledger.record_round(run, round_, model=MODEL, missed=missed)
                recent[slot] = (run, round_ + 1)
        except FedpriceError:
            refused += 1
    balances = ledger.balances()
    return {
        "operations": count,
        "refused": refused,
        "entries": len(ledger.verify().hashes),
        "sum of postings": sum(balances.values()),
        "overspent": sum(amount < 0 for name, amount in balances.items() if name != "world"),
    }


if __name__ == "__main__":
    sys.stdout.write(f"{random_operations(Ledger(sys.argv[1]), int(sys.argv[2]))}\n")
