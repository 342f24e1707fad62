"""``pool approvals``: the pending tool calls, and all of what one of them would do."""

from typing import TYPE_CHECKING

import click

from cli.options import given_place, json_option, place_options, with_client

if TYPE_CHECKING:
    from doors.control_client import ControlClient

__all__ = ["approvals"]


@click.group(invoke_without_command=True, short_help="List pending tool calls; show one in full.")
@place_options
@json_option
@click.pass_context
def approvals(ctx: click.Context, /, **options: str | bool | None) -> None:
    """List the tool calls that wait for approval; show one in full."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_approvals, **options)


@approvals.command("list")
@json_option
@with_client
def list_approvals(client: "ControlClient", *, as_json: bool) -> None:
    """List the pending tool calls, with the command to type for each."""
    from doors.approval_views import show_approvals

    show_approvals(client, as_json=as_json, place=given_place())


@approvals.command("show")
@click.argument("call_id", metavar="CALL")
@click.option("-s", "--session", metavar="KEY", help="The call's session, where several have a call of that name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, a page a line.")
@with_client
def show(client: "ControlClient", call_id: str, session: str | None, *, as_json: bool) -> None:
    """Show all of what a tool call would do, and the commands to decide about it.

    Line breaks are line breaks; runs of spaces, tabs and control characters are marked; a change of a file is a diff.
    """
    from doors.approval_views import show_approval

    show_approval(client, call_id, session, as_json=as_json, place=given_place())
