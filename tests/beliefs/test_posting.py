"""Posted prices: optimal, certified, truthful, and what was promised is kept."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import optimize

import fedprice as fp
from fedprice._plumbing.arrays import FloatArray
from fedprice.beliefs import families
from fedprice.beliefs.display import floor_facts
from fedprice.beliefs.expectations import expected
from fedprice.beliefs.families import Population
from fedprice.beliefs.price_search import NoPriceError, Search
from fedprice.game import best_level
from fedprice.pricing.display import number

BOUND = fp.Bound(alpha=3.3, rounds=1000)
FORTY = fp.population()
PRIOR = fp.Beliefs.exponential(cost=50, value=4000)


@pytest.fixture(scope="module")
def posted() -> fp.Posted:
    return fp.post(FORTY, PRIOR, bound=BOUND, budget=200)


def test_forty_clients_are_certified(posted: fp.Posted) -> None:
    assert posted.certificate.gap <= 1e-5
    assert posted.certificate.dual <= posted.certificate.primal
    assert posted.expected_spend == pytest.approx(200, abs=1e-9)
    assert posted.spend_std == pytest.approx(26.7, abs=0.1)
    assert posted.over_budget == pytest.approx(0.5, abs=0.01)  # the median is near the mean
    assert posted.prices.min() > 0  # under the exponential prior nobody is charged
    assert not posted.missed.any()


def test_value_of_information_on_forty_clients(posted: fp.Posted) -> None:
    """About 1.52 of the full-information loss, 200 draws; a fixed seed."""
    known = posted.value_of_information(200)
    assert known.low < 1.52 < known.high
    assert 1.45 < known.ratio < 1.6
    one = fp.post(FORTY, PRIOR, bound=BOUND, budget=200, classes=1)
    assert 1.68 < one.value_of_information(200).ratio < 1.9


def test_with_certainty_the_prices_are_the_equilibrium() -> None:
    best = fp.solve(fp.Game(FORTY, bound=BOUND, budget=200))
    known = fp.post(FORTY, fp.Beliefs.known(FORTY), bound=BOUND, budget=200)
    assert known.expected_loss == pytest.approx(best.expected_loss, rel=1e-9)
    np.testing.assert_allclose(known.prices, best.prices, atol=1e-3)
    assert (known.prices < 0).sum() == best.payers == 3


@pytest.mark.parametrize("scale", [1, 100])
def test_a_client_without_value_does_not_keep_others_from_paying(scale: float) -> None:
    """With the larger values, two clients pay although they are at the cap."""
    clients = fp.Clients(
        samples=[120, 900, 60], grad_norm=[1.2, 0.8, 2.0], cost=[40, 55, 20],
        value=[0, 4000 * scale, 9000 * scale],
    )  # fmt: skip
    best = fp.solve(fp.Game(clients, bound=BOUND, budget=20))
    known = fp.post(clients, fp.Beliefs.known(clients), bound=BOUND, budget=20)
    assert best.payers
    assert known.expected_loss == pytest.approx(best.expected_loss, rel=1e-7)
    assert known.certificate.dual == pytest.approx(best.certificate.dual, rel=1e-6)


def test_both_ends_of_a_gap_in_the_hull_are_found() -> None:
    """The first grid has 2.25, 3 and 4; the gap is between 2.69 and 3.61, with a kink at 3."""
    types = fp.Beliefs(cost=[2, 200], value=0, weight=[0.9, 0.1]).types[""]
    impact = BOUND.impact(fp.population(5))
    population = Population.of(impact, impact, np.ones(5), [types], np.zeros(5, np.int64), 1.5)
    found = Search(population.family()).post(10)
    assert found.other / found.price[found.row] > 1.3


@pytest.mark.parametrize("tau", [1.5, 2.0, 3.0])
def test_without_values_and_caps_there_is_an_effective_cost(tau: float) -> None:
    """c_eff = (1/τ) E[(τc)^{−1/(τ−1)}] E[(τc)^{1/(τ−1)}]^τ."""
    rng = np.random.default_rng(1)
    cost = rng.uniform(20, 80, 50)
    p = 1 / (tau - 1)
    effective = np.mean((tau * cost) ** -p) * np.mean((tau * cost) ** p) ** tau / tau
    clients = fp.Clients(samples=[3, 1, 2], grad_norm=1.0)
    posted = fp.post(
        clients, fp.Beliefs(cost=cost, value=0), bound=BOUND, budget=0.5, cost_exponent=tau
    )
    known = replace(clients, cost=np.full(3, effective), value=np.zeros(3))
    best = fp.solve(fp.Game(known, bound=BOUND, budget=0.5, cost_exponent=tau))
    assert posted.expected_loss == pytest.approx(best.expected_loss, rel=1e-6)


def test_the_certificate_says_what_a_lottery_would_win() -> None:
    """Costs 1 (90 %) or 100 (10 %) at τ = 2: a lottery would win up to 1.8 % for one client."""
    clients = fp.Clients(samples=[1], grad_norm=30.0)
    beliefs = fp.Beliefs(cost=[1, 100], value=0, weight=[0.9, 0.1])
    gains = []
    for budget in np.linspace(1.2, 3, 19):
        posted = fp.post(clients, beliefs, bound=BOUND, budget=float(budget))
        gains.append(posted.certificate.gap)
    assert max(gains) == pytest.approx(0.018, abs=0.012)


def test_no_mixture_of_prices_beats_the_certificate() -> None:
    """Two clients, three types each: the linear program over lotteries on 2,000 prices."""
    rng = np.random.default_rng(2)
    for tau in (1.5, 2.0, 3.0):
        clients = fp.Clients(samples=[1, 2], grad_norm=[2.0, 1.0], level_max=[1.0, 0.6])
        beliefs = fp.Beliefs(cost=rng.exponential(50, 3), value=rng.exponential(4000, 3))
        posted = fp.post(clients, beliefs, bound=BOUND, budget=20, cost_exponent=tau)
        impact, types = BOUND.impact(clients), beliefs.types[""]
        prices = np.concatenate([-np.geomspace(1e3, 1e-2, 500), np.geomspace(1e-2, 1e3, 1500)])
        spend, loss = [], []
        for n in range(2):
            levels = fp.game.best_level(
                prices[:, None], types.cost, types.value * impact[n], tau, clients.level_max[n]
            )
            loss.append((impact[n] / levels) @ types.weight)
            spend.append((prices[:, None] * levels) @ types.weight)
        one = np.kron(np.eye(2), np.ones(prices.size))
        program = optimize.linprog(
            np.concatenate(loss),
            A_ub=np.concatenate(spend)[None],
            b_ub=[20],
            A_eq=one,
            b_eq=[1, 1],
        )
        assert posted.certificate.dual <= program.fun * (1 + 1e-9)
        assert posted.certificate.primal <= program.fun * (1 + 1e-9)
        assert posted.certificate.gap < 1e-5


def test_nobody_gains_by_acting_as_another_type(posted: fp.Posted) -> None:
    rng = np.random.default_rng(3)
    cost, value = rng.exponential(50, 40), rng.exponential(4000, 40)
    impact = posted.impact
    honest = posted.tariffs.best_levels(cost, value * impact, 2.0)

    def utility(levels: FloatArray) -> FloatArray:
        paid = posted.tariffs.payments(levels)
        found: FloatArray = paid - cost * levels**2 - value * impact / levels
        return found

    for _ in range(200):
        other = posted.tariffs.best_levels(
            cost * rng.lognormal(0, 1, 40), value * impact * rng.lognormal(0, 1, 40), 2.0
        )
        assert (utility(other) - utility(honest)).max() <= 1e-9


def test_a_risk_is_kept() -> None:
    """P(spend > budget) at most 5 %: 1,000 draws, 53 of them above it with this seed."""
    posted = fp.post(FORTY, PRIOR, bound=BOUND, budget=200, risk=0.05)
    assert posted.over_budget == pytest.approx(0.05, abs=2e-4)
    assert posted.over_budget <= 0.05
    known = posted.value_of_information(1000)
    assert 0.03 < known.over < 0.07
    assert posted.planned < 200


def test_posted_in_turn_the_budget_is_never_exceeded(posted: fp.Posted) -> None:
    known = posted.sequential().information(60)
    assert known.over == 0
    assert known.spend > 190
    assert known.ratio < 1.05 * posted.value_of_information(60).ratio


def test_in_turn_nobody_moves_its_own_price(posted: fp.Posted) -> None:
    turn = posted.sequential()
    rng = np.random.default_rng(4)
    cost, value = rng.exponential(50, 40), rng.exponential(4000, 40)
    before = turn.answer(cost=cost, value=value).prices
    n = int(turn.order[5])
    lied = cost.copy()
    lied[n] *= 3
    after = turn.answer(cost=lied, value=value).prices
    earlier = turn.order[:6]
    np.testing.assert_array_equal(before[earlier], after[earlier])
    assert (before != after).any()


def test_interpolated_clients_are_those_priced_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(families, "MANY", 200)
    monkeypatch.setattr(families, "NODES", 128)
    clients = fp.population(300)
    beliefs = fp.Beliefs.exponential(cost=50, value=4000, cells=8)
    nodes = fp.post(clients, beliefs, bound=BOUND, budget=1500)
    classes = fp.post(clients, beliefs, bound=BOUND, budget=1500, classes=3)
    monkeypatch.setattr(families, "MANY", 10_000)
    exact = fp.post(clients, beliefs, bound=BOUND, budget=1500)
    assert exact.certificate.gap < 1e-5
    assert nodes.certificate.gap < 2e-3
    assert nodes.certificate.dual <= exact.certificate.primal
    assert nodes.expected_loss == pytest.approx(exact.expected_loss, rel=1e-4)
    assert nodes.expected_spend == pytest.approx(1500, rel=1e-6)
    types, own = beliefs.groups(clients)
    impact = BOUND.impact(clients)
    alone = Population.of(impact, impact, clients.level_max, types, own, 2.0)
    for some in (nodes, classes):
        true = alone.moments(some.prices)
        np.testing.assert_allclose(some.moments.loss, true.loss, rtol=2e-3)
        assert some.moments.spend.sum() == pytest.approx(true.spend.sum(), rel=5e-4)
    assert np.unique(classes.prices).size == 3


@pytest.mark.slow
def test_classes_cost_little() -> None:
    losses = [
        fp.post(FORTY, PRIOR, bound=BOUND, budget=200, classes=k).expected_loss for k in (1, 2, 4)
    ]
    own = fp.post(FORTY, PRIOR, bound=BOUND, budget=200).expected_loss
    assert losses == sorted(losses, reverse=True)
    assert losses[2] < 1.02 * own
    four = fp.post(FORTY, PRIOR, bound=BOUND, budget=200, classes=4)
    assert set(four.classes.tolist()) == {0, 1, 2, 3}  # type: ignore[union-attr]
    for one in range(4):
        assert np.unique(four.prices[four.classes == one]).size == 1


def test_robust_prices_hold_over_the_interval() -> None:
    rich = replace(FORTY, value=FORTY.value * 10)
    known = fp.Beliefs.known(rich)
    low, high = 3.3 / 1.5, 3.3 * 1.5
    robust = fp.post(rich, known, bound=BOUND, budget=200, alpha_interval=(low, high))
    central = fp.solve(fp.Game(rich, bound=BOUND, budget=200))
    assert robust.worst is not None
    exceeded = []
    for alpha in np.linspace(low, high, 7):
        game = fp.Game(rich, bound=replace(BOUND, alpha=float(alpha)), budget=200)
        held = fp.Outcome.from_prices(game, robust.prices, scheme="robust")
        assert held.spend <= 200 + 1e-6
        assert held.expected_loss <= robust.worst[0] * (1 + 1e-9)
        exceeded.append(fp.Outcome.from_prices(game, central.prices, scheme="c").spend > 200.1)
    assert any(exceeded)
    assert robust.expected_loss < 1.2 * central.expected_loss


def test_without_values_prices_do_not_depend_on_alpha() -> None:
    beliefs = fp.Beliefs.exponential(cost=50, value=0)
    one, two = (
        fp.post(FORTY, beliefs, bound=fp.Bound(alpha=a, rounds=1000), budget=200)
        for a in (1.0, 10.0)
    )
    np.testing.assert_allclose(one.prices, two.prices, rtol=1e-3)


def test_floors_are_reported_not_promised() -> None:
    floored = FORTY.with_max_weight(1.0)
    posted = fp.post(floored, PRIOR, bound=BOUND, budget=200)
    assert posted.missed.max() > 0
    rng = np.random.default_rng(5)
    below = np.zeros(40)
    for _ in range(400):
        cost, value = PRIOR.draw(FORTY, rng)
        outcome = posted.answer(cost=cost, value=value)
        below += outcome.levels < floored.level_min
    assert np.abs(below / 400 - posted.missed).max() < 0.13  # five standard errors


@pytest.mark.first_case
@pytest.mark.parametrize("form", ["price", "blocks", "tariff", "menu"])
def test_a_floor_that_no_posted_price_can_promise_has_no_remedy(form: str) -> None:
    clients = fp.population(5).with_max_weight(0.3)
    beliefs = fp.Beliefs.exponential(cost=50, value=0 if form == "menu" else 4000, cells=8)
    posted = fp.post(clients, beliefs, bound=BOUND, budget=20, form=form)
    worst = int(np.argmax(posted.missed))
    floor, lowest, price = posted.floor_remedies(worst)
    assert posted.missed[worst] > 0
    assert floor == clients.level_min[worst]
    # Either remedy is enough, and not more than enough.
    for level, holds in ((lowest, True), (lowest * 1.01, False)):
        lower = replace(clients, level_min=np.where(np.arange(5) == worst, level, 0.0))
        again = fp.post(lower, beliefs, bound=BOUND, budget=20, form=form)
        assert (again.missed[worst] == 0) == holds
    types = beliefs.types[""]
    value = np.full_like(types.cost, clients.value[worst]) if form == "menu" else types.value
    for offer, holds in ((price * (1 + 1e-9), True), (price * 0.999, False)):
        levels = best_level(offer, types.cost, value * posted.impact[worst], 2.0, 1.0)
        assert (levels.min() >= floor) == holds
    line = dict(floor_facts(posted))["to meet them"]
    assert f"from {floor:.3g} to {lowest:.3g} (level_min, max_weight)" in line
    assert (f"or offer it {number(price)} instead of" in line) == (form == "price")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "lump"}, "there is no form 'lump'"),
        ({"budget": float("nan")}, "`budget` must be a finite number"),
        ({"risk": 0.7}, "`risk` must be above 0 and below 0.5; got 0.7"),
        ({"classes": 41}, "`classes` must be a whole number from 1 to 40, the number"),
        ({"form": "blocks", "risk": 0.1}, "require form 'price'"),
        ({"cost_exponent": 1}, "`cost_exponent` τ must be above 1"),
        ({"alpha_interval": (4, 5)}, "and hold the bound's 3.3; got (4, 5)"),
    ],
)
def test_bad_arguments(options: dict[str, object], message: str) -> None:
    with pytest.raises(fp.InputError) as caught:
        fp.post(FORTY, PRIOR, **{"bound": BOUND, "budget": 200} | options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_types_without_value_cannot_be_charged() -> None:
    with pytest.raises(NoPriceError, match="types with value 0 join only if they are paid"):
        fp.post(FORTY, fp.Beliefs(cost=50, value=0), bound=BOUND, budget=-1)


@pytest.mark.first_case
@pytest.mark.parametrize("form", ["price", "blocks"])
def test_from_others_a_report_does_not_move_its_own_tariff(form: str) -> None:
    clients = fp.population(6)
    options = {"bound": BOUND, "budget": 30, "form": form}
    if form == "blocks":
        options["blocks"] = 2
    honest = fp.post_from_others(clients, **options)  # type: ignore[arg-type]
    for n in (0, 4):
        cost, value = clients.cost.copy(), clients.value.copy()
        cost[n], value[n] = 3 * cost[n], 0.0
        lied = fp.post_from_others(replace(clients, cost=cost, value=value), **options)  # type: ignore[arg-type]
        np.testing.assert_array_equal(honest.tariffs.prices[n], lied.tariffs.prices[n])
        np.testing.assert_array_equal(honest.tariffs.ends[n], lied.tariffs.ends[n])
        assert not np.array_equal(honest.tariffs.prices, lied.tariffs.prices)


def test_from_others_is_not_posted_in_turn() -> None:
    posted = fp.post_from_others(fp.population(4), bound=BOUND, budget=20)
    with pytest.raises(fp.InputError, match="would affect the client's own price"):
        posted.sequential()


@pytest.mark.parametrize("blocks", [2, 8])
def test_blocks_are_never_worse_than_one_price(blocks: int) -> None:
    """At τ = 6 the search for blocks alone was up to 35 % worse."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        clients = fp.Clients(samples=rng.integers(1, 9, 3), grad_norm=1.0)
        beliefs = fp.Beliefs(cost=rng.exponential(50, 5), value=rng.exponential(4000, 5))
        options = {"bound": BOUND, "budget": 20, "cost_exponent": 6.0}
        one = fp.post(clients, beliefs, **options)  # type: ignore[arg-type]
        many = fp.post(clients, beliefs, form="blocks", blocks=blocks, **options)  # type: ignore[arg-type]
        assert many.expected_loss <= one.expected_loss * (1 + 1e-9)


