"""The page of beliefs, in a real browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

import fedprice as fp
from fedprice.pricing.display import number
from fedprice.web.post_state import PostAsked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Page

    from trials.serving import Serving

pytest.importorskip("nicegui", reason="needs the extra `web`")

SLOW = 60_000  # milliseconds in which tariffs are there, on a busy machine
SELLERS = replace(PostAsked(), value=0.0, value_high=0.0)  # what a user's table begins with
TYPES = "cost,value,probability\n20,0,0.75\n80,4000,0.25\n"


def card(page: Page, name: str, text: str) -> None:
    """Wait until a card shows a number."""
    page.locator(f'[aria-label="{name}"] .fp-number').get_by_text(text, exact=True).wait_for(
        timeout=SLOW
    )


def rest(page: Page) -> None:
    """Wait until nothing is computed any more."""
    page.get_by_role("status").wait_for(state="hidden", timeout=SLOW)


def details(page: Page) -> None:
    """Open what is one click away."""
    page.get_by_text("Details: why these offers").click()


@pytest.fixture
def ten(tmp_path: Path) -> Path:
    """Ten clients whose costs and values nobody knows."""
    path = tmp_path / "ten.csv"
    fp.population(10).to_frame().drop("cost", "value").write_csv(path)
    return path


def test_beliefs_move_the_numbers_and_the_link_restores_them(
    serving: Callable[..., Serving], page: Page
) -> None:
    page.goto(f"{serving().url}beliefs")
    clients = fp.population()
    before = PostAsked().post(clients)
    card(page, "expected loss", number(before.expected_loss))
    known = before.value_of_information(200)
    card(page, "cost of not knowing", f"{known.ratio - 1:+.0%}")
    page.get_by_text("twice as high").wait_for()
    details(page)
    page.get_by_text("3 of 40 would refuse the prices of the equilibrium.").wait_for()
    page.get_by_text("40 of 40 clients gain").wait_for()

    page.locator('input[aria-label="mean cost"]').fill("80")
    after = PostAsked(cost=80).post(clients)
    card(page, "expected loss", number(after.expected_loss))
    page.wait_for_url("**/beliefs?cost=80")
    page.get_by_text("half below 55.").wait_for()  # 80 log 2

    # A client of the table is drawn, and the link holds it.
    page.locator("tbody").get_by_role("cell", name="38", exact=True).click()
    page.get_by_text("Why this price: client 38").wait_for()
    page.wait_for_url("**show=*38")
    page.goto(page.url)
    card(page, "expected loss", number(after.expected_loss))
    page.get_by_text("Why this price: client 38").wait_for()
    assert page.locator('input[aria-label="mean cost"]').input_value() == "80"


@pytest.mark.slow
def test_forms_and_files_without_costs(
    serving: Callable[..., Serving], page: Page, ten: Path, tmp_path: Path
) -> None:
    page.goto(f"{serving(ten).url}beliefs?budget=50")
    clients = fp.Clients.read(ten, types=False)
    sellers = PostAsked(budget=50, value=0)
    card(page, "expected loss", number(sellers.post(clients).expected_loss))
    details(page)
    page.get_by_text("This needs costs and values").first.wait_for()
    assert page.get_by_role("button", name="menu", exact=True).count() == 0
    page.get_by_text("More settings", exact=True).click()
    page.get_by_role("button", name="blocks", exact=True).click()
    page.get_by_role("button", name="2", exact=True).click()
    asked = replace(sellers, form="blocks", blocks=2)
    card(page, "expected loss", number(asked.post(clients).expected_loss))
    page.wait_for_url("**form=blocks&blocks=2*")
    card(page, "certificate", "none")
    page.get_by_role("columnheader", name="price 2").wait_for()
    rest(page)

    # Beliefs of a file, good and bad.
    page.get_by_label("beliefs", exact=True).click()
    page.get_by_role("option", name="a file of types").click()
    page.get_by_text("drop a file of beliefs with the columns").wait_for()
    beliefs = tmp_path / "beliefs.csv"
    upload = page.locator("input[type=file]").nth(1)
    beliefs.write_text(TYPES.replace("0.25", "0.5"))
    upload.set_input_files(beliefs)
    page.get_by_text("beliefs.csv: probabilities of the beliefs must sum to 1").wait_for()
    beliefs.write_text(TYPES)
    upload.set_input_files(beliefs)
    file = fp.Beliefs.read(beliefs)
    asked = PostAsked(beliefs="file", budget=50, form="blocks", blocks=2)
    card(page, "expected loss", number(asked.post(clients, file).expected_loss))
    rest(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    text = download.value.path().read_text()
    assert text == asked.post(clients, file).to_frame().write_csv()

    # A bad table of clients gets one line, and the page goes on.
    bad = tmp_path / "bad.csv"
    bad.write_text("client_id,samples,grad_norm\na,1,-1\n")
    page.locator("input[type=file]").first.set_input_files(bad)
    page.get_by_text("bad.csv: `grad_norm` must be a finite number").wait_for()
    page.get_by_role("button", name="Use the example").click()
    page.get_by_text("Example: 40 clients").wait_for()


@pytest.mark.slow
def test_forms_are_compared_on_a_narrow_dark_screen(
    serving: Callable[..., Serving], page: Page, ten: Path
) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark")
    url = f"{serving(ten).url}beliefs?budget=50"
    page.goto(f"{url}&form=nonsense")
    page.get_by_text("there is no form 'nonsense'").wait_for()
    page.goto(f"{url}&beliefs=ranges&cost_low=40&cost_high=40")  # 32 types: quick
    details(page)
    page.get_by_role("button", name="Compare the forms").click()
    page.get_by_text("200 draws of all costs and values.").wait_for(timeout=SLOW)
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.slow
def test_refusals_are_shown_where_lies_would_take_too_long(
    serving: Callable[..., Serving], page: Page, tmp_path: Path
) -> None:
    file = tmp_path / "many.csv"
    fp.population(450).write(file)
    page.goto(f"{serving(file).url}beliefs")
    details(page)
    page.get_by_text("the page looks for lies of up to 400 clients").wait_for(timeout=SLOW)
    page.get_by_text("refuse the prices of the equilibrium").wait_for(timeout=SLOW)


@pytest.mark.slow
def test_a_dropped_table_of_two_columns_is_what_is_shown(
    serving: Callable[..., Serving], page: Page, tmp_path: Path
) -> None:
    """The example stood in the place of a table without norms."""
    page.goto(f"{serving().url}beliefs")
    page.get_by_text("Example: 40 clients").wait_for()
    bad, own = tmp_path / "bad.csv", tmp_path / "own.csv"
    bad.write_text("client_id,samples\na,-1\n")
    page.locator("input[type=file]").first.set_input_files(bad)
    page.get_by_text("bad.csv: `samples` must be").wait_for()
    card(page, "expected spend", "–")
    own.write_text("client_id,samples\nAnna,1200\nElbe,600\n")
    page.locator("input[type=file]").first.set_input_files(own)
    page.get_by_text("own.csv: 2 clients").wait_for()
    clients = fp.Clients.read(own, types=False, assume={"grad_norm": 1.0})
    card(page, "expected loss", number(SELLERS.post(clients).expected_loss))


@pytest.mark.slow
def test_a_dropped_table_is_taken_along_between_the_pricing_pages(
    serving: Callable[..., Serving], page: Page, tmp_path: Path
) -> None:
    url = serving().url
    page.goto(url)
    page.get_by_text("Example: 40 clients").wait_for()
    own = tmp_path / "own.csv"
    own.write_text("hospital,patients,cost\nAnna,1200,40\nElbe,600,20\n")
    page.locator("input[type=file]").set_input_files(own)
    page.get_by_role("button", name="Use these names").click()
    page.get_by_text("own.csv: 2 clients").wait_for()
    page.get_by_role("link", name="Beliefs", exact=True).click()
    page.get_by_text("own.csv: 2 clients").wait_for()
    asked = replace(SELLERS, cost=30.0, cost_low=20.0, cost_high=40.0)
    rename = {"hospital": "client_id", "patients": "samples"}
    clients = fp.Clients.read(own, types=False, rename=rename, assume={"grad_norm": 1.0})
    card(page, "expected loss", number(asked.post(clients).expected_loss))
    link = page.url
    page.reload()  # nothing has to be dropped twice
    page.get_by_text("own.csv: 2 clients").wait_for()
    page.get_by_role("link", name="Price", exact=True).click()
    page.get_by_text("own.csv: 2 clients").wait_for()
    page.get_by_role("link", name="Post prices and tariffs based on beliefs").click()
    page.get_by_text("own.csv: 2 clients").wait_for()
    other = page.context.new_page()
    other.goto(link)
    other.get_by_text("This link was made with the file own.csv").wait_for()
    other.close()
    page.get_by_role("button", name="Use the example").click()
    page.get_by_text("Example: 40 clients").wait_for()
    page.get_by_role("link", name="Price", exact=True).click()
    page.get_by_text("Example: 40 clients").wait_for()
