"""The command ``pool chat``."""

import gc
import os
import sys

import click

from commands.options import (
    agent_option,
    connection_flags,
    role_option,
    session_option,
    with_client,
)
from doors.control.client import ControlClient
from errors import UsageError

_LINE_TERMINALS = frozenset({"dumb", "unknown"})


@click.command()
@session_option("The session.", default="chat", show_default=True)
@agent_option()
@role_option()
@click.option("--thinking", is_flag=True, help="Show the agent's reasoning too.")
@with_client
def chat(client: ControlClient, session: str, *, thinking: bool, **options: str | None) -> None:
    """Chat with a session on this terminal.

    Enter sends, also into a running turn; Alt-Enter or Ctrl-J begins a line; / lists commands. A tool call that
    needs approval is decided by y, n or a, and Enter. Ctrl-C aborts the turn, twice leaves; what runs goes on. With
    TERM=dumb it reads and prints plain lines.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError('`pool chat` needs a terminal; without one: pool prompt -s KEY "TEXT"')
    gc.disable()  # importing makes much and leaves nothing to collect: a tenth of the time to the prompt
    from commands.chat.machine import ChatMachine

    machine = ChatMachine(session, place=connection_flags(), thinking=thinking, **options)
    if os.environ.get("TERM", "").lower() in _LINE_TERMINALS:
        from commands.chat.line_screen import LineScreen

        run = LineScreen(machine, client.path, session).run
    else:
        from commands.chat.screen import ChatScreen

        run = ChatScreen(machine, client.path, session).run
    gc.enable()
    click.get_current_context().exit(run(client))
