"""People come and go, and a SuperLink that fails for a moment ends nothing."""

import time
import weakref
from collections.abc import Iterable

import httpx
import pytest
from flwr.app import Array, ArrayRecord, Message

from fedprice.errors import InputError
from fedprice.flower import InProcessGrid, Limits, Periods
from fedprice.flower.deals import in_order
from fedprice.flower.exchange import Exchange
from fedprice.flower.grid import _Patience, repeat_failed_requests
from fedprice.market.ledger import Ledger
from tests.flower.apps import client_app, initial, strategy
from trials.markets import NAMES, ROUNDS


class Changing(InProcessGrid):
    """A grid on which only some of four nodes are online."""

    def __init__(self, *online: int) -> None:
        super().__init__(client_app(), 4)
        self.online = set(online)

    def get_node_ids(self) -> list[int]:
        return [node for node in super().get_node_ids() if node - self.FIRST in self.online]


class Failing(InProcessGrid):
    """A grid whose SuperLink fails at every second request: its database is locked."""

    def __init__(self, status: int = 500) -> None:
        super().__init__(client_app(), 4)
        self.status, self.requests = status, 0

    def _hiccup(self) -> None:
        self.requests += 1
        if self.requests % 2:
            raise status_error(self.status)

    def get_node_ids(self) -> list[int]:
        self._hiccup()
        return super().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self._hiccup()
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        self._hiccup()
        return super().pull_messages(message_ids)


def status_error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1/runtime")
    response = httpx.Response(status, request=request)
    return httpx.HTTPStatusError("database is locked", request=request, response=response)


def new_ledger() -> Ledger:
    return Ledger("sqlite://", identity="ab" * 32)


def test_one_client_that_never_comes_stops_nobody_if_a_quorum_is_there() -> None:
    ledger, few = new_ledger(), Limits(wait=0.3)
    ours = strategy(ledger, quorum=3, limits=few)
    ours.start(Changing(0, 1, 3), initial(), num_rounds=ROUNDS)
    found = ledger.verify().runs["run"]
    assert list(found.clients) == in_order([NAMES[n] for n in (0, 1, 3)])
    assert (found.done, found.settled) == (ROUNDS, True)
    with pytest.raises(InputError, match="only 2 of 3 clients showed up"):
        strategy(new_ledger(), quorum=3, limits=few).start(Changing(0, 1), initial())
    with pytest.raises(InputError, match="only 3 of 4 clients showed up"):
        strategy(new_ledger(), limits=few).start(Changing(0, 1, 3), initial())
    for wrong in (0, 5):
        with pytest.raises(InputError, match="`quorum` must be 1 to 4, the clients; got"):
            strategy(new_ledger(), quorum=wrong)


def test_everybody_wanted_is_waited_for_within_the_time() -> None:
    """A quorum is for when time is up: a client that comes a little later is in."""
    begun = time.monotonic()

    class Slow(Changing):
        def get_node_ids(self) -> list[int]:
            if time.monotonic() - begun > 0.5:
                self.online = {0, 1, 2, 3}
            return super().get_node_ids()

    grid = Slow(0, 1, 3)
    ledger = new_ledger()
    strategy(ledger, quorum=1, limits=Limits(wait=600)).start(grid, initial(), num_rounds=ROUNDS)
    assert set(ledger.verify().runs["run"].clients) == set(NAMES)
    assert time.monotonic() - begun < 300


def test_whoever_comes_late_or_comes_back_enters_at_the_next_period() -> None:
    """Client 4 comes late; client 1 leaves in the first period, and is back for the third."""
    ledger, grid = new_ledger(), Changing(0, 1, 2)

    def evaluate(server_round: int, arrays: object) -> None:
        grid.online = {1: {1, 2, 3}, 8: {0, 1, 2, 3}}.get(server_round, grid.online)

    ours = strategy(ledger, quorum=3, limits=Limits(wait=0.3), periods=Periods(every=4))
    ours.start(grid, initial(), num_rounds=12, evaluate_fn=evaluate)
    runs = ledger.verify().runs
    there = [{NAMES.index(name) for name in own.clients} for own in runs.values()]
    assert there == [{0, 1, 2}, {1, 2, 3}, {0, 1, 2, 3}]
    assert all(own.settled for own in runs.values())


