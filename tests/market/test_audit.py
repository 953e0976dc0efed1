"""The audit: honest clients are left alone, cheaters are found."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import InputError
from fedprice.market.audit import LevelAudit
from fedprice.verify import LONGEST_GAP, delivery_correction


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


@pytest.mark.parametrize("how", [{}, {"two_sided": True}, {"tolerance": 0.1}])
def test_counts_are_as_good_as_the_rounds_they_count(how: dict[str, float]) -> None:
    """Also of clients that always or never join, and of those that must join every round."""
    rng = np.random.default_rng(1)
    levels = np.array([0.02, 0.3, 0.3, 0.3, 0.9, 1.0, 1.0])
    joins = rng.random((50, levels.size)) < levels
    joins[:, 2], joins[:, 3], joins[7, 6] = True, False, False
    one, all_ = LevelAudit(levels, **how), LevelAudit(levels, **how)  # type: ignore[arg-type]
    for own in joins:
        one.observe(own)
    all_.observe_counts(joins[:20].sum(axis=0), 20)
    all_.observe_counts(joins[20:].sum(axis=0), 30)
    assert all_.rounds == one.rounds == 50
    np.testing.assert_allclose(all_.log_evidence, one.log_evidence, rtol=1e-12)
    with pytest.raises(InputError, match="between 0 and 3"):
        all_.observe_counts(np.full(levels.size, 4), 3)


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


def corrections(delivered: tuple[bool, ...] | list[bool], longest: int) -> list[int]:
    """The factor of each head of a client, 0 where nothing was delivered."""
    factors, gap = [], 0
    for own in delivered:
        gap += 1
        factors.append(delivery_correction(gap, longest) if own else 0)
        gap = 0 if own else gap
    return factors


@given(st.lists(st.booleans(), max_size=200), st.integers(1, 30))
def test_whatever_a_client_does_it_has_at_most_its_due_weight(
    delivered: list[bool], longest: int
) -> None:
    factors = corrections(delivered, longest)
    for heads in range(len(factors) + 1):  # at any time, not only in the end
        assert sum(factors[:heads]) <= heads


def test_a_client_that_comes_back_after_half_the_run_has_no_more_than_its_due() -> None:
    """The estimate before gave it 1.54 times its due weight."""
    heads = 200
    delivered = [h >= heads // 2 for h in range(heads)]
    before = sum(1 / max((h - heads // 2 + 1) / (h + 1), 0.25) for h in range(heads // 2, heads))
    assert before / heads == pytest.approx(1.54, abs=0.005)
    assert sum(corrections(delivered, LONGEST_GAP)) <= heads
    assert sum(corrections(delivered, LONGEST_GAP)) == heads // 2 - 1 + LONGEST_GAP


@pytest.mark.parametrize("longest", [1, 3, 10])
@pytest.mark.parametrize("rho", [Fraction(1, 20), Fraction(1, 3), Fraction(9, 10), Fraction(1)])
def test_the_bias_of_the_correction_is_exactly_as_stated(rho: Fraction, longest: int) -> None:
    """Enumerated over all 2^h outcomes, in exact arithmetic."""
    for heads in (1, 2, 5, 12):
        mean = second = Fraction(0)
        for delivered in itertools.product([False, True], repeat=heads):
            if not delivered[-1]:
                continue
            chance = rho ** sum(delivered) * (1 - rho) ** (heads - sum(delivered))
            factor = corrections(delivered, longest)[-1]
            mean += chance * factor
            second += chance * factor**2
        assert mean == 1 - (1 - rho) ** min(heads, longest)
        assert second <= (2 - rho) / rho


def test_the_shares_of_the_due_weight_that_the_documentation_states() -> None:
    """At 20, 10 and 5 %; the estimate before, never below ¼, had at most .80, .40 and .20."""
    shares = [1 - (1 - rho) ** LONGEST_GAP for rho in (0.2, 0.1, 0.05)]
    assert shares == pytest.approx([0.89, 0.65, 0.40], abs=0.005)
    rng = np.random.default_rng(5)
    for rho, share in zip((0.2, 0.1, 0.05), shares, strict=True):
        arrived = rng.random((2000, 100)) < rho
        used = np.array([corrections(own.tolist(), LONGEST_GAP)[-20:] for own in arrived])
        error = used.mean(axis=1).std() / np.sqrt(2000)
        assert used.mean() == pytest.approx(share, abs=5 * error)
