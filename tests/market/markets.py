"""A small market to test with: four clients, one of them a payer, real keys, real training."""

import numpy as np

from fedprice import Bound, Clients, Game, Outcome, solve
from fedprice.data import Federation
from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, Training
from fedprice.market.agreement import Agreement
from fedprice.market.ledger import Ledger
from fedprice.market.messages import ModelSchema, SigningKey
from fedprice.market.simulation import agree, simulate_market
from fedprice.rounds import History

ROUNDS = 12
TRAINING = Training(local_steps=4, batch=8)
NAMES = ["alice", "=1+1+1", "<b>bob</b>", "dora-dorothea"]


def small_federation() -> Federation:
    return synthetic(num_clients=4, samples=400)


def small_task() -> LogisticRegression:
    return LogisticRegression(small_federation(), TRAINING)


def small_outcome(federation: Federation, budget: float = 4.0) -> Outcome:
    """An equilibrium in which the last client pays."""
    clients = Clients(
        samples=federation.samples, grad_norm=2, cost=[3, 4, 5, 6], value=[0, 0, 1, 150],
        ids=NAMES,
    )  # fmt: skip
    return solve(Game(clients, bound=Bound(alpha=3, rounds=ROUNDS), budget=budget))


def small_market(
    ledger: Ledger, *, run: str = "run", delivery: float = 0.8, seed: int = 3, threads: int = 1
) -> History:
    task = small_task()
    return simulate_market(
        task,
        small_outcome(task.federation),
        ledger=ledger,
        run=run,
        evaluate_every=5,
        delivery=np.full(4, delivery),
        seed=seed,
        threads=threads,
    )


def small_agreement() -> tuple[Agreement, dict[str, SigningKey]]:
    """What the four signed, and their keys."""
    federation = small_federation()
    keys = {name: SigningKey(bytes([i + 1]) * 32) for i, name in enumerate(NAMES)}
    agreement = agree(
        small_outcome(federation),
        run="run",
        rounds=ROUNDS,
        unit="CREDIT",
        server=SigningKey(bytes(32)),
        keys=keys,
        samples=federation.samples,
        schema=ModelSchema.of([np.zeros((10, 61), np.float32)], ["weights"]),
        task="0" * 64,
    )
    return agreement, keys
