"""A lone client against its server: each test is named after what the server tried."""

import datetime
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message
from flwr.clientapp import ClientApp
from typer.testing import CliRunner

from fedprice.cli.app import app
from fedprice.flower.client import Client
from fedprice.flower.evidence import Evidence
from fedprice.flower.grid import InProcessGrid
from fedprice.flower.limits import chosen_within
from fedprice.flower.wire import signed_fields, signed_of, to_record
from fedprice.market.agreement import Mix
from fedprice.market.export import export
from fedprice.market.ledger import Ledger
from fedprice.market.messages import RefusedError, SigningKey
from fedprice.market.money import LEVEL_ONE
from fedprice.market.offers import Call, Ending, Offer, Opening, Receipt
from fedprice.verify import (
    VerificationError,
    canonical,
    check_export,
    describe,
    describe_kept,
    signed_messages,
)
from tests.flower.apps import client_app, client_of, initial, strategy, train
from tests.flower.test_evidence import (
    BOB,
    LEDGER,
    SERVER,
    ZERO,
    ask,
    calls,
    commitment,
    conditions,
    keeping,
    offered,
    reason,
    resigned,
    sent_again,
)
from tests.flower.test_evidence import head as head_of
from tests.flower.test_evidence import kept as kept_of
from tests.flower.test_strategy import new_ledger


def client(**own: Any) -> Client:
    return Client("alice", SigningKey(bytes([5]) * 32), samples=10, **{"cost": 3.0} | own)


def offer_of(price: int, floor: int = 1, cap: int = LEVEL_ONE, **changes: Any) -> tuple[Any, Any]:
    under = conditions("run", rounds=90, run_rounds=90)
    signed = offered(under, tariff=((cap, price),), level_floor=floor, **changes)
    return signed.open(Offer, SERVER.public), under


@pytest.mark.parametrize("value", [0.0, 1.0, 1e6])
def test_an_offer_of_nothing_with_any_impact_is_declined(value: float) -> None:
    """Floor 1, price 0 and impact 1e-300 were signed; impact 1e9 made level 1 the best."""
    for impact, floor in (("1e-300", LEVEL_ONE), ("1e9", 1), ("1e9", LEVEL_ONE)):
        with pytest.raises(RefusedError, match=r"it takes at least 0\.0"):
            chosen_within(client(value=value), *offer_of(0, floor, impact=impact))


def test_a_client_that_values_the_model_joins_as_far_as_its_money_allows() -> None:
    offer, under = offer_of(2_000_000, impact="1e9")  # its best level for money alone is a third
    found = chosen_within(client(value=1.0), offer, under)
    assert found == pytest.approx(LEVEL_ONE / 3, abs=1)
    generous = client(value=1.0, least_profit=-10.0)
    assert chosen_within(generous, offer, under) == LEVEL_ONE


