"""`InProcessGrid`: a Flower grid without a network, Ray or start-up time, for tests and sweeps.

Parts of Flower that are not public are in `compat`.
"""

from __future__ import annotations

import itertools
import logging
import time
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from fedprice.flower.compat import SERVER, Run, failed_inside, name_server, patient, stamp
from fedprice.flower.wire import with_content

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from flwr.app import UserConfig
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp

__all__ = ["InProcessGrid", "repeat_failed_requests"]

_log = logging.getLogger("flwr")  # the log of a Flower app
RAISED, UNAVAILABLE = 2, 5  # Flower's codes
PATIENCE = 60.0  # seconds for which a request that fails inside the SuperLink is repeated


class InProcessGrid(Grid):
    """Runs a ClientApp for every message, immediately and in this process.

    Clients are nodes 1,000, 1,001, …; each has `partition-id` and `num-partitions` in its node
    configuration, as in Flower's simulation, and a context that lasts as long as the grid.

    Parameters
    ----------
    app, clients
        The ClientApp, and how many clients run it.
    run_config
        The app's settings.
    delays
        For slow clients, counted from 0: how often their replies are looked for in vain.

    Attributes
    ----------
    gone
        The clients that are not online, counted from 0; it may be changed while they train.
    """

    FIRST = 1000

    def __init__(
        self,
        app: ClientApp,
        clients: int,
        run_config: Mapping[str, Any] | None = None,
        *,
        delays: Mapping[int, int] | None = None,
    ) -> None:
        self.gone: set[int] = set()
        self._delays = {self.FIRST + n: looks for n, looks in (delays or {}).items()}
        self._looks: dict[str, int] = {}
        self._app = app
        self._run = Run.create_empty(1)
        self.run_config: UserConfig = dict(run_config or {})
        self.contexts = {
            self.FIRST + n: Context(
                run_id=1,
                node_id=self.FIRST + n,
                node_config={"partition-id": n, "num-partitions": clients},
                state=RecordDict(),
                run_config=self.run_config,
            )
            for n in range(clients)
        }
        self.sent: list[tuple[str, int]] = []  # types and nodes of all messages
        self._replies: dict[str, Message] = {}
        self._numbers = itertools.count(1)
        name_server()

    def start(self, app: ServerApp) -> None:
        """Run a ServerApp on this grid."""
        context = Context(
            run_id=1, node_id=SERVER, node_config={}, state=RecordDict(), run_config=self.run_config
        )
        app(self, context)

    def set_run(self, run: Run) -> None:
        """Set Flower's run."""
        self._run = run

    @property
    def run(self) -> Run:
        """Flower's run."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Return a message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the clients' node ids."""
        return [node for node in self.contexts if node - self.FIRST not in self.gone]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Deliver messages, and keep the replies until they are pulled."""
        ids = []
        for message in messages:
            name = f"message-{next(self._numbers)}"
            stamp(message, name)
            self.sent.append((message.metadata.message_type, message.metadata.dst_node_id))
            self._replies[name] = self._reply(message)
            self._looks[name] = self._delays.get(message.metadata.dst_node_id, 0)
            ids.append(name)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to some messages."""
        asked = [name for name in message_ids if name in self._replies]
        here = [name for name in asked if not self._looks[name]]
        for name in set(asked).difference(here):
            self._looks[name] -= 1
        return [self._replies.pop(name) for name in here]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Deliver messages and return the replies."""
        return self.pull_messages(self.push_messages(messages))

    def _reply(self, message: Message) -> Message:
        context = self.contexts.get(message.metadata.dst_node_id)
        if context is None:
            return Message(Error(UNAVAILABLE, "there is no such node."), reply_to=message)
        # A copy, as over a network: a client may change what it was sent.
        inner = with_content(message, deepcopy(message.content))
        try:
            reply = self._app(inner, context)
            if not isinstance(reply, Message):
                raise TypeError("the app returned no message")
            return reply
        except (Exception, SystemExit) as error:
            node = message.metadata.dst_node_id
            _log.error("the program of node %s failed", node, exc_info=error)
            return Message(Error(RAISED, f"{type(error).__name__}: {error}"), reply_to=message)


def repeat_failed_requests(grid: Grid) -> None:
    """Make Flower's own grid repeat requests that fail inside the SuperLink; idempotent.

    A SuperLink hands out a reply once: if a request fails after that, such as one for an array of
    the reply, asking for the reply again would find nothing.
    """
    patient(grid, _Patience)


class _Patience:
    """Whether to give up a failed request: as Flower does, but later if the SuperLink failed."""

    def __init__(self, otherwise: Callable[[Exception], bool]) -> None:
        self._otherwise = otherwise
        self._since = self._last = -PATIENCE

    def __call__(self, error: Exception) -> bool:
        if not failed_inside(error):
            return self._otherwise(error)
        now = time.monotonic()
        if now - self._last > PATIENCE:  # nothing has failed for a while
            self._since = now
        self._last = now
        return now - self._since > PATIENCE
