"""Whether anybody gains over honesty, client or server: `make bench-incentives`.

Small runs are searched exhaustively: every way to deliver, every round to end in, every phase of
the coins and every way to cut a run into periods, with the rules of `fedprice.verify` themselves.
Then the equilibria of the paper's three setups are played, with the paper's utility and with money
alone. Writes incentives.json and incentives.md beside this file. Image data come from where
`fedprice data` puts them, or from FEDPRICE_DATA.
"""

from __future__ import annotations

import itertools
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
from fedprice.verify import (
    COINS,
    LEVEL_ONE,
    REDRAWN,
    SPACED,
    Coins,
    coin_phase,
    due,
    most_heads,
    tariff_payment,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Row = tuple[str, float, str, float]

HERE = Path(__file__).parent
MICRO = 10**6
PHASES = [n * LEVEL_ONE // 64 + 12345 for n in range(64)]
EXPONENTS = (1.2, 2.0, 3.0)
SMALL = [(level, rounds) for level in (0.1, 0.15, 0.3, 0.37, 0.6, 0.9) for rounds in (7, 10)]
DRAWS = 200
MOST_GAIN = 0.01  # over honesty, of every client and of the server
BLOCKS = ((0.2, 12.0), (1.0, 4.0))  # ends and prices of a tariff, for the table of periods


def units(level: float) -> int:
    """Return a level in multiples of 2⁻³²."""
    return int(level * LEVEL_ONE)


def heads_of(phase: int, level: int, rounds: int) -> list[int]:
    """Return the rounds in which a coin shows heads."""
    coins = Coins(phase, level)
    return [r for r in range(rounds) if coins.heads(r)]


def splits(rounds: int) -> Iterator[tuple[int, ...]]:
    """Yield every way to cut rounds into periods."""
    for cuts in itertools.product((False, True), repeat=rounds - 1):
        at = [0, *(r + 1 for r, cut in enumerate(cuts) if cut), rounds]
        yield tuple(b - a for a, b in itertools.pairwise(at))


def deliver(level: float, rounds: int, exponent: float) -> float:
    """Return the most that a client gains by choosing which heads to deliver, over all phases.

    It works at the equilibrium price, for a cost of 1 and no value, and knows all its coins.
    """
    payment, most = round(exponent * level**exponent * 1000 * MICRO), 0.0
    cost = 1000 * MICRO * level ** (exponent - 1) / rounds
    for phase in PHASES:
        count = len(heads_of(phase, units(level), rounds))
        profits = [
            due(payment, units(level), rounds, sum(way)) - cost * sum(way)
            for way in itertools.product((0, 1), repeat=count)
        ]
        if count:
            most = max(most, max(profits) / profits[-1] - 1)
    return most


def played(phase: int, levels: Sequence[int], periods: Sequence[int], pay: Any) -> tuple[int, int]:
    """Return what a run of some periods pays, and its updates; everything is delivered.

    Parameters
    ----------
    phase
        Of the first period; later ones go on from where the coin is.
    levels, periods
        The level of each period, and its rounds.
    pay
        Maps a level and the rounds of a period to the payment.
    """
    paid = updates = 0
    position: int | None = None
    for level, rounds in zip(levels, periods, strict=True):
        coins = Coins(phase if position is None else coin_phase(b"", level, position), level)
        count = sum(coins.heads(r) for r in range(rounds))
        paid += due(pay(level, rounds), level, rounds, count)
        updates += count
        position = coins.position(rounds)
    return paid, updates


def save(level: float, rounds: int) -> float:
    """Return the most that the server saves per update: by phase, periods and early ends."""
    price, own = 1000 * MICRO, units(level)

    def pay(level: int, own_rounds: int) -> int:
        return tariff_payment([[LEVEL_ONE, price * own_rounds]], level)

    agreed, most = price, 0.0  # per update: price · W · q / (q W)
    for phase in PHASES[::8]:
        for periods in splits(rounds):
            paid, updates = played(phase, [own] * len(periods), periods, pay)
            if updates:
                most = max(most, 1 - paid / updates / agreed)
        payment = pay(own, rounds)
        for end in range(1, rounds + 1):
            count = sum(r < end for r in heads_of(phase, own, rounds))
            if count:
                most = max(most, 1 - due(payment, own, rounds, count) / count / agreed)
    return most


def choose_levels(
    period: int,
    periods: int = 4,
    blocks: Any = BLOCKS,
    steps: int = 20,
    cost: float = 10.0,
    *,
    coins: str = SPACED,
) -> float:
    """Return how much more a client earns that moves its level, knowing what it can of its coin.

    In every period it takes one of `steps` levels, by dynamic programming over all of them; its
    cost is that of its updates in the whole run, as if they were one level. The gain is over the
    best level that it keeps while coins go on, so that it has no luck.
    """
    tariff = [[units(end), round(price * MICRO)] for end, price in blocks]
    grid, rounds = np.arange(1, steps + 1) / steps, period * periods

    def earned(level: float) -> float:  # by one update
        return tariff_payment(tariff, units(level)) / MICRO / level / rounds

    def profit(paid: float, updates: float) -> float:
        return float(paid - cost * (updates / rounds) ** 2)

    honest = max(
        float(np.mean([profit(earned(q) * n, n) for n in counts]))
        for q in grid
        for counts in [[len(heads_of(p, units(q), rounds)) for p in PHASES]]
    )
    if coins == REDRAWN:  # of a period it knows ⌊q W⌋, and how likely one head more is
        most = np.array([profit(0.0, n) for n in range(2 * rounds + 2)])
        for _ in range(periods):
            options = []
            for k, q in enumerate(grid, start=1):
                n, rest = divmod(k * period, steps)
                few, many = (np.append(most[m:], np.full(m, -np.inf)) for m in (n, n + 1))
                luck = rest / steps * (many + earned(float(q)) * (n + 1)) if rest else 0.0
                options.append((1 - rest / steps) * (few + earned(float(q)) * n) + luck)
            most = np.max(options, axis=0)
        return float(most[0]) / honest - 1
    gains = []
    for start in range(steps):  # where the coin is, in steps: the most that is paid, by updates
        best = {(start, 0): 0.0}
        for _ in range(periods):
            after: dict[tuple[int, int], float] = {}
            for (at, updates), paid in best.items():
                for k, q in enumerate(grid, start=1):
                    total = at + k * period
                    n, rest = divmod(total, steps)
                    state = rest, updates + n
                    after[state] = max(after.get(state, -np.inf), paid + earned(float(q)) * n)
            best = after
        gains.append(max(profit(paid, updates) for (_, updates), paid in best.items()))
    return float(np.mean(gains)) / honest - 1


def weigh(
    period: int, periods: int = 10, steps: int = 40, least: int = 2, *, coins: str = SPACED
) -> float:
    """Return the largest weight in the model that moving its level gets a client, over honesty.

    Each head weighs a / q; of levels from `least` / `steps` to 1, it takes the best in each period.
    """
    best = np.zeros(steps)  # by where its coin is, of the periods to come
    for _ in range(periods):
        after = np.full(steps, -np.inf)
        for k in range(least, steps + 1):
            if coins == REDRAWN:  # ⌊q W⌋ heads, or with the rest's probability one more
                option = period + np.full(steps, best.mean())
            else:
                heads, at = np.divmod(np.arange(steps) + k * period, steps)
                option = heads * steps / k + best[at]
            after = np.maximum(after, option)
        best = after
    return float(best.mean()) / (period * periods)


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

    payment: int
    level: int
    rounds: int
    head_cost: float
    value_impact: float

    def utility(self, delivered: int, heads: int) -> float:
        """Return the net utility of a number of deliveries, in units of money."""
        paid = self.payment
        if paid > 0:
            paid = due(paid, self.level, self.rounds, delivered)
        utility = paid / MICRO - self.head_cost * delivered
        if not self.value_impact:
            return utility
        share = delivered / heads if heads else 1.0
        worth = -self.value_impact * LEVEL_ONE / self.level
        return utility + worth / share if share else -np.inf


def deals(outcome: fp.Outcome) -> list[Deal]:
    """Return the deals of an outcome's clients."""
    game = outcome.game
    tau, rounds = game.cost_exponent, game.bound.rounds
    return [
        Deal(
            round(float(p * q) * MICRO), units(float(q)), rounds,
            float(c * q ** (tau - 1) / rounds), float(v * k),
        )
        for p, q, c, v, k in zip(
            outcome.prices, outcome.levels, game.clients.cost, game.clients.value, game.impact,
            strict=True,
        )
    ]  # fmt: skip


def respond(outcome: fp.Outcome, draws: int = DRAWS, seed: int = 0) -> list[dict[str, float]]:
    """Return each client's best number of deliveries, over random phases that it knows."""
    found = []
    for n, deal in enumerate(deals(outcome)):
        phases = np.random.default_rng([seed, n]).integers(0, LEVEL_ONE, draws)
        gain, least = 0.0, 1.0
        # Heads are ⌊q R⌋ or ⌈q R⌉, and the utility depends on nothing else.
        counts = {len(heads_of(int(p), deal.level, deal.rounds)) for p in phases[:8]}
        counts |= {deal.level * deal.rounds // LEVEL_ONE, most_heads(deal.level, deal.rounds)}
        for heads in counts:
            utilities = [deal.utility(d, heads) for d in range(heads + 1)]
            best = heads - int(np.argmax(utilities[::-1]))
            scale = max(abs(utilities[heads]), deal.head_cost)
            gain = max(gain, (utilities[best] - utilities[heads]) / scale)
            least = min(least, best / heads if heads else 1.0)
        found.append({"gain": gain, "least share": least})
    return found


def redrawn(outcome: fp.Outcome, openings: int = 400, seed: int = 0) -> float:
    """Return what a server saves per update, of all clients, by the best of many openings."""
    rng, payees = np.random.default_rng(seed), [d for d in deals(outcome) if d.payment > 0]
    level = np.array([d.level for d in payees], dtype=np.int64)
    rounds = payees[0].rounds
    agreed = np.array([d.payment / (d.level * d.rounds / LEVEL_ONE) for d in payees])
    best = 0.0
    for _ in range(openings):
        phase = rng.integers(0, LEVEL_ONE, level.size)
        heads = (phase + (rounds - 1) * level) // LEVEL_ONE - (phase - level) // LEVEL_ONE
        own = zip(payees, heads.tolist(), strict=True)
        paid = sum(due(d.payment, d.level, d.rounds, n) for d, n in own)
        best = max(best, 1 - paid / float((agreed * heads).sum()))
    return best


def without_value(game: fp.Game) -> fp.Game:
    """Return the game among clients that value money alone."""
    return replace(game, clients=replace(game.clients, value=np.zeros(len(game.clients))))


def measure() -> dict[str, Any]:
    """Run all that the tables need."""
    result: dict[str, Any] = {
        "deliver": max(deliver(*own, tau) for own in SMALL for tau in EXPONENTS),
        "server": max(save(*own) for own in SMALL),
        "flat": max(
            choose_levels(w, 4, ((1.0, 12.0),), 40, coins=coins)
            for w in (1, 2, 5)
            for coins in COINS
        ),
        "weights": {w: [weigh(w, coins=coins) for coins in COINS] for w in (1, 2, 5, 20, 60)},
        "blocks": {
            w: [choose_levels(w, 4, BLOCKS, 40, coins=coins) for coins in COINS]
            for w in (1, 2, 5, 20, 60)
        },
    }
    for name, setup in SETUPS.items():
        federation = setup.federation()
        game = setup.game(federation, fp.calibrate(fp.LogisticRegression(federation)))
        for wants, own in (("paper", game), ("money alone", without_value(game))):
            outcome = fp.solve(own)
            found = respond(outcome)
            result[f"{name}, {wants}"] = {
                "payers": int((outcome.prices < 0).sum()),
                "gain": max(own["gain"] for own in found),
                "least share": min(own["least share"] for own in found),
                "saved": redrawn(outcome),
            }
            sys.stderr.write(f"{name}, {wants}: done\n")
    return result


def rows_of(result: dict[str, Any]) -> list[Row]:
    """Return what was measured, with its limits."""
    rows: list[Row] = [
        ("small runs: a client gains by any choice of heads", result["deliver"], "<=", MOST_GAIN),
        (
            "small runs: the server saves per update by any phase, end or periods",
            result["server"], "<=", MOST_GAIN,
        ),
        (
            "one price: a client gains by moving its level between periods of 1, 2 or 5 rounds",
            result["flat"], "<=", MOST_GAIN,
        ),
        (
            "the weight of a client that moves its level, in periods of 1 to 60 rounds",
            max(anew for _, anew in result["weights"].values()) - 1, "<=", MOST_GAIN,
        ),
    ]  # fmt: skip
    rows += [
        (
            f"two blocks: a client gains by moving its level between periods of {w} rounds",
            found[COINS.index(REDRAWN)], "<=", MOST_GAIN,
        )
        for w, found in result["blocks"].items()
    ]  # fmt: skip
    for title, found in result.items():
        if not isinstance(found, dict) or "gain" not in found:
            continue
        rows += [
            (f"{title}: the most that a client gains", found["gain"], "<=", MOST_GAIN),
            (f"{title}: least share delivered", found["least share"], ">=", 1),
            (f"{title}: the server saves by the best opening", found["saved"], "<=", MOST_GAIN),
        ]
    return rows


def report(result: dict[str, Any]) -> str:
    """Return the tables, as Markdown."""
    lines = ["| figure | measured | limit | holds |", "|---|---:|---:|---|"]
    for label, value, relation, limit in rows_of(result):
        holds = value >= limit if relation == ">=" else value <= limit
        sign = "≥" if relation == ">=" else "≤"
        shown = f"{round(value, 6) + 0:.2%} | {sign} {limit:.0%}"
        lines.append(f"| {label} | {shown} | {'yes' if holds else 'NO'} |")
    periods = [
        "| rounds of a period | gain, coins go on | redrawn | weight, coins go on | redrawn |",
        "|---:|---:|---:|---:|---:|",
    ]
    periods += [
        f"| {w} | {' | '.join(f'{round(gain, 6) + 0:.1%}' for gain in gains)} | "
        f"{' | '.join(f'{own:.2f}' for own in result['weights'][w])} |"
        for w, gains in result["blocks"].items()
    ]
    return "\n".join(
        [
            "# Incentives: does anybody gain over honesty",
            "",
            "Written by `make bench-incentives`. Small runs: levels of 0.1 to 0.9 in 7 and 10 "
            "rounds, cost exponents of 1.2, 2 and 3, 64 phases, by exhaustive search with the "
            "verifier's own rules. The setups are the paper's at equilibrium, 40 clients and 1,000 "
            "rounds; each delivery costs c q^τ / (q R). Paper: money, cost, and the value of the "
            "model, −v k / (q s) at a delivered share s; money alone: priced with v = 0.",
            "",
            *lines,
            "",
            "A tariff of two blocks (12 per unit of level up to 0.2, then 4), for a client that "
            "moves its level from period to period, in 4 periods: what it earns more than with the "
            "best level that it keeps while coins go on. Then the largest weight in the model that "
            "moving its level between 0.05 and 1 gets a client in 10 periods, over honesty. Where "
            "coins go on, it knows when its next head comes; where they are redrawn, as in all "
            "periods in which clients choose their levels, it does not.",
            "",
            *periods,
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
    if "| NO |" in text:
        sys.exit("a limit is not met")


if __name__ == "__main__":
    main()
