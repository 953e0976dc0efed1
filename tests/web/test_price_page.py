"""The Price page in a real browser."""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import polars as pl
import pytest
from playwright.sync_api import TimeoutError as Late
from playwright.sync_api import expect

import fedprice as fp
from fedprice.commands.what_if import what_if
from fedprice.commands.words import WORDS
from fedprice.pricing.display import number, percent
from tests.cli.test_own import calibration
from tests.web.conftest import card, card_of, wait_for_card
from tests.web.reverse_proxy import proxied
from trials.serving import Serving, serving_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page

EXAMPLE = fp.population()
BOUND = fp.Bound(alpha=3.3, rounds=1000)
TOKEN = "a-token-of-23-letters.."


# Where the handle of a chart is, as soon as somebody listens to it.
HANDLE = """own => {
    const chart = getElement(own.slice(1))?.chart;
    const handle = chart?.getZr().storage.getDisplayList().find(drawn => drawn.draggable);
    return handle && !chart.isSilent('updateaxispointer') && [handle.x, handle.y];
}"""


def outcome(budget: float = 200, scheme: str = "equilibrium") -> fp.Outcome:
    return fp.solve(fp.Game(EXAMPLE, bound=BOUND, budget=budget), scheme)


@pytest.fixture(scope="module")
def example() -> Iterator[Serving]:
    """One server with the example, for all tests that leave it as it is."""
    with serving_of() as started:
        yield started


def points(page: Page, chart: int, series: int) -> list[str]:
    """The names of the points that a chart draws in one of its series."""
    script = """([chart, series]) => getElement(document.querySelectorAll('.nicegui-echart')[chart]
        .id.slice(1)).chart.getOption().series[series].data.map(point => point.name)"""
    found: list[str] = page.evaluate(script, [chart, series])
    return found


def budget_near(page: Page, wanted: float) -> float:
    """The budget in the address, once it is the one to which something was dragged.

    Within 2 %, which is less than one step of a mouse in these tests.
    """
    near = """wanted => {
        const given = Number(new URLSearchParams(location.search).get('budget') ?? NaN);
        return Math.abs(given - wanted) <= 0.02 * Math.abs(wanted) && String(given);
    }"""
    return float(page.wait_for_function(near, arg=wanted).json_value())


def copied(page: Page, button: str, start: str) -> str:
    """Click a button and return what it copied, which begins as expected."""
    page.evaluate("navigator.clipboard.writeText('')")  # other tests of this browser share it
    page.get_by_role("button", name=button).click()
    text = ""
    for _ in range(50):
        text = page.evaluate("navigator.clipboard.readText()")
        if text.startswith(start):
            break
        page.wait_for_timeout(100)
    assert text.startswith(start)
    return text


