"""How a strategy prices the clients that are present: from their profiles to tariffs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from fedprice.bound import Bound
from fedprice.calibration import Calibration
from fedprice.clients import LARGEST_WEIGHT, Clients
from fedprice.errors import InputError
from fedprice.game import Game
from fedprice.market.money import (
    LEVEL_ONE,
    MICRO,
    level_units,
    micro_units,
    price_units,
    whole_payments,
)
from fedprice.market.tariffs import Tariff
from fedprice.market.terms import budgeted_tariffs, largest_weight, least_levels, one_round
from fedprice.pricing import Status, solve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.flower.wire import Profile
    from fedprice.market.periods import Period
    from fedprice.rounds import Aggregator, ServerStep

__all__ = ["FullInformation", "Impact", "PostedPrice", "Priced", "Pricing", "Turns"]


class Turns(NamedTuple):
    """Offers that are made one after another, each for the money that is left.

    Attributes
    ----------
    order
        The numbers of the clients, in the order in which they are asked.
    tariff
        Maps a position in that order, counted from 0, and what is left of the period's budget, in
        micro-units, to that client's offer: no level of it costs more than is left.
    """

    order: Sequence[int]
    tariff: Callable[[int, int], Tariff]


class Priced(NamedTuple):
    """What to offer the clients of a period.

    Attributes
    ----------
    tariffs, impacts, floors
        For each client: what each level is paid in the period, its impact, and the least level that
        it may commit to, in multiples of 2⁻³².
    max_weight
        The largest weight a/q of an update, which the floors ensure.
    turns
        How to make the offers one after another instead of all at once; None if all at once.
    """

    tariffs: list[Tariff]
    impacts: list[float]
    floors: list[int]
    max_weight: float
    turns: Turns | None = None


class Pricing(Protocol):
    """Maps profiles and a period to offers."""

    @property
    def budget(self) -> float:
        """The most to pay in the whole run, or what is expected to be paid."""

    @property
    def budget_is_expected(self) -> bool:
        """Whether the budget holds only on average, since clients choose from their tariffs.

        The treasury must then hold the largest payments that they can choose; what they do not
        choose comes back.
        """

    def __call__(self, profiles: Sequence[Profile], period: Period) -> Priced:
        """Return what to offer these clients in a period."""

    def warm_up(self, profiles: Sequence[Profile], period: Period, level: float) -> Priced:
        """Return what to offer for a flat level, before anything was measured."""

    @property
    def needs_norms(self) -> bool:
        """Whether clients that declare no norm have to be measured before they are priced."""

    def require_same(self, aggregator: Aggregator, server_step: ServerStep) -> None:
        """Refuse a run that combines updates in another way than the prices assume."""

    def unfit(self, profile: Profile) -> str:
        """Return why a client cannot be priced; empty if it can."""


@dataclass(frozen=True)
class Impact:
    """Where the impacts of clients come from: α, and the matching norms.

    Attributes
    ----------
    alpha
        The bound's α as measured; or
    calibration
        a calibration, or the file of one: α and the norms by client, of the kind it prices with.
    """

    alpha: float | None = None
    calibration: Calibration | str | Path | None = None

    def __post_init__(self) -> None:
        if (self.alpha is None) == (self.calibration is None):
            raise InputError(
                "give exactly one of `alpha` and `calibration` (a file by `fedprice calibrate`)."
            )
        if self.alpha is not None:
            Bound(alpha=self.alpha, rounds=1)

    @cached_property
    def _measured(self) -> Calibration | None:
        if self.calibration is None or isinstance(self.calibration, Calibration):
            return self.calibration
        return Calibration.read(self.calibration)

    def require_same(self, aggregator: Aggregator, server_step: ServerStep) -> None:
        """Refuse a calibration that was made with another aggregator or server step."""
        if self._measured is not None:
            self._measured.require_same(aggregator, server_step)

    def bound(self, rounds: int) -> Bound:
        """Return the bound of a run."""
        found = self._measured
        if found is not None:
            return Bound(alpha=found.alpha, rounds=rounds)
        return Bound(alpha=self.alpha, rounds=rounds)  # type: ignore[arg-type]

    def norms(self, profiles: Sequence[Profile], period: Period) -> list[float]:
        """Return the norm of each client, all of one kind.

        With a calibration: of the kind that it prices with; norms of updates that were measured in
        earlier periods replace the calibration's norms of updates. With α: if no client declares
        one, those of updates as measured; otherwise the declared ones, replaced by measured ones
        times the fleet's median of declared over measured: what a client declares does not raise
        its own price once it was measured. A client that was never measured counts like the median
        of the others, or as declared if that is less.
        """
        known = dict(period.norms)
        found = self._measured
        if found is not None:
            pilots = dict(zip(found.ids, found.fit.norm.tolist(), strict=True))
            known = pilots | known if found.norms == "updates" else pilots
        elif any(profile.grad_norm for profile in profiles):
            silent = [profile.client for profile in profiles if not profile.grad_norm]
            if silent:
                raise InputError(
                    f"client {silent[0]!r} declares no gradient norm, while others do, and α goes "
                    "with one kind of norm: let all of them declare one, or none."
                )
            declared = {p.client: float(p.grad_norm) for p in profiles}
            ratios = [declared[c] / norm for c, norm in known.items() if c in declared and norm]
            if not ratios:
                return list(declared.values())
            scale, usual = median(ratios), median(known.values())
            return [
                scale * known[c] if c in known else min(own, scale * usual)
                for c, own in declared.items()
            ]
        own = [known[p.client] for p in profiles if p.client in known]
        if not own:
            first = next(p.client for p in profiles if not p.grad_norm)
            raise InputError(
                f"client {first!r} declares no gradient norm, and none was measured: give the "
                "pricing a `calibration`, or the strategy a warm-up period "
                "(periods=Periods(warm_up=5))."
            )
        return [known.get(profile.client, median(own)) for profile in profiles]


@dataclass(frozen=True)
class FullInformation:
    """The paper's game: clients reveal cost and value, and a scheme computes the prices.

    Parameters
    ----------
    budget
        B for the whole run.
    alpha, calibration
        The bound's α as measured, or a calibration that has it, with the clients' norms.
    scheme, cost_exponent
        The scheme's name, and τ.
    max_weight
        The largest weight a/q of an update: levels have floors so that none exceeds it; infinity
        sets none.
    """

    budget: float
    alpha: float | None = None
    calibration: Calibration | str | Path | None = None
    scheme: str = "equilibrium"
    cost_exponent: float = 2.0
    max_weight: float = LARGEST_WEIGHT
    _impact: Impact = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_impact", Impact(self.alpha, self.calibration))

    def __call__(self, profiles: Sequence[Profile], period: Period) -> Priced:
        """Return the scheme's prices and levels for these clients."""
        clients = _clients(profiles, self._impact.norms(profiles, period), _costs(profiles))
        clients = clients.with_max_weight(self.max_weight)
        budget = period.budget(micro_units(self.budget))
        game = Game(
            clients,
            bound=self._impact.bound(period.run_rounds),
            # What is left, scaled to the whole run.
            budget=budget / 1e6 * period.run_rounds / period.rounds,
            cost_exponent=self.cost_exponent,
        )
        outcome = solve(game, self.scheme)
        if outcome.status is Status.INFEASIBLE:
            raise InputError(
                f"a budget of {game.budget:g} does not suffice for {self.scheme} with a largest "
                f"weight of {self.max_weight:g}; it needs {outcome.least_budget:.6g}."
            )
        tariffs = budgeted_tariffs(outcome, rounds=period.rounds, budget=budget)
        floors = least_levels(outcome)
        return Priced(tariffs, game.impact.tolist(), floors, largest_weight(outcome))

    @property
    def budget_is_expected(self) -> bool:
        """False: the server can predict what clients choose."""
        return False

    @property
    def needs_norms(self) -> bool:
        """Whether no calibration has the norms."""
        return self.calibration is None

    def require_same(self, aggregator: Aggregator, server_step: ServerStep) -> None:
        """Refuse a run that combines updates in another way than the calibration's pilots did."""
        self._impact.require_same(aggregator, server_step)

    def unfit(self, profile: Profile) -> str:
        """Return a reason if a client keeps its cost or value to itself."""
        return "" if profile.cost and profile.value else "it keeps its cost or value to itself"

    def warm_up(self, profiles: Sequence[Profile], period: Period, level: float) -> Priced:
        """Return offers that make a flat level each client's best answer, by its cost alone.

        The level is lowered where the period's share of the budget does not suffice, and raised
        where a client's weight would exceed the largest.
        """
        costs, tau = np.array(_costs(profiles)), self.cost_exponent
        budget, share = period.budget(micro_units(self.budget)), period.rounds / period.run_rounds
        # Lower levels than one round of the run are not offered.
        floors = np.maximum(_floors(profiles, self.max_weight), 1 / period.run_rounds)
        afford = budget / 1e6 / share if budget > 0 else 0.0
        least = float(tau * (costs * floors**tau).sum())
        if not afford > least:
            raise InputError(
                f"a budget of {self.budget:g} does not suffice for a warm-up period with a largest "
                f"weight of {self.max_weight:g}; raise it, or allow a larger weight."
            )
        flat = min(level, (afford / float(tau * costs.sum())) ** (1 / tau))
        levels = np.maximum(flat, floors)
        over = float(tau * (costs * levels**tau).sum())
        if over > afford:  # what the floors cost is not available above them
            part = (afford - least) / (over - least)
            levels = (floors**tau + part * (levels**tau - floors**tau)) ** (1 / tau)
        caps = [max(level_units(float(q)), one_round(period.run_rounds)) for q in levels]
        payments = tau * costs * levels**tau * share
        tariffs = [
            Tariff.flat(price_units(payment, cap), cap)
            for payment, cap in zip(whole_payments(payments.tolist(), budget), caps, strict=True)
        ]
        least = one_round(period.run_rounds)
        least_units = [max(level_units(float(q)), least) for q in floors]
        most = min(self.max_weight, float(LEVEL_ONE))  # no a / q can be larger
        return Priced(tariffs, [0.0] * len(profiles), least_units, most)


