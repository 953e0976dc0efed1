"""Data files of one's own: the same federation from every format, and one line for bad files."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fedprice import InputError
from fedprice.data import Federation, read_federation

WARDS = """\
client_id,label,age,dose,split
south,ill,61,0.5,train
north,well,44,0.25,train
south,well,38,-1e-3,train
north,ill, 70 ,0.125,train
north,well,30,2,test
,ill,50,3,test
"""


def read(folder: Path, text: str, **options: Any) -> Federation:
    path = folder / "wards.csv"
    path.write_text(text, encoding="utf-8")
    return read_federation(path, **options)


def table(rows: int, clients: int, seed: int = 0) -> str:
    """A file without a test set; client n has a sample of class 0 and others at random."""
    rng = np.random.default_rng(seed)
    lines = ["client_id,label,x"]
    for row in range(rows):
        label = 0 if row < clients else rng.integers(0, 3)
        lines.append(f"{row % clients},{label},{row}")
    return "\n".join(lines) + "\n"


def test_a_small_table(tmp_path: Path) -> None:
    federation = read(tmp_path, WARDS)
    assert (federation.name, federation.ids) == ("wards", ("south", "north"))
    assert federation.num_classes == 2
    assert federation.offsets.tolist() == [0, 2, 4]
    assert federation.features.tolist() == [
        [61, 0.5],
        [38, np.float32(-1e-3)],
        [44, 0.25],
        [70, 0.125],
    ]
    assert federation.labels.tolist() == [0, 1, 1, 0]
    assert federation.test_features.tolist() == [[30, 2], [50, 3]]
    assert federation.test_labels.tolist() == [1, 0]
    assert read(tmp_path, WARDS, name="other").name == "other"


def test_every_format_gives_the_same_federation(tmp_path: Path) -> None:
    federation = read(tmp_path, WARDS)
    frame = pl.read_csv(tmp_path / "wards.csv").with_columns(
        pl.col("age").cast(pl.String).str.strip_chars().cast(pl.Int16),
        pl.col("label", "client_id").cast(pl.Categorical),
    )
    frame.write_parquet(tmp_path / "wards.parquet")
    train = frame.filter(pl.col("split") == "train")
    test = frame.filter(pl.col("split") == "test")
    np.savez(
        tmp_path / "wards.npz",
        features=train.select("age", "dose").to_numpy().reshape(4, 2, 1),
        labels=train["label"].to_numpy().astype(str),
        client_ids=train["client_id"].to_numpy().astype(str),
        test_features=test.select("age", "dose").to_numpy().reshape(2, 2, 1),
        test_labels=test["label"].to_numpy().astype(str),
    )
    (tmp_path / "wards.csv").rename(tmp_path / "wards.CSV")
    for suffix in ("CSV", "parquet", "npz"):
        same = read_federation(tmp_path / f"wards.{suffix}")
        assert same.fingerprint == federation.fingerprint, suffix


def test_order_of_clients_and_classes(tmp_path: Path) -> None:
    """Numbers count as numbers, however they are stored; names come as they appear."""

    def order(ids: Any, labels: Any) -> tuple[tuple[str, ...], list[int]]:
        path = tmp_path / "own.npz"
        x = np.arange(4)
        np.savez(
            path, features=x, labels=labels, client_ids=ids, test_features=x, test_labels=labels
        )
        federation = read_federation(path)
        return federation.ids, federation.labels.tolist()

    assert order([10, 9, 10, -1], [30, 4, 4, 30]) == (("-1", "9", "10"), [1, 0, 1, 0])
    assert order([10.0, 9, 10, -1], [30.0, 4, 4, 30]) == (("-1", "9", "10"), [1, 0, 1, 0])
    assert order(["10", "9", "10", "-1"], ["30", "4", "4", "30"]) == (
        ("-1", "9", "10"),
        [1, 0, 1, 0],
    )
    assert order(["10", "b", "10", "a"], ["x", "4", "4", "x"]) == (("10", "b", "a"), [1, 0, 0, 1])
    big_endian = np.array([10, 9, 10, 9], ">i4")
    assert order(big_endian, big_endian) == (("9", "10"), [0, 0, 1, 1])
    assert order([1, 1, 2, 2], [True, False, True, False]) == (("1", "2"), [1, 0, 1, 0])


def test_a_share_of_every_client_is_set_aside(tmp_path: Path) -> None:
    text = table(100, 5)
    federation = read(tmp_path, text)
    assert federation.samples.tolist() == [16] * 5
    assert federation.fingerprint == read(tmp_path, text).fingerprint
    assert federation.fingerprint != read(tmp_path, text, seed=1).fingerprint
    everything = np.concatenate([federation.features, federation.test_features])[:, 0]
    assert sorted(everything.tolist()) == list(range(100))
    for n in range(5):
        own = federation.client(n)[0][:, 0]
        assert (own % 5 == n).all()
        assert (np.diff(own) > 0).all()  # in the order of the file
    assert read(tmp_path, text, test_share=0.5).test_labels.size == 50


def test_small_clients_together_give_their_share(tmp_path: Path) -> None:
    federation = read(tmp_path, table(100, 50))  # two rows each
    assert federation.test_labels.size == 20
    assert federation.samples.min() == 1
    nearly_all = read(tmp_path, table(100, 50), test_share=0.99)
    assert nearly_all.samples.min() == 1


@pytest.mark.parametrize("seed", range(20))
def test_every_class_keeps_a_training_row(tmp_path: Path, seed: int) -> None:
    text = "client_id,label,x\n" + "".join(f"1,{row // 2},{row}\n" for row in range(20))
    federation = read(tmp_path, text, test_share=0.7, seed=seed)
    assert federation.num_classes == np.unique(federation.labels).size == 10
    assert federation.test_labels.size > 0


HEAD = "client_id,label,x\n"
ROWS = "a,0,1\na,1,2\nb,0,3\nb,1,4\n"
SPLIT = "client_id,label,x,split\na,0,1,train\na,1,2,train\nb,0,3,train\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; its first line must name the columns"),
        (HEAD, "there are no rows below the names of the columns"),
        (
            "client,label,x\na,0,1\n",
            "no column 'client_id'; the columns are client, label, x. Rename",
        ),
        ("client_id,y,x\na,0,1\n", "there is no column 'label'; the columns are client_id, y, x"),
        ("client_id,label,x,label\na,0,1,1\n", "there are two columns 'label'"),
        ("client_id,label\na,0\n", "there is no column with a feature"),
        (HEAD + "a,0,1\nb,0,2\n", "at least two classes; all training rows have the label 0"),
        (HEAD + ROWS + "b,,5\n", "column 'label' must not be empty; got nothing in row 5"),
        (HEAD + ROWS + "b,0.5,5\n", "column 'label' must hold whole numbers .* got '0.5' in row 5"),
        (HEAD + ROWS + "b,1e300,5\n", "column 'label' must hold whole numbers below 2.53, or text"),
        (HEAD + ROWS + "b,nan,5\n", "column 'label' must hold whole numbers .* got 'nan' in row 5"),
        (HEAD + ROWS + "b,1,\n", "column 'x' must hold finite numbers .* got nothing in row 5"),
        (HEAD + ROWS + "b,1,tall\n", "column 'x' must hold finite numbers .* got 'tall' in row 5"),
        (HEAD + ROWS + "b,1,inf\n", "column 'x' must hold finite numbers .* got 'inf' in row 5"),
        (HEAD + ROWS + "b,1,1e39\n", "column 'x' must hold finite numbers .* got '1e39' in row 5"),
        (HEAD + ROWS + ",1,5\n", "every training row needs a client id; row 5 has none"),
        (HEAD + ROWS + " ,1,5\n", "every training row needs a client id; row 5 has none"),
        (HEAD + "a,0,1\nb,1,2\n", "2 rows are too few to set some aside as a test set"),
        (SPLIT, "the test set has no rows. Mark some rows as test"),
        (
            SPLIT + "b,1,4,valid\n",
            "column 'split' must hold 'train' or 'test'; got 'valid' in row 4",
        ),
        (SPLIT + "b,1,4,\n", "column 'split' must hold 'train' or 'test'; got nothing in row 4"),
        (SPLIT + "b,7,4,test\n", "no class that is unseen in training; got 7 in row 4"),
        (SPLIT + "c,1,4,test\n", "client 'c' has only test rows, the first in row 4"),
        ("client_id,label,x,split\n,1,4,test\n", "there are no training rows"),
        ("client_id;label;x,y\na;0;1\n", "has both ',' and ';', so that the separator"),
    ],
)
def test_bad_tables(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(tmp_path, text)
    assert str(caught.value).count(str(tmp_path / "wards.csv")) == 1
    assert "\n" not in str(caught.value)


def test_bad_columns_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "wards.parquet"
    good = pl.DataFrame({"client_id": [1, 1, 2], "label": [0, 1, 0], "x": [1.0, 2.0, 3.0]})
    for column, values, message in (
        ("x", [[1], [2], [3]], "column 'x' must hold numbers or text; got List"),
        ("x", [1.0, None, 3.0], "column 'x' must hold finite numbers .* got nothing in row 2"),
        ("x", [None] * 3, "column 'x' must hold finite numbers .* got nothing in row 1"),
        ("label", [0, 1, 0.5], "column 'label' must hold whole numbers .* got 0.5 in row 3"),
        ("label", [0, None, 1], "column 'label' must hold whole numbers .* got nothing in row 2"),
        ("label", [{"a": 1}] * 3, "column 'label' must hold numbers or text; got Struct"),
        (
            "client_id",
            [1, 2.5, 1],
            "column 'client_id' must hold text or whole .* got 2.5 in row 2",
        ),
        ("client_id", [b"\xff"] * 3, "column 'client_id' must hold text .* got Binary"),
        ("client_id", [1, 1e300, 1], r"column 'client_id' must hold text .* got 1e\+300 in row 2"),
        ("client_id", [1, None, 1], "every training row needs a client id; row 2 has none"),
    ):
        good.with_columns(pl.Series(column, values, strict=False)).write_parquet(path)
        with pytest.raises(InputError, match=message):
            read_federation(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "there is no array 'labels'; the arrays are features, client_ids"),
        ({"test_label": [0]}, "unknown array 'test_label'. Did you mean 'test_labels'"),
        ({"test_labels": [0]}, "there is no array 'test_features'"),
        (
            {"labels": [0, 1]},
            "array 'labels' must hold one .* of the 4 rows of 'features'; got int64",
        ),
        ({"client_ids": [b"a"] * 4}, "array 'client_ids' must hold one whole number or text"),
        ({"client_ids": np.array(["a"] * 4, object)}, r"not an npz of numbers .* `.astype\(str\)`"),
        ({"client_ids": [1, 2, np.nan, 1]}, "every training row needs a client id; row 3 has none"),
        ({"labels": [0, 1, 0, 1.5]}, "labels must hold whole numbers .* got 1.5 in row 4"),
        ({"labels": [1, 1, 1, 1]}, "all training rows have the label 1"),
        ({"features": ["a"] * 4}, "array 'features' must hold numbers, one row per sample"),
        (
            {"features": np.zeros((0, 2))},
            "must hold one whole number or text for each of the 0 rows",
        ),
        ({"features": np.zeros((4, 0))}, r"array 'features' is empty; got shape \(4, 0\)"),
        (
            {"features": [[1, 2], [1, np.inf], [1, 2], [3, 4]]},
            "array 'features' must hold finite numbers .* got inf in row 2, column 2",
        ),
        ({"features": [1, 2, 1e300, 4]}, r"got 1e\+300 in row 3, column 1"),
        (
            {"test_features": np.zeros((2, 3)), "test_labels": [0, 1]},
            r"samples of the same shape; got \(2,\) and \(3,\)",
        ),
        (
            {"test_features": np.zeros((2, 2)), "test_labels": [0, 5]},
            "unseen in training; got 5 in row 2 of the test set",
        ),
        ({"test_features": np.zeros((0, 2)), "test_labels": []}, "'test_features' is empty"),
    ],
)
def test_bad_npz(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = tmp_path / "own.npz"
    arrays = {"features": np.zeros((4, 2)), "labels": [0, 1, 0, 1], "client_ids": [1, 1, 2, 2]}
    arrays = {name: value for name, value in (arrays | changes).items() if value is not None}
    np.savez(path, **arrays)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message) as caught:
        read_federation(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_the_first_row_of_the_test_set_is_named_as_one_of_it(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(
        path, features=np.zeros((4, 2)), labels=[0, 1, 0, 1], client_ids=[1, 1, 2, 2],
        test_features=np.zeros((2, 2)), test_labels=[5, 0],
    )  # fmt: skip
    with pytest.raises(InputError, match="got 5 in row 1 of the test set"):
        read_federation(path)


def test_files_that_are_none(tmp_path: Path) -> None:
    for name, content in (("junk.npz", b"junk"), ("empty.npz", b""), ("cut.npz", b"PK\3\4cut")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="is not an npz of numbers and text"):
            read_federation(tmp_path / name)
    for name in ("none.npz", "none.csv", "none.parquet"):
        with pytest.raises(InputError, match=f"cannot read .*{name}: No such file"):
            read_federation(tmp_path / name)
    with pytest.raises(InputError, match=r"by its suffix; use one of .csv, .parquet, .npz"):
        read_federation(tmp_path / "data.xlsx")


def test_bad_options(tmp_path: Path) -> None:
    for options, message in (
        ({"test_share": 0}, "`test_share` must be above 0 and below 1; got 0"),
        ({"test_share": float("nan")}, "`test_share` must be above 0 and below 1; got nan"),
        ({"test_share": "much"}, "`test_share` must be a number; got 'much'"),
        ({"seed": -1}, "`seed` must be a whole number, at least 0; got -1"),
    ):
        with pytest.raises(InputError, match=message):
            read(tmp_path, HEAD + ROWS, **options)
    with pytest.raises(InputError, match="a test set of its own; leave out `test_share`"):
        read(tmp_path, WARDS, test_share=0.2)
