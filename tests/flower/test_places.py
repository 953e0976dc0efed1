"""One market in four places: fast engine, grid in process, Ray, and a deployment with TLS.

The same seeds give the same coins, joiners, model and ledger, bit for bit. Everything listens on
127.0.0.1, and no process is left behind.
"""

from pathlib import Path

import numpy as np
import pytest

from fedprice import Bound, Clients, Game, solve
from fedprice.flower.app import FlowerApp
from fedprice.flower.deployment import Deployment
from fedprice.flower.processes import marked
from fedprice.flower.ray_simulation import run_on_ray
from fedprice.flower.watch import Watch
from fedprice.learning import LogisticRegression, Training
from fedprice.market.ledger import Ledger
from fedprice.market.simulation import simulate_market
from fedprice.market.statements import clients_of
from fedprice.market.updates import norm_cap
from fedprice.rounds import HorvitzThompson
from tests.flower.unbiased import mean_and_error

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"
SETTINGS = 'rounds=3 clients=2 run="same" seed=5'


def example(folder: Path, run_config: str = SETTINGS) -> FlowerApp:
    url = f"sqlite:///{folder / 'market.db'}"
    Ledger(url, identity="ab" * 32).close()  # ledgers would differ by their identity
    return FlowerApp.read(EXAMPLE, f'{run_config} ledger="{url}"')


def hashes(app: FlowerApp) -> list[str]:
    ledger = Ledger(app.config["ledger"], create=False)
    found = ledger.verify().hashes
    ledger.close()
    return found


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The ledger of the fast engine with the example's data, prices and keys."""
    app = example(tmp_path_factory.mktemp("engine"))
    config = app.config
    task = app.module("pricedapp.task")
    federation = task.load(config["setup"], config["clients"])
    costs, values = task.costs_and_values(config["clients"], config["seed"])
    learned = LogisticRegression(federation, Training(local_steps=config["local-steps"]))
    norms = [task.gradient_norm(learned, n, config["seed"]) for n in range(config["clients"])]
    clients = Clients(samples=federation.samples, grad_norm=norms, cost=costs, value=values)
    bound = Bound(alpha=config["alpha"], rounds=config["rounds"])
    outcome = solve(Game(clients.with_max_weight(1.0), bound=bound, budget=config["budget"]))
    ledger = Ledger(config["ledger"])
    caps = [norm_cap(norm, learned.reach(0), None, most=1e6) for norm in norms]
    simulate_market(
        learned, outcome, ledger=ledger, run="same", seed=config["seed"], norm_cap=caps,
        aggregator=HorvitzThompson(),
    )  # fmt: skip
    ledger.close()
    return hashes(app)


@pytest.mark.parametrize("local_steps", [2, 20])
def test_honest_updates_are_accepted_whatever_the_local_steps(
    tmp_path: Path, local_steps: int
) -> None:
    """All clients declared a gradient norm of 2: few steps, whose gradients are large, broke it."""
    app = example(tmp_path, f'run="all" clients=8 budget=400.0 local-steps={local_steps}')
    app.run_in_process()
    ledger = Ledger(app.config["ledger"], create=False)
    shown, _ = clients_of(ledger, "all")
    ledger.close()
    assert shown["refused"].sum() == 0
    assert shown["joined"].sum() > 8


def test_the_grid_in_process(tmp_path: Path, engine: list[str]) -> None:
    app = example(tmp_path)
    app.run_in_process()
    assert hashes(app) == engine


@pytest.mark.slow
def test_the_simulation_on_ray(tmp_path: Path, engine: list[str]) -> None:
    app = example(tmp_path)
    run_on_ray(app, tmp_path / "run.log", timeout=600)
    assert hashes(app) == engine


@pytest.mark.slow
def test_a_deployment_with_tls_and_node_authentication(tmp_path: Path, engine: list[str]) -> None:
    """Four SuperNodes; the market's keys from the seed, so that the ledger is the same."""
    app, told = example(tmp_path), list[str]()
    watch = Watch(app.config["ledger"], "same", told.append)
    with Deployment(tmp_path / "work", 2, market_keys=False) as deployment:
        assert deployment.run(app, watch, timeout=300) == "finished:completed"
        there = marked(deployment.mark)
        assert len(there) > 2
        assert_loopback(there)
    watch.close()
    assert hashes(app) == engine
    assert told[0] == "2 clients agreed, for 3 rounds"
    assert told[-1] == "settled"
    rounds = [line.split(":")[0] for line in told[1:-1] if "joined" in line]
    assert rounds == ["round 1", "round 2", "round 3"]
    assert any("loss" in line for line in told)  # the server's evaluations
    assert marked(deployment.mark) == []


def assert_loopback(processes: list[int]) -> None:
    """Every port that these processes listen on is one of 127.0.0.1."""
    listening: dict[str, str] = {}
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                listening[fields[9]] = fields[1].rpartition(":")[0]
    own: set[str] = set()
    for number in processes:
        for link in Path(f"/proc/{number}/fd").glob("*"):
            try:
                target = str(link.readlink())
            except OSError:
                continue
            if target.startswith("socket:["):
                own.add(target[8:-1])
    addresses = {listening[inode] for inode in own & set(listening)}
    assert addresses == {"0100007F"}


@pytest.mark.slow
def test_unbiased_over_many_rounds() -> None:
    """The mean step of 2,000 rounds at random levels is that of full participation.

    Fixed updates, real coins and weights: within three standard errors as a vector, and within 4.5
    in each of its 30 directions, which chance exceeds once in 5,000 times.
    """
    mean, error, full = mean_and_error(rounds=2000)
    distance = np.linalg.norm(mean - full) / np.linalg.norm(error)
    assert distance < 3
    assert (np.abs(mean - full) < 4.5 * error).all()
