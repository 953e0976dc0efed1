"""`Agreements`: the conditions under which a run's periods are offered, and what was agreed on.

A period that is in the ledger is resumed as agreed, if it was for the same training. For a new one,
the clients that are present are priced, receive offers, and agree.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from fedprice.errors import InputError
from fedprice.flower.deals import Deals, proposals_of
from fedprice.flower.suitable import is_bytes
from fedprice.market.agreement import Agreement
from fedprice.market.bargain import Bargain
from fedprice.market.messages import ANY, ModelSchema
from fedprice.market.money import micro_units
from fedprice.market.offers import FOREVER, Conditions, coins_for, fresh_nonce
from fedprice.market.periods import Period
from fedprice.market.simulation import simulation_nonce
from fedprice.market.terms import one_more
from fedprice.market.updates import arrays_hash
from fedprice.verify import LONGEST_GAP, period_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from flwr.serverapp import Grid

    from fedprice._plumbing.arrays import Arrays
    from fedprice.flower.deals import Offered
    from fedprice.flower.exchange import Exchange, Limits
    from fedprice.flower.presence import Presence
    from fedprice.flower.pricing import Pricing, Turns
    from fedprice.flower.wire import Profile
    from fedprice.learning.layout import Layout
    from fedprice.market.ledger import Ledger
    from fedprice.market.messages import SigningKey
    from fedprice.market.offers import Proposal
    from fedprice.market.periods import Periods

__all__ = ["Agreements"]

_log = logging.getLogger("flwr")  # the log of a Flower app


@dataclass(frozen=True)
class Agreements:
    """The agreements of a run, one per period.

    Parameters
    ----------
    ledger, run, key, pricing, periods, limits, clients, quorum, fund, task, seed, beacon
        As for `PricedParticipation`.
    plan
        How many rounds each period has.
    names, initial, layout
        The model that the run starts with.
    reach
        Maps a round, counted from 0, to its η E, where that is known.
    """

    ledger: Ledger
    run: str
    key: SigningKey
    pricing: Pricing
    periods: Periods
    limits: Limits
    clients: int | None
    quorum: int
    fund: bool
    task: str
    seed: int | None
    beacon: tuple[str, Callable[[], str]] | None
    plan: list[int]
    names: list[str]
    initial: Arrays
    layout: Layout
    reach: Callable[[int], float | None]

    def taken_up(self, number: int) -> Agreement | None:
        """Return the agreement of a period in the ledger; None if there is none yet.

        An agreement on another training is refused.

        Parameters
        ----------
        number
            Which period, counted from 1.
        """
        name = period_of(self.run, number)
        if self.ledger.opening(name) is None:
            return None
        period, agreement = self._period(number), Agreement.load(self.ledger, name)
        self._require_same(agreement.conditions, period)
        deals = agreement.deals.values()
        offers = [(own.offered.pays, own.offered.level_floor) for own in deals]
        if agreement.budget != self._held(period, offers) + one_more(offers, period.rounds):
            raise self._begun_otherwise(name)
        return agreement

    def reached(self, number: int, grid: Grid, exchange: Exchange, presence: Presence) -> Agreement:
        """Price the clients that are present for a new period, and return what they agreed to.

        Parameters
        ----------
        number
            Which period, counted from 1.
        grid, exchange, presence
            How to reach clients, and which ones are present.
        """
        period, name = self._period(number), period_of(self.run, number)
        bargain = Bargain(self.ledger, self.key, name)
        if bargain.conditions is not None:
            self._require_same(bargain.conditions, period)
        if not presence.nodes:  # at the start, or after a restart between two periods
            # A bargain that was started continues with the clients that are present.
            wanted = self.clients or presence.steady_count(grid)
            enough = self.quorum if number == 1 and not bargain.attempt else 1
            presence.gather(grid, wanted, enough=enough)
        deals = Deals(
            grid,
            exchange,
            presence,
            bargain,
            propose=lambda names: self._proposed([presence.profiles[n] for n in names], period),
            held=lambda offered: self._held(period, offered),
            rounds=period.rounds,
            lifetime=self.limits.offer_lifetime,
            fund=self.fund,
            sequential=getattr(self.pricing, "sequential", False),
        )
        return deals.agree(name, self.beacon[1] if self.beacon else None)

    def _held(self, period: Period, offered: Offered) -> int:
        """Return what a period may cost with these tariffs and least levels, in micro-units."""
        budget = period.budget(micro_units(self.pricing.budget))
        if not self.pricing.budget_is_expected:
            return budget
        return max(budget, sum(tariff.most(floor) for tariff, floor in offered))

    def _period(self, number: int) -> Period:
        before = [period_of(self.run, n) for n in range(1, number)]
        return Period.after(self.ledger, before, self.plan)

    def _proposed(
        self, profiles: list[Profile], period: Period
    ) -> tuple[Conditions, dict[str, Proposal], Turns | None]:
        """Return the conditions of a period, what to offer these clients, and in which way."""
        name = period_of(self.run, period.number)
        follows = period_of(self.run, period.number - 1) if period.number > 1 else ""
        reaches = [self.reach(r) for r in range(period.done, period.done + period.rounds)]
        reach = max((r for r in reaches if r is not None), default=None)
        fit = self._fit(profiles, reach)
        if not fit:
            raise InputError(f"run {name!r}: no client is left to make an offer to.")
        unmeasured = not period.norms and getattr(self.pricing, "calibration", None) is None
        if self.periods.warm_up and (period.number == 1 or unmeasured):
            priced = self.pricing.warm_up(fit, period, self.periods.level)
        else:
            priced = self.pricing(fit, period)
        seed = self.seed
        proposals = proposals_of(fit, priced, period, reach, self.limits.norm_cap)
        conditions = Conditions(
            ledger=self.ledger.identity,
            server=self.key.public.hex(),
            run=name,
            follows=follows,
            rounds=period.rounds,
            run_rounds=period.run_rounds,
            unit=self.ledger.unit,
            schema=self._schema().content(),
            task=self.task,
            model=self.ledger.run(follows).model if follows else arrays_hash(self._model()),
            max_weight=f"{priced.max_weight:.6g}",
            longest_gap=LONGEST_GAP,
            nonce=fresh_nonce() if seed is None else simulation_nonce(seed, name),
            expires=int(time.time() + self.limits.offer_lifetime) if seed is None else FOREVER,
            coins=coins_for(proposals.values()),
            beacon=self.beacon[0] if self.beacon else "",
        )
        if priced.turns is not None:
            names = [fit[n].client for n in priced.turns.order]
            proposals = {client: proposals[client] for client in names}
        return conditions, proposals, priced.turns

    def _fit(self, profiles: list[Profile], reach: float | None) -> list[Profile]:
        """Return the clients that can be priced, so that no client can stop the others."""
        most, fit = self.limits.norm_cap, []
        for profile in profiles:
            why = self.pricing.unfit(profile)
            if profile.grad_norm and reach is not None and float(profile.grad_norm) * reach > most:
                why = f"its gradient norm of {profile.grad_norm} allows updates above {most:g}"
            if why:
                _log.warning("%s gets no offer: %s", profile.client, why)
            else:
                fit.append(profile)
        return fit or profiles  # the pricing reports what is wrong with all of them

    def _require_same(self, conditions: Conditions, period: Period) -> None:
        """Refuse to continue with offers for another training."""
        here = Conditions(
            **asdict(conditions)
            | {
                "server": self.key.public.hex(),
                "rounds": period.rounds,
                "run_rounds": period.run_rounds,
                "schema": self._schema().content(),
                "task": self.task,
                "beacon": self.beacon[0] if self.beacon else "",
            }
        )
        runs = self.ledger.books.runs
        new = conditions.run not in runs or not runs[conditions.run].done
        if new and not conditions.follows:  # later periods are checked by the ledger
            here = replace(here, model=arrays_hash(self._model()))
        if here != conditions:
            raise self._begun_otherwise(conditions.run)

    def _begun_otherwise(self, name: str) -> InputError:
        return InputError(
            f"run {name!r} in {self.ledger.name} was started with other rounds, or another budget, "
            "model, key, beacon or task; choose another name for the run."
        )

    def _model(self) -> Arrays:
        return self.layout.own(self.initial)

    def _schema(self) -> ModelSchema:
        layout = self.layout
        shapes = [ANY] if is_bytes(self.initial) else [list(shape) for shape in layout.shapes]
        kinds = [kind.str for kind in layout.dtypes]
        return ModelSchema(list(self.names), shapes, kinds, list(layout.buffers))
