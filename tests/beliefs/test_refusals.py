"""Who refuses, and the best prices that nobody refuses, against utilities and general solvers."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from fedprice import (
    Bound,
    Clients,
    Game,
    InputError,
    Outcome,
    Status,
    best_response,
    population,
    price_for,
    refusals,
    solve,
    utilities,
)
from fedprice.beliefs.refusals import Outside, Refusals

Floats = npt.NDArray[np.float64]

FORTY = Game(population(), bound=Bound(alpha=3.3, rounds=1000), budget=200)


def drawn(seed: int, count: int | None = None) -> tuple[Game, Floats]:
    """A game in which some clients would refuse, and losses of models from elsewhere."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 6)) if count is None else count
    clients = Clients(
        samples=rng.integers(50, 1000, count),
        grad_norm=rng.lognormal(1, 0.4, count),
        cost=rng.exponential(20, count) + 1,
        value=rng.exponential(rng.choice([100, 2000, 20000]), count) * (rng.random(count) < 0.85),
        level_max=np.where(rng.random(count) < 0.6, 1.0, 0.6),
        level_min=0.05 * (rng.random(count) < 0.2),
    )
    game = Game(
        clients,
        bound=Bound(alpha=5.0, rounds=1000, beta=float(rng.choice([0.0, 3.0]))),
        budget=float(rng.choice([1.0, 5.0, 20.0, 40.0])),
        cost_exponent=float(rng.choice([1.5, 2.0, 3.0])),
    )
    loss = solve(game).expected_loss + game.bound.beta / game.bound.rounds
    return game, loss * rng.uniform(0.3, 1.6, count)


def of(outcome: Outcome, outside: str, losses: Floats) -> Refusals:
    name = {"stay": "without", "nothing": "own"}.get(outside)
    return refusals(outcome, outside, **({} if name is None else {name: losses}))


def alternative(game: Game, levels: Floats, outside: str, losses: Floats) -> Floats:
    """The utility of each client that refuses, the others joining at their levels."""
    if outside == "nothing":
        return -game.clients.value * losses
    c, v, k = game.clients.cost, game.clients.value, game.impact
    loss = game.bound.expected_loss(game.clients, levels) + game.bound.beta / game.bound.rounds
    others = loss - k * (1 - levels) / levels
    if outside == "stay":
        return -v * (others + losses)
    unpaid = np.maximum(best_response(game, 0.0), 1e-300)
    alone: Floats = -c * unpaid**game.cost_exponent - v * (others + k * (1 - unpaid) / unpaid)
    return alone


