"""Posting by what the other clients reported or did.

What a client reports or does must not affect its own tariff, not even through the budget's
multiplier. So each client has its own problem, which ignores all that it said and did, and whose
solution is used for that client's tariff only: N problems for N clients.
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

__all__ = ["joined", "post_from_others"]


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

    Truthful without any prior: whatever a client reports, its own tariff stays the same. With a
    value above 0 it keeps an interest of order 1/N in what the others are offered.

    Parameters
    ----------
    clients
        The clients, with the costs and values that they reported; at least two.
    bound, budget, form, cost_exponent, blocks
        As for `post`; the form is "price", "blocks" or "tariff". For the last two, one type of
        value 0 is added (see `Beliefs.leave_one_out`).

    Returns
    -------
    Posted
        Expectations are over the others' types, and the multiplier is the mean of all problems'.
        The budget is met in expectation up to the effect of one report; nothing is proven about
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
            )
        )
    return joined(solved, beliefs)


def joined(solved: list[Posted], beliefs: Beliefs) -> Posted:
    """Return the offers in which client n gets its tariff from problem n.

    Parameters
    ----------
    solved
        One solution per client.
    beliefs
        About each client in its own problem.
    """
    first = solved[0]
    offers = [one.tariffs.of([n]) for n, one in enumerate(solved)]
    rows = [[column[n] for column in one.moments] for n, one in enumerate(solved)]
    moments = Moments(*np.array(rows).T)
    return replace(
        first,
        beliefs=beliefs,
        tariffs=_stacked(offers),
        moments=moments,
        missed=np.array([one.missed[n] for n, one in enumerate(solved)]),
        certificate=Certificate(float(moments.loss.sum()), -np.inf),
        multiplier=float(np.mean([one.multiplier for one in solved])),
        separate=True,
    )


def _stacked(offers: list[Tariffs]) -> Tariffs:
    """Return tariffs of one client each as one table.

    Where one price does as well as a tariff, it is a single block: a list of levels that all have
    this price, if the others are such lists. Blocks that a shorter tariff lacks are cut off the
    last one's end, with the same price.
    """
    count, menu = max(offer.ends.shape[1] for offer in offers), any(offer.menu for offer in offers)
    ends, prices = [], []
    for offer in offers:
        ends_of, price = offer.ends[0], offer.prices[0]
        if menu and not offer.menu:
            ends_of, price = ends_of[-1] * np.geomspace(1e-4, 1, count), np.full(count, price[0])
        lacking = count - ends_of.size
        cuts = ends_of[-1] * (1 - 1e-9 * np.arange(lacking, 0, -1))
        ends.append(np.concatenate([ends_of[:-1], cuts, ends_of[-1:]]))
        prices.append(np.concatenate([price, np.full(lacking, price[-1])]))
    return Tariffs(np.stack(ends), np.stack(prices), menu)
