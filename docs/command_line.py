"""The reference of the command line, made from the command line itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from fedprice.cli.app import app

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["command_reference"]


def command_reference() -> str:
    """Return a section per command as Markdown: what it does, its arguments and its options."""
    return "\n".join(_sections("fedprice", typer.main.get_command(app)))


def _sections(name: str, command: Any) -> Iterator[str]:
    context = command.make_context(name, [], resilient_parsing=True)
    if hasattr(command, "commands"):
        for child in command.list_commands(context):
            subcommand = command.get_command(context, child)
            if not subcommand.hidden:
                yield from _sections(f"{name} {child}", subcommand)
        return
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"### {name}", "", command.help or "", "", "```text", f"{name} {usage}", "```", "")
    rows = [
        record
        for parameter in command.params
        if (record := _described(parameter, context)) and not parameter.hidden
    ]
    if rows:
        yield from ("| argument or option | |", "|---|---|")
        for names, text in rows:
            cell = text.replace("|", "\\|").replace("\n", " ")
            yield f"| `{names.replace('|', chr(92) + '|')}` | {cell} |"
        yield ""


def _described(parameter: Any, context: Any) -> tuple[str, str] | None:
    record: tuple[str, str] | None = parameter.get_help_record(context)
    if record is None and getattr(parameter, "help", None):
        return parameter.make_metavar(context), parameter.help
    return record
