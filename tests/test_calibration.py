"""Calibration: it recovers a known α, and says so when it cannot."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from fedprice import Clients, Game, InputError, solve
from fedprice._plumbing.arrays import Arrays
from fedprice.bound import random_loss
from fedprice.calibration import Calibration, Fit, Slope, calibrate, usual_levels
from fedprice.calibration.fits import fit_alpha, fit_slope
from fedprice.data import Federation
from fedprice.data.synthetic import synthetic
from fedprice.experiments import SETUPS, setup_of
from fedprice.experiments.cells import Store
from fedprice.experiments.settings import Settings
from fedprice.experiments.setup_study import begin
from fedprice.learning import LogisticRegression, Task, Training, oracle
from fedprice.learning.optimum import best_loss, own_optimum_losses
from fedprice.learning.theory import theory_constants
from fedprice.rounds import simulate_runs

ROUNDS = np.array([20, 30, 50])
SPREADS = np.array([9.0, 3.0, 1.0])


def small_task() -> LogisticRegression:
    federation = synthetic(num_clients=10, samples=1500, seed=1)
    return LogisticRegression(federation, Training(local_steps=20))


def pilots(alpha: float, noise: float, seed: int, repeats: int = 10) -> np.ndarray:
    """Losses of a problem whose bound is exact: F* + (α A + β) / R, and common noise a repeat."""
    rng = np.random.default_rng(seed)
    exact = 0.3 + (alpha * SPREADS[:, None, None] + 7) / ROUNDS
    common = rng.normal(size=(1, repeats, ROUNDS.size))
    losses: np.ndarray = exact + common
    return losses + noise * rng.normal(size=(SPREADS.size, repeats, ROUNDS.size))


def test_recovers_a_known_alpha_within_its_own_interval() -> None:
    """A 95 % interval over 200 problems; fewer than 178 hits have a chance below one in 1e6."""
    hits = 0
    for seed in range(200):
        alpha, (low, high) = fit_alpha(pilots(2.5, 0.05, seed), SPREADS, ROUNDS)
        assert low < alpha < high
        hits += low <= 2.5 <= high
    assert 178 <= hits < 200
    assert fit_alpha(pilots(2.5, 0.0, 0), SPREADS, ROUNDS)[0] == pytest.approx(2.5)


def test_recovers_the_alpha_of_a_quadratic_problem() -> None:
    """F(w) = ½‖w‖², a step 1/(r + 1) along w plus what random joining adds.

    After R rounds w is the mean of R independent errors, so that E F = ½ A / R: α is ½. A 95 %
    interval over 100 problems; fewer than 84 hits have a chance below one in 1e5.
    """
    clients, dimensions, repeats, hits = 40, 40, 20, 0
    levels = np.array([[0.1], [0.3]]) * np.ones(clients)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        pushes = rng.normal(size=(clients, dimensions))  # a_n times the clients' gradients at 0
        spreads = ((1 - levels) / levels * (pushes**2).sum(axis=1)).sum(axis=1)
        losses = np.empty((2, repeats, ROUNDS.size))
        for repeat in range(repeats):
            coins = rng.random((ROUNDS[-1], clients))  # common to both pilots
            for i, level in enumerate(levels):
                errors = ((coins < level) / level - 1) @ pushes
                w = np.cumsum(errors, axis=0)[ROUNDS - 1] / ROUNDS[:, None]
                losses[i, repeat] = (w**2).sum(axis=1) / 2
        _, (low, high) = fit_alpha(losses, spreads, ROUNDS)
        hits += low <= 0.5 <= high
    assert 84 <= hits < 100


def test_refuses_what_identifies_nothing() -> None:
    with pytest.raises(InputError, match=r"cannot distinguish alpha from 0 .* more repeats"):
        fit_alpha(pilots(0.01, 1.0, 1), SPREADS, ROUNDS)
    with pytest.raises(InputError, match="must be ordered"):
        fit_alpha(pilots(2.5, 0.1, 1), SPREADS[::-1], ROUNDS)


def test_calibrates_a_small_federation() -> None:
    task = small_task()
    found = calibrate(task, repeats=6, checkpoints=(5, 10))
    assert 0 < found.interval[0] < found.alpha < found.interval[1]
    assert found.grad_norm_max is not None
    assert found.gradients is not None
    assert (found.gradients.norm <= found.grad_norm_max).all()
    assert found.pilots.shape == (2, 2)
    assert (found.pilots[0] > found.pilots[1]).all()  # joining less hurts
    assert found.bound(100).alpha == found.alpha
    # β is what is left at the highest level: R (F_R − F*) − α A.
    weight = task.weight
    high = np.clip(weight, 0.3, 1.0)
    spread = random_loss((weight * found.updates.norm) ** 2, high)
    rounds = np.array([5, 10])
    left = rounds * (found.pilots[-1] - best_loss(task.federation)) - found.alpha * spread
    assert found.beta == pytest.approx(max(left.mean(), 0), rel=1e-3)
    for change, message in (
        ({"levels": (0.2,)}, "two or more different"),
        ({"repeats": 1}, "`repeats` must be at least 2"),
    ):
        with pytest.raises(InputError, match=message):
            calibrate(task, **change)


def apart(count: int) -> Task:
    """Return a task whose clients pull the model to places of their own."""
    places = np.random.default_rng(count).normal(size=(count, 5))
    return Task.of(
        initial=[np.zeros(5)],
        samples=[100] * count,
        update=lambda model, client, round_, seed: [0.2 * (places[client] - model[0])],
        evaluate=lambda model: {"loss": float(((model[0] - places) ** 2).sum(axis=1).mean())},
    )


@pytest.mark.parametrize("count", [2, 3, 4, 7])
@pytest.mark.parametrize("given", [{}, {"repeats": 10}], ids=["search", "fixed"])
def test_a_federation_of_few_clients_is_calibrated_by_default(
    count: int, given: dict[str, int]
) -> None:
    # With memory, updates that change so slowly leave no noise to measure.
    found = calibrate(apart(count), aggregator="horvitz-thompson", **given)  # type: ignore[arg-type]
    assert 0 < found.interval[0] < found.alpha < found.interval[1]
    low, high = (np.clip(1 / count, q, 1.0) for q in usual_levels(np.full(count, 1 / count)))
    assert (1 / low - 1) / (1 / high - 1) == pytest.approx((1 / 0.1 - 1) / (1 / 0.3 - 1))


@pytest.mark.parametrize("given", [{}, {"repeats": 10}], ids=["search", "fixed"])
def test_pilots_of_one_client_are_refused_with_a_remedy_that_helps(given: dict[str, int]) -> None:
    task = LogisticRegression(synthetic(num_clients=1, samples=100), Training(local_steps=5))
    with pytest.raises(
        InputError, match=r"to the same levels, 1 or more; use a larger `max_weight`\.$"
    ):
        calibrate(task, **given)  # type: ignore[arg-type]


def test_pilots_are_floored_and_share_their_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    task = small_task()
    asked: list[tuple[np.ndarray, int]] = []

    def watch(task: Task, runs: list[tuple[np.ndarray, int]], **rest: Any) -> object:
        asked.extend(runs)
        return simulate_runs(task, runs, **rest)

    monkeypatch.setattr("fedprice.calibration.pilots.simulate_runs", watch)
    calibrate(task, repeats=6, checkpoints=(5, 10))
    low, high = asked[:6], asked[6:]
    assert [seed for _, seed in low] == [seed for _, seed in high]
    assert len({seed for _, seed in low}) == 6
    assert not {seed for _, seed in low} & set(range(100))
    for (levels, _), floor in ((low[0], 0.1), (high[0], 0.3)):
        assert levels == pytest.approx(np.maximum(task.weight, floor))


def test_optima() -> None:
    federation = synthetic(num_clients=4, samples=400, seed=1)
    least = best_loss(federation, l2=0.01)
    own = own_optimum_losses(federation, l2=0.01)
    assert (own > least).all()  # a client's own model serves the others badly
    x, y = oracle.with_bias(federation.features), federation.labels
    for n in range(4):  # by the oracle's loss and gradient, in double precision
        rows = slice(federation.offsets[n], federation.offsets[n + 1])
        w = exact_optimum(x[rows], y[rows], 0.01)
        assert own[n] == pytest.approx(oracle.evaluate(w, x, y, 0.0)[0], rel=1e-3)
    assert least == pytest.approx(oracle.evaluate(exact_optimum(x, y, 0.01), x, y, 0.01)[0])


def exact_optimum(x: np.ndarray, y: np.ndarray, l2: float) -> np.ndarray:
    shape = (10, x.shape[1])

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        return oracle.evaluate(w, x, y, l2)[0], oracle.gradient(w, x, y, l2).ravel()

    options = {"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 50}
    found = minimize(both, np.zeros(10 * x.shape[1]), jac=True, method="L-BFGS-B", options=options)
    w: np.ndarray = found.x.reshape(shape)
    return w


def test_theory_constants() -> None:
    """L bounds every Hessian, nearly reached; σ is the spread of single gradients at 0."""
    federation = synthetic(num_clients=4, samples=400, seed=1)
    theory = theory_constants(LogisticRegression(federation, Training(l2=0.01, batch=24)))
    assert theory.convexity == 0.01
    x, y = oracle.with_bias(federation.features), federation.labels
    start = np.zeros((10, x.shape[1]))
    rng = np.random.default_rng(0)
    steepest = 0.0
    for n in range(4):
        rows = slice(federation.offsets[n], federation.offsets[n + 1])
        own, labels = x[rows], y[rows]
        singles = np.array(
            [
                oracle.gradient(start, own[i : i + 1], labels[i : i + 1], 0.0)
                for i in range(len(own))
            ]
        ).reshape(len(own), -1)
        spread = ((singles - singles.mean(axis=0)) ** 2).sum(axis=1).mean()
        assert theory.grad_std[n] == pytest.approx(np.sqrt(spread / 24))
        top = np.linalg.eigh(own.T @ own)[1][:, -1]
        for _ in range(20):
            w = rng.normal(size=start.shape) * rng.choice([0.0, 0.01, 0.1])
            # Two classes that share all the probability bend the most.
            w[2:] -= 50 * np.sign(own.mean(axis=0) @ top) * top
            direction = np.zeros_like(w)
            direction[0], direction[1] = top, -top
            step = 1e-4 * direction / np.linalg.norm(direction)
            change = oracle.gradient(w + step, own, labels, 0.01)
            change -= oracle.gradient(w - step, own, labels, 0.01)
            steepest = max(steepest, float(np.linalg.norm(change)) / 2e-4)
    assert steepest <= theory.smoothness * (1 + 1e-6)
    assert steepest > 0.3 * theory.smoothness


def test_setups_take_about_as_long_as_in_the_paper() -> None:
    x, y = np.zeros((40, 784), np.float32), np.zeros(40, np.int32)
    images = Federation("images", x, y, np.arange(41), x, y, num_classes=10)
    for setup, federation in zip(SETUPS.values(), (synthetic(), images, images), strict=True):
        clock = setup.clock(federation)
        rng = np.random.default_rng(0)
        times = [clock.round_time(np.flatnonzero(rng.random(40) < 0.3)) for _ in range(1000)]
        assert setup.time / 2 < sum(times) < 2 * setup.time
    assert list(SETUPS) == ["setup1", "setup2", "setup3"]
    with pytest.raises(InputError, match="there is no setup 'setup'"):
        setup_of("setup")


@pytest.fixture(scope="module")
def measured() -> Calibration:
    return calibrate(small_task(), repeats=6, checkpoints=(5, 10))


@pytest.fixture(scope="module")
def by_updates() -> Calibration:
    """Of a task that knows no gradient norms, and whose clients differ."""
    goals = np.random.default_rng(2).normal(size=(5, 3))

    def update(model: Arrays, client: int, round_: int, seed: int) -> Arrays:
        noise = np.random.default_rng([seed, round_, client]).normal(size=3)
        return [(goals[client] - model[0] + 0.2 * noise) * 0.3]

    task = Task.of(
        initial=[np.zeros(3)],
        samples=[30, 10, 20, 20, 20],
        update=update,
        evaluate=lambda model: {"loss": float(((model[0] - goals) ** 2).sum(axis=1).mean())},
        ids=["ann", "bob", "cid", "dora", "eve"],
        name="goals",
    )
    return calibrate(task, repeats=20, checkpoints=(5, 10, 20))


def test_a_task_without_gradient_norms_is_priced_by_its_updates(by_updates: Calibration) -> None:
    assert by_updates.gradients is None
    assert by_updates.grad_norm_max is None
    assert by_updates.norms == "updates"
    assert by_updates.fit is by_updates.updates
    assert (by_updates.updates.norm > 0).all()
    assert by_updates.beta == 0  # F* is not known
    assert 0 < by_updates.interval[0] < by_updates.alpha < by_updates.interval[1]
    clients = by_updates.clients(cost=1, value=0)
    assert list(clients.ids) == ["ann", "bob", "cid", "dora", "eve"]
    assert clients.grad_norm is None
    assert np.array_equal(clients.norm, by_updates.updates.norm)
    assert clients.samples is not None
    assert clients.samples.tolist() == [30, 10, 20, 20, 20]
    assert by_updates.to_frame().columns == ["client_id", "samples", "update_norm"]


def test_impacts_are_made_of_updates_unless_the_papers_norms_are_asked_for(
    measured: Calibration, by_updates: Calibration
) -> None:
    assert measured.gradients is not None
    assert measured.norms == "updates"
    assert (measured.alpha, measured.beta) == (measured.updates.alpha, measured.updates.beta)
    paper = measured.with_impact("gradients")
    assert paper.alpha == measured.gradients.alpha
    assert "norms='gradients'" in repr(paper)
    assert same(Calibration.from_json(paper.to_json()), paper)
    assert paper.with_alpha(2.0).interval == (2.0, 2.0)
    assert paper.with_alpha(2.0).updates is measured.updates
    for one, norm, column in (
        (measured, measured.updates.norm, "update_norm"),
        (paper, measured.gradients.norm, "grad_norm"),
    ):
        clients = one.clients(cost=2, value=1)
        game = Game(clients, bound=one.bound(100), budget=10)
        assert game.impact == pytest.approx(one.alpha * (clients.weight * norm) ** 2 / 100)
        frame = solve(game).to_frame()
        assert {"update_norm", "grad_norm"} & set(frame.columns) == {column}
        assert np.array_equal(frame[column], norm)
        columns = clients.to_frame().columns
        assert Clients.from_frame(frame.select(columns)).norms == one.norms  # read as written
        again = measured.clients(cost=2, value=1, impact=one.norms)
        bound = measured.bound(100, impact=one.norms)
        assert np.array_equal(again.norm, norm)
        assert bound.impact(again).tolist() == game.impact.tolist()
    # An α and norms of different kinds do not go together.
    with pytest.raises(InputError, match="fitted with the norms of updates, and the clients have"):
        Game(paper.clients(cost=2, value=1), bound=measured.bound(100), budget=10)
    for wrong in ("gradient", ""):
        with pytest.raises(InputError, match="must be 'updates' or 'gradients'; got"):
            measured.clients(cost=2, value=1, impact=wrong)
    for ask in (by_updates.with_impact, lambda impact: by_updates.bound(5, impact=impact)):
        with pytest.raises(InputError, match="goals has no gradient norms"):
            ask("gradients")


def test_a_file_of_before_the_choice_is_priced_by_updates(measured: Calibration) -> None:
    content = json.loads(measured.with_impact("gradients").to_json())
    del content["norms"]
    assert Calibration.from_json(json.dumps(content)).norms == "updates"


def test_the_reproduction_prices_with_the_papers_norms(tmp_path: Path) -> None:
    settings = Settings(
        setups=("setup1",), num_clients=6, local_steps=3, pilot_rounds=(5, 10), pilot_repeats=20
    )
    study = begin(settings, "setup1", None, Store(tmp_path), report=lambda _: None)
    found, clients = study.calibration, study.game().clients
    assert found.gradients is not None
    assert clients.grad_norm is not None
    assert np.array_equal(clients.grad_norm, found.gradients.norm)
    assert study.game().bound.alpha == found.gradients.alpha


def test_both_fits_explain_the_pilots_alike(measured: Calibration) -> None:
    """With two pilots α (A(q¹) − A(q²)) is what was seen: α norm² agrees, whatever the norm is."""
    assert measured.gradients is not None
    weight = measured.samples / measured.samples.sum()
    low, high = np.clip(weight, 0.1, 1.0), np.clip(weight, 0.3, 1.0)

    def explained(fit: Fit) -> float:
        terms = fit.alpha * (weight * fit.norm) ** 2
        return random_loss(terms, low) - random_loss(terms, high)

    assert explained(measured.gradients) == pytest.approx(explained(measured.updates), rel=1e-12)
    seen = (measured.rounds * (measured.pilots[0] - measured.pilots[1])).mean()
    assert explained(measured.updates) == pytest.approx(seen, rel=1e-9)
    assert measured.gradients.norm != pytest.approx(measured.updates.norm, rel=0.1)


def test_norms_in_another_unit_change_alpha_and_no_product() -> None:
    """Updates twice as long in another unit of the model: α is a quarter, α norm² the same."""
    rng = np.random.default_rng(5)
    norm, weight = rng.uniform(1, 3, 6), rng.dirichlet(np.ones(6))
    losses = pilots(2.5, 0.05, 3)[:2]
    products = []
    for unit in (1.0, 2.0):
        squares = (weight * norm * unit) ** 2
        spreads = np.array([random_loss(squares, np.full(6, q)) for q in (0.1, 0.3)])
        alpha, _ = fit_alpha(losses, spreads, ROUNDS)
        products.append(alpha * (norm * unit) ** 2)
    assert products[0] == pytest.approx(products[1], rel=1e-12)


def same(one: Calibration, other: Calibration) -> bool:
    """Compare all numbers bit for bit."""
    for fit, again in ((one.gradients, other.gradients), (one.updates, other.updates)):
        if fit is None or again is None:
            if fit is not again:
                return False
        elif (fit.alpha, fit.low, fit.high, fit.beta, fit.random, fit.error) != (
            again.alpha, again.low, again.high, again.beta, again.random, again.error,
        ) or not np.array_equal(fit.norm, again.norm):  # fmt: skip
            return False
    names = ("name", "ids", "norms", "accuracy")
    return all(getattr(one, name) == getattr(other, name) for name in names) and all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("samples", "grad_norm_max", "rounds", "pilots")
    )


@pytest.mark.parametrize("which", ["measured", "by_updates"])
def test_what_is_written_is_read(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    found: Calibration = request.getfixturevalue(which)
    path = tmp_path / "calibration.json"
    found.write(path)
    assert same(Calibration.read(path), found)
    assert [part.name for part in tmp_path.iterdir()] == ["calibration.json"]
    with pytest.raises(InputError, match="exists"):
        found.write(path)
    found.with_alpha(3.0).write(path, force=True)
    assert Calibration.read(path).interval == (3.0, 3.0)
    with pytest.raises(InputError, match="json"):
        found.write(tmp_path / "calibration.csv")


def damaged(content: dict[str, Any], *path: Any, to: Any) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    spot: Any = changed
    for part in path[:-1]:
        spot = spot[part]
    spot[path[-1]] = to
    return changed


def test_damaged_files_get_one_clear_line(measured: Calibration, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    whole = json.loads(measured.to_json())
    bad: list[str | bytes] = ["", "nonsense", "[]", "{}", "null", "3", b"\xff\xfe\x00", b"\x80"]
    # Older files have no accuracy, kind of norms or search, and are read.
    needed = [name for name in whole if name not in ("accuracy", "norms", "search")]
    bad += [json.dumps({k: v for k, v in whole.items() if k != name}) for name in needed]
    bad += [
        json.dumps(damaged(whole, *where, to=to))
        for where, to in (
            (["format"], "fedprice calibration 0"),
            (["updates"], None),
            (["updates", "alpha"], 0),
            (["updates", "alpha"], "many"),
            (["updates", "alpha"], float("nan")),
            (["updates", "alpha_high"], 1e-9),
            (["updates", "beta"], -1),
            (["gradients"], []),
            (["gradients"], 3),
            (["norms"], "losses"),
            (["norms"], None),
            (["search"], 3),
            (["search"], {}),
            (["clients"], []),
            (["clients"], {}),
            (["clients", 0], None),
            (["clients", 0, "samples"], 0),
            (["clients", 0, "samples"], 2.5),
            (["clients", 0, "client_id"], "2"),
            (["clients", 0, "update_norm"], -1.0),
            (["clients", 0, "grad_norm"], float("inf")),
            (["clients", 0, "grad_norm"], None),
            (["rounds"], "soon"),
            (["rounds"], [5]),
            (["rounds"], [5, 0]),
            (["pilots"], [[1, 2], [3]]),
            (["pilots"], None),
            (["pilots"], [[1.0, float("nan")], [1.0, 1.0]]),
            (["name"], None),
            (["accuracy"], 3),
            (["accuracy"], {}),
            (["accuracy", "low"], float("nan")),
            (["accuracy", "high"], -1e9),
            (["updates", "random"], -1),
            (["updates", "error"], float("inf")),
        )
    ]
    for content in bad:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InputError) as error:
            Calibration.read(path)
        line = str(error.value)
        assert len(line.splitlines()) == 1
        assert line.startswith(f"{path}: this is not a calibration of the format"), content
    with pytest.raises(InputError, match=r"cannot read .*none\.json: No such file"):
        Calibration.read(tmp_path / "none.json")


def test_files_of_before_accuracy_was_kept_are_read(measured: Calibration, tmp_path: Path) -> None:
    content = json.loads(measured.to_json())
    del content["accuracy"]
    for kept in ("random", "error"):
        del content["updates"][kept], content["gradients"][kept]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    old = Calibration.read(path)
    assert old.accuracy is None
    assert np.isnan(old.fit.random)
    assert old.alpha == measured.alpha
    old.write(tmp_path / "again.json")
    assert Calibration.read(tmp_path / "again.json").accuracy is None
    with pytest.raises(InputError, match=r"recorded no accuracy: .* Calibrate again"):
        old.value(251)


def test_a_known_slope_lies_in_its_interval() -> None:
    """Errors that a repeat shares; a 95 % interval over 200 problems, as for α above."""
    hits = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        loss = 1.5 + 0.3 * rng.normal(size=(10, 6))
        shared = rng.normal(size=(10, 1)) + 0.5 * rng.normal(size=(10, 6))
        slope, (low, high) = fit_slope(loss, 92 - 15.9 * loss + shared)
        assert low < slope < high
        hits += low <= 15.9 <= high
    assert 178 <= hits < 200
    exact, _ = fit_slope(loss, 92 - 15.9 * loss)
    assert exact == pytest.approx(15.9, rel=1e-12)


def test_a_value_from_money_per_point(measured: Calibration, by_updates: Calibration) -> None:
    slope = measured.accuracy
    assert slope is not None
    assert 0 < slope.low < slope.points < slope.high
    value, (low, high) = measured.value(251)
    assert (value, low, high) == (251 * slope.points, 251 * slope.low, 251 * slope.high)
    with pytest.raises(InputError, match="`per_point` must be a finite number, at least 0"):
        measured.value(-1)
    with pytest.raises(InputError, match="of goals recorded no accuracy"):
        by_updates.value(251)
    unclear = replace(measured, accuracy=Slope(3.0, -1.0, 7.0))
    with pytest.raises(InputError, match=r"do not show how accuracy depends .* -1 to 7 points"):
        unclear.value(251)


def test_the_slope_is_that_of_the_later_evaluations() -> None:
    """By hand, over the histories of the same pilots: rounds 5 and 10 of 10, loss on accuracy."""
    task, asked = small_task(), []

    def watch(task: Task, runs: Any, **rest: Any) -> Any:
        asked.extend(simulate_runs(task, runs, **rest))
        return asked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedprice.calibration.pilots.simulate_runs", watch)
        found = calibrate(task, repeats=6, checkpoints=(5, 10))
    loss = np.array([history.loss[1:] for history in asked])
    accuracy = np.array([history.accuracy[1:] for history in asked])
    assert loss.shape == (12, 2)
    assert found.accuracy is not None
    slope = np.polyfit(loss.ravel(), 100 * accuracy.ravel(), 1)[0]
    assert found.accuracy.points == pytest.approx(-slope, rel=1e-9)


def test_the_least_loss_has_no_ridge_where_the_losses_have_none() -> None:
    """Once a ridged F* was subtracted from losses without a ridge, and β came out too small."""
    task = small_task()
    federation = task.federation
    x, y = oracle.with_bias(federation.features), federation.labels
    w = exact_optimum(x, y, 1e-4)
    bare, ridged = oracle.evaluate(w, x, y, 0.0)[0], oracle.evaluate(w, x, y, 1e-4)[0]
    assert ridged - bare > 1e-3  # the defect was that large
    assert task.least_loss() == pytest.approx(bare, abs=1e-4)
    # With l2, losses and F* both have the term.
    with_l2 = LogisticRegression(federation, Training(local_steps=20, l2=0.01))
    w = exact_optimum(x, y, 0.01)
    assert with_l2.least_loss() == pytest.approx(oracle.evaluate(w, x, y, 0.01)[0], abs=1e-5)
    model = [w.astype(np.float32)]
    assert with_l2.evaluate(model)["loss"] == pytest.approx(with_l2.least_loss(), abs=1e-5)


@pytest.mark.parametrize("text", ['{"rounds": [1e400]}', "[" * 100_000, '{"format": 1}'])
def test_hostile_json_is_not_a_calibration(text: str) -> None:
    with pytest.raises(InputError, match="not a calibration"):
        Calibration.from_json(text)
