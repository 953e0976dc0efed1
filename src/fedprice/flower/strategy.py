"""`PricedParticipation`: a Flower strategy that buys participation and pays for it.

A run is a chain of periods, each: profile → price → offer → commit → rounds → settle. Only clients
whose coin shows heads are contacted in a round; their updates go through the round loop that the
engine uses too, and the ledger records the round. It knows nothing of the model but a list of
arrays.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result, Strategy

from fedprice.errors import InputError
from fedprice.flower.deals import Deals, proposals_of
from fedprice.flower.evaluation import LossWatch, mean_metrics
from fedprice.flower.exchange import Exchange, Limits, answered
from fedprice.flower.presence import Presence
from fedprice.flower.receipts import Receipts
from fedprice.flower.wire import (
    MARKET,
    arrays_of,
    market_fields,
    market_record,
    named_arrays,
    signed_of,
    to_record,
)
from fedprice.learning.layout import Layout
from fedprice.learning.task import Updates
from fedprice.market.agreement import Agreement
from fedprice.market.bargain import Bargain
from fedprice.market.ledger import Ledger
from fedprice.market.messages import ModelSchema, RefusedError, require_name
from fedprice.market.money import micro_units
from fedprice.market.offers import FOREVER, Conditions, fresh_nonce
from fedprice.market.participation import market_rounds, state_after
from fedprice.market.periods import Period, Periods, period_of
from fedprice.market.run import MarketRun
from fedprice.market.simulation import simulation_nonce
from fedprice.market.updates import arrays_hash
from fedprice.rounds import Plain, TrotterTukey
from fedprice.verify import LONGEST_GAP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy.typing as npt
    from flwr.serverapp import Grid

    from fedprice.arrays import Arrays, BoolArray, IntArray
    from fedprice.flower.pricing import Pricing
    from fedprice.flower.wire import Profile
    from fedprice.market.messages import Signed, SigningKey
    from fedprice.market.offers import Proposal
    from fedprice.rounds import Aggregator, Rounds, ServerStep
    from fedprice.rounds.loop import Round

__all__ = ["PricedParticipation"]

_log = logging.getLogger("flwr")  # where a Flower app says what happens
RECEIPT_WAIT = 10.0  # seconds to wait for clients to take their last receipts


class PricedParticipation(Strategy):
    """Buys participation, trains from whoever joins, and pays through a ledger.

    Parameters
    ----------
    ledger, run
        Where to record, and under which name. A run that is there already goes on.
    key, keys
        The server's signing key, from which its coin secrets follow; and the registered public keys
        by client, None to take whoever comes.
    pricing, periods
        From profiles to what is offered, `FullInformation` or `PostedPrice`; and how the rounds are
        split into periods, each priced anew, by default one period.
    clients
        How many to wait for before the first offers go out.
    aggregator, server_step
        How updates become an estimate, by default `TrotterTukey` (docs/stability.md), and the
        estimate a change of the model.
    learning_rate, local_steps
        η, of all rounds or as a function of the round (counted from 0), and E, where the app has
        them: updates then also show norms of gradients.
    limits
        How long to wait, how many messages at once, the largest update.
    evaluate_clients
        Whether clients evaluate the model after each round.
    fund
        Whether to bring in what the run needs (simulations); otherwise treasury and payers must
        hold it.
    task
        Hash of what else determines the training, for the ledger.
    seed
        For simulations that can be repeated: offers and coins then follow from it and the keys, and
        offers never expire. None, for any other run, draws what nobody can know beforehand.
    beacon
        The name of a public value that nobody can know before the clients have committed, such as
        "the first value of drand after all commitments", and a function that returns it when a
        period is opened.
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
        periods: Periods | None = None,
        aggregator: Aggregator | None = None,
        server_step: ServerStep | None = None,
        learning_rate: Callable[[int], float] | float | None = None,
        local_steps: int | None = None,
        limits: Limits | None = None,
        evaluate_clients: bool = False,
        fund: bool = False,
        task: str = "0" * 64,
        seed: int | None = None,
        beacon: tuple[str, Callable[[], str]] | None = None,
    ) -> None:
        if (learning_rate is None) != (local_steps is None):
            raise InputError("give both `learning_rate` and `local_steps`, or neither.")
        self.ledger = ledger if isinstance(ledger, Ledger) else Ledger(ledger, key=key)
        self.run, self.key, self.pricing, self.clients = run, key, pricing, clients
        self.periods, self.limits = periods or Periods(), limits or Limits()
        self.aggregator = aggregator or TrotterTukey()
        self.server_step = server_step or Plain()
        pricing.require_same(self.aggregator, self.server_step)
        self.learning_rate, self.local_steps = learning_rate, local_steps
        self.evaluate_clients, self.fund, self.task = evaluate_clients, fund, task
        self.seed, self.beacon = seed, beacon
        self.market: MarketRun | None = None
        self.exchange = Exchange(self.limits.round_timeout, self.limits.at_once)
        self.presence = Presence(run, key, keys, self.limits, self.exchange)
        self._names: list[str] = []
        self._initial: Arrays = []
        self._plan: list[int] = []
        self._period = 0  # counted from 1
        self._loop: Rounds | None = None
        self._round: Round | None = None
        self._called: list[tuple[str, Message]] = []
        self._came: dict[str, tuple[Signed, Arrays]] = {}
        self._evaluated: list[tuple[str, Message]] = []
        self.receipts: Receipts | None = None
        self._losses = LossWatch()

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
            The most seconds for the replies of a round, if less than the limit.
        """
        self.exchange.timeout = min(self.limits.round_timeout, timeout)
        result, arrays = Result(), self.agree(grid, initial_arrays, num_rounds)

        def judge(server_round: int, proposed: ArrayRecord) -> None:
            if evaluate_fn is not None and (found := evaluate_fn(server_round, proposed)):
                result.evaluate_metrics_serverapp[server_round] = found
                self._losses.look(server_round, found, self._rounds(), self._round)

        judge(self.done, arrays)
        while self.done < num_rounds:
            if self._over():
                arrays = self._next_period(grid)
            server_round, config = self.done + 1, train_config or ConfigRecord()
            sent = self.configure_train(server_round, arrays, config, grid)
            arrays, metrics = self._proposed(self.exchange.replies(grid, sent))
            judge(server_round, arrays)
            self._close()
            result.train_metrics_clientapp[server_round] = metrics
            config = evaluate_config or ConfigRecord()
            sent = self.configure_evaluate(server_round, arrays, config, grid)
            found = self.aggregate_evaluate(server_round, self.exchange.replies(grid, sent))
            if found:
                result.evaluate_metrics_clientapp[server_round] = found
        self._settle(grid)
        result.arrays = arrays
        return result

    @property
    def done(self) -> int:
        """Rounds done, of all periods."""
        return sum(self._plan[: self._period - 1]) + (self._loop.done if self._loop else 0)

    def agree(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> ArrayRecord:
        """Come to an agreement with the clients, or take up the one in the ledger.

        Returns the model to go on from.
        """
        self.ledger.use_key(self.key)
        self.presence.know(self.ledger.books.keys)
        self._names, self._initial = list(initial_arrays.keys()), arrays_of(initial_arrays)
        Layout.of(self._initial)
        self._plan = self.periods.split(num_rounds)
        require_name("run", period_of(self.run, len(self._plan)))
        self._period = 1
        while self._period < len(self._plan) and self.ledger.is_settled(self._name()):
            self._taken_up(self._period)
            if self.ledger.rounds_done(self._name()) < self._plan[self._period - 1]:
                raise InputError(f"run {self._name()!r} was settled before its rounds were over.")
            self._period += 1
        return self._enter(grid)

    def _model(self) -> Arrays:
        layout = Layout.of(self._initial)
        return layout.arrays(layout.flat(self._initial))

    def _schema(self) -> ModelSchema:
        return ModelSchema.of(self._model(), self._names)

    def _taken_up(self, number: int) -> Agreement | None:
        """Return the agreement of a period in the ledger; refuse another run's."""
        names = [period_of(self.run, n) for n in range(1, number + 1)]
        if self.ledger.opening(names[-1]) is None:
            return None
        period = Period.after(self.ledger, names[:-1], self._plan)
        agreement = Agreement.load(self.ledger, names[-1])
        self._require_same(agreement.conditions, period)
        if agreement.budget != period.budget(micro_units(self.pricing.budget)):
            raise self._begun_otherwise(names[-1])
        return agreement

    def _require_same(self, conditions: Conditions, period: Period) -> None:
        """Refuse to go on with what was offered for another training."""
        here = Conditions(
            **asdict(conditions)
            | {
                "server": self.key.public.hex(),
                "rounds": period.rounds,
                "run_rounds": period.run_rounds,
                "schema": self._schema().content(),
                "task": self.task,
                "beacon": self.beacon[0] if self.beacon else "",
            }
        )
        runs = self.ledger.books.runs
        new = conditions.run not in runs or not runs[conditions.run].done
        if new and not conditions.follows:  # what comes later is in the ledger
            here = replace(here, model=arrays_hash(self._model()))
        if here != conditions:
            raise self._begun_otherwise(conditions.run)

    def _begun_otherwise(self, name: str) -> InputError:
        return InputError(
            f"run {name!r} in {self.ledger.name} was begun with other rounds, or another budget, "
            "model, key, beacon or task; take another name for the run."
        )

    def _next_period(self, grid: Grid) -> ArrayRecord:
        """Settle the period that is over, and begin the next one with whoever is there."""
        self._settle(grid)
        self._period += 1
        self.presence.renew(grid)
        return self._enter(grid)

    def _enter(self, grid: Grid) -> ArrayRecord:
        """Open or take up the current period; return the model to go on from."""
        before = [period_of(self.run, n) for n in range(1, self._period)]
        agreement = self._taken_up(self._period)
        if agreement is not None:
            self.presence.close(agreement.keys)
            self.presence.gather(grid, len(agreement.deals), enough=0)
        else:
            agreement = self._agreement(grid, before)
            self.presence.close(agreement.keys)
        self.market = MarketRun(self.ledger, agreement)
        self.receipts = Receipts(self.ledger, self.key, agreement)
        self._loop = market_rounds(
            self.market,
            self._initial,
            aggregator=self.aggregator,
            server_step=self.server_step,
            admit=self._admit,
            before=state_after(self.ledger, before[-1], Layout.of(self._initial))
            if before
            else None,
        )
        clients, first = len(agreement.deals), self.done + 1
        _log.info("run %s: %s clients, from round %s", self._name(), clients, first)
        if self.done == sum(self._plan):
            _log.warning("run %s is over; nothing is left to train", self.run)
        return to_record(self._names, self._loop.model)

    def _agreement(self, grid: Grid, before: list[str]) -> Agreement:
        """Price whoever is there for the current period, and agree with them."""
        period = Period.after(self.ledger, before, self._plan)
        bargain = Bargain(self.ledger, self.key, self._name())
        if bargain.conditions is not None:
            self._require_same(bargain.conditions, period)
        if not self.presence.nodes:  # at the start, or after a restart between two periods
            # A bargain that was begun goes on with whoever is there.
            enough = self.clients if self._period == 1 and not bargain.attempt else 1
            self.presence.gather(grid, self.clients, enough=enough)
        deals = Deals(
            grid,
            self.exchange,
            self.presence,
            bargain,
            propose=lambda names: self._proposed_to(names, period, before),
            budget=period.budget(micro_units(self.pricing.budget)),
            lifetime=self.limits.offer_lifetime,
            fund=self.fund,
        )
        return deals.agree(self._name(), self.beacon[1] if self.beacon else None)

    def _proposed_to(
        self, names: list[str], period: Period, before: list[str]
    ) -> tuple[Conditions, dict[str, Proposal]]:
        """Return what to offer these clients in a period, and under which conditions."""
        reaches = [self._reach(r) for r in range(period.done, period.done + period.rounds)]
        reach = max((r for r in reaches if r is not None), default=None)
        profiles = self._fit([self.presence.profiles[name] for name in names], reach)
        if not profiles:
            raise InputError(f"run {self._name()!r}: nobody is left to make an offer to.")
        unmeasured = not period.norms and getattr(self.pricing, "calibration", None) is None
        if self.periods.warm_up and (period.number == 1 or unmeasured):
            priced = self.pricing.warm_up(profiles, period, self.periods.level)
        else:
            priced = self.pricing(profiles, period)
        follows, seed = before[-1] if before else "", self.seed
        conditions = Conditions(
            ledger=self.ledger.identity,
            server=self.key.public.hex(),
            run=self._name(),
            follows=follows,
            rounds=period.rounds,
            run_rounds=period.run_rounds,
            unit=self.ledger.unit,
            schema=self._schema().content(),
            task=self.task,
            model=self.ledger.run(follows).model if follows else arrays_hash(self._model()),
            max_weight=f"{priced.max_weight:.6g}",
            longest_gap=LONGEST_GAP,
            nonce=fresh_nonce() if seed is None else simulation_nonce(seed, self._name()),
            expires=int(time.time() + self.limits.offer_lifetime) if seed is None else FOREVER,
            beacon=self.beacon[0] if self.beacon else "",
        )
        return conditions, proposals_of(profiles, priced, period, reach, self.limits.norm_cap)

    def _fit(self, profiles: list[Profile], reach: float | None) -> list[Profile]:
        """Return those who can be priced, so that one client's declarations stop nobody else."""
        most, fit = self.limits.norm_cap, []
        for profile in profiles:
            why = self.pricing.unfit(profile)
            if profile.grad_norm and reach is not None and float(profile.grad_norm) * reach > most:
                why = f"its gradient norm of {profile.grad_norm} allows updates above {most:g}"
            if why:
                _log.warning("%s is made no offer: %s", profile.client, why)
            else:
                fit.append(profile)
        return fit or profiles  # the pricing says what is wrong with all of them

    def _settle(self, grid: Grid) -> None:
        """Close a period, and give every client its last receipt and the last head."""
        self._market().settle()
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
        """Return calls to those whose coin shows heads; nobody else hears of the round."""
        market, loop = self._market(), self._rounds()
        self.presence.learn(grid)  # whoever came back has another node id
        online = set(grid.get_node_ids())
        self._round = loop.begin()
        self._called, reached, proofs = [], [], self._proofs()
        head = proofs.head()
        for n in self._round.heads.tolist():
            client = loop.ids[n]
            if (node := self.presence.nodes.get(client)) not in online or node is None:
                continue
            call = market_record(round=market.round, **proofs.fields(client, head))
            own = ConfigRecord(dict(config) | {"server-round": server_round})
            content = RecordDict({"arrays": arrays, "config": own, MARKET: call})
            message = self.exchange.message(content, node, "train", str(server_round))
            self._called.append((client, message))
            reached.append(n)
        self._round.expect(np.array(reached, np.int64))
        return [message for _, message in self._called]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Check the updates, move the model, and record the round."""
        proposed = self._proposed(replies)
        self._close()
        return proposed

    def _proposed(self, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """Take the updates of a round; return the model that they propose, and who joined."""
        market, loop, round_ = self._market(), self._rounds(), self._round
        if round_ is None:
            raise InputError("no round is under way; call `configure_train` first.")
        joined = 0
        numbers = {client: n for n, client in enumerate(loop.ids)}
        for client, reply in answered(self._called, replies):
            signed = None
            try:
                self._require_reply(reply, client)
                signed = signed_of(market_fields(reply.content), "update")
                arrays = self._checked(reply, client)
                self._came[client] = signed, arrays
                same = sum(array.size for array in arrays) == loop.layout.size
                if same:
                    row = loop.layout.flat(arrays).astype(loop.layout.dtype)
            except RefusedError as error:
                market.refuse(client, str(error), signed)
                continue
            # What is of another shape is refused with its reason, and read no further.
            values = row[None] if same else np.zeros((1, loop.layout.size), loop.layout.dtype)
            joined += int(round_.arrive(np.array([numbers[client]]), Updates(values)).sum())
        self._came = {}
        for client, own in market.refused.items():
            why = own.reason
            _log.warning("round %s: the update of %s is refused: %s", self.done + 1, client, why)
        metrics = MetricRecord({"called": len(self._called), "joined": joined})
        return to_record(self._names, round_.propose()), metrics

    def _close(self) -> None:
        if self._round is not None:
            receipts = self._market().receipts()
            self._round.close()
            self._proofs().add(receipts)
            self._round = None

    def _admit(self, round_: int, clients: IntArray, updates: npt.NDArray[Any]) -> BoolArray:
        """Have the market check what came, as it came."""
        loop, market = self._rounds(), self._market()
        admitted = np.zeros(clients.size, np.bool_)
        for slot, n in enumerate(clients.tolist()):
            signed, arrays = self._came[loop.ids[n]]
            admitted[slot] = market.accept(
                loop.ids[n], signed, arrays, reach=self._reach(self.done)
            )
        return admitted

    def _reach(self, done: int) -> float | None:
        rate = self.learning_rate
        if rate is None or self.local_steps is None:
            return None
        return (rate(done) if callable(rate) else float(rate)) * self.local_steps

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return a question to each client, if clients evaluate."""
        self._evaluated = []
        if self.evaluate_clients:
            own = ConfigRecord(dict(config) | {"server-round": server_round})
            content = RecordDict({"arrays": arrays, "config": own})
            nodes = self.presence.nodes
            self._evaluated = [
                (
                    client,
                    self.exchange.message(content, nodes[client], "evaluate", str(server_round)),
                )
                for client in self._market().agreement.deals
                if client in nodes
            ]
        return [message for _, message in self._evaluated]

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return the clients' metrics, weighted by the samples that they agreed on."""
        answers = answered(self._evaluated, replies)
        return mean_metrics(answers, self._market().agreement.terms)

    @staticmethod
    def _require_reply(reply: Message, client: str) -> None:
        if reply.has_error():
            # For the operator's eyes; what strangers say is not for the ledger.
            _log.warning("the program of %s failed: %.200s", client, reply.error.reason)
            raise RefusedError(f"its program failed (Flower's code {reply.error.code}).")

    def _checked(self, reply: Message, client: str) -> Arrays:
        """Return the arrays of a reply that may be looked at further; refuse it otherwise."""
        arrays = named_arrays(reply.content, self._names)
        market, limits = self._market(), self._rounds().layout.largest
        scale = 4 * len(market.agreement.deals) * market.weight(client)
        for array, limit in zip(arrays, limits, strict=False):
            if array.size and scale * float(np.abs(array).max()) >= limit:
                raise RefusedError("it is too large for the numbers of the model.")
        return arrays

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
