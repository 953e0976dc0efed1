"""The Runs pages in a real browser."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from fedprice.market.ledger import Ledger, Refused
from fedprice.market.simulation import simulate_market
from tests.market.test_following import record, unsigned
from tests.web.conftest import card, wait_for_card
from trials.markets import small_outcome, small_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

    from trials.serving import Serving

ODD = "<img src=x onerror=hacked=1> /../run?#%41"
REASON = "<script>hacked=1</script>"


def part(page: Page, name: str) -> Locator:
    return page.locator(f"[data-part={name}]")


def drawn(page: Page, chart: int, series: int = 0) -> int:
    """How many points a chart draws in one of its series."""
    script = """([chart, series]) => getElement(document.querySelectorAll('.nicegui-echart')[chart]
        .id.slice(1)).chart.getOption().series[series].data.length"""
    found: int = page.evaluate(script, [chart, series])
    return found


def children_of(pid: int) -> list[int]:
    """The processes that one started, and those that they started."""
    own = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    for task in Path(f"/proc/{pid}/task").iterdir():
        own += [int(child) for child in (task / "children").read_text().split()]
    return sorted({*own, *(other for child in {*own} for other in children_of(child))})


@pytest.mark.slow
def test_without_a_ledger_the_page_says_what_to_do(
    page: Page, serving: Callable[..., Serving]
) -> None:
    page.goto(serving().url + "runs")
    expect(page.get_by_text("fedprice serve --ledger sqlite:///market.db")).to_be_visible()


@pytest.mark.slow
def test_a_live_run_appears_while_the_ledger_grows(
    page: Page, serving: Callable[..., Serving], tmp_path: Path
) -> None:
    """From a ledger that is not there yet to a run that is settled, without a reload."""
    path = tmp_path / "market.db"
    server = serving("--ledger", path)
    page.goto(server.url + "runs")
    expect(page.get_by_text("There is no ledger")).to_be_visible()
    assert not path.exists()
    ledger = Ledger(str(path))
    expect(page.get_by_text("has no run yet")).to_be_visible()
    unsigned(ledger, "first", 20)
    record(ledger, "first", 0, 1)
    page.get_by_role("link", name="first").click()
    wait_for_card(page, "rounds", "1")
    expect(part(page, "state")).to_have_text("open")
    for done in (2, 7, 20):
        record(ledger, "first", ledger.rounds_done("first"), done)
        wait_for_card(page, "rounds", str(done))
    wait_for_card(page, "loss", "0.05263")
    expect(page.locator("th", has_text="agreed (CREDIT)")).to_be_visible()  # money has a unit
    expect(page.locator("td", has_text=re.compile("^bob$")).first).to_be_visible()
    ledger.settle("first")
    expect(part(page, "state")).to_have_text("settled")
    entries = len(ledger.verify().hashes)
    expect(part(page, "verification")).to_have_text(f"verified, {entries} entries")
    expect(part(page, "counted")).to_contain_text("the first 20 rounds")
    assert drawn(page, 0) == 21
    ledger.close()
    started = children_of(server.process.pid)
    assert started  # the verification
    assert server.stop() == 0
    end = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_market_with_odd_names_stopped_between_periods(
    page: Page, serving: Callable[..., Serving], tmp_path: Path
) -> None:
    """Names and reasons are text, whatever they are; a stopped run says how it goes on."""
    path, task = tmp_path / "market.db", small_task()
    ledger = Ledger(str(path))
    outcome = small_outcome(task.federation)
    simulate_market(
        task, outcome, ledger=ledger, run=ODD, rounds=5, threads=1, evaluate_every=2, metrics=True
    )
    unsigned(ledger, "..", 20)
    ledger.record_round("..", 0, model="0" * 64, refused={"bob": Refused(REASON)})
    ledger.close()
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))
    server = serving("--ledger", path)
    page.goto(server.url + "runs")
    page.get_by_role("link", name=ODD).click()
    expect(part(page, "run")).to_have_text(ODD)
    wait_for_card(page, "rounds", "5")
    expect(page.get_by_text("resumes after round 5")).to_be_visible()
    expect(page.get_by_text("<b>bob</b>").first).to_be_visible()
    assert float(card(page, "loss")) > 0
    assert drawn(page, 2) == 4
    page.reload()
    expect(part(page, "run")).to_have_text(ODD)
    page.goto(server.url + "runs")
    page.get_by_role("link", name="..", exact=True).click()
    expect(page.get_by_text(REASON)).to_be_visible()
    expect(page.get_by_text("fedprice ledger settle .. --ledger")).to_be_visible()
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator("img[src=x]").count() == 0
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    page.goto(server.url + "runs/none")
    expect(page.get_by_role("alert")).to_contain_text("has no run 'none'")


@pytest.mark.slow
def test_a_damaged_ledger_is_said_to_be(
    page: Page, serving: Callable[..., Serving], tmp_path: Path
) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    unsigned(ledger, "run", 6)
    record(ledger, "run", 0, 6)
    ledger.close()
    raw = sqlite3.connect(path, isolation_level=None)
    raw.execute("DROP TRIGGER entries_no_update")
    raw.execute("UPDATE entries SET content = replace(content, '[]', '[\"bob\"]') WHERE round = 2")
    raw.close()
    page.goto(serving("--ledger", path).url + "runs/run")
    expect(part(page, "verification")).to_contain_text("does not verify: entry 6 (round 3 of run")
    wait_for_card(page, "rounds", "6")  # what is there is shown
