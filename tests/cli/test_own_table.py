"""From a table of one's own to offers: other names, missing columns, letters."""

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given

import fedprice as fp
from fedprice._plumbing.columns import ColumnsError, parse_rename
from fedprice.beliefs.refusals import Outside
from fedprice.commands.assumptions import ALPHA_FREE, Assumptions
from fedprice.commands.cost_letters import cost_of_levels, margin_of, rounded_contracts
from fedprice.commands.games import read_assumed_game
from fedprice.commands.letter_form import file_name, level_in_words
from fedprice.commands.letters import letters, rounded_prices
from fedprice.commands.price import price
from fedprice.commands.sensitivity import MOST_CLIENTS
from fedprice.pricing import Status
from fedprice.pricing.at_cost import reimbursing
from tests.conftest import Run
from tests.games import games
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
        ("price", "--alpha", 1, "--budgets", "1:2:2"),
        ("compare", "--alpha", 1, "--lies", 2),
        ("post", "--alpha", 1, "--beliefs", "exponential", "--cost", 1, "--value", 1),
    ],
)
def test_the_error_ends_with_the_option_to_try(run: Run, command: tuple[object, ...]) -> None:
    code, out, err = run(command[0], "hospitals.csv", *command[1:])
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("fedprice: hospitals.csv: there is no column 'client_id'")
    assert "'samples'" in err
    assert err.endswith(f"the columns are hospital, patients, cost_eur. Try --rename {RENAME}\n")


def test_the_option_that_is_tried_works_for_any_name(run: Run) -> None:
    names = ['Clinic "A"', "n, patients", "cost (€)"]
    header = ",".join('"' + name.replace('"', '""') + '"' for name in names)
    Path("odd.csv").write_text(HOSPITALS.replace(HOSPITALS.splitlines()[0], header), "utf-8")
    err = run("price", "odd.csv")[2]
    option = shlex.split(err.partition("Try ")[2])
    code, out, _ = run("price", "odd.csv", *option, "--format", "csv")
    assert (code, out.splitlines()[1].split(",")[0]) == (0, "Sankt Anna")


def test_a_calibration_is_where_samples_can_come_from(run: Run) -> None:
    Path("costs.csv").write_text("client_id,cost,value\n1,31,40\n", "utf-8")
    err = run("price", "costs.csv")[2]
    assert "no column 'samples'; the columns are client_id, cost, value. --calibration FILE" in err
    assert err.endswith("--calibration FILE supplies samples and norms.\n")


def test_what_was_renamed_is_kept_in_the_hint(run: Run) -> None:
    err = run("price", "hospitals.csv", "--rename", "patients=samples")[2]
    assert err.endswith("Try --rename patients=samples,hospital=client_id,cost_eur=cost\n")


@pytest.mark.parametrize(
    "command",
    [
        ("price",),
        ("simulate", "digits", "--budget", 1, "--clients"),
        ("study", "digits", "--out", "out", "--clients"),
        ("calibrate", "digits", "-o", "c.json", "--clients"),
    ],
)
def test_a_name_in_another_language_may_be_the_clients(
    run: Run, command: tuple[object, ...]
) -> None:
    Path("haus.csv").write_text(
        "Krankenhaus,Betten,Kosten,cost\nAnna,3,4,5\nBonn,3,4,5\n", encoding="utf-8"
    )
    code, out, err = run(*command, "haus.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--rename Krankenhaus=client_id" in err
    assert "eave out" not in err


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
    assert lines[0].strip() == "Assumptions"
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
    assert re.search(r"distance to full participation +\S+%: as if everybody joined \S+%", out)
    assert "· α" not in out
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
    assert "How prices change if an assumption is wrong" in out
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
    assert (code, "--rows applies to the screen only; --format json has all rows" in err) == (
        2,
        True,
    )


def test_currency(run: Run) -> None:
    for good in ("EUR", "€", "US$", "kr"):
        assert f"of 3,000 {good}" in run(*OWN, "--currency", good)[1]
    for bad in ("[red]EUR", "E U R", "EUR\n", "EUROPEAN", "12"):
        code, out, err = run(*OWN, "--currency", bad)
        assert (code, out) == (2, "")
        assert "--currency must be a short name, such as EUR or US$; got" in err
    code, _, err = run(*OWN, "--currency", "EUR", "--format", "csv")
    assert (code, "--currency has no effect on CSV output" in err) == (2, True)
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
                     for end in ("html", "md")]  # fmt: skip
    page = Path("letters/1-Sankt-Anna.html").read_text("utf-8")
    assert "<h1>Offer to Sankt Anna</h1>" in page
    assert "@page { size: A4" in page
    assert "http" not in page  # it loads nothing
    row = json.loads(run(*OWN, "--format", "json")[1])["clients"][0]
    price = int(row["price"])  # rounded down
    text = Path("letters/1-Sankt-Anna.md").read_text("utf-8")
    for part in (
        "# Offer to Sankt Anna",
        f"{price // 10} EUR for a tenth of the rounds, {price:,} EUR for all 1,000 of them",
        "join about 1 round in 7, which is 146 of 1,000 rounds on average",
        f"The payment is then {int(price * price / 8000)} EUR to you",
        "Luck hardly changes the payment: your coins choose 145 or 146 rounds, and each update "
        "that you deliver is paid the same, so that you earn the payment to within one update",
        "Any number of rounds from none to 1,000",
        "assumed to be 0 for every client",
        "what joining costs you rises faster, as your cost for all rounds times q^2",
        "information per sample",
        "| your cost | 4,000 EUR for joining every round |",
    ):
        assert part in text
    assert "noise of training" not in text  # on which nothing depends here
    assert "budget" not in text
    for line in re.findall(r"of 1,000(?: \(expected\))? \| (.*) \|", text):
        paid, cost, rest = (int(cell[:-4].replace(",", "")) for cell in line.split(" | "))
        assert paid - cost == rest  # in whole euros
    (command,) = re.findall("```sh\nfedprice (.*)\n```", text)
    assert f"--price {price} " in command
    answer = json.loads(run(*shlex.split(command), "--format", "json")[1])["response"]
    assert answer["level"] == pytest.approx(row["level"], rel=1e-3)
    assert f"{answer['level'] * 1000:.0f} of 1,000" in text


