"""The attributes of an object as named arrays, without pickle.

A tree of plain values (JSON, under the name `tree`) refers to arrays by their numbers. It can hold
None, truth values, numbers, text, bytes, arrays, Flower's ArrayRecords, and lists, tuples and dicts
of these.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from flwr.app import ArrayRecord

from fedprice._plumbing.rows import KINDS
from fedprice.flower.wire import to_record

if TYPE_CHECKING:
    from fedprice._plumbing.arrays import State

__all__ = ["PLAIN", "packed", "unpacked"]

PLAIN = (type(None), bool, int, float, str)  # exactly these: a numpy scalar is another type


def packed(value: Any) -> State | None:
    """Return a value as named arrays, or None if it contains something that cannot be stored.

    Examples
    --------
    >>> state = packed({"m_t": {"weight": np.ones(2)}, "rounds": 3, "best": None})
    >>> list(state)
    ['tree', '0']
    >>> unpacked(state)
    {'m_t': {'weight': array([1., 1.])}, 'rounds': 3, 'best': None}
    >>> packed({"log": print}) is None
    True
    """
    state: State = {"tree": np.empty(0, np.uint8)}
    try:
        text = json.dumps(_tree(value, state))
    except TypeError:
        return None
    state["tree"] = np.frombuffer(text.encode(), np.uint8)
    return state


def unpacked(state: State) -> Any:
    """Return the value that was packed; its arrays are copies."""
    return _value(json.loads(state["tree"].tobytes()), state)


def _tree(value: Any, state: State) -> Any:
    if type(value) in PLAIN:
        return value
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_tree(item, state) for item in value]}
    if isinstance(value, dict):
        if not all(type(key) in PLAIN for key in value):
            raise TypeError
        return {"dict": [[key, _tree(item, state)] for key, item in value.items()]}
    if isinstance(value, ArrayRecord):
        arrays = {name: array.numpy() for name, array in value.items()}
        return {"record": _tree(arrays, state)}
    if isinstance(value, bytes):
        return {"bytes": _tree(np.frombuffer(value, np.uint8), state)}
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in KINDS:
        raise TypeError
    number = str(len(state) - 1)
    state[number] = np.asarray(value)
    return {"array" if isinstance(value, np.ndarray) else "scalar": number}


def _value(tree: Any, state: State) -> Any:
    if not isinstance(tree, dict):
        return tree
    ((kind, inner),) = tree.items()
    match kind:
        case "array":
            return np.array(state[inner])
        case "scalar":
            return state[inner][()]
        case "bytes":
            return _value(inner, state).tobytes()
        case "record":
            arrays = _value(inner, state)
            return to_record(list(arrays), list(arrays.values()))
        case "dict":
            return {key: _value(item, state) for key, item in inner}
    items = [_value(item, state) for item in inner]
    return tuple(items) if kind == "tuple" else items
