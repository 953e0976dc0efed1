r"""The Stackelberg equilibrium: the server's exact optimal prices, for any number of clients.

Symbols: q level, x = 1/q, P price, c cost, τ cost exponent, v value, k impact, B budget, λ the
multiplier of the budget, t = 1/λ.

The paper calls the server's problem P1′ non-convex and searches over M = Σ c q² with a convex tool
at every step. In x = 1/q it is convex:

.. math::
    \min_x \sum_n k_n x_n
    \quad\text{s.t.}\quad \sum_n (\tau c_n x_n^{-\tau} - v_n k_n x_n) \le B,
    \quad 1/q_{\max} \le x_n \le 1/q_{\min}.

Its optimality conditions give every level from the single number t:

.. math::
    q_n(t) = \mathrm{clip}\big(
        [k_n (t - v_n)^+ / (\tau^2 c_n)]^{1/(\tau+1)}, q_{\min}, q_{\max} \big)

and the spend S(t) is continuous and non-decreasing, so one scalar root is the global optimum of all
clients. With r = τ² c / k, clipping q is clipping the gap g = t − v to r q_min^{τ+1} and
r q_max^{τ+1}, and then, clipped or not,

    x = (r / g)^{1/(τ+1)},   payment = k x (g / τ − v),

one power per client. When some clients have no floor, t must exceed the largest value v_ref among
them, and may come so close that t − v_ref is lost to rounding error; so we solve for u = t − v_ref.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import precision_error
from fedprice.pricing.outcome import BUDGET_TOLERANCE, Certificate, Outcome, Status
from fedprice.pricing.problem import BLOCK, Problem
from fedprice.pricing.root import ROUNDING, Root, find_root
from fedprice.pricing.schemes import scheme

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.game import Game


__all__ = ["equilibrium", "solve_problem"]

LARGEST_GAP = 1e-9  # relative; a larger gap proves nothing


@scheme("equilibrium")
def equilibrium(game: Game) -> Outcome:
    """Return the Stackelberg equilibrium, with a certificate of global optimality.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0],
    ...                   cost=[40, 55, 20], value=[0, 4000, 9000])
    >>> best = equilibrium(Game(clients, bound=Bound(alpha=3.3, rounds=1000), budget=20))
    >>> best.levels.round(3), best.prices.round(2), best.status.value
    (array([0.206, 0.509, 0.196]), array([16.46, 33.31, -1.72]), 'optimal')
    >>> best.certificate.gap < 1e-12
    True
    """
    return solve_problem(Problem.of(game), game.budget)


def solve_problem(problem: Problem, budget: float, start: float | None = None) -> Outcome:
    """Return the equilibrium under a budget; the search starts at a guess of u."""
    with np.errstate(all="ignore"):  # overflow is refused below: it has no proof
        if np.isnan(problem.least_budget):
            raise precision_error("equilibrium")
        tolerance = BUDGET_TOLERANCE * max(abs(budget), abs(problem.least_budget))
        enough = problem.least_budget - tolerance
        if budget >= (problem.most_budget if problem.impact.size else enough):
            return _outcome(problem, budget, Status.SLACK, lambda block: problem.cap[block])
        if budget <= problem.least_budget:
            # Levels near 0 can be bought, but not 0 itself: without floors this is not enough.
            reached = budget >= enough and bool(problem.floor.all())
            status = Status.OPTIMAL if reached else Status.INFEASIBLE
            root = Root.known(problem.lowest) if reached else None
            return _outcome(problem, budget, status, lambda block: problem.floor[block], root)
        net = np.longdouble(budget) - problem.idle_spend
        root = _root(problem, net, start)
        if root.found:
            levels = partial(problem.levels, root.point)
            return _outcome(problem, budget, Status.OPTIMAL, levels, root)
        between = _between(problem, root, net)
        return _outcome(problem, budget, Status.OPTIMAL, lambda block: between[block], root)


def _outcome(
    problem: Problem,
    budget: float,
    status: Status,
    levels_of: Callable[[slice], FloatArray],
    root: Root | None = None,
) -> Outcome:
    """Return the outcome of these levels, computed in a single pass.

    The duality gap is λ [Σ {l(q) − min l} + (B − S)], with l(q) = (t − v) k / q + τ c q^τ: the
    definition, rearranged so that large sums do not cancel.
    """
    levels, prices = np.empty_like(problem.impact), np.empty_like(problem.impact)
    primal = slack = terms = moving = 0.0
    spend = problem.idle_spend
    left = np.longdouble(budget) - problem.idle_spend
    for block in problem.blocks():
        q = levels[block] = levels_of(block)
        price = prices[block] = problem.prices(q, block)
        loss = problem.impact[block] / q
        payment = price * q
        primal += float(loss.sum())
        paid = float(payment.sum())
        spend += paid
        if root is not None:
            if problem.floor_power is not None:
                fixed = payment * (q == problem.floor[block])
                left -= fixed.sum(dtype=np.longdouble)
                paid = float((payment - fixed).sum())
            moving += paid
            terms += 2 * float(loss @ problem.value[block])
            slack += problem.slack(root.point, q, block)
    gap, reciprocal = 0.0, (0.0, np.inf)
    if status is Status.INFEASIBLE:
        gap = np.inf
    elif root is not None:
        reciprocal = (problem.reference, root.point)
        if root.iterations:  # at the floors there is no gap: nothing can be below them
            gap = (slack + float(left - moving)) / np.float64(sum(reciprocal))
        # Nothing is called optimal without its proof. Rounding is relative to the sum of both
        # terms of all payments.
        excess = (spend - budget) / (abs(budget) + spend + terms)
        if not (abs(gap) <= LARGEST_GAP * primal and excess <= BUDGET_TOLERANCE):
            raise precision_error("equilibrium")
    return Outcome(
        game=problem.game
        if budget == problem.game.budget
        else replace(problem.game, budget=budget),
        scheme="equilibrium",
        status=status,
        levels=problem.everybody(levels, lambda: problem.game.clients.level_min),
        prices=problem.everybody(prices, lambda: problem.idle_prices),
        reciprocal=reciprocal,
        certificate=Certificate(primal, float(primal - gap)),
        least_budget=problem.least_budget,
        iterations=0 if root is None else root.iterations,
    )


def _root(problem: Problem, budget: np.longdouble, start: float | None = None) -> Root:
    """Find the u = t − v_ref at which the clients with an impact cost the budget."""
    upper = max(
        float(
            (problem.ratio(b) * problem.cap_power[b] + (problem.value[b] - problem.reference)).max()
        )
        for b in problem.blocks()
    )
    guess = start if start is not None else _guess(problem, budget, upper)
    start_at = min(max(guess, problem.lowest, 2.0**-1000), upper)
    return find_root(partial(problem.spend, budget), start_at, problem.lowest, upper)


def _guess(problem: Problem, budget: np.longdouble, upper: float) -> float:
    """Return where to start the search for u: at the root of a sample, if it has one."""
    if problem.impact.size > BLOCK:
        root = _root(problem.sample(), budget)
        if root.found:
            return root.point
    if budget <= 0:
        return problem.reference or upper
    # Without values, floors and caps the spend is a power of t.
    power = problem.game.cost_exponent + 1
    unit = sum(float(problem.impact[b] @ problem.ratio(b) ** (1 / power)) for b in problem.blocks())
    return float(np.float64((power - 1) * budget / unit) ** (power / (power - 1)))


def _between(problem: Problem, root: Root, budget: np.longdouble) -> FloatArray:
    """Return the levels between the two ends of a bracket that contains no further number.

    Near the value of a client with a tiny floor, the spend moves by more than its rounding
    between neighbouring numbers t. The levels of both ends are then optimal for the same t to
    the last bit, and so are those in between; interpolating linearly in x = 1/q meets the budget.
    """
    from scipy.optimize import brentq

    everyone, tau = slice(None), problem.game.cost_exponent
    levels = problem.levels(root.upper, everyone)
    low = problem.floor if root.lower <= problem.lowest else problem.levels(root.lower, everyone)
    longer = 1 / low - 1 / levels
    moving = longer > 0
    payments = problem.prices(levels, everyone) * levels
    left = float(budget - payments[~moving].sum(dtype=np.longdouble))
    x, longer = 1 / levels[moving], longer[moving]
    c, vk = problem.cost[moving], (problem.value * problem.impact)[moving]

    def excess(share: float) -> float:
        at = x + share * longer
        bought, given = float((tau * c * at**-tau).sum()), float((vk * at).sum())
        return (bought - given) - (left - ROUNDING * (bought + given))

    # Rounding may put the lower end, which is as good as any point in between, above the budget.
    share = 1.0
    if excess(1.0) < 0 < excess(0.0):
        share = brentq(excess, 0.0, 1.0, xtol=1e-300, rtol=1e-15)
    levels[moving] = 1 / (x + share * longer)
    return np.clip(levels, problem.floor, problem.cap)
