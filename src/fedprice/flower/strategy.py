"""`PricedParticipation`: a Flower strategy that buys participation and pays for it.

Phases: profile → price → offer → commit → rounds → settle. Only clients whose coin shows heads are
contacted in a round; their updates are checked, weighted by a / (q ρ) and added in a fixed order;
the ledger records the round. It knows nothing of the model but a list of arrays.
"""

from __future__ import annotations

import io
import math
import time
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from flwr.serverapp.strategy import Result, Strategy

from fedprice.errors import FedpriceError, InputError
from fedprice.flower.server_step import Plain
from fedprice.flower.wire import (
    MARKET,
    Profile,
    arrays_of,
    market_fields,
    market_record,
    signed_fields,
    signed_of,
    the_arrays,
    to_record,
)
from fedprice.learning.aggregation.base import weighted_sum
from fedprice.learning.engine import PART
from fedprice.market.agreement import Agreement
from fedprice.market.ledger import Ledger
from fedprice.market.messages import ModelSchema, RefusedError
from fedprice.market.offers import Commitments, make_offers
from fedprice.market.run import MarketRun, fund_run
from fedprice.market.updates import arrays_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy.typing as npt
    from flwr.serverapp import Grid

    from fedprice.flower.pricing import Priced
    from fedprice.flower.server_step import ServerStep
    from fedprice.market.messages import SigningKey

    Arrays = list[npt.NDArray[Any]]
    Pricing = Callable[[Sequence[Profile], int], Priced]

__all__ = ["PricedParticipation"]


