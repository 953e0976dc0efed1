"""Any Flower app as a task: pilots of its clients in process, with or without a market in it."""

import textwrap
from pathlib import Path

import numpy as np
import pytest

import fedprice as fp
from fedprice.errors import InputError
from fedprice.flower.task import flower_task

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"

PYPROJECT = """
[project]
name = "plain"
version = "1"
[tool.flwr.app.components]
serverapp = "{package}.app:server"
clientapp = "{package}.app:client"
[tool.flwr.app.config]
rounds = 3
[tool.flwr.federations.local]
options.num-supernodes = 5
"""
APP = """
import random
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

server, client = ServerApp(), ClientApp()
goals = np.arange(5.0)

@server.main()
def main(grid, context):
    {before}
    FedAvg().start(
        grid=grid, initial_arrays=ArrayRecord({{"w": Array(np.zeros(3))}}),
        train_config=ConfigRecord({{"lr": 0.5}}), num_rounds=context.run_config["rounds"],
        evaluate_fn={evaluate_fn},
    )

@client.train()
def train(message, context):
    n = context.node_config["partition-id"]
    w = message.content["arrays"]["w"].numpy()
    noise = random.gauss(0, 0.1)
    new = w + message.content["config"]["lr"] * (goals[n] - w + noise)
    arrays = ArrayRecord({{"w": Array(new)}})
    metrics = MetricRecord({metrics})
    return Message(RecordDict({{"arrays": arrays, "metrics": metrics}}), reply_to=message)

@client.evaluate()
def evaluate(message, context):
    n = context.node_config["partition-id"]
    w = message.content["arrays"]["w"].numpy()
    loss = float(((w - goals[n]) ** 2).mean())
    found = MetricRecord({{"eval_loss": loss, "num-examples": n + 1}})
    return Message(RecordDict({{"metrics": found}}), reply_to=message)
"""


def plain_app(folder: Path, package: str, **changes: str) -> Path:
    """An app that knows nothing of fedprice."""
    usual = {"before": "pass", "evaluate_fn": "None", "metrics": '{"num-examples": n + 1}'}
    (folder / package).mkdir()
    (folder / package / "__init__.py").write_text("")
    (folder / package / "app.py").write_text(textwrap.dedent(APP).format(**(usual | changes)))
    (folder / "pyproject.toml").write_text(PYPROJECT.format(package=package))
    return folder


def test_an_app_without_a_market(tmp_path: Path) -> None:
    task = flower_task(plain_app(tmp_path, "plain_one"))
    assert task.samples.tolist() == [1, 2, 3, 4, 5]
    assert task.names == ["w"]
    goals = np.arange(5.0)
    assert task.evaluate(task.initial) == {"loss": pytest.approx(float(task.weight @ goals**2))}
    one = fp.simulate(task, 0.8, rounds=20, seed=3)
    other = fp.simulate(task, 0.8, rounds=20, seed=3)
    assert np.array_equal(one.model[0], other.model[0])  # its random numbers are seeded
    assert one.model[0] == pytest.approx(float(task.weight @ goals), abs=2)
    found = fp.calibrate(task, levels=(0.1, 0.9), checkpoints=(10, 20, 30), repeats=10)
    assert found.gradients is None
    assert found.updates.alpha > 0
    assert found.ids == ("1", "2", "3", "4", "5")


def test_the_example_with_a_market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients train without offers, under the names that they have in the market."""
    monkeypatch.chdir(tmp_path)
    task = flower_task(EXAMPLE, "clients=3 seed=4")
    assert task.ids == ("1", "2", "3")
    history = fp.simulate(task, 0.7, rounds=4, seed=4, evaluate_every=2)
    assert history.loss[-1] < history.loss[0]
    assert list(tmp_path.iterdir()) == []  # no ledger is made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"before": "return"}, "starts no strategy"),
        ({"before": "raise RuntimeError('boom')"}, "server of the app failed: RuntimeError: boom"),
        ({"metrics": '{"samples": 3}'}, 'must say its number of samples .* got samples'),
        ({"metrics": "1 / 0"}, "train failed for client '1'"),
        ({"evaluate_fn": 'lambda r, a: MetricRecord({"accuracy": 0.5})'}, "got accuracy"),
    ],
)  # fmt: skip
def test_apps_that_cannot_be_measured(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    package = f"plain_{abs(hash(message)) % 10**8}"
    with pytest.raises(InputError, match=message):
        fp.simulate(flower_task(plain_app(tmp_path, package, **changes)), 0.5, rounds=1)


def test_an_app_that_does_not_say_how_many_clients(tmp_path: Path) -> None:
    plain_app(tmp_path, "plain_two")
    text = (tmp_path / "pyproject.toml").read_text().replace("options.num-supernodes = 5", "")
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(InputError, match="does not say how many clients"):
        flower_task(tmp_path)


def test_pilots_do_not_remember_earlier_ones(tmp_path: Path) -> None:
    """A client that keeps something in its context starts each update without it."""
    counting = (
        '{"num-examples": n + 1, "calls": context.state.setdefault("c", '
        'ConfigRecord({"n": 0})).update(n=context.state["c"]["n"] + 1) or context.state["c"]["n"]}'
    )
    task = flower_task(plain_app(tmp_path, "plain_three", metrics=counting))
    calls = [
        task._train(task.initial, 0, round_, 0).content.metric_records["metrics"]["calls"]
        for round_ in range(3)
    ]
    assert calls == [1, 1, 1]