def test_the_fee_for_the_lowest_levels_hides_the_prices_of_a_tariff() -> None:
    """It is 0.0003 for a level of 1e-6: a marginal price of 350, beside prices up to 60."""
    posted = fp.post(FORTY, PRIOR, bound=BOUND, budget=200, form="tariff")
    low, high = posted.plot().axes[1].get_ylim()
    largest = posted.tariffs.prices[posted.tariffs.starts >= 0.01].max()
    assert low == 0
    assert largest < high < 1.2 * largest


THREE_TYPES = {"cost": [10, 30, 80], "value": [0, 2000, 500], "probability": [0.5, 0.3, 0.2]}


def scaled_yield(posted: fp.Posted, factor: float) -> tuple[float, float]:
    """Return expected loss and spend if all prices were this many times as high."""
    types, own = posted.beliefs.groups(posted.clients)
    cost, value, weight = (np.stack([types[n][i] for n in own]) for i in range(3))
    if posted.form == "menu":
        value = np.broadcast_to(posted.clients.value[:, None], cost.shape)
    tariffs = replace(posted.tariffs, prices=posted.tariffs.prices * factor)
    moments = expected(tariffs, posted.impact, cost, value, weight, posted.cost_exponent)
    return float(moments.loss.sum() - posted.impact.sum()), float(moments.spend.sum())


