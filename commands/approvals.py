"""``pool approvals``: list the pending tool calls; show one in full, page by page."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from commands.completion import complete_calls
from commands.event_text import approve_command, deny_command, option_notes, reason_text, show_command
from commands.groups import CommandGroup
from commands.layout import approval_lines, page_texts, short_key
from commands.options import (
    connection_flags,
    connection_options,
    json_option,
    print_json,
    session_option,
    with_client,
)
from commands.output import open_console
from commands.session_view import session_view
from doors.control.client import ControlClient
from errors import PoolError
from wire.call_page import CallPage, describe_hidden
from wire.terminal import clean


@click.group(cls=CommandGroup, invoke_without_command=True)
@json_option
@connection_options
@click.pass_context
def approvals(ctx: click.Context, /, **options: str | bool | None) -> None:
    """List the tool calls that wait for approval; show one in full."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_approvals, **options)


@approvals.command("list")
@json_option
@with_client
def list_approvals(client: ControlClient, *, as_json: bool) -> None:
    """List the pending tool calls, with the command to type for each."""
    asked = client.call("approvals.list")
    if as_json:
        print_json(asked)
    else:
        lines = Group(*approval_lines(asked, connection_flags(), margin=6))
        open_console().print(lines if asked else "no tool call waits for approval")


@approvals.command("show")
@click.argument("call_id", metavar="CALL", shell_complete=complete_calls)
@session_option("The call's session, if the id is ambiguous.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a page a line.")
@with_client
def show(client: ControlClient, call_id: str, session: str | None, *, as_json: bool) -> None:
    """Show all of what a tool call would do, and the commands to decide about it.

    Line breaks are line breaks; runs of spaces, tabs and control characters are marked; a change of a file is a diff.
    """
    if as_json:
        for shown in _pages(client, call_id, session):
            click.echo(msgspec.json.encode(shown))
        return
    console, pages, place = open_console(), _pages(client, call_id, session), connection_flags()
    shown = first = next(pages)
    title = f"{clean(first.call['name'])} in session {short_key(first.session)}"
    _print(console, Text.assemble((title, "bold"), reason_text({"call": first.call})))
    for shown in chain([first], pages):
        _print(console, *page_texts(shown.page, console.width, margin=_MARGIN))
    if shown.is_partial:
        _print(console, Text("its agent shows no more than this of its calls", "yellow"))
    about = {"call": shown.call}
    approve = approve_command(about, shown.session, place, seen=shown.page.seen)
    _print_commands(console, approve, deny_command(about, shown.session, place), *option_notes(about))


_MARGIN = 2
_MAX_APPROVALS_SHOWN = 10


class _ApprovalPage(msgspec.Struct):
    """An answer of ``approvals.show``."""

    session: str
    call: dict[str, Any]
    page: CallPage
    is_partial: bool = False


def show_session(client: ControlClient, key: str, *, as_json: bool, place: str) -> None:
    """All that is known of a session, and in full what it asks people."""
    document = client.call("sessions.get", {"session": key})
    if as_json:
        print_json(document)
        return
    console = open_console()
    _print(console, session_view(document))
    pending = document.get("pending_permissions", ())
    for call in pending[:_MAX_APPROVALS_SHOWN]:
        _print_approval(client, console, call, str(document["key"]), place)
    if (more := len(pending) - _MAX_APPROVALS_SHOWN) > 0:
        _print(console, Text(f"and {more} more; pool approvals has all of them", "dim"))


def _print_approval(client: ControlClient, console: Console, call: dict[str, Any], session: str, place: str) -> None:
    """A session's pending call: its first page, and the commands to type."""
    about = {"call": call}
    _print(console, Text.assemble(("asks  ", "yellow"), clean(call["name"]), (reason_text(about), "dim")))
    try:
        page = next(_pages(client, call["id"], session)).page
    except PoolError as exc:  # it may have been decided meanwhile
        _print(console, Text(clean(exc.message), "yellow"))
        return
    _print(console, *page_texts(page, console.width, margin=_MARGIN))
    if page.hidden:
        _print(console, Text(f"… {describe_hidden(page)}; this shows all of it, and how to approve it:", "yellow"))
        first = show_command(about, session, place)
    else:
        first = approve_command(about, session, place, seen=page.seen)
    _print_commands(console, first, deny_command(about, session, place), *option_notes(about))


def _pages(client: ControlClient, call_id: str, session: str | None) -> Iterator[_ApprovalPage]:
    offset = 0
    while True:
        params = {"call_id": call_id, "offset": offset} | ({"session": session} if session else {})
        shown = msgspec.convert(client.call("approvals.show", params), _ApprovalPage)
        yield shown
        if not shown.page.hidden or shown.page.end <= offset:
            return
        offset = shown.page.end


def _print(console: Console, *lines: RenderableType) -> None:
    for line in lines:
        console.print(line, crop=False)


def _print_commands(console: Console, *commands: str) -> None:
    """Commands to be copied: in bold, never broken."""
    _print(console, *(Text(command, "bold", no_wrap=True, overflow="ignore") for command in commands))
