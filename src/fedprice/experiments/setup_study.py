"""`SetupStudy`: a setup of the paper, with everything that its section VI runs."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice.errors import InputError
from fedprice.experiments import paper_numbers as paper
from fedprice.experiments.cells import SetupSource, federation_of
from fedprice.experiments.code_version import code_version
from fedprice.experiments.measures import POINTS, WINDOW, Estimate, rounds_that_last
from fedprice.experiments.settings import PAPER_SCHEMES, PUBLISHED_SCHEMES
from fedprice.experiments.setups import setup_of
from fedprice.experiments.study import Plan, Study, calibrated
from fedprice.learning import Training
from fedprice.learning.optimum import best_loss, own_optimum_losses
from fedprice.pricing import solve
from fedprice.rounds import HorvitzThompson

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice._plumbing.arrays import FloatArray, IntArray
    from fedprice.data import Federation
    from fedprice.experiments.cells import Store
    from fedprice.experiments.settings import Settings
    from fedprice.experiments.setups import Setup
    from fedprice.game import Game
    from fedprice.pricing import Outcome


__all__ = ["MEMORY_RUNS", "SWEEPS", "SWEEP_TIME", "SetupStudy", "begin"]

# Figures 5 to 7: which mean of Table I each setup varies. The paper prints the values of v̄ only.
SWEEPS: dict[str, tuple[str, tuple[float, ...]]] = {
    "setup1": ("mean_value", (0, 4_000, 80_000)),
    "setup2": ("mean_cost", (10, 20, 40)),
    "setup3": ("budget", (250, 500, 1_000)),
}
MEMORY_RUNS = {"equilibrium": "memory", "uniform": "memory-uniform"}  # of schemes' prices
OTHER_RUNS = (*MEMORY_RUNS.values(), "fedavg", "subset", "full")  # not of a scheme alone
RIDGE = 1e-6  # added to the loss to find its minimum; the loss there is stated without it
SWEEP_TIME = 600.0  # simulated seconds that Figures 5 to 7 show
MEAN_LEVEL = 0.25  # of the random levels
SPARE = 1.4  # factor on the mean number of rounds, so that every run gets there


@dataclass(frozen=True, eq=False)
class SetupStudy(Study):
    """One setup of the paper, calibrated and priced.

    Attributes
    ----------
    settings, setup, federation
        What to run on what.
    least
        F*, the least loss, found with a ridge of 1e-6; NaN where nothing needs it.
    """

    settings: Settings
    source: SetupSource
    setup: Setup
    federation: Federation
    least: float

    taken = OTHER_RUNS
    aggregator = "horvitz-thompson"

    @property
    def timed_schemes(self) -> tuple[str, ...]:
        """The schemes whose runs all cover the evaluation time: the paper's."""
        return PAPER_SCHEMES

    @property
    def title(self) -> str:
        """The setup's name as the paper writes it."""
        return self.name.replace("setup", "Setup ")

    @property
    def data_name(self) -> str:
        """What the data are."""
        return self.federation.name

    @property
    def scheme_names(self) -> tuple[str, ...]:
        """The paper's schemes, its baselines as published, and those that were requested."""
        published = () if self.only_times else PUBLISHED_SCHEMES
        return (*PAPER_SCHEMES, *published, *self.settings.schemes)

    @property
    def only_times(self) -> bool:
        """Whether only Tables II and III are reproduced."""
        return self.settings.scope == "times"

    def printed(self, what: str) -> dict[str, int]:
        """Return the paper's times to its target loss or accuracy, by scheme."""
        return (paper.TIME_TO_LOSS if what == "loss" else paper.TIME_TO_ACCURACY)[self.name]

    def fraction(self, what: str) -> float:
        """Return the share of the time at which the paper's uniform pricing got to its target."""
        return self.printed(what)["uniform"] / self.setup.time

    def game(self, **changes: Any) -> Game:
        """Return the setup's game, with some of Table I changed."""
        setup = replace(self.setup, **changes)
        return setup.game(self.federation, self.calibration, rounds=self.settings.rounds)

    @cached_property
    def sweep(self) -> dict[float, Outcome]:
        """The equilibria of Figure 5, 6 or 7, by the mean or budget that varies."""
        what, values = SWEEPS[self.name]
        return {value: solve(self.game(**{what: value})) for value in values}

    def payer_counts(self, mean_value: float, alpha: float, draws: int) -> IntArray:
        """Return how many clients pay at the equilibrium, over draws of costs and values."""
        setup = replace(self.setup, mean_value=mean_value)
        calibration, rounds = self.calibration.with_alpha(alpha), self.settings.rounds
        games = (
            setup.game(self.federation, calibration, rounds=rounds, seed=seed)
            for seed in range(draws)
        )
        return np.array([solve(game).payers for game in games])

    @cached_property
    def payers(self) -> dict[int, Estimate]:
        """Table V: the median number of payers by mean value, with the range of 90 % of draws."""
        alpha, draws = self.calibration.alpha, self.settings.population_draws
        found = {}
        for mean_value in paper.PAYERS:
            counts = self.payer_counts(mean_value, alpha, draws)
            middle, low, high = np.quantile(counts, [0.5, 0.05, 0.95], method="nearest")
            found[mean_value] = Estimate(float(middle), float(low), float(high))
        return found

    @cached_property
    def level_vectors(self) -> FloatArray:
        """Random levels, shape (vectors, num_clients), all with the same mean.

        With different means, any rule that prefers more joiners would order them well.
        """
        rng = np.random.default_rng(0)
        shape = (self.settings.level_vectors, self.federation.num_clients)
        levels = np.exp(rng.normal(0, 1, shape))
        for _ in range(50):  # scale and clip until both the mean and the limits hold
            levels = np.clip(levels * MEAN_LEVEL / levels.mean(axis=1, keepdims=True), 0.02, 1.0)
        return levels

    @property
    def compares_bound(self) -> bool:
        """Whether this is the setup on which the bound is compared with what is measured."""
        return self.name == self.settings.setups[0]

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """What the setup trains, by name."""
        settings, scheme_plans = self.settings, self.scheme_plans()
        if self.only_times:
            return {
                n: p._replace(rounds=self._rounds_needed(n, p)) for n, p in scheme_plans.items()
            }
        short = min(settings.rounds, round(settings.rounds * SPARE * SWEEP_TIME / self.setup.time))
        usual = scheme_plans["equilibrium"]
        few = usual._replace(seeds=settings.bias_seeds)
        best = self.outcomes["equilibrium"].levels
        for scheme, name in MEMORY_RUNS.items():
            levels = self.outcomes[scheme].levels
            scheme_plans[name] = few._replace(levels=levels, aggregator="memory")
        scheme_plans["fedavg"] = few._replace(levels=best, aggregator="fedavg")
        fixed = solve(self.game(), "subset")
        aggregator = fixed.aggregator or usual.aggregator
        scheme_plans[fixed.scheme] = few._replace(levels=fixed.levels, aggregator=aggregator)
        scheme_plans["full"] = few._replace(levels=np.ones_like(best))
        what, _ = SWEEPS[self.name]
        for value, outcome in self.sweep.items():
            if value != getattr(self.setup, what):
                scheme_plans[f"{what}={value:g}"] = usual._replace(
                    levels=outcome.levels, rounds=short
                )
        if self.compares_bound:
            rounds = min(settings.rounds, settings.level_rounds)
            for i, levels in enumerate(self.level_vectors):
                scheme_plans[f"levels={i}"] = Plan(levels, rounds, rounds, 2, usual.aggregator)
        return scheme_plans

    def _rounds_needed(self, name: str, plan: Plan) -> int:
        """Return after how many rounds a scheme's times to the targets are known.

        The reference is needed as far as it sets the targets, the others for all of the time.
        """
        time = self.lasts(*self.timed_schemes)
        if name == self.reference:
            last = max(self.fraction(what) for what in ("loss", "accuracy"))
            time *= min(last + WINDOW / 2 / (POINTS - 1), 1.0)
        clock, every = self.source.clock, plan.evaluate_every
        rounds = rounds_that_last(clock.compute + clock.transfer, clock.idle, plan.levels, time)
        return min(-(-rounds // every) * every, plan.rounds)


def begin(
    settings: Settings,
    name: str,
    data: str | None,
    store: Store,
    report: Callable[[str], None] | None = None,
) -> SetupStudy:
    """Return a calibrated setup, from the store or by pilots, which `report` announces."""
    setup, only_times = setup_of(name), settings.scope == "times"
    federation = federation_of(name, settings.num_clients, data)
    training = Training(local_steps=settings.local_steps, batch=settings.batch)
    source = SetupSource(name, settings.num_clients, data, training)
    calibration, seconds = calibrated(
        source,
        store,
        report,
        repeats=settings.pilot_repeats,
        checkpoints=settings.pilot_rounds,
        impact="gradients",  # the paper's definition
        aggregator=HorvitzThompson(),  # its estimator, too
    )
    return SetupStudy(
        name=name,
        source=source,
        priced=setup.game(federation, calibration, rounds=settings.rounds),
        settings=settings,
        setup=setup,
        federation=federation,
        calibration=calibration,
        own=None if only_times else _own_optima(name, federation, store, report),
        least=math.nan if only_times else _least_loss(name, federation, store, report),
        seconds=seconds,
    )


def _least_loss(
    name: str, federation: Federation, store: Store, report: Callable[[str], None] | None
) -> float:
    """Return F*, from the store or by L-BFGS: the loss at the minimum with a small ridge."""
    text = f"{code_version()}{federation.fingerprint}{RIDGE}"
    fingerprint = hashlib.sha256(text.encode()).hexdigest()
    stored = store.load(f"{name} optimum", fingerprint)
    if stored is None:
        if report is None:
            raise InputError(f"{store.folder} lacks the optimum of {name}.")
        report(f"finding the optimum of {name}")
        stored = {"least": np.array(best_loss(federation, ridge=RIDGE))}
        store.save(f"{name} optimum", fingerprint, stored)
    return float(stored["least"])


def _own_optima(
    name: str, federation: Federation, store: Store, report: Callable[[str], None] | None
) -> FloatArray:
    """Return F(w_n*) of each client, from the store or by L-BFGS with a ridge of 1e-4."""
    fingerprint = hashlib.sha256(f"{code_version()}{federation.fingerprint}".encode()).hexdigest()
    stored = store.load(f"{name} own optima", fingerprint)
    if stored is None:
        if report is None:
            raise InputError(f"{store.folder} lacks the clients' own optima of {name}.")
        stored = {"own": own_optimum_losses(federation)}
        store.save(f"{name} own optima", fingerprint, stored)
    own: FloatArray = stored["own"]
    return own
