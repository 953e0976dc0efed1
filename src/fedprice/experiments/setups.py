"""The three setups of the paper's section VI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.clients import Clients
from fedprice.data import emnist, mnist, synthetic
from fedprice.errors import InputError, nearest
from fedprice.game import Game
from fedprice.learning import Clock

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.calibrate import Calibration
    from fedprice.data import Federation

__all__ = ["SETUPS", "Setup", "setup_of"]


@dataclass(frozen=True)
class Setup:
    """One setup: its data, the row of Table I, and simulated time.

    Attributes
    ----------
    name, data
        "setup1" and so on, and which data it uses.
    budget, mean_cost, mean_value
        B, c̄ and v̄ of Table I.
    step_time
        Mean seconds of a local step, so that 1,000 rounds take about as long as in the paper:
        1,000, 2,000 and 3,000 s.
    """

    name: str
    data: str
    budget: float
    mean_cost: float
    mean_value: float
    step_time: float

    def federation(self, data: str | Path | None = None) -> Federation:
        """Return the setup's federation, image data from `data` (see `load_images`)."""
        if self.data == "synthetic":
            return synthetic()
        return mnist(data=data) if self.data == "mnist" else emnist(data=data)

    def game(
        self,
        federation: Federation,
        calibration: Calibration,
        *,
        rounds: int = 1000,
        seed: int = 0,
    ) -> Game:
        """Return the setup's game: measured constants, costs and values drawn exponentially."""
        rng = np.random.default_rng(seed)
        # Standard draws are scaled: setups that differ in a mean share their draws.
        costs, values = rng.exponential(size=(2, federation.num_clients))
        clients = Clients(
            samples=federation.samples,
            grad_norm=calibration.grad_norm,
            cost=self.mean_cost * costs,
            value=self.mean_value * values,
        )
        return Game(clients, bound=calibration.bound(rounds), budget=self.budget)

    def clock(self, federation: Federation, local_steps: int = 100, seed: int = 0) -> Clock:
        """Return clients of different speeds."""
        size = federation.num_classes * (federation.features.shape[1] + 1)
        return Clock.draw(
            federation.num_clients,
            model_size=size,
            local_steps=local_steps,
            step_time=self.step_time,
            seed=seed,
        )


SETUPS = {
    setup.name: setup
    for setup in (
        Setup("setup1", "synthetic", 200, 50, 4_000, step_time=6e-3),
        Setup("setup2", "mnist", 40, 20, 30_000, step_time=11e-3),
        Setup("setup3", "emnist", 500, 80, 10_000, step_time=15e-3),
    )
}


def setup_of(name: str) -> Setup:
    """Return a setup by its name."""
    if name not in SETUPS:
        raise InputError(f"there is no setup {name!r}. {nearest(name, SETUPS)}")
    return SETUPS[name]
