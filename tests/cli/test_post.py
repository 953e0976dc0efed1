"""`fedprice post` and `fedprice price --robust`, run in process."""

import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import fedprice as fp
from fedprice.tariff import Tariffs
from tests.conftest import Run

ALPHA = ("--alpha", "3.3")
BOUND = fp.Bound(alpha=3.3, rounds=1000)
PRIOR = ("--beliefs", "exponential", "--cost", 50, "--value", 4000)
TEN = fp.population(10)


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    """A table without costs and values."""
    path = tmp_path / "clients.csv"
    TEN.to_frame().drop("cost", "value").write_csv(path)
    return path


def table(path: Path, text: str) -> Path:
    path.write_text(text.replace(" ", "") + "\n")
    return path


@pytest.fixture
def beliefs(tmp_path: Path) -> Path:
    """Two types that all clients share."""
    return table(tmp_path / "beliefs.csv", "cost,value,probability\n20,0,0.75\n80,4000,0.25")


def test_post_shows_what_is_expected(run: Run, clients: Path) -> None:
    code, out, err = run("post", clients, *PRIOR, *ALPHA, "--budget", 50, "--information")
    assert (code, err) == (0, "")
    posted = fp.post(TEN, fp.Beliefs.exponential(cost=50, value=4000), bound=BOUND, budget=50)
    for text in (
        "posted prices, 10 clients",
        "one price per unit of level",
        f"50 ± {posted.spend_std:.4g} (standard deviation) of 50",
        f"with a probability of {posted.over_budget:.1%}",
        "Largest payees, in expectation",
        "Certificate: no lottery over prices",
        "times that of prices that know every cost and value",
    ):
        assert text in out, text
    assert "floors" not in out
    out = run("post", clients, *PRIOR, *ALPHA, "--budget", 50, "--max-weight", 1)[1]
    assert "posted tariffs cannot promise them" in " ".join(out.split())


def test_post_json_and_files(run: Run, clients: Path, beliefs: Path, tmp_path: Path) -> None:
    prices, plot = tmp_path / "prices.csv", tmp_path / "posted.png"
    files = ("-o", prices, "--plot", plot)
    command = ("post", clients, "--beliefs", beliefs, *ALPHA, "--budget", 20, "--exponent", 1.5)
    code, out, err = run(*command, "--format", "json", *files)
    assert (code, err) == (0, f"wrote {prices}\nwrote {plot}\n")
    answer = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    posted = fp.post(TEN, fp.Beliefs.read(beliefs), bound=BOUND, budget=20, cost_exponent=1.5)
    assert answer["summary"] == posted.summary() | {"alpha": 3.3}
    assert [row["price"] for row in answer["clients"]] == posted.prices.tolist()
    assert pl.read_csv(prices)["expected_level"].to_list() == posted.moments.level.tolist()
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_post_with_risk_and_classes(run: Run, clients: Path, beliefs: Path) -> None:
    command = ("post", clients, "--beliefs", beliefs, *ALPHA, "--budget", 20)
    summary = json.loads(run(*command, "--risk", 0.05, "--format", "json")[1])["summary"]
    assert 0.045 < summary["over_budget"] <= 0.05
    rows = json.loads(run(*command, "--classes", 2, "--format", "json")[1])["clients"]
    assert len({row["price"] for row in rows}) == 2
    assert {row["price_class"] for row in rows} == {1, 2}


def test_post_in_turn_never_exceeds_the_budget(
    run: Run, clients: Path, beliefs: Path, tmp_path: Path
) -> None:
    command = ("post", clients, "--beliefs", beliefs, *ALPHA, "--budget", 20, "--sequential")
    code, out, err = run(*command, "-o", tmp_path / "turns.json")
    assert (code, err) == (0, f"wrote {tmp_path / 'turns.json'}\n")
    assert "over the budget   never" in out
    answer = json.loads((tmp_path / "turns.json").read_text())
    assert answer["summary"]["over_budget"] == 0
    assert answer["summary"]["expected_spend"] <= 20
    impact = BOUND.impact(TEN)
    first = next(row for row in answer["clients"] if row["turn"] == 1)
    assert first["client_id"] == TEN.ids[impact.argmax()]


