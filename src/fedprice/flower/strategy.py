"""`PricedParticipation`: a Flower strategy that buys participation and pays for it.

A run is a chain of periods, each: profile → price → offer → commit → rounds → settle. Only clients
whose coin shows heads are contacted in a round; their updates go through the round loop that the
engine uses too, and the ledger records the round. To it, the model is just a list of
arrays.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Self

from flwr.app import Message, MetricRecord, RecordDict

from fedprice.errors import InputError, UndeliveredError
from fedprice.flower.agreements import Agreements
from fedprice.flower.evaluation import metrics_of
from fedprice.flower.identity import server_here
from fedprice.flower.intake import SignedIntake
from fedprice.flower.participation import SILENT, Participation
from fedprice.flower.presence import Presence
from fedprice.flower.receipts import Receipts
from fedprice.flower.wire import MARKET, hash_of_record, market_record, to_record
from fedprice.market.ledger import Ledger
from fedprice.market.messages import require_name
from fedprice.market.participation import market_rounds, state_after
from fedprice.market.periods import Periods, at_their_caps, paid_in
from fedprice.market.run import MarketRun
from fedprice.rounds.loop import group
from fedprice.verify import period_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from flwr.app import ArrayRecord, ConfigRecord, Context
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Strategy

    from fedprice._plumbing.arrays import Arrays
    from fedprice.flower.exchange import Limits
    from fedprice.flower.pricing import Pricing
    from fedprice.learning.task import Updates
    from fedprice.market.agreement import Agreement
    from fedprice.market.messages import SigningKey
    from fedprice.rounds import Aggregator, ServerStep
    from fedprice.rounds.loop import Round
    from fedprice.trackers import Tracker

__all__ = ["PricedParticipation"]

_log = logging.getLogger("flwr")  # the log of a Flower app
MOST_NAMED = 20  # in a line
RECEIPT_WAIT = 10.0  # seconds to wait for clients to take their last receipts


class PricedParticipation(Participation):
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
    tracker
        As for `Participation`, with what was paid.
    """

    _evaluates = False

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
        tracker: Tracker | None = None,
    ) -> None:
        if (learning_rate is None) != (local_steps is None):
            raise InputError("give both `learning_rate` and `local_steps`, or neither.")
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger, key=key)
        self.run, self.key, self.pricing = run, key, pricing
        self.periods = periods or Periods()
        self._set(
            clients=clients,
            quorum=quorum,
            aggregator=aggregator,
            server_step=server_step,
            strategy=strategy,
            buffers=buffers,
            limits=limits,
            evaluate_clients=evaluate_clients,
        )
        pricing.require_same(self.aggregator, self.server_step)
        self.learning_rate, self.local_steps = learning_rate, local_steps
        self.fund, self.task = fund, task
        self.seed, self.beacon, self.tracker = seed, beacon, tracker
        self.market: MarketRun | None = None
        self.presence = Presence(run, key, keys, self.limits, self.exchange)
        self._plan: list[int] = []
        self._period = 0  # counted from 1
        self.receipts: Receipts | None = None
        self._differs: set[str] = set()

    def summary(self) -> None:
        """Log what this strategy does."""
        _log.info("\tPricedParticipation: run %s, ledger %s", self.run, self.ledger.name)

    def _spent(self) -> float:
        periods = [period_of(self.run, number) for number in range(1, self._period + 1)]
        return paid_in(self.ledger, periods)

    def _keep(self, who: str, metrics: MetricRecord | None) -> None:
        """Store metrics in the ledger, outside its chain; a failure to store them stops no run."""
        super()._keep(who, metrics)
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
        self._describe(initial_arrays)
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

    def _next_period(self, grid: Grid) -> None:
        """Settle the period that is over, and start the next one with the present clients."""
        self._settle(grid)
        self._period += 1
        self.presence.renew(grid)
        self._enter(grid)

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
            self._tell_caps(agreement)
        self.market = MarketRun(self.ledger, agreement)
        self.receipts = Receipts(self.ledger, self.key, agreement)
        self._signed_intake = SignedIntake(self.market, self._names, self._layout, self._outside)
        left = state_after(self.ledger, before[-1], self._layout) if before else None
        self._loop = market_rounds(
            self.market,
            self._initial,
            aggregator=self.aggregator,
            server_step=self.server_step,
            admit=None,  # the intake checks updates before they arrive
            before=left,
        )
        self._kept = self._loop.notes if self._loop.done else group(left or {}, "notes")
        if self.strategy is not None:
            self.strategy.restore(group(self._kept, "strategy"))
        clients, first = len(agreement.deals), self.done + 1
        _log.info("run %s: %s clients, from round %s", self._name(), clients, first)
        if self.done == sum(self._plan):
            _log.warning("run %s is over; nothing is left to train", self.run)
        return to_record(self._names, self._loop.model)

    def _tell_caps(self, agreement: Agreement) -> None:
        """Warn about norms that were declared, not measured: they are caps."""
        caps = agreement.caps.items()
        declared = [own for own in caps if self.presence.profiles[own[0]].grad_norm]
        if declared:
            shown = ", ".join(f"{client} {cap:.4g}" for client, cap in declared[:MOST_NAMED])
            _log.warning(
                "norms that clients declared are caps: longer updates are refused, unpaid (%s). "
                "With Client(grad_norm=None) norms are measured.",
                shown,
            )

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

    def _reachable(self, grid: Grid) -> dict[str, int]:
        """Return the nodes of the clients that may be called now; go on to the next period."""
        if self._over() and self._period < len(self._plan):
            self._next_period(grid)
        self.presence.learn(grid)  # a client that came back has another node id
        online = self.exchange.online(grid)
        return {own: node for own, node in self.presence.nodes.items() if node in online}

    def _nodes(self) -> Mapping[str, int]:
        return self.presence.nodes

    def _calls(self, clients: list[str], arrays: ArrayRecord) -> list[dict[str, ConfigRecord]]:
        """Return the signed call of each of these clients."""
        market, proofs, model = self._market(), self._proofs(), hash_of_record(arrays)
        head = proofs.head()
        calls = [proofs.call(client, market.round, model, head) for client in clients]
        return [{MARKET: market_record(**call)} for call in calls]

    def _call(self, content: RecordDict, node: int) -> Message:
        return self.exchange.message(content, node, "train", str(self.done + 1))

    def sent(self, grid: Grid, messages: list[Message]) -> Iterable[Message]:
        """Send calls, and return the replies that come in time."""
        return self.exchange.stream(grid, messages)

    def _asked(self) -> list[tuple[str, Message]]:
        return self._called

    def _weighed(self, replies: Iterable[Message]) -> Iterable[Message]:
        return replies

    def _check(self, client: str, reply: Message, model: Arrays) -> tuple[Updates, Message] | None:
        """Return the update in a client's reply, or None if the market refuses it."""
        updates = self._signed_intake.take(client, reply, model, self._reach(self.done))
        return None if updates is None else (updates, reply)

    def _tell(self, taken: list[tuple[str, Message]]) -> None:
        """Log which updates were refused, and which clients train on other samples than agreed."""
        for client, own in self._market().refused.items():
            why = own.reason
            _log.warning("round %s: the update of %s is refused: %s", self.done + 1, client, why)
        failed = len(self._called) - len(taken)
        if self._outside is None:
            _log.info("aggregate_train: Received %s results and %s failures", len(taken), failed)
        self._compare_samples(taken)

    def _whole(self, reply: Message, round_: Round) -> Message:
        return self._signed_intake.with_weights(reply, round_.model)

    def _weight(self, client: str) -> float:
        return self._market().weight(client)

    def _counts(self) -> Mapping[str, float]:
        terms = self._market().agreement.terms
        return {client: own.samples for client, own in terms.items()}

    def _compare_samples(self, taken: list[tuple[str, Message]]) -> None:
        """Warn once about each client that trains on another number of samples than agreed."""
        for client, reply in taken:
            agreed = self._market().agreement.terms[client].samples
            used = metrics_of(reply).get("num-examples", agreed)
            if used != agreed and client not in self._differs:
                self._differs.add(client)
                _log.warning("%s agreed on %s samples and trains on %.40r", client, agreed, used)

    def _close(self) -> None:
        if self._round is not None:
            receipts, proofs = self._market().receipts(), self._proofs()
            self._round.close()
            self._note_round(self._round, self.done)
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
