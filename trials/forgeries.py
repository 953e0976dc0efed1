"""Altered, stolen and random messages: none may be accepted, none may crash anything."""

import random

import numpy as np

from fedprice.errors import FedpriceError
from fedprice.market.ledger import Ledger
from fedprice.market.messages import Signed
from fedprice.market.offers import Commitment, Offer, check_commitment
from fedprice.market.simulation import simulation_key
from fedprice.market.updates import Update, UpdateDesk, arrays_hash
from trials.markets import small_agreement


def altered(signed: Signed, rng: random.Random) -> Signed:
    """Return a message with some bytes changed, cut off, or put together from others."""
    parts = [bytearray(signed.content), bytearray(signed.signature), bytearray(signed.key)]
    part = rng.choice(parts)
    for _ in range(rng.randrange(1, 4)):
        kind = rng.random()
        spot = rng.randrange(len(part)) if part else 0
        if kind < 0.6 and part:
            part[spot] ^= 1 << rng.randrange(8)
        elif kind < 0.8:
            del part[spot:]
        else:
            part[spot:spot] = rng.randbytes(rng.randrange(1, 9))
    changed = Signed(*(bytes(part) for part in parts))
    return changed if changed != signed else altered(signed, rng)  # a bit may flip back


def forgeries(count: int, seed: int = 0) -> dict[str, int]:
    """Send forged offers, commitments and updates; count what went wrong."""
    rng = random.Random(seed)
    ledger = Ledger("sqlite://")
    ledger.deposit("treasury", 4_000_000, "budget")
    agreement, keys = small_agreement(ledger)
    ledger.close()
    names = list(keys)
    server, mallory = simulation_key("server"), simulation_key("mallory")
    offers = {name: deal.offer for name, deal in agreement.deals.items()}
    answers = {name: deal.commitment for name, deal in agreement.deals.items()}
    public = {name: key.public for name, key in keys.items()}
    good = np.arange(610, dtype=np.float32).reshape(10, 61) / 610
    holes = [np.full_like(good, odd) for odd in (np.nan, np.inf, -np.inf, 3e38)]
    strange = [*holes, good.T, good.astype(np.float64), good[:9], good * 1e9]
    base = "ba" * 32  # the model that the round starts from
    found = {"sent": 0, "accepted": 0, "crashes": 0, "not finite": 0}
    for _ in range(count):
        name, other = rng.sample(names, 2)
        kind = rng.randrange(6)
        model = np.zeros_like(good)
        try:
            found["sent"] += 1
            if kind == 0:
                altered(offers[name], rng).open(Offer, server.public)
            elif kind == 1:
                check_commitment(offers[name], altered(answers[name], rng), public[name])
            elif kind == 2:  # another's answer, or an answer in another's name
                level, theirs = rng.randrange(1, 1 << 32), public[other].hex()
                forged = Commitment(offers[name].hash, theirs, level, "00" * 32, 1, "1")
                own = keys[other].sign(forged)
                who, what = rng.choice([(name, own), (other, own), (name, answers[other])])
                check_commitment(offers[who], what, public[who])
            else:
                desk_ = UpdateDesk("run", agreement.schema, public, dict.fromkeys(names, 100.0))
                arrays = [good]
                content = Update("run", name, 3, arrays_hash(arrays, update=True), base)
                signed = keys[name].sign(content)
                if kind == 3:
                    signed = altered(signed, rng)
                elif kind == 4:
                    arrays = [np.asarray(rng.choice(strange))]
                    signed = keys[name].sign(
                        Update("run", name, 3, arrays_hash(arrays, update=True), base)
                    )
                else:
                    wrong = rng.choice([("ran", name, 3), ("run", other, 3), ("run", name, 2)])
                    key = rng.choice([keys[name], mallory, keys[other]])
                    run, who, round_ = wrong if key is keys[name] else ("run", name, 3)
                    signed = key.sign(
                        Update(run, who, round_, arrays_hash(arrays, update=True), base)
                    )
                desk_.accept(name, 3, signed, arrays, base=base)
                model = model + arrays[0]
            found["accepted"] += 1
        except FedpriceError:
            pass  # refused, as it must be
        except Exception:
            found["crashes"] += 1
        found["not finite"] += not np.isfinite(model).all()
    return found
