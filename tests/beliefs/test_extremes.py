"""Posted prices where numbers are extreme: fees, wide costs, τ near 1, many caps, odd budgets."""

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import fedprice as fp
from fedprice._plumbing.arrays import FloatArray
from fedprice.beliefs import block_tariffs
from fedprice.beliefs.best_levels import levels_at
from fedprice.beliefs.evidence import Evidence
from fedprice.beliefs.families import Family, Population
from fedprice.beliefs.hulls import buy
from fedprice.beliefs.posting import _Asked, _Prices
from fedprice.beliefs.price_search import MOST_CELLS, Search
from fedprice.game import best_level, price_at
from fedprice.tariff import Tariffs

BOUND = fp.Bound(alpha=3.3, rounds=1000)


def least_lagrangian(posted: fp.Posted, points: int = 4000) -> float:
    """Return Σ min_P (A + μ C) − μ B over many prices: no certificate may lie above it."""
    types, own = posted.beliefs.groups(posted.clients)
    total = -posted.multiplier * posted.planned
    for n, k in enumerate(posted.impact):
        one, cap = types[own[n]], posted.clients.level_max[n]
        tau = posted.cost_exponent
        scale = np.abs(tau * one.cost * cap ** (tau - 1) - one.value * k / cap**2).max()
        around = np.geomspace(1e-10, 0.5, 200)
        near = posted.prices[n] * (1 + np.concatenate([-around, around]))
        far = np.geomspace(1e-10, 1e6, points) * scale
        price = np.concatenate([-far, far[far <= scale], near])[:, None]
        level = best_level(price, one.cost, one.value * k, tau, cap)
        with np.errstate(divide="ignore"):
            value = (k / level + posted.multiplier * price * level) @ one.weight
        total += float(value.min())
    return total


def spend(posted: fp.Posted) -> FloatArray:
    """Return the expected payment of each client at the posted prices, one by one, shape (N,)."""
    types, own = posted.beliefs.groups(posted.clients)
    found = np.zeros(len(posted.clients))
    for n, k in enumerate(posted.impact):
        one, price = types[own[n]], posted.prices[n]
        cap = posted.clients.level_max[n]
        level = best_level(price, one.cost, one.value * k, posted.cost_exponent, cap)
        found[n] = price * (level @ one.weight)
    return found


@pytest.mark.parametrize("tau", [1.1, 2.0, 6.0])
def test_one_type_is_certified_at_its_own_price_not_at_the_grid(tau: float) -> None:
    """The best price of a single type lies between grid prices, where the Lagrangian is lower."""
    rng = np.random.default_rng(1)
    for _ in range(5):
        clients = fp.Clients(samples=[1, 4, 9], grad_norm=rng.uniform(0.1, 3, 3))
        beliefs = fp.Beliefs(cost=rng.exponential(50), value=rng.exponential(40))
        posted = fp.post(clients, beliefs, bound=BOUND, budget=0.7, cost_exponent=tau)
        assert posted.certificate.dual <= least_lagrangian(posted) * (1 + 1e-12)
        assert posted.certificate.gap < 1e-5


def test_points_on_one_line_are_bought_in_their_order() -> None:
    """Far fees lie on a line, C ∝ −√|P| and A ∝ √|P|, on which rounding decides about slopes."""
    price = -np.geomspace(1e12, 1e-3, 200)
    paid, lost = -0.3 * np.sqrt(-price), 0.7 * np.sqrt(-price)
    for budget in -np.geomspace(1e5, 1, 30):
        found = buy(paid[None], lost[None], float(budget))
        assert found is not None
        assert found.to > found.chosen[0]
        ends = paid[found.chosen[0]], paid[found.to]
        spent = (1 - found.share) * ends[0] + found.share * ends[1]
        assert spent == pytest.approx(budget, rel=1e-9)


def test_a_negative_budget_is_met_by_fees_far_below_the_first_grid() -> None:
    """Fees have no limit: clients that value the model can always be charged enough."""
    clients = fp.Clients(samples=[1, 1, 2], grad_norm=1.0)
    beliefs = fp.Beliefs.by_client(
        {
            "1": fp.Beliefs(cost=46, value=0),
            "2": fp.Beliefs(cost=[107, 20], value=[16, 30]),
            "3": fp.Beliefs(cost=50, value=40),
        }
    )
    for budget in (-0.5, -5.0, -500.0):
        posted = fp.post(clients, beliefs, bound=BOUND, budget=budget)
        assert posted.expected_spend == pytest.approx(budget, rel=1e-9)
        assert posted.prices[0] > 0
        assert posted.certificate.dual <= least_lagrangian(posted)


