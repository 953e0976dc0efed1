"""Beliefs: distributions, tables, groups, and what is refused; learning from deeds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

import fedprice as fp
from fedprice.beliefs.evidence import Evidence
from fedprice.errors import InputError
from fedprice.tariff import Tariffs

BOUND = fp.Bound(alpha=3.3, rounds=1000)
THREE = fp.Clients(samples=[1, 2, 3], grad_norm=1.0, ids=["a", "b", "c"], classes=["x", "y", "x"])
ONE = fp.Beliefs(cost=1, value=1)


def read(**columns: object) -> fp.Beliefs:
    row = {"cost": [1], "value": [1], "probability": [1]}
    return fp.Beliefs.from_frame(pl.DataFrame(row | columns))


@pytest.mark.parametrize(
    ("beliefs", "law"),
    [
        (fp.Beliefs.exponential(cost=50, value=4000), stats.expon(scale=50)),
        (
            fp.Beliefs.lognormal(cost=50, value=4000, spread=0.5),
            stats.lognorm(0.5, scale=50 * np.exp(-0.125)),
        ),
        (fp.Beliefs.ranges(cost=(20, 80), value=(0, 8000)), stats.uniform(20, 60)),
    ],
)
def test_cells_stand_for_their_means(beliefs: fp.Beliefs, law: stats.rv_continuous) -> None:
    types = beliefs.types[""]
    assert types.weight.sum() == pytest.approx(1)
    assert types.means == pytest.approx((50, 4000))
    cells = np.unique(types.cost)
    assert cells.size == 32
    for n in (0, 10, 31):
        low, high = law.ppf([n / 32, (n + 1) / 32])
        mean = law.expect(lambda c: c, lb=low, ub=high) * 32
        assert cells[n] == pytest.approx(mean, rel=1e-6)


def test_tables_are_read_as_they_were_written(tmp_path: Path) -> None:
    one = fp.Beliefs(cost=[20, 80], value=[0, 9], weight=[0.25, 0.75])
    shared, by_class, by_client = (
        one,
        fp.Beliefs.by_class({"x": one, "y": fp.Beliefs(cost=5, value=1)}),
        fp.Beliefs.by_client({"a": one, "b": one, "c": fp.Beliefs(cost=5, value=1)}),
    )
    for n, beliefs in enumerate((shared, by_class, by_client)):
        path = tmp_path / f"beliefs{n}.csv"
        beliefs.write(path)
        again = fp.Beliefs.read(path)
        assert again.kind == beliefs.kind
        for name, types in beliefs.types.items():
            for a, b in zip(types, again.types[name], strict=True):
                np.testing.assert_array_equal(a, b)
    assert by_class.groups(THREE)[1].tolist() == [0, 1, 0]
    assert by_client.groups(THREE)[1].tolist() == [0, 1, 2]


def test_leave_one_out_is_the_others() -> None:
    known = fp.Clients(samples=[1, 2, 3], grad_norm=1.0, cost=[1, 2, 3], value=[7, 8, 9])
    beliefs = fp.Beliefs.leave_one_out(known)
    assert beliefs.types["2"].cost.tolist() == [1, 3]
    assert beliefs.types["2"].value.tolist() == [7, 9]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: fp.Beliefs(cost=[1, 2], value=0, weight=[0.5, 0.6]),
            "must sum to 1; got 1.1. Divide",
        ),
        (
            lambda: fp.Beliefs(cost=[1, 0], value=0),
            "`cost` of beliefs must be a finite number above 0; got 0 in row 2",
        ),
        (
            lambda: fp.Beliefs(cost=1, value=-1),
            "`value` of beliefs must be a finite number, at least 0; got -1",
        ),
        (lambda: fp.Beliefs(cost="x", value=0), "beliefs must be numbers"),
        (
            lambda: fp.Beliefs.exponential(cost=np.inf, value=0),
            "the mean `cost` of beliefs must be a finite number",
        ),
        (
            lambda: fp.Beliefs.ranges(cost=(9, 1), value=(0, 1)),
            "the range of `cost` must be (low, high)",
        ),
        (lambda: fp.Beliefs.lognormal(cost=1, value=1, spread=-1), "`spread` must be at least 0"),
        (
            lambda: fp.Beliefs.by_client({"a": ONE}).groups(THREE),
            "do not cover client 'b': add its types",
        ),
        (lambda: fp.Beliefs.by_class({"x": ONE}).groups(THREE), "do not cover class 'y'"),
        (lambda: fp.Beliefs.by_class({"x": ONE}).groups(fp.population(3)), "add a column 'class'"),
        (lambda: fp.Beliefs.from_frame(pl.DataFrame({"cost": [1]})), "there is no column 'value'"),
        (lambda: read(cost=["x"]), "column 'cost' must hold numbers; got 'x'"),
        (lambda: read(clas=["x"]), "unknown column 'clas'. Did you mean 'class'?"),
        (
            lambda: read(**{"class": ["x"], "probability": [2.0]}),
            "of the beliefs of class 'x' must sum to 1; got 2",
        ),
        (
            lambda: fp.solve(fp.Game(THREE, bound=BOUND, budget=1)),
            "the clients have no cost and no value",
        ),
    ],
)
def test_bad_beliefs(make: object, message: str) -> None:
    with pytest.raises(fp.InputError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)


def test_clients_without_types_keep_that_through_files(tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    THREE.write(path)
    again = fp.Clients.read(path, types=False)
    assert again.unknown == ("cost", "value")
    assert again.classes is not None
    assert again.classes.tolist() == ["x", "y", "x"]
    with pytest.raises(fp.InputError, match="there is no column 'cost'"):
        fp.Clients.read(path)


def test_coins_update_by_bayes() -> None:
    prior = fp.Beliefs(cost=[10, 40], value=[1000, 1000], weight=[0.3, 0.7])
    posted = fp.post(THREE, prior, bound=BOUND, budget=12)
    seen = Evidence.none(THREE, prior).coins(posted, heads=[4, 2, 9], rounds=10)
    own = seen.beliefs(own=True)
    impact = BOUND.impact(THREE)
    for n, (name, heads) in enumerate((("a", 4), ("b", 2), ("c", 9))):
        levels = fp.game.best_level(posted.prices[n], np.array([10.0, 40.0]), 1000 * impact[n], 2.0)
        likely = np.array([0.3, 0.7]) * stats.binom.pmf(heads, 10, levels)
        np.testing.assert_allclose(own.types[name].weight, likely / likely.sum(), rtol=1e-9)
    others = seen.beliefs(prior_clients=2.0)
    expected = (2 * np.array([0.3, 0.7]) + own.types["b"].weight + own.types["c"].weight) / 4
    np.testing.assert_allclose(others.types["a"].weight, expected, rtol=1e-12)


def test_what_a_client_does_does_not_move_the_beliefs_about_it() -> None:
    prior = fp.Beliefs.exponential(cost=40, value=1000, cells=4)
    posted = fp.post(THREE, prior, bound=BOUND, budget=30)
    none = Evidence.none(THREE, prior)
    one = none.coins(posted, heads=[1, 5, 5], rounds=10).beliefs()
    two = none.coins(posted, heads=[9, 5, 5], rounds=10).beliefs()
    np.testing.assert_array_equal(one.types["a"].weight, two.types["a"].weight)
    assert not np.array_equal(one.types["b"].weight, two.types["b"].weight)


def test_one_answer_after_another_is_as_good_as_all_at_once() -> None:
    prior = fp.Beliefs.exponential(cost=40, value=1000, cells=4)
    posted = fp.post(THREE, prior, bound=BOUND, budget=30)
    levels = posted.answer(cost=[30, 50, 20], value=[500, 100, 2000]).levels
    none = Evidence.none(THREE, prior)
    at_once = none.answers(posted, levels, error=0.1)
    for n, (end, price) in enumerate(zip(posted.tariffs.ends, posted.tariffs.prices, strict=True)):
        none = none.answer(
            n, Tariffs(end[None], price[None]), impact=posted.impact[n], level=levels[n], error=0.1
        )
    for one, other in zip(none.likelihoods, at_once.likelihoods, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    # A type that would choose less than the least level takes that level.
    (type_,) = none.prior.types.values()
    floored = Evidence.none(THREE, prior).answer(
        0, Tariffs.flat([1e-6], [1.0]), impact=0.0, level=0.5, error=0.1, level_min=0.5
    )
    assert floored.likelihoods[0].tolist() == [0.0] * type_.cost.size


def test_who_acts_costlier_gains_where_its_own_deeds_count() -> None:
    """The ratchet: in the next period the price is higher, and so is the true surplus."""
    clients = fp.population(8)
    prior = fp.Beliefs.exponential(cost=50, value=4000, cells=12)
    posted = fp.post(clients, prior, bound=BOUND, budget=40)
    impact = posted.impact
    gains = []
    for n in range(8):
        surplus = []
        for factor in (1.0, 2.5):
            acted = clients.cost.copy()
            acted[n] *= factor
            levels = posted.answer(cost=acted, value=clients.value).levels
            seen = Evidence.none(clients, prior).answers(posted, levels, error=0.05)
            again = fp.post(clients, seen.beliefs(own=True), bound=BOUND, budget=40)
            # Two periods, as the type that it is: the level of the first was acted.
            total = 0.0
            for prices, q in (
                (posted.prices, levels[n]),
                (again.prices, again.answer(cost=clients.cost, value=clients.value).levels[n]),
            ):
                own = clients.value[n] * impact[n] / q
                total += prices[n] * q - clients.cost[n] * q**2 - own
            surplus.append(total)
        gains.append(surplus[1] > surplus[0])
    assert sum(gains) >= 5
    # With the others' deeds alone, the next price is the same whatever it does.


def test_deeds_that_no_type_explains_are_refused() -> None:
    prior = fp.Beliefs(cost=1000, value=0)
    posted = fp.post(THREE, prior, bound=BOUND, budget=3)
    top = fp.post(THREE, fp.Beliefs(cost=1e-3, value=0), bound=BOUND, budget=1e4)
    seen = Evidence.none(THREE, prior).coins(posted, heads=[5, 5, 5], rounds=10)
    seen.beliefs(own=True)
    sure = Evidence.none(THREE, fp.Beliefs(cost=1e-3, value=0)).coins(top, heads=0, rounds=10)
    with pytest.raises(fp.InputError, match="widen the beliefs"):
        sure.beliefs(own=True)
    with pytest.raises(fp.InputError, match="between 0 and `rounds`"):
        Evidence.none(THREE, prior).coins(posted, heads=11, rounds=10)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            lambda: fp.Beliefs.lognormal(cost=50, value=1e308, spread=0.1, value_spread=9.9),
            "the mean of `value` of beliefs is not finite in their highest cells",
        ),
        (
            lambda: fp.Beliefs.exponential(cost=1e308, value=0),
            "the mean of `cost` of beliefs is not finite in their highest cells",
        ),
        (
            lambda: fp.Beliefs.exponential(cost=50, value=1e200),
            "the variance of `value` of beliefs is not finite; the largest value is 4.47e+200",
        ),
        (
            lambda: fp.Beliefs(cost=[1.7e308, 1.7e308, 1], value=0, weight=[0.5, 0.5, 0]),
            None,
        ),
        (
            lambda: fp.Beliefs(cost=[1e160, 1], value=0),
            "the variance of `cost` of beliefs is not finite; the largest cost is 1e+160",
        ),
        (
            lambda: fp.Beliefs.around(
                fp.Clients(samples=[1, 2], grad_norm=1, cost=[1, 1e200], value=0), spread=1.0
            ),
            "the variance of `cost` of beliefs about client '2' is not finite",
        ),
        (
            lambda: fp.Beliefs.from_frame(
                pl.DataFrame(
                    {
                        "class": ["a", "b", "b"],
                        "cost": 1.0,
                        "value": [1.0, 2.0, 1e200],
                        "probability": [1.0, 0.5, 0.5],
                    }
                )
            ),
            "the variance of `value` of the beliefs of class 'b' is not finite",
        ),
    ],
)
def test_infinite_moments_are_not_named(make: Callable[[], fp.Beliefs], line: str | None) -> None:
    if line is None:  # large, and yet without variance
        assert make().types[""].means[0] == 1.7e308
        return
    with pytest.raises(InputError) as caught:
        make()
    text = str(caught.value)
    assert text.startswith(line)
    assert text.endswith("Use a larger unit of money, or a smaller spread.")
    assert "\n" not in text
