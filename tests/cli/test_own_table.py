"""From a table of one's own to offers: other names, missing columns, letters."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import fedprice as fp
from fedprice.beliefs.refusals import Outside
from fedprice.columns import ColumnsError, parse_rename
from fedprice.commands.assumptions import ALPHA_FREE
from fedprice.commands.games import read_assumed_game
from fedprice.commands.letters import file_name, level_in_words
from fedprice.commands.price import price
from fedprice.commands.sensitivity import MOST_CLIENTS
from tests.conftest import Run
from tests.spreadsheets import xlsx

HOSPITALS = "hospital,patients,cost_eur\nSankt Anna,1200,4000\nCharité,9000,5500\nElbe,600,2000\n"
RENAME = "hospital=client_id,patients=samples,cost_eur=cost"
OWN = ("price", "hospitals.csv", "--rename", RENAME, "--budget", 3000)
SELLERS = fp.Clients(
    samples=[1200, 9000, 600, 50], grad_norm=[1, 2, 0.5, 3], cost=[4000, 5500, 2000, 100], value=0,
    level_max=[1, 0.4, 1, 1], level_min=[0, 0, 0.2, 0],
)  # fmt: skip


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("hospitals.csv").write_text(HOSPITALS, encoding="utf-8")
    return tmp_path


# Names of columns


@pytest.mark.parametrize(
    "command",
    [
        ("price",),
        ("compare", "--alpha", 1),
        ("frontier", "--alpha", 1, "--budgets", "1:2:2"),
        ("lies", "--alpha", 1),
        ("post", "--alpha", 1, "--beliefs", "exponential", "--cost", 1, "--value", 1),
    ],
)
def test_the_error_ends_with_the_option_to_try(run: Run, command: tuple[object, ...]) -> None:
    code, out, err = run(command[0], "hospitals.csv", *command[1:])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("fedprice: hospitals.csv: there is no column 'client_id', 'samples'")
    assert err.endswith(f"the columns are hospital, patients, cost_eur. Try --rename {RENAME}\n")


def test_the_option_that_is_tried_works_for_any_name(run: Run) -> None:
    names = ['Clinic "A"', "n, patients", "cost (€)"]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    Path("odd.csv").write_text(HOSPITALS.replace(HOSPITALS.splitlines()[0], header), "utf-8")
    err = run("price", "odd.csv")[2]
    option = shlex.split(err.partition("Try ")[2])
    code, out, _ = run("price", "odd.csv", *option, "--format", "csv")
    assert (code, out.splitlines()[1].split(",")[0]) == (0, "Sankt Anna")


def test_what_was_renamed_is_kept_in_the_hint(run: Run) -> None:
    err = run("price", "hospitals.csv", "--rename", "patients=samples")[2]
    assert err.endswith("Try --rename patients=samples,hospital=client_id,cost_eur=cost\n")


def test_columns_that_nobody_needs_are_named(run: Run) -> None:
    Path("more.csv").write_text(
        HOSPITALS.replace("\n", ",x\n").replace("eur,x", "eur,city"), "utf-8"
    )
    err = run("price", "more.csv")[2]
    assert f"Leave out 'city'. Try --rename {RENAME}\n" in err


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ("x", "--rename must be OLD=NEW,OLD=NEW, such as"),
        ("", "--rename must be OLD=NEW,OLD=NEW, such as"),
        ("a\nb=cost", "--rename must be OLD=NEW,OLD=NEW, such as"),
        ("=cost", "--rename must be OLD=NEW,OLD=NEW, such as"),
        ("hospital=", "--rename must be OLD=NEW,OLD=NEW, such as"),
        ("hospital=cost,hospital=value", "--rename has 'hospital' twice"),
        ("clinic=client_id", "there is no column 'clinic' to rename to 'client_id'. Choose from"),
        ("hospital=clientid", "cannot rename 'hospital' to 'clientid'. Did you mean 'client_id'?"),
        ("hospital=cost,patients=cost", "'hospital' and 'patients' cannot both be 'cost'"),
    ],
)
def test_renaming_that_cannot_be(run: Run, rename: str, message: str) -> None:
    code, out, err = run("price", "hospitals.csv", "--rename", rename)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_names_can_be_exchanged() -> None:
    frame = pl.DataFrame({"cost": ["a"], "client_id": [4], "samples": [1]})
    names = parse_rename("cost=client_id,client_id=cost")
    clients = fp.Clients.from_frame(frame, rename=names, assume={"value": 0, "grad_norm": 1})
    assert (clients.ids.tolist(), clients.cost.tolist()) == (["a"], [4.0])


def test_in_python() -> None:
    with pytest.raises(ColumnsError, match="Rename 'hospital' to 'client_id', 'patients' to 'samp"):
        fp.Clients.read("hospitals.csv")
    names, taken = parse_rename(RENAME), {"value": 0, "grad_norm": 1}
    clients = fp.Clients.read("hospitals.csv", rename=names, assume=taken)
    assert clients.samples is not None
    assert clients.samples.tolist() == [1200, 9000, 600]
    assert (clients.value.tolist(), clients.norm.tolist()) == ([0] * 3, [1] * 3)
    updates = fp.Clients.read("hospitals.csv", rename=names, assume={"value": 0, "update_norm": 2})
    assert (updates.norms, updates.norm.tolist()) == ("updates", [2] * 3)
    with pytest.raises(fp.InputError, match="cannot assume a column 'valu'"):
        fp.Clients.read("hospitals.csv", rename=names, assume=taken | {"valu": 0})


# What was assumed


def test_the_assumptions_head_the_screen(run: Run) -> None:
    code, out, err = run(*OWN, "--currency", "EUR")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].strip() == "What these prices rest on"
    head = out[: out.index("equilibrium, 3 clients")]
    for text in (
        "3,000 EUR in total, for all rounds together ",
        "1,000 (default of --rounds)",
        "not needed: without values, no price depends on it",
        "cost · q^2 (default of --exponent)",
        "assumed to be 0 for every client",
        "assumed to be 1 for every client",
    ):
        assert text in head
    assert re.search(r"expected loss +\S+ · α above full", out)
    assert "sign threshold" not in out
    assert "price (EUR)" in out


def test_the_assumptions_are_fields_of_json(run: Run) -> None:
    answer = json.loads(run(*OWN, "--format", "json", "--currency", "EUR")[1])
    summary = answer["summary"]
    assert summary["assumed"] == {"grad_norm": 1.0, "value": 0.0}
    assert (summary["alpha"], summary["rounds"], summary["cost_exponent"]) == (None, 1000, 2)
    assert (summary["budget"], summary["currency"]) == (3000, "EUR")
    for name in ("expected_loss", "multiplier", "sign_threshold", "primal", "dual"):
        assert summary[name] is None
    known = json.loads(run(*OWN, "--format", "json", "--alpha", 4)[1])["summary"]
    assert known["alpha"] == 4
    for name in ("expected_loss", "multiplier"):
        assert known[name] == pytest.approx(4 * summary[f"{name}_per_alpha"])


def test_a_table_of_csv_says_what_was_assumed_on_stderr(run: Run) -> None:
    code, out, err = run(*OWN, "--format", "csv")
    assert (code, len(pl.read_csv(out.encode()))) == (0, 3)
    assert "value: assumed to be 0 for every client" in err


def test_alpha_and_rounds_do_not_move_prices_of_sellers(run: Run) -> None:
    def prices(*more: object) -> list[float]:
        frame = pl.read_csv(run(*OWN, "--format", "csv", *more)[1].encode())
        return frame["price"].to_list()

    plain = prices()
    for more in (("--alpha", 1e-3), ("--alpha", 70, "--rounds", 5), ("--rounds", 100_000)):
        assert prices(*more) == pytest.approx(plain, rel=1e-9)


@pytest.mark.parametrize("scheme", ALPHA_FREE)
def test_schemes_that_need_no_alpha_do_not_depend_on_it(scheme: str) -> None:
    """With floors and caps, too."""
    found = [
        fp.solve(fp.Game(SELLERS, fp.Bound(alpha=alpha, rounds=rounds), budget=1000), scheme)
        for alpha, rounds in ((1.0, 1), (1e-4, 10), (50.0, 1000))
    ]
    for one in found[1:]:
        assert one.prices == pytest.approx(found[0].prices, rel=1e-9)
        assert one.levels == pytest.approx(found[0].levels, rel=1e-9)
        assert one.utilities == pytest.approx(found[0].utilities, rel=1e-9)


@pytest.mark.parametrize("outside", list(Outside))
def test_nor_do_prices_that_nobody_refuses(outside: Outside) -> None:
    losses = None if outside is Outside.FREE else np.full(4, 0.3)
    found = [
        price(
            fp.Game(SELLERS, fp.Bound(alpha=alpha, rounds=10), budget=1000), outside=outside,
            losses=losses,
        ).outcome
        for alpha in (1.0, 70.0)
    ]  # fmt: skip
    assert found[1].prices == pytest.approx(found[0].prices, rel=1e-9)


def test_equal_values_above_0_fix_payments_but_not_prices() -> None:
    """So that α is asked for: prices move although payments do not."""
    clients = replace(
        SELLERS, value=np.full(4, 10_000.0), level_min=np.zeros(4), level_max=np.ones(4)
    )
    found = [
        fp.solve(fp.Game(clients, fp.Bound(alpha=alpha, rounds=1000), budget=1000))
        for alpha in (1.0, 9.0)
    ]
    assert found[1].payments == pytest.approx(found[0].payments, rel=1e-9)
    assert np.abs(found[1].prices / found[0].prices - 1).max() > 0.01


@pytest.mark.parametrize("more", [("value", 9), ("grad_norm", 1)])
def test_alpha_is_asked_for_where_it_matters(run: Run, more: tuple[str, float]) -> None:
    name, number = more
    frame = pl.read_csv(HOSPITALS.encode()).with_columns(pl.lit(number).alias(name))
    frame.write_csv("hospitals.csv")
    code, _, err = run(*OWN)
    if name == "value":
        assert (code, "prices need the bound's α: give --alpha" in err) == (2, True)
        assert run(*OWN, "--alpha", 3)[0] == 0
    else:
        assert code == 0  # values are still assumed to be 0
    assert run(*OWN, "--scheme", "contracts")[0] == 2


def test_norms_may_be_missing_where_values_are_there(run: Run) -> None:
    frame = pl.read_csv(HOSPITALS.encode()).with_columns(value=pl.Series([0.0, 9e6, 4e7]))
    frame.write_csv("hospitals.csv")
    summary = json.loads(run(*OWN, "--alpha", 3, "--format", "json")[1])["summary"]
    assert summary["assumed"] == {"grad_norm": 1.0}
    assert summary["sign_threshold"] > 0


# How far prices move


def test_bands_hold_for_all_norms_within_a_factor_of_two() -> None:
    game = fp.Game(
        replace(SELLERS, grad_norm=np.ones(4)), fp.Bound(alpha=1, rounds=1000), budget=1000
    )
    Path("sellers.csv").write_text(
        game.clients.to_frame().drop("grad_norm", "value").write_csv(), encoding="utf-8"
    )
    read, taken = read_assumed_game(
        Path("sellers.csv"), budget=1000, alpha=None, calibration=None, rounds=1000, exponent=2,
        max_weight=None, rename={}, scheme="equilibrium",
    )  # fmt: skip
    answer = price(read, assumptions=taken)
    assert answer.bands is not None
    low, high = (answer.bands.prices[f"price_norm_{end}"] for end in ("half", "double"))
    rng = np.random.default_rng(1)
    for _ in range(200):
        norms = 2.0 ** rng.uniform(0, 1, 4) if rng.random() < 0.5 else rng.choice([1.0, 2.0], 4)
        other = fp.Game(replace(SELLERS, grad_norm=norms), game.bound, budget=1000)
        prices = fp.solve(other).prices
        assert (prices >= low * (1 - 1e-9)).all()
        assert (prices <= high * (1 + 1e-9)).all()
    frame = answer.to_frame()
    assert frame["price_norm_half"].to_list() == low.tolist()
    assert (frame["price_if_valued"] <= frame["price"] * (1 + 1e-12)).all()
    assert answer.bands.loss_ratio is not None
    assert 1 <= answer.bands.loss_ratio < 2
    assert answer.bands.spend_if_valued is not None
    assert answer.bands.spend_if_valued > 1000


def test_the_screen_shows_bands(run: Run) -> None:
    out = run(*OWN)[1]
    assert "Prices over what was assumed" in out
    for text in ("norm halved", "norm doubled", "if it values the model", "the spend would be up"):
        assert text in out


def test_no_bands_for_many_clients(run: Run) -> None:
    count = MOST_CLIENTS + 1
    rows = "".join(f"c{n},{n + 1},5\n" for n in range(count))
    Path("many.csv").write_text(f"client_id,samples,cost\n{rows}", encoding="utf-8")
    out = run("price", "many.csv")[1]
    assert f"is computed for up to {MOST_CLIENTS:,} clients" in out


# Rows, currency, spreadsheets


def test_rows(run: Run) -> None:
    fp.population().write("clients.csv")
    command = ("price", "clients.csv", "--alpha", 3.3)
    out = run(*command, "--rows", "all")[1]
    listed = re.findall(r"^  (\d+) ", out.partition("All clients")[2], flags=re.MULTILINE)
    assert listed == [str(n) for n in range(1, 41)]
    out = run(*command, "--rows", 2)[1]
    payees = out.partition("Largest payees")[2].partition("Largest payers")[0]
    assert len(re.findall(r"^  \d+ ", payees, flags=re.MULTILINE)) == 2
    for bad, message in (("0", "got '0'"), ("some", "got 'some'"), ("-1", "got '-1'")):
        code, _, err = run(*command, f"--rows={bad}")
        assert (code, f"above 0, or all; {message}" in err) == (2, True)
    code, _, err = run(*command, "--rows", "all", "--format", "json")
    assert (code, "--rows is for the screen; --format json has all rows" in err) == (2, True)


def test_currency(run: Run) -> None:
    for good in ("EUR", "€", "US$", "kr"):
        assert f"of 3,000 {good}" in run(*OWN, "--currency", good)[1]
    for bad in ("[red]EUR", "E U R", "EUR\n", "EUROPEAN", "12"):
        code, out, err = run(*OWN, "--currency", bad)
        assert (code, out) == (2, "")
        assert "--currency must be a short name, such as EUR or US$; got" in err
    code, _, err = run(*OWN, "--currency", "EUR", "--format", "csv")
    assert (code, "--currency labels nothing in a table of CSV" in err) == (2, True)
    assert run(*OWN, "--currency", "US$", "--format", "csv", "--plot", "p.svg")[0] == 0
    assert "price (US$)" in Path("p.svg").read_text("utf-8")


def test_a_spreadsheet_of_three_columns(run: Run) -> None:
    rows = [line.split(",") for line in HOSPITALS.splitlines()]
    Path("hospitals.xlsx").write_bytes(xlsx(Hospitals=rows))
    semicolons = HOSPITALS.replace(",", ";").replace("4000", "4000,00")
    Path("semicolons.csv").write_bytes(semicolons.encode("utf-16"))
    answers = [
        run("price", name, *OWN[2:])[1]
        for name in ("hospitals.csv", "hospitals.xlsx", "semicolons.csv")
    ]
    assert answers[0] == answers[1] == answers[2]


# Letters


def test_letters(run: Run, here: Path) -> None:
    code, _, err = run(*OWN, "--currency", "EUR", "--letters", "letters")
    assert (code, err) == (0, "wrote letters\n")
    names = sorted(path.name for path in Path("letters").iterdir())
    assert names == [f"{n}.{end}" for n in ("1-Sankt-Anna", "2-Charité", "3-Elbe")
                     for end in ("md", "pdf")]  # fmt: skip
    assert all(path.read_bytes().startswith(b"%PDF-") for path in here.glob("letters/*.pdf"))
    row = json.loads(run(*OWN, "--format", "json")[1])["clients"][0]
    text = Path("letters/1-Sankt-Anna.md").read_text("utf-8")
    for part in (
        "# Offer to Sankt Anna",
        f"{row['price'] / 10:,.2f} EUR for a tenth of the rounds, {row['price']:,.2f} EUR for all "
        "1,000 of them",
        "join about 1 round in 7: a level of 0.1458, or 146 of 1,000 rounds on average",
        f"The payment is then {row['payment']:,.2f} EUR to you",
        "Luck does not change the payment",
        "Any level from 0 (never) to 1",
        "assumed to be 0 for every client",
        "what joining costs you rises faster, as your cost for all rounds times q^2",
        "what a sample teaches",
    ):
        assert part in text
    assert "noise of training" not in text  # on which nothing depends here
    for line in re.findall(r"of 1,000 \| (.*) \|", text):
        paid, cost, rest = (
            round(100 * float(cell[:-4].replace(",", ""))) for cell in line.split(" | ")
        )
        assert paid - cost == rest  # to the cent
    (command,) = re.findall("```sh\nfedprice (.*)\n```", text)
    answer = json.loads(run(*shlex.split(command), "--format", "json")[1])["response"]
    assert answer["level"] == pytest.approx(row["level"], rel=1e-6)
    assert answer["payment"] == pytest.approx(row["payment"], rel=1e-6)


def test_a_letter_to_one_who_pays(run: Run) -> None:
    clients = fp.population(8)
    clients.write("clients.csv")
    assert run("price", "clients.csv", "--alpha", 3.3, "--exponent", 3, "--letters", "l")[0] == 0
    game = fp.Game(clients, fp.Bound(alpha=3.3, rounds=1000), budget=200, cost_exponent=3)
    frame = fp.solve(game).to_frame()
    n = int(frame["price"].arg_min() or 0)
    (path,) = Path("l").glob(f"{n + 1}-*.md")
    text = path.read_text("utf-8")
    assert f"and pay in proportion: {-frame['price'][n] / 10:,.2f} for a tenth" in text
    assert "rises faster" not in text
    assert "from you, for all rounds together" in text
    assert "Luck" not in text
    (command,) = re.findall("```sh\nfedprice (.*)\n```", text)
    answer = json.loads(run(*shlex.split(command), "--format", "json")[1])["response"]
    assert answer["level"] == pytest.approx(frame["level"][n], rel=1e-6)


def test_a_letter_to_one_without_data(run: Run) -> None:
    Path("hospitals.csv").write_text(HOSPITALS + "Empty,0,70\n", encoding="utf-8")
    assert run(*OWN, "--letters", "l")[0] == 0
    text = Path("l/4-Empty.md").read_text("utf-8")
    assert "no payment, because the model does not depend on your data" in text
    assert "We expect you to stay away." in text


def test_names_of_letters_cannot_escape_or_collide(run: Run, here: Path) -> None:
    ids = ["../../x", "..", "a/b", "a:b", "日本", "x" * 5000, "CON", "A", "a", "\u00e9", "e\u0301",
           "\x1b[31m\n# h", "*b* <i> $1$ | $2$", "="]  # fmt: skip
    clients = fp.Clients(samples=[1] * len(ids), grad_norm=1, cost=40, value=0, ids=ids)
    clients.write("clients.parquet")
    before = set(here.iterdir())
    code, _, err = run("price", "clients.parquet", "--letters", "out/../l")
    assert (code, "there is no directory" in err) == (2, True)
    assert run("price", "clients.parquet", "--letters", "l")[0] == 0
    assert set(here.iterdir()) - before == {here / "l"}
    names = [path.name for path in Path("l").iterdir()]
    assert len({name.lower() for name in names}) == 2 * len(ids)
    for name in names:
        assert re.fullmatch(r"\d\d(-[\w-]+)?\.(md|pdf)", name)
        assert len(name.encode()) < 80
    (odd,) = Path("l").glob("12-*.md")
    assert odd.read_text("utf-8").splitlines()[0] == "# Offer to \ufffd\\[31m\ufffd\\# h"
    (bold,) = Path("l").glob("13-*.md")
    assert bold.read_text("utf-8").startswith(r"# Offer to \*b\* \<i\> \$1\$ \| \$2\$")


def test_letters_appear_whole_or_not_at_all(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("empty").mkdir()
    Path("full").mkdir()
    Path("full/x").touch()
    for folder, message in (
        ("full", "full is not empty; name a directory that is, or a new one"),
        ("hospitals.csv", "it is a file, not a directory"),
        ("none/l", "there is no directory none"),
    ):
        code, out, err = run(*OWN, "--letters", folder, "--force")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    assert run(*OWN, "--letters", "empty")[0] == 0
    before = sorted(here.iterdir())

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedprice.commands.letter_pages.write_pdf", fail)
    code, out, err = run(*OWN, "--letters", "later", "-o", "prices.csv")
    assert (code, out) == (2, "")
    assert "later: No space left on device" in err
    assert sorted(here.iterdir()) == before


def test_no_letters_where_levels_are_not_chosen(run: Run) -> None:
    fp.population().write("clients.csv")
    for scheme in ("subset", "proportional-share", "uniform-published"):
        command = ("price", "clients.csv", "--alpha", 3.3, "--scheme", scheme)
        code, out, err = run(*command, "--letters", "l")
        assert (code, out, err.count("\n")) == (2, "", 1), scheme
        assert "--letters" in err
        assert not Path("l").exists()


@pytest.mark.parametrize(
    ("level", "words"),
    [
        (0.0, "stay away"),
        (1e-4, "join about 1 round in 10,000"),
        (0.25, "join about 1 round in 4"),
        (0.31, "join about 3 rounds in 10"),
        (0.94, "join about 9 rounds in 10"),
        (0.97, "join about 97 rounds in 100"),
        (0.998, "join about 998 rounds in 1000"),
        (1.0, "join every round"),
    ],
)
def test_levels_in_words(level: float, words: str) -> None:
    assert level_in_words(level) == words


def test_file_names_sort_as_the_table() -> None:
    names = [file_name(n, 120, "x") for n in range(120)]
    assert names == sorted(names)
