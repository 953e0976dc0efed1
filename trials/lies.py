"""The lies of a dishonest server, each a function that changes an export."""

import copy
import json
from collections.abc import Callable
from typing import Any

from fedprice.market.messages import SigningKey
from fedprice.verify import LEVEL_ONE, secret_hash
from trials.forger import Forger, InapplicableError
from trials.honest import KNOWN, MICRO, Message, hash_of, key_for, server_after, text_of

Operator = Callable[[Forger], None]
OPERATORS: dict[str, Operator] = {}


def lie(operator: Operator) -> Operator:
    OPERATORS[operator.__name__] = operator
    return operator


# About offers and commitments.


@lie
def change_price(f: Forger) -> None:
    """Change the price of one block of a tariff."""

    def other(tariff: list[list[int]]) -> list[list[int]]:
        block = f.choice(tariff)
        block[1] += f.choice([-MICRO, -1, 1, MICRO, -2 * block[1]])
        return tariff

    f.edit_offer(tariff=other)


@lie
def change_level_cap(f: Forger) -> None:
    """Let a tariff end at another level."""

    def other(tariff: list[list[int]]) -> list[list[int]]:
        cap = tariff[-1][0]
        tariff[-1][0] = f.choice([cap // 2, cap - 1, cap + 1, LEVEL_ONE, 0, True])
        return tariff

    f.edit_offer(tariff=other)


@lie
def change_the_blocks(f: Forger) -> None:
    """Cut a block in two with a higher or lower price, or leave one out, or double or swap some."""

    def other(tariff: list[list[int]]) -> list[list[int]]:
        end, price = tariff[0]
        return f.choice(  # type: ignore[no-any-return]
            [
                [[end // 2, price + f.choice([-MICRO, MICRO])], *tariff],
                [[end // 2, price], *tariff],  # pays the same
                tariff[1:],
                tariff[:-1],
                [tariff[0], *tariff],
                tariff[::-1] if len(tariff) > 1 else [[end, price], [end - 1, price]],
                [[n + 1, 0] for n in range(256)] + tariff,
            ]
        )

    f.edit_offer(tariff=other)


@lie
def change_the_form_of_a_tariff(f: Forger) -> None:
    wrong: list[Any] = [[], {}, "", 5, None, [[]], [[1]], [5, 5], ["55"], [[LEVEL_ONE, 2**62 + 1]]]
    f.edit_offer(tariff=f.choice([*wrong, [[LEVEL_ONE, 0.5]], [[0.5, 1]], [[LEVEL_ONE, 5, 5]]]))


@lie
def exchange_the_prices_of_blocks(f: Forger) -> None:
    """Pay a level as another block does."""

    def other(tariff: list[list[int]]) -> list[list[int]]:
        prices = [price for _, price in tariff]
        return [[end, price] for (end, _), price in zip(tariff, prices[::-1], strict=True)]

    f.edit_offer(tariff=other)


@lie
def change_menu(f: Forger) -> None:
    f.edit_offer(menu=lambda menu: f.choice([not menu, 0, 1, "true", None]))


@lie
def choose_between_the_levels_of_a_menu(f: Forger) -> None:
    """Offer a menu of which the level that a client chose is none."""

    def other(tariff: list[list[int]]) -> list[list[int]]:
        (*_, [end, price]) = tariff
        return [[end // 3, price], [end - 1, price]]

    f.edit_offer(tariff=other, menu=True)


@lie
def pay_another_level(f: Forger) -> None:
    """Pay a round as if another level had been chosen."""
    entry = f.entry(f.round("joined"))
    if len(entry["postings"]) < 2:
        raise InapplicableError
    escrow, paid = entry["postings"][0], f.choice(entry["postings"][1:])
    amount = f.choice([paid[1] // 2, paid[1] * 2, paid[1] + 1])
    escrow[1] -= amount - paid[1]
    paid[1] = amount


@lie
def change_level_floor(f: Forger) -> None:
    f.edit_offer(level_floor=lambda floor: f.choice([0, floor + 1, LEVEL_ONE, 1.0]))


@lie
def change_norm_cap(f: Forger) -> None:
    f.edit_offer(norm_cap=lambda cap: f.choice(["0.001", "1e300", "inf", "nan", "", "７", 5]))


@lie
def change_impact(f: Forger) -> None:
    f.edit_offer(impact=f.choice(["0.5", "-1", "", "1e999"]))


@lie
def change_coin_secret(f: Forger) -> None:
    """Take another secret, and sign another offer that has its hash."""
    opened = f.pick("open")
    client = f.choice(opened["secrets"])
    mine = f.rng.randbytes(32)
    opened["secrets"][client][0] = mine.hex()

    def edit(own: Message) -> None:
        if own["client"] == client:
            own["coin_hash"] = secret_hash(mine)

    f.edit_offers(f.partner(opened, "offer"), edit)


@lie
def reveal_another_secret(f: Forger) -> None:
    opened = f.pick("open")
    own = opened["secrets"][f.choice(opened["secrets"])]
    own[f.rng.randrange(2)] = f.rng.randbytes(32).hex()


@lie
def swap_secrets(f: Forger) -> None:
    secrets = f.pick("open")["secrets"]
    if len(secrets) < 2:
        raise InapplicableError
    a, b = f.rng.sample([*secrets], 2)
    i = f.rng.randrange(2)
    secrets[a][i], secrets[b][i] = secrets[b][i], secrets[a][i]


@lie
def change_replaces(f: Forger) -> None:
    f.edit_offer(replaces=lambda old: "" if old else f.rng.randbytes(32).hex())


@lie
def change_rounds(f: Forger) -> None:
    f.edit_conditions(rounds=lambda r: r + f.choice([-1, 1, 1000, -r, 0.5]))


@lie
def change_run_rounds(f: Forger) -> None:
    f.edit_conditions(run_rounds=lambda r: r + f.choice([-1, 1, 1000]))


@lie
def change_conditions_model(f: Forger) -> None:
    f.edit_conditions(model=f.rng.randbytes(32).hex())


@lie
def change_task_or_schema(f: Forger) -> None:
    f.edit_conditions(**f.choice([{"task": "2" * 64}, {"schema": {}}, {"schema": [1]}]))


@lie
def change_nonce(f: Forger) -> None:
    f.edit_conditions(nonce=f.rng.randbytes(32).hex())


@lie
def change_expiry(f: Forger) -> None:
    f.edit_conditions(expires=f.choice([0, -1, 1 << 39, 10**30, False]))


@lie
def change_largest_weight(f: Forger) -> None:
    f.edit_conditions(**f.choice([{"max_weight": "0.1"}, {"longest_gap": 1}, {"max_weight": "0"}]))


@lie
def change_announced_beacon(f: Forger) -> None:
    f.edit_conditions(beacon=lambda b: "" if b else "drand 8")


@lie
def change_follows(f: Forger) -> None:
    f.edit_conditions(follows=f.choice(["", "run", "5", "none"]))


@lie
def change_unit_of_conditions(f: Forger) -> None:
    f.edit_conditions(unit=f.choice(["USD", "", "eur", "EUR\n"]))


@lie
def change_ledger_of_conditions(f: Forger) -> None:
    f.edit_conditions(ledger=f.rng.randbytes(32).hex())


@lie
def drop_an_offer(f: Forger) -> None:
    offers = f.pick("offer")["offers"]
    offers.remove(f.choice(offers))


@lie
def drop_an_offer_everywhere(f: Forger) -> None:
    """Leave a client out as if it had never been offered anything."""
    name = f.choice(f.market.clients)
    for entry in f.all("offer", "commit", "open", "round"):
        content = entry["content"]
        for part in ("commitments", "secrets", "dropped", "joined", "refused"):
            if part in content:
                content[part].pop(name, None)
        if "missed" in content:
            content["missed"] = [m for m in content["missed"] if m != name]
        if "offers" in content:
            content["offers"] = [o for o in content["offers"] if json.loads(o[0])["client"] != name]


@lie
def offer_twice(f: Forger) -> None:
    offers = f.pick("offer")["offers"]
    offers.append(f.choice(offers))


@lie
def reorder_offers(f: Forger) -> None:
    f.rng.shuffle(f.pick("offer")["offers"])


@lie
def rename_an_offered_client(f: Forger) -> None:
    name = f.choice(["mallory", "alice ", "bo\nb", "", "dora", "e\u0301ve", 7])
    offered = f.edit_offer(client=name)
    committed = f.partner(offered, "commit")
    old = f.choice(committed["commitments"])
    committed["commitments"][str(name)] = committed["commitments"].pop(old)


@lie
def drop_a_commitment(f: Forger) -> None:
    """Say that a client did not answer."""
    committed = f.pick("commit")
    name = f.choice(committed["commitments"])
    del committed["commitments"][name]
    committed["dropped"][name] = "it did not answer"
    for entry in f.all("open"):
        opened = entry["content"]
        if opened["of"] == committed["of"][:1] and opened["attempt"] == committed["of"][1]:
            opened["secrets"].pop(name, None)


@lie
def drop_a_secret(f: Forger) -> None:
    """Leave out a client that has committed, so that all coins are others."""
    opened = f.pick("open")
    del opened["secrets"][f.choice(opened["secrets"])]


@lie
def hide_a_dropped_client(f: Forger) -> None:
    f.pick("offer", "commit", which=lambda c: bool(c["dropped"]))["dropped"].popitem()


@lie
def drop_a_stranger(f: Forger) -> None:
    f.pick("offer", "commit")["dropped"]["mallory"] = "it did not answer"


@lie
def change_a_reason(f: Forger) -> None:
    dropped = f.pick("offer", "commit", which=lambda c: bool(c["dropped"]))["dropped"]
    odd = ["another", "", "line\nbreak", "x" * 201, 5, "\x1b[2J"]
    dropped[f.choice(dropped)] = f.choice(odd)


@lie
def change_a_commitment(f: Forger) -> None:
    values: dict[str, Any] = f.choice(
        [
            {"level": lambda q: q - 1},
            {"level": LEVEL_ONE},
            {"samples": lambda s: s + 1},
            {"samples": True},
            {"grad_norm": "1"},
            {"grad_norm": "nan"},
            {"secret_hash": "3" * 64},
            {"offer": "3" * 64},
        ]
    )
    f.edit_commitment(**values)


@lie
def replay_a_commitment_of_another_run(f: Forger) -> None:
    a, b = f.pick("commit"), f.pick("commit")
    if a is b:
        raise InapplicableError
    both = {*a["commitments"]} & {*b["commitments"]}
    name = f.choice(sorted(both))
    a["commitments"][name] = copy.deepcopy(b["commitments"][name])


@lie
def open_a_run_under_another_name(f: Forger) -> None:
    """Use a run's commitments for a second run: all of it again under another name."""
    run = f.pick("open")["of"][0]
    new = f.choice(["again", "run#3", run + " ", 5])
    copies = copy.deepcopy([e for e in f.entries if e["content"]["of"][:1] == [run]])
    for entry in copies:
        content = entry["content"]
        content["of"][0] = new
        if content["kind"] == "offer":
            conditions = json.loads(content["conditions"])
            content["conditions"] = text_of(conditions | {"run": new})
            sheet = hash_of(content["conditions"])
            f.edit_offers(content, lambda own, sheet=sheet: own.update(conditions=sheet))  # type: ignore[misc]
    f.entries += copies


@lie
def rename_a_run(f: Forger) -> None:
    run = f.pick("open")["of"][0]
    new = f.choice([5, "5", "run#2", "5\n", True, None, ["run"], "other"])
    for entry in f.entries:
        if entry["content"]["of"][:1] == [run]:
            entry["content"]["of"][0] = new


@lie
def sweep_the_escrow_of_a_run_of_another_type(f: Forger) -> None:
    """Settle a run named 5, as a number, out of the escrow of the run "5"."""
    f.add(len(f.entries), "settle", [5], rounds=3)
    f.entries[-1]["postings"] = [["escrow:5", -1000], ["treasury", 1000]]


@lie
def invent_a_client(f: Forger) -> None:
    f.invent(f.pick("open"), "mallory")


@lie
def invent_a_client_with_a_known_name(f: Forger) -> None:
    f.invent(f.pick("open"), f.choice([*f.market.clients, "erin", "frank"]))


@lie
def two_names_one_key(f: Forger) -> None:
    opened = f.pick("open")
    f.invented["mallory"] = f.invented["trudy"] = key_for("sybil")
    f.invent(opened, "mallory")
    f.invent(opened, "trudy")


@lie
def a_client_with_the_servers_key(f: Forger) -> None:
    f.invented["mallory"] = f.choice(f.servers.values())
    f.invent(f.pick("open"), "mallory")


@lie
def skip_an_attempt(f: Forger) -> None:
    """Hide the first set of offers, and count the others from 1."""
    run = f.pick("offer", which=lambda c: c["of"][1] == 2)["of"][0]
    f.entries = [
        e
        for e in f.entries
        if not (e["content"]["kind"] in ("offer", "commit") and e["content"]["of"] == [run, 1])
    ]
    for entry in f.all("offer", "commit"):
        content = entry["content"]
        if content["of"] == [run, 2]:
            content["of"][1] = 1
            if content["kind"] == "offer":
                content["dropped"] = {}
                f.edit_offers(content, lambda own: own.update(replaces=""))
    for entry in f.all("open"):
        if entry["content"]["of"] == [run]:
            entry["content"]["attempt"] = 1


@lie
def invent_an_attempt(f: Forger) -> None:
    """Claim that offers were made before, and dropped."""
    offered = f.pick("offer", which=lambda c: c["of"][1] == 1)
    run, place = offered["of"][0], f.place(offered)
    other = copy.deepcopy(offered)
    f.add(place, **other)
    for entry in f.entries[place + 1 :]:
        content = entry["content"]
        if content["kind"] in ("offer", "commit") and content["of"][0] == run:
            content["of"][1] += 1
        if content["kind"] == "open" and content["of"] == [run]:
            content["attempt"] += 1
    names = [json.loads(text)["client"] for text, _ in other["offers"]]
    offered["dropped"] = dict.fromkeys(names, "nobody answered")
    texts = {json.loads(text)["client"]: hash_of(text) for text, _ in other["offers"]}
    f.edit_offers(offered, lambda own: own.update(replaces=texts.get(own["client"], "")))


@lie
def name_another_attempt(f: Forger) -> None:
    f.pick("open")["attempt"] = f.choice([0, 1, 2, 3, True, -1])


@lie
def change_the_beacon(f: Forger) -> None:
    f.pick("open")["beacon"] = f.choice(["drand 7: 2f", "", "x\ty", 5])


@lie
def change_the_budget(f: Forger) -> None:
    f.pick("open")["budget"] += f.choice([-MICRO, MICRO, -1, 1, -(10**9), 1 << 70])


@lie
def open_unsigned(f: Forger) -> None:
    """Turn a signed run into one that nobody signed."""
    opened = f.pick("open")
    run = opened["of"][0]
    f.entries = [
        e
        for e in f.entries
        if e["content"]["kind"] not in ("offer", "commit") or e["content"]["of"][0] != run
    ]
    price = f.choice([0, MICRO, -MICRO])
    terms = [[name, price, LEVEL_ONE // 2, 10] for name in opened["secrets"]]
    opened.clear()
    opened |= {"kind": "open", "of": [run], "rounds": 6, "budget": 20 * MICRO, "terms": terms}


# About rounds.


@lie
def say_that_an_update_was_missed(f: Forger) -> None:
    round_ = f.round("joined")
    name = f.choice(round_["joined"])
    del round_["joined"][name]
    round_["missed"] = sorted([*round_["missed"], name])


@lie
def say_that_an_update_was_refused(f: Forger) -> None:
    round_ = f.round("joined")
    name = f.choice(round_["joined"])
    update, _, norm, _, _, signature = round_["joined"].pop(name)
    evidence = [update, norm, signature] if f.rng.random() < 0.5 else ["", "", ""]
    round_["refused"][name] = ["its norm is too large", *evidence]


@lie
def drop_the_evidence_of_a_refusal(f: Forger) -> None:
    round_ = f.pick("round", which=lambda c: any(own[1] for own in c["refused"].values()))
    name = f.choice(n for n, own in round_["refused"].items() if own[1])
    spare = f.choice([["", "", ""], ["", "1", ""], None])
    reason = round_["refused"].pop(name)[0]
    if spare is None:
        round_["missed"] = sorted([*round_["missed"], name])
    else:
        round_["refused"][name] = [reason, *spare]


@lie
def accept_what_was_refused(f: Forger) -> None:
    round_ = f.pick("round", which=lambda c: any(own[1] for own in c["refused"].values()))
    name = f.choice(n for n, own in round_["refused"].items() if own[1])
    _, update, norm, signature = round_["refused"].pop(name)
    round_["joined"][name] = [update, "1.0", norm or "1", "", "", signature]


@lie
def accept_what_was_missed(f: Forger) -> None:
    round_ = f.round("missed")
    name = round_["missed"].pop(f.rng.randrange(len(round_["missed"])))
    other = f.choice([own for e in f.all("round") for own in e["content"]["joined"].values()])
    round_["joined"][name] = list(other)


@lie
def change_why_an_update_was_refused(f: Forger) -> None:
    round_ = f.round("refused")
    odd = ["another reason", "", "\x00", "x" * 500, None]
    round_["refused"][f.choice(round_["refused"])][0] = f.choice(odd)


@lie
def change_evidence_of_a_refusal(f: Forger) -> None:
    round_ = f.round("refused")
    own = round_["refused"][f.choice(round_["refused"])]
    own[f.choice([1, 2, 3])] = f.choice(["4" * 64, "3", "nan", "5" * 128, 7, ""])


@lie
def hide_heads(f: Forger) -> None:
    """Say that a client's coin showed tails."""
    round_ = f.round(f.choice(["joined", "missed", "refused"]))
    part = f.choice(p for p in ("joined", "missed", "refused") if round_[p])
    name = f.choice(round_[part])
    if part == "missed":
        round_[part].remove(name)
    else:
        del round_[part][name]


@lie
def invent_heads(f: Forger) -> None:
    """Say that a client's coin showed heads, and that it missed the round."""
    round_ = f.round()
    name = f.choice(n for n in [*f.market.clients, "mallory"] if n not in round_["missed"])
    round_["missed"] = sorted([*round_["missed"], name])


@lie
def swap_updates_of_clients(f: Forger) -> None:
    joined = f.pick("round", which=lambda c: len(c["joined"]) > 1)["joined"]
    a, b = f.rng.sample([*joined], 2)
    joined[a], joined[b] = joined[b], joined[a]


@lie
def swap_updates_of_rounds(f: Forger) -> None:
    a, b = f.round("joined"), f.round("joined")
    name = f.choice(sorted({*a["joined"]} & {*b["joined"]}))
    if a is b:
        raise InapplicableError
    a["joined"][name], b["joined"][name] = b["joined"][name], a["joined"][name]


@lie
def count_an_update_twice(f: Forger) -> None:
    a, b = f.round("joined"), f.round()
    name = f.choice(a["joined"])
    b["joined"][name] = list(a["joined"][name])
    b["missed"] = [m for m in b["missed"] if m != name]
    b["refused"].pop(name, None)


@lie
def change_an_update(f: Forger) -> None:
    joined = f.round("joined")["joined"]
    joined[f.choice(joined)][0] = f.choice([f.rng.randbytes(32).hex(), "", 5, "G" * 64])


@lie
def change_the_signature_of_an_update(f: Forger) -> None:
    joined = f.round("joined")["joined"]
    own = joined[f.choice(joined)]
    signer = f.choice(f.servers.values())
    own[5] = f.choice(["", "0" * 128, own[5].upper(), KNOWN.sign(signer, own[0]), own[5] + "00"])


@lie
def change_a_weight(f: Forger) -> None:
    joined = f.round("joined")["joined"]
    own = joined[f.choice(joined)]
    own[1] = f.choice(["0.0", "1.0", own[1] + "0", f" {own[1]}", "1e5", float(own[1]), "nan"])


@lie
def change_a_norm(f: Forger) -> None:
    joined = f.round("joined")["joined"]
    own = joined[f.choice(joined)]
    own[f.choice([2, 3])] = f.choice(["0", "3", "1e200", "1e999", "nan", "-1", "٣", True, ""])


@lie
def change_a_sketch(f: Forger) -> None:
    joined = f.round("joined")["joined"]
    joined[f.choice(joined)][4] = f.choice(["", "1,2,3", "x", "1\n", "1" * 121, 4])


@lie
def change_a_model(f: Forger) -> None:
    f.round()["model"] = f.choice([f.rng.randbytes(32).hex(), "0" * 64, "", "0" * 63 + "G"])


@lie
def change_the_state(f: Forger) -> None:
    round_ = f.round()
    round_["state"] = f.choice([not round_["state"], 1, "true", None])


@lie
def drop_a_round(f: Forger) -> None:
    f.entries.remove(f.entry(f.round()))


@lie
def drop_a_round_and_count_on(f: Forger) -> None:
    round_ = f.round()
    f.entries.remove(f.entry(round_))
    for entry in f.all("round"):
        if entry["content"]["of"][0] == round_["of"][0]:
            entry["content"]["of"][1] -= entry["content"]["of"][1] > round_["of"][1]


@lie
def repeat_a_round(f: Forger) -> None:
    round_ = f.round()
    f.entries.insert(f.place(round_), copy.deepcopy(f.entry(round_)))


@lie
def number_a_round_anew(f: Forger) -> None:
    round_ = f.round()
    round_["of"][1] = f.choice([-1, round_["of"][1] + 1, True, 0.0, "0", 10**30])


@lie
def name_a_client_twice_in_a_round(f: Forger) -> None:
    round_ = f.round("missed")
    round_["missed"].append(round_["missed"][-1])


@lie
def settle_early(f: Forger) -> None:
    """End a run before its last rounds, or say so."""
    run = f.pick("settle")["of"][0]
    rounds = [e for e in f.all("round") if e["content"]["of"][0] == run]
    gone = rounds[f.rng.randrange(len(rounds)) :]
    f.entries = [e for e in f.entries if all(e is not g for g in gone)]


@lie
def settle_in_the_middle(f: Forger) -> None:
    settled = f.entry(f.pick("settle"))
    run = settled["content"]["of"][0]
    f.entries.remove(settled)
    f.entries.insert(f.place(f.pick("round", which=lambda c: c["of"][0] == run)), settled)


@lie
def settle_twice(f: Forger) -> None:
    f.entries.append(copy.deepcopy(f.entry(f.pick("settle"))))


@lie
def settle_other_rounds(f: Forger) -> None:
    settled = f.pick("settle")
    settled["rounds"] = f.choice([0, settled["rounds"] - 1, settled["rounds"] + 1, True, 6.0])


@lie
def settle_never(f: Forger) -> None:
    f.entries.remove(f.entry(f.pick("settle")))


# About money.


@lie
def change_a_posting(f: Forger) -> None:
    line = f.choice(line for e in f.entries for line in e["postings"])
    line[1] = f.choice([line[1] + 1, line[1] - 1, -line[1], 0, float(line[1]), True, 1 << 80])


@lie
def pay_less(f: Forger) -> None:
    """Take a micro-unit or all from a client's payment, and leave it in the escrow."""
    entry = f.choice(e for e in f.all("round") if e["postings"])
    escrow, line = entry["postings"][0], f.choice(entry["postings"][1:])
    part = f.choice([1, line[1]])
    line[1] -= part
    escrow[1] += part
    entry["postings"] = [own for own in entry["postings"] if own[1]]


@lie
def pay_another(f: Forger) -> None:
    line = f.choice(line for e in f.all("round") for line in e["postings"][1:])
    line[0] = f.choice(["treasury", "client:mallory", "client:alice", "world"])


@lie
def split_a_posting(f: Forger) -> None:
    entry = f.choice(e for e in f.entries if e["postings"])
    line = f.choice(entry["postings"])
    entry["postings"].append([line[0], line[1] - line[1] // 2])
    line[1] //= 2


@lie
def merge_postings(f: Forger) -> None:
    entry = f.choice(e for e in f.entries if len(e["postings"]) > 2)
    a, b = f.rng.sample(entry["postings"], 2)
    a[1] += b[1]
    entry["postings"].remove(b)


@lie
def reorder_postings(f: Forger) -> None:
    f.rng.shuffle(f.choice(e["postings"] for e in f.entries if len(e["postings"]) > 1))


@lie
def add_a_transfer(f: Forger) -> None:
    """Move money in an entry that has nothing to do with it."""
    entry = f.choice(f.entries)
    whose = f.choice(["client:alice", "client:bob", "client:dora", "escrow:5", "world"])
    entry["postings"] = [*entry["postings"], [whose, -1000], ["treasury", 1000]]


@lie
def steal_the_escrow(f: Forger) -> None:
    entry = f.choice(e for e in f.all("settle", "open") if e["postings"])
    for line in entry["postings"]:
        if line[0].startswith("client:"):
            line[0] = "treasury"


@lie
def keep_a_refund(f: Forger) -> None:
    entry = f.choice(e for e in f.all("settle") if len(e["postings"]) > 2)
    line = f.choice(own for own in entry["postings"] if own[0].startswith("client:"))
    entry["postings"].remove(line)
    entry["postings"][-1][1] += line[1]


@lie
def forge_a_deposit(f: Forger) -> None:
    account = f.choice(["treasury", "client:dora", "client:mallory", "world", "escrow:5", 5])
    f.add(f.rng.randrange(1, len(f.entries) + 1), "deposit", [account, "forged"], amount=MICRO)
    f.entries[-1]["postings"] = [["world", -MICRO], [account, MICRO]]


@lie
def change_a_deposit(f: Forger) -> None:
    deposit = f.pick("deposit")
    deposit["amount"] = f.choice(
        [deposit["amount"] - MICRO, deposit["amount"] + 1, -5, 0, 1e6, True]
    )


@lie
def rename_a_deposit(f: Forger) -> None:
    """Record a deposit under another reference, also one that its owner signed away again."""
    f.pick("deposit")["of"][1] += "!"


@lie
def drop_a_deposit(f: Forger) -> None:
    f.entries.remove(f.entry(f.pick("deposit")))


@lie
def deposit_for_another(f: Forger) -> None:
    f.pick("deposit")["of"][0] = f.choice(["treasury", "client:alice", "client:mallory"])


@lie
def forge_a_withdrawal(f: Forger) -> None:
    """Take a client's money: unsigned, signed by the server, or with an old signature."""
    old = f.pick("withdraw", which=lambda c: bool(c["message"]))
    name = f.choice(f.market.clients)
    account, amount = f"client:{name}", f.choice([1, 1000, old["amount"]])
    message = {"account": account, "amount": amount, "reference": "forged"}
    text = text_of(message | {"kind": "Withdrawal", "ledger": f.market.books.ledger})
    signatures = ["", old["signature"], KNOWN.sign(f.choice(f.servers.values()), text)]
    signature = f.choice(signatures)
    content = {"amount": amount, "message": text if signature else "", "signature": signature}
    f.add(f.rng.randrange(1, len(f.entries) + 1), "withdraw", [account, "forged"], **content)


@lie
def repeat_a_withdrawal(f: Forger) -> None:
    """Pay out the same signed withdrawal again, under another reference or amount."""
    old = f.pick("withdraw", which=lambda c: bool(c["message"]))
    new = copy.deepcopy(f.entry(old))
    new["content"]["of"][1] += f.choice(["", " again"])
    f.entries.append(new)


@lie
def change_a_withdrawal(f: Forger) -> None:
    old = f.pick("withdraw")
    change = f.choice(["amount", "of", "account"])
    if change == "amount":
        old["amount"] += f.choice([1, 1000, -1, 0.5])
    elif change == "of":
        old["of"][1] += "!"
    else:
        old["of"][0] = f.choice(["client:alice", "treasury", "client:carol"])


@lie
def drop_a_withdrawal(f: Forger) -> None:
    f.entries.remove(f.entry(f.pick("withdraw")))


@lie
def withdraw_from_the_treasury(f: Forger) -> None:
    place = f.rng.randrange(3, len(f.entries) + 1)
    content = {"amount": MICRO, "message": "", "signature": ""}
    f.add(place, "withdraw", ["treasury", "forged"], **content)


@lie
def forge_a_reversal(f: Forger) -> None:
    """Undo deposits and withdrawals, with no signature, the server's, or an old one."""
    old = f.pick("reverse", which=lambda c: bool(c["message"]))
    number = f.choice([2, 3, 4, *(e["number"] for e in f.all("withdraw", "round")), 0, -1, True])
    message = {"entry": number, "amount": 2 * MICRO, "reason": "forged", "kind": "Reversal"}
    text = text_of(message | {"ledger": f.market.books.ledger})
    own = KNOWN.sign(f.choice(f.servers.values()), text)
    signature = f.choice(["", old["signature"], own])
    content = {"message": text if signature else "", "signature": signature}
    f.add(len(f.entries), "reverse", [number], reason="forged", **content)


@lie
def repeat_a_reversal(f: Forger) -> None:
    f.entries.append(copy.deepcopy(f.entry(f.pick("reverse"))))


@lie
def reverse_another_entry(f: Forger) -> None:
    f.pick("reverse")["of"][0] = f.choice([2, 3, *(e["number"] for e in f.all("withdraw"))])


@lie
def exchange_deposits_below_a_reversal(f: Forger) -> None:
    """Let a reversal that a client signed undo another deposit of its own."""
    a, b = [e for e in f.all("deposit") if e["content"]["of"][0] == "client:dora"][:2]
    i, j = f.entries.index(a), f.entries.index(b)
    f.entries[i], f.entries[j] = b, a


@lie
def grow_a_deposit_below_a_reversal(f: Forger) -> None:
    """Move money between two deposits, so that what is reversed is more."""
    a, b = [e["content"] for e in f.all("deposit") if e["content"]["of"][0] == "client:dora"][:2]
    part = f.rng.randrange(1, 5 * MICRO)
    a["amount"] -= part
    b["amount"] += part


@lie
def drop_a_reversal(f: Forger) -> None:
    f.entries.remove(f.entry(f.pick("reverse")))


# About keys.


@lie
def rotate_without_the_owner(f: Forger) -> None:
    """Give a client a key of the server's choice."""
    name = f.choice(f.market.clients)
    account, keys = f"client:{name}", f.market.clients[name]
    new = key_for("stolen", name)
    fields = {"account": account, "ledger": f.market.books.ledger, "old": keys[-1]}
    text = text_of(fields | {"kind": "Rotation", "new": new.public.hex()})
    by_server = KNOWN.sign(f.choice(f.servers.values()), text)
    signature = f.choice(["", by_server, KNOWN.sign(new, text)])
    content = {"message": text, "signature": signature, "proof": KNOWN.sign(new, text)}
    number = f.choice([len(keys) + 1, 1, len(keys)])
    f.add(f.rng.randrange(1, len(f.entries) + 1), "rotate", [account, number], **content)


@lie
def rotate_before_the_first_key(f: Forger) -> None:
    """Register a client with a key of the server's choice before it commits."""
    name = f.choice([*f.market.clients, "mallory"])
    new = key_for("squatter", name)
    fields = {"account": f"client:{name}", "ledger": f.market.books.ledger, "old": ""}
    text = text_of(fields | {"kind": "Rotation", "new": new.public.hex()})
    content = {"message": text, "signature": "", "proof": KNOWN.sign(new, text)}
    f.add(1, "rotate", [f"client:{name}", f.choice([1, 2])], **content)


@lie
def rotate_to_a_key_that_is_taken(f: Forger) -> None:
    rotated = f.pick("rotate")
    message = json.loads(rotated["message"])
    message["new"] = f.choice(f.market.clients.values())[0]
    rotated["message"] = text_of(message)


@lie
def drop_a_rotation(f: Forger) -> None:
    f.entries.remove(f.entry(f.pick("rotate")))


@lie
def repeat_a_rotation(f: Forger) -> None:
    f.entries.append(copy.deepcopy(f.entry(f.pick("rotate"))))


@lie
def rotate_the_server(f: Forger) -> None:
    """Take a new key, at a place of the server's choice."""
    new_server(f, f.rng.randrange(1, len(f.entries) + 1))


@lie
def sign_an_offer_in_turn_with_another_key(f: Forger) -> None:
    """Take a new key between two turns, which the conditions of the offers do not name."""
    offered = f.pick("offer", which=lambda c: len(c["of"]) > 2)
    key = new_server(f, f.place(offered))
    for entry in f.entries[f.place(offered) :]:
        if entry["content"]["kind"] == "offer":
            for own in entry["content"]["offers"]:
                own[1] = KNOWN.sign(key, own[0])


def new_server(f: Forger, place: int) -> SigningKey:
    """Let the server replace its key in front of an entry; return the new one."""
    old, count = "", 0
    for entry in f.entries[:place]:
        now = server_after(old, entry["content"])
        old, count = now, count + (now != old)
    new = key_for("server new", f.rng.random())
    f.servers[new.public.hex()] = new
    fields = {"account": "treasury", "ledger": f.market.books.ledger, "old": old}
    text = text_of(fields | {"kind": "Rotation", "new": new.public.hex()})
    signature = KNOWN.sign(f.servers[old], text)
    content = {"message": text, "signature": signature, "proof": KNOWN.sign(new, text)}
    f.add(place, "rotate", ["treasury", count + 1], **content)
    return new


# About the ledger.


@lie
def change_the_beginning(f: Forger) -> None:
    begun = f.entries[0]["content"]
    values: dict[str, list[Any]] = {
        "unit": ["USD", "EUR\x1b", "", 5],
        "ledger": ["2" * 64, "", 7],
        "server": ["", next(reversed(f.servers)), "2" * 64],
        "format": [1, 3, 2.0, "2", True],
        "of": [[1], "", {}],
    }
    name = f.choice(values)
    begun[name] = f.choice(values[name])


@lie
def cut_the_end(f: Forger) -> None:
    del f.entries[f.rng.randrange(1, len(f.entries)) :]


@lie
def cut_the_beginning(f: Forger) -> None:
    del f.entries[: f.rng.randrange(1, 4)]


@lie
def drop_an_entry(f: Forger) -> None:
    f.entries.remove(f.choice(f.entries))


@lie
def repeat_an_entry(f: Forger) -> None:
    f.entries.insert(f.rng.randrange(len(f.entries)), copy.deepcopy(f.choice(f.entries)))


@lie
def swap_entries(f: Forger) -> None:
    i = f.rng.randrange(1, len(f.entries) - 1)
    j = f.choice([i + 1, f.rng.randrange(1, len(f.entries))])
    f.entries[i], f.entries[j] = f.entries[j], f.entries[i]


@lie
def drop_a_run(f: Forger) -> None:
    run = f.pick("open")["of"][0]
    f.entries = [e for e in f.entries if e["content"]["of"][:1] != [run]]


@lie
def change_the_kind_of_an_entry(f: Forger) -> None:
    content = f.choice(f.entries)["content"]
    content["kind"] = f.choice(["deposit", "round", "settle", "open", "gift", "run", "check", 5])


@lie
def change_the_form_of_an_entry(f: Forger) -> None:
    """Replace any value of any entry by one of another type, or leave it out."""
    content = f.choice(f.entries)["content"]
    at: Any = content
    while isinstance(at, dict | list) and at:
        where = f.choice(at if isinstance(at, dict) else range(len(at)))
        if not isinstance(at[where], dict | list) or f.rng.random() < 0.3:
            if f.rng.random() < 0.2:
                del at[where]
            else:
                odd: list[Any] = [
                    None,
                    True,
                    0,
                    -1,
                    1.5,
                    "",
                    "x",
                    [],
                    {},
                    [[]],
                    10**40,
                    "\u202e",
                    "\x00",
                    {"a": 1},
                ]
                at[where] = f.choice(odd)
            return
        at = at[where]
    raise InapplicableError


@lie
def add_a_field(f: Forger) -> None:
    f.choice(f.entries)["content"][f.choice(["note", "server", "amount"])] = 1
