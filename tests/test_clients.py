"""The table of clients: what it takes, what it refuses, and how it travels."""

import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice import Bound, Clients, Game, InputError, population

replace: Any = dataclasses.replace  # mypy knows the arrays that are kept, not what becomes one

COLUMNS: dict[str, Any] = {
    "samples": [1, 3],
    "grad_norm": [1.0, 2.0],
    "cost": [4.0, 5.0],
    "value": [0.0, 9.0],
}


def columns(**change: Any) -> dict[str, Any]:
    merged = COLUMNS | change
    return {name: given for name, given in merged.items() if given is not None}


def test_weights_come_from_samples_or_are_given() -> None:
    assert Clients(**columns()).weight.tolist() == [0.25, 0.75]
    given = Clients(**columns(samples=None, weight=[0.4, 0.6]))
    assert given.weight.tolist() == [0.4, 0.6]
    assert given.samples is None


def test_norms_are_of_gradients_or_of_updates(tmp_path: Path) -> None:
    own = Clients(**columns(grad_norm=None, update_norm=[3.0, 5.0]))
    assert (own.norms, own.norm.tolist(), own.grad_norm) == ("updates", [3.0, 5.0], None)
    assert "update_norm" in own.to_frame().columns
    assert "grad_norm" not in own.to_frame().columns
    own.write(tmp_path / "clients.csv")
    again = Clients.read(tmp_path / "clients.csv")
    assert (again.norms, again.norm.tolist()) == ("updates", [3.0, 5.0])
    assert replace(again, cost=2).norms == "updates"
    back = again.with_norms([1, 2], "gradients")
    assert (back.norms, back.norm.tolist(), back.update_norm) == ("gradients", [1.0, 2.0], None)
    for change in ({"grad_norm": None}, {"update_norm": 1.0}):
        with pytest.raises(InputError, match="exactly one of `grad_norm` and `update_norm`"):
            Clients(**columns(**change))
    with pytest.raises(InputError, match="`update_norm` must be a finite number, at least 0; got"):
        Clients(**columns(grad_norm=None, update_norm=[1.0, -1.0]))
    both = back.to_frame().with_columns(pl.lit(1.0).alias("update_norm"))
    with pytest.raises(
        InputError, match="exactly one of the columns 'grad_norm' and 'update_norm'"
    ):
        Clients.from_frame(both)


@pytest.mark.parametrize("name", ["samples", "grad_norm", "cost", "value", "level_min"])
def test_what_the_caller_writes_into_its_array_later_changes_nothing(name: str) -> None:
    given = np.array([0.25, 0.75])
    clients = Clients(**columns(**{name: given}))
    given[0] = -5
    assert getattr(clients, name).tolist() == [0.25, 0.75]
    with pytest.raises(ValueError, match="read-only"):
        getattr(clients, name)[0] = 1


def test_what_the_caller_writes_into_a_broadcast_number_later_changes_nothing() -> None:
    number = np.array(4.0)
    clients = Clients(**columns(cost=np.broadcast_to(number, 2), value=number))
    number[()] = -5
    assert clients.cost.tolist() == clients.value.tolist() == [4, 4]
    assert clients.cost.strides == clients.value.strides == (0,)  # kept as one number


def test_names_cannot_be_written() -> None:
    names = np.array(["a", "b"], dtype=object)
    clients = Clients(**columns(ids=names))
    names[0] = ""
    assert clients.ids.tolist() == ["a", "b"]
    with pytest.raises(ValueError, match="read-only"):
        clients.ids[0] = "b"


def test_an_array_of_its_own_that_nobody_can_write_is_kept() -> None:
    cost = np.array([4.0, 5.0])
    cost.flags.writeable = False
    assert Clients(**columns(cost=cost)).cost is cost
    clients = Clients(**columns())
    again = replace(clients, value=1)
    for name in ("samples", "grad_norm", "cost"):
        assert np.shares_memory(getattr(again, name), getattr(clients, name)), name


