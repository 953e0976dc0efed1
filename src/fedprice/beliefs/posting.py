"""`post`: what to offer clients whose costs and values the server does not know."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedprice.beliefs.classes import price_classes
from fedprice.beliefs.families import MANY, Population
from fedprice.beliefs.posted import Lottery, Posted
from fedprice.beliefs.prices import REFINEMENTS, WEAK, NoPriceError, Search
from fedprice.beliefs.spending import SAME, spending
from fedprice.errors import InputError, nearest, number_like, precision_error
from fedprice.game import LARGEST_EXPONENT, price_at
from fedprice.pricing.outcome import Certificate
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Beliefs, Types
    from fedprice.beliefs.curves import Moments
    from fedprice.beliefs.spending import NormalSpend, Sums
    from fedprice.bound import Bound
    from fedprice.clients import Clients

__all__ = ["FORMS", "post"]

FORMS = ("price", "blocks", "tariff", "menu")
RISK_STEPS = 24  # in the search for the spend that exceeds the budget with a given probability
CLOSE = 1e-3  # to the quantile of the spend, relative to its distance from the mean
ROUNDING = 1e-4  # relative, of the spend and of the loss; more than that is not rounding error
CORRECTIONS = 2  # of the budget, where clients are interpolated between nodes


def post(
    clients: Clients,
    beliefs: Beliefs,
    *,
    bound: Bound,
    budget: float,
    form: str = "price",
    cost_exponent: float = 2.0,
    blocks: int | None = None,
    classes: int | None = None,
    risk: float | None = None,
    lottery: bool = True,
    alpha_interval: tuple[float, float] | None = None,
) -> Posted:
    """Post to each client the tariff that minimises the expected loss under an expected budget.

    Nothing that a client says changes its own tariff, so no client can gain by lying.

    Parameters
    ----------
    clients
        The clients. Their costs and values may be unknown, and are not used; only "menu" needs
        values.
    beliefs
        What the server believes about costs and values.
    bound
        How levels determine the expected loss.
    budget
        The most to pay in total, in expectation.
    form
        "price": one price per unit of level. "blocks": a price per block of levels. "tariff": a
        price per level, in many blocks. "menu": levels with payments to choose from, where the
        clients' values are known and only their costs are not.
    cost_exponent
        τ > 1.
    blocks
        For "blocks": how many; 4 by default.
    classes
        For "price": how many different prices there may be. Clients of a class get the same price.
    risk
        For "price": the probability with which the spend may exceed the budget; the expected spend
        is then below the budget.
    lottery
        For "price": whether a lottery may draw one client's price from two, which is the most that
        the optimum needs. Without it, that client gets one price in between that costs the same.
    alpha_interval
        For "price": an interval that contains the bound's α. The prices then minimise the largest
        expected loss over it, and keep the largest expected spend within the budget.

    Returns
    -------
    Posted
        Tariffs, expected loss and spend, and for "price" a certificate.

    Examples
    --------
    >>> import fedprice as fp
    >>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0])
    >>> beliefs = fp.Beliefs.exponential(cost=40, value=4000)
    >>> posted = fp.post(clients, beliefs, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
    >>> posted
    Posted(form='price', num_clients=3, expected_loss=0.00178395, expected_spend=20,
    spend_std=7.20598)
    >>> posted.prices.round(2)
    array([ 6.06, 24.73,  5.25])
    >>> posted.certificate.gap < 1e-5
    True
    """
    budget, tau = number_like("budget", budget), number_like("cost_exponent", cost_exponent)
    if not np.isfinite(budget):
        raise InputError(f"`budget` must be a finite number; got {budget}.")
    if not 1 < tau <= LARGEST_EXPONENT:
        raise InputError(f"`cost_exponent` τ must be above 1; got {tau}.")
    if form not in FORMS:
        raise InputError(f"there is no form {form!r}. {nearest(str(form), FORMS)}")
    if form != "blocks" and blocks is not None:
        raise InputError(f"`blocks` requires form 'blocks'; got form {form!r}.")
    if form != "price" and not (
        classes is None and risk is None and lottery and alpha_interval is None
    ):
        raise InputError(
            "`classes`, `risk`, `lottery` and `alpha_interval` require form 'price'; got form "
            f"{form!r}."
        )
    if classes is not None:
        number = number_like("classes", classes)
        if not 1 <= number <= len(clients) or number != int(number):
            raise InputError(
                f"`classes` must be a whole number from 1 to {len(clients)}, the number of "
                f"clients; got {classes}."
            )
        if alpha_interval is not None:
            raise InputError(
                "`classes` cannot be combined with `alpha_interval`; leave one of them out."
            )
        classes = int(number)
    if risk is not None and not 0 < number_like("risk", risk) < 0.5:
        raise InputError(f"`risk` must be above 0 and below 0.5; got {risk}.")
    types, own = beliefs.groups(clients)
    # Numbers that are too far apart overflow; such results are rejected below.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if form == "price":
            posted = _prices(
                clients, beliefs, bound, budget, tau, types, own,
                classes=classes, risk=risk, lottery=lottery, alpha_interval=alpha_interval,
            )  # fmt: skip
        else:
            number_of = None if form != "blocks" else 4 if blocks is None else blocks
            posted = _tariffs(clients, beliefs, bound, budget, tau, types, own, form, number_of)
        _check_precision(posted)
    return posted


def _check_precision(posted: Posted) -> None:
    """Refuse prices whose spend or certificate is wrong because of rounding errors."""
    moments = posted.moments
    scale = abs(posted.budget) + float((np.abs(moments.spend) + np.sqrt(moments.variance)).sum())
    primal, dual = posted.certificate.primal, posted.certificate.dual
    kept = posted.expected_spend - posted.budget <= ROUNDING * scale
    if not (kept and np.isfinite(primal) and dual <= primal + ROUNDING * abs(primal)):
        raise precision_error(f"form {posted.form!r}")


def _tariffs(
    clients: Clients,
    beliefs: Beliefs,
    bound: Bound,
    budget: float,
    tau: float,
    types: list[Types],
    own: IntArray,
    form: str,
    blocks: int | None,
) -> Posted:
    from fedprice.beliefs.block_tariffs import MARGIN, post_tariffs
    from fedprice.beliefs.menus import post_menus

    impact, cap = bound.impact(clients), clients.level_max
    if form == "menu":
        if "value" in clients.unknown:
            raise InputError(
                "a menu needs the clients' values, and only their costs may be unknown: add the "
                "column 'value', or use form 'blocks' or 'tariff'."
            )
        found = post_menus(impact, types, own, clients.value, tau, cap, budget, MARGIN)
    else:
        found = post_tariffs(impact, types, own, tau, cap, budget, blocks)
        if len(clients) <= MANY:
            # The search for blocks is not exhaustive: never post blocks that a single price beats.
            flat = _prices(
                clients, beliefs, bound, budget, tau, types, own,
                classes=None, risk=None, lottery=False, alpha_interval=None,
            )  # fmt: skip
            loss = float(found.moments.loss.sum())
            if flat.certificate.primal < loss and (flat.prices >= 0).all():
                # What bounds the loss of prices does not bound that of blocks.
                certificate = Certificate(flat.certificate.primal, -np.inf)
                return replace(flat, form=form, certificate=certificate)
    return Posted(
        clients=clients,
        beliefs=beliefs,
        bound=bound,
        budget=budget,
        cost_exponent=tau,
        form=form,
        tariffs=found.tariffs,
        moments=found.moments,
        missed=_missed(
            found.tariffs, clients, impact, types, own, tau, values_known=form == "menu"
        ),
        multiplier=found.multiplier,
        certificate=Certificate(float(found.moments.loss.sum()), -np.inf),
        planned=budget,
    )


class _Found(NamedTuple):
    """Prices of clients and of rows, what they yield, the lottery and the multiplier."""

    price: FloatArray
    rows: FloatArray | None
    brought: Moments
    drawn: Lottery | None
    multiplier: float


def _prices(
    clients: Clients,
    beliefs: Beliefs,
    bound: Bound,
    budget: float,
    tau: float,
    types: list[Types],
    own: IntArray,
    *,
    classes: int | None,
    risk: float | None,
    lottery: bool,
    alpha_interval: tuple[float, float] | None,
) -> Posted:
    low, high = _ends_of_alpha(bound, alpha_interval)
    impact = replace(bound, alpha=high).impact(clients)
    low_impact = replace(bound, alpha=low).impact(clients)
    population = Population.of(impact, low_impact, clients.level_max, types, own, tau)
    if not population.members:
        raise InputError("no client has an impact, so there is nothing to pay for.")
    grouped = None
    search = Search(population.family())
    if classes is not None:
        grouped = price_classes(population, search, budget, classes)
        search = Search(population.family(grouped))

    def priced(planned: float, **options: int) -> _Found:
        found = search.post(planned, **options)
        rows, drawn = found.price, None
        allowed = population.exact and grouped is None and lottery
        if allowed and search.needs_lottery(found):
            who = np.concatenate(population.members)[found.row]
            drawn = Lottery(int(who), found.other, found.share)
        else:  # also where a row stands for many clients
            rows = search.settled(found)
        if grouped is not None:
            price = rows[population.class_of(grouped)] * (impact > 0)
            return _Found(price, None, population.moments(price), None, found.multiplier)
        price = population.prices(rows)
        brought = population.moments(price, rows)
        if drawn is not None:
            brought = _with_lottery(brought, population, price, drawn)
        return _Found(price, rows, brought, drawn, found.multiplier)

    def spend(found: _Found) -> Sums | NormalSpend:
        tariffs = Tariffs.flat(found.price, clients.level_max)
        paid_at = np.where(found.price < 0, low_impact, impact)
        return spending(
            tariffs, paid_at, types, own, tau, moments=found.brought, lottery=found.drawn
        )

    def best() -> tuple[_Found, float]:
        """Return the best prices, and the expected spend that they were made for."""
        planned = aim = budget
        found = priced(aim)
        if risk is not None:
            # Clients that have to be paid cannot cost less than 0.
            positive = bool(search.family.indifferent.all())
            for turns in (1, REFINEMENTS):  # finer grids may move the quantile a little
                at = partial(priced, refinements=turns)
                found, aim = _risked(at, spend, budget, risk, aim, positive=positive)
            planned = aim
        if found.multiplier and not population.exact:
            for _ in range(CORRECTIONS):  # interpolated clients do not meet the budget exactly
                aim += planned - float(found.brought.spend.sum())
                found = priced(aim, refinements=1)
        return found, planned

    def certificate() -> Certificate:
        primal = float(found.brought.loss.sum())
        return Certificate(primal, search.certified(found.multiplier, planned, primal))

    found, planned = best()
    certified = certificate()
    if certified.gap > WEAK and population.exact:  # between nodes no bound is that close
        search.densify()
        found, planned = best()
        certified = certificate()
    price, rows, brought, drawn, multiplier = found
    primal, worst = certified.primal, None
    if alpha_interval is not None:
        worst = primal - float(impact.sum()), float(brought.spend.sum())
        impact = bound.impact(clients)
        population = Population.of(impact, impact, clients.level_max, types, own, tau)
        brought = population.moments(price, rows)
        if drawn is not None:
            brought = _with_lottery(brought, population, price, drawn)
    if not np.isfinite(price).all():
        raise precision_error("what to post")
    tariffs = Tariffs.flat(price, clients.level_max)
    return Posted(
        clients=clients,
        beliefs=beliefs,
        bound=bound,
        budget=budget,
        cost_exponent=tau,
        form="price",
        tariffs=tariffs,
        moments=brought,
        missed=_missed(tariffs, clients, impact, types, own, tau),
        multiplier=multiplier,
        certificate=certified,
        planned=planned,
        lottery=drawn,
        classes=None if grouped is None else population.class_of(grouped),
        worst=worst,
    )


def _ends_of_alpha(bound: Bound, given: tuple[float, float] | None) -> tuple[float, float]:
    """Return the interval of α that prices must hold for: just the bound's if none is given."""
    if given is None:
        return bound.alpha, bound.alpha
    try:
        low, high = (number_like("alpha_interval", end) for end in given)
    except (TypeError, ValueError):
        raise InputError(f"`alpha_interval` must be (low, high); got {given!r}.") from None
    if not 0 < low <= bound.alpha <= high < np.inf:
        raise InputError(
            f"`alpha_interval` must be (low, high), above 0, and hold the bound's "
            f"{bound.alpha:g}; got ({low:g}, {high:g})."
        )
    return low, high


def _risked(
    priced: Callable[[float], _Found],
    spend: Callable[[_Found], Sums | NormalSpend],
    budget: float,
    risk: float,
    aim: float,
    *,
    positive: bool,
) -> tuple[_Found, float]:
    """Return the prices with the largest expected spend that keep the risk, and that spend.

    That is where the quantile of the spend equals the budget, unless the quantile jumps there, as
    it may with few types; never more than the budget.

    Parameters
    ----------
    priced, spend
        The best prices for an expected spend, and the distribution of what they cost.
    budget, risk
        The budget, and the largest probability with which it may be exceeded.
    aim
        The expected spend to start from.
    positive
        Whether only expected spends above 0 are possible.
    """
    low, high, best = -np.inf, np.inf, None
    for _ in range(RISK_STEPS):
        found = priced(aim)
        quantile = spend(found).quantile(risk)
        left = budget - quantile
        if left >= -SAME * abs(budget):
            low, best = aim, found
            if aim == budget or left <= CLOSE * abs(quantile - aim):
                break
        else:
            high = aim
        aim = min(aim + left, budget)  # the quantile moves about as much as the expected spend
        if not low < aim < high:
            aim = (low + high) / 2 if np.isfinite(low) else high - 2 * abs(left)
        if positive:
            aim = max(aim, high / 4)
    if best is None:
        raise NoPriceError(
            f"no posted prices were found that exceed a budget of {budget:g} with a probability "
            f"of {risk:g} at most. Raise the budget or the risk."
        )
    return best, low


def _with_lottery(
    brought: Moments, population: Population, price: FloatArray, drawn: Lottery
) -> Moments:
    """Return what is expected before the lottery is drawn."""
    other = price.copy()
    other[drawn.client] = drawn.price
    n, p = drawn.client, drawn.probability
    here, there = brought, population.moments(other)
    mixed = type(brought)(*(x.copy() for x in brought))
    for field in ("loss", "spend", "level", "variance"):
        a, b = (float(getattr(x, field)[n]) for x in (here, there))
        getattr(mixed, field)[n] = (1 - p) * a + p * b
    mixed.variance[n] += p * (1 - p) * float(there.spend[n] - here.spend[n]) ** 2
    return mixed


def _missed(
    tariffs: Tariffs,
    clients: Clients,
    impact: FloatArray,
    types: list[Types],
    own: IntArray,
    tau: float,
    *,
    values_known: bool = False,
) -> FloatArray:
    """Return the probability that each client answers a tariff below its floor, shape (N,)."""
    floor = clients.level_min * (1 - 1e-12)
    missed = np.zeros(floor.size)
    for n, one in enumerate(types):
        who = np.flatnonzero((own == n) & (floor > 0))
        parts = min(who.size, 1 + (who.size * one.cost.size >> 16))
        for some in np.array_split(who, parts) if parts else ():
            value = clients.value[some, None] if values_known else one.value
            wants, least = value * impact[some, None], floor[some, None]
            if tariffs.ends.shape[1] == 1:  # comparing prices is faster than levels
                below = price_at(least, one.cost, wants, tau) > tariffs.prices[some]
            else:
                below = tariffs.of(some).best_levels(one.cost[None], wants, tau) < least
            missed[some] = below @ one.weight
    return missed
