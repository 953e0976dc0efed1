"""`PricedParticipation`: a Flower strategy that buys participation and pays for it.

A run is a chain of periods, each: profile → price → offer → commit → rounds → settle. Only clients
whose coin shows heads are contacted in a round; their updates go through the round loop that the
engine uses too, and the ledger records the round. To it, the model is just a list of
arrays.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result, Strategy

from fedprice.arrays import LARGE, each_meanwhile
from fedprice.errors import InputError, UndeliveredError
from fedprice.flower.agreements import Agreements
from fedprice.flower.evaluation import LossWatch, mean_metrics, metrics_of, tell_unusual
from fedprice.flower.exchange import Exchange, Limits, answered
from fedprice.flower.identity import server_here
from fedprice.flower.intake import Intake, without_arrays
from fedprice.flower.presence import Presence
from fedprice.flower.receipts import Receipts
from fedprice.flower.suitable import require_mean, require_numbers, takes_mean
from fedprice.flower.wire import MARKET, arrays_of, hash_of_record, market_record, to_record
from fedprice.flower.wrapped import Wrapped
from fedprice.learning.layout import Layout, buffers_among
from fedprice.market.ledger import Ledger
from fedprice.market.messages import require_name
from fedprice.market.participation import market_rounds, state_after
from fedprice.market.periods import Periods, at_their_caps
from fedprice.market.run import MarketRun
from fedprice.rounds import Memory, Plain
from fedprice.rounds.aggregation import Outside
from fedprice.rounds.loop import group
from fedprice.verify import period_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flwr.app import Context
    from flwr.serverapp import Grid

    from fedprice.arrays import Arrays
    from fedprice.flower.pricing import Pricing
    from fedprice.learning.task import Updates
    from fedprice.market.messages import SigningKey
    from fedprice.rounds import Aggregator, Rounds, ServerStep
    from fedprice.rounds.loop import Round

__all__ = ["PricedParticipation"]

_log = logging.getLogger("flwr")  # the log of a Flower app
SILENT = 3  # a run is stopped after this many rounds in a row in which nobody delivers
NOBODY = 0  # no node has this id
RECEIPT_WAIT = 10.0  # seconds to wait for clients to take their last receipts


class PricedParticipation(Strategy):
    """Buys participation, trains with the clients that join, and pays through a ledger.

    Parameters
    ----------
    ledger, run
        The ledger, and the name of the run. A run that it already has is resumed.
    key, keys
        The server's signing key, from which its coin secrets follow; and the registered public keys
        by client; None accepts any client.
    pricing, periods
        How offers are made: `FullInformation`, `PostedTariffs` or `PostedPrice`; and how the rounds
        are split into periods, each of which is priced separately; by default one period.
    clients, quorum
        How many to wait for before the first offers go out, None for all nodes that are online; and
        how many suffice once `limits.wait` seconds are over, by default all that `clients` says.
        Clients that come later, or come back, may join the next period.
    aggregator, server_step
        How updates become an estimate, by default `Memory` (docs/stability.md), and the
        estimate a change of the model.
    strategy
        A Flower strategy, such as `FedAdam()`, that decides what is sent and replaces the server
        step: the estimate reaches it as one reply of weight 1. Unless `aggregator` is given,
        strategies other than Flower's averages and optimisers also replace the aggregator, and get
        each update with our weight; those that need this refuse an aggregator. Coins still decide
        who trains.
    buffers
        Patterns of the names of the model's buffers, which are averaged over the clients that
        joined, such as "*.running_*"; by default recognised by name or type (`buffers_among`).
    learning_rate, local_steps
        η, for all rounds or as a function of the round (counted from 0), and E, where the app has
        them: updates then also show norms of gradients.
    limits
        How long to wait, how many messages to send at once, and the largest update.
    evaluate_clients
        Whether clients evaluate the model after each round; by default if `strategy` would ask
        them to.
    fund
        Whether to deposit the money that the run needs (simulations); otherwise the treasury and
        payers must have it.
    task
        Hash of what else determines the training, for the ledger.
    seed
        For simulations that can be repeated: offers and coins then follow from it and the keys, and
        offers never expire. None, for any other run, draws numbers that nobody can know in advance.
    beacon
        The name of a public value that nobody can know before the clients have committed, such as
        "the first value of drand after all commitments", and a function that returns it when a
        period is opened.
    """

    started = 0  # how many were started in this process

    def __init__(
        self,
        ledger: Ledger | str,
        run: str,
        *,
        key: SigningKey,
        pricing: Pricing,
        clients: int | None = None,
        quorum: int | None = None,
        keys: Mapping[str, bytes] | None = None,
        periods: Periods | None = None,
        aggregator: Aggregator | None = None,
        server_step: ServerStep | None = None,
        strategy: Strategy | None = None,
        buffers: Sequence[str] | None = None,
        learning_rate: Callable[[int], float] | float | None = None,
        local_steps: int | None = None,
        limits: Limits | None = None,
        evaluate_clients: bool | None = None,
        fund: bool = False,
        task: str = "0" * 64,
        seed: int | None = None,
        beacon: tuple[str, Callable[[], str]] | None = None,
    ) -> None:
        if (learning_rate is None) != (local_steps is None):
            raise InputError("give both `learning_rate` and `local_steps`, or neither.")
        if quorum is not None and not 1 <= quorum <= (clients or quorum):
            most = "the clients" if clients is None else f"{clients}, the clients"
            raise InputError(f"`quorum` must be 1 to {most}; got {quorum!r}.")
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger, key=key)
        self.run, self.key, self.pricing, self.clients = run, key, pricing, clients
        self.quorum = quorum or clients or 1
        self.periods, self.limits = periods or Periods(), limits or Limits()
        self.strategy = None if strategy is None else Wrapped(strategy)
        if strategy is not None and server_step:
            raise InputError("`strategy` takes the server's step; leave `server_step` out.")
        if strategy is not None and aggregator:
            require_mean(strategy)
        whole = strategy is not None and not aggregator and not takes_mean(strategy)
        self._outside = self.strategy if whole else None  # a strategy that aggregates, too
        own = Memory() if self._outside is None else Outside(self._outside.name)
        self.aggregator: Aggregator = aggregator or own
        step = Plain() if self.strategy is None else Plain(self.strategy.name)
        self.server_step = server_step or step
        self.buffers = buffers
        pricing.require_same(self.aggregator, self.server_step)
        self.learning_rate, self.local_steps = learning_rate, local_steps
        self.evaluate_clients = evaluate_clients
        self.fund, self.task = fund, task
        self.seed, self.beacon = seed, beacon
        self.market: MarketRun | None = None
        self.exchange = Exchange(self.limits.round_timeout, self.limits.at_once)
        self.presence = Presence(run, key, keys, self.limits, self.exchange)
        self._names: list[str] = []
        self._initial: Arrays = []
        self._layout = Layout.of([])
        self._plan: list[int] = []
        self._period = 0  # counted from 1
        self._loop: Rounds | None = None
        self._round: Round | None = None
        self._called: list[tuple[str, Message]] = []
        self._evaluated: list[tuple[str, Message]] = []
        self.receipts: Receipts | None = None
        self._losses = LossWatch()
        self._differs: set[str] = set()
        self._silent = 0  # rounds in a row in which no client that drew heads delivered
        self._failing: set[str] = set()  # the clients that drew heads in them

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
        """Run the market: agree, train, pay, settle; resume where the ledger ends.

        Parameters
        ----------
        grid, initial_arrays, num_rounds, train_config, evaluate_config, evaluate_fn
            As for any strategy of Flower.
        timeout
            The most seconds for the replies of a round, if less than the limit.
        """
        started = time.monotonic()
        PricedParticipation.started += 1
        self.exchange.timeout = min(self.limits.round_timeout, timeout)
        _log.info("Starting %s strategy:", type(self).__name__)
        self.summary()
        result, arrays = Result(), self.agree(grid, initial_arrays, num_rounds)

        def judge(server_round: int, proposed: ArrayRecord) -> MetricRecord | None:
            found = None if evaluate_fn is None else evaluate_fn(server_round, proposed)
            if found is not None:
                _log.info("Global evaluation\n\t└──> MetricRecord: %s", found)
                tell_unusual(f"round {server_round}", found)
                result.evaluate_metrics_serverapp[server_round] = found
                self._losses.look(server_round, found, self._rounds(), self._round)
            return found

        self._keep("server", judge(self.done, arrays))
        while self.done < num_rounds:
            if self._over():
                arrays = self._next_period(grid)
            server_round, config = self.done + 1, train_config or ConfigRecord()
            _log.info("")
            _log.info("[ROUND %s/%s]", server_round, num_rounds)
            sent = self.configure_train(server_round, arrays, config, grid)
            arrays, metrics = self._proposed(self.exchange.stream(grid, sent))
            found = judge(server_round, arrays)
            self._close()
            self._keep("train", metrics)
            self._keep("server", found)
            result.train_metrics_clientapp[server_round] = metrics
            self._require_deliveries(grid, server_round == num_rounds)
            config = evaluate_config or ConfigRecord()
            sent = self.configure_evaluate(server_round, arrays, config, grid)
            found = self.aggregate_evaluate(server_round, self.exchange.replies(grid, sent))
            if found:
                self._keep("clients", found)
                result.evaluate_metrics_clientapp[server_round] = found
        self._settle(grid)
        result.arrays = arrays
        _log.info("Strategy execution finished in %.2fs", time.monotonic() - started)
        _log.info("Final results:\n%s", result)
        return result

    def _keep(self, who: str, metrics: MetricRecord | None) -> None:
        """Store metrics in the ledger, outside its chain; a failure to store them stops no run."""
        try:
            if metrics:
                self.ledger.record_metrics(self._name(), self.done, who, dict(metrics))
        except InputError as error:
            _log.warning("round %s: metrics are not kept: %s", self.done, error)

    def _require_deliveries(self, grid: Grid, is_last: bool) -> None:
        """Stop a run in which nobody delivers; if nobody ever did, return the remaining money."""
        # Fewer than half of the clients cannot stop a run to which the others would deliver.
        most = 2 * len(self._failing) > len(self._market().agreement.deals)
        if not (self._silent >= SILENT and most) and not (is_last and self._silent):
            return
        periods = [period_of(self.run, number) for number in range(1, self._period + 1)]
        clients = [own for name in periods for own in self.ledger.run(name).clients.values()]
        if any(client.joined for client in clients):
            if is_last:
                return
            raise UndeliveredError(
                f"run {self.run!r}: nobody has delivered in {self._silent} rounds. See the log for "
                "the reasons; to resume the run, start it again."
            )
        self._settle(grid)
        reasons = [
            f"{client}: {reason}"
            for name in periods
            for entry in self.ledger.entries(name)
            for client, (reason, *_) in entry.content.get("refused", {}).items()
        ]
        raise UndeliveredError(
            f"run {self.run!r} was stopped and settled after round {self.done}: nobody delivered, "
            "and what was not paid went back. "
            + (f"The last reason, of client {reasons[-1]}" if reasons else "All calls were missed.")
        )

    @property
    def done(self) -> int:
        """Rounds done, of all periods."""
        return sum(self._plan[: self._period - 1]) + (self._loop.done if self._loop else 0)

    def agree(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> ArrayRecord:
        """Reach an agreement with the clients, or resume the one in the ledger.

        Returns the model to continue from.
        """
        self.ledger.use_key(self.key)
        self.presence.know(self.ledger.books.keys)
        self._names, self._initial = list(initial_arrays.keys()), arrays_of(initial_arrays)
        buffers = buffers_among(self._initial, self._names, self.buffers)
        self._layout = Layout.of(self._initial, buffers)
        require_numbers(initial_arrays, None if self._outside is None else self._outside.strategy)
        self._plan = self.periods.split(num_rounds)
        require_name("run", period_of(self.run, len(self._plan)))
        self._agreements = Agreements(
            ledger=self.ledger,
            run=self.run,
            key=self.key,
            pricing=self.pricing,
            periods=self.periods,
            limits=self.limits,
            clients=self.clients,
            quorum=self.quorum,
            fund=self.fund,
            task=self.task,
            seed=self.seed,
            beacon=self.beacon,
            plan=self._plan,
            names=self._names,
            initial=self._initial,
            layout=self._layout,
            reach=self._reach,
        )
        self._period = 1
        while self.ledger.is_settled(self._name()):
            self._agreements.taken_up(self._period)
            if self.ledger.rounds_done(self._name()) < self._plan[self._period - 1]:
                raise InputError(
                    f"run {self._name()!r} was settled before its rounds were over; choose another "
                    "name for the run."
                )
            if self._period == len(self._plan):
                break
            self._period += 1
        return self._enter(grid)

    def _next_period(self, grid: Grid) -> ArrayRecord:
        """Settle the period that is over, and start the next one with the present clients."""
        self._settle(grid)
        self._period += 1
        self.presence.renew(grid)
        return self._enter(grid)

    def _enter(self, grid: Grid) -> ArrayRecord:
        """Open or resume the current period; return the model to continue from."""
        before = [period_of(self.run, n) for n in range(1, self._period)]
        agreement = self._agreements.taken_up(self._period)
        if agreement is not None:
            self.presence.close(agreement.keys)
            self.presence.gather(grid, len(agreement.deals), enough=0)
        else:
            agreement = self._agreements.reached(self._period, grid, self.exchange, self.presence)
            self.presence.close(agreement.keys)
        self.market = MarketRun(self.ledger, agreement)
        self.receipts = Receipts(self.ledger, self.key, agreement)
        self._intake = Intake(self.market, self._names, self._layout, self._outside)
        left = state_after(self.ledger, before[-1], self._layout) if before else None
        self._loop = market_rounds(
            self.market,
            self._initial,
            aggregator=self.aggregator,
            server_step=self.server_step,
            admit=None,  # the intake checks updates before they arrive
            before=left,
        )
        if self.strategy is not None:
            notes = self._loop.notes if self._loop.done else group(left or {}, "notes")
            self.strategy.restore(group(notes, "strategy"))
        clients, first = len(agreement.deals), self.done + 1
        _log.info("run %s: %s clients, from round %s", self._name(), clients, first)
        if self.done == sum(self._plan):
            _log.warning("run %s is over; nothing is left to train", self.run)
        return to_record(self._names, self._loop.model)

    def _settle(self, grid: Grid) -> None:
        """Close a period, and give every client its last receipt and the last head."""
        self._market().settle()
        if capped := at_their_caps(self.ledger, self._name()):
            _log.warning("updates are as large as their caps allow: %s", ", ".join(capped))
        proofs, nodes = self._proofs(), self.presence.nodes
        head = proofs.head()
        sent = [
            self.exchange.message(
                RecordDict({MARKET: market_record(**proofs.fields(client, head))}),
                nodes[client],
                "query.receipt",
                "receipt",
            )
            for client in self._market().agreement.deals
            if client in nodes
        ]
        self.exchange.replies(grid, sent, within=RECEIPT_WAIT)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return calls to the clients whose coin shows heads; no others are contacted."""
        market, loop = self._market(), self._rounds()
        self.presence.learn(grid)  # a client that came back has another node id
        online = self.exchange.online(grid)
        self._round = loop.begin()
        model = hash_of_record(arrays)
        self._called, proofs = [], self._proofs()
        head, nodes = proofs.head(), self.presence.nodes
        heads = self._round.heads.tolist()
        reached = [n for n in heads if nodes.get(loop.ids[n]) in online]
        asked = [nodes[loop.ids[n]] for n in reached]
        if not asked and self._outside is None:
            asked = [NOBODY]  # a strategy takes a step by the estimate in any round
        contents = self._contents("train", server_round, arrays, config, asked)
        for client in (loop.ids[n] for n in reached):
            node = nodes[client]
            call = market_record(**proofs.call(client, market.round, model, head))
            content = RecordDict({**contents[node], MARKET: call})
            message = self.exchange.message(content, node, "train", str(server_round))
            self._called.append((client, message))
        self._round.expect(np.array(reached, np.int64))
        if self.strategy is None:  # a strategy logs this itself
            _log.info("configure_train: Sampled %s nodes (out of %s)", len(reached), len(loop.ids))
        return [message for _, message in self._called]

    def _contents(
        self,
        kind: Literal["train", "evaluate"],
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        nodes: list[int],
    ) -> dict[int, RecordDict]:
        """Return what is sent to each node in addition to the market's record."""
        if self.strategy is not None:
            ask = self.strategy.train_contents
            ask = ask if kind == "train" else self.strategy.evaluate_contents
            return ask(server_round, arrays, config, nodes)
        own = ConfigRecord(dict(config) | {"server-round": server_round})
        return dict.fromkeys(nodes, RecordDict({"arrays": arrays, "config": own}))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Check the updates, move the model, and record the round."""
        proposed = self._proposed(replies)
        self._close()
        return proposed

    def _proposed(self, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """Process the updates of a round; return the model that they propose, and who joined."""
        market, loop, round_ = self._market(), self._rounds(), self._round
        if round_ is None:
            raise InputError("no round is under way; call `configure_train` first.")
        numbers = {client: n for n, client in enumerate(loop.ids)}
        taken = list[tuple[str, Message]]()
        reach = self._reach(self.done)

        def check(answer: tuple[str, Message]) -> tuple[str, Message, Updates] | None:
            client, reply = answer
            updates = self._intake.check(client, reply, round_.model, reach)
            if updates is None:
                return None
            # The arrays are in the updates, unless a strategy aggregates them.
            return client, reply if self._outside is not None else without_arrays(reply), updates

        def add(checked: tuple[str, Message, Updates] | None) -> None:
            if checked is not None:
                client, reply, updates = checked
                round_.arrive(np.array([numbers[client]]), updates)
                taken.append((client, reply))

        # While a large update is checked, the next one is on its way.
        large = self._layout.size >= LARGE
        each_meanwhile(answered(self._called, replies), check, add, large=large)
        for client, own in market.refused.items():
            why = own.reason
            _log.warning("round %s: the update of %s is refused: %s", self.done + 1, client, why)
        called = len(self._called)
        failed = called - len(taken)
        if self._outside is None:
            _log.info("aggregate_train: Received %s results and %s failures", len(taken), failed)
        self._compare_samples(taken)
        self._silent = 0 if taken else self._silent + bool(round_.heads.size)
        drew = {loop.ids[n] for n in round_.heads.tolist()}
        self._failing = set() if taken else self._failing | drew
        metrics = self._aggregated(round_, taken) or MetricRecord()
        _log.info("\t└──> Aggregated MetricRecord: %s", metrics)
        tell_unusual(f"round {self.done + 1}", metrics)
        counts = {"called": called, "joined": len(taken)}
        return to_record(self._names, round_.propose()), MetricRecord({**metrics, **counts})

    def _compare_samples(self, taken: list[tuple[str, Message]]) -> None:
        """Warn once about each client that trains on another number of samples than agreed."""
        for client, reply in taken:
            agreed = self._market().agreement.terms[client].samples
            used = metrics_of(reply).get("num-examples", agreed)
            if used != agreed and client not in self._differs:
                self._differs.add(client)
                _log.warning("%s agreed on %s samples and trains on %.40r", client, agreed, used)

    def _aggregated(self, round_: Round, taken: list[tuple[str, Message]]) -> MetricRecord | None:
        """Return the metrics of the clients that trained; let a strategy make the model."""
        market = self._market()
        if self.strategy is None:
            return mean_metrics(taken, market.agreement.terms)
        kept = zip(self._names, self._layout.buffers, strict=True)
        buffers = [name for name, is_buffer in kept if is_buffer]
        if self._outside is not None:
            weighted = [
                (self._intake.with_weights(reply, round_.model), market.weight(client))
                for client, reply in taken
            ]
            model, metrics = self._outside.aggregate(self.done + 1, weighted, buffers)
        else:
            mean, replies = to_record(self._names, round_.propose()), [own for _, own in taken]
            model, metrics = self.strategy.step(self.done + 1, mean, replies, buffers)
        round_.take(round_.model if model is None else arrays_of(model))
        notes = self._rounds().notes
        for name in [name for name in notes if name.startswith("strategy.")]:
            del notes[name]
        notes |= {f"strategy.{name}": array for name, array in self.strategy.state().items()}
        return metrics

    def _close(self) -> None:
        if self._round is not None:
            receipts, proofs = self._market().receipts(), self._proofs()
            self._round.close()
            proofs.add(receipts)
            for client, _ in self._called:
                if client not in receipts or receipts[client].refused:
                    proofs.forget(client)
            self._round = None

    def _reach(self, done: int) -> float | None:
        rate = self.learning_rate
        if rate is None or self.local_steps is None:
            return None
        return (rate(done) if callable(rate) else float(rate)) * self.local_steps

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return an evaluation request to each client, if clients evaluate."""
        clients, nodes = self._market().agreement.deals, self.presence.nodes
        wanted = self.evaluate_clients
        if wanted is None:
            wanted = self.strategy is not None and self.strategy.evaluates
        online = self.exchange.online(grid) if wanted else set()
        asked = [client for client in clients if nodes.get(client) in online]
        contents = self._contents(
            "evaluate", server_round, arrays, config, [nodes[client] for client in asked]
        )
        self._evaluated = [
            (
                client,
                self.exchange.message(
                    contents[nodes[client]], nodes[client], "evaluate", str(server_round)
                ),
            )
            for client in asked
            if nodes[client] in contents
        ]
        return [message for _, message in self._evaluated]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the clients' metrics, averaged as Flower does."""
        answers = list(answered(self._evaluated, replies))
        if not self._evaluated:
            return None
        failed = len(self._evaluated) - sum(not reply.has_error() for _, reply in answers)
        got = len(self._evaluated) - failed
        if self.strategy is None:
            _log.info("aggregate_evaluate: Received %s results and %s failures", got, failed)
        if self.strategy is not None:
            found = self.strategy.aggregate_evaluate(server_round, [r for _, r in answers])
        else:
            found = mean_metrics(answers, self._market().agreement.terms)
        if found:
            _log.info("\t└──> Aggregated MetricRecord: %s", found)
            tell_unusual(f"round {server_round}", found)
        return found

    def _over(self) -> bool:
        return self._rounds().done == self._rounds().total

    def _name(self) -> str:
        return period_of(self.run, self._period)

    def _market(self) -> MarketRun:
        if self.market is None:
            raise InputError("no agreement yet; call `start`, or `agree` before the first round.")
        return self.market

    def _proofs(self) -> Receipts:
        if self.receipts is None:
            raise InputError("no agreement yet; call `start`, or `agree` before the first round.")
        return self.receipts

    def _rounds(self) -> Rounds:
        if self._loop is None:
            raise InputError("no agreement yet; call `start`, or `agree` before the first round.")
        return self._loop

    @classmethod
    def of(cls, context: Context, pricing: Pricing, **changes: Any) -> Self:
        """Return the strategy that the settings and the server's environment describe.

        Without the setting `keys` it is a simulation with invented money. Where prices need norms,
        these are measured in the first tenth of the rounds.

        Parameters
        ----------
        context
            The server's context; see `fedprice.flower.identity.server_here` for the settings.
        pricing
            How offers are made.
        changes
            Any parameter of this class, to be used instead.
        """
        if "strategy" not in changes:
            changes.setdefault("evaluate_clients", True)  # as Flower's FedAvg does
        if pricing.needs_norms:
            changes.setdefault("periods", Periods(warm_up=0.1))
        return cls(pricing=pricing, **server_here(context, **changes))
