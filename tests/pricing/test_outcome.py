"""The outcome: tables, summaries, and what they show of foreign text."""

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from fedprice import (
    Bound,
    Certificate,
    Clients,
    Game,
    InputError,
    MissingExtraError,
    Outcome,
    frontier,
    solve,
)
from fedprice._plumbing.tables import as_polars
from fedprice.pricing.display import certificate_line

CLIENTS = Clients(
    samples=[10, 20, 30],
    grad_norm=1.5,
    cost=[4, 5, 6],
    value=[0, 100, 90000],
    ids=["a", "<b>[red]", "\x1b[2Jc"],
)
GAME = Game(CLIENTS, bound=Bound(alpha=10, rounds=1000, beta=2), budget=5)


def test_table_has_the_columns_in_order() -> None:
    frame = solve(GAME).to_frame()
    assert frame.columns == [
        "client_id",
        "samples",
        "grad_norm",
        "cost",
        "value",
        "level_min",
        "level_max",
        "level",
        "price",
        "payment",
        "utility",
    ]
    assert frame["client_id"].to_list() == CLIENTS.ids.tolist()
    assert frame["samples"].to_list() == [10, 20, 30]


def test_utility_is_payment_less_cost_less_the_loss_felt() -> None:
    best = solve(GAME)
    loss = best.expected_loss + 2 / 1000
    expected = best.payments - CLIENTS.cost * best.levels**2 - CLIENTS.value * loss
    assert best.utilities == pytest.approx(expected)
    assert best.expected_loss == pytest.approx((GAME.impact * (1 / best.levels - 1)).sum())


def test_only_clients_with_an_impact_can_be_left_out() -> None:
    """Who has no data or no gradients never joins, and the model misses nothing of it."""
    clients = replace(
        CLIENTS, samples=np.array([10.0, 20, 30]), grad_norm=np.array([0.0, 1.5, 1.5])
    )
    outcome = solve(replace(GAME, clients=clients))
    assert outcome.levels[0] == 0
    assert (outcome.left_out, outcome.biased) == (0, False)
    without = Outcome.from_prices(GAME, 0.0, scheme="none", levels=np.array([0.0, 0.5, 0.5]))
    assert (without.left_out, without.biased) == (1, True)


def test_who_does_not_care_does_not_suffer_from_an_infinite_loss() -> None:
    outcome = solve(replace(GAME, budget=-490.0), "subset")
    assert outcome.expected_loss == np.inf
    assert np.isfinite(outcome.utilities[0])
    assert outcome.utilities[1] == -np.inf


def test_summaries_escape_what_clients_call_themselves() -> None:
    best = solve(GAME)
    page = best._repr_html_()
    assert "<b>[red]" not in page
    assert "&lt;b&gt;[red]" in page
    assert "\x1b" not in page
    screen = io.StringIO()
    Console(file=screen, width=100, force_terminal=True).print(best)
    assert "[red]" in screen.getvalue()
    assert "\x1b[2J" not in screen.getvalue()
    assert "this is proven" in screen.getvalue()


def test_summary_is_plain_numbers() -> None:
    summary = solve(GAME).summary()
    assert {type(value) for value in summary.values()} <= {str, int, float}
    assert summary["payers"] == 1
    infeasible = solve(replace(GAME, budget=-1.0), "uniform").summary()
    assert (infeasible["status"], infeasible["least_budget"]) == ("infeasible", 0)
    best = solve(GAME)
    assert summary["client_utility"] == best.utilities.sum()
    assert (summary["primal"], summary["dual"]) == (best.certificate.primal, best.certificate.dual)


def test_certificate_line_says_in_per_cent_what_could_be_saved() -> None:
    best = solve(replace(GAME, budget=-490.0))
    loss = best.expected_loss
    for saved, text in ((0.0, "0.0001%"), (0.0161 * loss, "2%"), (-1e-12, "0.0001%")):
        line = certificate_line(replace(best, certificate=Certificate(loss, loss - saved)))
        assert line == (
            "Certificate: within the budget, no other prices have an expected loss that is lower "
            f"by more than {text}; this is proven."
        )