def lead(game: Game, levels: Floats, prices: Floats, outside: str, losses: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        ahead = utilities(game, levels, prices) - alternative(game, levels, outside, losses)
    # Who does not care about the model never refuses; both its utilities may be −0 · inf.
    return np.where(game.clients.value > 0, ahead, prices * levels)


@pytest.mark.parametrize("outside", list(Outside))
def test_who_refuses_has_the_higher_utility_elsewhere(outside: str) -> None:
    some = 0
    for seed in range(40):
        game, losses = drawn(seed)
        best = solve(game)
        if best.status is Status.INFEASIBLE:
            continue
        asked = of(best, outside, losses)
        ahead = lead(game, best.levels, best.prices, outside, losses)
        careful = game.clients.value > 0
        size = 1e-9 * (1 + np.abs(best.utilities))
        assert asked.advantage[careful] == pytest.approx(ahead[careful], abs=size.max()), seed
        assert (asked.refuses == (ahead < -size)).all(), seed
        some += bool(asked.refuses.any())
    assert some > 8


@pytest.mark.parametrize("outside", list(Outside))
def test_respected_prices_are_answered_and_not_refused(outside: str) -> None:
    """Prices lead to their levels by free choice, cost no more than the budget, and bind."""
    seen: dict[bool, int] = {True: 0, False: 0}
    bonuses = 0
    for seed in range(80):
        game, losses = drawn(seed)
        best = solve(game)
        if best.status is Status.INFEASIBLE:
            continue
        asked = of(best, outside, losses)
        found = asked.respected
        if found.status is Status.INFEASIBLE:
            assert asked.refuses.any(), seed
            assert asked.loss_increase == np.inf
            continue
        assert best_response(game, found.prices) == pytest.approx(found.levels, rel=1e-9), seed
        assert found.spend <= game.budget + 1e-9 * np.abs(found.payments).sum(), seed
        assert found.game.budget == game.budget
        assert not of(replace(found, game=game), outside, losses).refuses.any(), seed
        seen[bool(asked.refuses.any())] += 1
        if not asked.refuses.any():
            assert found.levels == pytest.approx(best.levels, rel=1e-9), seed
        assert asked.loss_increase >= -1e-12
        assert found.certificate.gap < 1e-9
        bonuses += int((found.prices > price_for(game, found.levels) + 1e-6).sum())
    assert min(seen.values()) > 3
    assert bonuses > 0


@pytest.mark.slow
@pytest.mark.parametrize("outside", list(Outside))
def test_slsqp_on_utilities_never_improves_it(outside: str) -> None:
    binding = 0
    for seed in range(40):
        game, losses = drawn(seed)
        best = solve(game)
        if best.status is Status.INFEASIBLE:
            continue
        asked = of(best, outside, losses)
        found = asked.respected
        if found.status is Status.INFEASIBLE:
            continue
        binding += bool(asked.refuses.any())
        clients = game.clients
        # Payments above P(q) q lead to the level only at the cap: who needs one stands there.
        fixed = found.prices > price_for(game, found.levels) * (1 + 1e-9) + 1e-9
        lower = np.where(fixed, clients.level_max, np.maximum(clients.level_min, 1e-3))

        def offer(q: Floats, game: Game = game, fixed: npt.NDArray[np.bool_] = fixed,
                  losses: Floats = losses) -> Floats:  # fmt: skip
            """The prices of levels, and of caps that need more, what makes up for refusing."""
            prices = price_for(game, np.minimum(q, game.clients.level_max))
            short = -lead(game, q, prices, outside, losses) / q
            return np.where(fixed, prices + np.maximum(short, 0), prices)

        def ahead(q: Floats, game: Game = game, losses: Floats = losses) -> Floats:
            return lead(game, q, offer(q), outside, losses)

        scale = found.certificate.primal
        constraints = [
            {"type": "ineq", "fun": lambda q, g=game: (g.budget - offer(q) @ q) / abs(g.budget)},
            {"type": "ineq", "fun": lambda q, a=ahead: a(q)},
        ]
        rng = np.random.default_rng(seed)
        for spread in (0.0, 0.3):
            start = np.clip(
                found.levels * np.exp(spread * rng.normal(size=found.levels.size)),
                lower, clients.level_max,
            )  # fmt: skip
            rival = minimize(
                lambda q, k=game.impact, s=scale: (k / q).sum() / s, start, method="SLSQP",
                bounds=list(zip(lower, clients.level_max, strict=True)), constraints=constraints,
                options={"ftol": 1e-14, "maxiter": 300},
            )  # fmt: skip
            q = np.clip(rival.x, lower, clients.level_max)
            size = 1 + np.abs(utilities(game, q, offer(q)))
            feasible = offer(q) @ q <= game.budget * (1 + 1e-7) and (ahead(q) > -1e-7 * size).all()
            if feasible:
                assert (game.impact / q).sum() >= scale * (1 - 1e-6), (seed, spread)
    assert binding > 5


@pytest.mark.parametrize("outside", list(Outside))
def test_no_point_of_a_grid_over_two_levels_is_better(outside: str) -> None:
    """A grid that knows nothing of floors: levels, their prices, and at the cap any price."""
    counts, close = {"binding": 0, "infeasible": 0}, 0
    for seed in range(100, 160):
        game, losses = drawn(seed, count=2)
        best = solve(game)
        if best.status is Status.INFEASIBLE:
            continue
        asked = of(best, outside, losses)
        cap, floor = game.clients.level_max, game.clients.level_min
        near = np.exp(np.linspace(-0.05, 0.05, 41))
        grid = [
            np.append(
                np.geomspace(max(floor[n], 0.01), cap[n], 120),
                np.clip(asked.respected.levels[n] * near, max(floor[n], 1e-9), cap[n]),
            )
            for n in range(2)
        ]
        q = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, 2)
        c, v, k = game.clients.cost, game.clients.value, game.impact
        tau, rest = game.cost_exponent, game.bound.beta / game.bound.rounds
        payment = tau * c * q**tau - v * k / q
        loss = (k * (1 - q) / q).sum(axis=1, keepdims=True) + rest
        if outside == "nothing":
            out = np.broadcast_to(-v * losses, q.shape)
        elif outside == "stay":
            out = -v * (loss - k * (1 - q) / q + losses)
        else:
            unpaid = np.maximum(best_response(game, 0.0), 1e-300)
            out = -c * unpaid**tau - v * (loss - k * (1 - q) / q + k * (1 - unpaid) / unpaid)
        needed = out + c * q**tau + v * loss
        needed = np.where(v > 0, needed, 0.0)
        payment = np.where(q == cap, np.maximum(payment, needed), payment)
        allowed = (payment >= needed - 1e-12 * np.abs(needed)).all(axis=1)
        allowed &= payment.sum(axis=1) <= game.budget
        if asked.respected.status is Status.INFEASIBLE:
            counts["infeasible"] += 1
            assert not allowed.any(), seed
            continue
        counts["binding"] += bool(asked.refuses.any())
        rival = (k / q[allowed]).sum(axis=1).min(initial=np.inf)
        assert rival >= asked.respected.certificate.primal * (1 - 1e-9), seed
        close += rival <= asked.respected.certificate.primal * 1.001
    assert counts["binding"] > 5
    assert outside == "free" or counts["infeasible"] > 0
    assert close > 15


