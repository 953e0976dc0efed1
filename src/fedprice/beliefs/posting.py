"""`post`: what to offer clients whose costs and values the server does not know."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice.beliefs.families import MANY, Population
from fedprice.beliefs.posted import Posted
from fedprice.beliefs.price_classes import price_classes
from fedprice.beliefs.price_search import REFINEMENTS, WEAK, NoPriceError, Search
from fedprice.beliefs.spending import SAME, spending
from fedprice.errors import InputError, nearest, number_like, precision_error
from fedprice.game import LARGEST_EXPONENT, price_at
from fedprice.pricing.outcome import Certificate
from fedprice.tariff import Tariffs

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import FloatArray, IntArray
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
    if form != "price" and not (classes is None and risk is None and alpha_interval is None):
        raise InputError(
            f"`classes`, `risk` and `alpha_interval` require form 'price'; got form {form!r}."
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
    asked = _Asked(clients, beliefs, bound, budget, tau, *beliefs.groups(clients))
    # Numbers that are too far apart overflow; such results are rejected below.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if form == "price":
            posted = _Prices(asked, classes, alpha_interval).post(risk)
        else:
            posted = _tariffs(asked, form, 4 if blocks is None and form == "blocks" else blocks)
        _check_precision(posted)
    return posted


class _Asked(NamedTuple):
    """Whom to price, what is believed of them, and the budget.

    `group` says which of the sets of `types` is each client's, shape (N,).
    """

    clients: Clients
    beliefs: Beliefs
    bound: Bound
    budget: float
    tau: float
    types: list[Types]
    group: IntArray

    def posted(self, form: str, tariffs: Tariffs, moments: Moments, **more: Any) -> Posted:
        """Return what was posted, with the probability that each client misses its floor."""
        return Posted(
            clients=self.clients, beliefs=self.beliefs, bound=self.bound, budget=self.budget,
            cost_exponent=self.tau, form=form, tariffs=tariffs, moments=moments,
            missed=_missed(self, tariffs, values_known=form == "menu"), **more,
        )  # fmt: skip


def _check_precision(posted: Posted) -> None:
    """Refuse prices whose spend or certificate is wrong because of rounding errors."""
    moments = posted.moments
    scale = abs(posted.budget) + float((np.abs(moments.spend) + np.sqrt(moments.variance)).sum())
    primal, dual = posted.certificate.primal, posted.certificate.dual
    kept = posted.expected_spend - posted.budget <= ROUNDING * scale
    if not (kept and np.isfinite(primal) and dual <= primal + ROUNDING * abs(primal)):
        raise precision_error(f"form {posted.form!r}")


def _tariffs(asked: _Asked, form: str, blocks: int | None) -> Posted:
    from fedprice.beliefs.block_tariffs import MARGIN, post_tariffs
    from fedprice.beliefs.menus import post_menus

    clients, budget, tau = asked.clients, asked.budget, asked.tau
    impact, cap = asked.bound.impact(clients), clients.level_max
    if form == "menu":
        if "value" in clients.unknown:
            raise InputError(
                "a menu needs the clients' values, and only their costs may be unknown: add the "
                "column 'value', or use form 'blocks' or 'tariff'."
            )
        best = post_menus(impact, asked.types, asked.group, clients.value, tau, cap, budget, MARGIN)
    else:
        best = post_tariffs(impact, asked.types, asked.group, tau, cap, budget, blocks)
        if len(clients) <= MANY:
            # The search for blocks is not exhaustive: never post blocks that a single price beats.
            flat = _Prices(asked).post()
            loss = float(best.moments.loss.sum())
            if flat.certificate.primal < loss and (flat.prices >= 0).all():
                # What bounds the loss of prices does not bound that of blocks.
                certificate = Certificate(flat.certificate.primal, -np.inf)
                return replace(flat, form=form, certificate=certificate)
    return asked.posted(
        form,
        best.tariffs,
        best.moments,
        multiplier=best.multiplier,
        certificate=Certificate(float(best.moments.loss.sum()), -np.inf),
        planned=budget,
    )


class _Priced(NamedTuple):
    """Prices of clients and of rows, what they yield, and the multiplier.

    `rows` is None where rows share prices.
    """

    price: FloatArray
    rows: FloatArray | None
    moments: Moments
    multiplier: float


class _Prices:
    """The search for the best prices, their certificate, and the worst case over an interval of α.

    Everything is computed at the upper end of the interval, where clients that are paid cost most.
    """

    def __init__(
        self,
        asked: _Asked,
        classes: int | None = None,
        alpha_interval: tuple[float, float] | None = None,
    ) -> None:
        clients, bound = asked.clients, asked.bound
        low, high = _ends_of_alpha(bound, alpha_interval)
        self.asked = asked
        self.robust = alpha_interval is not None
        self.impact = replace(bound, alpha=high).impact(clients)
        self.low_impact = replace(bound, alpha=low).impact(clients)
        self.population = self._population(self.impact, self.low_impact)
        if not self.population.members:
            raise InputError("no client has an impact, so there is nothing to pay for.")
        self.search = Search(self.population.family())
        self.classes = None
        if classes is not None:
            self.classes = price_classes(self.population, self.search, asked.budget, classes)
            self.search = Search(self.population.family(self.classes))

    def _population(self, impact: FloatArray, low_impact: FloatArray) -> Population:
        asked = self.asked
        cap = asked.clients.level_max
        return Population.of(impact, low_impact, cap, asked.types, asked.group, asked.tau)

    def post(self, risk: float | None = None) -> Posted:
        """Return the best prices with their certificate and their worst case."""
        priced, planned = self.best(risk)
        certificate = self.certify(priced, planned)
        if certificate.gap > WEAK and self.population.exact:  # between nodes no bound is that close
            self.search.densify()
            priced, planned = self.best(risk)
            certificate = self.certify(priced, planned)
        if not np.isfinite(priced.price).all():
            raise precision_error("what to post")
        moments, worst = self.worst_case(priced)
        return self.asked.posted(
            "price",
            Tariffs.flat(priced.price, self.asked.clients.level_max),
            moments,
            multiplier=priced.multiplier,
            certificate=certificate,
            planned=planned,
            classes=None if self.classes is None else self.population.class_of(self.classes),
            worst=worst,
        )

    def at(self, spend: float, refinements: int = REFINEMENTS) -> _Priced:
        """Return the best prices for an expected spend."""
        best = self.search.post(spend, refinements)
        rows = self.search.settled(best)
        if self.classes is not None:
            price = rows[self.population.class_of(self.classes)] * (self.impact > 0)
            return _Priced(price, None, self.population.moments(price), best.multiplier)
        price = self.population.prices(rows)
        return _Priced(price, rows, self.population.moments(price, rows), best.multiplier)

    def best(self, risk: float | None) -> tuple[_Priced, float]:
        """Return the best prices, and the expected spend that they were made for."""
        planned = aim = self.asked.budget
        priced = self.at(aim)
        if risk is not None:
            for turns in (1, REFINEMENTS):  # finer grids may move the quantile a little
                priced, aim = self._risked(risk, aim, turns)
            planned = aim
        if priced.multiplier and not self.population.exact:
            for _ in range(CORRECTIONS):  # interpolated clients do not meet the budget exactly
                aim += planned - float(priced.moments.spend.sum())
                priced = self.at(aim, 1)
        return priced, planned

    def _risked(self, risk: float, aim: float, refinements: int) -> tuple[_Priced, float]:
        """Return the prices with the largest expected spend that keep the risk, and that spend.

        That is where the quantile of the spend equals the budget, unless the quantile jumps there,
        as it may with few types; never more than the budget. The search starts at `aim`.
        """
        budget = self.asked.budget
        # Clients that have to be paid cannot cost less than 0.
        positive = bool(self.search.family.indifferent.all())
        low, high, best = -np.inf, np.inf, None
        for _ in range(RISK_STEPS):
            priced = self.at(aim, refinements)
            quantile = self._spending(priced).quantile(risk)
            left = budget - quantile
            if left >= -SAME * abs(budget):
                low, best = aim, priced
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
                f"no posted prices were found that exceed a budget of {budget:g} with a "
                f"probability of {risk:g} at most. Raise the budget or the risk."
            )
        return best, low

    def _spending(self, priced: _Priced) -> Sums | NormalSpend:
        """Return the distribution of what prices cost: fees are lowest where impacts are."""
        asked = self.asked
        tariffs = Tariffs.flat(priced.price, asked.clients.level_max)
        paid_at = np.where(priced.price < 0, self.low_impact, self.impact)
        return spending(
            tariffs, paid_at, asked.types, asked.group, asked.tau, moments=priced.moments
        )

    def certify(self, priced: _Priced, planned: float) -> Certificate:
        """Return the certificate of prices that were made for an expected spend."""
        primal = float(priced.moments.loss.sum())
        return Certificate(primal, self.search.certified(priced.multiplier, planned, primal))

    def worst_case(self, priced: _Priced) -> tuple[Moments, tuple[float, float] | None]:
        """Return what prices yield at the bound's α, and the largest loss and spend over all α."""
        moments = priced.moments
        if not self.robust:
            return moments, None
        worst = float(moments.loss.sum()) - float(self.impact.sum()), float(moments.spend.sum())
        impact = self.asked.bound.impact(self.asked.clients)
        return self._population(impact, impact).moments(priced.price, priced.rows), worst


