"""Tables as spreadsheets save them are read, or refused where they can be read in two ways."""

import sys
from pathlib import Path

import polars as pl
import pytest

from fedprice import Clients, InputError
from fedprice._plumbing.tables import number_column, read_table, table_of
from fedprice.errors import MissingExtraError
from tests.spreadsheets import Cell, xlsx

HEADER = ("client_id", "samples", "grad_norm", "cost", "value")
ROWS = [("Sankt Anna", "120", "1", "40.5", "0"), ("Æsir", "900", "0.25", "1234.5", "9")]


def text(separator: str = ",", decimal: str = ".") -> str:
    rows = [HEADER, *([cell.replace(".", decimal) for cell in row] for row in ROWS)]
    return "".join(separator.join(row) + "\n" for row in rows)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    ("separator", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ",")]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_same_clients_in_every_dialect(
    tmp_path: Path, encoding: str, separator: str, decimal: str, end: str
) -> None:
    content = text(separator, decimal).replace("\n", end)
    mark = "\N{ZERO WIDTH NO-BREAK SPACE}" if encoding.endswith(("-le", "-be")) else ""
    path = tmp_path / "clients.csv"
    path.write_bytes((mark + content).encode(encoding))
    clients = Clients.read(path)
    assert clients.ids.tolist() == ["Sankt Anna", "Æsir"]
    assert clients.cost.tolist() == [40.5, 1234.5]
    assert clients.norm.tolist() == [1, 0.25]


def test_quotes_hide_separators() -> None:
    frame = table_of(b'"client_id","cost, EUR"\n"a; b",4\n', "a.csv")
    assert frame.columns == ["client_id", "cost, EUR"]
    assert table_of(b'client_id;"cost, EUR"\na;4\n', "a.csv").columns == frame.columns
    with pytest.raises(InputError, match=r"first line of a\.csv has both ',' and ';'"):
        table_of(b"client_id;cost, EUR\na;4\n", "a.csv")


@pytest.mark.parametrize(
    ("cells", "numbers"),
    [
        (["12,5", "7"], [12.5, 7]),
        (["0,125", "7"], [0.125, 7]),
        (["1234,567"], [1234.567]),
        (["-1,5", " 2,25 "], [-1.5, 2.25]),
        (["1,5e3"], [1500]),
        (["1.234,5", "2.000"], [1234.5, 2000]),  # the first says what points are
        (["1,234", "5,5"], [1.234, 5.5]),  # the second says what commas are
        (["1,234", "1,234,567"], [1234, 1234567]),
        (["1,234.5", "7.25"], [1234.5, 7.25]),
        (["1.234", "7.5"], [1.234, 7.5]),
    ],
)
def test_numbers_that_can_be_read_in_one_way(cells: list[str], numbers: list[float]) -> None:
    assert number_column(pl.Series("cost", cells)).tolist() == numbers


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["7", "1,234"], "has '1,234' in row 2, which may be 1234 or 1.234; write 1234 or 1.2340."),
        (["12,5", "7.5"], "has decimal commas ('12,5' in row 1) and decimal points ('7.5' in row"),
        (["12,5", "1,234,567"], "and commas between thousands ('1,234,567' in row 2); write all"),
        (["4", "€ 5"], "must hold numbers; got '€ 5' in row 2"),
        (["4", "5,5,5"], "must hold numbers; got '5,5,5' in row 2"),
        (["12,5", None], "must hold numbers; got nothing in row 2"),
        (["1.234.567"], "must hold numbers; got '1.234.567' in row 1"),
    ],
)
def test_numbers_that_cannot(cells: list[str | None], message: str) -> None:
    with pytest.raises(InputError) as caught:
        number_column(pl.Series("cost", cells))
    assert message in str(caught.value)


def test_points_between_thousands_where_commas_may_be_decimal() -> None:
    """Read as 1.234 patients, a hospital would count for nothing."""
    german = b"client_id;samples\na;1.234\nb;12.000\nc;7\n"
    with pytest.raises(InputError) as caught:
        table_of(german, "a.csv")
    assert str(caught.value) == (
        "a.csv: column 'samples' has '1.234' in row 1, which may be 1234 or 1.234; "
        "write 1234 or 1.2340."
    )
    for plain in (german.replace(b";", b","), german.replace(b"1.234", b"1.2340")):
        assert number_column(table_of(plain, "a.csv")["samples"])[0] == 1.234
    ids = table_of(b"client_id;samples\n1.234;5\n", "a.csv")  # names stay as they are
    assert ids["client_id"].to_list() == ["1.234"]


def test_a_spreadsheet(tmp_path: Path) -> None:
    rows: list[list[Cell]] = [
        [*HEADER, None], [1, 120, 1.0, 40.5, 0], [None], ["b", 900, 0.25, "1234.5", 9.0]
    ]  # fmt: skip
    path = tmp_path / "clients.xlsx"
    path.write_bytes(xlsx(Clients=rows, Empty=[]))
    clients = Clients.read(path)
    assert clients.ids.tolist() == ["1", "b"]
    assert clients.cost.tolist() == [40.5, 1234.5]


def test_a_cell_far_down_that_is_no_number_is_named() -> None:
    """A reader that guesses types from the first rows makes nothing of it."""
    rows: list[list[Cell]] = [["client_id", "samples"]]
    rows.extend([n, n] for n in range(300))
    rows.append([300, "many"])
    frame = table_of(xlsx(Clients=rows), "a.xlsx")
    with pytest.raises(InputError, match="must hold numbers; got 'many' in row 301"):
        number_column(frame["samples"])


def test_numbers_of_a_spreadsheet_keep_all_their_digits() -> None:
    for numbers in ([0.1 + 0.2, 1e-300, 12345678901234.5, 1 / 3], [5e22, 1.0], [3.0, 4.0]):
        frame = table_of(xlsx(Clients=[["cost"], *([x] for x in numbers)]), "a.xlsx")
        assert number_column(frame["cost"]).tolist() == numbers


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (xlsx(May=[["cost"], [1]], June=[["cost"], [2]]), "has 2 sheets with cells: May, June."),
        (xlsx(May=[], June=[]), "is empty; its first line must name the columns"),
        (b"PK\x03\x04 and so on", "is an archive, not a spreadsheet; save the table as CSV"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1", "an old kind, or has a password; save it as .xlsx"),
        (b"\xff\xfe" + b"a\x00,", "begins like UTF-16 text but is not; save it as CSV"),
        (b"a" * 2_000_000, "got more than 1,048,576 bytes, which begin with 'aaaaaaaa"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "clients"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        Clients.from_frame(read_table(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("begin", [b'"a\nb"', b"client_id\r"], ids=["a quote", "an end of line"])
def test_names_of_columns_on_two_lines_are_refused_before_they_are_read(begin: bytes) -> None:
    with pytest.raises(InputError, match="the names of the columns must be on one line"):
        table_of(begin + b",x" * 5000 + b"\n1\n", "a.csv")


def test_a_spreadsheet_without_its_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'fedprice\[excel\]'"):
        table_of(xlsx(Clients=[["cost"], [1]]), "a.xlsx")
