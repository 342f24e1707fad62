"""Groups of commands: the other words for a subcommand, and completion that says all of a description."""

import click
from click.shell_completion import CompletionItem

_SYNONYMS = {"ls": "list", "status": "list", "peek": "list", "get": "show", "rm": "delete", "remove": "delete"}
"""Words that are understood beside those that the help lists."""
_LONGEST_HELP = 200


class CommandGroup(click.Group):
    """A plural noun with its verbs; ``ls``, ``get``, ``rm`` and ``remove`` stand for the verbs that are listed."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that the first word names."""
        first, *rest = args
        known = first in self.commands or first not in _SYNONYMS
        return super().resolve_command(ctx, args if known else [_SYNONYMS[first], *rest])

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
