"""Files that are dropped: what is too much is refused before it fills the memory."""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from fedprice.errors import InputError
from fedprice.web import uploads
from fedprice.web.uploads import clients_of, content_of, table_in
from tests.spreadsheets import xlsx


def parquet(frame: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    frame.write_parquet(content)
    return content.getvalue()


def test_a_few_bytes_of_parquet_do_not_become_a_hundred_million_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = pl.select(client_id=pl.repeat(1, 6_000_000, dtype=pl.Int8))
    content = parquet(many)
    assert len(content) < 2**20

    def read(*_: object) -> None:
        raise AssertionError("it was read before it was counted")

    monkeypatch.setattr(uploads, "table_of", read)
    with pytest.raises(InputError, match=r"at most 5,000,000 rows .* got 6,000,000 and 1\. Give"):
        table_in("bomb.parquet", content)


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical, pl.Binary])
def test_one_long_name_in_every_row_of_parquet_is_refused(
    monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr(uploads, "MOST_TEXT", 10_000_000)
    names = pl.Series("client_id", ["a" * 100_000] * 200).cast(kind)
    content = parquet(names.to_frame())
    assert len(content) < 1_000_000
    with pytest.raises(InputError, match="bomb has more than 10,000,000 bytes of text"):
        table_in("bomb", content)


def test_too_many_columns_are_refused_before_they_are_read() -> None:
    with pytest.raises(InputError, match=r"1,000 columns; got 0 and 100,001"):
        clients_of("a.csv", b"a," * 100_000 + b"b\n1\n")
    with pytest.raises(InputError, match=r"1,000 columns; got 1 and 1,001"):
        clients_of("a.parquet", parquet(pl.DataFrame({f"c{n}": [1] for n in range(1001)})))


@pytest.mark.parametrize("content", [b"PAR1" + b"\xff" * 99 + b"PAR1", b"PAR1", b"a\0b"])
def test_what_is_no_table_is_said_in_one_line(content: bytes) -> None:
    with pytest.raises(InputError, match="neither a CSV nor a Parquet file"):
        clients_of("a.parquet", content)


def test_control_characters_of_a_file_name_do_not_reach_commands() -> None:
    async def read() -> bytes:
        return b""

    file = SimpleNamespace(name="a\x1b[2J\x15\n.csv", size=lambda: 0, read=read)
    name, _ = asyncio.run(content_of(SimpleNamespace(file=file)))  # type: ignore[arg-type]
    assert name == "a\ufffd[2J\ufffd\ufffd.csv"


def test_a_spreadsheet_is_left_to_the_command_line() -> None:
    """A small one can unpack to more than this machine has memory for."""
    content = xlsx(Clients=[["client_id", "cost"], ["a", 1]])
    with pytest.raises(
        InputError, match=r"a\.xlsx is a spreadsheet; save it as CSV .* fedprice serve"
    ):
        table_in("a.xlsx", content)


def test_columns_are_counted_whatever_separates_them() -> None:
    for mark in (b",", b";", b"\t"):
        with pytest.raises(InputError, match="at most 5,000,000 rows and 1,000 columns"):
            table_in("a.csv", mark.join([b"x"] * 2000) + b"\n")
