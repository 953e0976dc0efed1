"""`PagedTable`: a table of any length in a page, sorted, searched and cut on the server."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from nicegui import ui

from fedprice.commands.words import WORDS
from fedprice.web.paging import page_of, shown_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import polars as pl
    from nicegui.events import GenericEventArguments

__all__ = ["PagedTable", "edit_cells", "explain_heads", "sort_by_keys"]

SIZES = (25, 100)  # rows on a page
_LABEL = "{{ props.col.label }}"
_HEAD = (
    '<q-th :props="props" :tabindex="props.col.sortable ? 0 : -1" '
    '@keydown.enter="props.sort(props.col)">{inside}</q-th>'
)
# A cell that opens a box in which its number is replaced; what is typed is sent as text.
_EDITABLE = """<q-td :props="props" class="fp-editable">
<span tabindex="0" role="button" :aria-label="`{name} of ${{props.row.{key}}}: try another`"
 @keydown.enter="event => event.target.click()">{{{{ props.value }}}}</span>
<q-popup-edit :model-value="props.value.replaceAll(',', '')" v-slot="scope"
 @save="text => $parent.$emit('edit', [props.row.{key}, '{name}', String(text)])">
<q-input dense autofocus v-model="scope.value" inputmode="decimal" autocomplete="off"
 :aria-label="`{name} of ${{props.row.{key}}}`" :label="`{name} of ${{props.row.{key}}}`"
 @keyup.enter="scope.set" @focus="event => event.target.select()"/>
</q-popup-edit></q-td>"""


class PagedTable:
    """A table of which a browser receives one page at a time.

    Parameters
    ----------
    key
        The column whose text identifies rows, and which a search looks through.
    sort
        The column that it is initially sorted by, in descending order.
    labels
        The labels of columns, where they differ from the names.
    more
        Returns further fields of a row, which no column shows, such as an address.
    """

    def __init__(
        self,
        key: str = "client_id",
        *,
        sort: str | None = None,
        labels: Mapping[str, str] | None = None,
        more: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._key, self._more = key, more
        self._labels = {} if labels is None else labels  # which may change
        self._frame: pl.DataFrame | None = None
        self._search = ""
        first = {"rowsPerPage": SIZES[0], "page": 1, "rowsNumber": 0}
        self.element = ui.table(
            rows=[], columns=[], row_key=key,
            pagination=first | {"sortBy": sort, "descending": sort is not None},
        )  # fmt: skip
        self.element.props(f":rows-per-page-options='{list(SIZES)}' dense flat binary-state-sort")
        self.element.classes("w-full").on("request", self._turn)
        sort_by_keys(self.element)

    def search_box(self, text: str) -> ui.input:
        """Draw a box that searches the table."""

        def search(event: Any) -> None:
            self._search = event.value or ""
            self.element.pagination = self.element.pagination | {"page": 1}
            self.redraw()

        box = ui.input(placeholder=text, on_change=search)
        return box.props(f'dense outlined clearable debounce=200 aria-label="{text}"')

    def show(self, frame: pl.DataFrame | None) -> None:
        """Show these rows, or none."""
        self._frame = frame
        self.redraw()

    def redraw(self) -> None:
        """Show the current page of the rows."""
        if self._frame is None:
            self.element.rows = []
            return
        own = self.element.pagination
        some, total = page_of(
            self._frame, first=(own["page"] - 1) * own["rowsPerPage"], count=own["rowsPerPage"],
            sort=own.get("sortBy"), descending=bool(own.get("descending")), search=self._search,
            text=self._key,
        )  # fmt: skip
        self.element.pagination = own | {"rowsNumber": total}
        columns = [self._column(name, some.schema[name].is_numeric()) for name in some.columns]
        if columns != self.element.columns:
            self.element.columns = columns
        rows = shown_rows(some)
        self.element.rows = [row | self._more(row) for row in rows] if self._more else rows
        self.element.update()

    def _column(self, name: str, is_number: bool) -> dict[str, Any]:
        label = self._labels.get(name, name.replace("_", " "))
        side = "right" if is_number else "left"
        return {"name": name, "label": label, "field": name, "sortable": True, "align": side}

    def turn_to(self, row: int) -> None:
        """Show the page that contains a row of the frame, and clear any search."""
        if self._frame is None:
            return
        own, self._search = self.element.pagination, ""
        if own.get("sortBy") in self._frame.columns:
            column = self._frame[own["sortBy"]]
            order = column.arg_sort(descending=bool(own.get("descending")), nulls_last=True)
            row = int(order.index_of(row) or 0)
        self.element.pagination = own | {"page": row // own["rowsPerPage"] + 1}
        self.redraw()

    def _turn(self, event: GenericEventArguments) -> None:
        wanted = event.args["pagination"]
        own = {key: wanted.get(key) for key in ("page", "rowsPerPage", "sortBy", "descending")}
        own["rowsPerPage"] = min(max(1, int(own["rowsPerPage"] or SIZES[0])), SIZES[-1])
        own["page"] = max(1, int(own["page"] or 1))
        self.element.pagination = own | {"rowsNumber": 0}
        self.redraw()


def explain_heads(table: ui.table, columns: Iterable[str]) -> None:
    """Explain column headers that are in `WORDS` by tooltips."""
    for name in columns:
        tip = f'<q-tooltip max-width="20rem">{html.escape(WORDS[name])}</q-tooltip>'
        table.add_slot(
            f"header-cell-{name}",
            _HEAD.format(inside=f'<span class="fp-term">{_LABEL}{tip}</span>'),
        )


def edit_cells(
    table: ui.table,
    columns: Iterable[str],
    edited: Callable[[str, str, str], None],
    key: str = "client_id",
) -> None:
    """Let the cells of some columns be edited.

    `edited` is called with the row's key, the column and the text.
    """
    for name in columns:
        table.add_slot(f"body-cell-{name}", _EDITABLE.format(name=name, key=key))
    table.on("edit", lambda event: edited(*map(str, event.args)))


def sort_by_keys(table: ui.table) -> None:
    """Make column headers reachable by Tab and sortable by Enter."""
    table.add_slot("header-cell", _HEAD.format(inside=_LABEL))
