"""Random games: hypothesis strategies for properties, seeded draws for differential tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from fedprice import Bound, Clients, Game, Outcome
from fedprice.pricing.theorems import theorem_2_levels, theorem_3_prices

if TYPE_CHECKING:
    import numpy.typing as npt

EXPONENTS = (1.2, 1.5, 2.0, 3.0)


def _between(low: float, high: float) -> st.SearchStrategy[float]:
    """Floats spread evenly over the orders of magnitude."""
    return st.floats(np.log10(low), np.log10(high)).map(lambda x: float(10**x))


@st.composite
def games(
    draw: st.DrawFn,
    *,
    floors: bool = True,
    caps: bool = True,
    exponents: tuple[float, ...] = EXPONENTS,
    min_clients: int = 1,
) -> Game:
    """Games of up to eight clients over moderate ranges, with budgets of both signs."""
    count = draw(st.integers(min_clients, 8))

    def column(strategy: st.SearchStrategy[float]) -> list[float]:
        return draw(st.lists(strategy, min_size=count, max_size=count))

    cap = column(st.sampled_from([1.0, 1.0, 0.5])) if caps else [1.0] * count
    floor = column(st.sampled_from([0.0, 0.01, 0.2])) if floors else [0.0] * count
    clients = Clients(
        samples=column(_between(1, 1e3)),
        grad_norm=column(_between(0.1, 10)),
        cost=column(_between(0.1, 1e3)),
        value=column(st.one_of(st.just(0.0), _between(1, 1e5))),
        level_min=floor,
        level_max=cap,
    )
    return Game(
        clients,
        bound=Bound(alpha=draw(_between(0.1, 100)), rounds=1000),
        budget=draw(_between(0.1, 1e4)) * draw(st.sampled_from([1, 1, 1, -1])),
        cost_exponent=draw(st.sampled_from(exponents)),
    )


def random_game(seed: int, exponent: float) -> Game:
    """Draw a game for a differential test: some with floors, caps, zero or huge values."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 9))
    value = rng.exponential(rng.choice([400.0, 4000.0, 1e6]), count)
    value *= rng.random(count) < rng.choice([0.0, 0.7, 1.0])
    clients = Clients(
        samples=rng.integers(1, 1000, count),
        grad_norm=rng.lognormal(1, 0.5, count),
        cost=rng.exponential(50, count) + 1,
        value=value,
        level_min=rng.choice([0.0, 0.05, 0.2]) * (rng.random(count) < 0.5),
        level_max=np.where(rng.random(count) < 0.7, 1.0, 0.6),
    )
    return Game(
        clients,
        bound=Bound(alpha=10.0, rounds=1000),
        budget=float(rng.choice([2.0, 10.0, 50.0, 100.0, -5.0])),
        cost_exponent=exponent,
    )


def hostile(rng: np.random.Generator, count: int) -> npt.NDArray[np.float64]:
    """Return positive numbers over twelve orders of magnitude."""
    drawn: npt.NDArray[np.float64] = 10.0 ** rng.uniform(-6, 6, count)
    return drawn


def theorem_2_residual(best: Outcome) -> float:
    """How far Theorem 2 is from holding, relative to 1/λ, over clients between their limits."""
    game, inside = best.game, best.interior
    if not inside.any() or not best.multiplier:
        return 0.0
    power = game.cost_exponent + 1
    scale = game.cost_exponent**2 * game.clients.cost[inside] / game.impact[inside]
    stated = theorem_2_levels(best)[inside]
    away = scale * (best.levels[inside] ** power - stated**power)
    return float(np.abs(away * best.multiplier).max())


def theorem_3_residual(best: Outcome) -> float:
    """How far prices are from Theorem 3's, relative to both terms: a price itself may be 0."""
    game, inside = best.game, best.interior
    if not inside.any() or not best.multiplier:
        return 0.0
    tau, levels = game.cost_exponent, best.levels[inside]
    terms = tau * game.clients.cost[inside] * levels ** (tau - 1)
    terms += game.clients.value[inside] * game.impact[inside] / levels**2
    away = best.prices[inside] - theorem_3_prices(best)[inside]
    return float(np.abs(away / terms).max())
