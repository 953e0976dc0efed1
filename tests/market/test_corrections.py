"""The weight of updates that also stand for heads that were missed."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice.verify import LONGEST_GAP, delivery_correction


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
