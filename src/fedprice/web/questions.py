"""Requests to the API as strict JSON: fields, tables of clients, and one line about mistakes."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from fedprice.contrib import RIVALS
from fedprice.errors import InputError, nearest
from fedprice.pricing import SCHEMES

__all__ = [
    "MOST_BELIEFS",
    "MOST_BUDGETS",
    "MOST_CLIENTS",
    "MOST_POINTS",
    "MOST_TYPES",
    "OFFERED",
    "ClientsQuestion",
    "CompareQuestion",
    "FrontierQuestion",
    "LiesQuestion",
    "PostQuestion",
    "PriceQuestion",
    "Question",
    "RespondQuestion",
    "line_of",
    "parsed",
    "table_of",
]

# Limits on what takes at most 10 seconds on one core; the command line has no such limits.
MOST_CLIENTS = {"price": 100_000, "compare": 100_000, "frontier": 100_000, "post": 2_000}
MOST_CLIENTS |= {"lies": 1_000, "others": 100, "beliefs": 20_000}
MOST_BUDGETS = 1_000
MOST_BELIEFS = 10  # different beliefs for tariffs, each of which takes a second
MOST_POINTS = 10_000_000  # clients × budgets of a frontier
MOST_TYPES = 500_000  # clients × types that are believed possible of one of them
MOST_VALUES = 2_000_000  # commas and brackets of a request: what it takes in memory
LONGEST_LINE = 1000  # characters of an error
# Others read a file of Python, or take minutes for the same prices.
OFFERED = tuple(dict.fromkeys(n for n in (*SCHEMES, *RIVALS) if not n.startswith("reference")))

_CELL = {"type": ["number", "string", "null"]}
_ROWS = {"type": "array", "items": {"type": "object", "additionalProperties": _CELL}}
_COLUMNS = {"type": "object", "additionalProperties": {"type": "array", "items": _CELL}}
Table = Annotated[Any, WithJsonSchema({"anyOf": [_ROWS, _COLUMNS]})]
Scheme = Annotated[str, WithJsonSchema({"type": "string", "enum": list(OFFERED)})]

Clients = Annotated[
    Table,
    Field(
        description="One object per client, or one list per column: client_id, samples (or "
        "weight), grad_norm, cost, value and optionally class, level_min, level_max."
    ),
]


class Question(BaseModel):
    """A question whose unknown fields are refused, and whose numbers are finite numbers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class ClientsQuestion(Question):
    """What all questions about clients share."""

    clients: Clients
    alpha: float = Field(description="The bound's α, as measured.")
    rounds: int = Field(1000, description="Training rounds.")
    exponent: float = Field(2.0, description="A level q costs cost · q^τ; τ > 1.")
    max_weight: float | None = Field(
        None, description="Raise the floors so that no weight / level exceeds it."
    )


class GameQuestion(ClientsQuestion):
    """What all questions about one budget share."""

    budget: float = Field(200.0, description="The most to pay in total; may be negative.")


class PriceQuestion(GameQuestion):
    """What `fedprice price` takes."""

    scheme: Scheme = "equilibrium"
    outside: Literal["free", "stay", "nothing"] | None = Field(
        None, description="Offer prices that no client refuses; this is what refusing leaves it."
    )
    outside_losses: Table = Field(
        None, description="client_id and without (for stay) or own (for nothing)."
    )


class CompareQuestion(GameQuestion):
    """What `fedprice compare` takes, without training."""

    scheme: list[Scheme] = Field(
        ["equilibrium", "weighted", "uniform"], min_length=1, max_length=len(OFFERED)
    )


class FrontierQuestion(ClientsQuestion):
    """What `fedprice price --budgets` takes, the budgets as a list."""

    budgets: list[float] = Field(min_length=1, max_length=MOST_BUDGETS)


class LiesQuestion(GameQuestion):
    """What `fedprice compare --lies` takes."""

    factor: float = Field(2.0, description="Reported costs range from cost / ρ to cost · ρ.")
    free_response: bool = Field(
        False, description="A liar chooses its best level at the price that its report leads to."
    )


class PostQuestion(GameQuestion):
    """What `fedprice post` takes; costs and values of clients are not needed."""

    beliefs: Table = Field(
        description="Rows or columns with cost, value, probability and, where beliefs differ, "
        "client_id or class; or 'exponential' with the means cost and value; or 'others'."
    )
    form: Literal["price", "blocks", "tariff", "menu"] = "price"
    blocks: int | None = Field(None, ge=1, le=48)
    classes: int | None = Field(None, ge=1)
    risk: float | None = None
    sequential: bool = False
    cost: float | None = None
    value: float | None = None
    information: bool = False


class RespondQuestion(Question):
    """What `fedprice respond` takes for a price."""

    price: float
    cost: float
    value: float = 0.0
    impact: float | None = None
    exponent: float = 2.0
    level_max: float = 1.0


Asked = TypeVar("Asked", bound=Question)


