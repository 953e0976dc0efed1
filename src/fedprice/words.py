"""The words that people meet in commands, pages and documents, each explained once."""

from __future__ import annotations

__all__ = ["MONEY", "WORDS"]

MONEY = "Money is in the unit of the clients' costs, for all rounds together."

WORDS = {
    "absence": "What the client loses by being away, because the model is worse without it: "
    "value × impact × (1 / level − 1).",
    "accuracy": "The share of test samples that the model gets right.",
    "agreed": "What the client gets for all rounds if it delivers whenever it draws heads; below "
    "0 it pays.",
    "alpha": "α: how much noise in the clients' updates costs, as `fedprice calibrate` measures "
    "it.",
    "audit": "Whether the client joined as often as its level says, by a test that may be looked "
    "at after every round: the chance of any false alarm in a run is below 1 %.",
    "beliefs": "What the server believes about costs and values that it does not know: how "
    "likely each is.",
    "blocks": "Into how many blocks the levels of each client are cut; each block has a price of "
    "its own.",
    "budget": "The most that the server pays in total; below 0 it wants to earn.",
    "calibration": "What pilots have measured: α with its interval, and each client's samples "
    "and norms. `fedprice calibrate -o FILE` writes it, `--calibration FILE` uses it.",
    "certificate": "The largest share of the expected loss that any other prices within the "
    "budget could save; this is proven.",
    "client": "A device or an organisation that trains the model on its own data.",
    "coin": "A random number that decides whether a client joins a round. Neither the server nor "
    "a client can choose it, and both can check it afterwards.",
    "commitment": "A client's signed answer to an offer: the level that it will keep.",
    "cost": "What joining every round would cost the client; a level q costs cost · q^τ.",
    "cost exponent": "τ: how fast costs grow with the level; 2 means that half the level costs a "
    "quarter.",
    "delivered": "Heads for which the client's update arrived and was accepted.",
    "delivery rate": "ρ: the share of its heads for which a client's update is accepted.",
    "drew heads": "A client whose coin shows heads has to join the round: it delivers an update "
    "(joined), sends nothing (missed), or its update is refused.",
    "entry": "One line of a ledger, chained to the one before by its hash and signed by the "
    "server.",
    "equilibrium": "The prices that give the least expected loss within the budget when every "
    "client answers with the level that suits it best. They are optimal, with a proof.",
    "expected loss": "By how much the trained model is expected to be worse than with everybody "
    "in every round.",
    "expected spend": "What the server will pay on average over what it believes, with the "
    "standard deviation of that sum.",
    "form": "What each client is offered: one price, a price per block of levels, a price per "
    "level, or a list of levels with payments.",
    "frontier": "The expected loss that each budget buys.",
    "full information": "The expected loss relative to that of one price per client by a server "
    "that knows every cost and value. Tariffs with several prices can do better than that.",
    "gradient norm": "G: how long the client's stochastic gradients are; the paper's measure of "
    "how much its data matters.",
    "heads": "Rounds in which the client's coin said that it has to join.",
    "hull": "What each price is expected to cost and to bring is a curve; only prices on its "
    "lower convex hull are worth posting.",
    "impact": "How much it hurts the model when the client is away: large data, large updates.",
    "joined": "Clients of the last round whose update was accepted, of those that drew heads.",
    "joiners": "How many clients join a round on average: the sum of the levels.",
    "largest cost": "The most that joining every round is believed to cost a client.",
    "largest value": "The most that one unit less of expected loss is believed to be worth to a "
    "client.",
    "largest weight": "The most that one update may count, its share of the data over its level; "
    "it sets floors for the levels.",
    "least cost": "The least that joining every round is believed to cost a client.",
    "least value": "The least that one unit less of expected loss is believed to be worth to a "
    "client.",
    "ledger": "The book of a market: who agreed to what, drew heads, delivered and was paid. It "
    "can be checked by anybody who has a copy.",
    "level": "The probability with which a client joins a round.",
    "loss": "What the model gets wrong on average, as measured during training; it is not signed.",
    "lost": "What the client would also have been paid if it had delivered for all of its heads.",
    "mean cost": "What joining every round is believed to cost a client, on average.",
    "mean value": "What one unit less of expected loss is believed to be worth to a client, on "
    "average.",
    "menu": "A list of levels with payments, of which the client chooses one.",
    "metrics": "What was measured during training. It is kept beside the chain, and "
    "no payment depends on it.",
    "missed": "Heads for which nothing arrived.",
    "multiplier": "By how much one more unit of budget lowers the expected loss.",
    "offer": "What the server promises a client, signed: a tariff for a number of rounds.",
    "outcome": "What a scheme arrives at: prices, levels, payments, the expected loss and a "
    "certificate.",
    "outside option": "What a client has if it refuses: it may join unpaid, stay away but get "
    "the model, or keep its own model.",
    "over the budget": "The probability that the server pays more than the budget; posted prices "
    "keep it on average only.",
    "paid": "What clients have been paid so far. A round pays in proportion to the heads that were "
    "delivered.",
    "payers": "Clients that value the model so much that they pay the server.",
    "payment": "Price × level, over the whole run; below 0 the client pays.",
    "period": "Rounds under one agreement. A run is a chain of periods: prices change, the model "
    "goes on.",
    "pilot": "A short training run that measures α and norms.",
    "price": "What the client gets per unit of level, over the whole run; below 0 it pays.",
    "price classes": "How many different prices there are; 0 gives each client its own.",
    "receipt": "The server's signed confirmation of an update; a client keeps it as evidence.",
    "refused": "Heads for which an update arrived that failed a check; the reason is recorded.",
    "risk": "The probability at which the spend may exceed the budget; 0 keeps the budget on "
    "average.",
    "round": "One step of training: coins are drawn, clients that drew heads send updates, the "
    "server adds them up.",
    "rounds": "How many rounds of training there are.",
    "run": "A chain of periods in which one model is trained.",
    "samples": "How many samples the client trains on.",
    "scheme": "The rule that sets the prices: the equilibrium is optimal; the others are common "
    "alternatives.",
    "sign threshold": "Clients that value the model above this pay instead of being paid.",
    "spend": "What the server pays in total, less what payers bring.",
    "spread": "How uncertain costs and values are: 0.25 means known to about ±25 %.",
    "state": "Offered, open or settled; stopped means that nothing was recorded for a minute.",
    "statement": "What a client was asked for, delivered and was paid, round by round.",
    "tariff": "What each level is paid: a price that depends on the level.",
    "task": "What is learned: an initial model, the clients' local updates and an evaluation.",
    "type": "A client's cost and value, which only the client knows.",
    "update": "The difference that a client's training makes to the model; it is what the client "
    "sends.",
    "utility": "Payment less cost, less the client's value times the expected loss of the model. "
    "It is often below 0 for clients that value the model: its loss counts against them whether "
    "they join or not.",
    "value": "What one unit less of expected loss is worth to the client, in money.",
    "weight": "The share of the client's data in all data.",
}
