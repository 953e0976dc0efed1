"""Other methods for the same equilibrium: oracles for the tests, rivals for the benchmark.

All are slow, none is exact, and they share nothing with `equilibrium` but the problem.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import require
from fedprice.game import price_for
from fedprice.pricing.outcome import Outcome
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from typing import Any

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game


__all__ = ["convex", "msearch", "random_starts"]


@scheme("reference-convex")
def convex(game: Game, **options: float) -> Outcome:
    """Solve the convex form in x = 1/q with cvxpy.

    Parameters
    ----------
    game
        The game.
    **options
        Settings of the solver Clarabel, such as its tolerances.
    """
    cp = require("cvxpy", "reference")
    clients, k, tau = game.clients, game.impact, game.cost_exponent
    if not k.any():
        return _outcome(game, None, "reference-convex", 0)
    x = cp.Variable(len(clients))
    paid = tau * clients.cost @ cp.power(x, -tau) - (clients.value * k) @ x
    scale = tau * clients.cost.sum()
    limits = [x >= 1 / clients.level_max, paid / scale <= game.budget / scale]
    if (clients.level_min > 0).any():
        floored = np.flatnonzero(clients.level_min)
        limits.append(x[floored] <= 1 / clients.level_min[floored])
    problem = cp.Problem(cp.Minimize((k / k.sum()) @ x), limits)
    _run(problem, **options)
    return _outcome(game, x.value if x.value is None else 1 / x.value, "reference-convex", 1)


@scheme("reference-msearch")
def msearch(game: Game, steps: int = 100, inner: int = 10) -> Outcome:
    """Search over M = Σ c q^τ with cvxpy, the method that the paper proposes for P1″.

    As printed, P1″ is not convex at fixed M. The nearest reading that a convex tool accepts is, at
    each M, Σ c q^τ ≤ M, and the budget row τ M − Σ v k / q ≤ B with v k / q replaced by its tangent
    at the last iterate (the convex–concave procedure, which never leaves the feasible set). The
    best M of a regular grid wins.

    Parameters
    ----------
    game
        The game.
    steps
        Points of the grid over M.
    inner
        The most tangents at each M; fewer if the objective converges to 1e-6 before.
    """
    cp = require("cvxpy", "reference")
    clients, k, tau = game.clients, game.impact, game.cost_exponent
    if not k.any():
        return _outcome(game, None, "reference-msearch", 0)
    vk = clients.value * k
    q = cp.Variable(len(clients))
    big_m, slope, offset = cp.Parameter(), cp.Parameter(len(clients), nonneg=True), cp.Parameter()
    scale = float(clients.cost.sum())
    problem = cp.Problem(
        cp.Minimize((k / k.sum()) @ cp.inv_pos(q)),
        [
            (clients.cost / scale) @ cp.power(q, tau) <= big_m,
            offset + slope @ q <= 0,
            q <= clients.level_max,
            q >= clients.level_min,
        ],
    )
    best: FloatArray | None = None
    best_value, solves = np.inf, 0
    for m in np.linspace(0, float(clients.cost @ clients.level_max**tau), steps + 1)[1:]:
        # The first tangent touches where the budget row would hold with equal levels.
        short = tau * m - game.budget
        even = vk.sum() / short if short > 0 else 1.0
        tangent = np.clip(np.full(len(clients), even), 1e-9, clients.level_max)
        value = np.inf
        for _ in range(inner):
            big_m.value = m / scale
            slope.value = vk / tangent**2 / scale
            offset.value = (short - 2 * (vk / tangent).sum()) / scale
            solves += 1
            if not _run(problem):
                break
            tangent, last, value = np.clip(q.value, 1e-12, None), value, float(problem.value)
            if value < best_value:
                best, best_value = tangent, value
            if not vk.any() or value > last * (1 - 1e-6):
                break
    return _outcome(game, best, "reference-msearch", solves)


@scheme("reference-scipy")
def random_starts(game: Game, starts: int = 8, seed: int = 0) -> Outcome:
    """Minimise P1′ itself, in log q, with scipy's SLSQP from random starts; keep the best.

    Parameters
    ----------
    game
        The game; a handful of clients at most.
    starts, seed
        How many random starts, and their seed.
    """
    from scipy.optimize import minimize

    clients, k, tau = game.clients, game.impact, game.cost_exponent
    if not k.any():
        return _outcome(game, None, "reference-scipy", 0)
    vk = clients.value * k
    scale = float(tau * clients.cost.sum())

    def loss(z: FloatArray) -> tuple[float, FloatArray]:
        terms = k / k.sum() * np.exp(-z)
        return float(terms.sum()), -terms

    def left(z: FloatArray) -> float:
        spend = tau * clients.cost * np.exp(tau * z) - vk * np.exp(-z)
        return float(game.budget - spend.sum()) / scale

    def left_slope(z: FloatArray) -> FloatArray:
        rise: FloatArray = tau**2 * clients.cost * np.exp(tau * z) + vk * np.exp(-z)
        return -rise / scale

    low = np.log(np.maximum(clients.level_min, 1e-5))
    high = np.log(clients.level_max)
    rng = np.random.default_rng(seed)
    best: FloatArray | None = None
    best_value = np.inf
    for _ in range(starts):
        search = minimize(
            loss,
            rng.uniform(low, high),
            jac=True,
            method="SLSQP",
            bounds=list(zip(low, high, strict=True)),
            constraints={"type": "ineq", "fun": left, "jac": left_slope},
            options={"maxiter": 1000, "ftol": 1e-14},
        )
        if left(search.x) >= -1e-9 and search.fun < best_value:
            best, best_value = np.exp(search.x), search.fun
    return _outcome(game, best, "reference-scipy", starts)


def _run(problem: Any, **options: float) -> bool:
    """Solve a cvxpy problem; return whether it found a point."""
    cp = require("cvxpy", "reference")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": the callers compare results anyway
        try:
            problem.solve(solver=cp.CLARABEL, **options)
        except cp.SolverError:
            return False
    return problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)


def _outcome(game: Game, levels: FloatArray | None, scheme: str, iterations: int) -> Outcome:
    clients = game.clients
    reached = clients.level_min if levels is None else levels
    kept = np.clip(reached, clients.level_min, clients.level_max)
    kept = np.where(game.impact > 0, kept, clients.level_min)  # without impact, none is bought
    return Outcome.from_prices(
        game, price_for(game, kept), scheme=scheme, levels=kept, iterations=iterations
    )
