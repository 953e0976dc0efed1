"""Canonical JSON, against the library that defines it."""

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice.errors import InputError
from fedprice.market.canonical import MANY, canonical_text

text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('"\\\n\x00\x7f\x1f,[]{}'))
plain = st.from_regex(r"[0-9a-z.,-]{0,8}", fullmatch=True)


class Row(NamedTuple):
    first: str
    second: str


def as_json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@given(
    st.dictionaries(plain | text, st.lists(plain | text | st.integers() | st.none(), max_size=3)),
    st.sampled_from(
        [None, [], "ab", ["a", ["b"]], {"a": "b"}, ["a", 1], ('"', "\\"), Row("a", "b")]
    ),
)
def test_many_rows_have_the_text_that_json_gives_them(rows: dict[str, Any], odd: Any) -> None:
    many = {f"client-{i}": Row("ab" * 4, f"{i}.5") for i in range(MANY)}
    for joined in (many, many | rows, many | {"odd": odd}):
        content = {"of": ["run", 1], 'a"name': rows, "joined": joined, "state": True}
        assert canonical_text(content) == as_json(content)


def test_a_number_with_a_fraction_in_many_rows_is_refused() -> None:
    rows = {f"client-{i}": ["ab", 0.5] for i in range(MANY)}
    with pytest.raises(InputError, match=r"got 0\.5"):
        canonical_text({"joined": rows})
