"""An export after a dishonest server has changed it: chained and signed anew."""

import contextlib
import hashlib
import json
from typing import Any

from fedprice.market.simulation import simulation_key
from fedprice.verify import head_text

Entries = list[dict[str, Any]]


def resigned(entries: Entries) -> Entries:
    """Chain and sign everything anew that a server can: hashes, offers and heads."""
    server = simulation_key("server")
    ledger, previous, signing = entries[0]["content"].get("ledger"), "0" * 64, False
    for number, entry in enumerate(entries, start=1):
        content = entry["content"]
        with contextlib.suppress(TypeError, ValueError, LookupError, AttributeError):
            for own in content["offers"]:
                sheet = hashlib.sha256(content["conditions"].encode()).hexdigest()
                own[0] = canonical(json.loads(own[0]) | {"conditions": sheet})
                own[1] = server.sign_text(own[0]).hex()
        entry["number"] = number
        text = "\n".join(canonical(entry[part]) for part in ("content", "postings"))
        digest = hashlib.sha256(text.encode()).hexdigest()
        previous = hashlib.sha256(f"{previous}\n{number}\n{digest}".encode()).hexdigest()
        entry["hash"] = previous
        signing |= isinstance(content, dict) and content.get("of") == ["treasury", 1]
        if signing:
            entry["signature"] = server.sign_text(head_text(ledger, number, previous)).hex()
    return entries


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
