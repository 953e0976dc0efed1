"""What a ledger shows and exports: exact, safe to open elsewhere, and true to the entries."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from beancount import loader

from fedprice import InputError
from fedprice.market.export import EXPORTS, export
from fedprice.market.ledger import Ledger, LedgerError
from fedprice.market.statements import _compared, clients_of, runs_of, statement_of
from trials.markets import NAMES, ROUNDS, small_market

TODAY = datetime.date(2026, 1, 2)


@pytest.fixture(scope="module")
def settled() -> Iterator[Ledger]:
    ledger = Ledger("sqlite://")
    small_market(ledger, delivery=0.7)
    yield ledger
    ledger.close()


def test_runs(settled: Ledger) -> None:
    (row,) = runs_of(settled).to_dicts()
    assert (row["run"], row["status"], row["done"], row["clients"]) == ("run", "settled", ROUNDS, 4)
    assert 4 < row["budget"] < 6  # and one update more of each client
    assert row["escrow"] == 0
    assert row["paid_out"] - row["paid_in"] == sum(clients_of(settled, "run")[0]["paid"])
    assert runs_of(Ledger("sqlite://")).is_empty()


def test_clients_of_a_run(settled: Ledger) -> None:
    rows, _ = clients_of(settled, "run")
    assert rows["client"].to_list() == NAMES
    assert (rows["heads"] == rows["joined"] + rows["missed"] + rows["refused"]).all()
    assert rows["shown"].drop_nulls().gt(0).all()
    with pytest.raises(InputError, match=r"has no run 'ran'. Did you mean 'run'"):
        clients_of(settled, "ran")


def test_declared_norms_are_compared_with_what_is_shown() -> None:
    """Twice the gradient norm gave 2.5 times the pay, and only too small ones were flagged."""
    rows = pl.DataFrame(
        {
            "client": ["a", "b", "c", "d", "e", "f"],
            "grad_norm": [2.0, 3.0, 2.5, 30.0, 0.5, None],
            "shown": [1.0, 1.0, 1.0, 1.0, 0.6, 1.0],
        }
    )
    found = dict(_compared(rows).select("client", "declared").rows())
    assert found == {
        "a": None, "b": None, "c": None, "d": "far above shown", "e": "below shown", "f": None,
    }  # fmt: skip


@pytest.mark.parametrize("unknown", ["grad_norm", "shown"])
def test_nobody_is_compared_without_a_declared_norm_or_a_learning_rate(unknown: str) -> None:
    rows = pl.DataFrame({"client": ["a", "b"], "grad_norm": [0.1, 50.0], "shown": [1.0, 1.0]})
    rows = rows.with_columns(pl.lit(None, pl.Float64).alias(unknown))
    assert _compared(rows)["declared"].to_list() == [None, None]


def test_honest_clients_of_a_market_are_not_named(settled: Ledger) -> None:
    assert "far above shown" not in clients_of(settled, "run")[0]["declared"].to_list()


@pytest.mark.parametrize("client", NAMES)
def test_a_statement_adds_up(settled: Ledger, client: str) -> None:
    rows, runs = statement_of(settled, client)
    (summed,) = runs.to_dicts()
    assert summed["joined"] + summed["missed"] == summed["heads"]
    if summed["agreed"] > 0:
        all_heads = (summed["paid"] + summed["lost"]) * summed["joined"] - summed["paid"] * summed[
            "heads"
        ]
        assert abs(all_heads) < summed["heads"] * Decimal("0.000002")
    assert rows["balance"].to_list() == rows["amount"].cum_sum().to_list()
    assert rows["balance"][-1] == Decimal(settled.balance(f"client:{client}")).scaleb(-6)
    rounds = rows.filter(pl.col("round").is_not_null())
    assert rounds["round"].to_list() == list(range(1, ROUNDS + 1))
    assert set(rounds["event"]) <= {"joined", "tails", "missed"}
    missed = rounds.filter(event="missed")
    assert missed["amount"].is_in([0]).all()
    assert missed["note"].str.contains("sent no update").all()
    opened = rows.filter(event="opened")["note"][0]
    assert "offered a price of" in opened
    assert "chose level" in opened


def test_the_nearest_client_is_named(settled: Ledger) -> None:
    with pytest.raises(InputError, match=r"has no client 'alise'. Did you mean 'alice'"):
        statement_of(settled, "alise")


def test_tables_hold_every_posting(settled: Ledger, tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet"):
        export(settled, tmp_path / f"market{suffix}", date=TODAY)
    rows = pl.read_parquet(tmp_path / "market.parquet")
    assert rows["amount"].sum() == 0
    text = (tmp_path / "market.csv").read_text("utf-8")
    assert len(text.splitlines()) == rows.height + 1
    assert text.splitlines()[1].startswith("5,deposit,")
    sums = dict(rows.group_by("account").agg(pl.sum("amount")).rows())
    balances = {n: Decimal(m).scaleb(-6) for n, m in settled.balances().items()}
    assert sums == balances


def test_beancount_reads_the_books(settled: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "market.beancount"
    export(settled, path, date=TODAY)
    entries, errors, _ = loader.load_file(str(path))
    assert errors == []
    titles = [getattr(entry, "narration", "") for entry in entries]
    assert titles.count("round 1 of run 'run'") == 1
    assert f"round {ROUNDS} of run 'run'" in titles
    names = {entry.meta["name"] for entry in entries if type(entry).__name__ == "Open"}
    assert names == set(settled.balances())
    paid = sum(
        posting.units.number
        for entry in entries
        for posting in getattr(entry, "postings", [])
        if posting.account == "Assets:Client:N-alice"
    )
    assert paid == Decimal(settled.balance("client:alice")).scaleb(-6)


def test_exports_are_whole_or_not_there(settled: Ledger, tmp_path: Path) -> None:
    """A ledger that does not verify is not exported."""
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    small_market(ledger)
    with ledger._database.writing() as connection:
        connection.exec_driver_sql("UPDATE accounts SET balance = balance + 1")
    for suffix in EXPORTS:
        with pytest.raises(LedgerError, match="does not verify"):
            export(ledger, tmp_path / f"market{suffix}", date=TODAY)
    ledger.close()
    assert sorted(part.name for part in tmp_path.iterdir() if "db" not in part.name) == []
