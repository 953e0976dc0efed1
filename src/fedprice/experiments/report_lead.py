"""The lead of the report: what was tested, what holds and what does not, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedprice.experiments import paper_numbers as paper
from fedprice.experiments.interim_looks import ERROR, looks
from fedprice.experiments.number_text import number_text
from fedprice.experiments.results import title_of
from fedprice.experiments.study_summary import ORDER, listed
from fedprice.experiments.table import shown
from fedprice.experiments.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedprice.experiments.results import Result
    from fedprice.experiments.settings import Settings, StudySettings
    from fedprice.experiments.setup_results import SetupResult
    from fedprice.experiments.verdicts import Claim

__all__ = ["lead", "own_lead", "seed_notes"]


def lead(settings: Settings, results: Sequence[SetupResult], claims: Sequence[Claim]) -> list[str]:
    """Return the first paragraphs of the report."""
    return [
        _tested(settings, results),
        _found(claims, results),
        rest_of_the_paper(settings) if settings.scope == "times" else baselines(results),
        "It is proven that no prices within the budget have a smaller bound on the loss than the "
        "equilibrium, and every outcome carries a certificate. It is not proven that a smaller "
        "bound also means better training: that is what is measured here.",
    ]


def _tested(settings: Settings, results: Sequence[SetupResult]) -> str:
    data = "; ".join(f"{r.title} is {r.study.data_name}" for r in results)
    return (
        "This is a rerun of Section VI of the paper. A server with a budget offers each of "
        f"{settings.num_clients} clients a price for its participation, each client chooses the "
        "level that is best for it, and a model is trained by the clients that join. The "
        "equilibrium is the pricing that the paper proposes; it is compared with uniform pricing, "
        "the same price for all clients, and weighted pricing, prices in proportion to the "
        "clients' data. "
        f"Every scheme was trained with {_seeds(settings)}; a seed determines who joins when and "
        f"which samples are drawn, and is the same for all schemes. {data}."
    )


def _counted(claims: Sequence[Claim]) -> str:
    numbers = [[claim.verdict for claim in claims].count(verdict) for verdict in Verdict]
    holds, fails, equal, rest = (
        f"{n} {one if n == 1 else more}"
        for n, one, more in zip(
            numbers, ("holds", "fails", "is", "is"), ("hold", "fail", "are", "are"), strict=True
        )
    )
    ties = f", {equal} about numbers that are equal" if numbers[2] else ""
    return f"Of {len(claims)} claims {holds}, {fails}{ties} and {rest} inconclusive."


def _found(claims: Sequence[Claim], results: Sequence[Result]) -> str:
    """Return how many claims hold and which, in sentences."""
    sentences = (_named(claims, verdict, len(results)) for verdict in Verdict)
    return " ".join([_counted(claims), *(sentence for sentence in sentences if sentence)])


def _named(claims: Sequence[Claim], verdict: Verdict, every: int) -> str:
    """Return a sentence that names the claims with a verdict, each with its setups.

    Claims that differ in what something is compared with, after "than", are named together.
    """
    subjects: dict[str, dict[str, list[str]]] = {}
    for claim in claims:
        if claim.verdict is verdict:
            what, than, other = claim.text.partition(":")[0].partition(" than ")
            others = subjects.setdefault(what[0].lower() + what[1:] + than, {})
            others.setdefault(other, []).append(claim.setup)
    if not subjects:
        return ""
    named = [
        what + ", ".join(other + _where(setups, every) for other, setups in others.items())
        for what, others in subjects.items()
    ]
    opening = {
        Verdict.HOLDS: "What holds",
        Verdict.FAILS: "What fails",
        Verdict.EQUAL: "What is equal to rounding error",
        Verdict.INCONCLUSIVE: "What could not be decided",
    }[verdict]
    return f"{opening}: {'; '.join(named)}."


def _where(setups: list[str], every: int) -> str:
    if every == 1:
        return ""
    return " (all setups)" if len(setups) == every else f" ({', '.join(setups)})"


def rest_of_the_paper(settings: Settings) -> str:
    """Return what a reproduction of Tables II and III alone leaves out, and where it is."""
    return (
        "This is the short version. It decides the claims of Tables II and III, which were chosen "
        "beforehand, and trains only as far as their targets. "
        f"`fedprice study {' '.join(settings.setups)}` examines the other claims of Section VI "
        "as well: spreads over seeds, utilities of clients, how many of them pay, the effect of "
        "values, costs and budgets, bias, the bound, and the baselines as published. What it found "
        "in all setups is in docs/results.md."
    )


def baselines(results: Sequence[SetupResult]) -> str:
    """Return what follows from the two kinds of baselines."""
    sentences = [
        "How much the equilibrium gains depends on the baselines. In the authors' public code, "
        "uniform and weighted pricing are computed as if no client valued the model, so clients "
        "join less than they would and part of the budget is not spent; our sound baselines let "
        "clients answer as they would, and spend all of it."
    ]
    larger, between, total = 0, 0, 0
    for result in results:
        sound_race, published_race = result.timed("loss"), result.published("loss")
        theirs = paper.TIME_TO_LOSS[result.name]
        words = []
        for name in ("uniform", "weighted"):
            sound = sound_race.ratios[name]
            published = published_race.ratios[f"{name}-published"]
            printed = theirs["equilibrium"] / theirs[name]
            larger += published.value < sound.value
            between += published.value < printed < sound.value
            total += 1
            spend = result.study.outcomes[f"{name}-published"].spend
            words.append(
                f"{shown(published)} of the time of {name} pricing as published, which spends "
                f"{number_text(spend)} of {result.study.setup.budget:,g}, and {shown(sound)} of "
                f"that of sound {name} pricing (in the paper: {number_text(printed)})"
            )
        sentences.append(
            f"{result.title}: to the target loss the equilibrium needs {'; '.join(words)}."
        )
    sentences.append(
        f"The gain is larger with the baseline as published in {larger} of {total} comparisons, "
        f"and {between} of the {total} printed ratios lie between ours with the two kinds."
    )
    if 2 * larger > total:
        sentences.append(
            "So a large gain does not measure the prices alone: part of it is budget that the "
            "baselines leave unspent. At equal spend, what the prices gain is the smaller number."
        )
    return " ".join(sentences)


def own_lead(result: Result, claims: Sequence[Claim]) -> list[str]:
    """Return the first paragraphs of the report of a user's study."""
    study, settings = result.study, result.study.settings
    names = ", ".join(title_of(name) for name in study.outcomes)
    return [
        f"{study.data_name}: {len(study.priced.clients)} clients under a budget of "
        f"{study.priced.budget:,g}, priced by {names}. Each client chooses the level that is best "
        "for it, the probability that it joins a round, and a model is trained by the clients that "
        f"join, with {_seeds(settings)}; a seed determines who joins when and what is random in "
        "training, and is the same for all schemes.",
        f"{_beside(study.subject, claims)} {_counted(claims)}",
    ]


