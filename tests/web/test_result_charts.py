"""Charts of a reproduction, and the directory that they are read from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from fedprice.errors import InputError
from fedprice.web.reproduction import read_reproduction
from fedprice.web.result_charts import curve_chart, end_of, figures_of, seeds_of, verdict_chart

from .small_reproduction import write_small

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_small(tmp_path / "results")


def test_verdicts_have_what_was_claimed_and_found(folder: Path) -> None:
    verdicts = read_reproduction(folder).verdicts
    assert verdicts.title == "Verdicts"
    assert verdicts.note.startswith("A claim says")
    assert verdicts.columns == ["setup", "claim", "paper", "ours", "verdict"]
    first = verdicts.rows[0]
    assert first[3].text == "0.90 (0.80 to 1.00)"
    assert first[3].number == 0.9
    assert first[4].text == "holds"
    assert verdicts.rows[1][2] == ("smaller", None)
    assert verdicts.rows[1][3].text == "1.2"  # without an interval


def test_tables_come_in_the_order_of_the_report_with_their_headings(folder: Path) -> None:
    found = read_reproduction(folder)
    assert [table.key for table in found.tables] == ["table-v", "table-ii"]
    assert found.tables[0].title == "Table V: clients with a negative price, Setup 1"
    assert found.tables[1].rows[0][1].text == "∞"
    assert found.tables[1].only("Setup 2").rows == []
    assert found.tables[0].only("Setup 2") is found.tables[0]


def test_facts_are_read_and_broken_ones_do_not_matter(folder: Path) -> None:
    assert read_reproduction(folder).finished == "2026-01-02"
    (folder / "run.json").write_text("[1, 2")
    assert read_reproduction(folder).finished == ""
    (folder / "run.json").write_text(json.dumps({"wall_seconds": "long"}))
    assert read_reproduction(folder).seconds == 0


def test_runs_with_random_levels_have_no_curve(folder: Path) -> None:
    runs = read_reproduction(folder).runs["setup1"]
    assert "levels=0" not in runs
    assert figures_of(runs) == {
        "schemes": ["equilibrium", "uniform"],
        "sweep": ["equilibrium", "mean_value=0"],
        "bias": ["equilibrium", "fedavg"],
    }
    assert seeds_of(runs, ["equilibrium"]) == [0, 1, 2]


def test_a_curve_is_the_mean_of_the_seeds_that_are_shown(folder: Path) -> None:
    runs = read_reproduction(folder).runs["setup1"]
    every = curve_chart(runs, "schemes", "loss")
    some = curve_chart(runs, "schemes", "loss", hidden=[0])
    ends = []
    for chart in (every, some):
        mean = next(s for s in chart["series"] if s.get("z") == 3)
        ends.append(mean["data"][-1][1])
    end = end_of(runs, ["equilibrium", "uniform"])
    last = [np.interp(end, run.time, run.loss) for run in runs["equilibrium"]]
    assert ends[0] == pytest.approx(np.mean(last), rel=1e-5)
    assert ends[1] == pytest.approx(np.mean(last[1:]), rel=1e-5)


def test_single_runs_replace_the_band(folder: Path) -> None:
    runs = read_reproduction(folder).runs["setup1"]
    bands = curve_chart(runs, "schemes", "accuracy")["series"]
    lines = curve_chart(runs, "schemes", "accuracy", single=True)["series"]
    assert [s["name"] for s in lines].count("seed 1") == 2
    assert sum("areaStyle" in s for s in bands) == 2
    assert not any("areaStyle" in s for s in lines)


def test_a_chart_without_any_seed_is_empty_and_one_seed_has_no_band(folder: Path) -> None:
    runs = read_reproduction(folder).runs["setup1"]
    assert curve_chart(runs, "schemes", "loss", hidden=[0, 1, 2])["series"] == []
    assert len(curve_chart(runs, "schemes", "loss", hidden=[0, 1])["series"]) == 2


def test_charts_are_plain_json_even_where_a_run_diverged(folder: Path) -> None:
    frame = pl.read_parquet(folder / "results.parquet")
    diverged = pl.when(pl.col("run") == "fedavg").then(float("nan")).otherwise(pl.col("loss"))
    frame.with_columns(loss=diverged).write_parquet(folder / "results.parquet")
    runs = read_reproduction(folder).runs["setup1"]
    json.dumps(curve_chart(runs, "bias", "loss"), allow_nan=False)
    json.dumps(verdict_chart({"holds": 3}), allow_nan=False)


def test_a_directory_that_holds_no_reproduction_is_named_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"holds no finished reproduction\. Run: fedprice reproduce"
    ):
        read_reproduction(tmp_path)
    with pytest.raises(InputError, match="there is no directory"):
        read_reproduction(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["results.parquet", "results.md", "tables/verdicts.csv"])
def test_a_link_that_leads_out_of_the_directory_is_refused(folder: Path, name: str) -> None:
    outside = folder.parent / "outside"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    with pytest.raises(InputError, match="leads out of the directory, so it is not read"):
        read_reproduction(folder)


def test_a_directory_of_tables_that_lies_elsewhere_is_refused(folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / "tables").rename(outside)
    (folder / "tables").symlink_to(outside)
    with pytest.raises(InputError, match="leads out of the directory"):
        read_reproduction(folder)


@pytest.mark.parametrize("content", [b"", b"PAR1 nonsense", b"a,b\n1,2\n"])
def test_curves_that_cannot_be_read_give_one_line(folder: Path, content: bytes) -> None:
    (folder / "results.parquet").write_bytes(content)
    with pytest.raises(InputError, match=r"results\.parquet"):
        read_reproduction(folder)
