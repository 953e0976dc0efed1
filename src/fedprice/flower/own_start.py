"""Runs a strategy's own `start`, such as one that saves checkpoints, with our rounds beneath it.

Its calls of `configure_train`, `aggregate_train` and the like become those of the driver, which in
turn asks the strategy what to send and how to aggregate; its messages go through the driver, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprice.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
    from flwr.serverapp import Grid
    from flwr.serverapp.strategy import Result, Strategy

    from fedprice.flower.participation import Participation

__all__ = ["started"]


def started(
    driver: Participation,
    strategy: Strategy,
    grid: Grid,
    arrays: ArrayRecord,
    num_rounds: int,
    timeout: float,
    train_config: ConfigRecord,
    evaluate_config: ConfigRecord,
    judge: Callable[[int, ArrayRecord], MetricRecord | None] | None,
) -> Result:
    """Return what a strategy's own `start` returns; rounds that a stopped run has done are skipped.

    Parameters
    ----------
    driver, strategy
        Whose rounds are run, and whose `start`.
    grid, arrays, num_rounds, timeout, train_config, evaluate_config
        What `start` gets.
    judge
        Evaluates a model on the server, if anything does.
    """
    done, name = driver.done, type(strategy).__name__
    beneath = _Beneath(driver, grid, name)

    def configure_train(
        server_round: int, arrays: ArrayRecord, config: ConfigRecord, _: Grid
    ) -> list[Message]:
        if server_round <= done:
            return []
        return beneath.take(driver.configure_train(server_round, arrays, config, grid), "train")

    def aggregate_train(
        server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord, MetricRecord | None]:
        if server_round <= done:
            return arrays, None
        proposed = driver.aggregate_train(server_round, replies)
        driver.round_over(grid, proposed[1], server_round == num_rounds)
        return proposed

    def configure_evaluate(
        server_round: int, arrays: ArrayRecord, config: ConfigRecord, _: Grid
    ) -> list[Message]:
        if server_round <= done:
            return []
        sent = driver.configure_evaluate(server_round, arrays, config, grid)
        return beneath.take(sent, "evaluate")

    def aggregate_evaluate(server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None if server_round <= done else driver.aggregate_evaluate(server_round, replies)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        return None if judge is None or server_round < done else judge(server_round, arrays)

    hooks: dict[str, Any] = {
        "configure_train": configure_train,
        "aggregate_train": aggregate_train,
        "configure_evaluate": configure_evaluate,
        "aggregate_evaluate": aggregate_evaluate,
    }
    vars(strategy).update(hooks)
    try:
        result = strategy.start(
            beneath,  # type: ignore[arg-type]  # it delegates what it does not change
            arrays,
            num_rounds,
            timeout,
            train_config,
            evaluate_config,
            None if judge is None else evaluate,
        )
    finally:
        for hook in hooks:
            vars(strategy).pop(hook, None)
    if driver.done < num_rounds:
        raise InputError(
            f"the `start` of {name} ended after {driver.done} of {num_rounds} rounds; let it call "
            "`configure_train` and `aggregate_train` once per round."
        )
    return result


class _Beneath:
    """A grid that sends only what the driver configured."""

    def __init__(self, driver: Participation, grid: Grid, name: str) -> None:
        self._driver, self._grid, self._name = driver, grid, name
        self._kinds: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def take(self, messages: list[Message], kind: str) -> list[Message]:
        """Note messages that may be sent."""
        self._kinds |= dict.fromkeys(map(id, messages), kind)
        return messages

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send messages as the driver does."""
        sent = list(messages)
        kinds = {self._kinds.pop(id(message), "") for message in sent}
        if kinds - {"train"} and kinds - {"evaluate"}:
            self.push_messages(sent)
        if kinds == {"train"} or not sent:
            return list(self._driver.sent(self._grid, sent))
        return list(self._driver.replies(self._grid, sent))

    def push_messages(self, messages: Iterable[Message]) -> None:
        """Refuse messages that coins did not decide on."""
        raise InputError(
            f"the `start` of {self._name} sends messages of its own, but coins decide who trains. "
            "Send only what `configure_train` and `configure_evaluate` return, or do the rest of "
            "its work in `evaluate_fn`, which is called after each round."
        )
