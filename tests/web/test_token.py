"""The token on its way to the browser: nobody else on the machine sees it."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

from fedprice.web.app import handed_over

if TYPE_CHECKING:
    from pathlib import Path


def test_the_token_is_not_an_argument_of_the_browser(tmp_path: Path) -> None:
    path = handed_over("http://host:8080/?token=secret-secret-secret", tmp_path)
    assert "secret" not in path.as_uri()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "0;url=http://host:8080/?token=secret-secret-secret" in path.read_text()
