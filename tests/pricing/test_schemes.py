"""The baselines and the registry."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedprice as fp
from fedprice import (
    SCHEMES,
    Bound,
    Clients,
    Game,
    Outcome,
    Scheme,
    Status,
    best_response,
    price_for,
    solve,
)
from fedprice.commands.warnings import price_warnings
from fedprice.contrib import RIVALS
from fedprice.pricing import find_scheme, find_schemes
from fedprice.pricing.display import infeasible_line
from tests.games import games

OWN = """
from __future__ import annotations
import dataclasses
import fedprice as fp

@dataclasses.dataclass
class Settings:
    price: float = 1.0

def plain(game):
    return fp.Outcome.from_prices(game, Settings().price, scheme="whatever")

@fp.scheme("lottery", posts_prices=False, aggregator="fedavg")
def drawn(game):
    return plain(game)

value = fp.Scheme("a value", plain, posts_prices=False)

def other(game):
    return plain(dataclasses.replace(game, budget=1e9))

def broken(game):
    return 1 / 0

def leaves(game):
    raise SystemExit(3)

number = 7
"""
BOUND = Bound(alpha=1, rounds=1000)
EXACT = ("equilibrium", "uniform", "weighted", "uniform-published", "weighted-published", "subset")


def example(budget: float = 20, **columns: object) -> Game:
    given = {
        "samples": [10, 20, 30],
        "grad_norm": 1.5,
        "cost": [4, 5, 6],
        "value": [0, 100, 9000],
    } | columns
    return Game(Clients(**given), bound=BOUND, budget=budget)  # type: ignore[arg-type]


@pytest.mark.parametrize("scheme", [*EXACT, *RIVALS])
@given(game=games())
def test_conformance(scheme: str, game: Game) -> None:
    """What every scheme owes: levels in range, floors and budget kept or infeasible said."""
    outcome = solve(game, scheme)
    clients = game.clients
    assert outcome.scheme == scheme
    assert outcome.game is game
    assert outcome.levels.shape == outcome.prices.shape == (len(clients),)
    assert np.isfinite(outcome.levels).all()
    assert np.isfinite(outcome.prices).all()
    assert ((outcome.levels >= 0) & (outcome.levels <= clients.level_max)).all()
    if outcome.status is Status.INFEASIBLE:
        assert outcome.least_budget >= game.budget
    else:
        flow = np.abs(outcome.payments).sum() + (clients.cost * outcome.levels).sum()
        assert outcome.spend <= game.budget + 1e-12 * flow
        assert (outcome.levels >= clients.level_min * (1 - 1e-12)).all()


@pytest.mark.parametrize("scheme", ["uniform", "weighted"])
@given(game=games())
def test_baselines_are_best_responses_that_use_the_budget(scheme: str, game: Game) -> None:
    outcome = solve(game, scheme)
    assert best_response(game, outcome.prices) == pytest.approx(outcome.levels, rel=1e-12)
    if outcome.status is Status.FEASIBLE:
        flow = np.abs(outcome.payments).sum()
        assert outcome.spend == pytest.approx(game.budget, abs=1e-12 * flow)
    best = solve(game)
    if outcome.status is not Status.INFEASIBLE:
        assert outcome.certificate.primal >= best.certificate.dual * (1 - 1e-9)


@given(game=games(floors=False))
def test_uniform_is_one_price_and_weighted_goes_by_data(game: Game) -> None:
    assert np.ptp(solve(game, "uniform").prices) == 0
    prices = solve(game, "weighted").prices
    assert prices / game.clients.weight == pytest.approx(
        np.full(prices.size, prices[0] / game.clients.weight[0])
    )


def test_floors_lift_single_prices() -> None:
    game = example(budget=4, level_min=[0.6, 0, 0])
    outcome = solve(game, "uniform")
    assert outcome.levels[0] == pytest.approx(0.6)
    assert outcome.prices[0] > outcome.prices[1] == outcome.prices[2]
    poor = solve(replace(game, budget=1.0), "uniform")
    assert poor.status is Status.INFEASIBLE
    assert solve(replace(game, budget=poor.least_budget), "uniform").status is Status.FEASIBLE


def test_slack_stops_at_the_least_price_that_fills_everybody() -> None:
    outcome = solve(example(budget=1e6), "uniform")
    assert outcome.status is Status.SLACK
    assert outcome.levels.tolist() == [1, 1, 1]
    below = best_response(outcome.game, outcome.prices * (1 - 1e-9))
    assert below.min() < 1


def test_baselines_cannot_earn() -> None:
    for scheme in ("uniform", "weighted", "uniform-published"):
        outcome = solve(example(budget=-1), scheme)
        assert (outcome.status, outcome.least_budget) == (Status.INFEASIBLE, 0), scheme


@pytest.mark.parametrize("exponent", [1.5, 2.0, 3.0])
def test_published_formulas(exponent: float) -> None:
    game = replace(example(budget=3), cost_exponent=exponent)
    clients = game.clients
    uniform, weighted = solve(game, "uniform-published"), solve(game, "weighted-published")
    if exponent == 2:
        price = np.sqrt(2 * 3 / np.sum(1 / clients.cost))
        assert uniform.prices == pytest.approx(np.full(3, price))
        factor = np.sqrt(2 * 3 / np.sum(clients.weight**2 / clients.cost))
        assert weighted.prices == pytest.approx(factor * clients.weight)
        assert uniform.levels == pytest.approx(np.minimum(1, price / (2 * clients.cost)))
    for outcome in (uniform, weighted):
        if (outcome.levels < 1).all():
            assert outcome.spend == pytest.approx(3)  # the budget is spent, as if v were 0


def test_published_is_blind_to_floors() -> None:
    game = example(budget=1, level_min=0.5)
    outcome = solve(game, "uniform-published")
    assert outcome.status is Status.INFEASIBLE
    enough = solve(replace(game, budget=outcome.least_budget), "uniform-published")
    assert enough.status is Status.FEASIBLE
    assert enough.levels.min() == pytest.approx(0.5)


def test_published_with_a_cost_almost_linear() -> None:
    outcome = solve(replace(example(budget=3), cost_exponent=1.0001), "uniform-published")
    assert outcome.prices[0] == pytest.approx(4, rel=0.01)  # only the cheapest is worth the price


def test_published_never_reaches_the_floor_of_a_client_without_data() -> None:
    game = example(samples=[5, 0, 3], level_min=0.3)
    outcome = solve(game, "weighted-published")
    assert (outcome.status, outcome.least_budget) == (Status.INFEASIBLE, np.inf)


def test_no_scheme_bids_for_clients_without_impact() -> None:
    for name in ("equilibrium", "reference-convex", "reference-msearch", "reference-scipy"):
        outcome = solve(example(samples=[5, 0, 3]), name)
        assert outcome.levels[1] == 0, name
        nobody = solve(replace(example(), bound=Bound(alpha=0, rounds=10)), name)
        assert nobody.levels.tolist() == [0, 0, 0], name


def test_subset_takes_payers_then_the_most_valuable_that_fit() -> None:
    # Full participation costs 2c: 8, 16 and 12, the last less 9000 k.
    game = example(budget=10, cost=[4, 8, 6])
    outcome = solve(game, "subset")
    assert outcome.levels.tolist() == [0, 0, 1]
    assert outcome.expected_loss == np.inf
    assert np.isinf(outcome.certificate.gap)
    richer = solve(replace(game, budget=19.0), "subset")
    assert richer.levels.tolist() == [1, 0, 1]  # the middle one is passed over: it does not fit


def test_a_scheme_of_ones_own_takes_a_line() -> None:
    @fp.scheme("mine")
    def mine(game: Game) -> Outcome:
        return Outcome.from_prices(game, 1.0, scheme="mine")

    try:
        outcome = solve(example(), "mine")
        assert outcome.prices.tolist() == [1, 1, 1]
        assert outcome.status is Status.FEASIBLE
        assert solve(example(budget=0.01), "mine").status is Status.INFEASIBLE
    finally:
        del SCHEMES["mine"]


def test_a_scheme_keeps_its_name_and_its_word() -> None:
    with pytest.raises(fp.InputError, match="there is a scheme 'uniform' in fedprice"):
        fp.scheme("uniform")(lambda game: solve(game))
    fp.scheme("five")(lambda game: 5)  # type: ignore[type-var]
    try:
        with pytest.raises(fp.InputError, match="must return an Outcome; got int"):
            solve(example(), "five")
    finally:
        del SCHEMES["five"]


def test_unknown_scheme_names_the_nearest() -> None:
    with pytest.raises(fp.InputError, match="Did you mean 'equilibrium'"):
        solve(example(), "equilibrum")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", [*EXACT, "full"])
def test_an_outcome_tells_the_properties_of_its_scheme(name: str) -> None:
    scheme, game = SCHEMES[name], example()
    for outcome in (scheme(game), scheme.function(game)):
        assert outcome.scheme == name
        assert outcome.posts_prices == scheme.posts_prices == (name != "subset")
        assert outcome.aggregator == scheme.aggregator
    assert scheme.aggregator == ("fedavg" if name == "subset" else None)


@given(game=games())
def test_full_pays_every_client_its_cap_whatever_the_budget(game: Game) -> None:
    outcome, cap = solve(game, "full"), game.clients.level_max
    assert (outcome.levels == cap).all()
    assert best_response(game, outcome.prices) == pytest.approx(cap, rel=1e-12)
    flow = np.abs(outcome.payments).sum()
    if outcome.status is Status.SLACK:
        assert outcome.spend <= game.budget + 1e-12 * max(flow, abs(game.budget))
    else:
        assert outcome.status is Status.OVER_BUDGET
        assert outcome.spend > game.budget


def test_who_pays_everybody_is_told_that_the_budget_is_ignored() -> None:
    outcome = solve(example(budget=20), "full")
    assert outcome.spend == pytest.approx(price_for(outcome.game, 1.0).sum())
    told = ["the budget of 20 is ignored; these prices cost 24.91."]
    assert price_warnings(outcome) == told
    assert solve(example(budget=30), "full").status is Status.SLACK


def test_a_scheme_that_is_not_registered_has_properties_too() -> None:
    mine = Scheme("mine", SCHEMES["uniform"].function, posts_prices=False, aggregator="memory")
    outcome = mine(example())
    assert (outcome.scheme, outcome.posts_prices, outcome.aggregator) == (
        "mine",
        False,
        "memory",
    )


def test_the_decorator_returns_the_function_itself() -> None:
    def mine(game: Game) -> Outcome:
        return Outcome.from_prices(game, 1.0, scheme="mine")

    assert fp.scheme("mine", posts_prices=False)(mine) is mine
    assert SCHEMES.pop("mine") == Scheme("mine", mine, posts_prices=False)


@pytest.mark.parametrize(
    ("function", "name", "posts_prices", "aggregator"),
    [
        ("plain", "plain", True, None),
        ("drawn", "lottery", False, "fedavg"),
        ("value", "a value", False, None),
    ],
)
def test_a_scheme_from_a_file(
    own: Path, function: str, name: str, posts_prices: bool, aggregator: str
) -> None:
    try:
        scheme = find_scheme(f"{own}:{function}")
        assert (scheme.name, scheme.posts_prices, scheme.aggregator) == (
            name,
            posts_prices,
            aggregator,
        )
        outcome = solve(example(), f"{own}:{function}")
        assert (outcome.scheme, outcome.posts_prices) == (name, posts_prices)
        assert outcome.prices.tolist() == [1, 1, 1]
    finally:
        SCHEMES.pop("lottery", None)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("other", "scheme 'other' must price the game that it is given"),
        ("broken", r"scheme '.*own.py:broken' failed: ZeroDivisionError: division by zero"),
        ("leaves", r"scheme '.*own.py:leaves' failed: SystemExit: 3"),
        ("number", r"there is no scheme '.*': .*own.py has no function 'number'"),
        ("nothing", r"there is no scheme '.*': .*own.py has no function 'nothing'"),
        ("", r"has no function ''"),
    ],
)
def test_a_file_that_does_not_price(own: Path, function: str, message: str) -> None:
    try:
        with pytest.raises(fp.InputError, match=message):
            solve(example(), f"{own}:{function}")
    finally:
        SCHEMES.pop("lottery", None)


MISTAKEN = """
import fedprice as fp

