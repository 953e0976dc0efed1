"""`fedprice explain`: every word that a newcomer meets is explained in the terminal."""

import pytest
from typer.testing import CliRunner

from fedprice.cli.app import app
from fedprice.errors import InputError
from fedprice.words import WORDS


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


def test_without_a_word_all_are_listed() -> None:
    assert said().splitlines() == sorted(WORDS)


def test_an_unknown_word_is_refused_with_a_suggestion() -> None:
    with pytest.raises(
        InputError, match=r"no explanation of 'levle' is known\. Did you mean 'level'"
    ):
        said("levle")
    with pytest.raises(InputError, match="Choose from 'absence'"):
        said("xyzzy")
