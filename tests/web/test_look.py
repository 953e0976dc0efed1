"""What pages share, without a browser."""

from __future__ import annotations

from typing import cast

import pytest

from fedprice.errors import InputError

pytest.importorskip("nicegui", reason="needs the extra `web`")

from fedprice.web.page_frame import Problem, explained


class Line:
    """Stands in for the line of a page."""

    text = "before"

    def show(self, text: str) -> None:
        self.text = text

    def clear(self) -> None:
        self.text = ""


@pytest.mark.parametrize(
    ("fails", "current", "text"),
    [(True, True, "wrong"), (False, True, ""), (True, False, "before"), (False, False, "before")],
)
def test_only_what_is_still_asked_for_is_explained(fails: bool, current: bool, text: str) -> None:
    line = Line()
    with explained(cast("Problem", line), lambda: current):
        if fails:
            raise InputError("wrong")
    assert line.text == text
