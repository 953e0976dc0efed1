"""`Clock`: simulated seconds per round, from the speeds of clients and their links."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedprice.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray


__all__ = ["Clock"]


@dataclass(frozen=True, eq=False)
class Clock:
    """How long a round takes: until the slowest joiner has computed and sent its update.

    Attributes
    ----------
    compute
        Seconds for the local steps of a round, shape (num_clients,).
    transfer
        Seconds to receive the model and send the update, alone on its link, shape (num_clients,).
    shared
        Whether joiners share one link, one after the other, or each has its own.
    idle
        Seconds of a round that nobody joins.
    """

    compute: FloatArray
    transfer: FloatArray
    shared: bool = False
    idle: float = 0.1

    def __post_init__(self) -> None:
        for name in ("compute", "transfer"):
            times = np.asarray(getattr(self, name), np.float64)
            object.__setattr__(self, name, times)
            if times.ndim != 1 or not (np.isfinite(times) & (times >= 0)).all():
                raise InputError(f"`{name}` must be finite seconds, at least 0, one per client.")
        if self.compute.shape != self.transfer.shape:
            raise InputError("`compute` and `transfer` must have one entry per client each.")

    @classmethod
    def draw(
        cls,
        num_clients: int,
        *,
        model_size: int,
        local_steps: int = 100,
        step_time: float = 2e-3,
        link: float = 5e5,
        spread: float = 0.3,
        shared: bool = False,
        seed: int = 0,
    ) -> Clock:
        """Draw clients whose speeds differ: lognormal around the means, seeded.

        Parameters
        ----------
        num_clients, model_size, local_steps
            Clients, numbers in the model (4 bytes each), local steps per round.
        step_time
            Mean seconds of a local step.
        link
            Mean bytes per second of a link.
        spread
            Standard deviation of the logarithms; 0 makes all clients equally fast.
        shared, seed
            See `Clock`; the same seed gives the same clients.
        """
        rng = np.random.default_rng(seed)
        speed, width = np.exp(spread * rng.standard_normal((2, num_clients)) - spread**2 / 2)
        return cls(
            compute=local_steps * step_time * speed,
            transfer=2 * 4 * model_size / link * width,
            shared=shared,
        )

    def round_time(self, joined: npt.NDArray[np.int64]) -> float:
        """Return the simulated seconds of a round.

        Examples
        --------
        >>> clock = Clock(compute=np.array([1.0, 2.0]), transfer=np.array([0.5, 0.1]))
        >>> clock.round_time(np.array([0, 1])), clock.round_time(np.array([], dtype=int))
        (2.1, 0.1)
        """
        if not joined.size:
            return self.idle
        if self.shared:
            return float(self.compute[joined].max() + self.transfer[joined].sum())
        return float((self.compute[joined] + self.transfer[joined]).max())