def two_arguments(game, budget):
    return fp.Outcome.from_prices(game, 1.0, scheme="two_arguments")

def two_prices(game):
    return fp.Outcome.from_prices(game, [1.0, 2.0], scheme="two_prices")

def too_high(game):
    return fp.Outcome.from_prices(game, 500.0, scheme="too_high")

def too_low(game):
    return fp.Outcome.from_prices(game, 0.0, scheme="too_low")
"""


def test_mistakes_in_a_scheme_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(MISTAKEN, encoding="utf-8")
    with pytest.raises(fp.InputError, match=r"is a function of one Game; got \(game, budget\)\."):
        find_scheme(f"{path}:two_arguments")
    with pytest.raises(fp.InputError) as raised:
        solve(example(), f"{path}:two_prices")
    assert str(raised.value) == (
        f"scheme '{path}:two_prices': two_prices returned 2 prices for 3 clients; return one per "
        "client, or a single number for all."
    )
    outcome = solve(example(), f"{path}:too_high")
    assert infeasible_line(outcome) == (
        f"infeasible: the prices of too_high spend {outcome.spend:,.6g}, and the budget is "
        f"{outcome.game.budget:g}. Scale them with `fp.scale_to_budget`, or raise the budget."
    )
    floors = np.array([0.5, 0.5, 0.0])
    clients = replace(example().clients, level_min=floors, value=np.zeros(3))
    outcome = solve(replace(example(), clients=clients), f"{path}:too_low")
    assert infeasible_line(outcome) == (
        "infeasible: the prices of too_low leave 2 clients below their floors. Scale them with "
        "`fp.scale_to_budget`, or lower the floors (level_min, a larger max_weight)."
    )


def test_files_that_hold_no_scheme(tmp_path: Path) -> None:
    with pytest.raises(fp.InputError, match=r"no Python file nowhere.py"):
        find_scheme("nowhere.py:f")
    (tmp_path / "bad.py").write_text("def f(:", encoding="utf-8")
    with pytest.raises(fp.InputError, match="failed: SyntaxError"):
        find_scheme(f"{tmp_path / 'bad.py'}:f")
    taken = "import fedprice as fp\n@fp.scheme('uniform')\ndef f(game):\n    return None\n"
    (tmp_path / "taken.py").write_text(taken, encoding="utf-8")
    with pytest.raises(fp.InputError, match="there is a scheme 'uniform' in fedprice"):
        find_scheme(f"{tmp_path / 'taken.py'}:f")


def test_schemes_that_results_could_not_tell_apart(own: Path) -> None:
    assert [s.name for s in find_schemes(["uniform", "subset"])] == ["uniform", "subset"]
    with pytest.raises(fp.InputError, match="the scheme 'uniform' is named twice"):
        find_schemes(["uniform", "subset", "uniform"])
    with pytest.raises(fp.InputError, match="the scheme 'subset' is in the results already"):
        find_schemes(["uniform", "subset"], taken=["subset"])
    again = own.with_name("again.py")
    again.write_text(OWN.replace("lottery", "raffle"), encoding="utf-8")
    try:
        with pytest.raises(fp.InputError, match="would be called 'plain' in the results"):
            find_schemes([f"{own}:plain", f"{again}:plain"])
    finally:
        SCHEMES.pop("lottery", None)
        SCHEMES.pop("raffle", None)


def test_a_file_is_executed_once_and_leaves_the_path_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("PRICE = 2.0\n", encoding="utf-8")
    (tmp_path / "later.py").write_text("TIMES = 1.5\n", encoding="utf-8")
    counted = tmp_path / "counted.py"
    source = (
        "import pathlib\nimport fedprice as fp\nfrom beside import PRICE\n"
        f"with pathlib.Path({str(tmp_path / 'runs')!r}).open('a') as file:\n    file.write('x')\n"
        "def flat(game):\n    from later import TIMES\n"
        "    return fp.Outcome.from_prices(game, PRICE * TIMES, scheme='flat')\n"
    )
    counted.write_text(source, encoding="utf-8")
    path = list(sys.path)
    for _ in range(3):
        assert solve(example(), f"{counted}:flat").prices.tolist() == [3, 3, 3]
    assert (tmp_path / "runs").read_text() == "x"
    assert sys.path == path
    counted.write_text(source.replace("* TIMES", "* 2"), encoding="utf-8")  # edited in a session
    assert solve(example(), f"{counted}:flat").prices.tolist() == [4, 4, 4]
    assert (tmp_path / "runs").read_text() == "xx"
    counted.write_text("import nowhere_at_all\n", encoding="utf-8")
    with pytest.raises(fp.InputError, match="failed: ModuleNotFoundError"):
        solve(example(), f"{counted}:flat")
    assert sys.path == path


@given(game=games(floors=True), seed=st.integers(0, 99))
def test_prices_in_any_proportions_are_scaled_to_the_budget(game: Game, seed: int) -> None:
    shape = np.random.default_rng(seed).exponential(size=len(game.clients))
    prices = fp.scale_to_budget(game, shape)
    assert np.allclose(prices, fp.scale_to_budget(game, 1e9 * shape), rtol=1e-9)
    outcome = Outcome.from_prices(game, prices, scheme="any")
    if outcome.status is Status.FEASIBLE:
        assert outcome.spend == pytest.approx(game.budget, rel=1e-9, abs=1e-9)
    elif outcome.status is Status.SLACK:
        assert outcome.spend <= game.budget * (1 + 1e-9) + 1e-9
    at_floor = price_for(game, game.clients.level_min)
    scale = (prices / shape).min()
    floored = np.where(game.clients.level_min > 0, at_floor, -np.inf)
    assert np.allclose(prices, np.maximum(scale * shape, floored), rtol=1e-9)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ([1, 2], r"`shape` must have one entry per client, 3; got \(2,\)"),
        ([1, -2, 3], "`shape` must be finite numbers, at least 0; got -2 for client '2'"),
        ([1, 2, np.nan], "`shape` must be finite numbers, at least 0; got nan for client '3'"),
        ([0, 0, 0], "above 0 for at least one client"),
        (["a", 1, 2], "`shape` must be numbers"),
    ],
)
def test_shapes_that_cannot_be_scaled(shape: list[float], message: str) -> None:
    with pytest.raises(fp.InputError, match=message):
        fp.scale_to_budget(example(), shape)
