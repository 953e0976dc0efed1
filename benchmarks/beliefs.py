"""What not knowing costs, and how fast prices under beliefs are: `make bench-beliefs`.

Forty clients (`fp.population()`, α = 3.3, R = 1000, budget 200, τ = 2) whose costs are exponential
with mean 50 and values with mean 4,000. Every form is answered by the same 200 populations, drawn
from the distributions themselves, not from the cells that beliefs cut them into. Ratios are mean
losses over that of the equilibrium with full information on the same draws. Writes beliefs.json and
beliefs.md beside this file.
"""

from __future__ import annotations

import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import fedprice as fp

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import FloatArray

HERE = Path(__file__).parent
BOUND, BUDGET = fp.Bound(alpha=3.3, rounds=1000), 200.0
CLIENTS = fp.population()
PRIOR = fp.Beliefs.exponential(cost=50, value=4000)
DRAWS, POPULATIONS, PERIODS, COINS = 200, 60, 5, 50
WHY = (
    "## Why some ratios differ from the prototype's",
    "",
    "Each reason was tested by changing one thing at a time on the same forty clients.",
    "",
    "- **Learning from own coins, after 50 rounds** (1.13, prototype 1.08): money. The "
    "prototype spent 209 of 200 in this period. With a budget at which ours spends 209, "
    "too, the ratio is 1.08. Four sets of 24 populations gave 1.11 to 1.13 at a spend of "
    "194 to 198; 16, 32 or 64 cells per belief make no difference. With types drawn from "
    "the cells the spend is 200, and the ratio 1.09.",
    "- **Menus** (1.15, prototype 1.12): draws, and how finely costs are cut. Two sets of "
    "200 populations gave 1.15 and 1.13 (± 0.014 each), and five single draws of the "
    "forty values 1.11 to 1.19. If costs are drawn from the menu's own costs, the ratio "
    "is 1.10 with 64 of them, 1.12 with 100 and 1.14 with 400: fewer cells average the "
    "highest costs away.",
    "- **Blocks** (2, 4, 8: 1.41, 1.33, 1.32, prototype 1.46, 1.38, 1.33): the ends of "
    "blocks are chosen for each client here. With ends at equal distances the ratios are "
    "1.45, 1.41 and 1.37, with ends in a geometric progression 1.48, 1.35 and 1.32. The "
    "local search after dynamic programming contributes less than 0.001.",
    "- **Price classes** (4, 2: 1.52, 1.58, prototype 1.58, 1.65): clients sorted by "
    "price are cut where it costs least. With classes of equal size the ratios are 1.56 "
    "and 1.63. Moving clients between classes afterwards brings 1.53 and 1.59 from there, "
    "and nothing from the best cut.",
    "- **Full tariff** (1.32 here, 1.30 in docs/beliefs.md): here types are drawn from "
    "the distributions, there from the cells of the beliefs. Tariffs pay next to nothing "
    "for the first levels, and a client whose value is below the mean of the lowest cell "
    "(63) rarely joins. Few such clients make the mean: sets of 400 populations gave "
    "1.32, 1.34 and 1.39 with medians of 1.28, and 1.31, 1.33 for the last two if values "
    "are raised to 63; drawn from cells, 1.31 each. High costs matter less (0.004), finer "
    "cells not at all, and one price per client has 1.52 either way.",
)
MANY = """
import resource, time
import fedprice as fp
clients = fp.population({n})
beliefs = fp.Beliefs.exponential(cost=50, value=4000)
start = time.process_time()
posted = fp.post(clients, beliefs, bound=fp.Bound(alpha=3.3, rounds=1000), budget={n} * 5)
took = time.process_time() - start
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, posted.certificate.gap)
"""


class Row(NamedTuple):
    """One line of the table.

    Attributes
    ----------
    name, aim
        The form, and what a prototype reached.
    ratio, low, high
        Loss over that with full information, with an interval of 95 %.
    spend, most, over
        Mean and largest spend, and the share of draws above the budget.
    """

    name: str
    aim: str
    ratio: float
    low: float
    high: float
    spend: float
    most: float
    over: float


def populations(count: int, seed: int) -> list[tuple[FloatArray, FloatArray]]:
    """Return costs and values of populations."""
    rng = np.random.default_rng(seed)
    return [(rng.exponential(50, 40), rng.exponential(4000, 40)) for _ in range(count)]


