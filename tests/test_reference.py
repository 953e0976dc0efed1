"""The reference names what the code has: names, entries, messages, exit codes, columns."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import fedprice
from fedprice import clients, errors
from fedprice.market import offers, payouts, updates
from fedprice.verify import books, messages

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def cells(page: str, first: str) -> list[list[str]]:
    """Return the rows of a page's tables whose first cell names `first`."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in (REFERENCE / page).read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    return [row for row in rows if first in names(row[0])]


def names(cell: str) -> list[str]:
    """Return what a cell has in code type."""
    return re.findall(r"`([^`]+)`", cell)


def test_the_reference_of_python_has_every_public_name() -> None:
    """What the page promises to keep is what can be imported."""
    page = (REFERENCE / "api.md").read_text("utf-8")
    found = re.findall(r"^(?:   |\.\. py:data:: )(\w+)$", page, re.MULTILINE)
    assert sorted(found) == sorted(fedprice.__all__)


def test_no_name_that_will_be_removed_goes_without_a_warning() -> None:
    """Names that are there already never reach the function that warns."""
    assert not fedprice._LEAVING.keys() & vars(fedprice).keys()


def test_a_name_that_will_be_removed_still_works_and_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fedprice._LEAVING, "equilibrium", ("fedprice", "solve"))
    with pytest.warns(DeprecationWarning, match=r"fedprice\.equilibrium .* use fedprice\.solve"):
        assert fedprice.equilibrium is fedprice.solve


def test_the_changelog_and_the_citation_name_this_version() -> None:
    top = REFERENCE.parent.parent
    changelog = (top / "CHANGELOG.md").read_text("utf-8")
    assert re.findall(r"^## \[(.+?)\]", changelog, re.MULTILINE)[:2] == [
        "Unreleased",
        fedprice.__version__,
    ]
    citation = (top / "CITATION.cff").read_text("utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [fedprice.__version__]


@pytest.mark.parametrize("kind", books.CONTENT)
def test_every_entry_is_documented_with_its_fields(kind: str) -> None:
    documented = [tuple(names(row[2])) for row in cells("ledger.md", kind)]
    expected = [books.CONTENT[kind], *([books.UNSIGNED] if kind == "open" else [])]
    assert documented == expected


@pytest.mark.parametrize(
    "message",
    [
        offers.Conditions, offers.Offer, offers.Commitment, offers.Roster, offers.Opening,
        offers.Receipt, updates.Update, payouts.Withdrawal, payouts.Reversal, payouts.Rotation,
    ],
)  # fmt: skip
def test_every_message_is_documented_with_its_fields(message: Any) -> None:
    ((_, _, documented),) = cells("ledger.md", message.__name__)
    assert names(documented) == [field.name for field in fields(message)]


@pytest.mark.parametrize("kind", sorted(messages.KEPT))
def test_what_the_verifier_takes_as_kept_is_documented(kind: str) -> None:
    assert names(cells("ledger.md", kind)[0][2]) == list(messages.MESSAGES[kind])


def test_every_exit_code_is_documented() -> None:
    page = (REFERENCE.parent / "commands.md").read_text("utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    in_code = {int(code) for code in re.findall(r"Error +(\d+)", errors.__doc__ or "")}
    assert documented == in_code | {0, 1}


def test_every_column_of_the_clients_is_documented() -> None:
    page = (REFERENCE / "files.md").read_text("utf-8")
    table = page.partition("## Clients")[2].partition("## Prices")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in names(row)} == set(clients.COLUMNS)


# Written by programs: they grow with what is measured, not with what is explained.
GENERATED = (
    "results.md",
    "digits-study.md",
    "calibration-study.md",
    "forty-clients.md",
    "benchmarks/*",
)


def test_the_documentation_stays_short() -> None:
    """Words as `wc -w` counts them, without pages that programs write."""
    docs = REFERENCE.parent
    written = [
        page
        for page in docs.rglob("*.md")
        if not any(page.relative_to(docs).match(name) for name in GENERATED)
    ]
    assert len(written) > 30
    assert sum(len(page.read_text("utf-8").split()) for page in written) <= 28_000
    assert len((docs.parent / "README.md").read_text("utf-8").split()) <= 1_100
