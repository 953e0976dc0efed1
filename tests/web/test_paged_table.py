"""Long tables of a page, without a browser: what the server sends of them."""

from __future__ import annotations

import polars as pl
import pytest

pytest.importorskip("nicegui", reason="needs the extra `web`")

from nicegui import Client, ui

from fedprice.web.paged_table import PagedTable
from fedprice.web.paging import page_of


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


@pytest.mark.parametrize("descending", [False, True])
def test_rows_without_a_number_come_last_however_they_are_sorted(descending: bool) -> None:
    frame = pl.DataFrame({"client_id": list("abcd"), "price": [2.0, None, 1.0, 3.0]})
    rows, total = page_of(frame, sort="price", descending=descending)
    assert rows["client_id"].to_list() == (["d", "a", "c", "b"] if descending else [*"cadb"])
    assert total == 4
    second, _ = page_of(frame, first=2, count=2, sort="price", descending=descending)
    assert second.equals(rows[2:])
