"""What clients sign, keep and refuse: each attack of a server or a client, and what stops it."""

import datetime
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from fedprice.errors import FedpriceError, InputError
from fedprice.flower import Client, InProcessGrid, Limits, Periods, PostedPrice
from fedprice.flower.deals import Deals
from fedprice.flower.evidence import Evidence, Head, kept_evidence
from fedprice.flower.wire import (
    hash_of_record,
    market_record,
    signed_fields,
    signed_of,
    to_record,
)
from fedprice.market.agreement import Agreement
from fedprice.market.bargain import Bargain
from fedprice.market.canonical import canonical_bytes
from fedprice.market.coins import own_secret
from fedprice.market.export import export
from fedprice.market.ledger import Ledger
from fedprice.market.messages import ModelSchema, Signed, SigningKey
from fedprice.market.offers import (
    FOREVER,
    Call,
    Conditions,
    Offer,
    Opening,
    Proposal,
    Receipt,
    Roster,
    fresh_nonce,
    make_offers,
)
from fedprice.market.simulation import simulation_key
from fedprice.market.tariffs import Tariff
from fedprice.verify import (
    Books,
    VerificationError,
    chained_hash,
    check_entries,
    check_export,
    entry_digest,
    head_text,
    main,
    read_receipts,
)
from tests.flower.apps import client_app, client_of, initial, strategy, train
from tests.flower.test_strategy import Moody, engine, new_ledger
from trials.markets import NAMES, ROUNDS

SERVER = simulation_key("server")
LEDGER, OTHER = "ab" * 32, "cd" * 32
ZERO = "0" * 64
BOB = "<b>bob</b>"


def keeping(folder: Path) -> Callable[[Context], Client]:
    """Clients that keep what they have in writing, each in its own file."""

    def client(context: Context) -> Client:
        own = client_of(context)
        path = folder / f"{context.node_config['partition-id']}.receipts"
        return Client(**(vars(own) | {"receipts": path}))

    return client


