"""The command `fedprice`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; every error is one line on stderr and a numbered exit code."""
    try:
        from fedprice.cli.app import run

        sys.exit(run())
    except KeyboardInterrupt:
        sys.stderr.write("fedprice: stopped.\n")
        sys.exit(130)
