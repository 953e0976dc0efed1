"""Costs and values from answers to prices: exact without noise, honest about it with noise."""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import Bound, Game, InputError, best_response, population, solve
from fedprice.beliefs.revealed import Revealed, marginal_prices, reveal
from fedprice.game import best_level
from fedprice.tariff import Tariffs

SHARES = (0.2, 0.5, 1.0)  # of the equilibrium's prices: low ones first


def forty(exponent: float = 2.0) -> Game:
    return Game(population(), Bound(alpha=3.3, rounds=1000), budget=200, cost_exponent=exponent)


def asked(game: Game, prices: np.ndarray, noise: float = 0.0, seed: int = 0) -> pl.DataFrame:
    """Answers to rows of prices, levels observed with a relative error."""
    rng = np.random.default_rng(seed)
    rows = []
    for row in prices:
        exact = best_response(game, row)
        level = np.clip(exact * (1 + noise * rng.normal(size=exact.size)), 1e-6, 1.0)
        level = np.where(exact == 1, 1.0, level)
        columns = {"client_id": game.clients.ids.tolist(), "impact": game.impact, "price": row}
        rows.append(pl.DataFrame(columns | {"level": level, "level_std": noise * level}))
    frame = pl.concat(rows)
    return frame if noise else frame.drop("level_std")


def low_prices(game: Game) -> np.ndarray:
    return np.array([share * np.abs(solve(game).prices) for share in SHARES])


@given(
    cost=st.floats(1e-2, 1e3),
    value=st.floats(0, 1e5),
    impact=st.floats(1e-6, 1e-1),
    exponent=st.sampled_from([1.5, 2.0, 3.0]),
    levels=st.lists(st.integers(1, 19), min_size=2, max_size=5, unique=True),
)
def test_interior_answers_without_noise_are_solved_exactly(
    cost: float, value: float, impact: float, exponent: float, levels: list[int]
) -> None:
    """P(q) is the answers' own inverse; both terms are recovered relative to the larger one."""
    q = np.array(levels) / 20
    price = exponent * cost * q ** (exponent - 1) - value * impact / q**2
    answers = pl.DataFrame({"client_id": "a", "impact": impact, "price": price, "level": q})
    found = reveal(answers, cost_exponent=exponent)
    if found.status != ("identified",):  # a cost that no price of these shows
        assert exponent * cost < 2e-9 * (np.abs(price) / q ** (exponent - 1)).max()
        return
    scale = cost + value * impact / q.min() ** 2
    assert abs(found.cost[0] - cost) <= 1e-12 * scale / q.min() ** exponent
    assert abs(found.value[0] - value) * impact <= 1e-12 * scale / q.min() ** exponent


@pytest.mark.parametrize("exponent", [1.5, 2.0, 3.0])
def test_the_forty_clients_reveal_themselves(exponent: float) -> None:
    game = forty(exponent)
    answers = asked(game, low_prices(game))
    found = reveal(answers, cost_exponent=exponent)
    assert found.identified.all()
    # Levels are exact to 1e-15; the two terms are told apart by how far the levels lie apart.
    clients, levels = game.clients, answers["level"].to_numpy().reshape(-1, 40)
    q, apart = levels.min(axis=0), np.ptp(levels, axis=0) / levels.max(axis=0)
    limit = 1e-13 * (clients.cost + clients.value * game.impact / q**2) / apart
    assert (np.abs(found.cost - clients.cost) <= limit).all()
    assert (np.abs(found.value - clients.value) * game.impact <= limit).all()
    again = replace(game, clients=replace(game.clients, cost=found.cost, value=found.value))
    assert solve(again).prices == pytest.approx(solve(game).prices, rel=1e-9, abs=1e-9)


def brute_force(frame: pl.DataFrame, start: np.ndarray) -> tuple[float, np.ndarray]:
    """The least sum of squares of one client by a general solver, from several starts."""
    from scipy.optimize import minimize

    q, std = frame["level"].to_numpy(), frame["level_std"].to_numpy()

    def squares(x: np.ndarray) -> float:
        vk = start[1] * x[1] * frame["impact"].to_numpy()
        fitted = best_level(frame["price"].to_numpy(), start[0] * np.exp(x[0]), vk, 2.0, np.inf)
        return float((((q - fitted) / std) ** 2).sum())

    ends = [
        minimize(
            squares, (a, b), method="Nelder-Mead", bounds=[(-5, 5), (0, 50)],
            options={"xatol": 1e-10, "fatol": 1e-12, "maxiter": 4000},
        )
        for a in (-0.5, 0.5) for b in (0.1, 1.0)
    ]  # fmt: skip
    best = min(ends, key=lambda end: float(end.fun))
    return float(best.fun), start * np.array([np.exp(best.x[0]), best.x[1]])