def test_forty_clients() -> None:
    """As measured: exactly the payers refuse to pay if they may join unpaid."""
    best = solve(FORTY)
    free = refusals(best)
    assert (free.refuses == (best.prices < 0)).all()
    assert free.refuses.sum() == 3
    assert free.loss_increase == pytest.approx(0.005, abs=5e-4)
    assert free.respected.prices.min() == 0
    for outside, losses in (("stay", 0.016), ("nothing", 2.1)):
        assert of(best, outside, np.full(40, losses)).refuses.sum() == 0, outside
    rich = Game(population(mean_value=80_000), FORTY.bound, budget=200)
    many = refusals(solve(rich))
    assert (many.refuses.sum(), many.outcome.payers) == (6, 6)
    assert many.loss_increase == pytest.approx(0.33, abs=0.01)


def test_a_server_without_money_has_volunteers() -> None:
    unpaid = best_response(FORTY, 0.0)
    found = refusals(solve(replace(FORTY, budget=0))).respected
    assert found.status is Status.OPTIMAL
    assert found.spend == pytest.approx(0, abs=1e-12)
    assert found.least_budget == 0
    assert found.levels == pytest.approx(unpaid, rel=1e-12)
    debts = refusals(solve(replace(FORTY, budget=-1))).respected
    assert (debts.status, debts.least_budget) == (Status.INFEASIBLE, 0)


def test_who_would_join_fully_for_nothing_is_no_income() -> None:
    clients = Clients(samples=[1, 1], grad_norm=5, cost=[1, 50], value=[1e5, 0])
    game = Game(clients, bound=Bound(alpha=3, rounds=1000), budget=10)
    found = refusals(solve(game)).respected
    assert (found.levels[0], found.prices[0]) == (1.0, 0.0)
    assert found.payments[1] == pytest.approx(10)
    assert found.least_budget == pytest.approx(0)


def test_sellers_and_clients_without_impact_never_refuse() -> None:
    clients = Clients(samples=[1, 2, 0], grad_norm=1, cost=[4, 5, 6], value=[0, 0, 9])
    game = Game(clients, bound=Bound(alpha=3, rounds=10), budget=1)
    best = solve(game)
    for outside in Outside:
        asked = of(best, outside, np.zeros(3))
        assert not asked.refuses.any()
        assert asked.respected.levels == pytest.approx(best.levels)
        assert asked.loss_increase == pytest.approx(0, abs=1e-12)


def test_other_schemes_are_compared_with_the_optimum() -> None:
    uniform = refusals(solve(FORTY, "uniform"))
    assert not uniform.refuses.any()
    assert uniform.loss_increase < 0  # the best prices that nobody refuses are better
    assert uniform.respected.scheme == "equilibrium"


def test_a_table_of_refusals() -> None:
    asked = refusals(solve(FORTY))
    frame = asked.to_frame()
    assert frame["refuses"].sum() == 3
    assert frame["price"].to_list() == asked.respected.prices.tolist()
    assert asked.to_pandas()["price_unconstrained"].min() < 0
    assert asked.summary()["refuse"] == 3


def test_infeasible_is_a_status_with_the_least_budget() -> None:
    clients = Clients(samples=[1, 1], grad_norm=5, cost=[1, 50], value=[1e5, 0], level_min=0.5)
    game = Game(clients, bound=Bound(alpha=3, rounds=1000), budget=-1)
    asked = refusals(solve(game))
    assert asked.respected.status is Status.INFEASIBLE
    assert asked.respected.least_budget == pytest.approx(2 * 50 * 0.5**2)
    enough = replace(game, budget=asked.respected.least_budget)
    assert refusals(solve(enough)).respected.status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outside": "fre"}, "`outside` must be .*; got 'fre'. Did you mean 'free'"),
        ({"outside": "nothing"}, "needs `own`: by how much .* Measure it"),
        ({"outside": "free", "own": 1}, "`own` is not used with outside='free'"),
        ({"outside": "nothing", "own": 1, "without": 1}, "`without` is not used"),
        ({"outside": "stay", "without": [1, 2]}, r"`without` must have shape \(40,\); got \(2,\)"),
        ({"outside": "stay", "without": -1}, r"at least 0; got -1 in row 1 \(client '1'\)"),
        ({"outside": "nothing", "own": np.nan}, "finite numbers, at least 0; got nan"),
        ({"outside": "nothing", "own": "much"}, "`own` must be numbers"),
    ],
)
def test_bad_input(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        refusals(solve(FORTY), **options)  # type: ignore[arg-type]


def test_schemes_that_ask_nobody_are_refused() -> None:
    with pytest.raises(InputError, match="'subset' does not"):
        refusals(solve(FORTY, "subset"))
    nobody = Outcome.from_prices(replace(FORTY, clients=_sellers()), 0.0, scheme="none")
    with pytest.raises(InputError, match="its loss is infinite"):
        refusals(nobody)


def _sellers() -> Clients:
    return replace(FORTY.clients, value=np.zeros(40))
