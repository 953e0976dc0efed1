"""Dataframes of any kind come in, and pandas comes out."""

import sys
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedprice import Bound, Clients, Game, InputError, MissingExtraError, solve
from fedprice._plumbing.tables import as_polars

COLUMNS: dict[str, Any] = {
    "client_id": ["a", "é, b"],
    "samples": [1, 3],
    "grad_norm": [1.0, 2.0],
    "cost": [4.0, 5.0],
    "value": [0.0, 9.0],
}


class Arrow:
    """A dataframe that has the Arrow PyCapsule interface, and nothing else."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._frame = pl.DataFrame(columns)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame.__arrow_c_stream__(requested_schema)


class Interchange:
    """A dataframe that has the interchange protocol, and nothing else."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._frame = pd.DataFrame(columns)

    def __dataframe__(self, *arguments: Any, **options: Any) -> Any:
        return self._frame.__dataframe__(*arguments, **options)


@pytest.mark.parametrize("kind", [pl.DataFrame, pd.DataFrame, Arrow, Interchange])
def test_any_dataframe_becomes_clients(kind: Any) -> None:
    clients = Clients.from_frame(kind(COLUMNS))
    assert clients.ids.tolist() == COLUMNS["client_id"]
    assert clients.samples is not None
    for name in ("samples", "grad_norm", "cost", "value"):
        assert getattr(clients, name).tolist() == COLUMNS[name], name


def test_columns_of_pandas_of_many_types() -> None:
    frame = pd.DataFrame(
        {
            "client_id": pd.Categorical(["x", "y"]),
            "weight": np.array([0.25, 0.75], np.float32),
            "grad_norm": pd.array([1, 2], dtype="Int64"),
            "cost": np.array(["4", " 5.5"], object),
            "value": np.array([0, 9], np.uint8),
        },
        index=[7, 7],
    )
    clients = Clients.from_frame(frame)
    assert clients.ids.tolist() == ["x", "y"]
    assert clients.cost.tolist() == [4, 5.5]
    assert clients.norm.tolist() == [1, 2]
    assert Clients.from_frame(frame.assign(client_id=[8, 9])).ids.tolist() == ["8", "9"]
    assert Clients.from_frame(frame.assign(client_id=[8, "b"])).ids.tolist() == ["8", "b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cost": [4.0, None]}, "column 'cost' must hold numbers; got nothing in row 2"),
        ({"cost": [4, pd.NA]}, "column 'cost' must hold numbers; got nothing in row 2"),
        ({"cost": ["4", "much"]}, "column 'cost' must hold numbers; got 'much' in row 2"),
        ({"cost": [True, False]}, "column 'cost' must hold numbers; got Boolean"),
        ({"cost": pd.to_datetime(["2026-01-01"] * 2)}, "column 'cost' must hold numbers; got Date"),
        ({"cost": [object(), object()]}, "column 'cost' must hold numbers; got Object"),
        ({"cost": [4, -1]}, r"`cost` must be .*; got -1 in row 2 \(client 'é, b'\)"),
        ({"client_id": ["a", None]}, "client ids must not be empty; row 2 has none"),
        ({"client_id": [1.0, np.nan]}, "client ids must not be empty; row 2 has none"),
        ({"client_id": [object(), object()]}, "column 'client_id' must hold text"),
        ({"price": 3}, "unknown column 'price'"),
        ({3: 3}, "unknown column '3'"),
    ],
)
def test_bad_columns_of_pandas(change: dict[Any, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Clients.from_frame(_changed(pd.DataFrame(COLUMNS), change))


def _changed(frame: Any, change: dict[Any, Any]) -> Any:
    for name, values in change.items():
        frame[name] = values
    return frame


def test_two_columns_of_one_name() -> None:
    frame = pd.DataFrame(COLUMNS).rename(columns={"value": "cost"})
    with pytest.raises(InputError, match="there are two columns 'cost'"):
        Clients.from_frame(frame)


@pytest.mark.parametrize("given", [COLUMNS, [1, 2], pl.LazyFrame(COLUMNS), None])
def test_what_is_no_dataframe_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"a table must be a dataframe .*; got a"):
        Clients.from_frame(given)


def test_an_arrow_stream_that_is_no_table_is_refused() -> None:
    class Numbers:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return pl.Series([1, 2]).__arrow_c_stream__(requested_schema)

    with pytest.raises(InputError, match="cannot read the dataframe"):
        as_polars(Numbers())


def test_pandas_comes_out_and_goes_in_again() -> None:
    clients = Clients.from_frame(pd.DataFrame(COLUMNS))
    frame = clients.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["client_id"].tolist() == COLUMNS["client_id"]
    assert frame["samples"].dtype == np.int64
    assert as_polars(frame).equals(clients.to_frame())
    frame.loc[0, "cost"] = -5  # a table of one's own
    assert clients.cost.tolist() == [4, 5]
    outcome = solve(Game(clients, Bound(alpha=1, rounds=10), budget=1))
    assert as_polars(outcome.to_pandas()).equals(outcome.to_frame())


def test_without_pandas_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients.from_frame(pl.DataFrame(COLUMNS))
    interchange = Interchange(COLUMNS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    line = r"needs pandas, .* pip install 'fedprice\[pandas\]'"
    with pytest.raises(MissingExtraError, match=line):
        clients.to_pandas()
    with pytest.raises(MissingExtraError, match=line):
        Clients.from_frame(interchange)
    assert Clients.from_frame(Arrow(COLUMNS)).cost.tolist() == [4, 5]