def test_noisy_answers_are_fitted_as_well_as_a_general_solver_does() -> None:
    game = forty()
    answers = asked(game, low_prices(game), noise=0.1, seed=3)
    found = reveal(answers)
    for n in range(0, 40, 4):
        own = answers.filter(pl.col("client_id") == found.ids[n], pl.col("level") < 1)
        if not found.identified[n] or own.height < 3:
            continue
        start = np.array([game.clients.cost[n], max(game.clients.value[n], 1.0)])
        least, types = brute_force(own, start)
        vk = found.value[n] * own["impact"].to_numpy()
        fitted = best_level(own["price"].to_numpy(), found.cost[n], vk, 2.0, np.inf)
        squares = ((own["level"].to_numpy() - fitted) / own["level_std"].to_numpy()) ** 2
        assert squares.sum() <= least * (1 + 1e-7) + 1e-12
        assert found.cost[n] == pytest.approx(types[0], rel=1e-3)


def test_intervals_hold_what_they_promise() -> None:
    """Two 95 % intervals of 40 clients over 25 draws; the bands are six standard errors wide."""
    game = forty()
    prices = low_prices(game)
    hits, total, ratio = np.zeros(2), 0, []
    for seed in range(25):
        found = reveal(asked(game, prices, noise=0.02, seed=seed))
        sure = found.identified
        total += int(sure.sum())
        intervals = (found.cost_interval, found.value_interval)
        for i, (truth, (low, high)) in enumerate(
            zip((game.clients.cost, game.clients.value), intervals, strict=True)
        ):
            hits[i] += ((low <= truth) & (truth <= high))[sure].sum()
        ratio.append(np.median(np.abs(found.cost / game.clients.cost - 1)[sure]))
    assert total > 900
    assert (np.abs(hits / total - 0.95) < 0.04).all()
    assert np.mean(ratio) < 0.03  # levels that are known to 2 %


def test_plugged_in_noise_made_prices_explode() -> None:
    """Levels known to 2 % that hardly moved gave a cost of 1e11, and one client was paid 4,574."""
    game = forty()
    prices = low_prices(game)[[0, 2]]
    best, worst, refused = solve(game), 0.0, 0
    for seed in range(20):
        found = reveal(asked(game, prices, noise=0.02, seed=seed))
        known = found.identified
        refused += sum("no more than its error" in status for status in found.status)
        types = {
            name: np.where(known, getattr(found, name), getattr(game.clients, name))
            for name in ("cost", "value")
        }
        offered = solve(replace(game, clients=replace(game.clients, **types))).prices
        levels = best_response(game, offered)
        worst = max(worst, float(offered @ levels))
        assert game.bound.expected_loss(game.clients, levels) < 1.2 * best.expected_loss
    assert worst < 210
    assert 10 < refused < 40  # of 800


def test_more_answers_leave_no_bias() -> None:
    """Once the observed level itself was the regressor, and the cost came out too low by σ²/q²."""
    rng = np.random.default_rng(0)
    price = np.linspace(1, 8, 4000)
    level = best_level(price, 10.0, 0.05, 2.0)
    seen = np.clip(level + 0.05 * rng.normal(size=level.size), 0.01, 0.99)
    columns = {"client_id": "a", "impact": 1e-3, "price": price, "level": seen, "level_std": 0.05}
    found = reveal(pl.DataFrame(columns))
    low, high = found.cost_interval
    assert low[0] < 10 < high[0] < 10.2
    low, high = found.value_interval
    assert low[0] < 50 < high[0]


def test_errors_are_estimated_where_they_are_not_stated() -> None:
    """Student's interval from residuals, over 200 clients; the band is six standard errors wide."""
    rng = np.random.default_rng(1)
    price, count = np.array([2.0, 4, 6, 8]), 200
    level = best_level(price, 10.0, 0.05, 2.0) + 0.01 * rng.normal(size=(count, 4))
    frame = pl.DataFrame(
        {
            "client_id": np.repeat(np.arange(count), 4),
            "impact": 1e-3,
            "price": np.tile(price, count),
            "level": level.ravel(),
        }
    )
    found = reveal(frame)
    low, high = found.cost_interval
    assert abs(((low <= 10) & (high >= 10)).mean() - 0.95) < 0.1
    two = reveal(frame.filter(pl.col("price") < 5))
    assert np.isnan(two.cost_interval[0]).all()  # two answers fit anyhow
    assert two.to_frame()["cost_low"].null_count() == count


