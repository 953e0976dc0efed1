"""What the API answers to each question: what the commands answer with `--format json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedprice._plumbing.tables import json_text
from fedprice.beliefs.beliefs import Beliefs
from fedprice.beliefs.refusals import Outside
from fedprice.bound import Bound
from fedprice.clients import Clients
from fedprice.commands.compare import compare, compared
from fedprice.commands.frontier import frontier
from fedprice.commands.lies import lies
from fedprice.commands.post import EXPONENTIAL, OTHERS, check_post, exponential_beliefs, post
from fedprice.commands.price import LOSSES, check_outside, losses_of, price
from fedprice.commands.respond import respond
from fedprice.commands.warnings import frontier_warnings, scheme_warnings
from fedprice.errors import InputError, nearest
from fedprice.game import Game
from fedprice.pricing import find_schemes
from fedprice.web.questions import (
    MOST_BELIEFS,
    MOST_CLIENTS,
    MOST_POINTS,
    MOST_TYPES,
    OFFERED,
    ClientsQuestion,
    CompareQuestion,
    FrontierQuestion,
    LiesQuestion,
    PostQuestion,
    PriceQuestion,
    RespondQuestion,
    parsed,
    table_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedprice.web.questions import Question

__all__ = ["QUESTIONS", "answer"]


def answer(name: str, body: bytes) -> str:
    """Return the answer to a question that was asked as JSON."""
    question, work = QUESTIONS[name]
    with np.errstate(all="ignore"):  # numbers that overflow are refused or null, and are not logged
        return work(parsed(body, question))


def _clients(asked: ClientsQuestion, most: int, *, types: bool = True) -> Clients:
    table = table_of(asked.clients, "clients", most)
    try:
        clients = Clients.from_frame(table, types=types)
    except InputError as error:
        raise InputError(f"`clients`: {error}") from error
    return clients if asked.max_weight is None else clients.with_max_weight(asked.max_weight)


def _game(asked: ClientsQuestion, most: int, budget: float) -> Game:
    bound = Bound(alpha=asked.alpha, rounds=asked.rounds)
    clients = _clients(asked, most)
    return Game(clients, bound=bound, budget=budget, cost_exponent=asked.exponent)


def _require_offered(scheme: str) -> None:
    """Refuse schemes that would read a file, or take minutes."""
    if scheme not in OFFERED:
        raise InputError(f"there is no scheme {scheme!r:.60} here. {nearest(scheme, OFFERED)}")


def _price(asked: PriceQuestion) -> str:
    _require_offered(asked.scheme)
    outside = None if asked.outside is None else Outside(asked.outside)
    check_outside(outside, asked.scheme, losses=asked.outside_losses is not None)
    most = MOST_CLIENTS["price"]
    game = _game(asked, most, asked.budget)
    losses = None
    if outside is not None and asked.outside_losses is not None:
        table = table_of(asked.outside_losses, "outside_losses", most)
        losses = losses_of(table, LOSSES[outside], game.clients)
    return price(game, scheme=asked.scheme, outside=outside, losses=losses).to_json()


def _compare(asked: CompareQuestion) -> str:
    for scheme in asked.scheme:
        _require_offered(scheme)
    game = _game(asked, MOST_CLIENTS["compare"], asked.budget)
    found = compare(game, find_schemes(asked.scheme))
    return json_text(schemes=compared(found), warnings=scheme_warnings(found))


def _frontier(asked: FrontierQuestion) -> str:
    game = _game(asked, MOST_CLIENTS["frontier"], asked.budgets[0])
    if len(game.clients) * len(asked.budgets) > MOST_POINTS:
        raise InputError(
            f"clients times budgets must be at most {MOST_POINTS:,}; got "
            f"{len(game.clients) * len(asked.budgets):,}. Send fewer budgets."
        )
    traced = frontier(game, asked.budgets)
    return json_text(frontier=traced.to_frame(), warnings=frontier_warnings(traced))


def _lies(asked: LiesQuestion) -> str:
    game = _game(asked, MOST_CLIENTS["lies"], asked.budget)
    found = lies(game, asked.factor, free_response=asked.free_response)
    return json_text(summary=found.summary(), clients=found.to_frame())


def _post(asked: PostQuestion) -> str:
    how: dict[str, Any] = asked.model_dump(
        include={"blocks", "classes", "risk", "sequential", "information"}
    )
    check_post(asked.form, **how, robust=False, others=asked.beliefs == OTHERS)
    believed = _beliefs(asked)
    most = MOST_CLIENTS["others" if believed is None else "post"]  # one problem for each of them
    clients = _clients(asked, most, types=believed is None)
    count = len(clients) if believed is None else len(believed.groups(clients)[0])
    types = 0 if believed is None else max(len(own.weight) for own in believed.types.values())
    if len(clients) * types > MOST_TYPES:
        raise InputError(
            f"clients times types of a client must be at most {MOST_TYPES:,} here; got "
            f"{len(clients) * types:,}. The command line has no such limit."
        )
    if asked.form != "price" and count > MOST_BELIEFS:
        raise InputError(
            f"`form` {asked.form} must have at most {MOST_BELIEFS} different beliefs here; got "
            f"{count:,}. The command line has no such limit."
        )
    return post(
        clients, believed, bound=Bound(alpha=asked.alpha, rounds=asked.rounds),
        budget=asked.budget, exponent=asked.exponent, form=asked.form, **how,
    ).to_json()  # fmt: skip


def _beliefs(asked: PostQuestion) -> Beliefs | None:
    """Return the given beliefs; None stands for what all other clients reported."""
    given = asked.beliefs
    if given == EXPONENTIAL:
        return exponential_beliefs(asked.cost, asked.value, asked.form)
    if asked.cost is not None or asked.value is not None:
        raise InputError("`cost` and `value` require `beliefs` exponential; leave them out.")
    if given == OTHERS:
        return None
    if isinstance(given, str):
        raise InputError(f"`beliefs` must be a table, exponential or others; got {given!r:.60}.")
    table = table_of(given, "beliefs", MOST_CLIENTS["beliefs"])
    try:
        return Beliefs.from_frame(table)
    except InputError as error:
        raise InputError(f"`beliefs`: {error}") from error


def _respond(asked: RespondQuestion) -> str:
    return json_text(response=respond(**asked.model_dump()))


QUESTIONS: dict[str, tuple[type[Question], Callable[[Any], str]]] = {
    "price": (PriceQuestion, _price),
    "compare": (CompareQuestion, _compare),
    "frontier": (FrontierQuestion, _frontier),
    "lies": (LiesQuestion, _lies),
    "post": (PostQuestion, _post),
    "respond": (RespondQuestion, _respond),
}