def test_the_distance_to_full_participation_is_that_of_everybody_joining_alike() -> None:
    best = solve(replace(GAME, budget=-490.0))
    assert best.distance > 0.01
    alike = Outcome.from_prices(GAME, 1.0, scheme="x", levels=np.full(3, 1 - best.distance))
    assert alike.expected_loss == pytest.approx(best.expected_loss)
    other = replace(GAME, bound=replace(GAME.bound, alpha=9.0, rounds=7))
    same = Outcome.from_prices(other, best.prices, scheme="x", levels=best.levels)
    assert same.distance == pytest.approx(best.distance)  # without α
    everybody = Outcome.from_prices(GAME, 1.0, scheme="x", levels=np.ones(3))
    left_out = Outcome.from_prices(GAME, 1.0, scheme="x", levels=np.array([0.0, 1.0, 1.0]))
    nobody_matters = replace(GAME, bound=replace(GAME.bound, alpha=0.0))
    assert (everybody.distance, left_out.distance, solve(nobody_matters).distance) == (0, 1, 0)


def test_gap_without_a_proof_is_infinite() -> None:
    assert Certificate(1.0, -np.inf).gap == np.inf
    assert Certificate(2.0, 1.0).gap == 0.5
    assert Certificate(0.0, 0.0).gap == 0.0


def test_outcome_from_prices_answers_with_the_best_response() -> None:
    outcome = Outcome.from_prices(GAME, [1, 1, -1], scheme="x")
    assert outcome.payers == 1
    assert outcome.spend == pytest.approx(outcome.prices @ outcome.levels)


def test_frontier_equals_single_solves() -> None:
    budgets = [-1e4, -510.0, -490.0, -480.0, 0.0]
    for budget, outcome in zip(budgets, frontier(GAME, budgets), strict=True):
        alone = solve(Game(CLIENTS, bound=GAME.bound, budget=budget))
        assert outcome.game.budget == budget
        assert outcome.status is alone.status
        assert outcome.levels == pytest.approx(alone.levels, rel=1e-12)
        assert outcome.multiplier == pytest.approx(alone.multiplier, rel=1e-11)


def test_frontier_is_warm_started() -> None:
    for budgets in (np.linspace(-495, -480, 50), np.linspace(-1e9, -1e8, 50)):
        cold = sum(o.iterations for b in budgets for o in frontier(GAME, [b]))
        assert 0 < sum(outcome.iterations for outcome in frontier(GAME, budgets)) < cold


def test_profits_follow_the_cost_exponent() -> None:
    outcome = solve(replace(GAME, cost_exponent=3.0), "uniform")
    cost = GAME.clients.cost * outcome.levels**3
    assert outcome.profits == pytest.approx(outcome.payments - cost)


def test_frontier_is_a_sequence_with_a_table() -> None:
    traced = frontier(GAME, [-490, 0, 5])
    assert len(traced) == 3
    assert traced[-1] is traced.outcomes[2]
    assert traced[:2] == traced.outcomes[:2]
    assert list(traced) == list(traced.outcomes)
    frame = traced.to_frame()
    assert frame["budget"].to_list() == [-490, 0, 5]
    assert frame.row(1, named=True) == traced[1].summary()
    assert as_polars(traced.to_pandas())["spend"].equals(frame["spend"])


@pytest.mark.parametrize(
    ("budgets", "message"),
    [
        ([], "`budgets` must be at least one; got none"),
        ([1, np.inf], "`budgets` must be finite numbers; got inf"),
        ([1, "5"], "`budgets` must be a number; got '5'"),
    ],
)
def test_bad_budgets_of_a_frontier(budgets: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        frontier(GAME, budgets)


@pytest.mark.parametrize(
    "drawn", [solve(GAME), frontier(GAME, [-490, 0, 5]), frontier(GAME, [-1e9])]
)
def test_plot_returns_a_figure_that_a_notebook_shows(drawn: Any, tmp_path: Path) -> None:
    figure = drawn.plot()
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]
    figure.savefig(tmp_path / "figure.svg")


def test_plot_leaves_pyplot_alone() -> None:
    program = """
import sys
import fedprice as fp
clients = fp.Clients(samples=[1, 3], grad_norm=1, cost=[4, 5], value=[0, 900])
fp.solve(fp.Game(clients, bound=fp.Bound(alpha=2, rounds=1000), budget=5)).plot()
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize("drawn", [solve(GAME), frontier(GAME, [0])])
def test_without_matplotlib_its_extra_is_named(drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"matplotlib, .* pip install 'fedprice\[plot\]'"):
        drawn.plot()
