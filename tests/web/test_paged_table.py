"""Long tables of a page, without a browser: what the server sends of them."""

from __future__ import annotations

import polars as pl
import pytest

pytest.importorskip("nicegui", reason="needs the extra `web`")

from nicegui import Client, ui

from fedprice.web.paged_table import PagedTable


def test_a_table_of_twelve_shows_twelve() -> None:
    with Client(ui.page("/")):
        table = PagedTable()
        table.show(pl.DataFrame({"client_id": [str(n) for n in range(12)]}))
        assert len(table.element.rows) == 12


def test_a_search_begins_on_the_first_page_of_what_it_finds() -> None:
    """Who searched on a later page saw an empty table."""
    with Client(ui.page("/")):
        table = PagedTable()
        box = table.search_box("Find a client")
        table.show(pl.DataFrame({"client_id": [str(n) for n in range(55)]}))
        table.element.pagination = table.element.pagination | {"page": 3}
        table.redraw()
        assert [row["client_id"] for row in table.element.rows] == ["50", "51", "52", "53", "54"]
        box.value = "7"
        assert [row["client_id"] for row in table.element.rows] == [
            "7", "17", "27", "37", "47"
        ]  # fmt: skip
