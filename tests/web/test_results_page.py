"""The page of results, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .small_reproduction import write_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from trials.serving import Serving

pytest.importorskip("nicegui", reason="needs the extra `web`")

SERIES = (
    "() => [...document.querySelectorAll('[aria-label=\"loss over simulated time\"]')].map(e => "
    "getElement(+e.id.slice(1)).chart.getOption().series.map(s => s.data.at(-1)[1]))[0]"
)


def test_results_show_verdicts_tables_and_curves_of_the_chosen_seeds(
    serving: Callable[..., Serving], page: Page, tmp_path: Path
) -> None:
    url = serving("--results", write_small(tmp_path / "results")).url
    page.goto(f"{url}results")
    table = page.locator(".q-table").first
    table.get_by_text("The equilibrium is sooner").wait_for()
    assert table.get_by_text("0.90 (0.80 to 1.00)").is_visible()
    assert page.locator('[aria-label="holds"] .fp-number').inner_text() == "1"

    # A seed that is switched off leaves the means, and the address.
    every = page.evaluate(SERIES)
    page.get_by_role("button", name="seed 1").click()
    page.wait_for_function(f"before => JSON.stringify(({SERIES})()) !== before", arg=_text(every))
    page.wait_for_url("**/results?*off=1*")
    some = page.evaluate(SERIES)

    # The same link shows the same.
    odd = page.request.get(f"{url}results?off=²,{'9' * 5000}")
    assert odd.status == 200, "what is no number of a seed is ignored"
    page.goto(page.url)
    table.get_by_text("The equilibrium is sooner").wait_for()
    page.wait_for_function(f"same => JSON.stringify(({SERIES})()) === same", arg=_text(some))
    assert page.get_by_role("button", name="seed 1").get_attribute("aria-pressed") == "false"

    # Tables sort by number: as text, 11 would come before 3.
    page.get_by_text("Table V: clients with a negative price").click()
    second = page.locator(".q-table").nth(1)
    for _ in range(2):
        second.get_by_text("payers, median").click()
    second.locator("tbody tr").first.get_by_text("11", exact=True).wait_for()


def test_results_say_what_to_do_where_there_are_none(
    serving: Callable[..., Serving], page: Page, tmp_path: Path
) -> None:
    page.goto(f"{serving().url}results")
    page.get_by_text("fedprice reproduce setup1 --quick").wait_for()
    page.goto(f"{serving('--results', tmp_path).url}results")
    page.get_by_text("holds no finished reproduction. Run: fedprice reproduce").wait_for()


def _text(numbers: list[float]) -> str:
    return "[" + ",".join(f"{x:.15g}" for x in numbers) + "]"
