"""The log of the server: each record is one printable line, since strangers can cause records."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import Any

__all__ = ["LOG", "OneLine"]

LONGEST = 1000  # characters


class OneLine(logging.Formatter):
    """Writes a record, its exception and the last calls before that as one printable line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            calls = [
                f"{'/'.join(Path(call.filename).parts[-2:])}:{call.lineno}"
                for call in traceback.extract_tb(error.__traceback__)[-3:]
            ]
            text += f": {type(error).__name__}: {error!s:.300} ({', '.join(calls)})"
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return f"{record.levelname}: {line:.{LONGEST}}"


LOG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"()": OneLine}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    # These bring handlers of their own.
    "loggers": {name: {"handlers": []} for name in ("engineio.server", "socketio.server")},
}
