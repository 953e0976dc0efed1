"""`Posted`: tariffs for clients whose types are unknown, and what to expect of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedprice._plumbing.arrays import NORMAL_95
from fedprice._plumbing.tables import as_pandas
from fedprice.beliefs.spending import spending
from fedprice.errors import InputError
from fedprice.game import Game, price_at
from fedprice.pricing.outcome import Certificate, Outcome, Status
from fedprice.pricing.schemes import Scheme, solve

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure
    from rich.console import RenderableType

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.curves import Moments
    from fedprice.beliefs.sequential import Sequential
    from fedprice.bound import Bound
    from fedprice.clients import Clients
    from fedprice.tariff import Tariffs

__all__ = ["Information", "Posted"]


class Information(NamedTuple):
    """What knowing all types would be worth.

    Attributes
    ----------
    ratio, low, high
        Expected loss over that of the equilibrium with full information, with an interval of 95 %.
    loss, informed
        The two mean losses over the same draws.
    spend, spend_std, over
        Mean and standard deviation of the spend over the draws, and the share of draws in which it
        exceeded the budget.
    draws
        The number of draws.
    """

    ratio: float
    low: float
    high: float
    loss: float
    informed: float
    spend: float
    spend_std: float
    over: float
    draws: int


@dataclass(frozen=True, eq=False, repr=False)
class Posted:
    """Tariffs posted to clients, and what they yield in expectation over the beliefs.

    Attributes
    ----------
    clients, beliefs, bound, budget, cost_exponent
        What was priced, as for `post`.
    form
        "price", "blocks", "tariff" or "menu".
    tariffs
        What each level is paid, one row per client.
    moments
        E[k/q], the expected payment, its variance and E[q] of each client, shape (N,) each.
    missed
        The probability that a client answers below its `level_min`, shape (N,): a posted tariff
        cannot promise a floor (see `floor_remedies`).
    multiplier
        μ, how much expected loss one more unit of budget saves; 0 if it saves none.
    certificate
        `dual` is a lower bound of Σ E[k/q] for every lottery over prices with the same expected
        spend, where there are classes for every lottery over their prices; −inf where nothing is
        proven.
    planned
        The expected spend that was aimed at: the budget, or less where a risk was given.
    classes
        The price class of each client, from 0, shape (N,), if there are price classes.
    worst
        Expected loss and spend, the largest over the interval of α that was given.
    separate
        Whether each client was priced by its own problem (`post_from_others`).
    """

    clients: Clients
    beliefs: Beliefs
    bound: Bound
    budget: float
    cost_exponent: float
    form: str
    tariffs: Tariffs
    moments: Moments
    missed: FloatArray
    multiplier: float
    certificate: Certificate
    planned: float
    classes: IntArray | None = None
    worst: tuple[float, float] | None = None
    separate: bool = False

    def __repr__(self) -> str:
        return (
            f"Posted(form={self.form!r}, num_clients={len(self.clients)}, "
            f"expected_loss={self.expected_loss:.6g}, expected_spend={self.expected_spend:.6g}, "
            f"spend_std={self.spend_std:.6g})"
        )

    @cached_property
    def impact(self) -> FloatArray:
        """The clients' impacts k, shape (N,)."""
        return self.bound.impact(self.clients)

    @property
    def expected_loss(self) -> float:
        """E[Σ k (1 − q) / q], the bound's expected loss above F* + β/R."""
        return float(self.moments.loss.sum() - self.impact.sum())

    @property
    def expected_spend(self) -> float:
        """What the server will pay in total, in expectation."""
        return float(self.moments.spend.sum())

    @property
    def spend_std(self) -> float:
        """The standard deviation of the spend, where clients' types are independent."""
        return float(np.sqrt(self.moments.variance.sum()))

    @cached_property
    def over_budget(self) -> float:
        """The probability that the spend exceeds the budget, where types are independent.

        For more than 1,024 clients the spend counts as normally distributed.
        """
        types, group = self.beliefs.groups(self.clients)
        spend = spending(
            self.tariffs, self.impact, types, group, self.cost_exponent, moments=self.moments,
            value=self.clients.value if self.form == "menu" else None,
        )  # fmt: skip
        return spend.above(self.budget)

    @property
    def prices(self) -> FloatArray:
        """The posted prices, shape (N,), where each tariff is one price."""
        if self.form != "price":
            raise InputError(
                f"there is no single price per client with form {self.form!r}; use `tariffs`."
            )
        return self.tariffs.prices[:, 0]

    def answer(self, *, cost: npt.ArrayLike, value: npt.ArrayLike) -> Outcome:
        """Return the outcome when the clients have these types.

        Each chooses its best level on its tariff. The outcome's prices are payment per level; under
        tariffs that are not one price they are averages.

        Parameters
        ----------
        cost, value
            c and v, shape (N,) or scalars.

        Examples
        --------
        >>> import fedprice as fp
        >>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0])
        >>> beliefs = fp.Beliefs.exponential(cost=40, value=4000)
        >>> posted = fp.post(clients, beliefs, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
        >>> posted.answer(cost=[40, 55, 20], value=[0, 4000, 9000]).levels.round(3)
        array([0.076, 0.468, 0.263])
        """
        return self.answers(self.game(cost, value), self.tariffs)

    def game(self, cost: npt.ArrayLike, value: npt.ArrayLike) -> Game:
        """Return the game of clients with these types, shape (N,) or scalars."""
        try:
            c, v = (np.asarray(x, np.float64) for x in (cost, value))
        except (TypeError, ValueError) as error:
            raise InputError(f"`cost` and `value` must be numbers; {error}.") from error
        types = replace(self.clients, cost=c, value=v)
        return Game(types, bound=self.bound, budget=self.budget, cost_exponent=self.cost_exponent)

    def answers(self, game: Game, tariffs: Tariffs) -> Outcome:
        """Return the outcome when the clients of a game answer tariffs of this form."""
        clients = game.clients
        levels = tariffs.best_levels(clients.cost, clients.value * game.impact, self.cost_exponent)
        with np.errstate(divide="ignore", invalid="ignore"):
            prices = np.where(levels > 0, tariffs.payments(levels) / levels, 0.0)
        if self.form == "price":
            prices = tariffs.prices[:, 0]
        outcome = Outcome.from_prices(game, prices, scheme=f"posted {self.form}", levels=levels)
        return replace(outcome, posts_prices=self.form == "price")

    def as_scheme(self, name: str | None = None) -> Scheme:
        """Return a scheme that offers these tariffs to any game with the same number of clients.

        Nothing in the game changes them, so that no report gains anything.

        Parameters
        ----------
        name
            The name of the scheme; "posted FORM" by default.

        Examples
        --------
        >>> import fedprice as fp
        >>> clients = fp.Clients(samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0])
        >>> beliefs = fp.Beliefs.exponential(cost=40, value=4000)
        >>> posted = fp.post(clients, beliefs, bound=fp.Bound(alpha=3.3, rounds=1000), budget=20)
        >>> game = posted.game(cost=[40, 55, 20], value=[0, 4000, 9000])
        >>> fp.manipulability(game, scheme=posted.as_scheme()).gain.max()
        np.float64(0.0)
        """

        def offered(game: Game) -> Outcome:
            # The budget holds in expectation only, and floors cannot be promised.
            return replace(self.answers(game, self.tariffs), status=Status.FEASIBLE)

        return Scheme(name or f"posted {self.form}", offered, posts_prices=self.form == "price")

    def floor_remedies(self, client: int) -> tuple[float, float, float]:
        """Return what would make every type in the beliefs meet a client's floor.

        Parameters
        ----------
        client
            Its number, from 0.

        Returns
        -------
        floor
            Its `level_min`.
        lowest
            The lowest level that a type in the beliefs answers, to which the floor could be lowered
            (rounded down to three digits).
        price
            The price at which the most expensive type answers with the floor.
        """
        types, group = self.beliefs.groups(self.clients)
        cost, value, _ = types[group[client]]
        if self.form == "menu":
            value = np.full_like(cost, self.clients.value[client])
        wants, floor = value * self.impact[client], self.clients.level_min[client]
        answers = self.tariffs.of([client]).best_levels(cost[None], wants[None], self.cost_exponent)
        price = price_at(floor, cost, wants, self.cost_exponent).max()
        lowest = Context(prec=3, rounding=ROUND_FLOOR).create_decimal_from_float(answers.min())
        return float(floor), float(lowest), float(price)

    def value_of_information(self, draws: int = 200, seed: int = 0) -> Information:
        """Return how the loss compares with that of the equilibrium that knows all types.

        Parameters
        ----------
        draws
            How many populations are drawn from the beliefs.
        seed
            The seed of the draws.
        """
        return self.compared(lambda _: self.tariffs, draws, seed)

    def compared(self, tariffs: Callable[[Game], Tariffs], draws: int, seed: int) -> Information:
        """Return how tariffs compare with full information over populations that are drawn."""
        if not isinstance(draws, int) or draws < 2:
            raise InputError(f"`draws` must be a whole number, at least 2; got {draws!r}.")
        (rng,) = np.random.default_rng(seed).spawn(1)
        losses, spends = np.empty((draws, 2)), np.empty(draws)
        no_floor = np.zeros(())  # posted tariffs promise none
        for n in range(draws):
            cost, value = self.beliefs.draw(self.clients, rng)
            # A menu is made for values that are known.
            game = self.game(cost, self.clients.value if self.form == "menu" else value)
            outcome = self.answers(game, tariffs(game))
            free = replace(game, clients=replace(game.clients, level_min=no_floor))
            losses[n] = outcome.expected_loss, solve(free).expected_loss
            spends[n] = outcome.spend
        loss, informed = losses.mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):  # where even the informed loss is 0
            ratio = loss / informed
            # The delta method for a ratio of paired means.
            std = (losses[:, 0] - ratio * losses[:, 1]).std(ddof=1) / informed / np.sqrt(draws)
        return Information(
            ratio=float(ratio),
            low=float(ratio - NORMAL_95 * std),
            high=float(ratio + NORMAL_95 * std),
            loss=float(loss),
            informed=float(informed),
            spend=float(spends.mean()),
            spend_std=float(spends.std(ddof=1)),
            over=float(np.mean(spends > self.budget + 1e-9 * abs(self.budget))),
            draws=draws,
        )

    def sequential(self) -> Sequential:
        """Return these prices posted to one client after another, never exceeding the budget."""
        from fedprice.beliefs.sequential import Sequential

        return Sequential(self)

    def summary(self) -> dict[str, Any]:
        """Return the key numbers of the offers, by name."""
        return {
            "form": self.form,
            "num_clients": len(self.clients),
            "budget": float(self.budget),
            "planned": self.planned,
            "expected_loss": self.expected_loss,
            "expected_spend": self.expected_spend,
            "spend_std": self.spend_std,
            "over_budget": self.over_budget,
            "most_floors_missed": float(self.missed.max(initial=0.0)),
            "mean_level": float(self.moments.level.mean()),
            "multiplier": self.multiplier,
            "primal": self.certificate.primal,
            "dual": self.certificate.dual,
            "gap": self.certificate.gap,
        }

    def to_frame(self) -> pl.DataFrame:
        """Return a polars table with one row per client.

        After the clients' columns come `price` (or `level_1`, `price_1`, … for the blocks of a
        tariff), `price_class` if there are classes, the expected level and payment with its
        standard deviation, and the probability of missing the floor.
        """
        import polars as pl

        columns = []
        if self.form == "price":
            columns.append(pl.Series("price", self.prices))
        else:
            ends, prices = self.tariffs.ends, self.tariffs.prices
            for block in range(ends.shape[1]):
                columns.append(pl.Series(f"level_{block + 1}", ends[:, block]))
                columns.append(pl.Series(f"price_{block + 1}", prices[:, block]))
        if self.classes is not None:
            columns.append(pl.Series("price_class", self.classes + 1))
        return self.clients.to_frame().with_columns(
            *columns,
            pl.Series("expected_level", self.moments.level),
            pl.Series("expected_payment", self.moments.spend),
            pl.Series("payment_std", np.sqrt(self.moments.variance)),
            pl.Series("floor_missed", self.missed),
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())

    def plot(self) -> Figure:
        """Draw the tariffs and the expected levels (extra `plot`)."""
        from fedprice.beliefs.figures import draw_posted

        return draw_posted(self)

    def __rich__(self) -> RenderableType:
        from fedprice.beliefs.display import rich_summary

        return rich_summary(self)

    def _repr_html_(self) -> str:
        from fedprice.beliefs.display import html_summary

        return html_summary(self)
