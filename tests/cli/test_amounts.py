"""Amounts that people type, and rows that programs add: what has two readings is not priced."""

import shlex
from pathlib import Path

import pytest

import fedprice as fp
from fedprice._plumbing.dialects import number_text, typed_number
from fedprice.commands.what_if import parse_changes
from fedprice.web.price_state import Asked
from tests.conftest import Run

TABLE = "client_id,samples,cost\na,100,40\nb,200,50\nc,400,60\nd,900,20\n"


@pytest.mark.parametrize("text", ["3.000", "1.000", "12.500", "-3.000", "999.125"])
def test_a_german_thousand_is_not_read_as_a_decimal(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "clients.csv").write_text(TABLE)
    both = f"write {text.replace('.', '')} or {number_text(float(text))}."
    price = ("price", tmp_path / "clients.csv")
    for command in (
        (*price, f"--budget={text}"),
        (*price, "--budgets", f"1,{text}"),
        (*price, "--budgets", f"{text}:5:2"),
        (*price, "--what-if", f"a cost={text}"),
        ("respond", "--cost", "5", f"--price={text}"),
        ("compare", *price[1:], "--alpha=1", f"--budget={text}"),
        ("post", *price[1:], "--alpha=1", "--beliefs=exponential", f"--cost={text}", "--value=1"),
        ("simulate", "digits", f"--budget={text}"),
        ("study", "digits", f"--budget={text}", "--out", tmp_path / "out"),
        ("serve", "--no-browser", f"--budget={text}"),
    ):
        code, out, err = run(*command)
        assert (code, out) == (2, ""), command
        assert both in err
        assert err.count("\n") == 1


def test_what_is_to_be_typed_instead_is_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text(TABLE)
    for text in ("3000", "3", "1234", "1.2340", "0.125", "1e3", "1234.567"):
        code, _, err = run("price", tmp_path / "clients.csv", "--budget", text, "--format", "csv")
        assert code == 0, err


def test_factors_have_no_thousands(run: Run, tmp_path: Path) -> None:
    (tmp_path / "clients.csv").write_text(TABLE)
    code, _, err = run("price", tmp_path / "clients.csv", "--alpha", "3.142", "--exponent", "1.125")
    assert code == 0, err
    assert typed_number("3.142", factor=True) == 3.142


def test_numbers_that_commands_print_can_be_typed() -> None:
    for value in (1.234, 999.125, 1.5, 0.125, 1234.567, 1e-7, 1e22, 60.0, -1.234):
        assert typed_number(number_text(value)) == value
    assert "--budget 1.2340 " in Asked(budget=1.234).command("a.csv")
    (asked,) = Asked().command("a.csv", changes={"a": {"cost": 1.234}}).split("--what-if ")[1:]
    assert parse_changes([asked.strip("'")]) == {"a": {"cost": 1.234}}


TOTALS = ["Total,1600,170", "TOTAL:,,", "Grand total,1600,170", "Gesamt,1600,170", "Sum,,",
          "all hospitals,1600,170", "Summe,1600,170", ",1600,170"]  # fmt: skip


@pytest.mark.parametrize("row", TOTALS)
def test_a_row_of_totals_is_no_client(run: Run, tmp_path: Path, row: str) -> None:
    path = tmp_path / "clients.csv"
    path.write_text(TABLE + row + "\n")
    for command in (("price", path), ("compare", path, "--alpha", 1),
                    ("post", path, "--alpha=1", "--beliefs=exponential", "--cost=1", "--value=1"),
                    ):  # fmt: skip
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert "clients.csv: row 5 (" in err
        assert "looks like the sum of the other rows; delete it" in err
    with pytest.raises(fp.InputError, match="looks like the sum"):
        fp.Clients.read(path, assume={"value": 0, "grad_norm": 1})


def test_a_client_that_is_as_large_as_all_others_is_one_where_it_is_not_last(
    run: Run, tmp_path: Path
) -> None:
    head, *rows = TABLE.splitlines(keepends=True)
    for row in ("Total Energies,1600,170\n", "Total,1600,170\n", "Totalia,1600,170\n"):
        (tmp_path / "clients.csv").write_text("".join([head, row, *rows]))
        assert run("price", tmp_path / "clients.csv")[0] == 0
    (tmp_path / "clients.csv").write_text(TABLE + "Totalia,1600,171\n")
    assert run("price", tmp_path / "clients.csv")[0] == 0


def test_letters_and_errors_print_amounts_that_can_be_typed(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "clients.csv").write_text(TABLE.replace("60", "60.125"))
    assert run("price", tmp_path / "clients.csv", "--letters", tmp_path / "letters")[0] == 0
    lines = next((tmp_path / "letters").glob("*-c.md")).read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("fedprice respond")]
    assert "--cost 60.1250" in line
    code, _, err = run(*shlex.split(line)[1:])
    assert code == 0, err


def test_an_address_is_read_as_boxes_are() -> None:
    with pytest.raises(fp.InputError, match=r"'3\.000' may be 3000 or 3; write 3000 or 3"):
        Asked().changed({"budget": "3.000"})
    assert Asked().changed({"alpha": "3.142"}).alpha == 3.142
    for budget in (1.234, 60.0, -155.0):
        state = Asked(budget=budget, alpha=1.234, exponent=1.125).address(Asked())
        assert Asked().changed(state) == Asked(budget=budget, alpha=1.234, exponent=1.125)
