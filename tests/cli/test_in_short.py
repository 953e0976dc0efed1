"""The sentence below the screen of `fedprice study setup1 --quick`."""

from fedprice.cli.in_short import shown_by
from fedprice.experiments.measures import Estimate
from fedprice.experiments.verdicts import Claim


def test_the_sentence_says_what_was_shown_whatever_it_is() -> None:
    def claims(*ends: tuple[float, float]) -> list[Claim]:
        return [
            Claim("Setup 1", "", paper, Estimate((low + high) / 2, low, high), 1.0, below=True)
            for (low, high), paper in zip(ends, (0.787, 0.899, 0.767, 0.88), strict=True)
        ]

    below, around, above = (0.94, 0.98), (0.9, 1.1), (1.02, 1.06)
    assert shown_by(claims(below, below, below, below)).startswith(
        "With the same budget, the equilibrium reached the target loss in 4 % less time than "
        "uniform prices and 4 % less time than weighted prices, and the target accuracy in 4 % less"
    )
    assert "4 % more time than weighted prices; 2 of 4 comparisons remain undecided." in shown_by(
        claims(below, above, around, around)
    )
    undecided = shown_by(claims(around, around, around, around))
    assert undecided.startswith("Which prices get to the targets sooner could not be decided.")
    assert "The paper prints gains of 10 to 23 %" in undecided
