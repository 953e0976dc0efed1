"""What a run records, told as it comes: who joined, missed, was refused, and what was paid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Ledger
from fedprice.market.money import money
from fedprice.market.periods import next_period, period_number

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Watch"]


class Watch:
    """Looks into a ledger now and then, and tells what is new of a run.

    Parameters
    ----------
    url, run
        Which run of which ledger; they need not be there yet.
    tell
        Called with one line per round.
    """

    def __init__(self, url: str, run: str, tell: Callable[[str], None]) -> None:
        self._url, self._run, self._tell = url, run, tell
        self._ledger: Ledger | None = None
        self._seen, self._done = 0, 0  # entries of this period, rounds of those before

    def __call__(self) -> None:
        """Tell what was recorded since the last call."""
        try:
            self._ledger = self._ledger or Ledger(self._url, create=False)
            if self._ledger.opening(self._run) is None:
                return
            entries = list(self._ledger.entries(self._run))
        except FedpriceError:
            return  # not there yet
        for entry in entries[self._seen :]:
            content = entry.content
            if content["kind"] == "open":
                clients, number = len(content["terms"]), period_number(self._run)
                period = f"period {number}: " if number > 1 else ""
                self._tell(f"{period}{clients} clients agreed, for {content['rounds']} rounds")
            elif content["kind"] == "round":
                paid = money(sum(m for a, m in entry.postings if a.startswith("client:")))
                parts = [f"joined {' '.join(content['joined']) or '-'}"]
                if content["missed"]:
                    parts.append(f"missed {' '.join(content['missed'])}")
                parts += [f"refused {n}: {why}" for n, why in content["refused"].items()]
                told = ", ".join(parts)
                self._tell(f"round {self._done + content['of'][1] + 1}: {told}; paid {paid}")
            else:
                self._tell("settled")
        self._seen = len(entries)
        if entries[-1].content["kind"] == "settle":  # there may be another period
            following = next_period(self._run)
            if self._ledger.opening(following) is not None:
                self._done += int(entries[0].content["rounds"])
                self._run, self._seen = following, 0
                self()

    def close(self) -> None:
        """Let go of the ledger."""
        if self._ledger is not None:
            self._ledger.close()
