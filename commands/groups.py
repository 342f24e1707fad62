"""Groups of commands: the other words for a subcommand, and completion that says all of a description."""

from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

_SYNONYMS = {"ls": "list", "status": "list", "peek": "list", "get": "show", "rm": "delete", "remove": "delete"}
"""Words that are understood beside those that the help lists."""
_LONGEST_HELP = 200


class CommandGroup(click.Group):
    """A plural noun with its verbs; ``ls``, ``get``, ``rm`` and ``remove`` stand for the verbs that are listed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that the first word names. Raises click.UsageError for an option before it that it ignores."""
        first, *rest = args
        verb = first if first in self.commands else _SYNONYMS.get(first, first)
        found = super().resolve_command(ctx, [verb, *rest] if verb in self.commands else args)
        _refuse_ignored_options(ctx, found[1])
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's
        """Write the subcommands with whole descriptions; click itself cuts them to one line."""
        rows = [(name, command.get_short_help_str(_LONGEST_HELP)) for name, command in self._listed()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The subcommands with this prefix; click itself cuts their descriptions."""
        names = [
            CompletionItem(name, help=command.get_short_help_str(_LONGEST_HELP))
            for name, command in self._listed()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def _listed(self) -> list[tuple[str, click.Command]]:
        return [(name, self.commands[name]) for name in sorted(self.commands) if not self.commands[name].hidden]


def _refuse_ignored_options(ctx: click.Context, command: click.Command | None) -> None:
    """An option of the group holds for the subcommands that have it too; for another one it would mean nothing."""
    known = {param.name for param in command.params} if command is not None else set[Any]()
    for param in ctx.command.params:
        is_given = ctx.get_parameter_source(param.name or "") is ParameterSource.COMMANDLINE
        if command is not None and is_given and param.name not in known:
            raise click.UsageError(f"`{ctx.command_path} {command.name}` has no option {param.opts[-1]}", ctx)