@pytest.mark.parametrize("replaced", [replace, getattr(copy, "replace", None)])
@pytest.mark.parametrize("share", [{}, {"samples": None, "weight": [0.4, 0.6]}])
def test_replaced_clients_are_checked_and_keep_the_rest(replaced: Any, share: Any) -> None:
    if replaced is None:
        pytest.skip("copy.replace came with Python 3.13")
    clients = Clients(**columns(ids=["a", "b"], level_max=0.5, **share))
    again = replaced(clients, cost=[7, 8])
    assert again.cost.tolist() == [7, 8]
    assert again.ids.tolist() == ["a", "b"]
    for name in ("weight", "grad_norm", "value", "level_min", "level_max"):
        assert getattr(again, name).tolist() == getattr(clients, name).tolist()
    assert (again.samples is None) == (clients.samples is None)
    assert replaced(clients, ids=["c", "d"]).ids.tolist() == ["c", "d"]
    with pytest.raises(InputError, match="`cost` must be a finite number above 0; got -5 in row 1"):
        replaced(clients, cost=[-5, 1])


def test_replaced_samples_and_weights_must_agree() -> None:
    clients = Clients(**columns())
    assert replace(clients, samples=[2, 2], weight=None).weight.tolist() == [0.5, 0.5]
    assert replace(clients, samples=None, weight=[1, 0]).samples is None
    for change in ({"samples": [2, 2]}, {"weight": [0.5, 0.5]}):
        with pytest.raises(InputError, match=r"exactly one of `samples` and `weight`.* to None"):
            replace(clients, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"cost": [4, 0]},
            r"`cost` must be a finite number above 0; got 0 in row 2 \(client '2'\)",
        ),
        ({"cost": [-4, 1]}, "`cost` must be a finite number above 0; got -4 in row 1"),
        ({"cost": [np.nan, 1]}, "`cost` must be a finite number above 0; got nan in row 1"),
        ({"cost": [np.inf, 1]}, "`cost` must be a finite number above 0; got inf"),
        ({"value": [0, -1e-9]}, "`value` must be a finite number, at least 0; got -1e-09 in row 2"),
        ({"grad_norm": [1, np.nan]}, "`grad_norm` must be a finite number"),
        ({"samples": [1, -1]}, "`samples` must be a finite number, at least 0; got -1"),
        ({"samples": [0, 0]}, "`samples` must not be 0 for every client"),
        ({"samples": []}, "at least one"),
        ({"samples": [[1, 2]]}, r"got shape \(1, 2\)"),
        ({"samples": ["a", "b"]}, "`samples` must be numbers"),
        ({"weight": [0.5, 0.5]}, "exactly one of `samples` and `weight`"),
        ({"samples": None}, "exactly one of `samples` and `weight`"),
        ({"samples": None, "weight": [0.5, 0.6]}, "`weight` must sum to 1; got 1.1"),
        ({"samples": None, "weight": [0.5, 0.50001]}, "`weight` must sum to 1; got 1.00001"),
        ({"cost": [1]}, r"`cost` must have one entry for each of the 2 clients; got shape \(1,\)"),
        ({"samples": [1e308, 1e308]}, "the sum of samples lost its precision"),
        ({"level_min": 1.0000001}, "got 1.0000001"),
        ({"cost": [1, 2, 3]}, r"`cost` must have one entry for each of the 2 clients; got"),
        ({"level_max": 0}, r"`level_max` must be in \(0, 1\]; got 0"),
        ({"level_max": [1, 1.5]}, r"`level_max` must be in \(0, 1\]; got 1.5 in row 2"),
        ({"level_min": -0.1}, r"`level_min` must be in \[0, 1\]; got -0.1"),
        ({"level_min": [0, 0.6], "level_max": 0.5}, "`level_min` must be at most `level_max`"),
        ({"ids": ["a", "a"]}, "rows 1 and 2 are both 'a'"),
        ({"ids": ["a", ""]}, "client ids must not be empty; row 2"),
        ({"ids": ["a"]}, "`ids` must name each of the 2 clients; got 1"),
    ],
)
def test_bad_arrays(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Clients(**columns(**change))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("share", ["samples", "weight"])
def test_round_trip_is_exact(tmp_path: Path, suffix: str, share: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.random(50)
    given = (
        {"samples": rng.integers(1, 99, 50)}
        if share == "samples"
        else {"weight": weight / weight.sum()}
    )
    clients = Clients(
        **given,
        grad_norm=rng.random(50),
        cost=rng.exponential(1, 50),
        value=rng.exponential(1, 50),
        level_min=rng.random(50) / 3,
        level_max=0.5,
        ids=[f"client {n}, é" for n in range(50)],
    )
    clients.write(tmp_path / f"clients{suffix}")
    again = Clients.read(tmp_path / f"clients{suffix}")
    assert again.ids.tolist() == clients.ids.tolist()
    for name in ("weight", "grad_norm", "cost", "value", "level_min", "level_max"):
        assert np.array_equal(getattr(again, name), getattr(clients, name)), name


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1),
        min_size=1,
        unique=True,
    )
)
def test_any_name_survives_a_csv_and_none_starts_a_formula(names: list[str]) -> None:
    import tempfile

    clients = Clients(samples=np.ones(len(names)), grad_norm=1, cost=1, value=0, ids=names)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clients.csv"
        clients.write(path)
        raw = pl.read_csv(path, infer_schema=False)["client_id"].to_list()
        assert Clients.read(path).ids.tolist() == names
    assert not any(name.startswith(("=", "+", "-", "@", "\t", "\r")) for name in raw)


