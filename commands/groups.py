"""Groups of commands: the other words for a subcommand, and completion that says all of a description."""

import click
from click.shell_completion import CompletionItem

_SYNONYMS = {"ls": "list", "status": "list", "get": "show", "rm": "delete", "remove": "delete"}
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

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The subcommands with this prefix; click itself cuts their descriptions."""
        listed = [(name, command) for name, command in self.commands.items() if not command.hidden]
        names = [
            CompletionItem(name, help=command.get_short_help_str(_LONGEST_HELP))
            for name, command in listed
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]