def test_a_locked_database_of_the_superlink_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprice.flower.exchange.FIRST_PAUSE", 0.001)
    steady, failing = new_ledger(), new_ledger()
    strategy(steady).start(InProcessGrid(client_app(), 4), initial(), num_rounds=ROUNDS)
    strategy(failing).start(Failing(), initial(), num_rounds=ROUNDS)
    assert failing.verify().hashes == steady.verify().hashes


class StoppedClock:
    """A clock that moves only while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_what_is_no_passing_failure_is_raised_and_a_deadline_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(httpx.HTTPStatusError):
        Exchange(5.0, 0).online(Failing(status=403))

    class Dead(InProcessGrid):
        def get_node_ids(self) -> list[int]:
            raise status_error(500)

    clock = StoppedClock()
    monkeypatch.setattr("fedprice.flower.exchange.time", clock)
    with pytest.raises(httpx.HTTPStatusError):
        Exchange(0.5, 0).online(Dead(client_app(), 4))
    assert 0.2 < clock.now <= 0.5


def test_flowers_own_grid_repeats_a_request_that_fails_inside_the_superlink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every request: a reply whose arrays could not be fetched would be lost."""
    from flwr.superlink.grid.http_grid import HttpGrid

    grid = HttpGrid("127.0.0.1:1", insecure=True, token="none")
    grid._retry_invoker.wait_function = lambda _: None
    left = [status_error(500)] * 3

    def request() -> str:
        if left:
            raise left.pop()
        return "reply"

    with pytest.raises(httpx.HTTPStatusError):
        grid._retry_invoker.invoke(request)
    repeat_failed_requests(grid)
    repeat_failed_requests(grid)
    assert not isinstance(grid._retry_invoker.should_giveup._otherwise, _Patience)  # type: ignore[union-attr]
    assert grid._retry_invoker.invoke(request) == "reply"
    left += [status_error(404)]
    with pytest.raises(httpx.HTTPStatusError):
        grid._retry_invoker.invoke(request)
    monkeypatch.setattr("fedprice.flower.grid.PATIENCE", 0.05)
    left += [status_error(500)] * 10**6
    with pytest.raises(httpx.HTTPStatusError):
        grid._retry_invoker.invoke(request)


def test_several_who_come_at_once_are_all_heard_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that trickle in, each of which starts a process, are waited for while they come."""
    monkeypatch.setattr("fedprice.flower.presence.ASK_AGAIN", 0.5)
    clock = StoppedClock()
    monkeypatch.setattr("fedprice.flower.presence.time", clock)

    class Trickling(Changing):
        slow, last = 0, 0.0  # how many answers trickle in, and when the last one did

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            names = list(message_ids)
            if not self.slow:
                return super().pull_messages(names)
            if clock.now - self.last < 0.35:
                return []
            self.last, self.slow = clock.now, self.slow - 1
            return super().pull_messages(names[:1])

    ledger, grid = new_ledger(), Trickling(0)

    def evaluate(server_round: int, arrays: object) -> None:
        if server_round == 4:
            grid.online, grid.slow, grid.last = {0, 1, 2, 3}, 3, clock.now

    ours = strategy(ledger, clients=1, periods=Periods(every=4))
    ours.start(grid, initial(), num_rounds=8, evaluate_fn=evaluate)
    assert set(ledger.verify().runs["run#2"].clients) == set(NAMES)
    assert not grid.slow


def test_a_reply_is_taken_before_the_next_client_trains() -> None:
    """In process, 20 replies of 40 MB each were in memory at the same time."""

    class Counting(InProcessGrid):
        def __init__(self) -> None:
            super().__init__(client_app(), 4)
            self.arrays: list[weakref.ref[Array]] = []
            self.most = 0

        def push_messages(self, messages: Iterable[Message]) -> list[str]:
            self.most = max(self.most, sum(own() is not None for own in self.arrays))
            return super().push_messages(messages)

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            replies = super().pull_messages(message_ids)
            for record in (record for reply in replies for record in reply.content.values()):
                if isinstance(record, ArrayRecord):
                    self.arrays += map(weakref.ref, record.values())
            return replies

    grid, ledger = Counting(), new_ledger()
    strategy(ledger).start(grid, initial(), num_rounds=ROUNDS)
    assert len(grid.arrays) > ROUNDS
    assert grid.most <= 1