def test_post_to_classes_of_clients(run: Run, tmp_path: Path) -> None:
    path = table(
        tmp_path / "clients.csv",
        "client_id,class,samples,grad_norm\nann,phone,20,1\nbob,server,90,1\neve,phone,40,2",
    )
    beliefs = table(
        tmp_path / "beliefs.csv",
        "class,cost,value,probability\nphone,20,0,0.5\nphone,40,0,0.5\nserver,5,900,1",
    )
    command = ("post", path, "--beliefs", beliefs, *ALPHA, "--budget", 20)
    code, out, err = run(*command, "--format", "csv")
    assert (code, err) == (0, "")
    assert out.startswith("client_id,samples,class,")
    beliefs.write_text(beliefs.read_text().replace("server", "sever"))
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert "the beliefs do not cover class 'server': add its types. Did you mean 'sever'?" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--beliefs=exponential --alpha=3.3", "give --cost and --value"),
        ("--beliefs=exponential --cost=50 --alpha=3.3", "give --cost and --value"),
        ("--beliefs={beliefs} --cost=50 --alpha=3.3", "--cost and --value require --beliefs exp"),
        ("--beliefs=others --alpha=3.3", "there is no column 'cost'"),
        ("--beliefs=others --alpha=3.3 --risk=0.1", "others cannot be combined with --risk"),
        ("--beliefs=others --alpha=3.3 --form=menu", "cannot be combined with --form menu"),
        ("--beliefs=others --alpha=3.3 --information", "cannot be combined with --information"),
        ("--beliefs={beliefs}", "prices need the bound's α"),
        ("--beliefs={beliefs} --alpha=3.3 --blocks=4", "--blocks requires --form blocks; got"),
        ("--beliefs={beliefs} --alpha=3.3 --form=blocks --classes=4", "--classes requires --form"),
        ("--beliefs={beliefs} --alpha=3.3 --form=menu --sequential", "--sequential requires"),
        ("--beliefs={beliefs} --alpha=3.3 --form=menu", "needs a column 'value'. Add it, or post"),
        (
            "--beliefs=exponential --alpha=3.3 --form=menu --cost=50 --value=1",
            "takes values from CLIENTS: leave out --value",
        ),
        (
            "--beliefs={beliefs} --alpha=3.3 --risk=.1 --sequential",
            "--sequential cannot be combined with --risk",
        ),
        ("--beliefs={beliefs} --alpha=3.3 --risk=0.7", "`risk` must be above 0 and below 0.5"),
        (
            "--beliefs={beliefs} --alpha=3.3 --classes=99",
            "`classes` must be a whole number from 1 to 10, the",
        ),
        ("--beliefs={beliefs} --alpha=3.3 --robust", "--robust needs --calibration FILE"),
        ("--beliefs=missing.csv --alpha=3.3", "missing.csv"),
        ("--beliefs={beliefs} --alpha=3.3 --form=price --budget=nan", "'nan' is not a number"),
    ],
)
def test_post_refuses_options_that_make_no_sense(
    run: Run, clients: Path, beliefs: Path, arguments: str, message: str
) -> None:
    code, out, err = run("post", clients, *arguments.format(beliefs=beliefs).split())
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "cost,value,probability\n20,0,0.7\n80,0,0.7",
            "probabilities of the beliefs must sum to 1; got",
        ),
        ("cost,value,probability\n20,0,much", "probability"),
        (
            "cost,value,probability\n20,0,-1\n20,0,2",
            "`probability` of the beliefs must be a finite",
        ),
        ("cost,value,probability\n0,0,1", "`cost` of the beliefs must be a finite number above 0"),
        ("cost,value,probability\n1,nan,1", "`value`"),
        ("cost,value,probability", "the table has no rows"),
        ("", "beliefs.csv"),
        ("cost,value", "there is no column 'probability'"),
        ("cost,value,probabilty\n1,0,1", "unknown column 'probabilty'. Did you mean"),
        ("client_id,cost,value,probability\n1,20,0,1", "do not cover client '2': add its types"),
        (
            "class,cost,value,probability\na,20,0,1",
            "the clients have no classes: add a column 'class'",
        ),
        (
            "client_id,class,cost,value,probability\n1,a,20,0,1",
            "exactly one of the columns 'client_id' and",
        ),
    ],
)
def test_post_refuses_bad_beliefs(
    run: Run, clients: Path, tmp_path: Path, text: str, message: str
) -> None:
    path = table(tmp_path / "beliefs.csv", text)
    code, out, err = run("post", clients, "--beliefs", path, *ALPHA)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("budget", [0, -5])
