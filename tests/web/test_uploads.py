"""Files that are dropped: what is too much is refused before it fills the memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from fedprice.errors import InputError
from fedprice.web.uploads import clients_of, content_of
from tests.spreadsheets import Cell, xlsx


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


def test_a_spreadsheet_is_read_as_on_the_command_line() -> None:
    rows: list[list[Cell]] = [["client_id", "samples", "cost"], ["a", 1, 3]]
    clients, _ = clients_of("a.xlsx", xlsx(Clients=rows))
    assert clients.ids.tolist() == ["a"]


def test_columns_are_counted_whatever_separates_them() -> None:
    for mark in (b",", b";", b"\t"):
        with pytest.raises(InputError, match="at most 5,000,000 rows and 4,000 columns"):
            clients_of("a.csv", mark.join([b"x"] * 5000) + b"\n")
