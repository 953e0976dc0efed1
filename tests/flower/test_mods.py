"""Flower's own mods beside the market's, in either order: what is signed is what leaves."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secagg_mod, secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import strategy as flower
from flwr.supercore.differential_privacy import compute_clip_model_update

from fedprice.errors import InputError, UndeliveredError
from fedprice.flower import InProcessGrid, ParticipationMod
from fedprice.flower.wire import to_record
from fedprice.market.ledger import Ledger
from fedprice.rounds import Memory
from tests.flower import apps
from trials.markets import ROUNDS

CLIP = 0.05  # below the norm of most updates
MODS: dict[str, Any] = {
    "fixed": fixedclipping_mod,
    "adaptive": adaptiveclipping_mod,
    # Without noise, so that runs can be compared.
    "local": LocalDpMod(clipping_norm=CLIP, sensitivity=0.0, epsilon=1.0, delta=1e-5),
}


def weights(message: Message, context: Context) -> Message:
    """Train as the app of tests/flower/apps.py does, but return new weights."""
    reply = apps.train(message, context)
    (old,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    (update,) = reply.content.array_records["arrays"].to_numpy_ndarrays()
    reply.content["arrays"] = to_record(["weights"], [old + update])
    return reply


def clipped(message: Message, context: Context) -> Message:
    """Do by hand what the mods do."""
    reply = weights(message, context)
    old = message.content.array_records["arrays"].to_numpy_ndarrays()
    new = reply.content.array_records["arrays"].to_numpy_ndarrays()
    compute_clip_model_update(new, old, CLIP)
    reply.content["arrays"] = to_record(["weights"], new)
    return reply


def app_of(
    mods: list[Any],
    train: Callable[[Message, Context], Message] = weights,
    inner: list[Any] | None = None,
) -> ClientApp:
    """An app with these mods; None stands for the market's."""
    market = ParticipationMod(apps.client_of)
    app = ClientApp(mods=[market if mod is None else mod for mod in mods])
    app.train(mods=inner)(train)
    app.evaluate()(apps.evaluate)
    market.answer(app)
    return app


def run(app: ClientApp, **changes: Any) -> tuple[ArrayRecord, list[str], Ledger]:
    ledger = Ledger("sqlite://", identity="ab" * 32)
    result = apps.strategy(ledger, **changes).start(
        InProcessGrid(app, 4),
        apps.initial(),
        num_rounds=ROUNDS,
        train_config=ConfigRecord({"clipping_norm": CLIP}),
    )
    return result.arrays, ledger.verify().hashes, ledger


@cache
def clipped_run() -> tuple[npt.NDArray[Any], list[str]]:
    """What a run comes to whose clients clip their updates themselves."""
    arrays, hashes, _ = run(app_of([None], clipped))
    return arrays["weights"].numpy(), hashes


@pytest.mark.parametrize("name", ["fixed", "adaptive", "local"])
@pytest.mark.parametrize("order", ["before", "after", "alone", "inner"])
def test_mods_clip_before_the_market_signs(name: str, order: str) -> None:
    mods, inner = {
        "before": ([MODS[name], None], []),
        "after": ([None, MODS[name]], []),
        "alone": ([MODS[name]], []),
        "inner": ([None], [MODS[name]]),
    }[order]
    arrays, hashes, ledger = run(app_of(mods, inner=inner))
    expected, same = clipped_run()
    assert np.array_equal(arrays["weights"].numpy(), expected)
    assert hashes == same
    clients = ledger.verify().runs["run"].clients.values()
    assert all(own.joined == own.heads for own in clients)


def test_clipping_changes_the_run() -> None:
    assert run(app_of([None], clipped))[1] != run(app_of([None]))[1]


def test_noise_is_part_of_what_is_signed() -> None:
    noisy = LocalDpMod(clipping_norm=CLIP, sensitivity=1e-3, epsilon=1.0, delta=1e-5)
    np.random.seed(1)  # noqa: NPY002 - Flower's noise
    _, hashes, ledger = run(app_of([None, noisy]))
    clients = ledger.verify().runs["run"].clients.values()
    assert all(own.joined == own.heads for own in clients)
    assert hashes != run(app_of([None], clipped))[1]


