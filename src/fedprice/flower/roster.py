"""`Roster`: the clients of a run, and the nodes at which they are, by what Flower says of nodes.

A server knows nothing of a node but its id. Whatever else names it, such as `partition-id`, is
known to the client's process only, and must be told by the app, with a query of Flower's::

    @app.query()
    def node(message, context):
        content = RecordDict({"node": ConfigRecord(dict(context.node_config))})
        return Message(content, reply_to=message)
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import RecordDict

from fedprice.errors import InputError, nearest
from fedprice.flower.grid import InProcessGrid

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.flower.exchange import Exchange
    from fedprice.flower.levels import Levels

__all__ = ["Roster"]

_log = logging.getLogger("flwr")
STEADY = 1.0  # seconds without a change after which the online nodes count as complete
MOST_NAMED = 20  # in a line


class Roster:
    """The clients of a run; those that come later are added at the end.

    Parameters
    ----------
    levels
        Which of them are called.
    by
        The setting of a node's configuration that names it or its class; None for its id.
    wait, exchange
        How many seconds to wait for clients, and how to send.

    Attributes
    ----------
    names, nodes
        The clients, and the node of each one that was ever online.
    """

    def __init__(self, levels: Levels, by: str | None, wait: float, exchange: Exchange) -> None:
        self._levels, self._by, self._wait, self._exchange = levels, by, wait, exchange
        self.names: list[str] = [] if by else list(levels.by_name)
        self.nodes: dict[str, int] = {}
        self._labels = {name: name for name in self.names}
        self._of_node: dict[int, str | None] = {}  # its label; None while it is asked
        self._asked: dict[str, int] = {}  # nodes by message
        self._why = ""  # of the last node that did not tell what it is

    def levels(self) -> list[float]:
        """Return the level of each client."""
        return [self._levels.level(self._labels[name]) or 0.0 for name in self.names]

    def weights(self) -> FloatArray | None:
        """Return a_n where it was given; clients of one class share its weight equally."""
        weights = self._levels.weights
        if weights is None:
            return None
        count = Counter(self._labels.values())
        shares = [weights[own] / count[own] for own in map(self._labels.get, self.names) if own]
        return np.array(shares) / sum(shares)

    def gather(self, grid: Grid, wanted: int | None, enough: int) -> None:
        """Wait until all wanted clients are there, or time is up and enough are."""
        until = time.monotonic() + self._wait
        count, since = 0, time.monotonic()
        while True:
            self.learn(grid)
            now = time.monotonic()
            if len(self._of_node) != count:
                count, since = len(self._of_node), now
            steady = now - since >= STEADY or isinstance(grid, InProcessGrid)
            left = self._missing()
            told = None not in self._of_node.values()
            if len(self.nodes) >= (wanted or 1) and not left and told and steady:
                break
            if now > until or (isinstance(grid, InProcessGrid) and told and count):
                break
            time.sleep(0.1)
        self._require(left, wanted, enough)

    def _missing(self) -> list[str]:
        """Return what `levels` names and no node is."""
        here = {self._labels[name] for name in self.nodes}
        return [name for name in self._levels.by_name if name not in here]

    def _require(self, left: list[str], wanted: int | None, enough: int) -> None:
        known = sorted({own for own in self._of_node.values() if own})
        what = "node id" if self._by is None else self._by
        if not self.nodes and self._why:
            raise InputError(
                f"no node told its {what!r}; the last one: {self._why} The ClientApp needs a query "
                "that returns its node_config (docs/flower.md)."
            )
        if not known:
            online = len(self._of_node)
            what = "no node is online" if not online else f"none of {online} nodes has answered"
            raise InputError(f"{what} within the {self._wait:g} seconds of `limits.wait`.")
        if left and len(self.nodes) < max(enough, 1 if enough > 1 else len(self._levels.by_name)):
            raise InputError(
                f"`levels` names {left[0]!r}, but no node that is online has this {what}. "
                f"{nearest(left[0], known)}"
            )
        if left and self._by is not None:
            raise InputError(
                f"`levels` names {left[0]!r}, but no node says that its {what} is this. "
                f"{nearest(left[0], known)}"
            )
        if len(self.nodes) < max(enough, 1):
            raise InputError(f"only {len(self.nodes)} of {max(enough, 1)} clients are online.")
        if left or len(self.nodes) < (wanted or 0):
            _log.warning(
                "%s of %s clients are online; going on without %s",
                len(self.nodes), wanted or len(self.names), ", ".join(left) or "the others",
            )  # fmt: skip
        skipped = sorted({own for own in known if self._levels.level(own) is None})
        if skipped:
            named = ", ".join(skipped[:MOST_NAMED])
            _log.warning("`levels` does not name them, so they are never called: %s", named)

    def learn(self, grid: Grid) -> set[int]:
        """Return who is online; ask new nodes what they are, and read the answers so far."""
        online = self._exchange.online(grid)
        for node in sorted(online - self._of_node.keys()):
            if self._by is None:
                self._meet(node, str(node), online)
                continue
            message = self._exchange.message(RecordDict(), node, "query", "roster")
            if self._exchange.push(grid, message):
                self._of_node[node] = None
                self._asked[message.metadata.message_id] = node
        if self._asked:
            for reply in self._exchange.pull(grid, list(self._asked)):
                if (name := reply.metadata.reply_to_message_id) in self._asked:
                    self._read(self._asked.pop(name), reply, online)
        return online

    def _read(self, node: int, reply: Message, online: set[int]) -> None:
        self._of_node[node] = ""  # unless it tells what it is
        if reply.has_error():
            self._why = f"node {node}: {str(reply.error.reason)[:200]}"
        else:
            told = {n: v for own in reply.content.config_records.values() for n, v in own.items()}
            if self._by in told:
                return self._meet(node, str(told[self._by]), online)
            self._why = f"node {node} has no setting {self._by!r}."
        _log.warning("it is not known what %s", self._why)
        return None

    def _meet(self, node: int, label: str, online: set[int]) -> None:
        """Take down a node: a client that came back, or a new one."""
        self._of_node[node] = label
        if self._levels.level(label) is None:
            return
        for name in self.names:
            if self._labels[name] == label and self.nodes.get(name) not in online:
                self.nodes[name] = node
                return
        name = f"{label} (node {node})" if label in self._labels else label
        self.names.append(name)
        self._labels[name], self.nodes[name] = label, node
