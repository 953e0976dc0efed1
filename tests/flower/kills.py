"""Kill a server while it comes to an agreement: `python -m tests.flower.kills FOLDER FORM`.

Each life of the market is a process of its own, ended by SIGKILL before or after a step of the
bargain: between the turns of offers, between commitments and the opening, and in the rounds. The
next life goes on from the ledger, and clients from what they kept. After every death the ledger
must verify; at the end the run is settled, paid to the micro-unit, and verifies with everything
that the clients kept.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context

from fedprice import Beliefs
from fedprice.flower import Client, InProcessGrid, PostedTariffs
from fedprice.market.bargain import Bargain
from fedprice.market.ledger import Ledger
from fedprice.market.run import MarketRun
from fedprice.verify import VerificationError, check_entries, due, read_receipts
from tests.flower.apps import client_app, client_of, initial, strategy
from trials.markets import NAMES, ROUNDS

Step = tuple[str, Any, str, int]
BUDGET = 4.0
COST, VALUE = [3.0, 6.0, 4.0, 9.0], [150.0, 40.0, 700.0, 300.0]
IDENTITY = "ab" * 32
# Where to die: on which side of which call of which function.
BETWEEN_TURNS = [("before", Bargain, "offer_next", 1), ("after", Bargain, "offer_next", 2)]
UNOPENED = [
    ("before", Bargain, "close", 1),
    ("after", Bargain, "close", 1),
    ("before", Bargain, "reveal", 2),
    ("before", Bargain, "open", 1),
]
FIRST = [
    ("before", Bargain, "offer", 1),
    ("after", Bargain, "offer", 1),
    ("before", Bargain, "commit", 1),
    ("after", Bargain, "commit", 2),
]
OPEN = [("after", Bargain, "open", 1), ("before", MarketRun, "close_round", 2)]
STEPS: dict[str, list[Step]] = {
    "in turn, briefly": [BETWEEN_TURNS[1], UNOPENED[1]],
    "in turn": [*FIRST, *BETWEEN_TURNS, *UNOPENED, *OPEN],
    "blocks": [*FIRST, *UNOPENED, *OPEN],
}


def pricing(form: str) -> PostedTariffs:
    beliefs = Beliefs.exponential(cost=5.0, value=300.0, cells=8)
    ways: dict[str, Any] = {"form": form} if form == "blocks" else {"sequential": True}
    return PostedTariffs(BUDGET, beliefs, alpha=0.75, max_weight=float("inf"), **ways)


def live(folder: Path, form: str) -> None:
    """Be the market, from wherever its ledger ends."""

    def client(context: Context) -> Client:
        n = int(context.node_config["partition-id"])
        own = replace(client_of(context), reveals=False, cost=COST[n], value=VALUE[n])
        return replace(own, receipts=folder / f"{n}.receipts")

    ledger = Ledger(f"sqlite:///{folder}/market.db", identity=IDENTITY)
    grid = InProcessGrid(client_app(client=client), 4)
    strategy(ledger, pricing=pricing(form)).start(grid, initial(), num_rounds=ROUNDS)
    ledger.close()


def dying(function: Callable[..., Any], nth: int, side: str) -> Callable[..., Any]:
    """Return a function that kills this process before or after its nth call."""
    left = nth

    def called(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = function(*given, **named)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return called


def one_life(folder: Path, form: str, step: Step | None) -> bool:
    """Let a market live, and die at a step; return whether it died."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if step is not None:
                side, owner, name, nth = step
                setattr(owner, name, dying(getattr(owner, name), nth, side))
            live(folder, form)
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status) and os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit(f"a market failed without being killed: {form}, {step}")
    return os.WIFSIGNALED(status)


def judge(folder: Path) -> list[str]:
    """Return what is wrong with a run that ended."""
    ledger, wrong = Ledger(f"sqlite:///{folder}/market.db"), []
    entries = [entry.line() for entry in ledger.entries()]
    run = check_entries(entries).runs["run"]
    paid = {name: ledger.balance(f"client:{name}") for name in run.clients}
    if not run.settled or run.done != ROUNDS or set(run.clients) != set(NAMES):
        wrong.append(f"{run.done} rounds with {sorted(run.clients)}, settled: {run.settled}")
    if run.attempts != 1:
        wrong.append(f"{run.attempts} sets of offers")
    earned = {
        name: due(client.payment, client.level, ROUNDS, client.joined)
        for name, client in run.clients.items()
    }
    if paid != earned or any(client.heads != client.joined for client in run.clients.values()):
        wrong.append(f"paid {paid} of {earned}")
    if ledger.balance("escrow:run"):
        wrong.append("the rest did not come back")
    for n in range(len(NAMES)):
        try:
            check_entries(entries, receipts=read_receipts(folder / f"{n}.receipts"))
        except VerificationError as error:
            wrong.append(f"what {NAMES[n]} kept: {error}")
    ledger.close()
    return wrong


def main(top: Path, form: str) -> dict[str, Any]:
    """Kill a market twice at each step, and end it; return how often, and what went wrong where."""
    found: dict[str, Any] = {"kills": 0, "wrong": []}
    for step in STEPS[form]:
        side, _, name, nth = step
        where = f"{side} {name} {nth}"
        folder = top / where
        folder.mkdir()
        for _ in range(2):  # if it comes by there again
            found["kills"] += one_life(folder, form, step)
            ledger = Ledger(f"sqlite:///{folder}/market.db")
            ledger.verify()
            ledger.close()
        one_life(folder, form, None)
        found["wrong"] += [f"{where}: {why}" for why in judge(folder)]
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), sys.argv[2])) + "\n")
