"""What the Client page draws: curves and menus with the best level marked, and balances."""

from typing import Any

import polars as pl
import pytest

from fedprice import InputError
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.responses import offer_in_words
from fedprice.market.tariffs import Tariff
from fedprice.web.client_charts import balance_chart, earning_chart, earning_rows
from tests.web.markets import offer_of

BLOCKS = Tariff(((LEVEL_ONE // 2, 8 * MICRO), (LEVEL_ONE, 2 * MICRO)))
MENU = Tariff(((LEVEL_ONE // 4, 8 * MICRO), (LEVEL_ONE, 2 * MICRO)), menu=True)


def names(chart: dict[str, Any]) -> list[str]:
    return [series["name"] for series in chart["series"]]


def marked(chart: dict[str, Any]) -> tuple[float, float]:
    (point,) = chart["series"][-1]["markPoint"]["data"]
    (line,) = chart["series"][-1]["markLine"]["data"]
    assert line["xAxis"] == point["coord"][0]
    return tuple(point["coord"])


def test_the_best_level_is_where_the_net_is_largest() -> None:
    offer, all_, _ = offer_of(BLOCKS, impact=0.25)
    chart = earning_chart(offer, all_, cost=5.0, value=4.0)
    assert names(chart) == ["payment", "cost", "absence", "net"]
    level, net = marked(chart)
    assert [level, net] in chart["series"][-1]["data"]
    assert net == max(y for _, y in chart["series"][-1]["data"])
    assert 2 + 1 / level**2 == pytest.approx(10 * level, abs=1e-6)
    assert chart["yAxis"]["name"] == "EUR"
    low, high = chart["yAxis"]["min"], chart["yAxis"]["max"]
    assert low < 0
    assert high > 5  # absence alone, which grows without bound, does not scale the axis
    assert high < 7


def test_a_higher_cost_moves_the_best_level_down() -> None:
    offer, all_, _ = offer_of(BLOCKS)
    levels = [marked(earning_chart(offer, all_, cost=cost))[0] for cost in (2.0, 10.0, 20.0)]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] > levels[-1]


def test_of_a_menu_only_the_ends_are_drawn() -> None:
    offer, all_, _ = offer_of(MENU)
    chart = earning_chart(offer, all_, cost=5.0)
    assert names(chart) == ["payment", "cost", "net"]
    assert [x for x, _ in chart["series"][0]["data"]] == [0.25, 1.0]
    assert chart["series"][0]["showSymbol"] is True
    assert marked(chart) == (0.25, 1.6875)


def test_without_a_cost_only_the_payment_is_drawn() -> None:
    offer, all_, _ = offer_of(BLOCKS)
    chart = earning_chart(offer, all_, cost=None)
    assert names(chart) == ["payment"]
    assert "markPoint" not in chart["series"][0]
    assert [0.5, 4.0] in chart["series"][0]["data"]  # where the price changes


def test_rows_of_a_table_have_the_best_level_among_them() -> None:
    offer, all_, _ = offer_of(BLOCKS, impact=0.25, floor=LEVEL_ONE // 4)
    rows, best = earning_rows(offer, all_, cost=5.0, value=4.0)
    assert rows.columns == ["level", "payment", "cost", "absence", "utility"]
    assert rows["level"][0] >= 0.25
    assert best in rows["level"]
    net = rows["payment"] - rows["cost"] - rows["absence"]
    assert rows["utility"].to_list() == pytest.approx(net.to_list())


def test_numbers_that_are_too_far_apart_are_refused() -> None:
    offer, all_, _ = offer_of(BLOCKS, impact=1e300)
    with pytest.raises(InputError, match="lost its precision"):
        earning_chart(offer, all_, cost=5.0, value=1e300)


def test_an_offer_in_words() -> None:
    def said(tariff: Tariff, **other: Any) -> str:
        offer, all_, _ = offer_of(tariff, **other)
        return " ".join(offer_in_words(offer, all_))

    paid = said(Tariff.flat(12_500_000, LEVEL_ONE // 2), floor=LEVEL_ONE // 8)
    assert paid == (
        "You are paid 12.50 EUR per unit of level for 12 rounds, up to level 0.5, where you get "
        "6.25 EUR. The least level that is accepted is 0.125."
    )
    assert said(Tariff.flat(-MICRO, LEVEL_ONE)).startswith("The price is negative: you would pay")
    assert "Only these levels can be chosen." in said(MENU)
    falling = said(Tariff(((LEVEL_ONE // 2, 8 * MICRO), (LEVEL_ONE, -2 * MICRO))))
    assert "a higher level earns less" in falling
    assert "3 of the 12 rounds" in said(BLOCKS, rounds=3, run_rounds=12)
    assert "until 2026-01-02 00:00 UTC" in said(BLOCKS, expires=1_767_312_000)


def test_a_balance_is_thinned_and_ends_with_the_last_one() -> None:
    entries = pl.DataFrame(
        {"entry": range(100_000), "balance": [n / 4 for n in range(100_000)]},
        schema={"entry": pl.Int64, "balance": pl.Decimal(38, 6)},
    )
    (series,) = balance_chart(entries, "EUR")["series"]
    assert len(series["data"]) == 2000
    assert series["data"][-1] == [99_999, 24_999.75]
    (series,) = balance_chart(entries[:3], "EUR")["series"]
    assert series["data"] == [[0, 0.0], [1, 0.25], [2, 0.5]]