def test_only_what_was_noised_is_remembered() -> None:
    """With noise per client, memory is post-processing: it costs no privacy."""
    sent: dict[int, np.ndarray] = {}

    class Listening(InProcessGrid):
        def _reply(self, message: Message) -> Message:
            reply = super()._reply(message)
            if message.metadata.message_type == "train":
                (old,) = message.content.array_records["arrays"].to_numpy_ndarrays()
                (new,) = reply.content.array_records["arrays"].to_numpy_ndarrays()
                sent[message.metadata.dst_node_id - self.FIRST] = (new - old).ravel()
            return reply

    noisy = LocalDpMod(clipping_norm=CLIP, sensitivity=1e-3, epsilon=1.0, delta=1e-5)
    ledger = Ledger("sqlite://", identity="ab" * 32)
    ours = apps.strategy(ledger, aggregator=Memory())
    ours.start(Listening(app_of([None, noisy]), 4), apps.initial(), num_rounds=ROUNDS)
    _, state = ledger.progress("run")
    assert state is not None
    assert len(sent) == 4
    for n, update in sent.items():
        assert np.array_equal(state["aggregator.rows"][n], update)


def test_apps_see_no_record_of_the_market() -> None:
    """Clipping mods want exactly one ConfigRecord; so may any app."""
    seen: list[list[str]] = []

    def train(message: Message, context: Context) -> Message:
        seen.append(sorted(message.content))
        return weights(message, context)

    run(app_of([None], train))
    assert {tuple(names) for names in seen} == {("arrays", "config")}


@pytest.mark.parametrize("name", ["fixed", "adaptive"])
def test_the_strategy_that_belongs_to_a_mod_sends_its_norm(name: str) -> None:
    norms: list[float] = []

    def train(message: Message, context: Context) -> Message:
        norms.append(float(message.content.config_records["config"]["clipping_norm"]))  # type: ignore[arg-type]
        return weights(message, context)

    wrapped: flower.Strategy = (
        flower.DifferentialPrivacyClientSideFixedClipping(flower.FedAvg(), 0.0, 0.25, 4)
        if name == "fixed"
        else flower.DifferentialPrivacyClientSideAdaptiveClipping(
            flower.FedAvg(), 0.0, 4, initial_clipping_norm=0.25
        )
    )
    _, _, ledger = run(app_of([MODS[name], None], train), strategy=wrapped, aggregator=None)
    assert norms[0] == 0.25
    assert (len(set(norms)) > 1) == (name == "adaptive")
    assert ledger.verify().runs["run"].done == ROUNDS


def test_what_flowers_mods_do_today() -> None:
    """What the market relies on: one ArrayRecord, one ConfigRecord, and only then arrays."""
    app = ClientApp(mods=[adaptiveclipping_mod])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        content = RecordDict({"metrics": MetricRecord({"num-examples": 1})})
        content["arrays"] = to_record(["w"], [np.full(4, 1.0)])
        return Message(content, reply_to=message)

    @app.query("profile")
    def profile(message: Message, context: Context) -> Message:
        return Message(RecordDict(), reply_to=message)

    grid = InProcessGrid(app, 1)
    config = ConfigRecord({"clipping_norm": 0.5})
    content = {"arrays": to_record(["w"], [np.zeros(4)]), "config": config}

    def answer(records: dict[str, Any], kind: str = "train") -> Message:
        return grid.send_and_receive([Message(RecordDict(records), grid.FIRST, kind)])[0]

    good = answer(content)
    np.testing.assert_allclose(good.content.array_records["arrays"]["w"].numpy(), np.full(4, 0.25))
    assert good.content["metrics"] == {"num-examples": 1, "norm_bit": 1}
    assert answer(content | {"fedprice": ConfigRecord()}).has_error()
    assert answer(content | {"config": ConfigRecord()}).has_error()
    assert answer({}, "query.profile").has_error()  # questions must go around the mods


@pytest.mark.parametrize("mod", [secagg_mod, secaggplus_mod])
@pytest.mark.parametrize("order", ["before", "after"])
def test_secure_aggregation_is_refused(mod: Any, order: str) -> None:
    with pytest.raises(InputError, match="secure aggregation hides each update"):
        app_of([mod, None] if order == "before" else [None, mod])


def test_nothing_masked_reaches_the_model_or_memory() -> None:
    """A mod of the train function alone cannot be seen beforehand; its replies are refused."""
    with pytest.raises(UndeliveredError, match="nobody delivered"):
        run(app_of([None], inner=[secaggplus_mod]), aggregator=Memory())


@pytest.mark.filterwarnings("ignore")
def test_an_app_made_from_a_client_fn_is_refused() -> None:
    """Its replies have another form: it would agree, sign, and fail every round."""
    old = ClientApp(client_fn=lambda context: NumPyClient().to_client())
    with pytest.raises(InputError, match=r"made from a client_fn .*use functions of Flower's Mess"):
        ParticipationMod(lambda context: None).answer(old)  # type: ignore[arg-type, return-value]


def test_an_app_answers_once() -> None:
    """With two answers, the inner one finds no market in what the outer one leaves of a call."""
    app = apps.client_app()
    with pytest.raises(InputError, match="already answers the market"):
        ParticipationMod(apps.client_of).answer(app)