CSV = "client_id,samples,grad_norm,cost,value\na,10,1,2,3\nb,20,1,2,3\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("client_id,samples,grad_norm,cost,value\n", "no rows"),
        (CSV.replace("cost", "costs"), "Rename 'costs' to 'cost'."),
        (CSV.replace("value", "zzz"), "unknown column 'zzz'. Choose from 'client_id'"),
        (CSV.replace(",value", "").replace(",3", ""), "there is no column 'value'"),
        (
            CSV.replace("samples,", "").replace("10,", "").replace("20,", ""),
            "there is no column 'samples'; the columns are client_id, grad_norm, cost, value.",
        ),
        (CSV.replace("20", "many"), "column 'samples' must hold numbers; got 'many' in row 2"),
        (CSV.replace("20", ""), "column 'samples' must hold numbers; got nothing in row 2"),
        (
            CSV.replace("20", "nan"),
            "`samples` must be a finite number, at least 0; got nan in row 2",
        ),
        (CSV.replace("b,", "a,"), "rows 1 and 2 are both 'a'"),
        (CSV.replace("b,", ","), "client ids must not be empty; row 2"),
        (CSV.replace("cost", "value"), "there are two columns 'value'"),
        (CSV.replace("cost", "cost;"), "has both ',' and ';'"),
        (CSV + "c,1,1\n" * 2 + "d,1,1,1,1,1,1\n", "a row with more fields"),
        ("\x89PNG\r\n\x1a\n\0\0\0", "neither a CSV nor a Parquet file"),
        ("PAR1 but not really", "neither a CSV nor a Parquet file"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "clients.csv"
    path.write_text(text, encoding="utf-8", newline="")
    with pytest.raises(InputError) as caught:
        Clients.read(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_blank_lines_are_no_clients(tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    path.write_text(CSV + "\n\n", encoding="utf-8")
    assert Clients.read(path).ids.tolist() == ["a", "b"]


def test_bad_encoding(tmp_path: Path) -> None:
    path = tmp_path / "clients.csv"
    path.write_bytes(CSV.replace("b,", "\xff,").encode("latin-1"))
    with pytest.raises(InputError, match=r"is not UTF-8 text; save it as CSV \(UTF-8\)"):
        Clients.read(path)
    path.write_bytes(CSV.encode("utf-16")[:-1])
    with pytest.raises(InputError, match=r"begins like UTF-16 text but is not; save it as CSV"):
        Clients.read(path)


def test_directory_and_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        Clients.read(tmp_path)
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        Clients.read(tmp_path / "none.csv")


def test_parquet_with_other_types(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "client_id": [7, 8],
            "samples": [1, 3],
            "grad_norm": [1, 1],
            "cost": [1, 2],
            "value": [0, 1],
        }
    )
    frame.write_parquet(tmp_path / "clients.parquet")
    assert Clients.read(tmp_path / "clients.parquet").ids.tolist() == ["7", "8"]
    for bad in (pl.Series([[1.0], [2.0]]), pl.Series([1, 2], dtype=pl.Date)):
        frame.with_columns(cost=bad).write_parquet(tmp_path / "bad.parquet")
        with pytest.raises(InputError, match="column 'cost' must hold numbers"):
            Clients.read(tmp_path / "bad.parquet")
    binary = pl.Series([b"\xff", b"\xfe"])
    frame.with_columns(client_id=binary).write_parquet(tmp_path / "bad.parquet")
    with pytest.raises(InputError, match="column 'client_id' must hold text"):
        Clients.read(tmp_path / "bad.parquet")


def test_max_weight_sets_floors() -> None:
    clients = population(40)
    floored = clients.with_max_weight(2.0)
    assert (clients.weight / np.maximum(floored.level_min, 1e-300) <= 2 * (1 + 1e-12)).all()
    least = clients.weight.max()
    assert clients.with_max_weight(least).level_min.max() == 1
    with pytest.raises(InputError, match="`max_weight` must be at least"):
        clients.with_max_weight(least / 2)


def test_population_is_seeded() -> None:
    first, again, other = population(seed=1), population(seed=1), population(seed=2)
    assert np.array_equal(first.cost, again.cost)
    assert not np.array_equal(first.cost, other.cost)
    many = population(100_000)
    # Means of 100,000 exponentials: within six standard errors, missed once in 5e8 draws.
    assert many.cost.mean() == pytest.approx(50, abs=6 * 50 / np.sqrt(1e5))
    assert many.value.mean() == pytest.approx(4000, abs=6 * 4000 / np.sqrt(1e5))


@pytest.mark.parametrize(
    "copied",
    [
        copy.copy,
        copy.deepcopy,
        lambda clients: pickle.loads(pickle.dumps(clients)),
        lambda clients: replace(clients, level_max=0.5),
    ],
    ids=["copy", "deepcopy", "pickle", "replace"],
)
def test_what_is_unknown_stays_unknown_in_copies(copied: Any) -> None:
    clients = Clients(**columns(cost=None), ids=["a", "b"], classes=["x", "y"])
    again = copied(clients)
    assert again.unknown == clients.unknown == ("cost",)
    assert np.isnan(again.cost).all()
    assert (again.ids.tolist(), again.classes.tolist()) == (["a", "b"], ["x", "y"])
    assert again.weight.tolist() == clients.weight.tolist()
    with pytest.raises(InputError, match="the clients have no cost"):
        Game(again, bound=Bound(alpha=1, rounds=10), budget=1)
    with pytest.raises(ValueError, match="read-only"):
        again.weight[0] = 1
    known = replace(again, cost=[1, 2])
    assert known.unknown == ()
    with pytest.raises(InputError, match="`cost` must be a finite number above 0; got nan"):
        replace(known, cost=[np.nan, np.nan])
    with pytest.raises(InputError, match="`cost` must be a finite number above 0; got nan"):
        replace(again, cost=[np.nan, 1])
