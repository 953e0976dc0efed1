"""Tariffs posted by beliefs, over Flower: clients keep cost and value to themselves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context

import fedprice as fp
from fedprice import Beliefs, InputError
from fedprice.flower import Client, InProcessGrid, Limits, Periods, PostedTariffs
from fedprice.flower.wire import Profile
from fedprice.market.bargain import Bargain
from fedprice.market.ledger import Ledger
from fedprice.market.money import LEVEL_ONE, MICRO
from fedprice.market.periods import Answer, Period, answers_in
from fedprice.tariff import Tariffs
from fedprice.verify import Run
from tests.flower.apps import OUTCOME, client_app, client_of, initial, strategy
from trials.markets import NAMES, ROUNDS

CLIENTS = OUTCOME.game.clients
BELIEFS = Beliefs.exponential(cost=5.0, value=300.0, cells=8)
BUDGET, RUNS = 4.0, 200
COST, VALUE = [3.0, 6.0, 4.0, 9.0], [150.0, 40.0, 700.0, 300.0]  # only the clients know them
FIRST = Period(1, rounds=ROUNDS, run_rounds=ROUNDS)


def pricing(**changes: Any) -> PostedTariffs:
    settings: dict[str, Any] = {"budget": BUDGET, "beliefs": BELIEFS, "alpha": 0.75}
    return PostedTariffs(**settings | {"max_weight": float("inf")} | changes)


def private(context: Context) -> Client:
    n = int(context.node_config["partition-id"])
    return replace(client_of(context), reveals=False, cost=COST[n], value=VALUE[n])


def profiles() -> list[Profile]:
    norm = repr(float(CLIENTS.norm[0]))
    samples = CLIENTS.samples
    assert samples is not None
    return [
        Profile("run", "nonce", name, int(d), norm, cost="", value="")
        for name, d in zip(NAMES, samples, strict=True)
    ]


def run(
    ours: PostedTariffs,
    ledger: Ledger | None = None,
    client: Callable[[Context], Client] = private,
    **changes: Any,
) -> Run:
    ledger = ledger or Ledger("sqlite://")
    grid = InProcessGrid(client_app(client=client), 4)
    strategy(ledger, pricing=ours, **changes).start(grid, initial(), num_rounds=ROUNDS)
    return ledger.verify().runs["run"]


def levels(own: Run) -> list[float]:
    return [own.clients[name].level / LEVEL_ONE for name in NAMES]


def posted(
    budget: float = BUDGET,
    beliefs: Beliefs = BELIEFS,
    known: dict[str, Any] | None = None,
    **form: Any,
) -> fp.Posted:
    unknown = fp.Clients(
        samples=CLIENTS.samples, grad_norm=CLIENTS.norm, ids=CLIENTS.ids.tolist(),
        **known or {},
    )  # fmt: skip
    bound = fp.Bound(alpha=0.75, rounds=ROUNDS)
    return fp.post(unknown, beliefs, bound=bound, budget=budget, **form)


@pytest.mark.first_case
@pytest.mark.parametrize("form", ["price", "blocks", "tariff"])
def test_clients_answer_what_is_posted_by_beliefs(form: str) -> None:
    """And are paid by it; what they could have chosen besides comes back."""
    ledger = Ledger("sqlite://")
    own = run(pricing(form=form), ledger)
    told = posted(form=form)
    expected = told.answer(cost=COST, value=VALUE)
    assert levels(own) == pytest.approx(expected.levels.tolist(), abs=1e-6)
    assert sum(c.payment for c in own.clients.values()) == pytest.approx(
        expected.spend * MICRO, abs=20
    )
    assert own.budget >= sum(c.payment for c in own.clients.values())
    blocks = {"price": 1, "blocks": 4}.get(form, 2)
    assert min(len(c.tariff) for c in own.clients.values()) >= blocks
    assert ledger.balance("escrow:run") == 0


VALUES = dict(zip(NAMES, VALUE, strict=True))
CLASSES = dict(zip(NAMES, ["phone", "server", "phone", "server"], strict=True))
BY_CLASS = Beliefs.by_class(
    {
        "phone": Beliefs.exponential(cost=4.0, value=400.0, cells=8),
        "server": Beliefs.exponential(cost=8.0, value=200.0, cells=8),
    }
)


def test_clients_choose_from_menus_made_for_the_values_that_the_server_knows() -> None:
    """Only the costs are private; a level between two rows of a menu would be refused."""
    ledger = Ledger("sqlite://")
    own = run(pricing(form="menu", values=VALUES), ledger)
    expected = posted(form="menu", known={"value": VALUE}).answer(cost=COST, value=VALUE)
    assert levels(own) == pytest.approx(expected.levels.tolist(), abs=1e-6)
    assert sum(c.payment for c in own.clients.values()) == pytest.approx(
        expected.spend * MICRO, abs=20
    )
    assert len(set(levels(own))) > 1
    for client in own.clients.values():
        assert client.menu
        assert client.level in [end for end, _ in client.tariff]


def test_clients_answer_what_is_posted_by_the_beliefs_about_their_class() -> None:
    own = run(pricing(beliefs=BY_CLASS, classes=CLASSES, form="blocks"))
    known = {"classes": [CLASSES[name] for name in NAMES]}
    told = posted(beliefs=BY_CLASS, known=known, form="blocks")
    expected = told.answer(cost=COST, value=VALUE)
    assert levels(own) == pytest.approx(expected.levels.tolist(), abs=1e-6)
    assert levels(own) != pytest.approx(
        posted(form="blocks").answer(cost=COST, value=VALUE).levels.tolist(), abs=1e-3
    )


@pytest.mark.first_case
@pytest.mark.parametrize(
    "known",
    [
        {"form": "menu", "values": VALUES},
        {"beliefs": BY_CLASS, "classes": CLASSES},
        {"form": "menu", "values": VALUES, "beliefs": BY_CLASS, "classes": CLASSES},
    ],
    ids=["menu", "classes", "both"],
)
def test_periods_of_menus_and_classes_learn_and_go_on(known: dict[str, Any]) -> None:
    ledger = Ledger("sqlite://")
    run(pricing(**known), ledger, periods=Periods(every=ROUNDS // 2))
    books = ledger.verify().runs
    assert books["run#2"].settled
    first, second = (
        {name: c.tariff for name, c in books[run].clients.items()} for run in ("run", "run#2")
    )
    assert first.keys() == second.keys()
    assert first != second


def test_whose_value_or_class_is_not_known_is_made_no_offer() -> None:
    some = NAMES[:3]
    menu = pricing(form="menu", values={name: VALUES[name] for name in some})
    classes = pricing(beliefs=BY_CLASS, classes={name: CLASSES[name] for name in some})
    for ours in (menu, classes):
        assert [name for name, p in zip(NAMES, profiles(), strict=True) if not ours.unfit(p)] == (
            some
        )
    assert set(run(classes).clients) == set(some)


def test_a_menu_with_more_rows_than_an_offer_holds_is_not_offered() -> None:
    many = Beliefs(cost=np.arange(1.0, 301.0), value=0.0, weight=np.full(300, 1 / 300))
    ours = pricing(form="menu", values=dict.fromkeys(NAMES, 0.0), beliefs=many)
    with pytest.raises(InputError, match=r"1 to 256 blocks .* got 316\. Use beliefs with fewer"):
        ours(profiles(), FIRST)


def test_a_menu_that_ends_below_a_least_level_is_not_offered() -> None:
    nothing = dict.fromkeys(NAMES, 0.0)
    ours = pricing(form="menu", values=nothing, budget=0.01, max_weight=0.5)
    with pytest.raises(InputError, match=r"ends at level .* least level .* `max_weight`"):
        ours(profiles(), FIRST)


def test_a_risk_lowers_what_is_expected_to_be_paid() -> None:
    plain, careful = (pricing(risk=risk)(profiles(), FIRST) for risk in (None, 0.05))
    for one, other in zip(plain.tariffs, careful.tariffs, strict=True):
        assert other.payment(other.cap) < one.payment(one.cap)


def answered(level: float, cost_level: float = 0.5) -> dict[str, list[Answer]]:
    """All clients but the first chose one level, and the first one another."""
    tariff = Tariffs.flat([4.0], [1.0])
    rest = {name: [Answer(tariff, 0.0, 0.0, cost_level)] for name in NAMES[1:]}
    return {NAMES[0]: [Answer(tariff, 0.0, 0.0, level)]} | rest


@pytest.mark.first_case
@pytest.mark.parametrize("form", ["price", "blocks"])
@pytest.mark.parametrize("learn", ["others", "own", None])
def test_whose_answers_move_whose_tariff(learn: Any, form: str) -> None:
    """By default, nothing that a client does moves its own."""
    beliefs = Beliefs.exponential(cost=5.0, value=0.0, cells=16)

    def priced(level: float) -> list[Any]:
        period = Period(2, 10, 20, done=10, answers=lambda: answered(level))
        ours = pricing(beliefs=beliefs, learn=learn, budget=3.0, form=form)
        return ours(profiles(), period).tariffs

    dear, cheap = priced(0.1), priced(1.0)
    moved = [one != other for one, other in zip(dear, cheap, strict=True)]
    if learn is None:
        assert not any(moved)
    else:
        assert moved[1:] == [True] * 3
        assert moved[0] == (learn == "own")
    if learn == "own":  # the ratchet: who acts as if joining were dear is paid more
        assert _price(dear[0]) > 1.3 * _price(cheap[0])


def _price(tariff: Any) -> float:
    return float(tariff.payment(tariff.cap) / tariff.cap)


def test_periods_learn_from_the_answers_in_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped between two periods offers the same as one that is not."""
    ours, periods = pricing(learn="own", form="blocks"), Periods(every=ROUNDS // 2)
    whole = Ledger("sqlite://", identity="ab" * 32)  # coins depend on it
    run(ours, whole, periods=periods)
    books = whole.verify().runs
    assert books["run#2"].settled
    offered = {name: own.tariff for name, own in books["run#2"].clients.items()}
    assert offered != {name: own.tariff for name, own in books["run"].clients.items()}
    answers = answers_in(whole, ["run", "run#2"])
    assert [len(answers[name]) for name in NAMES] == [2] * 4
    share = 2.0  # the run has twice the rounds of a period
    for name in NAMES:
        first, own = answers[name][0], books["run"].clients[name]
        paid = first.tariff.payments(np.array([first.level]))[0]
        assert paid * MICRO == pytest.approx(share * own.payment, abs=20)

    stopped, enter = Ledger("sqlite://", identity="ab" * 32), Bargain.offer

    def die(own: Bargain, *given: Any) -> None:
        if own.run == "run#2":
            raise KeyboardInterrupt
        enter(own, *given)

    monkeypatch.setattr(Bargain, "offer", die)
    with pytest.raises(KeyboardInterrupt):
        run(ours, stopped, periods=periods)
    monkeypatch.setattr(Bargain, "offer", enter)
    run(ours, stopped, periods=periods)
    again = stopped.verify().runs["run#2"].clients
    assert {name: own.tariff for name, own in again.items()} == offered


def test_offers_in_turn_never_cost_more_than_the_budget() -> None:
    """The largest impact first, each for the money that is left; the treasury needs little more."""
    ledger = Ledger("sqlite://")
    ledger.use_key(strategy(ledger).key)
    ledger.deposit("treasury", int(1.2 * BUDGET * MICRO), "grant")
    own = run(pricing(sequential=True), ledger, fund=False)
    expected = posted().sequential().answer(cost=COST, value=VALUE)
    assert levels(own) == pytest.approx(expected.levels.tolist(), abs=1e-6)
    assert BUDGET * MICRO < own.budget < 1.2 * BUDGET * MICRO  # one update more of each
    assert sum(c.payment for c in own.clients.values()) <= BUDGET * MICRO
    impact = dict(zip(NAMES, posted().impact.tolist(), strict=True))
    assert list(own.clients) == sorted(NAMES, key=lambda name: -impact[name])
    offers = [e.content for e in ledger.entries("run") if e.content["kind"] == "offer"]
    assert [e["of"] for e in offers] == [["run", 1], *(["run", 1, n] for n in (2, 3, 4))]


def test_half_of_a_run_is_paid_half_of_what_the_whole_run_is_paid() -> None:
    half = Period(1, rounds=ROUNDS // 2, run_rounds=ROUNDS)
    whole, part = (pricing(sequential=True)(profiles(), own).turns for own in (FIRST, half))
    assert whole is not None
    assert part is not None
    assert part.order == whole.order
    budget = int(BUDGET * MICRO)
    for turn in range(len(NAMES)):
        own, other = part.tariff(turn, budget // 2), whole.tariff(turn, budget)
        assert own.payment(own.cap) == pytest.approx(other.payment(other.cap) / 2, abs=2)


def test_in_turn_no_answer_takes_more_than_is_left() -> None:
    """In whole micro-units, whatever the clients' types are."""
    priced, rng = pricing(sequential=True)(profiles(), FIRST), np.random.default_rng(5)
    assert priced.turns is not None
    for _ in range(RUNS):
        left = int(BUDGET * MICRO)
        cost, value = BELIEFS.draw(CLIENTS, rng)
        for turn, n in enumerate(priced.turns.order):
            tariff = priced.turns.tariff(turn, left)
            assert tariff.most(1) <= left
            one = Tariffs.flat([_price(tariff) * LEVEL_ONE / MICRO], [1.0])
            wants = value[n : n + 1] * priced.impacts[n]
            level = float(one.best_levels(cost[n : n + 1], wants, 2.0)[0])
            left -= tariff.payment(int(level * LEVEL_ONE))
        assert 0 <= left < BUDGET * MICRO


def cheap(context: Context) -> Client:
    """A client that takes whatever it can get."""
    return replace(private(context), cost=0.01)


class Silent(InProcessGrid):
    """Grid on which one node does not answer offers."""

    def push_messages(self, messages: Any) -> Any:
        answered = [
            m
            for m in messages
            if m.metadata.message_type != "query.offer" or m.metadata.dst_node_id != self.silent
        ]
        lost = [f"{n}" for n in range(len(list(messages)) - len(answered))]
        return [*super().push_messages(answered), *lost]

    silent = 0


def test_whoever_does_not_answer_in_turn_costs_nothing() -> None:
    order = posted().sequential().order.tolist()
    ledger, ours = Ledger("sqlite://"), pricing(sequential=True)
    grid = Silent(client_app(client=cheap), 4)
    first = order[0]
    grid.silent = sorted(grid.get_node_ids())[first]
    market = strategy(ledger, pricing=ours, limits=Limits(wait=5.0, offer_lifetime=4.0), seed=None)
    market.agree(grid, initial(), ROUNDS)
    own = ledger.verify().runs["run"]
    assert own.dropped == {NAMES[first]: "it did not answer"}
    assert set(own.clients) == set(NAMES) - {NAMES[first]}
    spent = sum(c.payment for c in own.clients.values())
    assert 0.5 * BUDGET * MICRO < spent <= BUDGET * MICRO
    silent = Ledger("sqlite://")  # had it answered, the others would have been offered less
    all_ = run(ours, silent, cheap)
    second = NAMES[order[1]]
    assert all_.clients[second].payment < own.clients[second].payment
    assert sum(c.payment for c in all_.clients.values()) <= BUDGET * MICRO


def test_a_restart_goes_on_with_offers_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those who were asked say again what they answered, so that the others are asked for the rest.

    Offers that were made anew left answers behind that clients had signed and nobody recorded.
    """
    ledger, ours, after = Ledger("sqlite://"), pricing(sequential=True), Bargain.offer_next

    def die(own: Bargain, proposals: Any) -> None:
        after(own, proposals)
        raise KeyboardInterrupt

    monkeypatch.setattr(Bargain, "offer_next", die)
    with pytest.raises(KeyboardInterrupt):
        run(ours, ledger)
    monkeypatch.setattr(Bargain, "offer_next", after)
    own = run(ours, ledger)
    assert (own.attempts, set(own.clients)) == (1, set(NAMES))
    expected = posted().sequential().answer(cost=COST, value=VALUE)
    assert levels(own) == pytest.approx(expected.levels.tolist(), abs=1e-6)


def test_an_answer_that_comes_after_a_restart_does_not_exceed_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its money was offered to others when it did not come, so new offers are made."""
    order = posted().sequential().order.tolist()
    ledger, ours, close = Ledger("sqlite://"), pricing(sequential=True), Bargain.close
    grid = Silent(client_app(client=cheap), 4)
    grid.silent = sorted(grid.get_node_ids())[order[0]]

    def die(_: Bargain) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bargain, "close", die)
    limits = Limits(wait=5.0, offer_lifetime=8.0)
    with pytest.raises(KeyboardInterrupt):
        strategy(ledger, pricing=ours, limits=limits).agree(grid, initial(), ROUNDS)
    monkeypatch.setattr(Bargain, "close", close)
    grid.silent = 0
    strategy(ledger, pricing=ours, limits=limits).agree(grid, initial(), ROUNDS)
    own = ledger.verify().runs["run"]
    assert (own.attempts, set(own.clients)) == (2, set(NAMES))
    assert sum(c.payment for c in own.clients.values()) <= BUDGET * MICRO


class Secretive(InProcessGrid):
    """Grid on which one node does not reveal its secret."""

    def push_messages(self, messages: Any) -> Any:
        asked = [m for m in messages if m.metadata.message_type != "query.reveal"]
        asked += [m for m in messages if m not in asked and m.metadata.dst_node_id != self.silent]
        return [*super().push_messages(asked), *["lost"] * (len(messages) - len(asked))]

    silent = 0


def test_a_market_that_was_paid_for_and_not_opened_goes_on_with_another_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What all could choose is held, so that fewer clients need other money."""
    ledger, ours, after = Ledger("sqlite://"), pricing(form="blocks"), Bargain.open

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Bargain, "open", die)
    with pytest.raises(KeyboardInterrupt):
        run(ours, ledger)
    monkeypatch.setattr(Bargain, "open", after)
    paid_in = ledger.balance("treasury")
    grid = Secretive(client_app(client=private), 4)
    grid.silent = sorted(grid.get_node_ids())[2]
    market = strategy(ledger, pricing=ours, limits=Limits(wait=2.0, offer_lifetime=1.0))
    market.agree(grid, initial(), ROUNDS)
    own = ledger.verify().runs["run"]
    assert (own.attempts, set(own.clients)) == (2, set(NAMES) - {NAMES[2]})
    assert own.budget != paid_in
    assert ledger.balance("treasury") == max(paid_in - own.budget, 0)  # nothing was paid in twice


def test_norms_are_measured_at_a_flat_price_first() -> None:
    """And what clients answered to it is learned from."""

    def unmeasured(context: Context) -> Client:
        return replace(private(context), grad_norm=None)

    ledger = Ledger("sqlite://")
    run(pricing(), ledger, unmeasured, periods=Periods(warm_up=4))
    assert ledger.verify().runs["run#2"].settled


def test_a_client_that_the_beliefs_do_not_cover_is_made_no_offer() -> None:
    ours = pricing(beliefs=Beliefs.by_client(dict.fromkeys(NAMES[:3], BELIEFS)))
    assert set(run(ours).clients) == set(NAMES[:3])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"form": "menu"}, "form 'menu' needs `values`, the clients' values by their names"),
        ({"values": VALUES}, "`values` requires form 'menu'; got form 'price'"),
        ({"form": "menu", "values": {"a": 1.0, "b": -1.0}}, "`value` must be .* in row 2 .*'b'"),
        ({"beliefs": BY_CLASS}, "these beliefs need `classes`, the clients' classes by their"),
        ({"classes": CLASSES}, "`classes` requires beliefs by class"),
        (
            {"beliefs": BY_CLASS, "classes": CLASSES | {"z": "servr"}},
            "do not cover class 'servr'.*Did you mean 'server'",
        ),
        ({"form": "bloks"}, "Did you mean 'blocks'"),
        ({"blocks": 2}, "`blocks` requires form 'blocks'; got form 'price'"),
        ({"form": "blocks", "sequential": True}, "require form 'price'; got form 'blocks'"),
        ({"form": "tariff", "blocks": 4}, "`blocks` requires form 'blocks'; got form 'tariff'"),
        ({"risk": 0.1, "sequential": True}, "`sequential` cannot be combined with `risk`"),
        ({"learn": "all"}, "`learn` must be 'others', 'own' or None; got 'all'"),
        ({"alpha": None}, "give exactly one of `alpha` and `calibration`"),
    ],
)
def test_bad_settings(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pricing(**changes)
