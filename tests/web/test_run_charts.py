"""Charts and tables of runs, from ledgers that are real."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fedprice.market.following import Following, RoundSeen, RunSeen
from fedprice.market.ledger import Ledger
from fedprice.market.metrics import RoundMetrics
from fedprice.market.money import MICRO
from fedprice.market.statements import clients_of
from fedprice.market.verification import Checked, Counts
from fedprice.web.run_charts import (
    ACCURACY,
    LOSS,
    joiners_chart,
    latest,
    measured_chart,
    paid_chart,
)
from fedprice.web.run_tables import (
    NAMES,
    amount,
    client_frame,
    round_rows,
    run_address,
    run_rows,
)
from trials.markets import ROUNDS, small_market

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    opened = Ledger(str(tmp_path_factory.mktemp("charts") / "market.db"))
    small_market(opened, delivery=0.7)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def seen(ledger: Ledger) -> Iterator[RunSeen]:
    followed = Following(ledger.name)
    yield followed.run("run")
    followed.close()


def test_what_was_paid_is_drawn_against_what_may_be_paid(seen: RunSeen) -> None:
    chart = paid_chart(seen)
    paid, most = chart["series"]
    assert len(paid["data"]) == ROUNDS + 1
    assert paid["data"][0] == [0, 0.0]
    assert paid["data"][-1] == [ROUNDS, seen.summary.paid_out / MICRO]
    assert [y for _, y in paid["data"]] == sorted(y for _, y in paid["data"])
    assert {y for _, y in most["data"]} == {seen.summary.funds / MICRO}
    assert "payers" in most["name"]  # one of the four pays
    assert chart["yAxis"]["name"] == "CREDIT"


def test_who_joined_is_counted(seen: RunSeen, ledger: Ledger) -> None:
    drawn = {own["name"]: own["data"] for own in joiners_chart(seen)["series"]}
    rounds = ledger.rounds("run")
    for name in ("joined", "missed", "refused"):
        assert drawn[name] == [[r + 1, len(own[name])] for r, own in enumerate(rounds)]


def test_losses_and_accuracies_are_lines_with_gaps(seen: RunSeen) -> None:
    assert measured_chart(seen, LOSS) is None
    assert latest(seen.metrics, LOSS) is None
    found = (
        RoundMetrics("run", 0, "server", {"loss": 2.0, "accuracy": 0.1}),
        RoundMetrics("run", 5, "clients", {"eval_loss": 1.5, "seconds": 3, "losses": [1, 2]}),
        RoundMetrics("run", 5, "server", {"loss": math.inf, "accuracy": 0.5}),
        RoundMetrics("run", 9, "clients", {"eval_loss": 1.25}),
    )
    measured = replace(seen, metrics=found)
    chart = measured_chart(measured, LOSS)
    assert chart is not None
    lines = {own["name"]: own["data"] for own in chart["series"]}
    assert lines == {
        "loss": [[0, 2.0], [5, None]],
        "eval_loss (clients)": [[5, 1.5], [9, 1.25]],
    }
    accuracy = measured_chart(measured, ACCURACY)
    assert accuracy is not None
    assert [own["name"] for own in accuracy["series"]] == ["accuracy"]
    assert latest(found, ACCURACY) == (0.5, "after round 5")
    assert latest(found, LOSS) == (math.inf, "after round 5")
    assert latest(found[1:2], LOSS) == (1.5, "after round 5, clients")
    assert latest(found[:1], LOSS) == (2.0, "before round 1")


def test_rows_of_rounds_name_few_of_many() -> None:
    many = tuple(f"client-{n}" for n in range(100))
    rounds = [RoundSeen(4, many, ("<b>",), {"x": "too long", "y": "copied"}, 1_500_000)]
    (row,) = round_rows(rounds, before=10)
    assert (row["at"], row["round"], row["heads"], row["paid"]) == (15, "15", 103, "1.50")
    assert row["joined"].endswith(f"client-{NAMES - 1} and {100 - NAMES} more")
    assert (row["missed"], row["refused"]) == ("<b>", "x: too long; y: copied")


def test_rows_of_runs(seen: RunSeen) -> None:
    (row,) = run_rows([seen.summary])
    assert (row["name"], row["address"], row["state"]) == ("run", "/runs/run", "settled")
    assert row["rounds"] == f"{ROUNDS} of {ROUNDS}"
    assert row["money"] == f"{amount(seen.summary.paid_out)} of {amount(seen.summary.funds)}"


def test_rows_of_clients_are_what_the_ledger_shows(seen: RunSeen, ledger: Ledger) -> None:
    empty = client_frame(seen, Checked())
    assert empty["heads"].null_count() == empty.height == 4
    run = ledger.verify().runs["run"]
    counts = {
        name: Counts(own.heads, own.joined, own.missed, own.refused, own.paid)
        for name, own in run.clients.items()
    }
    rows = client_frame(seen, Checked(1, 1, rounds=run.done, clients=counts))
    known, _ = clients_of(ledger, "run")
    known = known.rename({"joined": "delivered"})
    for name in ("client", "level", "heads", "delivered", "missed", "refused"):
        assert rows[name].to_list() == known[name].to_list()
    for name in ("agreed", "paid"):
        assert rows[name].to_list() == pytest.approx([float(x) for x in known[name]])


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "<script>", "run#2", "a?b=c&d", "%41", ".", "..", "a/../b&c"]
)
def test_addresses_hold_any_name(name: str) -> None:
    from urllib.parse import parse_qs, unquote, urljoin, urlsplit

    address = urlsplit(urljoin("http://x/", run_address(name)))
    if address.query:
        assert parse_qs(address.query) == {"run": [name]}
    else:
        assert unquote(address.path) == f"/runs/{name}"
