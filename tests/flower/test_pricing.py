"""Pricing from profiles: what clients declare must not earn them more than what they have."""

import numpy as np
import pytest

from fedprice import InputError
from fedprice.calibration import Calibration, Fit
from fedprice.flower.deals import proposals_of
from fedprice.flower.pricing import FullInformation, PostedPrice, Priced
from fedprice.flower.wire import Profile
from fedprice.market.money import LEVEL_ONE
from fedprice.market.periods import Period
from fedprice.market.terms import one_round

FIRST = Period(1, rounds=20, run_rounds=20)


def profile(client: str, samples: int, grad_norm: float | None = None) -> Profile:
    norm = "" if grad_norm is None else repr(grad_norm)
    return Profile("run", "nonce", client, samples, norm, cost="3.0", value="0")


def paid(priced: Priced) -> list[int]:
    return [own.payment(own.cap) for own in priced.tariffs]


def test_three_names_of_one_client_earn_what_one_name_earns() -> None:
    """They earned 1.33 times as much: the posted price was one per name."""
    pricing = PostedPrice(budget=12.0, alpha=1.0, level_cap=0.8)
    others = [profile("alice", 100, 1.0), profile("bob", 200, 1.0)]
    one = paid(pricing([*others, profile("carol", 300, 1.0)], FIRST))
    names = [profile(f"carol {i}", size, 1.0) for i, size in enumerate((50, 120, 130))]
    three = paid(pricing([*others, *names], FIRST))
    assert one == [2_000_000, 4_000_000, 6_000_000]
    assert three[:2] == one[:2]
    assert sum(three[2:]) == one[2]
    warm = paid(pricing.warm_up([*others, *names], FIRST, 0.5))
    assert sum(warm[2:]) == one[2]


def test_a_posted_price_does_not_depend_on_alpha() -> None:
    profiles = [profile("a", 30), profile("b", 90)]
    period = Period(2, rounds=10, run_rounds=20, done=10, norms={"a": 1.0, "b": 3.0})
    silent, told = PostedPrice(budget=12.0), PostedPrice(budget=12.0, alpha=2.0)
    assert silent(profiles, period)._replace(impacts=[]) == told(profiles, period)._replace(
        impacts=[]
    )
    assert silent(profiles, period).impacts == [0.0, 0.0]  # clients decide by the money alone
    assert min(told(profiles, period).impacts) > 0
    first = Period(1, rounds=20, run_rounds=20)
    assert not silent.needs_norms
    assert sum(paid(silent(profiles, first))) <= 12_000_000
    assert told.needs_norms
    with pytest.raises(InputError, match="none was measured"):
        told(profiles, first)
    with pytest.raises(InputError, match="give exactly one of `alpha` and `calibration`"):
        FullInformation(budget=12.0)


def test_a_posted_price_has_floors_and_a_largest_weight() -> None:
    pricing = PostedPrice(budget=12.0, alpha=1.0, level_cap=0.25, max_weight=2.0)
    profiles = [profile("alice", 100, 1.0), profile("bob", 200, 1.0), profile("carol", 700, 1.0)]
    priced = pricing(profiles, FIRST)
    assert [floor / LEVEL_ONE for floor in priced.floors] == pytest.approx([0.05, 0.1, 0.35])
    assert [own.cap / LEVEL_ONE for own in priced.tariffs] == pytest.approx([0.25, 0.25, 0.35])
    assert paid(priced) == [1_200_000, 2_400_000, 8_400_000]
    assert priced.max_weight == 2.0
    with pytest.raises(InputError, match="`max_weight` must be above 0; got 0"):
        PostedPrice(budget=1.0, alpha=1.0, max_weight=0.0)
    with pytest.raises(InputError, match="no client has samples"):
        pricing.warm_up([profile("alice", 0)], FIRST, 0.5)


def test_a_norm_cap_does_not_shut_a_client_out_for_good() -> None:
    """What was refused for its norm counts for the next cap, though not for the price."""
    pricing = PostedPrice(budget=12.0, alpha=1.0)
    profiles = [profile("alice", 100), profile("bob", 200)]
    norms, tried = {"alice": 1.0, "bob": 1.0}, {"alice": 2.0, "bob": 1.0}
    period = Period(2, rounds=10, run_rounds=20, done=10, norms=norms, tried=tried)
    priced = pricing(profiles, period)
    proposals = proposals_of(profiles, priced, period, None, 1e6)
    assert [own.norm_cap for own in proposals.values()] == [4.0, 2.0]
    assert priced.impacts[0] == pytest.approx(priced.impacts[1] / 4)  # by samples alone


