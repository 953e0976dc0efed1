"""Pages of long tables: sorted, searched and cut on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedprice.pricing.display import number

if TYPE_CHECKING:
    import polars as pl

__all__ = ["page_of", "shown_rows"]


def page_of(
    frame: pl.DataFrame,
    *,
    first: int = 0,
    count: int = 10,
    sort: str | None = None,
    descending: bool = False,
    search: str = "",
    text: str = "client_id",
) -> tuple[pl.DataFrame, int]:
    """Return some rows of a table, and the total number of rows that match a search.

    Parameters
    ----------
    frame
        The table.
    first, count
        Which rows to return.
    sort, descending
        The column to sort by; ties and rows without one stay in the order of the table.
    search
        Keep rows whose column `text` contains this, ignoring case.
    text
        The column that is searched.

    Examples
    --------
    >>> import polars as pl
    >>> frame = pl.DataFrame({"client_id": ["a", "b", "ab"], "price": [1, 3, 2]})
    >>> some, total = page_of(frame, count=1, sort="price", descending=True, search="B")
    >>> some["client_id"].to_list(), total
    (['b'], 2)
    """
    import polars as pl

    if search:
        found = pl.col(text).str.to_lowercase().str.contains(search.lower(), literal=True)
        frame = frame.filter(found)
    total = frame.height
    if sort in frame.columns and sort is not None:
        # Only the rows of this page are gathered from the table, not all of them.
        order = frame[sort].arg_sort(descending=descending, nulls_last=True)
        return frame[order[first : first + count]], total
    return frame[first : first + count], total


def shown_rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return rows as a browser shows them: numbers as text with their digits, names as they are.

    Examples
    --------
    >>> import polars as pl
    >>> shown_rows(pl.DataFrame({"client_id": ["a"], "price": [1234.5678]}))
    [{'client_id': 'a', 'price': '1,235'}]
    """
    return [
        {
            name: cell if isinstance(cell, str) else "" if cell is None else number(float(cell))
            for name, cell in row.items()
        }
        for row in frame.iter_rows(named=True)
    ]
