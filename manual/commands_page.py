"""The page of all commands, from the command line itself."""

from collections.abc import Iterator

import click

import cli
from manual.markdown import one_line, table

_INTRODUCTION = """# Commands

Every command takes `-h`. Those that talk to a supervisor find it by `--socket`, `$POOL_SOCKET`, or the data directory
of the settings (`--config`, `$POOL_CONFIG`, `./pool.toml`, `~/.config/pool/pool.toml`). Every command that answers
takes `--json` and prints one document then, of a method that it calls the result; those without it run until they are
ended, or write a file. `pool prompt --json` and `pool events follow --json` print a line an event.
"""


def commands_page() -> str:
    """The page."""
    root = click.Context(cli.main, info_name="pool")
    lines = [_INTRODUCTION]
    for name in cli.main.list_commands(root):
        command = cli.main.get_command(root, name)
        if command is not None:
            lines += _describe(command, click.Context(command, info_name=name, parent=root), "##")
    return "\n".join(lines)


def _describe(command: click.Command, context: click.Context, level: str) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from (f"{level} {context.command_path}", "", "```text", usage, "```", "", _help(command), "")
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [(f"`{spelling}`", one_line(text)) for spelling, text in filter(None, records) if "--help" not in spelling]
    yield from table(("option", ""), rows)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                yield from _describe(inner, click.Context(inner, info_name=name, parent=context), f"{level}#")


def _help(command: click.Command) -> str:
    """Its help; what is set out line by line there stays so."""
    paragraphs = [text for text in (command.help or "", command.epilog or "") if text]
    parts = [part for text in paragraphs for part in text.replace("\b\n", "\b").split("\n\n")]
    return "\n\n".join(
        f"```text\n{part.removeprefix(chr(8)).rstrip()}\n```" if part.startswith("\b") else part for part in parts
    )