@dataclass(frozen=True)
class PostedPrice:
    """One price per sample, for clients that keep cost and value to themselves.

    The budget suffices if all take the highest level; clients that value the model join more. What
    a client is offered is in proportion to its samples, so that data under several names earn
    together what they earn under one.

    Parameters
    ----------
    budget
        The most to pay in the whole run.
    alpha, calibration
        As for `FullInformation`: with one of them, offers say what a level is worth to the model,
        and clients that value the model join more. Prices do not depend on it. Without either,
        nothing has to be measured, and clients decide by the money alone.
    level_cap
        The highest level that is paid for; for a client with a higher floor, that floor.
    max_weight
        The largest weight a/q of an update, as for `FullInformation`.
    """

    budget: float
    alpha: float | None = None
    calibration: Calibration | str | Path | None = None
    level_cap: float = 1.0
    max_weight: float = LARGEST_WEIGHT
    _impact: Impact | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        known = self.alpha is not None or self.calibration is not None
        impact = Impact(self.alpha, self.calibration) if known else None
        object.__setattr__(self, "_impact", impact)
        if not level_units(self.level_cap) or self.budget < 0:
            raise InputError("`level_cap` must be above 0, and `budget` at least 0.")
        if not self.max_weight > 0:
            raise InputError(f"`max_weight` must be above 0; got {self.max_weight}.")

    def __call__(self, profiles: Sequence[Profile], period: Period) -> Priced:
        """Return the same price per sample for each of these clients."""
        if self._impact is None:
            return self._posted(profiles, period, self.level_cap, [0.0] * len(profiles))
        norms = self._impact.norms(profiles, period)
        clients = _clients(profiles, norms, [1.0] * len(profiles))
        impacts = self._impact.bound(period.run_rounds).impact(clients)
        return self._posted(profiles, period, self.level_cap, impacts.tolist())

    @property
    def budget_is_expected(self) -> bool:
        """False: the budget suffices if all take the highest level."""
        return False

    @property
    def needs_norms(self) -> bool:
        """Whether there is an α, and no calibration that has the norms."""
        return self.alpha is not None

    def require_same(self, aggregator: Aggregator, server_step: ServerStep) -> None:
        """Refuse a run that combines updates in another way than the calibration's pilots did."""
        if self._impact is not None:
            self._impact.require_same(aggregator, server_step)

    def unfit(self, profile: Profile) -> str:
        """Return nothing: every client can be priced."""
        return ""

    def warm_up(self, profiles: Sequence[Profile], period: Period, level: float) -> Priced:
        """Return the same price per sample for all, up to a flat level."""
        cap = min(level, self.level_cap)
        return self._posted(profiles, period, cap, [0.0] * len(profiles))

    def _posted(
        self, profiles: Sequence[Profile], period: Period, level: float, impacts: list[float]
    ) -> Priced:
        budget, least = period.budget(micro_units(self.budget)), one_round(period.run_rounds)
        floors = [max(level_units(float(q)), least) for q in _floors(profiles, self.max_weight)]
        caps = [max(level_units(level), floor) for floor in floors]
        samples = np.array([p.samples for p in profiles], np.float64)
        payments = whole_payments((samples / samples.sum() * (budget / MICRO)).tolist(), budget)
        tariffs = [
            Tariff.flat(price_units(payment, cap), cap)
            for payment, cap in zip(payments, caps, strict=True)
        ]
        return Priced(tariffs, impacts, floors, min(self.max_weight, float(LEVEL_ONE)))


def _floors(profiles: Sequence[Profile], max_weight: float) -> FloatArray:
    """Return the least levels at which no weight a/q exceeds the largest, shape (num_clients,)."""
    samples = np.array([p.samples for p in profiles], np.float64)
    if not samples.sum():
        raise InputError("no client has samples, so there is nothing to pay for.")
    floors: FloatArray = np.minimum(samples / samples.sum() / max_weight, 1.0)
    return floors


def _costs(profiles: Sequence[Profile]) -> list[float]:
    """Return the costs and values that the clients reveal; refuse to guess missing ones."""
    private = [p.client for p in profiles if not (p.cost and p.value)]
    if private:
        raise InputError(
            f"client {private[0]!r} keeps its cost or value to itself; use PostedPrice, or ask it "
            "to reveal them."
        )
    return [float(p.cost) for p in profiles]


def _clients(profiles: Sequence[Profile], norms: list[float], costs: list[float]) -> Clients:
    return Clients(
        samples=[p.samples for p in profiles],
        grad_norm=norms,
        cost=costs,
        value=[float(p.value or 0) for p in profiles],
        ids=[p.client for p in profiles],
    )
