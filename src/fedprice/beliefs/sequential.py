"""Sequential posting of prices, one client after another: a budget that is never exceeded.

Prices that are posted all at once meet the budget in expectation. Posted one after another, each
price is made for the money that is left: client n gets the price that it would have if the rest of
the money went to n and all clients after it, and never a price that could cost more than is left.
The largest impact comes first, because its answer is the most useful one to know when the others
are priced.

What one client answers affects only the prices of clients after it, never its own. So for each
client this is a lottery over prices, and the certificate of posted prices bounds this as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedprice.beliefs.families import Population
from fedprice.beliefs.hulls import lower_hull
from fedprice.beliefs.price_search import Search
from fedprice.errors import InputError
from fedprice.game import best_level

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.posted import Information, Posted
    from fedprice.game import Game
    from fedprice.pricing.outcome import Outcome
    from fedprice.tariff import Tariffs

__all__ = ["Sequential"]

SHARES = (0.4, 0.6, 0.8, 1.0, 1.25, 1.6)  # of the budget, around which curves are refined
DRAWS = 400  # from which expectations are estimated


@dataclass(frozen=True, eq=False)
class Sequential:
    """Prices posted one after another, the largest impact first.

    Attributes
    ----------
    posted
        The prices that would be posted all at once.

    Examples
    --------
    >>> import fedprice as fp
    >>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0])
    >>> beliefs = fp.Beliefs.exponential(cost=40, value=4000)
    >>> posted = fp.post(clients, beliefs, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
    >>> outcome = posted.sequential().answer(cost=[40, 30, 20], value=[0, 4000, 9000])
    >>> outcome.spend <= 20
    True
    """

    posted: Posted

    def __post_init__(self) -> None:
        posted = self.posted
        if posted.form != "price" or posted.classes is not None or posted.worst is not None:
            raise InputError(
                "only prices of form 'price', without classes or an interval of α, can be "
                "posted sequentially."
            )
        if posted.separate:
            raise InputError(
                "prices from the other clients' reports cannot be posted sequentially: a report "
                "would affect the client's own price through the remaining budget."
            )
        if posted.budget < 0:
            raise InputError(
                "sequential posting cannot keep a budget below 0: what clients pay is known only "
                f"when all have answered; got {posted.budget:g}. Post all at once with a risk."
            )
        if not self._population.exact:
            raise InputError(
                "sequential posting computes one price at a time, and there are "
                f"{len(posted.clients):,} clients that share beliefs; post all at once with a risk "
                "instead."
            )

    @cached_property
    def _population(self) -> Population:
        posted = self.posted
        return Population.of(
            posted.impact, posted.impact, posted.clients.level_max,
            *posted.beliefs.groups(posted.clients), posted.cost_exponent,
        )  # fmt: skip

    @cached_property
    def order(self) -> IntArray:
        """The clients in the order in which they are asked, by their numbers."""
        who = np.concatenate(self._population.members)
        order: IntArray = who[np.argsort(-self.posted.impact[who], kind="stable")]
        return order

    @cached_property
    def _hulls(self) -> tuple[FloatArray, ...]:
        """The segments of all hulls by falling slope.

        They are: turn of the client, slope, money, price from, price to; and by turn, the money and
        the price of the first corner.
        """
        search = Search(self._population.family())
        for share in SHARES:
            search.post(share * self.posted.budget, refinements=3)
        who = np.concatenate(self._population.members)
        turn = np.empty(self.posted.impact.size, np.int64)
        turn[self.order] = np.arange(self.order.size)
        segments = []
        first = np.empty((2, who.size))
        for row, n in enumerate(who):
            hull = lower_hull(search.spend[row], search.loss[row])
            c, a, p = (x[row][hull] for x in (search.spend, search.loss, search.price))
            first[:, turn[n]] = c[0], p[0]
            owner = np.full(len(hull) - 1, turn[n])
            segments.append(np.stack([owner, -np.diff(a) / np.diff(c), np.diff(c), p[:-1], p[1:]]))
        joined = np.concatenate(segments, axis=1)
        return (*joined[:, np.argsort(-joined[1], kind="stable")], *first)

    def price(self, turn: int, money: float) -> float:
        """Return the price for the client whose turn it is, with this much money left.

        Parameters
        ----------
        turn
            Its position in `order`, from 0.
        money
            What is left of the budget.
        """
        owner, _, cost, low, high, spend, price = self._hulls
        waiting = owner >= turn
        paid = np.cumsum(np.where(waiting, cost, 0.0))
        left = money - float(spend[turn:].sum())
        bought = int(np.searchsorted(paid, left, side="right"))
        mine = np.flatnonzero(owner[:bought] == turn)
        posted = float(high[mine[-1]] if mine.size else price[turn])
        if bought < owner.size and owner[bought] == turn and left > 0:
            before = float(paid[bought - 1]) if bought else 0.0
            share = (left - before) / float(cost[bought])
            posted = float(low[bought] + share * (high[bought] - low[bought]))
        cap = float(self.posted.clients.level_max[self.order[turn]])
        return min(posted, max(money, 0.0) / cap)

    def answer(self, *, cost: npt.ArrayLike, value: npt.ArrayLike) -> Outcome:
        """Return the outcome when clients with these types are asked in turn."""
        game = self.posted.game(cost, value)
        return self.posted.answers(game, self._tariffs(game))

    def _tariffs(self, game: Game) -> Tariffs:
        tariffs, clients = self.posted.tariffs, game.clients
        prices = np.zeros_like(tariffs.prices)
        money = self.posted.budget
        for turn, n in enumerate(self.order):
            prices[n] = self.price(turn, money)
            wants, cap = clients.value[n] * game.impact[n], clients.level_max[n]
            level = best_level(prices[n, 0], clients.cost[n], wants, game.cost_exponent, cap)
            money -= float(prices[n, 0] * level)
        return replace(tariffs, prices=prices)

    def information(self, draws: int = 200, seed: int = 0) -> Information:
        """Return how this compares with full information (see `Posted.value_of_information`)."""
        return self.posted.compared(self._tariffs, draws, seed)

    @cached_property
    def _estimate(self) -> Information:
        return self.information(DRAWS)

    @property
    def expected_loss(self) -> float:
        """E[Σ k (1 − q)/q], estimated from 400 draws."""
        return self._estimate.loss

    @property
    def expected_spend(self) -> float:
        """What the server pays in expectation, estimated from 400 draws."""
        return self._estimate.spend

    @property
    def spend_std(self) -> float:
        """The standard deviation of the spend, estimated from 400 draws."""
        return self._estimate.spend_std
