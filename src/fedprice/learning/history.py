"""`History`: what training recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedprice.tables import as_pandas

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd
    import polars as pl

    from fedprice.arrays import FloatArray


__all__ = ["History"]


@dataclass(frozen=True, eq=False, repr=False)
class History:
    """What training recorded.

    Attributes
    ----------
    rounds, loss, accuracy, time
        At each evaluation: rounds done, loss of the global model over all training samples, its
        accuracy on the test set, and simulated seconds; shape (evaluations,).
    joined, largest_weight
        In each round: how many updates arrived, and the largest weight a_n / q_n among them.
    grad_norm, grad_norm_max
        Root mean square, and maximum, of the stochastic gradients' norms that each client computed;
        NaN for one that never joined; shape (num_clients,).
    model
        The final model, shape (classes, features + 1), the bias last.
    """

    rounds: npt.NDArray[np.int64]
    loss: FloatArray
    accuracy: FloatArray
    time: FloatArray
    joined: npt.NDArray[np.int64]
    largest_weight: FloatArray
    grad_norm: FloatArray
    grad_norm_max: FloatArray
    model: npt.NDArray[np.float32]

    def __repr__(self) -> str:
        return (
            f"History(rounds={self.rounds[-1]}, loss={self.loss[-1]:.4f}, "
            f"accuracy={self.accuracy[-1]:.4f}, time={self.time[-1]:.0f} s, "
            f"joined={self.joined.mean():.1f} a round)"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return the evaluations as a polars table: round, time, loss, accuracy."""
        import polars as pl

        return pl.DataFrame(
            {
                "round": self.rounds,
                "time": self.time,
                "loss": self.loss,
                "accuracy": self.accuracy,
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """Return `to_frame` as a pandas table (extra `pandas`)."""
        return as_pandas(self.to_frame())
