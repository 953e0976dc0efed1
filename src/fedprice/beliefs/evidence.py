"""Learning from behaviour: what clients did, and what the server believes afterwards.

Symbols: S types, w prior weight of a type, ℓ likelihood of what a client did if it were that type.

A client's posterior is w ℓ / Σ w ℓ. Pricing a client by its own posterior learns fastest,
but it *ratchets*: a client that acts as if its cost were higher is believed, and paid more in the
next period. For a cooperative fleet that is no problem. In a market, learn from the other clients
only: the beliefs about client n become

    (κ w + Σ_{m≠n} posterior_m) / (κ + N − 1),

the mean of the prior, which counts as much as κ clients, and of the posteriors of all other clients
with the same types. What a client does then affects its own price only through the shared
budget; `Evidence.post` excludes that as well, with one problem per client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy import special

from fedprice.beliefs.beliefs import Beliefs, Types
from fedprice.errors import InputError, number_like

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.beliefs.posted import Posted
    from fedprice.bound import Bound
    from fedprice.clients import Clients
    from fedprice.tariff import Tariffs

    Likelihood = Callable[[int, FloatArray], FloatArray]

__all__ = ["Evidence"]

PRIOR_CLIENTS = 10.0  # κ


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the clients did so far.

    Attributes
    ----------
    clients, prior
        The clients, and what was believed before anything was observed.
    likelihoods
        For each client, the log-likelihood of what it did under each of its types.

    Examples
    --------
    >>> import fedprice as fp
    >>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0])
    >>> prior = fp.Beliefs.exponential(cost=40, value=4000)
    >>> posted = fp.post(clients, prior, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
    >>> seen = Evidence.none(clients, prior).coins(posted, heads=[10, 5, 30], rounds=50)
    >>> seen.beliefs(own=True)
    Beliefs(3 clients, types=2613, mean_cost=59.611, mean_value=3214.18)
    """

    clients: Clients
    prior: Beliefs
    likelihoods: tuple[FloatArray, ...]

    @classmethod
    def none(cls, clients: Clients, prior: Beliefs) -> Self:
        """Return no evidence: the beliefs are the prior."""
        types, group = prior.groups(clients)
        return cls(clients, prior, tuple(np.zeros(types[n].weight.size) for n in group))

    def coins(
        self,
        posted: Posted,
        heads: npt.ArrayLike,
        rounds: npt.ArrayLike,
        tariffs: Tariffs | None = None,
    ) -> Self:
        """Return the evidence with coins: a client of level q draws heads with probability q.

        Parameters
        ----------
        posted
            What was posted to these clients in that period.
        heads, rounds
            In how many of how many rounds each client joined, shape (N,) or scalars.
        tariffs
            The actual offers, if an order made them differ from what was posted.
        """
        joined, all_ = self._columns("heads", heads), self._columns("rounds", rounds)
        if not ((joined >= 0) & (joined <= all_)).all():
            raise InputError("`heads` must lie between 0 and `rounds` for every client.")

        def likelihood(n: int, levels: FloatArray) -> FloatArray:
            missed = all_[n] - joined[n]
            found: FloatArray = special.xlogy(joined[n], levels) + special.xlog1py(missed, -levels)
            return found

        return self._with(posted, tariffs, likelihood)

    def answers(
        self,
        posted: Posted,
        levels: npt.ArrayLike,
        *,
        error: float,
        tariffs: Tariffs | None = None,
    ) -> Self:
        """Return the evidence with the levels that clients committed to.

        Parameters
        ----------
        posted, tariffs
            As for `coins`.
        levels
            The levels, shape (N,).
        error
            How far, relatively, an answer may be from the best one (the standard deviation of its
            logarithm): types are a sample, so that none answers exactly as the client does.
        """
        seen = self._columns("levels", levels)
        if not (0 < number_like("error", error) < np.inf and (seen > 0).all()):
            raise InputError("`levels` and `error` must be above 0.")

        def likelihood(n: int, chosen: FloatArray) -> FloatArray:
            return _closeness(chosen, float(seen[n]), error)

        return self._with(posted, tariffs, likelihood)

    def answer(
        self,
        client: int,
        tariff: Tariffs,
        *,
        impact: float,
        level: float,
        error: float,
        cost_exponent: float = 2.0,
        level_min: float = 0.0,
        value: float | None = None,
    ) -> Self:
        """Return the evidence with the level that one client chose from one tariff.

        Parameters
        ----------
        client
            Its number, from 0.
        tariff, impact, level_min
            What it was offered, in one row, the impact k that it was told, and the least level that
            it could choose.
        level, error
            What it chose, and how far that may be off, as for `answers`.
        cost_exponent
            τ.
        value
            The client's value, where it is known (menus); None for those of its types.
        """
        types, group = self.prior.groups(self.clients)
        believed = types[group[client]]
        values = believed.value if value is None else np.full_like(believed.cost, value)
        (chosen,) = tariff.best_levels(
            believed.cost[None], impact * values[None], cost_exponent, level_min
        )
        likelihoods = list(self.likelihoods)
        likelihoods[client] = likelihoods[client] + _closeness(chosen, level, error)
        return type(self)(self.clients, self.prior, tuple(likelihoods))

    def _with(self, posted: Posted, tariffs: Tariffs | None, likelihood: Likelihood) -> Self:
        offered = posted.tariffs if tariffs is None else tariffs
        ids = self.clients.ids
        if not np.array_equal(posted.clients.ids, ids) or len(offered) != ids.size:
            raise InputError("the evidence and what was posted must be about the same clients.")
        types, group = self.prior.groups(self.clients)
        likelihoods = []
        for n, before in enumerate(self.likelihoods):
            believed = types[group[n]]
            # A menu is made for values that are known.
            value = posted.clients.value[n] if posted.form == "menu" else believed.value
            wants = np.broadcast_to(value * posted.impact[n], believed.cost.shape)
            levels = offered.of([n]).best_levels(
                believed.cost[None], wants[None], posted.cost_exponent
            )[0]
            likelihoods.append(before + likelihood(n, levels))
        return type(self)(self.clients, self.prior, tuple(likelihoods))

    def beliefs(self, *, own: bool = False, prior_clients: float = PRIOR_CLIENTS) -> Beliefs:
        """Return what to believe about each client now.

        Parameters
        ----------
        own
            Whether a client's own actions count; only for clients that do not anticipate this.
        prior_clients
            κ: as how many clients the prior counts, where only the others' actions do.
        """
        if not 0 < number_like("prior_clients", prior_clients) < np.inf:
            raise InputError(f"`prior_clients` must be above 0; got {prior_clients}.")
        types, which = self.prior.groups(self.clients)
        posteriors = [self._posterior(n, types[which[n]]) for n in range(len(which))]
        ids = self.clients.ids.tolist()
        if own:
            weights = posteriors
        else:
            weights = list(posteriors)
            for g, believed in enumerate(types):
                who = np.flatnonzero(which == g)
                mine = np.array([posteriors[n] for n in who])
                # Sums of those before and of those after, so that not even a client's rounding
                # errors reach the beliefs about it.
                before = np.cumsum(mine, axis=0)
                after = np.cumsum(mine[::-1], axis=0)[::-1]
                for i, n in enumerate(who):
                    total = prior_clients * believed.weight
                    if i:
                        total = total + before[i - 1]
                    if i + 1 < who.size:
                        total = total + after[i + 1]
                    weights[n] = total / (prior_clients + who.size - 1)
        return Beliefs.by_client(
            {
                name: Beliefs(cost=types[g].cost, value=types[g].value, weight=weight)
                for name, g, weight in zip(ids, which.tolist(), weights, strict=True)
            }
        )

    def post(
        self,
        *,
        bound: Bound,
        budget: float,
        form: str = "price",
        cost_exponent: float = 2.0,
        blocks: int | None = None,
        risk: float | None = None,
    ) -> Posted:
        """Post tariffs by what the others did: what a client does never affects its own tariff.

        This solves one problem per client, which ignores all of that client's actions. `post` with
        `beliefs()` is a single problem, in which they still affect its tariff through the shared
        budget.

        Parameters
        ----------
        bound, budget, form, cost_exponent, blocks, risk
            As for `post`.

        Returns
        -------
        Posted
            The budget is met in expectation up to the effect of one client; nothing is proven
            about optimality.

        Examples
        --------
        >>> import fedprice as fp
        >>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0])
        >>> prior = fp.Beliefs.exponential(cost=40, value=4000, cells=8)
        >>> bound = fp.Bound(alpha=3.3, rounds=1000)
        >>> posted = fp.post(clients, prior, bound=bound, budget=20)
        >>> prices = []
        >>> for heads in (10, 45):  # of client 0
        ...     seen = Evidence.none(clients, prior).coins(posted, heads=[heads, 5, 30], rounds=50)
        ...     prices.append(seen.post(bound=bound, budget=20).prices)
        >>> prices[0][0] == prices[1][0], prices[0][1] == prices[1][1]
        (np.True_, np.False_)
        """
        from fedprice.beliefs.from_others import joined
        from fedprice.beliefs.posting import post

        solved = []
        for n, likelihood in enumerate(self.likelihoods):
            without = (*self.likelihoods[:n], np.zeros_like(likelihood), *self.likelihoods[n + 1 :])
            beliefs = type(self)(self.clients, self.prior, without).beliefs()
            solved.append(
                post(
                    self.clients, beliefs, bound=bound, budget=budget, form=form,
                    cost_exponent=cost_exponent, blocks=blocks, risk=risk,
                )
            )  # fmt: skip
        return joined(solved, self.beliefs())

    def _posterior(self, n: int, types: Types) -> FloatArray:
        log = np.log(types.weight) + self.likelihoods[n]
        most = log.max()
        if not np.isfinite(most):
            raise InputError(
                f"no type that the beliefs allow client {self.clients.ids[n]!r} would have "
                "acted as it did: widen the beliefs."
            )
        weight = np.exp(log - most)
        posterior: FloatArray = weight / weight.sum()
        return posterior

    def _columns(self, name: str, column: npt.ArrayLike) -> FloatArray:
        try:
            array = np.asarray(column, np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"`{name}` must be numbers, one per client; {error}.") from error
        if array.shape not in ((), (len(self.clients),)):
            raise InputError(f"`{name}` must be one number per client; got shape {array.shape}.")
        if not np.isfinite(array).all():
            raise InputError(f"`{name}` must be finite numbers.")
        return np.broadcast_to(array, len(self.clients))


def _closeness(chosen: FloatArray, seen: float, error: float) -> FloatArray:
    """Return the log-likelihood of an observed level, given the levels that types would choose."""
    with np.errstate(divide="ignore", over="ignore"):
        off = (np.log(chosen) - np.log(seen)) / error
        log_likelihood: FloatArray = -0.5 * off**2
    return log_likelihood
