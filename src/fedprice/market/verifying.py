"""`verifying`: what the verifier finds, as errors of fedprice."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedprice.errors import InputError, UnverifiedError
from fedprice.verify import UncheckedError, VerificationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["verifying"]

_ONE_AT_A_TIME = threading.Lock()  # a line may take a gigabyte


@contextmanager
def verifying(name: str) -> Iterator[None]:
    """Verify one export at a time, and turn what is raised into errors that name the export."""
    try:
        with _ONE_AT_A_TIME:
            yield
    except VerificationError as error:
        raise UnverifiedError(f"{name} does not verify: {error}") from error
    except UncheckedError as error:
        raise InputError(str(error)) from error
    except MemoryError as error:
        raise InputError(f"{name} is too large for the memory of this machine.") from error
