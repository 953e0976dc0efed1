"""Tells a tracker about the rounds of a strategy, each with all that was measured after it."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from fedprice.trackers import tracking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fedprice.rounds.loop import Round
    from fedprice.trackers import RoundRecord, Tracker

__all__ = ["Tracked", "tracked"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Tracked:
    """The part of a strategy that shows its rounds; each is shown when the next one begins.

    Attributes
    ----------
    tracker
        What is told; by default the one that the environment's FEDPRICE_TRACK describes, such as
        "mlflow:runs", for the duration of `start`.
    """

    tracker: Tracker | None = None
    _to_show: RoundRecord | None = None

    def _note_round(self, round_: Round, number: int) -> None:
        """Note a round that is over, by its number in the whole run."""
        if self.tracker is not None:
            self._to_show = replace(round_.report({}, self._spent()), round=number)

    def _note_metrics(self, metrics: Mapping[str, Any] | None) -> None:
        """Note what was measured after it."""
        if self._to_show is not None and metrics:
            self._to_show = replace(self._to_show, metrics={**metrics, **self._to_show.metrics})

    def _show_round(self) -> None:
        if self._to_show is not None and self.tracker is not None:
            self.tracker.on_round(self._to_show)
        self._to_show = None

    def _spent(self) -> float | None:
        """Return what clients were paid so far, where they are paid."""
        return None


def tracked(start: Callable[_P, _T]) -> Callable[_P, _T]:
    """Open and close the tracker of the environment around a strategy's `start`."""

    @wraps(start)
    def shown(*arguments: _P.args, **settings: _P.kwargs) -> _T:
        self = cast("Tracked", arguments[0])
        text = os.environ.get("FEDPRICE_TRACK") if self.tracker is None else None
        run = getattr(self, "run", None) or os.environ.get("FEDPRICE_RUN") or "run"
        with tracking(text or None, run) as opened:
            before, self.tracker = self.tracker, opened or self.tracker
            try:
                return start(*arguments, **settings)
            finally:
                self._show_round()
                self.tracker = before

    return shown
