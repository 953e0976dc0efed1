"""The audit: honest clients are left alone, cheaters are found."""

import numpy as np
import pytest

from fedprice import InputError
from fedprice.market.audit import LEAST_DELIVERY, LevelAudit, delivery_estimate


def alarms(true: np.ndarray, declared: np.ndarray, rounds: int, seed: int, **how: object) -> float:
    """The share of clients that are ever suspected, looked at after every round."""
    rng = np.random.default_rng(seed)
    audit = LevelAudit(declared, **how)  # type: ignore[arg-type]
    ever = np.zeros(true.size, bool)
    for _ in range(rounds):
        audit.observe(rng.random(true.size) < true)
        ever[audit.suspects(0.05, fleet=False)] = True
    return float(ever.mean())


@pytest.mark.parametrize("two_sided", [False, True])
@pytest.mark.parametrize("level", [0.05, 0.3, 0.9, 1.0])
def test_false_alarms_at_most_alpha(two_sided: bool, level: float) -> None:
    """20,000 honest clients, 300 looks each: at most 5 %, plus four standard errors (0.6 %)."""
    honest = np.full(20_000, level)
    assert alarms(honest, honest, 300, seed=1, two_sided=two_sided) <= 0.05 + 4 * 0.00154


def test_false_alarms_with_a_tolerance_on_both_sides() -> None:
    """Honest clients without any dropouts, and with as many as are tolerated."""
    declared = np.full(10_000, 0.5)
    for true in (0.45, 0.5):
        rate = alarms(np.full(10_000, true), declared, 500, 6, two_sided=True, tolerance=0.1)
        assert rate <= 0.05 + 4 * 0.0022


def test_joining_more_is_no_offence_one_sided() -> None:
    more = np.full(5000, 0.6)
    assert alarms(more, np.full(5000, 0.5), 300, seed=2) <= 0.05
    assert alarms(np.full(500, 0.8), np.full(500, 0.5), 300, seed=2, two_sided=True) > 0.99


def test_dropouts_within_the_tolerance_are_forgiven() -> None:
    true, declared = np.full(5000, 0.45), np.full(5000, 0.5)
    assert alarms(true, declared, 1000, seed=3, tolerance=0.1) <= 0.05 + 4 * 0.0031
    assert alarms(true, declared, 1000, seed=3) > 0.3


def test_cheaters_are_found() -> None:
    """Half of the declared level: nearly all within 200 rounds; none at all: within 20."""
    assert alarms(np.full(500, 0.2), np.full(500, 0.4), 200, seed=4) > 0.95
    assert alarms(np.zeros(500), np.full(500, 0.4), 20, seed=4) == 1
    sure = LevelAudit(np.ones(3))
    for joined in ([True, False, True], [True, True, False], [True, True, True]):
        sure.observe(np.array(joined))
    assert sure.suspects(1e-9).tolist() == [1, 2]


def test_a_fleet_shares_its_rate() -> None:
    audit = LevelAudit(np.full(1000, 0.5))
    for _ in range(8):
        audit.observe(np.zeros(1000, bool))
    assert audit.suspects(0.05, fleet=False).size == 1000
    assert audit.suspects(0.05).size == 0  # not enough against any of a thousand


def test_bad_input() -> None:
    with pytest.raises(InputError, match=r"`levels` must lie in \(0, 1\]"):
        LevelAudit(np.array([0.0]))
    with pytest.raises(InputError, match="`tolerance` must lie in"):
        LevelAudit(np.array([0.5]), tolerance=1.0)
    audit = LevelAudit(np.full(3, 0.5))
    with pytest.raises(InputError, match="`joined` must have shape"):
        audit.observe(np.array([True]))
    for alpha in (0, -1, 2):
        with pytest.raises(InputError, match="`alpha` must lie in"):
            audit.suspects(alpha)


def test_delivery_is_learnt() -> None:
    """Weights 1/ρ estimated as one goes have the stated share of their mean; 5 standard errors."""
    rng = np.random.default_rng(8)
    for rho in (1.0, 0.6):
        arrived = rng.random((60, 20_000)) < rho
        before: np.ndarray = np.cumsum(arrived, axis=0) - arrived
        for heads in (0, 3, 59):
            used = arrived[heads] / delivery_estimate(heads, before[heads])
            due = 1 - (1 - rho) ** (heads + 1)
            assert used.mean() == pytest.approx(due, abs=5 * used.std() / np.sqrt(20_000) + 2e-3)
    assert delivery_estimate(1000, 0) == LEAST_DELIVERY
