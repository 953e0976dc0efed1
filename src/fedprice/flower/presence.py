"""Which clients are present: asks every node who it is, and keeps track of clients and nodes."""

from __future__ import annotations

import logging
import secrets
import time
from typing import TYPE_CHECKING

from flwr.app import RecordDict

from fedprice.errors import FedpriceError, InputError
from fedprice.flower.wire import (
    LONGEST,
    MARKET,
    Profile,
    Question,
    market_fields,
    market_record,
    signed_fields,
    signed_of,
)
from fedprice.market.messages import RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flwr.app import Message
    from flwr.serverapp import Grid

    from fedprice.flower.exchange import Exchange, Limits
    from fedprice.market.messages import SigningKey

__all__ = ["Presence"]

_log = logging.getLogger("flwr")  # the log of a Flower app
ASK_AGAIN = 5.0  # seconds before a node without a valid answer is asked again
STEADY = 1.0  # seconds without a change after which the online nodes count as complete


class Presence:
    """The clients that are present.

    Parameters
    ----------
    run, key
        What clients are asked for, and the server's key that signs the question.
    keys
        The registered public keys, by client; None accepts any client.
    limits, exchange
        How long to wait, and how to send.

    Attributes
    ----------
    nodes, profiles, keys
        The node of each client, what it declared, and its public key: registered, or the first
        seen.
    """

    def __init__(
        self,
        run: str,
        key: SigningKey,
        keys: Mapping[str, bytes] | None,
        limits: Limits,
        exchange: Exchange,
    ) -> None:
        self._run, self._key, self._limits, self._exchange = run, key, limits, exchange
        self._registered = keys is not None
        self._agreed: set[str] | None = None  # in a period, only clients that agreed to it
        self.keys = dict(keys or {})
        self.nodes: dict[str, int] = {}
        self.profiles: dict[str, Profile] = {}
        self._questions: dict[str, tuple[int, str]] = {}  # by message: node and nonce
        self._quiet: dict[int, float] = {}  # nodes that are not clients, and when to ask them again
        self._turned_away = ""

    def know(self, keys: Mapping[str, list[str]]) -> None:
        """Adopt the keys that clients have in a ledger, where none are registered."""
        for account, own in keys.items():
            if not self._registered and account.startswith("client:"):
                self.keys[account.removeprefix("client:")] = bytes.fromhex(own[-1])

    def steady_count(self, grid: Grid) -> int:
        """Wait until no node has come or gone for a moment; return how many are online."""
        until, count, since = time.monotonic() + self._limits.wait, 0, time.monotonic()
        while True:
            found, now = len(self._exchange.online(grid)), time.monotonic()
            if found != count:
                count, since = found, now
            if (count and now - since >= STEADY) or now > until:
                return count
            time.sleep(0.1)

    def gather(self, grid: Grid, wanted: int, *, enough: int) -> None:
        """Ask nodes until all wanted clients have answered, or time is up and enough have."""
        until = time.monotonic() + self._limits.wait
        while True:
            self.learn(grid)
            if len(self.nodes) >= wanted or time.monotonic() > until:
                break
            time.sleep(0.2)
        if len(self.nodes) < enough:
            why = f" The last one turned away: {self._turned_away}" if self._turned_away else ""
            raise InputError(f"only {len(self.nodes)} of {enough} clients showed up.{why}")
        if len(self.nodes) < wanted:
            _log.warning("%s of %s clients showed up; going on", len(self.nodes), wanted)

    def renew(self, grid: Grid) -> None:
        """Between two periods, forget clients that have left, and add those that have come."""
        online = self._exchange.online(grid)
        self.nodes = {client: node for client, node in self.nodes.items() if node in online}
        self._agreed, self._quiet = None, {}
        last = time.monotonic() + self._limits.wait
        self.learn(grid)
        known, since = len(self.nodes), time.monotonic()
        while self._questions and time.monotonic() < min(last, since + ASK_AGAIN):
            time.sleep(0.1)
            self.learn(grid)
            if len(self.nodes) > known:  # one came: others may be equally slow
                known, since = len(self.nodes), time.monotonic()
        if not self.nodes:
            raise InputError("every client has left; the run cannot continue.")

    def close(self, keys: Mapping[str, bytes]) -> None:
        """Refuse clients that are not in an agreement, until the next period."""
        self.keys |= keys
        self._agreed = set(keys)

    def learn(self, grid: Grid) -> None:
        """Ask unknown nodes who they are, and process the answers that have arrived."""
        now, online = time.monotonic(), self._exchange.online(grid)
        busy = {*self.nodes.values(), *(node for node, _ in self._questions.values())}
        for node in sorted(online - busy):
            if self._quiet.get(node, 0.0) > now:
                continue
            nonce = secrets.token_hex(16)
            fields = signed_fields("question", self._key.sign(Question(self._run, nonce)))
            content = RecordDict({MARKET: market_record(**fields)})
            message = self._exchange.message(content, node, "query.profile", "profile")
            if self._exchange.push(grid, message):
                self._questions[message.metadata.message_id] = node, nonce
        came = self._exchange.pull(grid, self._questions)
        replies = {reply.metadata.reply_to_message_id: reply for reply in came}
        for name, (node, nonce) in list(self._questions.items()):
            if name not in replies:
                continue
            del self._questions[name]
            try:
                self._meet(replies[name], node, nonce, online)
            except FedpriceError as error:
                self._quiet[node] = now + ASK_AGAIN
                if self._turned_away != str(error)[:LONGEST]:  # log it only once
                    self._turned_away = str(error)[:LONGEST]
                    _log.warning("node %s is not in the market: %s", node, self._turned_away)

    def _meet(self, reply: Message, node: int, nonce: str, online: set[int]) -> None:
        """Accept the identity that a node claims, or refuse it."""
        if reply.has_error():
            raise RefusedError(str(reply.error.reason))
        signed = signed_of(market_fields(reply.content), "profile")
        profile: Profile = signed.open(Profile, signed.key)
        if (profile.run, profile.nonce) != (self._run, nonce):
            raise RefusedError("its profile answers another question.")
        if profile.samples > self._limits.most_samples:
            raise RefusedError(f"it declares more than {self._limits.most_samples} samples.")
        known = self.keys.get(profile.client)
        if known not in (None, signed.key) or (self._registered and known is None):
            raise RefusedError(f"{profile.client!r} is registered with another key.")
        if self._agreed is not None and profile.client not in self._agreed:
            raise RefusedError(f"{profile.client!r} is not in this period.")
        if self.nodes.get(profile.client) in online:
            raise RefusedError(f"{profile.client!r} is here already, at another node.")
        self.keys[profile.client] = signed.key
        self.nodes[profile.client] = node
        self.profiles[profile.client] = profile
