"""Posting without a prior: each client's tariff from what the other clients reported.

What a client reports must not move its own tariff, not even through the budget's multiplier. So
there is one problem per client, in which everybody is believed to have the type of one of the
*other* clients, and of its solution only that client's tariff is used. N problems for N clients.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.beliefs import Beliefs
from fedprice.beliefs.curves import Moments
from fedprice.beliefs.posting import post
from fedprice.errors import InputError
from fedprice.pricing.outcome import Certificate
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from fedprice.beliefs.posted import Posted
    from fedprice.bound import Bound
    from fedprice.clients import Clients

__all__ = ["post_from_others"]


def post_from_others(
    clients: Clients,
    *,
    bound: Bound,
    budget: float,
    form: str = "price",
    cost_exponent: float = 2.0,
    blocks: int | None = None,
) -> Posted:
    """Post a tariff to each client that depends on the other clients' costs and values only.

    Truthful without any prior: a client may report what it likes, its own tariff stays. With a
    value above 0 it keeps an interest of order 1/N in what the others are offered.

    Parameters
    ----------
    clients
        Whom to buy, with the costs and values that they reported; at least two.
    bound, budget, form, cost_exponent, blocks
        As for `post`; the form is "price", "blocks" or "tariff". For the last two, one type of
        value 0 is added (see `Beliefs.leave_one_out`).

    Returns
    -------
    Posted
        Expectations are over the others' types, and the multiplier is the mean of all problems'.
        The budget is met in expectation up to what one report moves; nothing is proven about
        optimality.

    Examples
    --------
    >>> import fedprice as fp
    >>> clients = fp.population(8)
    >>> bound = fp.Bound(alpha=3.3, rounds=1000)
    >>> posted = post_from_others(clients, bound=bound, budget=40)
    >>> liar = replace(clients, cost=clients.cost * np.where(clients.ids == "3", 2, 1))
    >>> again = post_from_others(liar, bound=bound, budget=40)
    >>> float(posted.prices[2]) == float(again.prices[2])
    True
    """
    if form not in ("price", "blocks", "tariff"):
        raise InputError(f"`form` must be 'price', 'blocks' or 'tariff'; got {form!r}.")
    beliefs = Beliefs.leave_one_out(clients, unseen=form != "price")
    solved = []
    for name in clients.ids:
        others = beliefs.types[str(name)]
        shared = Beliefs(cost=others.cost, value=others.value, weight=others.weight)
        solved.append(
            post(
                clients,
                shared,
                bound=bound,
                budget=budget,
                form=form,
                cost_exponent=cost_exponent,
                blocks=blocks,
                lottery=form != "price",
            )
        )
    first = solved[0]
    rows = [[column[n] for column in one.moments] for n, one in enumerate(solved)]
    moments = Moments(*np.array(rows).T)
    return replace(
        first,
        beliefs=beliefs,
        tariffs=Tariffs(
            np.stack([one.tariffs.ends[n] for n, one in enumerate(solved)]),
            np.stack([one.tariffs.prices[n] for n, one in enumerate(solved)]),
            first.tariffs.menu,
        ),
        moments=moments,
        missed=np.array([one.missed[n] for n, one in enumerate(solved)]),
        certificate=Certificate(float(moments.loss.sum()), -np.inf),
        multiplier=float(np.mean([one.multiplier for one in solved])),
        separate=True,
    )
