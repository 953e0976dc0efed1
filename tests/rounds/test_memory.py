"""Memory: equal to its oracle, unbiased where that is promised, and never worse than without."""

import itertools
import math
import os
import tracemalloc
import warnings

import numpy as np
import pytest

from fedprice import InputError
from fedprice._plumbing.arrays import FloatArray, IntArray, State
from fedprice.data.synthetic import synthetic
from fedprice.learning import LogisticRegression, Task
from fedprice.rounds import Memory, simulate
from fedprice.rounds.aggregation import AGGREGATORS, Arrivals, aggregator_of
from fedprice.rounds.aggregation.stored import SCALED, TILE
from fedprice.rounds.loop import Rounds
from fedprice.rounds.oracle import PlainMemory
from fedprice.rounds.server_step import Plain
from tests.tasks import small_task

pytestmark = [
    pytest.mark.filterwarnings("ignore:memory of:UserWarning"),
    pytest.mark.filterwarnings("ignore:training without memory:UserWarning"),
]
COUNT = 6
RNG = np.random.default_rng(4)
WEIGHT = RNG.dirichlet(np.ones(COUNT))
LEVELS = RNG.uniform(0.15, 0.9, COUNT)
UNBIASED = Memory(cap=math.inf, share=0)


def played(
    memory: Memory, rounds: int, size: int, seed: int = 0, weight: FloatArray = WEIGHT,
    levels: FloatArray = LEVELS,
) -> tuple[list[FloatArray], State]:  # fmt: skip
    """The steps of some rounds whose updates drift, and the state after them."""
    steps, state = [], memory.start(weight.size, size)
    for joined, updates in drifting(rounds, size, seed, levels):
        round_ = memory.begin(state, Arrivals(joined, weight, levels, size))
        round_.add(joined, updates[joined])
        steps.append(round_.finish())
        state = round_.state()
    return steps, state


def drifting(
    rounds: int, size: int, seed: int, levels: FloatArray
) -> list[tuple[IntArray, FloatArray]]:
    """Who joins, and what each client's update would be: clients of a kind, slowly moving."""
    rng, found = np.random.default_rng(seed), []
    own = 1 + 2 * rng.normal(size=(levels.size, size))
    for _ in range(rounds):
        own = 0.95 * own + 0.3 * rng.normal(size=own.shape)
        found.append((np.flatnonzero(rng.random(levels.size) < levels), own.copy()))
    return found


@pytest.mark.parametrize("coefficient", [None, 0.0, 0.5, 1.0])
@pytest.mark.parametrize(("cap", "share"), [(0.3, 0.5), (math.inf, 0.0), (0.0, 0.0), (0.3, 1.0)])
def test_it_is_its_oracle(coefficient: float | None, cap: float, share: float) -> None:
    """Over 300 rounds, in which the rarest clients reach the greatest ages."""
    levels = np.array([0.004, 0.02, 0.1, 0.5, 0.9, 1.0])
    memory = Memory(coefficient, cap, share)
    steps, _ = played(memory, 300, 5, levels=levels)
    plain = PlainMemory(WEIGHT, levels, coefficient, cap, share)
    for step, (joined, updates) in zip(steps, drifting(300, 5, 0, levels), strict=True):
        kept = {n: updates[n].astype(np.float32).astype(float) for n in joined.tolist()}
        assert step == pytest.approx(plain.step(kept, 5), rel=1e-4, abs=1e-5)


def moments(memory: Memory, begun: State, size: int) -> tuple[FloatArray, float, FloatArray]:
    """The mean and the variance of the next step over all coins, and the updates it is made of."""
    updates = 1 + 2 * np.random.default_rng(8).normal(size=(COUNT, size))
    outcomes = []
    for coins in itertools.product([False, True], repeat=COUNT):
        joined = np.flatnonzero(coins)
        state = {name: array.copy() for name, array in begun.items()}
        round_ = memory.begin(state, Arrivals(joined, WEIGHT, LEVELS, size))
        round_.add(joined, updates[joined])
        chance = np.prod(np.where(coins, LEVELS, 1 - LEVELS))
        outcomes.append((chance, round_.finish()))
    mean = np.sum([chance * step for chance, step in outcomes], axis=0)
    variance = sum(chance * ((step - mean) ** 2).sum() for chance, step in outcomes)
    return mean, float(variance), updates


def vectors(count: int, size: int) -> Task:
    """Clients that pull a model of one vector towards 0."""
    return Task.of(
        initial=[np.ones(size, np.float32)], samples=[1] * count,
        update=lambda model, *_: [-0.1 * model[0]],
        evaluate=lambda model: {"loss": float(np.square(model[0], dtype=float).sum())},
    )  # fmt: skip


