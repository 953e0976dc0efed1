"""The clients of the Price page, what is asked for, and what can be wrong with both."""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import fedprice as fp
from fedprice.errors import FedpriceError
from fedprice.pricing import SCHEMES
from fedprice.web.newest_only import Newest
from fedprice.web.post_answers import Believed
from fedprice.web.post_state import PostAsked
from fedprice.web.price_answers import Priced
from fedprice.web.price_state import OFFERED, Asked
from fedprice.web.pricing_charts import price_chart
from fedprice.web.served_files import Served
from fedprice.web.uploads import clients_of, columns_to_rename
from tests.cli.test_own import calibration

if TYPE_CHECKING:
    from tests.conftest import Run

TABLE = "client_id,samples,grad_norm,cost,value\na,1,1,40,0\nb,2,1,50,90\n"


def test_a_million_clients_are_not_read_again_for_every_tab(tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    path.write_text(TABLE)
    served = Served(clients=path)
    first = Priced.served(served)
    assert Priced.served(served) is first
    path.write_text(TABLE + "c,3,1,60,0\n")
    assert len(Priced.served(served).clients) == 3, "a file that changed is read again"
    path.unlink()
    with pytest.raises(FedpriceError, match="cannot read"):
        Priced.served(served)


def test_costs_beyond_all_measure_are_refused_in_one_line() -> None:
    row = "a,1,1,1.7e308,0\n"
    clients, _ = clients_of("a.csv", (TABLE.splitlines(keepends=True)[0] + row).encode())
    with pytest.raises(FedpriceError, match="lost its precision"):
        Priced(clients).ends(Asked())


def test_an_address_asks_only_for_schemes_that_the_page_offers() -> None:
    for name in {*SCHEMES} - {*OFFERED}:
        for field in ("scheme", "against"):
            with pytest.raises(FedpriceError, match="there is no scheme"):
                Asked().changed({field: name})


def test_rounds_that_no_browser_counts_are_refused() -> None:
    for text in ("1e20", "1e308"):
        with pytest.raises(FedpriceError, match=r"`rounds` must be at most 1,000,000,000,000,000"):
            Asked().changed({"rounds": text})


def test_the_name_of_a_file_is_no_option_of_a_copied_command() -> None:
    for name in ("--force.csv", "-o", "$(id).csv", "a b'c"):
        for words in (Asked().command(name, name), PostAsked(beliefs="file").command(name, name)):
            given = [word for word in shlex.split(words) if word.endswith(name)]
            assert len(given) == 2
            assert not any(word.startswith("-") for word in given)


HOSPITALS = "hospital,patients,cost_eur\nAnna,1200,4000\nElbe,600,2000\n"
RENAME = (("hospital", "client_id"), ("patients", "samples"), ("cost_eur", "cost"))


def test_a_table_of_three_columns_is_priced_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    """The copied command and the copied Python give the prices of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text(HOSPITALS)
    with pytest.raises(FedpriceError, match="Try --rename hospital=client_id,patients=samples,"):
        Priced.served(Served(clients=Path("own.csv")))
    priced = Priced.served(Served(clients=Path("own.csv"), rename=RENAME))
    assert priced.assumed == ("grad_norm", "value")
    opened = Priced.served(Served(clients=Path("own.csv"), rename=RENAME, budget=3000))
    asked = opened.usual
    assert asked.budget == 3000
    assert priced.usual.budget == 200
    levels = priced.outcome(asked).levels
    words = shlex.split(asked.command("own.csv", None, priced.rename))
    code, out, err = run(*words[1:], "--format", "json")
    assert (code, err) == (0, "")
    assert [row["level"] for row in json.loads(out)["clients"]] == pytest.approx(levels)
    scope: dict[str, Any] = {}
    exec(asked.python("own.csv", None, priced.rename, priced.assumed), scope)
    assert scope["outcome"].levels.tolist() == levels.tolist()


ODD = "Name d'Klinik"  # as spreadsheets may head a column


@pytest.mark.parametrize("columns", [("cost", "value"), ("cost",)])
def test_a_calibrated_table_is_copied_with_its_caps_and_odd_names(
    columns: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    calibration().write("c.json")
    every = {"cost": [50.0, 30.0, 40.0], "value": [9.0, 0.0, 90.0]}
    table = pl.DataFrame(
        {ODD: ["c", "a", "b"], "level_max": [1.0, 0.3, 1.0]}
        | {name: every[name] for name in columns}
    )
    table.write_csv("own.csv", separator=";")
    served = Served(
        clients=Path("own.csv"), calibration=Path("c.json"), rename=((ODD, "client_id"),), budget=60
    )
    priced = Priced.served(served)
    assert priced.assumed == tuple(name for name in ("value",) if name not in columns)
    asked = priced.usual
    outcome = priced.outcome(asked)
    levels = dict(zip(outcome.game.clients.ids, outcome.levels, strict=True))
    assert max(levels["a"] - 0.3, 0) == 0
    words = shlex.split(asked.command("own.csv", "c.json", priced.rename))
    code, out, err = run(*words[1:], "--format", "json")
    assert (code, err) == (0, "")
    shown = {row["client_id"]: row["level"] for row in json.loads(out)["clients"]}
    assert shown == pytest.approx(levels, rel=1e-9)
    scope: dict[str, Any] = {}
    exec(asked.python("own.csv", "c.json", priced.rename, priced.assumed), scope)
    again = scope["outcome"]
    copied = dict(zip(again.game.clients.ids, again.levels, strict=True))
    assert copied == pytest.approx(levels, rel=1e-9)


def test_the_beliefs_page_takes_other_names(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text(TABLE.replace("client_id", "hospital"))
    with pytest.raises(FedpriceError, match="Try --rename hospital=client_id"):
        Believed.served(Served(clients=path))
    rename = (("hospital", "client_id"),)
    own = Believed.served(Served(clients=path, rename=rename))
    assert own.clients.ids.tolist() == ["a", "b"]
    text = PostAsked(beliefs="others").python(str(path), rename=own.rename)
    scope: dict[str, Any] = {}
    exec(text.partition("posted = ")[0], scope)
    assert scope["clients"].ids.tolist() == ["a", "b"]


def test_a_dropped_table_may_lack_values_and_norms() -> None:
    clients, assumed = clients_of("own.csv", b"client_id,samples,cost\na,1,2\nb,3,4\n")
    assert (assumed, clients.value.tolist()) == (("grad_norm", "value"), [0, 0])
    with pytest.raises(FedpriceError, match=r"own\.csv: there is no column 'cost'"):
        clients_of("own.csv", b"client_id,samples\na,1\n")


def test_columns_of_other_names_are_asked_for() -> None:
    content = HOSPITALS.replace("hospital", "Krankenhaus").encode()
    likely = {"Krankenhaus": "", "patients": "samples", "cost_eur": "cost"}
    assert columns_to_rename("own.csv", content) == likely
    rename = likely | {"Krankenhaus": "client_id"}
    clients, assumed = clients_of("own.csv", content, rename)
    assert (clients.ids.tolist(), assumed) == (["Anna", "Elbe"], ("grad_norm", "value"))


@pytest.mark.parametrize("of", [Priced, Believed])
def test_no_address_replaces_a_measured_alpha(of: Any, tmp_path: Path) -> None:
    """The page would show the measured one, and both copies would use it."""
    measured = calibration()
    measured.write(tmp_path / "c.json")
    table = pl.DataFrame({"client_id": measured.ids, "cost": 50.0, "value": 0.0})
    table.write_csv(tmp_path / "own.csv")
    served = Served(clients=tmp_path / "own.csv", calibration=tmp_path / "c.json")
    own = of.served(served)
    assert own.asked({"budget": "60"}).budget == 60
    with pytest.raises(FedpriceError, match="`alpha` in the address cannot replace the measured"):
        own.asked({"alpha": "9"})


def test_a_table_without_norms_is_believed_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.csv").write_text("client_id,samples\na,1200\nb,600\n")
    own = Believed.served(Served(clients=Path("own.csv")))
    assert own.assumed == ("grad_norm",)
    asked = own.asked({"cost": "40", "budget": "3"})
    assert asked.value == 0
    prices = own.post(asked).prices
    scope: dict[str, Any] = {}
    code_of = asked.python("own.csv", rename=own.rename, assumed=own.assumed)
    exec(code_of.replace("print(posted)", ""), scope)
    assert scope["posted"].prices.tolist() == prices.tolist()
    words = shlex.split(asked.command("own.csv"))
    code, out, err = run(*words[1:], "--format", "json")
    assert (code, err) == (0, "")
    assert [row["price"] for row in json.loads(out)["clients"]] == pytest.approx(prices)


def test_axes_begin_where_budgets_are_feasible() -> None:
    sellers = fp.Clients(samples=[1200, 600], grad_norm=1, cost=[4000, 2000], value=0)
    low, high = Priced(sellers).ends(Asked(budget=900))
    assert 0 < low < 900 < high
    curve = Priced(sellers).frontier(Asked(budget=900), (low, high))
    assert [curve[0][0], curve[-1][0]] == [low, high]
    assert all(0 <= distance <= 1 for _, distance in curve)  # as the cards and commands say it
    closest = Priced(sellers).outcome(Asked(budget=high)).distance
    assert curve[-1][1] == pytest.approx(closest)
    floors = fp.Clients(samples=[1, 1], grad_norm=1, cost=[900, 900], value=0, level_min=0.5)
    low, high = Priced(floors).ends(Asked(budget=2000))
    assert fp.solve(Priced(floors).game(Asked(budget=low))).status is not fp.Status.INFEASIBLE
    assert low < 1000


def test_equal_values_are_no_axis() -> None:
    sellers = fp.Clients(samples=[1200, 600], grad_norm=1, cost=[4000, 2000], value=0)
    priced = Priced(sellers)
    chart = price_chart(priced.outcome(Asked()), priced.rows)
    assert chart["xAxis"]["name"] == "samples"
    assert [point["value"][0] for point in chart["series"][0]["data"]] == [1200, 600]
    shares = fp.Clients(weight=[0.7, 0.3], grad_norm=1, cost=[4, 2], value=9)
    priced = Priced(shares)
    chart = price_chart(priced.outcome(Asked()), priced.rows)
    assert chart["xAxis"]["name"] == "share of the data"


def test_a_what_if_is_copied_as_a_command() -> None:
    text = Asked(budget=60).command("own.csv", changes={"St. Anna": {"cost": 6000.0}})
    assert shlex.split(text)[-2:] == ["--what-if", "St. Anna cost=6000"]


def test_work_that_waits_is_not_done_at_once() -> None:
    done = []

    async def short() -> None:
        done.append(1)

    async def long() -> None:
        await asyncio.sleep(0)

    Newest(short).at_once()
    assert done == [1]
    with pytest.raises(RuntimeError, match="await it instead"):
        Newest(long).at_once()


def test_rows_in_the_order_of_a_calibration_are_priced_shown_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    calibration().write("c.json")
    Path("own.csv").write_text("client_id,samples,cost\nAnna,10,50\nElbe,77,30\nCharité,20,40\n")
    served = Served(clients=Path("own.csv"), calibration=Path("c.json"), budget=60)
    with pytest.raises(FedpriceError, match="add --by-order"):
        Priced.served(served)
    by_order = replace(served, by_order=True)
    priced, believed = Priced.served(by_order), Believed.served(by_order)
    for own in (priced, believed):
        (note,) = (line for line in own.notes if "samples" in line)
        assert "differs from what was measured for 1 of 3 clients" in note
        assert "'Elbe': 77, measured 10" in note
    levels = priced.outcome(priced.usual).levels
    code, out, err = run(*shlex.split(priced.command(priced.usual))[1:], "--format", "json")
    assert (code, "'Elbe': 77, measured 10" in err) == (0, True)
    assert [row["level"] for row in json.loads(out)["clients"]] == pytest.approx(levels, rel=1e-9)
    scope: dict[str, Any] = {}
    exec(priced.python(priced.usual).replace("print(", "str("), scope)
    assert scope["outcome"].levels == pytest.approx(levels, rel=1e-9)
    asked = believed.asked({"cost": "40", "value": "0"})
    code, out, err = run(*shlex.split(believed.command(asked))[1:], "--format", "json")
    assert code == 0, err
    posted = believed.post(asked).prices
    assert [row["price"] for row in json.loads(out)["clients"]] == pytest.approx(posted)
    scope = {}
    exec(believed.python(asked).replace("print(posted)", ""), scope)
    assert scope["posted"].prices == pytest.approx(posted)


def test_beliefs_begin_with_what_the_table_and_the_command_line_say(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("client_id,samples,cost\na,1,910\nb,2,90\nc,3,1234.5\n")
    usual = Believed.served(Served(clients=path, budget=800)).usual
    assert (usual.budget, usual.value, usual.value_high) == (800, 0, 0)
    assert (usual.cost, usual.cost_low, usual.cost_high) == (745, 90, 1230)
    path.write_text("client_id,samples\na,1\nb,2\n")
    assert Believed.served(Served(clients=path)).usual.cost == PostAsked().cost
    assert Believed.served(Served(budget=60)).usual == PostAsked(budget=60)