class PricedParticipation(Strategy):
    """Buys participation, trains unbiased from whoever joins, and pays through a ledger.

    Parameters
    ----------
    ledger, run
        Where to record, and under which name. A run that is there already goes on.
    key
        The server's signing key; its coin secrets follow from it.
    pricing
        From profiles and rounds to what is offered: `FullInformation` or `PostedPrice`.
    clients
        How many to wait for before the offers go out.
    keys
        The registered public keys, by client; None takes whoever comes.
    learning_rate, local_steps
        η of a round (counted from 0) and E, of which updates show the clients' gradient norms.
    server_step
        How the estimate of a round moves the model: `Plain`, or `Momentum`.
    norm_cap
        The largest norm of an update that is accepted.
    wait, round_timeout
        Seconds to wait for clients to show up, and for the replies of a round.
    at_once
        How many messages may be under way, for many clients on few cores; 0 for all.
    evaluate_clients
        Whether clients evaluate the model after each round.
    fund
        Whether to bring in what the run needs (simulations); otherwise treasury and payers must
        hold it.
    task
        Hash of what else determines the training, for the ledger.
    """

    def __init__(
        self,
        ledger: Ledger | str,
        run: str,
        *,
        key: SigningKey,
        pricing: Pricing,
        clients: int,
        keys: Mapping[str, bytes] | None = None,
        learning_rate: Callable[[int], float],
        local_steps: int,
        server_step: ServerStep | None = None,
        norm_cap: float = math.inf,
        wait: float = 120.0,
        round_timeout: float = 600.0,
        at_once: int = 0,
        evaluate_clients: bool = False,
        fund: bool = False,
        task: str = "0" * 64,
    ) -> None:
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self.run, self.key, self.pricing, self.clients, self.keys = run, key, pricing, clients, keys
        self.learning_rate, self.local_steps = learning_rate, local_steps
        self.server_step = server_step or Plain()
        self.norm_cap, self.wait, self.round_timeout = norm_cap, wait, round_timeout
        self.at_once = at_once
        self.evaluate_clients, self.fund, self.task = evaluate_clients, fund, task
        self.market: MarketRun | None = None
        self._public = dict(keys or {})  # registered, or seen first
        self._nodes: dict[str, int] = {}
        self._asked: set[int] = set()
        self._sent: list[tuple[str, Message]] = []
        self._names: list[str] = []
        self._model: Arrays = []
        self._dtypes: list[np.dtype[Any]] = []

    def summary(self) -> None:
        """Log what this strategy does."""
        log(INFO, "\tPricedParticipation: run %s, ledger %s", self.run, self.ledger.name)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the market: agree, train, pay, settle; go on where the ledger ends.

        Parameters
        ----------
        grid, initial_arrays, num_rounds, train_config, evaluate_config, evaluate_fn
            As for any strategy of Flower.
        timeout
            The most seconds for the replies of a round, if less than `round_timeout`.
        """
        self.round_timeout = min(self.round_timeout, timeout)
        result, arrays = Result(), self.agree(grid, initial_arrays, num_rounds)
        market = self._market()
        for server_round in range(market.round, num_rounds + 1):
            if server_round > market.round:
                config = train_config or ConfigRecord()
                sent = self.configure_train(server_round, arrays, config, grid)
                moved, metrics = self.aggregate_train(server_round, self._exchange(grid, sent))
                arrays = moved or arrays
                if metrics:
                    result.train_metrics_clientapp[server_round] = metrics
                config = evaluate_config or ConfigRecord()
                sent = self.configure_evaluate(server_round, arrays, config, grid)
                found = self.aggregate_evaluate(server_round, self._exchange(grid, sent))
                if found:
                    result.evaluate_metrics_clientapp[server_round] = found
            if evaluate_fn is not None and (found := evaluate_fn(server_round, arrays)):
                result.evaluate_metrics_serverapp[server_round] = found
        market.settle()
        result.arrays = arrays
        return result

    def agree(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> ArrayRecord:
        """Come to an agreement with the clients, or take up the one in the ledger.

        Returns the model to go on from.
        """
        self._names = list(initial_arrays.keys())
        initial = arrays_of(initial_arrays)
        self._dtypes = [array.dtype for array in initial]
        self._model = [array.astype(np.float64) for array in initial]
        schema = ModelSchema.of(initial, self._names)
        profiles = self._profiles(grid, self.wait)
        opened = self.ledger.opening(self.run)
        if opened is not None:
            agreement = Agreement.load(self.run, opened)
            if (agreement.rounds, agreement.schema) != (num_rounds, schema):
                raise InputError(f"run {self.run!r} was begun with other rounds or another model.")
            budget = int(opened["budget"])
        else:
            agreement, budget = self._agreement(grid, profiles, schema, num_rounds)
        self.market = MarketRun(self.ledger, agreement, budget, norm_cap=self.norm_cap)
        log(
            INFO,
            "run %s: %s clients, from round %s",
            self.run,
            len(agreement.deals),
            self.market.round,
        )
        if self.market.round:
            self._restore(self.market)
        return to_record(self._names, self._rounded())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return calls to those whose coin shows heads; nobody else hears of the round."""
        market = self._market()
        self._profiles(grid, 0.0)  # whoever came back has another node id
        online = set(grid.get_node_ids())
        self._sent = []
        for client in market.heads():
            if (node := self._nodes.get(client)) not in online or node is None:
                continue
            deal = market.agreement.deals[client]
            call = market_record(
                **signed_fields("offer", deal.offer),
                **signed_fields("commitment", deal.commitment),
                secret=deal.secret,
                round=market.round,
            )
            own = ConfigRecord(dict(config) | {"server-round": server_round})
            content = RecordDict({"arrays": arrays, "config": own, MARKET: call})
            self._sent.append((client, self._message(content, node, "train", str(server_round))))
        return [message for _, message in self._sent]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Check the updates, move the model, and record the round."""
        market = self._market()
        senders = {message.metadata.message_id: client for client, message in self._sent}
        updates: dict[str, Arrays] = {}
        for reply in replies:
            client = senders.pop(reply.metadata.reply_to_message_id, None)
            if client is None:
                continue  # an answer to nothing that was asked in this round
            try:
                if reply.has_error():
                    raise RefusedError(f"its program failed (Flower's code {reply.error.code}).")
                arrays = arrays_of(the_arrays(reply.content))
                if market.accept(
                    client,
                    signed_of(market_fields(reply.content), "update"),
                    arrays,
                    learning_rate=self.learning_rate(market.round),
                    local_steps=self.local_steps,
                ):
                    updates[client] = arrays
            except RefusedError as error:
                market.refuse(client, str(error))
        self._move([(market.weight(n), updates[n]) for n in market.agreement.deals if n in updates])
        metrics = MetricRecord({"called": len(self._sent), "joined": len(updates)})
        kept = io.BytesIO()
        named = {f"model.{i}": array for i, array in enumerate(self._model)}
        named |= {f"step.{i}": array for i, array in enumerate(self.server_step.state)}
        np.savez(kept, **named)  # type: ignore[arg-type]
        model = self._rounded()
        for client, reason in market.refused.items():
            log(WARNING, "round %s: the update of %s is refused: %s", server_round, client, reason)
        market.close_round(arrays_hash(model), kept.getvalue())
        return to_record(self._names, model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return a question to each client, if clients evaluate."""
        if not self.evaluate_clients:
            return []
        own = ConfigRecord(dict(config) | {"server-round": server_round})
        content = RecordDict({"arrays": arrays, "config": own})
        return [
            self._message(content, node, "evaluate", str(server_round))
            for node in self._nodes.values()
        ]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the clients' metrics, weighted by their samples (`num-examples`)."""
        sums: dict[str, float] = {}
        total = 0.0
        for reply in replies:
            if reply.has_error():
                continue
            for record in reply.content.metric_records.values():
                weight = record.get("num-examples")
                if not isinstance(weight, int | float) or not 0 < weight < math.inf:
                    continue
                total += weight
                for name, value in record.items():
                    if name != "num-examples" and isinstance(value, int | float):
                        sums[name] = sums.get(name, 0.0) + weight * value
        return MetricRecord({name: value / total for name, value in sums.items()}) if sums else None

    def _agreement(
        self, grid: Grid, profiles: dict[str, Profile], schema: ModelSchema, rounds: int
    ) -> tuple[Agreement, int]:
        """Price the clients, make offers, and take their commitments."""
        # Names of equal length in order, so that 10 comes after 9: the order of the model's sum.
        names = sorted(profiles, key=lambda name: (len(name), name))
        if len(names) < self.clients:
            raise InputError(f"only {len(names)} of {self.clients} clients showed up.")
        priced = self.pricing([profiles[name] for name in names], rounds)
        offers = make_offers(
            self.key,
            self.run,
            dict(zip(names, priced.terms, strict=True)),
            rounds=rounds,
            unit=self.ledger.unit,
            schema=schema,
            task=self.task,
        )
        desk = Commitments(offers, self._public, self.key.public)
        asked: list[tuple[str, Message]] = []
        for name, impact in zip(names, priced.impacts, strict=True):
            fields = market_record(**signed_fields("offer", offers[name]), impact=float(impact))
            content = RecordDict({MARKET: fields})
            asked.append((name, self._message(content, self._nodes[name], "query.offer", "offer")))
        for name, reply in self._answers(grid, asked):
            try:
                if reply.has_error():
                    raise RefusedError(reply.error.reason)
                desk.accept(name, signed_of(market_fields(reply.content), "commitment"), round_=0)
            except RefusedError as error:
                log(WARNING, "no commitment of %s: %s", name, error)
        agreement = Agreement.seal(self.key, offers, desk)
        if self.fund:
            fund_run(self.ledger, agreement, priced.budget)
        return agreement, priced.budget

    def _profiles(self, grid: Grid, wait: float) -> dict[str, Profile]:
        """Ask nodes that were not asked yet who they are; return the profiles of who answered."""
        until = time.monotonic() + wait
        while len(ids := set(grid.get_node_ids())) < self.clients and time.monotonic() < until:
            time.sleep(0.2)
        new = sorted(ids - self._asked)
        self._asked |= set(new)
        found: dict[str, Profile] = {}
        question = market_record(run=self.run)
        asked = [
            (str(node), self._message(RecordDict({MARKET: question}), node, "query.profile", "who"))
            for node in new
        ]
        for node, reply in self._answers(grid, asked):
            try:
                if reply.has_error():
                    raise RefusedError(reply.error.reason)
                signed = signed_of(market_fields(reply.content), "profile")
                profile: Profile = signed.open(Profile, signed.key)
                if profile.run != self.run:
                    raise RefusedError("its profile is for another run.")
                known = self._public.get(profile.client)
                if (self.keys is not None and known is None) or known not in (None, signed.key):
                    raise RefusedError(f"{profile.client!r} is registered with another key.")
                self._public[profile.client] = signed.key
                self._nodes[profile.client] = int(node)
                found[profile.client] = profile
            except FedpriceError as error:
                log(WARNING, "node %s is not in the market: %s", node, error)
        return found

    def _answers(
        self, grid: Grid, asked: list[tuple[str, Message]]
    ) -> Iterable[tuple[str, Message]]:
        replies = self._exchange(grid, [message for _, message in asked])
        by_id = {message.metadata.message_id: name for name, message in asked}
        for reply in replies:
            # Errors of dead nodes come from the SuperLink: what they answer says whose they are.
            if (name := by_id.get(reply.metadata.reply_to_message_id)) is not None:
                yield name, reply

    def _exchange(self, grid: Grid, messages: list[Message]) -> list[Message]:
        """Send messages and return the replies that come in time.

        Flower's own `send_and_receive` looks for replies every three seconds only.
        """
        left, waiting, replies = list(messages), set[str](), list[Message]()
        until, pause = time.monotonic() + self.round_timeout, 0.02
        while left or waiting:
            room = (self.at_once or len(messages)) - len(waiting)
            some, left = left[:room], left[room:]
            if some:
                waiting |= {name for name in grid.push_messages(some) if name}
            for reply in grid.pull_messages(list(waiting)):
                waiting.discard(reply.metadata.reply_to_message_id)
                replies.append(reply)
            if time.monotonic() > until:
                break
            if waiting:
                time.sleep(pause)
                pause = min(1.5 * pause, 0.5)
        return replies

    def _message(self, content: RecordDict, node: int, kind: str, group: str) -> Message:
        return Message(content, node, kind, ttl=self.round_timeout, group_id=group)

    def _move(self, weighted: list[tuple[float, Arrays]]) -> None:
        """Add Σ weight · update to the model, through the server's step, in parts as the engine."""
        if isinstance(self.server_step, Plain):
            for first in range(0, len(weighted), PART):
                self._add(_estimate(self._model, weighted[first : first + PART]))
        else:
            self._add(self.server_step(_estimate(self._model, weighted)))

    def _add(self, change: Arrays) -> None:
        self._model = [w + part for w, part in zip(self._model, change, strict=True)]
        if not all(np.isfinite(w).all() for w in self._model):
            raise InputError(
                f"the model of run {self.run!r} is no longer finite; lower the learning rate, or "
                "set a norm cap."
            )

    def _rounded(self) -> Arrays:
        """Return the model as clients get it, in its own precision."""
        return [w.astype(kind) for w, kind in zip(self._model, self._dtypes, strict=True)]

    def _restore(self, market: MarketRun) -> None:
        kept = market.state
        if kept is None:
            raise InputError(f"run {self.run!r} kept no state to go on from.")
        with np.load(io.BytesIO(kept), allow_pickle=False) as stored:
            names = stored.files
            self._model = [stored[f"model.{i}"] for i in range(len(self._names))]
            steps = sum(name.startswith("step.") for name in names)
            self.server_step.state = [stored[f"step.{i}"] for i in range(steps)]
        market.require_model(self._rounded())

    def _market(self) -> MarketRun:
        if self.market is None:
            raise InputError("no agreement yet; call `start`, or `agree` before the first round.")
        return self.market


def _estimate(like: Arrays, weighted: list[tuple[float, Arrays]]) -> Arrays:
    factors = np.array([weight for weight, _ in weighted])
    return [
        weighted_sum(
            factors, np.array([arrays[i].ravel() for _, arrays in weighted]).reshape(-1, w.size)
        ).reshape(w.shape)
        for i, w in enumerate(like)
    ]
