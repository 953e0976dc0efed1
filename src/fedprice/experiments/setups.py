"""The three setups of the paper's section VI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.clients import Clients
from fedprice.data.emnist import emnist
from fedprice.data.mnist import mnist
from fedprice.data.synthetic import synthetic
from fedprice.errors import InputError, nearest
from fedprice.game import Game
from fedprice.learning import Clock

if TYPE_CHECKING:
    from pathlib import Path

    from fedprice.calibration import Calibration
    from fedprice.data import Federation

NUM_CLIENTS = 40

__all__ = ["SETUPS", "Setup", "setup_of"]


@dataclass(frozen=True)
class Setup:
    """One setup: its data, the row of Table I, and simulated time.

    Attributes
    ----------
    name, data, samples
        "setup1" and so on, which data it uses, and how many samples.
    budget, mean_cost, mean_value
        B, c̄ and v̄ of Table I.
    time
        Simulated seconds that the paper evaluates.
    step_time
        Mean seconds of a local step, so that 1,000 rounds take about as long as in the paper:
        `time`.
    """

    name: str
    data: str
    samples: int
    budget: float
    mean_cost: float
    mean_value: float
    time: float
    step_time: float

    @property
    def takes_data(self) -> bool:
        """Whether the setup's samples come from files, which `data` may name."""
        return self.data != "synthetic"

    def federation(
        self, data: str | Path | None = None, *, num_clients: int = NUM_CLIENTS
    ) -> Federation:
        """Return the setup's federation, image data from `data` (see `load_images`).

        With fewer clients than the paper's 40 it has fewer samples, in proportion.
        """
        if data is not None and not self.takes_data:
            raise InputError(
                f"{self.name} has synthetic data and takes none from elsewhere; got {str(data)!r}. "
                "Leave out `data` (--data)."
            )
        samples = round(self.samples * num_clients / NUM_CLIENTS)
        if not self.takes_data:
            return synthetic(num_clients=num_clients, samples=samples)
        load = mnist if self.data == "mnist" else emnist
        return load(num_clients=num_clients, samples=samples, data=data)

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
            grad_norm=1.0,
            cost=self.mean_cost * costs,
            value=self.mean_value * values,
        ).with_norms(calibration.fit.norm, calibration.norms)
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
        Setup("setup1", "synthetic", 22_377, 200, 50, 4_000, time=1000, step_time=6e-3),
        Setup("setup2", "mnist", 14_463, 40, 20, 30_000, time=2000, step_time=11e-3),
        Setup("setup3", "emnist", 35_155, 500, 80, 10_000, time=3000, step_time=15e-3),
    )
}


def setup_of(name: str) -> Setup:
    """Return a setup by its name."""
    if name not in SETUPS:
        raise InputError(f"there is no setup {name!r}. {nearest(name, SETUPS)}")
    return SETUPS[name]
