"""Live reports of a run: who joined, missed or was refused, and what was paid."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Ledger
from fedprice.market.ledger_errors import DamagedError, NoLedgerError
from fedprice.market.metrics import metrics_line
from fedprice.market.money import money
from fedprice.verify import next_period, period_number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from fedprice.market.ledger import Entry
    from fedprice.market.metrics import RoundMetrics

__all__ = ["Watch"]

WIDTH = 80  # columns of a terminal


class Watch:
    """Reads a ledger from time to time, and reports what is new in a run.

    It waits for a ledger that does not exist yet. Any other problem with it is reported once, and
    does not end the run that is watched.

    Parameters
    ----------
    url, run
        The ledger and the run, which need not exist yet.
    tell
        Called with one line per round. Losses and accuracies are on the line of their round if they
        are already known, and otherwise on a separate line.
    """

    def __init__(self, url: str, run: str, tell: Callable[[str], None]) -> None:
        self._url, self._run, self._tell = url, run, tell
        self._ledger: Ledger | None = None
        self._seen, self._done = 0, 0  # entries of this period, rounds of those before
        self._rounds = 0  # of this period
        self._measured: list[RoundMetrics] = []  # of this period, not reported yet
        self._told: set[tuple[int, str]] = set()  # the rounds, and whose metrics
        self._wrong: set[str] = set()

    def __call__(self) -> None:
        """Report what was recorded since the last call."""
        try:
            self._look()
        except NoLedgerError:
            return  # it does not exist yet
        except FedpriceError as error:
            self._complain(str(error))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            self._complain(
                f"the entries of run {self._run!r} cannot be understood "
                f"({type(error).__name__}: {error}); run: fedprice ledger verify"
            )

    def _look(self) -> None:
        self._ledger = self._ledger or Ledger(self._url, create=False)
        books = self._ledger.books
        if self._run not in books.runs and self._run not in books.offered:
            return
        entries = list(self._ledger.entries(self._run))
        # Read after the entries, so that all metrics of a settled period are there.
        self._measured = self._new_metrics(self._ledger)
        for entry in entries[self._seen :]:
            self._report(entry)
            self._seen += 1
        self._tell_metrics(math.inf)
        if entries[-1].content["kind"] == "settle":  # there may be another period
            following = next_period(self._run)
            if following in books.runs or following in books.offered:
                self._done += self._rounds
                self._run, self._seen = following, 0
                self._look()

    def _report(self, entry: Entry) -> None:
        content = entry.content
        if content["kind"] == "offer" and content["dropped"]:
            self._tell(f"offered again: {next(iter(content['dropped'].values()))}")
        elif content["kind"] == "commit":
            for client, why in content["dropped"].items():
                self._tell(f"{client} is not in it: {why}")
        if content["kind"] == "offer":
            self._rounds = int(json.loads(content["conditions"])["rounds"])
        elif content["kind"] == "open":
            self._rounds = int(content.get("rounds", self._rounds))
            clients, number = len(_agreed(content)), period_number(self._run)
            period = f"period {number}: " if number > 1 else ""
            self._tell(
                f"{period}{clients} client{'s' * (clients != 1)} agreed, for {self._rounds} rounds"
            )
        elif content["kind"] == "round":
            paid = money(sum(m for a, m in entry.postings if a.startswith("client:")))
            round_ = self._done + content["of"][1] + 1
            self._tell_metrics(round_)
            measured = [self._take(own) for own in [*self._measured] if own.round == round_]
            after = [f"paid {paid}", *filter(None, measured)]
            # Names, unless they make the line too long: then how many there are.
            for joined, missed in ((" ".join, " ".join), (_count, " ".join), (_count, _count)):
                parts = [f"joined {joined(content['joined']) or '-'}"]
                if content["missed"]:
                    parts.append(f"missed {missed(content['missed'])}")
                parts += [f"refused {n}: {why}" for n, (why, *_) in content["refused"].items()]
                told = f"round {round_}: {'; '.join([', '.join(parts), *after])}"
                if len(told) <= WIDTH:
                    break
            self._tell(told)
        elif content["kind"] == "settle":
            self._tell("settled")

    def _new_metrics(self, ledger: Ledger) -> list[RoundMetrics]:
        """Return metrics that are not reported yet; damaged ones do not stop reports of rounds."""
        try:
            measured = ledger.metrics(self._run)
        except DamagedError as error:
            self._complain(str(error))
            return []
        return [own for own in measured if (own.round, own.who) not in self._told]

    def _tell_metrics(self, before: float) -> None:
        """Report the metrics of earlier rounds, each on a separate line."""
        for own in [own for own in self._measured if own.round < before]:
            self._take(own)
            if str(own):
                self._tell(str(own))

    def _take(self, own: RoundMetrics) -> str:
        """Return metrics as text, and mark them as reported."""
        self._measured.remove(own)
        self._told.add((own.round, own.who))
        return metrics_line(own)

    def _complain(self, text: str) -> None:
        if text not in self._wrong:
            self._wrong.add(text)
            self._tell(f"the ledger cannot be read: {text}")

    def close(self) -> None:
        """Close the ledger."""
        if self._ledger is not None:
            self._ledger.close()


def _count(names: Collection[str]) -> str:
    return f"{len(names)} client{'s' * (len(names) != 1)}" if names else ""


def _agreed(content: dict[str, Any]) -> Any:
    """Return the clients of an open run, from their terms or from their secrets."""
    return content["terms"] if "terms" in content else content["secrets"]
