"""One test per part of Flower that its reference does not promise: it fails where Flower moves."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower

import fedprice.flower
from fedprice.flower import compat
from fedprice.flower.wire import with_content

PUBLIC = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
GRIDS = ("superlink.grid.http_grid.HttpGrid", "superlink.grid.grpc_grid.GrpcGrid",
         "server.grid.grpc_grid.GrpcGrid")  # fmt: skip


def flower_grid() -> Any:
    """Flower's own grid in a deployment, wherever this version keeps it."""
    for place in GRIDS:
        module, name = f"flwr.{place}".rsplit(".", 1)
        try:
            return getattr(importlib.import_module(module), name)
        except ImportError:
            continue
    raise AssertionError("Flower's grid has moved again")


def test_private_parts_are_in_one_module() -> None:
    for path in Path(fedprice.flower.__file__).parent.glob("*.py"):
        imports = re.findall(r"^\s*from (flwr[\w.]*)", path.read_text("utf-8"), re.MULTILINE)
        assert path.name == "compat.py" or set(imports) <= PUBLIC, path.name


def test_run_of_a_grid() -> None:
    assert compat.Run.create_empty(1).run_id == 1


def test_messages_can_be_made_and_stamped() -> None:
    compat.name_server()
    message = Message(RecordDict(), 7, "train")
    compat.stamp(message, "message-1")
    reply = Message(RecordDict(), reply_to=message)
    assert (message.metadata.message_id, message.metadata.run_id) == ("message-1", 1)
    assert (reply.metadata.reply_to_message_id, reply.metadata.src_node_id) == ("message-1", 7)
    assert reply.metadata.dst_node_id == compat.SERVER


def test_copy_with_other_content_keeps_the_metadata() -> None:
    compat.name_server()
    message = Message(RecordDict({"a": ConfigRecord()}), 7, "train")
    twin = with_content(message, RecordDict({"b": ConfigRecord()}))
    assert twin.metadata is message.metadata
    assert (list(message.content), list(twin.content)) == (["a"], ["b"])


def test_mods_of_an_app() -> None:
    assert list(compat.mods_of(ClientApp(mods=[fixedclipping_mod]))) == [fixedclipping_mod]


def test_flowers_own_grid_repeats_requests_by_our_rule() -> None:
    class Rule:
        def __init__(self, before: Any) -> None:
            self.before = before

        def __call__(self, error: Exception) -> bool:
            return bool(self.before(error))

    kind = flower_grid()
    try:
        grid = kind(token="any")
    except TypeError:  # before Flower 1.33
        grid = kind()
    first = grid._retry_invoker.should_giveup
    compat.patient(grid, Rule)
    compat.patient(grid, Rule)
    assert grid._retry_invoker.should_giveup.before is first


@pytest.mark.parametrize("status", ["UNKNOWN", "INTERNAL"])
def test_internal_errors_of_http_and_grpc(status: str) -> None:
    def error(**fields: Any) -> Exception:
        failed = RuntimeError("database is locked")
        failed.__dict__.update(fields)
        return failed

    assert compat.failed_inside(error(response=SimpleNamespace(status_code=500)))
    assert not compat.failed_inside(error(response=SimpleNamespace(status_code=404)))
    assert compat.failed_inside(error(code=lambda: SimpleNamespace(name=status)))
    assert not compat.failed_inside(error(code=lambda: SimpleNamespace(name="NOT_FOUND")))
    assert not compat.failed_inside(error())


def test_trees_are_merged() -> None:
    tree = {"id": 0}
    parameters = {"num_trees": "1", "num_parallel_tree": "1"}
    booster = {
        "gbtree_model_param": parameters,
        "iteration_indptr": [0, 1],
        "trees": [tree],
        "tree_info": [0],
    }
    model = json.dumps({"learner": {"gradient_booster": {"model": booster}}}).encode()
    merged = json.loads(compat.bagged(model, model))
    assert [own["id"] for own in merged["learner"]["gradient_booster"]["model"]["trees"]] == [0, 1]


def test_metric_of_adaptive_clipping() -> None:
    compat.name_server()
    strategy = flower.DifferentialPrivacyClientSideAdaptiveClipping(flower.FedAvg(), 0.1, 2)
    grid = SimpleNamespace(get_node_ids=lambda: [1, 2])
    arrays = ArrayRecord([np.zeros(2)])
    (message, *_) = strategy.configure_train(1, arrays, ConfigRecord(), grid)  # type: ignore[arg-type]

    def train(message: Message, context: Context) -> Message:
        content = RecordDict(
            {"arrays": ArrayRecord([np.ones(2)]), "metrics": MetricRecord({"num-examples": 1})}
        )
        return Message(content, reply_to=message)

    context = Context(1, 1, {}, RecordDict(), {})
    reply = adaptiveclipping_mod(message, context, train)
    assert compat.NORM_BIT in next(iter(reply.content.metric_records.values()))


def test_mean_of_metrics_is_the_default_of_a_strategy() -> None:
    replies = [
        RecordDict({"m": MetricRecord({"n": n, "loss": loss})}) for n, loss in ((1, 0.0), (3, 4.0))
    ]
    assert flower.FedAvg().train_metrics_aggr_fn(replies, "n")["loss"] == 3.0


def test_what_the_public_optimisers_have_in_common_holds_the_model() -> None:
    for optimiser in (flower.FedAdagrad, flower.FedAdam, flower.FedYogi):
        assert "current_arrays" in vars(optimiser())