def game(cost: FloatArray, value: FloatArray) -> fp.Game:
    """Return the game of clients with these types."""
    return fp.Game(replace(CLIENTS, cost=cost, value=value), bound=BOUND, budget=BUDGET)


def compared(
    name: str, aim: str, answers: list[fp.Outcome], known: list[float], budget: float = BUDGET
) -> Row:
    """Return how outcomes compare with the losses under full information on the same draws."""
    losses, informed = np.array([one.expected_loss for one in answers]), np.array(known)
    spends = np.array([one.spend for one in answers])
    ratio = losses.mean() / informed.mean()
    std = (losses - ratio * informed).std(ddof=1) / informed.mean() / np.sqrt(losses.size)
    return Row(
        name, aim, float(ratio), float(ratio - 1.96 * std), float(ratio + 1.96 * std),
        float(spends.mean()), float(spends.max()), float((spends > budget + 1e-6).mean()),
    )  # fmt: skip


def forms() -> list[Row]:
    """Return the table of forms that share a prior."""
    drawn = populations(DRAWS, 1)
    known = [fp.solve(game(*types)).expected_loss for types in drawn]

    def post(**options: object) -> fp.Posted:
        return fp.post(CLIENTS, PRIOR, bound=BOUND, budget=BUDGET, **options)  # type: ignore[arg-type]

    def row(
        name: str, aim: str, answer: Callable[[FloatArray, FloatArray, int], fp.Outcome]
    ) -> Row:
        answers = [answer(cost, value, n) for n, (cost, value) in enumerate(drawn)]
        return compared(name, aim, answers, known)

    def posted(name: str, aim: str, **options: object) -> Row:
        one = post(**options)
        return row(name, aim, lambda c, v, _: one.answer(cost=c, value=v))

    turn = post().sequential()
    mean = replace(CLIENTS, cost=np.full(40, 50.0), value=np.full(40, 4000.0))
    plug = fp.solve(fp.Game(mean, bound=BOUND, budget=BUDGET)).prices

    costs = fp.Beliefs.exponential(cost=50, value=0, cells=400)

    def menu(cost: FloatArray, value: FloatArray, _: int) -> fp.Outcome:
        one = replace(CLIENTS, value=value)
        menus = fp.post(one, costs, bound=BOUND, budget=BUDGET, form="menu")
        return menus.answer(cost=cost, value=value)

    return [
        posted("full tariff", "1.30", form="tariff"),
        posted("8 blocks", "1.33", form="blocks", blocks=8),
        posted("4 blocks", "1.38", form="blocks", blocks=4),
        posted("2 blocks", "1.46", form="blocks", blocks=2),
        posted("a price each", "1.52"),
        row("a price each, in turn", "1.56", lambda c, v, _: turn.answer(cost=c, value=v)),
        posted("a price each, risk 5 %", "1.67", risk=0.05),
        posted("4 price classes", "1.58", classes=4),
        posted("2 price classes", "1.65", classes=2),
        posted("one price", "1.79", classes=1),
        row("menus, values known", "1.12", menu),
        row(
            "prices for the mean type",
            "1.21, spends 322",
            lambda c, v, _: fp.Outcome.from_prices(game(c, v), plug, scheme="plug-in"),
        ),
    ]


def without_a_prior() -> list[Row]:
    """Return the forms that are priced by the other clients' types only."""
    drawn = populations(POPULATIONS, 2)
    known = [fp.solve(game(*types)).expected_loss for types in drawn]

    def left_out(cost: FloatArray, value: FloatArray, form: str) -> fp.Posted:
        types = replace(CLIENTS, cost=cost, value=value)
        beliefs = fp.Beliefs.leave_one_out(types, unseen=form != "price")
        return fp.post(types, beliefs, bound=BOUND, budget=BUDGET, form=form)

    def separate(cost: FloatArray, value: FloatArray, form: str) -> fp.Posted:
        types = replace(CLIENTS, cost=cost, value=value)
        return fp.post_from_others(types, bound=BOUND, budget=BUDGET, form=form)

    rows = []
    for name, aim, make, form in (
        ("4 blocks from the others' types", "1.42", left_out, "blocks"),
        ("a price each from the others' types", "1.55", left_out, "price"),
        ("the same, one problem per client", "1.51 (8 populations)", separate, "price"),
    ):
        answers = [make(c, v, form).answer(cost=c, value=v) for c, v in drawn]
        rows.append(compared(name, aim, answers, known))
    return rows