def kept(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_receipts(folder / f"{NAMES.index(name)}.receipts")


def conditions(run: str, **changes: Any) -> Conditions:
    settings: dict[str, Any] = {
        "ledger": LEDGER, "server": SERVER.public.hex(), "run": run, "follows": "", "rounds": 9,
        "run_rounds": 9, "unit": "CREDIT", "schema": ModelSchema([], [], [], []).content(),
        "task": ZERO, "model": ZERO, "max_weight": "1", "longest_gap": 10, "nonce": fresh_nonce(),
        "expires": int(time.time()) + 900,
    }  # fmt: skip
    return Conditions(**settings | changes)


def offered(under: Conditions, client: str = "alice", **changes: Any) -> Signed:
    proposal = Proposal(Tariff.flat(8_000_000, 1 << 31), 1)
    signed = make_offers(SERVER, under, {client: proposal})[client]
    if not changes:
        return signed
    return SERVER.sign(replace(signed.open(Offer, SERVER.public), **changes))


def ask(grid: InProcessGrid, kind: str, under: Conditions, offer: Signed, **more: Any) -> Message:
    """Ask alice something about an offer."""
    record = market_record(conditions=under.text, **signed_fields("offer", offer), **more)
    message = Message(RecordDict({"fedprice": record}), InProcessGrid.FIRST, f"query.{kind}")
    (reply,) = grid.send_and_receive([message])
    return reply


def commitment(reply: Message) -> Signed:
    assert not reply.has_error(), reply.error.reason
    return signed_of(dict(reply.content.config_records["fedprice"]), "commitment")


def reason(reply: Message) -> str:
    assert reply.has_error()
    return str(reply.error.reason)


def test_the_server_collects_commitments_under_many_run_names() -> None:
    """It would open the run whose coins suit it best: a client commits to one open offer."""
    grid, answered = InProcessGrid(client_app(), 4), 0
    for number in range(500):
        under = conditions(f"run-{number}")
        reply = ask(grid, "offer", under, offered(under))
        answered += not reply.has_error()
        assert not reply.has_error() or "'run-0' is still open" in reason(reply)
    assert answered == 1


def test_the_server_names_many_offers_as_replaced_or_followed() -> None:
    """An offer replaces those of its own run only, four times; a period follows one of its run."""
    grid = InProcessGrid(client_app(), 4)
    first = conditions("run")
    offer = offered(first)
    commitment(ask(grid, "offer", first, offer))
    for under, changes, why in (
        (conditions("other"), {"replaces": offer.hash}, "still open"),
        (conditions("run", ledger=OTHER), {"replaces": offer.hash}, "still open"),
        (conditions("run#2", follows="run", ledger=OTHER), {}, "still open"),
        (conditions("run"), {}, "another offer of this run was committed to before"),
    ):
        assert why in reason(ask(grid, "offer", under, offered(under, **changes)))
    for _ in range(4):
        under = conditions("run")
        offer = offered(under, replaces=offer.hash)
        commitment(ask(grid, "offer", under, offer))
    under = conditions("run")
    assert "at most 5" in reason(ask(grid, "offer", under, offered(under, replaces=offer.hash)))


def test_the_client_grinds_its_secret_when_an_offer_comes_twice(tmp_path: Path) -> None:
    """The same offer gets the same commitment; that of a second ledger gets none, ever after."""
    app = client_app(client=keeping(tmp_path))
    grid, under = InProcessGrid(app, 4), conditions("run")
    offer = offered(under)
    first = commitment(ask(grid, "offer", under, offer))
    second = conditions("run", ledger=OTHER)
    for again in (grid, InProcessGrid(app, 4)):  # another Flower run has another context
        assert commitment(ask(again, "offer", under, offer)) == first
        assert "still open" in reason(ask(again, "offer", second, offered(second)))


def test_an_offer_is_open_until_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    grid, under = InProcessGrid(client_app(), 4), conditions("run")
    offer = offered(under)
    given = commitment(ask(grid, "offer", under, offer))
    now = time.time() + 901
    monkeypatch.setattr("fedprice.flower.client.time.time", lambda: now)
    assert "expired" in reason(ask(grid, "offer", under, offer))
    roster = SERVER.sign(Roster(LEDGER, "run", 1, ZERO, given.hash))
    fields = signed_fields("roster", roster) | signed_fields("commitment", given)
    assert "expired" in reason(ask(grid, "reveal", under, offer, **fields))
    later = conditions("later", expires=int(now) + 900)
    commitment(ask(grid, "offer", later, offered(later)))


def test_the_server_lets_offers_expire_after_it_saw_the_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It knows the coins by then, and would open the run that it likes best."""
    grid, under = InProcessGrid(client_app(), 4), conditions("run")
    offer = offered(under)
    given = commitment(ask(grid, "offer", under, offer))
    roster = SERVER.sign(Roster(LEDGER, "run", 1, ZERO, given.hash))
    fields = signed_fields("roster", roster) | signed_fields("commitment", given)
    assert not ask(grid, "reveal", under, offer, **fields).has_error()
    for later, answered in ((901, False), (86_400, False), (86_400 + 901, True)):
        now = time.time() + later
        monkeypatch.setattr("fedprice.flower.client.time.time", lambda now=now: now)
        other = conditions("other", expires=int(now) + 900)
        reply = ask(grid, "offer", other, offered(other))
        assert reply.has_error() != answered
        assert answered or "'run' is still open" in reason(reply)
        monkeypatch.undo()


def test_the_server_collects_commitments_under_the_names_of_periods() -> None:
    """A period follows one that was opened, or that went on without this client."""
    grid, under = InProcessGrid(client_app(), 4), conditions("x")
    offer = offered(under)
    given = commitment(ask(grid, "offer", under, offer))
    roster = SERVER.sign(Roster(LEDGER, "x", 1, ZERO, given.hash))
    fields = signed_fields("roster", roster) | signed_fields("commitment", given)
    assert not ask(grid, "reveal", under, offer, **fields).has_error()
    second = conditions("x#2", follows="x")
    assert "'x' is still open" in reason(ask(grid, "offer", second, offered(second)))


def test_an_offer_under_other_conditions_than_it_was_signed_for() -> None:
    grid, under = InProcessGrid(client_app(), 4), conditions("run")
    offer = offered(under)
    changed = replace(under, rounds=1)
    assert "not the conditions" in reason(ask(grid, "offer", changed, offer))
    stranger = conditions("run", server=OTHER)
    assert "name another server" in reason(ask(grid, "offer", stranger, offered(stranger)))
    mallory = SigningKey(bytes([9]) * 32)
    named = conditions("run", server=mallory.public.hex())
    signed = make_offers(mallory, named, {"alice": Proposal(Tariff.flat(8_000_000, 1 << 31), 1)})[
        "alice"
    ]
    assert "another key" in reason(ask(grid, "offer", named, signed))
    assert "another client" in reason(ask(grid, "offer", under, offered(under, "dora-dorothea")))
    for text in ("", "{}", "[]", '{"kind":"Conditions"}', "x"):
        record = market_record(conditions=text, **signed_fields("offer", offer))
        content = RecordDict({"fedprice": record})
        (reply,) = grid.send_and_receive([Message(content, InProcessGrid.FIRST, "query.offer")])
        assert reply.has_error()
        assert "Error" not in reason(reply)  # it is declined, and no program fails


def test_a_secret_is_revealed_once_and_for_the_own_commitment_only(tmp_path: Path) -> None:
    """Otherwise a server that knows all secrets could still choose among commitments."""
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    under = conditions("run")
    offer = offered(under)
    given = commitment(ask(grid, "offer", under, offer))

    def reveal(roster: Signed, grid: InProcessGrid = grid) -> Message:
        fields = signed_fields("roster", roster) | signed_fields("commitment", given)
        return ask(grid, "reveal", under, offer, **fields)

    good = Roster(LEDGER, "run", 1, "12" * 32, given.hash)
    for roster, why in (
        (SigningKey(bytes([9]) * 32).sign(good), "another key"),
        (SERVER.sign(replace(good, commitment=ZERO)), "does not name the commitment"),
        (SERVER.sign(replace(good, run="other")), "another run"),
        (SERVER.sign(replace(good, ledger=OTHER)), "another run"),
    ):
        assert why in reason(reveal(roster))
    for _ in range(2):  # the server may have died before it was recorded
        fields = reveal(SERVER.sign(good)).content.config_records["fedprice"]
        assert fields["secret"] == own_secret(simulation_key("client alice").private, offer.hash)
    other = SERVER.sign(replace(good, commitments="34" * 32))
    assert "another set of commitments" in reason(reveal(other))
    afresh = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    assert "another set of commitments" in reason(reveal(other, afresh))


def test_a_client_declines_an_offer_at_a_loss() -> None:
    grid, under = InProcessGrid(client_app(), 4), conditions("run")
    reply = ask(
        grid, "offer", under, offered(under, tariff=((1 << 31, 1000),), level_floor=1 << 30)
    )
    assert "it declines: at level 0.25 the whole run would earn it -" in reason(reply)
    commitment(ask(grid, "offer", under, offered(under, tariff=((1 << 31, 1_000_000),))))


def test_a_client_that_values_the_model_signs_away_its_whole_balance() -> None:
    """It pays what it said at most, which is nothing unless it says so."""

    def app(**own: Any) -> ClientApp:
        return client_app(
            client=lambda context: Client(
                **vars(client_of(context)) | {"value": 5.0, "least_profit": 0.0} | own
            )
        )

    under = conditions("run")
    dear = offered(under, tariff=((1 << 31, -10_000_000),), level_floor=1 << 31, impact="0.000001")
    for own, why in (
        ({}, "would earn it -5.750000 in money, payment minus cost; it takes at least 0.0"),
        ({"least_profit": -5.7}, "it takes at least -5.7"),
        ({"least_profit": -5.8, "rounds": 10}, "its cost is for 10 rounds, the run has 9"),
    ):
        assert why in reason(ask(InProcessGrid(app(**own), 4), "offer", under, dear))
    willing = app(least_profit=-5.8, rounds=9)
    commitment(ask(InProcessGrid(willing, 4), "offer", under, dear))
    useless = offered(under, tariff=((1 << 31, -10_000_000),), level_floor=1 << 31, impact="0.0")
    assert "it takes at least 0.0" in reason(
        ask(InProcessGrid(willing, 4), "offer", under, useless)
    )


def calls(grid: InProcessGrid, ledger: Ledger, rounds: int = 0) -> tuple[Any, list[Message]]:
    """The strategy after some rounds, and the calls of the next one, which are not sent yet."""
    ours = strategy(ledger)
    arrays = ours.agree(grid, initial(), ROUNDS)
    for server_round in range(1, rounds + 1):
        sent = ours.configure_train(server_round, arrays, ConfigRecord(), grid)
        arrays, _ = ours.aggregate_train(server_round, grid.send_and_receive(sent))
    return ours, ours.configure_train(rounds + 1, arrays, ConfigRecord(), grid)


INVALID = "signature is not valid"


def sent_again(grid: InProcessGrid, call: Message, /, **changes: Any) -> Message:
    content = RecordDict(dict(call.content))
    record = dict(call.content.config_records["fedprice"]) | changes
    content["fedprice"] = ConfigRecord(record)
    (reply,) = grid.send_and_receive([Message(content, call.metadata.dst_node_id, "train")])
    return reply


def resigned(call: Message, **changes: Any) -> dict[str, Any]:
    """The call in a message, changed and signed by the server."""
    signed = signed_of(dict(call.content.config_records["fedprice"]), "call")
    changed: Call = replace(signed.open(Call, SERVER.public), **changes)
    return signed_fields("call", SERVER.sign(changed))


def forged(name: str, signed: Signed, **parts: bytes) -> dict[str, Any]:
    return signed_fields(name, replace(signed, **parts))


def head(number: int, hash_: str, key: SigningKey = SERVER, ledger: str = LEDGER) -> dict[str, Any]:
    text = head_text(ledger, number, hash_)
    return signed_fields("head", Signed(text.encode(), key.sign_text(text), key.public))


def opening(run: str, mixed: str) -> dict[str, Any]:
    return signed_fields("opening", SERVER.sign(Opening(LEDGER, run, 1, mixed)))


def test_the_server_makes_up_the_coins_that_it_calls_by(tmp_path: Path) -> None:
    """A client with 8 heads trained in 12 of 12 rounds; the server's word is evidence."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    _, sent = calls(grid, ledger, rounds=1)
    (call,) = (m for m in sent if m.metadata.dst_node_id == 1002)
    path = tmp_path / "market.jsonl"
    export(ledger, path, date=datetime.date(2026, 1, 2))
    check_export(path, receipts=kept(tmp_path, BOB))
    assert "something else before" in reason(sent_again(grid, call, **opening("run", "12" * 32)))
    with pytest.raises(VerificationError, match="was opened, with other coins than the ledger has"):
        check_export(path, receipts=kept(tmp_path, BOB))


def test_a_rewritten_ledger_is_evidence(tmp_path: Path) -> None:
    """The client refuses a head that contradicts another, and has both in writing."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    _, sent = calls(grid, ledger, rounds=2)
    (call,) = (m for m in sent if m.metadata.dst_node_id == 1002)
    last = ledger.head()
    assert not sent_again(grid, call).has_error()
    for fields, why in (
        (head(last.number, ZERO), "was rewritten"),
        (head(last.number + 1, ZERO, SigningKey(bytes([9]) * 32)), "another key"),
        (head(last.number + 1, ZERO, ledger=OTHER), "another ledger"),
        (forged("head", signed_of(head(last.number, ZERO), "head"), signature=bytes(64)), INVALID),
        (forged("head", signed_of(head(last.number, ZERO), "head"), content=b"{}"), INVALID),
    ):
        assert why in reason(sent_again(grid, call, **fields))
    older = head(last.number - 1, ledger.books.hashes[-2])  # of another run at the same time
    assert "another model or head" in reason(sent_again(grid, call, **older))
    asked = resigned(call, number=last.number - 1)
    assert not sent_again(grid, call, **older, **asked).has_error()
    path = tmp_path / "market.jsonl"
    export(ledger, path, date=datetime.date(2026, 1, 2))
    with pytest.raises(VerificationError, match=f"entry {last.number} with the hash {ZERO}"):
        check_export(path, receipts=kept(tmp_path, BOB))


def test_the_server_asks_for_a_round_twice_with_two_models() -> None:
    """And would use the answer that it likes better."""
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    _, sent = calls(grid, ledger, rounds=1)
    (call,) = (m for m in sent if m.metadata.dst_node_id == 1002)
    assert not sent_again(grid, call).has_error()
    same = call.content["arrays"]
    call.content["arrays"] = to_record(["weights"], [np.ones((10, 61), np.float32)])
    assert "names another model" in reason(sent_again(grid, call))
    other = resigned(call, model=hash_of_record(call.content.array_records["arrays"]))
    assert "twice with different models" in reason(sent_again(grid, call, **other))
    call.content["arrays"] = same
    assert not sent_again(grid, call).has_error()


def test_a_call_that_does_not_follow_from_the_agreement() -> None:
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    _, sent = calls(grid, ledger, rounds=1)
    (call,) = (m for m in sent if m.metadata.dst_node_id == 1002)
    receipt = Receipt(LEDGER, "run", 0, "alice", ZERO)
    for fields, why in (
        (opening("run", "12" * 32), "mixed with something else before"),
        (opening("other", "12" * 32), "another run was opened"),
        (
            forged("opening", signed_of(opening("run", ZERO), "opening"), signature=bytes(64)),
            INVALID,
        ),
        (signed_fields("receipt", SERVER.sign(receipt)), "for another client"),
        (forged("receipt", SERVER.sign(receipt), signature=bytes(64)), INVALID),
        ({"conditions": "x"}, "not JSON"),
    ):
        assert why in reason(sent_again(grid, call, **fields))
    assert not sent_again(grid, call).has_error()


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The export of a run in two periods, and the directory of its clients' receipts."""
    folder = tmp_path_factory.mktemp("receipts")
    ledger, grid = new_ledger(), InProcessGrid(client_app(sometimes, keeping(folder)), 4)
    strategy(ledger, periods=Periods(every=6)).start(grid, initial(), num_rounds=ROUNDS)
    export(ledger, folder / "market.jsonl", date=datetime.date(2026, 1, 2))
    return folder / "market.jsonl", folder


def sometimes(message: Message, context: Context) -> Message:
    """Train, but bob's updates of rounds 2 to 4 are none."""
    reply = train(message, context)
    round_ = int(str(message.content.config_records["config"]["server-round"]))
    if context.node_config["partition-id"] == 2 and 2 <= round_ <= 4:
        reply.content["arrays"] = to_record(["weights"], [np.zeros((10, 61), np.float32)])
    return reply


def entries_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_receipts_kept_by_a_real_client_verify_against_the_export(
    market: tuple[Path, Path],
) -> None:
    path, folder = market
    books = check_export(path)
    for name in NAMES:
        messages = kept(folder, name)
        file = folder / f"{NAMES.index(name)}.receipts"
        assert main([str(path), "--client", name, "--receipts", str(file)]) == 0
        found = [m for m in messages if m["kind"] == "Receipt"]
        own = [run.clients[name] for run in books.runs.values()]
        assert len(found) == sum(one.joined + one.refused for one in own)
        kinds = [m["kind"] for m in messages]
        assert (kinds.count("Commitment"), kinds.count("Roster")) == (2, 2)
        assert file.stat().st_mode & 0o777 == 0o600
    refused, *_ = (m for m in kept(folder, BOB) if m["kind"] == "Receipt" and m["refused"])
    assert 1 <= refused["round"] <= 3
    assert "it changes nothing" in refused["refused"]


def rewritten(entries: list[dict[str, Any]], change: Callable[[Any], None]) -> Iterator[Any]:
    """Change what entries say, and give them the postings, hashes and signatures that follow."""
    books, previous = Books(), ZERO
    for number, entry in enumerate(entries, start=1):
        content = entry["content"]
        change(content)
        lines, enter = books.expect(content)
        enter()
        posted = [list(line) for line in lines]
        texts = [canonical_bytes(part).decode() for part in (content, posted)]
        previous = chained_hash(previous, number, entry_digest(*texts))
        books.hashes.append(previous)
        signature = ""
        if books.server:
            signature = SERVER.sign_text(head_text(books.ledger, number, previous)).hex()
        yield {
            "number": number, "content": content, "postings": posted, "hash": previous,
            "signature": signature,
        }  # fmt: skip


def test_a_forged_export_is_caught_by_receipts(market: tuple[Path, Path]) -> None:
    """The server keeps what bob delivered, and writes that bob missed the round."""
    path, folder = market

    def skip(content: Any) -> None:
        if content["kind"] == "round" and content["of"] == ["run#2", 5]:
            del content["joined"][BOB]
            content["missed"] = sorted([*content["missed"], BOB])

    forged = list(rewritten(entries_of(path), skip))
    assert forged[-1]["hash"] != entries_of(path)[-1]["hash"]
    check_entries(forged)  # nobody could tell
    with pytest.raises(VerificationError, match="has a receipt for round 6"):
        check_entries(forged, receipts=kept(folder, BOB))
    with pytest.raises(VerificationError, match="truncated or rewritten"):
        check_entries(entries_of(path)[:-1], receipts=kept(folder, BOB))


def test_a_client_left_out_of_a_run_is_found_by_its_own_commitment_and_roster(
    tmp_path: Path,
) -> None:
    """Alice committed and revealed her secret; the server opens the run without her."""
    under, proposals = (
        conditions("run"),
        dict.fromkeys(NAMES, Proposal(Tariff.flat(1_000_000, 1 << 31), 1)),
    )
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    ledgers = [new_ledger(), new_ledger()]
    honest, cheating = (Bargain(ledger, SERVER, "run") for ledger in ledgers)
    for bargain in (honest, cheating):
        bargain.ledger.use_key(SERVER)
        bargain.ledger.deposit("treasury", 9_000_000, "all")
        bargain.offer(under, proposals)
        for n, name in enumerate(NAMES):
            if bargain is honest or name != "alice":
                record = market_record(
                    conditions=under.text, **signed_fields("offer", bargain.offers[name])
                )
                content = RecordDict({"fedprice": record})
                message = Message(content, InProcessGrid.FIRST + n, "query.offer")
                (reply,) = grid.send_and_receive([message])
                bargain.commit(name, commitment(reply), simulation_key(f"client {name}").public)
        bargain.close()
    fields = signed_fields("roster", honest.rosters()["alice"])
    fields |= signed_fields("commitment", honest.commitments["alice"])
    assert not ask(grid, "reveal", under, honest.offers["alice"], **fields).has_error()
    for name in cheating.commitments:
        private = simulation_key(f"client {name}").private
        cheating.reveal(name, own_secret(private, cheating.offers[name].hash))
    cheating.open(9_000_000)
    path = tmp_path / "market.jsonl"
    export(cheating.ledger, path, date=datetime.date(2026, 1, 2))
    check_export(path)
    messages = kept(tmp_path, "alice")
    with pytest.raises(VerificationError, match="a client was left out"):
        check_export(path, receipts=messages)
    rosters = [message for message in messages if message["kind"] == "Roster"]
    with pytest.raises(VerificationError, match="signed for other commitments"):
        check_export(path, receipts=rosters)


def half_hearted(value: float) -> Callable[[Context], Client]:
    """Clients of whom dora answers as if the model were worth less to her than she told."""
    asked: list[str] = []

    def client(context: Context) -> Client:
        own = client_of(context)
        asked.append(own.name)
        if own.name != "dora-dorothea" or asked.count(own.name) == 1:
            return own
        return Client(**(vars(own) | {"value": value}))

    return client


@pytest.mark.parametrize("fault", ["below", "offer", "reveal"])
def test_one_payer_that_answers_below_its_priced_level_stops_the_whole_run_from_opening(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Or that does not answer, or not reveal its secret: the others are priced without it."""

    def mood(message: Message, reply: Message) -> Message:
        asked = (message.metadata.message_type, message.metadata.dst_node_id)
        return (
            Message(Error(0, "no"), reply_to=message)
            if asked == (f"query.{fault}", 1003)
            else reply
        )

    class Payer(Moody):
        def __init__(self) -> None:
            super().__init__(mood)
            if fault == "below":
                self._app = client_app(client=half_hearted(20.0))

    caplog.set_level("WARNING", logger="flwr")
    ledger = new_ledger()
    strategy(ledger, periods=Periods(every=6)).start(Payer(), initial(), num_rounds=ROUNDS)
    runs = ledger.verify().runs
    assert all(set(run.clients) == set(NAMES[:3]) for run in runs.values())
    assert [run.attempts for run in runs.values()] == [2, 2]
    assert all(own.payment > 0 for run in runs.values() for own in run.clients.values())
    told = "did not reveal a secret" if fault == "reveal" else "does not come from dora-dorothea"
    assert told in caplog.text
    assert "new offers are made without dora-dorothea" in caplog.text
    first = ledger.find("offer", "run", 2)
    assert first is not None
    assert "dora-dorothea" in first["dropped"]["alice"]


def test_unwilling_payers_one_after_the_other_do_not_stop_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the last set of offers nobody is asked to pay."""
    monkeypatch.setattr("fedprice.flower.deals.MOST_ATTEMPTS", 3)
    ledger, ours, grid = new_ledger(), strategy(new_ledger()), InProcessGrid(client_app(), 4)
    ledger.use_key(SERVER)
    ours.presence.gather(grid, 4, enough=4)

    def propose(names: list[str]) -> tuple[Conditions, dict[str, Proposal], None]:
        proposals = dict.fromkeys(names, Proposal(Tariff.flat(4_000_000, 1 << 31), 1))
        if len(names) > 1:
            proposals[names[-1]] = Proposal(Tariff.flat(-8_000_000, 1 << 31), 1)
        return conditions("run"), proposals, None

    deals = Deals(
        grid, ours.exchange, ours.presence, Bargain(ledger, SERVER, "run"), propose=propose,
        held=lambda _: 2_000_000, rounds=7, lifetime=900.0, fund=True,
    )  # fmt: skip
    agreement = deals.agree("run", None)
    assert list(agreement.deals) == ["alice"]
    assert ledger.verify().runs["run"].attempts == 3


def test_a_payer_without_money_does_not_stop_the_run() -> None:
    ledger = new_ledger()
    ledger.use_key(SERVER)
    ledger.deposit("treasury", 8_000_000, "budget")
    strategy(ledger, fund=False).start(InProcessGrid(client_app(), 4), initial(), num_rounds=ROUNDS)
    assert set(ledger.verify().runs["run"].clients) == set(NAMES[:3])


class StopError(Exception):
    """The server dies."""


def dying(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Let the server die before it closes or opens its bargain, once."""
    own = getattr(Bargain, where)

    def die(self: Bargain, *given: Any) -> Any:
        monkeypatch.setattr(Bargain, where, own)
        raise StopError

    monkeypatch.setattr(Bargain, where, die)


@pytest.mark.parametrize("where", ["close", "open", "rosters"])
@pytest.mark.parametrize("files", [False, True])
def test_a_server_that_dies_in_a_bargain_takes_it_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str, files: bool
) -> None:
    """The same offers get the same answers, and the ledger is that of a run without a fault."""
    app = client_app(client=keeping(tmp_path) if files else client_of)
    ledger, grid = new_ledger(), InProcessGrid(app, 4)
    dying(monkeypatch, where)
    with pytest.raises(StopError):
        strategy(ledger).start(grid, initial(), num_rounds=ROUNDS)
    for again in (grid, InProcessGrid(app, 4)):  # another Flower run has other contexts
        strategy(ledger).start(again, initial(), num_rounds=ROUNDS)
    assert ledger.verify().hashes == engine()[1]


@pytest.mark.parametrize("where", ["close", "open"])
def test_clients_refuse_new_offers_for_good_after_the_server_died(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Between offers and opening of a later period, while clients come and go."""

    class Changing(InProcessGrid):
        later = False

        def get_node_ids(self) -> list[int]:
            nodes = super().get_node_ids()
            return nodes[1:] if self.later else nodes

    ledger, grid = new_ledger(), Changing(client_app(), 4)
    settings: dict[str, Any] = {
        "periods": Periods(every=6), "pricing": PostedPrice(8.0, 0.75), "limits": Limits(wait=0.1),
    }  # fmt: skip

    def last(server_round: int, arrays: object) -> None:
        if server_round == 6:
            dying(monkeypatch, where)

    with pytest.raises(StopError):
        strategy(ledger, **settings).start(grid, initial(), num_rounds=ROUNDS, evaluate_fn=last)
    grid.later = True
    strategy(ledger, **settings).start(grid, initial(), num_rounds=ROUNDS)
    runs = ledger.verify().runs
    assert set(runs["run#2"].clients) == set(NAMES[1:])
    if where == "close":
        assert list(runs["run#2"].dropped) == ["alice"]
    else:  # it had committed, and takes its secret with it
        again = ledger.find("offer", "run#2", 2)
        assert again is not None
        assert again["dropped"]["alice"] == "alice did not reveal a secret"
    assert runs["run#2"].settled


def test_offers_that_expired_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server was down for longer than its offers hold."""
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    dying(monkeypatch, "open")
    with pytest.raises(StopError):
        strategy(ledger, seed=None).start(grid, initial(), num_rounds=ROUNDS)
    now = time.time() + 1000
    monkeypatch.setattr("fedprice.flower.deals.time.time", lambda: now)
    strategy(ledger, seed=None).start(grid, initial(), num_rounds=ROUNDS)
    run = ledger.verify().runs["run"]
    assert (run.attempts, set(run.clients)) == (2, set(NAMES))


def test_a_bargain_that_was_begun_for_another_training(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    dying(monkeypatch, "close")
    with pytest.raises(StopError):
        strategy(ledger).start(grid, initial(), num_rounds=ROUNDS)
    for changes in ({"task": "1" * 64}, {"beacon": ("drand 7", lambda: "7")}):
        with pytest.raises(InputError, match="was started with other rounds"):
            strategy(ledger, **changes).start(grid, initial(), num_rounds=ROUNDS)
    other = to_record(["weights"], [np.ones((10, 61), np.float32)])
    with pytest.raises(InputError, match="was started with other rounds, or another budget, model"):
        strategy(ledger).start(grid, other, num_rounds=ROUNDS)


def test_one_key_under_two_names_does_not_stop_the_run() -> None:
    """The ledger refuses it, and the server before that: with the others it goes on."""

    def twice(context: Context) -> Client:
        own = client_of(context)
        if own.name != BOB:
            return own
        return Client(**(vars(own) | {"key": simulation_key("client alice")}))

    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=twice), 4)
    strategy(ledger).start(grid, initial(), num_rounds=ROUNDS)
    run = ledger.verify().runs["run"]
    assert BOB not in run.clients
    assert run.dropped[BOB] == f"{BOB!r} has the key of somebody else."


def test_a_public_value_goes_into_the_coins() -> None:
    heads = []
    for value in ("7", "8"):
        ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
        beacon = ("drand 4815162", lambda value=value: value)
        strategy(ledger, beacon=beacon).start(grid, initial(), num_rounds=ROUNDS)
        run = ledger.verify().runs["run"]
        assert run.beacon == value
        agreement = Agreement.load(ledger, "run")
        assert agreement.conditions.beacon == "drand 4815162"
        heads.append(
            [set(e.content["joined"]) for e in ledger.entries("run") if "joined" in e.content]
        )
    assert heads[0] != heads[1]


def test_offers_without_a_seed_are_fresh_and_expire() -> None:
    found = []
    for _ in range(2):
        ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
        strategy(ledger, seed=None).agree(grid, initial(), ROUNDS)
        found.append(Agreement.load(ledger, "run").conditions)
    assert found[0].nonce != found[1].nonce
    assert all(0 < one.expires - time.time() <= 900 for one in found)
    assert FOREVER > 2**37
    with pytest.raises(InputError, match="`offer_lifetime` must be 1 to 1e9 seconds; got 0"):
        Limits(offer_lifetime=0)


def test_a_run_that_is_over_leaves_no_offer_open() -> None:
    """Nor with clients that never drew heads: another run may begin at once."""
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    for number in range(3):
        pricing, periods = PostedPrice(8.0, 0.75, level_cap=0.25), Periods(every=1)
        ours = strategy(ledger, pricing=pricing, periods=periods)
        ours.run = f"run-{number}"
        ours.start(grid, initial(), num_rounds=4)
        assert set(ledger.verify().runs[ours.run].clients) == set(NAMES)
    heads = [one.heads for run in ledger.verify().runs.values() for one in run.clients.values()]
    assert 0 in heads


def test_receipts_are_rebuilt_from_the_ledger() -> None:
    """A restarted server hands out the receipts that the one before it owed."""
    ledger, grid = new_ledger(), InProcessGrid(client_app(sometimes), 4)
    first, _ = calls(grid, ledger, rounds=3)  # bob's last update is refused
    second, _ = calls(InProcessGrid(client_app(sometimes), 4), ledger)
    assert first.receipts.last == second.receipts.last
    assert set(first.receipts.last) >= {BOB}
    assert json.loads(first.receipts.last[BOB].content)["refused"]


def context_of() -> Context:
    return InProcessGrid(client_app(), 1).contexts[InProcessGrid.FIRST]


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    """The client died while it wrote: nobody acted on it."""
    path = tmp_path / "receipts"
    with kept_evidence(context_of(), path) as evidence:
        evidence.keep(SERVER.sign(Head(LEDGER, 7, ZERO)))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    with kept_evidence(context_of(), path) as evidence:
        assert evidence.state["heads"] == {LEDGER: {"7": ZERO}}
        evidence.keep(SERVER.sign(Head(LEDGER, 8, ZERO)))
    assert [message["number"] for message in read_receipts(path)] == [7, 8]
    path.write_text("something else\n")
    with (
        pytest.raises(FedpriceError, match="is not a file of receipts"),
        kept_evidence(context_of(), path),
    ):
        pass
    with (
        pytest.raises(FedpriceError, match="cannot open the receipts"),
        kept_evidence(context_of(), tmp_path),
    ):
        pass


def test_two_processes_of_a_client_share_a_file(tmp_path: Path) -> None:
    path, contexts = tmp_path / "receipts", (context_of(), context_of())
    for number, context in enumerate((*contexts, *contexts), start=1):
        with kept_evidence(context, path) as evidence:
            assert len(evidence.state["heads"].get(LEDGER, {})) == number - 1
            evidence.keep(SERVER.sign(Head(LEDGER, number, ZERO)))
    assert Evidence({}, None).state["heads"] == {}
