"""Remembered updates in a file beside the ledger: what becomes of it with backups and periods."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedprice.errors import InputError
from fedprice.market.backup import back_up
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulate_market
from fedprice.rounds import History, Memory
from fedprice.rounds.aggregation import Aggregator, filed
from trials.markets import small_outcome, small_task

IDENTITY = "ab" * 32
TASK = small_task()
OUTCOME = small_outcome(TASK.federation)


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filed, "LARGE", 1)


class Borrowed:
    """An aggregator of somebody else, whose rows are arrays of its state."""

    name, start, begin = "borrowed", Memory().start, Memory().begin


def trained(
    ledger: Ledger, run: str = "run", follows: str = "", stop: int = 0,
    aggregator: Aggregator | None = None,
) -> History:  # fmt: skip
    def progress(done: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    return simulate_market(
        TASK, OUTCOME, ledger=ledger, run=run, follows=follows, rounds=6, seed=3, threads=1,
        progress=progress, aggregator=aggregator,
    )  # fmt: skip


def stopped(path: Path, at: int = 4) -> Ledger:
    """Return a ledger whose run was stopped after some rounds."""
    ledger = Ledger(str(path), identity=IDENTITY)
    with pytest.raises(KeyboardInterrupt):
        trained(ledger, stop=at)
    return ledger


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*-rows-*"))


@pytest.fixture
def plain() -> History:
    return trained(Ledger("sqlite://", identity=IDENTITY))


def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path, plain: History) -> None:
    """As a run whose ledger is in memory, and holds all of it."""
    stopped(tmp_path / "market.db").close()
    (file,) = files(tmp_path)
    assert file.name.startswith("market.db-rows-")
    assert file.stat().st_mode & 0o777 == 0o600
    ledger = Ledger(str(tmp_path / "market.db"))
    assert "aggregator.rows" not in (ledger.progress("run")[1] or {})
    assert np.array_equal(trained(ledger).model[0], plain.model[0])
    ledger.verify()
    ledger.close()


@pytest.mark.parametrize(("before", "after"), [(1 << 30, 1), (1, 1 << 30)])
def test_what_an_earlier_version_kept_in_the_ledger_moves_to_a_file(
    before: int, after: int, tmp_path: Path, plain: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is in a file stays there."""
    monkeypatch.setattr(filed, "LARGE", before)
    ledger = stopped(tmp_path / "market.db")
    assert len(files(tmp_path)) == (before == 1)
    monkeypatch.setattr(filed, "LARGE", after)
    assert np.array_equal(trained(ledger).model[0], plain.model[0])
    assert len(files(tmp_path)) == 1
    assert "aggregator.rows" not in (ledger.progress("run")[1] or {})
    ledger.verify()
    ledger.close()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "damaged": lambda path: path.write_bytes(b"x" * path.stat().st_size),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_ledger_verifies_without_its_file_and_the_run_says_what_is_lost(
    damage: str, tmp_path: Path, plain: History
) -> None:
    """Books and model are whole; training goes on with an empty memory."""
    ledger = stopped(tmp_path / "market.db")
    DAMAGES[damage](files(tmp_path)[0])
    ledger.verify()
    with pytest.warns(UserWarning, match="remembered updates are missing or damaged"):
        history = trained(ledger)
    assert not np.array_equal(history.model[0], plain.model[0])
    ledger.verify()
    ledger.close()


def test_a_backup_is_without_the_file_and_says_so_when_it_goes_on(
    tmp_path: Path, plain: History
) -> None:
    ledger = stopped(tmp_path / "market.db")
    (tmp_path / "copies").mkdir()
    back_up(str(tmp_path / "market.db"), tmp_path / "copies" / "market.db")
    assert [path.name for path in (tmp_path / "copies").iterdir()] == ["market.db"]
    copy = Ledger(str(tmp_path / "copies" / "market.db"))
    with pytest.warns(UserWarning, match=r"copies/market\.db-rows-.* are missing or damaged"):
        trained(copy)
    copy.verify()
    copy.close()
    assert np.array_equal(trained(ledger).model[0], plain.model[0])  # nobody touched its file
    ledger.close()


def test_two_ledgers_in_one_directory_have_files_of_their_own(
    tmp_path: Path, plain: History
) -> None:
    first, second = stopped(tmp_path / "first.db"), stopped(tmp_path / "second.db", at=2)
    assert len(files(tmp_path)) == 2
    for ledger in (first, second):
        assert np.array_equal(trained(ledger).model[0], plain.model[0])
        ledger.close()


def test_a_new_ledger_of_an_old_name_has_a_file_of_its_own(tmp_path: Path, plain: History) -> None:
    stopped(tmp_path / "market.db").close()
    left = files(tmp_path)[0].read_bytes()
    for path in tmp_path.glob("market.db*"):
        if path not in files(tmp_path):
            path.unlink()
    ledger = Ledger(str(tmp_path / "market.db"), identity="cd" * 32)
    trained(ledger)
    assert len(files(tmp_path)) == 2
    assert left in [path.read_bytes() for path in files(tmp_path)]
    ledger.close()


def test_a_period_takes_over_what_was_remembered_and_drops_the_file_before(
    tmp_path: Path,
) -> None:
    plain = Ledger("sqlite://", identity=IDENTITY)
    trained(plain)
    last = trained(plain, "run#2", "run")
    ledger = Ledger(str(tmp_path / "market.db"), identity=IDENTITY)
    trained(ledger)
    before = files(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trained(ledger, "run#2", "run", stop=3)
    assert len(files(tmp_path)) == 1
    assert files(tmp_path) != before
    for _ in range(2):  # then it is over, and nothing happens
        assert np.array_equal(trained(ledger, "run#2", "run").model[0], last.model[0])
    ledger.verify()
    ledger.close()


def test_a_ledger_where_no_file_can_be_created_records_no_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    ledger = Ledger(str(tmp_path / "market.db"))
    with pytest.raises(InputError, match=r"cannot create .*market\.db-rows-.*: No space left"):
        trained(ledger)
    assert not files(tmp_path)
    assert ledger.rounds_done("run") == 0
    monkeypatch.undo()
    trained(ledger)
    ledger.verify()
    ledger.close()


def test_the_rows_of_other_aggregators_stay_in_the_ledger(tmp_path: Path) -> None:
    plain = trained(Ledger("sqlite://", identity=IDENTITY), aggregator=Borrowed())
    ledger = Ledger(str(tmp_path / "market.db"), identity=IDENTITY)
    assert np.array_equal(trained(ledger, aggregator=Borrowed()).model[0], plain.model[0])
    assert "aggregator.rows" in (ledger.progress("run")[1] or {})
    assert not files(tmp_path)
    ledger.close()
