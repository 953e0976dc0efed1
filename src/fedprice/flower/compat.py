"""Everything that we use of Flower and that its API reference does not promise, in one place.

| what | why there is no public way |
|---|---|
| `Run` | a grid has to return one, and only Flower makes them |
| `name_server`, `stamp` | messages are named where they are sent: in a grid |
| `mods_of`, `is_legacy` | an app does not say which mods it has, nor that it has a `client_fn` |
| `patient` | a grid does not say how often it repeats a request |
| `failed_inside` | the error of a failed request is that of Flower's HTTP or gRPC library |
| `bagged` | a strategy logs what it cannot merge and goes on |

Each has a test that fails if a version of Flower changes it; `make test-flower-versions` runs them
on several. Public ways replace the rest: a copy of a message gets other content by its setter, and
a strategy's `train_metrics_aggr_fn` is Flower's mean of metrics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flwr.serverapp.strategy.strategy_utils import aggregate_bagging

try:
    from flwr.supercore.run import Run
except ImportError:  # before Flower 1.32
    from flwr.common.typing import Run  # type: ignore[no-redef, attr-defined, unused-ignore]

try:
    from flwr.supercore.task_identity import TaskIdentity
except ImportError:  # before Flower 1.38, whose messages get their sender when they are sent
    TaskIdentity = None  # type: ignore[assignment, misc, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from flwr.app import Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

__all__ = [
    "NORM_BIT",
    "Run",
    "bagged",
    "failed_inside",
    "is_legacy",
    "mods_of",
    "name_server",
    "patient",
    "stamp",
]

NORM_BIT = "norm_bit"  # the metric of Flower's `adaptiveclipping_mod`
SERVER = 1  # Flower's node id of the server


def name_server() -> None:
    """Let messages be made in this process, as by the ServerApp of run 1."""
    if TaskIdentity is not None:
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, SERVER, 1


def stamp(message: Message, name: str) -> None:
    """Give a message its id, run and sender, as a grid does when it sends it."""
    fields = message.metadata.__dict__
    fields["_message_id"], fields["_run_id"], fields["_src_node_id"] = name, 1, SERVER


def mods_of(app: ClientApp) -> Sequence[Any]:
    """Return the mods of an app."""
    return getattr(app, "_mods", ())


def is_legacy(app: ClientApp) -> bool:
    """Return whether an app is made from a `client_fn`, with messages of its own form."""
    return getattr(app, "_call", None) is not None


def patient(grid: Grid, wrap: Callable[[Callable[[Exception], bool]], Any]) -> None:
    """Replace the rule by which a grid gives up a failed request; idempotent.

    Parameters
    ----------
    grid
        Flower's own, or any other, which is left as it is.
    wrap
        A class of rules, made from the one before.
    """
    invoker = getattr(grid, "_retry_invoker", None)
    if invoker is not None and not isinstance(invoker.should_giveup, wrap):  # type: ignore[arg-type]
        invoker.should_giveup = wrap(invoker.should_giveup)


def failed_inside(error: Exception) -> bool:
    """Return whether a SuperLink had an internal error, such as a locked database."""
    if getattr(getattr(error, "response", None), "status_code", None) == 500:  # of httpx
        return True
    code = getattr(error, "code", None)  # of gRPC, before Flower 1.38
    return callable(code) and getattr(code(), "name", None) in {"UNKNOWN", "INTERNAL"}


def bagged(earlier: bytes, later: bytes) -> bytes:
    """Return the trees of two models of XGBoost as one model."""
    return aggregate_bagging(earlier, later)