def test_coins_are_answers() -> None:
    """500 rounds of coins at each price; the binomial error carries over."""
    game = forty()
    rng = np.random.default_rng(5)
    frame = asked(game, low_prices(game)).with_columns(
        heads=pl.col("level").map_elements(lambda q: rng.binomial(500, q), pl.Int64), rounds=500
    )
    found = reveal(frame.drop("level"))
    sure = found.identified
    low, high = found.cost_interval
    inside = (low <= game.clients.cost) & (game.clients.cost <= high)
    assert inside[sure].mean() > 0.85
    stated = reveal(frame.drop("heads"))
    assert stated.identified.sum() > 30
    assert stated.cost[stated.identified] == pytest.approx(game.clients.cost[stated.identified])


def test_who_is_not_identified_and_why() -> None:
    rows = [
        ("cap", 1e-3, 50.0, 1.0), ("cap", 1e-3, 60.0, 1.0),
        ("away", 1e-3, -1.0, 0.0), ("away", 1e-3, -2.0, 0.0),
        ("once", 1e-3, 5.0, 0.4), ("once", 1e-3, 60.0, 1.0),
        ("same", 1e-3, 5.0, 0.4), ("same", 1e-3, 5.0, 0.41),
        ("idle", 0.0, 5.0, 0.4), ("idle", 0.0, 6.0, 0.5),
        ("free", 1e-3, -10.0, 0.1), ("free", 1e-3, -1.0, 0.9),
        ("fine", 1e-3, 5.0, 0.4), ("fine", 1e-3, 6.0, 0.43),
        ("moved", 1e-3, 5.0, 0.4), ("moved", 2e-3, 5.0, 0.41),
        ("stiff", 1e-3, 5.0, 0.4), ("stiff", 1e-3, 6.0, 0.4),
    ]  # fmt: skip
    found = reveal(pl.DataFrame(rows, ["client_id", "impact", "price", "level"], orient="row"))
    status = dict(zip(found.ids, found.status, strict=True))
    assert status["fine"] == status["moved"] == "identified"
    for name, text in (
        ("cap", "at its largest level at every price; offer lower prices"),
        ("away", "did not join at any price; offer higher"),
        ("once", "one answer below its largest level; offer another, lower price"),
        ("same", "are to one price; offer a lower one"),
        ("idle", "its impact is 0"),
        ("free", "cannot be distinguished from 0; offer higher prices too"),
        ("stiff", "no more than its error; offer prices further apart"),
    ):
        assert text in status[name], name
        assert np.isnan(found.cost[found.ids.index(name)])
    assert repr(found) == "Revealed(num_clients=9, identified=2)"
    assert found.to_pandas().shape == (9, 8)


def test_a_client_that_wants_no_model_has_a_value_of_0() -> None:
    """Answers that rise faster than the price would need a negative value: the edge fits best."""
    frame = pl.DataFrame(
        {"client_id": "a", "impact": 1e-3, "price": [4.0, 8.0], "level": [0.2, 0.5]}
    )
    found = reveal(frame.with_columns(level_std=0.02))
    assert found.value[0] == 0
    assert found.value_interval[1][0] > 0
    scale = np.array([4.0, 8.0])  # q = P / 2c by least squares
    assert found.cost[0] == pytest.approx((scale @ scale) / (2 * scale @ [0.2, 0.5]), rel=1e-9)


def test_beliefs_have_the_moments_of_the_estimate() -> None:
    frame = pl.DataFrame(
        {"client_id": "a", "impact": 1e-3, "price": [-24.25, 4, 12.0], "level": [0.4, 0.5, 0.541]}
    )
    found = reveal(frame.with_columns(level_std=0.002))
    types = found.beliefs(4096).types["a"]
    logs = np.stack([np.log(types.cost), types.value])
    scale = np.array([found.cost[0], 1.0])
    assert np.cov(logs) * np.outer(scale, scale) == pytest.approx(found.covariance[0], rel=0.02)
    assert reveal(frame.head(2)).beliefs().types["a"].weight.tolist() == [1.0]
    vague = reveal(frame.with_columns(level_std=0.02)).beliefs()
    assert repr(vague).startswith("Beliefs(1 clients, types=64")
    with pytest.raises(InputError, match="no client is identified"):
        reveal(frame.head(1)).beliefs()


