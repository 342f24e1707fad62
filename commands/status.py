"""``pool status``, ``top``, ``waiting``, ``explain``, ``route``.

Tables need Rich, 30 ms to import: it is imported when there is an answer to draw.
"""

from typing import Any

import click

from commands.options import (
    agent_option,
    connection_flags,
    json_option,
    print_json,
    role_option,
    session_option,
    with_client,
)
from doors.control.client import ControlClient
from errors import UsageError
from wire.messages import omit_none

_CHAT_TYPES = ("dm", "group", "channel", "thread")


@click.command()
@click.option("--watch", is_flag=True, help="Redraw every second until Ctrl-C.")
@json_option
@with_client
def status(client: ControlClient, *, watch: bool, as_json: bool) -> None:
    """Show the pool: workers, waiters, profiles, latencies."""
    if watch and as_json:
        raise UsageError("--watch draws a screen and --json prints a document; choose one")
    from commands.output import show_result, watch_status

    if watch:
        watch_status(client, place=connection_flags())
    else:
        show_result(client, "status", as_json=as_json, place=connection_flags())


@click.command()
@with_client
def top(client: ControlClient) -> None:
    """Watch the pool live: workers, waiters, sessions with their last lines, events, latencies.

    Arrows select, tab changes between sessions and workers, s sorts, / filters, enter opens a session, a approves its
    call, r replaces its worker at the next turn boundary; space holds the screen, q quits.
    """
    from commands.top import run_top

    run_top(client, place=connection_flags())


@click.command()
@json_option
@with_client
def waiting(client: ControlClient, *, as_json: bool) -> None:
    """List the requests that wait for a worker, and why."""
    from commands.output import show_result

    show_result(client, "waiting.list", as_json=as_json)


@click.command()
@session_option("For this session.")
@agent_option("For this agent definition.")
@role_option("In this role.")
@json_option
@with_client
def explain(client: ControlClient, *, as_json: bool, **params: str | None) -> None:
    """Explain how well each worker matches a session or an agent, and what rules it out."""
    result = client.call("explain", params)
    if as_json:
        print_json(result)
    else:
        from commands.output import open_console
        from commands.tables import explanation_table

        console = open_console()
        console.print(explanation_table(result, console.width))


def _as_peer(ctx: click.Context, param: click.Parameter, value: str | None) -> dict[str, str] | None:
    """Read ``channel:123``: kind and id of a chat."""
    if value is None:
        return None
    kind, colon, name = value.partition(":")
    if not colon or kind not in _CHAT_TYPES or not name:
        raise click.BadParameter(f"write KIND:ID, KIND being one of {', '.join(_CHAT_TYPES)}", ctx, param)
    return {"kind": kind, "id": name}


@click.command()
@click.option("--channel", required=True, metavar="C", help="The channel of the message, such as telegram.")
@click.option("--chat-type", required=True, type=click.Choice(_CHAT_TYPES), help="The kind of chat.")
@click.option("--sender", "sender_id", required=True, metavar="S", help="The sender's id.")
@click.option("--chat", "chat_id", metavar="C", help="The chat's id (direct messages: the sender's).")
@click.option("--account", "account_id", metavar="A", help="The account that received it.")
@click.option("--thread", "thread_id", metavar="T", help="The thread's id.")
@click.option("--topic", "topic_id", metavar="T", help="The topic of a group.")
@click.option("--guild", "guild_id", metavar="G", help="The guild's id.")
@click.option("--role-id", "member_role_ids", multiple=True, metavar="R", help="A role of the sender (repeatable).")
@click.option("--parent", "parent_peer", callback=_as_peer, metavar="KIND:ID", help="The parent chat of a thread.")
@click.option("--text", default="", metavar="T", help="The message.")
@json_option
@with_client
def route(
    client: ControlClient,
    text: str,
    *,
    chat_type: str,
    sender_id: str,
    chat_id: str | None,
    as_json: bool,
    **source: Any,
) -> None:
    """Explain how a message is routed: agent, session, role, workspace, and why. Starts no run."""
    if chat_id is None and chat_type != "dm":
        raise UsageError(f"a message of a {chat_type} needs --chat: which one?")
    source["member_role_ids"] = list(source["member_role_ids"]) or None
    message = omit_none(chat_type=chat_type, sender_id=sender_id, chat_id=chat_id or sender_id, **source)
    decision = client.call("route", {"source": message, "text": text})
    if as_json:
        print_json(decision)
    else:
        from commands.output import open_console
        from commands.tables import route_view

        open_console().print(route_view(decision))
