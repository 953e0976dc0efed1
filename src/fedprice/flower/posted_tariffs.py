"""`PostedTariffs`: tariffs, based on beliefs, for clients that keep cost and value private."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from fedprice.beliefs.evidence import Evidence
from fedprice.beliefs.posting import FORMS, post
from fedprice.clients import LARGEST_WEIGHT, Clients
from fedprice.errors import InputError, nearest
from fedprice.flower.pricing import Impact, PostedPrice, Priced, Turns
from fedprice.market.money import LEVEL_ONE, MICRO, level_units, micro_units, price_units
from fedprice.market.tariffs import Tariff, whole_tariffs
from fedprice.market.terms import one_round

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from fedprice.beliefs.beliefs import Beliefs
    from fedprice.beliefs.posted import Posted
    from fedprice.calibration import Calibration
    from fedprice.flower.wire import Profile
    from fedprice.market.periods import Period
    from fedprice.rounds import Aggregator, ServerStep

__all__ = ["PostedTariffs"]

ERROR = 0.05  # relative distance that a level may have from what a believed type would choose
FEW = 32  # up to this many clients, each is priced by its own problem: its share is large


@dataclass(frozen=True)
class PostedTariffs:
    """Tariffs based on what the server believes about costs and values (`fedprice.post`).

    Nothing that a client says changes its own tariff, apart from its samples and norm: its class,
    and for menus its value, are what the server knows about it, not what it declares. In each
    period, clients are expected to earn the period's share of the budget; the treasury must hold
    the most that they could choose, and gets back what they do not choose.

    Parameters
    ----------
    budget
        What is expected to be paid in the whole run; with `sequential`, the most to pay.
    beliefs
        Beliefs about costs and values, shared by all clients, by class or by client.
    alpha, calibration
        As for `FullInformation`.
    form, blocks
        "price", "blocks" (how many, 4 by default), "tariff" or "menu", as for `post`.
    risk
        For "price": the probability with which a period may cost more than its share of the budget.
    sequential
        For "price": make the offers one after another, the largest impact first, each for the money
        that the commitments so far leave. The budget is then never exceeded. A client that
        declines, or does not answer within its share of the time (half of `Limits.offer_lifetime`
        for all), costs nothing.
    learn
        Whose answers in earlier periods the server learns from. "others": those of all other
        clients with the same beliefs. Up to 32 clients, if offers are not made in turn, are priced
        by one problem each, so that a client's own answers do not affect its tariff at all;
        otherwise they affect it only through the shared budget. "own": the client's own answers,
        which learns fastest, and ratchets: a client that acts as if its cost were higher is
        believed, and paid more from the next period on, so this is for cooperative fleets. None
        learns nothing. All of this follows from the ledger, so that a run that is resumed makes the
        same offers.
    classes
        For beliefs by class: the class of each client, by its name. Others get no offer.
    values
        For "menu": the value of each client, by its name. Others get no offer.
    cost_exponent
        τ.
    max_weight
        The largest weight a/q of an update, as for `FullInformation`. A client that would
        choose less than the resulting floor takes the floor, or declines; the expected payments do
        not include this.

    Examples
    --------
    >>> import fedprice as fp
    >>> beliefs = fp.Beliefs.exponential(cost=50, value=20)
    >>> pricing = PostedTariffs(budget=20.0, beliefs=beliefs, alpha=3.3, form="blocks", blocks=2)
    >>> pricing.budget_is_expected, pricing.needs_norms
    (True, True)
    >>> PostedTariffs(budget=20.0, beliefs=beliefs, alpha=3.3, sequential=True).budget_is_expected
    False
    """

    budget: float
    beliefs: Beliefs
    alpha: float | None = None
    calibration: Calibration | str | Path | None = None
    form: str = "price"
    blocks: int | None = None
    risk: float | None = None
    sequential: bool = False
    learn: Literal["others", "own"] | None = "others"
    classes: Mapping[str, str] | None = None
    values: Mapping[str, float] | None = None
    cost_exponent: float = 2.0
    max_weight: float = LARGEST_WEIGHT
    _impact: Impact = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_impact", Impact(self.alpha, self.calibration))
        if self.form not in FORMS:
            raise InputError(f"`form` cannot be {self.form!r}. {nearest(self.form, FORMS)}")
        if self.blocks is not None and self.form != "blocks":
            raise InputError(f"`blocks` requires form 'blocks'; got form {self.form!r}.")
        if self.learn not in ("others", "own", None):
            raise InputError(f"`learn` must be 'others', 'own' or None; got {self.learn!r}.")
        if (self.sequential or self.risk is not None) and self.form != "price":
            raise InputError(
                f"`sequential` and `risk` require form 'price'; got form {self.form!r}."
            )
        if self.sequential and self.risk is not None:
            raise InputError(
                "`sequential` cannot be combined with `risk`: it never exceeds the budget."
            )
        self._check_known()

    def _check_known(self) -> None:
        """Refuse classes and values that are missing, not needed, or invalid."""
        by_class, menu = self.beliefs.kind == "class", self.form == "menu"
        if menu and not self.values:
            raise InputError(
                "form 'menu' needs `values`, the clients' values by their names: a client that "
                "declared its own would gain by a lie. Or use form 'blocks' or 'tariff'."
            )
        if self.values is not None and not menu:
            raise InputError(f"`values` requires form 'menu'; got form {self.form!r}.")
        if by_class and not self.classes:
            raise InputError(
                "these beliefs need `classes`, the clients' classes by their names: a client that "
                "declared its own would choose the one that pays best."
            )
        if self.classes is not None and not by_class:
            raise InputError("`classes` requires beliefs by class; leave it out.")
        for known, column in ((self.values, "value"), (self.classes, "classes")):
            if known is not None:
                given: dict[str, Any] = {column: list(known.values())}
                all_ = Clients(samples=[1] * len(known), grad_norm=1.0, ids=list(known), **given)
                if by_class and column == "classes":
                    self.beliefs.groups(all_)

    def __call__(self, profiles: Sequence[Profile], period: Period) -> Priced:
        """Return tariffs for these clients, based on the beliefs of this period."""
        names, classes, values = [p.client for p in profiles], self.classes, self.values
        clients = Clients(
            samples=[p.samples for p in profiles],
            grad_norm=self._impact.norms(profiles, period),
            ids=names,
            classes=None if classes is None else [classes[name] for name in names],
            value=None if values is None else [values[name] for name in names],
        ).with_max_weight(self.max_weight)
        share = Fraction(period.rounds, period.run_rounds)
        # Where the budget holds only on average, a period's luck does not change the next one's
        # budget.
        budget = (
            period.budget(micro_units(self.budget)) / MICRO / float(share)
            if self.sequential
            else self.budget
        )
        how: dict[str, Any] = {
            "bound": self._impact.bound(period.run_rounds), "budget": budget, "form": self.form,
            "cost_exponent": self.cost_exponent, "blocks": self.blocks, "risk": self.risk,
        }  # fmt: skip
        seen = self._seen(clients, period)
        if seen is not None and self.learn == "others" and self._separately(len(clients)):
            posted = seen.post(**how)
        else:
            beliefs = self.beliefs if seen is None else seen.beliefs(own=self.learn == "own")
            posted = post(clients, beliefs, **how)
        least = one_round(period.run_rounds)
        floors = [max(level_units(float(q)), least) for q in clients.level_min]
        tariffs = whole_tariffs(posted.tariffs, share)
        for name, own, floor in zip(names, tariffs, floors, strict=True):
            if floor > own.cap:  # a menu ends at the level of its cheapest type
                raise InputError(
                    f"the menu of client {name!r} ends at level {own.cap / LEVEL_ONE:.6g}, below "
                    f"its least level of {floor / LEVEL_ONE:.6g}. Raise the budget or `max_weight`."
                )
        priced = Priced(
            tariffs,
            posted.impact.tolist(),
            floors,
            min(self.max_weight, float(LEVEL_ONE)),
        )
        return priced._replace(turns=_turns(posted, share)) if self.sequential else priced

    def _separately(self, count: int) -> bool:
        """Return whether each client is priced by its own problem."""
        return count <= FEW and not self.sequential

    def _seen(self, clients: Clients, period: Period) -> Evidence | None:
        """Return what these clients answered in the previous periods, if that is learnt from."""
        answers = period.answers() if self.learn is not None and period.number > 1 else {}
        evidence = Evidence.none(clients, self.beliefs)
        for n, name in enumerate(clients.ids.tolist()):
            for own in answers.get(name, ()):
                evidence = evidence.answer(
                    n,
                    own.tariff,
                    impact=own.impact,
                    level=own.level,
                    error=ERROR,
                    cost_exponent=self.cost_exponent,
                    level_min=own.floor,
                    value=None if self.values is None else self.values[name],
                )
        return evidence if answers else None

    @property
    def budget_is_expected(self) -> bool:
        """Whether offers are made all at once."""
        return not self.sequential

    @property
    def needs_norms(self) -> bool:
        """Whether no calibration has the norms."""
        return self.calibration is None

    def require_same(self, aggregator: Aggregator, server_step: ServerStep) -> None:
        """Refuse a run that combines updates in another way than the calibration's pilots did."""
        self._impact.require_same(aggregator, server_step)

    def unfit(self, profile: Profile) -> str:
        """Return what should be known about a client but is not; empty if nothing is missing."""
        name = profile.client
        if self.values is not None and name not in self.values:
            return "its value is not known"
        if self.classes is not None and name not in self.classes:
            return "its class is not known"
        uncovered = self.beliefs.kind == "client" and name not in self.beliefs.types
        return "the beliefs do not cover it" if uncovered else ""

    def warm_up(self, profiles: Sequence[Profile], period: Period, level: float) -> Priced:
        """Return one price per sample for all, up to a flat level, within the period's budget."""
        flat = PostedPrice(self.budget, max_weight=self.max_weight)
        return flat.warm_up(profiles, period, level)


def _turns(posted: Posted, share: Fraction) -> Turns:
    """Return how to post prices in turn, for a share of a run's rounds."""
    turns = posted.sequential()
    paid = turns.order.tolist()
    # Clients without impact are asked last, at a price of 0.
    order = [*paid, *sorted(set(range(len(posted.clients))) - set(paid))]

    def tariff(turn: int, left: int) -> Tariff:
        cap = level_units(float(posted.clients.level_max[order[turn]]))
        if turn >= len(paid):
            return Tariff.flat(0, cap)
        price = turns.price(turn, left / MICRO / float(share)) * float(share)
        payment = min(micro_units(price * (cap / LEVEL_ONE)), max(left, 0))
        return Tariff.flat(price_units(payment, cap), cap)

    return Turns(order, tariff)
