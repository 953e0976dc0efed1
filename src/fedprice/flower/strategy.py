"""`PricedParticipation`: a Flower strategy that buys participation and pays for it.

Phases: profile → price → offer → commit → rounds → settle. Only clients whose coin shows heads are
contacted in a round; their updates are checked, weighted by a / (q ρ) and added in a fixed order;
the ledger records the round. It knows nothing of the model but a list of arrays.
"""

from __future__ import annotations

import io
import logging
import math
import secrets
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result, Strategy

from fedprice.errors import FedpriceError, InputError
from fedprice.flower.server_step import Plain
from fedprice.flower.wire import (
    MARKET,
    Profile,
    Question,
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
from fedprice.market.money import micro_units
from fedprice.market.offers import Commitment, Commitments, make_offers
from fedprice.market.run import MarketRun, fund_run
from fedprice.market.updates import arrays_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flwr.serverapp import Grid

    from fedprice.arrays import Arrays
    from fedprice.flower.pricing import Priced
    from fedprice.flower.server_step import ServerStep
    from fedprice.market.messages import SigningKey

    Pricing = Callable[[Sequence[Profile], int], Priced]

__all__ = ["PricedParticipation"]

_log = logging.getLogger("flwr")  # where a Flower app says what happens
LONGEST = 200  # characters of a reason
ASK_AGAIN = 5.0  # seconds before a node that did not answer well is asked again


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
        η, of all rounds or as a function of the round (counted from 0), and E, of which updates
        show the clients' gradient norms.
    server_step
        How the estimate of a round moves the model: `Plain`, or `Momentum`.
    norm_cap, most_samples
        The largest norm of an update, and the most samples a client may declare.
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
        learning_rate: Callable[[int], float] | float,
        local_steps: int,
        server_step: ServerStep | None = None,
        norm_cap: float = 1e6,
        most_samples: int = 1 << 40,
        wait: float = 120.0,
        round_timeout: float = 600.0,
        at_once: int = 0,
        evaluate_clients: bool = False,
        fund: bool = False,
        task: str = "0" * 64,
    ) -> None:
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        self.run, self.key, self.pricing, self.clients, self.keys = run, key, pricing, clients, keys
        if callable(learning_rate):
            self.learning_rate = learning_rate
        else:
            rate = float(learning_rate)
            self.learning_rate = lambda _: rate
        self.local_steps = local_steps
        if type(at_once) is not int or at_once < 0:
            raise InputError(f"`at_once` must be a whole number, at least 0; got {at_once!r}.")
        self.server_step = server_step or Plain()
        self.norm_cap, self.wait, self.round_timeout = norm_cap, wait, round_timeout
        self.at_once, self.most_samples = at_once, most_samples
        self.evaluate_clients, self.fund, self.task = evaluate_clients, fund, task
        self.market: MarketRun | None = None
        self._public = dict(keys or {})  # registered, or seen first
        self._profiles: dict[str, Profile] = {}
        self._nodes: dict[str, int] = {}
        self._questions: dict[str, tuple[int, str]] = {}  # by message: node and nonce
        self._quiet: dict[int, float] = {}  # nodes that are no clients, and when to ask again
        self._turned_away = ""
        self._sent: list[tuple[str, Message]] = []
        self._evaluated: list[tuple[str, Message]] = []
        self._names: list[str] = []
        self._model: Arrays = []
        self._dtypes: list[np.dtype[Any]] = []

    def summary(self) -> None:
        """Log what this strategy does."""
        _log.info("\tPricedParticipation: run %s, ledger %s", self.run, self.ledger.name)

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
        if not all(array.dtype.kind in "fiu" for array in initial):
            raise InputError("a model is made of arrays of real numbers.")
        self._dtypes = [array.dtype.newbyteorder("<") for array in initial]
        self._model = [array.astype(np.float64) for array in initial]
        schema = ModelSchema.of(self._rounded(), self._names)
        opened = self.ledger.opening(self.run)
        if opened is not None:
            agreement, budget = Agreement.load(self.run, opened), int(opened["budget"])
            same = (agreement.rounds, agreement.schema, agreement.server, agreement.task)
            wanted = getattr(self.pricing, "budget", None)
            other = wanted is not None and micro_units(wanted) != budget
            if other or same != (num_rounds, schema, self.key.public, self.task):
                raise InputError(
                    f"run {self.run!r} in {self.ledger.name} was begun with other rounds, or "
                    "another budget, model, key or task; take another name for the run."
                )
            self._public = dict(agreement.keys)
            self._await_profiles(grid, len(agreement.deals), enough=0)
        else:
            self._await_profiles(grid, self.clients, enough=self.clients)
            agreement, budget = self._agreement(grid, schema, num_rounds)
        self.market = MarketRun(self.ledger, agreement, budget, norm_cap=self.norm_cap)
        start = self.market.round
        _log.info("run %s: %s clients, from round %s", self.run, len(agreement.deals), start)
        if start == num_rounds:
            _log.warning("run %s is over; nothing is left to train", self.run)
        if start:
            self._restore(self.market)
        return to_record(self._names, self._rounded())

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return calls to those whose coin shows heads; nobody else hears of the round."""
        market = self._market()
        self._learn(grid)  # whoever came back has another node id
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
                arrays = self._checked(reply, client)
                signed = signed_of(market_fields(reply.content), "update")
            except RefusedError as error:
                market.refuse(client, str(error))
                continue
            if market.accept(
                client,
                signed,
                arrays,
                learning_rate=self.learning_rate(market.round),
                local_steps=self.local_steps,
            ):
                updates[client] = arrays
        self._move([(market.weight(n), updates[n]) for n in market.agreement.deals if n in updates])
        metrics = MetricRecord({"called": len(self._sent), "joined": len(updates)})
        kept = io.BytesIO()
        named = {f"model.{i}": array for i, array in enumerate(self._model)}
        named |= {f"step.{i}": array for i, array in enumerate(self.server_step.state)}
        np.savez(kept, **named)  # type: ignore[arg-type]
        model = self._rounded()
        for client, reason in market.refused.items():
            _log.warning("round %s: the update of %s is refused: %s", server_round, client, reason)
        market.close_round(arrays_hash(model), kept.getvalue())
        return to_record(self._names, model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return a question to each client, if clients evaluate."""
        self._evaluated = []
        if self.evaluate_clients:
            own = ConfigRecord(dict(config) | {"server-round": server_round})
            content = RecordDict({"arrays": arrays, "config": own})
            self._evaluated = [
                (client, self._message(content, self._nodes[client], "evaluate", str(server_round)))
                for client in self._market().agreement.deals
                if client in self._nodes
            ]
        return [message for _, message in self._evaluated]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the clients' metrics, weighted by the samples that they agreed on."""
        senders = {message.metadata.message_id: client for client, message in self._evaluated}
        terms = self._market().agreement.terms
        sums: dict[str, float] = {}
        weights: dict[str, float] = {}
        for reply in replies:
            client = senders.pop(reply.metadata.reply_to_message_id, None)
            if client is None or reply.has_error():
                continue
            for record in reply.content.metric_records.values():
                for name, value in record.items():
                    if isinstance(value, int | float) and math.isfinite(value):
                        weight = terms[client].samples
                        sums[name] = sums.get(name, 0.0) + weight * value
                        weights[name] = weights.get(name, 0.0) + weight
        means = MetricRecord()
        for name, total in sums.items():
            if weights[name]:
                means[name] = total / weights[name]
        return means or None

    def _checked(self, reply: Message, client: str) -> Arrays:
        """Return the arrays of a reply that may be looked at further; refuse it otherwise."""
        if reply.has_error():
            # For the operator's eyes; what strangers say is not for the ledger.
            _log.warning("the program of %s failed: %.200s", client, reply.error.reason)
            raise RefusedError(f"its program failed (Flower's code {reply.error.code}).")
        try:
            record = the_arrays(reply.content)
            if list(record.keys()) != self._names:
                raise RefusedError("its arrays have other names.")
            arrays = arrays_of(record)
            largest = max((float(np.abs(a).max(initial=0)) for a in arrays), default=0.0)
        except RefusedError:
            raise
        except Exception as error:  # whatever somebody made of a message
            raise RefusedError("it cannot be read.") from error
        market = self._market()
        room = min(_largest(kind) for kind in self._dtypes) / (4 * len(market.agreement.deals))
        if largest * market.weight(client) >= room:
            raise RefusedError("it is too large for the numbers of the model.")
        return arrays

    def _agreement(self, grid: Grid, schema: ModelSchema, rounds: int) -> tuple[Agreement, int]:
        """Price the clients, make offers, and take their commitments."""
        # Names of equal length in order, so that 10 comes after 9: the order of the model's sum.
        names = sorted(self._profiles, key=lambda name: (len(name), name))
        profiles = [self._profiles[name] for name in names]
        priced = self.pricing(profiles, rounds)
        offers = make_offers(
            self.key,
            self.run,
            dict(zip(names, priced.terms, strict=True)),
            rounds=rounds,
            unit=self.ledger.unit,
            schema=schema,
            task=self.task,
            impacts=dict(zip(names, priced.impacts, strict=True)),
        )
        desk = Commitments(offers, self._public, self.key.public)
        asked: list[tuple[str, Message]] = []
        for name in names:
            content = RecordDict({MARKET: market_record(**signed_fields("offer", offers[name]))})
            asked.append((name, self._message(content, self._nodes[name], "query.offer", "offer")))
        for name, reply in self._answers(grid, asked):
            try:
                if reply.has_error():
                    raise RefusedError(str(reply.error.reason))
                signed = signed_of(market_fields(reply.content), "commitment")
                commitment: Commitment = signed.open(Commitment, self._public[name])
                profile = self._profiles[name]
                declared = (profile.samples, f"{float(profile.grad_norm):.6g}")
                if (commitment.samples, commitment.grad_norm) != declared:
                    raise RefusedError("it commits to other data than it was priced for.")
                desk.accept(name, signed, round_=0)
            except RefusedError as error:
                _log.warning("no commitment of %s: %.200s", name, error)
        agreement = Agreement.seal(self.key, offers, desk)
        if self.fund:
            fund_run(self.ledger, agreement, priced.budget)
        return agreement, priced.budget

    def _await_profiles(self, grid: Grid, wanted: int, *, enough: int) -> None:
        """Ask who is there until all wanted have answered, or time is up."""
        until = time.monotonic() + self.wait
        while True:
            self._learn(grid)
            if len(self._nodes) >= wanted or time.monotonic() > until:
                break
            time.sleep(0.2)
        if len(self._nodes) < enough:
            why = f" The last one turned away: {self._turned_away}" if self._turned_away else ""
            raise InputError(f"only {len(self._nodes)} of {enough} clients showed up.{why}")

    def _learn(self, grid: Grid) -> None:
        """Ask nodes that are not known who they are, and take in the answers that are there."""
        now, online = time.monotonic(), set(grid.get_node_ids())
        busy = {*self._nodes.values(), *(node for node, _ in self._questions.values())}
        for node in sorted(online - busy):
            if self._quiet.get(node, 0.0) > now:
                continue
            nonce = secrets.token_hex(16)
            fields = signed_fields("question", self.key.sign(Question(self.run, nonce)))
            content = RecordDict({MARKET: market_record(**fields)})
            message = self._message(content, node, "query.profile", "profile")
            if any(grid.push_messages([message])):
                self._questions[message.metadata.message_id] = node, nonce
        replies = {
            r.metadata.reply_to_message_id: r for r in grid.pull_messages([*self._questions])
        }
        for name, (node, nonce) in list(self._questions.items()):
            if name not in replies:
                continue
            del self._questions[name]
            try:
                self._meet(replies[name], node, nonce, online)
            except FedpriceError as error:
                self._quiet[node] = now + ASK_AGAIN
                if self._turned_away != str(error)[:LONGEST]:  # once is enough
                    self._turned_away = str(error)[:LONGEST]
                    _log.warning("node %s is not in the market: %s", node, self._turned_away)

    def _meet(self, reply: Message, node: int, nonce: str, online: set[int]) -> None:
        """Take in who a node says it is, or refuse it."""
        if reply.has_error():
            raise RefusedError(str(reply.error.reason))
        signed = signed_of(market_fields(reply.content), "profile")
        profile: Profile = signed.open(Profile, signed.key)
        if (profile.run, profile.nonce) != (self.run, nonce):
            raise RefusedError("its profile answers another question.")
        if profile.samples > self.most_samples:
            raise RefusedError(f"it declares more than {self.most_samples} samples.")
        known = self._public.get(profile.client)
        closed = self.keys is not None or self.market is not None
        if (closed and known is None) or known not in (None, signed.key):
            raise RefusedError(f"{profile.client!r} is registered with another key.")
        if self._nodes.get(profile.client) in online:
            raise RefusedError(f"{profile.client!r} is here already, at another node.")
        self._public[profile.client] = signed.key
        self._nodes[profile.client] = node
        self._profiles[profile.client] = profile

    def _answers(
        self, grid: Grid, asked: list[tuple[str, Message]]
    ) -> Iterable[tuple[str, Message]]:
        replies = self._exchange(grid, [message for _, message in asked])
        # Errors of dead nodes come from the SuperLink: what they answer says whose they are.
        by_id = {reply.metadata.reply_to_message_id: reply for reply in replies}
        for name, message in asked:
            if (reply := by_id.get(message.metadata.message_id)) is not None:
                yield name, reply

    def _exchange(self, grid: Grid, messages: list[Message]) -> list[Message]:
        """Send messages and return the replies that come in time.

        Flower's own `send_and_receive` looks for replies every three seconds only.
        """
        left, replies, pause = list(messages), list[Message](), 0.02
        waiting: dict[str, float] = {}  # by message: until when
        while left or waiting:
            room = (self.at_once or len(messages)) - len(waiting)
            some, left = left[: max(room, 0)], left[max(room, 0) :]
            until = time.monotonic() + self.round_timeout
            if some:
                waiting |= {name: until for name in grid.push_messages(some) if name}
            for reply in grid.pull_messages([*waiting]):
                waiting.pop(reply.metadata.reply_to_message_id, None)
                replies.append(reply)
            now = time.monotonic()
            waiting = {name: until for name, until in waiting.items() if until > now}
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
        if not all(np.isfinite(w).all() for w in self._rounded()):
            raise InputError(
                f"the model of run {self.run!r} is no longer finite; lower the learning rate, or "
                "set a norm cap."
            )

    def _rounded(self) -> Arrays:
        """Return the model as clients get it, in its own precision."""
        with np.errstate(over="ignore"):  # what is not finite is found right after
            return [
                w.astype(kind)
                if kind.kind == "f"
                else np.clip(np.rint(w), np.iinfo(kind).min, np.iinfo(kind).max).astype(kind)
                for w, kind in zip(self._model, self._dtypes, strict=True)
            ]

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


def _largest(kind: np.dtype[Any]) -> float:
    return float(np.finfo(kind).max) if kind.kind == "f" else float(np.iinfo(kind).max)


def _estimate(like: Arrays, weighted: list[tuple[float, Arrays]]) -> Arrays:
    factors = np.array([weight for weight, _ in weighted])
    return [
        weighted_sum(
            factors,
            np.array([arrays[i].ravel() for _, arrays in weighted]).reshape(len(weighted), w.size),
        ).reshape(w.shape)
        for i, w in enumerate(like)
    ]
