"""The words that commands, pages and documents use, each explained once."""

from __future__ import annotations

__all__ = ["MONEY", "SCHEME_WORDS", "SYMBOLS", "WORDS"]

MONEY = "Amounts of money are in the unit of the clients' costs, for all rounds together."

WORDS = {
    "absence": "What a client loses when it is away, because the model is worse without it: "
    "value × impact × (1 / level − 1).",
    "accuracy": "The share of test samples that the model classifies correctly.",
    "agreed": "What the client gets for all rounds if it delivers whenever its coin shows heads. "
    "If it is negative, the client pays.",
    "alpha": "α: how much randomness in joining raises the loss. `fedprice calibrate` measures it.",
    "beliefs": "What the server believes about costs and values that it does not know: possible "
    "types with their probabilities.",
    "biased": "A scheme is biased if the model it trains differs systematically from that of full "
    "participation, because clients are left out or updates are not weighted by 1 / level.",
    "blocks": "The number of blocks into which each client's levels are divided. Each block has "
    "its own price.",
    "budget": "The most that the server pays in total. If it is negative, the server earns at "
    "least that much.",
    "calibration": "The measurements of pilots: α with its interval, and each client's samples "
    "and norms. `fedprice calibrate -o FILE` writes them, `--calibration FILE` uses them.",
    "certificate": "A proof of how far the prices are from the best: no other prices within the "
    "budget reduce the expected loss by more than this share.",
    "client": "A device or an organisation that trains the model on its own data.",
    "coin": "A random number that decides whether a client joins a round. Neither the server nor "
    "the client can choose it, and both can check it afterwards.",
    "commitment": "A client's signed answer to an offer, with the level that it chooses.",
    "cost": "What joining every round would cost the client. A level q costs cost · q^τ.",
    "cost exponent": "τ: how fast costs grow with the level. With τ = 2, half the level costs a "
    "quarter.",
    "cost of not knowing": "By how much the expected loss exceeds that of a server that knows "
    "every cost and value, and posts one price per client. Tariffs can do better than that.",
    "delivered": "Heads for which the client's update arrived and was accepted.",
    "delivery rate": "ρ: the share of its heads for which a client's update is accepted.",
    "distance": "The distance to full participation: at 40 %, the bound is that of everybody "
    "joining 60 % of the rounds. It depends on neither α nor the number of rounds.",
    "drew heads": "Clients whose coins showed heads and who therefore have to join the round. Each "
    "of them joined, missed it (no update arrived), or was refused (the update failed a check).",
    "entry": "One record of a ledger. It contains the hash of the previous entry and is signed by "
    "the server.",
    "equilibrium": "The prices with the least expected loss within the budget, given that every "
    "client chooses the level that suits it best. They are proven to be optimal.",
    "expected loss": "By how much the loss of the trained model is expected to exceed that of full "
    "participation, according to the bound.",
    "expected spend": "What the server will pay on average over its beliefs, with the standard "
    "deviation.",
    "form": "What each client is offered: one price, a price per block of levels, a price per "
    "level, or a list of levels with payments.",
    "frontier": "The least distance to full participation for each budget.",
    "full information": "The expected loss, divided by that of a server that knows every cost and "
    "value and offers each client one price. Tariffs with several prices can do better than that.",
    "full participation": "Every client joins every round. The expected loss is measured from it.",
    "gap": "The relative distance between the expected loss of these prices and a proven lower "
    "bound for any prices within the budget; 0 means optimal.",
    "gradient norm": "G: the size of the client's stochastic gradients, which the paper uses to "
    "measure how much its data matter.",
    "heads": "The rounds for which the client's coin showed heads, so that it had to join.",
    "hull": "The expected cost and the expected loss of every price form a curve. Only prices on "
    "its lower convex hull are worth posting.",
    "impact": "k: how much the client's absence hurts the model. It grows with the client's share "
    "of the data and the size of its updates.",
    "joined": "Clients whose update was accepted in the last round, of those that drew heads.",
    "joiners": "The mean number of clients that join a round: the sum of the levels.",
    "largest cost": "The highest cost of joining every round that a client is believed to have.",
    "largest value": "The highest value of one unit less of expected loss that a client is "
    "believed to have.",
    "largest weight": "The most that one update may count: the client's share of the data divided "
    "by its level. It sets floors for the levels.",
    "least cost": "The lowest cost of joining every round that a client is believed to have.",
    "least value": "The lowest value of one unit less of expected loss that a client is believed "
    "to have.",
    "ledger": "The record of a market: who agreed to what, drew heads, delivered and was paid. "
    "Anybody who has a copy can check it.",
    "left out": "Clients with data that never join, so that the model does not learn from them.",
    "level": "q: the probability with which a client joins a round.",
    "loss": "The error of the model that training minimises, as measured during training. It is "
    "not signed.",
    "loss ratio": "The expected loss, divided by that of the first scheme in the table.",
    "lost": "What the client would also have been paid if it had delivered for all of its heads.",
    "margin": "What is paid on top of a client's cost, as a share of it, with pay at cost.",
    "marginal value": "What 1 % more of the budget would buy.",
    "mean cost": "The mean of what joining every round is believed to cost a client.",
    "mean value": "The mean of what one unit less of expected loss is believed to be worth to a "
    "client.",
    "menu": "A list of levels with payments, from which the client chooses one.",
    "metrics": "Measurements taken during training. They are stored outside the chain of entries, "
    "and no payment depends on them.",
    "missed": "Heads for which no update arrived.",
    "multiplier": "λ: by how much one more unit of budget reduces the expected loss.",
    "offer": "A tariff for a number of rounds, which the server signs and sends to a client.",
    "outcome": "The result of a scheme: prices, levels, payments, the expected loss and, where "
    "there is one, a certificate.",
    "outside option": "What a client gets if it refuses an offer: it may join unpaid, receive the "
    "model without joining, or keep its own model.",
    "over the budget": "The probability that the server pays more than the budget. Posted prices "
    "meet the budget on average only.",
    "paid": "What clients have been paid so far: each accepted update is paid when it is "
    "delivered, at the amount that was agreed.",
    "pay at cost": "Each client is offered the cost of one level, perhaps with a margin, and takes "
    "or leaves it as a whole. For servers that may reimburse but set no prices.",
    "payees": "Clients that the server pays.",
    "payers": "Clients that pay the server, because they value the model so much.",
    "payment": "Price × level, for all rounds together. If it is negative, the client pays.",
    "period": "A number of rounds under one agreement. A run is a chain of periods: prices change "
    "from one to the next, and training continues.",
    "pilot": "A short training run that measures α and norms.",
    "price": "P: what the client gets per unit of level, for all rounds together. If it is "
    "negative, the client pays.",
    "price classes": "The number of different prices; 0 gives each client its own.",
    "receipt": "The server's signed confirmation of an update, which the client keeps as evidence.",
    "refused": "Heads for which an update arrived but failed a check. The reason is recorded.",
    "risk": "The accepted probability of exceeding the budget; 0 meets the budget on average.",
    "round": "One step of training: coins are drawn, clients that drew heads send updates, and the "
    "server combines them.",
    "rounds": "R: the number of training rounds.",
    "run": "A chain of periods in which one model is trained.",
    "samples": "The number of samples that the client trains on.",
    "scheme": "The rule that sets the prices. The equilibrium is optimal; the others are common "
    "alternatives.",
    "sign threshold": "Clients that value the model more than this pay instead of being paid.",
    "spend": "What the server pays in total, minus what paying clients contribute.",
    "spread": "How uncertain costs and values are: 0.25 means that they are known to about ±25 %.",
    "stands": "An offer stands at another cost of its client as long as the client still prefers "
    "it to joining unpaid, and new offers to everybody would not lower the expected loss by more "
    "than 1 %.",
    "state": "Offered, open or settled. Stopped means that nothing was recorded for a minute.",
    "statement": "What a client was asked for, delivered and was paid, round by round.",
    "status": "Optimal: proven to be. Feasible: within the budget. Over budget: it spends more, as "
    "full participation does. Infeasible: no such prices are within the budget.",
    "surplus": "What a client gains by accepting its offer instead of joining unpaid.",
    "tariff": "A price that depends on the level; it determines the payment for every level.",
    "task": "What is trained: an initial model, the clients' local updates and an evaluation.",
    "type": "A client's cost and value, which only the client knows.",
    "update": "The change that a client's training makes to the model, and what it sends.",
    "utility": "Payment minus cost, minus the client's value times the expected loss of the model. "
    "It is often negative for clients that value the model, because the loss counts against them "
    "whether they join or not.",
    "value": "What one unit less of expected loss is worth to the client, in money.",
    "weight": "The client's share of all data.",
}

