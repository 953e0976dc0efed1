"""`fedprice respond`: a client's answer to a price, and to the offers that files have."""

import io
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedprice.market.canonical import canonical_bytes
from fedprice.market.export import export
from fedprice.market.ledger import Ledger
from fedprice.market.messages import Signed
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.offers import Proposal, make_offers
from fedprice.market.simulation import simulation_key
from fedprice.market.tariffs import Tariff
from tests.conftest import Run
from trials.markets import conditions, small_market

SERVER, ALICE = simulation_key("server"), simulation_key("client alice")
BLOCKS = Tariff(((LEVEL_ONE // 2, 8 * MICRO), (LEVEL_ONE, 2 * MICRO)))
MENU = Tariff(((LEVEL_ONE // 4, 8 * MICRO), (LEVEL_ONE, 2 * MICRO)), menu=True)
OWN = ("--cost", 5, "--value", 0)
Kept = Callable[..., Path]


def line(signed: Signed) -> bytes:
    parts = {"content": signed.content.decode(), "signature": signed.signature.hex()}
    return canonical_bytes(parts | {"key": signed.key.hex()}) + b"\n"


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    """A file of receipts, with an earlier offer in front."""

    def write(tariff: Tariff, *, floor: int = 1, impact: float = 0.0, **changes: Any) -> Path:
        path = tmp_path / "kept.jsonl"
        parts = []
        for own, all_ in (
            (Tariff.flat(1, 1), conditions(Ledger("sqlite://", identity="ab" * 32), "before")),
            (tariff, conditions(Ledger("sqlite://", identity="ab" * 32), "first", **changes)),
        ):
            text = all_.text.encode()
            parts.append(line(Signed(text, ALICE.sign_text(all_.text), ALICE.public)))
            offers = make_offers(
                SERVER, all_, {"alice": Proposal(own, min(floor, own.cap), impact)}
            )
            parts.append(line(offers["alice"]))
        path.write_bytes(b"".join(parts))
        return path

    return write


def answer_to(run: Run, *options: object) -> dict[str, Any]:
    code, out, err = run("respond", *options, "--format", "json")
    assert (code, err) == (0, "")
    response: dict[str, Any] = json.loads(out)["response"]
    return response


def test_a_pure_seller_needs_neither_value_nor_impact(run: Run) -> None:
    best = answer_to(run, "--price", 12, "--cost", 40)
    assert best == answer_to(run, "--price", 12, "--cost", 40, "--value", 0, "--impact", 7)
    assert (best["level_unpaid"], best["utility_unpaid"]) == (0, 0)
    assert best["gain"] == best["profit"] == pytest.approx(12**2 / (4 * 40))
    said = run("respond", "--price", 12, "--cost", 40)[1]
    assert "no payment, no cost" in said
    assert "accepting gains 0.9 over declining" in said
    assert not any(word in said for word in ("utility", "break even", "paying to join"))
    said = run("respond", "--price", 12, "--cost", 40, "--value", 4000, "--impact", 0.0005)[1]
    assert all(word in said for word in ("utility", "break even", "paying to join"))


def test_no_zero_is_negative(run: Run) -> None:
    declined = ("--price", -60, "--cost", 5)
    assert "-0" not in run("respond", *declined)[1].replace("-60", "")
    assert "-0.0" not in run("respond", *declined, "--format", "json")[1]


@pytest.mark.parametrize("price", [-30, -2, -0.001, 0, 0.001, 2, 30])
@pytest.mark.parametrize("value", [0, 1, 4000])
def test_the_gain_is_over_the_best_that_can_be_done_without_the_offer(
    run: Run, price: float, value: float
) -> None:
    """Against a search over a million levels: of the offer, and of joining unpaid."""
    own = (f"--price={price}", "--cost", 40, "--value", value, "--impact", 0.0005)
    best = answer_to(run, *own)
    levels = np.linspace(0, 1, 1_000_001)[1:]
    lost = 40 * levels**2 + value * 0.0005 * (1 / levels - 1)
    away = [0.0] if value == 0 else []  # whoever does not value the model may stay away
    accepted, unpaid = (max([*away, (p * levels - lost).max()]) for p in (price, 0))
    assert best["utility"] == pytest.approx(accepted, abs=1e-6)
    assert best["utility_unpaid"] == pytest.approx(unpaid, abs=1e-6)
    assert best["gain"] == pytest.approx(accepted - unpaid, abs=1e-6)
    said = run("respond", *own)[1]
    if price < 0 < value:
        assert "declining is better, by" in said
        assert "if you may then join unpaid" in said
    elif price > 0:
        assert "accepting gains" in said
    else:
        assert "accepting is as good as declining" in said


def test_a_least_level_can_make_declining_better(run: Run, kept: Kept) -> None:
    """Paid 2 for every round, which costs 5: an offer is not a gift."""
    offer = ("--offer", kept(Tariff.flat(2 * MICRO, LEVEL_ONE), floor=LEVEL_ONE), *OWN)
    best = answer_to(run, *offer)
    assert (best["level"], best["gain"]) == (1.0, -3.0)
    assert "declining is better, by 3" in run("respond", *offer)[1]
    worthy = kept(Tariff.flat(-1 * MICRO, LEVEL_ONE), impact=0.25)
    charged = answer_to(run, "--offer", worthy, "--cost", 5, "--value", 4)
    assert charged["payment"] < 0
    assert charged["level_unpaid"] == pytest.approx((1 / 10) ** (1 / 3))
    assert charged["gain"] < 0


@pytest.fixture
def tables(run: Run, tmp_path: Path) -> Path:
    """What `price -o` and `post -o` write about forty clients, in each format."""
    assert run("data", "example", "-o", tmp_path / "clients.csv")[0] == 0
    clients = (tmp_path / "clients.csv", "--alpha", 3.3)
    believed = ("--beliefs", "exponential", "--cost", 50, "--value", 4000)
    for name in ("price.csv", "price.parquet", "price.json"):
        assert run("price", *clients, "-o", tmp_path / name)[0] == 0
    for form in ("price", "blocks"):
        for end in ("csv", "json"):
            to = tmp_path / f"post-{form}.{end}"
            assert run("post", *clients, *believed, "--form", form, "-o", to)[0] == 0
    menu = ("--beliefs", "exponential", "--cost", 50, "--form", "menu")
    assert run("post", *clients, *menu, "-o", tmp_path / "post-menu.json")[0] == 0
    return tmp_path


def test_offers_that_were_priced_or_posted_are_answered(run: Run, tables: Path) -> None:
    priced = {row["client_id"]: row for row in pl.read_csv(tables / "price.csv").to_dicts()}
    own = ("--client", 3, "--cost", 40)
    expected = answer_to(run, "--price", priced[3]["price"], "--cost", 40)
    for name in ("price.csv", "price.parquet", "price.json"):
        assert answer_to(run, "--offer", tables / name, *own) == {"client": "3"} | expected
    worth = ("--value", 4000, "--impact", 0.0005)
    wanted = answer_to(run, "--price", priced[3]["price"], "--cost", 40, *worth)
    assert answer_to(run, "--offer", tables / "price.csv", *own, *worth) == {"client": "3"} | wanted
    for name in ("post-price.csv", "post-price.json"):
        assert answer_to(run, "--offer", tables / name, *own)["gain"] > 0
    said = run("respond", "--offer", tables / "price.csv", *own)[1]
    assert "unit, rounds and a signature: it is unsigned and not binding" in said


def test_a_contract_is_taken_or_left_as_a_whole(run: Run, tables: Path) -> None:
    """At four times the cost that is paid, a price would still be worth a lower level."""
    clients = (tables / "clients.csv", "--alpha", 3.3)
    for name in ("cost.csv", "cost.parquet", "cost.json"):
        assert run("price", *clients, "--pay", "cost", "-o", tables / name)[0] == 0
    row = pl.read_csv(tables / "cost.csv").row(2, named=True)
    for name in ("cost.csv", "cost.parquet", "cost.json"):
        offer = ("--offer", tables / name, "--client", 3, "--cost")
        best = answer_to(run, *offer, 4 * row["cost"])
        assert (best["level"], best["payment"]) == (row["level"], row["payment"])
        assert best["cost"] == pytest.approx(4 * row["payment"])
        assert best["gain"] == best["profit"] == pytest.approx(-3 * row["payment"])
        said = run("respond", *offer, 4 * row["cost"])[1]
        assert "to take or leave as a whole" in said
        assert "declining is better, by" in said
        assert "best level" not in said
        assert answer_to(run, *offer, row["cost"])["gain"] == 0
        assert "accepting is as good as declining" in run("respond", *offer, row["cost"])[1]
        assert answer_to(run, *offer, row["cost"] / 2)["gain"] > 0
        wants = answer_to(run, *offer, row["cost"], "--value", 4000, "--impact", 0.0005)
        unpaid = answer_to(run, "--price", 0, "--cost", row["cost"], "--value", 4000, "--impact",
                           0.0005)  # fmt: skip
        assert wants["utility"] == pytest.approx(-2 * (1 / row["level"] - 1))
        assert wants["gain"] == pytest.approx(wants["utility"] - unpaid["utility"])
    torn = pl.read_csv(tables / "cost.csv").with_columns(level=pl.lit(0.0))
    torn.write_csv(tables / "torn.csv")
    code, out, err = run("respond", "--offer", tables / "torn.csv", "--client", 3, "--cost", 4)
    assert (code, out, err.count("\n"), "must be in (0, 1]" in err) == (2, "", 1, True)


def test_the_blocks_and_menus_that_were_posted_are_answered(run: Run, tables: Path) -> None:
    """Against a search over the levels that can be chosen."""
    for form in ("blocks", "menu"):
        path = tables / f"post-{form}.json"
        row = json.loads(path.read_text())["clients"][2]
        count = sum(name.startswith("level_") for name in row) - 2
        ends, prices = (
            np.array([row[f"{what}_{n + 1}"] for n in range(count)]) for what in ("level", "price")
        )
        levels = ends if form == "menu" else np.linspace(0, 1, 1_000_001)[1:]
        widths = np.clip(levels[:, None], [0, *ends[:-1]], ends) - [0, *ends[:-1]]
        for value_impact, worth in ((0, ()), (0.4, ("--value", 4000, "--impact", 1e-4))):
            best = answer_to(run, "--offer", path, "--client", 3, "--cost", 40, *worth)
            reached = widths @ prices - 40 * levels**2 - value_impact * (1 / levels - 1)
            assert best["utility"] == pytest.approx(reached.max(), abs=1e-6)
            assert best["gain"] == pytest.approx(best["utility"] - best["utility_unpaid"])
        rows = run("respond", "--offer", path, "--client", 3, "--cost", 40, "--format", "csv")[1]
        assert pl.read_csv(io.StringIO(rows))["chosen"].sum() == 1
    dear = answer_to(run, "--offer", tables / "post-menu.json", "--client", 3, "--cost", 1e9)
    assert (dear["level"], dear["utility"], dear["gain"]) == (0, 0, 0)


def test_an_export_has_the_offers_of_all_clients(run: Run, tmp_path: Path) -> None:
    ledger = Ledger("sqlite://")
    small_market(ledger)
    for name, client in (("whole.jsonl", None), ("part.jsonl", "alice")):
        export(ledger, tmp_path / name, date=date(2026, 1, 2), client=client)
        best = answer_to(run, "--offer", tmp_path / name, "--client", "alice", "--cost", 3)
        assert (best["run"], best["client"], best["unit"]) == ("run", "alice", "CREDIT")
        assert best["gain"] > 0
    for options, said in (
        (("--offer", tmp_path / "whole.jsonl"), "is an export, with offers to all clients; name"),
        (("--offer", tmp_path / "whole.jsonl", "--client", "zoe"), "holds no offer to 'zoe'"),
    ):
        code, out, err = run("respond", "--cost", 3, *options)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


def test_what_a_table_of_offers_lacks_is_said(run: Run, tables: Path) -> None:
    price = pl.read_csv(tables / "price.csv")
    price.drop("price").write_csv(tables / "none.csv")
    price.drop("client_id").write_csv(tables / "nobody.csv")
    price.with_columns(price=pl.lit("much")).write_csv(tables / "much.csv")
    price.with_columns(level_max=pl.lit(7.0)).write_csv(tables / "high.csv")
    price.head(0).write_csv(tables / "empty.csv")
    pl.concat([price, price]).write_csv(tables / "twice.csv")
    (tables / "odd.json").write_text("[1]")
    for file, options, said in (
        ("price.csv", (), "price.csv has offers to 40 clients; name yours: --client."),
        ("price.csv", ("--client", "333"), "price.csv has no client '333'"),
        (
            "price.csv",
            ("--client", 3, "--value", 1),
            "price.csv lacks your impact, which a",
        ),
        ("price.csv", ("--client", 3, "--price", 1), "--price cannot be combined with --offer"),
        ("price.csv", ("--client", 3, "--level-max", 1), "--level-max cannot be combined with"),
        ("price.csv", ("--client", 3, "--plot", tables / "x.png"), "--plot draws the levels of a"),
        ("price.csv", ("--client", 3, "--impact=-1", "--value=1"), "--impact must be a finite"),
        ("post-blocks.json", ("--client", 3, "--impact=-1"), "--impact must be a finite number"),
        (
            "post-blocks.csv",
            ("--client", 3),
            "does not say whether any level can be chosen",
        ),
        ("none.csv", ("--client", 3), "has neither a column 'price' nor 'level_1' and 'price_1'"),
        ("nobody.csv", ("--client", 3), "has no column 'client_id' in which to find '3'"),
        ("much.csv", ("--client", 3), "column 'price' must hold numbers; got 'much'"),
        ("high.csv", ("--client", 3), "a tariff ends at a level of at most 1; got 7"),
        ("empty.csv", ("--client", 3), "empty.csv has no rows"),
        ("twice.csv", ("--client", 3), "twice.csv has 2 rows of client '3'"),
        ("odd.json", ("--client", 3), "odd.json holds no clients and summary"),
        ("no.json", ("--client", 3), "cannot read"),
        ("no.csv", ("--client", 3), "no.csv"),
    ):
        code, out, err = run("respond", "--cost", 40, "--offer", tables / file, *options)
        assert (code, out, err.count("\n")) == (2, "", 1), (file, err)
        assert said in err


def test_the_best_level_of_a_tariff_beside_others(run: Run, kept: Kept) -> None:
    offer = ("respond", "--offer", kept(BLOCKS, impact=0.25), "--cost", 5, "--value", 4)
    code, out, err = run(*offer, "--format", "json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    best = answer["response"]
    q = best["level"]
    assert q > 0.5
    assert 2 + 1 / q**2 == pytest.approx(10 * q)  # its value pulls it into the second block
    assert (best["run"], best["client"], best["unit"]) == ("first", "alice", "CREDIT")
    assert best["payment"] == pytest.approx(4 + 2 * (q - 0.5))
    assert best["profit"] == pytest.approx(best["payment"] - 5 * q**2)
    assert best["utility"] == pytest.approx(best["profit"] - (1 / q - 1))
    assert [row["level"] for row in answer["levels"] if row["chosen"]] == [q]
    assert max(row["utility"] for row in answer["levels"]) == best["utility"]
    rows = pl.read_csv(io.StringIO(run(*offer, "--format", "csv")[1]))
    assert rows.columns == ["level", "payment", "cost", "profit", "utility", "chosen"]
    assert {0.1, 0.5, 1.0} <= {round(level, 6) for level in rows["level"]}
    said = run(*offer)[1]
    assert "offered" in said
    assert "prices of 8.000000 up to level 0.500000, 2.000000 up to level 1.000000" in said
    assert "in the whole run of 12 rounds" in said


def test_the_rows_of_a_menu(run: Run, kept: Kept) -> None:
    offer = ("respond", "--offer", kept(MENU), *OWN)
    rows = pl.read_csv(io.StringIO(run(*offer, "--format", "csv")[1]))
    assert rows.rows() == [
        (0.25, 2.0, 0.3125, 1.6875, 1.6875, True),
        (1.0, 3.5, 5, -1.5, -1.5, False),
    ]
    assert "a choice of 2.000000 for level 0.250000, 3.500000 for level 1.000000" in run(*offer)[1]
    high = ("respond", "--offer", kept(MENU, floor=LEVEL_ONE // 2), *OWN)
    assert json.loads(run(*high, "--format", "json")[1])["response"]["level"] == 1.0


def test_a_period_counts_as_if_the_whole_run_were_paid_so(run: Run, kept: Kept) -> None:
    offer = (
        "respond",
        "--offer",
        kept(BLOCKS, rounds=3, run_rounds=12),
        "--cost",
        20,
        "--value",
        0,
    )
    best = json.loads(run(*offer, "--format", "json")[1])["response"]
    assert (best["rounds"], best["level"], best["payment"]) == (12, 0.5, 16)


def test_a_figure_of_the_levels(run: Run, kept: Kept, tmp_path: Path) -> None:
    for n, tariff in enumerate((BLOCKS, MENU, Tariff.flat(-1, LEVEL_ONE))):
        path = tmp_path / f"{n}.png"
        code, _, err = run("respond", "--offer", kept(tariff, impact=0.1), *OWN, "--plot", path)
        assert (code, err) == (0, f"wrote {path}\n")
        assert path.read_bytes().startswith(b"\x89PNG")


def test_hostile_receipts_are_refused_in_one_line(
    run: Run, kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hostile.jsonl"
    deep = "[" * 100_000
    lines = {
        "deep nesting": deep,
        "deep content": json.dumps({"content": deep, "signature": "", "key": ""}),
    }
    for what, text in lines.items():
        path.write_text(text + "\n")
        code, out, err = run("respond", *OWN, "--offer", path)
        assert (code, out, err.count("\n")) == (2, "", 1), what
        assert "is not a file of receipts" in err
    sound = conditions(Ledger("sqlite://", identity="ab" * 32))
    for change in ({"unit": None}, {"more": 1}):
        fields = json.loads(sound.text) | change
        odd = canonical_bytes({name: own for name, own in fields.items() if own is not None})
        monkeypatch.setattr(type(sound), "text", odd.decode())
        code, out, err = run("respond", *OWN, "--offer", kept(BLOCKS))
        assert (code, out, err.count("\n")) == (2, "", 1), change
        assert "conditions cannot be read" in err
    monkeypatch.undo()
    huge = ("respond", "--cost", 5, "--value", 100, "--offer", kept(BLOCKS, impact=1e308))
    code, out, err = run(*huge)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_what_cannot_be_answered(run: Run, kept: Kept, tmp_path: Path) -> None:
    path = kept(BLOCKS)
    whole = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "alone.jsonl").write_bytes(whole[-1])
    (tmp_path / "none.jsonl").write_bytes(whole[0])
    (tmp_path / "odd.jsonl").write_bytes(b"[]\n")
    (tmp_path / "forged.jsonl").write_bytes(b"".join(whole).replace(b"8000000", b"9000000"))
    for options, said in (
        (
            ("--offer", path, "--price", 3),
            "--price cannot be combined with --offer, which contains it",
        ),
        (("--offer", path, "--impact", 3), "--impact cannot be combined with --offer"),
        (("--offer", path, "--level-max", 1), "--level-max cannot be combined with --offer"),
        (("--price", 3, "--value", 1), "--value above 0 needs --impact, as the server states it"),
        ((), "give --price, or --offer FILE."),
        (("--price", 3, "--client", "bob"), "--client says whose offer to read; give --offer"),
        (
            ("--offer", path, "--client", "bob"),
            "kept.jsonl has the offers to 'alice', not",
        ),
        (("--price", 3, "--impact", 1, "--plot", tmp_path / "x.png"), "--plot draws the levels of"),
        (("--offer", tmp_path / "no.jsonl"), "cannot read"),
        (("--offer", tmp_path / "alone.jsonl"), "lacks the conditions of its last offer"),
        (("--offer", tmp_path / "none.jsonl"), "holds no offer: a client keeps those that it"),
        (("--offer", tmp_path / "odd.jsonl"), "is not a file of receipts"),
        (("--offer", tmp_path / "forged.jsonl"), "its signature is not valid"),
        (("--offer", path, "--exponent", 1), "--exponent must be in (1,"),
    ):
        code, out, err = run("respond", *OWN, *options)
        assert (code, out) == (2, ""), said
        assert said in err
        assert err.count("\n") == 1