FORMS = {
    "32 bits": UNBIASED,
    "8 bits": Memory(cap=math.inf, share=0, limit=COUNT * 2 * (SCALED + 4)),
    "similar clients": Memory(cap=math.inf, share=0, limit=4 * 2 * 70),
    "a column": Memory(cap=math.inf, share=0, groups=np.array([0, 1, 0, 2, 1, 0])),
    "nothing": Memory(cap=math.inf, share=0, limit=0),
    "fedvarp": Memory(1, math.inf, 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_unbiased_whatever_is_remembered(form: str) -> None:
    """In every form, because the coefficient and the memory are fixed before the coins."""
    memory, size = FORMS[form], 70
    _, state = played(memory, 7, size)
    assert (state["stored"] >= 0).any() == (form != "nothing")
    mean, _, updates = moments(memory, state, size)
    assert mean == pytest.approx(WEIGHT @ updates, abs=1e-12)


def test_the_variance_is_the_stated_one_and_least_at_the_best_coefficient() -> None:
    _, state = played(UNBIASED, 7, 5)
    kept, there = state["rows"].astype(float), state["stored"] >= 0
    kappa = WEIGHT**2 * (1 - LEVELS) / LEVELS

    def variance(c: float) -> float:
        found = moments(Memory(c, math.inf, 0), state, 5)
        residual = found[2] - c * kept
        assert found[1] == pytest.approx(kappa @ (residual**2).sum(axis=1), rel=1e-9)
        return found[1]

    updates = moments(UNBIASED, state, 5)[2]
    own = kappa * there
    best = (own @ (updates * kept).sum(axis=1)) / (own @ (kept**2).sum(axis=1))
    c = float(np.clip(best, 0, 1))
    assert variance(c) <= min(variance(0.0), variance(1.0), variance(0.3)) + 1e-12


@pytest.mark.parametrize("cap", [0.0, 0.1, 0.3])
def test_the_bias_of_a_cap_is_of_the_residuals_only(cap: float) -> None:
    memory = Memory(1, cap, 0)
    _, state = played(memory, 7, 5)
    mean, _, updates = moments(memory, state, 5)
    weight = np.maximum(WEIGHT, np.minimum(WEIGHT / LEVELS, cap))
    residual = updates - state["rows"].astype(float)
    assert mean - WEIGHT @ updates == pytest.approx((LEVELS * weight - WEIGHT) @ residual, abs=1e-6)


def test_updates_that_stay_the_same_are_predicted_exactly() -> None:
    """After each has joined once, the step is full participation's in every round."""
    for count, level in ((4, 0.5), (12, 0.3), (40, 0.25)):
        updates = RNG.normal(size=(count, 4)).astype(np.float32)
        weight, levels = RNG.dirichlet(np.full(count, 3.0)), RNG.uniform(0.5, 1.5, count) * level
        for name in ("memory", "mifa", "fedvarp"):
            memory, state = aggregator_of(name), aggregator_of(name).start(count, 4)
            for r in range(400):
                joined = np.flatnonzero(np.random.default_rng(r).random(count) < levels)
                round_ = memory.begin(state, Arrivals(joined, weight, levels, 4))
                round_.add(joined, updates[joined])
                step, state = round_.finish(), round_.state()
                if r >= 300:
                    assert step == pytest.approx(weight @ updates, abs=1e-5)


def test_spaced_joins_teach_the_ages_between_them() -> None:
    """Once the step shrank to a third: all joined at age 4, so ages 1 to 3 had no coefficient."""
    updates = RNG.normal(size=(20, 4)).astype(np.float32)
    weight, memory = np.full(20, 0.05), Memory()
    state = memory.start(20, 4)
    for r in range(60):
        joined = np.flatnonzero(np.arange(20) % 4 == r % 4)
        round_ = memory.begin(state, Arrivals(joined, weight, np.full(20, 0.25), 4))
        round_.add(joined, updates[joined])
        step, state = round_.finish(), round_.state()
    assert step == pytest.approx(weight @ updates, abs=1e-6)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_when_everybody_joins_it_is_full_participation(name: str) -> None:
    """Even where one client has more of the data than the cap."""
    weight, everyone = np.array([0.7, 0.2, 0.1]), np.arange(3)
    aggregator, ones = aggregator_of(name), np.ones(3)
    state = aggregator.start(3, 2)
    for r in range(4):
        updates = np.random.default_rng(r).normal(size=(3, 2))
        round_ = aggregator.begin(state, Arrivals(everyone, weight, ones, 2))
        round_.add(everyone, updates)
        assert round_.finish() == pytest.approx(weight @ updates, abs=1e-6)
        state = round_.state()


def test_it_settles_where_the_average_update_is_zero() -> None:
    """Once it settled 3 % away: what two large clients sent last was believed less with its age."""
    goals = np.array([0.0, 1.0, 5.0])
    task = Task.of(
        initial=[np.zeros(1)], samples=[10, 10, 20],
        update=lambda model, n, *_: [0.1 * (goals[n] - model[0])],
        evaluate=lambda model: {"loss": 1.0, "there": float(model[0][0])},
    )  # fmt: skip
    for seed in range(3):
        there = simulate(task, 0.5, rounds=400, seed=seed).metrics["there"]
        assert there[20:].mean() == pytest.approx(2.75, abs=0.01)


@pytest.mark.parametrize("level", [0.02, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_a_rare_client_with_half_of_the_data_derails_what_is_unbiased_most(
    level: float, seed: int
) -> None:
    """A remembered update is added for 1 / q rounds, and taken back in one step of length a / q."""
    task = LogisticRegression(synthetic(num_clients=8, samples=1_600, seed=5))
    levels = np.where(task.weight == task.weight.max(), level, 0.9)
    highest = {}
    for name in ("memory", "unbiased-memory", "fedvarp"):
        history = simulate(
            task, levels, rounds=300, seed=seed, aggregator=aggregator_of(name),
            stop_on_explosion=False,
        )  # fmt: skip
        highest[name] = history.loss.max() / history.loss[0]
    assert 5 * highest.pop("memory") < min(highest.values())


def test_eight_bits_keep_half_a_step_of_their_scale() -> None:
    size, memory = 3 * SCALED + 5, FORMS["8 bits"]
    memory = Memory(limit=COUNT * 4 * (SCALED + 4))
    state = memory.start(COUNT, size)
    assert state["rows"].dtype == np.int8
    updates = RNG.normal(size=(COUNT, size)) * np.geomspace(1e-6, 1e6, size)
    everyone = np.arange(COUNT)
    round_ = memory.begin(state, Arrivals(everyone, WEIGHT, LEVELS, size))
    round_.add(everyone, updates)
    state = round_.state()
    kept = (state["rows"] * state["scales"][:, :, None]).reshape(COUNT, -1)[:, :size]
    padded = np.pad(np.abs(updates), ((0, 0), (0, 4 * SCALED - size)))
    largest = np.repeat(padded.reshape(COUNT, -1, SCALED).max(axis=2), SCALED, axis=1)
    assert (np.abs(kept - updates) <= largest[:, :size] / 254 * 1.0001).all()
    assert state["squares"] == pytest.approx((kept.astype(float) ** 2).sum(axis=1), rel=1e-5)


def test_the_form_follows_from_the_limit() -> None:
    words = [str(Memory(limit=limit).storage(100, 1_000)) for limit in (400_000, 200_000, 50_000)]
    assert words[0] == "memory of one update per client, in 32 bits, 0 MiB"
    assert words[1] == "memory of one update per client, in 8 bits, 0 MiB"
    assert words[2] == "memory of 10 groups of clients, 0 MiB"
    assert str(Memory(limit=1_000).storage(100, 1_000)).startswith("training without memory")
    assert Memory().storage(100_000, 7_850).num_bytes < 2**30


@pytest.mark.parametrize(("limit", "words"), [(16_000, "4 groups"), (0, "without memory")])
def test_less_than_one_update_per_client_is_said_before_the_first_round(
    limit: int, words: str
) -> None:
    with pytest.warns(UserWarning, match=words):
        Memory(limit=limit).start(20, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (100_000_000, None),
        (30_000_000, "in 8 bits"),
        (1_000_000, "memory of 316 groups of clients"),
        (100_000, "training without memory"),
    ],
)
def test_a_hundred_thousand_clients_train_within_the_limit(limit: int, words: str | None) -> None:
    """Whatever is less than one update per client is announced before the first round."""
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: said.append(str(message))
        warnings.simplefilter("always")
        task, memory = vectors(100_000, 200), Memory(limit=limit)
        storage = memory.storage(100_000, 200)
        assert storage.num_bytes <= limit
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            history = simulate(
                task, 0.01, rounds=6, aggregator=memory, evaluate_every=6, threads=1,
                progress=lambda done: said.append(f"round {done}"),
            )  # fmt: skip
            most = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
    assert most <= storage.num_bytes + 70_000_000  # sums, numbers per client, and modules
    assert said[0] == ("round 1" if words is None or "bits" in words else str(storage))
    assert words is None or words in str(storage)
    assert history.loss[-1] < 0.95 * history.loss[0]


def test_clients_that_are_alike_share_an_update() -> None:
    """Two kinds of clients, and room for as many groups as clients' square root."""
    size, kinds = 50, np.arange(100) % 2
    own = np.where(kinds[:, None], 1.0, -1.0) * np.linspace(0.5, 1.5, size)
    memory, weight, levels = Memory(limit=4 * 10 * size), np.full(100, 0.01), np.full(100, 0.2)
    state, rng = memory.start(100, size), np.random.default_rng(2)
    errors = []
    for _ in range(60):
        joined = np.flatnonzero(rng.random(100) < levels)
        updates = own[joined] + 0.3 * rng.normal(size=(joined.size, size))
        round_ = memory.begin(state, Arrivals(joined, weight, levels, size))
        round_.add(joined, updates)
        step, state = round_.finish(), round_.state()
        plain = weight[joined] / levels[joined] @ updates
        errors.append([np.abs(one - weight @ own).mean() for one in (step, plain)])
    group = state["group"]
    assert group.min() >= 0
    assert all(np.unique(kinds[group == one]).size == 1 for one in np.unique(group))
    with_groups, without = np.median(errors[20:], axis=0)
    assert with_groups < 0.6 * without


def test_a_large_model_takes_the_same_step_in_any_number_of_parts() -> None:
    size = 2 * TILE + 17
    updates = RNG.normal(size=(COUNT, size)).astype(np.float32)
    steps = []
    for parts in (1, COUNT):
        state = Memory().start(COUNT, size)
        for _ in range(3):
            everyone = np.arange(COUNT)
            round_ = Memory().begin(state, Arrivals(everyone, WEIGHT, LEVELS, size))
            for some in np.array_split(everyone, parts):
                round_.add(some, updates[some])
            step, state = round_.finish(), round_.state()
        steps.append(step)
    assert np.array_equal(steps[0], steps[1])


def test_the_state_before_a_round_stays_until_the_round_is_over() -> None:
    """A round that diverges leaves the state of the one before it."""
    _, state = played(Memory(), 5, 4)
    before = {name: array.copy() for name, array in state.items()}
    round_ = Memory().begin(state, Arrivals(np.arange(2), WEIGHT, LEVELS, 4))
    round_.add(np.arange(2), np.full((2, 4), 1e30))
    round_.finish()
    assert all(np.array_equal(state[name], array) for name, array in before.items())


@pytest.mark.parametrize("form", ["per client", "similar clients", "a column"])
def test_memory_survives_a_period(form: str) -> None:
    """Clients that stay keep their update; newcomers have none, and those that left are gone."""
    memory = {
        "per client": Memory(),
        "similar clients": Memory(limit=4 * 5 * 2),
        "a column": Memory(groups=np.array([0, 1, 0, 1])),
    }[form]
    task = small_task(4)

    def period(names: list[str]) -> Rounds:
        heads = type("Heads", (), {})()
        heads.heads = lambda _: np.arange(3)
        heads.arrival = lambda: np.full(4, 0.5)
        return Rounds(
            task.initial, ids=names, weight=task.weight, total=3, participation=heads,
            aggregator=memory, server_step=Plain(),
        )  # fmt: skip

    first = period(["a", "b", "c", "d"])
    for _ in range(3):
        round_ = first.begin()
        round_.arrive(round_.heads, task.updates(round_.model, round_.heads, round_.number, 1))
        round_.close()
    state = {name: array.copy() for name, array in first.state().items()}
    second = period(["x", "c", "d", "a"])
    second.follow(state)
    own = second.state()
    assert own["aggregator.round"] == 3
    assert np.array_equal(own["aggregator.learned"], state["aggregator.learned"])
    if form == "per client":
        assert own["aggregator.stored"].tolist() == [-1, 2, -1, 2]
        assert np.array_equal(own["aggregator.rows"][[1, 3]], state["aggregator.rows"][[2, 0]])
        assert not own["aggregator.rows"][0].any()
    else:
        assert np.array_equal(own["aggregator.rows"], state["aggregator.rows"])
        assert own["aggregator.rows"].any()
    if form == "similar clients":
        was = state["aggregator.group"]
        assert own["aggregator.group"].tolist() == [-1, was[2], was[3], was[0]]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"coefficient": 1.5}, "`coefficient` of a memory must be between 0 and 1; got 1.5"),
        ({"coefficient": -0.1}, "`coefficient` of a memory must be between 0 and 1; got -0.1"),
        ({"coefficient": "half"}, "got 'half'"),
        ({"cap": -1}, "`cap` of a memory must be at least 0; got -1"),
        ({"cap": math.nan}, "`cap`"),
        ({"share": 2}, "`share` of a memory must be between 0 and 1; got 2"),
        ({"limit": -1}, "`limit` must be a whole number of bytes; got -1"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, float], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        Memory(**settings)  # type: ignore[arg-type]


def test_a_memory_larger_than_the_machine_is_refused_before_it_is_made() -> None:
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with pytest.raises(InputError, match="but this machine has"):
        Memory(limit=1 << 60).start(1_000_000, machine // 1_000_000)


def test_groups_must_be_one_per_client() -> None:
    for groups in ([0, 1], [0, 1, -1], [0.5, 1, 2]):
        with pytest.raises(InputError, match="`groups` must be 3 whole numbers"):
            Memory(groups=groups).start(3, 2)
