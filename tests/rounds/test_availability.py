"""Absence: shares in the long run, the same rounds from any start, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedprice import InputError
from fedprice.data.synthetic import synthetic
from fedprice.learning import Clock, LogisticRegression, Training
from fedprice.rounds import simulate, training_fingerprint
from fedprice.rounds.availability import (
    Availability,
    ByLabel,
    Cyclic,
    Diurnal,
    Independent,
    Markov,
    Trace,
    availability_of,
)
from fedprice.rounds.coins import coins_of
from fedprice.rounds.participation import Drawn
from fedprice.testing import check_availability
from tests.tasks import small_task

KINDS = [Independent(0.3), Markov(0.3, 10), Markov(0.5, 1), Cyclic(20, 0.3), Diurnal(20, 0.3),
         ByLabel(20, 0.3)]  # fmt: skip
ROUNDS: dict[str, Any] = {"rounds": 12, "evaluate_every": 5, "seed": 3}
TRACE = "client,from,to\n1,0,100\n2,0,6\n2,4,12\n3,6,12\n4,0,1\n5,0,1\n6,0,9\n7,3,9\n8,2,4\n"


@pytest.fixture(scope="module")
def task() -> LogisticRegression:
    return LogisticRegression(synthetic(num_clients=8, samples=800), Training(local_steps=5))


def refuse(done: int) -> None:
    """Fail if a round is over."""
    pytest.fail(f"{done} rounds were trained")


def there(kind: Availability, task: Any, rounds: int, seed: int = 1) -> np.ndarray:
    presence = kind.begin(task, rounds, seed)
    return np.array([presence.available(r) for r in range(rounds)])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_kinds_keep_their_rules(task: LogisticRegression, kind: Availability) -> None:
    """Of 20,000 rounds; the spells of Markov(0.3, 10) leave it a standard deviation of 0.012."""
    check_availability(kind, task)


@pytest.mark.parametrize(
    "kind",
    [Independent(0.8), Markov(0.8, 2), Cyclic(20, 0.8), Diurnal(20, 0.8), ByLabel(20, 0.8)],
    ids=str,
)
def test_who_is_mostly_there_is_there_for_its_share(task: LogisticRegression, kind: Any) -> None:
    assert there(kind, task, 2000).mean() == pytest.approx(0.8, abs=0.02)
    assert kind.begin(task, 2000, 1).share == pytest.approx(np.full(8, 0.8))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_other_seeds_give_other_rounds(task: LogisticRegression, kind: Any) -> None:
    if not isinstance(kind, ByLabel):
        assert (there(kind, task, 50, seed=2) != there(kind, task, 50)).any()


def test_spells_of_a_markov_chain_have_their_mean_lengths() -> None:
    """2,000 clients: absences of 10 rounds, presences of 10 · 0.3 / 0.7."""
    found = there(Markov(0.3, 10), small_task(2000), 300)
    assert found[0].mean() == pytest.approx(0.3, abs=0.06)  # it begins as it goes on
    left, entered = (found[:-1] & ~found[1:]).sum(), (~found[:-1] & found[1:]).sum()
    assert (~found[:-1]).sum() / entered == pytest.approx(10, rel=0.05)
    assert found[:-1].sum() / left == pytest.approx(30 / 7, rel=0.05)


def test_a_cycle_has_one_spell_per_period() -> None:
    found = there(Cyclic(10, 0.3), small_task(200), 100)
    assert (found[:90] == found[10:]).all()
    assert (found[:10].sum(axis=0) == 3).all()
    assert ((~found[:-1] & found[1:])[:90].sum(axis=0) == 9).all()
    assert len({tuple(row) for row in found[:10].T}) == 10  # clients begin at different times


def test_diurnal_probability_is_a_sine() -> None:
    """Over time zones, half a day apart the product of chances averages 0.08, a day apart 0.24."""
    found = there(Diurnal(24, 0.4), small_task(20_000), 25)
    assert (found[0] & found[12]).mean() == pytest.approx(0.08, abs=0.02)
    assert (found[0] & found[24]).mean() == pytest.approx(0.24, abs=0.02)


def test_similar_labels_are_there_together(task: LogisticRegression) -> None:
    found, order = there(ByLabel(8, 0.5), task, 8), task.label_order()
    assert (found[:, order].sum(axis=1) == 4).all()
    for row in found[:, order]:
        assert (row != np.roll(row, 1)).sum() == 2  # one run of neighbours, around the circle


def test_who_is_away_neither_joins_nor_takes_time(task: LogisticRegression, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    trace, clock = Trace(path), Clock(compute=np.arange(1.0, 9.0), transfer=np.ones(8))
    history = simulate(task, 1.0, availability=trace, clock=clock, **ROUNDS)
    assert history.joined.tolist() == [5, 3, 4, 5, 4, 4, 5, 5, 5, 3, 3, 3]
    assert history.time[1] == pytest.approx(7 + 7 + 9 + 9 + 8)
    presence = trace.begin(task, 12, 0)
    assert presence.share * 12 == pytest.approx([12, 12, 6, 1, 1, 9, 6, 2])
    assert history.largest_weight[0] == pytest.approx((task.weight[[3, 4]] * 12).max())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_resumed_is_uninterrupted(task: LogisticRegression, tmp_path: Path, kind: Any) -> None:
    def stop(done: int) -> None:
        if done == 8:
            raise KeyboardInterrupt

    path, settings = tmp_path / "run.npz", ROUNDS | {"availability": kind, "rounds": 20}
    with pytest.raises(KeyboardInterrupt):
        simulate(task, 0.7, checkpoint=path, progress=stop, **settings)
    resumed, whole = (simulate(task, 0.7, checkpoint=p, **settings) for p in (path, None))
    assert resumed.joined.tolist() == whole.joined.tolist()
    assert resumed.loss.tolist() == whole.loss.tolist()
    with pytest.raises(InputError, match="the checkpoint of another run"):
        simulate(task, 0.7, checkpoint=path, **ROUNDS)


def test_fingerprints_contain_the_availability(tmp_path: Path) -> None:
    path, other = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text(TRACE, encoding="utf-8")
    other.write_text(TRACE, encoding="utf-8")

    def of(kind: Availability | None) -> str:
        return training_fingerprint(small_task(8), 0.5, rounds=9, seed=1, availability=kind)

    without = training_fingerprint(small_task(8), 0.5, rounds=9, seed=1)
    assert of(None) == without
    assert len({of(kind) for kind in (None, *KINDS, Trace(path))}) == 8
    assert of(Trace(path)) == of(Trace(other))
    other.write_text(TRACE.replace("8,2,4", "8,2,5"), encoding="utf-8")
    assert of(Trace(path)) != of(Trace(other))


def test_spaced_coins_fall_in_step_with_a_cycle_and_blocks_do_not() -> None:
    """A level of 1/4 and a period of 4: spaced, most clients are never there when called."""
    task, kind = small_task(400), Cyclic(4, 0.25)
    joined = {}
    for coins in ("independent", "spaced", "blocks"):
        drawn = Drawn(
            coins_of(coins, np.full(400, 0.25), 1, task), np.ones(400), kind.begin(task, 400, 1)
        )
        joined[coins] = np.zeros(400)
        for r in range(400):
            joined[coins][drawn.heads(r)] += 1
        assert joined[coins].mean() == pytest.approx(25, abs=5)
    assert (joined["spaced"] == 0).mean() == pytest.approx(3 / 4, abs=0.1)
    assert (joined["spaced"][joined["spaced"] > 0] == 100).all()
    assert joined["blocks"].min() > 8
    assert joined["independent"].min() > 5


@pytest.mark.parametrize("kind", [Cyclic(400, 0.25), ByLabel(400, 0.25)], ids=str)
def test_who_is_never_there_is_named_before_training(task: LogisticRegression, kind: Any) -> None:
    with pytest.raises(InputError, match=r"client '\d' is never there in the 20 rounds"):
        simulate(task, 0.5, rounds=20, availability=kind, progress=refuse)


@pytest.mark.parametrize(
    ("kind", "coins"),
    [
        ("cyclic:4,0.25", "spaced"),
        ("by-label:4,0.5", "spaced"),
        ("diurnal:4,0.5", "spaced"),
        ("trace", "spaced"),
        ("trace", "shared"),
    ],
)
def test_coins_in_step_with_known_absences_are_refused_before_training(
    task: LogisticRegression, tmp_path: Path, kind: str, coins: str
) -> None:
    """The client of the trace is there in three rounds of four, in none of which it is called."""
    path = tmp_path / "trace.csv"
    called = [3 in coins_of(coins, np.full(8, 0.25), 1, task).heads(r) for r in range(200)]
    rows = [f"{n},0,200\n" for n in (1, 2, 3, 5, 6, 7, 8)]
    rows += [f"4,{r},{r + 1}\n" for r in range(200) if not called[r]]
    path.write_text("client,from,to\n" + "".join(rows), encoding="utf-8")
    availability = availability_of(str(path) if kind == "trace" else kind)
    settings: dict[str, Any] = {"rounds": 200, "seed": 1, "availability": availability}
    with pytest.raises(InputError, match="nearly all rounds in which its evenly spaced coin"):
        simulate(task, 0.25, coins=coins, progress=refuse, **settings)
    assert simulate(task, 0.25, coins="blocks", **settings).joined.any()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("client,from\n1,2", "must have the columns client, from and to; it has client, from"),
        ("client,from,to\n1,0,9", "client '2' is never there in the 12 rounds of this run"),
        (TRACE + "9,0,5\n", "names client '9', which synthetic"),
        (TRACE + "1,5,5\n", "row 10 must have whole numbers with 0 ≤ from < to; got 5 and 5"),
        (TRACE + "1,-1,5\n", "row 10 must have whole numbers with 0 ≤ from < to; got -1 and 5"),
        (TRACE + "1,1.5,5\n", "row 10 must have whole numbers with 0 ≤ from < to; got 1.5 and 5"),
        (TRACE + "1,x,5\n", "column 'from' must hold numbers; got 'x' in row 10"),
        (TRACE.replace("8,2,4", "8,20,40"), "client '8' is never there in the 12 rounds"),
    ],
)
def test_bad_traces(task: LogisticRegression, tmp_path: Path, rows: str, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(rows, encoding="utf-8")
    with pytest.raises(InputError, match=message) as error:
        simulate(task, 0.5, availability=Trace(path), **ROUNDS)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("markov:0.5", "availability must be markov:SHARE,LENGTH; got 'markov:0.5'"),
        ("markov:a,b", "availability must be markov:SHARE,LENGTH; got 'markov:a,b'"),
        ("markov:0.1,5", "`length` must be at least 9 rounds for a share of 0.1; got 5"),
        ("markov:0.9,0.5", "`length` must be at least 1 rounds for a share of 0.9; got 0.5"),
        ("markov:0.9,inf", "must be at least"),
        ("independent:0", "`share` must be above 0 and at most 1; got 0"),
        ("independent:nan", "`share` must be above 0 and at most 1; got nan"),
        ("cyclic:0.5,24", "`share` must be above 0 and at most 1; got 24"),
        ("cyclic:1,0.5", "`period` must be a whole number of rounds, at least 2; got 1"),
        ("diurnal:24.5,0.5", "`period` must be a whole number of rounds, at least 2; got 24.5"),
        ("by-label:10,0.01", "`share` of a period of 10 rounds must be at least one round; got"),
        ("markow:0.5,20", "there is no availability 'markow:0.5,20', nor a CSV file. Did you mean"),
        ("none.csv", "cannot read none.csv: No such file"),
    ],
)
def test_bad_words(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        availability_of(text)


def test_words() -> None:
    texts = ["independent:0.3", "markov:0.3,10", "markov:0.5,1", "cyclic:20,0.3", "diurnal:20,0.3",
             "by-label:20,0.3"]  # fmt: skip
    assert [availability_of(text) for text in texts] == KINDS
    assert availability_of("by-label:20") == ByLabel(20, 0.5)


def test_what_does_not_fit_the_task_is_refused(task: LogisticRegression) -> None:
    with pytest.raises(InputError, match=r"needs a fp\.LogisticRegression, whose labels are known"):
        simulate(small_task(), 0.5, availability=ByLabel(10))
    with pytest.raises(InputError, match=r"must be one of fedprice\.rounds\.availability"):
        simulate(task, 0.5, availability="markov:0.5,20")  # type: ignore[arg-type]
