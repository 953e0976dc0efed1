"""Charts of beliefs, and what the Beliefs page is asked for, without a browser."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import fedprice as fp
from fedprice._plumbing.tables import write_table
from fedprice.beliefs.figures import hull_of
from fedprice.errors import InputError
from fedprice.web import belief_charts, offer_charts, truth_charts
from fedprice.web.chart_parts import MOST_POINTS
from fedprice.web.post_answers import Believed, forms_to_compare, tariff_frame
from fedprice.web.post_state import BELIEFS_FILE, ROUGH_CELLS, PostAsked
from fedprice.web.served_files import Served
from tests.cli.test_own import calibration

if TYPE_CHECKING:
    from tests.conftest import Run

TEN = fp.population(10)
ASKED = PostAsked(budget=50)
PLAIN = fp.Clients.from_frame(TEN.to_frame().drop("cost", "value"), types=False)


@pytest.fixture(scope="module")
def posted() -> fp.Posted:
    return ASKED.post(TEN)


@pytest.fixture(scope="module")
def lies() -> fp.Manipulability:
    return fp.manipulability(fp.Game(TEN, bound=ASKED.bound(), budget=50))


def test_a_distribution_has_its_quartiles_and_nearly_all_clients() -> None:
    believed = ASKED.marginals(PLAIN)["cost"]
    chart = belief_charts.distribution_chart("cost", believed, None)
    (line,) = chart["series"]
    assert sum(y for _, y in line["data"][:-1]) == pytest.approx(98.5, abs=0.1)
    marks = {mark["name"]: mark["xAxis"] for mark in line["markLine"]["data"]}
    assert marks["median"] == pytest.approx(50 * math.log(2), rel=1e-3)
    assert marks["75 %"] == pytest.approx(50 * math.log(4), rel=1e-3)


def test_a_distribution_stands_beside_the_true_one() -> None:
    chart = belief_charts.distribution_chart("value", ASKED.marginals(TEN)["value"], TEN.value)
    names = [line["name"] for line in chart["series"]]
    assert names == ["believed", "in the table"]
    assert sum(y for _, y in chart["series"][1]["data"][:-1]) <= 100 + 1e-9


@pytest.mark.parametrize(
    "numbers", [[5.0], [5.0, 5.0, 5.0], [0.0], [1e-300, 1e300], [3.0, 4.0, 4.0, 4.0]]
)
def test_a_distribution_of_few_types_can_be_drawn(numbers: list[float]) -> None:
    chart = belief_charts.distribution_chart("cost", None, np.array(numbers))
    json.dumps(chart, allow_nan=False)
    if max(numbers) < 1e9:
        assert sum(y for _, y in chart["series"][0]["data"][:-1]) == pytest.approx(100)


@pytest.mark.parametrize(
    "asked",
    [
        PostAsked(beliefs="lognormal", spread=0.0),
        PostAsked(value=0),
        PostAsked(beliefs="ranges", cost_low=20, cost_high=20),
        PostAsked(beliefs="others"),
        PostAsked(form="menu"),
    ],
)
def test_beliefs_of_every_kind_can_be_drawn(asked: PostAsked) -> None:
    alone = asked.marginals(TEN)
    for what in ("cost", "value"):
        json.dumps(belief_charts.distribution_chart(what, alone[what], TEN.cost), allow_nan=False)
    assert (alone["value"] is None) == (asked.form == "menu")


def test_prices_and_levels_are_those_posted_and_carry_the_clients_names(posted: fp.Posted) -> None:
    (series,) = offer_charts.price_chart(posted, ["3"])["series"]
    assert [point["name"] for point in series["data"]] == posted.clients.ids.tolist()
    prices = [point["value"][1] for point in series["data"]]
    assert prices == pytest.approx(posted.prices, rel=1e-5)
    assert [p["name"] for p in series["data"] if "symbolSize" in p] == ["3"]
    spans = offer_charts.level_chart(posted, [])["series"][1]["data"]
    for (_, low), (_, high), level in zip(
        spans[::3], spans[1::3], posted.moments.level, strict=True
    ):
        assert low <= level <= high


def test_charts_are_thinned_on_the_server() -> None:
    many = PostAsked(budget=2000).post(fp.population(3000), cells=4)
    (series,) = offer_charts.price_chart(many, [])["series"]
    assert len(series["data"]) <= MOST_POINTS
    assert len(offer_charts.level_chart(many, [])["series"][1]["data"]) <= 3 * MOST_POINTS


@pytest.mark.parametrize("form", ["price", "blocks", "tariff", "menu"])
def test_tariffs_end_at_what_the_largest_level_is_paid(form: str) -> None:
    found = PostAsked(budget=50, form=form, blocks=2).post(TEN, cells=4)
    chosen = offer_charts.some_clients(found)
    paid = offer_charts.payment_chart(found, [*chosen, "nobody"])["series"]
    assert [line["name"] for line in paid] == [f"client {name}" for name in chosen]
    n = TEN.ids.tolist().index(chosen[0])
    assert paid[0]["data"][-1][1] == pytest.approx(found.tariffs.end_payments[n, -1], rel=1e-5)
    for chart in (offer_charts.marginal_chart, offer_charts.price_chart, offer_charts.level_chart):
        json.dumps(chart(found, chosen), allow_nan=False)


def test_a_hull_lies_below_its_curve_and_touches_it_at_the_price(posted: fp.Posted) -> None:
    name = offer_charts.some_clients(posted)[0]
    hull = hull_of(posted, name)
    chart = offer_charts.hull_chart(hull)
    names = [series["name"] for series in chart["series"]]
    assert names[:2] == ["lower hull", "one point per price"]
    x, y = chart["series"][-1]["data"][0]
    assert (x, y) == pytest.approx(hull.here, rel=1e-3)
    least = min(y for _, y in offer_charts.worth_chart(hull)["series"][0]["data"])
    assert offer_charts.worth_chart(hull)["series"][1]["data"][0][1] == pytest.approx(
        least, rel=1e-5
    )


def test_information_has_a_bar_with_whiskers_per_form(posted: fp.Posted) -> None:
    found = posted.value_of_information(20)
    chart = truth_charts.information_chart({"one price": found})
    assert chart["series"][0]["data"][0]["name"] == f"one price: {found.ratio:.2f}"
    low, high = chart["series"][1]["markLine"]["data"][0]
    assert low["coord"][0] < found.ratio < high["coord"][0]


def test_lies_and_refusals_name_their_clients(lies: fp.Manipulability) -> None:
    points = [p for s in truth_charts.gain_chart(lies)["series"] for p in s["data"]]
    assert {p["name"] for p in points} == set(TEN.ids)
    money = truth_charts.money_chart(lies)
    assert money["series"][0]["data"][0] == pytest.approx(lies.gain.max(), rel=1e-5)
    found = fp.refusals(lies.truth)
    bars = truth_charts.refusal_chart(found)
    refusing = [z for z in bars["series"][0]["data"] if z is not None]
    assert len(refusing) == int(found.refuses.sum())
    json.dumps([money, bars], allow_nan=False)


def test_what_is_asked_survives_the_address() -> None:
    asked = PostAsked(beliefs="lognormal", spread=0.3, form="blocks", blocks=8, budget=12.5)
    assert PostAsked().changed(asked.address(PostAsked())) == asked
    assert PostAsked().address(PostAsked()) == {}


@pytest.mark.parametrize(
    ("address", "line"),
    [
        ({"cost": "much"}, "`cost` in the address must be a number"),
        ({"alpha": "nan"}, "`alpha` in the address must be a number"),
        ({"cost": "1e300"}, "`cost` must be 0, or between 1e-09 and 1e.09 in size; got 1e.300"),
        ({"beliefs": "tarot"}, "there are no beliefs 'tarot'"),
        ({"form": "menu", "beliefs": "others"}, "a menu cannot be made from the other clients"),
    ],
)
def test_an_address_that_asks_for_nonsense_is_refused(address: dict[str, str], line: str) -> None:
    with pytest.raises(InputError, match=line):
        PostAsked().changed(address)


def test_beliefs_that_need_more_than_there_is_say_so() -> None:
    with pytest.raises(InputError, match="drop a file of beliefs"):
        PostAsked(beliefs="file").post(PLAIN)
    with pytest.raises(InputError, match="the clients have no cost"):
        PostAsked(beliefs="others").post(PLAIN)


def test_a_rough_answer_is_close() -> None:
    rough, fine = ASKED.post(TEN, cells=ROUGH_CELLS), ASKED.post(TEN)
    assert rough.expected_loss == pytest.approx(fine.expected_loss, rel=0.03)
    assert rough.spend_std == pytest.approx(fine.spend_std, rel=0.05)


SAME = [
    PostAsked(),
    PostAsked(cost=40, value=0, risk=0.05, exponent=1.5),
    PostAsked(classes=3, budget=33.3),
    PostAsked(form="blocks", blocks=2),
    PostAsked(form="tariff"),
    PostAsked(form="menu"),
    PostAsked(beliefs="others"),
    PostAsked(beliefs="lognormal", spread=0.25),
    PostAsked(beliefs="ranges", value_high=5000, rounds=500, alpha=2.5),
    PostAsked(beliefs="file"),
]


@pytest.mark.parametrize(
    "asked", SAME, ids=lambda asked: " ".join(asked.address(PostAsked()).values())
)
def test_command_and_python_compute_the_same(
    asked: PostAsked, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    TEN.write("clients.csv")
    file = fp.Beliefs(cost=[20, 60], value=[0, 5000], weight=[0.75, 0.25])
    if asked.needs_file():
        write_table(asked.beliefs_about(TEN, file).to_frame(), BELIEFS_FILE)
    posted = asked.post(TEN, file)
    words = asked.command("clients.csv").split()
    code, out, _ = run(*words[1:], "--format", "json")
    assert code == 0
    found = json.loads(out)["summary"]
    for name in ("expected_loss", "expected_spend", "spend_std", "over_budget"):
        assert found[name] == pytest.approx(getattr(posted, name), rel=1e-9), name
    scope: dict[str, fp.Posted] = {}
    exec(asked.python("clients.csv"), scope)
    assert scope["posted"].to_frame().equals(posted.to_frame())


def test_every_form_is_compared_that_can_be() -> None:
    asked = PostAsked(classes=3, risk=0.1)
    forms = forms_to_compare(asked, values=True)
    assert list(forms) == [
        "one price for all", "one price per client", "2 blocks", "4 blocks", "nonlinear tariff",
        "menu, values known",
    ]  # fmt: skip
    assert forms["one price per client"] == PostAsked()
    assert "menu, values known" not in forms_to_compare(asked, values=False)
    others = forms_to_compare(PostAsked(beliefs="others"), values=True)
    assert list(others) == ["one price per client", "2 blocks", "4 blocks", "nonlinear tariff"]


def test_too_many_clients_for_a_page_are_told_the_way_out() -> None:
    many = Believed(fp.population(6000))
    with pytest.raises(InputError, match=r"for up to 300 clients; got 6,000\. Copy the command"):
        many.post(PostAsked(beliefs="others"))
    with pytest.raises(InputError, match="up to 5,000 clients"):
        many.comparable()
    with pytest.raises(
        InputError, match=r"up to 400 clients.*Run: fedprice compare --lies 2 clients\.csv"
    ):
        many.lies(many.equilibrium(PostAsked()))


def test_an_equilibrium_that_the_budget_does_not_reach_is_one_line() -> None:
    floors = fp.Clients.from_frame(TEN.to_frame().with_columns(level_min=pl.lit(1.0)))
    with pytest.raises(InputError, match="infeasible: equilibrium needs a budget"):
        Believed(floors).equilibrium(PostAsked(budget=1))


def test_numbers_beyond_all_measure_are_one_line() -> None:
    file = fp.Beliefs(cost=1e-300, value=1e300)
    with pytest.raises(InputError, match="what to post lost its precision"):
        Believed(PLAIN, file=file).post(PostAsked(beliefs="file"))


def test_the_table_shows_prices_of_few_blocks_only(posted: fp.Posted) -> None:
    names = tariff_frame(posted).columns
    offered = ["client_id", "price", "expected_level", "expected_payment", "payment_std"]
    assert names[:5] == offered  # first, so that a narrow screen shows them
    assert names[5:] == ["samples", "cost", "value", "impact"]
    blocks = tariff_frame(PostAsked(form="blocks", blocks=2, budget=50).post(PLAIN, cells=3))
    assert blocks.columns[:4] == ["client_id", "price_1", "price_2", "expected_level"]
    tariff = tariff_frame(PostAsked(form="tariff", budget=50).post(PLAIN, cells=3))
    assert not any(name.startswith("price") for name in tariff.columns)


def test_python_of_the_example_runs_by_itself(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(PostAsked().python(None))
    done = subprocess.run([sys.executable, "own.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout == f"{PostAsked().post(fp.population())!r}\n"


def test_a_file_of_beliefs_may_go_by_class() -> None:
    frame = TEN.to_frame().with_columns(pl.Series("class", ["a", "b"] * 5))
    some = fp.Clients.from_frame(frame)
    file = fp.Beliefs.by_class(
        {"a": fp.Beliefs(cost=10, value=0), "b": fp.Beliefs(cost=30, value=0)}
    )
    alone = PostAsked(beliefs="file").marginals(some, file)["cost"]
    assert alone is not None
    assert alone.cost.tolist() == [10, 30]
    assert alone.weight.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("columns", [("cost", "value"), ("value",), ()])
def test_a_calibration_is_posted_with_as_the_command_does(
    columns: tuple[str, ...], tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    measured = calibration()
    measured.write("calibration.json")
    every = {"client_id": ["c", "a", "b"], "cost": [50.0, 30.0, 40.0], "value": [9.0, 0.0, 90.0]}
    pl.DataFrame(every).select("client_id", *columns).write_csv("terms.csv")
    own = Believed.served(Served(clients=Path("terms.csv"), calibration=Path("calibration.json")))
    asked = own.usual.changed({"budget": "60", "rounds": "50", "cost": "30", "value": "50"})
    posted = own.post(asked)
    command = asked.command("terms.csv", calibration="calibration.json")
    code, out, _ = run(*shlex.split(command)[1:], "--format", "json")
    assert code == 0
    shown = {row["client_id"]: row["price"] for row in json.loads(out)["clients"]}
    prices = dict(zip(posted.clients.ids, posted.prices, strict=True))
    assert shown == pytest.approx(prices, rel=1e-9)
    names: dict[str, Any] = {}
    exec(asked.python("terms.csv", calibration="calibration.json"), names)
    again = names["posted"]
    assert dict(zip(again.clients.ids, again.prices, strict=True)) == pytest.approx(
        prices, rel=1e-9
    )
