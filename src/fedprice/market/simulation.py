"""`simulate_market`: the whole market in one process, on the fast engine.

Offers, commitments and updates are signed and checked as between strangers, coins come from both
sides' secrets, and every step is an entry of the ledger. Keys and coins follow from names and the
seed, so that a run can be repeated, and a stopped one resumes and ends with the same model and
ledger.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.client_columns import WEIGHT_TOLERANCE
from fedprice.errors import InputError
from fedprice.market.agreement import Agreement
from fedprice.market.bargain import Bargain, positions_under
from fedprice.market.coins import own_secret
from fedprice.market.keys import simulation_key
from fedprice.market.ledger import Ledger
from fedprice.market.messages import ModelSchema
from fedprice.market.offers import (
    FOREVER,
    Conditions,
    Offer,
    Proposal,
    answer,
    chosen_level,
    coins_for,
    make_offers,
)
from fedprice.market.participation import market_rounds, state_after
from fedprice.market.periods import paid_in, require_period, rounds_before
from fedprice.market.run import MarketRun, fund_run
from fedprice.market.terms import largest_weight, least_levels, offered_tariffs
from fedprice.market.updates import Update, arrays_hash
from fedprice.rounds.aggregation import aggregator_of
from fedprice.rounds.server_step import Plain
from fedprice.rounds.simulation import Driver, probabilities, run_fingerprint
from fedprice.trackers import WithSpend
from fedprice.verify import LONGEST_GAP

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fedprice._plumbing.arrays import BoolArray, IntArray
    from fedprice.learning import Clock, Task
    from fedprice.learning.task import Updates
    from fedprice.market.messages import SigningKey
    from fedprice.pricing import Outcome
    from fedprice.rounds import Aggregator, History, ServerStep
    from fedprice.tariff import Tariffs
    from fedprice.trackers import Tracker

__all__ = ["agree", "simulate_market", "simulation_key", "simulation_nonce"]


def simulate_market(
    task: Task,
    outcome: Outcome,
    *,
    ledger: Ledger | str,
    run: str,
    tariffs: Tariffs | None = None,
    rounds: int | None = None,
    follows: str = "",
    seed: int = 0,
    aggregator: Aggregator | str | None = None,
    server_step: ServerStep | None = None,
    delivery: npt.ArrayLike = 1.0,
    norm_cap: npt.ArrayLike = math.inf,
    clock: Clock | None = None,
    evaluate_every: int = 10,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
    metrics: bool = False,
    tracker: Tracker | None = None,
) -> History:
    """Offer prices or tariffs, train with the clients that join, and pay; resume a stopped run.

    Parameters
    ----------
    task, outcome
        What is learned, and the prices and levels to offer its clients.
    ledger, run
        The ledger (or its URL or file), and the name of the run. The server and payers deposit
        what they need.
    tariffs
        What to offer instead of the outcome's prices, one tariff per client. Each client answers
        with the level that suits it best; the budget covers whatever they could choose.
    rounds
        Rounds under this agreement, at most those of the outcome's game: a period of fewer rounds
        pays that share. By default all of them.
    follows
        The name of the previous period, whose model is trained further; `run` is then its
        `next_period`.
    seed
        Determines the coins, and everything random in training.
    aggregator, server_step, clock, evaluate_every, threads, progress
        As for `simulate`.
    delivery
        The probability that a client that drew heads delivers, shape (num_clients,) or a scalar;
        the server does not know it.
    norm_cap
        The largest norm of an update that is accepted, shape (num_clients,) or a scalar.
    metrics
        Whether each evaluation is recorded outside the chain, where `fedprice serve` shows it live.
    tracker
        Told after each round what it did, with what the run has paid so far.

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
    >>> len(ledger.verify().hashes), ledger.balance("escrow:first"), sum(ledger.balances().values())
    (27, 0, 0)
    """
    if not isinstance(ledger, Ledger):
        with closing(Ledger(ledger)) as opened:
            return simulate_market(
                task, outcome, ledger=opened, run=run, tariffs=tariffs, rounds=rounds,
                follows=follows, seed=seed, aggregator=aggregator, server_step=server_step,
                delivery=delivery, norm_cap=norm_cap, clock=clock, evaluate_every=evaluate_every,
                threads=threads, progress=progress, metrics=metrics, tracker=tracker,
            )  # fmt: skip
    total = outcome.game.bound.rounds
    rounds = total if rounds is None else rounds
    done = rounds_before(ledger, follows)

    def measured(after: int, found: dict[str, float]) -> None:
        if metrics:
            ledger.record_metrics(run, after, "server", found)

    driver = Driver(
        task, rounds, seed, evaluate_every, clock, threads, progress, done, measured,
        tracker=None if tracker is None else WithSpend(tracker, lambda _: paid_in(ledger, [run])),
    )  # fmt: skip
    if done + rounds > total:
        raise InputError(
            f"`rounds` must be at most {total - done}: the outcome was priced for {total} rounds, "
            f"of which {done} are done; got {rounds}."
        )
    names = [str(name) for name in outcome.game.clients.ids]
    _require_same_clients(outcome, task)
    require_period(run, follows)
    rho = probabilities("delivery", delivery, task.num_clients)
    server = simulation_key("server")
    ledger.use_key(server)
    keys = {name: simulation_key(f"client {name}") for name in names}
    before = state_after(ledger, follows, task.layout) if follows else None
    aggregator = aggregator_of(aggregator or outcome.aggregator)
    server_step = server_step or Plain()
    initial = task.layout.own(task.initial)
    agreement = agree(
        ledger,
        outcome,
        server,
        keys,
        tariffs=tariffs,
        samples=task.samples,
        norm_cap=norm_cap,
        conditions=Conditions(
            ledger=ledger.identity,
            server=server.public.hex(),
            run=run,
            follows=follows,
            rounds=rounds,
            run_rounds=total,
            unit=ledger.unit,
            schema=ModelSchema.of(initial, task.names, task.layout.buffers).content(),
            # Without the server step: a run that diverges may resume with another one.
            task=run_fingerprint(
                task,
                1.0,
                delivery=rho,
                rounds=rounds,
                seed=seed,
                aggregator=aggregator,
                clock=clock,
            ),
            model=ledger.run(follows).model if follows else arrays_hash(initial),
            max_weight=f"{largest_weight(outcome):.6g}",
            longest_gap=LONGEST_GAP,
            nonce=simulation_nonce(seed, run),
            expires=FOREVER,
        ),
    )
    market = MarketRun(ledger, agreement)
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
    ledger: Ledger,
    outcome: Outcome,
    server: SigningKey,
    keys: dict[str, SigningKey],
    *,
    conditions: Conditions,
    samples: npt.NDArray[Any],
    tariffs: Tariffs | None = None,
    norm_cap: npt.ArrayLike = math.inf,
) -> Agreement:
    """Post an outcome's prices or tariffs, let each client answer for itself, and open the run.

    The server and payers deposit what they need.
    """
    game, names = outcome.game, list(keys)
    offered, budget = offered_tariffs(outcome, tariffs, conditions.rounds)
    caps = np.broadcast_to(np.asarray(norm_cap, np.float64), len(names)).tolist()
    proposals = {
        name: Proposal(tariff, floor, impact, None if math.isinf(cap) else cap)
        for name, tariff, floor, impact, cap in zip(
            names, offered, least_levels(outcome), game.impact.tolist(), caps, strict=True
        )
    }
    conditions = replace(conditions, coins=coins_for(proposals.values()))
    bargain = Bargain(ledger, server, conditions.run)
    if not bargain.attempt:
        bargain.offer(conditions, proposals)
    positions = positions_under(ledger, conditions, proposals)
    wanted = make_offers(server, conditions, proposals, positions=positions)
    if wanted != bargain.offers:
        raise InputError(
            f"run {conditions.run!r} in {ledger.name} was started with another task, seed, model "
            "or prices; choose another name for the run."
        )
    if bargain.is_over:
        return Agreement.load(ledger, conditions.run)
    for n, name in enumerate(names):
        if name in bargain.wants:
            signed = bargain.offers[name]
            level = chosen_level(
                signed.open(Offer, server.public),
                conditions,
                cost=float(game.clients.cost[n]),
                value=float(game.clients.value[n]),
                cost_exponent=game.cost_exponent,
            )
            declared = game.clients.grad_norm
            norm = None if declared is None else float(declared[n])
            own = answer(keys[name], signed, level, samples=int(samples[n]), grad_norm=norm)
            bargain.commit(name, own, keys[name].public)
    bargain.close()
    for name in bargain.rosters():
        bargain.reveal(name, own_secret(keys[name].private, bargain.offers[name].hash))
    fund_run(bargain, budget)
    return bargain.open(budget)


class _Signing:
    """Signs each update as its client would, and lets the market check it."""

    def __init__(
        self, market: MarketRun, task: Task, keys: dict[str, SigningKey], done: int
    ) -> None:
        self._market, self._task, self._layout = market, task, task.layout
        self._keys, self._names, self._done = keys, list(keys), done

    def __call__(self, round_: int, clients: IntArray, updates: Updates) -> BoolArray:
        market, reach = self._market, self._task.reach(self._done + round_)
        admitted = np.zeros(clients.size, np.bool_)
        for slot, n in enumerate(clients.tolist()):
            buffers = None if updates.buffers is None else updates.buffers[slot]
            name, arrays = self._names[n], self._layout.arrays(updates.values[slot], buffers)
            run, base = market.agreement.run, market.model
            content = Update(run, name, round_, arrays_hash(arrays, update=True), base)
            signed = self._keys[name].sign(content)
            admitted[slot] = market.accept(name, signed, arrays, reach=reach) > 0
        return admitted


def simulation_nonce(seed: int, run: str) -> str:
    """Return the nonce of a simulation's offers, from which its coins follow."""
    return hashlib.sha256(f"fedprice simulation nonce\0{seed}\0{run}".encode()).hexdigest()
