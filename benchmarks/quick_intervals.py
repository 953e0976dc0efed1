"""How often the interval of a quick run contains what a fuller run finds.

Repeatedly draws five of the stored seeds of a reproduction of Setup 1, computes every claim's
interval from them, and counts how often it contains the estimate of all seeds; with several factors
that widen intervals of few seeds (`fedprice.experiments.looks.WIDENING`). It does the same for the
mean of 200 random numbers.

    fedprice reproduce setup1 --most-seeds 40 --out DIR
    python -m benchmarks.quick_intervals DIR
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedprice.experiments import looks, measures
from fedprice.experiments.reproduce import gather
from fedprice.experiments.setup_claims import claims_of
from fedprice.experiments.setup_results import SetupResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.arrays import FloatArray

FEW, REPEATS, DRAWS = 5, 100, 4000
FACTORS = (1.0, 1.25, looks.WIDENING, 2.0)
LAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], FloatArray]] = {
    "normal": lambda rng, size: rng.standard_normal(size),
    "exponential": lambda rng, size: rng.exponential(size=size),
    "lognormal, σ = 1": lambda rng, size: np.exp(rng.standard_normal(size)),
    "Student, 3 degrees": lambda rng, size: rng.standard_t(3, size),
}


def setup1(folder: Path) -> dict[str, list[float]]:
    """Return by claim how often a quick interval contains the full estimate, for each factor."""
    (result,) = gather(folder).results
    full = [claim for claim in claims_of(result) if claim.seeds > FEW]
    count = min(claim.seeds for claim in full)
    names = {name for claim in full for name in claim.runs}
    settings = replace(result.study.settings, seeds=FEW, most_seeds=FEW)
    study = replace(result.study, settings=settings)
    study.__dict__["plans"] = {k: p._replace(seeds=FEW) for k, p in result.study.plans.items()}
    rng = np.random.default_rng(0)
    hits = {claim.text: np.zeros(len(FACTORS)) for claim in full}
    for _ in range(REPEATS):
        chosen = rng.choice(count, FEW, replace=False)
        curves = {
            name: [runs[i] for i in chosen] if name in names else runs[:FEW]
            for name, runs in result.curves.items()
        }
        small = SetupResult(study, curves)
        for at in range(len(FACTORS)):
            looks.WIDENING = FACTORS[at]
            found = {claim.text: claim.ours for claim in claims_of(small)}
            for claim in full:
                ours = found[claim.text]
                hits[claim.text][at] += ours.low <= claim.ours.value <= ours.high
    return {text: list(counted / REPEATS) for text, counted in hits.items()}


def random_numbers() -> dict[str, list[float]]:
    """Return by law how often the interval of five contains the mean of 200, for each factor."""
    rng, shares = np.random.default_rng(0), {}
    for law, draw in LAWS.items():
        values = draw(rng, (200, DRAWS))
        full, own = values.mean(axis=0), []
        for factor in FACTORS:
            looks.WIDENING = factor
            low, high = measures.interval_of_mean(values[:FEW], looks.ERROR)
            own.append(float(((low <= full) & (full <= high)).mean()))
        shares[law] = own
    return shares


def main() -> None:
    """Print both."""
    print("factor".ljust(84), *(f"{factor:6.2f}" for factor in FACTORS))
    found = random_numbers() | (setup1(Path(sys.argv[1])) if len(sys.argv) > 1 else {})
    for text, shares in found.items():
        print(text[:84].ljust(84), *(f"{share:6.1%}" for share in shares))


if __name__ == "__main__":
    main()