def test_a_budget_that_no_price_meets(
    run: Run, clients: Path, beliefs: Path, budget: float
) -> None:
    """Types with value 0 join only if they are paid."""
    command = ("post", clients, "--beliefs", beliefs, *ALPHA, f"--budget={budget}")
    code, out, err = run(*command)
    assert (code, out) == (3, "")
    assert "types with value 0 join only if they are paid. Raise the budget above 0." in err
    assert err.count("\n") == 1
    for form in ("blocks", "tariff"):
        code, out, err = run(*command, "--form", form)
        assert (code, out) == (3, "")
        assert "`budget` must be above 0 for tariffs" in err


def test_post_forms(run: Run, clients: Path, beliefs: Path, tmp_path: Path) -> None:
    plot, priced = tmp_path / "plot.png", tmp_path / "priced.csv"
    fp.population(4).to_frame().drop("cost").write_csv(priced)
    pl.read_csv(priced).drop("value").write_csv(clients)
    command = ("--beliefs", beliefs, *ALPHA, "--budget", 20, "--plot", plot, "--force")
    for path, form, name in (
        (clients, ("blocks", "--blocks", 2), "a price for each of 2 blocks"),
        (clients, ("tariff",), "a nonlinear tariff of 144 levels"),
        (priced, ("menu",), "levels with payments"),
    ):
        code, out, err = run("post", path, *command, "--form", *form)
        assert (code, err) == (0, f"wrote {plot}\n")
        assert name in out
        assert "No certificate" in out
        assert plot.read_bytes().startswith(b"\x89PNG")
        plot.unlink()


@pytest.mark.slow
def test_post_compares_all_forms_in_a_figure(run: Run, tmp_path: Path) -> None:
    path, plot = tmp_path / "clients.csv", tmp_path / "plot.svg"
    fp.population(3).write(path)
    beliefs = table(tmp_path / "beliefs.csv", "cost,value,probability\n20,40,0.5\n80,90,0.5")
    command = ("post", path, "--beliefs", beliefs, *ALPHA, "--budget", 20, "--information")
    code, _, err = run(*command, "--sequential", "--plot", plot)
    assert (code, err) == (0, f"wrote {plot}\n")
    text = plot.read_text()
    for name in (
        "one price for all",
        "4 blocks",
        "nonlinear tariff",
        "price per client, sequential",
    ):
        assert f"<!-- {name} -->" in text


def test_post_from_others_ignores_what_a_client_reports(run: Run, tmp_path: Path) -> None:
    honest, lying = tmp_path / "honest.csv", tmp_path / "lying.csv"
    TEN.write(honest)
    rows = TEN.to_frame()
    rows[2, "cost"] = 3 * rows[2, "cost"]
    rows.write_csv(lying)
    prices = [
        json.loads(run("post", path, "--beliefs", "others", *ALPHA, "--format", "json")[1])
        for path in (honest, lying)
    ]
    first, second = ([row["price"] for row in one["clients"]] for one in prices)
    assert first[2] == second[2]
    assert first != second


