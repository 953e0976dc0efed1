"""Sending messages and receiving replies, with limits on time and on messages under way."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from flwr.app import Message, RecordDict

from fedprice.errors import InputError
from fedprice.flower.compat import failed_inside
from fedprice.flower.grid import InProcessGrid, repeat_failed_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from flwr.serverapp import Grid

__all__ = ["Exchange", "Limits"]

_log = logging.getLogger("flwr")  # the log of a Flower app
_Result = TypeVar("_Result")
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between attempts to reach a SuperLink that fails


@dataclass(frozen=True)
class Limits:
    """The limits of a strategy: times, sizes and numbers of messages.

    Attributes
    ----------
    wait, round_timeout
        Seconds to wait for clients to appear, and for the replies of a round.
    at_once
        How many messages may be under way, for many clients on few cores; 0 for all.
    norm_cap, most_samples
        The largest norm of an update of a client whose norm is neither declared nor measured, and
        the most samples a client may declare.
    offer_lifetime
        Seconds for which an offer is valid; clients answer and reveal their secrets within them.
    """

    wait: float = 120.0
    round_timeout: float = 600.0
    at_once: int = 0
    norm_cap: float = 1e6
    most_samples: int = 1 << 40
    offer_lifetime: float = 900.0

    def __post_init__(self) -> None:
        for name in ("wait", "round_timeout"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(
                    f"`{name}` must be a number of seconds, at least 0; got {getattr(self, name)}."
                )
        if type(self.at_once) is not int or self.at_once < 0:
            raise InputError(f"`at_once` must be a whole number, at least 0; got {self.at_once!r}.")
        if not 1 <= self.offer_lifetime <= 1e9:
            raise InputError(
                f"`offer_lifetime` must be 1 to 1e9 seconds; got {self.offer_lifetime!r}."
            )


@dataclass
class Exchange:
    """Sends messages and collects the replies that come in time.

    Attributes
    ----------
    timeout
        Seconds that a message and its reply may take.
    at_once
        How many messages may be under way; 0 for all.
    """

    timeout: float
    at_once: int

    def online(self, grid: Grid) -> set[int]:
        """Return the nodes that are online now."""
        repeat_failed_requests(grid)
        return set(_repeated(grid.get_node_ids, time.monotonic() + self.timeout))

    def push(self, grid: Grid, message: Message) -> bool:
        """Send one message; return whether it is under way."""
        until = time.monotonic() + self.timeout
        return any(_repeated(partial(grid.push_messages, [message]), until))

    def pull(self, grid: Grid, messages: Iterable[str]) -> Iterable[Message]:
        """Return the replies to some messages that have arrived by now."""
        until = time.monotonic() + self.timeout
        return _repeated(partial(grid.pull_messages, [*messages]), until)

    def message(self, content: RecordDict, node: int, kind: str, group: str) -> Message:
        """Return a message to a node."""
        return Message(content, node, kind, ttl=self.timeout, group_id=group)

    def replies(
        self, grid: Grid, messages: list[Message], within: float = math.inf
    ) -> list[Message]:
        """Send messages and return the replies that come in time; as for `stream`."""
        return list(self.stream(grid, messages, within))

    def stream(
        self,
        grid: Grid,
        messages: list[Message],
        within: float = math.inf,
        late: Collection[str] = (),
        enough: Callable[[], bool] | None = None,
    ) -> Iterator[Message]:
        """Send messages and yield the replies that come in time, as soon as they arrive.

        Flower's own `send_and_receive` looks for replies every three seconds only.

        Parameters
        ----------
        messages
            What to send.
        within
            The most seconds for all of it, if less than what each may take.
        late
            Earlier messages whose replies are yielded, too, if they come meanwhile.
        enough
            Whether to stop, asked after every look for replies.
        """
        repeat_failed_requests(grid)
        last = time.monotonic() + within
        left, pause = list(messages), 0.02
        most = self.at_once or len(messages)
        # In one process a client answers as soon as it is sent a message: there is one reply at a
        # time, unless all are to be asked before enough have answered.
        step = 1 if isinstance(grid, InProcessGrid) and enough is None else most
        waiting: dict[str, float] = {}  # deadlines by message
        behind = set(late)
        while left or waiting or behind:
            room = max(min(most - len(waiting), step), 0)
            some, left = left[:room], left[room:]
            until = min(time.monotonic() + self.timeout, last)
            if some:
                pushed = _repeated(partial(grid.push_messages, some), until)
                waiting |= {name: until for name in pushed if name}
            for reply in _repeated(partial(grid.pull_messages, [*waiting, *behind]), until):
                waiting.pop(reply.metadata.reply_to_message_id, None)
                behind.discard(reply.metadata.reply_to_message_id)
                yield reply
                del reply  # it may be large, and the next one has not arrived yet
            now = time.monotonic()
            waiting = {name: until for name, until in waiting.items() if until > now}
            if now > last or not (left or waiting) or (enough is not None and enough()):
                break
            if waiting and (not left or len(waiting) >= most):
                time.sleep(pause)
                pause = min(1.5 * pause, 0.5)

    def answers(
        self, grid: Grid, asked: list[tuple[str, Message]], within: float = math.inf
    ) -> Iterable[tuple[str, Message]]:
        """Yield the reply of each client that answers, in the order asked."""
        yield from answered(asked, self.replies(grid, [message for _, message in asked], within))


def answered(
    asked: list[tuple[str, Message]], replies: Iterable[Message]
) -> Iterable[tuple[str, Message]]:
    """Yield each client with its reply: the first to each message, in the order asked."""
    # Errors of dead nodes come from the SuperLink: the message they reply to identifies the node.
    by_id: dict[str, Message] = {}
    left = deque(asked)
    for reply in replies:
        by_id.setdefault(reply.metadata.reply_to_message_id, reply)
        del reply  # so that nothing here keeps what was yielded
        while left and left[0][1].metadata.message_id in by_id:
            client, message = left.popleft()
            yield client, by_id.pop(message.metadata.message_id)
    for client, message in left:
        if message.metadata.message_id in by_id:
            yield client, by_id[message.metadata.message_id]


def _repeated(call: Callable[[], _Result], until: float) -> _Result:
    """Call a SuperLink repeatedly while it fails, until a deadline.

    Flower itself repeats a request if the connection breaks, but not if the SuperLink's database is
    locked, which it reports as an internal error. Sending a message twice is harmless: messages
    are identified by a hash of their content.
    """
    pause = FIRST_PAUSE
    while True:
        try:
            return call()
        except Exception as error:
            if not failed_inside(error) or time.monotonic() + pause > until:
                raise
            _log.warning("the SuperLink failed (%s); asking again in %.1f s", error, pause)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