@pytest.mark.parametrize("budget", [1e-9, 1e-16])
def test_a_tiny_budget_is_met_by_tiny_prices(budget: float) -> None:
    clients = fp.Clients(samples=[1, 1], grad_norm=[1, 10.0])
    posted = fp.post(clients, fp.Beliefs(cost=[1e-6, 1e6], value=0), bound=BOUND, budget=budget)
    assert posted.expected_spend == pytest.approx(budget, rel=1e-9)
    assert posted.certificate.gap < 1e-4


def test_indifferent_and_keen_types_in_one_class_have_a_certificate() -> None:
    """The tails of both, infinite with opposite signs, must not meet."""
    clients = fp.Clients(samples=[1, 1, 1], grad_norm=[1, 10.0, 3.0])
    beliefs = fp.Beliefs.by_client(
        {
            "1": fp.Beliefs(cost=10, value=0),
            "2": fp.Beliefs(cost=10, value=4e6),
            "3": fp.Beliefs(cost=[10, 10, 20], value=[0, 4e6, 10]),
        }
    )
    for classes in (None, 1, 2):
        posted = fp.post(clients, beliefs, bound=BOUND, budget=5, classes=classes)
        assert 0 <= posted.certificate.gap < 1e-4


def test_robust_prices_of_payers_are_certified() -> None:
    """Fees at a lower impact rise more slowly: the best one may lie above every type's own."""
    for value in (2e3, 2e4, 2e5):
        clients = fp.Clients(samples=[1, 1], grad_norm=1.0, cost=[10, 5000], value=[value, 10])
        beliefs = fp.Beliefs.known(clients)
        posted = fp.post(clients, beliefs, bound=BOUND, budget=1, alpha_interval=(1.0, 10.0))
        high, low = (replace(BOUND, alpha=a).impact(clients) for a in (10.0, 1.0))
        total = -posted.multiplier
        for n in range(2):
            price = np.concatenate([-np.geomspace(1e6, 1e-6, 9000), np.geomspace(1e-6, 1e5, 9000)])
            c, v = clients.cost[n], clients.value[n]
            lost = high[n] / best_level(price, c, v * high[n], 2.0)
            counted = np.where(price < 0, low[n], high[n])
            paid = price * best_level(price, c, v * counted, 2.0)
            total += float((lost + posted.multiplier * paid).min())
        assert posted.certificate.dual <= total
        assert posted.certificate.gap < 1e-4


@pytest.mark.parametrize("tau", [1.0001, 1.001, 1.01, 1.05, 1.1])
def test_answers_near_linear_costs_do_not_overflow(tau: float) -> None:
    rng = np.random.default_rng(2)
    price = rng.choice([-1.0, 1.0], (4, 200, 1)) * 10 ** rng.uniform(-6, 6, (4, 200, 1))
    cost, wants = 10 ** rng.uniform(-6, 6, 32), 10 ** rng.uniform(-8, 4, (4, 1, 32))
    caps = np.ones((4, 1, 1))
    found = levels_at(price, cost, wants, tau, caps)
    np.testing.assert_allclose(found, best_level(price, cost, wants, tau, caps), rtol=1e-12)


def test_many_clients_with_several_caps_are_priced_at_their_own() -> None:
    rng = np.random.default_rng(3)
    clients = fp.Clients(
        samples=rng.integers(1, 100, 2500),
        grad_norm=rng.uniform(1, 10, 2500),
        level_max=np.where(np.arange(2500) < 1500, 1.0, rng.choice([0.2, 0.4, 0.6], 2500)),
    )
    beliefs = fp.Beliefs.exponential(cost=50, value=4000, cells=6)
    posted = fp.post(clients, beliefs, bound=BOUND, budget=300)
    assert spend(posted).sum() == pytest.approx(300, rel=1e-3)
    np.testing.assert_allclose(posted.moments.spend[1500:], spend(posted)[1500:], rtol=1e-9)
    assert 0 <= posted.certificate.gap < 1e-3


def test_many_clients_whose_impacts_differ_by_rounding_only() -> None:
    norm = np.full(2000, 0.3)
    norm[::2] = 0.1 * 3
    clients = fp.Clients(samples=np.ones(2000), grad_norm=norm)
    assert np.unique(BOUND.impact(clients)).size == 2
    beliefs = fp.Beliefs.exponential(cost=50, value=4000, cells=6)
    posted = fp.post(clients, beliefs, bound=BOUND, budget=300)
    assert spend(posted).sum() == pytest.approx(300, rel=1e-9)
    assert posted.certificate.gap < 1e-5


