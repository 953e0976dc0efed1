"""`simulate_market`: the whole market in one process, on the fast engine.

Offers, commitments and updates are signed and checked as between strangers, coins come from both
sides' secrets, and every round is an entry of the ledger. All keys follow from the seed, so that a
run can be repeated, and a stopped one goes on from the ledger to the same model and ledger.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import closing
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.clients import WEIGHT_TOLERANCE
from fedprice.errors import InputError
from fedprice.market.agreement import Agreement
from fedprice.market.ledger import Ledger
from fedprice.market.messages import ModelSchema, SigningKey
from fedprice.market.money import micro_units
from fedprice.market.offers import Commitments, Offer, answer, chosen_level, make_offers
from fedprice.market.participation import market_rounds, state_after
from fedprice.market.periods import rounds_before
from fedprice.market.run import MarketRun, fund_run
from fedprice.market.terms import budgeted_terms
from fedprice.market.updates import Update, arrays_hash
from fedprice.rounds.aggregation import aggregator_of, usual_aggregator
from fedprice.rounds.server_step import Plain
from fedprice.rounds.simulation import Driver, probabilities, run_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fedprice.arrays import BoolArray, IntArray
    from fedprice.learning import Clock, Task
    from fedprice.pricing import Outcome
    from fedprice.rounds import Aggregator, History, ServerStep

__all__ = ["agree", "simulate_market", "simulation_key"]


def simulate_market(
    task: Task,
    outcome: Outcome,
    *,
    ledger: Ledger | str,
    run: str,
    rounds: int | None = None,
    follows: str = "",
    seed: int = 0,
    aggregator: Aggregator | None = None,
    server_step: ServerStep | None = None,
    delivery: npt.ArrayLike = 1.0,
    norm_cap: float = math.inf,
    clock: Clock | None = None,
    evaluate_every: int = 10,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> History:
    """Offer an outcome's prices, train from whoever joins, and pay; go on if the run was begun.

    Parameters
    ----------
    task, outcome
        What is learned, and the prices and levels to offer its clients.
    ledger, run
        Where to record, a ledger or its URL or file, and under which name. The server and payers
        bring in what they need.
    rounds
        Rounds under this agreement, at most those of the outcome's game: a period of fewer rounds
        pays that share. By default all of them.
    follows
        The name of the period before, whose model goes on; `run` is then its `next_period`.
    seed
        Determines keys, and with them coins, and everything random in training.
    aggregator, server_step, clock, evaluate_every, threads, progress
        As for `simulate`.
    delivery
        The probability that a client that drew heads delivers, shape (num_clients,) or a scalar;
        the server does not know it and learns it from what it sees.
    norm_cap
        The largest norm of an update that is accepted.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game, solve
    >>> from fedprice.data.synthetic import synthetic
    >>> from fedprice.learning import LogisticRegression, Training
    >>> from fedprice.market.ledger import Ledger
    >>> task = LogisticRegression(synthetic(num_clients=4, samples=400), Training(local_steps=5))
    >>> clients = Clients(samples=task.samples, grad_norm=2, cost=[3, 4, 5, 6], value=0)
    >>> outcome = solve(Game(clients, bound=Bound(alpha=3, rounds=20), budget=8))
    >>> ledger = Ledger("sqlite://")
    >>> history = simulate_market(task, outcome, ledger=ledger, run="first")
    >>> len(ledger.verify().hashes), ledger.balance("treasury"), sum(ledger.balances().values())
    (24, 0, 0)
    """
    if not isinstance(ledger, Ledger):
        with closing(Ledger(ledger)) as opened:
            return simulate_market(
                task, outcome, ledger=opened, run=run, rounds=rounds, follows=follows, seed=seed,
                aggregator=aggregator, server_step=server_step, delivery=delivery,
                norm_cap=norm_cap, clock=clock, evaluate_every=evaluate_every, threads=threads,
                progress=progress,
            )  # fmt: skip
    total = outcome.game.bound.rounds
    rounds = total if rounds is None else rounds
    done = rounds_before(ledger, follows)
    driver = Driver(task, rounds, seed, evaluate_every, clock, threads, progress, done)
    if done + rounds > total:
        raise InputError(
            f"`rounds` must be at most {total - done}: the outcome was priced for {total} rounds, "
            f"of which {done} are done; got {rounds}."
        )
    names = [str(name) for name in outcome.game.clients.ids]
    _require_same_clients(outcome, task)
    rho = probabilities("delivery", delivery, task.num_clients)
    keys = {name: simulation_key(seed, f"client {name}") for name in names}
    before = state_after(ledger, follows, task.layout) if follows else None
    if aggregator is None and outcome.aggregator is not None:
        aggregator = aggregator_of(outcome.aggregator)
    aggregator, server_step = aggregator or usual_aggregator(task), server_step or Plain()
    agreement = agree(
        outcome,
        run=run,
        rounds=rounds,
        follows=follows,
        unit=ledger.unit,
        server=simulation_key(seed, "server"),
        keys=keys,
        samples=task.samples,
        schema=ModelSchema.of(task.layout.arrays(task.layout.flat(task.initial)), task.names),
        # Not the server step: a run that diverges may go on with another one.
        task=run_fingerprint(
            task, 1.0, delivery=rho, rounds=rounds, seed=seed, aggregator=aggregator, clock=clock
        ),
    )
    budget = int(Fraction(micro_units(outcome.game.budget) * rounds, total))
    fund_run(ledger, agreement, budget)
    market = MarketRun(ledger, agreement, budget, norm_cap=norm_cap)
    loop = market_rounds(
        market,
        task.initial,
        aggregator=aggregator,
        server_step=server_step,
        admit=_Signing(market, task, keys, done),
        before=before,
    )
    history = driver.run(loop, rho)
    market.settle()
    return history


def _require_same_clients(outcome: Outcome, task: Task) -> None:
    """Refuse an outcome whose clients are not those of the task, in its order."""
    clients = outcome.game.clients
    if len(clients) != task.num_clients:
        raise InputError(f"`outcome` must have {task.num_clients} clients; got {len(clients)}.")
    names = tuple(str(name) for name in clients.ids)
    if names != task.ids and set(names) == set(task.ids):
        raise InputError("the clients of `outcome` must be in the order of the task's `ids`.")
    apart = np.abs(clients.weight - task.weight) > WEIGHT_TOLERANCE
    if apart.any():
        n = int(np.argmax(apart))
        raise InputError(
            f"the clients of `outcome` must have the task's shares of samples; client {names[n]!r} "
            f"has {clients.weight[n]:.6g}, not {task.weight[n]:.6g}. Price the task's clients, in "
            "its order."
        )


def agree(
    outcome: Outcome,
    *,
    run: str,
    rounds: int,
    follows: str = "",
    unit: str,
    server: SigningKey,
    keys: dict[str, SigningKey],
    samples: npt.NDArray[Any],
    schema: ModelSchema,
    task: str,
) -> Agreement:
    """Post the offers of an outcome, let each client answer for itself, and seal the agreement."""
    game, names = outcome.game, list(keys)
    offers = make_offers(
        server,
        run,
        dict(zip(names, budgeted_terms(outcome, samples, rounds=rounds), strict=True)),
        rounds=rounds,
        run_rounds=game.bound.rounds,
        follows=follows,
        unit=unit,
        schema=schema,
        task=task,
        impacts=dict(zip(names, game.impact.tolist(), strict=True)),
    )
    desk = Commitments(offers, {name: key.public for name, key in keys.items()}, server.public)
    for n, name in enumerate(names):
        offer = offers[name].open(Offer, server.public)
        level = chosen_level(
            offer,
            cost=float(game.clients.cost[n]),
            value=float(game.clients.value[n]),
            cost_exponent=game.cost_exponent,
        )
        answered = answer(
            keys[name],
            offers[name],
            level,
            samples=int(samples[n]),
            grad_norm=float(game.clients.grad_norm[n]),
        )
        desk.accept(name, answered, round_=0)
    return Agreement.seal(server, offers, desk)


class _Signing:
    """Signs each update as its client would, and has the market check it."""

    def __init__(
        self, market: MarketRun, task: Task, keys: dict[str, SigningKey], done: int
    ) -> None:
        self._market, self._task, self._layout = market, task, task.layout
        self._keys, self._names, self._done = keys, list(keys), done

    def __call__(self, round_: int, clients: IntArray, updates: npt.NDArray[Any]) -> BoolArray:
        market, reach = self._market, self._task.reach(self._done + round_)
        admitted = np.zeros(clients.size, np.bool_)
        for slot, n in enumerate(clients.tolist()):
            name, arrays = self._names[n], self._layout.arrays(updates[slot])
            content = Update(market.agreement.run, name, round_, arrays_hash(arrays))
            admitted[slot] = market.accept(
                name, self._keys[name].sign(content), arrays, reach=reach
            )
        return admitted


def simulation_key(seed: int, whose: str) -> SigningKey:
    """Return a key that everybody can compute: for simulations only."""
    return SigningKey(hashlib.sha256(f"fedprice simulation\0{seed}\0{whose}".encode()).digest())