@pytest.mark.parametrize("form", ["tariff", "menu"])
def test_what_a_list_of_levels_promises_does_not_hang_on_ties(form: str) -> None:
    """A tariff left 1.93 of 10 unspent; its loss rose by 4 % with prices a millionth lower."""
    clients = fp.Clients(samples=[100, 300], grad_norm=[1, 2], value=0)
    beliefs = fp.Beliefs.from_frame(pl.DataFrame(THREE_TYPES))
    posted = fp.post(clients, beliefs, bound=BOUND, budget=10, form=form)
    assert posted.expected_spend == pytest.approx(10, rel=1e-5)
    for factor in (1, 1 - 1e-6, 1 - 1e-4):
        loss, spend = scaled_yield(posted, factor)
        assert loss == pytest.approx(posted.expected_loss, rel=1e-9)
        assert spend == pytest.approx(10 * factor, rel=1e-5)
    if form == "tariff":
        assert posted.expected_loss < 0.0037  # it was 0.004413


@pytest.mark.slow
def test_a_tariff_spends_the_budget_where_much_is_left_to_buy() -> None:
    """A quarter of it was left where the search around the rough choice ended."""
    clients = fp.Clients(samples=[97, 248, 251, 189], grad_norm=[0.504, 0.793, 1.013, 1.892])
    types = {"cost": [51.7, 57.6], "value": [0.0, 3000.0], "probability": [0.55, 0.45]}
    beliefs = fp.Beliefs.from_frame(pl.DataFrame(types))
    posted = fp.post(clients, beliefs, bound=BOUND, budget=53, form="tariff")
    assert posted.expected_spend == pytest.approx(53, rel=1e-5)


def test_a_price_that_beats_blocks_brings_no_certificate_for_them() -> None:
    """The bound for prices was kept, and proved too much."""
    clients = fp.Clients(samples=[572, 493], grad_norm=[1.9, 1.8])
    beliefs = fp.Beliefs.exponential(cost=10.2, value=500)
    one = fp.post(clients, beliefs, bound=BOUND, budget=0.136, form="blocks", blocks=1)
    assert one.tariffs.ends.shape == (2, 1)
    assert one.certificate.dual == -np.inf
