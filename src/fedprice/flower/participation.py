"""`Participation`: a Flower strategy in place of FedAvg, for clients that take part now and then.

Coins decide which clients a round calls, each at a level of its own. Weights make up for the levels
and for whatever is late, missing or fails, so that in the long run every client counts with its
share of the data. Nothing of it is needed at the clients, and no money. `PricedParticipation` is
the same round, with prices, answers and a ledger.
"""

from __future__ import annotations

import logging
import math
import secrets
import time
from collections import Counter
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result, Strategy

from fedprice._plumbing.arrays import LARGE, each_meanwhile
from fedprice.errors import InputError, UndeliveredError, nearest
from fedprice.flower.evaluation import (
    EXAMPLES,
    LossWatch,
    is_count,
    mean_metrics,
    metrics_of,
    tell_unusual,
)
from fedprice.flower.exchange import Exchange, Limits, answered
from fedprice.flower.intake import Intake, without_arrays
from fedprice.flower.levels import Levels
from fedprice.flower.own_start import started
from fedprice.flower.roster import MOST_NAMED, Roster
from fedprice.flower.snapshot import packed, unpacked
from fedprice.flower.suitable import require_mean, require_numbers, takes_mean
from fedprice.flower.tracked import Tracked, tracked
from fedprice.flower.wire import arrays_of, to_record
from fedprice.flower.wrapped import Wrapped
from fedprice.learning.layout import Layout, buffers_among
from fedprice.market.messages import RefusedError
from fedprice.rounds.aggregation import Memory
from fedprice.rounds.aggregation.outside import Outside
from fedprice.rounds.coins import check_coins, coins_of
from fedprice.rounds.loop import Rounds, group
from fedprice.rounds.server_step import Plain
from fedprice.verify import delivery_correction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from flwr.serverapp import Grid

    from fedprice._plumbing.arrays import Arrays, FloatArray, IntArray, State
    from fedprice.clients import Clients
    from fedprice.learning.task import Updates
    from fedprice.pricing import Outcome
    from fedprice.rounds.aggregation import Aggregator
    from fedprice.rounds.loop import Round
    from fedprice.rounds.server_step import ServerStep
    from fedprice.trackers import Tracker

__all__ = ["Participation"]

_log = logging.getLogger("flwr")  # the log of a Flower app
SILENT = 3  # a run is stopped after this many rounds in a row in which nobody delivers
NOBODY = 0  # no node has this id
LATE = 10  # an update may arrive this many times the round's timeout after the call
MONEY = ("pricing", "ledger", "run", "key")  # what makes a market of it
FREE = ("levels", "weights", "by", "budget", "coins", "enough")  # what a market decides