def test_letters_state_the_budget_only_if_asked_to(run: Run) -> None:
    game = fp.Game(SELLERS, fp.Bound(alpha=1, rounds=100), budget=1234)
    outcome = fp.solve(game)
    for shown in (True, False):
        written = letters(outcome, Assumptions(), budget_shown=shown)
        assert all(("1,234 in total" in text.markdown()) is shown for _, text in written)
    code, out, err = run(*OWN, "--letters-budget")
    assert (code, out, "--letters-budget requires --letters DIR" in err) == (2, "", True)


@given(game=games())
def test_rounded_prices_stay_within_the_budget_and_the_floors(game: fp.Game) -> None:
    outcome = fp.solve(game)
    if outcome.status is Status.INFEASIBLE:
        return
    rounded = rounded_prices(outcome)
    assert rounded.spend <= game.budget + 1e-9 * (abs(game.budget) + abs(outcome.payments).sum())
    assert (rounded.levels >= game.clients.level_min * (1 - 1e-9)).all()
    distance = np.abs(rounded.prices - outcome.prices)
    assert (distance <= np.maximum(0.011 * np.abs(outcome.prices), 1e-9)).all()


@pytest.mark.parametrize("margin", [0.0, 0.1])
@given(game=games())
def test_rounded_contracts_stay_within_the_budget_and_the_floors(
    game: fp.Game, margin: float
) -> None:
    outcome = reimbursing(margin)(game)
    if outcome.status is Status.INFEASIBLE:
        return
    assert margin_of(outcome) == pytest.approx(margin, abs=1e-8)
    rounded = rounded_contracts(outcome, margin)
    assert rounded.spend <= game.budget * (1 + 1e-9)
    assert (rounded.levels >= game.clients.level_min * (1 - 1e-9)).all()
    assert (rounded.levels <= game.clients.level_max).all()
    most = (1 + margin) * cost_of_levels(rounded)
    assert (rounded.payments <= most * (1 + 1e-8)).all()


