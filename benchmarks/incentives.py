"""Whether skipping heads pays, and what strategic clients do to a model: `make bench-incentives`.

For the equilibria of the paper's three setups, with the paper's utility and with money alone, each
client's net utility is simulated under two payment rules: shares of rounds (tails, or heads and an
accepted update, earn the round's share) and delivered shares (`fedprice.verify.due`). Then
models are trained with clients that all play their best response. Writes incentives.json and
incentives.md beside this file. Image data come from where `fedprice data` puts them, or from
FEDPRICE_DATA.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # the tests import this file, too
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # one thread per run; set before numpy is imported

import numpy as np

import fedprice as fp
from fedprice.experiments.setups import SETUPS
from fedprice.rounds import DivergedError, HorvitzThompson, Plain
from fedprice.rounds.loop import Rounds
from fedprice.rounds.participation import Drawn
from fedprice.rounds.simulation import Driver
from fedprice.verify import LONGEST_GAP, delivery_correction

if TYPE_CHECKING:
    from fedprice.arrays import BoolArray, FloatArray, IntArray

HERE = Path(__file__).parent
DRAWS, KNOWING_DRAWS, SEEDS = 200, 20, range(3)
SHARES = np.linspace(0, 1, 21)
STRATEGIES = ("spread", "stop early", "start late")
RULES = ("shares of rounds", "delivered share")
LOCAL_STEPS = {"setup1": 100, "setup2": 10, "setup3": 10}  # for training; 100 would take hours
LEAST_DELIVERY = 0.25  # least value of the estimate that is used with shares of rounds


@dataclass(frozen=True)
class Deal:
    """What one client has agreed to, and what it gains and loses.

    Attributes
    ----------
    payment, level, rounds
        For all rounds (negative if the client pays), the level, and how many rounds.
    head_cost
        What one delivery costs: c q^τ / (q R), so that all heads together cost c q^τ on average.
    value_impact
        v k: an effective level of q s, with s the delivered share, is worth −v k / (q s).
    """

    payment: float
    level: float
    rounds: int
    head_cost: float
    value_impact: float

    def utility(self, pay: float, delivered: float, share: float) -> float:
        """Return the net utility of a pay, a number of deliveries, and the delivered share."""
        if not self.value_impact:
            return pay - self.head_cost * delivered
        worth = -self.value_impact / (self.level * share) if share else -np.inf
        return pay - self.head_cost * delivered + worth


def deals(outcome: fp.Outcome) -> list[Deal]:
    """Return the deals of an outcome's clients."""
    game = outcome.game
    levels, tau, rounds = outcome.levels, game.cost_exponent, game.bound.rounds
    return [
        Deal(float(p * q), float(q), rounds, float(c * q ** (tau - 1) / rounds), float(v * k))
        for p, q, c, v, k in zip(
            outcome.prices, levels, game.clients.cost, game.clients.value, game.impact, strict=True
        )
    ]


def plan(strategy: str, share: float, heads: BoolArray) -> BoolArray:
    """Return which heads are delivered, in the shape of `heads`: (draws, rounds).

    "spread": heads at regular intervals; "stop early": those of the first rounds; "start late":
    those of the last rounds.
    """
    rounds = heads.shape[1]
    if strategy == "spread":
        number = np.cumsum(heads, axis=1)
        # Rounded, since 20 · 0.05 must be 1.
        due = np.floor(np.round(number * share, 9))
        chosen = due > np.floor(np.round((number - 1) * share, 9))
    elif strategy == "stop early":
        chosen = np.arange(rounds) < round(share * rounds)
    else:
        chosen = np.arange(rounds) >= rounds - round(share * rounds)
    return np.logical_and(heads, chosen)


def pay(rule: str, payment: float, heads: BoolArray, delivered: BoolArray) -> FloatArray:
    """Return what a client is paid in total, without rounding to whole units, shape (draws,)."""
    rounds = heads.shape[1]
    if payment <= 0:  # a payer pays in full under both rules
        return np.full(len(heads), payment)
    if rule == "shares of rounds":
        skipped = (heads & ~delivered).sum(axis=1)
        return np.asarray(payment * (1 - skipped / rounds))
    drawn = np.cumsum(heads, axis=1)
    share = np.cumsum(delivered, axis=1) / np.maximum(drawn, 1)
    due = np.arange(1, rounds + 1) * np.where(drawn > 0, share, 1.0)
    paid: FloatArray = payment / rounds * due.max(axis=1)  # never less than already paid
    return paid


def best_plan(deal: Deal, rule: str, heads: BoolArray) -> dict[str, Any]:
    """Return the strategy and the share that suit a client best on average over the draws."""
    total, found = heads.sum(axis=1).mean(), []
    for strategy in STRATEGIES:
        for share in SHARES[:-1] if strategy != "spread" else SHARES:
            delivered = plan(strategy, float(share), heads)
            count = delivered.sum(axis=1).mean()
            paid = pay(rule, deal.payment, heads, delivered).mean()
            utility = deal.utility(paid, count, count / total)
            found.append((utility, count / total, strategy, float(share), paid))
    honest = next(own for own in found if own[2] == "spread" and own[3] == 1)
    best = max(found)
    return {
        "utility": best[0],
        "share": best[1],
        "strategy": best[2],
        "grid_share": best[3],
        "paid": best[4] / deal.payment if deal.payment else 1.0,
        "gain": best[0] - honest[0],
        "honest": honest[0],
    }