def learning() -> list[Row]:
    """Return periods of learning from each client's own coins, and from the others' only."""
    drawn = populations(24, 3)
    known = [fp.solve(game(*types)).expected_loss for types in drawn]
    rng = np.random.default_rng(4)
    rows = []
    half = fp.Beliefs.exponential(cost=25, value=4000)
    for name, prior, own, aims in (
        ("own coins", PRIOR, True, ("1.46", "1.08", "1.05", "1.035", "1.03")),
        ("others' coins", PRIOR, False, ("–",) * PERIODS),
        ("others' coins, prior with half the costs", half, False, ("–",) * PERIODS),
    ):
        first = fp.post(CLIENTS, prior, bound=BOUND, budget=BUDGET)
        answers: list[list[fp.Outcome]] = [[] for _ in range(PERIODS)]
        for cost, value in drawn:
            seen, posted = fp.Evidence.none(CLIENTS, prior), first
            for period in answers:
                outcome = posted.answer(cost=cost, value=value)
                period.append(outcome)
                heads = rng.binomial(COINS, outcome.levels)
                seen = seen.coins(posted, heads, COINS)
                posted = fp.post(CLIENTS, seen.beliefs(own=own), bound=BOUND, budget=BUDGET)
        rows += [
            compared(f"learning from {name}, after {n * COINS} rounds", aim, period, known)
            for n, (period, aim) in enumerate(zip(answers, aims, strict=True))
        ]
    return rows


def speed() -> list[tuple[str, float, str, float]]:
    """Return figures with their limits: time and gap of the two sizes, memory, growth."""
    times, gap = [], 0.0
    for _ in range(5):
        start = time.process_time()
        gap = fp.post(CLIENTS, PRIOR, bound=BOUND, budget=BUDGET).certificate.gap
        times.append(time.process_time() - start)
    figures = [
        ("40 clients, 1,024 types, s", statistics.median(times), "<=", 1.0),
        ("40 clients, 1,024 types: gap of the certificate", gap, "<=", 1e-5),
    ]
    took = {}
    for n in (100_000, 1_000_000, 4_000_000):
        done = subprocess.run(
            [sys.executable, "-c", MANY.format(n=n)], capture_output=True, text=True, check=True
        )
        took[n], memory, gap = map(float, done.stdout.split())
        if n == 1_000_000:
            figures += [
                ("10⁶ clients with shared beliefs, s", took[n], "<=", 10.0),
                ("10⁶ clients, GB", memory / 1024, "<=", 2.0),
                ("10⁶ clients: gap of the certificate", gap, "<=", 1e-3),
            ]
    growth = took[4_000_000] / took[1_000_000]
    figures.append(("4·10⁶ / 10⁶ clients, time (linear: 4)", growth, "<=", 4.4))
    start = time.process_time()
    fp.manipulability(game(CLIENTS.cost, CLIENTS.value))
    figures.append(("who gains by lying, 40 clients, s", time.process_time() - start, "<=", 1.0))
    return figures


def main() -> int:
    """Run everything and write the table."""
    rows = forms() + without_a_prior() + learning()
    figures = speed()
    lines = [
        "# Beliefs: what not knowing costs",
        "",
        "Written by `make bench-beliefs`. Expected loss over that of the equilibrium with full "
        f"information; {DRAWS} populations ({POPULATIONS} where a form is priced on the other "
        "clients' types, 24 for learning), with intervals of 95 %; budget 200.",
        "",
        "| form | loss ratio | 95 % | prototype | mean spend | largest | above the budget |",
        "|---|---:|---|---|---:|---:|---:|",
        *(
            f"| {r.name} | {r.ratio:.3f} | {r.low:.3f} to {r.high:.3f} | {r.aim} | {r.spend:.1f} "
            f"| {r.most:.1f} | {r.over:.1%} |"
            for r in rows
        ),
        "",
        "| figure | measured | limit | holds |",
        "|---|---:|---:|---|",
    ]
    failed = False
    for name, measured, _, limit in figures:
        holds = measured <= limit
        failed |= not holds
        lines.append(f"| {name} | {measured:.3g} | ≤ {limit:g} | {'yes' if holds else 'NO'} |")
    machine = f"Python {platform.python_version()}, numpy {np.__version__}, processor time"
    lines += ["", *WHY]
    lines += ["", f"{machine}, peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MB."]
    (HERE / "beliefs.md").write_text("\n".join(lines) + "\n")
    found = {"forms": [r._asdict() for r in rows], "figures": [list(f) for f in figures]}
    (HERE / "beliefs.json").write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