def test_letters_at_cost_come_with_a_statement_that_adds_up(run: Run, here: Path) -> None:
    at_cost = (*OWN, "--pay", "cost", "--margin", 0.1, "--currency", "EUR")
    code, out, err = run(*at_cost, "--letters", "letters")
    assert (code, err) == (0, "wrote letters\n")
    assert "one level for one payment, to take or leave as a whole" in out
    assert "no other levels, paid in the same way, have" in out
    assert {path.name for path in Path("letters").glob("0*")} == {"0-statement.md",
                                                                 "0-statement.html"}  # fmt: skip
    statement = Path("letters/0-statement.md").read_text("utf-8")
    assert "a margin of 10%, rounded down" in statement
    rows = [
        [cell.replace(",", "") for cell in line.strip("| ").split(" | ")]
        for line in statement.splitlines()
        if line.startswith("| ") and line[2] in "SCEs"
    ]
    sums = [0, 0, 0]
    for name, rounds, share, cost, *amounts in rows[:-1]:
        own, margin, paid = map(int, amounts)
        assert own == int(float(cost) * float(share) ** 2)  # what a reader can check
        assert (abs(margin - own / 10) <= 1, paid) == (True, own + margin)
        assert abs(float(rounds) - 1000 * float(share)) <= 0.5
        sums = [x + y for x, y in zip(sums, (own, margin, paid), strict=True)]
        letter = next(here.glob(f"letters/?-{name.replace(' ', '-')}.md")).read_text("utf-8")
        assert f"and a margin of 10%: {paid:,} EUR for all rounds together" in letter
        assert f"times {share}^2 | {own:,} EUR |" in letter
        assert "take this offer or leave it as a whole" in letter
        assert "fedprice respond" not in letter
    assert [int(cell) for cell in rows[-1][-3:]] == sums
    assert 2990 < sums[-1] <= 3000


def test_pay_at_cost_in_json_and_csv(run: Run) -> None:
    answer = json.loads(run(*OWN, "--pay", "cost", "--margin", 0.1, "--format", "json")[1])
    assert (answer["summary"]["scheme"], answer["summary"]["status"]) == ("at-cost", "optimal")
    assert answer["summary"]["spend"] == pytest.approx(3000)
    for row in answer["clients"]:
        assert row["cost_at_level"] == pytest.approx(row["cost"] * row["level"] ** 2)
        assert row["margin"] == pytest.approx(0.1 * row["cost_at_level"])
        assert row["payment"] == pytest.approx(row["cost_at_level"] + row["margin"])
    plain = run(*OWN, "--pay", "cost", "--format", "csv")[1]
    assert plain == run(*OWN, "--scheme", "at-cost", "--format", "csv")[1]
    limited = run(*OWN, "--pay", "cost", "--max-weight", 1.2, "--format", "csv")[1]
    frame = pl.read_csv(limited.encode())
    assert (frame["samples"] / frame["samples"].sum() <= 1.2 * frame["level"] * (1 + 1e-9)).all()