def knowing_stop(deal: Deal, heads: BoolArray) -> int:
    """Return how many heads a client delivers before it stops, if it knows all its coins.

    Both secrets are known once a run is open, so a client can compute its heads in advance, and
    stop where a long gap follows. `heads` are the coins of one run, shape (rounds,).
    """
    at = np.append(np.flatnonzero(heads), deal.rounds)  # when each head comes, and the end
    count = len(at) - 1
    # If the first d heads are delivered, the due peaks right before a later head.
    done, number = np.arange(count + 1)[:, None], np.arange(1, count + 1)[None, :]
    later = np.where(number > done, at[1:] * done / number, 0.0).max(axis=1, initial=0.0)
    paid = np.full(count + 1, deal.payment)
    if deal.payment > 0:
        paid *= np.maximum(at, later) / deal.rounds
    utility = [deal.utility(p, d, d / count if count else 1.0) for d, p in enumerate(paid)]
    return int(count - np.argmax(utility[::-1]))  # the most deliveries among equally good ones


def respond(outcome: fp.Outcome, seed: int = 0, draws: int = DRAWS) -> dict[str, Any]:
    """Return each client's best responses to both rules, over random coins."""
    found: dict[str, Any] = {rule: [] for rule in RULES} | {"knowing": []}
    for n, deal in enumerate(deals(outcome)):
        rng = np.random.default_rng([seed, n])
        heads = rng.random((draws, deal.rounds)) < deal.level
        for rule in RULES:
            found[rule].append(best_plan(deal, rule, heads))
        some = heads[: min(draws, KNOWING_DRAWS)]
        stops = [knowing_stop(deal, own) for own in some]
        found["knowing"].append(float(sum(stops) / some.sum()))
    return found


@dataclass(frozen=True)
class Planned:
    """Participation by plan: who delivers in each round, and with which probability."""

    delivered: BoolArray
    probability: FloatArray
    _round: list[int]

    def heads(self, round_: int) -> IntArray:
        """Return the clients that deliver."""
        self._round[0] = round_
        return np.flatnonzero(self.delivered[round_])

    def arrival(self) -> FloatArray:
        """Return q over the correction for missed heads, as in the market's weights."""
        row: FloatArray = self.probability[self._round[0]]
        return row


def coins(levels: FloatArray, rounds: int, seed: int) -> BoolArray:
    """Return the coins that `simulate` would draw, shape (rounds, num_clients)."""
    drawn, heads = Drawn(levels, np.ones_like(levels), seed), np.zeros((rounds, levels.size), bool)
    for round_ in range(rounds):
        heads[round_, drawn.heads(round_)] = True
    return heads


def corrected(levels: FloatArray, heads: BoolArray, delivered: BoolArray, rule: str) -> FloatArray:
    """Return q over the correction of each round, by the gap or by the estimate before it."""
    probability = np.empty(heads.shape)
    gap = np.ones(levels.size, int)
    drawn, joined = np.zeros(levels.size), np.zeros(levels.size)
    for round_, (head, own) in enumerate(zip(heads, delivered, strict=True)):
        if rule == "delivered share":
            probability[round_] = levels / [delivery_correction(int(g), LONGEST_GAP) for g in gap]
        else:
            probability[round_] = levels * np.maximum((joined + 1) / (drawn + 1), LEAST_DELIVERY)
        gap = np.where(own, 1, gap + head)
        drawn, joined = drawn + head, joined + own
    return probability