def _beside(subject: str, claims: Sequence[Claim]) -> str:
    """Return which schemes the first one is ahead of, and which it is behind, in a sentence."""
    abouts = sorted({claim.about for claim in claims} - {""}, key=ORDER.index)
    decided = {
        words: list(dict.fromkeys(
            title_of(claim.runs[-1]) for claim in claims if claim.about and claim.verdict is verdict
        ))
        for words, verdict in (("ahead of", Verdict.HOLDS), ("behind", Verdict.FAILS))
    }  # fmt: skip
    others = dict.fromkeys(title_of(claim.runs[-1]) for claim in claims)
    rest = [name for name in others if not any(name in names for names in decided.values())]
    said = []
    if parts := [f"{words} {listed(names)}" for words, names in decided.items() if names]:
        said.append(f"{subject} is {' and '.join(parts)} in at least one of {listed(abouts)}")
    if rest:
        said.append(f"beside {listed(rest)}, {subject} is neither clearly ahead nor behind")
    sentence = f"{'; '.join(said)}."
    # A scheme's name is written as it is.
    return sentence if decided["ahead of"] or decided["behind"] else f"B{sentence[1:]}"


def _seeds(settings: StudySettings) -> str:
    least, most = settings.seeds, settings.most_seeds
    return f"{least} seeds" if least == most else f"{least} seeds, and up to {most} where needed"


def seed_notes(settings: StudySettings) -> list[str]:
    """Return how many seeds were evaluated, and what error the intervals have."""
    counts = looks(settings.seeds, settings.most_seeds)
    return [
        f"Claims are examined after {', '.join(map(str, counts))} seeds, as long as they are "
        "inconclusive; differences are between runs of the same seed. An interval at one look "
        f"misses with a probability of {100 * ERROR / len(counts):.2g} %, so that those at all "
        f"looks together miss with a probability of at most {100 * ERROR:.0f} %."
        if len(counts) > 1
        else f"There are {counts[0]} seeds; differences are between runs of the same seed, and "
        f"intervals miss with a probability of {100 * ERROR:.0f} %."
    ]
