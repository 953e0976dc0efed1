"""The tables that go beyond the paper: bias, the bound, other estimators, other prices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedprice.bound import random_loss
from fedprice.experiments.measures import Estimate, resample_indices
from fedprice.experiments.results import basis, mean, spread
from fedprice.experiments.setup_study import MEMORY_RUNS
from fedprice.experiments.table import Table
from fedprice.game import best_level, best_response, price_for
from fedprice.pricing import solve

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice._plumbing.arrays import FloatArray
    from fedprice.experiments.setup_results import SetupResult
    from fedprice.game import Game


__all__ = ["MECHANISMS", "beyond_tables", "bound_points", "rank_correlation"]

MECHANISMS = {
    "fixed subset, FedAvg": "subset",
    "random joiners, FedAvg": "fedavg",
    "random joiners, unbiased (ours)": "equilibrium",
    "random joiners, with memory": "memory",
    "full participation (beyond the budget)": "full",
}
WRONG = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def beyond_tables(results: Sequence[SetupResult]) -> list[Table]:
    """Return all of these tables."""
    return [
        bias_table(results),
        *[bound_table(result) for result in results if result.study.compares_bound],
        memory_table(results),
        random_prices_table(results),
        sensitivity_table(results),
    ]


def bias_table(results: Sequence[SetupResult]) -> Table:
    """Return how far from the optimum each mechanism ends."""
    rows = [
        {
            "setup": result.title,
            "mechanism": words,
            "joiners": float(np.mean([c.joined.mean() for c in result.curves[name]])),
            "loss above the optimum": above_optimum(result, name),
            "accuracy": result.estimate([name], mean, "accuracy"),
            "seeds": result.seeds(name),
        }
        for result in results
        for words, name in MECHANISMS.items()
    ]
    return Table(
        "table-bias",
        "Beyond the paper (a): bias, on the same budget",
        rows,
        "Joiners are the mean number of clients in a round. The optimum is the minimum of the "
        "global loss, found by L-BFGS.",
        basis(results[0].study.settings, results[0].study.settings.bias_seeds),
    )


def above_optimum(result: SetupResult, name: str) -> Estimate:
    """Return the mean final loss above F*."""
    least = result.study.least
    return result.estimate([name], lambda losses: losses.mean(axis=-1) - least)


def memory_table(results: Sequence[SetupResult]) -> Table:
    """Return how far above full participation each estimator ends, under the same prices."""
    names = [(scheme, run) for scheme, memory in MEMORY_RUNS.items() for run in (scheme, memory)]
    rows = [
        {
            "setup": result.title,
            "prices": scheme,
            "estimator": "Horvitz–Thompson" if name == scheme else "memory",
            "final loss": result.estimate([name], mean),
            "minus full participation": result.estimate(
                [name, "full"], lambda a, b: (a - b).mean(axis=-1)
            ),
            "spread of the loss": result.estimate([name], spread, log=True),
            "seeds": result.seeds(name),
        }
        for result in results
        for scheme, name in names
    ]
    return Table(
        "table-memory",
        "Beyond the paper (c): the same prices, trained with memory",
        rows,
        "The server remembers each client's last update, and scales up only what it did not "
        "predict. Prices, levels and coins are the same; differences are over common seeds.",
        basis(results[0].study.settings, results[0].study.settings.bias_seeds),
    )


def bound_points(result: SetupResult, norms: str = "gradients") -> tuple[FloatArray, FloatArray]:
    """Return predicted and measured losses over the random levels, with one kind of norms."""
    study = result.study
    rounds = min(study.settings.rounds, study.settings.level_rounds)
    calibration = study.calibration.with_impact(norms)
    impact = study.setup.game(study.federation, calibration, rounds=rounds).impact
    predicted = np.array([random_loss(impact, levels) for levels in study.level_vectors])
    measured = np.array(
        [result.last(f"levels={i}").mean() for i in range(len(study.level_vectors))]
    )
    return predicted, measured


def rank_correlation(result: SetupResult, norms: str = "gradients") -> Estimate:
    """Return Spearman's rank correlation of predicted and measured loss."""
    predicted, measured = bound_points(result, norms)

    def spearman(a: FloatArray, b: FloatArray) -> FloatArray:
        from scipy.stats import rankdata

        a, b = rankdata(a, axis=-1), rankdata(b, axis=-1)
        a, b = a - a.mean(axis=-1, keepdims=True), b - b.mean(axis=-1, keepdims=True)
        with np.errstate(invalid="ignore"):
            return (a * b).sum(-1) / np.sqrt((a**2).sum(-1) * (b**2).sum(-1))  # type: ignore[no-any-return]

    chosen = resample_indices(predicted.size)
    resampled = spearman(predicted[chosen], measured[chosen])
    return Estimate.of(float(spearman(predicted, measured)), resampled, predicted.size)