class Participation(Tracked, Strategy):
    """Trains with the clients whose coins show heads, with weights that make up for the others.

    With `pricing`, `ledger`, `run` and `key`, it is a `PricedParticipation`: clients are then paid
    for the levels that they choose.

    Parameters
    ----------
    levels
        The probability that a client is called in a round, above 0 and at most 1: one number; one
        per client, by its node id or by what `by` names; a table of clients (`Clients`, or the name
        of a file) with the column `level`, or with `budget` that of costs; or an `Outcome`, such as
        `fp.solve(game)`. Nodes that are not named are never called.
    weights
        a_n by client, which sum to 1; by default those of a table, or the clients' numbers of
        examples, as in FedAvg.
    by
        The setting of a node's configuration that names it, or a class of nodes, such as
        "partition-id". The ClientApp must tell it (docs/flower.md); by default the node id is used.
    budget
        What may be spent on clients whose costs a table has: levels are those that the equilibrium
        prices would buy.
    coins
        "spaced", "independent", "blocks" or "shared" (`fedprice.rounds.coins`).
    enough
        How many updates end a round, and evaluations what follows it; by default it waits for all
        that were called, or for `limits.round_timeout`. An update that comes later is used in the
        round in which it comes.
    clients, quorum
        How many clients to wait for before the first round, None for all that `levels` names, or
        all nodes that are online; and how many suffice after `limits.wait` seconds, by default all.
        Others join when they come.
    aggregator, server_step
        How updates become an estimate, by default `Memory` (docs/stability.md), and the
        estimate a change of the model.
    strategy
        A Flower strategy, such as `FedAdam()`, that decides what is sent and replaces the server
        step: the estimate reaches it as one reply of weight 1. Unless `aggregator` is given,
        strategies other than Flower's averages and optimisers also replace the aggregator, and get
        each update with our weight; those that need this refuse an aggregator. Coins still decide
        who trains. A `start` of its own is used.
    buffers
        Patterns of the names of the model's buffers, which are averaged over the clients that
        joined, such as "*.running_*"; by default recognised by name or type (`buffers_among`).
    limits
        How long to wait, and how many messages to send at once.
    evaluate_clients
        Whether clients evaluate the model after each round, by default as FedAvg does. With
        `strategy`, its `fraction_evaluate` says which ones.
    seed
        Of the coins; by default nobody knows them in advance.
    tracker
        Told after each round what it did (`fedprice.trackers`); by default the one that the
        environment's FEDPRICE_TRACK describes, such as "mlflow:runs".
    money
        What a market needs, as for `PricedParticipation`.

    Attributes
    ----------
    drawn, delivered
        How often each client drew heads, and how many of its updates were used.
    """

    started: ClassVar[Counter[str]] = Counter()  # how many were started in this process
    enough: int | None = None
    _evaluates = True  # whether clients do by default, as in FedAvg

    def __new__(cls, *args: Any, **settings: Any) -> Self:
        """Return a `PricedParticipation` where prices and a ledger are given."""
        given = [name for name in MONEY if name in settings]
        if cls is not Participation or not given:
            return super().__new__(cls)
        if "pricing" not in settings:
            raise InputError(
                f"`{given[0]}` needs money: give `pricing`, such as PostedPrice(budget=10), and "
                "leave `levels` out, which clients then choose."
            )
        if taken := [name for name in FREE if name in settings]:
            raise InputError(
                f"`{taken[0]}` cannot be combined with `pricing`: prices, and what clients answer, "
                "decide it. Leave it out."
            )
        if missing := [name for name in MONEY if name not in settings][len(args) :]:
            raise InputError(f"`pricing` also needs `{missing[0]}`.")
        from fedprice.flower.strategy import PricedParticipation

        return cast("Self", super().__new__(PricedParticipation))

    def __init__(
        self,
        levels: float | Mapping[Any, float] | Clients | Outcome | str | PathLike[str] = 1.0,
        *,
        weights: Mapping[Any, float] | None = None,
        by: str | None = None,
        budget: float | None = None,
        coins: str = "spaced",
        enough: int | None = None,
        clients: int | None = None,
        quorum: int | None = None,
        aggregator: Aggregator | None = None,
        server_step: ServerStep | None = None,
        strategy: Strategy | None = None,
        buffers: Sequence[str] | None = None,
        limits: Limits | None = None,
        evaluate_clients: bool | None = None,
        seed: int | None = None,
        tracker: Tracker | None = None,
        **money: Any,
    ) -> None:
        if money:
            name, known = next(iter(money)), [*FREE, *MONEY, *signature(self._set).parameters]
            raise InputError(f"there is no parameter {name!r}. {nearest(name, known)}")
        self.levels = Levels.of(levels, weights=weights, budget=budget)
        check_coins(coins)
        named = len(self.levels.by_name) if self.levels.by_name and by is None else None
        self._set(
            clients=clients if clients is not None or by is not None else named,
            quorum=quorum,
            aggregator=aggregator,
            server_step=server_step,
            strategy=strategy,
            buffers=buffers,
            limits=limits,
            evaluate_clients=evaluate_clients,
        )
        most = self.clients if named is None else named
        if enough is not None and (type(enough) is not int or not 1 <= enough <= (most or enough)):
            says = "at least 1" if most is None else f"1 to {most}, the clients"
            raise InputError(f"`enough` must be {says}; got {enough!r}.")
        self.coins, self.enough, self.by, self.tracker = coins, enough, by, tracker
        self.seed: int | None = secrets.randbits(63) if seed is None else seed
        self._roster: Roster | None = None
        self._samples: dict[str, float] = {}
        self._gaps: dict[str, int] = {}  # heads since the last update that was used
        self.drawn: dict[str, int] = {}
        self.delivered: dict[str, int] = {}
        self._before, self._total = 0, 0  # rounds before the clients of now, and of the run
        self._answered: set[str] = set()  # in this round
        self._reason = ""  # of the last update that was refused

    def _set(
        self,
        *,
        clients: int | None,
        quorum: int | None,
        aggregator: Aggregator | None,
        server_step: ServerStep | None,
        strategy: Strategy | None,
        buffers: Sequence[str] | None,
        limits: Limits | None,
        evaluate_clients: bool | None,
    ) -> None:
        """Set what a run with or without money has."""
        if quorum is not None and not 1 <= quorum <= (clients or quorum):
            most = "the clients" if clients is None else f"{clients}, the clients"
            raise InputError(f"`quorum` must be 1 to {most}; got {quorum!r}.")
        self.clients, self.quorum = clients, quorum or clients or 1
        self.limits, self.buffers = limits or Limits(), buffers
        self.strategy = None if strategy is None else Wrapped(strategy)
        if strategy is not None and server_step:
            raise InputError("`strategy` takes the server's step; leave `server_step` out.")
        if strategy is not None and aggregator:
            require_mean(strategy)
        if self.strategy is not None and evaluate_clients and not self.strategy.evaluates:
            raise InputError(
                f"`evaluate_clients` contradicts fraction_evaluate=0 of {self.strategy.name}; "
                "leave one of them out."
            )
        self.evaluate_clients = evaluate_clients
        whole = strategy is not None and not aggregator and not takes_mean(strategy)
        self._outside = self.strategy if whole else None  # a strategy that aggregates, too
        own = Memory() if self._outside is None else Outside(self._outside.name)
        self.aggregator: Aggregator = aggregator or own
        step = Plain() if self.strategy is None else Plain(self.strategy.name)
        self.server_step = server_step or step
        self.exchange = Exchange(self.limits.round_timeout, self.limits.at_once)
        self._names: list[str] = []
        self._initial: Arrays = []
        self._layout = Layout.of([])
        self._loop: Rounds | None = None
        self._round: Round | None = None
        self._called: list[tuple[str, Message]] = []
        self._evaluated: list[tuple[str, Message]] = []
        self._late: dict[str, tuple[Message, Arrays, int]] = {}  # call, model and round by client
        self._losses = LossWatch()
        self._silent = 0  # rounds in a row in which no client that drew heads delivered
        self._kept: State = {}  # notes of the run before it was stopped
        self._failing: set[str] = set()  # the clients that drew heads in them

    def summary(self) -> None:
        """Log what this strategy does."""
        _log.info("\t%s: %s, %s coins", type(self).__name__, self.levels, self.coins)
        _log.info("\t\t%s", self.aggregator.name)

    @tracked
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
        """Train for some rounds.

        Parameters
        ----------
        grid, initial_arrays, num_rounds, train_config, evaluate_config, evaluate_fn
            As for any strategy of Flower.
        timeout
            The most seconds for the replies of a round, if less than the limit.
        """
        began = time.monotonic()
        Participation.started[type(self).__name__] += 1
        self.exchange.timeout = min(self.limits.round_timeout, timeout)
        _log.info("Starting %s strategy:", type(self).__name__)
        self.summary()
        result, arrays = Result(), self.agree(grid, initial_arrays, num_rounds)
        train_config = ConfigRecord() if train_config is None else train_config
        evaluate_config = ConfigRecord() if evaluate_config is None else evaluate_config
        if kept := group(self._kept, "config"):
            train_config.update(unpacked(kept))  # what a strategy changed before a stop

        def judge(server_round: int, proposed: ArrayRecord) -> MetricRecord | None:
            found = None if evaluate_fn is None else evaluate_fn(server_round, proposed)
            if found is not None:
                tell_unusual(f"round {server_round}", found)
                self._losses.look(server_round, found, self._rounds(), self._round)
                if self._round is None:
                    self._keep("server", found)
            return found

        if self.strategy is not None and self.strategy.starts:
            result = started(
                self, self.strategy.strategy, grid, arrays, num_rounds, timeout, train_config,
                evaluate_config, None if evaluate_fn is None else judge,
            )  # fmt: skip
            self._settle(grid)
            return result

        def told(server_round: int, proposed: ArrayRecord) -> MetricRecord | None:
            found = judge(server_round, proposed)
            if found is not None:
                _log.info("Global evaluation\n\t└──> MetricRecord: %s", found)
                result.evaluate_metrics_serverapp[server_round] = found
            return found

        told(self.done, arrays)
        while self.done < num_rounds:
            server_round = self.done + 1
            _log.info("")
            _log.info("[ROUND %s/%s]", server_round, num_rounds)
            sent = self.configure_train(server_round, arrays, train_config, grid)
            arrays, metrics = self._proposed(self.sent(grid, sent))
            found = told(server_round, arrays)
            self._close()
            self._keep("server", found)
            result.train_metrics_clientapp[server_round] = metrics
            self.round_over(grid, metrics, server_round == num_rounds)
            sent = self.configure_evaluate(server_round, arrays, evaluate_config, grid)
            found = self.aggregate_evaluate(server_round, self.replies(grid, sent))
            if found:
                result.evaluate_metrics_clientapp[server_round] = found
        self._settle(grid)
        result.arrays = arrays
        _log.info("Strategy execution finished in %.2fs", time.monotonic() - began)
        _log.info("Final results:\n%s", result)
        return result

    def _keep(self, who: str, metrics: MetricRecord | None) -> None:
        """Show metrics, and store them where there is a ledger."""
        self._note_metrics(metrics)

    # Clients: who there is, and who is called

    def agree(self, grid: Grid, initial_arrays: ArrayRecord, num_rounds: int) -> ArrayRecord:
        """Wait for the clients; return the model to start from."""
        self._describe(initial_arrays)
        self._total, self._before, self._loop = num_rounds, 0, None
        for known in (self._samples, self._gaps, self.drawn, self.delivered, self._late):
            known.clear()
        roster = Roster(self.levels, self.by, self.limits.wait, self.exchange)
        roster.gather(grid, self.clients, self.quorum)
        if self.enough is not None and self.enough > len(roster.names):
            raise InputError(
                f"`enough` must be 1 to {len(roster.names)}, the clients; got {self.enough}."
            )
        self._roster = roster
        arrays = self._grown()
        levels = zip(roster.names, roster.levels(), strict=True)
        rare = [f"{client} (level {level:g})" for client, level in levels if level * num_rounds < 1]
        if rare:
            shown = ", ".join(rare[:MOST_NAMED])
            _log.warning("may never be drawn in %s rounds: %s", num_rounds, shown)
        return arrays

    def _describe(self, initial_arrays: ArrayRecord) -> None:
        """Take down the model's form, or refuse it."""
        self._names, self._initial = list(initial_arrays.keys()), arrays_of(initial_arrays)
        buffers = buffers_among(self._initial, self._names, self.buffers)
        self._layout = Layout.of(self._initial, buffers)
        require_numbers(initial_arrays, None if self._outside is None else self._outside.strategy)

    def _grown(self) -> ArrayRecord:
        """Go on with the clients that are known now; return the model."""
        roster, before = self._known(), self._loop
        for client in roster.names:
            for counts in (self._gaps, self.drawn, self.delivered):
                counts.setdefault(client, 0)
        self._before = self.done
        self._loop = Rounds(
            self._initial,
            layout=self._layout,
            ids=tuple(roster.names),
            weight=self._shares(),
            total=self._total - self._before,
            participation=self,
            aggregator=self.aggregator,
            server_step=self.server_step,
        )
        if before is not None:
            self._loop.follow(before.state() | {"ids": np.array(list(before.ids))})
        self._coins = coins_of(self.coins, np.array(roster.levels()), self.seed or 0)
        self._intake = Intake(self._names, self._layout, self._outside, scale=self._scale)
        return to_record(self._names, self._loop.model)

    def heads(self, round_: int) -> IntArray:
        """Return the clients whose coins show heads in a round of the loop."""
        heads = self._coins.heads(self._before + round_)
        for n in heads.tolist():
            client = self._rounds().ids[n]
            self._gaps[client] += 1
            self.drawn[client] += 1
        return heads

    def arrival(self) -> FloatArray:
        """Return q ρ of each client; 1/ρ is the number of its heads since its last update."""
        gaps = [delivery_correction(max(self._gaps[own], 1)) for own in self._rounds().ids]
        rates: FloatArray = self._coins.levels / np.array(gaps)
        return rates

    def _shares(self) -> FloatArray:
        """Return a_n: what was given, or the examples that clients say they train on."""
        roster = self._known()
        given = roster.weights()
        if given is not None:
            return given
        known = [self._samples[own] for own in roster.names if own in self._samples]
        usual = sum(known) / len(known) if known else 1.0
        samples = np.array([self._samples.get(own, usual) for own in roster.names])
        return samples / samples.sum() if samples.sum() else np.full(samples.size, 1 / samples.size)

    def _scale(self, client: str) -> float:
        """Return a factor that no sum of weighted updates exceeds."""
        return 4.0 * LATE * len(self._rounds().ids) / float(self._coins.levels.min())

    def _reachable(self, grid: Grid) -> dict[str, int]:
        """Return the nodes of the clients that may be called now."""
        roster = self._known()
        until = time.monotonic() + self.limits.wait
        while (online := roster.learn(grid)).isdisjoint(roster.nodes.values()):
            if time.monotonic() > until:
                raise UndeliveredError("no client is online any more.")
            time.sleep(0.2)
        if len(roster.names) > len(self._rounds().ids):
            self._grown()
        longest = LATE * self.exchange.timeout
        for client, (message, *_) in list(self._late.items()):
            age = time.time() - message.metadata.created_at
            if roster.nodes[client] not in online or age > longest:
                del self._late[client]
        nodes = roster.nodes.items()
        return {own: node for own, node in nodes if node in online and own not in self._late}

    # Training

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return calls to the clients whose coin shows heads; no others are contacted."""
        self._show_round()
        nodes = self._reachable(grid)
        loop = self._rounds()
        self._round = loop.begin()
        reached = [n for n in self._round.heads.tolist() if loop.ids[n] in nodes]
        asked = [nodes[loop.ids[n]] for n in reached]
        # A strategy configures every round: it takes a step by the estimate, or changes settings.
        contents = self._contents("train", server_round, arrays, config, asked or [NOBODY])
        if self.strategy is not None:
            own = {name: value for name, value in config.items() if name != "server-round"}
            kept = packed(own) if own else None
            loop.notes |= {f"config.{name}": array for name, array in (kept or {}).items()}
        clients = [loop.ids[n] for n in reached]
        calls = self._calls(clients, arrays)
        self._called = [
            (client, self._call(RecordDict({**contents[nodes[client]], **call}), nodes[client]))
            for client, call in zip(clients, calls, strict=True)
        ]
        self._expect(reached)
        if self.strategy is None:  # a strategy logs this itself
            _log.info("configure_train: Sampled %s nodes (out of %s)", len(reached), len(loop.ids))
        return [message for _, message in self._called]

    def _calls(self, clients: list[str], arrays: ArrayRecord) -> list[dict[str, ConfigRecord]]:
        """Return what is sent to each of these clients in addition; without money, nothing."""
        return [{} for _ in clients]

    def _call(self, content: RecordDict, node: int) -> Message:
        ttl, name = LATE * self.exchange.timeout, str(self.done + 1)
        return Message(content, node, "train", ttl=ttl, group_id=name)

    def _expect(self, reached: list[int]) -> None:
        """Prepare for the updates of these clients, and for those that are late."""
        loop, round_ = self._rounds(), self._under_way()
        late = [n for n, client in enumerate(loop.ids) if client in self._late]
        round_.expect(np.array(sorted({*reached, *late}), np.int64))

    def _contents(
        self,
        kind: Literal["train", "evaluate"],
        server_round: int,
        arrays: ArrayRecord,
        config: ConfigRecord,
        nodes: list[int],
    ) -> dict[int, RecordDict]:
        """Return what a round sends to each node."""
        if self.strategy is not None:
            ask = self.strategy.train_contents
            ask = ask if kind == "train" else self.strategy.evaluate_contents
            return ask(server_round, arrays, config, nodes)
        own = ConfigRecord(dict(config) | {"server-round": server_round})
        return dict.fromkeys(nodes, RecordDict({"arrays": arrays, "config": own}))

    def sent(self, grid: Grid, messages: list[Message]) -> Iterable[Message]:
        """Send calls; return the replies that come in time, and those to earlier calls."""
        until, came = time.monotonic() + self.exchange.timeout, False
        late = [message.metadata.message_id for message, *_ in self._late.values()]
        while True:
            for reply in self.replies(grid, messages, late):
                came = True
                yield reply
            # Where all that drew heads are still at an earlier call, the round waits for one.
            idle = late and not messages and self._under_way().heads.size
            if came or not idle or time.monotonic() > until:
                return
            time.sleep(0.1)

    def replies(
        self, grid: Grid, messages: list[Message], late: Sequence[str] = ()
    ) -> Iterable[Message]:
        """Send messages; yield the replies until enough have come, or time is up."""
        came, wanted = 0, self.enough

        def enough() -> bool:
            return came >= (wanted or math.inf)

        stream = self.exchange.stream(grid, messages, late=late, enough=enough if wanted else None)
        for reply in stream:
            came += not reply.has_error()
            yield reply

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """Check the updates, and move the model."""
        proposed = self._proposed(replies)
        self._close()
        return proposed

    def _proposed(self, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """Process the updates of a round; return the model that they propose, and who joined."""
        loop, round_ = self._rounds(), self._under_way()
        numbers = {client: n for n, client in enumerate(loop.ids)}
        taken = list[tuple[str, Message]]()
        asked, replies = self._asked(), self._weighed(replies)

        def check(answer: tuple[str, Message]) -> tuple[str, Message, Updates] | None:
            client, reply = answer
            checked = self._check(client, reply, round_.model)
            if checked is None:
                return None
            # The arrays are in the updates, unless a strategy aggregates them.
            updates, reply = checked
            return client, reply if self._outside is not None else without_arrays(reply), updates

        def add(checked: tuple[str, Message, Updates] | None) -> None:
            if checked is not None:
                client, reply, updates = checked
                round_.arrive(np.array([numbers[client]]), updates)
                taken.append((client, reply))

        # While a large update is checked, the next one is on its way.
        large = self._layout.size >= LARGE
        each_meanwhile(answered(asked, replies), check, add, large=large)
        called = len(self._called)
        self._tell(taken)
        self._silent = 0 if taken else self._silent + bool(round_.heads.size)
        drew = {loop.ids[n] for n in round_.heads.tolist()}
        self._failing = set() if taken else self._failing | drew
        metrics = self._aggregated(round_, taken) or MetricRecord()
        _log.info("\t└──> Aggregated MetricRecord: %s", metrics)
        tell_unusual(f"round {self.done + 1}", metrics)
        counts = {"called": called, "joined": len(taken)}
        return to_record(self._names, round_.propose()), MetricRecord({**metrics, **counts})

    def _asked(self) -> list[tuple[str, Message]]:
        """Return the calls that may be answered in this round."""
        late = [(own, message) for own, (message, *_) in self._late.items()]
        numbers = {client: n for n, client in enumerate(self._rounds().ids)}
        return sorted(late + self._called, key=lambda call: numbers[call[0]])

    def _weighed(self, replies: Iterable[Message]) -> Iterable[Message]:
        """Take down how many examples clients have, before their updates are weighted."""
        if not all(own in self._samples for own, _ in self._called):
            replies = list(replies)  # in the first rounds: who is new has no weight yet
            asked = {message.metadata.message_id: own for own, message in self._called}
            for reply in replies:
                client = asked.get(reply.metadata.reply_to_message_id)
                if client is not None and not reply.has_error():
                    self._count(client, reply)
        self._rounds().weight = self._shares()
        return replies

    def _count(self, client: str, reply: Message) -> None:
        count = metrics_of(reply).get(EXAMPLES)
        if is_count(count):
            self._samples[client] = float(count)

    def _check(self, client: str, reply: Message, model: Arrays) -> tuple[Updates, Message] | None:
        """Return the update in a client's reply, or None if it cannot be used."""
        late = self._late.pop(client, None)
        start = model if late is None else late[1]
        self._answered.add(client)
        try:
            updates = self._intake.check(client, reply, start)
        except RefusedError as error:
            self._reason = f"{client}: {error}"
            _log.warning("round %s: the update of %s is not used: %s", self.done + 1, client, error)
            return None
        self._count(client, reply)
        if late is not None:
            _log.info("%s answers the call of round %s", client, late[2])
            if self._outside is not None:
                reply = self._intake.rebased(reply, start, model)
        return updates, reply

    def _tell(self, taken: list[tuple[str, Message]]) -> None:
        """Log how many replies were used; whoever has not answered yet may still do so."""
        used = {own for own, _ in taken}
        for client in used:
            self._gaps[client] = 0
            self.delivered[client] += 1
        model, missing = self._under_way().model, []
        for client, message in self._called:
            if client not in self._answered:
                self._late[client] = message, model, self.done + 1
                missing.append(client)
        if self._outside is None:
            failed = len(self._answered - used)
            _log.info("aggregate_train: Received %s results and %s failures", len(used), failed)
        if missing:
            _log.info("not waited for any longer: %s", ", ".join(missing))
        self._answered = set()

    def _aggregated(self, round_: Round, taken: list[tuple[str, Message]]) -> MetricRecord | None:
        """Return the metrics of the clients that trained; let a strategy make the model."""
        if self.strategy is None:
            return mean_metrics(taken, self._counts())
        kept = zip(self._names, self._layout.buffers, strict=True)
        buffers = [name for name, is_buffer in kept if is_buffer]
        if self._outside is not None:
            weighted = [(self._whole(reply, round_), self._weight(own)) for own, reply in taken]
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

    def _whole(self, reply: Message, round_: Round) -> Message:
        """Return a reply with the client's new model."""
        return reply

    def _counts(self) -> Mapping[str, float]:
        """Return how many examples each client counts with, if it does not say so itself."""
        return dict.fromkeys(self._rounds().ids, 1.0) | self._samples

    def _weight(self, client: str) -> float:
        """Return the weight of a client's update in this round."""
        loop, at = self._rounds(), self._rounds().ids.index(client)
        return float(loop.weight[at] / self._under_way().probability[at])

    def _close(self) -> None:
        if self._round is not None:
            self._round.close()
            self._note_round(self._round, self.done)
            self._round = None

    def round_over(self, grid: Grid, metrics: MetricRecord, is_last: bool) -> None:
        """Store a round's metrics, and stop a run in which nobody delivers."""
        self._keep("train", metrics)
        self._require_deliveries(grid, is_last)

    def _require_deliveries(self, grid: Grid, is_last: bool) -> None:
        """Stop a run in which nobody delivers."""
        most = 2 * len(self._failing) > len(self._rounds().ids)
        if self._silent >= SILENT and most and not self._late:
            why = f"The last reason, of client {self._reason}" if self._reason else ""
            raise UndeliveredError(
                f"nobody has delivered an update in {self._silent} rounds. "
                f"{why or 'None of the clients that drew heads was online or answered.'}"
            )

    def _settle(self, grid: Grid) -> None:
        """Name whoever has no part in the model."""
        never = [own for own, count in self.drawn.items() if not count]
        silent = [own for own in self.drawn if self.drawn[own] and not self.delivered[own]]
        if never:
            _log.warning("never drawn, so not in the model: %s", ", ".join(never[:MOST_NAMED]))
        if silent:
            _log.warning("drawn, but delivered nothing: %s", ", ".join(silent[:MOST_NAMED]))

    # Evaluation by the clients

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> list[Message]:
        """Return evaluation requests to the clients, if clients evaluate."""
        wanted = self._evaluates if self.evaluate_clients is None else self.evaluate_clients
        if self.strategy is not None:
            wanted = self.evaluate_clients is not False and self.strategy.evaluates
        nodes = self._here(grid) if wanted else {}
        contents = self._contents("evaluate", server_round, arrays, config, list(nodes.values()))
        self._evaluated = [
            (
                client,
                self.exchange.message(contents[node], node, "evaluate", str(server_round)),
            )
            for client, node in nodes.items()
            if node in contents
        ]
        return [message for _, message in self._evaluated]

    def _here(self, grid: Grid) -> dict[str, int]:
        """Return the nodes of the clients that may be asked to evaluate."""
        online, nodes = self.exchange.online(grid), self._nodes()
        ids = [own for own in self._rounds().ids if own not in self._late]
        return {own: nodes[own] for own in ids if nodes.get(own) in online}

    def _nodes(self) -> Mapping[str, int]:
        """Return the node of each client, as far as it was ever online."""
        return self._known().nodes

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
            found = mean_metrics(answers, self._counts())
        if found:
            _log.info("\t└──> Aggregated MetricRecord: %s", found)
            tell_unusual(f"round {server_round}", found)
            self._keep("clients", found)
        return found

    @property
    def done(self) -> int:
        """Rounds done."""
        return self._before + (self._loop.done if self._loop else 0)

    def _known(self) -> Roster:
        if self._roster is None:
            raise InputError("no clients yet; call `start`, or `agree` before the first round.")
        return self._roster

    def _rounds(self) -> Rounds:
        if self._loop is None:
            raise InputError("no agreement yet; call `start`, or `agree` before the first round.")
        return self._loop

    def _under_way(self) -> Round:
        if self._round is None:
            raise InputError("no round is under way; call `configure_train` first.")
        return self._round
