"""`simulate_market`: the whole market in one process, on the fast engine.

Offers, commitments and updates are signed and checked as between strangers, coins come from both
sides' secrets, and every round is an entry of the ledger. All keys follow from the seed, so that a
run can be repeated, and a stopped one goes on from the ledger to the same model and ledger.
"""

from __future__ import annotations

import hashlib
import io
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError
from fedprice.learning import HorvitzThompson, Training, run_fingerprint, simulate
from fedprice.learning.participation import deliveries
from fedprice.market.agreement import Agreement
from fedprice.market.ledger import LedgerError
from fedprice.market.messages import ModelSchema, SigningKey
from fedprice.market.money import (
    LEVEL_ONE,
    level_units,
    micro_units,
    price_units,
    whole_payments,
)
from fedprice.market.offers import Commitments, Offer, Terms, answer, chosen_level, make_offers
from fedprice.market.run import MarketRun, fund_run
from fedprice.market.updates import Update, arrays_hash
from fedprice.pricing import Status

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.data import Federation
    from fedprice.learning import Clock, History
    from fedprice.learning.aggregation import State
    from fedprice.market.ledger import Ledger
    from fedprice.pricing import Outcome


__all__ = ["agree", "budgeted_terms", "simulate_market", "simulation_key"]


def simulate_market(
    federation: Federation,
    outcome: Outcome,
    *,
    ledger: Ledger,
    run: str,
    training: Training | None = None,
    delivery: npt.ArrayLike = 1.0,
    norm_cap: float = math.inf,
    clock: Clock | None = None,
    seed: int = 0,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> History:
    """Offer an outcome's prices, train from whoever joins, and pay; go on if the run was begun.

    Parameters
    ----------
    federation, outcome
        The clients' data, and the prices and levels to offer them.
    ledger, run
        Where to record, and under which name. The server and payers bring in what they need.
    training, clock, threads, progress
        As for `simulate`.
    delivery
        The probability that a client that drew heads delivers, shape (num_clients,) or a scalar;
        the server does not know it and learns it from what it sees.
    norm_cap
        The largest norm of an update that is accepted.
    seed
        Determines keys, and with them coins, and batches.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game, solve
    >>> from fedprice.data.synthetic import synthetic
    >>> from fedprice.market.ledger import Ledger
    >>> federation = synthetic(num_clients=4, samples=400)
    >>> clients = Clients(samples=federation.samples, grad_norm=2, cost=[3, 4, 5, 6], value=0)
    >>> outcome = solve(Game(clients, bound=Bound(alpha=3, rounds=20), budget=8))
    >>> ledger = Ledger("sqlite://")
    >>> training = Training(rounds=20, local_steps=5)
    >>> history = simulate_market(
    ...     federation, outcome, ledger=ledger, run="first", training=training
    ... )
    >>> len(ledger.verify().hashes), ledger.balance("treasury"), sum(ledger.balances().values())
    (24, 0, 0)
    """
    training = training or Training()
    names = [str(name) for name in outcome.game.clients.ids]
    if len(names) != federation.num_clients:
        raise InputError(f"`outcome` must have {federation.num_clients} clients; got {len(names)}.")
    keys = {name: simulation_key(seed, f"client {name}") for name in names}
    model = [np.zeros((federation.num_classes, federation.features.shape[1] + 1), np.float32)]
    rho = np.broadcast_to(np.asarray(delivery, np.float64), len(names))
    agreement = agree(
        outcome,
        run=run,
        rounds=training.rounds,
        unit=ledger.unit,
        server=simulation_key(seed, "server"),
        keys=keys,
        samples=federation.samples,
        schema=ModelSchema.of(model, ["weights"]),
        task=run_fingerprint(
            federation,
            rho,
            training=training,
            aggregator=HorvitzThompson(),
            clock=clock,
            seed=seed,
        ),
    )
    budget = micro_units(outcome.game.budget)
    fund_run(ledger, agreement, budget)
    market = MarketRun(ledger, agreement, budget, norm_cap=norm_cap)
    history = simulate(
        federation,
        np.array([agreement.terms[name].level / LEVEL_ONE for name in names]),
        training=training,
        clock=clock,
        seed=seed,
        threads=threads,
        participation=_MarketParticipation(market, training, keys, rho, seed),
        progress=progress,
    )
    market.settle()
    return history


def agree(
    outcome: Outcome,
    *,
    run: str,
    rounds: int,
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
        dict(zip(names, budgeted_terms(outcome, samples), strict=True)),
        rounds=rounds,
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


def budgeted_terms(outcome: Outcome, samples: npt.NDArray[Any]) -> list[Terms]:
    """Return an outcome in whole numbers: its levels as caps, its prices to the micro-unit.

    Payments at the caps add up exactly to what the outcome spends, at most the budget.
    """
    if outcome.status is Status.INFEASIBLE:
        raise InputError("an infeasible outcome cannot be offered; raise the budget.")
    if not outcome.posts_prices:
        raise InputError(
            f"scheme {outcome.scheme!r} offers no prices, so it is no market. Choose another one."
        )
    # Levels are rounded down, but a payer's up: what it brings in was counted on.
    caps = [level_units(float(level)) for level in outcome.levels]
    caps = [
        cap + int(price < 0 and 0 < cap < LEVEL_ONE)
        for cap, price in zip(caps, outcome.prices, strict=True)
    ]
    exact = zip(outcome.prices, caps, strict=True)
    whole = whole_payments(
        (float(price) * (cap / LEVEL_ONE) for price, cap in exact),
        most=micro_units(outcome.game.budget),
    )
    return [
        Terms(price_units(payment, cap), cap, int(own))
        for payment, cap, own in zip(whole, caps, samples, strict=True)
    ]


class _MarketParticipation:
    """Lets a market decide who takes part in the engine's rounds, clients signing as they would."""

    def __init__(
        self,
        market: MarketRun,
        training: Training,
        keys: dict[str, SigningKey],
        delivery: FloatArray,
        seed: int,
    ) -> None:
        self._market, self._training = market, training
        self._keys, self._delivery, self._seed = keys, delivery, seed
        self._names = list(keys)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: n for n, name in enumerate(self._names)}

    def restore(self) -> State | None:
        """Return what the ledger kept with the last round."""
        kept = self._market.state
        if kept is None:
            return None
        with np.load(io.BytesIO(kept), allow_pickle=False) as stored:
            state = {name: stored[name] for name in stored.files}
        rows, columns = self._market.agreement.schema.shapes[0]
        self._market.require_model([state["model"][:rows, :columns].astype(np.float32)])
        return state

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose shared coin shows heads."""
        if round_ != self._market.round:
            there = self._market.round
            raise LedgerError(f"the engine is in round {round_}, the market in round {there}.")
        return np.array([self._numbers[name] for name in self._market.heads()], np.int64)

    def delivering(self, round_: int, heads: IntArray) -> IntArray:
        """Return those of them whose update arrives."""
        return heads[deliveries(self._seed, round_, heads) < self._delivery[heads]]

    def arrival(self) -> FloatArray:
        """Return q ρ of each client, ρ as far as it is known."""
        return np.array([self._market.arrival(name) for name in self._names])

    def admit(
        self, round_: int, clients: IntArray, updates: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.bool_]:
        """Sign each update as its client, and have the market check it."""
        market, training = self._market, self._training
        admitted = np.zeros(clients.size, np.bool_)
        for slot, n in enumerate(clients):
            name, arrays = self._names[n], [updates[slot]]
            content = Update(market.agreement.run, name, round_, arrays_hash(arrays))
            admitted[slot] = market.accept(
                name,
                self._keys[name].sign(content),
                arrays,
                learning_rate=training.rate(round_),
                local_steps=training.local_steps,
            )
        return admitted

    def close(self, round_: int, model: npt.NDArray[np.float32], state: State) -> None:
        """Record the round, with what a stopped run needs to go on."""
        kept = io.BytesIO()
        named: dict[str, Any] = dict(state)
        np.savez(kept, **named)
        self._market.close_round(arrays_hash([model]), kept.getvalue())


def simulation_key(seed: int, whose: str) -> SigningKey:
    """Return a key that everybody can compute: for simulations only."""
    return SigningKey(hashlib.sha256(f"fedprice simulation\0{seed}\0{whose}".encode()).digest())