def final_loss(
    task: fp.Task, levels: FloatArray, heads: BoolArray, delivered: BoolArray, rule: str, seed: int
) -> float:
    """Return the loss of the model that these deliveries train; infinite if it diverges."""
    rounds = len(heads)
    loop = Rounds(
        task.initial,
        ids=task.ids,
        weight=task.weight,
        total=rounds,
        participation=Planned(delivered, corrected(levels, heads, delivered, rule), [0]),
        aggregator=HorvitzThompson(),
        server_step=Plain(),
    )
    driver = Driver(task, rounds, seed, evaluate_every=max(rounds // 10, 1))
    try:
        return float(driver.run(loop, np.ones(levels.size)).loss[-1])
    except DivergedError:
        return float("inf")


def train(task: fp.Task, outcome: fp.Outcome, found: dict[str, Any], seed: int) -> dict[str, float]:
    """Return the final losses with honest clients and with best responses, on the same coins."""
    levels, own = outcome.levels, deals(outcome)
    heads = coins(levels, outcome.game.bound.rounds, seed)
    knowing = np.zeros_like(heads)
    for n, deal in enumerate(own):
        stop = knowing_stop(deal, heads[:, n])
        knowing[:, n] = heads[:, n] & (np.cumsum(heads[:, n]) <= stop)

    def planned(rule: str) -> BoolArray:
        columns = [
            plan(best["strategy"], best["grid_share"], heads[None, :, n])[0]
            for n, best in enumerate(found[rule])
        ]
        return np.array(columns).T

    cases = {
        "honest": (heads, RULES[1]),
        "delivered share": (planned(RULES[1]), RULES[1]),
        "delivered share, coins known": (knowing, RULES[1]),
        "shares of rounds": (planned(RULES[0]), RULES[0]),
    }
    losses: dict[str, float] = {}
    for case, (delivered, rule) in cases.items():
        if losses and (delivered == heads).all():  # no need to train the same model again
            losses[case] = losses["honest"]
        else:
            losses[case] = final_loss(task, levels, heads, delivered, rule, seed)
    return losses


def without_value(game: fp.Game) -> fp.Game:
    """Return the game among clients that value money alone."""
    return replace(game, clients=replace(game.clients, value=np.zeros(len(game.clients))))


def measure() -> dict[str, Any]:
    """Run all that the tables need."""
    result: dict[str, Any] = {}
    for name, setup in SETUPS.items():
        federation = setup.federation()
        task = fp.LogisticRegression(federation)
        game = setup.game(federation, fp.calibrate(task))
        trained = fp.LogisticRegression(federation, fp.Training(local_steps=LOCAL_STEPS[name]))
        for wants, own in (("paper", game), ("money alone", without_value(game))):
            outcome = fp.solve(own)
            found = respond(outcome)
            result[f"{name}, {wants}"] = {
                "levels": outcome.levels.tolist(),
                "payers": int((outcome.prices < 0).sum()),
                **found,
                "losses": [train(trained, outcome, found, seed) for seed in SEEDS],
            }
            sys.stderr.write(f"{name}, {wants}: done\n")
    return result


def report(result: dict[str, Any]) -> str:
    """Return the tables, as Markdown."""
    first = [
        "| setup, utility | rule | gain by skipping | mean share delivered | least | never deliver "
        "| pay of those |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    knowing = [
        "| setup, utility | least level | mean share delivered | least | clients below 95 % | most"
        " heads skipped |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    losses = [
        "| setup, utility | honest | delivered share | coins known | shares of rounds |",
        "|---|---:|---:|---:|---:|",
    ]
    for title, found in result.items():
        for rule in RULES:
            best = found[rule]
            share = np.array([own["share"] for own in best])
            gains = sum(own["gain"] > 1e-9 * abs(own["honest"]) for own in best)
            never = [own["paid"] for own in best if own["share"] == 0]
            cells = [f"{gains} of {len(best)}", f"{share.mean():.1%}", f"{share.min():.1%}"]
            cells += [str(len(never)), f"{np.mean(never):.0%}" if never else "–"]
            first.append(f"| {title} | {rule} | " + " | ".join(cells) + " |")
        levels, share = np.array(found["levels"]), np.array(found["knowing"])
        skipped = (1 - share) * levels * 1000
        knowing.append(
            f"| {title} | {levels.min():.3f} | {share.mean():.1%} | {share.min():.1%} | "
            f"{(share < 0.95).sum()} | {skipped.max():.1f} |"
        )
        runs = found["losses"]
        honest = np.array([run["honest"] for run in runs])
        cells = [f"{honest.mean():.4f}"]
        for case in list(runs[0])[1:]:
            ratio = np.array([run[case] for run in runs]) / honest - 1
            worst = ratio[np.argmax(np.abs(ratio))]
            cells.append(
                f"{ratio.mean():+.2%} ({worst:+.2%})" if np.isfinite(worst) else "diverges"
            )
        losses.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(
        [
            "# Incentives: does it pay to skip heads",
            "",
            "Written by `make bench-incentives`. The equilibria of the paper's setups, 40 clients "
            f"and 1,000 rounds each, over {DRAWS} draws of the coins. Strategies: deliver a share "
            "of the heads (0, 5, …, 100 %), spread evenly, or all until some round, or all from "
            "some round on. Each delivery costs c q^τ / (q R). Paper: money, cost, and the value "
            "of the model, −v k / (q s) at a delivered share s; money alone: the setups priced "
            "with v = 0. Payers pay in full under both rules.",
            "",
            *first,
            "",
            "Clients that know all their coins in advance and stop at the best moment, under the "
            f"delivered share; {KNOWING_DRAWS} draws:",
            "",
            *knowing,
            "",
            f"Final loss after 1,000 rounds, {len(SEEDS)} seeds (Setups 2 and 3 with 10 local "
            "steps instead of 100, for time): of honest clients, and relative to it when "
            "every client plays its best response, mean (worst seed). Weights are corrected as "
            "in the market: by the gap since the last accepted update, and under "
            "shares of rounds by the estimate that went with it. There, pay depends only on how "
            "many heads are delivered, so that chance decides between strategies with the same "
            "number.",
            "",
            *losses,
            "",
            f"Python {platform.python_version()}, numpy {np.__version__}.",
            "",
        ]
    )


def main() -> None:
    """Run all, print and write the tables."""
    result = measure()
    text = report(result)
    (HERE / "incentives.md").write_text(text, encoding="utf-8")
    (HERE / "incentives.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
