"""`fedprice respond --offer`: a client's answer to an offer that it kept."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fedprice.market.canonical import canonical_bytes
from fedprice.market.ledger import Ledger
from fedprice.market.messages import Signed
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.offers import Proposal, make_offers
from fedprice.market.simulation import simulation_key
from fedprice.market.tariffs import Tariff
from tests.conftest import Run
from tests.market.markets import conditions

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
            "--price does not go together with --offer, which has it",
        ),
        (("--offer", path, "--impact", 3), "--impact does not go together with --offer"),
        (("--offer", path, "--level-max", 1), "--level-max does not go together with --offer"),
        (("--price", 3), "give both --price and --impact, or --offer FILE."),
        ((), "give both --price and --impact, or --offer FILE."),
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