SIX = fp.population(6)
PRIOR = fp.Beliefs.exponential(cost=50, value=4000, cells=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 4}, "`blocks` requires form 'blocks'; got form 'price'"),
        ({"form": "tariff", "blocks": 4}, "`blocks` requires form 'blocks'; got form 'tariff'"),
        ({"form": "blocks", "blocks": "4"}, "`blocks` must be a number"),
        (
            {"form": "blocks", "blocks": 2.5},
            "`blocks` must be a whole number from 1 to 48; got 2.5",
        ),
        ({"form": None}, "there is no form None"),
        ({"classes": 2.5}, "`classes` must be a whole number from 1 to 6, the number of clients"),
        ({"classes": "3"}, "`classes` must be a number"),
        ({"risk": "0.1"}, "`risk` must be a number"),
        ({"alpha_interval": 3}, "`alpha_interval` must be (low, high); got 3"),
        ({"alpha_interval": (0, 5)}, "(low, high), above 0, and hold the bound's 3.3; got (0, 5)"),
    ],
)
def test_odd_arguments_are_refused_in_one_line(options: dict[str, object], message: str) -> None:
    with pytest.raises(fp.InputError) as caught:
        fp.post(SIX, PRIOR, **{"bound": BOUND, "budget": 30} | options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_posting_in_turn_promises_no_income() -> None:
    """What clients pay is known only when all have answered."""
    rich = fp.Beliefs.exponential(cost=50, value=40_000, cells=4)
    posted = fp.post(SIX, rich, bound=BOUND, budget=-50)
    with pytest.raises(fp.InputError, match="cannot keep a budget below 0"):
        posted.sequential()


def test_evidence_is_about_the_clients_that_were_posted_to() -> None:
    posted = fp.post(SIX, PRIOR, bound=BOUND, budget=30)
    seen = Evidence.none(SIX, PRIOR)
    with pytest.raises(fp.InputError, match="about the same clients"):
        Evidence.none(fp.population(3), PRIOR).coins(posted, heads=1, rounds=2)
    with pytest.raises(fp.InputError, match="`heads` must be numbers"):
        seen.coins(posted, heads="a", rounds=2)
    with pytest.raises(fp.InputError, match="`prior_clients` must be above 0; got 0"):
        seen.beliefs(prior_clients=0)


def test_answers_to_a_menu_speak_of_costs_only() -> None:
    """A menu is made for known values: its rows tell costs, whatever values the beliefs have."""
    beliefs = [fp.Beliefs(cost=[20, 50, 120], value=v) for v in (1.0, 90_000.0)]
    found = []
    for prior in beliefs:
        posted = fp.post(SIX, prior, bound=BOUND, budget=30, form="menu")
        levels = posted.answer(cost=50, value=SIX.value).levels
        seen = Evidence.none(SIX, prior).answers(posted, levels, error=0.01)
        found.append(seen.beliefs(own=True).types["1"])
    assert found[0].means[0] == pytest.approx(found[1].means[0]) == pytest.approx(50, rel=1e-3)


def test_a_risk_is_kept_where_the_deviation_jumps_with_the_budget() -> None:
    """With a few types there may be no budget that is its own quantile; then it is a lower one."""
    rng = np.random.default_rng(6)
    for seed in range(12):
        clients = fp.population(3, seed=seed)
        beliefs = fp.Beliefs(cost=[5, 400, 20], value=0, weight=[0.1, 0.8, 0.1])
        risk = float(rng.uniform(0.05, 0.45))
        budget = float(rng.uniform(1, 200))
        posted = fp.post(clients, beliefs, bound=BOUND, budget=budget, risk=risk)
        assert posted.over_budget <= risk * 1.001


@pytest.mark.slow
def test_tariffs_that_improve_beyond_the_budget_are_found_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []
    whole = block_tariffs._improved

    def counted(*given: Any) -> Tariffs:
        tried.append(given)
        return whole(*given)

    monkeypatch.setattr(block_tariffs, "_improved", counted)
    clients = fp.Clients(samples=[7, 26, 25], grad_norm=[0.145, 1.64, 4.016], level_max=[1, 0.4, 1])
    beliefs = fp.Beliefs.by_client(
        {
            "1": fp.Beliefs(cost=[147, 0.9, 4, 1, 17, 42], value=0),
            "2": fp.Beliefs(cost=[11.6, 491, 120, 63, 165, 43], value=0),
            "3": fp.Beliefs(cost=[510, 482, 1.6, 155, 5.4, 1931], value=0),
        }
    )
    for budget in (20, 80, 160):
        tried.clear()
        posted = fp.post(
            clients, beliefs, bound=BOUND, budget=budget, form="tariff", cost_exponent=3
        )
        assert posted.expected_spend <= budget
        assert len(tried) <= block_tariffs.ATTEMPTS


def test_clients_that_would_pay_almost_any_fee_are_charged_it() -> None:
    """All types of the second client have v ≥ t at first: its best fee is far below the grid."""
    clients = fp.Clients(samples=[30, 8], grad_norm=[1.0, 1.0])
    beliefs = fp.Beliefs.by_client(
        {
            "1": fp.Beliefs(
                cost=[9.9e6, 24, 2216], value=[0, 7543, 7512], weight=[1e-5, 0.5, 0.49999]
            ),
            "2": fp.Beliefs(cost=[0.005, 0.26, 78, 1e-4], value=[3.4e5, 1.2e5, 1.1e5, 5.8e4]),
        }
    )
    for budget in (1.0, 3000.0):
        with np.errstate(all="raise", under="ignore"):
            posted = fp.post(clients, beliefs, bound=BOUND, budget=budget, cost_exponent=1.5)
        assert posted.certificate.dual <= least_lagrangian(posted) + 1e-12
        # The certificate is weak so far out, where loss and fees nearly cancel; the prices are not.
        assert posted.certificate.primal <= 1.005 * least_lagrangian(posted)


def loss_of_the_best_lottery(pricing: _Prices, spend: float) -> float:
    """Return the loss if the one price in between were drawn from the two beside it."""
    best, family = pricing.search.post(spend), pricing.search.family
    loss = float(family.at(best.price[:, None])[1].sum())
    if best.row >= 0:
        here, there = family.row_at(best.row, np.array([best.price[best.row], best.other]))[1]
        loss += best.share * float(there - here)
    return loss


FEES: dict[str, tuple[list[float], list[float], list[float], dict[str, float]]] = {
    # costs, values, probabilities and options: the gap was 0.7, 0.17, 96, 0.4 and 4.
    "a lottery over far fees": (
        [0.27, 117, 0.026, 1.55], [283, 1278, 5.04, 76567], [0.25, 0.28, 0.34, 0.13],
        {"alpha": 0.078, "budget": -1000, "tau": 3, "cap": 0.01},
    ),
    "income from one client": (
        [185, 0.102, 0.123], [667, 310, 124], [0.04, 0.25, 0.71],
        {"alpha": 3.155, "budget": -1000, "tau": 1.5, "cap": 0.5},
    ),
    "next to no budget": (
        [6.94, 0.272, 5.92], [4575, 382521, 29.9], [0.3, 0.59, 0.11],
        {"alpha": 0.644, "budget": 1e-6, "tau": 3, "cap": 1},
    ),
    "costs in millions": (
        [1.877e6, 715], [21849, 2.99], [0.66, 0.34],
        {"alpha": 58.7, "budget": 1e-6, "tau": 3, "cap": 1},
    ),
    "values from 2 to 16,000": (
        [0.451, 0.0626, 886, 0.193], [1085, 9653, 16370, 2.05], [0.17, 0.42, 0.18, 0.23],
        {"alpha": 0.055, "budget": 1e-6, "tau": 3, "cap": 0.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FEES)
def test_weak_certificates_of_large_fees(case: str) -> None:
    """Values that differ by orders of magnitude: fees far below the first grid, and their bound."""
    cost, value, weight, own = FEES[case]
    clients = fp.Clients(samples=[500, 90, 300], grad_norm=[4, 9, 0.5], level_max=own["cap"])
    beliefs = fp.Beliefs(cost=cost, value=value, weight=weight)
    bound, budget = fp.Bound(alpha=own["alpha"], rounds=1000), own["budget"]
    asked = _Asked(clients, beliefs, bound, budget, own["tau"], *beliefs.groups(clients))
    with np.errstate(all="ignore"):
        pricing = _Prices(asked)
        posted = pricing.post()
        drawn = loss_of_the_best_lottery(pricing, budget)
    # The bound is close to the best lottery; the one price in between may be far from it.
    assert drawn - posted.certificate.dual < 5e-4 * drawn
    # No mixture of many prices is better than the bound: the linear program over them.
    losses, spends, whose = [], [], []
    one = beliefs.types[""]
    for n, k in enumerate(posted.impact):
        top = np.abs(price_at(np.array(own["cap"]), one.cost, one.value * k, own["tau"])).max()
        fees, around = top * np.geomspace(1e-9, 1e6, 600), posted.prices[n] * np.linspace(0.9, 1.1)
        prices = np.concatenate([-fees, top * np.geomspace(1e-9, 1, 300), around])
        levels = best_level(prices[:, None], one.cost, one.value * k, own["tau"], own["cap"])
        losses.append((k / levels) @ one.weight)
        spends.append((prices[:, None] * levels) @ one.weight)
        whose.append(np.full(prices.size, n))
    loss, spend, who = map(np.concatenate, (losses, spends, whose))
    scale = posted.certificate.primal
    best = linprog(
        loss / scale, spend[None], [own["budget"]],
        (who == np.arange(len(clients))[:, None]).astype(float), np.ones(len(clients)),
    )  # fmt: skip
    assert best.status == 0
    assert posted.certificate.dual <= best.fun * scale * (1 + 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 5])
def test_a_valley_between_two_points_of_the_grid_is_missed(seed: int) -> None:
    """Costs 2 and 200: the best price of one client lay between 3 and a bump at 4, both on grid."""
    costs = fp.Beliefs(cost=[2, 200], value=0, weight=[0.9, 0.1])
    clients = fp.population(40, seed=seed)
    pricing = _Prices(_Asked(clients, costs, BOUND, 200, 2, *costs.groups(clients)))
    dual = pricing.post(risk=0.05).certificate.dual
    drawn = loss_of_the_best_lottery(pricing, pricing.best(0.05)[1])
    assert drawn - dual < 1e-5 * drawn


def test_levels_that_underflow_close_to_linear_costs_raise_warnings() -> None:
    """Warnings are errors in tests."""
    clients = fp.Clients(samples=[900, 30], grad_norm=[20, 0.3])
    how: dict[str, Any] = {"bound": BOUND, "cost_exponent": 1.01}
    sure = fp.Beliefs(cost=7e6, value=0)
    assert fp.post(clients, sure, budget=200, **how).expected_spend == pytest.approx(200)
    # Who has the cost 40 joins fully, and is paid, long before the level of 1e6 is above 1e-300.
    mixed = fp.Beliefs(cost=[1e6, 3e5, 40], value=[0, 9e5, 0])
    with pytest.raises(fp.InputError, match=r"the least that they can cost is about \d{3}"):
        fp.post(clients, mixed, budget=1, **how)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["price", "blocks", "tariff", "menu"])
def test_beliefs_that_floats_cannot_bring_together_are_wrong_or_a_traceback(form: str) -> None:
    """A spend of 3e7 was posted for a budget of -3, with a bound above the loss; or IndexError."""
    for cost, value, budget in (
        ([1e14, 4e-29, 6e-36, 900, 1e-21], [1e-23, 1e-47, 8e4, 1e24, 200], -3.0),
        ([1.5e16, 0.04, 2e11, 1e57, 3e-121], [1e142, 2e126, 2e-77, 1e98, 1e-91], 5.0),
        ([5e40, 4e52], [2e-22, 9e-18], 200.0),
        ([1e-300, 1e150], [0, 4000], 200.0),
    ):
        beliefs = fp.Beliefs(cost=cost, value=value)
        with contextlib.suppress(fp.InputError):  # refused in one line
            posted = fp.post(SIX, beliefs, bound=BOUND, budget=budget, form=form)
            scale = abs(budget) + float(np.abs(posted.moments.spend).sum()) + posted.spend_std
            assert posted.expected_spend <= budget + 1e-4 * scale
            assert posted.certificate.dual <= posted.certificate.primal * (1 + 1e-4)


def test_one_row_whose_best_price_the_grid_missed_takes_all_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its bound can never be good enough; a million clients took 40 s instead of 5 for that."""
    impact, zero = np.geomspace(1e-5, 1e-3, 300), np.zeros(300, np.int64)
    types = [fp.Beliefs.exponential(cost=50, value=4000, cells=8).types[""]]
    population = Population.of(impact, impact, np.ones(300), types, zero, 2.0)
    search = Search(population.family())
    found = search.post(1000.0)
    search.loss[7] *= 1.01
    counted, lowest = [], Family.lowest

    def counting(own: Family, left: FloatArray, *rest: Any) -> Any:
        counted.append(left.size)
        return lowest(own, left, *rest)

    monkeypatch.setattr(Family, "lowest", counting)
    assert search.dual(found.multiplier, 1000.0) > 0
    assert sum(counted) < 300 * 40 + 3 * 16 * MOST_CELLS