def test_the_accuracy_that_a_budget_bought_in_a_study(
    serving: Callable[..., Serving], page: Page, tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    rows = "scheme,budget,accuracy\nequilibrium,100,0.8\nequilibrium,300,0.9\nfull,NaN,0.95\n"
    (tmp_path / "tables" / "table-budgets.csv").write_text(rows, encoding="utf-8")
    page.goto(serving("--results", tmp_path).url)
    told = "Accuracy in the study: 0.8 with a budget of 100; 0.9 with a budget of 300; 0.95 if "
    page.get_by_text(told).wait_for()
    page.goto(f"{page.url.partition('?')[0]}?budget=400")
    page.get_by_text("Accuracy in the study: 0.9 with a budget of 300; 0.95 if ").wait_for()


def test_the_first_look_is_the_example_at_its_equilibrium(page: Page, example: Serving) -> None:
    page.goto(example.url)
    best = outcome()
    wait_for_card(page, "expected loss", number(best.expected_loss))
    assert card(page, "payers") == "3"
    assert card(page, "spend") == "200"
    slope = 100 * best.multiplier / best.expected_loss
    assert card(page, "distance") == percent(best.distance)
    expect(page.get_by_text(f"−{number(slope)} % for one more unit of budget")).to_be_visible()
    expect(page.get_by_text("Example: 40 clients")).to_be_visible()


def test_dragging_the_budget_moves_the_cards(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    slider = page.locator("[aria-label='budget slider']")
    box = slider.bounding_box()
    assert box is not None
    start = page.locator("[aria-label='budget slider'] .q-slider__thumb").bounding_box()
    assert start is not None
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + box["height"] / 2, steps=12)
    expect(card_of(page, "spend")).not_to_have_text("200")
    page.mouse.up()
    low, high = (float(slider.get_attribute(f"aria-value{end}") or "nan") for end in ("min", "max"))
    asked = budget_near(page, low + 0.8 * (high - low))
    assert asked > 800
    wait_for_card(page, "expected loss", number(outcome(asked).expected_loss))


@pytest.mark.slow
def test_dragging_the_handle_of_the_frontier_moves_the_budget(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    expect(page.get_by_text("joiners per round")).to_be_visible()  # nothing moves any more
    chart = page.get_by_role("img", name="distance to full participation over the budget")
    chart.scroll_into_view_if_needed()
    at = page.wait_for_function(HANDLE, arg=chart.get_attribute("id")).json_value()
    box = chart.bounding_box()
    assert box is not None
    x, y = box["x"] + at[0], box["y"] + at[1]
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y, steps=10)
    wanted = page.evaluate(
        "([own, x]) => getElement(own.slice(1)).chart.convertFromPixel({xAxisIndex: 0}, x)",
        [chart.get_attribute("id"), at[0] + 120],
    )
    page.mouse.up()
    asked = budget_near(page, wanted)
    assert asked > 300
    wait_for_card(page, "expected loss", number(outcome(asked).expected_loss))
    expect(page.locator("input[aria-label=budget]")).to_have_value(f"{asked:g}")


@pytest.mark.slow
def test_fees_that_nobody_would_pay_are_named(page: Page, example: Serving) -> None:
    page.goto(f"{example.url}?budget=-100")
    expect(page.get_by_text("Warning: client 7 and 2 more would have to pay more")).to_be_visible()
    expect(page.get_by_text("Copy the command to add options.")).to_be_visible()
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    expect(page.get_by_text("Warning:")).to_have_count(0)


@pytest.mark.slow
def test_a_mouse_that_passes_over_the_frontier_moves_nothing(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    chart = page.get_by_role("img", name="distance to full participation over the budget")
    for x in (150, 200, 250):
        chart.hover(position={"x": x, "y": 100})
    chart.click(position={"x": 250, "y": 120})
    page.wait_for_timeout(600)  # as long as a change would take
    assert "budget" not in page.url
    assert card(page, "spend") == "200"


@pytest.mark.slow
def test_a_client_is_selected_in_both_directions(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    row = page.locator("tr", has=page.locator("td", has_text=re.compile("^38$")))
    row.locator(".q-checkbox").click()
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.wait_for_function("location.search.includes('select=38')")
    assert points(page, 0, 2) == points(page, 1, 2) == ["38"]
    # The client of the lowest payment is on the last page of the table until its point is clicked.
    best = outcome()
    lowest = int(best.payments.argmin())
    chart = page.get_by_role("img", name="price of each client")
    own = chart.get_attribute("id")
    assert own is not None
    x, y = page.evaluate(
        "([own, at]) => getElement(own.slice(1)).chart.convertToPixel({seriesIndex: 0}, at)",
        [own, [float(EXAMPLE.value[lowest]), float(best.prices[lowest])]],
    )
    chart.click(position={"x": x, "y": y})
    expect(page.get_by_text("2 selected")).to_be_visible()
    name = str(EXAMPLE.ids[lowest])
    checked = page.locator("tr.selected", has=page.locator(f"td:text-is('{name}')"))
    expect(checked).to_be_visible()


@pytest.mark.slow
def test_a_link_restores_the_state(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    page.locator("input[aria-label=budget]").fill("60")
    wait_for_card(page, "spend", "60")
    page.wait_for_function("location.search.includes('budget=60')")
    link = page.url + "&scheme=uniform&select=7"
    other = page.context.browser
    assert other is not None
    second = other.new_context().new_page()
    second.goto(link)
    wait_for_card(second, "expected loss", number(outcome(60, "uniform").expected_loss))
    expect(second.locator("input[aria-label=budget]")).to_have_value("60")
    expect(second.get_by_text("1 selected")).to_be_visible()
    second.context.close()


def test_good_and_bad_files_are_dropped(page: Page, example: Serving, tmp_path: Path) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    good, bad = tmp_path / "twelve.csv", tmp_path / "bad.csv"
    fp.population(12).write(good)
    bad.write_text("client_id,samples,grad_norm,cost,value\na,1,1,-5,0\n")
    page.locator("input[type=file]").set_input_files(good)
    expect(page.get_by_text("twelve.csv: 12 clients")).to_be_visible()
    game = fp.Game(fp.population(12), bound=BOUND, budget=200)
    wait_for_card(page, "expected loss", number(fp.solve(game).expected_loss))
    page.wait_for_function("location.search.includes('file=twelve.csv')")
    link = page.url
    page.locator("input[type=file]").set_input_files(bad)
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text(
        "bad.csv: `cost` must be a finite number above 0; got -5 in row 1"
    )
    assert page.request.get(example.url).ok  # the server survives it
    # Another browser sees nothing of it.
    browser = page.context.browser
    assert browser is not None
    other = browser.new_context().new_page()
    other.goto(example.url)
    expect(other.get_by_text("Example: 40 clients")).to_be_visible()
    # A link cannot show the same without the file, and says so.
    other.goto(link)
    expect(other.get_by_role("alert")).to_contain_text(
        "This link was made with the file twelve.csv"
    )
    expect(other.get_by_text("No clients.")).to_be_visible()
    wait_for_card(other, "spend", "–")
    other.context.close()


@pytest.mark.slow
def test_names_of_clients_are_text(
    page: Page, serving: Callable[..., Serving], tmp_path: Path
) -> None:
    evil = "<img src=x onerror=window.owned=1>"
    file = tmp_path / "evil.csv"
    clients = fp.Clients(samples=[3, 1], grad_norm=1, cost=[4, 5], value=[0, 9], ids=[evil, "b"])
    clients.write(file)
    page.goto(serving(file).url + "?budget=1")
    expect(page.get_by_text(evil)).to_be_visible()
    chart = page.get_by_role("img", name="level over impact")
    box = chart.bounding_box()
    assert box is not None
    for x in range(40, int(box["width"]) - 20, 12):  # tooltips, too
        page.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
    assert page.evaluate("window.owned") is None


def test_exports_and_commands_are_what_is_shown(
    page: Page, example: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(example.url + "?budget=60&exponent=2.5&max_weight=1.5")
    wait_for_card(page, "spend", "60")
    expected = None
    for kind in ("CSV", "Parquet", "PNG", "SVG"):
        with page.expect_download() as wanted:
            page.get_by_role("button", name=kind, exact=True).click()
        path = tmp_path / wanted.value.suggested_filename
        wanted.value.save_as(path)
        content = path.read_bytes()
        if kind == "CSV":
            expected = pl.read_csv(content)
        elif kind == "Parquet":
            assert pl.read_parquet(content)["price"].to_list() == expected["price"].to_list()  # type: ignore[index]
        else:
            assert content.startswith(b"\x89PNG") or b"<svg" in content[:500]
    assert expected is not None
    with page.expect_download() as wanted:
        page.get_by_role("button", name="Example as CSV").click()
    wanted.value.save_as(tmp_path / "clients.csv")
    made, command = copied(page, "as command", "fedprice data example").splitlines()
    assert made == "fedprice data example -o clients.csv"
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(command), "--format", "json"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    prices = [row["price"] for row in json.loads(done.stdout)["clients"]]
    assert prices == expected["price"].to_list()
    code = copied(page, "as Python", "import fedprice")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code, names)
    assert names["outcome"].prices.tolist() == prices  # type: ignore[attr-defined]


def test_a_budget_that_does_not_suffice_is_said_in_one_line(page: Page, example: Serving) -> None:
    page.goto(example.url + "?max_weight=0.2&budget=-1000")
    expect(page.get_by_role("alert")).to_contain_text("infeasible: equilibrium needs a budget of")
    page.goto(example.url + "?budget=much&scheme=nothing")
    expect(page.get_by_role("alert")).to_contain_text("`budget` in the address must be a number")
    wait_for_card(page, "spend", "–")  # nothing that was not asked for


@pytest.mark.slow
def test_a_link_that_asks_for_the_impossible_is_said_in_one_line(
    page: Page, example: Serving
) -> None:
    for query, line in (
        ("rounds=0", "`rounds` must be"),
        ("alpha=-1", "`alpha` must be"),
        ("exponent=1", "`cost_exponent` τ must be"),
        ("scheme=reference-convex", "there is no scheme 'reference-convex'"),
    ):
        answer = page.goto(f"{example.url}?{query}")
        assert answer is not None
        assert answer.ok
        expect(page.get_by_role("alert")).to_contain_text(line)
        wait_for_card(page, "spend", "–")


@pytest.mark.slow
def test_a_dropped_file_that_the_budget_does_not_suffice_for_is_said(
    page: Page, example: Serving, tmp_path: Path
) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    file = tmp_path / "floors.csv"
    fp.Clients(samples=[1, 1], grad_norm=1, cost=[900, 900], value=0, level_min=1).write(file)
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_role("alert")).to_contain_text("infeasible: equilibrium needs a budget of")
    wait_for_card(page, "spend", "–")
    expect(page.get_by_text("Two schemes side by side")).to_be_hidden()
    page.get_by_role("button", name="Use the example").click()
    wait_for_card(page, "spend", "200")
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_budget_that_is_no_number_is_refused_beside_the_box(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    box = page.locator("input[aria-label=budget]")
    for typed, reason in (
        ("5.000,00", "'5.000,00' is not a number."),
        ("abc", "'abc' is not a number."),
        ("3.000", "'3.000' may be 3000 or 3; write 3000 or 3."),
    ):
        box.fill(typed)
        expect(page.get_by_text(reason)).to_be_visible()
        wait_for_card(page, "spend", "–")
        assert page.locator(".fp-panel", has_text="Budget").locator(".fp-refused").count()
    box.fill("60")
    wait_for_card(page, "spend", "60")
    expect(page.get_by_text("is not a number.")).to_be_hidden()


def type_into_cell(page: Page, cell: str, text: str) -> None:
    """Open the box of a cell and type; it closes again while the page is still being drawn."""
    box = page.locator(f"input[aria-label='{cell}']")
    for _ in range(40):
        page.get_by_role("button", name=f"{cell}: try another").click()
        with suppress(Late):
            box.fill(text, timeout=3000)
            box.press("Enter", timeout=3000)
            return
    pytest.fail(f"the box of {cell} never stayed open")


@pytest.mark.slow
def test_a_cell_asks_what_if(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    type_into_cell(page, "cost of 38", "50")
    expect(page.get_by_text("If the cost of 38 were 50:")).to_be_visible()
    expect(page.get_by_text("38, if held to its level of")).to_be_visible()
    changes = {"38": {"cost": 50.0}}
    found = what_if(EXAMPLE, changes, lambda own: fp.solve(fp.Game(own, bound=BOUND, budget=200)))
    told = f"{percent(found.before.distance)} now, {percent(found.after.distance)} then."
    expect(page.get_by_text(told)).to_be_visible()
    row = page.locator("tr", has=page.locator("td", has_text=re.compile("^38$"))).first
    expect(row).to_contain_text(number(float(found.after.payments[37])))
    # What is no number is refused in words; the table itself never changed.
    type_into_cell(page, "cost of 38", "5.000,00")
    expect(page.get_by_text("cost of 38: '5.000,00' is not a number.")).to_be_visible()
    page.get_by_role("button", name="Back to the table's numbers").click()
    expect(page.get_by_text("If the cost of 38 were")).to_be_hidden()
    wait_for_card(page, "spend", "200")


@pytest.mark.slow
def test_columns_are_renamed_on_the_page(page: Page, example: Serving, tmp_path: Path) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    own = tmp_path / "own.csv"
    own.write_text("Krankenhaus,patients,cost\nAnna,1200,4000\nElbe,600,2000\n")
    page.locator("input[type=file]").set_input_files(own)
    expect(page.get_by_role("alert")).to_contain_text("there is no column 'client_id'")
    wait_for_card(page, "spend", "–")
    page.get_by_label("column Krankenhaus", exact=True).click()
    page.get_by_role("option", name="client_id").click()
    page.get_by_role("button", name="Use these names").click()
    expect(page.get_by_text("own.csv: 2 clients")).to_be_visible()
    wait_for_card(page, "spend", "200")
    command = copied(page, "as command", "fedprice price own.csv")
    assert "--rename Krankenhaus=client_id,patients=samples" in command


@pytest.mark.slow
def test_a_setting_that_differs_from_the_default_is_marked(page: Page, example: Serving) -> None:
    page.goto(f"{example.url}?rounds=500&scheme=uniform")
    wait_for_card(page, "spend", "200")
    page.get_by_role("button", name="default equilibrium").click()
    page.get_by_role("button", name="default 1,000").click()
    expect(page.get_by_role("button", name="default 1,000")).to_be_hidden()
    page.wait_for_function("location.search === ''")


def test_a_number_that_is_typed_keeps_its_digits(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    page.locator("input[aria-label=budget]").fill("234.5678")
    page.wait_for_function("location.search == '?budget=234.5678'")


@pytest.mark.slow
def test_the_frontier_reaches_to_a_budget_that_is_typed(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    page.locator("input[aria-label=budget]").fill("5000")
    own = page.get_by_role(
        "img", name="distance to full participation over the budget"
    ).get_attribute("id")
    assert own is not None
    page.wait_for_function(
        "own => getElement(own.slice(1)).chart.getOption().xAxis[0].max >= 5000", arg=own
    )


@pytest.mark.slow
def test_words_are_explained_by_keyboard(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    for word, text in (
        ("rounds", WORDS["rounds"]),
        ("payers", WORDS["payers"]),
        ("Frontier", "Drag the handle to move the budget."),
    ):
        page.locator(".fp-term", has_text=re.compile(f"^{word}$")).focus()
        told = page.get_by_role("tooltip").filter(has_text=text)
        expect(told).to_be_visible()
        page.keyboard.press("Tab")
        expect(told).to_be_hidden()


@pytest.mark.slow
def test_everything_is_reached_by_keyboard(page: Page, example: Serving) -> None:
    """Tab leads to every page, the budget, the exports and a row, and keys move them."""
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    script = """() => { const e = document.activeElement, named = e.closest('[aria-label]');
        return [e.tagName, e.innerText || named?.ariaLabel || '', e.className] }"""
    wanted = {"Beliefs", "Runs", "Client", "Results", "budget slider", "checkbox"}
    for _ in range(150):
        page.keyboard.press("Tab")
        tag, label, kind = page.evaluate(script)
        found = "checkbox" if "q-checkbox" in kind else label.strip()
        if found == "budget slider":
            page.keyboard.press("ArrowRight")
            expect(card_of(page, "spend")).not_to_have_text("200")
        if found == "checkbox" and "checkbox" in wanted:
            page.keyboard.press("Space")
        assert tag != "BODY", f"the keyboard is lost before {wanted}"
        wanted.discard(found)
        if not wanted:
            break
    assert not wanted
    expect(page.get_by_text(re.compile("[0-9]+ selected"))).to_be_visible()


@pytest.mark.slow
def test_dark_mode_and_narrow_screens(page: Page, example: Serving) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("body.body--dark")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.reload()  # it is kept
    expect(page.locator("body.body--dark")).to_be_visible()


def test_a_slider_makes_the_browser_neither_restyle_the_page_nor_watch_numbers(
    page: Page, example: Serving
) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    page.evaluate("""() => {
        window.said = 0;
        const scheme = document.querySelector('meta[name=color-scheme]');
        new MutationObserver(() => { window.said += 1; }).observe(scheme, {attributes: true});
    }""")
    page.locator("[aria-label='budget slider'] [tabindex]").press("ArrowRight")
    expect(card_of(page, "spend")).not_to_have_text("200")
    assert page.evaluate("window.said") == 0
    assert page.evaluate("""() => [...document.querySelectorAll('.nicegui-echart')].every(
        element => !getElement(element.id.slice(1)).options.__v_isReactive)""")


@pytest.mark.slow
def test_the_table_sorts_searches_and_turns_on_the_server(page: Page, example: Serving) -> None:
    page.goto(example.url)
    wait_for_card(page, "spend", "200")
    page.locator("th", has_text="cost").click()
    cheapest = str(EXAMPLE.ids[int(EXAMPLE.cost.argmin())])
    expect(page.locator(".q-table__container tbody tr td").nth(1)).to_be_visible()
    expect(page.locator("table").last.locator("tbody tr").first).to_contain_text(cheapest)
    page.locator("input[aria-label='Find a client']").fill("3")
    expect(page.locator(".q-table__bottom").last).to_contain_text(
        f"of {sum('3' in str(name) for name in EXAMPLE.ids)}"
    )


@pytest.mark.slow
@pytest.mark.parametrize("takes_off", [True, False])
def test_pages_lie_below_a_path_of_a_proxy(
    page: Page, serving: Callable[..., Serving], tmp_path: Path, takes_off: bool
) -> None:
    """Links, scripts, websockets, uploads and the API, whether or not the proxy keeps the path."""
    outside: list[str] = []
    listening = socket.create_server(("127.0.0.1", 0))
    name = f"127.0.0.1:{listening.getsockname()[1]}"
    below = f"http://{name}/lab/fedprice/"
    page.on("request", lambda own: None if own.url.startswith(below) else outside.append(own.url))
    started = serving("--root-path", "/lab/fedprice", "--name", name, "--token", TOKEN)
    port = urlsplit(started.url).port
    assert port is not None
    with proxied(port, listening, "/lab/fedprice", takes_off=takes_off):
        refused = page.request.get(below)
        assert refused.status == 401  # the token is asked for behind a proxy, too
        page.goto(f"{below}?token={TOKEN}&budget=60")
        wait_for_card(page, "spend", "60")
        assert TOKEN not in page.url
        file = tmp_path / "twelve.csv"
        fp.population(12).write(file)
        page.locator("input[type=file]").set_input_files(file)
        expect(page.get_by_text("twelve.csv: 12 clients")).to_be_visible()
        page.locator("input[aria-label=budget]").fill("50")
        wait_for_card(page, "spend", "50")
        page.get_by_role("link", name="Runs").click()
        expect(page.get_by_text("No ledger is shown")).to_be_visible()
        page.get_by_role("link", name="Price").click()
        wait_for_card(page, "spend", "200")
        assert page.request.get(f"{below}api/openapi.json").ok
    assert not [url for url in outside if not url.startswith(("data:", "blob:"))]


@pytest.mark.slow
def test_ctrl_c_ends_everything(serving: Callable[..., Serving], page: Page) -> None:
    started = serving()
    page.goto(started.url)
    wait_for_card(page, "spend", "200")
    assert started.stop() == 0


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_computation(
    serving: Callable[..., Serving], page: Page, tmp_path: Path
) -> None:
    table = tmp_path / "clients.csv"
    fp.population(num_clients=10_000).to_frame().write_csv(table)
    started = serving(table)
    page.goto(f"{started.url}beliefs?form=tariff&exponent=2.3")
    expect(page.get_by_text("computing tariffs")).to_be_visible()
    used = Path(f"/proc/{started.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    before = sum(map(int, used)) / os.sysconf("SC_CLK_TCK")
    others = os.times()
    assert started.stop() == 0
    ended = os.times()
    took = ended.children_user + ended.children_system
    took -= others.children_user + others.children_system
    assert took - before < 10  # seconds of a processor; the computation takes a minute of them


@pytest.mark.first_case
@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ("exponent=0", "must be above 1"),
        ("rounds=-1", "`rounds` must be a whole number, at least 1"),
        ("rounds=1e20", "`rounds` must be at most"),
        ("alpha=1e-308", "lost its precision"),
        ("max_weight=1e-9", "`max_weight` must be at least"),
        ("scheme=reference-scipy", "there is no scheme"),
    ],
)
def test_an_address_that_asks_for_nonsense_gets_one_line_instead_of_a_500(
    page: Page, example: Serving, asked: str, line: str
) -> None:
    answer = page.goto(f"{example.url}?{asked}")
    assert answer is not None
    assert answer.status == 200
    expect(page.get_by_role("alert")).to_contain_text(line)
    wait_for_card(page, "spend", "–")


@pytest.mark.slow
def test_a_calibration_gives_alpha_and_its_interval(
    page: Page, serving: Callable[..., Serving], tmp_path: Path
) -> None:
    measured = calibration()
    measured.write(tmp_path / "calibration.json")
    terms = tmp_path / "terms.csv"
    rows = pl.DataFrame(
        {"client_id": measured.ids, "cost": [30.0, 40.0, 50.0], "value": [0.0, 90.0, 10.0]}
    )
    rows.reverse().write_csv(terms)
    started = serving(terms, "--calibration", tmp_path / "calibration.json")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(started.url + "?budget=40&rounds=50")
    low, high = map(number, measured.interval)
    text = f"α = {number(measured.alpha)} as measured, 95 % from {low} to {high}"
    expect(page.get_by_text(text)).to_be_visible()
    expect(page.locator("input[aria-label='largest weight']")).to_have_value("1")
    wait_for_card(page, "spend", "40")
    shown = card(page, "expected loss")
    for button, start in (("as command", "fedprice price"), ("as Python", "from pathlib")):
        text = copied(page, button, start)
        command = shlex.split(text)[1:] if start.startswith("fedprice") else None
        if command is not None:
            done = subprocess.run(
                [sys.executable, "-m", "fedprice", *command, "--format", "json"],
                cwd=tmp_path, capture_output=True, text=True, check=True,
            )  # fmt: skip
            loss = json.loads(done.stdout)["summary"]["expected_loss"]
        else:
            done = subprocess.run(
                [sys.executable, "-c", text + "print(outcome.expected_loss)"],
                cwd=tmp_path, capture_output=True, text=True, check=True,
            )  # fmt: skip
            loss = float(done.stdout.split()[-1])
        assert number(loss) == shown
