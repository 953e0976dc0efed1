"""`Task`: what is learned. The round loop knows nothing else about models and data.

::

    Task
    ├── LogisticRegression   the compiled engine: `fedprice.learning.logistic`
    └── FunctionTask         three plain Python functions: `Task.of`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from fedprice.learning.layout import Layout, buffers_among

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Executor

    import numpy.typing as npt

    from fedprice._plumbing.arrays import Arrays, FloatArray, IntArray
    from fedprice.learning.functions import FunctionTask

__all__ = ["Task", "Updates"]


class Updates(NamedTuple):
    """What some clients send in a round.

    Attributes
    ----------
    values
        Their updates w_n − w, one flat row per client: the model's parameters, in their order.
    squares, largest
        Sum and maximum of the squared norms of the stochastic gradients behind each update; None
        where the task does not know them.
    gradients
        How many stochastic gradients are behind each update.
    buffers
        The new buffers of each client, one flat row per client in 64-bit floats; None where the
        model has none.
    norms
        The Euclidean norms of the updates, where whoever checked them has computed them; None
        otherwise: then updates that are not finite are refused by the round.
    """

    values: npt.NDArray[Any]
    squares: FloatArray | None = None
    largest: FloatArray | None = None
    gradients: int = 0
    buffers: FloatArray | None = None
    norms: FloatArray | None = None


class Task(ABC):
    """What is learned: clients with data, a model, local updates and an evaluation.

    Clients are numbered from 0. A task has no state that a round changes: an update is a function
    of the model, the client, the round and the seed.

    Attributes
    ----------
    name
        What it is, for results.
    ids
        The clients' names, in order.
    samples
        Number of samples of each client, shape (num_clients,).
    initial
        The model to start from: a list of arrays.
    parallel
        Whether updates and evaluations may run in several threads.
    convex
        Whether the loss is known to be convex: then the unbiased estimator is safe.
    """

    name: str
    ids: tuple[str, ...]
    samples: IntArray
    initial: Arrays
    parallel = False
    convex = False

    @abstractmethod
    def updates(
        self,
        model: Arrays,
        clients: IntArray,
        round_: int,
        seed: int,
        pool: Executor | None = None,
    ) -> Updates:
        """Return the local updates of some clients in one round.

        Parameters
        ----------
        model
            The arrays that the clients receive, in their own precision.
        clients
            The clients, in rising order.
        round_, seed
            The round, counted from 0, and the seed of everything random in it.
        pool
            Threads to use, if the task is `parallel`.
        """

    @abstractmethod
    def evaluate(self, model: Arrays, pool: Executor | None = None) -> dict[str, float]:
        """Return the global loss of a model as "loss", and any further metrics."""

    def reach(self, round_: int) -> float | None:
        """Return η E of a round, learning rate times local steps, or None where it has none.

        An update is at most that many times as long as the stochastic gradients behind it.
        """
        return None

    def least_loss(self) -> float | None:
        """Return F*, the least global loss, or None where it is not known."""
        return None

    def label_order(self) -> IntArray | None:
        """Return the clients, those with similar labels side by side, or None if not known."""
        return None

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of what determines updates and evaluations."""

    @cached_property
    def layout(self) -> Layout:
        """How the model's arrays become one flat vector."""
        return Layout.of(self.initial, buffers_among(self.initial, self.names))

    @property
    def names(self) -> list[str]:
        """The names of the model's arrays."""
        return [f"array{i}" for i in range(len(self.initial))]

    @property
    def num_clients(self) -> int:
        """Number of clients."""
        return self.samples.size

    @property
    def weight(self) -> FloatArray:
        """Each client's share of the samples, shape (num_clients,)."""
        weight: FloatArray = self.samples / self.samples.sum()
        return weight

    @staticmethod
    def of(
        *,
        initial: Sequence[npt.ArrayLike],
        samples: npt.ArrayLike,
        update: Callable[[Arrays, int, int, int], Sequence[npt.ArrayLike]],
        evaluate: Callable[[Arrays], dict[str, float]],
        ids: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        buffers: Sequence[str] | None = None,
        name: str = "task",
        version: str = "",
    ) -> FunctionTask:
        """Return a task made from plain functions: PyTorch, JAX, scikit-learn, numpy.

        Parameters
        ----------
        initial
            The model to start from: a list of arrays.
        samples
            Number of samples of each client, shape (num_clients,).
        update
            (model, client, round_, seed) → the new arrays minus the old ones, after the client has
            trained on its data. Clients and rounds are counted from 0. It must be a function of its
            arguments: all of its randomness follows from seed, round and client.
        evaluate
            model → {"loss": …} and any further metrics, such as "accuracy".
        ids
            The clients' names; by default "1", "2", …
        names
            The names of the model's arrays; by default "array0", "array1", …
        buffers
            Patterns of the names of arrays that are stored with the parameters but not trained,
            such as running statistics: their new values are averaged. By default they are inferred
            from names and types: `fedprice.learning.layout.buffers_among`.
        name
            What the task is, for results.
        version
            Anything that distinguishes this task from another one with the same initial model,
            samples and names: other data, another learning rate. A stopped run resumes only with
            its own task.

        Examples
        --------
        Clients that pull a number towards their own:

        >>> import fedprice as fp
        >>> import numpy as np
        >>> goals = np.array([0.0, 1.0, 5.0])
        >>> task = fp.Task.of(
        ...     initial=[np.zeros(1)],
        ...     samples=[10, 10, 20],
        ...     update=lambda model, client, round_, seed: [0.1 * (goals[client] - model[0])],
        ...     evaluate=lambda model: {"loss": float(((goals - model[0]) ** 2).mean())},
        ... )
        >>> history = fp.simulate(task, levels=0.5, rounds=100, seed=1)
        >>> history.model[0].round(1)  # near the weighted mean, 2.75
        array([2.7])
        """
        from fedprice.learning.functions import FunctionTask

        return FunctionTask(
            initial=initial,
            samples=samples,
            update=update,
            evaluate=evaluate,
            ids=ids,
            names=names,
            buffers=buffers,
            name=name,
            version=version,
        )