def test_posted_in_a_notebook() -> None:
    posted = fp.post(TEN, fp.Beliefs.known(TEN), bound=BOUND, budget=20)
    page = posted._repr_html_()
    assert page.startswith("<div><b>posted prices, 10 clients</b>")
    assert "Certificate: no lottery over prices" in page


def test_posting_in_turn_states_floors(run: Run, clients: Path, beliefs: Path) -> None:
    command = ("post", clients, "--beliefs", beliefs, *ALPHA, "--sequential", "--budget=1")
    assert "floors" not in run(*command)[1]
    shown = run(*command, "--max-weight=0.5")[1]
    assert "all at once, m" in shown  # missed with a probability, or met


def test_a_client_without_a_class_is_named(run: Run, tmp_path: Path) -> None:
    clients = table(tmp_path / "c.csv", "client_id,samples,grad_norm,class\na,1,2,x\nb,2,2,\n")
    code, _, err = run("post", clients, "--beliefs=exponential", "--cost=5", "--value=0", *ALPHA)
    assert code == 2
    assert "every client needs a class, or none has one; row 2 has none." in err


def test_a_belief_class_that_no_client_has_is_ignored_silently(run: Run, tmp_path: Path) -> None:
    clients = table(tmp_path / "c.csv", "client_id,samples,grad_norm,class\na,1,2,x\nb,2,2,x\n")
    types = "class,cost,value,probability\nx,5,0,1\ny,5,0,1\nz,5,0,1\n"
    beliefs = table(tmp_path / "b.csv", types)
    out = run("post", clients, "--beliefs", beliefs, *ALPHA)[1]
    assert "beliefs about classes 'y', 'z', which no client has" in out
    used = table(tmp_path / "used.csv", "class,cost,value,probability\nx,5,0,1\n")
    assert "not used" not in run("post", clients, "--beliefs", used, *ALPHA)[1]


def test_others_may_expect_more_than_the_budget_unexplained(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    fp.population(4).write(path)
    out = run("post", path, "--beliefs", "others", *ALPHA, "--budget", 20)[1]
    assert "met up to the effect of one client" in out


def test_one_price_is_not_called_1_blocks() -> None:
    two = fp.population(2)
    known = fp.Beliefs(cost=20, value=0)
    posted = fp.post(two, known, bound=BOUND, budget=5, form="blocks")
    flat = replace(posted, tariffs=Tariffs.flat([1.0, 1.0], 1.0))
    page = flat._repr_html_()
    assert "1 blocks" not in page
    assert "one price per unit of level: no block tariffs were found that do better" in page


def test_the_first_level_listed_of_a_tariff_is_a_millionth() -> None:
    """It stated 1.15e-06 for 0.0002942; the first of the levels that are chosen says more."""
    costs = fp.Beliefs.exponential(cost=50, value=0, cells=8)
    for form in ("tariff", "menu"):
        page = fp.post(TEN, costs, bound=BOUND, budget=20, form=form)._repr_html_()
        assert "… " in page
        assert "e-0" not in page.partition("levels and payments")[2].partition("</table>")[0]


def test_what_more_budget_buys_is_said_in_the_distance(run: Run, tmp_path: Path) -> None:
    """As `fedprice price` says it: a per cent of a loss means nothing to who decides."""
    fp.population(5).write(tmp_path / "five.csv")
    asked = ("post", tmp_path / "five.csv", "--alpha", 3.3, "--beliefs", "exponential")
    guess = ("--cost", 40, "--value", 0)
    code, out, _ = run(*asked, *guess, "--budget", 20)
    assert code == 0
    closer = float(re.search(r"1% of the budget more \(0\.2\): ([0-9.]+) percentage", out)[1])  # type: ignore[index]
    distances = []
    for budget in ("20", "20.2"):
        code, out, _ = run(*asked, *guess, "--budget", budget, "--format", "json")
        loss = json.loads(out)["summary"]["expected_loss"]
        whole = loss + fp.Bound(3.3, 1000).impact(fp.population(5)).sum()
        distances.append(100 * loss / whole)
    assert closer == pytest.approx(distances[0] - distances[1], rel=0.02)
