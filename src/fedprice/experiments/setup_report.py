"""The report of a reproduction: the paper's section VI beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.experiments.report import Report, duration
from fedprice.experiments.report_lead import lead, seed_notes
from fedprice.experiments.setup_claims import all_claims
from fedprice.experiments.setup_figures import leading_figures, other_figures
from fedprice.experiments.setup_tables import all_tables
from fedprice.experiments.study_tables import READING
from fedprice.experiments.verdicts import RULES

if TYPE_CHECKING:
    from fedprice.experiments.reproduce import Reproduction

__all__ = ["report_of"]


# Settings that only studies of one's own can change.
OF_THE_PAPER = """aggregator = horvitz-thompson
server_step = plain
largest_weight = none
coins = independent
availability = always
"""


def report_of(reproduction: Reproduction) -> Report:
    """Return the report of a reproduction."""
    settings, results = reproduction.settings, reproduction.results
    claims = all_claims(results)
    wall = duration(reproduction.wall_seconds)
    worked = ", ".join(f"{r.title} {duration(r.seconds)}" for r in results)
    return Report(
        title="Incentive Mechanism Design for Unbiased Federated Learning with Randomized Client "
        "Participation: reproduced",
        paragraphs=lead(settings, results, claims),
        first=leading_figures(results),
        claims=claims,
        tables=all_tables(results),
        others=other_figures(results),
        notes=run_notes(reproduction),
        ran=f"`fedprice study {' '.join(settings.setups)}` with fedprice "
        f"{reproduction.version}, finished {reproduction.finished} after {wall} on "
        f"{reproduction.machine}. Work, summed over workers: {worked}.",
        settings=settings.to_toml() + OF_THE_PAPER,
        results=results,
    )


def run_notes(reproduction: Reproduction) -> list[str]:
    """Return what a reader must know about the runs and the data."""
    settings = reproduction.settings
    notes = [
        f"A run has up to {settings.rounds:,} rounds of {settings.local_steps} local steps with "
        f"batches of {settings.batch} samples.",
        *seed_notes(settings),
        *RULES,
        *READING,
        "Times are simulated: the paper's 40 Raspberry Pis are clients whose speeds are drawn at "
        "random, set so that 1,000 rounds take about as long as in the paper. The evaluation time "
        "of a setup is what every run of the three schemes covers.",
        "Costs and values are one exponential draw per setup, the same under all schemes; seeds "
        "vary coins and batches, the same under all schemes.",
        "The authors' public code uses settings other than the paper's (50 local steps, constant "
        "costs), and its generators do not give 14,463 or 35,155 samples; ours follow the paper's "
        "text.",
    ]
    for result in reproduction.results:
        note = f"{result.title}: {result.study.data_name}; evaluated over {result.end:,.0f} "
        if result.study.only_times:
            note += "simulated seconds; a run ends where no target needs it any more."
        else:
            note += (
                f"simulated seconds, and over {result.published_end:,.0f} with the baselines as "
                "published."
            )
        notes.append(note)
    return notes
