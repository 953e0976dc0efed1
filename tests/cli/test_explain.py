"""`fedprice explain`: every word that a newcomer meets is explained in the terminal."""

import re

import pytest
from typer.testing import CliRunner

from fedprice.cli.app import app
from fedprice.commands.words import SCHEME_WORDS, WORDS
from fedprice.errors import InputError
from fedprice.pricing import SCHEMES


def said(*words: str) -> str:
    result = CliRunner().invoke(app, ["explain", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def unwrapped(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("word", ["level", "price", "value", "impact", "heads", "coin", "offer"])
def test_words_that_a_newcomer_meets(word: str) -> None:
    assert unwrapped(said(word)) == WORDS[word]


@pytest.mark.parametrize(
    "asked", [("Sign", "threshold"), ("sign_threshold",), ("sign-threshold",), ("coins",)]
)
def test_a_word_may_be_written_in_several_ways(asked: tuple[str, ...]) -> None:
    assert unwrapped(said(*asked)) in (WORDS["sign threshold"], WORDS["coin"])


@pytest.mark.parametrize(("letter", "word"), [("τ", "cost exponent"), ("R", "rounds")])
def test_a_letter_of_the_paper_is_a_word(letter: str, word: str) -> None:
    assert unwrapped(said(letter)) == WORDS[word]


COLUMNS_AND_FACTS = [
    "status",
    "offers",
    "spend",
    "distance",
    "loss_ratio",
    "mean_level",
    "payers",
    "left_out",
    "biased",
    "client_surplus",
    "client_utility",
    "payees",
    "marginal_value",
    "largest_weight",
    "sign_threshold",
    "certificate",
    "level",
    "price",
    "payment",
    "joiners",
    "heads",
    "agreed",
    "paid",
    "lost",
    "expected_spend",
    "τ",
    "tau",
    "R",
    "α",
    "λ",
]


@pytest.mark.parametrize("label", COLUMNS_AND_FACTS)
def test_what_screens_show_is_explained(label: str) -> None:
    assert unwrapped(said(label)) in WORDS.values()


def test_without_a_word_all_are_listed() -> None:
    assert said().splitlines() == [*sorted(WORDS), "schemes"]


def test_all_schemes_are_listed_with_a_line_each() -> None:
    listed = set(re.findall(r"^  ([a-z-]+)  ", said("schemes"), flags=re.MULTILINE))
    assert set(SCHEME_WORDS) == set(SCHEMES) == listed
    assert unwrapped(said("proportional", "share")) == SCHEME_WORDS["proportional-share"]


def test_an_unknown_word_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"no explanation of 'levle'\. Did you mean 'level'"):
        said("levle")
    with pytest.raises(InputError, match="Choose from 'absence'"):
        said("xyzzy")
