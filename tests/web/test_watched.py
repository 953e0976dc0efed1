"""The ledger that is served is read before somebody asks for it."""

from pathlib import Path

from fedprice.market.ledger import Ledger
from fedprice.web.watched_ledger import read_ahead, watched


def test_the_newest_run_is_read_ahead(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'market.db'}"
    read_ahead(url)  # there is none yet, which a page will say
    assert watched(url).following.unit == ""
    ledger = Ledger(url, unit="EUR")
    ledger.open_unsigned("first", 0, {}, rounds=4)
    ledger.close()
    try:
        read_ahead(url)
        assert watched(url).following.unit == "EUR"
    finally:
        watched(url).close()
