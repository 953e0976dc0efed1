"""The clients of the Price page, what is asked for, and what can be wrong with both."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from fedprice.errors import FedpriceError
from fedprice.pricing import SCHEMES
from fedprice.web.asked import OFFERED, Asked
from fedprice.web.post_asked import PostAsked
from fedprice.web.priced import Priced
from fedprice.web.served import Served
from fedprice.web.uploads import clients_of

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "client_id,samples,grad_norm,cost,value\na,1,1,40,0\nb,2,1,50,90\n"


def test_a_million_clients_are_not_read_again_for_every_tab(tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    path.write_text(TABLE)
    served = Served(clients=path)
    first = Priced.served(served)
    assert Priced.served(served) is first
    path.write_text(TABLE + "c,3,1,60,0\n")
    assert len(Priced.served(served).clients) == 3, "a file that changed is read again"
    path.unlink()
    with pytest.raises(FedpriceError, match="cannot read"):
        Priced.served(served)


def test_costs_beyond_all_measure_are_refused_in_one_line() -> None:
    row = "a,1,1,1.7e308,0\n"
    clients = clients_of("a.csv", (TABLE.splitlines(keepends=True)[0] + row).encode())
    with pytest.raises(FedpriceError, match="lost its precision"):
        Priced(clients).ends(Asked())


def test_an_address_asks_only_for_schemes_that_the_page_offers() -> None:
    for name in {*SCHEMES} - {*OFFERED}:
        for field in ("scheme", "against"):
            with pytest.raises(FedpriceError, match="there is no scheme"):
                Asked().changed({field: name})


def test_rounds_that_no_browser_counts_are_refused() -> None:
    for text in ("1e20", "1e308"):
        with pytest.raises(FedpriceError, match=r"`rounds` must be at most 1,000,000,000,000,000"):
            Asked().changed({"rounds": text})


def test_the_name_of_a_file_is_no_option_of_a_copied_command() -> None:
    for name in ("--force.csv", "-o", "$(id).csv", "a b'c"):
        for words in (Asked().command(name, name), PostAsked(beliefs="file").command(name, name)):
            given = [word for word in shlex.split(words) if word.endswith(name)]
            assert len(given) == 2
            assert not any(word.startswith("-") for word in given)
