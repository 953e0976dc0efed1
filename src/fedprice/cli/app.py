"""The application: its commands, and how errors end it."""

from __future__ import annotations

import io
import os
import sys
import warnings
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from fedprice.cli import STOPPED
from fedprice.cli.calibrate import calibrate
from fedprice.cli.compare import compare
from fedprice.cli.console import show_warnings
from fedprice.cli.data import data
from fedprice.cli.explain import explain
from fedprice.cli.flower import flower
from fedprice.cli.flower_new import new
from fedprice.cli.ledger import ledger, verify
from fedprice.cli.payouts import request, reverse, rotate, settle, withdraw
from fedprice.cli.post import post
from fedprice.cli.price import price
from fedprice.cli.respond import respond
from fedprice.cli.reveal import reveal
from fedprice.cli.serve import serve
from fedprice.cli.simulate import simulate
from fedprice.cli.statement import statement
from fedprice.cli.study import study
from fedprice.errors import FedpriceError, InputError
from fedprice.pricing.display import safe

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["app", "run"]

GROUPS: dict[str, tuple[Callable[..., None] | typer.Typer, ...]] = {
    "A server": (price, post, calibrate, simulate, serve, ledger, flower),
    "A client": (respond, statement, verify),
    "A researcher": (study, compare, reveal, data),
    "": (explain,),  # named in the last line of the help instead
}
LONGEST = 2000  # characters of an error
MOVED = {  # what older releases called it, and where it is
    "frontier": "price CLIENTS --budgets LO:HI:N",
    "steps": "calibrate WHAT --steps E,E,…",
    "lies": "compare CLIENTS --scheme equilibrium --lies 2",
    "reproduce": "study paper, or fedprice study setup1 …",
    "report": "study, again with the same --out",
    "example": "data example",
    "compare --train": "study WHAT --clients CLIENTS --scheme A --scheme B",
}
COMMANDS = {
    str(what.info.name if isinstance(what, typer.Typer) else what.__name__): (group, what)
    for group, commands in GROUPS.items()
    for what in commands
}
for of_ledger in (settle, request, withdraw, reverse, rotate):
    ledger.command()(of_ledger)
flower.command()(new)


class Commands(TyperGroup):
    """The commands, each made when it is called: typer takes 0.15 s to make all of them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: dict[str, Any] = dict.fromkeys(COMMANDS)
        self.commands = names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name, or None."""
        if cmd_name in MOVED:
            raise InputError(f"`fedprice {cmd_name}` is now: fedprice {MOVED[cmd_name]}")
        if cmd_name not in COMMANDS:
            return None
        group, what = COMMANDS[cmd_name]
        if isinstance(what, typer.Typer):
            made: Any = typer.main.get_group(what)
        else:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command()(what)
            made = typer.main.get_command(alone)
        made.name, made.rich_help_panel, made.hidden = cmd_name, group, not group
        return made


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="fedprice explain WORD says what a word means, and fedprice explain schemes lists the "
    "schemes.",
)

# The base class of typer's command-line errors; newer releases bundle their own copy of click.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[2]


def _version(wanted: bool) -> None:
    if wanted:
        from fedprice import __version__

        typer.echo(f"fedprice {__version__}")
        raise typer.Exit


@app.callback()
def fedprice(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Price participation in federated learning: what to pay each client, proven optimal."""


def run() -> int:
    """Run the command line and return its exit code; every error is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # for terminals that cannot show α
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_: show_warnings([str(message)])
            code = app(prog_name="fedprice", standalone_mode=False)
        sys.stdout.flush()
    except FedpriceError as error:
        from fedprice.cli.odd_files import named_file

        named = named_file(str(error), sys.argv[1:])
        return _fail(named, InputError.exit_code) if named else _fail(str(error), error.exit_code)
    except _CommandLineError as error:
        old = f"{' '.join(sys.argv[1:2])} {getattr(error, 'option_name', '')}"
        said = f"`fedprice {old}` is now: fedprice {MOVED[old]}" if old in MOVED else ""
        return _fail(said or error.format_message(), 2)  # type: ignore[attr-defined]
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped.", STOPPED)
    except MemoryError:
        return _fail("this takes more memory than there is; give smaller files.", 1)
    except OSError as error:
        # stdout is gone or full: keep the interpreter from complaining when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        quiet = isinstance(error, BrokenPipeError)
        return _fail("" if quiet else f"cannot write the result: {error.strerror or error}.", 1)
    if code == STOPPED:  # typer turns an interrupt into this code
        return _fail("stopped.", STOPPED)
    return int(code or 0)


def _fail(message: str, code: int) -> int:
    line = safe(" ".join(message.split()))
    line = line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
    if line:
        sys.stderr.write(f"fedprice: {line}\n")
    return code