def test_the_largest_level_is_kept_in_tariffs_and_menus() -> None:
    offer, under = offer_of(60_000_000)
    assert chosen_within(client(), offer, under) == LEVEL_ONE
    assert chosen_within(client(largest_level=0.25), offer, under) == LEVEL_ONE // 4
    with pytest.raises(RefusedError, match=r"level 0\.5 is wanted; it accepts up to 0\.25"):
        chosen_within(client(largest_level=0.25), *offer_of(60_000_000, LEVEL_ONE // 2))
    blocks = ((LEVEL_ONE // 4, 8_000_000), (LEVEL_ONE // 2, 8_000_000), (LEVEL_ONE, 8_000_000))
    for menu, level in ((False, 0.3), (True, 0.25)):
        offer, under = offer_of(0)
        changed = offered(under, tariff=blocks, menu=menu).open(Offer, SERVER.public)
        found = chosen_within(client(largest_level=0.3), changed, under)
        assert found == pytest.approx(level * LEVEL_ONE, abs=1)


def test_a_menu_without_a_level_between_the_servers_least_and_the_clients_largest() -> None:
    blocks = ((LEVEL_ONE // 5, 8_000_000), (LEVEL_ONE * 4 // 5, 8_000_000))
    _, under = offer_of(0)
    menu = offered(under, tariff=blocks, menu=True, level_floor=LEVEL_ONE // 2)
    for largest in (0.1, 0.6):  # below all of its levels, and below those that may be chosen
        with pytest.raises(RefusedError, match="it declines"):
            chosen_within(client(largest_level=largest), menu.open(Offer, SERVER.public), under)
    found = chosen_within(client(largest_level=0.9), menu.open(Offer, SERVER.public), under)
    assert found == LEVEL_ONE * 4 // 5


def test_levels_below_one_round_of_the_run_are_declined() -> None:
    with pytest.raises(RefusedError, match=r"at least level 0\.01111 is wanted; it accepts up to"):
        chosen_within(client(), *offer_of(60_000_000, cap=LEVEL_ONE // 100))


def test_a_cap_that_no_update_can_meet(tmp_path: Path) -> None:
    """It trained, sent, was refused "truly", and not paid: now nothing is sent."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(large), 4)
    ours, sent = calls(grid, ledger, rounds=0)
    replies = grid.send_and_receive(sent)
    assert replies
    for reply in replies:
        assert not reply.content.array_records
    _, metrics = ours.aggregate_train(1, replies)
    assert metrics["joined"] == 0
    (round_,) = ledger.rounds("run")
    for why, update, norm, _ in round_["refused"].values():
        assert "it did not send it" in why
        assert (update, float(norm)) == ("", float(norm))


def large(message: Message, context: Context) -> Message:
    reply = train(message, context)
    array = reply.content.array_records["arrays"]["weights"].numpy()
    reply.content["arrays"] = to_record(["weights"], [array * np.float32(1000)])
    return reply


def test_a_cap_that_the_last_updates_would_not_meet_is_declined(tmp_path: Path) -> None:
    app = client_app(client=keeping(tmp_path))
    grid = InProcessGrid(app, 4)
    under = conditions("run")
    context = grid.contexts[InProcessGrid.FIRST]
    with_norms(context, [3.0, 4.0])
    refused = ask(grid, "offer", under, offered(under, norm_cap="1e-9"))
    assert "updates are accepted up to a norm of 1e-9; its last ones had at least 3" in reason(
        refused
    )
    commitment(ask(grid, "offer", under, offered(under, norm_cap="1.5")))


def with_norms(context: Context, norms: list[float]) -> None:
    state = Evidence({}, None).state | {"norms": norms}
    context.state["fedprice"] = ConfigRecord({"evidence": json.dumps(state)})


def test_updates_without_receipts_and_the_same_old_head(tmp_path: Path) -> None:
    """202 of 202 updates were sent without one receipt, with the same old head each time."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    ours, sent = calls(grid, ledger, rounds=1)
    (call,) = (m for m in sent if m.metadata.dst_node_id == 1002)
    stale = call.content.config_records["fedprice"]["receipt"]
    assert not sent_again(grid, call).has_error()
    for later in range(2, 12):
        why = reason(sent_again(grid, call, **resigned(call, round=later)))
        assert "the ledger has not grown since round 2" in why or "tails" in why
    arrays, _ = ours.aggregate_train(2, grid.send_and_receive(sent))
    (call,) = (
        m
        for m in ours.configure_train(3, arrays, ConfigRecord(), grid)
        if m.metadata.dst_node_id == 1002
    )
    record = call.content.config_records["fedprice"]
    receipt = record.pop("receipt")
    assert "does not follow" in reason(sent_again(grid, call, receipt=stale, links="ab" * 96))
    call.content.config_records["fedprice"]["receipt"] = stale
    assert "there is no receipt yet for its update of round 2" in reason(sent_again(grid, call))
    assert not sent_again(grid, call, receipt=receipt).has_error()
    kinds = {message["kind"] for message in kept_of(tmp_path, BOB)}
    assert {"Call", "Receipt", "Head", "Opening", "Roster", "Commitment"} <= kinds


def test_a_call_for_the_last_round_first(tmp_path: Path) -> None:
    """All earlier calls were refused, and recorded as missed: now the server's word says why."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    _, sent = calls(grid, ledger, rounds=0)
    call = next(m for m in sent if m.metadata.dst_node_id == 1002)
    agreement_rounds = json.loads(str(call.content.config_records["fedprice"]["conditions"]))[
        "rounds"
    ]
    for last in range(agreement_rounds - 1, 0, -1):
        reply = sent_again(grid, call, **resigned(call, round=last))
        if not reply.has_error():
            break
    assert "calls are out of order" in reason(sent_again(grid, call))
    context = grid.contexts[InProcessGrid.FIRST + 2]
    state = json.loads(str(context.state["fedprice"]["evidence"]))
    assert state["faults"]["calls out of order"] == 1


def test_coins_that_were_mixed_from_something_else() -> None:
    """`mixed` could be any number until an export was seen: the server could choose coins."""
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    _, sent = calls(grid, ledger, rounds=0)
    call = next(m for m in sent if m.metadata.dst_node_id == 1002)
    record = dict(call.content.config_records["fedprice"])
    mix = Mix.read(str(record["mix"]))
    invented = Mix(mix.commitments, {**mix.secrets} | {"alice": bytes(32)}, "")
    opening = signed_fields("opening", SERVER.sign(Opening(LEDGER, "run", 1, ZERO)))
    assert "not mixed from these secrets" in reason(sent_again(grid, call, **opening))
    opening = signed_fields("opening", SERVER.sign(Opening(LEDGER, "run", 1, invented.value.hex())))
    for text in (invented.text, "", "{}"):
        refused = sent_again(grid, call, **opening, mix=text)
        assert "secrets" in reason(refused)
    del call.content.config_records["fedprice"]["mix"]
    assert "lacks the secrets" in reason(sent_again(grid, call))
    assert not sent_again(grid, call, mix=mix.text).has_error()


def test_clients_that_withhold_their_secrets_lock_nobody_out() -> None:
    """The signed end of offers frees the others: no coins were used."""
    from fedprice.market.offers import Roster

    grid, under = InProcessGrid(client_app(), 4), conditions("run")
    offer = offered(under)
    given = commitment(ask(grid, "offer", under, offer))
    roster = SERVER.sign(Roster(LEDGER, "run", 1, ZERO, given.hash))
    fields = signed_fields("roster", roster) | signed_fields("commitment", given)
    assert not ask(grid, "reveal", under, offer, **fields).has_error()
    other = conditions("other")
    assert "'run' is still open" in reason(ask(grid, "offer", other, offered(other)))
    forged = signed_fields("ended.run", SigningKey(bytes([9]) * 32).sign(Ending(LEDGER, "run")))
    assert "another key" in reason(ask(grid, "offer", other, offered(other), **forged))
    ended = signed_fields("ended.run", SERVER.sign(Ending(LEDGER, "run")))
    commitment(ask(grid, "offer", other, offered(other), **ended))


def test_runs_that_are_opened_and_not_played_are_counted(tmp_path: Path) -> None:
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    for number in range(3):
        ours = strategy(ledger)
        ours.run = f"run-{number}"
        ours.agree(grid, initial(), 12)
        ledger.settle(ours.run)
    state = json.loads(str(grid.contexts[InProcessGrid.FIRST].state["fedprice"]["evidence"]))
    assert state["faults"]["runs opened and not played"] == 2  # it is told with the next offer
    lines = [line for line in describe(ledger.verify()) if "OPENED AND NOT PLAYED" in line]
    assert [line.split("'")[1] for line in lines] == ["run-0", "run-1", "run-2"]


def test_the_largest_loss_of_a_day() -> None:
    """Whatever the server does, a day costs no more."""

    def limited(**own: Any) -> ClientApp:
        return client_app(client=lambda context: Client(**vars(client_of(context)) | own))

    ledger, grid = new_ledger(), InProcessGrid(limited(largest_loss=1e-9), 4)
    _, sent = calls(grid, ledger, rounds=0)
    for reply in grid.send_and_receive(sent):
        assert "it declines: the last day has cost it 0 more than it was paid" in reason(reply)
    assert Client("a", SERVER, 1, 1.0).largest_loss == math.inf


def test_a_call_of_another_run_or_client() -> None:
    ledger, grid = new_ledger(), InProcessGrid(client_app(), 4)
    _, sent = calls(grid, ledger, rounds=0)
    call = next(m for m in sent if m.metadata.dst_node_id == 1002)
    for changes, why in (
        ({"run": "other"}, "the call of another run"),
        ({"ledger": ZERO}, "the call of another run"),
        ({"client": "alice"}, "calls another client"),
        ({"model": ZERO}, "names another model"),
    ):
        assert why in reason(sent_again(grid, call, **resigned(call, **changes)))
    assert Call(LEDGER, "run", 0, "a", ZERO, 1).round == 0


def test_what_a_client_holds_is_enough_to_prove_what_it_was_asked_and_paid(tmp_path: Path) -> None:
    """To somebody who has never seen the ledger: `fedprice statement --receipts` and `verify`."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    strategy(ledger).start(grid, initial(), num_rounds=12)
    file, bundle = tmp_path / "2.receipts", tmp_path / "bundle.jsonl"
    done = CliRunner().invoke(app, ["statement", "--receipts", str(file), "-o", str(bundle)])
    assert done.exit_code == 0, done.output
    own = ledger.run("run").clients[BOB]
    said = (
        f"asked in {own.heads} rounds, sent {own.heads} updates: {own.joined} accepted, 0 refused"
    )
    assert f"{said}, 0 without a receipt; paid {own.paid / 10**6:,.6f}" in done.output
    checked = CliRunner().invoke(app, ["verify", str(bundle)])
    assert (checked.exit_code, checked.output) == (0, done.output)
    odd = CliRunner().invoke(app, ["verify", str(bundle), "--client", BOB])
    assert "is a client's receipts, not an export" in str(odd.exception)
    lines = bundle.read_text("utf-8").splitlines()
    without = [line for line in lines if '\\"kind\\":\\"Receipt\\"' not in line]
    bundle.write_text("\n".join(without) + "\n", "utf-8")
    assert f"0 accepted, 0 refused, {own.heads} without a receipt" in "\n".join(
        verified_lines(bundle)
    )
    bundle.write_text("\n".join(lines).replace("Receipt", "Receipd"), "utf-8")
    with pytest.raises(VerificationError, match="is not a signed message"):
        verified_lines(bundle)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"paid": 0}, "the server had paid 0 micro-units, and"),
        ({"refused": "no"}, "signed two receipts that contradict each other"),
    ],
)
def test_receipts_that_contradict_the_agreement(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    calls(grid, ledger, rounds=3)
    file = tmp_path / "2.receipts"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    at, receipt = next(
        (n, json.loads(line["content"]))
        for n, line in enumerate(lines)
        if json.loads(line["content"])["kind"] == "Receipt"
    )
    text = canonical(receipt | change)
    forged = {"content": text, "signature": SERVER.sign_text(text).hex(), "key": lines[at]["key"]}
    lines[at : at + ("paid" in change)] = [forged]
    file.write_text("".join(canonical(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(VerificationError, match=why):
        verified_lines(file)


def verified_lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        return list(describe_kept(signed_messages(file, str(path))))


def test_updates_that_leave_the_model_as_it_was_in_its_own_type() -> None:
    """1e-40 in every number was accepted and paid, 200 times of 200."""

    def tiny(message: Message, context: Context) -> Message:
        reply = train(message, context)
        reply.content["arrays"] = to_record(["weights"], [np.full((10, 61), 1e-12, np.float32)])
        return reply

    ledger, model = new_ledger(), to_record(["weights"], [np.ones((10, 61), np.float32)])
    grid, ours = InProcessGrid(client_app(tiny), 4), strategy(ledger)
    arrays = ours.agree(grid, model, 12)
    sent = ours.configure_train(1, arrays, ConfigRecord(), grid)
    ours.aggregate_train(1, grid.send_and_receive(sent))
    (round_,) = ledger.rounds("run")
    assert round_["joined"] == {}
    for why, update, *_ in round_["refused"].values():
        assert why == "it changes nothing in the numbers of the model."
        assert update


def test_calls_and_endings_are_compared_with_the_ledger(tmp_path: Path) -> None:
    """A call out of order, and an end of offers that were opened, are the server's own words."""
    ledger, path = new_ledger(), tmp_path / "market.jsonl"
    calls(InProcessGrid(client_app(client=keeping(tmp_path)), 4), ledger, rounds=3)
    export(ledger, path, date=datetime.date(2026, 1, 2))
    messages = kept_of(tmp_path, BOB)
    books = check_export(path, receipts=messages)
    assert len(books.called) == 3
    call = next(m for m in messages if m["kind"] == "Call")
    for changed, said in (
        ({"round": 9}, "for round 10 of run 'run' at entry 7, when 0 rounds were recorded"),
        ({"number": 3}, "at entry 3, when the run was not under way"),
    ):
        with pytest.raises(VerificationError, match=said):
            check_export(path, receipts=[*messages, call | changed])
    ending = {"kind": "Ending", "ledger": LEDGER, "run": "run", "text": ""}
    with pytest.raises(VerificationError, match="came to nothing; the ledger says otherwise"):
        check_export(path, receipts=[ending | {"signed by": SERVER.public.hex()}])


def test_a_restarted_client_knows_what_it_sent(tmp_path: Path) -> None:
    """Without a file it gave secrets again, 20 of 20: receipts are kept beside the key now."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    _, first = calls(grid, ledger, rounds=0)
    old = next(m for m in first if m.metadata.dst_node_id == 1002)
    calls(InProcessGrid(client_app(client=keeping(tmp_path)), 4), ledger, rounds=2)
    again = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    assert "calls are out of order" in reason(sent_again(again, old))


def last_receipt(call: Message) -> Receipt:
    receipt = signed_of(dict(call.content.config_records["fedprice"]), "receipt")
    found: Receipt = receipt.open(Receipt, SERVER.public)
    return found


def paid_call(grid: InProcessGrid, ledger: Ledger) -> Message:
    """A call to a client that is paid, and has a receipt for its last update."""
    _, sent = calls(grid, ledger, rounds=1)
    return next(
        m for m in sent
        if "receipt" in m.content.config_records["fedprice"] and last_receipt(m).paid > 0
    )  # fmt: skip


def test_receipts_for_accepted_updates_that_were_not_paid(tmp_path: Path) -> None:
    """It went on to train for a server whose own receipts said that it paid nothing."""
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    call = paid_call(grid, new_ledger())
    unpaid = signed_fields("receipt", SERVER.sign(replace(last_receipt(call), paid=0)))
    why = reason(sent_again(grid, call, **unpaid))
    assert "receipts say that 1 accepted update was paid 0 micro-units, not" in why


def test_updates_that_are_refused_one_after_another(tmp_path: Path) -> None:
    """It trained in all rounds for a server that found something wrong with every update."""
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    call = paid_call(grid, new_ledger())
    first = last_receipt(call)
    for number in range(5):
        lie = replace(first, round=number, refused="it is odd", paid=0)
        refused = signed_fields("receipt", SERVER.sign(lie))
        reply = sent_again(grid, call, **refused)
    assert "its last 5 updates of this run were refused" in reason(reply)


def test_a_ledger_that_claims_to_be_far_ahead(tmp_path: Path) -> None:
    """Junk of 10,000 digests passed for a ledger that had grown, in the middle of a run."""
    ledger = new_ledger()
    grid = InProcessGrid(client_app(client=keeping(tmp_path)), 4)
    _, sent = calls(grid, ledger, rounds=1)
    call = next(m for m in sent if m.metadata.dst_node_id == 1002)
    ahead = head_of(50_000, "12" * 32)
    why = reason(
        sent_again(
            grid, call, **resigned(call, number=50_000), **ahead, links="ab" * 320_000, after=40_000
        )
    )
    assert "nothing shows that the ledger's head follows" in why
