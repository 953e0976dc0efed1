"""`History`: what training recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.tables import as_pandas

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

    from fedprice._plumbing.arrays import Arrays, FloatArray, IntArray

__all__ = ["History"]


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """What training recorded.

    Attributes
    ----------
    rounds, time
        At each evaluation: rounds done, and simulated seconds; shape (evaluations,).
    metrics
        At each evaluation, by name: the global loss as "loss", and whatever else the task reports;
        shape (evaluations,).
    joined, largest_weight
        In each round: how many updates were used, and the largest weight a_n / q_n among them.
    update_norm
        Root mean square norm of each client's updates, shape (num_clients,); NaN for one that never
        joined.
    grad_norm, grad_norm_max
        Root mean square, and maximum, of the norms of the stochastic gradients that each client
        computed; NaN also where the task does not know them.
    model
        The final model: a list of arrays.
    alarms
        Lines about rounds after which the loss was far above its start, with the remedy.
    """

    rounds: IntArray
    time: FloatArray
    metrics: dict[str, FloatArray]
    joined: IntArray
    largest_weight: FloatArray
    update_norm: FloatArray
    grad_norm: FloatArray
    grad_norm_max: FloatArray
    model: Arrays
    alarms: tuple[str, ...] = ()

    @property
    def loss(self) -> FloatArray:
        """The global loss at each evaluation."""
        return self.metrics["loss"]

    @property
    def accuracy(self) -> FloatArray:
        """The accuracy at each evaluation; NaN where the task reports none."""
        return self.metrics.get("accuracy", np.full(self.rounds.size, np.nan))

    def __repr__(self) -> str:
        last = ", ".join(f"{name}={values[-1]:.4f}" for name, values in self.metrics.items())
        return (
            f"History(rounds={self.rounds[-1]}, {last}, time={self.time[-1]:.0f} s, "
            f"joined={self.joined.mean():.1f} per round)"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return the evaluations as a polars table: round, time, and the metrics by name."""
        import polars as pl

        columns: dict[str, Any] = {"round": self.rounds, "time": self.time}
        return pl.DataFrame(columns | self.metrics)

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())
