"""Canonical JSON: one text for one content, so that two parties hash and sign the same bytes."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from fedprice.errors import InputError
from fedprice.verify import canonical

__all__ = ["canonical_bytes", "canonical_text", "content_of", "digest", "key_text", "parsed"]

MANY = 100  # with more rows, it is worth checking whether they are plain


def canonical_bytes(content: Any) -> bytes:
    """Return the only bytes that stand for this content: keys sorted, no spaces, no floats.

    Examples
    --------
    >>> canonical_bytes({"b": [1, True], "a": "ü"}).decode()
    '{"a":"ü","b":[1,true]}'
    """
    return canonical_text(content).encode()


def canonical_text(content: Any) -> str:
    """Return the text of `canonical_bytes`."""
    rows: dict[str, str] = {}
    for name, value in content.items() if isinstance(content, dict) else ():
        if isinstance(value, dict) and len(value) >= MANY and (text := _plain_rows(value)):
            rows[name] = text
    if not rows:
        _check(content)
        return canonical(content)
    _check({name: None if name in rows else value for name, value in content.items()})
    parts: list[str] = []
    for name in sorted(content):
        value = ("{", rows[name], "}") if name in rows else (canonical(content[name]),)
        parts += (",", canonical(name), ":", *value)
    return "".join(["{", *parts[1:], "}"])


def _plain_rows(rows: dict[str, Any]) -> str | None:
    """Return the text of rows of text by name that need no escapes, without { }; None for others.

    A round has such a row for every update, and json would take 50 % longer.
    """
    kinds = set(map(type, rows.values()))
    if set(map(type, rows)) != {str} or not all(issubclass(kind, list | tuple) for kind in kinds):
        return None
    if not all(rows.values()):
        return None
    between = '","'
    try:
        text = ",".join([f'"{name}":["{between.join(rows[name])}"]' for name in sorted(rows)])
    except TypeError:  # not all of it is text
        return None
    raw = text.encode("utf-8", "surrogatepass")
    quotes = 2 * (len(rows) + sum(map(len, rows.values())))
    # JSON escapes quotes, backslashes and control characters, and nothing else.
    is_plain = raw.count(b'"') == quotes and b"\\" not in raw
    return text if is_plain and np.frombuffer(raw, np.uint8).min() >= ord(" ") else None


def parsed(content: bytes) -> Any:
    """Return the content of canonical bytes; refuse any other bytes."""
    try:
        value = json.loads(content)
        if canonical_bytes(value) == content:
            return value
    except (ValueError, RecursionError) as error:
        raise InputError("a message is not JSON.") from error
    raise InputError("a message is not canonical JSON.")


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def content_of(text: Any) -> dict[str, Any]:
    """Return the content of a ledger entry's text."""
    content = parsed(text.encode()) if isinstance(text, str) else None
    if not isinstance(content, dict):
        raise InputError("an entry cannot be read.")
    return content


def key_text(key: list[Any]) -> str:
    """Return the text that identifies an entry: its kind and its subject."""
    return canonical_bytes(key).decode()


_PLAIN = {str, int, bool, type(None)}


def _check(content: Any) -> None:
    """Refuse content without a canonical text; all values of one depth are checked at once."""
    values = [content]
    while values:
        odd = set(map(type, values)) - _PLAIN
        for kind in odd:
            if not issubclass(kind, dict | list | tuple):
                wrong = next(part for part in values if type(part) is kind)
                raise InputError(f"a message holds text and whole numbers only; got {wrong!r}.")
        inner: list[Any] = []
        for part in values if odd else ():
            if isinstance(part, dict):
                if not set(map(type, part)) <= {str}:
                    raise InputError("names in a message must be text.")
                inner.extend(part.values())
            elif type(part) not in _PLAIN:
                inner.extend(part)
        values = inner
