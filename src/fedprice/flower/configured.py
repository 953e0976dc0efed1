"""What a Flower strategy sends to each node, without a network and without its sampling."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from flwr.app import ArrayRecord
    from flwr.serverapp.strategy import Strategy

__all__ = ["changed", "contents"]

EVERYBODY = {"fraction_train": 1.0, "min_train_nodes": 0, "min_available_nodes": 0}


def contents(
    ask: Callable[[int, ArrayRecord, ConfigRecord, Grid], Iterable[Message]],
    parts: list[Strategy],
    server_round: int,
    arrays: ArrayRecord,
    config: ConfigRecord,
    nodes: Sequence[int],
) -> dict[int, RecordDict]:
    """Return what a strategy sends to the nodes that it chooses among these.

    Parameters
    ----------
    ask
        Its `configure_train` or `configure_evaluate`.
    parts
        The strategy and those inside it. They choose all nodes for training meanwhile; for
        evaluation, by their own settings, as far as there are so many nodes.
    config
        What strategies may change for all later rounds, too, as in Flower.
    """
    if not nodes:
        return {}
    least = max(getattr(part, "min_evaluate_nodes", 0) for part in parts)
    settings = EVERYBODY | {"min_evaluate_nodes": min(least, len(nodes))}
    with changed(parts, settings):
        messages = list(ask(server_round, arrays, config, _Nodes(nodes)))
    # A copy of the settings, which may change before the message is sent.
    return {
        message.metadata.dst_node_id: RecordDict(
            {
                name: ConfigRecord(dict(record)) if isinstance(record, ConfigRecord) else record
                for name, record in message.content.items()
            }
        )
        for message in messages
        if message.metadata.dst_node_id in nodes
    }


@contextmanager
def changed(parts: list[Strategy], settings: dict[str, Any]) -> Iterator[None]:
    """Change settings of strategies, where they have them, inside a `with` block."""
    before = [{n: vars(part)[n] for n in settings if n in vars(part)} for part in parts]
    try:
        for part, own in zip(parts, before, strict=True):
            vars(part).update({name: settings[name] for name in own})
        yield
    finally:
        for part, own in zip(parts, before, strict=True):
            vars(part).update(own)


class _Nodes(Grid):
    """Lists nodes to a strategy that configures a round, and sends nothing."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes, self._asked = list(nodes), 0

    def get_node_ids(self) -> list[int]:
        self._asked += 1
        # A strategy that asks repeatedly is waiting for more nodes, so pretend that there are more.
        return [*self._nodes, *range(-1000 * max(0, self._asked - 3), 0)]

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise InputError("`strategy` must not send messages on its own; the market does.")

    run = property(_refuse)
    set_run = push_messages = pull_messages = send_and_receive = _refuse