def bound_table(result: SetupResult) -> Table:
    """Return whether the bound orders levels as training does."""
    study = result.study
    rounds = min(study.settings.rounds, study.settings.level_rounds)
    return Table(
        "table-bound",
        "Beyond the paper (b): does the bound order levels correctly?",
        [
            {
                "setup": result.title,
                "random levels": len(study.level_vectors),
                "rounds": rounds,
                "rank correlation": rank_correlation(result),
                "with norms of updates": rank_correlation(result, "updates"),
            }
        ],
        "Spearman's correlation between the loss that the bound predicts and the loss measured, "
        "over random levels that all have the same mean; with the paper's norms of gradients, and "
        "with those of updates, whose squares are the variance of a round.",
        basis(study.settings, 2, rounds),
    )


def random_prices_table(results: Sequence[SetupResult]) -> Table:
    """Return how much the equilibrium gains over random prices within the budget."""
    rows = []
    for result in results:
        study = result.study
        game, rng = study.game(), np.random.default_rng(0)
        directions = rng.exponential(size=(study.settings.random_prices, len(game.clients)))
        losses = losses_along(game, directions)
        equilibrium = study.outcomes["equilibrium"].expected_loss
        rows.append(
            {
                "setup": result.title,
                "equilibrium": equilibrium,
                "best random": float(losses.min()),
                "median random": float(np.median(losses)),
                "equilibrium / best random": equilibrium / float(losses.min()),
            }
        )
    return Table(
        "table-random",
        "Beyond the paper (d): the equilibrium against random prices",
        rows,
        f"Loss by the bound. {results[0].study.settings.random_prices:,} price vectors with "
        "exponential ratios, none negative, each scaled to use up the budget.",
        "no training",
    )


def losses_along(game: Game, directions: FloatArray) -> FloatArray:
    """Return the expected loss of prices along each direction that just use up the budget.

    Like `price_along`, but by bisection for many directions at once.
    """
    clients = game.clients
    value_impact = clients.value * game.impact
    low = np.zeros(len(directions))
    high = (np.maximum(price_for(game, clients.level_max), 0) / directions).max(axis=1)

    def levels(scalars: FloatArray) -> tuple[FloatArray, FloatArray]:
        prices = scalars[:, None] * directions
        tau = game.cost_exponent
        return prices, best_level(prices, clients.cost, value_impact, tau, clients.level_max)

    for _ in range(45):
        middle = (low + high) / 2
        prices, chosen = levels(middle)
        within = (prices * chosen).sum(axis=1) <= game.budget
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    _, chosen = levels(low)
    losses: FloatArray = (game.impact * (1 - chosen) / chosen).sum(axis=1)
    return losses


def sensitivity_table(results: Sequence[SetupResult]) -> Table:
    """Return what a wrong α costs."""
    rows = []
    for result in results:
        study = result.study
        game = study.game()
        best = study.outcomes["equilibrium"].expected_loss
        for factor in WRONG:
            believed = replace(game, bound=replace(game.bound, alpha=factor * game.bound.alpha))
            prices = solve(believed).prices
            levels = best_response(game, prices)
            rows.append(
                {
                    "setup": result.title,
                    "α believed / true": f"{factor:g}",
                    "spend / budget": float((prices * levels).sum()) / game.budget,
                    "loss by the bound / optimal": random_loss(game.impact, levels) / best,
                }
            )
    return Table(
        "table-alpha",
        "Beyond the paper (e): pricing with a wrong α",
        rows,
        "The server prices with a wrong α, and the clients respond to the true one. A spend above "
        "1 means that the budget is exceeded.",
        "no training",
    )