def parsed(body: bytes, question: type[Asked]) -> Asked:
    """Return the question that a body asks, or refuse it in one line.

    Examples
    --------
    >>> parsed(b'{"price": 1, "impact": 0, "cost": 4, "value": 0}', RespondQuestion).exponent
    2.0
    >>> parsed(b'{"price": 1, "inpact": 0, "cost": 4, "value": 0}', RespondQuestion)
    Traceback (most recent call last):
    ...
    fedprice.errors.InputError: unknown field 'inpact'. Did you mean 'impact'?
    """
    if sum(map(body.count, b",[{")) > MOST_VALUES:
        raise InputError(f"the request must have at most {MOST_VALUES:,} values.")
    try:
        content = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_int=_whole,
        )
        if re.search(rb"\\u[dD][89a-fA-F]", body):
            json.dumps(content, ensure_ascii=False).encode()  # half of a surrogate pair is not text
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        reason = (
            f": {error.msg}, line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise InputError(f"the request must be a JSON object in UTF-8{reason}.") from None
    if not isinstance(content, dict):
        raise InputError(f"the request must be a JSON object; got a {_kind(content)}.")
    try:
        return question.model_validate(content)
    except ValidationError as error:
        raise InputError(_mistake(error, question)) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise InputError(f"the field {name!r:.60} is there twice.")
        fields[name] = value
    return fields


def _no_constant(name: str) -> NoReturn:
    raise InputError(f"numbers must be finite; got {name}.")


def _whole(digits: str) -> float:
    """Return a whole number; one that is too long becomes a float."""
    return int(digits) if len(digits) <= 18 else float(digits)


def _mistake(error: ValidationError, question: type[Question]) -> str:
    """Return what is wrong with a question: an unknown field first, since it may explain others."""
    found = sorted(
        error.errors(include_url=False), key=lambda one: one["type"] != "extra_forbidden"
    )[0]
    name = str(found["loc"][0])
    if found["type"] == "extra_forbidden":
        return f"unknown field {name!r:.60}. {nearest(name, question.model_fields)}"
    if found["type"] == "missing":
        return f"there is no field `{name}`, which has no default."
    where = "".join(f"[{part}]" for part in found["loc"][1:] if isinstance(part, int))
    rule = found["msg"].removeprefix("Input ").removeprefix("should ").removeprefix("be ")
    return f"`{name}{where}` must be {rule}; got {found['input']!r:.60}."


def table_of(given: Any, name: str, most: int) -> Any:
    """Return rows or columns of JSON as a polars table.

    Parameters
    ----------
    given
        One object per row, or one list per column.
    name
        The name of the field, for errors.
    most
        The most rows that are accepted.

    Examples
    --------
    >>> table_of([{"client_id": "a", "cost": 4}, {"client_id": "b", "cost": 5.5}], "clients", 9)
    shape: (2, 2)
    ┌───────────┬──────┐
    │ client_id ┆ cost │
    │ ---       ┆ ---  │
    │ str       ┆ f64  │
    ╞═══════════╪══════╡
    │ a         ┆ 4.0  │
    │ b         ┆ 5.5  │
    └───────────┴──────┘
    """
    import polars as pl

    columns: dict[str, list[Any]] = {}
    if isinstance(given, list):
        _require_few(name, len(given), most)
        for row, own in enumerate(given, start=1):
            if not isinstance(own, dict):
                raise InputError(f"`{name}` must hold objects; got a {_kind(own)} in row {row}.")
            columns |= {key: [] for key in own if key not in columns}
            _require_few_fields(name, len(columns))
        columns = {key: [own.get(key) for own in given] for key in columns}
    elif isinstance(given, dict):
        _require_few_fields(name, len(given))
        for key, column in given.items():
            if not isinstance(column, list):
                raise InputError(f"`{name}`: {key!r:.60} must be a list; got a {_kind(column)}.")
            _require_few(name, len(column), most)
            columns[key] = column
        if len({len(column) for column in columns.values()}) > 1:
            raise InputError(f"`{name}` must have columns of one length.")
    else:
        raise InputError(
            f"`{name}` must be a list of objects, or lists by name; got a {_kind(given)}."
        )
    return pl.DataFrame([_series(name, key, column) for key, column in columns.items()])


def _require_few_fields(name: str, fields: int) -> None:
    if fields > 100:
        raise InputError(f"`{name}` has more than 100 different fields.")


def _require_few(name: str, rows: int, most: int) -> None:
    if rows > most:
        raise InputError(
            f"`{name}` must have at most {most:,} rows here; got {rows:,}. The command line has no "
            "such limit."
        )


def _series(name: str, key: str, column: list[Any]) -> Any:
    """Return a column of numbers, or of text if there is any."""
    import polars as pl

    kinds = {type(cell) for cell in column}
    if odd := kinds - {str, int, float, type(None)}:
        row = next(row for row, cell in enumerate(column, start=1) if type(cell) in odd)
        raise InputError(
            f"`{name}`: {key!r:.60} must hold numbers or text; got a {_kind(column[row - 1])} in "
            f"row {row}."
        )
    if str in kinds or key in ("client_id", "class"):
        return pl.Series(key, [cell if cell is None else str(cell) for cell in column], pl.String)
    return pl.Series(key, [cell if cell is None else float(cell) for cell in column], pl.Float64)


def _kind(value: Any) -> str:
    kinds = {dict: "object", list: "list", str: "text", bool: "truth value", type(None): "null"}
    return kinds.get(type(value), "number")


def line_of(error: Exception) -> str:
    """Return an error as one line that names fields instead of options of the command line.

    Examples
    --------
    >>> line_of(InputError("--max-weight must be above 0; got -1."))
    '`max_weight` must be above 0; got -1.'
    """
    line = " ".join(str(error).split())
    line = re.sub(r"(?<![\w-])--([a-z][a-z-]*[a-z])", lambda m: f"`{m[1].replace('-', '_')}`", line)
    return line if len(line) <= LONGEST_LINE else line[:LONGEST_LINE] + "…"
