"""Who takes part: clients from their node's directory or a simulation, servers from settings."""

import logging
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedprice import InputError
from fedprice.flower import (
    FullInformation,
    InProcessGrid,
    Limits,
    ParticipationMod,
    Periods,
    PostedPrice,
    PricedParticipation,
    client_here,
    write_keys,
)
from fedprice.flower.app import FlowerApp, _environment
from fedprice.flower.identity import _count, _registered, server_here
from fedprice.flower.processes import offline
from fedprice.market.simulation import simulation_key
from tests.flower.apps import client_app


def node(run: Any = None, **config: Any) -> Context:
    return Context(
        run_id=1, node_id=7, node_config=config, state=RecordDict(), run_config=run or {}
    )


def simulated(n: int, **run: Any) -> Context:
    settings = {name.replace("_", "-"): value for name, value in run.items()}
    return node(settings, **{"partition-id": n, "num-partitions": 4})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The directory of client 7."""
    write_keys(tmp_path, ["7"])
    (tmp_path / "client.toml").write_text("cost = 12.5\n")
    return tmp_path


def test_a_client_is_what_its_directory_says(folder: Path) -> None:
    (folder / "client.toml").write_text(
        "cost = 12.5\nvalue = 3\ncost_exponent = 1.5\nleast_profit = -4.0\nrounds = 20\n"
        "largest_level = 0.5\nlargest_loss = 7\n"
        'reveals = true\nreceipts = "kept.jsonl"\n'
    )
    own = client_here(samples=40)(node(keys=str(folder)))
    assert (own.name, own.samples, own.cost, own.value, own.rounds) == ("7", 40, 12.5, 3, 20)
    assert (own.cost_exponent, own.least_profit, own.reveals) == (1.5, -4.0, True)
    assert (own.largest_level, own.largest_loss) == (0.5, 7)
    assert own.receipts == folder / "kept.jsonl"
    assert own.server is not None
    assert own.server.hex() == (folder / "server.pub").read_text().strip()
    assert own.key.public.hex() == (folder / "client-7.pub").read_text().strip()
    assert own.grad_norm is None


def test_the_environment_names_keys_where_a_nodes_configuration_is_fixed(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    flare = {"client-name": "site-1", "partition-id": 0, "num-partitions": 2}
    monkeypatch.setenv("FEDPRICE_KEYS", str(folder))
    assert client_here(samples=1)(node(**flare)).name == "7"  # the site's own directory
    monkeypatch.setenv("FEDPRICE_KEYS", str(shared := tmp_path_factory.mktemp("shared")))
    shutil.copytree(folder, shared / "site-1")
    own = client_here(samples=1)(node(**flare))
    assert (own.name, own.receipts) == ("7", shared / "site-1" / "client-7.receipts")
    for name in ("server.key", "client-7.pub"):
        shutil.copy(folder / name, shared)
    assert server_here(node({"keys": "/elsewhere"}))["key"].public == own.server


def test_a_simulation_does_not_use_the_environments_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDPRICE_KEYS", str(tmp_path))
    assert "FEDPRICE_KEYS" not in offline(tmp_path, "mark")  # Ray's workers, SuperNodes
    app = FlowerApp.read(Path(__file__).parent / "guide_app", clients=2)
    with _environment(app.environment):
        assert client_here(samples=1)(simulated(1)).name == "2"


def test_a_client_without_more_than_a_cost_reveals_and_pays_nothing(folder: Path) -> None:
    own = client_here(samples=40)(node(keys=str(folder)))
    assert (own.value, own.least_profit, own.reveals) == (0, 0, False)
    assert own.receipts == folder / "client-7.receipts"  # beside its key


def test_a_name_chooses_among_several_keys(tmp_path: Path) -> None:
    write_keys(tmp_path, ["north", "south"])
    (tmp_path / "client.toml").write_text('cost = 1\nname = "south"\n')
    assert _registered(tmp_path)["name"] == "south"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"there is no file .*client\.toml; .* such as: cost = 12\.5"),
        ("cost 5", r"client\.toml must hold lines such as cost = 12\.5; got: .*line 1, column 6"),
        ("cost = 1\ncosts = 2", r"client\.toml: unknown field `costs`\. Did you mean 'cost'\?"),
        ("value = 2", r"client\.toml: `cost` is missing; add a line such as: cost = 12\.5"),
        ("cost = 0", r"client\.toml: `cost` must be a number above 0, at most 1e\+12; got 0\."),
        ("cost = nan", r"`cost` must be a number above 0, at most 1e\+12; got nan\."),
        ('cost = "5"', r"`cost` must be a number above 0, at most 1e\+12; got '5'\."),
        ("cost = true", r"`cost` must be a number above 0, at most 1e\+12; got True\."),
        ("cost = 1\nvalue = -1", r"`value` must be a number from 0 to 1e\+12; got -1\."),
        ("cost = 1\ncost_exponent = 1", r"`cost_exponent` must be a number above 1.*; got 1\."),
        (
            "cost = 1\nleast_profit = nan",
            r"`least_profit` must be a number, at most 1e\+12; got nan",
        ),
        (
            "cost = 1\nlargest_level = 0",
            r"`largest_level` must be a number above 0, at most 1; got",
        ),
        ("cost = 1\nlargest_loss = -1", r"`largest_loss` must be a number, at least 0; got -1\."),
        ("cost = 1\nrounds = 2.0", r"`rounds` must be a whole number above 0; got 2\.0\."),
        ("cost = 1\nreveals = 1", r"`reveals` must be true or false; got 1\."),
        ("cost = 1\nname = 7", r"`name` must be text in quotes; got 7\."),
        ("cost = 1\nname = '8'", r"must hold one key of client '8'; it holds 0: copy"),
        ("cost = 1\nreceipts = ''", r"`receipts` must be a file name in quotes; got ''\."),
    ],
)
def test_what_is_wrong_with_a_clients_file(
    folder: Path,
    text: str | None,
    message: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if text is None:
        (folder / "client.toml").unlink()
    else:
        (folder / "client.toml").write_text(text)
    with pytest.raises(InputError, match=message):
        _registered(folder)
    # What is wrong may be a cost: the server is not told.
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with pytest.raises(InputError, match=r"^its configuration is wrong; the log of its node"):
        client_here(samples=1)(node(keys=str(folder)))
    assert "this node cannot take part: " in caplog.text


def test_a_directory_needs_one_key_and_that_of_the_server(folder: Path) -> None:
    (folder / "server.pub").rename(folder / "moved")
    with pytest.raises(InputError, match=r"cannot read the key .*server\.pub: No such file"):
        _registered(folder)
    (folder / "moved").rename(folder / "server.pub")
    (folder / "client-8.key").write_bytes((folder / "client-7.key").read_bytes())
    with pytest.raises(InputError, match=r"it holds 2: name one of them .*: name = '7'\."):
        _registered(folder)
    for key in folder.glob("client-*.key"):
        key.unlink()
    with pytest.raises(InputError, match=r"must hold one key client-NAME\.key; it holds 0: copy"):
        _registered(folder)


def test_a_simulation_makes_up_its_costs_and_says_so(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    client = client_here(samples=3)
    costs = [client(simulated(n, mean_cost=2.0)).cost for n in range(400)]
    assert 1.6 < np.mean(costs) < 2.4
    assert client(simulated(5, mean_cost=2.0)).cost == costs[5]
    assert client(simulated(5, mean_cost=2.0, seed=1)).cost != costs[5]
    assert caplog.text.count("costs are invented: exponential with a mean of 2 ") == 1
    own = client(simulated(5))
    assert (own.name, own.value) == ("6", 0.0)
    assert own.key.public == simulation_key("client 6").public
    assert own.reveals
    assert own.least_profit == -math.inf


def test_a_simulation_takes_its_costs_from_a_table(tmp_path: Path) -> None:
    file = tmp_path / "clients.csv"
    file.write_text("client_id,cost,value\n2,12,0.5\n1,31,40\n")
    client = client_here(samples=3)
    own = client(simulated(1, clients_file=str(file)))
    assert (own.name, own.cost, own.value) == ("2", 12.0, 0.5)
    with pytest.raises(InputError, match=r"clients\.csv has no client '3': .* ids 1, 2, …"):
        client(simulated(2, clients_file=str(file)))
    file.write_text("client_id,samples,grad_norm,cost,value\n1,5,1,-3,0\n")
    with pytest.raises(InputError, match=r"clients\.csv: `cost` must be .* above 0; got -3"):
        client(simulated(0, clients_file=str(file)))
    file.unlink()
    with pytest.raises(InputError, match=r"cannot read the setting `clients-file`, .*absolute"):
        client(simulated(0, clients_file=str(file)))


def test_a_clients_file_is_sought_in_the_apps_directory_and_in_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, here = tmp_path / "app", tmp_path / "here"
    shutil.copytree(Path(__file__).with_name("guide_app"), folder)
    here.mkdir()
    monkeypatch.chdir(here)
    project = folder / "pyproject.toml"
    config = "[tool.flwr.app.config]\n"
    project.write_text(project.read_text().replace(config, config + 'clients-file = "c.csv"\n'))
    assert FlowerApp.read(folder).config["clients-file"] == str(here / "c.csv")
    (folder / "c.csv").touch()
    assert FlowerApp.read(folder).config["clients-file"] == str(folder / "c.csv")


def test_a_node_that_says_nothing_is_no_client() -> None:
    with pytest.raises(InputError, match=r"has no `keys`, nor the `partition-id` of a simulation"):
        client_here(samples=1)(node())
    with pytest.raises(InputError, match=r"the setting `mean-cost` must be a number above 0"):
        client_here(samples=1)(simulated(0, mean_cost=0.0))
    with pytest.raises(InputError, match=r"the setting `seed` must be a whole number, at least 0"):
        client_here(samples=1)(simulated(0, seed=-1))


def test_samples_are_counted_once_in_a_run() -> None:
    calls: list[object] = []

    def load(context: Context) -> list[int]:
        calls.append(context.node_config["partition-id"])
        return [1, 2, 3]

    client, here, there = client_here(samples=load), simulated(0), simulated(1)
    assert [client(c).samples for c in (here, here, there, there)] == [3, 3, 3, 3]
    assert calls == [0, 1]


class Loader:
    """As in PyTorch: its length is in batches."""

    dataset = range(25)

    def __len__(self) -> int:
        return 4


def test_what_counts_as_samples() -> None:
    assert [_count(x) for x in (5, np.int64(5), [1, 2], np.zeros((3, 2)), Loader())] == [
        5, 5, 2, 3, 25,
    ]  # fmt: skip
    for wrong in ((1, 2), {"train": 1}, "5", 2.5, True, -1, None, np.float64(3)):
        with pytest.raises(InputError, match=r"`samples` must be a whole number, the training set"):
            _count(wrong)


def test_a_server_without_settings_is_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    found = server_here(node())
    assert found.pop("key").public == simulation_key("server").public
    assert found == {
        "ledger": "sqlite:///market.db", "run": "run", "clients": None, "fund": True, "seed": 0,
    }  # fmt: skip
    settings = {"ledger": "sqlite:///own.db", "run": "own", "clients": 4, "seed": 3}
    found = server_here(node(run=settings))
    assert [found[name] for name in settings] == list(settings.values())
    monkeypatch.setenv("FEDPRICE_LEDGER", "sqlite:///there.db")
    monkeypatch.setenv("FEDPRICE_RUN", "there")
    found = server_here(node(run=settings), seed=5)
    assert (found["ledger"], found["run"], found["seed"]) == ("sqlite:///there.db", "there", 5)


def test_a_server_with_keys_brings_in_no_money(tmp_path: Path) -> None:
    write_keys(tmp_path, ["1", "2"])
    found = server_here(node(run={"keys": str(tmp_path)}))
    assert set(found["keys"]) == {"1", "2"}
    assert found["key"].public.hex() == (tmp_path / "server.pub").read_text().strip()
    assert not {"fund", "seed"} & set(found)
    found = server_here(node(), key=simulation_key("another"))
    assert not {"fund", "seed"} & set(found)


def test_norms_are_measured_first_where_prices_need_them() -> None:
    def periods(pricing: Any, **changes: Any) -> Periods:
        made = PricedParticipation.of(node(), pricing, ledger="sqlite://", **changes)
        made.ledger.close()
        return made.periods

    assert periods(PostedPrice(budget=1)) == Periods()
    assert periods(PostedPrice(budget=1, alpha=2.0)) == Periods(warm_up=0.1)
    assert periods(FullInformation(budget=1, alpha=2.0)) == Periods(warm_up=0.1)
    own = Periods(warm_up=3)
    assert periods(FullInformation(budget=1, alpha=2.0), periods=own) == own


class Filling(InProcessGrid):
    """Nodes come online one after the other."""

    asked = 0

    def get_node_ids(self) -> list[int]:
        self.asked += 1
        return super().get_node_ids()[: self.asked // 2]


def test_all_nodes_that_are_online_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedprice.flower.presence.STEADY", 0.5)
    strategy = PricedParticipation.of(node(), PostedPrice(budget=1), ledger="sqlite://")
    strategy.ledger.close()
    presence = strategy.presence
    assert presence.steady_count(Filling(client_app(), 3)) == 3
    presence._limits = Limits(wait=0.3)
    assert presence.steady_count(InProcessGrid(client_app(), 0)) == 0


def test_clients_with_keys_of_their_own_are_paid_from_the_treasury(tmp_path: Path) -> None:
    names = ["1", "2", "3"]
    write_keys(tmp_path / "all", names)
    market = ParticipationMod(client_here(samples=30))
    app = ClientApp(mods=[market])
    market.answer(app)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        (weights,) = message.content.array_records["arrays"].to_numpy_ndarrays()
        step = 1 + int(context.node_config["partition-id"])
        arrays, metrics = ArrayRecord([1.1 * weights + step]), MetricRecord({"num-examples": 30})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    grid = InProcessGrid(app, 3)
    for name, context in zip(names, grid.contexts.values(), strict=True):
        own = tmp_path / name
        own.mkdir()
        for file in (f"client-{name}.key", "server.pub"):
            shutil.copy(tmp_path / "all" / file, own)
        (own / "client.toml").write_text('cost = 0.5\nreceipts = "kept.jsonl"\n')
        context.node_config["keys"] = str(own)

    settings = {"keys": str(tmp_path / "all"), "ledger": f"sqlite:///{tmp_path / 'market.db'}"}
    strategy = PricedParticipation.of(node(settings), PostedPrice(budget=6))
    with pytest.raises(InputError, match=r"needs 6\.000000 in the treasury"):
        strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=2)
    strategy.ledger.deposit("treasury", 9_000_000, "grant")
    strategy.start(grid, ArrayRecord([np.zeros(2)]), num_rounds=2)
    balances = strategy.ledger.balances()
    assert [balances[f"client:{name}"] for name in names] == [2_000_000] * 3
    assert all((tmp_path / name / "kept.jsonl").exists() for name in names)