def test_answers_to_a_tariff_count_at_their_marginal_price() -> None:
    """Three tariffs of two blocks; who takes the end of a block tells nothing that time."""
    game = forty()
    clients = game.clients
    frames = []
    for low, high in ((6.0, 3.0), (12.0, 6.0), (24.0, 12.0)):
        ends = np.tile([0.4, 1.0], (40, 1))
        tariffs = Tariffs(ends, np.tile([low, high], (40, 1)))
        levels = tariffs.best_levels(clients.cost, clients.value * game.impact, 2.0)
        price = marginal_prices(tariffs, levels)
        columns = {"client_id": clients.ids.tolist(), "impact": game.impact, "price": price}
        frames.append(pl.DataFrame(columns | {"level": levels}))
    answers = pl.concat(frames)
    assert answers["price"].is_nan().any()
    found = reveal(answers.filter(pl.col("price").is_not_nan()))
    assert found.identified.sum() > 20
    at = {name: n for n, name in enumerate(clients.ids)}
    rows = [at[name] for name in found.ids]
    sure = found.identified
    assert found.cost[sure] == pytest.approx(clients.cost[rows][sure], rel=1e-9)
    assert found.value[sure] == pytest.approx(clients.value[rows][sure], rel=1e-6)


GOOD: dict[str, Any] = {
    "client_id": ["a", "b"],
    "impact": [1, 1],
    "price": [1, 2],
    "level": [0.5, 1],
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"price": None}, "there is no column 'price'"),
        ({"level": None}, "exactly one of the columns 'level' and 'heads'"),
        ({"heads": [1, 2], "level": None}, "needs a column 'rounds'"),
        (
            {"rounds": [9, 9], "level_std": [0.1, 0.1]},
            "exactly one of the columns 'level_std' and 'rounds'",
        ),
        ({"rounds": [9.0, 0.5]}, "`rounds` must be a whole number, at least 1; got 0.5 in row 2"),
        (
            {"level": [0.5, 1.1]},
            r"`level` must be between 0 and `level_max`; got 1.1 in row 2 \(cl",
        ),
        ({"heads": [1, 12], "rounds": [9, 9], "level": None}, "`level` must be between 0 and"),
        ({"level_std": [0.1, 0.0]}, "`level_std` must be a finite number above 0; got 0"),
        ({"impact": [1, -1]}, "`impact` must be a finite number, at least 0"),
        ({"price": [1.0, float("inf")]}, "`price` must be a finite number; got inf"),
        ({"client_id": ["a", None]}, "row 2 has none"),
        ({"prize": [1, 1]}, "unknown column 'prize'. Did you mean 'price'?"),
    ],
)
def test_bad_answers_get_one_clear_line(change: dict[str, Any], message: str) -> None:
    columns = {name: column for name, column in (GOOD | change).items() if column is not None}
    with pytest.raises(InputError, match=message):
        reveal(pl.DataFrame(columns))


def test_other_bad_input() -> None:
    with pytest.raises(InputError, match="no rows"):
        reveal(pl.DataFrame(GOOD).clear())
    with pytest.raises(InputError, match="`cost_exponent` τ must be above 1"):
        reveal(pl.DataFrame(GOOD), cost_exponent=1)
    assert isinstance(reveal(pl.DataFrame(GOOD)), Revealed)


@pytest.mark.parametrize("error", [None, 0.005])
def test_a_level_that_falls_as_the_price_rises_has_the_wrong_reason(error: float | None) -> None:
    answers = pl.DataFrame(
        {
            "client_id": ["a"] * 3,
            "impact": 1e-3,
            "price": [5.0, 10.0, 20.0],
            "level": [0.5, 0.4, 0.2],
        }
    )
    if error is not None:
        answers = answers.with_columns(pl.lit(error).alias("level_std"))
    found = reveal(answers)
    assert not found.identified.any()
    assert found.status == (
        "its level falls as the price rises, which no cost explains; ask it again",
    )
    # A fall within the error is no fall.
    vague = reveal(answers.with_columns(pl.lit(0.4).alias("level_std")))
    assert vague.status == ("its level varies no more than its error; offer prices further apart",)
