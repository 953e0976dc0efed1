r"""Pay at cost: reimburse each client for its level, with a margin, and nothing else.

Symbols: q level, x = 1/q, c cost, τ cost exponent, m margin, k impact, B budget, λ the multiplier
of the budget, t = 1/λ.

Where the law lets a server reimburse costs but set no prices, as for access to health data and in
the EU's Data Act, each client is offered a contract: a level, and for it the cost that it has, with
a margin if that is allowed,

    T(q) = (1 + m) c q^τ.

Which levels to agree on is the problem of the equilibrium once more. In x = 1/q

.. math::
    \min_x \sum_n k_n x_n
    \quad\text{s.t.}\quad \sum_n (1 + m)\, c_n x_n^{-\tau} \le B,
    \quad 1/q_{\max} \le x_n \le 1/q_{\min}

is convex, since x^{−τ} is. A price leaves its client to choose, so that a level q of a client
without value costs the server τ c q^τ (`fedprice.pricing.equilibrium`). With (1 + m) c / τ in the
place of c, and 0 in that of v, objective, constraint and limits of the two problems are the same
functions of x, so that the levels of the one are optimal in the other:

    q_n(t) = clip([k_n t / (τ (1 + m) c_n)]^{1/(τ+1)}, q_min, q_max),

and so are their bounds on what is possible: the certificate holds for all levels that a
reimbursement within the budget can buy. The same budget buys what prices buy with τ / (1 + m) times
as much where nobody has a value.

Warnings
--------
The contract is taken or left whole, and it rests on the costs that clients state: whoever states
more is paid more. It needs proof of costs, where prices need none. A client that values the model
is not expected to contribute; if its contract is for less than it would do unpaid, it is better off
without one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError, number_like
from fedprice.pricing.equilibrium import solve_problem
from fedprice.pricing.problem import Problem
from fedprice.pricing.schemes import Scheme, scheme

if TYPE_CHECKING:
    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome

__all__ = ["at_cost", "reimbursing"]


@scheme("at-cost", posts_prices=False)
def at_cost(game: Game, margin: float = 0.0) -> Outcome:
    """Return the levels of least expected loss if clients are paid their costs and a margin.

    Parameters
    ----------
    game
        The game; values do not matter.
    margin
        m ≥ 0: what is paid on top of a cost, as a share of it.

    Examples
    --------
    >>> from fedprice import Bound, Clients, Game
    >>> clients = Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=0)
    >>> game = Game(clients, bound=Bound(alpha=2, rounds=1000), budget=2.2)
    >>> outcome = at_cost(game, margin=0.1)
    >>> outcome.levels.round(3), outcome.payments.round(3)
    (array([0.297, 0.574]), array([0.389, 1.811]))
    >>> (1.1 * clients.cost * outcome.levels**2).round(3), outcome.status.value
    (array([0.389, 1.811]), 'optimal')
    """
    margin = number_like("margin", margin)
    if not 0 <= margin < np.inf:
        raise InputError(
            f"`margin` must be a finite number, at least 0; got {margin:g}. Try 0.1 for 10 %."
        )
    clients, share = game.clients, (1 + margin) / game.cost_exponent
    sellers = replace(clients, cost=clients.cost * share, value=np.zeros(len(clients)))
    solved = solve_problem(Problem.of(replace(game, clients=sellers)), game.budget)
    return replace(
        solved, game=game, scheme="at-cost", posts_prices=False, bought=solved.levels > 0
    )


def reimbursing(margin: float) -> Scheme:
    """Return pay at cost with a margin, as a scheme to compare, to simulate or to study."""
    return Scheme("at-cost", partial(at_cost, margin=margin), posts_prices=False)
