"""Tables that were dropped on a pricing page, for the other one, or the same again, in that tab."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from nicegui import Client, ElementFilter, context, ui

from fedprice.web.page_frame import PRICING, address
from fedprice.web.uploads import clients_of

if TYPE_CHECKING:
    from fedprice.clients import Clients

__all__ = ["DroppedTable", "DroppedTables"]

MOST = 2**26  # bytes of all tables together


class DroppedTable(NamedTuple):
    """The content of a file, and its columns that have other names."""

    name: str
    content: bytes
    rename: tuple[tuple[str, str], ...] = ()

    def clients(self, *, types: bool) -> tuple[Clients, tuple[str, ...]]:
        """Return the clients, and which columns were assumed (see `clients_of`)."""
        return clients_of(self.name, self.content, dict(self.rename), types=types)


class DroppedTables:
    """The last table of each tab; the oldest go if all of them together are too large.

    Examples
    --------
    >>> tables = DroppedTables(most=10)
    >>> for tab in ("first", "second"):
    ...     tables.keep(tab, DroppedTable("a.csv", b"123456"))
    >>> tables.of("first", "a.csv"), tables.of("second", "b.csv")
    (None, None)
    >>> tables.of("second", "a.csv").content
    b'123456'
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._tables: dict[str, DroppedTable] = {}  # by tab, the oldest first

    def keep(self, tab: str, table: DroppedTable) -> None:
        """Keep a table in the place of the tab's last one."""
        self._tables.pop(tab, None)
        self._tables[tab] = table
        while sum(len(kept.content) for kept in self._tables.values()) > self._most:
            del self._tables[next(iter(self._tables))]

    def of(self, tab: str, name: str) -> DroppedTable | None:
        """Return the last table of a tab, if it has this name."""
        table = self._tables.get(tab)
        return table if table is not None and table.name == name else None

    async def of_this_tab(self) -> DroppedTable | None:
        """Return the table that the address names, if it was dropped in this tab."""
        if not (name := address().get("file", "")):
            return None
        await context.client.connected()  # says which tab it is
        table = self.of(context.client.tab_id or "", name)
        if table is not None:
            self.take_along(table)
        return table

    def take_along(self, table: DroppedTable | None) -> None:
        """Let links between the pricing pages lead to this table, or to none."""
        tab = context.client.tab_id
        if table is not None and tab is not None:
            self.keep(tab, table)
            context.client.on_delete(lambda: self._left(tab))
        query = "" if table is None else f"?{urlencode({'file': table.name})}"
        for link in ElementFilter(kind=ui.link):
            path = str(link.props["href"]).partition("?")[0]
            if path in PRICING:
                link.props["href"] = path + query

    def _left(self, tab: str) -> None:
        """Forget the table of a tab that shows no page any more."""
        if all(client.tab_id != tab for client in Client.instances.values()):
            self._tables.pop(tab, None)