def test_without_a_margin_nothing_is_paid_above_costs(run: Run) -> None:
    ids = [f"c{n}" for n in range(40)]
    table = fp.population(40, seed=3).to_frame().with_columns(client_id=pl.Series(ids), value=0.0)
    table.write_csv("many.csv")
    out = run("price", "many.csv", "--pay", "cost")[1]
    assert "cost at level" in out
    assert "above it" not in out
    assert "above it" in run("price", "many.csv", "--pay", "cost", "--margin", 0.1)[1]
    rows = json.loads(run("price", "many.csv", "--pay", "cost", "--format", "json")[1])["clients"]
    assert {row[name] for row in rows for name in ("margin", "utility")} == {0}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--margin", 0.1), "--margin is paid on top of costs; add --pay cost"),
        (("--pay", "cost", "--scheme", "uniform"), "--pay cost is a scheme of its own"),
        (("--pay", "cost", "--margin", -0.1), "`margin` must be a finite number, at least 0; got"),
        (("--pay", "cost", "--margin", "nan"), "`margin` must be a finite number"),
        (
            ("--pay", "cost", "--margin", 10),
            "--margin is a share of the cost: write 0.1 for 10 %; got 10.",
        ),
        (("--pay", "cost", "--outside", "free"), "leave out --scheme and --pay"),
        (("--pay", "cost", "--robust"), "cannot be combined with --outside, --scheme or --pay"),
        (
            ("--what-if", "Elbe cost=5", "--letters", "l"),
            "cannot be combined with --letters. For letters with the new cost, put it into the",
        ),
        (("--what-if", "Elba cost=5"), "there is no client 'Elba'. Did you mean 'Elbe'?"),
        (("--what-if", "Elbe value=5"), "with a value above 0, prices depend on the bound's α"),
        (("--study", "."), "has no study of budgets"),
    ],
)
def test_options_that_do_not_go_together(
    run: Run, options: tuple[object, ...], message: str
) -> None:
    code, out, err = run(*OWN, *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_pay_at_cost_warns_of_clients_that_would_rather_join_unpaid(run: Run) -> None:
    fp.population().write("clients.csv")
    command = ("price", "clients.csv", "--alpha", 3.3, "--pay", "cost")
    assert run(*command)[2] == ""
    warned = run(*command, "--budget", 50)[2]
    assert re.fullmatch(
        r"warning: client 7 and 2 more would rather join unpaid, because the model is of value to "
        r"them: 7 at a level of \S+ instead of \S+\. Raise the budget, or .*\n",
        warned,
    )


def test_a_what_if(run: Run) -> None:
    code, out, err = run(*OWN, "--currency", "EUR", "--what-if", "Sankt Anna cost=5000 samples=900")
    assert (code, err) == (0, "")
    shown = out[out.index("What if") :]
    cheaper = run(*OWN, "--what-if", "Elbe cost=1000")[1]
    assert re.search(r"expected loss \d\S*% lower\. Spend", cheaper)
    assert re.search(r"Distance to full participation: \S+% now, \S+% then", shown)
    assert "Sankt Anna, if held to its level of" in shown
    answer = json.loads(
        run(*OWN, "--format", "json", "--what-if", "Sankt Anna cost=5000", "--max-weight", 2)[1]
    )
    Path("hospitals.csv").write_text(HOSPITALS.replace("1200,4000", "1200,5000"), "utf-8")
    then = json.loads(run(*OWN, "--format", "json", "--max-weight", 2)[1])
    for row, other in zip(answer["clients"], then["clients"], strict=True):
        assert row["payment_if"] == pytest.approx(other["payment"], rel=1e-9)
        assert row["level_if"] == pytest.approx(other["level"], rel=1e-9)
    assert answer["what_if"]["distance_if"] == pytest.approx(then["summary"]["distance"])
    (stands,) = answer["stands"]
    assert stands["client_id"] == "Sankt Anna"
    assert stands["lowest_cost"] < 4000 < stands["highest_cost"]


def test_floors_by_weight_follow_the_samples_of_a_what_if(run: Run) -> None:
    floors = ("--max-weight", 1, "--budget", 7800)
    answer = run(*OWN, *floors, "--what-if", "Elbe samples=9000", "--format", "json")[1]
    levels = [row["level_if"] for row in json.loads(answer)["clients"]]
    shares = np.array([1200, 9000, 9000]) / 19200
    assert (np.array(levels) >= shares * (1 - 1e-9)).all()
    assert levels[1] < 9000 / 10800  # the floor with the samples as they are


def test_the_accuracy_that_a_budget_bought_in_a_study(run: Run, here: Path) -> None:
    (here / "out" / "tables").mkdir(parents=True)
    Path("out/tables/table-budgets.csv").write_text(
        "scheme,budget,accuracy,accuracy low,accuracy high\nequilibrium,1000,0.9,0.88,0.92\n"
        "full,,0.95,0.94,0.96\n",
        encoding="utf-8",
    )
    code, out, _ = run(*OWN, "--study", "out")
    said = "Accuracy in the study: 0.900 (0.880 to 0.920) with a budget of 1,000; "
    assert (code, said in out) == (0, True)
    summary = json.loads(run(*OWN, "--study", "out", "--format", "json")[1])["summary"]
    assert summary["study"].startswith(said)


def test_a_letter_to_one_who_pays(run: Run) -> None:
    clients = fp.population(8)
    clients.write("clients.csv")
    assert run("price", "clients.csv", "--alpha", 3.3, "--exponent", 3, "--letters", "l")[0] == 0
    game = fp.Game(clients, fp.Bound(alpha=3.3, rounds=1000), budget=200, cost_exponent=3)
    frame = fp.solve(game).to_frame()
    n = int(frame["price"].arg_min() or 0)
    (path,) = Path("l").glob(f"{n + 1}-*.md")
    text = path.read_text("utf-8")
    assert "and pay in proportion: " in text
    assert "rises faster" not in text
    assert "from you, for all rounds together" in text
    assert "Luck" not in text
    (command,) = re.findall("```sh\nfedprice (.*)\n```", text)
    answer = json.loads(run(*shlex.split(command), "--format", "json")[1])["response"]
    assert answer["level"] == pytest.approx(frame["level"][n], rel=1e-2)


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
        assert re.fullmatch(r"\d\d(-[\w-]+)?\.(html|md)", name)
        assert len(name.encode()) < 80
    (odd,) = Path("l").glob("12-*.md")
    assert odd.read_text("utf-8").splitlines()[0] == "# Offer to \ufffd\\[31m\ufffd\\# h"
    (bold,) = Path("l").glob("13-*.md")
    assert bold.read_text("utf-8").startswith(r"# Offer to \*b\* \<i\> \$1\$ \| \$2\$")
    assert "<h1>Offer to *b* &lt;i&gt; $1$" in next(Path("l").glob("13-*.html")).read_text("utf-8")


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

    monkeypatch.setattr("fedprice.commands.letter_form.Letter.html", fail)
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
