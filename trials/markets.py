"""A small market to test with: four clients, one of them a payer, real keys, real training."""

from typing import Any

import numpy as np

from fedprice import Bound, Clients, Game, Outcome, solve
from fedprice.data import Federation
from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, Training
from fedprice.market.agreement import Agreement
from fedprice.market.bargain import Bargain
from fedprice.market.canonical import digest
from fedprice.market.coins import own_secret
from fedprice.market.ledger import Delivered, Ledger
from fedprice.market.messages import ModelSchema, SigningKey
from fedprice.market.money import LEVEL_ONE, MICRO, price_units
from fedprice.market.offers import FOREVER, Conditions, Proposal, Terms, answer
from fedprice.market.simulation import (
    agree,
    simulate_market,
    simulation_key,
    simulation_nonce,
)
from fedprice.market.tariffs import Tariff
from fedprice.market.terms import largest_weight
from fedprice.market.updates import Update
from fedprice.rounds import History
from fedprice.verify import LONGEST_GAP

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


SCHEMA = ModelSchema.of([np.zeros((10, 61), np.float32)], ["weights"])
NEVER, ALWAYS = 1, LEVEL_ONE  # a coin of the least level shows heads once in four billion rounds


def conditions(
    ledger: Ledger, run: str = "run", *, rounds: int = ROUNDS, seed: int = 0, **other: object
) -> Conditions:
    """What offers of a run have in common."""
    usual: dict[str, object] = {
        "ledger": ledger.identity, "server": simulation_key("server").public.hex(), "run": run,
        "follows": "", "rounds": rounds, "run_rounds": rounds, "unit": ledger.unit,
        "schema": SCHEMA.content(), "task": "0" * 64, "model": "0" * 64, "max_weight": "1000",
        "longest_gap": LONGEST_GAP, "nonce": simulation_nonce(seed, run), "expires": FOREVER,
    }  # fmt: skip
    return Conditions(**usual | other)  # type: ignore[arg-type]


def keys_of(names: list[str]) -> dict[str, SigningKey]:
    return {name: simulation_key(f"client {name}") for name in names}


def at_price(price: int, level: int, samples: int = 1) -> Terms:
    """Terms of one price, up to the level that is chosen."""
    return Terms(Tariff.flat(price, max(level, 1)), level, samples)


def paying(payment: int, level: int | None = None) -> Terms:
    """Terms that earn exactly this payment: payees join every round, payers none."""
    level = (NEVER if payment < 0 else ALWAYS) if level is None else level
    return at_price(price_units(payment, level), level)


def offered(
    ledger: Ledger, terms: dict[str, Terms], run: str = "run", rounds: int = 7, **other: Any
) -> Bargain:
    """A bargain in which these terms are offered."""
    server = simulation_key("server")
    ledger.use_key(server)
    bargain = Bargain(ledger, server, run)
    proposals = {name: Proposal(own.tariff, own.level) for name, own in terms.items()}
    bargain.offer(conditions(ledger, run, rounds=rounds, **other), proposals)
    return bargain


def commit(bargain: Bargain, name: str, terms: Terms) -> None:
    key = simulation_key(f"client {name}")
    own = answer(key, bargain.offers[name], terms.level, samples=terms.samples, grad_norm=2.0)
    bargain.commit(name, own, key.public)


def reveal(bargain: Bargain) -> None:
    for name in bargain.rosters():
        private = simulation_key(f"client {name}").private
        bargain.reveal(name, own_secret(private, bargain.offers[name].hash))


def agreed(
    ledger: Ledger,
    budget: int,
    terms: dict[str, Terms],
    run: str = "run",
    rounds: int = 7,
    **other: Any,
) -> Agreement:
    """Open a run on these very terms, signed by everybody."""
    bargain = offered(ledger, terms, run, rounds, **other)
    for name, own in terms.items():
        commit(bargain, name, own)
    bargain.close()
    reveal(bargain)
    return bargain.open(budget)


def deliver(ledger: Ledger, round_: int, model: str, **other: Any) -> None:
    """Record a round of `run` in which everybody that drew heads delivers what it signed."""
    run, joined = ledger.run("run"), {}
    for name, own in run.clients.items():
        if own.coins is None or not own.coins.heads(round_):
            continue
        update = Update("run", name, round_, digest(f"{name} {round_}".encode()), run.model)
        signature = simulation_key(f"client {name}").sign(update).signature.hex()
        weight = repr(run.weight(name))
        joined[name] = Delivered(update.arrays, weight, "1", signature=signature)
    ledger.record_round("run", round_, model=model, joined=joined, **other)


def small_agreement(
    ledger: Ledger, norm_cap: float = float("inf")
) -> tuple[Agreement, dict[str, SigningKey]]:
    """What the four signed, the run open and paid for, and their keys."""
    federation, keys = small_federation(), keys_of(NAMES)
    outcome, server = small_outcome(federation), simulation_key("server")
    ledger.use_key(server)
    ledger.deposit("client:dora-dorothea", 20 * MICRO, "own")
    agreement = agree(
        ledger,
        outcome,
        server,
        keys,
        conditions=conditions(ledger, max_weight=f"{largest_weight(outcome):.6g}"),
        samples=federation.samples,
        norm_cap=norm_cap,
    )
    return agreement, keys