SCHEME_WORDS = {  # in the order of a list: the paper's first, then what others have proposed
    "equilibrium": "The least expected loss within the budget; proven optimal among prices.",
    "at-cost": "Each client is reimbursed for one level, perhaps with a margin, to take or leave; "
    "proven optimal among reimbursements.",
    "uniform": "One price for all clients, as high as the budget allows.",
    "weighted": "Prices in proportion to samples, as high as the budget allows.",
    "full": "Every client in every round, whatever it costs: the best that any prices can reach.",
    "subset": "The most valuable clients in every round, and no others: the model is biased.",
    "uniform-published": "uniform as in the paper's public code, which leaves budget unspent where "
    "clients value the model.",
    "weighted-published": "weighted as in the paper's public code.",
    "reference-convex": "The equilibrium by a general convex solver, to check it: slow.",
    "reference-msearch": "The equilibrium by the paper's own search: slow.",
    "reference-scipy": "The equilibrium by local search from random starts: slow.",
    "contracts": "One level and one payment per client, take it or leave it, at its cost, which "
    "the server must know.",
    "multidimensional-auction": "An auction: the clients with the highest quality minus ask win, "
    "and are paid what they ask.",
    "proportional-share": "An auction: the clients that ask least per unit of impact win.",
    "reputation-auction": "An auction: the clients that ask least per sample win.",
    "optimal-sampling": "Levels in proportion to weight times norm, at the prices that these need.",
    "uniform-sampling": "The same level for all, at the prices that this needs.",
    "sampling-by-samples": "Levels in proportion to samples, at the prices that these need.",
    "shapley-payments": "The budget is shared in proportion to impact.",
    "shapley-prices": "Prices in proportion to impact, as high as the budget allows.",
}

# The letters of the paper.
SYMBOLS = {
    "g": "gradient norm", "k": "impact", "p": "price", "q": "level", "r": "rounds", "α": "alpha",
    "λ": "multiplier", "ρ": "delivery rate", "τ": "cost exponent",
    "lambda": "multiplier", "rho": "delivery rate", "tau": "cost exponent",
}  # fmt: skip
