"""The errors of a ledger: of what it refuses, and of a database that does not work."""

from __future__ import annotations

from fedprice.errors import FedpriceError, InputError, UnverifiedError

__all__ = ["DamagedError", "LedgerError", "NoLedgerError", "NoRunError"]


class LedgerError(FedpriceError):
    """An operation that the ledger refuses, or an error in the ledger itself."""

    exit_code = 5


class DamagedError(LedgerError, UnverifiedError):
    """The ledger is not what was recorded."""

    exit_code = UnverifiedError.exit_code


class NoLedgerError(LedgerError, InputError):
    """There is no ledger here (yet)."""

    exit_code = InputError.exit_code


class NoRunError(LedgerError, InputError):
    """There is no run with this name."""

    exit_code = InputError.exit_code
