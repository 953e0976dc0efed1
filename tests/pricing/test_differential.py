"""The exact solver against cvxpy on the convex form, scipy on the original, and the M-search."""

import numpy as np
import pytest

from fedprice import Bound, Game, Outcome, Status, population, solve
from fedprice.contrib.reference import convex, msearch, random_starts
from tests.games import EXPONENTS, random_game

GAMES = 75  # an exponent
TIGHT = {"tol_feas": 1e-11, "tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "max_iter": 500}


@pytest.mark.first_case
@pytest.mark.parametrize("exponent", EXPONENTS)
def test_exact_is_convex_is_the_best_of_random_starts(exponent: float) -> None:
    seen: dict[Status, int] = {}
    for seed in range(GAMES):
        game = random_game(seed, exponent)
        best = solve(game)
        seen[best.status] = seen.get(best.status, 0) + 1
        rivals = [convex(game, **TIGHT), random_starts(game, starts=4, seed=seed)]
        if best.status is Status.INFEASIBLE:
            assert all(_excess(game, rival) > -1e-6 for rival in rivals), seed
            continue
        optimum = best.certificate.primal
        for rival in rivals:
            if _excess(game, rival) > 1e-6:
                # SLSQP may fail from every start; it must not fail with a better value.
                assert rival.scheme == "reference-scipy", seed
                continue
            assert rival.certificate.primal >= optimum * (1 - 1e-6), (seed, rival.scheme)
        assert rivals[0].certificate.primal == pytest.approx(optimum, rel=1e-5), seed
        assert rivals[0].levels == pytest.approx(best.levels, rel=2e-2), seed
        if _excess(game, rivals[1]) <= 1e-6:
            assert rivals[1].certificate.primal == pytest.approx(optimum, rel=1e-5), seed
    assert seen[Status.OPTIMAL] > GAMES / 3
    assert seen[Status.INFEASIBLE] > 0


def _excess(game: Game, outcome: Outcome) -> float:
    """How far an outcome is above the budget, relative to what changes hands."""
    flow = max(abs(game.budget), float(np.abs(outcome.payments).sum()))
    return (outcome.spend - game.budget) / flow


@pytest.mark.parametrize("exponent", [1.5, 2.0])
def test_msearch_comes_close_and_never_wins(exponent: float) -> None:
    game = Game(population(6), Bound(alpha=30, rounds=1000), budget=60, cost_exponent=exponent)
    best, rival = solve(game), msearch(game, steps=60)
    assert rival.status is Status.FEASIBLE
    assert rival.certificate.primal >= best.certificate.dual
    assert rival.certificate.primal == pytest.approx(best.certificate.primal, rel=0.02)
