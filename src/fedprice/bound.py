"""`Bound`: the convergence bound of Theorem 1, from levels to expected loss, and Lemma 2.

References
----------
Luo, Feng, Wang, Huang, Tassiulas. "Incentive Mechanism Design for Unbiased Federated Learning with
Randomized Client Participation." ICDCS 2023.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import numpy as np

from fedprice.errors import InputError, number_like

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.clients import Clients


__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    r"""The bound of Theorem 1 on the loss above the optimum after R rounds.

    .. math::
        E[F(w^R(q))] - F^* \le \frac{1}{R} \Big(
            \alpha \sum_n \frac{1 - q_n}{q_n} a_n^2 G_n^2 + \beta \Big)

    Parameters
    ----------
    alpha
        α ≥ 0: how much the randomness of joining hurts. Measure it; the theory's α
        (`from_theory`) is far too loose to price with.
    rounds
        R ≥ 1, the number of training rounds.
    beta
        β ≥ 0: the part of the bound that remains under full participation. It affects no price.
    norms
        The norms that α was fitted with, "gradients" or "updates", where that is known: clients
        with norms of the other kind are then refused.

    Examples
    --------
    >>> from fedprice import Clients
    >>> clients = Clients(samples=[1, 1], grad_norm=[2, 4], cost=1, value=0)
    >>> bound = Bound(alpha=10, rounds=100)
    >>> bound.impact(clients)
    array([0.1, 0.4])
    >>> bound.expected_loss(clients, [0.5, 1.0])
    0.1
    """

    alpha: float
    rounds: int
    beta: float = 0.0
    norms: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            number = number_like(name, getattr(self, name))
            if not 0 <= number < np.inf:
                raise InputError(f"`{name}` must be a finite number, at least 0; got {number}.")
            object.__setattr__(self, name, number)
        rounds = number_like("rounds", self.rounds)
        if not 1 <= rounds < np.inf or rounds != int(rounds):
            raise InputError(f"`rounds` must be a whole number, at least 1; got {self.rounds}.")
        object.__setattr__(self, "rounds", int(self.rounds))
        if self.norms not in (None, "gradients", "updates"):
            raise InputError(f"`norms` must be 'gradients' or 'updates'; got {self.norms!r}.")

    @classmethod
    def from_theory(
        cls,
        clients: Clients,
        *,
        rounds: int,
        local_steps: int,
        smoothness: float,
        convexity: float,
        grad_std: npt.ArrayLike = 0.0,
        heterogeneity: float = 0.0,
        initial_distance: float = 0.0,
    ) -> Self:
        """Return the bound with the constants that Theorem 1 derives.

        Parameters
        ----------
        clients
            Their weights a_n and gradient norms G_n enter β.
        rounds, local_steps
            R, and E, the local SGD steps per round.
        smoothness, convexity
            L and μ: every local loss is L-smooth and μ-strongly convex, 0 < μ ≤ L.
        grad_std
            σ_n, shape (N,) or scalar: bound on the stochastic gradient's standard deviation.
        heterogeneity
            Γ = F* − Σ a_n F_n*.
        initial_distance
            ‖w_0 − w*‖.

        Examples
        --------
        >>> from fedprice import Clients
        >>> clients = Clients(samples=[1, 1], grad_norm=1, cost=1, value=0)
        >>> Bound.from_theory(clients, rounds=10, local_steps=2, smoothness=3, convexity=1)
        Bound(alpha=48.0, rounds=10, beta=24.0)
        """
        numbers = {
            "local_steps": local_steps,
            "smoothness": smoothness,
            "convexity": convexity,
            "heterogeneity": heterogeneity,
            "initial_distance": initial_distance,
        }
        for name, given in numbers.items():
            number = number_like(name, given)
            least = 0 if name in ("heterogeneity", "initial_distance") else np.nextafter(0, 1)
            if not least <= number < np.inf:
                rule = "at least 0" if least == 0 else "above 0"
                raise InputError(f"`{name}` must be a finite number, {rule}; got {number}.")
        if convexity > smoothness:
            raise InputError(
                f"`convexity` must be at most `smoothness` = {smoothness}; got {convexity}."
            )
        try:
            sigma = np.asarray(grad_std, dtype=np.float64)
        except (TypeError, ValueError):
            sigma = np.array(np.nan)
        if not np.all((sigma >= 0) & np.isfinite(sigma)):
            raise InputError("`grad_std` must be finite numbers, at least 0.")
        a, big_g = clients.weight, _gradient_norms(clients)
        steps, mu = local_steps, convexity
        drift = np.sum(a**2 * sigma**2) + 8 * np.sum(a * big_g**2) * (steps - 1) ** 2  # A_0
        beta = (
            2 * smoothness / (mu**2 * steps) * drift
            + 12 * smoothness**2 / (mu**2 * steps) * heterogeneity
            + 4 * smoothness**2 / (mu * steps) * initial_distance**2
        )
        return cls(alpha=8 * smoothness * steps / mu**2, rounds=rounds, beta=float(beta))

    def impact(self, clients: Clients) -> FloatArray:
        """Return k_n = α a_n² G_n² / R, shape (N,): the weight of 1/q_n in the bound.

        Clients with norms of updates have D_n instead of G_n.
        """
        if self.norms not in (None, clients.norms):
            raise InputError(
                f"α was fitted with the norms of {self.norms}, and the clients have norms of "
                f"{clients.norms}; take both from a calibration with the same `impact`."
            )
        with np.errstate(over="ignore"):  # `Game` refuses what is not finite
            impact = clients.weight * clients.norm
            impact *= impact
            impact *= self.alpha / self.rounds
        return impact

    def expected_loss(self, clients: Clients, levels: npt.ArrayLike) -> float:
        """Return the bound's loss above F* without its constant β/R: Σ k_n (1 − q_n) / q_n.

        A client that matters (k_n > 0) but never joins makes it infinite: without that client no
        number of rounds reaches the optimum.
        """
        return random_loss(self.impact(clients), np.asarray(levels, dtype=np.float64))

    def variance(
        self, clients: Clients, levels: npt.ArrayLike, *, learning_rate: float, local_steps: int
    ) -> float:
        """Return Lemma 2's bound on E‖w − w̄‖² after one round with randomised participation.

        It is 4 (η E)² Σ (1 − q_n) a_n² G_n² / q_n.

        Examples
        --------
        >>> from fedprice import Clients
        >>> clients = Clients(samples=[1, 1], grad_norm=1, cost=1, value=0)
        >>> bound = Bound(alpha=1, rounds=1)
        >>> bound.variance(clients, [0.5, 1.0], learning_rate=0.1, local_steps=10)
        1.0
        """
        spread = (clients.weight * _gradient_norms(clients)) ** 2
        levels = np.asarray(levels, dtype=np.float64)
        return 4 * (learning_rate * local_steps) ** 2 * random_loss(spread, levels)


def _gradient_norms(clients: Clients) -> FloatArray:
    """Return G_n, from which the theory's constants are computed; norms of updates do not fit."""
    if clients.grad_norm is None:
        raise InputError("the theory needs `grad_norm`; the clients have norms of updates.")
    return clients.grad_norm


def random_loss(impact: FloatArray, levels: FloatArray) -> float:
    """Return Σ k_n (1 − q_n) / q_n, where a client without impact counts as 0 at any level."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = impact * (1 - levels) / levels
    return float(np.sum(terms, where=impact > 0))
