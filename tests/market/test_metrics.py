"""Metrics beside the chain: kept as they are, replaced when measured again, trusted by nobody."""

import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedprice.errors import InputError
from fedprice.market.ledger import DamagedError, Ledger
from fedprice.market.metrics import LARGEST, RoundMetrics, metrics_text, round_metrics

NUMBERS = st.integers(-(2**63) + 1, 2**63 - 1) | st.floats()


def test_metrics_are_kept_in_order_and_replaced(url: str) -> None:
    ledger = Ledger(url)
    ledger.record_metrics("run", 10, "server", {"loss": 0.5})
    ledger.record_metrics("run", 2, "server", {"loss": 1.5, "per class": [0.25, math.inf]})
    ledger.record_metrics("run", 2, "clients", {"eval_loss": 9, "samples": 3})
    ledger.record_metrics("run", 2, "train", {"train_loss": -math.inf})
    ledger.record_metrics("run#2", 11, "server", {})
    ledger.record_metrics("run", 2, "clients", {"eval_loss": 2.5})
    assert ledger.metrics("run") == [
        RoundMetrics("run", 2, "train", {"train_loss": -math.inf}),
        RoundMetrics("run", 2, "clients", {"eval_loss": 2.5}),
        RoundMetrics("run", 2, "server", {"loss": 1.5, "per class": [0.25, math.inf]}),
        RoundMetrics("run", 10, "server", {"loss": 0.5}),
    ]
    assert ledger.metrics("run#2") == [RoundMetrics("run#2", 11, "server", {})]
    assert ledger.metrics("other") == []
    assert len(ledger.verify().hashes) == 1  # there is no entry of them
    ledger.close()


@given(st.dictionaries(st.sampled_from(["loss", "a b", "ü"]), NUMBERS | st.lists(NUMBERS)))
def test_every_number_survives(metrics: dict[str, Any]) -> None:
    kept = round_metrics("run", 0, "server", metrics_text(metrics)).metrics
    assert repr(kept) == repr(metrics)  # NaN is not equal to itself, and 1 is not 1.0


def test_numbers_of_numpy_are_numbers() -> None:
    given = {"loss": np.float32(0.5), "samples": np.int64(3), "both": (np.float64("nan"), 1)}
    assert metrics_text(given) == '{"loss":0.5,"samples":3,"both":["nan",1]}'


@pytest.mark.parametrize(
    ("round_", "who", "metrics", "said"),
    [
        (-1, "server", {}, "`round` must be a whole number, at least 0; got -1"),
        (2**63, "server", {}, "`round` must be a whole number"),
        (True, "server", {}, "`round` must be a whole number"),
        (0, "somebody", {}, "`who` must be one of train, clients, server; got 'somebody'"),
        (0, "server", {"loss\n": 1}, "`metric` must be 1 to 200 printable characters"),
        (0, "server", {"": 1}, "`metric` must be 1 to 200 printable characters"),
        (0, "server", {3: 1}, "`metric` must be 1 to 200 printable characters"),
        (0, "server", {"loss": "0.5"}, "metric 'loss' must be a number .* got '0.5'"),
        (0, "server", {"loss": None}, "metric 'loss' must be a number"),
        (0, "server", {"loss": True}, "metric 'loss' must be a number"),
        (0, "server", {"loss": 2**63}, "metric 'loss' must be a number of at most 64 bits"),
        (0, "server", {"loss": [[1]]}, r"metric 'loss' must be a number .* got \[1\]"),
        (0, "server", {"all": [0.5] * LARGEST}, "the metrics of a round take 4,194,313 bytes; at"),
    ],
)
def test_what_is_no_metric(round_: Any, who: str, metrics: Any, said: str) -> None:
    ledger = Ledger("sqlite://")
    with pytest.raises(InputError, match=said):
        ledger.record_metrics("run", round_, who, metrics)
    assert ledger.metrics("run") == []
    ledger.close()


@pytest.mark.parametrize(
    "change",
    [
        "metrics = 'x'",
        "metrics = '[]'",
        "metrics = '[1]'",
        "metrics = x'00'",
        "metrics = 7",
        """metrics = '{"loss":"much"}'""",
        """metrics = '{"loss":null}'""",
        """metrics = '{"loss":[[1]]}'""",
        """metrics = '{"loss":1' || printf('%0400d', 0) || '}'""",
        """metrics = '{"' || char(27) || '[2J":1}'""",
        "metrics = replace(printf('%05000d', 0), '0', '[')",
        "who = 'somebody'",
        "round = -1",
        "round = 'x'",
    ],
)
def test_damaged_metrics_are_found_when_read_and_concern_nothing_else(
    tmp_path: Path, change: str
) -> None:
    path = tmp_path / "market.db"
    ledger = Ledger(str(path))
    ledger.record_metrics("run", 1, "server", {"loss": 0.5})
    with sqlite3.connect(path) as raw:
        raw.execute(f"UPDATE metrics SET {change}")
    raw.close()
    with pytest.raises(DamagedError, match=r"market.db is damaged: .*\.$"):
        ledger.metrics("run")
    ledger.verify()
    ledger.close()


@pytest.mark.parametrize(
    ("round_", "who", "metrics", "line"),
    [
        (3, "server", {"loss": 0.41234, "accuracy": 0.871}, "round 3: loss 0.4123, accuracy 0.871"),
        (0, "server", {"loss": math.nan, "Acc": 1}, "before round 1: loss nan, Acc 1"),
        (1, "clients", {"eval_loss": -math.inf}, "round 1: clients: eval_loss -inf"),
        (1, "train", {"train_loss": 2, "seconds": 3}, "round 1: train: train_loss 2"),
        (1, "train", {"seconds": 3, "glossy": 1, "loss per class": [1]}, ""),
    ],
)
def test_losses_and_accuracies_in_a_line(
    round_: int, who: str, metrics: dict[str, Any], line: str
) -> None:
    assert str(RoundMetrics("run", round_, who, metrics)) == line