@pytest.mark.parametrize("warm_up", [False, True])
def test_full_information_has_floors_and_a_largest_weight(warm_up: bool) -> None:
    pricing = FullInformation(budget=4.0, alpha=1.0, max_weight=2.0)
    profiles = [profile("alice", 100, 1.0), profile("bob", 900, 1.0)]
    priced = pricing.warm_up(profiles, FIRST, 0.4) if warm_up else pricing(profiles, FIRST)
    assert [floor / LEVEL_ONE for floor in priced.floors] == pytest.approx([0.05, 0.45])
    assert all(f <= own.cap for f, own in zip(priced.floors, priced.tariffs, strict=True))
    assert priced.max_weight == 2.0


def test_without_a_largest_weight_the_least_level_is_one_round() -> None:
    pricing = FullInformation(budget=4.0, alpha=1.0, max_weight=float("inf"))
    assert (
        pricing([profile("alice", 100, 1.0), profile("bob", 9, 1.0)], FIRST).floors
        == [one_round(FIRST.run_rounds)] * 2
    )


def test_twice_the_gradient_norm_earns_nothing_once_norms_are_measured() -> None:
    """A share of 2^{4/3} = 2.5 in every period; now in the first, before anything is measured."""
    pricing = FullInformation(budget=4.0, alpha=1.0)
    names = ("alice", "bob", "carol", "dave", "erin")
    honest = [profile(name, 100, 2.0) for name in names]
    lying = [profile("alice", 100, 4.0), *honest[1:]]
    assert paid(pricing(lying, FIRST))[0] > 1.9 * paid(pricing(honest, FIRST))[0]
    measured = Period(2, 20, 40, done=20, norms=dict.fromkeys(names, 0.3))
    assert pricing(lying, measured) == pricing(honest, measured)


def test_measured_norms_keep_the_scale_of_the_declared_ones() -> None:
    """α goes with declared norms: the median client is priced as it declared."""
    pricing = FullInformation(budget=4.0, alpha=1.0)
    norms = {"alice": 0.1, "bob": 0.2, "carol": 0.3}
    declared = [profile(name, 100, 10 * norm) for name, norm in norms.items()]
    later = Period(2, rounds=20, run_rounds=40, done=20, norms=norms)
    expected = Period(2, rounds=20, run_rounds=40, done=20)
    found, before = pricing(declared, later), pricing(declared, expected)
    assert found.impacts == pytest.approx(before.impacts)
    for norm, counted in ((5.0, 2.0), (0.5, 0.5)):  # who is new counts as the median at most
        newcomer = pricing([*declared, profile("dave", 100, norm)], later)
        assert newcomer.impacts[3] == pytest.approx(newcomer.impacts[0] * counted**2)


def test_a_calibration_prices_with_the_norms_that_it_was_made_for() -> None:
    """Norms of updates, with their α, were used whatever the calibration said."""
    updates = Fit(3.0, 2.0, 4.0, 0.0, np.array([1.0, 2.0, 3.0]))
    gradients = Fit(5.0, 4.0, 6.0, 0.0, np.array([7.0, 1.0, 1.0]))
    ids, samples = ("a", "b", "c"), np.array([10, 10, 20])
    measured = Calibration(
        "test", ids, samples, "0" * 64, "memory", "plain", gradients, updates, None,
        np.array([1]), np.ones((2, 1)), norms="gradients",
    )  # fmt: skip
    profiles = [profile(name, size) for name, size in zip(ids, samples.tolist(), strict=True)]
    later = Period(2, 10, 20, done=10, norms={"a": 0.5})
    share = samples / samples.sum()

    def impacts(calibration: Calibration, period: Period) -> list[float]:
        return FullInformation(budget=4.0, calibration=calibration)(profiles, period).impacts

    of_gradients = (5.0 * (share * gradients.norm) ** 2 / 20).tolist()
    assert impacts(measured, FIRST) == pytest.approx(of_gradients)
    assert impacts(measured, later) == pytest.approx(
        of_gradients
    )  # what joins show is another kind
    other = measured.with_impact("updates")
    norms = updates.norm.copy()
    assert impacts(other, FIRST) == pytest.approx((3.0 * (share * norms) ** 2 / 20).tolist())
    norms[0] = 0.5
    assert impacts(other, later) == pytest.approx((3.0 * (share * norms) ** 2 / 20).tolist())