def _ends_of_alpha(bound: Bound, interval: tuple[float, float] | None) -> tuple[float, float]:
    """Return the interval of α that prices must hold for: just the bound's α by default."""
    if interval is None:
        return bound.alpha, bound.alpha
    try:
        low, high = (number_like("alpha_interval", end) for end in interval)
    except (TypeError, ValueError):
        raise InputError(f"`alpha_interval` must be (low, high); got {interval!r}.") from None
    if not 0 < low <= bound.alpha <= high < np.inf:
        raise InputError(
            f"`alpha_interval` must be (low, high), above 0, and hold the bound's "
            f"{bound.alpha:g}; got ({low:g}, {high:g})."
        )
    return low, high


def _missed(asked: _Asked, tariffs: Tariffs, *, values_known: bool) -> FloatArray:
    """Return the probability that each client answers a tariff below its floor, shape (N,)."""
    clients, tau = asked.clients, asked.tau
    impact = asked.bound.impact(clients)
    floor = clients.level_min * (1 - 1e-12)
    missed = np.zeros(floor.size)
    for number, types in enumerate(asked.types):
        floored = np.flatnonzero((asked.group == number) & (floor > 0))
        parts = min(floored.size, 1 + (floored.size * types.cost.size >> 16))
        for rows in np.array_split(floored, parts) if parts else ():
            value = clients.value[rows, None] if values_known else types.value
            wants, least = value * impact[rows, None], floor[rows, None]
            if tariffs.ends.shape[1] == 1:  # comparing prices is faster than levels
                below = price_at(least, types.cost, wants, tau) > tariffs.prices[rows]
            else:
                below = tariffs.of(rows).best_levels(types.cost[None], wants, tau) < least
            missed[rows] = below @ types.weight
    return missed
